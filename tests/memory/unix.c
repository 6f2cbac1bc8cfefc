/* Sockets of the box's own kernel: pairs, listening, connected, with bytes under way. */
#include "memory.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

/* n messages of growing length, each known */
static bool sends(int fd, int n, unsigned seed)
{
	unsigned char b[400];

	for (int i = 0; i < n; i++) {
		size_t len = 10 + (size_t)i * 30;

		fill(b, len, seed + (unsigned)i);
		if (send(fd, b, len, MSG_NOSIGNAL) != (ssize_t)len)
			return false;
	}
	return true;
}

static bool receives(int fd, int n, unsigned seed)
{
	unsigned char b[400];

	for (int i = 0; i < n; i++) {
		ssize_t len = 10 + i * 30;

		if (recv(fd, b, sizeof(b), MSG_DONTWAIT) != len ||
			!filled(b, (size_t)len, seed + (unsigned)i))
			return false;
	}
	errno = 0;
	return recv(fd, b, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

/* ---- socketpair ---- */

static int s_stream[2], s_dgram[2], s_seq[2], s_shut[2], s_echo;

static void socketpair_setup(const char *argument)
{
	(void)argument;
	MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, s_stream) == 0);
	MUST(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, s_dgram) == 0);
	MUST(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, s_seq) == 0);
	MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, s_shut) == 0);
	MUST(writes(s_stream[0], 20000, 1) && writes(s_stream[1], 3000, 2));
	MUST(sends(s_dgram[0], 5, 10) && sends(s_dgram[1], 2, 20));
	MUST(sends(s_seq[0], 4, 30));
	MUST(writes(s_shut[0], 64, 3) && shutdown(s_shut[0], SHUT_WR) == 0);
	echoing_child(&s_echo);
}

static void socketpair_check(void)
{
	unsigned char b[64];
	int n = -1;

	CHECK(ioctl(s_stream[1], FIONREAD, &n) == 0);
	IS(n, 20000);
	CHECK(reads(s_stream[1], 20000, 1) && writes(s_stream[0], 20000, 1));
	CHECK(reads(s_stream[0], 3000, 2) && writes(s_stream[1], 3000, 2));
	CHECK(receives(s_dgram[1], 5, 10) && sends(s_dgram[0], 5, 10));
	CHECK(receives(s_dgram[0], 2, 20) && sends(s_dgram[1], 2, 20));
	CHECK(receives(s_seq[1], 4, 30) && sends(s_seq[0], 4, 30));
	IS(fcntl(s_dgram[0], F_GETFL) & O_NONBLOCK, O_NONBLOCK);
	IS(fcntl(s_seq[0], F_GETFD), FD_CLOEXEC);
	CHECK(recv(s_shut[1], b, sizeof(b), MSG_PEEK | MSG_DONTWAIT) == 64 && filled(b, 64, 3));
	CHECK(send(s_shut[0], b, 1, MSG_NOSIGNAL) < 0 && errno == EPIPE);
	CHECK(writes(s_shut[1], 5, 4) && reads(s_shut[0], 5, 4)); /* the other way is open */
	CHECK(answers(s_echo, s_echo, 'e'));
}

const struct subject subject_socketpair = { "socketpair", socketpair_setup, socketpair_check, NULL,
	NULL };

/* ---- unix: names in the file system and abstract ones; a connection that waits to be accepted ---- */

static int u_listen, u_client, u_server, u_waiting, u_abstract;
static size_t u_bytes; /* that the one who waits has said already */

static socklen_t address(struct sockaddr_un *a, const char *name, bool abstract)
{
	memset(a, 0, sizeof(*a));
	a->sun_family = AF_UNIX;
	snprintf(a->sun_path + (abstract ? 1 : 0), sizeof(a->sun_path) - 1, "%s", name);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name) + 1);
}

static int listens(const char *name, bool abstract)
{
	struct sockaddr_un a;
	socklen_t n = address(&a, name, abstract);
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	MUST(fd >= 0 && bind(fd, (void *)&a, n) == 0 && listen(fd, 5) == 0);
	return fd;
}

static int connects(const char *name, bool abstract)
{
	struct sockaddr_un a;
	socklen_t n = address(&a, name, abstract);
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	if (fd >= 0 && connect(fd, (void *)&a, n) < 0) {
		close(fd);
		return -1;
	}
	return fd;
}

static void unix_setup(const char *argument)
{
	u_bytes = argument ? 300 : 0; /* unix=said: a case of its own, which not every wall can carry */
	u_listen = listens("stream.sock", false);
	u_client = connects("stream.sock", false);
	MUST(u_client >= 0);
	u_server = accept(u_listen, NULL, NULL);
	MUST(u_server >= 0 && writes(u_client, 5000, 1) && writes(u_server, 900, 2));
	u_waiting = connects("stream.sock", false);
	MUST(u_waiting >= 0 && (!u_bytes || writes(u_waiting, u_bytes, 3)));
	u_abstract = listens(argument ? "memory-said" : "memory-unix", true);
}

static void unix_check(void)
{
	struct ucred c;
	socklen_t len = sizeof(c);
	int fd;

	CHECK(reads(u_server, 5000, 1) && writes(u_client, 5000, 1));
	CHECK(reads(u_client, 900, 2) && writes(u_server, 900, 2));
	CHECK(getsockopt(u_server, SOL_SOCKET, SO_PEERCRED, &c, &len) == 0);
	IS(c.pid, getpid());
	/* The one that waits is accepted now, and the next one waits. */
	CHECK(readable(u_listen, 2000));
	if (readable(u_listen, 0)) {
		fd = accept(u_listen, NULL, NULL);
		CHECK(fd >= 0 && (u_bytes || writes(u_waiting, 300, 3)) && reads(fd, 300, 3));
		CHECK(writes(fd, 10, 4) && reads(u_waiting, 10, 4));
		close(fd);
		close(u_waiting);
	}
	CHECK(!readable(u_listen, 0));
	u_waiting = connects("stream.sock", false);
	CHECK(u_waiting >= 0 && (!u_bytes || writes(u_waiting, u_bytes, 3)));
	fd = connects(u_bytes ? "memory-said" : "memory-unix", true);
	CHECK(fd >= 0);
	close(fd);
	CHECK(readable(u_abstract, 2000));
	close(accept(u_abstract, NULL, NULL));
}

const struct subject subject_unix = { "unix", unix_setup, unix_check, NULL, NULL };

/* ---- dgram: a named receiver with messages in its queue ---- */

static int g_bound, g_sender;

static void dgram_setup(const char *argument)
{
	struct sockaddr_un a;
	socklen_t n = address(&a, "dgram.sock", false);

	(void)argument;
	g_bound = socket(AF_UNIX, SOCK_DGRAM, 0);
	g_sender = socket(AF_UNIX, SOCK_DGRAM, 0);
	MUST(g_bound >= 0 && bind(g_bound, (void *)&a, n) == 0);
	MUST(g_sender >= 0 && connect(g_sender, (void *)&a, n) == 0 && sends(g_sender, 3, 50));
}

static void dgram_check(void)
{
	struct stat st;

	CHECK(receives(g_bound, 3, 50) && sends(g_sender, 3, 50));
	CHECK(stat("dgram.sock", &st) == 0 && S_ISSOCK(st.st_mode));
}

const struct subject subject_dgram = { "dgram", dgram_setup, dgram_check, NULL, NULL };

/* ---- rights: descriptors that were sent and not received yet ---- */

static int r_pair[2];

static bool send_descriptor(int over, int fd)
{
	char room[CMSG_SPACE(sizeof(int))] = { 0 }, byte = 'r';
	struct iovec v = { &byte, 1 };
	struct msghdr m = {
		.msg_iov = &v, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof(room)
	};
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fd, sizeof(int));
	return sendmsg(over, &m, 0) == 1;
}

static int receive_descriptor(int over)
{
	char room[CMSG_SPACE(sizeof(int))] = { 0 }, byte;
	struct iovec v = { &byte, 1 };
	struct msghdr m = {
		.msg_iov = &v, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof(room)
	};
	struct cmsghdr *c;
	int fd = -1;

	if (recvmsg(over, &m, MSG_DONTWAIT) != 1)
		return -1;
	c = CMSG_FIRSTHDR(&m);
	if (c && c->cmsg_type == SCM_RIGHTS)
		memcpy(&fd, CMSG_DATA(c), sizeof(int));
	return fd;
}

static void rights_setup(const char *argument)
{
	int fd = open("sent", O_RDWR | O_CREAT, 0600);

	(void)argument;
	MUST(fd >= 0 && writes(fd, 500, 1) && lseek(fd, 0, SEEK_SET) == 0);
	MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, r_pair) == 0 && send_descriptor(r_pair[0], fd));
	close(fd);
}

static void rights_check(void)
{
	int fd = receive_descriptor(r_pair[1]);

	CHECK(fd >= 0);
	CHECK(reads(fd, 500, 1) && lseek(fd, 0, SEEK_SET) == 0);
	CHECK(send_descriptor(r_pair[0], fd));
	close(fd);
}

const struct subject subject_rights = { "rights", rights_setup, rights_check, NULL, NULL };
