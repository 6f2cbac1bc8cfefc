/* mkdir, remove, chmod, chown */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "fd.h"
#include "fs_ops.h"
#include "mem.h"
#include "tar.h"
#include "walk.h"

int fs_mkdir(char *const *arg, struct den_err *err)
{
	bool parents = fs_flag(arg[2], 'p');
	auto_fd dir = -1;
	char base[256];
	struct stat st;
	mode_t mode;

	if (fs_mode(arg[1], 0755, &mode, err) < 0)
		return -1;
	if (parents && stat(arg[0], &st) == 0 && S_ISDIR(st.st_mode))
		return 0;
	if (parents && fs_mkdir_parents(arg[0], err) < 0)
		return den_wrap(err, "mkdir");
	if (fs_split(arg[0], &dir, base, err) < 0)
		return den_wrap(err, "mkdir");
	if (mkdirat(dir, base, mode) < 0) {
		int sys = errno;

		if (!(parents && stat(arg[0], &st) == 0 && S_ISDIR(st.st_mode)))
			return den_fail_sys(err, sys, "mkdir '%s'", arg[0]);
	} else if (mode & 07000 && fchmodat(dir, base, mode, AT_SYMLINK_NOFOLLOW) < 0) {
		/* mkdir() takes no set-id bits */
		return den_fail_sys(err, errno, "mkdir '%s'", arg[0]);
	}
	return fs_sync_dir(dir, err);
}

int fs_remove(char *const *arg, struct den_err *err)
{
	bool missing_ok = fs_flag(arg[1], 'f');
	auto_fd dir = -1;
	char base[256];
	struct stat st;

	if (fs_split(arg[0], &dir, base, err) < 0)
		return missing_ok && err->sys == ENOENT ? 0 : den_wrap(err, "remove");
	if (fstatat(dir, base, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return missing_ok && errno == ENOENT
			       ? 0
			       : den_fail_sys(err, errno, "remove '%s'", arg[0]);
	if (fs_flag(arg[1], 'r')) {
		if (tree_remove_at(dir, base, err) < 0)
			return -1;
	} else if (unlinkat(dir, base, S_ISDIR(st.st_mode) ? AT_REMOVEDIR : 0) < 0) {
		if (errno == ENOTEMPTY || errno == EEXIST)
			return den_fail(err, DEN_CONFLICT, ENOTEMPTY,
				"remove '%s'; to remove all that is in it, ask for recursive",
				arg[0]);
		if (!(missing_ok && errno == ENOENT))
			return den_fail_sys(err, errno, "remove '%s'", arg[0]);
	}
	return fs_sync_dir(dir, err);
}

/* ---- chmod, chown ---------------------------------------------------------------------------- */

/* What to do to an entry, and to the tree below one. */
struct change {
	/* a directory goes before what is in it, else after */
	bool (*before)(const struct change *c);
	int (*apply)(const struct change *c, int dirfd, const char *name, int flags);
	mode_t mode;
	uid_t uid;
	gid_t gid;
};

static bool mode_before(const struct change *c)
{
	/* it may open what was closed; otherwise it may close it */
	return (c->mode & 0700) == 0700;
}

static int mode_apply(const struct change *c, int dirfd, const char *name, int flags)
{
	return fchmodat(dirfd, name, c->mode, flags);
}

static bool owner_before(const struct change *c)
{
	return false;
}

static int owner_apply(const struct change *c, int dirfd, const char *name, int flags)
{
	return fchownat(dirfd, name, c->uid, c->gid, flags);
}

static int change_below(const struct change *c, int fd, struct den_err *err)
{
	struct walk_entry e;
	struct walk *w;
	int r;

	if (walk_new(fd, 0, WALK_LEAVES, &w, err) < 0)
		return -1;
	while ((r = walk_next(w, &e, err)) > 0) {
		bool dir = S_ISDIR(e.st.st_mode);

		if (dir && (r == WALK_ENTRY) != c->before(c))
			continue;
		if (S_ISLNK(e.st.st_mode) && c->apply == mode_apply)
			continue; /* links have no mode */
		if (c->apply(c, e.dirfd, e.name, AT_SYMLINK_NOFOLLOW) < 0 && errno != ENOENT) {
			r = den_fail_sys(err, errno, "'%s'", tar_show(e.path).s);
			break;
		}
	}
	walk_free(w);
	return r;
}

/* Below the top no link is followed, whoever makes one meanwhile. */
static int change_tree(const struct change *c, const char *path, struct den_err *err)
{
	auto_fd top = open(path, O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC);
	int fd;

	if (top < 0 && errno == EACCES && c->before(c) && c->apply(c, AT_FDCWD, path, 0) == 0)
		top = open(path, O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC);
	if (top < 0)
		return den_fail_sys(err, errno, "'%s'", path);
	if (c->before(c) && c->apply(c, top, ".", 0) < 0)
		return den_fail_sys(err, errno, "'%s'", path);
	fd = openat(top, ".", O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return den_fail_sys(err, errno, "'%s'", path);
	if (change_below(c, fd, err) < 0)
		return -1;
	if (!c->before(c) && c->apply(c, top, ".", 0) < 0)
		return den_fail_sys(err, errno, "'%s'", path);
	if (syncfs(top) < 0)
		return den_fail_sys(err, errno, "write '%s' to disk", path);
	return 0;
}

static int change_one(const struct change *c, const char *path, bool link, struct den_err *err)
{
	auto_fd fd = -1, dir = -1;
	char base[256];
	struct stat st;

	if (c->apply(c, AT_FDCWD, path, link ? AT_SYMLINK_NOFOLLOW : 0) < 0)
		return den_fail_sys(err, errno, "'%s'", path);
	if (fstatat(AT_FDCWD, path, &st, link ? AT_SYMLINK_NOFOLLOW : 0) == 0 &&
		(S_ISREG(st.st_mode) || S_ISDIR(st.st_mode)))
		fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd >= 0) {
		if (fsync(fd) < 0 && errno != EINVAL && errno != EROFS)
			return den_fail_sys(err, errno, "write '%s' to disk", path);
		return 0;
	}
	/* It cannot be opened: its directory is as near as one gets. */
	return fs_split(path, &dir, base, NULL) < 0 ? 0 : fs_sync_dir(dir, err);
}

static int change(const struct change *c, const char *path, bool recursive, bool link,
	struct den_err *err)
{
	struct stat st;

	if (fstatat(AT_FDCWD, path, &st, link ? AT_SYMLINK_NOFOLLOW : 0) < 0)
		return den_fail_sys(err, errno, "'%s'", path);
	if (recursive && S_ISDIR(st.st_mode))
		return change_tree(c, path, err);
	return change_one(c, path, link, err);
}

int fs_chmod(char *const *arg, struct den_err *err)
{
	struct change c = { .before = mode_before, .apply = mode_apply };

	if (!*arg[1])
		return den_fail(err, DEN_INVALID, 0, "chmod: which mode?");
	if (fs_mode(arg[1], 0, &c.mode, err) < 0)
		return den_wrap(err, "chmod");
	if (change(&c, arg[0], fs_flag(arg[2], 'r'), false, err) < 0)
		return den_wrap(err, "chmod");
	return 0;
}

/* "user", "user:group", and ":group" for the group alone */
static int owner_parse(const char *spec, struct change *c, struct den_err *err)
{
	auto_free struct user *u = mem_new(struct user);

	c->uid = (uid_t)-1;
	c->gid = (gid_t)-1;
	if (spec[0] == ':')
		return group_lookup(spec + 1, &c->gid, err);
	if (user_lookup(spec, u, err) < 0)
		return -1;
	c->uid = u->uid;
	if (strchr(spec, ':'))
		c->gid = u->gid;
	return 0;
}

int fs_chown(char *const *arg, struct den_err *err)
{
	struct change c = { .before = owner_before, .apply = owner_apply };

	if (owner_parse(arg[1], &c, err) < 0 ||
		change(&c, arg[0], fs_flag(arg[2], 'r'), fs_flag(arg[2], 'l'), err) < 0)
		return den_wrap(err, "chown");
	return 0;
}
