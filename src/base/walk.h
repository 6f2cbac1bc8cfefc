/*
 * Walks a directory tree depth first, names in byte order, without following links.
 *
 * The tree may be hostile and may change meanwhile. Descriptors are bounded however deep it is;
 * memory is bounded by the names of the directories on the way down (WALK_NAMES_MAX in all). What
 * vanishes between being named and being looked at is left out.
 */
#pragma once

#include <sys/stat.h>

#include "err.h"

#define WALK_NAMES_MAX (256U << 20)

enum walk_flags {
	/* what may not be looked at is told with a zeroed st, a directory that may not be read is
	 * told but not entered; without it, an error */
	WALK_SKIP_DENIED = 1,
	WALK_SKIP_KERNEL = 2, /* do not enter /proc, /sys and the like */
	WALK_LEAVES = 4, /* tell a directory again after what is in it (not a skipped one) */
};

enum walk_what { WALK_END, WALK_ENTRY, WALK_LEAVE };

struct walk_entry {
	int dirfd;	  /* the directory it is in */
	const char *name; /* its name there */
	const char *path; /* from the top: "a/b/name" */
	unsigned depth;	  /* 1: directly in the top directory */
	struct stat st;	  /* of itself, never of what a link points to */
};

struct walk;
/* Takes fd, an open directory, also on failure. max_depth 0: everything. */
int walk_new(int fd, unsigned max_depth, unsigned flags, struct walk **ret, struct den_err *err);
/* An enum walk_what, or -1. *ret is valid until the next call. After WALK_ENTRY of a directory
 * comes what is in it, unless walk_skip() is called. */
int walk_next(struct walk *w, struct walk_entry *ret, struct den_err *err);
void walk_skip(struct walk *w);
void walk_free(struct walk *w); /* NULL is allowed */
