#include "fd.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

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
	if (syscall(SYS_close_range, (unsigned)from, ~0U, 0) == 0)
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

/* The box made these names and may have nested them thousands deep, so depth is bounded by moving
 * a too deep directory up to the top instead of recursing without end. */
static int remove_children(int topfd, int dirfd, int depth, unsigned *seq, struct den_err *err)
{
	DIR *d = fdopendir(dirfd);
	struct dirent *de;
	int r = 0;

	if (!d) {
		close(dirfd);
		return den_fail_sys(err, errno, "open directory");
	}
	while (r == 0 && (de = readdir(d))) {
		int sub;

		if (!strcmp(de->d_name, ".") || !strcmp(de->d_name, ".."))
			continue;
		if (unlinkat(dirfd, de->d_name, 0) == 0 || errno == ENOENT)
			continue;
		if (errno != EISDIR && errno != EPERM && errno != EACCES) {
			r = den_fail_sys(err, errno, "remove '%s'", de->d_name);
			break;
		}
		if (unlinkat(dirfd, de->d_name, AT_REMOVEDIR) == 0)
			continue;
		if (depth > 64) {
			char name[32];

			snprintf(name, sizeof(name), ".deep.%u", (*seq)++);
			if (renameat(dirfd, de->d_name, topfd, name) < 0)
				r = den_fail_sys(err, errno, "move '%s' up", de->d_name);
			continue;
		}
		sub = openat(dirfd, de->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (sub < 0 && errno == EACCES) { /* a directory without permission, ours to remove */
			if (fchmodat(dirfd, de->d_name, 0700, 0) == 0)
				sub = openat(dirfd, de->d_name,
					O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		}
		if (sub < 0) {
			r = den_fail_sys(err, errno, "open '%s'", de->d_name);
			break;
		}
		r = remove_children(topfd, sub, depth + 1, seq, err);
		if (r == 0 && unlinkat(dirfd, de->d_name, AT_REMOVEDIR) < 0 && errno != ENOENT)
			r = den_fail_sys(err, errno, "remove '%s'", de->d_name);
	}
	closedir(d);
	return r;
}

int tree_remove_at(int dirfd, const char *name, struct den_err *err)
{
	unsigned seq = 0;
	int fd, r;

	if (unlinkat(dirfd, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
		return 0;
	if (errno == ENOTDIR)
		return unlinkat(dirfd, name, 0) < 0 && errno != ENOENT ?
			den_fail_sys(err, errno, "remove '%s'", name) : 0;
	/* Passes: what was moved up to the top in one pass goes in the next. */
	for (int pass = 0; pass < 4096; pass++) {
		fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (fd < 0)
			return errno == ENOENT ? 0 : den_fail_sys(err, errno, "open '%s'", name);
		r = remove_children(fd, fcntl(fd, F_DUPFD_CLOEXEC, 3), 0, &seq, err);
		close(fd);
		if (r < 0)
			return den_wrap(err, "remove tree '%s'", name);
		if (unlinkat(dirfd, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
			return 0;
		if (errno != ENOTEMPTY)
			return den_fail_sys(err, errno, "remove '%s'", name);
	}
	return den_fail(err, DEN_INTERNAL, ENOTEMPTY, "remove tree '%s'", name);
}
