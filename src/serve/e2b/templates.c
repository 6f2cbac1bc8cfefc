/*
 * Templates: names, tags, aliases. A tag is a name of den's with ":TAG" behind; "default" is the plain name. An
 * image's id is told as the build's when no build of ours made it.
 */
#include "e2b_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "db.h"
#include "events.h"
#include "json_fields.h"
#include "mem.h"
#include "strv.h"

/* ---- what is there ---- */

/* The name and tag of a stored name, if this organisation may see it. Both point into it or a literal. */
static const char *seen(
	const struct who *w, const struct den_template *t, size_t *ret_n, const char **ret_tag)
{
	const char *name = e2b_template_seen(w, t), *slash, *colon;

	if (!name)
		return NULL;
	slash = strrchr(name, '/');
	colon = strchr(slash ? slash : name, ':');
	*ret_n = colon ? (size_t)(colon - name) : strlen(name);
	*ret_tag = colon ? colon + 1 : "default";
	return name;
}

static int take_id(struct db_row *row, void *user)
{
	snprintf(user, 64, "%s", db_text(row, 0));
	return 1;
}

/* The build that made an image; else one is made up of its id. */
static int build_of(
	const struct who *w, const char *image, char out[static 64], struct den_err *err)
{
	int64_t n = db_each(err, take_id, out,
		"SELECT id FROM e2b_builds WHERE org = ? AND image = ? ORDER BY created_ms DESC",
		"ss", w->org, image);

	if (n == 0)
		snprintf(out, 64, "%.8s-%.4s-4%.3s-8%.3s-%.12s", image, image + 8, image + 13,
			image + 17, image + 20);
	return n < 0 ? -1 : 0;
}

/* The image that a build made; of one with programs it is beside them. NULL: none did */
static const char *image_of(const struct den_template *t)
{
	return strlen(t->id) == 64 ? t->id : t->files;
}

static int template_json(const struct who *w, const char *name, size_t n,
	const struct den_template *t, json_t **ret, struct den_err *err)
{
	auto_free char *id = mem_strndup(name, n);
	char build[64];

	if (!image_of(t))
		snprintf(build, sizeof(build), "00000000-0000-4000-8000-000000000000");
	else if (build_of(w, image_of(t), build, err) < 0)
		return -1;
	*ret = json_pack(
		"{s:s, s:s, s:I, s:I, s:I, s:b, s:[s], s:[s], s:n, s:n, s:i, s:i, s:s, s:s}",
		"templateID", id, "buildID", build, "cpuCount", (json_int_t)e2b_cpus(0), "memoryMB",
		(json_int_t)e2b_memory_mb(0), "diskSizeMB", (json_int_t)e2b_disk_mb(0), "public",
		auth_name_seen(w, t->name, false) == NULL, "aliases", id, "names", id, "createdBy",
		"lastSpawnedAt", "spawnCount", 0, "buildCount", 1, "envdVersion", E2B_ENVD_VERSION,
		"buildStatus", "ready");
	e2b_set_time(*ret, "createdAt", t->created_ms);
	e2b_set_time(*ret, "updatedAt", t->created_ms);
	return 0;
}

int e2b_template_list(struct req *r, struct den_err *err)
{
	auto_json *out = json_array();
	struct den_template *t;
	int status = 0;
	size_t n;

	if (den_templates(req_den(r), &t, &n, err) < 0)
		return -1;
	for (size_t i = 0; i < n && status == 0; i++) {
		const char *tag, *name;
		json_t *one;
		size_t len;

		name = seen(req_who(r), &t[i], &len, &tag);
		if (!name || strcmp(tag, "default") || !strcmp(name, "host"))
			continue;
		status = template_json(req_who(r), name, len, &t[i], &one, err);
		if (status == 0)
			json_array_append_new(out, one);
	}
	den_templates_free(t, n);
	return status < 0 ? -1 : req_reply_json(r, 200, mem_take(&out));
}

struct builds {
	json_t *out;
};

static int build_row(struct db_row *row, void *user)
{
	struct builds *b = user;
	const char *state = db_text(row, 1);
	bool wait = !strcmp(state, "requested") || !strcmp(state, "queued");
	json_t *o = json_pack("{s:s, s:s, s:I, s:I}", "buildID", db_text(row, 0), "status",
		wait ? "waiting" : state, "cpuCount", (json_int_t)db_int(row, 3), "memoryMB",
		(json_int_t)db_int(row, 4));

	e2b_set_time(o, "createdAt", db_int(row, 2));
	e2b_set_time(o, "updatedAt", db_int(row, 2));
	if (db_int(row, 5))
		e2b_set_time(o, "finishedAt", db_int(row, 5));
	json_array_append_new(b->out, o);
	return 0;
}

int e2b_template_show(struct req *r, struct den_err *err)
{
	auto_free char *name = NULL, *tag = NULL;
	auto_template found = { 0 };
	struct den_template *t;
	struct builds b;
	json_t *j;
	int status;

	if (e2b_template_split(req_arg(r, "id"), &name, &tag, err) < 0 ||
		e2b_template_find(r, req_arg(r, "id"), &found, err) < 0 ||
		den_template_get(req_den(r), found.stored, &t, err) < 0)
		return -1;
	status = template_json(req_who(r), name, strlen(name), t, &j, err);
	den_templates_free(t, 1);
	if (status < 0)
		return -1;
	b.out = json_array();
	json_object_set_new(j, "builds", b.out);
	if (db_each(err, build_row, &b,
		    "SELECT id, state, created_ms, cpu, memory, ended_ms FROM e2b_builds"
		    " WHERE org = ? AND name = ? ORDER BY created_ms DESC LIMIT 100",
		    "ss", req_who(r)->org, name) < 0) {
		json_decref(j);
		return -1;
	}
	return req_reply_json(r, 200, j);
}

int e2b_template_alias(struct req *r, struct den_err *err)
{
	auto_free char *name = NULL, *tag = NULL;
	auto_template t = { 0 };

	if (e2b_template_split(req_arg(r, "alias"), &name, &tag, err) < 0 ||
		e2b_template_find(r, req_arg(r, "alias"), &t, err) < 0)
		return -1;
	return req_reply_json(r, 200,
		json_pack("{s:s, s:b}", "templateID", name, "public",
			auth_name_seen(req_who(r), t.stored, false) == NULL));
}

/* ---- tags ---- */

int e2b_template_tags(struct req *r, struct den_err *err)
{
	auto_free char *name = NULL, *own_tag = NULL;
	auto_json *out = json_array();
	struct den_template *t;
	int status = 0;
	size_t n;

	if (e2b_template_split(req_arg(r, "id"), &name, &own_tag, err) < 0 ||
		den_templates(req_den(r), &t, &n, err) < 0)
		return -1;
	for (size_t i = 0; i < n && status == 0; i++) {
		char build[64] = "";
		const char *tag, *of;
		size_t len;
		json_t *o;

		of = seen(req_who(r), &t[i], &len, &tag);
		if (!of || len != strlen(name) || strncmp(of, name, len) || !image_of(&t[i]))
			continue;
		status = build_of(req_who(r), image_of(&t[i]), build, err);
		o = json_pack("{s:s, s:s}", "tag", tag, "buildID", build);
		e2b_set_time(o, "createdAt", t[i].created_ms);
		json_array_append_new(out, o);
	}
	den_templates_free(t, n);
	if (status < 0)
		return -1;
	if (!json_array_size(out))
		return den_fail(err, DEN_NOT_FOUND, 0, "template '%.100s' not found", name);
	return req_reply_json(r, 200, mem_take(&out));
}

struct tags {
	const char *name;
	char **tags;
};

static void tags_free(struct tags *t)
{
	strv_free(t->tags);
}

static int tags_read(
	struct req *r, const char *member, struct tags *t, json_t **body, struct den_err *err)
{
	const struct field fields[] = {
		{ member, FIELD_TEXT, offsetof(struct tags, name), FIELD_MUST, .min = 1,
			.max = 255 },
		{ "tags", FIELD_TEXTS, offsetof(struct tags, tags), FIELD_MUST, .min = 1,
			.max = 64 },
	};

	if (req_json(r, body, err) < 0)
		return -1;
	return fields_get(*body, fields, ARRAY_SIZE(fields), false, t, err);
}

int e2b_tags_set(struct req *r, struct den_err *err)
{
	__attribute__((cleanup(tags_free))) struct tags x = { 0 };
	auto_json *body = NULL, *told = json_array();
	auto_template from = { 0 };
	struct den_template *t;
	char build[64];
	int status;

	if (tags_read(r, "target", &x, &body, err) < 0 ||
		e2b_template_find(r, x.name, &from, err) < 0)
		return -1;
	if (!auth_name_seen(req_who(r), from.stored, false))
		return den_fail(
			err, DEN_DENIED, 0, "template '%.100s' is not yours to tag", x.name);
	if (den_template_get(req_den(r), from.stored, &t, err) < 0)
		return -1;
	status = build_of(req_who(r), image_of(t) ? image_of(t) : t->id, build, err);
	den_templates_free(t, 1);
	for (char **tag = x.tags; *tag && status == 0; tag++) {
		auto_free char *stored = NULL;

		status = e2b_template_stored(req_who(r), x.name, *tag, &stored, err);
		if (status == 0)
			status = e2b_template_writable(req_who(r), stored, err);
		/* a tag moves: what had it with programs is another's then */
		if (status == 0 && strcmp(stored, from.stored) && den_template_unbake(req_den(r), stored, err) < 0 &&
			err->code != DEN_NOT_FOUND)
			status = -1;
		if (status == 0 && strcmp(stored, from.stored))
			status = den_template_tag(req_den(r), from.stored, stored, err);
		json_array_append_new(told, json_string(*tag));
	}
	e2b_template_changed();
	return status < 0 ? -1
			  : req_reply_json(r, 201,
				    json_pack("{s:s, s:O}", "buildID", build, "tags", told));
}

int e2b_tags_remove(struct req *r, struct den_err *err)
{
	__attribute__((cleanup(tags_free))) struct tags x = { 0 };
	auto_json *body = NULL;
	int status = 0;

	if (tags_read(r, "name", &x, &body, err) < 0)
		return -1;
	for (char **tag = x.tags; *tag && status == 0; tag++) {
		auto_free char *stored = NULL;

		status = e2b_template_stored(req_who(r), x.name, *tag, &stored, err);
		if (status == 0)
			status = e2b_template_writable(req_who(r), stored, err);
		if (status == 0)
			status = den_template_remove(req_den(r), stored, true, err);
	}
	e2b_template_changed();
	return status < 0 ? -1 : req_reply_empty(r, 204);
}

/* ---- taking it away ---- */

/* Builds of a name that is gone, and what they said; one that goes on stays. */
static int builds_forget(const struct who *w, const char *name, struct den_err *err)
{
	if (db_run(err, NULL,
		    "DELETE FROM e2b_lines WHERE build IN (SELECT id FROM e2b_builds WHERE org = ? "
		    "AND"
		    " name = ? AND state IN ('ready', 'error'))",
		    "ss", w->org, name) < 0)
		return -1;
	return db_run(err, NULL,
		"DELETE FROM e2b_builds WHERE org = ? AND name = ? AND state IN ('ready', 'error')",
		"ss", w->org, name);
}

/* With a tag that alone; without, all of the name. */
int e2b_template_delete(struct req *r, struct den_err *err)
{
	const char *id = req_arg(r, "id"), *slash = strrchr(id, '/');
	bool one = strchr(slash ? slash : id, ':');
	auto_free char *name = NULL, *own_tag = NULL;
	struct den_template *t;
	unsigned removed = 0;
	int status = 0;
	size_t n;

	if (e2b_template_split(id, &name, &own_tag, err) < 0 ||
		den_templates(req_den(r), &t, &n, err) < 0)
		return -1;
	for (size_t i = 0; i < n && status == 0; i++) {
		const char *tag, *of;
		size_t len;

		of = seen(req_who(r), &t[i], &len, &tag);
		if (!of || len != strlen(name) || strncmp(of, name, len) ||
			(one && strcmp(tag, own_tag)) ||
			!auth_name_seen(req_who(r), t[i].name, false) ||
			(strlen(t[i].id) != 64 && !e2b_template_baked(&t[i]))) /* "host" */
			continue;
		status = e2b_template_writable(req_who(r), t[i].name, err);
		if (status == 0)
			status = den_template_remove(req_den(r), t[i].name, true, err);
		if (status == 0)
			status = snapshots_forget(t[i].name, err);
		removed += status == 0;
	}
	den_templates_free(t, n);
	e2b_template_changed();
	if (status == 0 && removed && !one)
		status = builds_forget(req_who(r), name, err);
	if (status < 0)
		return -1;
	if (!removed)
		return den_fail(err, DEN_NOT_FOUND, 0, "template '%.100s' not found", id);
	events_post("template.removed", req_who(r)->org, NULL, json_pack("{s:s}", "name", name));
	return req_reply_empty(r, 204);
}
