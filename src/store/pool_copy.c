/*
 * One file of a layer, copied with everything it has.
 *
 * The source is made by a box and hostile: links are not followed, nothing but regular files is
 * opened, and those only after they were seen to be such. The target is a directory that only we
 * know.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "fd.h"
#include "mem.h"
#include "pool_kinds.h"

#define CHUNK (256U << 10)
#define XATTR_TRIES 8

void pool_copy_free(struct pool_copy *c)
{
	free(c->buffer);
	buf_free(&c->names);
	buf_free(&c->value);
	*c = (struct pool_copy){ 0 };
}

/* ---- content ---- */

static int range_by_hand(struct pool_copy *c, int in, int out, off_t at, off_t end)
{
	if (!c->buffer)
		c->buffer = mem_alloc(CHUNK);
	while (at < end) {
		ssize_t n = pread(in, c->buffer, MIN(CHUNK, (size_t)(end - at)), at), done = 0;

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return (int)n; /* shorter by now than it was */
		while (done < n) {
			ssize_t w = pwrite(out, c->buffer + done, (size_t)(n - done), at + done);

			if (w < 0 && errno != EINTR)
				return -1;
			done += w > 0 ? w : 0;
		}
		at += n;
	}
	return 0;
}

static int range_copy(struct pool_copy *c, int in, int out, off_t at, off_t end)
{
	while (at < end) {
		off_t from = at, to = at;
		ssize_t n = copy_file_range(
			in, &from, out, &to, (size_t)MIN(end - at, (off_t)1 << 30), 0);

		if (n < 0 && errno == EINTR)
			continue;
		/* Not between these two, or not at all; by hand it goes, or tells the true
		 * reason. */
		if (n < 0 && errno != ENOSPC && errno != EDQUOT && errno != EIO)
			return range_by_hand(c, in, out, at, end);
		if (n < 0)
			return -1;
		if (n == 0)
			return range_by_hand(
				c, in, out, at, end); /* shorter, or a file that lies about it */
		at += n;
	}
	return 0;
}

static int content_copy(struct pool_copy *c, int in, int out, off_t size)
{
	off_t at = 0;

	if (size == 0)
		return 0;
	if (c->reflink) {
		if (ioctl(out, FICLONE, in) == 0)
			return 0;
		if (errno == ENOSPC || errno == EDQUOT)
			return -1;
	}
	while (at < size) {
		off_t data = lseek(in, at, SEEK_DATA), hole;

		if (data < 0 && errno == ENXIO)
			break; /* nothing but a hole */
		if (data < 0)
			data = at;
		hole = lseek(in, data, SEEK_HOLE);
		if (hole < 0 || hole > size)
			hole = size;
		if (data < hole && range_copy(c, in, out, data, hole) < 0)
			return -1;
		at = MAX(hole, data);
	}
	return ftruncate(out, size);
}

/* ---- what belongs to a file ---- */

/* Ids, and what they mean to the host's own security module: the host gives a new file its own
 * label. */
static bool xattr_is_hosts(const char *name)
{
	return !strncmp(name, "security.", 9) && strcmp(name, "security.capability");
}

static int xattr_copy(struct pool_copy *c, const char *from, const char *to, const char *name,
	struct den_err *err)
{
	for (int tries = 0; tries < XATTR_TRIES; tries++) {
		ssize_t n = lgetxattr(from, name, c->value.p, c->value.cap);

		if (n < 0 && errno == ERANGE) {
			buf_reserve(&c->value, XATTR_SIZE_MAX);
			continue;
		}
		if (n < 0 && errno == ENODATA)
			return 0;
		if (n < 0 || lsetxattr(to, name, c->value.p, (size_t)n, 0) < 0) {
			if ((errno == EPERM || errno == EOPNOTSUPP) && xattr_is_hosts(name))
				return 0;
			return den_fail_sys(err, errno, "attribute '%.64s'", name);
		}
		return 0;
	}
	return den_fail(err, DEN_CONFLICT, EAGAIN, "attribute '%.64s'", name);
}

int pool_copy_xattrs(struct pool_copy *c, int from, int to, const char *name, struct den_err *err)
{
	char a[300], b[300];
	ssize_t n;

	/* Through /proc: the name itself, without opening it or following it if it is a link. An
	 * empty name with a slash before it is the directory of the descriptor. */
	snprintf(a, sizeof(a), "/proc/self/fd/%d/%s", from, name);
	snprintf(b, sizeof(b), "/proc/self/fd/%d/%s", to, name);
	buf_reserve(&c->names, 4096);
	buf_reserve(&c->value, 4096);
	n = llistxattr(a, c->names.p, c->names.cap);
	if (n < 0 && errno == ERANGE) {
		buf_reserve(&c->names, XATTR_LIST_MAX);
		n = llistxattr(a, c->names.p, c->names.cap);
	}
	if (n < 0)
		return errno == EOPNOTSUPP ? 0 : den_fail_sys(err, errno, "read attributes");
	for (char *p = c->names.p; p < c->names.p + n; p += strlen(p) + 1)
		if (xattr_copy(c, a, b, p, err) < 0)
			return -1;
	return 0;
}

/* In this order: an owner's change takes setuid bits and capabilities away; attributes need a mode
 * that lets them be written; times come last. */
static int meta_copy(struct pool_copy *c, int from, const char *name, const struct stat *st, int to,
	struct den_err *err)
{
	struct timespec times[2] = { st->st_atim, st->st_mtim };

	if (fchownat(to, name, st->st_uid, st->st_gid, AT_SYMLINK_NOFOLLOW) < 0)
		return den_fail_sys(err, errno, "set owner");
	if (pool_copy_xattrs(c, from, to, name, err) < 0)
		return -1;
	if (!S_ISLNK(st->st_mode) && fchmodat(to, name, st->st_mode & 07777, 0) < 0)
		return den_fail_sys(err, errno, "set mode");
	if (utimensat(to, name, times, AT_SYMLINK_NOFOLLOW) < 0)
		return den_fail_sys(err, errno, "set times");
	return 0;
}

int pool_copy_dir_meta(int fd, const struct stat *st, struct den_err *err)
{
	struct timespec times[2] = { st->st_atim, st->st_mtim };

	if (fchown(fd, st->st_uid, st->st_gid) < 0 || fchmod(fd, st->st_mode & 07777) < 0 ||
		futimens(fd, times) < 0)
		return den_fail_sys(err, errno, "set owner, mode and times");
	return 0;
}

/* ---- each type ---- */

static int file_copy(struct pool_copy *c, int from, const char *name, const struct stat *st, int to,
	struct den_err *err)
{
	auto_fd in = openat(from, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC),
		out = -1;
	struct stat now;

	if (in < 0 || fstat(in, &now) < 0)
		return den_fail_sys(err, errno, "open");
	if (!S_ISREG(now.st_mode) || now.st_ino != st->st_ino)
		return den_fail(err, DEN_CONFLICT, 0, "it was replaced while it was being copied");
	out = openat(to, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (out < 0)
		return den_fail_sys(err, errno, "create");
	if (content_copy(c, in, out, now.st_size) < 0)
		return den_fail_sys(err, errno, "copy");
	return 0;
}

static int link_copy(int from, const char *name, int to, struct den_err *err)
{
	char target[PATH_MAX];
	ssize_t n = readlinkat(from, name, target, sizeof(target) - 1);

	if (n < 0)
		return den_fail_sys(err, errno, "read link");
	target[n] = '\0';
	return symlinkat(target, to, name) < 0 ? den_fail_sys(err, errno, "make link") : 0;
}

int pool_copy_entry(struct pool_copy *c, int from, const char *name, const struct stat *st, int to,
	struct den_err *err)
{
	int r;

	if (S_ISREG(st->st_mode))
		r = file_copy(c, from, name, st, to, err);
	else if (S_ISLNK(st->st_mode))
		r = link_copy(from, name, to, err);
	else
		/* fifos, sockets, and whiteouts: character device 0:0, which needs no right to be
		 * made */
		r = mknodat(to, name, (st->st_mode & S_IFMT) | 0600, st->st_rdev) < 0
			    ? den_fail_sys(err, errno, "make node")
			    : 0;
	return r < 0 ? -1 : meta_copy(c, from, name, st, to, err);
}
