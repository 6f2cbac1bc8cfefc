/* For tests of layers: trees made by hand, with overlayfs's marks, and their digests. */
#pragma once

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "buf.h"
#include "image.h"
#include "test.h"

#define OPAQUE "user.overlay.opaque"

static inline int dir_make(const char *name)
{
	char path[PATH_MAX];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", test_dir(), name);
	CHECK(mkdir(path, 0755) == 0);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	CHECK(fd >= 0);
	return fd;
}

static inline void put(int dirfd, const char *path, const char *text)
{
	int fd = openat(dirfd, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	close(fd);
}

static inline void sub(int dirfd, const char *path)
{
	CHECK(mkdirat(dirfd, path, 0755) == 0);
}

static inline bool there(int dirfd, const char *path)
{
	return faccessat(dirfd, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static inline bool whiteout(int dirfd, const char *path)
{
	struct stat st;

	return fstatat(dirfd, path, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISCHR(st.st_mode) && st.st_rdev == 0;
}

static inline struct buf *at(int dirfd, const char *path)
{
	static struct buf b;

	b.len = 0;
	buf_addf(&b, "/proc/self/fd/%d/%s", dirfd, path);
	buf_str(&b);
	return &b;
}

static inline void mark(int dirfd, const char *path, const char *name, const char *value)
{
	if (lsetxattr(at(dirfd, path)->p, name, value, strlen(value), 0) < 0 && errno == ENOTSUP)
		SKIP("this file system has no user attributes");
	CHECK(lgetxattr(at(dirfd, path)->p, name, NULL, 0) == (ssize_t)strlen(value));
}

static inline bool marked(int dirfd, const char *path, const char *name)
{
	return lgetxattr(at(dirfd, path)->p, name, NULL, 0) >= 0;
}

/* Fails the test, and says why, if a call did. */
static inline void well(int r, const struct den_err *err)
{
	if (r < 0)
		fprintf(stderr, "%s\n", err->msg);
	CHECK(r >= 0);
}

static inline void digest(int fd, char hex[static 65])
{
	struct den_err err;

	well(layer_digest(fd, hex, NULL, &err), &err);
}

static inline unsigned entries(int dirfd, const char *prefix)
{
	int fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY);
	DIR *d = fdopendir(fd);
	struct dirent *de;
	unsigned n = 0;

	while ((de = readdir(d)))
		n += !strncmp(de->d_name, prefix, strlen(prefix));
	closedir(d);
	return n;
}
