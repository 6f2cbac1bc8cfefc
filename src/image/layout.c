#include "layout.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fd.h"
#include "json_in.h"
#include "mem.h"
#include "spool.h"
#include "tar.h"
#include "work.h"

#define CHUNK (128U << 10)

struct layout {
	int fd; /* the archive, or the directory */
	bool dir;
	char *path, *temp; /* temp becomes path at the end; NULL: written in place */
};

bool layout_is_dir(const struct layout *l)
{
	return l->dir;
}

/* ---- opening --------------------------------------------------------------------------------- */

static int tar_dir(struct layout *l, const char *name, struct den_err *err)
{
	struct tar_entry e = { .type = TAR_DIR, .name = name, .mode = 0755 };
	auto_buf b = { 0 };

	if (tar_put_entry(&b, &e, err) < 0)
		return -1;
	return fd_write_all(l->fd, b.p, b.len, err);
}

static int open_dir(struct layout *l, const char *dest, struct den_err *err)
{
	static const char *const dirs[] = { "blobs", "blobs/sha256" };

	l->dir = true;
	if (mkdir(dest, 0755) < 0 && errno != EEXIST)
		return den_fail_sys(err, errno, "make directory '%.100s'", dest);
	l->fd = open(dest, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (l->fd < 0)
		return den_fail_sys(err, errno, "'%.100s'", dest);
	for (size_t i = 0; i < ARRAY_SIZE(dirs); i++)
		if (mkdirat(l->fd, dirs[i], 0755) < 0 && errno != EEXIST)
			return den_fail_sys(
				err, errno, "make directory '%.100s/%s'", dest, dirs[i]);
	return 0;
}

static int open_file(struct layout *l, const char *dest, struct den_err *err)
{
	struct stat st;
	bool there = stat(dest, &st) == 0;

	if (there && !S_ISREG(st.st_mode)) { /* a pipe or a device */
		l->fd = open(dest, O_WRONLY | O_CLOEXEC);
	} else {
		l->path = mem_strdup(dest);
		if (asprintf(&l->temp, "%s.den-%d", dest, (int)getpid()) < 0)
			return den_fail(err, DEN_INTERNAL, ENOMEM, "export");
		l->fd = open(l->temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
		if (l->fd < 0) {
			free(l->temp);
			l->temp = NULL;
		}
	}
	return l->fd < 0 ? den_fail_sys(err, errno, "write '%.100s'", dest) : 0;
}

static int open_out(struct layout *l, struct den_err *err)
{
	if (isatty(STDOUT_FILENO))
		return den_fail(err, DEN_INVALID, 0, "'-' writes an archive, not to a terminal");
	l->fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
	return l->fd < 0 ? den_fail_sys(err, errno, "standard output") : 0;
}

int layout_open(const char *dest, bool docker, struct layout **ret, struct den_err *err)
{
	struct layout *l = mem_new(struct layout);
	size_t n = strlen(dest);
	struct stat st;
	bool dir = n && (dest[n - 1] == '/' || (stat(dest, &st) == 0 && S_ISDIR(st.st_mode)));
	int r;

	l->fd = -1;
	if (dir && docker)
		r = den_fail(err, DEN_INVALID, 0,
			"a docker archive is a file; '%.80s' is a directory", dest);
	else if (dir)
		r = open_dir(l, dest, err);
	else
		r = !strcmp(dest, "-") ? open_out(l, err) : open_file(l, dest, err);
	if (r == 0 && !dir && !docker)
		r = tar_dir(l, "blobs", err) < 0 ? -1 : tar_dir(l, "blobs/sha256", err);
	if (r < 0) {
		layout_free(l);
		return -1;
	}
	*ret = l;
	return 0;
}

/* ---- writing --------------------------------------------------------------------------------- */

static int copy_fd(int to, int from, uint64_t size, struct den_err *err)
{
	auto_free char *buf = mem_alloc(CHUNK);
	struct stretch s = { from, 0, size };

	while (s.left) {
		ssize_t n = stretch_read(buf, CHUNK, &s, err);

		if (n < 0 || interrupt_check(err) < 0)
			return -1;
		if (n == 0)
			return den_fail(err, DEN_INTERNAL, 0, "the temporary file became shorter");
		if (fd_write_all(to, buf, (size_t)n, err) < 0)
			return -1;
	}
	return 0;
}

static int tar_put_fd(
	struct layout *l, const char *name, int fd, uint64_t size, struct den_err *err)
{
	struct tar_entry e = { .type = TAR_FILE, .name = name, .size = size, .mode = 0644 };
	auto_buf b = { 0 };

	if (tar_put_entry(&b, &e, err) < 0 || fd_write_all(l->fd, b.p, b.len, err) < 0 ||
		copy_fd(l->fd, fd, size, err) < 0)
		return -1;
	b.len = 0;
	tar_put_pad(&b, size);
	return fd_write_all(l->fd, b.p, b.len, err);
}

static int dir_put_fd(
	struct layout *l, const char *name, int fd, uint64_t size, struct den_err *err)
{
	auto_free char *temp = NULL;
	auto_fd to = -1;
	int r;

	if (asprintf(&temp, "%s.den-%d", name, (int)getpid()) < 0)
		return den_fail(err, DEN_INTERNAL, ENOMEM, "export");
	to = openat(l->fd, temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
	if (to < 0)
		return den_fail_sys(err, errno, "write '%.100s'", name);
	r = copy_fd(to, fd, size, err);
	if (r == 0 && renameat(l->fd, temp, l->fd, name) < 0)
		r = den_fail_sys(err, errno, "write '%.100s'", name);
	if (r < 0)
		unlinkat(l->fd, temp, 0);
	return r;
}

int layout_put_fd(struct layout *l, const char *name, int fd, uint64_t size, struct den_err *err)
{
	return l->dir ? dir_put_fd(l, name, fd, size, err) : tar_put_fd(l, name, fd, size, err);
}

int layout_put(struct layout *l, const char *name, const void *data, size_t n, struct den_err *err)
{
	struct tar_entry e = { .type = TAR_FILE, .name = name, .size = n, .mode = 0644 };
	auto_buf b = { 0 };

	if (l->dir)
		return file_replace_at(l->fd, name, data, n, 0644, err);
	if (tar_put_entry(&b, &e, err) < 0)
		return -1;
	buf_add(&b, data, n);
	tar_put_pad(&b, n);
	return fd_write_all(l->fd, b.p, b.len, err);
}

int layout_index(struct layout *l, char **ret, size_t *ret_len, struct den_err *err)
{
	auto_fd fd = l->dir ? openat(l->fd, "index.json", O_RDONLY | O_NONBLOCK | O_CLOEXEC) : -1;

	*ret = NULL;
	if (fd < 0)
		return !l->dir || errno == ENOENT ? 0 : den_fail_sys(err, errno, "index.json");
	return fd_read_all(fd, JSON_IN_MAX, ret, ret_len, err);
}

int layout_finish(struct layout *l, struct den_err *err)
{
	auto_buf b = { 0 };

	if (l->dir)
		return syncfs(l->fd) < 0 ? den_fail_sys(err, errno, "write to disk") : 0;
	tar_put_end(&b);
	if (fd_write_all(l->fd, b.p, b.len, err) < 0)
		return -1;
	if (!l->temp)
		return 0;
	if (fsync(l->fd) < 0 || rename(l->temp, l->path) < 0)
		return den_fail_sys(err, errno, "write '%.100s'", l->path);
	free(l->temp);
	l->temp = NULL;
	return 0;
}

void layout_free(struct layout *l)
{
	if (!l)
		return;
	if (l->temp)
		unlink(l->temp);
	fd_close(&l->fd);
	free(l->temp);
	free(l->path);
	free(l);
}
