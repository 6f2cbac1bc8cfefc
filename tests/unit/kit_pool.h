/* For tests of the pool: one in the test's state directory, and files in its layers. */
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <time.h>

#include "fd.h"
#include "mem.h"
#include "pool.h"
#include "test.h"

#define BOX "b-aaaaaaaaaaaaaaaaaa"
#define SIZE (512ULL << 20)

static struct den_err err;
static int state = -1;
static char state_path[PATH_MAX];
static struct pool *pool;

#define OK(x)                                                                                      \
	do {                                                                                       \
		if ((x) < 0) {                                                                     \
			fprintf(stderr, "  %s\n", err.msg);                                        \
			CHECK(!#x);                                                                \
		}                                                                                  \
	} while (0)

static inline void state_make(const char *name)
{
	snprintf(state_path, sizeof(state_path), "%s/%s", test_dir(), name);
	CHECK(mkdir(state_path, 0700) == 0);
	state = open(state_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	CHECK(state >= 0);
}

static inline void use(const char *kind)
{
	struct pool_options opt = { .kind = kind, .size = !strcmp(kind, "btrfs") ? SIZE : 0 };

	if (state < 0)
		state_make("state");
	if (!strcmp(kind, "btrfs") && geteuid() != 0)
		SKIP("a btrfs pool needs root");
	if (pool_open(state, state_path, &opt, &pool, &err) < 0) {
		if (err.code == DEN_UNSUPPORTED)
			SKIP(err.msg);
		fprintf(stderr, "  %s\n", err.msg);
		CHECK(!"open");
	}
	CHECK(pool->kind == (strcmp(kind, "plain") ? POOL_BTRFS : POOL_PLAIN));
}

static inline void pause_ms(int ms)
{
	nanosleep(&(struct timespec){ .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L }, NULL);
}

static inline int layer(const char *name)
{
	int fd = openat(pool->fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	CHECK(fd >= 0);
	return fd;
}

static inline void put(int dir, const char *name, const char *text, mode_t mode)
{
	auto_fd fd = openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	CHECK(fchmod(fd, mode) == 0);
}

static inline bool holds(int dir, const char *name, const char *text)
{
	auto_fd fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
	char got[256];
	ssize_t n = fd < 0 ? -1 : read(fd, got, sizeof(got));

	return n == (ssize_t)strlen(text) && !memcmp(got, text, (size_t)n);
}

static inline ino_t ino_of(int dir, const char *name)
{
	struct stat st;

	CHECK(fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0);
	return st.st_ino;
}

static inline bool there(int dir, const char *name)
{
	return faccessat(dir, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static inline void private_mounts(void)
{
	uid_t uid = geteuid();
	gid_t gid = getegid();
	char map[64];

	if (uid != 0) {
		if (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0)
			SKIP("no user namespaces");
		snprintf(map, sizeof(map), "0 %u 1", uid);
		if (file_write_at(AT_FDCWD, "/proc/self/uid_map", map, &err) < 0 ||
			file_write_at(AT_FDCWD, "/proc/self/setgroups", "deny", &err) < 0)
			SKIP("no user namespaces");
		snprintf(map, sizeof(map), "0 %u 1", gid);
		OK(file_write_at(AT_FDCWD, "/proc/self/gid_map", map, &err));
		return;
	}
	if (unshare(CLONE_NEWNS) < 0)
		SKIP("no mount namespaces");
	CHECK(mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) == 0);
}

static inline int count_names(int dir)
{
	DIR *d = fdopendir(openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	int n = 0;

	CHECK(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n - 2;
}

static inline int count_in(int dir, const char *name)
{
	auto_fd fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	CHECK(fd >= 0);
	return count_names(fd);
}

static inline void put_large(int dir, const char *name, size_t n)
{
	auto_fd fd = openat(dir, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	auto_free char *text = mem_alloc(n);

	for (size_t i = 0; i < n; i++)
		text[i] = (char)(i * 2654435761U >> 13);
	OK(fd_write_all(fd, text, n, &err));
}
