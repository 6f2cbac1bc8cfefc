/* Between the files of the pool: pool.c asks, a kind answers. */
#pragma once

#include <sys/stat.h>

#include "buf.h"
#include "fd.h"
#include "pool.h"

#define POOL_CONF "pool.conf"
#define POOL_LOCK "pool.lock"
#define POOL_IMAGE "pool.img"
#define POOL_DIR "pool"
#define POOL_BALLAST ".full" /* pool_room.c */

/* Half-made and half-removed, followed by random digits. Who makes one holds a lock on it. */
#define POOL_NEW ".new."
#define POOL_GONE ".gone."

/* Where a name is, or is to be. */
struct pool_spot {
	int dirfd; /* its parent */
	char name[256];
	bool made; /* the parent is new */
};
static inline void pool_spot_close(struct pool_spot *s)
{
	fd_close(&s->dirfd);
}
#define auto_spot __attribute__((cleanup(pool_spot_close))) struct pool_spot

struct pool_source {
	int fd;		  /* the layer */
	const char *name; /* in the pool */
};

struct pool_ops {
	int (*make)(struct pool *p, const struct pool_spot *at, struct den_err *err);
	/* like->fd < 0: none */
	int (*snapshot)(struct pool *p, const struct pool_source *from,
		const struct pool_source *like, const struct pool_spot *to, bool readonly,
		struct den_err *err);
	/* to does not exist */
	int (*rename)(struct pool *p, const struct pool_spot *from, const struct pool_spot *to,
		struct den_err *err);
	int (*seal)(struct pool *p, int fd, struct den_err *err);
	/* Frees what has a half-removed name. */
	int (*destroy)(struct pool *p, const struct pool_spot *at, struct den_err *err);
	int (*differs)(struct pool *p, int a, int b, struct den_err *err);
};
extern const struct pool_ops pool_btrfs, pool_plain;

#define POOL_OPEN_DIR (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

/* ---- pool.c */
/* The parent of a name; with create it is made when missing. DEN_NOT_FOUND without. */
int pool_spot_find(
	struct pool *p, const char *name, bool create, struct pool_spot *ret, struct den_err *err);
/* After a failure: says so if it is because the whole pool has become read-only. Always -1. */
int pool_explain(struct pool *p, struct den_err *err);
/* A new name in dirfd: prefix and random digits. */
int pool_temp_name(const char *prefix, char out[static 32], struct den_err *err);
/* rename() that replaces nothing, also where the file system cannot say so itself. -1: errno */
int pool_rename_new(int from_dir, const char *from, int to_dir, const char *to);

/* ---- pool_image.c */
/* Can this host have an image at all? DEN_UNSUPPORTED says what is missing. */
int pool_image_probe(struct den_err *err);
/* STATE/pool.img of this size; it gets its name when it is whole. */
int pool_image_make(int statefd, uint64_t size, struct den_err *err);
/* Mounts it at STATE/pool in a mount namespace of our own, unless it is there already. lock:
 * pool.lock, held. */
int pool_image_mount(struct pool *p, const char *state_path, int lock, struct den_err *err);
int pool_image_resize(struct pool *p, int lock, uint64_t size, struct den_err *err);

/* ---- pool_btrfs.c */
bool pool_is_btrfs(int fd);
/* Do subvolumes work in this directory for this process? */
int pool_btrfs_probe(int dirfd, struct den_err *err);
/* Once, after it was made: sets space for the trees aside. */
void pool_btrfs_prepare(int fd);
int pool_btrfs_trim(int fd, struct den_err *err);
/* Are there destroyed subvolumes that the kernel has not taken apart yet? */
bool pool_btrfs_cleans(int fd);
struct btrfs_ioctl_search_key;
struct btrfs_ioctl_search_header;
/* Calls fn with each item of a range until it returns non-zero; that is returned, 0 at the end,
 * -1. */
int pool_btrfs_search(int fd, const struct btrfs_ioctl_search_key *range,
	int (*fn)(const struct btrfs_ioctl_search_header *h, const void *item, void *user),
	void *user);

/* ---- pool_room.c */
/* What btrfs's own trees lie in gets its blocks on the host; gives how many bytes that are. */
uint64_t pool_room_keep(struct pool *p);

/* ---- pool_copy.c: one file */
struct pool_copy {
	bool reflink;  /* try to share extents */
	char *buffer;  /* for copying by hand */
	struct buf names, value; /* xattrs */
};
void pool_copy_free(struct pool_copy *c);
/* st: of the source, looked at before. Makes `name` in `to`, which is a new directory of ours. */
int pool_copy_entry(struct pool_copy *c, int from, const char *name, const struct stat *st, int to,
	struct den_err *err);
/* xattrs of a directory; name "": of the descriptors themselves. */
int pool_copy_xattrs(struct pool_copy *c, int from, int to, const char *name, struct den_err *err);
/* Owner, mode and times of a directory, when all in it is done. */
int pool_copy_dir_meta(int fd, const struct stat *st, struct den_err *err);

/* ---- pool_index.c: which inode in which state became which path */
#define POOL_INDEX ".index"

struct pool_inode {
	uint64_t ino, ctime; /* ns */
	size_t path;	     /* offset in paths */
};
struct pool_index {
	struct pool_inode *slots;
	size_t n, cap;
	struct buf paths;
	char *origin; /* the layer it was copied from */
};
uint64_t pool_ctime(const struct stat *st);
/* The first to have an inode stays. DEN_LIMIT: more than could be meant well. */
int pool_index_add(
	struct pool_index *x, uint64_t ino, uint64_t ctime, const char *path, struct den_err *err);
/* Its path, or NULL. */
const char *pool_index_find(const struct pool_index *x, uint64_t ino, uint64_t *ret_ctime);
/* Without the entries that changed so short ago that a later change could look the same. */
int pool_index_save(const struct pool_index *x, int dirfd, const char *origin, struct den_err *err);
/* Of a layer. No index, or none that can be read: it stays empty. */
void pool_index_load(struct pool_index *x, int dirfd);
void pool_index_free(struct pool_index *x);
/* Does a change to a file always show in its ctime here, mapped memory included? */
bool pool_index_safe(int fd);

/* ---- pool_print.c */
uint64_t pool_hash(uint64_t h, const void *p, size_t n);
