/*
 * Common ancestors: the newest point that two boxes both came through and whose content is still there.
 *
 * A box came through its own checkpoints, what it was forked from, and what was merged into it. When a box
 * is deleted, of its checkpoints those stay in the table `past` that others came through, without content,
 * as long as anybody did: so that two who share what was before it can still be merged. What they share is
 * then an older point, or a fork of one, whose content is the same.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "db.h"
#include "history.h"
#include "mem.h"
#include "parse.h"
#include "strv.h"

#define FORKS_DEEP 64

/* ---- points ---- */

/* A set of "ID@N", in the order they were reached. */
struct points {
	struct point {
		char *name;
		int64_t when;
		bool done;    /* what is above it was followed */
		/* what it came from: its parent, what it was forked from or merged with */
		size_t up[2];
		unsigned n_up;
		bool common, passed; /* ancestor_in() */
	} *v;
	size_t n;
};

static struct point *points_find(const struct points *p, const char *name)
{
	for (size_t i = 0; i < p->n; i++)
		if (!strcmp(p->v[i].name, name))
			return &p->v[i];
	return NULL;
}

static size_t points_add(struct points *p, const char *name, int64_t when)
{
	struct point *found = points_find(p, name);

	if (found)
		return (size_t)(found - p->v);
	p->v = mem_realloc(p->v, (p->n + 1) * sizeof(*p->v));
	p->v[p->n] = (struct point){ .name = mem_strdup(name), .when = when };
	return p->n++;
}

static void point_up(struct point *p, size_t above)
{
	if (p->n_up < ARRAY_SIZE(p->up))
		p->up[p->n_up++] = above;
}

static void points_free(struct points *p)
{
	for (size_t i = 0; i < p->n; i++)
		free(p->v[i].name);
	free(p->v);
}

static int point_parse(const char *point, struct box_id *id, uint64_t *number)
{
	const char *at = strchr(point, '@');
	struct den_err err;
	char name[64];

	if (!at || (size_t)(at - point) >= sizeof(name))
		return -1;
	memcpy(name, point, (size_t)(at - point));
	name[at - point] = '\0';
	if (box_id_parse(name, id, &err) < 0)
		return -1;
	return parse_u64(at + 1, 0, INT64_MAX, number, &err);
}

static void point_name(char out[static 96], const char *id, uint64_t number)
{
	snprintf(out, 96, "%s@%llu", id, (unsigned long long)number);
}

/* Follows one box's line from a number up to its beginning, which has no row if the box was not
 * forked. */
static void points_line(
	struct points *p, const char *id, uint64_t number, const struct ckpt *all, size_t n)
{
	size_t below = SIZE_MAX;

	for (;;) {
		const struct ckpt *c = history_find(all, n, number);
		char name[96];
		size_t at;

		point_name(name, id, number);
		at = points_add(p, name, 1);
		if (below != SIZE_MAX)
			point_up(&p->v[below], at);
		if (p->v[at].done)
			return;
		p->v[at].done = true;
		if (!c)
			return;
		p->v[at].when = c->created_ms;
		if (c->origin) {
			size_t origin = points_add(p, c->origin, c->created_ms);

			point_up(&p->v[at], origin);
		}
		if (c->parent < 0)
			return;
		below = at;
		number = (uint64_t)c->parent;
	}
}

/* ---- boxes that are gone ---- */

/* What is known of a box that is gone, after what is there: only one of the two ever is. */
static int past_rows(sqlite3 *db, const char *id, struct ckpt **all, size_t *n, struct den_err *err)
{
	sqlite3_stmt *st = NULL;
	int r = 0, step;

	if (sqlite3_prepare_v2(db, "SELECT number, parent, created_ms, kind, origin FROM past WHERE box = ?", -1, &st,
		    NULL) != SQLITE_OK || sqlite3_bind_text(st, 1, id, -1, SQLITE_TRANSIENT) != SQLITE_OK)
		r = db_fail(db, "read", err);
	while (r == 0 && (step = sqlite3_step(st)) != SQLITE_DONE) {
		const char *origin = (const char *)sqlite3_column_text(st, 4);

		if (step != SQLITE_ROW) {
			r = db_fail(db, "read", err);
			break;
		}
		*all = mem_realloc(*all, (*n + 1) * sizeof(**all));
		(*all)[(*n)++] = (struct ckpt){ .number = (uint64_t)sqlite3_column_int64(st, 0),
			.parent = sqlite3_column_int64(st, 1), .created_ms = sqlite3_column_int64(st, 2),
			.kind = (enum ckpt_kind)sqlite3_column_int(st, 3),
			.origin = origin ? mem_strdup(origin) : NULL };
	}
	sqlite3_finalize(st);
	return r;
}

struct past {
	const char *id;
	const struct ckpt *c;
	int64_t parent;
};

static int bind_past(sqlite3_stmt *st, const void *arg)
{
	const struct past *p = arg;
	int r = sqlite3_bind_text(st, 1, p->id, -1, SQLITE_TRANSIENT);

	r |= sqlite3_bind_int64(st, 2, (sqlite3_int64)p->c->number);
	r |= sqlite3_bind_int64(st, 3, p->parent);
	r |= sqlite3_bind_int64(st, 4, p->c->created_ms);
	r |= sqlite3_bind_int(st, 5, (int)p->c->kind);
	if (p->c->origin)
		r |= sqlite3_bind_text(st, 6, p->c->origin, -1, SQLITE_TRANSIENT);
	return r;
}

static int bind_text(sqlite3_stmt *st, const char *text)
{
	return sqlite3_bind_text(st, 1, text, -1, SQLITE_TRANSIENT);
}

/* The first row: 1, and "BOX" in id, its second column in *number; 0: none. */
static int first_row(sqlite3 *db, const char *sql, const char *arg, struct box_id *id, uint64_t *number,
	struct den_err *err)
{
	sqlite3_stmt *st = NULL;
	int found = 0;

	if (sqlite3_prepare_v2(db, sql, -1, &st, NULL) != SQLITE_OK || bind_text(st, arg) != SQLITE_OK)
		found = db_fail(db, "read", err);
	else if (sqlite3_step(st) == SQLITE_ROW) {
		found = box_id_parse((const char *)sqlite3_column_text(st, 0), id, err) < 0 ? -1 : 1;
		*number = (uint64_t)sqlite3_column_int64(st, 1);
	}
	sqlite3_finalize(st);
	return found;
}

/* Others point to it, or it points to others: with its content gone, nothing else of it matters. */
static bool past_matters(sqlite3 *db, const char *id, const struct ckpt *c, struct den_err *err)
{
	struct box_id other;
	uint64_t number;
	char name[96];

	if (c->origin || c->used || !c->number)
		return true;
	point_name(name, id, c->number);
	return first_row(db, "SELECT box, number FROM past WHERE origin = ? LIMIT 1", name, &other, &number, err) != 0;
}

int past_keep(sqlite3 *db, const struct box_id *id, struct den_err *err)
{
	static const char put[] = "INSERT OR REPLACE INTO past VALUES (?,?,?,?,?,?)";
	struct ckpt *all = NULL, base = { .kind = CKPT_BASE };
	struct past p = { .id = id->s, .c = &base, .parent = -1 };
	auto_free bool *keep = NULL;
	struct box_id other;
	uint64_t number;
	size_t n = 0;
	int r;

	r = first_row(db, /* 'A' follows '@' */
		"SELECT box, 0 FROM checkpoints WHERE origin > ?1 || '@' AND origin < ?1 || 'A' UNION ALL "
		"SELECT box, 0 FROM past WHERE origin > ?1 || '@' AND origin < ?1 || 'A' LIMIT 1",
		id->s, &other, &number, err);
	if (r <= 0 || history_rows(db, id->s, &all, &n, err) < 0)
		return r == 0 ? 0 : -1; /* mostly nobody came through it */
	keep = mem_zalloc(n + 1);
	for (size_t i = 0; i < n; i++)
		keep[i] = past_matters(db, id->s, &all[i], err);
	r = !n || all[0].number ? db_run(db, put, bind_past, &p, err) : 0; /* it begins with the template */
	for (size_t i = 0; r == 0 && i < n; i++) {
		const struct ckpt *up = &all[i];

		if (!keep[i])
			continue;
		do
			up = up->parent < 0 ? NULL : history_find(all, n, (uint64_t)up->parent);
		while (up && !keep[up - all]);
		p = (struct past){ id->s, &all[i], up ? (int64_t)up->number : all[i].number ? 0 : -1 };
		r = db_run(db, put, bind_past, &p, err);
	}
	ckpts_free(all, n);
	return r;
}

static int bind_nothing(sqlite3_stmt *st, const void *arg)
{
	(void)st, (void)arg;
	return SQLITE_OK;
}

int past_thin(sqlite3 *db, struct den_err *err)
{
	/* from what is there, along what it came from: two that are gone may point to each other */
	return db_run(db,
		"WITH RECURSIVE need(box) AS ("
		"SELECT substr(origin, 1, instr(origin, '@') - 1) FROM checkpoints WHERE origin IS NOT NULL UNION "
		"SELECT substr(past.origin, 1, instr(past.origin, '@') - 1) FROM past JOIN need ON past.box = need.box"
		" WHERE past.origin IS NOT NULL) DELETE FROM past WHERE box NOT IN (SELECT box FROM need)",
		bind_nothing, NULL, err);
}

/* ---- walking ---- */

/* Everything that ID@head came through: parents, what was forked from, what was merged in. */
static int points_walk(
	sqlite3 *db, const char *id, uint64_t head, struct points *p, struct den_err *err)
{
	char name[96];

	point_name(name, id, head);
	points_add(p, name, 1);
	for (size_t i = 0; i < p->n; i++) {
		struct ckpt *all = NULL;
		struct box_id box;
		uint64_t number;
		size_t n = 0;

		if (p->v[i].done || point_parse(p->v[i].name, &box, &number) < 0)
			continue;
		if (history_rows(db, box.s, &all, &n, err) < 0)
			return -1;
		if (past_rows(db, box.s, &all, &n, err) < 0) {
			ckpts_free(all, n);
			return -1;
		}
		points_line(p, box.s, number, all, n);
		p->v[i].done = true;
		ckpts_free(all, n);
	}
	return 0;
}

/* ---- content ---- */

/* Is its own content there? That of a beginning is the template, which is, even if the box is not. */
static int point_there(sqlite3 *db, const struct box_id *id, uint64_t number, struct den_err *err)
{
	struct ckpt *all = NULL;
	struct box_id same;
	uint64_t zero;
	size_t n = 0;
	int found;

	if (history_rows(db, id->s, &all, &n, err) < 0)
		return -1;
	found = history_find(all, n, number) != NULL;
	ckpts_free(all, n);
	if (found || number)
		return found;
	return first_row(db, "SELECT id, 0 FROM boxes WHERE id = ?1 UNION "
		"SELECT box, 0 FROM past WHERE box = ?1 AND number = 0 AND kind = 0 AND origin IS NULL",
		id->s, &same, &zero, err);
}

/* A checkpoint with that content: itself, or one that was forked from it, or from a fork like that. */
static int point_content(sqlite3 *db, const char *point, unsigned depth, struct box_id *id, uint64_t *number,
	struct den_err *err)
{
	char **forks = NULL;
	sqlite3_stmt *st = NULL;
	int found;

	if (point_parse(point, id, number) < 0)
		return 0;
	found = point_there(db, id, *number, err);
	if (!found)
		found = first_row(db, "SELECT box, number FROM checkpoints WHERE origin = ? AND kind = 5 LIMIT 1",
			point, id, number, err);
	if (found || depth == FORKS_DEEP)
		return found;
	if (sqlite3_prepare_v2(db, "SELECT box || '@' || number FROM past WHERE origin = ? AND kind = 5", -1, &st,
		    NULL) != SQLITE_OK || bind_text(st, point) != SQLITE_OK)
		found = db_fail(db, "read", err);
	while (found == 0 && sqlite3_step(st) == SQLITE_ROW)
		strv_add(&forks, (const char *)sqlite3_column_text(st, 0));
	sqlite3_finalize(st);
	for (size_t i = 0; found == 0 && forks && forks[i]; i++)
		found = point_content(db, forks[i], depth + 1, id, number, err);
	strv_free(forks);
	return found;
}

/* ---- the newest ---- */

/* Marks what those in common came through themselves: each has a newer one after it. */
static void points_pass(struct points *p)
{
	auto_free size_t *todo = mem_alloc((2 * p->n + 1) * sizeof(*todo));
	size_t n = 0;

	for (size_t i = 0; i < p->n; i++) {
		p->v[i].passed = false;
		for (unsigned k = 0; p->v[i].common && k < p->v[i].n_up; k++)
			todo[n++] = p->v[i].up[k];
	}
	while (n) {
		struct point *at = &p->v[todo[--n]];

		for (unsigned k = 0; !at->passed && !at->common && k < at->n_up; k++)
			todo[n++] = at->up[k]; /* of one in common they are there already */
		at->passed = true;
	}
}

/* Times decide only between points of which neither came through the other: clocks are set back. */
static struct point *points_newest(struct points *p)
{
	struct point *best = NULL;

	points_pass(p);
	for (size_t i = 0; i < p->n; i++)
		if (p->v[i].common && !p->v[i].passed && (!best || p->v[i].when > best->when))
			best = &p->v[i];
	return best;
}

static int ancestor_in(sqlite3 *db, struct points *a, const struct points *b,
	struct box_id *ret_box, uint64_t *ret_number, struct den_err *err)
{
	struct point *at;

	for (size_t i = 0; i < a->n; i++)
		a->v[i].common = points_find(b, a->v[i].name);
	while ((at = points_newest(a))) {
		int r = point_content(db, at->name, 0, ret_box, ret_number, err);

		if (r)
			return r < 0 ? -1 : 0;
		at->common = false; /* it is gone: maybe one before it is not */
	}
	return den_fail(err, DEN_NOT_FOUND, 0,
		"the two boxes have no common checkpoint left; neither is a fork of the other");
}

int history_ancestor(struct store *s, const struct box_id *a, uint64_t a_head,
	const struct box_id *b, uint64_t b_head, struct box_id *ret_box, uint64_t *ret_number,
	struct den_err *err)
{
	struct points pa = { 0 }, pb = { 0 };
	sqlite3 *db;
	int r;

	if (db_open(s, &db, err) < 0)
		return -1;
	r = points_walk(db, a->s, a_head, &pa, err);
	if (r == 0)
		r = points_walk(db, b->s, b_head, &pb, err);
	if (r == 0)
		r = ancestor_in(db, &pa, &pb, ret_box, ret_number, err);
	db_close(s, db);
	points_free(&pa);
	points_free(&pb);
	return r;
}
