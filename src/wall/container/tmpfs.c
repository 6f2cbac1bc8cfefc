/*
 * The file: for each of the mounts in `tops`, entries in the order of walking (a directory before what is in it, and
 * again after it, for its times), each a struct entry with its path and, for links, the target; a file is followed by
 * its pieces, so holes stay holes. Attributes come as entries after what they are of, those of a directory after what is
 * in it, or that would have them from it: the target is their name, the value follows. It is read by den on the same
 * machine: numbers are the machine's own.
 */
#include "tmpfs.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "enter.h"
#include "fd.h"
#include "mem.h"
#include "tree.h"
#include "walk.h"

#define NAME "den-tmpfs"
#define MAGIC 0x6e65440aU
#define NAME_MAX_ 8192U
#define XATTR_MAX 65536U /* the kernel's limit, of a value and of a list of names */

static const char *const tops[] = { "/dev", "/dev/shm", "/run" };

enum what { E_TOP, E_DIR, E_LEAVE, E_FILE, E_LINK, E_HARD, E_FIFO, E_END, E_XATTR };

struct entry {
	uint32_t magic, what, mode, uid, gid, path_len, target_len, mtime_nsec;
	int64_t mtime_sec;
	uint64_t size;
};

struct piece {
	uint64_t at, len; /* len 0: the last */
};

/* ---- writing ---- */

static int put(int out, enum what what, const struct stat *st, const char *path, const char *target,
	struct den_err *err)
{
	struct entry e = { .magic = MAGIC, .what = what, .mode = st->st_mode & 07777, .uid = st->st_uid,
		.gid = st->st_gid, .path_len = (uint32_t)strlen(path), .target_len = (uint32_t)strlen(target),
		.mtime_nsec = (uint32_t)st->st_mtim.tv_nsec, .mtime_sec = st->st_mtim.tv_sec,
		.size = what == E_FILE ? (uint64_t)st->st_size : 0 };

	if (e.path_len >= PATH_MAX) /* it could not be made again by that name */
		return den_fail_sys(err, ENAMETOOLONG, "path of %u bytes", e.path_len);
	if (fd_write_all(out, &e, sizeof(e), err) < 0 || fd_write_all(out, path, e.path_len, err) < 0)
		return -1;
	return fd_write_all(out, target, e.target_len, err);
}

static int put_piece(int out, int in, off_t at, off_t len, struct den_err *err)
{
	struct piece p = { (uint64_t)at, (uint64_t)len };

	if (fd_write_all(out, &p, sizeof(p), err) < 0)
		return -1;
	while (len > 0) {
		ssize_t n = sendfile(out, in, &at, (size_t)MIN(len, (off_t)1 << 30));

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return den_fail_sys(err, n ? errno : EIO, "copy");
		len -= n;
	}
	return 0;
}

static int put_file(int out, const struct walk_entry *e, struct den_err *err)
{
	auto_fd in = openat(e->dirfd, e->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	struct piece last = { 0 };
	off_t at = 0, hole;

	if (in < 0)
		return den_fail_sys(err, errno, "open");
	while (at < e->st.st_size && (at = lseek(in, at, SEEK_DATA)) >= 0) {
		hole = lseek(in, at, SEEK_HOLE);
		if (hole <= at)
			hole = e->st.st_size;
		if (put_piece(out, in, at, MIN(hole, e->st.st_size) - at, err) < 0)
			return -1;
		at = hole;
	}
	return fd_write_all(out, &last, sizeof(last), err);
}

static int put_xattr(int out, const char *name, const char *path, const char *attr, struct den_err *err)
{
	static char value[XATTR_MAX];
	struct entry e = { .magic = MAGIC, .what = E_XATTR, .path_len = (uint32_t)strlen(path),
		.target_len = (uint32_t)strlen(attr) };
	ssize_t n = lgetxattr(name, attr, value, sizeof(value));

	if (n < 0)
		return den_fail_sys(err, errno, "attribute");
	e.size = (uint64_t)n;
	if (fd_write_all(out, &e, sizeof(e), err) < 0 || fd_write_all(out, path, e.path_len, err) < 0 ||
		fd_write_all(out, attr, e.target_len, err) < 0)
		return -1;
	return fd_write_all(out, value, (size_t)n, err);
}

/* There is no call that takes a directory and a name (before Linux 6.13): it goes there. dir -1: name is a path. */
static int put_xattrs(int out, int dir, const char *name, const char *path, struct den_err *err)
{
	static char names[XATTR_MAX];
	ssize_t n = dir >= 0 && fchdir(dir) < 0 ? -1 : llistxattr(name, names, sizeof(names));

	if (n < 0 && errno == ENOTSUP)
		return 0;
	if (n < 0)
		return den_fail_sys(err, errno, "attributes");
	for (const char *a = names; a < names + n; a += strlen(a) + 1)
		if (tree_xattr_is_kept(a) && put_xattr(out, name, path, a, err) < 0)
			return -1;
	return 0;
}

static int put_entry(int out, const struct walk_entry *e, struct tree_links *links, struct den_err *err)
{
	const char *first;
	char target[4096];
	ssize_t n;

	switch (e->st.st_mode & S_IFMT) {
	case S_IFDIR:
		return put(out, E_DIR, &e->st, e->path, "", err);
	case S_IFIFO:
		return put(out, E_FIFO, &e->st, e->path, "", err);
	case S_IFLNK:
		n = readlinkat(e->dirfd, e->name, target, sizeof(target) - 1);
		if (n < 0)
			return den_fail_sys(err, errno, "readlink");
		target[n] = '\0';
		return put(out, E_LINK, &e->st, e->path, target, err);
	case S_IFREG:
		first = e->st.st_nlink > 1 ? tree_links_name(links, &e->st) : NULL;
		if (first)
			return put(out, E_HARD, &e->st, e->path, first, err);
		if (e->st.st_nlink > 1)
			tree_links_add(links, &e->st, e->path);
		if (put(out, E_FILE, &e->st, e->path, "", err) < 0 || put_file(out, e, err) < 0)
			return -1;
		return put_xattrs(out, e->dirfd, e->name, e->path, err);
	default: /* sockets are made by those who listen on them; a box makes no devices */
		return 0;
	}
}

static int put_leave(int out, const struct walk_entry *e, struct den_err *err)
{
	if (put(out, E_LEAVE, &e->st, e->path, "", err) < 0)
		return -1;
	return put_xattrs(out, e->dirfd, e->name, e->path, err);
}

static int pack_top(int out, const char *top, struct den_err *err)
{
	struct tree_links *links = tree_links_new();
	struct walk *w = NULL;
	struct walk_entry e;
	struct stat st;
	int fd = open(top, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), r;

	if (fd < 0 || fstat(fd, &st) < 0)
		return den_fail_sys(err, errno, "'%s'", top);
	r = put(out, E_TOP, &st, top, "", err);
	if (r == 0)
		r = walk_new(fd, 0, WALK_LEAVES, &w, err);
	while (r == 0 && (r = walk_next(w, &e, err)) > 0) {
		bool dir = S_ISDIR(e.st.st_mode);

		if (e.st.st_dev != st.st_dev) { /* mounted there: not the box's, or another of these */
			if (dir && r == WALK_ENTRY)
				walk_skip(w);
			r = 0;
			continue;
		}
		r = r == WALK_LEAVE ? put_leave(out, &e, err) : put_entry(out, &e, links, err);
	}
	if (r == 0)
		r = put_xattrs(out, -1, top, ".", err);
	if (w)
		walk_free(w);
	tree_links_free(links);
	return r < 0 ? den_wrap(err, "save what is in '%s'", top) : 0;
}

static int pack_all(int box, int out, struct den_err *err)
{
	struct stat none = { 0 };

	if (enter_as_root(box, CLONE_NEWNS) < 0)
		return den_fail_sys(err, errno, "enter the box");
	for (size_t i = 0; i < ARRAY_SIZE(tops); i++)
		if (pack_top(out, tops[i], err) < 0)
			return -1;
	return put(out, E_END, &none, "", "", err);
}

int tmpfs_pack(int box, int dirfd, pid_t *ret, struct den_err *err)
{
	auto_fd out = openat(dirfd, NAME, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	struct den_err e = { 0 };
	pid_t pid;

	if (out < 0)
		return den_fail_sys(err, errno, "images");
	pid = fork();
	if (pid == 0)
		_exit(pack_all(box, out, &e) == 0 ? 0 : e.sys && e.sys < 250 ? e.sys : 255);
	if (pid < 0)
		return den_fail_sys(err, errno, "fork");
	*ret = pid;
	return 0;
}

int tmpfs_packed(pid_t pid, struct den_err *err)
{
	int status;

	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return den_fail_sys(err, errno, "wait");
	if (status == 0)
		return 0;
	if (WIFEXITED(status) && WEXITSTATUS(status) < 250)
		return den_fail_sys(err, WEXITSTATUS(status), "save what is in /dev/shm and /run");
	return den_fail(err, DEN_INTERNAL, 0, "what is in /dev/shm and /run could not be saved");
}

/* ---- reading ---- */

static int get(int fd, void *p, size_t n, struct den_err *err)
{
	for (size_t at = 0; at < n;) {
		ssize_t got = read(fd, (char *)p + at, n - at);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return den_fail(err, DEN_INVALID, got ? errno : 0, "the saved contents of /dev/shm and /run are damaged");
		at += (size_t)got;
	}
	return 0;
}

static int open_parent(int top, char *path, const char **name)
{
	struct open_how how = { .flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV };
	char *slash = strrchr(path, '/');
	int fd;

	*name = slash ? slash + 1 : path;
	if (slash)
		*slash = '\0';
	fd = (int)syscall(SYS_openat2, top, slash ? path : ".", &how, sizeof(how));
	if (slash)
		*slash = '/';
	return fd;
}

static int get_file(int fd, int dir, const char *name, const struct entry *e, struct den_err *err)
{
	auto_fd out = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	struct piece p;

	if (out < 0 || ftruncate(out, (off_t)e->size) < 0)
		return den_fail_sys(err, errno, "make '%.100s'", name);
	for (;;) {
		off_t at;

		if (get(fd, &p, sizeof(p), err) < 0)
			return -1;
		if (!p.len)
			return 0;
		if (p.at > e->size || p.len > e->size - p.at)
			return den_fail(err, DEN_INVALID, 0, "the saved contents of /dev/shm and /run are damaged");
		at = lseek(out, (off_t)p.at, SEEK_SET);
		for (uint64_t left = p.len; left > 0 && at >= 0;) {
			ssize_t n = sendfile(out, fd, NULL, (size_t)MIN(left, 1ULL << 30));

			if (n <= 0)
				return den_fail_sys(err, n ? errno : EIO, "write '%.100s'", name);
			left -= (uint64_t)n;
		}
	}
}

static int make(int fd, int top, int dir, const char *name, const struct entry *e, const char *target,
	struct den_err *err)
{
	const char *old_name;
	char old[NAME_MAX_ + 1];
	auto_fd old_dir = -1;
	int r;

	if (e->what == E_DIR) {
		if (mkdirat(dir, name, 0700) < 0 && errno != EEXIST)
			return den_fail_sys(err, errno, "make '%.100s'", name);
		return 0;
	}
	if (e->what != E_LEAVE && unlinkat(dir, name, 0) < 0 && errno != ENOENT)
		return den_fail_sys(err, errno, "replace '%.100s'", name);
	switch (e->what) {
	case E_LEAVE:
		return 0;
	case E_FILE:
		return get_file(fd, dir, name, e, err);
	case E_LINK:
		r = symlinkat(target, dir, name);
		break;
	case E_FIFO:
		r = mknodat(dir, name, S_IFIFO | 0600, 0);
		break;
	case E_HARD:
		snprintf(old, sizeof(old), "%s", target);
		old_dir = open_parent(top, old, &old_name);
		r = old_dir < 0 ? -1 : linkat(old_dir, old_name, dir, name, 0);
		break;
	default:
		return den_fail(err, DEN_INVALID, 0, "the saved contents of /dev/shm and /run are damaged");
	}
	return r < 0 ? den_fail_sys(err, errno, "make '%.100s'", name) : 0;
}

static int get_xattr(int fd, int dir, const char *name, const struct entry *e, const char *attr, struct den_err *err)
{
	static char value[XATTR_MAX];

	if (e->size > sizeof(value) || !tree_xattr_is_kept(attr))
		return den_fail(err, DEN_INVALID, 0, "the saved contents of /dev/shm and /run are damaged");
	if (get(fd, value, (size_t)e->size, err) < 0)
		return -1;
	if (fchdir(dir) < 0 || lsetxattr(name, attr, value, (size_t)e->size, 0) < 0)
		return den_fail_sys(err, errno, "attribute '%.60s'", attr);
	return 0;
}

static int get_entry(int fd, int top, const struct entry *e, char *path, const char *target, struct den_err *err)
{
	struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, { e->mtime_sec, e->mtime_nsec } };
	const char *name;
	auto_fd dir = open_parent(top, path, &name);

	if (dir < 0)
		return den_fail_sys(err, errno, "place of '%.100s'", path);
	if (e->what == E_XATTR)
		return get_xattr(fd, dir, name, e, target, err);
	if (make(fd, top, dir, name, e, target, err) < 0)
		return -1;
	if (e->what == E_HARD)
		return 0;
	if (fchownat(dir, name, e->uid, e->gid, AT_SYMLINK_NOFOLLOW) < 0 ||
		(e->what != E_LINK && fchmodat(dir, name, e->mode, 0) < 0) ||
		utimensat(dir, name, times, AT_SYMLINK_NOFOLLOW) < 0)
		return den_fail_sys(err, errno, "owner of '%.100s'", path);
	return 0;
}

int tmpfs_unpack(int fd, struct den_err *err)
{
	static char path[NAME_MAX_ + 1], target[NAME_MAX_ + 1];
	auto_fd top = -1;
	struct entry e;

	for (;;) {
		if (get(fd, &e, sizeof(e), err) < 0)
			return -1;
		if (e.magic != MAGIC || e.path_len > NAME_MAX_ || e.target_len > NAME_MAX_)
			return den_fail(err, DEN_INVALID, 0, "the saved contents of /dev/shm and /run are damaged");
		if (e.what == E_END)
			return chdir("/") < 0 ? den_fail_sys(err, errno, "chdir") : 0;
		if (get(fd, path, e.path_len, err) < 0 || get(fd, target, e.target_len, err) < 0)
			return -1;
		path[e.path_len] = target[e.target_len] = '\0';
		if (e.what != E_TOP) {
			if (top < 0 || get_entry(fd, top, &e, path, target, err) < 0)
				return den_wrap(err, "memory file systems");
			continue;
		}
		fd_close(&top);
		for (size_t i = 0; i < ARRAY_SIZE(tops) && top < 0; i++)
			if (!strcmp(path, tops[i]))
				top = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (top < 0 || fchmod(top, e.mode) < 0)
			return den_fail(err, DEN_INVALID, errno, "memory file system '%.100s'", path);
	}
}
