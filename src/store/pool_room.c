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
 * they have been free for btrfs, too, and were trimmed. So they are trimmed before it grows, and where it
 * came to lie on some all the same (the kernel was still taking a layer apart), its end is let go.
 *
 * None of this happens by itself at the moment when room is made. Who has removed something while
 * there was little, and who finds none, sees to it: pool_reclaim().
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
#define ROOM_TIGHT (256ULL << 20) /* less than this left: who frees some waits until it can be used */
#define SURPLUS_MIN (4 * ROOM_STEP)
#define LOCK_TRIES 250 /* of 20 ms */
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

/* What is free in the image and still has blocks on the host; ballast may lie on it. Rather too little:
 * the trees count as a whole. */
static uint64_t room_surplus(struct pool *p, const struct room *r)
{
	uint64_t needed = r->used + pool_room_keep(p), there;
	struct stat st;

	if (fstatat(p->statefd, POOL_IMAGE, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return 0;
	there = (uint64_t)st.st_blocks * 512;
	return there > needed ? there - needed : 0;
}

static int room_trim(struct pool *p, struct room *r)
{
	(void)pool_btrfs_trim(p->fd, NULL);
	(void)pool_room_keep(p); /* what the trees do not use just now went, too */
	return room_measure(p, r);
}

/* Gives the surplus to the host, and tells in *ret what of it has come up since, so that no ballast is put
 * there. fd: the ballast, locked. */
static int room_release(struct pool *p, int fd, struct room *r, uint64_t *ret)
{
	static uint64_t rest; /* cannot be given back: pieces too small for that, and what is estimated */
	uint64_t surplus = room_surplus(p, r);

	rest = MIN(rest, surplus);
	if (surplus >= rest + SURPLUS_MIN || pool_btrfs_cleans(p->fd)) {
		if (room_trim(p, r) < 0)
			return -1;
		surplus = room_surplus(p, r);
		/* Nothing to be had, but blocks that nobody uses: what was put there last lies on them. */
		if (r->host < ROOM_LOW && r->free < SURPLUS_MIN && r->ballast && surplus >= rest + SURPLUS_MIN) {
			if (ftruncate(fd, (off_t)(r->ballast - MIN(r->ballast, surplus))) < 0 || room_trim(p, r) < 0)
				return -1;
			surplus = room_surplus(p, r);
		}
		if (!pool_btrfs_cleans(p->fd))
			rest = surplus;
	}
	*ret = surplus - MIN(surplus, rest);
	return 0;
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

static int ballast_lock(int fd, bool wait)
{
	int r = flock(fd, LOCK_EX | LOCK_NB);

	/* whoever has it may have measured before there was something to release */
	for (int i = 0; r < 0 && wait && i < LOCK_TRIES; i++) {
		nanosleep(&(struct timespec){ .tv_nsec = 20 * 1000000L }, NULL);
		r = flock(fd, LOCK_EX | LOCK_NB);
	}
	return r;
}

/* One at a time. release: first of all what was freed; without it, who comes second has nothing to add. */
static void ballast_set(struct pool *p, struct room *r, bool release)
{
	auto_fd fd = openat(p->fd, POOL_BALLAST, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	uint64_t excess, surplus = 0;

	if (fd < 0 || ballast_lock(fd, release) < 0 || room_measure(p, r) < 0)
		return;
	if ((release || room_excess(r) > r->ballast) && room_release(p, fd, r, &surplus) < 0)
		return;
	excess = room_excess(r);
	if (excess > r->ballast)
		ballast_grow(fd, r->ballast, MAX(r->ballast, excess - MIN(excess, surplus)));
	else if (!excess)
		unlinkat(p->fd, POOL_BALLAST, 0);
	else
		(void)!ftruncate(fd, (off_t)(excess & ~(BALLAST_UNIT - 1)));
}

bool pool_is_tight(struct pool *p)
{
	struct room r;

	return p->image && room_measure(p, &r) == 0 && r.free < ROOM_TIGHT;
}

void pool_reclaim(struct pool *p)
{
	struct room r;

	if (p->image)
		ballast_set(p, &r, true);
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
		ballast_set(p, &r, false);
	slack = r.host > r.free + ROOM_LOW ? r.host - r.free - ROOM_LOW : 0;
	return (int)MAX(MIN(slack / ROOM_PER_MS, (uint64_t)LOOK_MAX_MS), (uint64_t)TIGHT_MS);
}
