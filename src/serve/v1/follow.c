/* Following an exec from a handler's thread: straight-line, with libden's callbacks kept inside. */
#include <stdlib.h>
#include <string.h>

#include "b64.h"
#include "execs.h"
#include "mem.h"
#include "strv.h"

#define STDIN_MAX (16U << 20)

static void on_started(struct den_exec *e, pid_t pid, void *user)
{
	struct follow *f = user;

	(void)e;
	f->started = true;
	f->pid = pid;
}

/* Blocks while the client is slow, which slows the program and nobody else. */
static void on_output(struct den_exec *e, int stream, const void *data, size_t n, void *user)
{
	struct follow *f = user;

	(void)e;
	if (!f->gone && f->output && f->output(f, stream, data, n, &f->err) < 0)
		f->gone = true;
}

static void on_ended(struct den_exec *e, const struct den_exec_result *result,
	const struct den_err *err, void *user)
{
	struct follow *f = user;

	(void)e;
	f->ended = true;
	if (result)
		f->result = *result;
	if (err) {
		f->failed = true;
		f->err = *err;
	}
}

const struct den_exec_ops v1_follow_ops = {
	.started = on_started, .output = on_output, .ended = on_ended
};

/* ---- what is asked for ---- */

static const struct field exec_fields[] = {
	{ "argv", FIELD_TEXTS, offsetof(struct exec_args, argv), FIELD_NULL, .min = 1,
		.max = 10000 },
	{ "command", FIELD_TEXT, offsetof(struct exec_args, command), FIELD_NULL, .min = 1,
		.max = 1U << 20 },
	{ "env", FIELD_MAP, offsetof(struct exec_args, env), FIELD_NULL, .max = 10000 },
	{ "cwd", FIELD_TEXT, offsetof(struct exec_args, cwd), FIELD_NULL, .min = 1, .max = 4095 },
	{ "user", FIELD_TEXT, offsetof(struct exec_args, user), FIELD_NULL, .min = 1, .max = 256 },
	{ "tag", FIELD_TEXT, offsetof(struct exec_args, tag), FIELD_NULL, .min = 1, .max = 256 },
	{ "tty", FIELD_BOOL, offsetof(struct exec_args, tty) },
	{ "rows", FIELD_U64, offsetof(struct exec_args, rows), .min = 1, .max = 65535 },
	{ "cols", FIELD_U64, offsetof(struct exec_args, cols), .min = 1, .max = 65535 },
	{ "stdin", FIELD_ANY, offsetof(struct exec_args, input), FIELD_NULL },
	{ "stdin_b64", FIELD_TEXT, offsetof(struct exec_args, input_b64), FIELD_NULL,
		.max = STDIN_MAX },
	{ "timeout_ms", FIELD_U64, offsetof(struct exec_args, timeout_ms), FIELD_NULL,
		.max = 1ULL << 52 },
	{ "cpu_ms", FIELD_U64, offsetof(struct exec_args, cpu_ms), FIELD_NULL, .max = 1ULL << 52 },
	{ "grace_ms", FIELD_U64, offsetof(struct exec_args, grace_ms), FIELD_NULL,
		.max = 1ULL << 32 },
	{ "max_output", FIELD_U64, offsetof(struct exec_args, max_output), FIELD_NULL,
		.max = 1ULL << 52 },
	{ "keep", FIELD_U64, offsetof(struct exec_args, keep), FIELD_NULL, .max = 64ULL << 20 },
	{ "detach", FIELD_BOOL, offsetof(struct exec_args, detach) },
};

void v1_exec_args_free(struct exec_args *a)
{
	strv_free(a->argv);
	strv_free(a->env);
	free(a->bytes);
}

static int input_get(struct exec_args *a, struct den_err *err)
{
	if (a->input && a->input_b64)
		return den_fail(err, DEN_INVALID, 0,
			"stdin and stdin_b64 are the same thing: give one of them");
	if (json_is_string(a->input)) {
		a->n_bytes = json_string_length(a->input);
		a->bytes = mem_alloc(a->n_bytes + 1);
		memcpy(a->bytes, json_string_value(a->input), a->n_bytes);
		a->has_input = true;
	} else if (json_is_boolean(a->input)) {
		a->open_input = json_is_true(a->input);
	} else if (a->input) {
		return den_fail(err, DEN_INVALID, 0,
			"stdin is a text, or true: then it stays open for POST "
			".../execs/{pid}/stdin");
	}
	if (a->input_b64) {
		size_t len = strlen(a->input_b64);
		ssize_t n;

		a->bytes = mem_alloc(len + 1);
		n = b64_get(a->bytes, len, a->input_b64, len, B64_STD);
		if (n < 0)
			return den_fail(err, DEN_INVALID, 0, "stdin_b64 is not base64");
		a->n_bytes = (size_t)n;
		a->has_input = true;
	}
	return 0;
}

int v1_exec_args_get(const json_t *body, struct exec_args *a, struct den_err *err)
{
	if (fields_get(body, exec_fields, ARRAY_SIZE(exec_fields), true, a, err) < 0)
		return -1;
	if (!a->argv == !a->command)
		return den_fail(err, DEN_INVALID, 0,
			"give what to run: argv (an array of texts) or command (one text, for the "
			"shell), not both");
	if (a->command)
		a->argv = strv_copy((const char *const[]){ "/bin/sh", "-c", a->command, NULL });
	if ((a->rows || a->cols) && !a->tty)
		return den_fail(err, DEN_INVALID, 0,
			"rows and cols are those of a terminal: give tty, too");
	if (input_get(a, err) < 0)
		return -1;
	if (a->detach && a->has_input)
		return den_fail(err, DEN_INVALID, 0,
			"a detached program is not fed by this request: give \"stdin\": true and "
			"use .../execs/{pid}/stdin");
	return 0;
}

/* ---- following ---- */

int v1_follow_start(struct follow *f, struct exec_args *a, bool kill_on_close, struct den_err *err)
{
	struct den_exec_opt opt = {
		.size = sizeof(opt),
		.argv = (const char *const *)a->argv,
		.env = (const char *const *)a->env,
		.cwd = a->cwd,
		.user = a->user,
		.tag = a->tag,
		.rows = (uint16_t)a->rows,
		.cols = (uint16_t)a->cols,
		.timeout_ms = a->timeout_ms,
		.cpu_ms = a->cpu_ms,
		.grace_ms = a->grace_ms,
		.max_output = a->max_output,
		.keep = a->keep,
	};

	opt.flags =
		(a->tty ? DEN_EXEC_TTY : 0) | (a->has_input || a->open_input ? DEN_EXEC_STDIN : 0) |
		(a->detach ? DEN_EXEC_DETACH : 0) | (kill_on_close ? DEN_EXEC_KILL_ON_CLOSE : 0);
	f->in = a->bytes;
	f->n_in = a->n_bytes;
	f->in_eof = a->has_input && !a->open_input && !a->tty;
	if (den_exec_start(f->box, &opt, &v1_follow_ops, f, &f->exec, err) < 0)
		return -1;
	while (!f->started &&
		!f->ended) /* a program starts in milliseconds, also when nobody waits for it any more */
		if (den_dispatch(f->box, -1, err) < 0)
			return -1;
	if (f->failed) {
		*err = f->err;
		return -1;
	}
	return 0;
}

int v1_follow_attach(struct follow *f, const char *ref, bool live, struct den_err *err)
{
	int r = live ? den_exec_attach_live(f->box, ref, &v1_follow_ops, f, &f->exec, err)
		     : den_exec_attach(f->box, ref, &v1_follow_ops, f, &f->exec, err);

	while (r == 0 && !f->started && !f->ended)
		r = den_dispatch(f->box, -1, err);
	if (r == 0 && f->failed) {
		*err = f->err;
		r = -1;
	}
	return r;
}

int v1_follow_feed(struct follow *f, struct den_err *err)
{
	while (f->n_in && !f->ended) {
		ssize_t n = den_exec_write(f->exec, f->in, f->n_in, err);

		if (n < 0)
			return -1;
		if (n == 0)
			return 0; /* libden tells when there is room: den_dispatch() comes back */
		f->in += n;
		f->n_in -= (size_t)n;
	}
	if (f->in_eof && !f->ended) {
		f->in_eof = false;
		return den_exec_close_stdin(f->exec, err);
	}
	return 0;
}

int v1_follow_step(struct follow *f, int timeout_ms, struct den_err *err)
{
	int ev;

	if (den_dispatch(f->box, 0, err) < 0)
		return -1;
	if (!f->ended && v1_follow_feed(f, err) < 0 && !f->ended) {
		if (err->code != DEN_CONFLICT)
			return -1;
		f->n_in = 0; /* it reads no more: not our failure */
		f->in_eof = false;
	}
	if (f->ended || f->gone)
		return f->gone ? REQ_GONE : 0;
	ev = req_wait(f->r, den_poll_fd(f->box), timeout_ms);
	if (ev & REQ_READY) {
		if (den_dispatch(f->box, 0, err) < 0)
			return -1;
		if (!(ev & ~REQ_READY))
			return f->gone ? REQ_GONE : REQ_READY;
	}
	return (ev & ~REQ_READY) | (f->gone ? REQ_GONE : 0);
}

void v1_follow_leave(struct follow *f, bool kill)
{
	struct den_err err;

	if (f->exec && kill && !f->ended && f->started) {
		(void)den_exec_signal(f->exec, 9, DEN_SCOPE_TREE, &err);
		/* the box hears it before the connection goes */
		for (int i = 0; i < 20 && !f->ended && den_dispatch(f->box, 100, &err) == 0; i++)
			;
	}
	den_exec_unref(f->exec);
	f->exec = NULL;
}
