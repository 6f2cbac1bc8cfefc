/*
 * File operations travel as execs of functions that init has built in (EXEC_BUILTIN). So they run
 * in a process of their own inside the box, as the user asked for, under the box's limits, with the
 * same streams, credit, timeout and kill as any program; and no host path is ever resolved with
 * links that the box made.
 *
 *   argv                                   stdin     stdout
 *   read    PATH OFFSET LENGTH             -         the bytes; LENGTH "" means to the end
 *   write   PATH MODE FLAGS PREFIX K=V...  the bytes -           FLAGS: a atomic replace, p make parents. PREFIX: of
 *                                                                extended attributes, which are then those given
 *   stat    PATH FLAGS PREFIX              -         one record  FLAGS: l do not follow a last link. PREFIX: of the
 *                                                                extended attributes to tell; absent: none
 *   list    PATH DEPTH FLAGS PREFIX        -         a record per entry, sorted, depth first. FLAGS: f links are told
 *                                                                as what they lead to
 *   mkdir   PATH MODE FLAGS                -         -           FLAGS: p parents, existing is fine
 *   move    FROM TO FLAGS                  -         -           FLAGS: n do not replace, p make parents
 *   remove  PATH FLAGS                     -         -           FLAGS: r recursive, f missing is fine
 *   chmod   PATH MODE FLAGS                -         -           FLAGS: r recursive
 *   chown   PATH USER[:GROUP] FLAGS        -         -           FLAGS: r recursive, l the link itself
 *   watch   PATH FLAGS                     end: stop a record per event, first one empty: watching
 *                                                                FLAGS: r recursive
 *   tarout  PATH FLAGS                     -         tar         FLAGS: c contents only (no top name)
 *   tarin   PATH FLAGS                     tar       -           FLAGS: p make PATH, w a layer: .wh.X removes X,
 *                                                                and stdout has how many attributes could not be set
 *
 * MODE is octal; "" leaves the default. A record is a u32 length (little-endian) and fields.
 * Success is exit status 0. Failure is exit status 1 with wire_put_err() fields on stderr.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "buf.h"
#include "err.h"

#define FSOP_RECORD_MAX (64U << 10)
#define FSOP_XATTRS_MAX (40U << 10) /* bytes of extended attributes in a record; the others are left out */
#define FSOP_XATTR_PREFIX "user."   /* what a prefix of theirs begins with */

enum fs_type {
	FS_UNKNOWN,
	FS_FILE,
	FS_DIR,
	FS_LINK,
	FS_FIFO,
	FS_SOCKET,
	FS_CHAR,
	FS_BLOCK,
	FS_TYPES
};
extern const char *const fs_type_str[FS_TYPES];

enum fs_event { FS_EV_NONE, FS_EV_CREATE, FS_EV_WRITE, FS_EV_REMOVE, FS_EV_RENAME, FS_EV_CHMOD,
	FS_EV_LOST, /* the queue overflowed: look again at everything */
	FS_EVENTS };
extern const char *const fs_event_str[FS_EVENTS];

/* path: for stat as asked; for list and watch relative to PATH. It is made by the box: any bytes
 * but NUL. */
struct fs_entry {
	/* user, group: names in the box, NULL when it has none */
	char *path, *target, *user, *group;
	char *real; /* of a link: where it leads in the end; NULL: nowhere */
	char **xattrs; /* "K=V" */
	enum fs_type type;
	enum fs_event event;
	uint64_t mode, uid, gid, size, ino, nlink;
	bool link; /* it is one, and the rest tells of what it leads to */
	uint64_t link_mode;
	int64_t mtime_ns;
};
void fs_entry_put(struct buf *b, const struct fs_entry *e); /* a whole record, with its length */
/* 1: *ret set, *used bytes taken; 0: more bytes needed; -1: malformed */
int fs_entry_get(const char *p, size_t n, struct fs_entry *ret, size_t *used, struct den_err *err);
void fs_entry_free(struct fs_entry *e);
