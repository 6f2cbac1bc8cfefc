/*
 * Layers as plain directories: a snapshot is a copy.
 *
 * It is made under a name that says so, locked as long as we work on it, brought to disk, and
 * renamed. What it can share with the checkpoint before, it shares by hard links (pool_index.c):
 * checkpoints are never written to. A layer to write to shares nothing but extents, where the file
 * system has that.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fd.h"
#include "mem.h"
#include "pool_kinds.h"
#include "tar.h"
#include "walk.h"

#define OPEN_LEVELS 32 /* directories of the copy kept open; those above are found again by ".." */
#define TEMP_TRIES 16

struct tree_copy {
	struct pool_copy copy;
	int top; /* of the copy */
	int *dirs; /* of the copy, on the way down; [0] is top */
	size_t cap_dirs;
	bool readonly;
	int like; /* what may be shared; -1: nothing */
	bool self; /* it is the source itself */
	struct pool_index old; /* like's: inodes of what it was copied from */
	struct pool_index own; /* the source's: its own inodes, if it was copied from like */
	struct pool_index
		links; /* inodes of the source with more than one name: path of the first */
	struct pool_index made; /* the copy's index */
	bool indexed;
};

static void tree_copy_free(struct tree_copy *t)
{
	for (size_t i = 1; i < t->cap_dirs; i++)
		fd_close(&t->dirs[i]);
	free(t->dirs);
	pool_copy_free(&t->copy);
	pool_index_free(&t->old);
	pool_index_free(&t->own);
	pool_index_free(&t->links);
	pool_index_free(&t->made);
}

static void dirs_reserve(struct tree_copy *t, size_t depth)
{
	size_t cap = t->cap_dirs;

	if (depth < cap)
		return;
	t->cap_dirs = MAX(depth + 1, cap * 2);
	t->dirs = mem_realloc(t->dirs, t->cap_dirs * sizeof(*t->dirs));
	for (size_t i = cap; i < t->cap_dirs; i++)
		t->dirs[i] = -1;
}

/* ---- links ---- */

/* A path of any length below dirfd, as its parent and its last part. */
static int open_far(int dirfd, const char *path, const char **ret_name)
{
	auto_fd fd = fcntl(dirfd, F_DUPFD_CLOEXEC, 3);

	while (fd >= 0 && strlen(path) >= PATH_MAX) {
		char part[PATH_MAX];
		const char *slash = path + PATH_MAX - 2;
		int next;

		while (slash > path && *slash != '/')
			slash--;
		if (slash == path) {
			errno = ENAMETOOLONG;
			return -1;
		}
		memcpy(part, path, (size_t)(slash - path));
		part[slash - path] = '\0';
		next = openat(fd, part, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		fd_close(&fd);
		fd = next;
		path = slash + 1;
	}
	*ret_name = path;
	return fd_take(&fd);
}

static int link_far(int dirfd, const char *path, int to, const char *name)
{
	auto_fd far = -1;

	if (strlen(path) < PATH_MAX)
		return linkat(dirfd, path, to, name, 0);
	far = open_far(dirfd, path, &path);
	return far < 0 ? -1 : linkat(far, path, to, name, 0);
}

static bool same_file(const struct stat *a, const struct stat *b)
{
	return a->st_mode == b->st_mode && a->st_uid == b->st_uid && a->st_gid == b->st_gid &&
	       a->st_size == b->st_size && a->st_rdev == b->st_rdev &&
	       a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* Where like has this very file, or NULL. */
static const char *shared_path(const struct tree_copy *t, const struct walk_entry *e)
{
	uint64_t ctime;
	const char *path;

	if (t->self)
		return e->path;
	path = pool_index_find(&t->old, e->st.st_ino, &ctime);
	if (path && ctime == pool_ctime(&e->st))
		return path;
	path = pool_index_find(&t->own, e->st.st_ino, &ctime);
	return path && ctime == pool_ctime(&e->st) ? path : NULL;
}

/* A link to like's copy. That it cannot be had (too many links, not ours) is no error: it is
 * copied. */
static bool entry_share(struct tree_copy *t, const struct walk_entry *e, int to)
{
	const char *path = t->like < 0 ? NULL : shared_path(t, e);
	struct stat st;

	if (!path || link_far(t->like, path, to, e->name) < 0)
		return false;
	if (fstatat(to, e->name, &st, AT_SYMLINK_NOFOLLOW) == 0 && same_file(&st, &e->st))
		return true;
	unlinkat(to, e->name, 0); /* like is not what its index says */
	return false;
}

/* ---- the tree ---- */

static void entry_note(struct tree_copy *t, const struct walk_entry *e, int to)
{
	struct stat st = e->st;

	if (!t->indexed)
		return;
	if (!t->readonly && fstatat(to, e->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return;
	if (pool_index_add(&t->made, st.st_ino, pool_ctime(&st), e->path, NULL) < 0)
		t->indexed = false; /* too many to remember: nothing is shared then */
}

static int entry_copy(struct tree_copy *t, const struct walk_entry *e, struct den_err *err)
{
	int to = t->dirs[e->depth - 1];
	const char *first =
		e->st.st_nlink > 1 ? pool_index_find(&t->links, e->st.st_ino, NULL) : NULL;

	if (e->depth == 1 && !strcmp(e->name, POOL_INDEX))
		return 0;
	/* A second name of what we have already; with too many of them, a file of its own must
	 * do. */
	if (first && link_far(t->top, first, to, e->name) == 0)
		return 0;
	if (first && errno != EMLINK)
		return den_fail_sys(err, errno, "link");
	if (!entry_share(t, e, to) &&
		pool_copy_entry(&t->copy, e->dirfd, e->name, &e->st, to, err) < 0)
		return -1;
	if (e->st.st_nlink > 1 && pool_index_add(&t->links, e->st.st_ino, 0, e->path, err) < 0)
		return -1;
	entry_note(t, e, to);
	return 0;
}

static int dir_enter(struct tree_copy *t, const struct walk_entry *e, struct den_err *err)
{
	int to = t->dirs[e->depth - 1];

	dirs_reserve(t, e->depth);
	if (mkdirat(to, e->name, 0700) < 0)
		return den_fail_sys(err, errno, "make directory");
	if (pool_copy_xattrs(&t->copy, e->dirfd, to, e->name, err) < 0)
		return -1;
	t->dirs[e->depth] = openat(to, e->name, POOL_OPEN_DIR);
	if (t->dirs[e->depth] < 0)
		return den_fail_sys(err, errno, "open the copy");
	if (e->depth > OPEN_LEVELS)
		fd_close(&t->dirs[e->depth - OPEN_LEVELS]);
	return 0;
}

/* All in it is done: now it may get a mode that closes it, and its times stay. */
static int dir_leave(struct tree_copy *t, const struct walk_entry *e, struct den_err *err)
{
	int *dir = &t->dirs[e->depth], *above = dir - 1;

	if (*above < 0)
		*above = openat(*dir, "..", POOL_OPEN_DIR);
	if (*above < 0)
		return den_fail_sys(err, errno, "open the copy again");
	if (pool_copy_dir_meta(*dir, &e->st, err) < 0)
		return -1;
	fd_close(dir);
	return 0;
}

static int tree_walk(struct tree_copy *t, int from, struct den_err *err)
{
	struct walk_entry e = { 0 };
	struct walk *w;
	int what, r = 0;

	if (walk_new(fcntl(from, F_DUPFD_CLOEXEC, 3), 0, WALK_LEAVES, &w, err) < 0)
		return -1;
	while (r == 0 && (what = walk_next(w, &e, err)) != WALK_END) {
		if (what < 0) {
			walk_free(w);
			return -1;
		}
		if (what == WALK_LEAVE)
			r = dir_leave(t, &e, err);
		else
			r = S_ISDIR(e.st.st_mode) ? dir_enter(t, &e, err) : entry_copy(t, &e, err);
	}
	if (r < 0)
		den_wrap(err, "'%s'", tar_show(e.path).s);
	walk_free(w);
	return r;
}

static int tree_copy(struct tree_copy *t, int from, const char *from_name, struct den_err *err)
{
	struct stat st;

	if (fstat(from, &st) < 0)
		return den_fail_sys(err, errno, "look at it");
	if (tree_walk(t, from, err) < 0)
		return -1;
	if (t->indexed && t->made.n && pool_index_save(&t->made, t->top, from_name, err) < 0)
		return -1;
	if (pool_copy_xattrs(&t->copy, from, t->top, "", err) < 0 ||
		pool_copy_dir_meta(t->top, &st, err) < 0)
		return -1;
	/* One call for thousands of files; it also writes what others have on this file system, the
	 * source's mapped pages among it: the index relies on that. */
	if (syncfs(t->top) < 0)
		return den_fail_sys(err, errno, "bring it to disk");
	return 0;
}

/* ---- layers ---- */

/* A directory that no sweep takes from us: locked, and still there after that. */
static int temp_make(int dirfd, char name[static 32], struct den_err *err)
{
	for (int tries = 0; tries < TEMP_TRIES; tries++) {
		auto_fd fd = -1;
		struct stat st;

		if (pool_temp_name(POOL_NEW, name, err) < 0)
			return -1;
		if (mkdirat(dirfd, name, 0700) < 0)
			return den_fail_sys(err, errno, "make directory");
		fd = openat(dirfd, name, POOL_OPEN_DIR);
		if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0 &&
			fstatat(dirfd, name, &st, 0) == 0)
			return fd_take(&fd);
	}
	return den_fail(err, DEN_CONFLICT, 0, "somebody removes what we make");
}

static int plain_make(struct pool *p, const struct pool_spot *at, struct den_err *err)
{
	if (mkdirat(at->dirfd, at->name, 0755) < 0)
		return den_fail_sys(err, errno, "make directory");
	if (fchmodat(at->dirfd, at->name, 0755, 0) < 0 || fsync(at->dirfd) < 0) {
		int sys = errno;

		unlinkat(at->dirfd, at->name, AT_REMOVEDIR);
		return den_fail_sys(err, sys, "make directory");
	}
	return 0;
}

static int plain_snapshot(struct pool *p, const struct pool_source *from,
	const struct pool_source *like, const struct pool_spot *to, bool readonly,
	struct den_err *err)
{
	struct tree_copy t = { .copy.reflink = p->reflink, .readonly = readonly, .like = -1 };
	char temp[32];
	auto_fd top = -1;
	int r;

	if (faccessat(to->dirfd, to->name, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
		return den_fail_sys(err, EEXIST, "make it");
	top = temp_make(to->dirfd, temp, err);
	if (top < 0)
		return -1;
	if (readonly && like->fd >= 0) {
		t.like = like->fd;
		t.self = !strcmp(from->name, like->name);
	}
	t.indexed = !t.self && pool_index_safe(p->fd);
	if (t.indexed && t.like >= 0) {
		pool_index_load(&t.old, like->fd);
		pool_index_load(&t.own, from->fd);
		if (!t.own.origin || strcmp(t.own.origin, like->name))
			pool_index_free(&t.own);
	}
	dirs_reserve(&t, 0);
	t.dirs[0] = t.top = top;
	r = tree_copy(&t, from->fd, from->name, err);
	tree_copy_free(&t);
	if (r == 0 && pool_rename_new(to->dirfd, temp, to->dirfd, to->name) < 0)
		r = den_fail_sys(err, errno, "give it its name");
	if (r < 0) {
		struct den_err more;

		tree_remove_at(to->dirfd, temp, &more);
		return -1;
	}
	return fsync(to->dirfd) < 0 ? den_fail_sys(err, errno, "bring it to disk") : 0;
}

static int plain_rename(struct pool *p, const struct pool_spot *from, const struct pool_spot *to,
	struct den_err *err)
{
	if (pool_rename_new(from->dirfd, from->name, to->dirfd, to->name) < 0)
		return den_fail_sys(err, errno, "rename");
	if (fsync(to->dirfd) < 0 || fsync(from->dirfd) < 0)
		return den_fail_sys(err, errno, "bring it to disk");
	return 0;
}

static int plain_seal(struct pool *p, int fd, struct den_err *err)
{
	return syncfs(fd) < 0 ? den_fail_sys(err, errno, "bring it to disk") : 0;
}

static int plain_destroy(struct pool *p, const struct pool_spot *at, struct den_err *err)
{
	return tree_remove_at(at->dirfd, at->name, err);
}

static int plain_differs(struct pool *p, int a, int b, struct den_err *err)
{
	return 1;
}

const struct pool_ops pool_plain = {
	.make = plain_make,
	.snapshot = plain_snapshot,
	.rename = plain_rename,
	.seal = plain_seal,
	.destroy = plain_destroy,
	.differs = plain_differs,
};
