/*
 * bench-net: bytes over TCP, timed from the client's side. Inside a box it needs nothing but itself.
 *
 *   bench-net serve FILE                   serves on 127.0.0.1; its port goes to FILE; ends with its parent
 *   bench-net connect HOST PORT N          N connections one after the other:
 *                                          connect: until connect() returned; byte: until the first byte came back
 *   bench-net down|up HOST PORT SIZE STREAMS N   N transfers of SIZE bytes on each of STREAMS connections
 *   bench-net request HOST PORT N          N exchanges of 64 bytes over one connection
 *
 * With "via-proxy" at the end all goes with CONNECT through the HTTP proxy that $http_proxy names
 * (http://[USER:PASSWORD@]HOST:PORT). Each result is a line "name<TAB>nanoseconds".
 *
 * A connection begins with 16 bytes: 0x01, what ('d', 'u', 'e'), and the size.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define PIECE (256 << 10)

struct head {
	uint8_t magic, what, zero[6];
	uint64_t size;
};

static const char *proxy_host, *proxy_port;
static char proxy_auth[2048];
static struct addrinfo *target;
static const char *target_host, *target_port;

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static int read_all(int fd, void *p, size_t n)
{
	while (n) {
		ssize_t r = recv(fd, p, n, 0);

		if (r <= 0)
			return -1;
		p = (char *)p + r;
		n -= (size_t)r;
	}
	return 0;
}

static int write_all(int fd, const void *p, size_t n)
{
	while (n) {
		ssize_t r = send(fd, p, n, MSG_NOSIGNAL);

		if (r <= 0)
			return -1;
		p = (const char *)p + r;
		n -= (size_t)r;
	}
	return 0;
}

/* size bytes are sent, or received and thrown away. */
static int stream(int fd, uint64_t size, int sending)
{
	static char out[PIECE];
	char *in = sending ? NULL : malloc(PIECE);
	int r = 0;

	while (size && r == 0) {
		size_t n = size < PIECE ? size : PIECE;
		ssize_t got = sending ? send(fd, out, n, MSG_NOSIGNAL) : recv(fd, in, n, 0);

		if (got <= 0)
			r = -1;
		else
			size -= (uint64_t)got;
	}
	free(in);
	return r;
}

/* ---- the server ---- */

static void *serve_one(void *arg)
{
	int fd = (int)(intptr_t)arg;
	struct head h;
	char small[64];

	while (read_all(fd, &h, sizeof(h)) == 0 && h.magic == 1) {
		if (h.what == 'd' && stream(fd, h.size, 1) < 0)
			break;
		if (h.what == 'u' && (stream(fd, h.size, 0) < 0 || write_all(fd, "k", 1) < 0))
			break;
		while (h.what == 'e' && h.size--)
			if (read_all(fd, small, sizeof(small)) < 0 || write_all(fd, small, sizeof(small)) < 0)
				goto out;
	}
out:
	close(fd);
	return NULL;
}

static _Noreturn void serve(const char *file)
{
	struct sockaddr_in sa = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(sa);
	int s = socket(AF_INET, SOCK_STREAM, 0), on = 1;
	pthread_attr_t attr;
	char tmp[4096];
	FILE *f;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (s < 0 || bind(s, (struct sockaddr *)&sa, sizeof(sa)) < 0 || listen(s, 1024) < 0 ||
		getsockname(s, (struct sockaddr *)&sa, &len) < 0)
		die("listen");
	snprintf(tmp, sizeof(tmp), "%s.new", file);
	f = fopen(tmp, "w");
	if (!f || fprintf(f, "%u\n", ntohs(sa.sin_port)) < 0 || fclose(f) || rename(tmp, file))
		die(file);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 65536);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	for (;;) {
		int fd = accept(s, NULL, NULL);
		pthread_t t;

		if (fd < 0)
			continue;
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
		if (pthread_create(&t, &attr, serve_one, (void *)(intptr_t)fd))
			close(fd);
	}
}

/* ---- the client ---- */

static struct addrinfo *look_up(const char *host, const char *port)
{
	struct addrinfo hints = { .ai_family = AF_INET, .ai_socktype = SOCK_STREAM }, *a;
	int r = getaddrinfo(host, port, &hints, &a);

	if (r) {
		fprintf(stderr, "%s: %s\n", host, gai_strerror(r));
		exit(1);
	}
	return a;
}

static void decode(char *s)
{
	char *out = s;

	for (; *s; s++) {
		unsigned c;

		if (*s == '%' && sscanf(s + 1, "%2x", &c) == 1) {
			*out++ = (char)c;
			s += 2;
		} else {
			*out++ = *s;
		}
	}
	*out = '\0';
}

static void base64(const char *in, char *out)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	size_t n = strlen(in);

	for (size_t i = 0; i < n; i += 3) {
		uint32_t v = (uint32_t)(uint8_t)in[i] << 16;

		v |= i + 1 < n ? (uint32_t)(uint8_t)in[i + 1] << 8 : 0;
		v |= i + 2 < n ? (uint8_t)in[i + 2] : 0;
		*out++ = digits[v >> 18];
		*out++ = digits[v >> 12 & 63];
		*out++ = i + 1 < n ? digits[v >> 6 & 63] : '=';
		*out++ = i + 2 < n ? digits[v & 63] : '=';
	}
	*out = '\0';
}

/* http://[USER:PASSWORD@]HOST:PORT */
static void find_proxy(void)
{
	char *text = strdup(getenv("http_proxy") ? getenv("http_proxy") : ""), *at, *host;

	if (strncmp(text, "http://", 7)) {
		fprintf(stderr, "http_proxy is not there\n");
		exit(1);
	}
	host = text + 7;
	at = strrchr(host, '@');
	if (at) {
		*at = '\0';
		decode(host);
		base64(host, proxy_auth);
		host = at + 1;
	}
	proxy_host = strtok(host, ":");
	proxy_port = strtok(NULL, ":/");
}

static void ask_proxy(int fd)
{
	char text[4096];
	size_t n = 0;

	snprintf(text, sizeof(text), "CONNECT %s:%s HTTP/1.1\r\nHost: %s:%s\r\n%s%s%s\r\n", target_host, target_port,
		target_host, target_port, *proxy_auth ? "Proxy-Authorization: Basic " : "", proxy_auth,
		*proxy_auth ? "\r\n" : "");
	if (write_all(fd, text, strlen(text)) < 0)
		die("proxy");
	while (n < 4 || memcmp(text + n - 4, "\r\n\r\n", 4)) {
		if (n == sizeof(text) || recv(fd, text + n, 1, 0) != 1)
			die("proxy");
		n++;
	}
	if (!memmem(text, n, " 200", 4)) {
		fprintf(stderr, "proxy: %.*s\n", (int)n, text);
		exit(1);
	}
}

static int dial(void)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	if (fd < 0 || connect(fd, target->ai_addr, target->ai_addrlen) < 0)
		die("connect");
	if (proxy_host)
		ask_proxy(fd);
	return fd;
}

static void told(const char *name, int64_t ns)
{
	printf("%s\t%lld\n", name, (long long)ns);
}

static void time_connects(int n)
{
	for (int i = 0; i < n; i++) {
		struct head h = { 1, 'd', { 0 }, 1 };
		int64_t t = now_ns(), connected;
		int fd = dial();
		char c;

		connected = now_ns();
		if (write_all(fd, &h, sizeof(h)) < 0 || read_all(fd, &c, 1) < 0)
			die("first byte");
		told("byte", now_ns() - t);
		told("connect", connected - t);
		close(fd);
	}
}

static void time_requests(int n)
{
	struct head h = { 1, 'e', { 0 }, (uint64_t)n };
	char b[64] = { 0 };
	int fd = dial();

	if (write_all(fd, &h, sizeof(h)) < 0)
		die("request");
	for (int i = 0; i < n; i++) {
		int64_t t = now_ns();

		if (write_all(fd, b, sizeof(b)) < 0 || read_all(fd, b, sizeof(b)) < 0)
			die("request");
		told("request", now_ns() - t);
	}
	close(fd);
}

static struct {
	char what;
	uint64_t size;
	pthread_barrier_t go;
} job;

/* One transfer; the connection is there before the clock starts. */
static void *transfer(void *arg)
{
	struct head h = { 1, (uint8_t)job.what, { 0 }, job.size };
	int fd = dial();
	char c;

	(void)arg;
	pthread_barrier_wait(&job.go);
	if (write_all(fd, &h, sizeof(h)) < 0 || stream(fd, job.size, job.what == 'u') < 0 ||
		(job.what == 'u' && read_all(fd, &c, 1) < 0))
		die("transfer");
	close(fd);
	return NULL;
}

static void time_transfers(char what, uint64_t size, unsigned streams, int n)
{
	pthread_t t[256];

	if (streams > 256)
		exit(2);
	job.what = what;
	job.size = size;
	for (int i = 0; i < n; i++) {
		int64_t start;

		pthread_barrier_init(&job.go, NULL, streams + 1);
		for (unsigned s = 0; s < streams; s++)
			if (pthread_create(&t[s], NULL, transfer, NULL))
				die("thread");
		pthread_barrier_wait(&job.go);
		start = now_ns();
		for (unsigned s = 0; s < streams; s++)
			pthread_join(t[s], NULL);
		told(what == 'd' ? "down" : "up", now_ns() - start);
		pthread_barrier_destroy(&job.go);
	}
}

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "serve"))
		serve(argv[2]);
	if (argc > 4 && !strcmp(argv[argc - 1], "via-proxy")) {
		find_proxy();
		argc--;
	}
	if (argc < 5)
		return 2;
	target_host = argv[2];
	target_port = argv[3];
	target = proxy_host ? look_up(proxy_host, proxy_port) : look_up(target_host, target_port);
	if (!strcmp(argv[1], "connect"))
		time_connects(atoi(argv[4]));
	else if (!strcmp(argv[1], "request"))
		time_requests(atoi(argv[4]));
	else if (argc == 7)
		time_transfers(argv[1][0], strtoull(argv[4], NULL, 10), (unsigned)atoi(argv[5]), atoi(argv[6]));
	return 0;
}
