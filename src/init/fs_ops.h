/* Shared by the files of the built-in file operations; nobody else includes it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "buf.h"
#include "err.h"
#include "fsop.h"
#include "users.h"

#define FS_CHUNK (128U << 10)
#define FS_XATTRS_MAX 64 /* that one write may set */

/* Each gets the arguments after its name; of the first four those not given are "", then NULL ends them. Flags
 * are checked before. */
int fs_read(char *const *arg, struct den_err *err);
int fs_write(char *const *arg, struct den_err *err);
int fs_stat(char *const *arg, struct den_err *err);
int fs_list(char *const *arg, struct den_err *err);
int fs_mkdir(char *const *arg, struct den_err *err);
int fs_move(char *const *arg, struct den_err *err);
int fs_remove(char *const *arg, struct den_err *err);
int fs_chmod(char *const *arg, struct den_err *err);
int fs_chown(char *const *arg, struct den_err *err);
int fs_watch(char *const *arg, struct den_err *err);
int fs_tarout(char *const *arg, struct den_err *err);
int fs_tarin(char *const *arg, struct den_err *err);

/* fs.c */
bool fs_flag(const char *flags, char c);
/* Octal text; "" gives instead. */
int fs_mode(const char *text, mode_t instead, mode_t *ret, struct den_err *err);
/* A path as the directory it is in (O_PATH) and the name there; links on the way are followed, the
 * name is never "", "." or "..". The caller closes *dirfd. */
int fs_split(const char *path, int *dirfd, char base[static 256], struct den_err *err);
int fs_mkdir_parents(const char *path, struct den_err *err); /* of path, not itself */
/* Makes what happened in a directory (which may be open with O_PATH) last. */
int fs_sync_dir(int dirfd, struct den_err *err);
int fs_read_some(int fd, void *buf, size_t cap, size_t *ret, struct den_err *err);

/* fs_xattr.c */
int fs_xattr_check(const char *prefix, char *const *pairs, struct den_err *err); /* pairs may be NULL */
/* The file has these ("K=V") and no others with the prefix. */
int fs_xattr_replace(int fd, const char *prefix, char *const *pairs, struct den_err *err);
/* Those with the prefix, "K=V"; what has a NUL or does not fit a record is left out. fd may be O_PATH. Strv. */
char **fs_xattr_read(int fd, const char *prefix);

/* fs_look.c: records on standard output */
struct fs_out {
	struct buf buf;
	struct user_names *names; /* NULL: numbers only */
};
int fs_out_entry(struct fs_out *o, const struct fs_entry *e, struct den_err *err);
int fs_out_flush(struct fs_out *o, struct den_err *err);
void fs_out_free(struct fs_out *o);
