#include "fd.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "compat.h"
#include "mem.h"

void fd_close(int *fd)
{
	int saved = errno;

	if (*fd >= 0)
		close(*fd);
	*fd = -1;
	errno = saved;
}

int fd_write_all(int fd, const void *buf, size_t n, struct den_err *err)
{
	const char *p = buf;

	while (n) {
		ssize_t r = write(fd, p, n);

		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0)
			return den_fail_sys(err, errno, "write");
		p += r;
		n -= (size_t)r;
	}
	return 0;
}

#define HOLE_MIN 4096U /* fewer zeros are written: a file system has no smaller holes */

int fd_write_sparse(int fd, const void *buf, size_t n, bool *hole, struct den_err *err)
{
	const char *p = buf;

	*hole = n >= HOLE_MIN && !p[0] && !memcmp(p, p + 1, n - 1) && lseek(fd, (off_t)n, SEEK_CUR) >= 0;
	return *hole ? 0 : fd_write_all(fd, buf, n, err);
}

int fd_end_sparse(int fd, struct den_err *err)
{
	off_t size = lseek(fd, 0, SEEK_CUR);

	return size < 0 || ftruncate(fd, size) < 0 ? den_fail_sys(err, errno, "set size") : 0;
}

int fd_read_all(int fd, size_t max, char **ret, size_t *ret_len, struct den_err *err)
{
	auto_free char *buf = NULL;
	size_t len = 0, cap = 0;

	for (;;) {
		ssize_t r;

		if (len + 1 >= cap) {
			cap = cap ? cap * 2 : 4096;
			buf = mem_realloc(buf, cap);
		}
		r = read(fd, buf + len, cap - len - 1);
		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0)
			return den_fail_sys(err, errno, "read");
		if (r == 0)
			break;
		len += (size_t)r;
		if (len > max)
			return den_fail(err, DEN_LIMIT, 0, "more than %zu bytes", max);
	}
	buf[len] = '\0';
	*ret = mem_take(&buf);
	if (ret_len)
		*ret_len = len;
	return 0;
}

int fd_set_nonblock(int fd, bool on)
{
	int fl = fcntl(fd, F_GETFL);

	if (fl < 0)
		return -1;
	return fcntl(fd, F_SETFL, on ? fl | O_NONBLOCK : fl & ~O_NONBLOCK);
}

int fd_move_up(int fd, int min)
{
	int n;

	if (fd < 0 || fd >= min)
		return fd;
	n = fcntl(fd, F_DUPFD_CLOEXEC, min);
	fd_close(&fd);
	return n;
}

void fd_close_from(int from)
{
	/* the largest number there is, as gVisor's kernel wants it */
	if (syscall(SYS_close_range, (unsigned)from, (unsigned)INT_MAX, 0) == 0)
		return;
	for (int fd = from; fd < 65536; fd++) /* a kernel before 5.9 */
		close(fd);
}

int file_write_at(int dirfd, const char *path, const char *text, struct den_err *err)
{
	auto_fd fd = openat(dirfd, path, O_WRONLY | O_CLOEXEC);
	size_t n = strlen(text);

	if (fd < 0)
		return den_fail_sys(err, errno, "open '%s'", path);
	if (write(fd, text, n) != (ssize_t)n)
		return den_fail_sys(err, errno, "write '%s' to '%s'", text, path);
	return 0;
}

int file_read_at(int dirfd, const char *path, char *buf, size_t cap, struct den_err *err)
{
	auto_fd fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC);
	size_t len = 0;

	if (fd < 0)
		return den_fail_sys(err, errno, "open '%s'", path);
	while (len < cap - 1) {
		ssize_t r = read(fd, buf + len, cap - 1 - len);

		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0)
			return den_fail_sys(err, errno, "read '%s'", path);
		if (r == 0)
			break;
		len += (size_t)r;
	}
	if (len && buf[len - 1] == '\n')
		len--;
	buf[len] = '\0';
	return 0;
}

int file_replace_at(int dirfd, const char *path, const void *data, size_t n, mode_t mode,
	struct den_err *err)
{
	char tmp[4096];
	auto_fd fd = -1;

	if ((size_t)snprintf(tmp, sizeof(tmp), "%s.tmp.%d", path, (int)getpid()) >= sizeof(tmp))
		return den_fail(err, DEN_INVALID, ENAMETOOLONG, "'%s'", path);
	fd = openat(dirfd, tmp, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, mode);
	if (fd < 0)
		return den_fail_sys(err, errno, "create '%s'", tmp);
	if (fd_write_all(fd, data, n, err) < 0 || fchmod(fd, mode) < 0) {
		unlinkat(dirfd, tmp, 0);
		return den_wrap(err, "write '%s'", tmp);
	}
	if (renameat(dirfd, tmp, dirfd, path) < 0) {
		int sys = errno;

		unlinkat(dirfd, tmp, 0);
		return den_fail_sys(err, sys, "rename to '%s'", path);
	}
	return 0;
}

/*
 * Removing a tree that the box made. Its names may be nested thousands deep, so a directory below
 * REMOVE_DEPTH is moved up to the top and removed in a later pass; its owner may be nobody's
 * friend, so a directory that its mode closes is opened up first; and something of the host may
 * still be mounted in it, so no mount point is ever entered.
 */
#define REMOVE_DEPTH 64
#define REMOVE_PASSES 4096

/* Opens a directory to empty it: itself, not what a link of that name points to. -1: errno, EXDEV
 * for a mount point. */
static int remove_open(int dirfd, const char *name)
{
	struct open_how how = { .flags = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC,
		.resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV | RESOLVE_BENEATH };
	auto_fd path = (int)syscall(SYS_openat2, dirfd, name, &how, sizeof(how));
	struct stat st, above;
	char self[32];
	int fd;

	if (path < 0 && (errno == ENOSYS || errno == EPERM)) { /* an old kernel, or a filter */
		path = openat(dirfd, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (path >= 0 && fstat(path, &st) == 0 && fstatat(dirfd, ".", &above, 0) == 0 &&
			st.st_dev != above.st_dev) {
			errno = EXDEV;
			return -1;
		}
	}
	if (path < 0 || fstat(path, &st) < 0)
		return -1;
	/* Through /proc the mode is set of this very directory, whatever the name is by now. */
	snprintf(self, sizeof(self), "/proc/self/fd/%d", path);
	if ((st.st_mode & 0700) != 0700)
		chmod(self, 0700); /* if it fails, so will what follows */
	fd = openat(path, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd;
}

static int remove_move_up(
	int topfd, int dirfd, const char *name, unsigned *seq, struct den_err *err)
{
	auto_fd open_it = remove_open(dirfd, name); /* to move it, its mode must let us */
	char up[32];

	if (open_it < 0)
		return den_fail_sys(err, errno, "open '%s'", name);
	for (int tries = 0; tries < 1000; tries++) { /* the box may have made some of these names */
		snprintf(up, sizeof(up), ".deep.%u", (*seq)++);
		if (renameat2(dirfd, name, topfd, up, RENAME_NOREPLACE) == 0 || errno == ENOENT)
			return 0;
		if (errno == EINVAL && faccessat(topfd, up, F_OK, AT_SYMLINK_NOFOLLOW) < 0 &&
			renameat(dirfd, name, topfd, up) == 0)
			return 0;
		if (errno != EEXIST && errno != ENOTEMPTY && errno != ENOTDIR)
			break;
	}
	return den_fail_sys(err, errno, "move '%s' up", name);
}

static int remove_children(int topfd, int dirfd, int depth, unsigned *seq, struct den_err *err);

static int remove_entry(int topfd, int dirfd, const char *name, int depth, unsigned *seq,
	struct den_err *err)
{
	struct stat st;
	int sub;

	if (unlinkat(dirfd, name, 0) == 0 || errno == ENOENT)
		return 0;
	if (errno != EISDIR && errno != EPERM)
		return den_fail_sys(err, errno, "remove '%s'", name);
	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISDIR(st.st_mode))
		return den_fail_sys(err, EPERM, "remove '%s'", name);
	if (unlinkat(dirfd, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
		return 0;
	if (depth > REMOVE_DEPTH)
		return remove_move_up(topfd, dirfd, name, seq, err);
	sub = remove_open(dirfd, name);
	if (sub < 0 && errno == ENOENT)
		return 0;
	if (sub < 0 && errno == EXDEV)
		return den_fail(err, DEN_CONFLICT, EXDEV, "'%s' is a mount point", name);
	if (sub < 0)
		return den_fail_sys(err, errno, "open '%s'", name);
	if (remove_children(topfd, sub, depth + 1, seq, err) < 0)
		return -1;
	/* Not empty: someone adds to it. The next pass comes back. */
	if (unlinkat(dirfd, name, AT_REMOVEDIR) < 0 && errno != ENOENT && errno != ENOTEMPTY)
		return den_fail_sys(err, errno, "remove '%s'", name);
	return 0;
}

/* Takes dirfd. */
static int remove_children(int topfd, int dirfd, int depth, unsigned *seq, struct den_err *err)
{
	DIR *d = fdopendir(dirfd);
	struct dirent *de;
	int r = 0;

	if (!d) {
		r = den_fail_sys(err, errno, "open directory");
		fd_close(&dirfd);
		return r;
	}
	while (r == 0 && (de = readdir(d)))
		if (strcmp(de->d_name, ".") && strcmp(de->d_name, ".."))
			r = remove_entry(topfd, dirfd, de->d_name, depth, seq, err);
	closedir(d);
	return r;
}

static int remove_tree(int dirfd, const char *name, struct den_err *err)
{
	unsigned seq = 0;
	int r;

	if (unlinkat(dirfd, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
		return 0;
	if (errno == ENOTDIR)
		return unlinkat(dirfd, name, 0) < 0 && errno != ENOENT ?
			den_fail_sys(err, errno, "remove '%s'", name) : 0;
	/* Passes: what was moved up to the top in one pass goes in the next. */
	for (int pass = 0; pass < REMOVE_PASSES; pass++) {
		auto_fd fd = remove_open(dirfd, name);

		if (fd < 0 && errno == EXDEV)
			return den_fail(
				err, DEN_CONFLICT, EXDEV, "remove '%s': it is a mount point", name);
		if (fd < 0)
			return errno == ENOENT ? 0 : den_fail_sys(err, errno, "open '%s'", name);
		r = remove_children(fd, fcntl(fd, F_DUPFD_CLOEXEC, 3), 0, &seq, err);
		if (r < 0)
			return den_wrap(err, "remove tree '%s'", name);
		if (unlinkat(dirfd, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
			return 0;
		if (errno != ENOTEMPTY)
			return den_fail_sys(err, errno, "remove '%s'", name);
	}
	return den_fail(err, DEN_INTERNAL, ENOTEMPTY, "remove tree '%s'", name);
}

int tree_remove_at(int dirfd, const char *name, struct den_err *err)
{
	auto_free char *path = mem_strdup(name);
	size_t n = strlen(path);
	auto_fd fd = -1;
	char *slash;

	while (n > 1 && path[n - 1] == '/')
		path[--n] = '\0';
	slash = strrchr(path, '/');
	if (!slash)
		return remove_tree(dirfd, path, err);
	if (!slash[1])
		return den_fail(err, DEN_INVALID, 0, "'/' is not removed");
	/* The way to the tree is the caller's and may lead through mounts; only the tree may
	 * not. */
	*slash = '\0';
	fd = openat(dirfd, slash == path ? "/" : path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? 0 : den_fail_sys(err, errno, "open '%s'", path);
	return remove_tree(fd, slash + 1, err);
}
