/* /v1/boxes/{box}/files and tar: bytes in and out, streamed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>

#include "files.h"
#include "mem.h"
#include "parse.h"

/* ---- entries ---- */

json_t *v1_entry_json(const struct den_entry *e)
{
	json_t *o = json_object();
	char mode[8];

	snprintf(mode, sizeof(mode), "%04o", e->mode & 07777);
	v1_put(o, "path", e->path);
	json_object_set_new(o, "type", v1_text(e->type));
	v1_put(o, "target", e->target);
	json_object_set_new(o, "mode", json_string(mode));
	json_object_set_new(o, "size", json_integer((json_int_t)MIN(e->size, (uint64_t)INT64_MAX)));
	json_object_set_new(o, "user", v1_text(e->user));
	json_object_set_new(o, "group", v1_text(e->group));
	json_object_set_new(o, "uid", json_integer(e->uid));
	json_object_set_new(o, "gid", json_integer(e->gid));
	json_object_set_new(o, "mtime", v1_time(e->mtime_ns / 1000000));
	json_object_set_new(o, "mtime_ns", json_integer(e->mtime_ns));
	json_object_set_new(o, "inode", json_integer((json_int_t)e->ino));
	json_object_set_new(o, "links", json_integer((json_int_t)e->nlink));
	return o;
}

static int stat_one(const struct den_entry *e, void *user, struct den_err *err)
{
	(void)err;
	*(json_t **)user = v1_entry_json(e);
	return 0;
}

int v1_file_stat(struct req *r, struct den_err *err)
{
	auto_free char *path = NULL;
	auto_box *box = NULL;
	struct den_file_opt opt = {
		.size = sizeof(opt), .user = req_query(r, "user"), .no_follow = true
	};
	bool follow = false;
	json_t *o = NULL;

	if (!QUERY(r, err, "path", "path_b64", "user", "follow", ) ||
		!v1_flag(r, "follow", &follow, err) ||
		v1_query_path(r, "path", true, &path, err) < 0 || v1_box(r, &box, err) < 0 ||
		v1_home_path(box, opt.user, &path, err) < 0)
		return -1;
	opt.no_follow = !follow;
	if (den_file_stat(box, path, &opt, stat_one, &o, err) < 0) {
		json_decref(o);
		return -1;
	}
	return o ? req_reply_json(r, 200, o)
		 : den_fail(err, DEN_INTERNAL, 0, "the box told nothing of '%.100s'", path);
}

static int list_one(const struct den_entry *e, void *user, struct den_err *err)
{
	return v1_list_add(user, "entries", v1_entry_json(e), err);
}

int v1_file_list(struct req *r, struct den_err *err)
{
	auto_free char *path = NULL;
	auto_box *box = NULL;
	struct den_file_opt opt = { .size = sizeof(opt), .user = req_query(r, "user") };
	struct v1_out out = { .r = r, .type = "application/json" };
	uint64_t depth;
	int res;

	if (!QUERY(r, err, "path", "path_b64", "user", "depth", ) ||
		req_query_u64(r, "depth", 1000, 1, &depth, err) < 0 ||
		v1_query_path(r, "path", true, &path, err) < 0 || v1_box(r, &box, err) < 0 ||
		v1_home_path(box, opt.user, &path, err) < 0)
		return -1;
	res = den_file_list(box, path, (unsigned)MAX(depth, 1ULL), &opt, list_one, &out, err);
	if (res == 0)
		res = v1_list_end(&out, "entries", err);
	buf_free(&out.held);
	return res;
}

/* ---- out ---- */

struct span {
	bool part; /* a Range that we can serve */
	uint64_t from, n;
};

/* One range of bytes; what we do not understand is ignored, as the standard wants. -1: beyond the end. */
static int range_parse(const char *text, uint64_t size, struct span *s)
{
	uint64_t a = 0, b = 0;
	const char *dash;
	char first[24];

	*s = (struct span){ .n = size };
	if (!text || strncasecmp(text, "bytes=", 6) || strchr(text, ','))
		return 0;
	text += 6;
	dash = strchr(text, '-');
	if (!dash || (size_t)(dash - text) >= sizeof(first))
		return 0;
	memcpy(first, text, (size_t)(dash - text));
	first[dash - text] = '\0';
	if (!first[0]) { /* the last so many */
		if (parse_u64(dash + 1, 0, UINT64_MAX, &b, NULL) < 0)
			return 0;
		if (!b || !size)
			return -1;
		*s = (struct span){ true, size - MIN(b, size), MIN(b, size) };
		return 0;
	}
	if (parse_u64(first, 0, UINT64_MAX, &a, NULL) < 0)
		return 0;
	b = size ? size - 1 : 0;
	if (dash[1] && (parse_u64(dash + 1, 0, UINT64_MAX, &b, NULL) < 0 || b < a))
		return 0;
	if (a >= size)
		return -1;
	*s = (struct span){ true, a, MIN(b, size - 1) - a + 1 };
	return 0;
}

struct send {
	struct req *r;
	int status;
	uint64_t left;
	bool counted; /* the length is known: no more and no less goes */
	bool begun;
};

static int send_begin(struct send *s, struct den_err *err)
{
	if (s->begun)
		return 0;
	s->begun = true;
	return req_begin(s->r, s->status, "application/octet-stream",
		s->counted ? (int64_t)s->left : -1, err);
}

static int send_bytes(const void *p, size_t n, void *user, struct den_err *err)
{
	struct send *s = user;

	if (send_begin(s, err) < 0)
		return -1;
	if (s->counted) {
		n = (size_t)MIN((uint64_t)n, s->left); /* it grew meanwhile: what we said goes */
		s->left -= n;
	}
	return n ? req_write(s->r, p, n, err) : 0;
}

struct facts {
	char type[16];
	uint64_t size;
	int64_t mtime_ns;
};

static int facts_take(const struct den_entry *e, void *user, struct den_err *err)
{
	struct facts *f = user;

	(void)err;
	snprintf(f->type, sizeof(f->type), "%s", e->type);
	f->size = e->size;
	f->mtime_ns = e->mtime_ns;
	return 0;
}

static int unsatisfiable(struct req *r, uint64_t size)
{
	char text[40];

	snprintf(text, sizeof(text), "bytes */%llu", (unsigned long long)size);
	req_set(r, "Content-Range", text);
	return req_reply_json(r, 416,
		json_pack("{s{ss so ss}}", "error", "code", "invalid", "message",
			json_sprintf("Range is beyond the end of the file, which has %llu bytes",
				(unsigned long long)size),
			"next", "ask for a range inside it"));
}

static int file_send(struct req *r, struct den_box *box, const char *path, struct den_file_opt *opt,
	const struct span *s, uint64_t size, struct den_err *err)
{
	/* files of /proc say that they are empty: those go as they come */
	struct send out = {
		.r = r, .status = s->part ? 206 : 200, .left = s->n, .counted = size > 0
	};
	char text[80];

	if (s->part) {
		snprintf(text, sizeof(text), "bytes %llu-%llu/%llu", (unsigned long long)s->from,
			(unsigned long long)(s->from + s->n - 1), (unsigned long long)size);
		req_set(r, "Content-Range", text);
		opt->offset = s->from;
	}
	opt->length = out.counted ? s->n : 0;
	req_set(r, "Accept-Ranges", "bytes");
	req_set(r, "X-Content-Type-Options", "nosniff");
	req_set(r, "Content-Disposition",
		"attachment"); /* what a box made never runs as a page of ours */
	if (den_file_read(box, path, opt, send_bytes, &out, err) < 0)
		return -1;
	if (out.counted && out.left)
		return den_fail(
			err, DEN_CONFLICT, 0, "'%.100s' became shorter while it was read", path);
	if (send_begin(&out, err) < 0)
		return -1;
	req_end(r);
	return 0;
}

int v1_file_get(struct req *r, struct den_err *err)
{
	auto_free char *path = NULL;
	auto_box *box = NULL;
	struct den_file_opt opt = { .size = sizeof(opt), .user = req_query(r, "user") };
	struct facts f = { 0 };
	struct span s;

	if (!QUERY(r, err, "path", "path_b64", "user", ) ||
		v1_query_path(r, "path", true, &path, err) < 0 || v1_box(r, &box, err) < 0 ||
		v1_home_path(box, opt.user, &path, err) < 0 ||
		den_file_stat(box, path, &opt, facts_take, &f, err) < 0)
		return -1;
	if (!strcmp(f.type, "directory"))
		return den_fail(err, DEN_CONFLICT, 0,
			"'%.100s' is a directory: GET .../files/list, or .../tar for all of it",
			path);
	if (range_parse(req_header(r, "Range"), f.size, &s) < 0)
		return unsatisfiable(r, f.size);
	return file_send(r, box, path, &opt, &s, f.size, err);
}

int v1_tar_get(struct req *r, struct den_err *err)
{
	auto_free char *path = NULL;
	auto_box *box = NULL;
	struct den_file_opt opt = { .size = sizeof(opt), .user = req_query(r, "user") };
	struct v1_out out = { .r = r, .type = "application/x-tar" };
	int res;

	if (!QUERY(r, err, "path", "path_b64", "user", "contents", ) ||
		!v1_flag(r, "contents", &opt.contents, err) ||
		v1_query_path(r, "path", true, &path, err) < 0 || v1_box(r, &box, err) < 0 ||
		v1_home_path(box, opt.user, &path, err) < 0)
		return -1;
	req_set(r, "X-Content-Type-Options", "nosniff");
	res = den_tar_out(box, path, &opt, v1_out_sink, &out, err);
	if (res == 0)
		res = v1_out_end(&out, err);
	buf_free(&out.held);
	return res;
}

/* ---- in ---- */

static ssize_t body_source(void *buf, size_t cap, void *user, struct den_err *err)
{
	return req_read(user, buf, cap, err);
}

/* Only if there is none: written beside it, then moved to a name that must be free. */
static int put_new(struct req *r, struct v1_owner *o, const char *path, const struct den_file_opt *opt,
	struct den_err *err)
{
	struct den_file_opt move = { .size = sizeof(move), .user = opt->user, .no_replace = true };
	struct den_file_opt rm = { .size = sizeof(rm), .user = opt->user, .missing_ok = true };
	auto_free char *aside = mem_alloc(strlen(path) + 32);
	struct den_err unheard;
	uint64_t salt = 0;

	if (getrandom(&salt, sizeof(salt), 0) < 0)
		salt = req_number(r);
	sprintf(aside, "%s.new-%08llx", path, (unsigned long long)(salt & 0xffffffff));
	if (v1_owner_write(o, aside, opt, body_source, r, err) < 0)
		return -1;
	if (den_file_move(o->box, aside, path, &move, err) == 0)
		return 0;
	(void)den_file_remove(o->box, aside, &rm, &unheard);
	return -1;
}

int v1_file_put(struct req *r, struct den_err *err)
{
	auto_free char *path = NULL;
	auto_box *box = NULL;
	const char *none = req_header(r, "If-None-Match");
	struct den_file_opt opt = { .size = sizeof(opt),
		.user = req_query(r, "user"),
		.mode = req_query(r, "mode"),
		.atomic = true };
	struct den_file_opt look = { .size = sizeof(look), .user = opt.user };
	struct v1_owner owner;
	struct facts f = { 0 };
	json_t *o = NULL;

	if (!QUERY(r, err, "path", "path_b64", "user", "mode", "parents", ) ||
		!v1_flag(r, "parents", &opt.parents, err) ||
		v1_query_path(r, "path", true, &path, err) < 0 || v1_box(r, &box, err) < 0 ||
		v1_owner_of(box, opt.user, &path, &owner, err) < 0)
		return -1;
	if (none && strcmp(none, "*"))
		return den_fail(err, DEN_INVALID, 0,
			"If-None-Match can only be * here: write only where no file is");
	if (none && den_file_stat(box, path, &look, facts_take, &f, err) == 0)
		return den_fail(err, DEN_CONFLICT, 0,
			"'%.100s' exists; leave If-None-Match out to replace it", path);
	if ((none ? put_new(r, &owner, path, &opt, err)
		  : v1_owner_write(&owner, path, &opt, body_source, r, err)) < 0)
		return -1;
	if (den_file_stat(box, path, &look, stat_one, &o, err) < 0) {
		json_decref(o);
		return req_reply_empty(r, 204); /* written, and gone again by another's doing */
	}
	return req_reply_json(r, 200, o);
}

int v1_tar_put(struct req *r, struct den_err *err)
{
	auto_free char *path = NULL;
	auto_box *box = NULL;
	struct den_file_opt opt = { .size = sizeof(opt), .user = req_query(r, "user") };

	if (!QUERY(r, err, "path", "path_b64", "user", "parents", ) ||
		!v1_flag(r, "parents", &opt.parents, err) ||
		v1_query_path(r, "path", true, &path, err) < 0 || v1_box(r, &box, err) < 0 ||
		v1_home_path(box, opt.user, &path, err) < 0 ||
		den_tar_in(box, path, &opt, body_source, r, err) < 0)
		return -1;
	return req_reply_empty(r, 204);
}
