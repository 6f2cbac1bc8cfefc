/* Builds as clients ask for them and watch them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "build.h"
#include "clock.h"
#include "db.h"
#include "json_fields.h"
#include "mem.h"
#include "parse.h"
#include "strv.h"

#define LINES_PAGE 100
#define LINES_KEEP_MS (7 * 24 * 3600 * 1000LL) /* what a build said is kept for a week */
#define NEVER_STARTED_MS (24 * 3600 * 1000LL) /* a build that was asked for is started within a day, or never */
#define WAITING_MAX 100 /* builds of one organisation that are not over */

/* ---- asking for one ---- */

struct asked {
	const char *name, *alias;
	char **tags;
	uint64_t cpus, memory_mb;
};

static const struct field fields[] = {
	{ "name", FIELD_TEXT, offsetof(struct asked, name), FIELD_NULL, .max = 255 },
	{ "alias", FIELD_TEXT, offsetof(struct asked, alias), FIELD_NULL, .max = 255 },
	{ "tags", FIELD_TEXTS, offsetof(struct asked, tags), FIELD_NULL, .max = 64 },
	{ "cpuCount", FIELD_U64, offsetof(struct asked, cpus), FIELD_NULL, .min = 1, .max = 1024 },
	{ "memoryMB", FIELD_U64, offsetof(struct asked, memory_mb), FIELD_NULL, .min = 16,
		.max = 16 << 20 },
};

static void asked_free(struct asked *a)
{
	strv_free(a->tags);
}

static void uuid_make(char out[static 37])
{
	uint8_t b[16];

	if (getrandom(b, sizeof(b), 0) != sizeof(b))
		abort();
	b[6] = (uint8_t)((b[6] & 0x0f) | 0x40);
	b[8] = (uint8_t)((b[8] & 0x3f) | 0x80);
	snprintf(out, 37, "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
		b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12],
		b[13], b[14], b[15]);
}

static json_t *texts(char *const *v)
{
	json_t *a = json_array();

	for (; v && *v; v++)
		json_array_append_new(a, json_string(*v));
	return a;
}

static bool has(char *const *v, const char *s)
{
	for (; v && *v; v++)
		if (!strcmp(*v, s))
			return true;
	return false;
}

/* The name's own tag and those besides; "default" when there is none at all. Each is checked as a name of den's. */
static int tags_settle(const struct who *w, const char *id, const char *name, const char *own,
	char ***tags, struct den_err *err)
{
	if ((strchr(id, ':') || !*tags) && !has(*tags, own))
		strv_add(tags, own);
	for (char **t = *tags; *t; t++) {
		auto_free char *stored = NULL;

		if (!**t ||
			strspn(*t, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789."
				   "_-") != strlen(*t) ||
			strlen(*t) > 100 || **t == '.' || **t == '-')
			return den_fail(err, DEN_INVALID, 0,
				"tag '%.60s': letters, digits, '.', '_' and '-' make a tag", *t);
		if (e2b_template_stored(w, name, *t, &stored, err) < 0 ||
			e2b_template_writable(w, stored, err) < 0)
			return -1;
	}
	return 0;
}

static int name_check(const char *name, struct den_err *err)
{
	size_t n = strlen(name);

	if (n > 60 || strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789._-") != n ||
		strchr("._-", name[0]) || strchr("._-", name[n - 1]) || strstr(name, "..") ||
		!strcmp(name, "host") || !strcmp(name, "empty") || !strncmp(name, "o.", 2) ||
		(n >= 12 && strspn(name, "0123456789abcdef") == n))
		return den_fail(err, DEN_INVALID, 0,
			"'%.80s' cannot be a template's name: lower case, digits, '.', '_' and "
			"'-', "
			"beginning and ending with a letter or digit",
			name);
	return 0;
}

/* What builds said, and builds that were asked for and never started: their clients are long gone. */
int e2b_builds_sweep(struct den_err *err)
{
	if (db_run(err, NULL,
		    "DELETE FROM e2b_lines WHERE build IN (SELECT id FROM e2b_builds WHERE"
		    " created_ms < ?)",
		    "i", clock_wall_ms() - LINES_KEEP_MS) < 0)
		return -1;
	return db_run(err, NULL, "DELETE FROM e2b_builds WHERE state = 'requested' AND created_ms < ?", "i",
		clock_wall_ms() - NEVER_STARTED_MS);
}

int e2b_build_new(struct req *r, struct den_err *err)
{
	__attribute__((cleanup(asked_free))) struct asked a = { 0 };
	auto_free char *name = NULL, *own_tag = NULL, *joined = NULL;
	auto_json *body = NULL, *tags = NULL;
	const char *id;
	char build[37];

	if (req_json(r, &body, err) < 0 ||
		fields_get(body, fields, ARRAY_SIZE(fields), false, &a, err) < 0)
		return -1;
	id = a.name ? a.name : a.alias;
	if (!id || !*id)
		return den_fail(err, DEN_INVALID, 0, "name is missing");
	if (e2b_template_split(id, &name, &own_tag, err) < 0 || name_check(name, err) < 0 ||
		tags_settle(req_who(r), id, name, own_tag, &a.tags, err) < 0)
		return -1;
	if (e2b_builds_sweep(err) < 0)
		return -1;
	uuid_make(build);
	tags = texts(a.tags);
	joined = json_dumps(tags, JSON_COMPACT);
	if (db_run(err, NULL,
		    "INSERT INTO e2b_builds (id, org, name, tags, state, cpu, memory, created_ms)"
		    " VALUES (?, ?, ?, ?, 'requested', ?, ?, ?)",
		    "ssssiii", build, req_who(r)->org, name, joined, (int64_t)a.cpus,
		    (int64_t)a.memory_mb, clock_wall_ms()) < 0)
		return -1;
	return req_reply_json(r, 202,
		json_pack("{s:s, s:s, s:b, s:[s], s:O, s:[s]}", "templateID", name, "buildID",
			build, "public", 0, "names", name, "tags", tags, "aliases", name));
}

/* ---- starting it ---- */

static int build_row(struct db_row *row, void *user)
{
	struct build *b = user;
	auto_json *tags = json_loads(db_text(row, 1), 0, NULL);
	json_t *t;
	size_t i;

	b->name = mem_strdup(db_text(row, 0));
	json_array_foreach (tags, i, t)
		strv_add(&b->tags, json_string_value(t));
	b->cpus = (uint64_t)db_int(row, 2);
	b->memory_mb = (uint64_t)db_int(row, 3);
	return 1;
}

static int unknown(struct req *r, struct den_err *err)
{
	return den_fail(err, DEN_NOT_FOUND, 0, "template '%.60s' has no build '%.40s'",
		req_arg(r, "id"), req_arg(r, "build"));
}

static int body_check(const json_t *body, struct den_err *err)
{
	const json_t *steps = json_object_get(body, "steps"), *args;
	json_t *step, *a;
	size_t i, k;

	if (steps && !json_is_null(steps) &&
		(!json_is_array(steps) || json_array_size(steps) > 1000))
		return den_fail(err, DEN_INVALID, 0, "steps is a list of at most 1000");
	json_array_foreach (steps, i, step) {
		args = json_object_get(step, "args");
		if (!json_is_object(step) || (args && !json_is_null(args) && !json_is_array(args)))
			return den_fail(
				err, DEN_INVALID, 0, "steps: each is an object with type and args");
		json_array_foreach (args, k, a)
			if (!json_is_string(a) ||
				strlen(json_string_value(a)) != json_string_length(a))
				return den_fail(err, DEN_INVALID, 0, "steps: args are texts");
	}
	return 0;
}

int e2b_build_start(struct req *r, struct den_err *err)
{
	struct build *b = mem_new(struct build);
	int64_t n, changed = 0;

	b->who = *req_who(r);
	snprintf(b->id, sizeof(b->id), "%s", req_arg(r, "build"));
	if (req_json(r, &b->body, err) < 0 || body_check(b->body, err) < 0 ||
		(n = db_each(err, build_row, b,
			 "SELECT name, tags, cpu, memory FROM e2b_builds WHERE id = ? AND org = ? "
			 "AND name = ?",
			 "sss", b->id, b->who.org, req_arg(r, "id"))) < 0 ||
		(n == 0 && unknown(r, err) < 0) ||
		db_run(err, &changed,
			"UPDATE e2b_builds SET state = 'queued' WHERE id = ?1 AND state = "
			"'requested' AND (SELECT"
			" count(*) FROM e2b_builds WHERE org = ?2 AND state IN ('queued', "
			"'building')) < ?3",
			"ssi", b->id, b->who.org, (int64_t)WAITING_MAX) < 0) {
		build_free(b);
		return -1;
	}
	if (!changed) {
		build_free(b);
		return e2b_error(r, 409,
			"this build has begun already, or too many others are going on; ask for a "
			"new one");
	}
	return build_begin(b, err) < 0 ? -1 : req_reply_empty(r, 202);
}

/* ---- watching it ---- */

struct status {
	char state[16], step[16];
	char *reason;
	json_t *entries, *logs;
};

static int status_row(struct db_row *row, void *user)
{
	struct status *s = user;
	const char *state = db_text(row, 0);
	bool wait = !strcmp(state, "requested") || !strcmp(state, "queued");

	snprintf(s->state, sizeof(s->state), "%s", wait ? "waiting" : state);
	s->reason = db_text(row, 1) ? mem_strdup(db_text(row, 1)) : NULL;
	snprintf(s->step, sizeof(s->step), "%s", db_text(row, 2) ? db_text(row, 2) : "");
	return 1;
}

static int line_row(struct db_row *row, void *user)
{
	struct status *s = user;
	json_t *o = json_pack("{s:s, s:s}", "level", db_text(row, 1), "message", db_text(row, 3));

	e2b_set_time(o, "timestamp", db_int(row, 0));
	if (db_text(row, 2))
		json_object_set_new(o, "step", json_string(db_text(row, 2)));
	json_array_append_new(s->entries, o);
	json_array_append_new(s->logs, json_string(db_text(row, 3)));
	return 0;
}

static int status_load(struct req *r, uint64_t offset, struct status *s, struct den_err *err)
{
	int64_t n = db_each(err, status_row, s,
		"SELECT state, reason, step FROM e2b_builds WHERE id = ? AND org = ? AND name = ?",
		"sss", req_arg(r, "build"), req_who(r)->org, req_arg(r, "id"));

	if (n <= 0)
		return n < 0 ? -1 : unknown(r, err);
	s->entries = json_array();
	s->logs = json_array();
	return db_each(err, line_row, s,
		       "SELECT time_ms, level, step, text FROM e2b_lines WHERE build = ? AND n >= "
		       "? ORDER BY n"
		       " LIMIT ?",
		       "sii", req_arg(r, "build"), (int64_t)offset, (int64_t)LINES_PAGE) < 0
		       ? -1
		       : 0;
}

static void status_free(struct status *s)
{
	free(s->reason);
	json_decref(s->entries);
	json_decref(s->logs);
}

int e2b_build_status(struct req *r, struct den_err *err)
{
	__attribute__((cleanup(status_free))) struct status s = { 0 };
	uint64_t offset;
	json_t *j;

	if (req_query_u64(r, "logsOffset", INT32_MAX, 0, &offset, err) < 0 ||
		status_load(r, offset, &s, err) < 0)
		return -1;
	j = json_pack("{s:s, s:s, s:s, s:O, s:O}", "templateID", req_arg(r, "id"), "buildID",
		req_arg(r, "build"), "status", s.state, "logs", s.logs, "logEntries", s.entries);
	if (s.reason) {
		json_t *why =
			json_pack("{s:o, s:[]}", "message", json_text(s.reason), "logEntries");

		if (s.step[0])
			json_object_set_new(why, "step", json_string(s.step));
		json_object_set_new(j, "reason", why);
	}
	return req_reply_json(r, 200, j);
}

int e2b_build_logs(struct req *r, struct den_err *err)
{
	__attribute__((cleanup(status_free))) struct status s = { 0 };
	uint64_t offset;

	if (req_query_u64(r, "cursor", INT32_MAX, 0, &offset, err) < 0 ||
		status_load(r, offset, &s, err) < 0)
		return -1;
	return req_reply_json(r, 200, json_pack("{s:O}", "logs", s.entries));
}
