/*
 * An exec as a stream: start, then data, then end.
 *
 * What libden gives in one go is sent in one go: a short command's start, output and end are one write. A slow
 * client makes req_write() wait, which holds back libden's credit and with it the program; nothing piles up.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "envd.h"
#include "mem.h"

#define CHUNK (32U << 10)
#define PTY_CHUNK (16U << 10)
#define FLUSH_AT (64U << 10)

static void started(struct den_exec *x, pid_t pid, void *user)
{
	struct follow *f = user;
	struct buf *out = &f->s->out;
	size_t at = connect_begin(out, 0);

	(void)x;
	f->started = true;
	buf_addf(out, "{\"event\":{\"start\":{\"pid\":%d}}}", (int)pid);
	connect_end(out, at);
}

static void output(struct den_exec *x, int stream, const void *data, size_t n, void *user)
{
	struct follow *f = user;
	struct buf *out = &f->s->out;
	const char *p = data, *name = f->pty ? "pty" : stream == 2 ? "stderr" : "stdout";

	(void)x;
	while (n && !f->s->gone) {
		size_t part = MIN(n, (size_t)(f->pty ? PTY_CHUNK : CHUNK)), at = connect_begin(out, 0);

		buf_addf(out, "{\"event\":{\"data\":{\"%s\":\"", name);
		connect_put_bytes(out, p, part);
		buf_addstr(out, "\"}}}");
		connect_end(out, at);
		p += part;
		n -= part;
		if (out->len >= FLUSH_AT)
			rpc_flush(f->s);
	}
}

/* Go's words, which clients show to people. */
static const char *signal_words(int sig)
{
	static const char *const words[] = { [SIGHUP] = "hangup", [SIGINT] = "interrupt", [SIGQUIT] = "quit",
		[SIGILL] = "illegal instruction", [SIGTRAP] = "trace/breakpoint trap", [SIGABRT] = "aborted",
		[SIGBUS] = "bus error", [SIGFPE] = "floating point exception", [SIGKILL] = "killed",
		[SIGUSR1] = "user defined signal 1", [SIGSEGV] = "segmentation fault",
		[SIGUSR2] = "user defined signal 2", [SIGPIPE] = "broken pipe", [SIGALRM] = "alarm clock",
		[SIGTERM] = "terminated", [SIGSTKFLT] = "stack fault", [SIGXCPU] = "CPU time limit exceeded",
		[SIGXFSZ] = "file size limit exceeded", [SIGVTALRM] = "virtual timer expired",
		[SIGPROF] = "profiling timer expired", [SIGIO] = "I/O possible", [SIGPWR] = "power failure",
		[SIGSYS] = "bad system call" };

	return sig > 0 && (size_t)sig < ARRAY_SIZE(words) ? words[sig] : NULL;
}

void follow_status(const struct den_exec_result *res, char out[static 64])
{
	const char *words = signal_words(res->status);

	if (res->exited)
		snprintf(out, 64, "exit status %d", res->status);
	else if (words)
		snprintf(out, 64, "signal: %s", words);
	else
		snprintf(out, 64, "signal: signal %d", res->status);
}

static void end_put(struct buf *out, const struct den_exec_result *res)
{
	char status[64];
	size_t at = connect_begin(out, 0);

	follow_status(res, status);
	buf_addf(out, "{\"event\":{\"end\":{\"exitCode\":%d,\"exited\":%s,\"status\":\"%s\"",
		res->exited ? res->status : -1, res->exited ? "true" : "false", status);
	if (!res->exited || res->status)
		buf_addf(out, ",\"error\":\"%s\"", status);
	buf_addstr(out, "}}}");
	connect_end(out, at);
}

static void ended(struct den_exec *x, const struct den_exec_result *res, const struct den_err *err, void *user)
{
	struct follow *f = user;

	(void)x;
	f->ended = true;
	if (err) {
		f->failed = true;
		f->err = *err;
	} else if (!strcmp(res->reason, "stop")) {
		f->stopped = true; /* with its box */
	} else if (f->ours && !strcmp(res->reason, "timeout")) {
		f->late = true;
	} else {
		end_put(&f->s->out, res);
	}
}

const struct den_exec_ops follow_ops = { .started = started, .output = output, .ended = ended };

int follow_run(struct follow *f)
{
	struct rpc *s = f->s;
	struct den_err err;

	while (!f->ended && !s->gone) {
		int ready = rpc_wait(s, den_poll_fd(s->e->box), RPC_WAIT_MAX, "{\"event\":{\"keepalive\":{}}}");

		if (ready < 0)
			return 0; /* the program goes on; at a deadline of its own its keeper ends it */
		if (ready && den_dispatch(s->e->box, 0, &err) < 0)
			return rpc_stream_failed(s, &err);
		if (!f->ended) /* its end goes with the end of the stream */
			rpc_flush(s);
	}
	if (s->gone)
		return 0;
	if (f->stopped) {
		rpc_flush(s);
		rpc_break(s);
		return 0;
	}
	if (f->late)
		return rpc_stream_refuse(s, CONNECT_DEADLINE_EXCEEDED, "context deadline exceeded");
	return f->failed ? 0 : rpc_finish(s); /* the caller words a failure */
}
