#include "stream.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli.h"
#include "clock.h"
#include "fd.h"
#include "mem.h"

#define KEY_CTRL_P 0x10
#define KEY_CTRL_Q 0x11
#define LEAVE_NS (5 * NS_PER_SEC) /* how long a program that was told to end is waited for */
#define BROKEN_NS NS_PER_SEC /* and one whose output nobody takes */
#define PIPE_ROOM 4096 /* poll() says writable: so much does not block */

void stream_init(struct stream *s, struct den_box *box, unsigned flags)
{
	/* not the buffer: 64 KiB of page faults for nothing */
	memset(s, 0, offsetof(struct stream, in));
	s->box = box;
	s->flags = flags;
	s->sigfd = s->out[0].fd = s->out[1].fd = -1;
	s->room = true;
	s->stdin_open = flags & STREAM_STDIN;
}

/* ---- signals ---- */

static const int caught[] = { SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT,
	SIGWINCH };

static void catch_signals(struct stream *s, sigset_t *old)
{
	sigset_t set;

	sigemptyset(&set);
	for (size_t i = 0; i < ARRAY_SIZE(caught); i++) {
		struct sigaction sa;

		/* What we were told to ignore (nohup, a shell's "&") stays ignored: a blocked
		 * signal would come through the signalfd all the same. */
		if (sigaction(caught[i], NULL, &sa) == 0 && sa.sa_handler != SIG_IGN)
			sigaddset(&set, caught[i]);
	}
	sigprocmask(SIG_BLOCK, &set, old);
	s->sigfd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
}

static void release_signals(struct stream *s, const sigset_t *old)
{
	struct signalfd_siginfo si;

	/* what came after the end has nothing left to say */
	while (s->sigfd >= 0 && read(s->sigfd, &si, sizeof(si)) == sizeof(si))
		;
	fd_close(&s->sigfd);
	sigprocmask(SIG_SETMASK, old, NULL);
}

static void send_size(struct stream *s)
{
	uint16_t rows, cols;

	if (!(s->flags & STREAM_TTY))
		return;
	tty_size(&rows, &cols);
	(void)den_exec_resize(s->exec, rows, cols, NULL);
}

/* Ctrl-Z without a terminal in the box, or a SIGTSTP from elsewhere with one. */
static void stop_both(struct stream *s)
{
	bool plain = (s->flags & STREAM_OWN) && !(s->flags & STREAM_TTY);
	sigset_t set;

	if (plain)
		(void)den_exec_signal(s->exec, SIGSTOP, DEN_SCOPE_TREE, NULL);
	tty_restore(&s->tty);
	/* The default action, not SIGSTOP: a process group that nobody could continue is not
	 * stopped. */
	sigemptyset(&set);
	sigaddset(&set, SIGTSTP);
	raise(SIGTSTP);
	sigprocmask(SIG_UNBLOCK, &set, NULL);
	/* stopped here */
	sigprocmask(SIG_BLOCK, &set, NULL);
	if (plain)
		(void)den_exec_signal(s->exec, SIGCONT, DEN_SCOPE_TREE, NULL);
}

static void on_signal(struct stream *s, int sig)
{
	bool fatal = sig != SIGUSR1 && sig != SIGUSR2;

	switch (sig) {
	case SIGWINCH:
		send_size(s);
		return;
	case SIGTSTP:
		stop_both(s);
		/* fall through */
	case SIGCONT: /* whoever had the terminal meanwhile may have changed it */
		if (s->flags & STREAM_TTY) {
			tty_restore(&s->tty);
			tty_raw(&s->tty);
			send_size(s);
		}
		return;
	}
	if (!(s->flags & STREAM_OWN)) {
		if (fatal)
			s->leave = EXIT_SIGNAL + sig;
		return;
	}
	(void)den_exec_signal(s->exec, sig, DEN_SCOPE_GROUP, NULL);
	if (!fatal)
		return;
	s->asked_to_end = sig;
	/* An interactive shell shrugs TERM off, and after HUP there is no terminal to wait at. */
	if ((s->flags & STREAM_TTY) && !s->leave_at)
		s->leave_at = clock_mono_ns() + LEAVE_NS;
}

static void read_signals(struct stream *s)
{
	struct signalfd_siginfo si;

	while (!s->leave && read(s->sigfd, &si, sizeof(si)) == sizeof(si))
		on_signal(s, (int)si.ssi_signo);
}

/* ---- output ---- */

/* The reader went, or cannot take more: the program gets what a pipe would give it, and a moment to
 * end. */
static void output_failed(struct stream *s, int stream, int sys)
{
	s->broken = sys == EPIPE ? EXIT_SIGNAL + SIGPIPE : EXIT_OWN;
	if (sys != EPIPE) {
		s->lost = true;
		den_fail_sys(
			&s->err, sys, "write to standard %s", stream == 1 ? "output" : "error");
	}
	if (!(s->flags & STREAM_OWN)) {
		s->leave = s->broken;
		return;
	}
	(void)den_exec_signal(s->exec, SIGPIPE, DEN_SCOPE_TREE, NULL);
	s->leave_at = clock_mono_ns() + BROKEN_NS;
}

/* Waits until fd takes bytes, but not deaf to signals: a reader that sleeps must not make den
 * unkillable. Gives false when we are to leave. */
static bool wait_writable(struct stream *s, int fd)
{
	while (!s->leave) {
		struct pollfd p[2] = { { fd, POLLOUT, 0 }, { s->sigfd, POLLIN, 0 } };
		int r = poll(p, 2, s->asked_to_end ? (int)(LEAVE_NS / NS_PER_MS) : -1);

		if (r == 0)
			s->leave = EXIT_SIGNAL + s->asked_to_end;
		if (r > 0 && p[1].revents)
			read_signals(s);
		if (r > 0 && p[0].revents)
			return !s->leave;
	}
	return false;
}

/* A pipe can be opened a second time, and then be non-blocking for us without being so for whoever
 * shares it. That lets one write() fill it. */
static void look_at_output(struct stream_out *o, int fd)
{
	struct stat st;
	char path[32];

	o->looked = true;
	if (fstat(fd, &st) < 0)
		return;
	o->file = S_ISREG(st.st_mode);
	if (!S_ISFIFO(st.st_mode))
		return;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	o->fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
}

static void on_output(struct den_exec *e, int stream, const void *data, size_t n, void *user)
{
	struct stream *s = user;
	int fd = stream == 2 ? STDERR_FILENO : STDOUT_FILENO;
	struct stream_out *o = &s->out[stream == 2];
	const char *p = data;

	(void)e;
	if (!o->looked && n > PIPE_ROOM) /* not worth it for a little */
		look_at_output(o, fd);
	while (n && !s->leave && !s->broken) {
		bool whole = o->fd >= 0 || o->file;
		ssize_t r;

		if (!whole && !wait_writable(s, fd))
			return;
		r = write(o->fd >= 0 ? o->fd : fd, p, whole ? n : MIN(n, PIPE_ROOM));
		if (r > 0) {
			p += r;
			n -= (size_t)r;
		} else if (r < 0 && errno == EAGAIN) {
			wait_writable(s, fd);
		} else if (r < 0 && errno != EINTR) {
			output_failed(s, stream, errno);
			return;
		}
	}
}

static void on_started(struct den_exec *e, pid_t pid, void *user)
{
	(void)e;
	(void)pid;
	((struct stream *)user)->started = true;
}

static void on_writable(struct den_exec *e, void *user)
{
	(void)e;
	((struct stream *)user)->room = true;
}

static void on_ended(struct den_exec *e, const struct den_exec_result *result,
	const struct den_err *err, void *user)
{
	struct stream *s = user;

	(void)e;
	s->ended = true;
	if (err) {
		s->lost = true;
		s->err = *err;
	} else if (result) {
		s->result = *result;
	}
}

const struct den_exec_ops stream_ops = {
	.started = on_started,
	.output = on_output,
	.writable = on_writable,
	.ended = on_ended,
};

/* ---- input ---- */

/* Takes Ctrl-P Ctrl-Q out. A Ctrl-P is held until it is known what follows; it goes first then, for
 * which the reader left one byte free at the front. */
static void find_keys(struct stream *s)
{
	for (size_t i = s->in_at; i < s->in_at + s->in_len; i++) {
		if (s->prefix && s->in[i] == KEY_CTRL_Q) {
			s->detached = true;
			s->leave = -1;
			return;
		}
		if (s->prefix && i == s->in_at) {
			s->in[--s->in_at] = KEY_CTRL_P;
			s->in_len++;
		}
		s->prefix = s->in[i] == KEY_CTRL_P;
	}
	if (s->prefix)
		s->in_len--;
}

static void write_input(struct stream *s)
{
	while (s->in_len && s->room) {
		ssize_t r = den_exec_write(s->exec, s->in + s->in_at, s->in_len, NULL);

		if (r < 0) { /* it reads no more; its end will be told */
			s->in_len = 0;
			s->stdin_open = false;
			return;
		}
		s->room = (size_t)r == s->in_len;
		s->in_at += (size_t)r;
		s->in_len -= (size_t)r;
	}
}

static void read_input(struct stream *s)
{
	ssize_t r = read(STDIN_FILENO, s->in + 1, sizeof(s->in) - 1);

	if (r < 0 && (errno == EINTR || errno == EAGAIN))
		return;
	if (r <= 0) { /* an error, as of a terminal that is gone, is an end, too */
		s->stdin_open = false;
		(void)den_exec_close_stdin(s->exec, NULL);
		return;
	}
	s->in_at = 1;
	s->in_len = (size_t)r;
	if (s->flags & STREAM_KEYS)
		find_keys(s);
	if (!s->leave)
		write_input(s);
}

/* ---- the loop ---- */

static int step(struct stream *s)
{
	bool read_stdin = s->stdin_open && !s->in_len && s->room;
	struct pollfd p[3] = {
		{ den_poll_fd(s->box), POLLIN, 0 },
		{ s->sigfd, POLLIN, 0 },
		{ read_stdin ? STDIN_FILENO : -1, POLLIN, 0 },
	};
	int wait = -1;

	if (s->leave_at) {
		int64_t left = s->leave_at - clock_mono_ns();

		if (left <= 0) {
			s->leave = s->broken ? s->broken : EXIT_SIGNAL + s->asked_to_end;
			return 0;
		}
		wait = (int)(left / NS_PER_MS) + 1;
	}
	if (poll(p, 3, wait) < 0 && errno != EINTR)
		return den_fail_sys(&s->err, errno, "poll");
	if (p[1].revents)
		read_signals(s);
	if (p[0].revents && !s->leave && den_dispatch(s->box, 0, &s->err) < 0)
		return -1;
	if (s->ended || s->leave)
		return 0;
	if (s->in_len)
		write_input(s);
	else if (p[2].revents)
		read_input(s);
	return 0;
}

void stream_run(struct stream *s, struct den_exec *exec)
{
	sigset_t old;

	s->exec = exec;
	catch_signals(s, &old);
	if ((s->flags & (STREAM_TTY | STREAM_STDIN)) == (STREAM_TTY | STREAM_STDIN))
		tty_raw(&s->tty);
	while (!s->ended && !s->leave) {
		if (step(s) < 0) {
			s->lost = true;
			break;
		}
	}
	/* it would only end with our process, not with the handle */
	if (s->leave && (s->flags & STREAM_OWN))
		(void)den_exec_signal(s->exec, SIGKILL, DEN_SCOPE_TREE, NULL);
	tty_restore(&s->tty);
	fd_close(&s->out[0].fd);
	fd_close(&s->out[1].fd);
	release_signals(s, &old);
}
