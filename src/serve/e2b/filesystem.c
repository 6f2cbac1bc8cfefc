/* filesystem.Filesystem, without its watchers. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "envd.h"
#include "mem.h"

#define LIST_MAX (64U << 20) /* bytes of one answer */
#define DEPTH_MAX 1024

/* A call on a path: who asks, and the path that he means. Results as envd_enter(). */
struct call {
	struct envd e;
	json_t *args;
	struct person who;
	char *path;
};

static void call_free(struct call *c)
{
	envd_leave(&c->e);
	json_decref(c->args);
	free(c->path);
}
#define auto_call __attribute__((cleanup(call_free))) struct call

static int refuse_path(struct req *r, const struct den_err *err)
{
	return rpc_refuse(r, CONNECT_INVALID_ARGUMENT, "%s", err->msg), 1;
}

static int call_enter(struct req *r, const char *member, bool home, struct call *c, struct den_err *err)
{
	int got = rpc_enter(r, &c->e, &c->args, err);
	const char *path;
	char user[64];

	if (got)
		return got;
	if (envd_username(r, user, err) < 0)
		return refuse_path(r, err);
	if (person_get(&c->e, user, &c->who, err) < 0) {
		if (err->code == DEN_NOT_FOUND && !envd_gone(r, &c->e))
			rpc_refuse(r, CONNECT_UNAUTHENTICATED, "%s", err->msg);
		else if (err->code != DEN_NOT_FOUND)
			rpc_failed(r, &c->e, err);
		return 1;
	}
	path = json_string_value(json_object_get(c->args, member));
	if (!home && (!path || !*path)) /* it would mean the whole home */
		return rpc_refuse(r, CONNECT_INVALID_ARGUMENT, "%s is empty", member), 1;
	return person_path(&c->who, path ? path : "", &c->path, err) < 0 ? refuse_path(r, err) : 0;
}

/* Answers {"entry": ...} for a path. */
static int reply_entry(struct req *r, struct call *c, const char *path, struct den_err *err)
{
	struct json j = { 0 };

	json_open(&j, NULL, '{');
	if (entry_look(&c->e, &c->who, path, "entry", &j, err) < 0) {
		buf_free(&j.b);
		if (err->code == DEN_NOT_FOUND && err->sys)
			return rpc_refuse(r, CONNECT_NOT_FOUND, "file not found: path '%s' does not exist", path);
		return rpc_failed(r, &c->e, err);
	}
	json_close(&j, '}');
	return rpc_reply(r, &j);
}

int filesystem_stat(struct req *r, struct den_err *err)
{
	auto_call c = { 0 };
	int got = call_enter(r, "path", true, &c, err);

	if (got)
		return got < 0 ? -1 : 0;
	return reply_entry(r, &c, c.path, err);
}

/* ---- MakeDir ---- */

static int is_dir(const struct den_entry *entry, void *user, struct den_err *err)
{
	(void)err;
	*(bool *)user = !strcmp(entry->type, "directory");
	return 0;
}

static int say_exists(struct req *r, struct call *c, struct den_err *err)
{
	bool dir = false;

	if (den_file_stat(c->e.box, c->path, NULL, is_dir, &dir, err) < 0 && err->code != DEN_NOT_FOUND)
		return rpc_failed(r, &c->e, err);
	if (dir)
		return rpc_refuse(r, CONNECT_ALREADY_EXISTS, "directory already exists: %s", c->path);
	return rpc_refuse(r, CONNECT_INVALID_ARGUMENT, "path already exists but it is not a directory: %s", c->path);
}

int filesystem_mkdir(struct req *r, struct den_err *err)
{
	auto_call c = { 0 };
	struct den_file_opt opt = { .size = sizeof(opt) };
	int got = call_enter(r, "path", false, &c, err);

	if (got)
		return got < 0 ? -1 : 0;
	opt.user = c.who.name;
	if (!c.path[1])
		return rpc_refuse(r, CONNECT_ALREADY_EXISTS, "directory already exists: /");
	/* first without those above, which tells whether it was there */
	got = den_file_mkdir(c.e.box, c.path, &opt, err);
	if (got < 0 && err->sys == EEXIST)
		return say_exists(r, &c, err);
	if (got < 0 && (err->sys == ENOENT || err->code == DEN_DENIED)) {
		bool there;

		if (err->code == DEN_DENIED && den_file_stat(c.e.box, c.path, NULL, is_dir, &there, err) == 0)
			return say_exists(r, &c, err);
		got = as_person_mkdir(&c.e, &c.who, c.path, true, err);
	}
	if (got < 0 && err->sys == ENOTDIR)
		return rpc_refuse(r, CONNECT_INVALID_ARGUMENT, "path is a file: %s", err->msg);
	if (got < 0)
		return rpc_failed(r, &c.e, err);
	return reply_entry(r, &c, c.path, err);
}

/* ---- Move, Remove ---- */

int filesystem_move(struct req *r, struct den_err *err)
{
	auto_call c = { 0 };
	auto_free char *to = NULL;
	struct den_file_opt opt = { .size = sizeof(opt), .parents = true };
	const char *dest;
	int got = call_enter(r, "source", false, &c, err);

	if (got)
		return got < 0 ? -1 : 0;
	dest = json_string_value(json_object_get(c.args, "destination"));
	if (!dest || !*dest)
		return rpc_refuse(r, CONNECT_INVALID_ARGUMENT, "destination is empty");
	if (person_path(&c.who, dest, &to, err) < 0)
		return rpc_refuse(r, CONNECT_INVALID_ARGUMENT, "%s", err->msg);
	opt.user = c.who.name;
	got = den_file_move(c.e.box, c.path, to, &opt, err);
	if (got < 0 && err->code == DEN_DENIED) {
		opt.user = NULL;
		if (as_person_parents(&c.e, &c.who, to, err) == 0)
			got = den_file_move(c.e.box, c.path, to, &opt, err);
	}
	if (got < 0 && err->code == DEN_NOT_FOUND && err->sys)
		return rpc_refuse(r, CONNECT_NOT_FOUND, "source file not found: path '%s' does not exist", c.path);
	if (got < 0)
		return rpc_failed(r, &c.e, err);
	return reply_entry(r, &c, to, err);
}

int filesystem_remove(struct req *r, struct den_err *err)
{
	auto_call c = { 0 };
	struct den_file_opt opt = { .size = sizeof(opt), .recursive = true, .missing_ok = true };
	int got = call_enter(r, "path", false, &c, err);

	if (got)
		return got < 0 ? -1 : 0;
	opt.user = c.who.name;
	got = den_file_remove(c.e.box, c.path, &opt, err);
	if (got < 0 && err->code == DEN_DENIED) {
		opt.user = NULL;
		got = den_file_remove(c.e.box, c.path, &opt, err);
	}
	if (got < 0 && err->sys == ENOTDIR) /* "file/x": not there either */
		got = 0;
	return got < 0 ? rpc_failed(r, &c.e, err) : rpc_reply_empty(r);
}

/* ---- ListDir ---- */

struct list_to {
	struct json j;
	const char *base;
};

static int list_fn(const struct den_entry *entry, void *user, struct den_err *err)
{
	struct list_to *l = user;
	auto_buf path = { 0 };

	if (l->j.b.len > LIST_MAX)
		return den_fail(err, DEN_LIMIT, 0, "more than 64 MiB of entries; list fewer levels");
	buf_addstr(&path, l->base);
	if (path.len > 1)
		buf_addstr(&path, "/");
	buf_addstr(&path, entry->path);
	entry_put(&l->j, NULL, buf_str(&path), entry);
	return 0;
}

static void list_begin(struct list_to *l)
{
	l->j.b.len = 0;
	l->j.comma = false;
	json_open(&l->j, NULL, '{');
	json_open(&l->j, "entries", '[');
}

int filesystem_list(struct req *r, struct den_err *err)
{
	auto_call c = { 0 };
	struct list_to l = { 0 };
	struct den_file_opt opt = { .size = sizeof(opt), .xattr_prefix = ENVD_XATTR, .follow_entries = true };
	uint64_t depth = 1;
	json_t *value;
	int got = call_enter(r, "path", true, &c, err);

	if (got)
		return got < 0 ? -1 : 0;
	value = json_object_get(c.args, "depth");
	if (value && !rpc_u64(value, UINT32_MAX, &depth))
		return rpc_refuse(r, CONNECT_INVALID_ARGUMENT, "depth is a number from 1 on");
	depth = MAX(MIN(depth, (uint64_t)DEPTH_MAX), 1U);
	opt.user = c.who.name;
	l.base = c.path;
	list_begin(&l);
	got = den_file_list(c.e.box, c.path, (unsigned)depth, &opt, list_fn, &l, err);
	if (got < 0 && err->code == DEN_DENIED) {
		opt.user = NULL;
		list_begin(&l);
		got = den_file_list(c.e.box, c.path, (unsigned)depth, &opt, list_fn, &l, err);
	}
	if (got == 0) {
		json_close(&l.j, ']');
		json_close(&l.j, '}');
		return rpc_reply(r, &l.j);
	}
	buf_free(&l.j.b);
	if (err->code == DEN_NOT_FOUND && err->sys)
		return rpc_refuse(r, CONNECT_NOT_FOUND, "path not found: path '%s' does not exist", c.path);
	if (err->sys == ENOTDIR)
		return rpc_refuse(r, CONNECT_INVALID_ARGUMENT, "path is not a directory: %s", c.path);
	return rpc_failed(r, &c.e, err);
}
