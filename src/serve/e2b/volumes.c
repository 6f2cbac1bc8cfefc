/*
 * Volumes: directories that outlive boxes and are shared by them (wire/volume.h). A row says whose one is and what it is
 * called; a box that is made with it has it as a mount. What is in it is read and written from outside by the file
 * operations of a box that lives for one request: no file that a box made is ever opened by the server.
 */
#include "e2b_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "clock.h"
#include "db.h"
#include "json_fields.h"
#include "mem.h"
#include "volumes.h"

#define VOLUMES_MAX 1000 /* of one organisation */

/* ---- rows ---- */

struct found {
	char id[VOLUME_ID], name[129], org[33];
};

static int take(struct db_row *row, void *user)
{
	struct found *f = user;

	snprintf(f->id, sizeof(f->id), "%s", db_text(row, 0));
	snprintf(f->name, sizeof(f->name), "%s", db_text(row, 1));
	snprintf(f->org, sizeof(f->org), "%s", db_text(row, 2));
	return 1;
}

/* By id or name, of this organisation. */
static int find(const struct who *w, const char *ref, struct found *ret, struct den_err *err)
{
	int64_t n = db_each(err, take, ret,
		"SELECT id, name, org FROM e2b_volumes WHERE org = ?1 AND (id = ?2 OR name = ?2)"
		" ORDER BY id = ?2 DESC",
		"ss", w->org, ref);

	return n < 0 ? -1
	       : n   ? 0
		     : den_fail(err, DEN_NOT_FOUND, 0, "volume '%.100s' not found", ref);
}

int volumes_id(
	const struct who *w, const char *ref, char ret[static VOLUME_ID], struct den_err *err)
{
	struct found f;

	if (find(w, ref, &f, err) < 0)
		return -1;
	memcpy(ret, f.id, VOLUME_ID);
	return 0;
}

int volumes_org(const char *id, char ret[static 33], struct den_err *err)
{
	struct found f;
	int64_t n = db_each(
		err, take, &f, "SELECT id, name, org FROM e2b_volumes WHERE id = ?", "s", id);

	if (n <= 0)
		return n < 0 ? -1
			     : den_fail(err, DEN_NOT_FOUND, 0, "volume '%.100s' not found", id);
	memcpy(ret, f.org, 33);
	return 0;
}

/* ---- in a box's spec ---- */

int volumes_mounts(
	const struct who *w, const json_t *asked, struct volume_mounts *ret, struct den_err *err)
{
	json_t *one;
	size_t i;

	if (json_array_size(asked) > VOLUME_MOUNTS)
		return den_fail(err, DEN_INVALID, 0, "volumeMounts: at most %d", VOLUME_MOUNTS);
	json_array_foreach (asked, i, one) {
		const char *name = json_string_value(json_object_get(one, "name")),
			   *path = json_string_value(json_object_get(one, "path"));
		char id[VOLUME_ID];

		if (!name || !path || path[0] != '/' || strlen(path) > 1000)
			return den_fail(err, DEN_INVALID, 0,
				"volumeMounts: each has the name of a volume and an absolute path");
		if (volumes_id(w, name, id, err) < 0)
			return err->code == DEN_NOT_FOUND
				       ? den_fail(err, DEN_INVALID, 0,
						 "volumeMounts: there is no volume '%.100s'", name)
				       : -1;
		snprintf(ret->hosts[i], sizeof(ret->hosts[i]), "volume:%s", id);
		ret->mounts[i] = (struct den_mount){ .host = ret->hosts[i], .box = path };
	}
	ret->n = json_array_size(asked);
	return 0;
}

/* ---- the calls ---- */

static json_t *volume_json(const struct found *f)
{
	char token[41];

	auth_box_token(f->id, "volume", token);
	return json_pack("{s:s, s:s, s:s}", "volumeID", f->id, "name", f->name, "token", token);
}

static void id_make(char out[static VOLUME_ID])
{
	uint8_t b[(VOLUME_ID - 2) / 2];

	if (getrandom(b, sizeof(b), 0) != sizeof(b))
		abort();
	out[0] = 'v';
	for (size_t i = 0; i < sizeof(b); i++)
		snprintf(out + 1 + 2 * i, 3, "%02x", b[i]);
}

struct asked {
	const char *name;
};
static const struct field fields[] = {
	{ "name", FIELD_TEXT, offsetof(struct asked, name), FIELD_MUST, .min = 1, .max = 128 },
};

int e2b_volume_new(struct req *r, struct den_err *err)
{
	struct asked a = { 0 };
	struct found f = { 0 };
	auto_json *body = NULL;
	int64_t changed = 0;

	if (req_json(r, &body, err) < 0 ||
		fields_get(body, fields, ARRAY_SIZE(fields), false, &a, err) < 0)
		return -1;
	if (strspn(a.name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") !=
		strlen(a.name))
		return den_fail(err, DEN_INVALID, 0,
			"a volume's name has letters, digits, '.', '_' and '-'");
	if (find(req_who(r), a.name, &f, err) == 0)
		return e2b_error(r, 409, "volume '%.100s' already exists", a.name);
	if (err->code != DEN_NOT_FOUND)
		return -1;
	id_make(f.id);
	snprintf(f.name, sizeof(f.name), "%s", a.name);
	/* its directory is made with the first box that has it */
	if (db_run(err, &changed,
		    "INSERT INTO e2b_volumes SELECT ?1, ?2, ?3, ?4 WHERE (SELECT count(*) FROM "
		    "e2b_volumes"
		    " WHERE org = ?2) < ?5",
		    "sssii", f.id, req_who(r)->org, a.name, clock_wall_ms(),
		    (int64_t)VOLUMES_MAX) < 0)
		return -1;
	if (!changed)
		return e2b_error(r, 409, "an organisation has at most %d volumes", VOLUMES_MAX);
	return req_reply_json(r, 201, volume_json(&f));
}

static int list_row(struct db_row *row, void *user)
{
	json_array_append_new(user,
		json_pack("{s:s, s:s}", "volumeID", db_text(row, 0), "name", db_text(row, 1)));
	return 0;
}

int e2b_volume_list(struct req *r, struct den_err *err)
{
	json_t *out = json_array();

	if (db_each(err, list_row, out,
		    "SELECT id, name FROM e2b_volumes WHERE org = ? ORDER BY created_ms, id", "s",
		    req_who(r)->org) < 0) {
		json_decref(out);
		return -1;
	}
	return req_reply_json(r, 200, out);
}

int e2b_volume_show(struct req *r, struct den_err *err)
{
	struct found f;

	return find(req_who(r), req_arg(r, "id"), &f, err) < 0
		       ? -1
		       : req_reply_json(r, 200, volume_json(&f));
}

/* What is in it goes first; a crash between the two leaves an empty volume, never a lost directory full of files. */
int e2b_volume_delete(struct req *r, struct den_err *err)
{
	struct found f;

	if (find(req_who(r), req_arg(r, "id"), &f, err) < 0 || volume_empty(r, f.id, err) < 0 ||
		db_run(err, NULL, "DELETE FROM e2b_volumes WHERE id = ?", "s", f.id) < 0)
		return -1;
	return req_reply_empty(r, 204);
}
