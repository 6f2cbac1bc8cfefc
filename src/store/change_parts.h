/*
 * The parts of change.h and merge.h that they share; only src/store/change*.c, merge*.c and their
 * tests see this.
 *
 *   change.c       comparing nodes, telling changes
 *   change_text.c  the unified diff
 *   change_tar.c   entries of a layer, and a layer of changes
 */
#pragma once

#include "change.h"
#include "tree.h"
#include "view_walk.h"

char node_type(const struct view_node *n); /* f d l p s c b, 0: not there */
bool xattr_is_kept(const char *name); /* of the attributes that are compared and archived */

/* CHANGED_* between two nodes that are there; of directories, not what is in them. */
int node_compare(const struct view_dir *da, const struct view_node *a, const struct view_dir *db,
	const struct view_node *b, const char *name, uint32_t *ret, struct den_err *err);

/* 1: *ret is the change that an entry of a walk over two views is, 0: it is none. */
int change_of(const struct view_entry *e, struct change *ret, struct den_err *err);
/* changes_each(), with the entry that each change is. */
typedef int (*change_entry_fn)(
	const struct view_entry *e, const struct change *c, void *user, struct den_err *err);
int changes_walk(const struct view *a, const struct view *b, change_entry_fn fn, void *user,
	struct den_err *err);

/* ---- texts */

#define TEXT_MAX (16U << 20)
#define TEXT_LINES_MAX (1U << 19)
bool text_is(const char *p, size_t n); /* no NUL early on, not too many lines */
/* A regular file's or a link's content. 1: *ret, free() it; 0: not text, or too large. */
int text_read(const struct view_dir *d, const char *name, const struct view_node *n, char **ret,
	size_t *ret_len, struct den_err *err);

/* ---- entries of a layer */

struct layer_out {
	change_sink sink;
	void *user;
	struct buf out;
	struct tree_links *links;
	uint64_t lost; /* attributes that could not be read, or are too many */
};
void layer_out_init(struct layer_out *o, change_sink sink, void *user);
void layer_out_free(struct layer_out *o);
int layer_out_end(struct layer_out *o, struct den_err *err);

struct layer_entry {
	const char *path, *name; /* name: in the directories below */
	const struct view_dir *dir;
	const struct view_node *node; /* what it is and holds */
	const struct view_node *mode, *owner; /* whose; NULL: node's */
	const struct view_dir *xattr_dir; /* whose attributes; NULL: node's */
	const struct view_node *xattr;
	const char *text; /* content instead of node's; NULL: none */
	size_t text_len;
};
int layer_put(struct layer_out *o, const struct layer_entry *e, struct den_err *err);
int layer_put_removal(struct layer_out *o, const char *path, struct den_err *err);
/* Can a layer have this name, and remove it? */
bool layer_can_name(const char *name);
bool layer_can_remove(const char *name);
/* Sockets and devices are in no archive: as good as not there. */
void layer_forget_special(struct view_node *n);
