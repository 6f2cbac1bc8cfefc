/*
 * Snapshots and forks. Both have the programs of the box in them, where the host can save those; else a box that begins
 * from one has the files, and the start command of its template runs again. A snapshot is a template of den with a row
 * that says which box it is from.
 */
#include "e2b_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "advice.h"
#include "boxes.h"
#include "clock.h"
#include "db.h"
#include "events.h"
#include "json_fields.h"
#include "log.h"
#include "mem.h"
#include "run.h"
#include "strv.h"

#define FORKS_MAX 100
#define LIMIT_MAX 100

/* ---- snapshots ---- */

/* What a box of the snapshot begins as: like the box, whose template says how. */
static char *config_of(const struct den_template *t)
{
	return t->config ? mem_strdup(t->config) : NULL;
}

static int snapshot_files(
	struct req *r, struct den_box *box, const char *stored, struct den_err *err)
{
	struct den_box_info *i;
	struct den_template *t = NULL;
	struct den_template_opt opt = { .size = sizeof(opt), .name = stored };
	auto_free char *config = NULL, *detail = NULL;
	int status;

	if (den_box_info(box, &i, err) < 0)
		return -1;
	if (den_template_get(req_den(r), i->template_name, &t, NULL) == 0)
		config = config_of(t);
	if (asprintf(&detail, "snapshot of %s", i->id) < 0)
		abort();
	opt.config = config;
	opt.beside = true;
	opt.detail = detail;
	opt.user = i->user;
	opt.workdir = i->workdir;
	opt.env = i->env;
	opt.entrypoint = t ? t->entrypoint : NULL;
	opt.cmd = t ? t->cmd : NULL;
	status = den_template_commit(box, NULL, &opt, NULL, err);
	if (t)
		den_templates_free(t, 1);
	den_box_infos_free(i, 1);
	return status;
}

/* The files alone, under a name that may have had programs: what it had goes when the new one is there. Until the programs
 * are gone they are what the name means. */
static int snapshot_only_files(struct req *r, struct den_box *box, const char *stored, struct den_err *err)
{
	if (snapshot_files(r, box, stored, err) < 0)
		return -1;
	return den_template_unbake(req_den(r), stored, err) < 0 && err->code != DEN_NOT_FOUND ? -1 : 0;
}

/* One of the same name is replaced, in one step and only by what is whole. Where programs cannot be saved at all it has the
 * files, and says so (*why); whatever else goes wrong is an error. */
static int snapshot_make(struct req *r, struct den_box *box, const char *stored, struct den_err *why, struct den_err *err)
{
	const char *state = boxes_state(den_box_id(box));

	*why = (struct den_err){ 0 };
	if (state && !strcmp(state, "stopped")) {
		den_fail(why, DEN_UNSUPPORTED, 0, "the sandbox was paused without its memory: nothing runs in it");
		return snapshot_only_files(r, box, stored, err);
	}
	if (den_template_bake_as(box, NULL, stored, DEN_BAKE_REPLACE, err) == 0)
		return 0;
	if (err->code != DEN_UNSUPPORTED)
		return -1;
	*why = *err;
	log_line("warn", "e2b", "snapshot %s of %s has the files alone: %s", stored, den_box_id(box), why->msg);
	return snapshot_only_files(r, box, stored, err);
}

static void name_random(char out[static 32])
{
	uint8_t b[10];

	if (getrandom(b, sizeof(b), 0) != sizeof(b))
		abort();
	memcpy(out, "snap-", 6);
	for (size_t i = 0; i < sizeof(b); i++)
		snprintf(out + 5 + 2 * i, 3, "%02x", b[i]);
}

static json_t *snapshot_json(const char *id, bool named)
{
	json_t *names = json_array();

	if (named)
		json_array_append_new(names, json_string(id));
	return json_pack("{s:s, s:o}", "snapshotID", id, "names", names);
}

int e2b_snapshot(struct req *r, struct den_err *err)
{
	auto_free char *stored = NULL, *name = NULL, *tag = NULL, *id = NULL;
	auto_json *body = NULL;
	auto_box *box = NULL;
	const char *asked;
	struct den_err why;
	char made[32];
	json_t *o;

	if (req_json(r, &body, err) < 0 || e2b_open(r, &box, err) < 0)
		return -1;
	asked = json_string_value(json_object_get(body, "name"));
	name_random(made);
	if (e2b_template_split(asked ? asked : made, &name, &tag, err) < 0 ||
		e2b_template_stored(req_who(r), asked ? asked : made, NULL, &stored, err) < 0 ||
		e2b_template_writable(req_who(r), stored, err) < 0)
		return -1;
	if (asprintf(&id, "%s:%s", name, tag) < 0)
		abort();
	if (snapshot_make(r, box, stored, &why, err) < 0 ||
		db_run(err, NULL,
			"INSERT OR REPLACE INTO e2b_snapshots VALUES (?, ?, ?, ?, ?,"
			" max(?, (SELECT coalesce(max(created_ms), 0) + 1 FROM e2b_snapshots)))",
			"ssssii", stored, req_who(r)->org, id, den_box_id(box),
			(int64_t)(asked != NULL), clock_wall_ms()) < 0)
		return -1;
	e2b_template_changed();
	events_post("template.made", req_who(r)->org, den_box_id(box), json_pack("{s:s}", "name", id));
	o = snapshot_json(id, asked);
	if (why.code) /* clients of E2B do not look at it; people do */
		json_object_set_new(o, "filesOnly", json_text(why.msg));
	return req_reply_json(r, 201, o);
}

int snapshots_forget(const char *stored, struct den_err *err)
{
	return db_run(err, NULL, "DELETE FROM e2b_snapshots WHERE stored = ?", "s", stored);
}

struct page {
	json_t *out;
	uint64_t limit;
	char next[24];
};

static int page_row(struct db_row *row, void *user)
{
	struct page *p = user;

	if (json_array_size(p->out) == p->limit)
		return 1; /* there are more */
	json_array_append_new(p->out, snapshot_json(db_text(row, 0), db_int(row, 1)));
	snprintf(p->next, sizeof(p->next), "%lld", (long long)db_int(row, 2));
	return 0;
}

int e2b_snapshots(struct req *r, struct den_err *err)
{
	const char *sandbox = req_query(r, "sandboxID"), *name = req_query(r, "name");
	char box[E2B_ID_SIZE] = "";
	struct page p = { 0 };
	uint64_t before;
	int64_t seen;

	if (req_query_u64(r, "limit", LIMIT_MAX, LIMIT_MAX, &p.limit, err) < 0 ||
		req_query_u64(r, "nextToken", INT64_MAX, INT64_MAX, &before, err) < 0)
		return -1;
	p.limit = p.limit ? p.limit : LIMIT_MAX;
	p.out = json_array();
	if (sandbox && *sandbox && !e2b_id_box(sandbox, box))
		return req_reply_json(r, 200, p.out);
	/* no two have the same time (e2b_snapshot()), so it tells where a page ended */
	seen = db_each(err, page_row, &p,
		"SELECT id, named, created_ms FROM e2b_snapshots WHERE org = ?1 AND created_ms < ?2"
		" AND (?3 = '' OR box = ?3) AND (?4 IS NULL OR id = ?4 OR id = ?4 || ':default') "
		"ORDER BY created_ms DESC, id",
		"siss", req_who(r)->org, (int64_t)before, box, name);
	if (seen < 0) {
		json_decref(p.out);
		return -1;
	}
	if ((uint64_t)seen > p.limit)
		req_set(r, "x-next-token", p.next);
	return req_reply_json(r, 200, p.out);
}

/* ---- forks ---- */

static json_t *fork_failure(const struct req *r, const struct den_err *err)
{
	auto_buf said = { 0 };

	advice_text(ADVICE_E2B, err->msg, NULL, &said);
	return json_pack("{s:{s:i, s:o}}", "error", "code", req_fail_status(r, err), "message",
		json_text(buf_str(&said)));
}

/* Where the programs can be copied they are, else the files alone; then the template's start command runs anew. */
struct forking {
	struct den_box *box;
	const struct den_box_info *i;
	uint64_t timeout_s;
	bool files, several, made; /* files: alone; made: there is one already */
	char ref[24]; /* the instant that all of them are of; "": not yet */
};

static int fork_full(struct req *r, struct forking *f, const struct den_box_spec *over, struct den_box **ret,
	struct den_err *err)
{
	auto_saved *saved = NULL;

	if (f->several && !*f->ref) {
		auto_saved *point = NULL;

		if (boxes_fork_point(r, f->box, &point, err) < 0)
			return -1;
		snprintf(f->ref, sizeof(f->ref), "%llu", (unsigned long long)point->number);
	}
	return boxes_fork_full(r, f->box, *f->ref ? f->ref : NULL, over, ret, &saved, err);
}

static int fork_files(struct req *r, struct forking *f, const struct den_box_spec *over, struct den_box **ret,
	struct den_err *err)
{
	uint64_t number;

	if (!*f->ref) {
		if (den_checkpoint(f->box, "forked", &number, err) < 0)
			return -1;
		snprintf(f->ref, sizeof(f->ref), "%llu", (unsigned long long)number);
	}
	if (boxes_fork_as(r, f->box, f->ref, over, ret, err) < 0)
		return -1;
	e2b_start_command(r, *ret, f->i);
	return 0;
}

static json_t *fork_one(struct req *r, struct forking *f)
{
	const char *id = e2b_label(f->i, "e2b.template"), *traffic = e2b_label(f->i, "den.traffic");
	struct den_box_spec over = { .size = sizeof(over),
		.on_expire = f->i->on_expire,
		.expires_ms = clock_wall_ms() + (int64_t)f->timeout_s * 1000 };
	auto_box *made = NULL;
	struct den_err err;
	int res = -1;

	if (!f->files) {
		res = fork_full(r, f, &over, &made, &err);
		f->files = res < 0 && err.code == DEN_UNSUPPORTED && !f->made;
	}
	if (f->files)
		res = fork_files(r, f, &over, &made, &err);
	if (res < 0)
		return fork_failure(r, &err);
	f->made = true;
	return json_pack("{s:o}", "sandbox",
		e2b_sandbox_json(den_box_id(made), id ? id : f->i->template_name,
			traffic && !strcmp(traffic, "private")));
}

struct asked {
	uint64_t timeout, count;
};
static const struct field fields[] = {
	{ "timeout", FIELD_U64, offsetof(struct asked, timeout), FIELD_NULL, .min = 1,
		.max = E2B_TIMEOUT_MAX },
	{ "count", FIELD_U64, offsetof(struct asked, count), FIELD_NULL, .min = 1,
		.max = FORKS_MAX },
};

int e2b_fork(struct req *r, struct den_err *err)
{
	struct asked a = { .timeout = 300, .count = 1 };
	auto_json *body = NULL;
	auto_box *box = NULL;
	struct den_box_info *i;
	struct forking f = { 0 };
	json_t *out;

	if (req_json(r, &body, err) < 0 ||
		fields_get(body, fields, ARRAY_SIZE(fields), false, &a, err) < 0 ||
		e2b_open(r, &box, err) < 0 || den_box_info(box, &i, err) < 0)
		return -1;
	f = (struct forking){ .box = box, .i = i, .timeout_s = a.timeout, .files = e2b_stopped(i), .several = a.count > 1 };
	out = json_array();
	for (uint64_t k = 0; k < a.count; k++)
		json_array_append_new(out, fork_one(r, &f));
	den_box_infos_free(i, 1);
	return req_reply_json(r, 201, out);
}
