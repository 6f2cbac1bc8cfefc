/* /v1/boxes/{box}/execs: start (and wait), list, look at one, stdin, signal, resize. */
#include "execs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mem.h"
#include "parse.h"

#define KEEP_OUTPUT (8U << 20) /* of each stream, of an exec that is waited for */

/* ---- start ---- */

struct kept {
	struct buf out[2];
	bool truncated;
};

static int keep_output(struct follow *f, int stream, const void *p, size_t n, struct den_err *err)
{
	struct kept *k = f->user;
	struct buf *b = &k->out[stream == 2];
	size_t room = KEEP_OUTPUT - MIN(b->len, (size_t)KEEP_OUTPUT);

	(void)err;
	k->truncated = k->truncated || n > room;
	buf_add(b, p, MIN(n, room));
	return 0;
}

static json_t *output_json(const struct kept *k, const struct follow *f)
{
	json_t *o = v1_result(&f->result), *text[2];
	bool utf8 = true;

	for (int i = 0; i < 2; i++)
		utf8 = utf8 && v1_is_utf8(k->out[i].p ? k->out[i].p : "", k->out[i].len);
	for (int i = 0; i < 2; i++) {
		const char *p = k->out[i].p ? k->out[i].p : "";

		text[i] =
			utf8 ? json_stringn_nocheck(p, k->out[i].len) : v1_base64(p, k->out[i].len);
	}
	json_object_set_new(o, "pid", json_integer(f->pid));
	json_object_set_new(o, "stdout", text[0]);
	json_object_set_new(o, "stderr", text[1]);
	json_object_set_new(o, "encoding", json_string(utf8 ? "utf-8" : "base64"));
	json_object_set_new(o, "truncated", json_boolean(k->truncated));
	return o;
}

/* The server ends, the program does not. */
static int restarting(struct req *r, pid_t pid)
{
	return req_reply_json(r, 503,
		json_pack("{s{ss ss so}}", "error", "code", "restarting", "message",
			"the server is restarting; the program goes on", "next",
			json_sprintf("GET .../execs/%d, or .../execs/%d/stream for its output",
				(int)pid, (int)pid)));
}

static int wait_for(struct follow *f, struct exec_args *a, bool kill, struct den_err *err)
{
	struct kept k = { 0 };
	int ev = 0, res = 0;

	f->output = keep_output;
	f->user = &k;
	if (v1_follow_start(f, a, kill, err) < 0)
		ev = -1;
	while (!f->ended && ev >= 0 && !(ev & (REQ_GONE | REQ_STOP)))
		ev = v1_follow_step(f, 60000, err);
	v1_follow_leave(f, kill && ev >= 0 && (ev & REQ_GONE));
	if (ev < 0) {
		res = -1;
	} else if (f->failed) {
		*err = f->err;
		res = -1;
	} else if (f->ended) {
		req_reply_json(f->r, 200, output_json(&k, f));
	} else if (ev & REQ_GONE) {
		res = den_fail(err, DEN_CONFLICT, 0, "the client is gone");
	} else {
		restarting(f->r, f->pid);
	}
	buf_free(&k.out[0]);
	buf_free(&k.out[1]);
	return res;
}

static bool wants_events(const struct req *r)
{
	const char *accept = req_header(r, "Accept");

	return accept && strstr(accept, "text/event-stream");
}

static int start_one(struct follow *f, struct exec_args *a, bool kill, struct den_err *err)
{
	bool events = wants_events(f->r);

	if (a->open_input && !events && !a->detach)
		return den_fail(err, DEN_INVALID, 0,
			"\"stdin\": true is for detach or Accept: text/event-stream: nobody could "
			"feed it while this waits");
	if (events && a->detach)
		return den_fail(err, DEN_INVALID, 0,
			"detach does not follow: ask without Accept: text/event-stream");
	if (events)
		return v1_exec_sse(f, a, NULL, false, kill, err);
	if (!a->detach)
		return wait_for(f, a, kill, err);
	if (v1_follow_start(f, a, false, err) < 0)
		return -1;
	return req_reply_json(f->r, 202, json_pack("{si ss?}", "pid", (int)f->pid, "tag", a->tag));
}

int v1_execs_start(struct req *r, struct den_err *err)
{
	auto_json *body = NULL;
	auto_box *box = NULL;
	auto_exec_args a = { 0 };
	struct follow f = { .r = r };
	bool kill = false;
	int res;

	if (!QUERY(r, err, "kill_on_close", ) || !v1_flag(r, "kill_on_close", &kill, err) ||
		req_json(r, &body, err) < 0 || v1_exec_args_get(body, &a, err) < 0 ||
		v1_box(r, &box, err) < 0)
		return -1;
	f.box = box;
	res = start_one(&f, &a, kill, err);
	den_exec_unref(f.exec);
	return res;
}

/* ---- look ---- */

json_t *v1_exec_json(const struct den_exec_info *e)
{
	json_t *o = json_pack("{si sI sb sb}", "pid", (int)e->pid, "number", (json_int_t)e->number,
		"running", e->running, "tty", e->tty);

	json_object_set_new(o, "argv", v1_strings(e->argv));
	json_object_set_new(o, "tag", v1_text(e->tag));
	json_object_set_new(o, "user", v1_text(e->user));
	json_object_set_new(o, "cwd", v1_text(e->cwd));
	json_object_set_new(o, "started", v1_time(e->started_ms));
	json_object_set_new(o, "ended", v1_time(e->ended_ms));
	json_object_set_new(o, "result", e->running ? json_null() : v1_result(&e->result));
	return o;
}

int v1_execs_list(struct req *r, struct den_err *err)
{
	auto_box *box = NULL;
	struct den_ps *ps;
	size_t from, to;
	json_t *o, *a;

	if (!QUERY(r, err, "limit", "cursor", ) || v1_box(r, &box, err) < 0 ||
		den_box_ps(box, &ps, err) < 0)
		return -1;
	a = json_array();
	o = json_pack("{so}", "execs", a);
	if (v1_page(r, o, ps->n_execs, &from, &to, err) < 0) {
		den_ps_free(ps);
		json_decref(o);
		return -1;
	}
	for (size_t i = from; i < to; i++)
		json_array_append_new(a, v1_exec_json(&ps->execs[i]));
	den_ps_free(ps);
	return req_reply_json(r, 200, o);
}

/* By pid or tag; of several with a tag the newest. */
static const struct den_exec_info *exec_find(const struct den_ps *ps, const char *ref)
{
	uint64_t pid = 0;
	const struct den_exec_info *found = NULL;

	(void)parse_u64(ref, 1, 1 << 30, &pid, NULL);
	for (size_t i = 0; i < ps->n_execs; i++) {
		const struct den_exec_info *e = &ps->execs[i];

		if (pid ? (uint64_t)e->pid == pid : e->tag && !strcmp(e->tag, ref))
			if (!found || e->number >= found->number)
				found = e;
	}
	return found;
}

int v1_exec_get(struct req *r, struct den_err *err)
{
	auto_box *box = NULL;
	const struct den_exec_info *e;
	struct den_ps *ps;

	if (!QUERY(r, err) || v1_box(r, &box, err) < 0 || den_box_ps(box, &ps, err) < 0)
		return -1;
	e = exec_find(ps, req_arg(r, "pid"));
	if (e)
		req_reply_json(r, 200, v1_exec_json(e));
	den_ps_free(ps);
	return e ? 0
		 : den_fail(err, DEN_NOT_FOUND, 0,
			   "no exec '%.60s' in this box: GET .../execs lists them",
			   req_arg(r, "pid"));
}

/* ---- act on one ---- */

/* All of the body, with the back-pressure of the program. *ret: bytes taken */
static int feed_body(struct follow *f, uint64_t *ret, struct den_err *err)
{
	auto_free char *p = mem_alloc(64 << 10);
	ssize_t n;
	int ev = 0;

	while ((n = req_read(f->r, p, 64 << 10, err)) > 0) {
		f->in = p;
		f->n_in = (size_t)n;
		while (f->n_in && !f->ended && !(ev & (REQ_GONE | REQ_STOP)))
			if ((ev = v1_follow_step(f, 60000, err)) < 0)
				return -1;
		if (f->ended && f->n_in)
			return den_fail(err, DEN_CONFLICT, 0,
				"the program has ended; it took %llu bytes of this request",
				(unsigned long long)(*ret + (size_t)n - f->n_in));
		if (ev & (REQ_GONE | REQ_STOP))
			return den_fail(err, DEN_CONFLICT, 0, "interrupted");
		*ret += (size_t)n;
	}
	return n < 0 ? -1 : 0;
}

/* Somebody must read what is written: an exec that has ended says so only after the attachment. */
static int can_feed(struct follow *f, const char *ref, struct den_err *err)
{
	const struct den_exec_info *e;
	struct den_ps *ps;
	bool runs;

	if (den_box_ps(f->box, &ps, err) < 0)
		return -1;
	e = exec_find(ps, ref);
	runs = e && e->running;
	den_ps_free(ps);
	if (!runs || f->ended)
		return den_fail(err, DEN_CONFLICT, 0, "the program has ended");
	if (!den_exec_takes_input(f->exec))
		return den_fail(err, DEN_CONFLICT, 0,
			"its stdin is not open: start it with \"stdin\": true to feed it");
	return 0;
}

int v1_exec_stdin(struct req *r, struct den_err *err)
{
	auto_box *box = NULL;
	struct follow f = { .r = r };
	uint64_t taken = 0;
	bool eof = false;
	int res;

	if (!QUERY(r, err, "eof", ) || !v1_flag(r, "eof", &eof, err) || v1_box(r, &box, err) < 0)
		return -1;
	f.box = box;
	res = v1_follow_attach(&f, req_arg(r, "pid"), true, err);
	if (res == 0)
		res = can_feed(&f, req_arg(r, "pid"), err);
	if (res == 0)
		res = feed_body(&f, &taken, err);
	if (res == 0 && eof && !f.ended)
		res = den_exec_close_stdin(f.exec, err);
	if (res == 0)
		res = den_dispatch(box, 0, err); /* sent before we leave */
	den_exec_unref(f.exec);
	return res < 0 ? -1 : req_reply_json(r, 200, json_pack("{sI}", "bytes", (json_int_t)taken));
}

int v1_exec_signal(struct req *r, struct den_err *err)
{
	struct args {
		json_t *signal;
		const char *scope;
	} a = { 0 };
	static const char *const scopes[] = { "process", "group", "tree", NULL };
	static const struct field table[] = {
		{ "signal", FIELD_ANY, offsetof(struct args, signal), FIELD_MUST },
		{ "scope", FIELD_TEXT, offsetof(struct args, scope), .words = scopes },
	};
	auto_json *body = NULL;
	auto_box *box = NULL;
	enum den_scope scope = DEN_SCOPE_TREE;
	char text[16];
	int sig;

	if (!QUERY(r, err) || req_json(r, &body, err) < 0 ||
		fields_get(body, table, ARRAY_SIZE(table), true, &a, err) < 0)
		return -1;
	snprintf(text, sizeof(text), "%lld", (long long)json_integer_value(a.signal));
	if (parse_signal(json_is_string(a.signal) ? json_string_value(a.signal) : text, &sig, err) <
		0)
		return den_wrap(err, "signal");
	if (a.scope)
		scope = !strcmp(a.scope, "process") ? DEN_SCOPE_PROCESS
			: !strcmp(a.scope, "group") ? DEN_SCOPE_GROUP
						    : DEN_SCOPE_TREE;
	if (v1_box(r, &box, err) < 0 || den_kill(box, req_arg(r, "pid"), sig, scope, err) < 0)
		return -1;
	return req_reply_empty(r, 204);
}

int v1_exec_resize(struct req *r, struct den_err *err)
{
	struct args {
		uint64_t rows, cols;
	} a = { 0 };
	static const struct field table[] = {
		{ "rows", FIELD_U64, offsetof(struct args, rows), FIELD_MUST, .min = 1,
			.max = 65535 },
		{ "cols", FIELD_U64, offsetof(struct args, cols), FIELD_MUST, .min = 1,
			.max = 65535 },
	};
	auto_json *body = NULL;
	auto_box *box = NULL;
	struct follow f = { .r = r };
	int res;

	if (!QUERY(r, err) || req_json(r, &body, err) < 0 ||
		fields_get(body, table, ARRAY_SIZE(table), true, &a, err) < 0 ||
		v1_box(r, &box, err) < 0)
		return -1;
	f.box = box;
	res = v1_follow_attach(&f, req_arg(r, "pid"), true, err);
	if (res == 0)
		res = f.ended ? den_fail(err, DEN_CONFLICT, 0, "the program has ended")
			      : den_exec_resize(f.exec, (uint16_t)a.rows, (uint16_t)a.cols, err);
	if (res == 0)
		res = den_dispatch(box, 0, err);
	den_exec_unref(f.exec);
	return res < 0 ? -1 : req_reply_empty(r, 204);
}
