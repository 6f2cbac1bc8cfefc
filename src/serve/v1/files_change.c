/* /v1/boxes/{box}/files: mkdir, move, chmod, chown, delete, watch. */
#include <stdlib.h>
#include <string.h>

#include "files.h"
#include "mem.h"

#define WATCH_TICK_MS 1000 /* so long it may take until a client that left is noticed */

struct change {
	const char *user, *mode, *owner;
	bool parents, recursive, no_replace, no_follow;
};
/* What a body has besides paths, by name. */
static int change_get(
	const json_t *body, const char *const *known, struct change *c, struct den_err *err)
{
	static const struct field all[] = {
		{ "user", FIELD_TEXT, offsetof(struct change, user), FIELD_NULL, .min = 1,
			.max = 256 },
		{ "mode", FIELD_TEXT, offsetof(struct change, mode), FIELD_NULL, .min = 1,
			.max = 8 },
		{ "owner", FIELD_TEXT, offsetof(struct change, owner), FIELD_NULL, .min = 1,
			.max = 256 },
		{ "parents", FIELD_BOOL, offsetof(struct change, parents) },
		{ "recursive", FIELD_BOOL, offsetof(struct change, recursive) },
		{ "no_replace", FIELD_BOOL, offsetof(struct change, no_replace) },
		{ "no_follow", FIELD_BOOL, offsetof(struct change, no_follow) },
	};

	if (fields_known(body, known, err) < 0)
		return -1;
	return fields_get(body, all, ARRAY_SIZE(all), false, c, err);
}

static struct den_file_opt change_opt(const struct change *c)
{
	return (struct den_file_opt){ .size = sizeof(struct den_file_opt),
		.user = c->user,
		.mode = c->mode,
		.parents = c->parents,
		.recursive = c->recursive,
		.no_replace = c->no_replace,
		.no_follow = c->no_follow };
}

int v1_file_mkdir(struct req *r, struct den_err *err)
{
	static const char *const known[] = { "path", "path_b64", "user", "mode", "parents", NULL };
	auto_json *body = NULL;
	auto_free char *path = NULL;
	auto_box *box = NULL;
	struct change c = { 0 };
	struct v1_owner owner;
	struct den_file_opt opt;

	if (!QUERY(r, err) || req_json(r, &body, err) < 0 || change_get(body, known, &c, err) < 0 ||
		v1_path_member(body, "path", &path, err) < 0 || v1_box(r, &box, err) < 0)
		return -1;
	opt = change_opt(&c);
	if (v1_owner_of(box, c.user, &path, &owner, err) < 0 || v1_owner_mkdir(&owner, path, &opt, err) < 0)
		return -1;
	return req_reply_empty(r, 204);
}

int v1_file_move(struct req *r, struct den_err *err)
{
	static const char *const known[] = { "from", "from_b64", "to", "to_b64", "user", "parents",
		"no_replace", NULL };
	auto_json *body = NULL;
	auto_free char *from = NULL, *to = NULL;
	auto_box *box = NULL;
	struct change c = { 0 };
	struct den_file_opt opt;

	if (!QUERY(r, err) || req_json(r, &body, err) < 0 || change_get(body, known, &c, err) < 0 ||
		v1_path_member(body, "from", &from, err) < 0 ||
		v1_path_member(body, "to", &to, err) < 0 || v1_box(r, &box, err) < 0)
		return -1;
	opt = change_opt(&c);
	if (v1_home_path(box, c.user, &from, err) < 0 || v1_home_path(box, c.user, &to, err) < 0 ||
		den_file_move(box, from, to, &opt, err) < 0)
		return -1;
	return req_reply_empty(r, 204);
}

int v1_file_chmod(struct req *r, struct den_err *err)
{
	static const char *const known[] = { "path", "path_b64", "user", "mode", "recursive",
		NULL };
	auto_json *body = NULL;
	auto_free char *path = NULL;
	auto_box *box = NULL;
	struct change c = { 0 };
	struct den_file_opt opt;

	if (!QUERY(r, err) || req_json(r, &body, err) < 0 || change_get(body, known, &c, err) < 0 ||
		v1_path_member(body, "path", &path, err) < 0)
		return -1;
	if (!c.mode)
		return den_fail(
			err, DEN_INVALID, 0, "mode is missing: an octal text like \"0644\"");
	if (v1_box(r, &box, err) < 0)
		return -1;
	opt = change_opt(&c);
	opt.mode = NULL;
	if (v1_home_path(box, c.user, &path, err) < 0 || den_file_chmod(box, path, c.mode, &opt, err) < 0)
		return -1;
	return req_reply_empty(r, 204);
}

int v1_file_chown(struct req *r, struct den_err *err)
{
	static const char *const known[] = { "path", "path_b64", "user", "owner", "recursive",
		"no_follow", NULL };
	auto_json *body = NULL;
	auto_free char *path = NULL;
	auto_box *box = NULL;
	struct change c = { 0 };
	struct den_file_opt opt;

	if (!QUERY(r, err) || req_json(r, &body, err) < 0 || change_get(body, known, &c, err) < 0 ||
		v1_path_member(body, "path", &path, err) < 0)
		return -1;
	if (!c.owner)
		return den_fail(
			err, DEN_INVALID, 0, "owner is missing: USER, USER:GROUP or numbers");
	if (v1_box(r, &box, err) < 0)
		return -1;
	opt = change_opt(&c);
	if (v1_home_path(box, c.user, &path, err) < 0 || den_file_chown(box, path, c.owner, &opt, err) < 0)
		return -1;
	return req_reply_empty(r, 204);
}

int v1_file_delete(struct req *r, struct den_err *err)
{
	auto_free char *path = NULL;
	auto_box *box = NULL;
	struct den_file_opt opt = { .size = sizeof(opt), .user = req_query(r, "user") };

	if (!QUERY(r, err, "path", "path_b64", "user", "recursive", "missing_ok", ) ||
		!v1_flag(r, "recursive", &opt.recursive, err) ||
		!v1_flag(r, "missing_ok", &opt.missing_ok, err) ||
		v1_query_path(r, "path", true, &path, err) < 0 || v1_box(r, &box, err) < 0 ||
		v1_home_path(box, opt.user, &path, err) < 0 ||
		den_file_remove(box, path, &opt, err) < 0)
		return -1;
	return req_reply_empty(r, 204);
}

/* ---- watch ---- */

struct watch {
	struct req *r;
	bool begun;
	const char *why; /* of the end, if we ended it */
	int quiet; /* ticks since something was sent */
};

static int watch_tick(struct watch *w, struct den_err *err)
{
	int ev = req_wait(w->r, -1, 0);

	if (ev & REQ_GONE)
		return den_fail(err, DEN_CONFLICT, 0, "the client is gone");
	if (ev & REQ_STOP) {
		w->why = "restart";
		return den_fail(err, DEN_CONFLICT, 0, "the server is restarting");
	}
	if (!w->begun || ++w->quiet * WATCH_TICK_MS < SSE_KEEPALIVE_MS)
		return 0;
	w->quiet = 0;
	return sse_keepalive(w->r, err);
}

static int watch_one(const struct den_entry *e, void *user, struct den_err *err)
{
	struct watch *w = user;
	json_t *o;

	if (!strcmp(e->event, "tick"))
		return watch_tick(w, err);
	if (!w->begun) {
		w->begun = true;
		return sse_begin(w->r, err) < 0 ||
				       sse_send(w->r, NULL, "watching", json_object(), err) < 0
			       ? -1
			       : 0;
	}
	if (!e->event[0])
		return 0;
	w->quiet = 0;
	o = json_pack("{ss}", "event", e->event);
	v1_put(o, "path", e->path);
	return sse_send(w->r, NULL, "change", o, err);
}

int v1_file_watch(struct req *r, struct den_err *err)
{
	auto_free char *path = NULL;
	auto_box *box = NULL;
	struct den_file_opt opt = {
		.size = sizeof(opt), .user = req_query(r, "user"), .tick_ms = WATCH_TICK_MS
	};
	struct watch w = { .r = r };
	struct den_err unheard;
	int res;

	if (!QUERY(r, err, "path", "path_b64", "user", "recursive", ) ||
		!v1_flag(r, "recursive", &opt.recursive, err) ||
		v1_query_path(r, "path", true, &path, err) < 0 || v1_box(r, &box, err) < 0 ||
		v1_home_path(box, opt.user, &path, err) < 0)
		return -1;
	res = den_file_watch(box, path, &opt, watch_one, &w, err);
	if (!w.begun)
		return res;
	(void)sse_send(
		r, NULL, "end", json_pack("{ss}", "reason", w.why ? w.why : "box"), &unheard);
	req_end(r);
	return 0;
}
