/* Has a layer changed since? Without reading any file. */
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "fd.h"
#include "mem.h"
#include "pool_kinds.h"
#include "walk.h"

#define RACY_NS (POOL_RACY_MS * NS_PER_MS) /* two clock ticks, at the slowest clock there is */

/* Eight bytes at a time, each spread over all bits before the next. */
uint64_t pool_hash(uint64_t h, const void *p, size_t n)
{
	const char *at = p;

	h ^= n * 0x9e3779b97f4a7c15ULL;
	while (n) {
		uint64_t w = 0;
		size_t k = MIN(n, sizeof(w));

		memcpy(&w, at, k);
		h = (h ^ w) * 0xff51afd7ed558ccdULL;
		h ^= h >> 29;
		at += k;
		n -= k;
	}
	h *= 0xc4ceb9fe1a85ec53ULL;
	return h ^ h >> 32;
}

static uint64_t hash_stat(uint64_t h, const struct stat *st, uint64_t dir)
{
	uint64_t v[] = { dir, st->st_ino, st->st_mode, (uint64_t)st->st_uid << 32 | st->st_gid,
		S_ISDIR(st->st_mode) ? 0 : (uint64_t)st->st_size, pool_ctime(st), st->st_rdev };

	return pool_hash(h, v, sizeof(v));
}

/* "w0", "w1": overlayfs's working directories */
static bool is_work(const char *name)
{
	return name[0] == 'w' && name[1] && strspn(name + 1, "0123456789") == strlen(name + 1);
}

/* From 6.13 on, on these file systems, a change after a look at an inode gets another time than the
 * one before it, however short ago that was. */
static bool times_are_fine(int fd)
{
	int major = 0, minor = 0;
	struct utsname u;
	struct statfs fs;

	if (fstatfs(fd, &fs) < 0 || uname(&u) < 0)
		return false;
	if (fs.f_type != EXT4_SUPER_MAGIC && (unsigned long)fs.f_type != BTRFS_SUPER_MAGIC &&
		(unsigned long)fs.f_type != XFS_SUPER_MAGIC && fs.f_type != TMPFS_MAGIC)
		return false;
	return sscanf(u.release, "%d.%d", &major, &minor) == 2 &&
	       (major > 6 || (major == 6 && minor >= 13));
}

struct print {
	uint64_t hash, now, bytes;
	bool fine;
	unsigned max, n;
	uint64_t *dirs; /* inode of the directory at each depth on the way down */
	size_t cap;
};

static bool is_racy(const struct print *s, const struct stat *st)
{
	/* also when the clock was set back: a ctime of the future says nothing */
	return !s->fine && (int64_t)(s->now - pool_ctime(st)) < (int64_t)RACY_NS;
}

static void dir_at(struct print *s, unsigned depth, uint64_t ino)
{
	if (depth >= s->cap) {
		s->cap = MAX((size_t)depth + 1, s->cap * 2);
		s->dirs = mem_realloc(s->dirs, s->cap * sizeof(*s->dirs));
	}
	s->dirs[depth] = ino;
}

/* 1: all of it; 0: too much; 2: too young */
static int print_walk(struct print *s, struct walk *w, struct den_err *err)
{
	struct walk_entry e;
	int r;

	while ((r = walk_next(w, &e, err)) == WALK_ENTRY) {
		if (e.depth == 1 &&
			is_work(e.name)) { /* overlayfs makes it anew at each mount: no change */
			if (S_ISDIR(e.st.st_mode))
				walk_skip(w);
			continue;
		}
		if (++s->n > s->max)
			return 0;
		if (is_racy(s, &e.st))
			return 2;
		s->bytes += (uint64_t)e.st.st_blocks * 512;
		s->hash = pool_hash(s->hash, e.name, strlen(e.name));
		s->hash = hash_stat(s->hash, &e.st, s->dirs[e.depth - 1]);
		if (S_ISDIR(e.st.st_mode))
			dir_at(s, e.depth, e.st.st_ino);
	}
	return r < 0 ? -1 : 1;
}

int pool_fingerprint(struct pool *p, const char *name, unsigned max, uint64_t *ret,
	uint64_t *ret_bytes, struct den_err *err)
{
	struct print s = { .max = max };
	auto_fd fd = openat(p->fd, name, POOL_OPEN_DIR);
	struct walk *w = NULL;
	struct timespec now;
	struct stat st;
	int r;

	if (fd < 0 || fstat(fd, &st) < 0)
		return den_fail_sys(err, errno, "open '%.80s' in the pool", name);
	clock_gettime(CLOCK_REALTIME_COARSE, &now);
	s.now = (uint64_t)now.tv_sec * NS_PER_SEC + (uint64_t)now.tv_nsec;
	s.fine = times_are_fine(fd);
	if (is_racy(&s, &st))
		return 2;
	s.hash = hash_stat(0, &st, 0);
	dir_at(&s, 0, st.st_ino);
	r = walk_new(fd_take(&fd), 0, 0, &w, err);
	if (r == 0) {
		r = print_walk(&s, w, err);
		walk_free(w);
	}
	free(s.dirs);
	if (r < 0)
		return den_wrap(err, "look at '%.80s'", name);
	if (r == 1)
		*ret = s.hash;
	if (r == 1 && ret_bytes)
		*ret_bytes = s.bytes;
	return r;
}
