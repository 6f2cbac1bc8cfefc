/*
 * Walks up to three views side by side, depth first, names in byte order: what change.h and merge.h
 * are made of.
 *
 * Where all sides see the same lower layers, only names that the layers above have are told: what
 * nobody touched is never looked at. Descriptors are bounded however deep and however many layers:
 * directories far above are closed and opened again from the top on the way back. Memory is bounded
 * by the names of the directories on the way down (WALK_NAMES_MAX in all).
 */
#pragma once

#include "view.h"

#define VIEW_SIDES 3

/* Sorted names, each once. */
struct view_names {
	struct buf bytes;
	uint32_t *at; /* offsets into bytes */
	size_t n, cap;
};
static inline const char *view_name(const struct view_names *l, size_t i)
{
	return l->bytes.p + l->at[i];
}
/* Adds what the first `layers` layers have, whiteouts too, in no order; max: bytes in all. */
int view_names_add(struct view_names *l, const struct view_dir *d, size_t layers, size_t max,
	struct den_err *err);
void view_names_sort(struct view_names *l);
void view_names_free(struct view_names *l);

struct view_level {
	struct view_dir *dir[VIEW_SIDES];  /* NULL: this side has no such directory, or parked */
	struct view_node node[VIEW_SIDES]; /* as the level above told it */
	unsigned limit[VIEW_SIDES];	   /* layers of the tree above those that all sides share */
	unsigned cut; /* sides that do not see a shared layer which another side sees here */
	bool mark;    /* the user's */
	bool parked;  /* descriptors are closed for now */
	size_t path_len, fds;
	struct view_names names;
	size_t next;
};

struct view_walk {
	const struct view *view[VIEW_SIDES];
	unsigned n;
	struct view_level *levels;
	size_t n_levels, cap_levels;
	size_t names_bytes, open_fds, stride;
	struct buf path;
	/* Set by view_walk_enter() for the next step. */
	unsigned enter;
	bool enter_mark;
	struct view_node last[VIEW_SIDES];
	size_t last_name; /* where in path */
};

/* Valid until the next call. At least one side has it. */
struct view_entry {
	const char *name, *path;
	const struct view_dir *dir[VIEW_SIDES]; /* what it is in; NULL: not there */
	struct view_node node[VIEW_SIDES];
	bool mount; /* the root of a tree */
	unsigned cut; /* of the directory it is in: see struct view_level */
};

/* Begins with what is in path on all sides that have it as a directory; missing on all is no
 * error. */
int view_walk_new(const struct view *const *views, unsigned n, const char *path,
	struct view_walk **ret, struct den_err *err);
/* 1: *ret is set; 0: the end. */
int view_walk_next(struct view_walk *w, struct view_entry *ret, struct den_err *err);
/* The next step goes into the entry told last, on those sides of the mask that have a directory. */
void view_walk_enter(struct view_walk *w, unsigned sides, bool mark);
/* Begins the directory of the entry told last again, with only these sides. */
int view_walk_again(struct view_walk *w, unsigned sides, struct den_err *err);
void view_walk_free(struct view_walk *w); /* NULL is allowed */

/* view.c, for the walk: descriptors held, and which layers (indices in the tree) a directory
 * has. */
size_t view_dir_parts(const struct view_dir *d);
unsigned view_dir_part_layer(const struct view_dir *d, size_t i);
const struct view_tree *view_dir_tree(const struct view_dir *d); /* NULL: a view without any */
bool view_dir_is_mount(const struct view_dir *d, const char *name);
bool view_path_is_dens(const char *path); /* "dev", "proc", "sys", "run": den's own in each box */
