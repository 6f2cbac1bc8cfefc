#include "launcher.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clock.h"
#include "fd.h"
#include "lib.h"
#include "log.h"
#include "place.h"
#include "systemd.h"
#include "waker_run.h"
#include "wire.h"

#define SAID_MAX 2048
#define SPARES 4

/* A program that was started for the server and takes long. */
struct job {
	pid_t pid; /* 0: free */
	uint32_t number;
	struct loop_source out;
	char said[SAID_MAX + 1]; /* the last of what it said */
	size_t n_said;
};

struct launcher {
	const struct launcher_options *o;
	struct loop *loop;
	struct loop_source sock, sig;
	struct den *den;
	struct job jobs[LAUNCH_JOBS];
	/* Clerks that were started before somebody asks: starting a program is a good part of what a new box costs. */
	int spares[SPARES];
	size_t n_spares;
	struct loop_deferred more;
	bool told_key, stopping;
	int status;
	pid_t waker; /* 0: none */
	struct loop_timer again; /* it ended: another */
};

static const char *const launch_builtins[] = { "base", "code-interpreter", "code-interpreter-v1" };

/* ---- answers ---- */

/* The server reads all the time. One that does not for so long is broken, and we wait no longer. */
static void answer(struct launcher *l, const struct launch_answer *a, int fd)
{
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(sizeof(int))];
	} control = { 0 };
	struct iovec v = { (void *)a, sizeof(*a) };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1 };

	if (fd >= 0) {
		m.msg_control = &control;
		m.msg_controllen = sizeof(control);
		control.align.cmsg_level = SOL_SOCKET;
		control.align.cmsg_type = SCM_RIGHTS;
		control.align.cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(&control.align), &fd, sizeof(fd));
	}
	if (sendmsg(l->o->fd, &m, MSG_NOSIGNAL) != sizeof(*a))
		kill(l->o->server, SIGKILL);
}

/* ---- connections ---- */

static int guest(int fd, struct den_err *err)
{
	auto_buf b = { 0 };

	wire_frame_put(&b, WM_GUEST, 0, NULL, 0);
	return fd_write_all(fd, b.p, b.len, err);
}

/* Never waits: a keeper whose queue is full is met later, by who asked. */
static int connect_keeper(int dir, int *ret, struct den_err *err)
{
	auto_fd fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct sockaddr_un a = { .sun_family = AF_UNIX };

	if (fd < 0)
		return den_fail_sys(err, errno, "socket");
	snprintf(a.sun_path, sizeof(a.sun_path), "/proc/self/fd/%d/" PLACE_KEEPER_SOCK, dir);
	if (connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0)
		return errno == EAGAIN ? den_fail(err, DEN_CONFLICT, 0, "the box's keeper is busy")
				       : den_fail_sys(err, errno, "connect to the box's keeper");
	fd_set_nonblock(fd, false);
	*ret = fd_take(&fd);
	return 0;
}

static int dial_box(struct launcher *l, const char *text, int *ret, uint32_t *ret_started, struct den_err *err)
{
	auto_fd dir = -1, fd = -1;
	struct box_id id;
	pid_t pid;

	if (box_id_parse(text, &id, err) < 0 || den_need_state(l->den, false, err) < 0 ||
		place_box(l->den->fd, &id, &dir, err) < 0)
		return -1;
	*ret_started = 0;
	if (connect_keeper(dir, &fd, err) < 0) {
		if (err->sys != ENOENT && err->sys != ECONNREFUSED)
			return -1;
		if (keeper_spawn(l->den, &id, &fd, &pid, err) < 0)
			return -1;
		*ret_started = 1;
	}
	if (guest(fd, err) < 0)
		return -1;
	*ret = fd_take(&fd);
	return 0;
}

static int dial_ready(struct launcher *l, const char *shape, int *ret, struct den_err *err)
{
	auto_fd fd = -1;

	if (ready_take(l->den, shape, &fd, NULL, err) < 0 || guest(fd, err) < 0)
		return -1;
	*ret = fd_take(&fd);
	return 0;
}

static int clerk_new(struct launcher *l, int *ret, struct den_err *err)
{
	auto_fd fd = -1;
	pid_t pid;

	if (keeper_spawn(l->den, NULL, &fd, &pid, err) < 0 || guest(fd, err) < 0)
		return -1;
	*ret = fd_take(&fd);
	return 0;
}

/* After an answer, so that nobody waits for it. */
static void more_spares(struct loop_deferred *d)
{
	struct launcher *l = CONTAINER_OF(d, struct launcher, more);
	struct den_err err;

	while (l->n_spares < SPARES && clerk_new(l, &l->spares[l->n_spares], &err) == 0)
		l->n_spares++;
}

/* A clerk says nothing before it is asked: an end of file is its end. */
static bool spare_lives(int fd)
{
	char c;

	return recv(fd, &c, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

static int dial_clerk(struct launcher *l, int *ret, struct den_err *err)
{
	l->more.cb = more_spares;
	loop_defer(l->loop, &l->more);
	while (l->n_spares > 0) {
		auto_fd fd = l->spares[--l->n_spares];

		if (spare_lives(fd)) {
			*ret = fd_take(&fd);
			return 0;
		}
	}
	return clerk_new(l, ret, err);
}

/* ---- programs that take long ---- */

static void job_read(struct job *j)
{
	char buf[1024];
	ssize_t n;

	while ((n = read(j->out.fd, buf, sizeof(buf))) > 0) {
		(void)fd_write_all(STDERR_FILENO, buf, (size_t)n, NULL);
		if (j->n_said + (size_t)n > SAID_MAX) {
			size_t drop = j->n_said + (size_t)n - SAID_MAX;

			memmove(j->said, j->said + drop, j->n_said - drop);
			j->n_said -= drop;
		}
		memcpy(j->said + j->n_said, buf, (size_t)n);
		j->n_said += (size_t)n;
	}
	j->said[j->n_said] = '\0';
}

static struct launcher *the_launcher; /* for sources, which know only themselves */

static void on_job_output(struct loop_source *s, uint32_t events)
{
	struct job *j = CONTAINER_OF(s, struct job, out);

	job_read(j);
	if (events & (EPOLLHUP | EPOLLERR))
		loop_remove(the_launcher->loop, s);
}

/* "den: what went wrong" on its last lines is the reason. */
static const char *reason(struct job *j)
{
	char *found = NULL, *p = j->said;

	while ((p = strstr(p, "den: ")))
		found = p += 5;
	if (!found)
		return "";
	found[strcspn(found, "\n")] = '\0';
	return found;
}

static void job_end(struct launcher *l, struct job *j, int status)
{
	struct launch_answer a = { .number = j->number };

	loop_remove(l->loop, &j->out);
	job_read(j);
	if (!WIFEXITED(status) || WEXITSTATUS(status)) {
		enum den_code code = DEN_INTERNAL;

		for (int c = DEN_INVALID; c < ERR_CODES; c++)
			if (WIFEXITED(status) && err_exit_status((enum den_code)c) == WEXITSTATUS(status))
				code = (enum den_code)c;
		den_fail(&a.err, code, 0, "%.200s", reason(j));
		if (!a.err.msg[0])
			snprintf(a.err.msg, sizeof(a.err.msg), "it failed; the server's log has what it said");
	}
	fd_close(&j->out.fd);
	j->pid = 0;
	answer(l, &a, -1);
}

static int job_start(struct launcher *l, uint32_t number, char *const *argv, struct den_err *err)
{
	struct job *j = NULL;
	int p[2];

	for (size_t i = 0; i < LAUNCH_JOBS && !j; i++)
		if (!l->jobs[i].pid)
			j = &l->jobs[i];
	if (!j)
		return den_fail(err, DEN_LIMIT, 0, "%d templates are being made already; try again later", LAUNCH_JOBS);
	if (pipe2(p, O_CLOEXEC) < 0)
		return den_fail_sys(err, errno, "pipe");
	*j = (struct job){ .number = number };
	j->pid = fork();
	if (j->pid == 0) {
		sigset_t none;

		sigemptyset(&none);
		sigprocmask(SIG_SETMASK, &none, NULL);
		prctl(PR_SET_PDEATHSIG, SIGTERM);
		if (dup2(p[1], 1) < 0 || dup2(p[1], 2) < 0)
			_exit(127);
		execv(l->o->den, argv);
		dprintf(2, "den: start '%s': %s\n", l->o->den, strerror(errno));
		_exit(127);
	}
	close(p[1]);
	if (j->pid < 0) {
		close(p[0]);
		j->pid = 0;
		return den_fail_sys(err, errno, "fork");
	}
	fd_set_nonblock(p[0], true);
	j->out = (struct loop_source){ .fd = p[0], .events = EPOLLIN, .cb = on_job_output };
	return loop_add(l->loop, &j->out, err);
}

/* What may stand in the name of an image, and cannot be taken for an option. */
static bool name_ok(const char *s)
{
	if (!isalnum((unsigned char)*s))
		return false;
	for (; *s; s++)
		if (!isalnum((unsigned char)*s) && !strchr("._-:/@", *s))
			return false;
	return true;
}

static int job_pull(struct launcher *l, const struct launch_ask *q, struct den_err *err)
{
	char *argv[] = { (char *)"den", (char *)"template", (char *)"pull", (char *)"--state", (char *)l->o->state,
		(char *)"--name", (char *)q->b, (char *)q->a, NULL };

	if (!name_ok(q->a) || !name_ok(q->b))
		return den_fail(err, DEN_INVALID, 0, "'%.100s' cannot be the name of an image", name_ok(q->a) ? q->b : q->a);
	return job_start(l, q->number, argv, err);
}

static int job_builtin(struct launcher *l, const struct launch_ask *q, struct den_err *err)
{
	char *argv[] = { (char *)"den", (char *)"template", (char *)"builtin", (char *)"--state", (char *)l->o->state,
		(char *)q->a, NULL };

	for (size_t i = 0; i < ARRAY_SIZE(launch_builtins); i++)
		if (!strcmp(q->a, launch_builtins[i]))
			return job_start(l, q->number, argv, err);
	return den_fail(err, DEN_NOT_FOUND, 0, "there is no builtin template '%.60s'", q->a);
}

/* ---- the first key ---- */

static bool key_ok(const char *s)
{
	return !strncmp(s, "e2b_", 4) && strlen(s) == 44 && strspn(s + 4, "0123456789abcdef") == 40;
}

static void tell_key(struct launcher *l, const char *key)
{
	const char *url = l->o->url;
	auto_buf b = { 0 };

	buf_addf(&b,
		"# The first key of this den. It can do everything; it is told this once.\n"
		"# Page: %s\n"
		"export E2B_API_KEY=%s\n"
		"export E2B_API_URL=%s\n"
		"export E2B_SANDBOX_URL=%s\n"
		"# Try: curl -H 'Authorization: Bearer %s' %s/v1/whoami\n"
		"# More keys: den key create; this one away: den key revoke\n",
		l->o->page, key, url, url, key, url);
	if (isatty(STDOUT_FILENO)) {
		(void)fd_write_all(STDOUT_FILENO, b.p, b.len, NULL);
	} else {
		auto_buf path = { 0 };
		auto_fd fd = -1;

		/* beside serve/, not in it: who took the server over must not write what a person reads into a shell */
		buf_addf(&path, "%s/first-key", l->o->state);
		fd = open(buf_str(&path), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
		if (fd < 0 || fd_write_all(fd, b.p, b.len, NULL) < 0)
			log_line("warn", "key", "the first key could not be written to %s; 'den key create' makes one",
				buf_str(&path));
		else
			log_line("info", "key", "the first key is in %s: take it and remove the file", buf_str(&path));
	}
	explicit_bzero(b.p, b.len);
}

static void on_server_ready(struct launcher *l, const struct launch_ask *q)
{
	if (l->told_key)
		return;
	l->told_key = true;
	if (key_ok(q->a))
		tell_key(l, q->a);
	systemd_notify("READY=1");
	log_line("info", "ready", "listening at %s, page at %s", l->o->url, l->o->page);
}

/* ---- the server asks ---- */

static void on_ask(struct loop_source *s, uint32_t events)
{
	struct launcher *l = CONTAINER_OF(s, struct launcher, sock);
	struct launch_answer a = { 0 };
	struct launch_ask q;
	auto_fd fd = -1;
	int r = -1;

	(void)events;
	if (recv(s->fd, &q, sizeof(q), MSG_DONTWAIT) != sizeof(q)) {
		loop_remove(l->loop, s); /* it ended, or sent what it never does; SIGCHLD follows */
		kill(l->o->server, SIGKILL);
		return;
	}
	q.a[sizeof(q.a) - 1] = q.b[sizeof(q.b) - 1] = '\0';
	a.number = q.number;
	switch (q.op) {
	case LAUNCH_BOX:
		r = dial_box(l, q.a, &fd, &a.started, &a.err);
		break;
	case LAUNCH_TAKE:
		r = dial_ready(l, q.a, &fd, &a.err);
		break;
	case LAUNCH_CLERK:
		r = dial_clerk(l, &fd, &a.err);
		break;
	case LAUNCH_PULL:
		if (job_pull(l, &q, &a.err) == 0)
			return; /* answered by job_end() */
		break;
	case LAUNCH_BUILTIN:
		if (job_builtin(l, &q, &a.err) == 0)
			return;
		break;
	case LAUNCH_READY:
		on_server_ready(l, &q);
		r = 0;
		break;
	default:
		den_fail(&a.err, DEN_INVALID, 0, "the launcher does not do that");
	}
	if (r == 0)
		a.err = (struct den_err){ .code = DEN_OK };
	answer(l, &a, fd);
}

/* ---- the waker ---- */

static void waker_start(struct loop_timer *t)
{
	struct launcher *l = CONTAINER_OF(t, struct launcher, again);
	pid_t parent = getpid();

	if (l->stopping)
		return;
	l->waker = fork();
	if (l->waker == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(1);
		_exit(waker_run(l->o->state, l->o->den));
	}
	if (l->waker < 0)
		l->waker = 0;
}

static void waker_ended(struct launcher *l)
{
	l->waker = 0;
	log_line("warn", "waker", "it ended; published ports of boxes on disk are not answered until another is there");
	loop_timer_set(l->loop, &l->again, clock_mono_ns() + NS_PER_SEC);
}

/* ---- life ---- */

static void on_child(struct launcher *l)
{
	int status;

	if (waitpid(l->o->server, &status, WNOHANG) == l->o->server) {
		if (WIFSIGNALED(status))
			log_line("error", "server", "ended by signal %d%s", WTERMSIG(status),
				WTERMSIG(status) == SIGSYS ? " (a call that its filter forbids)" : "");
		l->status = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
		loop_quit(l->loop);
		return;
	}
	if (l->waker && waitpid(l->waker, &status, WNOHANG) == l->waker)
		waker_ended(l);
	for (size_t i = 0; i < LAUNCH_JOBS; i++)
		if (l->jobs[i].pid && waitpid(l->jobs[i].pid, &status, WNOHANG) == l->jobs[i].pid)
			job_end(l, &l->jobs[i], status);
}

static void on_signal(struct loop_source *s, uint32_t events)
{
	struct launcher *l = CONTAINER_OF(s, struct launcher, sig);
	struct signalfd_siginfo si;

	(void)events;
	while (read(s->fd, &si, sizeof(si)) == sizeof(si)) {
		if (si.ssi_signo == SIGCHLD) {
			on_child(l);
			continue;
		}
		/* the second time it is meant */
		kill(l->o->server, l->stopping ? SIGKILL : SIGTERM);
		if (!l->stopping)
			systemd_notify("STOPPING=1");
		l->stopping = true;
	}
}

static int launcher_prepare(struct launcher *l, struct den_err *err)
{
	struct den_options o = { .size = sizeof(o), .state = l->o->state, .exe = l->o->den };
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	l->sock = (struct loop_source){ .fd = l->o->fd, .events = EPOLLIN, .cb = on_ask };
	l->sig = (struct loop_source){ .fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK), .events = EPOLLIN,
		.cb = on_signal };
	if (den_open(&o, &l->den, err) < 0 || loop_new(&l->loop, err) < 0)
		return -1;
	if (l->sig.fd < 0)
		return den_fail_sys(err, errno, "signalfd");
	if (loop_add(l->loop, &l->sock, err) < 0 || loop_add(l->loop, &l->sig, err) < 0)
		return -1;
	l->again.cb = waker_start;
	waker_start(&l->again);
	return 0;
}

int launcher_run(const struct launcher_options *o)
{
	struct launcher l = { .o = o, .status = 1 };
	struct timeval slow = { .tv_sec = 5 };
	struct den_err err;

	the_launcher = &l;
	prctl(PR_SET_NAME, "den-launcher", 0, 0, 0);
	setsockopt(o->fd, SOL_SOCKET, SO_SNDTIMEO, &slow, sizeof(slow));
	if (launcher_prepare(&l, &err) < 0 || loop_run(l.loop, &err) < 0)
		log_line("error", "launcher", "%s", err.msg);
	for (size_t i = 0; i < LAUNCH_JOBS; i++)
		if (l.jobs[i].pid)
			kill(l.jobs[i].pid, SIGTERM);
	if (l.waker)
		kill(l.waker, SIGKILL);
	return l.status;
}
