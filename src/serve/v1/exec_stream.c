/*
 * An exec as server-sent events: started, stdout, stderr, lost, exit, error, end.
 *
 * The id of stdout and stderr counts the bytes of both streams so far, "OUT.ERR". Who was cut off comes back with it as
 * Last-Event-ID and gets what it has not seen, as long as the box has kept it all. If some is gone, it gets
 * what is there after an event `lost`, and no ids.
 */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "execs.h"
#include "mem.h"

struct sse {
	bool begun, numbered;
	uint64_t pos[2], skip[2];
	uint64_t lost; /* told so far */
};

static int tell_lost(struct follow *f, struct sse *s, struct den_err *err)
{
	uint64_t lost = den_exec_lost(f->exec);

	if (lost == s->lost)
		return 0;
	s->numbered = false;
	s->skip[0] = s->skip[1] = 0;
	lost -= s->lost;
	s->lost += lost;
	return sse_send(f->r, NULL, "lost", json_pack("{sI}", "bytes", (json_int_t)lost), err);
}

static int begin(struct follow *f, struct sse *s, struct den_err *err)
{
	if (s->begun)
		return 0;
	s->begun = true;
	if (sse_begin(f->r, err) < 0 ||
		sse_send(f->r, NULL, "started", json_pack("{si}", "pid", (int)f->pid), err) < 0)
		return -1;
	return 0;
}

static int output(struct follow *f, int stream, const void *p, size_t n, struct den_err *err)
{
	struct sse *s = f->user;
	int i = stream == 2;
	size_t skip;
	char id[48];

	if (begin(f, s, err) < 0 || tell_lost(f, s, err) < 0)
		return -1;
	skip = (size_t)MIN(s->skip[i], (uint64_t)n);
	s->skip[i] -= skip;
	s->pos[i] += n;
	if (skip == n)
		return 0;
	snprintf(id, sizeof(id), "%llu.%llu", (unsigned long long)s->pos[0],
		(unsigned long long)s->pos[1]);
	return sse_send(f->r, s->numbered ? id : NULL, i ? "stderr" : "stdout",
		json_pack("{so}", "data", v1_base64((const char *)p + skip, n - skip)), err);
}

static int finish(struct follow *f, struct sse *s, const char *why, struct den_err *err)
{
	json_t *exit;

	if (begin(f, s, err) < 0 || tell_lost(f, s, err) < 0)
		return -1;
	if (f->failed && sse_send(f->r, NULL, "error",
				 json_pack("{so}", "error", v1_error(f->r, &f->err)), err) < 0)
		return -1;
	if (f->ended && !f->failed) {
		exit = v1_result(&f->result);
		json_object_set_new(exit, "pid", json_integer(f->pid));
		if (sse_send(f->r, NULL, "exit", exit, err) < 0)
			return -1;
	}
	if (sse_send(f->r, NULL, "end", json_pack("{ss}", "reason", why), err) < 0)
		return -1;
	req_end(f->r);
	return 0;
}

static int run(struct follow *f, struct sse *s, bool kill, struct den_err *err)
{
	int ev = 0;

	if (begin(f, s, err) < 0)
		return -1;
	while (!f->ended) {
		ev = v1_follow_step(f, SSE_KEEPALIVE_MS, err);
		if (ev < 0)
			return -1;
		if (ev & REQ_GONE) {
			v1_follow_leave(f, kill);
			return den_fail(err, DEN_CONFLICT, 0, "the client is gone");
		}
		if (ev & REQ_STOP)
			return finish(f, s, "restart", err);
		if (ev == 0 && !f->ended && sse_keepalive(f->r, err) < 0) {
			v1_follow_leave(f, kill);
			return -1;
		}
	}
	return finish(f, s, f->failed || !strcmp(f->result.reason, "stop") ? "box" : "exit", err);
}

int v1_exec_sse(struct follow *f, struct exec_args *a, const char *ref, bool live, bool kill,
	struct den_err *err)
{
	const char *last = req_header(f->r, "Last-Event-ID");
	unsigned long long out, errors;
	struct sse s = { .numbered = !live };

	if (ref && !live && last && sscanf(last, "%llu.%llu", &out, &errors) == 2) {
		s.skip[0] = out;
		s.skip[1] = errors;
	}
	f->output = output;
	f->user = &s;
	if ((a ? v1_follow_start(f, a, kill, err) : v1_follow_attach(f, ref, live, err)) < 0)
		return -1;
	return run(f, &s, kill, err);
}

bool v1_wants_websocket(const struct req *r)
{
	const char *upgrade = req_header(r, "Upgrade");

	return upgrade && strcasestr(upgrade, "websocket");
}

int v1_exec_stream(struct req *r, struct den_err *err)
{
	auto_box *box = NULL;
	struct follow f = { .r = r };
	bool live = false, kill = false;
	int res;

	if (!QUERY(r, err, "live", "kill_on_close", ) || !v1_flag(r, "live", &live, err) ||
		!v1_flag(r, "kill_on_close", &kill, err) || v1_box(r, &box, err) < 0)
		return -1;
	if (v1_wants_websocket(r))
		return v1_terminal_attach(r, box, req_arg(r, "pid"), live, kill, err);
	f.box = box;
	res = v1_exec_sse(&f, NULL, req_arg(r, "pid"), live, kill, err);
	den_exec_unref(f.exec);
	return res;
}
