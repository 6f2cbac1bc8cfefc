#include "view_walk.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "mem.h"
#include "tar.h"
#include "walk.h"

#define FDS_MAX 192U /* of all levels together, but the last one may always be open */

/* ---- what the sides share -------------------------------------------------------------------- */

static bool same_layer(int a, int b)
{
	struct stat sa, sb;

	return fstat(a, &sa) == 0 && fstat(b, &sb) == 0 && sa.st_dev == sb.st_dev &&
	       sa.st_ino == sb.st_ino;
}

/* How many layers, counted from the lowest, are the same directories. */
static size_t tree_shared(const struct view_tree *a, const struct view_tree *b)
{
	size_t n = 0, max = MIN(a->n_layers, b->n_layers);

	if (strcmp(a->at, b->at) != 0)
		return 0;
	while (n < max &&
		same_layer(a->layers[a->n_layers - 1 - n], b->layers[b->n_layers - 1 - n]))
		n++;
	return n;
}

static void level_set_limits(struct view_walk *w, struct view_level *l)
{
	const struct view_tree *first = NULL;
	size_t shared = SIZE_MAX;

	for (unsigned s = 0; s < w->n; s++) {
		const struct view_tree *t = l->dir[s] ? view_dir_tree(l->dir[s]) : NULL;

		if (!l->dir[s])
			continue;
		if (!t)
			shared = 0;
		else if (first)
			shared = MIN(shared, tree_shared(first, t));
		else
			first = t;
	}
	for (unsigned s = 0; s < w->n; s++) {
		const struct view_tree *t = l->dir[s] ? view_dir_tree(l->dir[s]) : NULL;

		l->limit[s] = t ? (unsigned)(t->n_layers - MIN(shared, t->n_layers)) : 0;
	}
}

/* Which shared layers (counted from the topmost shared one) a side sees: is it in the list of side
 * b? */
static bool sees(const struct view_level *l, unsigned side, unsigned shared_layer)
{
	const struct view_dir *d = l->dir[side];

	for (size_t i = 0; i < view_dir_parts(d); i++)
		if (view_dir_part_layer(d, i) == l->limit[side] + shared_layer)
			return true;
	return false;
}

static unsigned level_cut(const struct view_walk *w, const struct view_level *l)
{
	unsigned cut = 0;

	for (unsigned a = 0; a < w->n; a++)
		for (size_t i = 0; l->dir[a] && i < view_dir_parts(l->dir[a]); i++) {
			unsigned layer = view_dir_part_layer(l->dir[a], i);

			for (unsigned b = 0; layer >= l->limit[a] && b < w->n; b++)
				if (l->dir[b] && !sees(l, b, layer - l->limit[a]))
					cut |= 1U << b;
		}
	return cut;
}

/* ---- levels ---------------------------------------------------------------------------------- */

static void level_park(struct view_walk *w, struct view_level *l)
{
	for (unsigned s = 0; s < w->n; s++) {
		view_dir_close(l->dir[s]);
		l->dir[s] = NULL;
	}
	l->parked = true;
	w->open_fds -= l->fds;
}

static void level_free(struct view_walk *w, struct view_level *l)
{
	if (!l->parked)
		level_park(w, l);
	w->names_bytes -= l->names.bytes.len;
	view_names_free(&l->names);
}

static void level_opened(struct view_walk *w, struct view_level *l)
{
	l->fds = 0;
	for (unsigned s = 0; s < w->n; s++)
		l->fds += l->dir[s] ? view_dir_parts(l->dir[s]) : 0;
	w->open_fds += l->fds;
}

static size_t anchor_fds(const struct view_walk *w)
{
	size_t n = 0;

	for (size_t i = 0; i < w->n_levels; i += w->stride)
		n += w->levels[i].parked ? 0 : w->levels[i].fds;
	return n;
}

/* Closes levels far above, the last one never. Every stride-th stays open, from which those between
 * are found again: the deeper it goes, the fewer. */
static void levels_bound(struct view_walk *w)
{
	if (w->open_fds <= FDS_MAX)
		return;
	while (w->stride < w->n_levels && anchor_fds(w) > FDS_MAX / 2)
		w->stride *= 2;
	for (size_t i = 0; i + 1 < w->n_levels && w->open_fds > FDS_MAX; i++)
		if (!w->levels[i].parked && i % w->stride)
			level_park(w, &w->levels[i]);
	for (size_t i = 0; i + 1 < w->n_levels && w->open_fds > FDS_MAX; i++)
		if (!w->levels[i].parked)
			level_park(w, &w->levels[i]);
}

static unsigned level_sides(const struct view_walk *w, const struct view_level *l)
{
	unsigned sides = 0;

	for (unsigned s = 0; s < w->n; s++)
		if (l->node[s].there)
			sides |= 1U << s;
	return sides;
}

static int gone(struct view_walk *w, struct den_err *err)
{
	return den_fail(err, DEN_CONFLICT, 0,
		"'%s': the tree was changed while it was being read; try again",
		tar_show(buf_str(&w->path)).s);
}

/* The name of level i in the one above. */
static char *level_name(struct view_walk *w, size_t i)
{
	size_t from = w->levels[i - 1].path_len;

	from += from != 0;
	return mem_strndup(buf_str(&w->path) + from, w->levels[i].path_len - from);
}

/* Level i of one side anew: down from the next level above that is open, else from the top. */
static int level_open_side(struct view_walk *w, size_t i, unsigned s, struct den_err *err)
{
	auto_free char *path = mem_strndup(buf_str(&w->path), w->levels[i].path_len);
	struct view_dir *d = NULL;
	size_t k = i;

	while (k && w->levels[k - 1].parked)
		k--;
	if (!k)
		return view_dir_open(w->view[s], path, &w->levels[i].dir[s], err);
	for (; k <= i; k++) {
		auto_free char *name = level_name(w, k);
		struct view_dir *next;
		int r = view_dir_child(d ?: w->levels[k - 1].dir[s], name, &next, err);

		view_dir_close(d);
		if (r < 0)
			return -1;
		d = next;
	}
	w->levels[i].dir[s] = d;
	return 0;
}

static int level_wake_one(struct view_walk *w, size_t i, struct den_err *err)
{
	struct view_level *l = &w->levels[i];
	unsigned sides = level_sides(w, l);
	int r = 0;

	for (unsigned s = 0; s < w->n && r == 0; s++)
		if (sides & 1U << s)
			r = level_open_side(w, i, s, err);
	l->parked = false;
	level_opened(w, l);
	return r < 0 && err && err->code == DEN_NOT_FOUND ? gone(w, err) : r;
}

/* The way from the top is long, so some of the levels above come along: they are next. */
static int level_wake(struct view_walk *w, size_t i, struct den_err *err)
{
	size_t want = FDS_MAX / 2 / MAX(w->levels[i].fds, (size_t)1), from = i;

	if (!w->levels[i].parked)
		return 0;
	while (from && want-- > 1 && w->levels[from - 1].parked)
		from--;
	for (; from <= i; from++)
		if (level_wake_one(w, from, err) < 0)
			return -1;
	return 0;
}

static int level_list(struct view_walk *w, struct view_level *l, struct den_err *err)
{
	unsigned sides = 0;
	bool all;

	for (unsigned s = 0; s < w->n; s++)
		sides += l->dir[s] != NULL;
	l->cut = level_cut(w, l);
	all = sides == 1 || l->cut;
	for (unsigned s = 0; s < w->n; s++) {
		size_t max = WALK_NAMES_MAX - MIN(w->names_bytes, (size_t)WALK_NAMES_MAX);

		if (l->dir[s] && view_names_add(&l->names, l->dir[s], all ? SIZE_MAX : l->limit[s],
					 max, err) < 0) {
			w->names_bytes += l->names.bytes.len;
			return -1;
		}
	}
	w->names_bytes += l->names.bytes.len;
	view_names_sort(&l->names);
	l->next = 0;
	return 0;
}

static struct view_level *level_push(struct view_walk *w)
{
	if (w->n_levels == w->cap_levels) {
		w->cap_levels = w->cap_levels ? w->cap_levels * 2 : 16;
		w->levels = mem_realloc(w->levels, w->cap_levels * sizeof(*w->levels));
	}
	w->levels[w->n_levels] = (struct view_level){ .path_len = w->path.len };
	return &w->levels[w->n_levels++];
}

/* A mount point begins other trees; else what is shared above is shared here. */
static bool level_is_tree(const struct view_walk *w, const struct view_level *l, const char *name)
{
	const struct view_level *above = l - 1;

	for (unsigned s = 0; s < w->n; s++)
		if (l->dir[s] && view_dir_is_mount(above->dir[s], name))
			return true;
	return false;
}

static int walk_descend(struct view_walk *w, struct den_err *err)
{
	struct view_level *l = level_push(w), *above = l - 1;
	const char *name = buf_str(&w->path) + w->last_name;
	int r = 0;

	l->mark = w->enter_mark;
	for (unsigned s = 0; s < w->n && r == 0; s++) {
		if (!(w->enter & 1U << s))
			continue;
		l->node[s] = w->last[s];
		r = view_dir_child(above->dir[s], name, &l->dir[s], err);
	}
	level_opened(w, l);
	if (r < 0)
		return err && err->code == DEN_NOT_FOUND ? gone(w, err) : -1;
	memcpy(l->limit, above->limit, sizeof(l->limit));
	if (level_is_tree(w, l, name))
		level_set_limits(w, l);
	levels_bound(w);
	return level_list(w, l, err);
}

/* ---- the walk -------------------------------------------------------------------------------- */

void view_walk_free(struct view_walk *w)
{
	if (!w)
		return;
	while (w->n_levels)
		level_free(w, &w->levels[--w->n_levels]);
	free(w->levels);
	buf_free(&w->path);
	free(w);
}

int view_walk_new(const struct view *const *views, unsigned n, const char *path,
	struct view_walk **ret, struct den_err *err)
{
	struct view_walk *w = mem_new(struct view_walk);
	struct view_level *l;
	int r = 0;

	w->n = n;
	w->stride = 4;
	buf_addstr(&w->path, path);
	l = level_push(w);
	for (unsigned s = 0; s < n && r == 0; s++) {
		struct den_err e = { 0 };

		w->view[s] = views[s];
		r = view_dir_open(views[s], path, &l->dir[s], &e);
		if (r < 0 && e.code == DEN_NOT_FOUND)
			r = 0;
		else if (r < 0 && err)
			*err = e;
		l->node[s].there = l->dir[s] != NULL;
	}
	level_opened(w, l);
	if (r == 0) {
		level_set_limits(w, l);
		r = level_list(w, l, err);
	}
	if (r < 0) {
		view_walk_free(w);
		return -1;
	}
	*ret = w;
	return 0;
}

void view_walk_enter(struct view_walk *w, unsigned sides, bool mark)
{
	w->enter = 0;
	w->enter_mark = mark;
	for (unsigned s = 0; s < w->n; s++)
		if (w->last[s].there && S_ISDIR(w->last[s].st.st_mode))
			w->enter |= sides & 1U << s;
}

int view_walk_again(struct view_walk *w, unsigned sides, struct den_err *err)
{
	struct view_level *l = &w->levels[w->n_levels - 1];

	w->enter = 0;
	w->open_fds -= l->fds;
	for (unsigned s = 0; s < w->n; s++) {
		if (sides & 1U << s)
			continue;
		view_dir_close(l->dir[s]);
		l->dir[s] = NULL;
		l->node[s].there = false;
	}
	level_opened(w, l);
	w->names_bytes -= l->names.bytes.len;
	view_names_free(&l->names);
	return level_list(w, l, err);
}

/* 1: *ret is set, 0: no side has the name. */
static int entry_set(
	struct view_walk *w, struct view_level *l, struct view_entry *ret, struct den_err *err)
{
	const char *name = buf_str(&w->path) + w->last_name;
	bool there = false;

	*ret = (struct view_entry){ .name = name, .path = buf_str(&w->path), .cut = l->cut };
	for (unsigned s = 0; s < w->n; s++) {
		ret->dir[s] = l->dir[s];
		if (!l->dir[s])
			continue;
		if (view_dir_look(l->dir[s], name, &ret->node[s], err) < 0)
			return den_wrap(err, "'%s'", tar_show(ret->path).s);
		ret->mount = ret->mount || view_dir_is_mount(l->dir[s], name);
		there = there || ret->node[s].there;
	}
	memcpy(w->last, ret->node, sizeof(w->last));
	return there;
}

int view_walk_next(struct view_walk *w, struct view_entry *ret, struct den_err *err)
{
	if (w->enter) {
		int r = walk_descend(w, err);

		w->enter = 0;
		if (r < 0)
			return -1;
	}
	for (;;) {
		struct view_level *l = &w->levels[w->n_levels - 1];
		int r;

		if (l->next == l->names.n) {
			if (w->n_levels == 1)
				return 0;
			level_free(w, l);
			w->n_levels--;
			l--;
			w->path.len = l->path_len;
			if (level_wake(w, w->n_levels - 1, err) < 0)
				return -1;
			continue;
		}
		w->path.len = l->path_len;
		if (l->path_len)
			buf_addstr(&w->path, "/");
		w->last_name = w->path.len;
		buf_addstr(&w->path, view_name(&l->names, l->next++));
		r = entry_set(w, l, ret, err);
		if (r != 0)
			return r;
	}
}
