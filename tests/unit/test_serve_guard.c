/* What den-serve gives up and refuses, and what it takes from a program in a box. */
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "auth_limit.h"
#include "clock.h"
#include "guard.h"
#include "mem.h"
#include "test.h"
#include "upstream.h"

/* ---- the filter ---- */

static void *nothing(void *p)
{
	return p;
}

static int do_thread(void)
{
	pthread_t t;

	return pthread_create(&t, NULL, nothing, NULL) || pthread_join(t, NULL) ? 1 : 0;
}

static int do_fork(void)
{
	return (int)syscall(SYS_fork);
}

static int do_clone_process(void)
{
	return (int)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
}

static int do_exec(void)
{
	char *argv[] = { (char *)"true", NULL };

	return execve("/bin/true", argv, argv);
}

static int do_ptrace(void)
{
	return (int)syscall(SYS_ptrace, 0, 0, 0, 0);
}

static int do_kill(void)
{
	return (int)syscall(SYS_kill, 1, 0);
}

static int do_unshare(void)
{
	return (int)syscall(SYS_unshare, CLONE_NEWUSER);
}

static int do_code(void)
{
	return mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED;
}

static int do_inet(void)
{
	return socket(AF_INET, SOCK_STREAM, 0) < 0 && errno == EAFNOSUPPORT ? 0 : 1;
}

static int do_netlink(void)
{
	return socket(AF_NETLINK, SOCK_RAW, 0) < 0 && errno == EAFNOSUPPORT ? 0 : 1;
}

static int do_pair(void)
{
	int sv[2];

	return socketpair(AF_UNIX, SOCK_STREAM, 0, sv);
}

static int do_clone3(void)
{
	return syscall(SYS_clone3, NULL, 0) < 0 && errno == ENOSYS ? 0 : 1;
}

static int do_unknown(void)
{
	return syscall(SYS_swapon, NULL, 0) < 0 && errno == EPERM ? 0 : 1;
}

/* Sockets that were accepted are the host's: none may become a connection to another place. */
static int host_socket = -1, host_service = -1;
static struct sockaddr_in service_at;

static int do_reconnect(void)
{
	struct sockaddr nobody = { .sa_family = AF_UNSPEC };

	/* ending a connection is allowed, making one is not */
	if (connect(host_socket, &nobody, sizeof(nobody.sa_family)) < 0)
		return 1;
	return connect(host_socket, (struct sockaddr *)&service_at, sizeof(service_at)) < 0 && errno == EPERM ? 0 : 2;
}

static int do_rebind(void)
{
	struct sockaddr_in any = { .sin_family = AF_INET };

	return bind(host_socket, (struct sockaddr *)&any, sizeof(any)) < 0 && errno == EPERM ? 0 : 1;
}

static int do_fast_open(void)
{
	return (int)sendto(host_socket, "x", 1, MSG_FASTOPEN, (struct sockaddr *)&service_at, sizeof(service_at));
}

static int do_fast_open_message(void)
{
	struct msghdr m = { .msg_name = &service_at, .msg_namelen = sizeof(service_at) };

	return (int)sendmsg(host_socket, &m, MSG_FASTOPEN);
}

static int do_type(void)
{
	return ioctl(0, TIOCSTI, "x") < 0 && errno == ENOTTY ? 0 : 1;
}

static int do_ask_size(void)
{
	int n;

	return ioctl(host_socket, FIONREAD, &n);
}

/* -SIGSYS: it died of the filter; else its status. */
static int filtered(int (*fn)(void))
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		struct den_err err;

		prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
		prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
		if (guard_calls(&err) < 0)
			syscall(SYS_exit_group, 99);
		syscall(SYS_exit_group, fn());
	}
	waitpid(pid, &status, 0);
	return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

TEST(serve_filter_lets_threads_be_and_no_process)
{
	CHECK(filtered(do_thread) == 0);
	CHECK(filtered(do_pair) == 0);
	CHECK(filtered(do_fork) == -SIGSYS);
	CHECK(filtered(do_clone_process) == -SIGSYS);
	CHECK(filtered(do_clone3) == 0);
	CHECK(filtered(do_exec) == -SIGSYS);
	CHECK(filtered(do_ptrace) == -SIGSYS);
	CHECK(filtered(do_kill) == -SIGSYS);
	CHECK(filtered(do_unshare) == -SIGSYS);
	CHECK(filtered(do_code) == -SIGSYS);
	CHECK(filtered(do_inet) == 0);
	CHECK(filtered(do_netlink) == 0);
	CHECK(filtered(do_unknown) == 0);
}

/* A listener on the loopback, and a client's end of a connection to it. */
static bool host_sockets(void)
{
	socklen_t len = sizeof(service_at);

	service_at = (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	host_service = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	host_socket = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	return bind(host_service, (struct sockaddr *)&service_at, len) == 0 && listen(host_service, 5) == 0 &&
	       getsockname(host_service, (struct sockaddr *)&service_at, &len) == 0 &&
	       connect(host_socket, (struct sockaddr *)&service_at, len) == 0;
}

TEST(serve_filter_makes_no_connection_of_a_socket_that_it_has)
{
	CHECK(host_sockets());
	CHECK(filtered(do_ask_size) == 0);
	CHECK(filtered(do_rebind) == 0);
	CHECK(filtered(do_fast_open) == -SIGSYS);
	CHECK(filtered(do_fast_open_message) == -SIGSYS);
	CHECK(filtered(do_type) == 0);
	CHECK(filtered(do_reconnect) == 0);
	close(host_socket);
	close(host_service);
}

/* ---- limits ---- */

TEST(serve_bucket_gives_its_room_and_then_its_rate)
{
	struct bucket b = { 0 };
	int64_t t = NS_PER_SEC;

	for (int i = 0; i < 10; i++)
		CHECK(bucket_take(&b, 2, 10, t) == 0);
	CHECK(bucket_take(&b, 2, 10, t) == 1);
	CHECK(bucket_take(&b, 2, 10, t + NS_PER_SEC / 2) == 0);
	CHECK(bucket_take(&b, 2, 10, t + NS_PER_SEC / 2) > 0);
	CHECK(bucket_take(&b, 2, 10, t + 100 * NS_PER_SEC) == 0);
	b = (struct bucket){ 0 };
	CHECK(bucket_take(&b, 0.1, 1, t) == 0);
	CHECK(bucket_take(&b, 0.1, 1, t) == 10);
}

TEST(serve_wrong_keys_are_counted_by_address)
{
	int let = 0;

	while (let < 1000 && !limit_attempt(4711))
		let++;
	CHECK(let >= 5 && let <= 50);
	CHECK(limit_blocked(4711));
	CHECK(!limit_blocked(4712));
}

/* ---- what a program in a box answers ---- */

static void feed(struct upstream *u, const char *text, size_t n)
{
	while (n) {
		size_t room;
		char *to = upstream_room(u, &room);

		room = room < n ? room : n;
		memcpy(to, text, room);
		upstream_put(u, room);
		text += room;
		n -= room;
	}
}

/* The payload of text when it comes in pieces of `step`; NULL: it was refused. */
static char *payload(const char *text, size_t step, char *out)
{
	auto_upstream *u = upstream_new("GET");
	size_t len = strlen(text), got = 0;
	const char *why, *p;
	int r = 0;

	for (size_t at = 0; at < len; at += step) {
		size_t n;

		feed(u, text + at, step < len - at ? step : len - at);
		if (upstream_head(u, &why) < 0)
			return NULL;
		if (upstream_head(u, &why) == 0)
			continue;
		while ((r = upstream_body(u, &p, &n)) == 1) {
			memcpy(out + got, p, n);
			got += n;
		}
		if (r < 0)
			return NULL;
	}
	out[got] = '\0';
	return r == 2 || upstream_closed(u) ? out : NULL;
}

TEST(serve_answers_of_a_box_are_the_same_however_they_are_cut)
{
	static const char *const good[][2] = {
		{ "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "hello" },
		{ "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", "hi" },
		{ "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n", "abcde" },
		{ "HTTP/1.0 200 OK\r\n\r\nto the end", "to the end" },
		{ "HTTP/1.1 204 No Content\r\n\r\n", "" },
		{ "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhiHTTP/1.1 200 OK\r\n\r\nforged", "hi" },
	};
	char out[256];

	for (size_t i = 0; i < ARRAY_SIZE(good); i++)
		for (size_t step = 1; step < 80; step++) {
			const char *got = payload(good[i][0], step, out);

			CHECK(got && !strcmp(got, good[i][1]));
		}
}

TEST(serve_answers_that_can_be_read_in_two_ways_are_refused)
{
	static const char *const bad[] = {
		"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
		"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"HTTP/1.1 200 OK\nContent-Length: 2\n\nhi",
		"HTTP/1.1 200 OK\r\nX: a\r\n b\r\n\r\n",
		"HTTP/1.1 200 OK\r\nX : a\r\n\r\n",
		"SSH-2.0-x\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\ncut",
	};
	char out[256];

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		for (size_t step = 1; step < 60; step += 7)
			CHECK(payload(bad[i], step, out) == NULL);
}

static void collect(const char *name, const char *value, void *user)
{
	strcat(strcat(strcat(strcat(user, name), "="), value), ";");
}

TEST(serve_fields_of_the_connection_are_not_for_the_client)
{
	static const char text[] = "HTTP/1.1 200 OK\r\nConnection: close, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: 5\r\n"
				   "Upgrade: h2c\r\nX-Keep: yes\r\nTrailer: X\r\nContent-Length: 0\r\n\r\n";
	auto_upstream *u = upstream_new("GET");
	char all[256] = "";
	const char *why;

	feed(u, text, sizeof(text) - 1);
	CHECK(upstream_head(u, &why) == 1);
	upstream_each(u, collect, all);
	CHECK(!strcmp(all, "X-Keep=yes;"));
}
