/*
 * Layers as btrfs subvolumes, by the kernel's own calls.
 *
 * What is on disk when: a snapshot is made inside a transaction's commit, which is waited for;
 * before it, the kernel writes out what is dirty in the source. Making and renaming are followed by
 * fsync() of the parent: a directory in which a subvolume came or went is synced by a commit. (Not
 * by START_SYNC and WAIT_SYNC: with several at once the kernel's committer can miss its call, and
 * 30 s pass.) Destroying is not waited for: after a power cut the half-removed name is swept again.
 */
#include <dirent.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/btrfs.h>
#include <linux/btrfs_tree.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "fd.h"
#include "mem.h"
#include "pool_kinds.h"

#define SEARCH_BYTES (64U << 10) /* no item is larger */
#define LINEAGE_MAX 64
#define TRIM_MIN (64U << 10)
#define CLEAN_TRIES 250 /* of 20 ms */
#define DESTROY_TRIES 4

bool pool_is_btrfs(int fd)
{
	struct statfs fs;

	return fstatfs(fd, &fs) == 0 && fs.f_type == BTRFS_SUPER_MAGIC;
}

static bool is_subvol(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && st.st_ino == BTRFS_FIRST_FREE_OBJECTID && pool_is_btrfs(fd);
}

/* ---- making ---- */

static int subvol_create(int dirfd, const char *name)
{
	struct btrfs_ioctl_vol_args args = { 0 };

	snprintf(args.name, sizeof(args.name), "%s", name);
	return ioctl(dirfd, BTRFS_IOC_SUBVOL_CREATE, &args);
}

static int subvol_destroy(int dirfd, const char *name)
{
	struct btrfs_ioctl_vol_args args = { 0 };
	int r;

	snprintf(args.name, sizeof(args.name), "%s", name);
	r = ioctl(dirfd, BTRFS_IOC_SNAP_DESTROY, &args);
	/* To remove takes room for a moment, too: a commit makes some of what was removed
	 * before. */
	for (int i = 0;
		r < 0 && errno == ENOSPC && i < DESTROY_TRIES && ioctl(dirfd, BTRFS_IOC_SYNC) == 0;
		i++)
		r = ioctl(dirfd, BTRFS_IOC_SNAP_DESTROY, &args);
	return r;
}

static int subvol_snapshot(int from, int dirfd, const char *name, bool readonly)
{
	struct btrfs_ioctl_vol_args_v2 args = { .fd = from,
		.flags = readonly ? BTRFS_SUBVOL_RDONLY : 0 };

	snprintf(args.name, sizeof(args.name), "%s", name);
	return ioctl(dirfd, BTRFS_IOC_SNAP_CREATE_V2, &args);
}

int pool_btrfs_probe(int dirfd, struct den_err *err)
{
	char name[32];

	if (pool_temp_name(POOL_NEW, name, err) < 0)
		return -1;
	if (subvol_create(dirfd, name) < 0)
		return den_fail_sys(err, errno, "make a subvolume");
	if (subvol_destroy(dirfd, name) <
		0) { /* without the rights for that, the pool would only grow */
		int sys = errno;

		unlinkat(dirfd, name, AT_REMOVEDIR);
		return den_fail_sys(err, sys, "remove a subvolume");
	}
	return 0;
}

static int btrfs_make(struct pool *p, const struct pool_spot *at, struct den_err *err)
{
	if (subvol_create(at->dirfd, at->name) < 0)
		return den_fail_sys(err, errno, "make a subvolume");
	if (fchmodat(at->dirfd, at->name, 0755, 0) < 0 || fsync(at->dirfd) < 0) {
		int sys = errno;

		subvol_destroy(at->dirfd, at->name);
		return den_fail_sys(err, sys, "make a subvolume");
	}
	return 0;
}

static int btrfs_snapshot(struct pool *p, const struct pool_source *from,
	const struct pool_source *like, const struct pool_spot *to, bool readonly,
	struct den_err *err)
{
	if (!is_subvol(from->fd))
		return den_fail(err, DEN_INVALID, 0, "'%s' is no layer", from->name);
	if (subvol_snapshot(from->fd, to->dirfd, to->name, readonly) < 0)
		return den_fail_sys(err, errno, "snapshot");
	return 0;
}

static int btrfs_rename(struct pool *p, const struct pool_spot *from, const struct pool_spot *to,
	struct den_err *err)
{
	auto_fd fd = -1;

	if (pool_rename_new(from->dirfd, from->name, to->dirfd, to->name) == 0)
		return fsync(to->dirfd) < 0 || fsync(from->dirfd) < 0
			       ? den_fail_sys(err, errno, "sync")
			       : 0;
	if (errno != EROFS)
		return den_fail_sys(err, errno, "rename");
	/* What is read-only cannot get another parent. A snapshot of it can, and is whole at
	 * once. */
	fd = openat(from->dirfd, from->name, POOL_OPEN_DIR);
	if (fd < 0 || !is_subvol(fd) || subvol_snapshot(fd, to->dirfd, to->name, true) < 0)
		return den_fail_sys(err, errno, "rename");
	if (subvol_destroy(from->dirfd, from->name) < 0)
		return den_fail_sys(err, errno, "rename: remove the old one");
	return fsync(from->dirfd) < 0 ? den_fail_sys(err, errno, "sync") : 0;
}

static int btrfs_seal(struct pool *p, int fd, struct den_err *err)
{
	uint64_t flags = 0;

	if (!is_subvol(fd))
		return den_fail(err, DEN_INVALID, 0, "no layer");
	if (syncfs(fd) < 0 || ioctl(fd, BTRFS_IOC_SUBVOL_GETFLAGS, &flags) < 0)
		return den_fail_sys(err, errno, "write it out");
	flags |= BTRFS_SUBVOL_RDONLY;
	if (ioctl(fd, BTRFS_IOC_SUBVOL_SETFLAGS, &flags) < 0)
		return den_fail_sys(err, errno, "make it read-only");
	return 0; /* it waits for the commit itself */
}

/* ---- removing ---- */

/* A layer goes in one call; a directory of layers after them. Deeper than a name of the pool there
 * is nothing that is not in a layer. */
static int destroy_at(int dirfd, const char *name, int depth, struct den_err *err)
{
	auto_fd fd = openat(dirfd, name, POOL_OPEN_DIR);
	struct dirent *de;
	int r = 0, copy;
	DIR *d;

	if (fd < 0)
		return errno == ENOENT ? 0 : tree_remove_at(dirfd, name, err);
	if (is_subvol(fd)) {
		if (subvol_destroy(dirfd, name) < 0 && errno != ENOENT)
			return den_fail_sys(err, errno, "destroy '%s'", name);
		return 0;
	}
	if (depth == 0)
		return tree_remove_at(dirfd, name, err);
	copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	d = copy < 0 ? NULL : fdopendir(copy);
	if (!d) {
		r = den_fail_sys(err, errno, "read '%s'", name);
		fd_close(&copy);
		return r;
	}
	while (r == 0 && (de = readdir(d)))
		if (strcmp(de->d_name, ".") && strcmp(de->d_name, ".."))
			r = destroy_at(fd, de->d_name, depth - 1, err);
	closedir(d);
	if (r == 0 && unlinkat(dirfd, name, AT_REMOVEDIR) < 0 && errno != ENOENT)
		return den_fail_sys(err, errno, "remove '%s'", name);
	return r;
}

static int btrfs_destroy(struct pool *p, const struct pool_spot *at, struct den_err *err)
{
	return destroy_at(at->dirfd, at->name, 2, err);
}

/* ---- searching the file system's trees ---- */

/* Calls fn with each item of a range until it returns non-zero; that is returned, 0 at the end,
 * -1. */
static int search_each(int fd, const struct btrfs_ioctl_search_key *range,
	int (*fn)(const struct btrfs_ioctl_search_header *h, const void *item, void *user),
	void *user)
{
	auto_free struct btrfs_ioctl_search_args_v2 *s = mem_zalloc(sizeof(*s) + SEARCH_BYTES);
	struct btrfs_ioctl_search_key *k = &s->key;

	*k = *range;
	for (;;) {
		struct btrfs_ioctl_search_header h = { 0 };
		const uint8_t *at = s->buf;
		int r;

		k->nr_items = UINT32_MAX;
		s->buf_size = SEARCH_BYTES;
		if (ioctl(fd, BTRFS_IOC_TREE_SEARCH_V2, s) < 0)
			return -1;
		if (k->nr_items == 0)
			return 0;
		for (uint32_t i = 0; i < k->nr_items; i++) {
			memcpy(&h, at, sizeof(h));
			at += sizeof(h);
			r = fn(&h, at, user);
			if (r)
				return r;
			at += h.len;
		}
		/* go on behind the last: the three parts are one long number */
		k->min_objectid = h.objectid;
		k->min_type = h.type;
		k->min_offset = h.offset + 1;
		if (k->min_offset == 0 && ++k->min_type > UINT8_MAX) {
			k->min_type = 0;
			if (++k->min_objectid == 0)
				return 0;
		}
	}
}

int pool_btrfs_search(int fd, const struct btrfs_ioctl_search_key *range,
	int (*fn)(const struct btrfs_ioctl_search_header *h, const void *item, void *user),
	void *user)
{
	return search_each(fd, range, fn, user);
}

static int any_item(const struct btrfs_ioctl_search_header *h, const void *item, void *user)
{
	return 1;
}

struct newer {
	uint64_t than;
	uint64_t skip[32]; /* inodes */
	size_t n_skip;
};

static int item_newer(const struct btrfs_ioctl_search_header *h, const void *item, void *user)
{
	const struct newer *q = user;
	struct btrfs_inode_item inode;

	if (h->type != BTRFS_INODE_ITEM_KEY || h->len < sizeof(inode))
		return 0;
	memcpy(&inode, item, sizeof(inode));
	for (size_t i = 0; i < q->n_skip; i++)
		if (q->skip[i] == h->objectid)
			return 0;
	return le64toh(inode.transid) > q->than;
}

/* overlayfs makes its working directories anew at each mount: that is no change. */
static void skip_work(int fd, struct newer *q)
{
	for (int t = 0; q->n_skip + 2 <= ARRAY_SIZE(q->skip); t++) {
		char name[16];
		struct stat st;

		snprintf(name, sizeof(name), "w%d", t);
		if (fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			return;
		q->skip[q->n_skip++] = st.st_ino;
		snprintf(name, sizeof(name), "w%d/work", t);
		if (fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0)
			q->skip[q->n_skip++] = st.st_ino;
	}
}

/*
 * Is an inode in this snapshot newer than transaction `than`? Whatever changes changes an inode: a
 * directory's, where a name comes or goes. That a block is newer is not enough: taking a snapshot
 * writes the tree's root anew, and in a small tree the root is all there is. But a block that is
 * not newer holds nothing new, so the search costs what was changed.
 */
static int newer_than(int fd, uint64_t than)
{
	struct btrfs_ioctl_search_key k = { .max_objectid = UINT64_MAX,
		.max_offset = UINT64_MAX,
		.max_type = UINT32_MAX,
		.min_transid = than + 1,
		.max_transid = UINT64_MAX };

	struct newer q = { .than = than };

	skip_work(fd, &q);
	return search_each(fd, &k, item_newer, &q);
}

/* ---- comparing ---- */

struct origin {
	uint8_t uuid[BTRFS_UUID_SIZE], parent[BTRFS_UUID_SIZE];
	uint64_t made; /* the transaction */
	bool sealed;   /* origin_by_uuid() */
};

static int origin_of(int fd, struct origin *ret)
{
	struct btrfs_ioctl_get_subvol_info_args info = { 0 };

	if (ioctl(fd, BTRFS_IOC_GET_SUBVOL_INFO, &info) < 0)
		return -1;
	memcpy(ret->uuid, info.uuid, sizeof(ret->uuid));
	memcpy(ret->parent, info.parent_uuid, sizeof(ret->parent));
	ret->made = info.otransid;
	return 0;
}

static int take_id(const struct btrfs_ioctl_search_header *h, const void *item, void *user)
{
	if (h->len < sizeof(uint64_t))
		return 0;
	memcpy(user, item, sizeof(uint64_t));
	*(uint64_t *)user = le64toh(*(uint64_t *)user);
	return 1;
}

static int take_root(const struct btrfs_ioctl_search_header *h, const void *item, void *user)
{
	struct btrfs_root_item root;
	struct origin *o = user;

	if (h->type != BTRFS_ROOT_ITEM_KEY || h->len < offsetof(struct btrfs_root_item, stransid))
		return 0;
	memset(&root, 0, sizeof(root));
	memcpy(&root, item, MIN(h->len, sizeof(root)));
	memcpy(o->uuid, root.uuid, sizeof(o->uuid));
	memcpy(o->parent, root.parent_uuid, sizeof(o->parent));
	o->made = le64toh(root.otransid);
	o->sealed = le64toh(root.flags) & BTRFS_ROOT_SUBVOL_RDONLY;
	return 1;
}

/* The subvolume with a uuid, by the tree that btrfs keeps for that. 1: found; 0: gone. */
static int origin_by_uuid(int fd, const uint8_t uuid[static BTRFS_UUID_SIZE], struct origin *ret)
{
	struct btrfs_ioctl_search_key k = { .tree_id = BTRFS_UUID_TREE_OBJECTID,
		.min_type = BTRFS_UUID_KEY_SUBVOL,
		.max_type = BTRFS_UUID_KEY_SUBVOL,
		.max_transid = UINT64_MAX };
	uint64_t half[2], id;

	memcpy(half, uuid, sizeof(half));
	k.min_objectid = k.max_objectid = le64toh(half[0]);
	k.min_offset = k.max_offset = le64toh(half[1]);
	if (search_each(fd, &k, take_id, &id) <= 0)
		return 0;
	k = (struct btrfs_ioctl_search_key){ .tree_id = BTRFS_ROOT_TREE_OBJECTID,
		.min_objectid = id,
		.max_objectid = id,
		.min_type = BTRFS_ROOT_ITEM_KEY,
		.max_type = BTRFS_ROOT_ITEM_KEY,
		.max_offset = UINT64_MAX,
		.max_transid = UINT64_MAX };
	return search_each(fd, &k, take_root, ret) > 0;
}

/* Does b stem from what a is a copy of, from no earlier a time? Then all that a has not, and b has,
 * is newer in b than *since. An earlier time is as good where what both are copies of is never
 * written to. */
static bool stems_from(int fd, const struct origin *a, const struct origin *b, uint64_t *since)
{
	static const uint8_t none[BTRFS_UUID_SIZE];
	struct origin x = *b;

	*since = a->made;
	for (int i = 0; i < LINEAGE_MAX && memcmp(x.parent, none, sizeof(none)); i++) {
		uint8_t parent[BTRFS_UUID_SIZE];

		if (!memcmp(x.parent, a->uuid, sizeof(none)))
			return true;
		if (!memcmp(x.parent, a->parent, sizeof(none))) {
			struct origin both = { 0 };

			*since = MIN(x.made, a->made);
			return x.made >= a->made ||
			       (origin_by_uuid(fd, a->parent, &both) && both.sealed);
		}
		memcpy(parent, x.parent, sizeof(parent));
		if (!origin_by_uuid(fd, parent, &x))
			return false;
	}
	return false;
}

static int btrfs_differs(struct pool *p, int a, int b, struct den_err *err)
{
	struct origin from = { 0 }, to = { 0 };
	uint64_t since;

	if (origin_of(a, &from) < 0 || origin_of(b, &to) < 0)
		return 1;
	if (!memcmp(from.uuid, to.uuid, sizeof(from.uuid)))
		return 0;
	if (!stems_from(p->fd, &from, &to, &since))
		return 1;
	/* a itself may have been written to before it was sealed: then `made` tells too little */
	return newer_than(a, from.made) != 0 || newer_than(b, since) != 0;
}

/* ---- space ---- */

/*
 * A new file system has 8 MiB for its own trees, and takes more as it needs it, from what no data
 * has taken yet. Boxes that fill it up before that leave no room for a single name more, not even
 * by removing files. Rewriting the trees while all is free gives them room of the usual size (a
 * tenth, at most
 * 256 MiB or 1 GiB), for good.
 */
void pool_btrfs_prepare(int fd)
{
	struct btrfs_ioctl_balance_args args = { .flags = BTRFS_BALANCE_METADATA };

	(void)!ioctl(fd, BTRFS_IOC_BALANCE_V2,
		&args); /* without it the pool works as well, until full */
}

/* They are taken apart in the background; those that wait for it are listed. */
bool pool_btrfs_cleans(int fd)
{
	struct btrfs_ioctl_search_key k = { .tree_id = BTRFS_ROOT_TREE_OBJECTID,
		.min_objectid = BTRFS_ORPHAN_OBJECTID,
		.max_objectid = BTRFS_ORPHAN_OBJECTID,
		.min_type = BTRFS_ORPHAN_ITEM_KEY,
		.max_type = BTRFS_ORPHAN_ITEM_KEY,
		.max_offset = UINT64_MAX,
		.max_transid = UINT64_MAX };

	return search_each(fd, &k, any_item, NULL) > 0;
}

int pool_btrfs_trim(int fd, struct den_err *err)
{
	struct fstrim_range range = { .len = UINT64_MAX, .minlen = TRIM_MIN };

	for (int i = 0; i < CLEAN_TRIES && (i == 0 || pool_btrfs_cleans(fd));
		i++) { /* no event tells */
		if (i % 25 == 0 &&
			ioctl(fd, BTRFS_IOC_SYNC) < 0) /* wakes the one who takes them apart */
			return den_fail_sys(err, errno, "sync");
		nanosleep(&(struct timespec){ .tv_nsec = i == 0 ? 0 : 20 * 1000000L }, NULL);
	}
	/* What was freed in a transaction may be reused, and given back, after it. */
	if (syncfs(fd) < 0)
		return den_fail_sys(err, errno, "sync");
	if (ioctl(fd, FITRIM, &range) < 0 && errno != EOPNOTSUPP)
		return den_fail_sys(err, errno, "trim");
	return 0;
}

const struct pool_ops pool_btrfs = {
	.make = btrfs_make,
	.snapshot = btrfs_snapshot,
	.rename = btrfs_rename,
	.seal = btrfs_seal,
	.destroy = btrfs_destroy,
	.differs = btrfs_differs,
};
