/*
 * Three-way merge of file trees: what `theirs` changed since `base`, brought into `ours`.
 *
 * By path: changed on one side only: that side's. Changed to the same: agreed. Changed differently:
 * regular text files are merged by line (as `git merge-file` does); all else is a conflict.
 * Content, mode, owner and attributes are changes of their own: one side's mode goes with the
 * other's content. A directory that one side removed and in which the other changed anything is one
 * conflict, and so is one that a side made something else of. A rename is a removal and an
 * addition. Sockets and devices count as not there. Nothing is written: the result is a layer (see
 * changes_tar()) to be unpacked over `ours`.
 */
#pragma once

#include "change.h"

enum merge_choice { MERGE_ASK, MERGE_OURS, MERGE_THEIRS };

struct merge_rule {
	const char *path; /* "a/b": it and all below; NULL: everything */
	enum merge_choice choice; /* the whole of that side's version */
};

struct merge_conflict {
	const char *path;
	const char *why; /* static: "changed on both sides", "removed here, changed there", ... */
};

struct merge_result {
	/* Paths; merged: by line, cleanly; a directory that went as a whole is one. */
	uint64_t taken, agreed, merged, kept, conflicts;
	uint64_t lost; /* attributes that are not in the layer */
};

/**
 * merge_views() - work out a merge
 * @rules:    the last that fits a path decides a conflict there
 * @conflict: told each conflict that no rule decides; nothing may be applied then
 * @sink:     gets the layer as a tar stream; NULL: only count (do this first: the tar of a merge with
 *            conflicts leaves the conflicting paths out)
 */
int merge_views(const struct view *base, const struct view *ours, const struct view *theirs,
	const struct merge_rule *rules, size_t n_rules,
	int (*conflict)(const struct merge_conflict *c, void *user, struct den_err *err),
	change_sink sink, void *user, struct merge_result *ret, struct den_err *err);

/* One file: 0 merged into *ret, 1 conflicts (then *ret has markers), -1 not text or too large. */
int merge_text(const char *base, size_t n_base, const char *ours, size_t n_ours, const char *theirs,
	size_t n_theirs, struct buf *ret, struct den_err *err);
