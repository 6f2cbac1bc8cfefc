/* process.Process: what is said to a program that runs already. */
#include <errno.h>
#include <signal.h>
#include <string.h>

#include "envd.h"
#include "mem.h"

static int say_missing(struct req *r, const char *ref)
{
	return rpc_refuse(r, CONNECT_NOT_FOUND, "process with %s %s not found",
		ref[strspn(ref, "0123456789")] ? "tag" : "pid", ref);
}

/* A short attachment: to write, close, resize. */
struct touch {
	bool started, ended, room;
	bool failed;
	struct den_err err;
};

static void touch_started(struct den_exec *x, pid_t pid, void *user)
{
	(void)x;
	(void)pid;
	((struct touch *)user)->started = true;
}

static void touch_writable(struct den_exec *x, void *user)
{
	(void)x;
	((struct touch *)user)->room = true;
}

static void touch_ended(struct den_exec *x, const struct den_exec_result *res, const struct den_err *err, void *user)
{
	struct touch *t = user;

	(void)x;
	(void)res;
	t->ended = true;
	if (err) {
		t->failed = true;
		t->err = *err;
	}
}

static const struct den_exec_ops touch_ops = { .started = touch_started, .writable = touch_writable,
	.ended = touch_ended };

/* Until *done, or the exec ends. -1: DEN_NOT_FOUND for an end, DEN_CONFLICT for a client that went */
static int touch_wait(struct req *r, struct envd *e, struct touch *t, const bool *done, struct den_err *err)
{
	while (!*done && !t->ended) {
		int bits = req_wait(r, den_poll_fd(e->box), -1);

		if (!(bits & REQ_READY) && (bits & (REQ_GONE | REQ_STOP | REQ_KICK)))
			return den_fail(err, DEN_CONFLICT, 0, "given up");
		if (den_dispatch(e->box, 0, err) < 0)
			return -1;
	}
	if (t->failed) {
		*err = t->err;
		return -1;
	}
	return *done && !t->ended ? 0 : den_fail(err, DEN_NOT_FOUND, ESRCH, "the process has ended");
}

/* A question that is answered in turn: what was sent before has reached the keeper then. */
static int touch_settle(struct envd *e, struct den_err *err)
{
	struct den_box_info *info;

	if (den_box_info(e->box, &info, err) < 0)
		return -1;
	den_box_infos_free(info, 1);
	return 0;
}

static int touch_open(struct req *r, struct envd *e, const char *ref, struct touch *t, struct den_exec **x,
	struct den_err *err)
{
	if (den_exec_attach_live(e->box, ref, &touch_ops, t, x, err) < 0)
		return -1;
	return touch_wait(r, e, t, &t->started, err);
}

static int write_all(struct req *r, struct envd *e, struct den_exec *x, struct touch *t, const struct buf *data,
	struct den_err *err)
{
	for (size_t at = 0; at < data->len;) {
		ssize_t n;

		t->room = false;
		n = den_exec_write(x, data->p + at, data->len - at, err);
		if (n < 0)
			return -1;
		at += (size_t)n;
		if (at < data->len && touch_wait(r, e, t, &t->room, err) < 0)
			return -1;
	}
	return 0;
}

static int touch_failed(struct req *r, struct envd *e, const char *ref, const struct touch *t,
	const struct den_err *why)
{
	if (envd_gone(r, e))
		return 0;
	if (why->code == DEN_NOT_FOUND && (!t->started || why->sys == ESRCH))
		return say_missing(r, ref);
	return rpc_refuse(r, connect_code_of(why), "%s", why->msg);
}

int process_input(struct req *r, struct den_err *err)
{
	auto_envd e = { 0 };
	auto_json *args = NULL;
	auto_free char *ref = NULL;
	auto_buf data = { 0 };
	struct touch t = { 0 };
	struct den_exec *x = NULL;
	const json_t *input, *bytes;
	int got = rpc_enter(r, &e, &args, err);

	if (got)
		return got < 0 ? -1 : 0;
	input = json_object_get(args, "input");
	bytes = json_object_get(input, "stdin") ?: json_object_get(input, "pty");
	if (!json_is_string(bytes))
		return rpc_refuse(r, CONNECT_UNIMPLEMENTED, "invalid input type");
	if (process_ref(args, &ref, err) < 0 ||
		connect_bytes(json_string_value(bytes), json_string_length(bytes), &data, err) < 0)
		return rpc_refuse(r, CONNECT_INVALID_ARGUMENT, "%s", err->msg);
	got = touch_open(r, &e, ref, &t, &x, err);
	if (got == 0 && !den_exec_takes_input(x)) {
		den_exec_unref(x);
		return rpc_refuse(r, CONNECT_INTERNAL, "error writing to stdin: stdin not enabled or already closed");
	}
	if (got == 0 && (write_all(r, &e, x, &t, &data, err) < 0 || touch_settle(&e, err) < 0))
		got = -1;
	den_exec_unref(x);
	return got < 0 ? touch_failed(r, &e, ref, &t, err) : rpc_reply_empty(r);
}

int process_close_stdin(struct req *r, struct den_err *err)
{
	auto_envd e = { 0 };
	auto_json *args = NULL;
	auto_free char *ref = NULL;
	struct touch t = { 0 };
	struct den_exec *x = NULL;
	int got = rpc_enter(r, &e, &args, err);

	if (got)
		return got < 0 ? -1 : 0;
	if (process_ref(args, &ref, err) < 0)
		return rpc_refuse(r, CONNECT_INVALID_ARGUMENT, "%s", err->msg);
	got = touch_open(r, &e, ref, &t, &x, err);
	if (got == 0 && (den_exec_close_stdin(x, err) < 0 || touch_settle(&e, err) < 0))
		got = -1;
	den_exec_unref(x);
	return got < 0 ? touch_failed(r, &e, ref, &t, err) : rpc_reply_empty(r);
}

int process_update(struct req *r, struct den_err *err)
{
	auto_envd e = { 0 };
	auto_json *args = NULL;
	auto_free char *ref = NULL;
	struct touch t = { 0 };
	struct den_exec *x = NULL;
	uint16_t rows = 0, cols = 0;
	int got = rpc_enter(r, &e, &args, err);

	if (got)
		return got < 0 ? -1 : 0;
	if (process_ref(args, &ref, err) < 0 || process_size(json_object_get(args, "pty"), &rows, &cols, err) < 0)
		return rpc_refuse(r, CONNECT_INVALID_ARGUMENT, "%s", err->msg);
	got = touch_open(r, &e, ref, &t, &x, err);
	if (got == 0 && (den_exec_resize(x, rows, cols, err) < 0 || touch_settle(&e, err) < 0))
		got = -1;
	den_exec_unref(x);
	return got < 0 ? touch_failed(r, &e, ref, &t, err) : rpc_reply_empty(r);
}

/* The program and what it runs in the foreground, as a terminal would; daemons of its own making stay. */
int process_signal(struct req *r, struct den_err *err)
{
	auto_envd e = { 0 };
	auto_json *args = NULL;
	auto_free char *ref = NULL;
	const json_t *value;
	const char *name;
	int sig = 0, got = rpc_enter(r, &e, &args, err);

	if (got)
		return got < 0 ? -1 : 0;
	value = json_object_get(args, "signal");
	name = json_string_value(value);
	if ((name && !strcmp(name, "SIGNAL_SIGKILL")) || json_integer_value(value) == SIGKILL)
		sig = SIGKILL;
	else if ((name && !strcmp(name, "SIGNAL_SIGTERM")) || json_integer_value(value) == SIGTERM)
		sig = SIGTERM;
	if (!sig)
		return rpc_refuse(
			r, CONNECT_UNIMPLEMENTED, "invalid signal: SIGNAL_SIGKILL and SIGNAL_SIGTERM can be sent");
	if (process_ref(args, &ref, err) < 0)
		return rpc_refuse(r, CONNECT_INVALID_ARGUMENT, "%s", err->msg);
	if (den_kill(e.box, ref, sig, DEN_SCOPE_GROUP, err) == 0)
		return rpc_reply_empty(r);
	if (err->code == DEN_NOT_FOUND && !envd_gone(r, &e))
		return say_missing(r, ref);
	return rpc_failed(r, &e, err);
}

int process_stream_input(struct req *r, struct den_err *err)
{
	(void)err;
	return rpc_refuse(r, CONNECT_UNIMPLEMENTED, "StreamInput is not served: use SendInput");
}
