/*
 * Directory trees into tar streams and back, without ever following a link.
 *
 * Packing reads what someone else may be changing; unpacking creates below one directory and
 * nowhere else, whatever the archive says:
 *   1. a name is relative and has no ".."; its parents are opened beneath the target, through no
 *      symbolic link, whoever made it;
 *   2. a file is made new (O_EXCL) after what was there is unlinked, so nothing is written through
 *      a link, hard or symbolic;
 *   3. a hard link's target is resolved by the same rules;
 *   4. no device node is made, ever.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "err.h"
#include "tar.h"

/* KEPT: what belongs to a file as its content does: user.*, capabilities, access control lists. */
enum tree_xattrs { TREE_XATTR_NONE, TREE_XATTR_USER /* user.* */, TREE_XATTR_KEPT, TREE_XATTR_ALL };
bool tree_xattr_is_kept(const char *name);

struct tree_stats {
	uint64_t entries, bytes;
	/* devices and sockets (packing); devices and fifos not wanted (unpacking) */
	uint64_t skipped;
	uint64_t lost_xattrs;
};

/* The shapes of den_sink and den_source in den.h. */
typedef int (*tree_sink)(const void *data, size_t n, void *user, struct den_err *err);
typedef ssize_t (*tree_source)(void *buf, size_t cap, void *user, struct den_err *err);

struct tree_pack_opt {
	const char *top; /* what it is called in the archive; NULL: a directory's entries stand for
			      themselves, a file keeps its name */
	bool follow;	   /* name itself may be a link to what is meant */
	bool owner;	   /* all belongs to uid and gid below, not to whom it belongs here */
	uint32_t uid, gid;
	enum tree_xattrs xattrs;
};

/* Packing, pulled: fill buffers from it until it gives 0. */
struct tree_packer;
int tree_packer_new(int dirfd, const char *name, const struct tree_pack_opt *opt,
	struct tree_packer **ret, struct den_err *err);
ssize_t tree_packer_read(struct tree_packer *p, void *buf, size_t cap, struct den_err *err);
const struct tree_stats *tree_packer_stats(const struct tree_packer *p);
void tree_packer_free(struct tree_packer *p); /* NULL is allowed */
/* Packing, pushed. stats may be NULL. */
int tree_pack(int dirfd, const char *name, const struct tree_pack_opt *opt, tree_sink sink,
	void *user, struct tree_stats *stats, struct den_err *err);

/* ---- parts of packing, for whoever decides otherwise what goes in ---- */

/* Files with several names, by the name that was packed first. Bounded: what does not fit is not
 * remembered, and its other names are packed as files of their own. */
struct tree_links;
struct tree_links *tree_links_new(void);
/* NULL: none was packed. */
const char *tree_links_name(struct tree_links *t, const struct stat *st);
/* One more name was packed as a link: with the last one the file is forgotten. */
void tree_links_used(struct tree_links *t, const struct stat *st);
void tree_links_add(struct tree_links *t, const struct stat *st, const char *name);
void tree_links_free(struct tree_links *t); /* NULL is allowed */

struct tree_attrs {
	struct tar_xattr list[TAR_XATTR_MAX];
	size_t n;
	char names[8192];
	struct buf values;
};
/* Attributes that do not fit, or may not be read, are counted in *lost and left out: they are not
 * what a copy is made for. *ret is zeroed before its first use. */
void tree_attrs_read(
	int fd, bool (*wanted)(const char *name), struct tree_attrs *ret, uint64_t *lost);
void tree_attrs_free(struct tree_attrs *a); /* and a itself; NULL is allowed */

struct tree_unpack_opt {
	bool owner;	   /* give everything its owner; else all belongs to the caller */
	bool special;	   /* make fifos; else they are skipped */
	bool keep_dirs;	   /* directories that are there already stay as they are */
	bool sync;	   /* success means it is on disk */
	bool layer; /* ".wh.NAME" removes NAME, ".wh..wh..opq" what is in its directory, and a
			      directory makes way for a file; a directory that is there loses the
			      attributes that the layer does not have */
	mode_t mode_clear; /* bits that nothing gets, e.g. 07022 */
	enum tree_xattrs xattrs;
	const char *top;   /* the first part of every name is replaced by this */
	uint64_t max_bytes, max_entries; /* 0: no limit but the disk's */
};

/* Unpacking, pushed: feed it bytes, then finish. dirfd is borrowed until it is freed. Freed before
 * it finished, it removes the file that was not complete, nothing else. */
struct tree_unpacker;
struct tree_unpacker *tree_unpacker_new(int dirfd, const struct tree_unpack_opt *opt);
int tree_unpacker_feed(struct tree_unpacker *u, const void *p, size_t n, struct den_err *err);
int tree_unpacker_finish(struct tree_unpacker *u, struct den_err *err);
const struct tree_stats *tree_unpacker_stats(const struct tree_unpacker *u);
void tree_unpacker_free(struct tree_unpacker *u); /* NULL is allowed */
/* Unpacking, pulled. stats may be NULL. Reads source to its end, also beyond the archive's. */
int tree_unpack(int dirfd, const struct tree_unpack_opt *opt, tree_source source, void *user,
	struct tree_stats *stats, struct den_err *err);
