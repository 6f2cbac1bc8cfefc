#include "walk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/vfs.h>

#include "buf.h"
#include "fd.h"
#include "mem.h"
#include "tar.h"

#define OPEN_LEVELS 32 /* directories kept open; those above are found again through ".." */

struct level {
	int fd; /* -1: closed for now */
	dev_t dev;
	ino_t ino;
	struct stat st; /* as its parent told it */
	struct buf names;
	uint32_t *order; /* offsets into names, sorted */
	size_t n, next, path_len;
};

struct walk {
	unsigned flags, max_depth;
	struct level *levels;
	size_t n_levels, cap_levels;
	size_t names_bytes;
	struct buf path;
	struct stat st; /* of the entry told last */
	bool descend;	/* into it */
};

#define OPEN_DIR (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK)

static int by_name(const void *a, const void *b, void *names)
{
	return strcmp((char *)names + *(const uint32_t *)a, (char *)names + *(const uint32_t *)b);
}

static int level_read(struct walk *w, struct level *l, struct den_err *err)
{
	int copy = fcntl(l->fd, F_DUPFD_CLOEXEC, 3);
	DIR *d = copy < 0 ? NULL : fdopendir(copy);
	struct dirent *de;
	size_t at = 0;

	if (!d) {
		int sys = errno;

		fd_close(&copy);
		return den_fail_sys(err, sys, "read directory");
	}
	while ((de = readdir(d))) {
		if (!strcmp(de->d_name, ".") || !strcmp(de->d_name, ".."))
			continue;
		if (w->names_bytes + l->names.len > WALK_NAMES_MAX) {
			closedir(d);
			return den_fail(err, DEN_LIMIT, 0,
				"more than %u MiB of names in one directory", WALK_NAMES_MAX >> 20);
		}
		buf_add(&l->names, de->d_name, strlen(de->d_name) + 1);
		l->n++;
	}
	closedir(d);
	w->names_bytes += l->names.len;
	l->order = mem_alloc(l->n * sizeof(*l->order));
	for (size_t i = 0; i < l->n; i++, at += strlen(l->names.p + at) + 1)
		l->order[i] = (uint32_t)at;
	if (l->n)
		qsort_r(l->order, l->n, sizeof(*l->order), by_name, l->names.p);
	return 0;
}

static void level_free(struct walk *w, struct level *l)
{
	w->names_bytes -= MIN(w->names_bytes, l->names.len);
	fd_close(&l->fd);
	buf_free(&l->names);
	free(l->order);
}

/* Takes fd, also on failure. */
static int level_push(struct walk *w, int fd, const struct stat *from_parent, struct den_err *err)
{
	struct level *l;
	struct stat st;

	if (fstat(fd, &st) < 0) {
		int sys = errno;

		fd_close(&fd);
		return den_fail_sys(err, sys, "read directory");
	}
	if (w->n_levels == w->cap_levels) {
		w->cap_levels = w->cap_levels ? w->cap_levels * 2 : 16;
		w->levels = mem_realloc(w->levels, w->cap_levels * sizeof(*w->levels));
	}
	l = &w->levels[w->n_levels++];
	*l = (struct level){
		.fd = fd, .dev = st.st_dev, .ino = st.st_ino, .path_len = w->path.len
	};
	l->st = from_parent ? *from_parent : st;
	if (w->n_levels > OPEN_LEVELS)
		fd_close(&w->levels[w->n_levels - 1 - OPEN_LEVELS].fd);
	return level_read(w, l, err);
}

/* Opens the level above the last one again if it was closed. The directory may have been moved
 * meanwhile, so it must be the one that was there. */
static int level_reopen_above(struct walk *w, struct den_err *err)
{
	struct level *l = &w->levels[w->n_levels - 1], *above = l - 1;
	struct stat st;

	if (above->fd >= 0)
		return 0;
	above->fd = openat(l->fd, "..", OPEN_DIR);
	if (above->fd < 0)
		return den_fail_sys(err, errno, "read directory again");
	if (fstat(above->fd, &st) < 0 || st.st_dev != above->dev || st.st_ino != above->ino)
		return den_fail(err, DEN_CONFLICT, 0,
			"the tree was moved about while it was being read; try again");
	return 0;
}

int walk_new(int fd, unsigned max_depth, unsigned flags, struct walk **ret, struct den_err *err)
{
	struct walk *w = mem_new(struct walk);

	w->flags = flags;
	w->max_depth = max_depth;
	if (level_push(w, fd, NULL, err) < 0) {
		walk_free(w);
		return -1;
	}
	*ret = w;
	return 0;
}

void walk_free(struct walk *w)
{
	if (!w)
		return;
	while (w->n_levels)
		level_free(w, &w->levels[--w->n_levels]);
	free(w->levels);
	buf_free(&w->path);
	free(w);
}

void walk_skip(struct walk *w)
{
	w->descend = false;
}

static bool is_kernel_fs(int fd)
{
	static const unsigned long magic[] = { PROC_SUPER_MAGIC, SYSFS_MAGIC, CGROUP_SUPER_MAGIC,
		CGROUP2_SUPER_MAGIC, DEBUGFS_MAGIC, TRACEFS_MAGIC, BPF_FS_MAGIC, SECURITYFS_MAGIC,
		DEVPTS_SUPER_MAGIC, 0x19800202 /* mqueue */ };
	struct statfs fs;

	if (fstatfs(fd, &fs) < 0)
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(magic); i++)
		if ((unsigned long)fs.f_type == magic[i])
			return true;
	return false;
}

/* 1: went down, 0: not */
static int walk_enter(struct walk *w, struct den_err *err)
{
	struct level *l = &w->levels[w->n_levels - 1];
	const char *name = l->names.p + l->order[l->next - 1];
	struct stat st = w->st;
	int fd = openat(l->fd, name, OPEN_DIR);

	if (fd < 0) {
		if (errno == ENOENT || errno == ENOTDIR || errno == ELOOP)
			return 0; /* it was replaced since */
		if (errno == EACCES && w->flags & WALK_SKIP_DENIED)
			return 0;
		return den_fail_sys(err, errno, "'%s'", tar_show(buf_str(&w->path)).s);
	}
	if (w->flags & WALK_SKIP_KERNEL && st.st_dev != l->dev && is_kernel_fs(fd)) {
		fd_close(&fd);
		return 0;
	}
	if (level_push(w, fd, &st, err) < 0)
		return den_wrap(err, "'%s'", tar_show(buf_str(&w->path)).s);
	return 1;
}

static void entry_set(struct walk *w, const struct level *l, struct walk_entry *ret)
{
	const char *slash;

	ret->dirfd = l->fd;
	ret->path = buf_str(&w->path);
	slash = strrchr(ret->path, '/');
	ret->name = slash ? slash + 1 : ret->path;
	ret->depth = (unsigned)(l - w->levels) + 1;
}

/* The last level is done: 1 when its directory is to be told once more. */
static int walk_leave(struct walk *w, struct walk_entry *ret, struct den_err *err)
{
	struct level *l = &w->levels[w->n_levels - 1];

	if (level_reopen_above(w, err) < 0)
		return den_wrap(err, "'%s'", tar_show(buf_str(&w->path)).s);
	w->path.len = l->path_len;
	ret->st = l->st;
	level_free(w, l);
	w->n_levels--;
	entry_set(w, l - 1, ret);
	return w->flags & WALK_LEAVES ? 1 : 0;
}

int walk_next(struct walk *w, struct walk_entry *ret, struct den_err *err)
{
	if (w->descend) {
		int r = walk_enter(w, err);

		w->descend = false;
		if (r < 0)
			return -1;
		if (r == 0 && w->flags & WALK_LEAVES) { /* each directory is told twice, always */
			entry_set(w, &w->levels[w->n_levels - 1], ret);
			ret->st = w->st;
			return WALK_LEAVE;
		}
	}
	for (;;) {
		struct level *l = &w->levels[w->n_levels - 1];
		const char *name;

		if (l->next == l->n) {
			int r;

			if (w->n_levels == 1)
				return WALK_END;
			r = walk_leave(w, ret, err);
			if (r < 0)
				return -1;
			if (r)
				return WALK_LEAVE;
			continue;
		}
		name = l->names.p + l->order[l->next++];
		w->path.len = l->path_len;
		if (l->path_len)
			buf_addstr(&w->path, "/");
		buf_addstr(&w->path, name);
		if (fstatat(l->fd, name, &w->st, AT_SYMLINK_NOFOLLOW) < 0) {
			if (errno == ENOENT)
				continue;
			if (errno != EACCES || !(w->flags & WALK_SKIP_DENIED))
				return den_fail_sys(
					err, errno, "'%s'", tar_show(buf_str(&w->path)).s);
			w->st = (struct stat){ 0 };
		}
		entry_set(w, l, ret);
		ret->st = w->st;
		w->descend =
			S_ISDIR(w->st.st_mode) && (!w->max_depth || w->n_levels < w->max_depth);
		return WALK_ENTRY;
	}
}
