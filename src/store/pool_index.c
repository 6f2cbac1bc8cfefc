/*
 * Which inode, in which state, became which path of a copy.
 *
 * A copy keeps for each of its files the inode number and ctime that the source had. A later copy
 * of the same source looks each of its files up: the same inode with the same ctime is the same
 * file, unchanged, whatever it is called and whatever somebody did to its mtime; its copy can be
 * shared by a hard link. Names and mtimes alone would not do: two directories that change places
 * have files of the same name, size and mtime.
 *
 * It holds because a ctime cannot be set, and because of what is left out:
 *   1. an inode whose ctime is the clock's present tick: a change in the same tick would not show;
 *   2. file systems where memory that is mapped changes without a new ctime (pool_index_safe()); on
 *      others that is so only for pages that are dirty already, and syncfs() at the end of a copy
 *      writes back those of the source as well: their next change is one that shows.
 *
 * A layer to write to, copied from a checkpoint, has one as well: of its own inodes, with the paths
 * in that checkpoint (its origin). So the first checkpoint after a rollback shares with the one
 * rolled back to.
 *
 * The file: "den-index 1\n", origin NUL, then for each: ino, ctime (8 bytes each, the machine's
 * order), path NUL; a hash over all at the end, since a power cut may leave it half-written.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "fd.h"
#include "mem.h"
#include "pool_kinds.h"

#define MAGIC "den-index 1\n"
#define INDEX_BYTES (512U << 20)

uint64_t pool_ctime(const struct stat *st)
{
	return (uint64_t)st->st_ctim.tv_sec * NS_PER_SEC + (uint64_t)st->st_ctim.tv_nsec;
}

bool pool_index_safe(int fd)
{
	struct statfs fs;

	if (fstatfs(fd, &fs) < 0)
		return false;
	return fs.f_type == EXT4_SUPER_MAGIC || (unsigned long)fs.f_type == XFS_SUPER_MAGIC ||
	       (unsigned long)fs.f_type == BTRFS_SUPER_MAGIC ||
	       (unsigned long)fs.f_type == F2FS_SUPER_MAGIC;
}

void pool_index_free(struct pool_index *x)
{
	free(x->slots);
	free(x->origin);
	buf_free(&x->paths);
	*x = (struct pool_index){ 0 };
}

/* The slot that has an inode, or the free one where it would be. */
static struct pool_inode *slot_of(const struct pool_index *x, uint64_t ino)
{
	size_t i = (ino * 0x9e3779b97f4a7c15ULL >> 20) & (x->cap - 1);

	while (x->slots[i].ino && x->slots[i].ino != ino)
		i = (i + 1) & (x->cap - 1);
	return &x->slots[i];
}

static int index_widen(struct pool_index *x)
{
	struct pool_index wide = { .cap = x->cap ? x->cap * 2 : 256 };

	wide.slots = calloc(wide.cap, sizeof(*wide.slots)); /* sized by the box */
	if (!wide.slots)
		return -1;
	for (size_t i = 0; i < x->cap; i++)
		if (x->slots[i].ino)
			*slot_of(&wide, x->slots[i].ino) = x->slots[i];
	free(x->slots);
	x->slots = wide.slots;
	x->cap = wide.cap;
	return 0;
}

int pool_index_add(
	struct pool_index *x, uint64_t ino, uint64_t ctime, const char *path, struct den_err *err)
{
	struct pool_inode *s;

	if (!ino)
		return 0;
	if (x->paths.len + strlen(path) + x->n * 16 > INDEX_BYTES)
		return den_fail(err, DEN_LIMIT, 0, "more than %u MiB of names", INDEX_BYTES >> 20);
	if (x->n * 2 >= x->cap && index_widen(x) < 0)
		return den_fail_sys(err, ENOMEM, "remember names");
	s = slot_of(x, ino);
	if (s->ino)
		return 0;
	*s = (struct pool_inode){ .ino = ino, .ctime = ctime, .path = x->paths.len };
	buf_add(&x->paths, path, strlen(path) + 1);
	x->n++;
	return 0;
}

const char *pool_index_find(const struct pool_index *x, uint64_t ino, uint64_t *ret_ctime)
{
	struct pool_inode *s = x->n ? slot_of(x, ino) : NULL;

	if (!s || !s->ino)
		return NULL;
	if (ret_ctime)
		*ret_ctime = s->ctime;
	return x->paths.p + s->path;
}

int pool_index_save(const struct pool_index *x, int dirfd, const char *origin, struct den_err *err)
{
	auto_fd fd = openat(
		dirfd, POOL_INDEX, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	auto_buf out = { 0 };
	struct timespec now;
	uint64_t tick, h;

	if (fd < 0)
		return den_fail_sys(err, errno, "create index");
	clock_gettime(CLOCK_REALTIME_COARSE, &now); /* the clock that ctimes are taken from */
	tick = (uint64_t)now.tv_sec * NS_PER_SEC + (uint64_t)now.tv_nsec;
	buf_add(&out, MAGIC, strlen(MAGIC));
	buf_add(&out, origin, strlen(origin) + 1);
	for (size_t i = 0; i < x->cap; i++) {
		const struct pool_inode *s = &x->slots[i];

		if (!s->ino || s->ctime >= tick)
			continue;
		buf_add(&out, &s->ino, sizeof(s->ino));
		buf_add(&out, &s->ctime, sizeof(s->ctime));
		buf_add(&out, x->paths.p + s->path, strlen(x->paths.p + s->path) + 1);
	}
	h = pool_hash(0, out.p, out.len);
	buf_add(&out, &h, sizeof(h));
	return fd_write_all(fd, out.p, out.len, err) < 0 ? den_wrap(err, "write index") : 0;
}

static int index_parse(struct pool_index *x, const char *p, size_t n)
{
	const char *end = p + n - sizeof(uint64_t);
	uint64_t head[2], h;

	if (n < strlen(MAGIC) + 1 + sizeof(h) || memcmp(p, MAGIC, strlen(MAGIC)))
		return -1;
	memcpy(&h, end, sizeof(h));
	if (h != pool_hash(0, p, n - sizeof(h)))
		return -1;
	p += strlen(MAGIC);
	if (!memchr(p, '\0', (size_t)(end - p)))
		return -1;
	x->origin = mem_strdup(p);
	p += strlen(p) + 1;
	while (p < end) {
		if ((size_t)(end - p) < sizeof(head) + 1 ||
			!memchr(p + sizeof(head), '\0', (size_t)(end - p) - sizeof(head)))
			return -1;
		memcpy(head, p, sizeof(head));
		if (pool_index_add(x, head[0], head[1], p + sizeof(head), NULL) < 0)
			return -1;
		p += sizeof(head) + strlen(p + sizeof(head)) + 1;
	}
	return 0;
}

void pool_index_load(struct pool_index *x, int dirfd)
{
	auto_fd fd = openat(dirfd, POOL_INDEX, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	auto_free char *text = NULL;
	size_t n;

	if (fd < 0 || fd_read_all(fd, INDEX_BYTES * 2UL, &text, &n, NULL) < 0)
		return;
	if (index_parse(x, text, n) < 0)
		pool_index_free(x);
}
