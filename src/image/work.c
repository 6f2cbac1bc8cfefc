#include "work.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "fd.h"
#include "json.h"

void work_note(const struct work *w, const char *fmt, ...)
{
	char text[512];
	va_list ap;

	if (!w->note)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	w->note(text, w->user);
}

void work_progress(const struct work *w, const char *what, uint64_t bytes)
{
	if (w->progress)
		w->progress(what, bytes, w->user);
}

void work_time(int64_t wall_ms, char out[static 32])
{
	format_time(wall_ms, out);
}

int work_box(
	const struct work *w, const char *template_ref, struct den_box **ret, struct den_err *err)
{
	struct den_box_spec spec = { .size = sizeof(spec),
		.template_name = template_ref,
		.net = "none",
		.ephemeral = true, /* should we be killed, it goes by itself */
		.history = strcmp(template_ref, "empty") ? "manual" : "off" };

	if (interrupt_check(err) < 0)
		return -1;
	return den_box_create(w->den, &spec, ret, err);
}

void work_box_end(struct den_box **box)
{
	if (!*box)
		return;
	(void)den_box_delete(*box, true, NULL);
	den_box_close(*box);
	*box = NULL;
}

void work_template_end(struct den_template **t)
{
	if (*t)
		den_templates_free(*t, 1);
	*t = NULL;
}

/* ---- signals --------------------------------------------------------------------------------- */

static int sig_fd = -1, sig_seen;
static sigset_t sig_before;

int interrupt_begin(struct den_err *err)
{
	static const int ends[] = { SIGINT, SIGTERM, SIGHUP };
	sigset_t set;

	sigemptyset(&set);
	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
		struct sigaction sa;

		/* what we were told to ignore (nohup) stays ignored */
		if (sigaction(ends[i], NULL, &sa) == 0 && sa.sa_handler != SIG_IGN)
			sigaddset(&set, ends[i]);
	}
	sig_fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
	if (sig_fd < 0)
		return den_fail_sys(err, errno, "signalfd");
	sigprocmask(SIG_BLOCK, &set, &sig_before);
	return 0;
}

void interrupt_forget(void)
{
	sigprocmask(SIG_SETMASK, &sig_before, NULL);
}

void interrupt_end(void)
{
	if (sig_fd < 0)
		return;
	(void)interrupt_signal(); /* one that came at the very end has been obeyed already */
	fd_close(&sig_fd);
	sigprocmask(SIG_SETMASK, &sig_before, NULL);
}

int interrupt_fd(void)
{
	return sig_fd;
}

int interrupt_signal(void)
{
	struct signalfd_siginfo si;

	while (sig_fd >= 0 && read(sig_fd, &si, sizeof(si)) == sizeof(si))
		sig_seen = (int)si.ssi_signo;
	return sig_seen;
}

int interrupt_check(struct den_err *err)
{
	if (!interrupt_signal())
		return 0;
	return den_fail(err, DEN_CONFLICT, 0, "stopped by a signal");
}

ssize_t interrupt_read(int fd, void *buf, size_t cap, struct den_err *err)
{
	for (;;) {
		struct pollfd p[2] = { { fd, POLLIN, 0 }, { sig_fd, POLLIN, 0 } };
		ssize_t n;

		if (poll(p, 2, -1) < 0 && errno != EINTR)
			return den_fail_sys(err, errno, "poll");
		if (interrupt_check(err) < 0)
			return -1;
		if (!p[0].revents)
			continue;
		n = read(fd, buf, cap);
		if (n >= 0)
			return n;
		if (errno != EINTR && errno != EAGAIN)
			return den_fail_sys(err, errno, "read");
	}
}
