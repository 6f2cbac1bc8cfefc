#include "history.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "db.h"
#include "mem.h"
#include "parse.h"

const char *const ckpt_kind_str[CKPT_KINDS] = { "base", "turn", "manual", "rollback", "merge",
	"fork", "pause" };

void ckpt_free(struct ckpt *c)
{
	free(c->message);
	free(c->origin);
	free(c->tags);
	*c = (struct ckpt){ 0 };
}

void ckpts_free(struct ckpt *c, size_t n)
{
	for (size_t i = 0; c && i < n; i++)
		ckpt_free(&c[i]);
	free(c);
}

/* ---- writing ---- */

struct add {
	const char *id;
	const struct ckpt *c;
};

static int bind_add(sqlite3_stmt *st, const void *arg)
{
	const struct add *a = arg;
	const struct ckpt *c = a->c;
	int r = sqlite3_bind_text(st, 1, a->id, -1, SQLITE_TRANSIENT);

	r |= sqlite3_bind_int64(st, 2, (sqlite3_int64)c->number);
	r |= sqlite3_bind_int64(st, 3, c->parent);
	r |= sqlite3_bind_int64(st, 4, c->created_ms);
	r |= sqlite3_bind_int64(st, 5, (sqlite3_int64)c->turn);
	r |= sqlite3_bind_int(st, 6, (int)c->kind);
	if (c->message) /* a blob: it may be any bytes */
		r |= sqlite3_bind_blob(
			st, 7, c->message, (int)strlen(c->message), SQLITE_TRANSIENT);
	if (c->origin)
		r |= sqlite3_bind_text(st, 8, c->origin, -1, SQLITE_TRANSIENT);
	r |= sqlite3_bind_int64(st, 9, (sqlite3_int64)c->size);
	r |= sqlite3_bind_int64(st, 10, (sqlite3_int64)c->images);
	return r;
}

int history_add(
	struct store *s, const struct box_row *row, const struct ckpt *c, struct den_err *err)
{
	struct add a = { row->info.spec.id, c };
	sqlite3 *db;
	int r;

	if (db_open(s, &db, err) < 0)
		return -1;
	r = db_begin(db, err);
	if (r == 0) {
		r = db_run(db, "INSERT INTO checkpoints VALUES (?,?,?,?,?,?,?,?,?,?)", bind_add,
			&a, err);
		if (r == 0)
			r = db_put_box(db, row, err);
		r = db_end(db, r, err);
	}
	db_close(s, db);
	return r;
}

struct one {
	const char *id, *tag;
	uint64_t number;
};

static int bind_tag(sqlite3_stmt *st, const void *arg)
{
	const struct one *o = arg;
	int r = sqlite3_bind_text(st, 1, o->id, -1, SQLITE_TRANSIENT);

	r |= sqlite3_bind_text(st, 2, o->tag, -1, SQLITE_TRANSIENT);
	if (sqlite3_bind_parameter_count(st) > 2)
		r |= sqlite3_bind_int64(st, 3, (sqlite3_int64)o->number);
	return r;
}

static int bind_number(sqlite3_stmt *st, const void *arg)
{
	const struct one *o = arg;
	int r = sqlite3_bind_text(st, 1, o->id, -1, SQLITE_TRANSIENT);

	return r | sqlite3_bind_int64(st, 2, (sqlite3_int64)o->number);
}

static int write_one(struct store *s, const char *sql, db_bind bind, const struct one *o,
	int *ret_changed, struct den_err *err)
{
	sqlite3 *db;
	int r;

	if (db_open(s, &db, err) < 0)
		return -1;
	r = db_run(db, sql, bind, o, err);
	if (ret_changed)
		*ret_changed = sqlite3_changes(db);
	db_close(s, db);
	return r;
}

int history_tag(struct store *s, const struct box_id *id, const char *tag, uint64_t number,
	struct den_err *err)
{
	struct one o = { id->s, tag, number };

	return write_one(s, "INSERT OR REPLACE INTO tags VALUES (?,?,?)", bind_tag, &o, NULL, err);
}

int history_untag(struct store *s, const struct box_id *id, const char *tag, struct den_err *err)
{
	struct one o = { id->s, tag, 0 };
	int changed = 0;

	if (write_one(s, "DELETE FROM tags WHERE box = ? AND tag = ?", bind_tag, &o, &changed,
		    err) < 0)
		return -1;
	if (!changed)
		return den_fail(err, DEN_NOT_FOUND, 0, "no tag '%s'; 'den log' shows them", tag);
	return 0;
}

int history_remove(struct store *s, const struct box_id *id, const uint64_t *numbers, size_t n,
	struct den_err *err)
{
	static const char adopt[] =
		"UPDATE checkpoints SET parent = (SELECT parent FROM checkpoints AS gone"
		" WHERE gone.box = ?1 AND gone.number = ?2) WHERE box = ?1 AND parent = ?2";
	static const char *const sql[] = { adopt, "DELETE FROM tags WHERE box = ? AND number = ?",
		"DELETE FROM checkpoints WHERE box = ? AND number = ?" };
	sqlite3 *db;
	int r;

	if (db_open(s, &db, err) < 0)
		return -1;
	r = db_begin(db, err);
	if (r == 0) {
		for (size_t i = 0; r == 0 && i < n; i++) {
			struct one o = { id->s, NULL, numbers[i] };

			for (size_t k = 0; r == 0 && k < ARRAY_SIZE(sql); k++)
				r = db_run(db, sql[k], bind_number, &o, err);
		}
		r = db_end(db, r, err);
	}
	db_close(s, db);
	return r;
}

int history_forget_images(struct store *s, const struct box_id *id, uint64_t number, struct den_err *err)
{
	struct one o = { id->s, NULL, number };

	return write_one(s, "UPDATE checkpoints SET images = 0 WHERE box = ? AND number = ?", bind_number, &o, NULL, err);
}

/* ---- reading ---- */

static char *column_str(sqlite3_stmt *st, int i)
{
	const void *p = sqlite3_column_blob(st, i);
	int n = sqlite3_column_bytes(st, i);
	char *s;

	if (!p)
		return NULL;
	s = mem_alloc((size_t)n + 1);
	memcpy(s, p, (size_t)n);
	s[n] = '\0';
	return s;
}

static void read_ckpt(sqlite3_stmt *st, struct ckpt *c)
{
	int kind = sqlite3_column_int(st, 4);

	*c = (struct ckpt){ .number = (uint64_t)sqlite3_column_int64(st, 0),
		.parent = sqlite3_column_int64(st, 1),
		.created_ms = sqlite3_column_int64(st, 2),
		.turn = (uint64_t)sqlite3_column_int64(st, 3),
		.kind = kind >= 0 && kind < CKPT_KINDS ? (enum ckpt_kind)kind : CKPT_MANUAL,
		.message = column_str(st, 5),
		.origin = column_str(st, 6),
		.size = (uint64_t)sqlite3_column_int64(st, 7),
		.tags = column_str(st, 8),
		.used = sqlite3_column_int(st, 9),
		.images = (uint64_t)sqlite3_column_int64(st, 10) };
	if (!c->tags)
		c->tags = mem_strdup("");
}

static int bind_text(sqlite3_stmt *st, const void *arg)
{
	return sqlite3_bind_text(st, 1, arg, -1, SQLITE_TRANSIENT);
}

int history_rows(sqlite3 *db, const char *id, struct ckpt **ret, size_t *n, struct den_err *err)
{
	static const char sql[] =
		"SELECT number, parent, created_ms, turn, kind, message, origin, size,"
		" (SELECT group_concat(tag, ' ') FROM tags WHERE tags.box = checkpoints.box"
		"  AND tags.number = checkpoints.number),"
		" EXISTS (SELECT 1 FROM checkpoints AS other WHERE other.origin = checkpoints.box "
		"|| '@' ||"
		"  checkpoints.number), images FROM checkpoints WHERE box = ? ORDER BY number";
	sqlite3_stmt *st = NULL;
	struct ckpt *all = NULL;
	size_t len = 0;
	int r = 0, step;

	if (sqlite3_prepare_v2(db, sql, -1, &st, NULL) != SQLITE_OK ||
		bind_text(st, id) != SQLITE_OK)
		r = db_fail(db, "read", err);
	while (r == 0 && (step = sqlite3_step(st)) != SQLITE_DONE) {
		if (step != SQLITE_ROW) {
			r = db_fail(db, "read", err);
			break;
		}
		all = mem_realloc(all, (len + 1) * sizeof(*all));
		read_ckpt(st, &all[len++]);
	}
	sqlite3_finalize(st);
	if (r < 0) {
		ckpts_free(all, len);
		return -1;
	}
	*ret = all;
	*n = len;
	return 0;
}

int history_list(
	struct store *s, const struct box_id *id, struct ckpt **ret, size_t *n, struct den_err *err)
{
	sqlite3 *db;
	int r;

	if (db_open(s, &db, err) < 0)
		return -1;
	r = history_rows(db, id->s, ret, n, err);
	db_close(s, db);
	return r;
}

const struct ckpt *history_find(const struct ckpt *all, size_t n, uint64_t number)
{
	for (size_t i = 0; i < n; i++)
		if (all[i].number == number)
			return &all[i];
	return NULL;
}

static bool has_tag(const char *tags, const char *tag)
{
	size_t n = strlen(tag);

	for (const char *p = tags; *p;) {
		size_t len = strcspn(p, " ");

		if (len == n && !strncmp(p, tag, n))
			return true;
		p += len + (p[len] == ' ');
	}
	return false;
}

/* N steps up from head. */
static int resolve_back(const struct ckpt *all, size_t n, const struct box_row *row, uint64_t steps,
	uint64_t *ret, struct den_err *err)
{
	uint64_t at = row->head;

	for (uint64_t i = 0; i < steps; i++) {
		const struct ckpt *c = history_find(all, n, at);

		if (!c || c->parent < 0)
			return den_fail(err, DEN_NOT_FOUND, 0,
				"there are only %llu checkpoints before head; 'den log' shows them",
				(unsigned long long)i);
		at = (uint64_t)c->parent;
	}
	*ret = at;
	return 0;
}

int history_resolve(const struct ckpt *all, size_t n, const struct box_row *row, const char *ref,
	uint64_t *ret, struct den_err *err)
{
	struct den_err bad;
	uint64_t number;

	if (!ref || !*ref || !strcmp(ref, "head")) {
		*ret = row->head;
		return 0;
	}
	if (!strcmp(ref, "base"))
		ref = "0";
	if (ref[0] == '~') {
		if (parse_u64(ref[1] ? ref + 1 : "1", 0, 1000000, &number, &bad) < 0)
			return den_fail(err, DEN_INVALID, 0,
				"'%.60s': write ~N, N checkpoints before head", ref);
		return resolve_back(all, n, row, number, ret, err);
	}
	for (size_t i = 0; i < n; i++) {
		if (has_tag(all[i].tags, ref)) {
			*ret = all[i].number;
			return 0;
		}
	}
	if (parse_u64(ref, 0, INT64_MAX, &number, &bad) == 0 &&
		(!number || history_find(all, n, number))) {
		*ret = number;
		return 0;
	}
	return den_fail(err, DEN_NOT_FOUND, 0,
		"this box has no checkpoint '%.60s'; 'den log' shows them", ref);
}

/* ---- thinning ---- */

#define HOUR_MS 3600000LL
#define DAY_MS (24 * HOUR_MS)

/* Of those with the same number only the newest is kept; -1: keep it anyway. */
static int64_t thin_bucket(int64_t created_ms, int64_t now_ms)
{
	int64_t age = now_ms - created_ms;

	if (age < HOUR_MS)
		return -1;
	if (age < DAY_MS)
		return created_ms / HOUR_MS;
	return (int64_t)1 << 40 | created_ms / DAY_MS;
}

void history_thin(const struct ckpt *all, size_t n, const struct box_row *row, int64_t now_ms,
	uint64_t keep_ms, bool all_of_them, uint64_t **ret, size_t *ret_n)
{
	uint64_t *out = mem_alloc((n + 1) * sizeof(*out));
	size_t len = 0;

	for (size_t i = 0; i < n; i++) {
		const struct ckpt *c = &all[i];
		int64_t bucket = thin_bucket(c->created_ms, now_ms);
		bool newer = false;

		if (c->number == row->head || (int64_t)c->number == row->pending || c->tags[0] ||
			c->used || c->kind == CKPT_FORK || c->kind == CKPT_BASE)
			continue;
		if (keep_ms && now_ms - c->created_ms < (int64_t)MIN(keep_ms, (uint64_t)INT64_MAX))
			continue;
		for (size_t k = i + 1; k < n && !newer; k++)
			newer = thin_bucket(all[k].created_ms, now_ms) == bucket;
		if (all_of_them || keep_ms || (bucket >= 0 && newer))
			out[len++] = c->number;
	}
	*ret = out;
	*ret_n = len;
}
