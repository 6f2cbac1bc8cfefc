/* Names of images: the table `templates`, and who needs an image. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "db.h"
#include "fd.h"
#include "image_parts.h"
#include "mem.h"
#include "strv.h"
#include "tar.h"

#define PREFIX_MIN 12 /* of an id, as people may give it */
#define LOWER "abcdefghijklmnopqrstuvwxyz"
#define DIGITS "0123456789"
#define NAME_SET LOWER DIGITS "._-"
#define TAG_SET "ABCDEFGHIJKLMNOPQRSTUVWXYZ" NAME_SET
#define TAG_MAX 128

/* ---- what may be one ---- */

static bool could_be_id(const char *s)
{
	size_t n = strlen(s);

	return n >= PREFIX_MIN && n <= 64 && strspn(s, DIGITS "abcdef") == n;
}

static bool part_is_sane(const char *p, size_t n)
{
	return n > 0 && strchr(LOWER DIGITS, p[0]) && strspn(p, NAME_SET) >= n;
}

/* "a", "a/b", "host.example:5000/a/b", each without the tag. */
static bool repository_is_sane(const char *p, size_t n)
{
	const char *end = p + n;
	bool first = true;

	for (;; first = false) {
		size_t len = strcspn(p, "/"), name;
		bool last = p + len >= end;

		len = last ? (size_t)(end - p) : len;
		name = first && !last ? MIN(strcspn(p, ":"), len) : len;
		if (!part_is_sane(p, name))
			return false;
		if (name < len) { /* a port */
			size_t digits = strspn(p + name + 1, DIGITS);

			if (digits == 0 || digits > 5 || name + 1 + digits != len)
				return false;
		}
		if (last)
			return true;
		p += len + 1;
	}
}

static bool tag_is_sane(const char *tag)
{
	size_t n = strlen(tag);

	return n > 0 && n <= TAG_MAX && strspn(tag, TAG_SET) == n && tag[0] != '.' && tag[0] != '-';
}

int image_name_check(const char *name, struct den_err *err)
{
	const char *slash = strrchr(name, '/'), *tag = strchr(slash ? slash : name, ':');
	size_t n = tag ? (size_t)(tag - name) : strlen(name);

	if (strlen(name) > IMAGE_NAME_MAX)
		return den_fail(err, DEN_INVALID, 0, "a template's name has at most %d bytes",
			IMAGE_NAME_MAX);
	if ((n == 4 && !strncmp(name, "host", n)) || (n == 5 && !strncmp(name, "empty", n)))
		return den_fail(err, DEN_INVALID, 0, "the name '%.*s' is den's own; choose another",
			(int)n, name);
	if (could_be_id(name))
		return den_fail(err, DEN_INVALID, 0,
			"the name '%s' could be an id; add a tag or choose another", name);
	if (strstr(name, "..") || !repository_is_sane(name, n) || (tag && !tag_is_sane(tag + 1)))
		return den_fail(err, DEN_INVALID, 0,
			"'%s' is no name for a template; it is like 'debian', 'debian:12' or "
			"'registry.example:5000/team/app:1.0', in lower case",
			tar_show(name).s);
	return 0;
}

/* ---- rows ---- */

/* The first column of all rows; arg, if there is one, is the only parameter. */
static int column_get(
	sqlite3 *db, const char *sql, const char *arg, char ***ret, struct den_err *err)
{
	auto_strv rows = NULL;
	sqlite3_stmt *st = NULL;
	int step = SQLITE_ERROR;

	if (sqlite3_prepare_v2(db, sql, -1, &st, NULL) == SQLITE_OK &&
		(!arg || sqlite3_bind_text(st, 1, arg, -1, SQLITE_STATIC) == SQLITE_OK))
		while ((step = sqlite3_step(st)) == SQLITE_ROW) {
			const char *text = (const char *)sqlite3_column_text(st, 0);

			strv_add(&rows, text ? text : "");
		}
	if (step != SQLITE_DONE)
		db_fail(db, "read templates", err);
	sqlite3_finalize(st);
	if (step != SQLITE_DONE)
		return -1;
	*ret = mem_take(&rows);
	return 0;
}

static int column_read(
	struct store *s, const char *sql, const char *arg, char ***ret, struct den_err *err)
{
	sqlite3 *db;
	int r;

	if (db_open(s, &db, err) < 0)
		return -1;
	r = column_get(db, sql, arg, ret, err);
	db_close(s, db);
	return r;
}

struct name_row {
	const char *name, *id;
};

static int bind_put(sqlite3_stmt *st, const void *arg)
{
	const struct name_row *row = arg;

	return sqlite3_bind_text(st, 1, row->name, -1, SQLITE_STATIC) |
		sqlite3_bind_text(st, 2, row->id, -1, SQLITE_STATIC) |
		sqlite3_bind_int64(st, 3, clock_wall_ms());
}

static int bind_name(sqlite3_stmt *st, const void *arg)
{
	return sqlite3_bind_text(st, 1, ((const struct name_row *)arg)->name, -1, SQLITE_STATIC);
}

#define SELECT_IMAGE "SELECT image FROM templates WHERE name = ?"
#define SELECT_NAMES "SELECT name FROM templates WHERE image = ?"

/* Both in a transaction: *ret_old is the image that lost its last name by it, if one did. */
static int name_move(sqlite3 *db, const struct name_row *row, char **ret_old, struct den_err *err)
{
	auto_strv old = NULL;
	auto_strv names = NULL;

	if (column_get(db, SELECT_IMAGE, row->name, &old, err) < 0 ||
		db_run(db, "INSERT OR REPLACE INTO templates VALUES (?,?,?)", bind_put, row, err) <
			0)
		return -1;
	if (!old || !strcmp(old[0], row->id))
		return 0;
	if (column_get(db, SELECT_NAMES, old[0], &names, err) < 0)
		return -1;
	if (!names)
		*ret_old = mem_strdup(old[0]);
	return 0;
}

/* Boxes would be made of the programs that have this name, and never of the image. */
static int not_baked(struct store *s, const char *name, struct den_err *err)
{
	char path[300];

	snprintf(path, sizeof(path), "baked/%s", name);
	return faccessat(s->fd, path, F_OK, AT_SYMLINK_NOFOLLOW) < 0
		       ? 0
		       : den_fail(err, DEN_CONFLICT, 0,
				 "'%s' is a template with programs; 'den template rm %s' removes it", name, name);
}

int image_name_put(struct store *s, const char *name, const char *id, bool beside, struct den_err *err)
{
	struct name_row row = { name, id };
	auto_free char *old = NULL;
	sqlite3 *db;
	int r;

	if ((!beside && not_baked(s, name, err) < 0) || db_open(s, &db, err) < 0)
		return -1;
	r = db_begin(db, err);
	if (r == 0)
		r = db_end(db, name_move(db, &row, &old, err), err);
	db_close(s, db);
	if (r < 0)
		return den_wrap(err, "name template '%s'", name);
	if (old && hex_is_digest(old))
		image_stamp(s, old, false);
	return 0;
}

int image_tag(struct store *s, const char *id, const char *name, bool beside, struct den_err *err)
{
	struct image img = { 0 };
	auto_fd lock = -1;

	if (image_name_check(name, err) < 0 || image_lock(s, false, &lock, err) < 0 ||
		image_get(s, id, &img, err) < 0)
		return -1;
	image_free(&img);
	return image_name_put(s, name, id, beside, err);
}

static int name_remove(
	sqlite3 *db, const char *name, bool force, char **ret_last, struct den_err *err)
{
	auto_strv image = NULL;
	auto_strv names = NULL;
	auto_strv boxes = NULL;
	struct name_row row = { .name = name };

	if (column_get(db, SELECT_IMAGE, name, &image, err) < 0)
		return -1;
	if (!image)
		return den_fail(err, DEN_NOT_FOUND, 0,
			"no template '%s'; 'den template ls' lists them", tar_show(name).s);
	if (column_get(db, SELECT_NAMES, image[0], &names, err) < 0 ||
		column_get(db, "SELECT id FROM boxes WHERE version = ?", image[0], &boxes, err) < 0)
		return -1;
	if (strv_len(names) == 1 && boxes && !force)
		return den_fail(err, DEN_CONFLICT, 0,
			"%zu box%s on template '%s' (%s%s); remove %s first, or take the name away "
			"with --force",
			strv_len(boxes), boxes[1] ? "es stand" : " stands", name, boxes[0],
			boxes[1] ? ", ..." : "", boxes[1] ? "them" : "it");
	if (db_run(db, "DELETE FROM templates WHERE name = ?", bind_name, &row, err) < 0)
		return -1;
	if (strv_len(names) == 1)
		*ret_last = mem_strdup(image[0]);
	return 0;
}

int image_untag(struct store *s, const char *name, bool force, struct den_err *err)
{
	auto_free char *last = NULL;
	auto_fd lock = -1;
	sqlite3 *db;
	int r;

	if (image_lock(s, true, &lock, err) < 0 || db_open(s, &db, err) < 0)
		return -1;
	r = db_begin(db, err);
	if (r == 0)
		r = db_end(db, name_remove(db, name, force, &last, err), err);
	db_close(s, db);
	if (r == 0 && last && hex_is_digest(last))
		image_stamp(s, last, false);
	return r;
}

int image_needed(struct store *s, char ***ret, struct den_err *err)
{
	return column_read(
		s, "SELECT image FROM templates UNION SELECT version FROM boxes", NULL, ret, err);
}

/* ---- looking ---- */

static int find_prefix(
	struct store *s, const char *ref, char ret_id[static 65], struct den_err *err)
{
	auto_strv ids = NULL;
	const char *found = NULL;
	unsigned count = 0;

	if (image_list(s, &ids, err) < 0)
		return -1;
	for (char **id = ids; id && *id; id++)
		if (!strncmp(*id, ref, strlen(ref))) {
			found = *id;
			count++;
		}
	if (count > 1)
		return den_fail(err, DEN_INVALID, 0, "'%s' fits %u templates; give more of the id",
			ref, count);
	if (!found)
		return den_fail(err, DEN_NOT_FOUND, 0,
			"no template '%s'; 'den template ls' lists them", ref);
	memcpy(ret_id, found, 65);
	return 0;
}

int image_find(struct store *s, const char *ref, char ret_id[static 65], struct den_err *err)
{
	auto_strv image = NULL;

	if (could_be_id(ref)) /* and so it is no name */
		return find_prefix(s, ref, ret_id, err);
	if (image_name_check(ref, NULL) == 0 && column_read(s, SELECT_IMAGE, ref, &image, err) < 0)
		return -1;
	if (!image)
		return den_fail(err, DEN_NOT_FOUND, 0,
			"no template '%s'; 'den template ls' lists them", tar_show(ref).s);
	if (!hex_is_digest(image[0]))
		return den_fail(err, DEN_INTERNAL, 0,
			"database: template '%s' has no id; remove it and make it again", ref);
	memcpy(ret_id, image[0], 65);
	return 0;
}

struct named {
	char *name; /* in the list of rows */
	struct image img;
};

/* All at one instant: under the lock no image goes while its name is known. */
static int named_read(struct store *s, char **rows, struct named *list, struct den_err *err)
{
	for (size_t i = 0; rows && rows[i]; i++) {
		struct den_err why;
		char *tab = strchr(rows[i], '\t');

		if (!tab)
			return den_fail(err, DEN_INTERNAL, 0, "database: a template without an id");
		*tab = '\0';
		list[i].name = tab + 1;
		if (image_get(s, rows[i], &list[i].img, &why) == 0)
			continue;
		list[i].img.damage = mem_strdup(why.msg);
		if (hex_is_digest(rows[i]))
			memcpy(list[i].img.id, rows[i], 65);
	}
	return 0;
}

int image_each(struct store *s, int (*fn)(const char *name, const struct image *img, void *user,
	struct den_err *err), void *user, struct den_err *err)
{
	auto_free struct named *list = NULL;
	auto_strv rows = NULL;
	int lock, r;

	if (image_lock(s, false, &lock, err) < 0)
		return -1;
	r = column_read(s, "SELECT image || char(9) || name FROM templates ORDER BY name", NULL,
		&rows, err);
	list = mem_zalloc((strv_len(rows) + 1) * sizeof(*list));
	if (r == 0)
		r = named_read(s, rows, list, err);
	fd_close(&lock);
	for (size_t i = 0; r == 0 && i < strv_len(rows); i++)
		r = fn(list[i].name, &list[i].img, user, err);
	for (size_t i = 0; i < strv_len(rows); i++)
		image_free(&list[i].img);
	return r;
}
