/*
 * An exec over a WebSocket. From the client: binary is stdin, text is {"resize":{"rows","cols"}}, {"signal":N or "NAME"} or
 * {"eof":true}. To it: binary is output (of a program without a terminal: both streams), text is
 * {"started":{"pid"}}, {"lost":{"bytes"}}, {"exit":{...}}, {"error":{...}}.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "execs.h"
#include "mem.h"
#include "parse.h"
#include "strv.h"
#include "ws.h"

#define MESSAGE_MAX (1U << 20)

struct wire {
	struct ws *ws; /* NULL: not yet */
	struct buf early; /* output that came before it was there: a window at most */
	uint64_t lost;
};

static int say(struct wire *w, json_t *take, struct den_err *err)
{
	auto_json *j = take;
	auto_free char *text = json_dumps(j, JSON_COMPACT);

	return ws_send(w->ws, WS_TEXT, text ? text : "{}", text ? strlen(text) : 2, err);
}

static int output(struct follow *f, int stream, const void *p, size_t n, struct den_err *err)
{
	struct wire *w = f->user;
	uint64_t lost = f->exec ? den_exec_lost(f->exec) : 0;

	(void)stream;
	if (!w->ws) {
		buf_add(&w->early, p, n);
		return 0;
	}
	if (lost != w->lost) {
		if (say(w, json_pack("{s{sI}}", "lost", "bytes", (json_int_t)(lost - w->lost)),
			    err) < 0)
			return -1;
		w->lost = lost;
	}
	return ws_send(w->ws, WS_BINARY, p, n, err);
}

/* ---- what the client says ---- */

static int text_run(struct follow *f, const json_t *j, struct den_err *err)
{
	static const char *const known[] = { "resize", "signal", "eof", NULL };
	const json_t *size = json_object_get(j, "resize"), *sig = json_object_get(j, "signal");
	json_int_t rows = json_integer_value(json_object_get(size, "rows")),
		   cols = json_integer_value(json_object_get(size, "cols"));
	char text[24];
	int n;

	if (fields_known(j, known, err) < 0)
		return -1;
	if (size) {
		if (rows < 1 || rows > 65535 || cols < 1 || cols > 65535)
			return den_fail(
				err, DEN_INVALID, 0, "resize: rows and cols are from 1 to 65535");
		if (den_exec_resize(f->exec, (uint16_t)rows, (uint16_t)cols, err) < 0)
			return -1;
	}
	if (sig) {
		snprintf(text, sizeof(text), "%lld", (long long)json_integer_value(sig));
		if (parse_signal(json_is_string(sig) ? json_string_value(sig) : text, &n, err) < 0)
			return den_wrap(err, "signal");
		if (den_exec_signal(f->exec, n, DEN_SCOPE_GROUP, err) < 0)
			return -1;
	}
	return json_is_true(json_object_get(j, "eof")) ? den_exec_close_stdin(f->exec, err) : 0;
}

/* A wrong message is told, not the end of the connection. */
static int take_text(struct follow *f, const char *p, size_t n, struct den_err *err)
{
	auto_json *j = n <= 4096 ? json_loadb(p, n, JSON_REJECT_DUPLICATES, NULL) : NULL;
	struct den_err why;
	int r = 0;

	if (!json_is_object(j))
		r = den_fail(&why, DEN_INVALID, 0,
			"a text message is {\"resize\":{\"rows\",\"cols\"}}, {\"signal\":N} or "
			"{\"eof\":true}; input goes as binary");
	else if (!f->ended)
		r = text_run(f, j, &why);
	return r < 0 && !f->ended ? say(f->user, json_pack("{so}", "error", v1_error(f->r, &why)), err)
				  : 0;
}

/* All of it, while output goes on. */
static int take_binary(struct follow *f, const char *p, size_t n, struct den_err *err)
{
	f->in = p;
	f->n_in = n;
	while (f->n_in && !f->ended && !f->gone) {
		if (v1_follow_feed(f, err) < 0)
			return f->ended ? 0 : -1;
		if (f->n_in && den_dispatch(f->box, 1000, err) < 0)
			return -1;
	}
	return 0;
}

/* ---- the loop ---- */

static int finish(struct follow *f, struct wire *w, struct den_err *err)
{
	json_t *exit;

	if (f->failed)
		return say(w, json_pack("{so}", "error", v1_error(f->r, &f->err)), err);
	exit = v1_result(&f->result);
	json_object_set_new(exit, "pid", json_integer(f->pid));
	return say(w, json_pack("{so}", "exit", exit), err);
}

/* 0: the program has ended and all is told; -1 */
static int pump(struct follow *f, struct wire *w, struct den_err *err)
{
	while (!f->ended) {
		const char *p;
		size_t n;
		int r;

		if (den_dispatch(f->box, 0, err) < 0)
			return -1;
		if (f->ended)
			break;
		if (f->gone)
			return den_fail(err, DEN_CONFLICT, 0, "the client is gone");
		r = ws_next(w->ws, den_poll_fd(f->box), 30000, &p, &n);
		if (r < 0 || r == WS_CLOSED << 4)
			return den_fail(err, DEN_CONFLICT, 0, "the client is gone");
		if (r == WS_BINARY << 4 && take_binary(f, p, n, err) < 0)
			return -1;
		if (r == WS_TEXT << 4 && take_text(f, p, n, err) < 0)
			return -1;
	}
	return finish(f, w, err);
}

/* The program runs: 101, and on until it ends or the client leaves. */
static int converse(struct follow *f, struct wire *w, bool kill, struct den_err *err)
{
	int r;

	if (ws_open(f->r, NULL, MESSAGE_MAX, &w->ws, err) < 0)
		return -1;
	r = say(w, json_pack("{s{si}}", "started", "pid", (int)f->pid), err);
	if (r == 0 && w->early.len)
		r = ws_send(w->ws, WS_BINARY, w->early.p, w->early.len, err);
	if (r == 0)
		r = pump(f, w, err);
	v1_follow_leave(f, kill && r < 0);
	ws_close(w->ws, r < 0 ? 1011 : 1000, r < 0 ? "cut off" : "ended");
	return 0; /* whatever it was, the client was told, or is gone */
}

int v1_terminal_attach(struct req *r, struct den_box *box, const char *ref, bool live, bool kill,
	struct den_err *err)
{
	struct wire w = { 0 };
	struct follow f = { .r = r, .box = box, .output = output, .user = &w };
	int res = v1_follow_attach(&f, ref, live, err);

	if (res == 0)
		res = converse(&f, &w, kill, err);
	buf_free(&w.early);
	den_exec_unref(f.exec);
	return res;
}

static int terminal_args(struct req *r, struct exec_args *a, struct den_err *err)
{
	static const char *const shell[] = { "/bin/sh", "-c", "exec \"${SHELL:-/bin/sh}\" -l",
		NULL };
	const char *command = req_query(r, "command");

	if (req_query_u64(r, "rows", 65535, 24, &a->rows, err) < 0 ||
		req_query_u64(r, "cols", 65535, 80, &a->cols, err) < 0)
		return -1;
	a->user = req_query(r, "user");
	a->cwd = req_query(r, "cwd");
	a->tty = a->open_input = true;
	a->argv = strv_copy(
		command ? (const char *const[]){ "/bin/sh", "-c", command, NULL } : shell);
	a->env = strv_copy((const char *const[]){ "TERM=xterm-256color", NULL });
	return 0;
}

int v1_terminal(struct req *r, struct den_err *err)
{
	auto_box *box = NULL;
	auto_exec_args a = { 0 };
	struct wire w = { 0 };
	struct follow f = { .r = r, .output = output, .user = &w };
	bool kill = false, live = false;
	int res;

	if (!QUERY(r, err, "user", "cwd", "command", "rows", "cols", "attach", "live",
		    "kill_on_close", ) ||
		!v1_flag(r, "kill_on_close", &kill, err) || !v1_flag(r, "live", &live, err))
		return -1;
	if (!v1_wants_websocket(r))
		return den_fail(err, DEN_INVALID, 0,
			"a terminal is a WebSocket: ask with Upgrade: websocket");
	if (terminal_args(r, &a, err) < 0 || v1_box(r, &box, err) < 0)
		return -1;
	if (req_query(r, "attach"))
		return v1_terminal_attach(r, box, req_query(r, "attach"), live, kill, err);
	f.box = box;
	res = v1_follow_start(&f, &a, kill, err);
	if (res == 0)
		res = converse(&f, &w, kill, err);
	if (res < 0)
		v1_follow_leave(
			&f, true); /* it was started for this connection, which there is none of */
	buf_free(&w.early);
	den_exec_unref(f.exec);
	return res;
}
