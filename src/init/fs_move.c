/*
 * move
 *
 * Inside a box a rename often cannot be: /usr is another file system than /, and an overlay refuses
 * to rename a directory that comes from the template. Then the tree is copied next to its new
 * place, put there with one rename, and only after that removed from where it was: whatever fails,
 * one of the two is whole.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "fd.h"
#include "compat.h"
#include "fs_ops.h"
#include "mem.h"
#include "tree.h"

struct place {
	int dir;
	char base[256];
};

static int rename_to(int from, const char *name, const struct place *to, bool no_replace)
{
	struct stat st;

	if (!no_replace)
		return renameat(from, name, to->dir, to->base);
	if (renameat2(from, name, to->dir, to->base, RENAME_NOREPLACE) == 0)
		return 0;
	if (errno != EINVAL && errno != ENOSYS)
		return -1;
	/* a file system that cannot: looking first is the best there is */
	if (fstatat(to->dir, to->base, &st, AT_SYMLINK_NOFOLLOW) == 0) {
		errno = EEXIST;
		return -1;
	}
	return renameat(from, name, to->dir, to->base);
}

static int feed(const void *p, size_t n, void *user, struct den_err *err)
{
	return tree_unpacker_feed(user, p, n, err);
}

static int copy_tree(const struct place *from, int to, const char *name, struct den_err *err)
{
	struct tree_pack_opt pack = { .top = name, .xattrs = TREE_XATTR_ALL };
	struct tree_unpack_opt unpack = { .owner = geteuid() == 0, .special = true, .sync = true,
		.mode_clear = geteuid() == 0 ? 0 : 06000, .xattrs = TREE_XATTR_ALL };
	struct tree_unpacker *u = tree_unpacker_new(to, &unpack);
	struct tree_stats stats;
	int r = tree_pack(from->dir, from->base, &pack, feed, u, &stats, err);

	if (r == 0)
		r = tree_unpacker_finish(u, err);
	tree_unpacker_free(u);
	if (r == 0 && stats.skipped)
		r = den_fail(err, DEN_UNSUPPORTED, 0,
			"%llu sockets or devices cannot go to another file system",
			(unsigned long long)stats.skipped);
	return r;
}

/* Copying a directory into itself would not end. */
static int refuse_inside(const struct place *from, int dir, struct den_err *err)
{
	struct stat what, st, last = { 0 };
	auto_fd at = openat(dir, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (fstatat(from->dir, from->base, &what, AT_SYMLINK_NOFOLLOW) < 0)
		return den_fail_sys(err, errno, "'%s'", from->base);
	while (at >= 0 && fstat(at, &st) == 0) {
		int up;

		if (st.st_dev == what.st_dev && st.st_ino == what.st_ino)
			return den_fail(err, DEN_INVALID, 0, "a directory cannot go into itself");
		if (st.st_dev == last.st_dev && st.st_ino == last.st_ino)
			return 0; /* the root is its own parent */
		last = st;
		up = openat(at, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
		close(at);
		at = up;
	}
	return den_fail_sys(err, errno, "look at the way up");
}

static int move_by_copy(const struct place *from, const struct place *to, bool no_replace,
	struct den_err *err)
{
	char temp[40];
	struct stat st;

	if (no_replace && fstatat(to->dir, to->base, &st, AT_SYMLINK_NOFOLLOW) == 0)
		return den_fail_sys(err, EEXIST, "'%s'", to->base); /* before the work, not after */
	if (refuse_inside(from, to->dir, err) < 0)
		return -1;
	snprintf(temp, sizeof(temp), ".den-%d-move.tmp", (int)getpid());
	if (tree_remove_at(to->dir, temp, err) < 0)
		return -1;
	if (copy_tree(from, to->dir, temp, err) < 0) {
		tree_remove_at(to->dir, temp, NULL);
		return -1;
	}
	if (rename_to(to->dir, temp, to, no_replace) < 0) {
		int sys = errno;

		tree_remove_at(to->dir, temp, NULL);
		return den_fail_sys(err, sys, "'%s'", to->base);
	}
	if (fs_sync_dir(to->dir, err) < 0)
		return -1;
	if (tree_remove_at(from->dir, from->base, err) < 0)
		return den_wrap(err, "copied, but the old one is still there");
	return 0;
}

int fs_move(char *const *arg, struct den_err *err)
{
	bool no_replace = fs_flag(arg[2], 'n');
	struct place from = { .dir = -1 }, to = { .dir = -1 };
	int r = -1;

	if (!*arg[1])
		return den_fail(err, DEN_INVALID, 0, "move: the new path is empty");
	if (fs_split(arg[0], &from.dir, from.base, err) < 0)
		return den_wrap(err, "move");
	if (!(fs_flag(arg[2], 'p') && fs_mkdir_parents(arg[1], err) < 0) &&
		fs_split(arg[1], &to.dir, to.base, err) == 0) {
		if (rename_to(from.dir, from.base, &to, no_replace) == 0)
			r = 0;
		else if (errno == EXDEV)
			r = move_by_copy(&from, &to, no_replace, err);
		else
			r = den_fail_sys(err, errno, "'%s' to '%s'", arg[0], arg[1]);
	}
	if (r == 0)
		r = fs_sync_dir(to.dir, err);
	if (r == 0)
		r = fs_sync_dir(from.dir, err);
	fd_close(&from.dir);
	fd_close(&to.dir);
	return r < 0 ? den_wrap(err, "move") : 0;
}
