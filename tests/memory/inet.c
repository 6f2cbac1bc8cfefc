/* The box's own network: listening, established, with bytes unread, and a transfer that goes on. */
#include "memory.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

static struct sockaddr_in loopback(uint16_t port)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(port) };

	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	return a;
}

static uint16_t port_of(int fd)
{
	struct sockaddr_in6 a;
	socklen_t n = sizeof(a);

	return getsockname(fd, (void *)&a, &n) == 0 ? ntohs(a.sin6_port) : 0;
}

static int listens(uint16_t *port)
{
	struct sockaddr_in a = loopback(0);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	MUST(fd >= 0 && bind(fd, (void *)&a, sizeof(a)) == 0 && listen(fd, 8) == 0);
	*port = port_of(fd);
	return fd;
}

static int connects(uint16_t port)
{
	struct sockaddr_in a = loopback(port);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	if (fd >= 0 && connect(fd, (void *)&a, sizeof(a)) < 0) {
		close(fd);
		return -1;
	}
	return fd;
}

/* A new connection to it carries bytes. */
static bool serves(int listener, uint16_t port)
{
	int a = connects(port),
	    b = a < 0 || !readable(listener, 3000) ? -1 : accept(listener, NULL, NULL);
	bool ok = b >= 0 && writes(a, 100, 1) && reads(b, 100, 1) && writes(b, 50, 2) &&
		  reads(a, 50, 2);

	close(a);
	close(b);
	return ok;
}

/* ---- tcp ---- */

static int t_listen, t_client, t_server, t_six, t_shut[2];
static uint16_t t_port, t_client_port, t_six_port;

static void six_setup(void)
{
	struct sockaddr_in6 a = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };

	t_six = socket(AF_INET6, SOCK_STREAM, 0);
	if (t_six < 0 || bind(t_six, (void *)&a, sizeof(a)) < 0 || listen(t_six, 4) < 0) {
		without("IPv6");
		close(t_six);
		t_six = -1;
		return;
	}
	t_six_port = port_of(t_six);
}

static void tcp_setup(const char *argument)
{
	int on = 1, buffer = 50000;

	(void)argument;
	t_listen = listens(&t_port);
	t_client = connects(t_port);
	MUST(t_client >= 0);
	t_server = accept(t_listen, NULL, NULL);
	MUST(t_server >= 0);
	t_client_port = port_of(t_client);
	MUST(setsockopt(t_client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) == 0);
	MUST(setsockopt(t_client, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on)) == 0);
	MUST(setsockopt(t_server, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof(buffer)) == 0);
	MUST(fcntl(t_server, F_SETFL, O_NONBLOCK) == 0);
	MUST(writes(t_client, 5000, 1) && writes(t_server, 3000, 2));
	/* One that has said all it wanted. */
	t_shut[0] = connects(t_port);
	MUST(t_shut[0] >= 0);
	t_shut[1] = accept(t_listen, NULL, NULL);
	MUST(t_shut[1] >= 0 && writes(t_shut[0], 40, 3) && shutdown(t_shut[0], SHUT_WR) == 0);
	six_setup();
}

static void tcp_check(void)
{
	struct sockaddr_in a;
	socklen_t len = sizeof(a);
	unsigned char b[41];
	int n = 0;

	CHECK(reads(t_server, 5000, 1) && writes(t_client, 5000, 1));
	CHECK(reads(t_client, 3000, 2) && writes(t_server, 3000, 2));
	IS(port_of(t_listen), t_port);
	CHECK(getpeername(t_server, (void *)&a, &len) == 0);
	IS(ntohs(a.sin_port), t_client_port);
	len = sizeof(n);
	CHECK(getsockopt(t_client, IPPROTO_TCP, TCP_NODELAY, &n, &len) == 0);
	IS(n != 0, 1);
	CHECK(getsockopt(t_client, SOL_SOCKET, SO_KEEPALIVE, &n, &len) == 0);
	IS(n != 0, 1);
	IS(fcntl(t_server, F_GETFL) & O_NONBLOCK, O_NONBLOCK);
	CHECK(readable(t_shut[1], 2000));
	CHECK(recv(t_shut[1], b, sizeof(b), MSG_PEEK) == 40 && filled(b, 40, 3));
	CHECK(writes(t_shut[1], 7, 4) && reads(t_shut[0], 7, 4));
	CHECK(serves(t_listen, t_port));
	if (t_six >= 0)
		IS(port_of(t_six), t_six_port);
}

const struct subject subject_tcp = { "tcp", tcp_setup, tcp_check, NULL, NULL };

/* ---- transfer: a child sends without end, a thread reads and knows each byte ---- */

static int x_fd;
static volatile uint64_t x_bytes, x_seen;
static volatile bool x_bad, x_end;

static void *x_read(void *arg)
{
	unsigned char b[16384];
	ssize_t n;

	(void)arg;
	while ((n = read(x_fd, b, sizeof(b))) > 0) {
		for (ssize_t i = 0; i < n; i++)
			if (b[i] != (unsigned char)((x_bytes + (uint64_t)i) % 251))
				x_bad = true;
		x_bytes += (uint64_t)n;
	}
	x_end = true;
	return NULL;
}

static void x_send(int fd)
{
	unsigned char b[16384];
	uint64_t at = 0;

	for (;;) {
		ssize_t n;

		for (size_t i = 0; i < sizeof(b); i++)
			b[i] = (unsigned char)((at + i) % 251);
		n = send(fd, b, sizeof(b), MSG_NOSIGNAL);
		if (n <= 0)
			_exit(1);
		at += (uint64_t)n;
		nap_ms(4);
	}
}

static void transfer_setup(const char *argument)
{
	pthread_t t;
	uint16_t port;
	int l = listens(&port), fd;

	(void)argument;
	fd = connects(port);
	MUST(fd >= 0);
	x_fd = accept(l, NULL, NULL);
	MUST(x_fd >= 0);
	if (fork() == 0) {
		close(x_fd);
		close(l);
		x_send(fd);
	}
	close(fd);
	close(l);
	MUST(pthread_create(&t, NULL, x_read, NULL) == 0);
}

static void transfer_check(void)
{
	int64_t end = mono_ns() + 10000000000LL;

	/* More than what can have been on its way. */
	while (x_bytes < x_seen + 200000 && !x_end && mono_ns() < end)
		nap_ms(1);
	CHECK(!x_end);
	CHECK(!x_bad);
	CHECK(x_bytes > x_seen);
	x_seen = x_bytes;
}

const struct subject subject_transfer = { "transfer", transfer_setup, transfer_check, NULL, NULL };

/* ---- udp: sockets stay what they are. A datagram under way may be lost, as ever. ---- */

static int d_bound, d_peer;
static uint16_t d_port, d_peer_port;

static bool passes(int from, int to, unsigned seed)
{
	unsigned char b[300], c[300];
	ssize_t n;

	fill(b, sizeof(b), seed);
	if (send(from, b, sizeof(b), 0) != sizeof(b))
		return false;
	do {
		if (!readable(to, 3000))
			return false;
		n = recv(to, c, sizeof(c), 0);
	} while (n == 5); /* what was in the queue since the setup */
	return n == sizeof(c) && memcmp(b, c, sizeof(c)) == 0;
}

static void udp_setup(const char *argument)
{
	struct sockaddr_in a = loopback(0), b = loopback(0);

	(void)argument;
	d_bound = socket(AF_INET, SOCK_DGRAM, 0);
	d_peer = socket(AF_INET, SOCK_DGRAM, 0);
	MUST(d_bound >= 0 && bind(d_bound, (void *)&a, sizeof(a)) == 0);
	MUST(d_peer >= 0 && bind(d_peer, (void *)&b, sizeof(b)) == 0);
	d_port = port_of(d_bound);
	d_peer_port = port_of(d_peer);
	a = loopback(d_port);
	b = loopback(d_peer_port);
	MUST(connect(d_peer, (void *)&a, sizeof(a)) == 0 &&
		connect(d_bound, (void *)&b, sizeof(b)) == 0);
	MUST(send(d_peer, "early", 5, 0) == 5);
}

static void udp_check(void)
{
	IS(port_of(d_bound), d_port);
	IS(port_of(d_peer), d_peer_port);
	CHECK(passes(d_peer, d_bound, 1));
	CHECK(passes(d_bound, d_peer, 2));
	CHECK(send(d_peer, "early", 5, 0) == 5);
}

const struct subject subject_udp = { "udp", udp_setup, udp_check, NULL, NULL };
