/*
 * Secrets: the vault has them, under the organisation's name for it; a row has what E2B tells besides, the
 * version and metadata. A secret that was made elsewhere has no row, and is told all the same. Its id is its
 * name.
 */
#include "e2b_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "db.h"
#include "json_fields.h"
#include "mem.h"
#include "strv.h"

#define LIMIT_MAX 100
#define METADATA_BYTES (16U << 10)

struct row {
	int64_t version;
	json_t *metadata;
};

static int row_take(struct db_row *row, void *user)
{
	struct row *x = user;

	x->version = db_int(row, 0);
	x->metadata = json_loads(db_text(row, 1), 0, NULL);
	return 1;
}

static int secret_json(
	const char *name, const struct den_secret *s, json_t **ret, struct den_err *err)
{
	struct row x = { .version = 1 };

	if (db_each(err, row_take, &x, "SELECT version, metadata FROM e2b_secrets WHERE stored = ?",
		    "s", s->name) < 0)
		return -1;
	*ret = json_pack("{s:s, s:s, s:I, s:o}", "secretID", name, "name", name, "currentVersion",
		(json_int_t)x.version, "metadata", x.metadata ? x.metadata : json_object());
	e2b_set_time(*ret, "createdAt", s->created_ms);
	e2b_set_time(*ret, "updatedAt", s->changed_ms);
	return 0;
}

int e2b_secrets(struct req *r, struct den_err *err)
{
	const char *after = req_query(r, "nextToken"), *last = NULL;
	json_t *out = json_array();
	struct den_secret *list;
	uint64_t limit;
	size_t n;
	int status = 0;

	if (req_query_u64(r, "limit", LIMIT_MAX, LIMIT_MAX, &limit, err) < 0 ||
		den_secret_list(req_den(r), &list, &n, err) < 0) {
		json_decref(out);
		return -1;
	}
	limit = limit ? limit : LIMIT_MAX;
	for (size_t i = 0; i < n && status == 0; i++) {
		const char *name = auth_name_seen(req_who(r), list[i].name, false);
		json_t *one;

		if (!name || (after && strcmp(name, after) <= 0))
			continue;
		if (json_array_size(out) == limit) {
			req_set(r, "x-next-token", last);
			break;
		}
		status = secret_json(name, &list[i], &one, err);
		if (status == 0)
			json_array_append_new(out, one);
		last = name;
	}
	den_secrets_free(list, n);
	if (status < 0) {
		json_decref(out);
		return -1;
	}
	return req_reply_json(r, 200, out);
}

/* The secret of this name; DEN_NOT_FOUND. */
static int secret_tell(struct req *r, const char *name, json_t **ret, struct den_err *err)
{
	struct den_secret *list;
	auto_free char *stored = NULL;
	int status = 1;
	size_t n;

	if (auth_name(req_who(r), name, &stored, err) < 0)
		return err->code == DEN_INVALID
			       ? den_fail(err, DEN_NOT_FOUND, 0, "Secret '%.64s' not found", name)
			       : -1;
	if (den_secret_list(req_den(r), &list, &n, err) < 0)
		return -1;
	for (size_t i = 0; i < n && status == 1; i++)
		if (!strcmp(list[i].name, stored))
			status = secret_json(name, &list[i], ret, err);
	den_secrets_free(list, n);
	return status == 1 ? den_fail(err, DEN_NOT_FOUND, 0, "Secret '%.64s' not found", name)
			   : status;
}

static int secret_reply(struct req *r, const char *name, int http, struct den_err *err)
{
	json_t *j;

	return secret_tell(r, name, &j, err) < 0 ? -1 : req_reply_json(r, http, j);
}

int e2b_secret_show(struct req *r, struct den_err *err)
{
	return secret_reply(r, req_arg(r, "id"), 200, err);
}

struct asked {
	const char *name, *value;
	char **metadata;
};

static const struct field fields[] = {
	{ "name", FIELD_TEXT, offsetof(struct asked, name), FIELD_NULL, .min = 1, .max = 64 },
	{ "value", FIELD_TEXT, offsetof(struct asked, value), FIELD_MUST, .min = 1,
		.max = 64 << 10 },
	{ "metadata", FIELD_MAP, offsetof(struct asked, metadata), FIELD_NULL, .max = 64 },
};

static int row_put(const char *stored, const json_t *body, bool fresh, struct den_err *err)
{
	const json_t *meta = json_object_get(body, "metadata");
	auto_free char *text = json_is_object(meta) ? json_dumps(meta, JSON_COMPACT) : NULL;

	if (text && strlen(text) > METADATA_BYTES)
		return den_fail(
			err, DEN_INVALID, 0, "metadata: more than %u bytes", METADATA_BYTES);
	if (fresh)
		return db_run(err, NULL, "INSERT OR REPLACE INTO e2b_secrets VALUES (?, 1, ?)",
			"ss", stored, text ? text : "{}");
	return db_run(err, NULL,
		"INSERT INTO e2b_secrets VALUES (?1, 2, coalesce(?2, '{}')) ON CONFLICT (stored) "
		"DO UPDATE"
		" SET version = version + 1, metadata = coalesce(?2, metadata)",
		"ss", stored, text);
}

int e2b_secret_new(struct req *r, struct den_err *err)
{
	auto_free char *stored = NULL;
	struct asked a = { 0 };
	auto_json *body = NULL;
	json_t *there;

	if (req_json(r, &body, err) < 0 ||
		fields_get(body, fields, ARRAY_SIZE(fields), false, &a, err) < 0)
		return -1;
	strv_free(a.metadata);
	if (!a.name)
		return den_fail(err, DEN_INVALID, 0, "name is missing");
	if (auth_name(req_who(r), a.name, &stored, err) < 0)
		return -1;
	if (secret_tell(r, a.name, &there, err) == 0) {
		json_decref(there);
		return e2b_error(r, 409, "Secret '%.64s' already exists", a.name);
	}
	if (err->code != DEN_NOT_FOUND ||
		den_secret_set(req_den(r), stored, a.value, strlen(a.value), err) < 0 ||
		row_put(stored, body, true, err) < 0)
		return -1;
	return secret_reply(r, a.name, 201, err);
}

int e2b_secret_change(struct req *r, struct den_err *err)
{
	const char *name = req_arg(r, "id");
	auto_free char *stored = NULL;
	struct asked a = { 0 };
	auto_json *body = NULL;
	json_t *there;

	if (req_json(r, &body, err) < 0 ||
		fields_get(body, fields, ARRAY_SIZE(fields), false, &a, err) < 0)
		return -1;
	strv_free(a.metadata);
	if (secret_tell(r, name, &there, err) < 0)
		return -1;
	json_decref(there);
	if (auth_name(req_who(r), name, &stored, err) < 0 ||
		den_secret_rotate(req_den(r), stored, a.value, strlen(a.value), err) < 0 ||
		row_put(stored, body, false, err) < 0)
		return -1;
	return secret_reply(r, name, 200, err);
}

int e2b_secret_delete(struct req *r, struct den_err *err)
{
	const char *name = req_arg(r, "id");
	auto_free char *stored = NULL;
	json_t *there;

	if (secret_tell(r, name, &there, err) < 0)
		return -1;
	json_decref(there);
	if (auth_name(req_who(r), name, &stored, err) < 0 ||
		den_secret_remove(req_den(r), stored, err) < 0 ||
		db_run(err, NULL, "DELETE FROM e2b_secrets WHERE stored = ?", "s", stored) < 0)
		return -1;
	return req_reply_empty(r, 204);
}
