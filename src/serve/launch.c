/* The server's side of the launcher: any thread asks, one thread reads the answers and wakes who asked. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "den.h"
#include "fd.h"
#include "launcher.h"
#include "log.h"
#include "mem.h"
#include "serve.h"

/* Who waits for an answer; on the stack of its thread. */
struct waiter {
	struct list link;
	struct launch_answer answer;
	int fd;
	bool done;
	pthread_cond_t wake;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct list waiters = LIST_INIT(waiters);
static uint32_t last_number;
static int launcher_fd = -1;

static void answer_give(const struct launch_answer *a, int fd)
{
	pthread_mutex_lock(&lock);
	list_for_each(l, &waiters) {
		struct waiter *w = CONTAINER_OF(l, struct waiter, link);

		if (w->answer.number != a->number || w->done)
			continue;
		w->answer = *a;
		w->fd = fd_take(&fd);
		w->done = true;
		pthread_cond_signal(&w->wake);
		break;
	}
	pthread_mutex_unlock(&lock);
	fd_close(&fd);
}

static int fd_in(struct msghdr *m)
{
	int fd = -1;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c))
		if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS && c->cmsg_len == CMSG_LEN(sizeof(int)))
			memcpy(&fd, CMSG_DATA(c), sizeof(fd));
	return fd;
}

static void *read_answers(void *unused)
{
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(sizeof(int))];
	} control;
	struct launch_answer a;
	ssize_t n;

	(void)unused;
	for (;;) {
		struct iovec v = { &a, sizeof(a) };
		struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = &control,
			.msg_controllen = sizeof(control) };

		n = recvmsg(launcher_fd, &m, MSG_CMSG_CLOEXEC);
		if (n < 0 && errno == EINTR)
			continue;
		if (n != sizeof(a))
			break;
		a.err.msg[sizeof(a.err.msg) - 1] = '\0';
		answer_give(&a, fd_in(&m));
	}
	log_line("error", "launcher", "the launcher is gone; so are we");
	_exit(1);
}

static int ask(enum launch_op op, const char *a, const char *b, struct launch_answer *ret, int *ret_fd,
	struct den_err *err)
{
	struct waiter w = { .fd = -1, .wake = PTHREAD_COND_INITIALIZER };
	struct launch_ask q = { .op = op };

	if (strlen(a) >= sizeof(q.a) || strlen(b) >= sizeof(q.b))
		return den_fail(err, DEN_INVALID, 0, "'%.60s...' is too long", strlen(a) >= sizeof(q.a) ? a : b);
	strcpy(q.a, a);
	strcpy(q.b, b);
	pthread_mutex_lock(&lock);
	q.number = w.answer.number = ++last_number;
	list_append(&waiters, &w.link);
	pthread_mutex_unlock(&lock);
	if (send(launcher_fd, &q, sizeof(q), MSG_NOSIGNAL) != sizeof(q))
		_exit(1); /* it is gone; read_answers() is about to say so */
	pthread_mutex_lock(&lock);
	while (!w.done)
		pthread_cond_wait(&w.wake, &lock);
	list_remove(&w.link);
	pthread_mutex_unlock(&lock);
	pthread_cond_destroy(&w.wake);
	if (w.answer.err.code != DEN_OK) {
		fd_close(&w.fd);
		if (err)
			*err = w.answer.err;
		return -1;
	}
	*ret = w.answer;
	if (ret_fd)
		*ret_fd = w.fd;
	else
		fd_close(&w.fd);
	return 0;
}

int launch_start(int fd, struct den_err *err)
{
	pthread_attr_t attr;
	pthread_t t;
	int r;

	launcher_fd = fd;
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attr, 256 << 10);
	r = pthread_create(&t, &attr, read_answers, NULL);
	pthread_attr_destroy(&attr);
	return r ? den_fail_sys(err, r, "start a thread") : 0;
}

int launch_dial(const char *id, void *user, int *ret_fd, bool *ret_started, struct den_err *err)
{
	static const char ready[] = "ready:";
	struct launch_answer a;
	int fd = -1;
	enum launch_op op = id ? LAUNCH_BOX : LAUNCH_CLERK;

	(void)user;
	if (id && !strncmp(id, ready, sizeof(ready) - 1)) {
		op = LAUNCH_TAKE;
		id += sizeof(ready) - 1;
	}
	if (ask(op, id ? id : "", "", &a, &fd, err) < 0)
		return -1;
	if (fd < 0)
		return den_fail(err, DEN_INTERNAL, 0, "the launcher sent no connection");
	*ret_fd = fd;
	*ret_started = a.started;
	return 0;
}

int launch_ready(const char *first_key, struct den_err *err)
{
	struct launch_answer a;

	return ask(LAUNCH_READY, first_key, "", &a, NULL, err);
}

int launch_pull(const char *image, const char *name, struct den_err *err)
{
	struct launch_answer a;

	return ask(LAUNCH_PULL, image, name, &a, NULL, err);
}

int launch_builtin(const char *name, struct den_err *err)
{
	struct launch_answer a;

	return ask(LAUNCH_BUILTIN, name, "", &a, NULL, err);
}

int serve_den(struct den **ret, struct den_err *err)
{
	struct den_options o = { .size = sizeof(o), .state = serve.state, .exe = "/nonexistent", .dial = launch_dial };

	return den_open(&o, ret, err);
}
