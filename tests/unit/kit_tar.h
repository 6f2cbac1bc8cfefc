/* For tests of archives: files made and looked at, archives made by honest and dishonest writers. */
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "buf.h"
#include "fd.h"
#include "mem.h"
#include "tar.h"
#include "test.h"
#include "tree.h"

static inline int dir_at(int at, const char *name)
{
	int fd;

	mkdirat(at, name, 0755);
	fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	CHECK(fd >= 0);
	return fd;
}

static inline int scratch(void)
{
	int fd = open(test_dir(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	CHECK(fd >= 0);
	return fd;
}

static inline void file_at(int at, const char *name, const void *p, size_t n, mode_t mode)
{
	auto_fd fd = openat(at, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	struct den_err err;

	CHECK(fd >= 0);
	CHECK(fd_write_all(fd, p, n, &err) == 0 && fchmod(fd, mode) == 0);
}

static inline bool holds(int at, const char *name, const char *text)
{
	char got[256];
	auto_fd fd = openat(at, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, got, sizeof(got));

	return n == (ssize_t)strlen(text) && !memcmp(got, text, (size_t)n);
}

static inline bool missing(int at, const char *name)
{
	return faccessat(at, name, F_OK, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT;
}

static inline struct stat stat_at(int at, const char *name)
{
	struct stat st;

	CHECK(fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) == 0);
	return st;
}

static inline int to_buf(const void *p, size_t n, void *user, struct den_err *err)
{
	(void)err;
	buf_add(user, p, n);
	return 0;
}

struct source {
	const char *p;
	size_t left, piece;
};

static inline ssize_t from_source(void *buf, size_t cap, void *user, struct den_err *err)
{
	struct source *s = user;
	size_t n = MIN(MIN(cap, s->left), s->piece);

	(void)err;
	memcpy(buf, s->p, n);
	s->p += n;
	s->left -= n;
	return (ssize_t)n;
}

static inline int unpack_pieces(int at, const struct buf *b, size_t piece, const struct tree_unpack_opt *opt,
	struct tree_stats *stats, struct den_err *err)
{
	struct source s = { b->p, b->len, piece };

	*err = (struct den_err){ 0 };
	return tree_unpack(at, opt, from_source, &s, stats, err);
}

static inline int unpack(int at, const struct buf *b, const struct tree_unpack_opt *opt, struct den_err *err)
{
	return unpack_pieces(at, b, SIZE_MAX, opt, NULL, err);
}

/* As the host does with what a box sent. */
static const struct tree_unpack_opt host = { .mode_clear = 07022, .keep_dirs = true };
static const struct tree_unpack_opt inside = { .owner = true, .special = true,
	.xattrs = TREE_XATTR_USER };

static inline void run(const char *const *argv)
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		execvp(argv[0], (char *const *)argv);
		_exit(127);
	}
	CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}
#define RUN(...) run((const char *const[]){ __VA_ARGS__, NULL })

static inline void put(struct buf *b, enum tar_type type, const char *name, const char *target,
	const char *data, uint32_t mode)
{
	struct tar_entry e = { .type = type, .name = name, .target = target, .mode = mode,
		.size = data ? strlen(data) : 0, .uid = geteuid(), .gid = getegid(), .mtime_sec = 1000 };
	struct den_err err;

	CHECK(tar_put_entry(b, &e, &err) == 0);
	if (data) {
		buf_addstr(b, data);
		tar_put_pad(b, e.size);
	}
}

/* A header as no honest writer makes it. */
static inline void put_raw(struct buf *b, const char *name, char type, const char *link, const char *size,
	size_t size_len)
{
	char h[512] = { 0 };
	unsigned sum = 0;

	memcpy(h, name, strnlen(name, 100));
	memcpy(h + 100, "0004755", 8);
	memcpy(h + 108, "0000000", 8);
	memcpy(h + 116, "0000000", 8);
	memcpy(h + 124, size, size_len);
	memcpy(h + 136, "00000001750", 12);
	h[156] = type;
	memcpy(h + 157, link, strnlen(link, 100));
	memcpy(h + 257, "ustar\00000", 8);
	memset(h + 148, ' ', 8);
	for (int i = 0; i < 512; i++)
		sum += (unsigned char)h[i];
	snprintf(h + 148, 8, "%06o", sum);
	buf_add(b, h, 512);
}
#define RAW(b, name, type, link, size) put_raw(b, name, type, link, size, sizeof(size) - 1)

static inline void put_meta(struct buf *b, char type, const void *p, size_t n)
{
	char size[12];

	snprintf(size, sizeof(size), "%011zo", n);
	put_raw(b, "meta", type, "", size, 12);
	buf_add(b, p, n);
	tar_put_pad(b, n);
}

static inline int take_entry(const struct tar_entry *e, void *user, struct den_err *err)
{
	(void)err;
	buf_addf(user, "%s:%llu:%u;", e->name, (unsigned long long)e->size, e->uid);
	return 0;
}

static inline int take_data(const void *p, size_t n, void *user, struct den_err *err)
{
	(void)p, (void)n, (void)user, (void)err;
	return 0;
}

static inline int take_end(void *user, struct den_err *err)
{
	(void)user, (void)err;
	return 0;
}

/* Reads an archive; what was in it goes to *ret as text. */
static inline int parse(const struct buf *b, struct buf *ret, struct den_err *err)
{
	static const struct tar_ops ops = { take_entry, take_data, take_end };
	struct tar_reader *r = tar_reader_new(&ops, ret);
	int res;

	*err = (struct den_err){ 0 };
	res = tar_reader_feed(r, b->p, b->len, err);
	if (res == 0)
		res = tar_reader_finish(r, err);
	tar_reader_free(r);
	return res;
}
