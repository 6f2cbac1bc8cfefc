/*
 * What differs between two views of the same template (or of templates with the same trees).
 *
 * Only what the boxes' own layers hold is looked at, so it costs what was changed, not what there
 * is. Files that are the same inode with the same change time are the same; so are a snapshot's,
 * which has both from its origin, if they also lie in the same blocks (forks give new files the
 * same numbers, and maybe at the same tick of the clock). Others are compared byte by byte.
 */
#pragma once

#include "view.h"

enum change_kind {
	CHANGE_ADDED,
	CHANGE_REMOVED,
	CHANGE_MODIFIED,
	CHANGE_META /* mode, owner, xattrs only */
};

struct change {
	const char *path; /* "etc/hosts": relative to "/" */
	enum change_kind kind;
	struct view_node a, b;
	char type_a, type_b; /* f d l p s c b, 0: not there */
	uint32_t what;	     /* CHANGED_* */
};
enum change_what {
	CHANGED_CONTENT = 1, CHANGED_MODE = 2, CHANGED_OWNER = 4, CHANGED_TYPE = 8,
	CHANGED_TARGET = 16, CHANGED_XATTR = 32,
};

/* Sorted by path, a directory before what is in it. A directory whose times alone differ is no
 * change. A removed directory is told with everything that was in it, an added one too. Mount
 * points and what den itself puts there (/dev, /proc, /sys, /run) are left out. */
int changes_each(const struct view *a, const struct view *b,
	int (*fn)(const struct change *c, void *user, struct den_err *err), void *user,
	struct den_err *err);

/* Are two nodes the same file, by content and everything else? 1, 0, -1. */
int nodes_equal(const struct view_dir *a, const struct view_dir *b, const char *name,
	uint32_t *what, struct den_err *err);

typedef int (*change_sink)(const void *data, size_t n, void *user, struct den_err *err);
/* A unified diff, as `diff -u` writes it, of all changed text files (others: "Binary files a/x and
 * b/x differ"), names quoted where they need it, modes as git does ("old mode", "new mode"). Links
 * are texts that hold their target; directories are not told. `git apply` takes it. */
int changes_text(const struct view *a, const struct view *b, change_sink sink, void *user,
	struct den_err *err);
/* The changes as a layer: a tar with ".wh.NAME" for what was removed and ".wh..wh..opq" where a
 * directory was replaced. Applied to a it gives b: marks remove what was there before the layer,
 * wherever they stand in it, and an entry of another type replaces what is there with all below.
 * The directories above each entry are in it, too, so that it can also be mounted. Names of one
 * file are hard links. Sockets and devices are left out. A file whose own name begins with ".wh."
 * is DEN_UNSUPPORTED. */
int changes_tar(const struct view *a, const struct view *b, change_sink sink, void *user,
	struct den_err *err);
/* A whole view as a tar, for export; /dev, /proc, /sys and /run are empty in it. */
int view_tar(const struct view *v, change_sink sink, void *user, struct den_err *err);
