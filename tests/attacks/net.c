/*
 * What a box without network may reach: nothing, and it must learn so at once.
 *
 *   net refused ADDR...	TCP and UDP to each address, in any spelling inet_aton(3) or inet_pton(3)
 *				reads, fail within a second
 *   net silent ADDR...	the same, where nobody is there to refuse: they may take their time, and fail
 *   net port ADDR PORT		0 when something answers there
 *   net abstract NAME		0 when an abstract unix socket of that name answers
 *   net families		socket families that lead out of the box, or deep into the kernel
 *   net cards			prints the names of all network cards
 */
#include "attack.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static int address(const char *text, int port, struct sockaddr_storage *ret, socklen_t *len)
{
	struct sockaddr_in *v4 = (struct sockaddr_in *)ret;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)ret;

	memset(ret, 0, sizeof(*ret));
	if (inet_aton(text, &v4->sin_addr)) {
		v4->sin_family = AF_INET;
		v4->sin_port = htons(port);
		*len = sizeof(*v4);
		return 0;
	}
	if (inet_pton(AF_INET6, text, &v6->sin6_addr) == 1) {
		v6->sin6_family = AF_INET6;
		v6->sin6_port = htons(port);
		*len = sizeof(*v6);
		return 0;
	}
	fprintf(stderr, "cannot read address %s\n", text);
	exit(2);
}

/* 0 connected, else the errno; ETIMEDOUT after three seconds */
static int try_connect(const char *text, int type, int port)
{
	struct sockaddr_storage a;
	socklen_t len;
	struct pollfd p = { .events = POLLOUT };
	int error = 0;
	socklen_t elen = sizeof(error);

	address(text, port, &a, &len);
	p.fd = socket(a.ss_family, type | SOCK_NONBLOCK, 0);
	if (p.fd < 0)
		return errno;
	if (connect(p.fd, (struct sockaddr *)&a, len) < 0 && errno != EINPROGRESS) {
		error = errno;
		close(p.fd);
		return error;
	}
	if (type == SOCK_DGRAM) {
		char b[8];

		/* An answer, or the news that nobody is there. */
		if (send(p.fd, "x", 1, 0) < 0) {
			error = errno;
			close(p.fd);
			return error;
		}
		p.events = POLLIN;
		if (poll(&p, 1, 3000) == 0) {
			close(p.fd);
			return ETIMEDOUT;
		}
		error = recv(p.fd, b, sizeof(b), 0) < 0 ? errno : 0;
		close(p.fd);
		return error;
	}
	if (poll(&p, 1, 3000) == 0) {
		close(p.fd);
		return ETIMEDOUT;
	}
	getsockopt(p.fd, SOL_SOCKET, SO_ERROR, &error, &elen);
	close(p.fd);
	return error;
}

static const struct {
	const char *name;
	int type, port;
} ways[] = { { "tcp", SOCK_STREAM, 80 }, { "tcp 443", SOCK_STREAM, 443 }, { "udp 53", SOCK_DGRAM, 53 },
	{ "udp 443", SOCK_DGRAM, 443 } };

/* All at a time: each waits for as long as it would for an answer. */
static int silent(int n, char **list)
{
	int bad = 0, status;

	for (int i = 0; i < n; i++)
		for (size_t k = 0; k < sizeof(ways) / sizeof(ways[0]); k++) {
			pid_t pid = fork();

			if (pid < 0)
				return 2;
			if (pid > 0)
				continue;
			if (try_connect(list[i], ways[k].type, ways[k].port))
				_exit(0);
			printf("OPEN %s %s: answered\n", list[i], ways[k].name);
			fflush(stdout);
			_exit(1);
		}
	while (wait(&status) > 0)
		bad |= status != 0;
	return bad;
}

static int refused(int n, char **list)
{
	int bad = 0;

	for (int i = 0; i < n; i++)
		for (size_t k = 0; k < sizeof(ways) / sizeof(ways[0]); k++) {
			double t = seconds();
			int error = try_connect(list[i], ways[k].type, ways[k].port);

			t = seconds() - t;
			if (error == 0 || error == ETIMEDOUT || t > 1.0) {
				printf("OPEN %s %s: %s after %.2f s\n", list[i], ways[k].name,
					error ? strerror(error) : "answered", t);
				bad++;
			}
		}
	return bad ? 1 : 0;
}

static int abstract(const char *name)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	memcpy(a.sun_path + 1, name, strlen(name));
	if (connect(fd, (struct sockaddr *)&a, offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name)) == 0)
		return 0;
	printf("%s\n", strerror(errno));
	return 1;
}

/* AF_PACKET and raw sockets see the box's own loopback alone, so only what is not in a network
 * namespace, or is seldom used and often broken, counts. */
static int families(void)
{
	static const struct {
		const char *name;
		int family, type;
	} list[] = { { "vsock", 40, SOCK_STREAM }, { "alg", 38, SOCK_SEQPACKET }, { "bluetooth", 31, SOCK_RAW },
		{ "tipc", 30, SOCK_RDM }, { "can", 29, SOCK_RAW }, { "rds", 21, SOCK_SEQPACKET },
		{ "key", 15, SOCK_RAW }, { "x25", 9, SOCK_SEQPACKET }, { "ax25", 3, SOCK_DGRAM },
		{ "nfc", 39, SOCK_SEQPACKET }, { "smc", 43, SOCK_STREAM }, { "xdp", 44, SOCK_RAW },
		{ "kcm", 41, SOCK_DGRAM }, { "phonet", 35, SOCK_DGRAM }, { "ib", 27, SOCK_RAW } };
	int bad = 0;

	for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++)
		if (socket(list[i].family, list[i].type, 0) >= 0) {
			printf("OPEN socket family %s\n", list[i].name);
			bad++;
		}
	return bad ? 1 : 0;
}

static int cards(void)
{
	struct if_nameindex *list = if_nameindex();

	for (struct if_nameindex *i = list; i && i->if_index; i++)
		puts(i->if_name);
	return list ? 0 : 1;
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc > 2 && !strcmp(argv[1], "refused"))
		return refused(argc - 2, argv + 2);
	if (argc > 2 && !strcmp(argv[1], "silent"))
		return silent(argc - 2, argv + 2);
	if (argc == 4 && !strcmp(argv[1], "port"))
		return try_connect(argv[2], SOCK_STREAM, atoi(argv[3])) ? 1 : 0;
	if (argc == 3 && !strcmp(argv[1], "abstract"))
		return abstract(argv[2]);
	if (argc == 2 && !strcmp(argv[1], "families"))
		return families();
	if (argc == 2 && !strcmp(argv[1], "cards"))
		return cards();
	fputs("usage: net refused ADDR... | silent ADDR... | port ADDR PORT | abstract NAME | families | cards\n", stderr);
	return 2;
}
