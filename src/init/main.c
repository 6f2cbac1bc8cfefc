#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "clock.h"
#include "fd.h"
#include "init.h"

static struct init den_init; /* the one of this process */

/* ---- /proc/meminfo of a box with a memory limit ---- */

static void meminfo_write(struct init *in)
{
	char text[64] = "0", out[640];
	uint64_t total = in->memory_limit / 1024, used, left;
	ssize_t n = pread(INIT_FD_MEMUSE, text, sizeof(text) - 1, 0);
	int len;

	if (n > 0)
		text[n] = '\0';
	used = MIN(strtoull(text, NULL, 10) / 1024, total);
	left = total - used;
	len = snprintf(out, sizeof(out),
		"MemTotal:       %8llu kB\nMemFree:        %8llu kB\nMemAvailable:   %8llu kB\n"
		"Buffers:               0 kB\nCached:                0 kB\n"
		"SwapCached:            0 kB\nActive:         %8llu kB\n"
		"Inactive:              0 kB\nSwapTotal:             0 kB\n"
		"SwapFree:              0 kB\nDirty:                 0 kB\n"
		"Shmem:                 0 kB\nSlab:                  0 kB\n"
		"SReclaimable:          0 kB\nSUnreclaim:            0 kB\n",
		(unsigned long long)total, (unsigned long long)left, (unsigned long long)left,
		(unsigned long long)used);
	if (pwrite(INIT_FD_MEMINFO, out, (size_t)len, 0) == len)
		(void)!ftruncate(INIT_FD_MEMINFO, len);
}

static void meminfo_cb(struct loop_timer *t)
{
	struct init *in = CONTAINER_OF(t, struct init, meminfo);

	meminfo_write(in);
	if (exec_any_running(in)) /* an idle box is not woken */
		loop_timer_set(in->loop, t, clock_mono_ns() + NS_PER_SEC);
}

/* ---- children ---- */

static void leave_cb(struct loop_deferred *d)
{
	struct init *in = CONTAINER_OF(d, struct init, leave);

	if (in->keeper && !conn_tx_empty(in->keeper)) {
		struct den_err err;

		loop_step(in->loop, 100, &err); /* the last words, for at most a moment */
	}
	_exit(0);
}

static void sigchld_cb(struct loop_source *s, uint32_t events)
{
	struct init *in = CONTAINER_OF(s, struct init, sigchld);
	struct signalfd_siginfo si;

	(void)events;
	while (read(s->fd, &si, sizeof(si)) == (ssize_t)sizeof(si))
		;
	for (;;) {
		struct exec *x;
		int status; /* not by waitid(), where the sentry's kernel mixes up stops and ends */
		pid_t pid = waitpid(-1, &status, WNOHANG | (in->guest ? WUNTRACED : 0));

		if (pid < 0) {
			if (errno == ECHILD && in->stopping) {
				in->leave.cb = leave_cb;
				loop_defer(in->loop, &in->leave);
			}
			break;
		}
		if (pid == 0)
			break;
		x = exec_by_pid(in, pid);
		if (x && WIFSTOPPED(status))
			line_stopped(x, WSTOPSIG(status));
		else if (x)
			exec_reaped(x, WIFEXITED(status), WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
		loop_timer_set(in->loop, &in->idle, clock_mono_ns() + IDLE_MS * NS_PER_MS);
	}
}

/* ---- the keeper's requests ---- */

/* To an exec that may not have got to setsid() yet. */
static void signal_group(const struct exec *x, int sig)
{
	if (kill(-x->pid, sig) < 0 && errno == ESRCH)
		kill(x->pid, sig);
}

/* A limit is about to end it: nothing of its tree may outlive it, see signal_tree.c. */
static void exec_limit(struct exec *x)
{
	x->limited = true;
	if (x->ended) /* its session may be another's by now */
		tree_kill_left(0, x->marks, x->n_marks);
	else
		tree_remember(x->pid, &x->marks, &x->n_marks);
}

static void on_signal(struct init *in, const struct wire_frame *f)
{
	struct wire_reader rd = wire_reader(f->p, f->len);
	struct wire_value v;
	uint64_t sig = 0, scope = 0, number = 0, limit = 0;
	struct exec *x;

	while (wire_next(&rd, &v, NULL) > 0) {
		if (v.tag == F_SIG)
			wire_u64(&v, 64, &sig, NULL);
		else if (v.tag == F_SCOPE)
			wire_u64(&v, 2, &scope, NULL);
		else if (v.tag == F_EXEC)
			wire_u64(&v, UINT32_MAX, &number, NULL);
		else if (v.tag == F_REASON)
			wire_u64(&v, 1, &limit, NULL);
	}
	x = exec_by_number(in, number);
	if (!x || !sig)
		return;
	if (limit && scope == 2)
		exec_limit(x);
	if (x->ended)
		return;
	if (scope == 0)
		kill(x->pid, (int)sig);
	else if (scope == 1)
		signal_group(x, (int)sig);
	else
		tree_signal(x->pid, (int)sig);
}

static void on_resize(struct exec *x, const struct wire_frame *f)
{
	struct wire_reader rd = wire_reader(f->p, f->len);
	struct wire_value v;
	uint64_t rows = 0, cols = 0;

	while (wire_next(&rd, &v, NULL) > 0) {
		if (v.tag == F_ROWS)
			wire_u64(&v, 65535, &rows, NULL);
		else if (v.tag == F_COLS)
			wire_u64(&v, 65535, &cols, NULL);
	}
	if ((x->spec.flags & EXEC_TTY) && x->out[0].src.fd >= 0 && rows && cols) {
		struct winsize w = { .ws_row = (unsigned short)rows,
			.ws_col = (unsigned short)cols };

		ioctl(x->out[0].src.fd, TIOCSWINSZ, &w);
		/* The sentry tells nobody, and does not say who is in the foreground; whoever does not care ignores it. */
		if (den_init.guest && !x->ended)
			tree_signal(x->pid, SIGWINCH);
	}
}

static uint64_t credit_of(const struct wire_frame *f)
{
	struct wire_reader rd = wire_reader(f->p, f->len);
	struct wire_value v;
	uint64_t n = 0;

	while (wire_next(&rd, &v, NULL) > 0)
		if (v.tag == F_CREDIT)
			wire_u64(&v, WIRE_WINDOW, &n, NULL);
	return n;
}

static void on_forget(struct init *in, const struct wire_frame *f)
{
	struct exec *x = exec_by_number(in, wire_find_u64(f->p, f->len, F_EXEC, 0));

	if (x && x->closed)
		exec_forget(x);
}

static void on_disown(struct init *in, const struct wire_frame *f)
{
	struct exec *x = exec_by_number(in, wire_find_u64(f->p, f->len, F_EXEC, 0));

	if (x)
		exec_disown(x);
}


static void on_channel(struct init *in, const struct wire_frame *f)
{
	struct sub *s = NULL;
	struct exec *x = exec_by_chan(in, f->chan, &s);

	if (!x)
		return; /* it ended while this was under way */
	switch (f->type) {
	case WM_CREDIT:
		s->credit = MIN(s->credit + credit_of(f), (uint64_t)WIRE_WINDOW);
		s->window = MAX(s->window, s->credit);
		exec_pump(x);
		break;
	case WM_IN:
		exec_input(x, s, f);
		break;
	case WM_IN_EOF:
		exec_input_eof(x);
		break;
	case WM_RESIZE:
		on_resize(x, f);
		break;
	case WM_DETACH:
		exec_unsubscribe(x, s);
		exec_pump(x);
		break;
	}
}

/* Newest first: if the keeper does not take all, those are the ones that matter. In as many frames
 * as it takes; F_FLAGS says that another follows. */
static void on_hello(struct init *in)
{
	auto_buf b = { 0 };

	wire_put_u64(&b, F_PROTO, WIRE_VERSION);
	wire_put_u64(&b, F_EXEC, in->highest);
	for (struct list *l = in->execs.prev; l != &in->execs; l = l->prev) {
		if (b.len > WIRE_MAX_PAYLOAD / 2) {
			wire_put_u64(&b, F_FLAGS, 1);
			conn_send_buf(in->keeper, WM_HELLO, 0, &b);
			b.len = 0;
		}
		exec_put_info(&b, CONTAINER_OF(l, struct exec, link));
	}
	conn_send_buf(in->keeper, WM_HELLO, 0, &b);
}

static void on_stop(struct init *in)
{
	in->stopping = true;
	kill(-1, SIGTERM);
	kill(-1, SIGCONT); /* a stopped process cannot act on TERM */
	kill(getpid(), SIGCHLD); /* there may be nobody left already */
}

static void keeper_frame(struct conn *c, const struct wire_frame *f)
{
	struct init *in = &den_init;

	if (c != in->keeper)
		return;
	switch (f->type) {
	case WM_HELLO:
		on_hello(in);
		break;
	case WM_EXEC:
		exec_request(in, f->chan, f);
		if (in->memory_limit && !in->meminfo.when)
			loop_timer_set(in->loop, &in->meminfo, 1);
		break;
	case WM_ATTACH:
		exec_attach(in, f->chan, f);
		break;
	case WM_SIGNAL:
		on_signal(in, f);
		break;
	case WM_FORGET:
		on_forget(in, f);
		break;
	case WM_DISOWN:
		on_disown(in, f);
		break;
	case WM_STOP:
		on_stop(in);
		break;
	case WM_PS: {
		auto_buf b = { 0 };

		look_put(&b);
		conn_send_buf(in->keeper, WM_PS, 0, &b);
		break;
	}
	case WM_PARK:
		if (!in->stopping) {
			if (in->guest)
				guest_times(f);
			init_park(in);
		}
		break;
	default:
		on_channel(in, f);
	}
}

struct old_conn {
	struct conn c;
	struct loop_deferred free_later;
};

/* These numbers have one meaning for good: where there is nothing, nothing else may come. */
void init_reserve(void)
{
	for (int fd = INIT_FD_LISTEN; fd <= INIT_FD_MEMUSE; fd++)
		if (fcntl(fd, F_SETFD, FD_CLOEXEC) < 0) {
			auto_fd null = open("/dev/null", O_RDONLY | O_CLOEXEC);

			if (null == fd)
				(void)fd_take(&null);
			else
				(void)dup3(null, fd, O_CLOEXEC);
		}
}

static void free_conn_cb(struct loop_deferred *d)
{
	free(CONTAINER_OF(d, struct old_conn, free_later));
}

void keeper_gone(struct init *in, struct conn *c)
{
	struct old_conn *o = CONTAINER_OF(c, struct old_conn, c);

	conn_close(c);
	if (in->keeper == c) {
		in->keeper = NULL;
		if (!in->parked)
			exec_drop_subs(in);
		if (in->orphan_ms && !in->parked)
			loop_timer_set(in->loop, &in->orphan,
				clock_mono_ns() + (int64_t)in->orphan_ms * NS_PER_MS);
	}
	o->free_later.cb = free_conn_cb;
	loop_defer(in->loop, &o->free_later);
}

static void keeper_close(struct conn *c, const struct den_err *why)
{
	(void)why;
	keeper_gone(&den_init, c);
}

/* A connection that was handed in. */
int receive_fd(int door, void *ret, size_t cap)
{
	struct iovec v = { ret, cap };
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} u;
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = u.bytes, .msg_controllen = sizeof(u.bytes) };
	struct cmsghdr *h;
	int fd = -1;

	if (recvmsg(door, &m, MSG_CMSG_CLOEXEC) <= 0)
		return -1;
	h = CMSG_FIRSTHDR(&m);
	if (h && h->cmsg_level == SOL_SOCKET && h->cmsg_type == SCM_RIGHTS && h->cmsg_len == CMSG_LEN(sizeof(int)))
		memcpy(&fd, CMSG_DATA(h), sizeof(fd));
	return fd;
}

static int take_connection(int fd)
{
	socklen_t n = sizeof(int);
	int listens = 0;
	char c;

	getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &n);
	return listens ? accept4(fd, NULL, NULL, SOCK_CLOEXEC) : receive_fd(fd, &c, 1);
}

static void accept_cb(struct loop_source *s, uint32_t events)
{
	struct init *in = CONTAINER_OF(s, struct init, listen);
	int fd = take_connection(s->fd);
	struct old_conn *o;
	struct den_err err;

	(void)events;
	if (fd < 0)
		return;
	if (in->keeper) /* one keeper at a time holds the lock; the newer one is it */
		keeper_gone(in, in->keeper);
	if (in->parked)
		init_unpark(in);
	o = mem_new(struct old_conn);
	o->c.on_frame = keeper_frame;
	o->c.on_close = keeper_close;
	o->c.take_fds = true; /* cgroups, with EXEC */
	o->c.take_fds = true; /* an exec comes with the descriptor of its cgroup */
	if (conn_open(&o->c, in->loop, fd, &err) < 0) {
		free(o);
		return;
	}
	in->keeper = &o->c;
	loop_timer_clear(&in->orphan);
	loop_timer_set(in->loop, &in->idle, clock_mono_ns() + IDLE_MS * NS_PER_MS);
}

static void idle_cb(struct loop_timer *t)
{
	struct init *in = CONTAINER_OF(t, struct init, idle);

	if (!exec_any_running(in))
		mem_idle();
}

static void orphan_cb(struct loop_timer *t)
{
	(void)t;
	_exit(0); /* nobody came: a throwaway box goes, and the kernel ends all that is in it */
}

int main(int argc, char **argv)
{
	struct init *in = &den_init;
	struct den_err err;
	sigset_t all;

	if (argc > 1 && !strcmp(argv[1], "porter"))
		return porter_main(argc, argv);
	if (argc > 5 && !strcmp(argv[3], "guest")) {
		in->guest = true;
		in->one_id = argc > 6 && !strcmp(argv[6], "one");
		guest_prepare(argv[4], argv[5]);
	}
	prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	prctl(PR_SET_NAME, "den-init", 0, 0, 0);
	init_reserve();
	in->orphan_ms = argc > 1 ? strtoull(argv[1], NULL, 10) * 1000 : 0;
	in->memory_limit = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;
	list_init(&in->execs);
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL); /* process 1 is moved by nothing but SIGCHLD */
	sigemptyset(&all);
	sigaddset(&all, SIGCHLD);
	in->sigchld = (struct loop_source){ .fd = signalfd(-1, &all, SFD_CLOEXEC | SFD_NONBLOCK),
		.events = EPOLLIN, .cb = sigchld_cb };
	in->listen =
		(struct loop_source){ .fd = INIT_FD_LISTEN, .events = EPOLLIN, .cb = accept_cb };
	in->orphan.cb = orphan_cb;
	in->meminfo.cb = meminfo_cb;
	in->idle.cb = idle_cb;
	if (loop_new(&in->loop, &err) < 0)
		return 1;
	if (in->guest)
		loop_wary(in->loop);
	if (loop_add(in->loop, &in->sigchld, &err) < 0 || loop_add(in->loop, &in->listen, &err) < 0)
		return 1;
	if (in->orphan_ms)
		loop_timer_set(in->loop, &in->orphan,
			clock_mono_ns() + (int64_t)in->orphan_ms * NS_PER_MS);
	if (in->guest)
		inward_start(in);
	return loop_run(in->loop, &err) < 0;
}
