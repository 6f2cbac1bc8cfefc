/*
 * Tar archives as a stream, in constant memory whatever they hold.
 *
 * Written is pax: a ustar header, and before it an extended header when a value does not fit.
 * Read is pax (local and global headers), ustar, GNU (long names, base-256 numbers) and v7. An
 * archive may come from a box, so it is hostile: every length is bounded before it is believed, and
 * what is not understood is refused, not guessed.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "err.h"

#define TAR_BLOCK 512U
#define TAR_NAME_MAX (4096U * 2)	/* bytes of a name or a link's target */
#define TAR_META_MAX (1U << 20)		/* bytes of a pax header */
#define TAR_XATTR_MAX 128U		/* attributes of an entry */
#define TAR_SIZE_MAX (INT64_MAX - 1024)

enum tar_type {
	TAR_FILE,
	TAR_DIR,
	TAR_SYMLINK,
	TAR_HARDLINK,
	TAR_FIFO,
	TAR_CHAR_DEV,
	TAR_BLOCK_DEV
};

struct tar_xattr {
	const char *name; /* "user.x" */
	const void *value;
	size_t len;
};

struct tar_entry {
	enum tar_type type;
	const char *name; /* any bytes but NUL, no slash at the end; read: not checked for ".." */
	const char *target;	/* of a link, else NULL */
	uint64_t size;		/* of the data that follows; files only */
	uint32_t mode, uid, gid; /* mode: 07777 */
	int64_t mtime_sec;
	uint32_t mtime_nsec;
	const struct tar_xattr *xattrs;
	size_t n_xattrs;
};

/* Appends the header. What follows is e->size bytes and tar_put_pad(). Refuses names and attributes
 * that the reader would refuse. */
int tar_put_entry(struct buf *b, const struct tar_entry *e, struct den_err *err);
void tar_put_pad(struct buf *b, uint64_t size);
void tar_put_end(struct buf *b);

/* Called from tar_reader_feed(); -1 with *err set stops the reading. What they are given is valid
 * during the call. After entry: data (never empty) until entry->size bytes came, then end. */
struct tar_ops {
	int (*entry)(const struct tar_entry *e, void *user, struct den_err *err);
	int (*data)(const void *p, size_t n, void *user, struct den_err *err);
	int (*end)(void *user, struct den_err *err);
};

struct tar_reader;
struct tar_reader *tar_reader_new(const struct tar_ops *ops, void *user);
/* The next bytes of the archive, cut anywhere. What follows the end mark is ignored. After a
 * failure it fails for good. */
int tar_reader_feed(struct tar_reader *r, const void *p, size_t n, struct den_err *err);
/* No more bytes: -1 when the archive is not complete. */
int tar_reader_finish(struct tar_reader *r, struct den_err *err);
bool tar_reader_ended(const struct tar_reader *r); /* the end mark was seen */
void tar_reader_free(struct tar_reader *r);	   /* NULL is allowed */

/* A name that a stranger made, cut and made harmless for a message or a terminal. */
struct tar_shown {
	char s[72];
};
struct tar_shown tar_show(const char *name);
