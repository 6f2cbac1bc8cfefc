/*
 * What a box sees, looked at from the host without mounting anything: layers merged by overlayfs's
 * rules (whiteouts are character devices 0:0, "user.overlay.opaque" hides what is below; a file or
 * link hides everything below).
 *
 * Everything here is made by the box and hostile: paths are walked by descriptors, one name at a
 * time, links never followed, fifos and devices never opened.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "buf.h"
#include "err.h"

struct view_tree {
	const char *at;	   /* "/", "/usr": as in the template */
	/* directories, topmost (the box's changes) first; an unchanged box may have none of its
	 * own */
	int *layers;
	size_t n_layers;
	size_t n_own; /* so many of them are the box's own: 1, or 0 where it has changed nothing */
};

struct view {
	struct view_tree *trees; /* "/" first; deeper ones after those they are in */
	size_t n_trees;
	bool own; /* the caller's id stands for root (a box with a single id): told as 0:0 */
};

/* One name in a view. */
struct view_node {
	bool there;
	struct stat st;	  /* st_uid, st_gid: as the box sees them */
	int layer;	  /* index of the layer that has it; 0: the box's own */
};

struct view_dir; /* an open, merged directory */

#define VIEW_PATH_MAX 8190U /* bytes: what an archive can name; deeper is DEN_LIMIT */

/* path "" or "a/b": relative to "/". DEN_NOT_FOUND when it is no directory in this view. The root
 * of a tree is always one, whatever the tree around it has there. */
int view_dir_open(
	const struct view *v, const char *path, struct view_dir **ret, struct den_err *err);
int view_dir_child(
	const struct view_dir *d, const char *name, struct view_dir **ret, struct den_err *err);
void view_dir_close(struct view_dir *d); /* NULL is allowed */
/* All names in it, sorted, whiteouts and what is hidden left out. */
int view_dir_names(const struct view_dir *d, char ***ret, struct den_err *err);
/* Only the names that the first `layers` layers of its tree have, whiteouts included. */
int view_dir_own_names(const struct view_dir *d, size_t layers, char ***ret, struct den_err *err);
/* its topmost layer hides all below, or is alone */
bool view_dir_is_opaque(const struct view_dir *d);
int view_dir_look(
	const struct view_dir *d, const char *name, struct view_node *ret, struct den_err *err);
/* A regular file for reading; links: the target. */
int view_dir_open_file(const struct view_dir *d, const char *name, int *ret, struct den_err *err);
int view_dir_readlink(const struct view_dir *d, const char *name, char **ret, struct den_err *err);
/* The directory itself in its topmost layer, for xattrs; -1: no layer has it. */
int view_dir_fd(const struct view_dir *d);
/* A file or a directory in it, for xattrs. DEN_CONFLICT when it is no longer what `n` says. */
int view_dir_open_node(const struct view_dir *d, const char *name, const struct view_node *n,
	int *ret, struct den_err *err);
