/* /v1/boxes/{box}: checkpoints, tags, rollback, undo, fork, merge, prune, commit. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "auth.h"
#include "boxes.h"
#include "clock.h"
#include "e2b_parts.h"
#include "events.h"
#include "handlers.h"
#include "mem.h"
#include "parse.h"
#include "strv.h"

/* ---- checkpoints and tags ---- */

static json_t *tags_json(const char *tags)
{
	json_t *a = json_array();

	while (tags && *tags) {
		size_t n = strcspn(tags, " ");

		if (n)
			json_array_append_new(a, v1_textn(tags, n));
		tags += n + (tags[n] == ' ');
	}
	return a;
}

static json_t *checkpoint_json(const struct den_checkpoint *c)
{
	json_t *o = json_pack("{sI sI ss sb}", "number", (json_int_t)c->number, "turn",
		(json_int_t)c->turn, "kind", c->kind, "head", c->head);

	json_object_set_new(o, "parent", c->parent < 0 ? json_null() : json_integer(c->parent));
	json_object_set_new(o, "created", v1_time(c->created_ms));
	v1_put(o, "message", c->message);
	json_object_set_new(o, "tags", tags_json(c->tags));
	json_object_set_new(o, "origin", v1_text(c->origin));
	json_object_set_new(o, "size", v1_count(c->size));
	json_object_set_new(o, "full", json_boolean(c->full));
	json_object_set_new(o, "memory", v1_count(c->memory));
	json_object_set_new(o, "memory_disk", c->full ? json_integer((json_int_t)c->memory_disk) : json_null());
	json_object_set_new(o, "memory_shared", c->full ? json_integer((json_int_t)c->memory_shared) : json_null());
	return o;
}

int v1_checkpoints_list(struct req *r, struct den_err *err)
{
	auto_box *box = NULL;
	struct den_checkpoint *c;
	size_t n, from, to;
	json_t *a, *o;

	if (!QUERY(r, err, "limit", "cursor", ) || v1_box(r, &box, err) < 0 ||
		den_log(box, &c, &n, err) < 0)
		return -1;
	a = json_array();
	o = json_pack("{so}", "checkpoints", a);
	if (v1_page(r, o, n, &from, &to, err) < 0) {
		json_decref(o);
		den_checkpoints_free(c, n);
		return -1;
	}
	for (size_t i = from; i < to; i++)
		json_array_append_new(a, checkpoint_json(&c[i]));
	den_checkpoints_free(c, n);
	return req_reply_json(r, 200, o);
}

struct checkpoint_args {
	const char *message;
	bool full;
};

int v1_checkpoint_make(struct req *r, struct den_err *err)
{
	static const struct field table[] = {
		{ "message", FIELD_TEXT, offsetof(struct checkpoint_args, message), FIELD_NULL, .max = 4096 },
		{ "full", FIELD_BOOL, offsetof(struct checkpoint_args, full) },
	};
	struct checkpoint_args a = { 0 };
	auto_saved *saved = NULL;
	auto_json *body = NULL;
	auto_box *box = NULL;
	uint64_t number;

	if (!QUERY(r, err) || req_json(r, &body, err) < 0 ||
		fields_get(body, table, ARRAY_SIZE(table), true, &a, err) < 0 || v1_box(r, &box, err) < 0)
		return -1;
	if (a.full)
		return den_checkpoint_full(box, a.message, &saved, err) < 0
			       ? -1
			       : req_reply_json(r, 201, v1_saved_json(saved));
	if (den_checkpoint(box, a.message, &number, err) < 0)
		return -1;
	return req_reply_json(r, 201, json_pack("{sI}", "number", (json_int_t)number));
}

int v1_tag_put(struct req *r, struct den_err *err)
{
	static const struct field table[] = { { "ref", FIELD_TEXT, 0, FIELD_NULL, .min = 1,
		.max = 128 } };
	auto_json *body = NULL;
	auto_box *box = NULL;
	const char *ref = NULL;

	if (!QUERY(r, err) || req_json(r, &body, err) < 0 ||
		fields_get(body, table, 1, true, &ref, err) < 0 || v1_box(r, &box, err) < 0 ||
		den_tag(box, ref, req_arg(r, "tag"), false, err) < 0)
		return -1;
	return req_reply_empty(r, 204);
}

int v1_tag_delete(struct req *r, struct den_err *err)
{
	auto_box *box = NULL;

	if (!QUERY(r, err) || v1_box(r, &box, err) < 0 ||
		den_tag(box, NULL, req_arg(r, "tag"), true, err) < 0)
		return -1;
	return req_reply_empty(r, 204);
}

/* ---- back ---- */

struct rollback_args {
	const char *ref;
	bool disk;
};

int v1_rollback(struct req *r, struct den_err *err)
{
	static const struct field table[] = {
		{ "ref", FIELD_TEXT, offsetof(struct rollback_args, ref), FIELD_MUST, .min = 1, .max = 128 },
		{ "disk", FIELD_BOOL, offsetof(struct rollback_args, disk) },
	};
	struct rollback_args a = { 0 };
	auto_json *body = NULL;
	auto_box *box = NULL;
	uint64_t before;

	if (!QUERY(r, err) || req_json(r, &body, err) < 0 ||
		fields_get(body, table, ARRAY_SIZE(table), true, &a, err) < 0 || v1_box(r, &box, err) < 0 ||
		(a.disk ? den_rollback_disk : den_rollback)(box, a.ref, &before, err) < 0)
		return -1;
	return req_reply_json(r, 200, json_pack("{sI}", "before", (json_int_t)before));
}

int v1_undo(struct req *r, struct den_err *err)
{
	static const struct field table[] = { { "turns", FIELD_U64, 0, .min = 1, .max = 1000000 } };
	auto_json *body = NULL;
	auto_box *box = NULL;
	uint64_t turns = 1, before;

	if (!QUERY(r, err) || req_json(r, &body, err) < 0 ||
		fields_get(body, table, 1, true, &turns, err) < 0 || v1_box(r, &box, err) < 0 ||
		den_undo(box, (unsigned)turns, &before, err) < 0)
		return -1;
	return req_reply_json(r, 200, json_pack("{sI}", "before", (json_int_t)before));
}

/* ---- fork ---- */

struct fork_args {
	const char *ref, *name, *expires, *on_expire;
	uint64_t count, ttl_ms;
	bool ttl_given, full;
	int64_t expires_ms; /* 0: as its box */
};

static const struct field fork_fields[] = {
	{ "ref", FIELD_TEXT, offsetof(struct fork_args, ref), FIELD_NULL, .min = 1, .max = 128 },
	{ "name", FIELD_TEXT, offsetof(struct fork_args, name), FIELD_NULL, .min = 1, .max = 64 },
	{ "count", FIELD_U64, offsetof(struct fork_args, count), .min = 1, .max = 100 },
	{ "full", FIELD_BOOL, offsetof(struct fork_args, full) },
	{ "expires", FIELD_TEXT, offsetof(struct fork_args, expires), 0, .min = 1, .max = 40 },
	{ "ttl_ms", FIELD_U64, offsetof(struct fork_args, ttl_ms), 0, .min = 1, .max = V1_FOREVER,
		.given = FIELD_GIVEN(struct fork_args, ttl_given) },
	{ "on_expire", FIELD_TEXT, offsetof(struct fork_args, on_expire), 0, .words = v1_words_expire },
};

static int fork_time(struct fork_args *a, struct den_err *err)
{
	if (a->ttl_given && a->expires)
		return den_fail(err, DEN_INVALID, 0, "expires and ttl_ms are the same thing: give one of them");
	if (a->on_expire && !a->ttl_given && !a->expires)
		return den_fail(err, DEN_INVALID, 0, "on_expire needs ttl_ms or expires");
	if (a->ttl_given)
		a->expires_ms = clock_wall_ms() + (int64_t)a->ttl_ms;
	if (a->expires && v1_time_parse(a->expires, &a->expires_ms, err) < 0)
		return den_wrap(err, "expires");
	return 0;
}

/* All of them are of the same instant. */
struct forks {
	struct den_box *box;
	const char *ref;
	char number[24];
	struct den_saved *saved; /* full alone */
};

static int fork_make(struct req *r, const struct fork_args *a, const struct den_box_spec *over, struct forks *f,
	struct den_box **ret, struct den_err *err)
{
	auto_saved *again = NULL;

	if (!a->full)
		return boxes_fork_as(r, f->box, f->ref, over, ret, err);
	if (a->count > 1 && !f->number[0] && (!f->ref || !strcmp(f->ref, "now"))) {
		if (boxes_fork_point(r, f->box, &f->saved, err) < 0)
			return -1;
		snprintf(f->number, sizeof(f->number), "%llu", (unsigned long long)f->saved->number);
		f->ref = f->number;
	}
	return boxes_fork_full(r, f->box, f->ref, over, ret, f->saved ? &again : &f->saved, err);
}

static int fork_one(struct req *r, const struct fork_args *a, struct forks *f, json_t *into, struct den_err *err)
{
	struct den_box_spec over = {
		.size = sizeof(over), .expires_ms = a->expires_ms, .on_expire = a->on_expire
	};
	auto_free char *name = NULL;
	struct den_box_info *i;
	auto_box *made = NULL;

	if (a->name && auth_name(req_who(r), a->name, &name, err) < 0)
		return -1;
	over.name = name;
	if (fork_make(r, a, &over, f, &made, err) < 0 || den_box_info(made, &i, err) < 0)
		return -1;
	json_array_append_new(into, v1_box_json(r, i));
	den_box_infos_free(i, 1);
	return 0;
}

/* All or none: those that were made go again. */
static void fork_undo(struct req *r, const json_t *made)
{
	struct den_err unheard;
	json_t *b;
	size_t i;

	json_array_foreach(made, i, b)
	{
		auto_box *box = NULL;

		if (boxes_open(r, json_string_value(json_object_get(b, "id")), &box, &unheard) == 0)
			(void)boxes_delete(r, box, &unheard);
	}
}

int v1_fork(struct req *r, struct den_err *err)
{
	auto_json *body = NULL, *made = json_array();
	auto_box *box = NULL;
	struct fork_args a = { .count = 1 };
	struct forks f = { 0 };
	int res = 0;

	if (!QUERY(r, err) || req_json(r, &body, err) < 0 ||
		fields_get(body, fork_fields, ARRAY_SIZE(fork_fields), true, &a, err) < 0)
		return -1;
	if (a.name && a.count > 1)
		return den_fail(err, DEN_INVALID, 0,
			"one name cannot be that of %llu boxes: leave out name or count",
			(unsigned long long)a.count);
	if (fork_time(&a, err) < 0 || v1_box(r, &box, err) < 0)
		return -1;
	f.box = box;
	f.ref = a.ref;
	for (uint64_t i = 0; i < a.count && res == 0; i++)
		res = fork_one(r, &a, &f, made, err);
	if (res < 0)
		fork_undo(r, made);
	else if (f.saved)
		req_reply_json(r, 201, json_pack("{sO so}", "boxes", made, "saved", v1_saved_json(f.saved)));
	else
		req_reply_json(r, 201, json_pack("{sO}", "boxes", made));
	den_saved_free(f.saved);
	return res;
}

/* ---- merge ---- */

struct conflicts {
	json_t *list;
	size_t more;
};

static int conflict_take(const char *path, const char *why, void *user, struct den_err *err)
{
	struct conflicts *c = user;
	auto_buf absolute = { 0 };
	json_t *o;

	(void)err;
	if (json_array_size(c->list) >= 10000) {
		c->more++;
		return 0;
	}
	o = json_object();
	buf_addf(&absolute, "%s%s", path[0] == '/' ? "" : "/", path);
	v1_put(o, "path", buf_str(&absolute));
	json_object_set_new(o, "why", v1_text(why));
	json_array_append_new(c->list, o);
	return 0;
}

static int rules_get(const json_t *list, struct den_merge_rule *rules, struct den_err *err)
{
	static const char *const known[] = { "path", "take", NULL };
	json_t *v;
	size_t i;

	json_array_foreach(list, i, v)
	{
		const char *take = json_string_value(json_object_get(v, "take"));

		if (!json_is_object(v) || fields_known(v, known, err) < 0 || !take ||
			(strcmp(take, "ours") && strcmp(take, "theirs")))
			return den_fail(err, DEN_INVALID, 0,
				"rules: each is {\"path\": TEXT or null, \"take\": \"ours\" or "
				"\"theirs\"}");
		rules[i] = (struct den_merge_rule){ json_string_value(json_object_get(v, "path")),
			!strcmp(take, "theirs") };
	}
	return 0;
}

/* The fork that is merged must be the client's own, too; den_merge() takes its exact id. */
static int merge_from(struct req *r, const char *ref, char **ret, struct den_err *err)
{
	const char *at = strchr(ref, '@');
	auto_free char *name = mem_strndup(ref, at ? (size_t)(at - ref) : strlen(ref));
	auto_box *other = NULL;
	auto_buf b = { 0 };

	if (v1_open(r, name, &other, err) < 0)
		return den_wrap(err, "from");
	buf_addf(&b, "%s%s", den_box_id(other), at ? at : "");
	*ret = mem_strdup(buf_str(&b));
	return 0;
}

static int merge_run(struct req *r, const char *from, const struct den_merge_rule *rules, size_t n,
	struct den_err *err)
{
	auto_box *box = NULL;
	auto_json *list = json_array();
	struct conflicts c = { .list = list };
	struct den_merge_result m;

	if (v1_box(r, &box, err) < 0)
		return -1;
	if (den_merge(box, from, rules, n, conflict_take, &c, &m, err) < 0) {
		if (err->code != DEN_CONFLICT || !json_array_size(list))
			return -1;
		return req_reply_json(r, 409,
			json_pack("{so sO sI}", "error", v1_error(r, err), "conflicts", list, "more",
				(json_int_t)c.more));
	}
	return req_reply_json(r, 200,
		json_pack("{sI sI sI sI sI so sI}", "taken", (json_int_t)m.taken, "agreed",
			(json_int_t)m.agreed, "merged", (json_int_t)m.merged, "kept",
			(json_int_t)m.kept, "conflicts", (json_int_t)m.conflicts, "checkpoint",
			m.checkpoint < 0 ? json_null() : json_integer(m.checkpoint), "lost",
			(json_int_t)m.lost));
}

int v1_merge(struct req *r, struct den_err *err)
{
	struct args {
		const char *from;
		json_t *rules;
	} a = { 0 };
	static const struct field table[] = {
		{ "from", FIELD_TEXT, offsetof(struct args, from), FIELD_MUST, .min = 1,
			.max = 256 },
		{ "rules", FIELD_ARRAY, offsetof(struct args, rules), FIELD_NULL, .max = 1000 },
	};
	auto_json *body = NULL;
	auto_free struct den_merge_rule *rules = NULL;
	auto_free char *from = NULL;
	size_t n;

	if (!QUERY(r, err) || req_json(r, &body, err) < 0 ||
		fields_get(body, table, ARRAY_SIZE(table), true, &a, err) < 0)
		return -1;
	n = json_array_size(a.rules);
	rules = mem_zalloc((n + 1) * sizeof(*rules));
	if (rules_get(a.rules, rules, err) < 0 || merge_from(r, a.from, &from, err) < 0)
		return -1;
	return merge_run(r, from, rules, n, err);
}

/* ---- prune, commit ---- */

int v1_prune(struct req *r, struct den_err *err)
{
	struct args {
		uint64_t keep_ms;
		bool all;
	} a = { 0 };
	static const struct field table[] = {
		{ "keep_ms", FIELD_U64, offsetof(struct args, keep_ms), FIELD_NULL,
			.max = 1ULL << 52 },
		{ "all", FIELD_BOOL, offsetof(struct args, all) },
	};
	auto_json *body = NULL;
	auto_box *box = NULL;
	uint64_t removed;

	if (!QUERY(r, err) || req_json(r, &body, err) < 0 ||
		fields_get(body, table, ARRAY_SIZE(table), true, &a, err) < 0 ||
		v1_box(r, &box, err) < 0 || den_prune(box, a.keep_ms, a.all, &removed, err) < 0)
		return -1;
	return req_reply_json(r, 200, json_pack("{sI}", "removed", (json_int_t)removed));
}

struct commit_args {
	const char *name, *ref, *detail, *user, *workdir;
	char **env, **entrypoint, **cmd;
};

static const struct field commit_fields[] = {
	{ "name", FIELD_TEXT, offsetof(struct commit_args, name), FIELD_MUST, .min = 1,
		.max = 128 },
	{ "ref", FIELD_TEXT, offsetof(struct commit_args, ref), FIELD_NULL, .min = 1, .max = 128 },
	{ "detail", FIELD_TEXT, offsetof(struct commit_args, detail), FIELD_NULL, .max = 1024 },
	{ "user", FIELD_TEXT, offsetof(struct commit_args, user), FIELD_NULL, .min = 1,
		.max = 256 },
	{ "workdir", FIELD_TEXT, offsetof(struct commit_args, workdir), FIELD_NULL, .min = 1,
		.max = 4095 },
	{ "env", FIELD_MAP, offsetof(struct commit_args, env), FIELD_NULL, .max = 1000 },
	{ "entrypoint", FIELD_TEXTS, offsetof(struct commit_args, entrypoint), FIELD_NULL,
		.max = 1000 },
	{ "cmd", FIELD_TEXTS, offsetof(struct commit_args, cmd), FIELD_NULL, .max = 1000 },
};

static int commit_run(struct req *r, const struct commit_args *a, struct den_err *err)
{
	auto_free char *stored = NULL, *id = NULL;
	auto_box *box = NULL;
	struct den_template_opt opt = { .size = sizeof(opt),
		.detail = a->detail,
		.user = a->user,
		.workdir = a->workdir,
		.env = (const char *const *)a->env,
		.entrypoint = (const char *const *)a->entrypoint,
		.cmd = (const char *const *)a->cmd };

	if (auth_name(req_who(r), a->name, &stored, err) < 0 ||
		e2b_template_writable(req_who(r), stored, err) < 0 || v1_box(r, &box, err) < 0)
		return -1;
	opt.name = stored;
	if (den_template_commit(box, a->ref, &opt, &id, err) < 0)
		return -1;
	events_post("template.made", req_who(r)->org, den_box_id(box),
		json_pack("{ss ss}", "name", a->name, "id", id));
	return req_reply_json(r, 201, json_pack("{ss ss}", "name", a->name, "id", id));
}

int v1_commit(struct req *r, struct den_err *err)
{
	auto_json *body = NULL;
	struct commit_args a = { 0 };
	int res;

	if (!QUERY(r, err) || req_json(r, &body, err) < 0 ||
		fields_get(body, commit_fields, ARRAY_SIZE(commit_fields), true, &a, err) < 0)
		return -1;
	res = commit_run(r, &a, err);
	strv_free(a.env);
	strv_free(a.entrypoint);
	strv_free(a.cmd);
	return res;
}
