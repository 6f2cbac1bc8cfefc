/*
 * Room below the pool's image.
 *
 * The image is sparse, so the file system in it believes in blocks that the host may not have. When a
 * write to one fails, a file's content is lost, and where it was a block of btrfs's own trees, btrfs
 * stops writing for good. Neither may happen, so:
 *
 *   - what the trees lie in is allocated on the host, always: pool_room_keep(). They take it anyway,
 *     sooner or later; removing and mounting then work on a host without a single free block.
 *   - what is free in the pool is never more than the host has. Where it would be, since others filled
 *     the disk, a file takes the difference, without a block of the host's: the ballast. btrfs sets
 *     space aside when a program writes, not when it writes it out, so boxes are told that the disk is
 *     full as on any disk, and in time.
 *
 * Ballast is not put where something was freed just now: those blocks are the host's again only when
 * they have been free for btrfs, too, and were trimmed.
 *
 * Whoever has the pool open looks from time to time: the sooner, the less is left. What another program
 * takes between two looks, beyond ROOM_LOW, can be missing for what boxes wrote in the last moments.
 */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/btrfs.h>
#include <linux/btrfs_tree.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "fd.h"
#include "mem.h"
#include "pool_kinds.h"

#define ROOM_LOW (64ULL << 20) /* the host keeps so much */
#define ROOM_STEP (8ULL << 20) /* a smaller difference is none */
#define ROOM_PER_MS (2ULL << 20) /* what others may write at most */
#define TIGHT_MS 500
#define LOOK_MAX_MS 60000
#define TRIM_EVERY_S 5
#define BALLAST_UNIT (64ULL << 10)
#define BALLAST_TRIES 24

/* ---- the trees ---- */

struct trees {
	int image;
	uint64_t bytes;
};

static int chunk_keep(const struct btrfs_ioctl_search_header *h, const void *item, void *user)
{
	struct trees *t = user;
	struct btrfs_chunk c;
	struct btrfs_stripe s;
	uint64_t len;

	if (h->type != BTRFS_CHUNK_ITEM_KEY || h->len < sizeof(c))
		return 0;
	memcpy(&c, item, sizeof(c));
	if (!(le64toh(c.type) & (BTRFS_BLOCK_GROUP_METADATA | BTRFS_BLOCK_GROUP_SYSTEM)))
		return 0;
	len = le64toh(c.length);
	for (unsigned i = 0; i < le16toh(c.num_stripes); i++) {
		size_t at = offsetof(struct btrfs_chunk, stripe) + i * sizeof(s);

		if (at + sizeof(s) > h->len)
			break;
		memcpy(&s, (const char *)item + at, sizeof(s));
		/* one copy or two: each stripe is as long as the chunk. What is there already costs nothing. */
		t->bytes += len;
		while (fallocate(t->image, FALLOC_FL_KEEP_SIZE, (off_t)le64toh(s.offset), (off_t)len) < 0)
			if (errno != EINTR)
				break; /* full, or a file system that cannot: as it was */
	}
	return 0;
}

uint64_t pool_room_keep(struct pool *p)
{
	struct btrfs_ioctl_search_key k = { .tree_id = BTRFS_CHUNK_TREE_OBJECTID,
		.min_objectid = BTRFS_FIRST_CHUNK_TREE_OBJECTID,
		.max_objectid = BTRFS_FIRST_CHUNK_TREE_OBJECTID,
		.min_type = BTRFS_CHUNK_ITEM_KEY,
		.max_type = BTRFS_CHUNK_ITEM_KEY,
		.max_offset = UINT64_MAX,
		.max_transid = UINT64_MAX };
	struct trees t = { .image = -1 };

	if (!p->image)
		return 0;
	t.image = openat(p->statefd, POOL_IMAGE, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
	if (t.image >= 0)
		(void)pool_btrfs_search(p->fd, &k, chunk_keep, &t);
	fd_close(&t.image);
	return t.bytes;
}

/* ---- the rest ---- */

struct room {
	uint64_t host;	  /* free there */
	uint64_t free;	  /* in the pool */
	uint64_t ballast; /* already */
	uint64_t used;	  /* in the pool, ballast aside */
};

static int room_measure(struct pool *p, struct room *ret)
{
	struct statvfs host, fs;
	struct stat st;

	if (fstatvfs(p->statefd, &host) < 0 || fstatvfs(p->fd, &fs) < 0)
		return -1;
	if (fstatat(p->fd, POOL_BALLAST, &st, AT_SYMLINK_NOFOLLOW) < 0)
		st.st_size = 0;
	*ret = (struct room){ .host = (uint64_t)host.f_bavail * host.f_frsize,
		.free = (uint64_t)fs.f_bavail * fs.f_frsize,
		.ballast = (uint64_t)st.st_size,
		.used = (uint64_t)(fs.f_blocks - fs.f_bfree) * fs.f_frsize - (uint64_t)st.st_size };
	return 0;
}

/* How much ballast there has to be. */
static uint64_t room_excess(const struct room *r)
{
	uint64_t there = r->free + r->ballast;

	if (r->host < ROOM_LOW)
		return there;
	return there + ROOM_LOW > r->host ? there + ROOM_LOW - r->host : 0;
}

/* Gives the host what is free in the image and still has blocks there, if that is worth it. */
static void room_trim(struct pool *p, const struct room *r)
{
	static time_t last;
	uint64_t trees = pool_room_keep(p);
	struct stat st;

	if (fstatat(p->statefd, POOL_IMAGE, &st, AT_SYMLINK_NOFOLLOW) < 0 || time(NULL) < last + TRIM_EVERY_S ||
		(uint64_t)st.st_blocks * 512 < r->used + trees + 4 * ROOM_STEP)
		return;
	(void)pool_trim(p, NULL);
	last = time(NULL);
}

/* Asked for in pieces: what is free may not be free in one, and is less than it is said to be. */
static void ballast_grow(int fd, uint64_t at, uint64_t to)
{
	uint64_t want = to - at;

	for (int i = 0; i < BALLAST_TRIES && at < to; i++) {
		want = MIN(want, to - at) & ~(BALLAST_UNIT - 1);
		if (!want)
			return;
		if (fallocate(fd, 0, (off_t)at, (off_t)want) == 0)
			at += want;
		else if (errno == ENOSPC)
			want /= 2;
		else if (errno != EINTR)
			return;
	}
}

/* One at a time; who comes second has nothing to add. */
static void ballast_set(struct pool *p, struct room *r)
{
	auto_fd fd = openat(p->fd, POOL_BALLAST, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	uint64_t excess;

	if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0 || room_measure(p, r) < 0)
		return;
	if (room_excess(r) > r->ballast) {
		room_trim(p, r);
		if (room_measure(p, r) < 0)
			return;
	}
	excess = room_excess(r);
	if (excess > r->ballast)
		ballast_grow(fd, r->ballast, excess);
	else if (!excess)
		unlinkat(p->fd, POOL_BALLAST, 0);
	else
		(void)!ftruncate(fd, (off_t)(excess & ~(BALLAST_UNIT - 1)));
}

int pool_room(struct pool *p)
{
	uint64_t excess, slack;
	struct room r;

	if (!p->image || room_measure(p, &r) < 0)
		return LOOK_MAX_MS;
	excess = room_excess(&r);
	if (excess > r.ballast ? r.free > 0 && excess - r.ballast > MIN(ROOM_STEP, r.free / 2) :
				 r.ballast - excess > ROOM_STEP || (!excess && r.ballast))
		ballast_set(p, &r);
	slack = r.host > r.free + ROOM_LOW ? r.host - r.free - ROOM_LOW : 0;
	return (int)MAX(MIN(slack / ROOM_PER_MS, (uint64_t)LOOK_MAX_MS), (uint64_t)TIGHT_MS);
}
