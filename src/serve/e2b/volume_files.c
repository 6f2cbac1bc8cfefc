/*
 * What is in a volume: /volumecontent. Each request has a box of its own for as long as it takes, without a network,
 * with the volume in it and nothing else; the box's file operations do the rest. Who asks has the volume's token.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "json_fields.h"
#include "mem.h"
#include "run.h"
#include "share.h"
#include "volumes.h"

#define AT "/volume"
#define MEMORY (256ULL << 20)
#define PIDS 64
#define DEPTH_MAX 64
#define BOXES_MAX 32 /* at once, of everybody: they are in nobody's quota */
#define ORG_MAX (BOXES_MAX * 3 / 4)
#define WAIT_S 20

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t room = PTHREAD_COND_INITIALIZER;
static unsigned boxes;

/* ---- whose turn it is ---- */

/* Whoever reads slowly keeps a box for as long as he likes: so nobody has all of them, and nobody waits for ever. */
static int turn_take(struct req *r, const char *org, struct share **ret, struct den_err *err)
{
	struct timespec until;
	char name[64];
	int late = 0;

	snprintf(name, sizeof(name), "volumes %s", org);
	*ret = share_take(name, ORG_MAX);
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += WAIT_S;
	pthread_mutex_lock(&lock);
	while (*ret && boxes >= BOXES_MAX && !late)
		late = pthread_cond_timedwait(&room, &lock, &until);
	if (*ret && boxes < BOXES_MAX)
		late = 0;
	boxes += *ret && !late;
	pthread_mutex_unlock(&lock);
	if (*ret && !late)
		return 0;
	share_give(*ret);
	*ret = NULL;
	req_set_fail_status(r, 503);
	req_set(r, "Retry-After", "1");
	return den_fail(err, DEN_LIMIT, 0, "too many requests for files of volumes at the same time; try again");
}

static void turn_give(struct share *s)
{
	share_give(s);
	pthread_mutex_lock(&lock);
	boxes--;
	pthread_cond_signal(&room);
	pthread_mutex_unlock(&lock);
}

/* ---- the box ---- */

static int box_make(struct req *r, const char *id, struct den_box **ret, struct den_err *err)
{
	char host[32], owner[64], org[33], label[48];
	const struct den_mount mount = { .host = host, .box = AT };
	const char *const labels[] = { label, NULL };
	struct den_box_spec spec = { .size = sizeof(spec),
		.template_name = serve.e2b_template ? serve.e2b_template : "base",
		.ephemeral = true,
		.user = "root",
		.workdir = "/",
		.mounts = &mount,
		.n_mounts = 1,
		.owner = owner,
		.labels = labels,
		.memory = MEMORY,
		.pids = PIDS };

	if (volumes_org(id, org, err) < 0)
		return -1;
	snprintf(host, sizeof(host), "volume:%s", id);
	snprintf(owner, sizeof(owner), "%s/volume", org);
	snprintf(label, sizeof(label), "e2b.build=volume %s", id); /* not in anybody's list */
	if (den_box_create(req_den(r), &spec, ret, err) == 0)
		return 0;
	if (err->code != DEN_UNSUPPORTED)
		return -1;
	spec.memory = spec.pids = 0; /* a host that cannot enforce limits */
	return den_box_create(req_den(r), &spec, ret, err);
}

int volume_empty(struct req *r, const char *id, struct den_err *err)
{
	struct den_exec_opt opt = { .size = sizeof(opt),
		.user = "root",
		.cwd = "/",
		.argv = (const char *const[]){
			"/bin/sh", "-c", "find " AT " -mindepth 1 -delete", NULL } };
	struct den_exec_result res;
	struct share *turn;
	struct den_box *box;
	char org[33];
	int status;

	if (volumes_org(id, org, err) < 0 || turn_take(r, org, &turn, err) < 0)
		return -1;
	status = box_make(r, id, &box, err);
	if (status == 0) {
		status = run_wait(box, &opt, NULL, NULL, &res, err);
		den_box_close(box);
	}
	turn_give(turn);
	if (status < 0)
		return -1;
	if (!res.exited || res.status)
		return den_fail(err, DEN_CONFLICT, 0,
			"the volume could not be emptied; is a sandbox writing to it?");
	return 0;
}

/* ---- what is asked ---- */

struct ask {
	char *path; /* in the box */
	const char *own; /* in the volume */
	char mode[8]; /* "": not said */
	char owner[24]; /* "": not said */
	bool force;
	struct share *turn;
};

static void ask_free(struct ask *a)
{
	free(a->path);
	if (a->turn)
		turn_give(a->turn);
}

static int path_read(const char *path, struct ask *a, struct den_err *err)
{
	if (!path || !*path || strlen(path) > 4000)
		return den_fail(err, DEN_INVALID, 0, "path is missing, or too long");
	for (const char *p = path; (p = strstr(p, "..")); p += 2)
		if ((p == path || p[-1] == '/') && (p[2] == '\0' || p[2] == '/'))
			return den_fail(err, DEN_INVALID, 0, "path: '..' leads out of the volume");
	if (asprintf(&a->path, AT "/%s", path + strspn(path, "/")) < 0)
		abort();
	for (size_t n = strlen(a->path); n > strlen(AT) && a->path[n - 1] == '/'; n--)
		a->path[n - 1] = '\0';
	a->own = a->path[strlen(AT)] ? a->path + strlen(AT) : "/";
	return 0;
}

static int ask_read(struct req *r, struct ask *a, struct den_err *err)
{
	const char *mode = req_query(r, "mode"), *force = req_query(r, "force"),
		   *uid = req_query(r, "uid"), *gid = req_query(r, "gid");
	uint64_t bits, u, g;

	if (path_read(req_query(r, "path"), a, err) < 0 ||
		req_query_u64(r, "mode", 07777, 0, &bits, err) < 0 ||
		req_query_u64(r, "uid", 65535, 0, &u, err) < 0 ||
		req_query_u64(r, "gid", 65535, 0, &g, err) < 0)
		return -1;
	if (mode) /* a number, as the client's own system writes it: 493 is 0755 */
		snprintf(a->mode, sizeof(a->mode), "%04o", (unsigned)bits);
	if (uid || gid)
		snprintf(a->owner, sizeof(a->owner), "%u:%u", (unsigned)u, (unsigned)g);
	a->force = force && !strcmp(force, "true");
	return 0;
}

static int token_check(struct req *r, struct den_err *err)
{
	const char *sent = req_header(r, "Authorization");
	char token[41];

	auth_box_token(req_arg(r, "id"), "volume", token);
	if (!sent || strncasecmp(sent, "Bearer ", 7) || !auth_same(sent + 7, token)) {
		req_set_fail_status(r, 401);
		return den_fail(err, DEN_DENIED, 0, "this is not the volume's token");
	}
	return 0;
}

static int begin(struct req *r, struct ask *a, struct den_box **ret, struct den_err *err)
{
	char org[33];

	if (token_check(r, err) < 0 || ask_read(r, a, err) < 0 || volumes_org(req_arg(r, "id"), org, err) < 0 ||
		req_share(r, org, err) < 0 || turn_take(r, org, &a->turn, err) < 0)
		return -1;
	return box_make(r, req_arg(r, "id"), ret, err);
}
/* declared before the box, so freed after it is gone */
#define auto_ask __attribute__((cleanup(ask_free))) struct ask

/* ---- entries ---- */

static json_t *entry_json(const struct den_entry *e, const char *path)
{
	const char *slash = strrchr(path, '/'), *name = slash && slash[1] ? slash + 1 : path;
	bool known = !strcmp(e->type, "file") || !strcmp(e->type, "directory") ||
		     !strcmp(e->type, "symlink");
	json_t *o = json_object();

	json_object_set_new(o, "name", json_text(name));
	json_object_set_new(o, "path", json_text(path));
	json_object_set_new(o, "type", json_string(known ? e->type : "unknown"));
	json_object_set_new(o, "size", json_integer((json_int_t)e->size));
	json_object_set_new(o, "mode", json_integer(e->mode));
	json_object_set_new(o, "uid", json_integer(e->uid));
	json_object_set_new(o, "gid", json_integer(e->gid));
	e2b_set_time(o, "atime", e->mtime_ns / 1000000);
	e2b_set_time(o, "mtime", e->mtime_ns / 1000000);
	e2b_set_time(o, "ctime", e->mtime_ns / 1000000);
	if (e->target)
		json_object_set_new(o, "target", json_text(e->target));
	return o;
}

struct gather {
	json_t *out;
	const char *base; /* in the volume, of a list */
};

static int gather_one(const struct den_entry *e, void *user, struct den_err *err)
{
	struct gather *g = user;

	(void)err;
	g->out = entry_json(e, g->base);
	return 0;
}

static int gather_list(const struct den_entry *e, void *user, struct den_err *err)
{
	struct gather *g = user;
	auto_free char *path = NULL;

	(void)err;
	if (asprintf(&path, "%s/%s", strcmp(g->base, "/") ? g->base : "", e->path) < 0)
		abort();
	json_array_append_new(g->out, entry_json(e, path));
	return 0;
}

static const struct den_file_opt itself = { .size = sizeof(itself), .no_follow = true };

static int reply_entry(
	struct req *r, struct den_box *box, const struct ask *a, int status, struct den_err *err)
{
	struct gather g = { .base = a->own };

	return den_file_stat(box, a->path, &itself, gather_one, &g, err) < 0
		       ? -1
		       : req_reply_json(r, status, g.out);
}

int e2b_content_stat(struct req *r, struct den_err *err)
{
	auto_ask a = { 0 };
	auto_box *box = NULL;

	return begin(r, &a, &box, err) < 0 ? -1 : reply_entry(r, box, &a, 200, err);
}

int e2b_content_list(struct req *r, struct den_err *err)
{
	auto_ask a = { 0 };
	auto_box *box = NULL;
	struct gather g;
	uint64_t depth;

	if (req_query_u64(r, "depth", DEPTH_MAX, 1, &depth, err) < 0 || begin(r, &a, &box, err) < 0)
		return -1;
	g = (struct gather){ json_array(), a.own };
	if (den_file_list(box, a.path, depth ? (unsigned)depth : 1, NULL, gather_list, &g, err) <
		0) {
		json_decref(g.out);
		return -1;
	}
	return req_reply_json(r, 200, g.out);
}

/* ---- changes ---- */

static int owner_set(struct den_box *box, const struct ask *a, struct den_err *err)
{
	return a->owner[0] ? den_file_chown(box, a->path, a->owner, NULL, err) : 0;
}

int e2b_content_mkdir(struct req *r, struct den_err *err)
{
	auto_ask a = { 0 };
	auto_box *box = NULL;
	struct den_file_opt opt = { .size = sizeof(opt) };

	if (begin(r, &a, &box, err) < 0)
		return -1;
	opt.parents = a.force;
	opt.mode = a.mode;
	if (den_file_mkdir(box, a.path, &opt, err) < 0 && (err->code != DEN_CONFLICT || !a.force))
		return -1;
	return owner_set(box, &a, err) < 0 ? -1 : reply_entry(r, box, &a, 201, err);
}

int e2b_content_change(struct req *r, struct den_err *err)
{
	struct {
		uint64_t uid, gid, mode;
		bool has_uid, has_gid, has_mode;
	} x = { 0 };
	const struct field fields[] = {
		{ "uid", FIELD_U64, (size_t)((char *)&x.uid - (char *)&x), FIELD_NULL, .max = 65535,
			.given = (size_t)((char *)&x.has_uid - (char *)&x) + 1 },
		{ "gid", FIELD_U64, (size_t)((char *)&x.gid - (char *)&x), FIELD_NULL, .max = 65535,
			.given = (size_t)((char *)&x.has_gid - (char *)&x) + 1 },
		{ "mode", FIELD_U64, (size_t)((char *)&x.mode - (char *)&x), FIELD_NULL,
			.max = 07777, .given = (size_t)((char *)&x.has_mode - (char *)&x) + 1 },
	};
	auto_json *body = NULL;
	auto_ask a = { 0 };
	auto_box *box = NULL;
	char text[24];

	if (token_check(r, err) < 0 || req_json(r, &body, err) < 0 ||
		fields_get(body, fields, ARRAY_SIZE(fields), false, &x, err) < 0 ||
		begin(r, &a, &box, err) < 0)
		return -1;
	if (x.has_uid || x.has_gid) {
		struct gather g = { .base = a.own };
		unsigned uid, gid;

		if (den_file_stat(box, a.path, &itself, gather_one, &g, err) < 0)
			return -1;
		uid = x.has_uid ? (unsigned)x.uid
				: (unsigned)json_integer_value(json_object_get(g.out, "uid"));
		gid = x.has_gid ? (unsigned)x.gid
				: (unsigned)json_integer_value(json_object_get(g.out, "gid"));
		json_decref(g.out);
		snprintf(text, sizeof(text), "%u:%u", uid, gid);
		if (den_file_chown(box, a.path, text, NULL, err) < 0)
			return -1;
	}
	snprintf(text, sizeof(text), "%04o", (unsigned)x.mode);
	if (x.has_mode && den_file_chmod(box, a.path, text, NULL, err) < 0)
		return -1;
	return reply_entry(r, box, &a, 200, err);
}

int e2b_content_remove(struct req *r, struct den_err *err)
{
	const struct den_file_opt opt = { .size = sizeof(opt), .recursive = true };
	auto_ask a = { 0 };
	auto_box *box = NULL;

	if (begin(r, &a, &box, err) < 0)
		return -1;
	if (!strcmp(a.own, "/"))
		return den_fail(err, DEN_INVALID, 0,
			"the volume itself is removed with DELETE /volumes/ID");
	return den_file_remove(box, a.path, &opt, err) < 0 ? -1 : req_reply_empty(r, 204);
}

/* ---- bytes ---- */

static int sink(const void *data, size_t n, void *user, struct den_err *err)
{
	struct req *r = user;

	if (!req_begun(r) && req_begin(r, 200, "application/octet-stream", -1, err) < 0)
		return -1;
	return req_write(r, data, n, err);
}

int e2b_content_read(struct req *r, struct den_err *err)
{
	auto_ask a = { 0 };
	auto_box *box = NULL;

	if (begin(r, &a, &box, err) < 0 || den_file_read(box, a.path, NULL, sink, r, err) < 0)
		return -1;
	if (!req_begun(r)) /* an empty file */
		return req_reply(r, 200, "application/octet-stream", "", 0);
	req_end(r);
	return 0;
}

static ssize_t source(void *buf, size_t cap, void *user, struct den_err *err)
{
	return req_read(user, buf, cap, err);
}

int e2b_content_write(struct req *r, struct den_err *err)
{
	auto_ask a = { 0 };
	auto_box *box = NULL;
	struct den_file_opt opt = { .size = sizeof(opt) };

	if (begin(r, &a, &box, err) < 0)
		return -1;
	opt.parents = a.force;
	opt.mode = a.mode;
	if (den_file_write(box, a.path, &opt, source, r, err) < 0 || owner_set(box, &a, err) < 0)
		return -1;
	return reply_entry(r, box, &a, 201, err);
}
