#include "journal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "fd.h"
#include "lines.h"
#include "mem.h"
#include "sha256.h"

#define LINE_MAX_BYTES (64U << 10)

static void hash_line(const char *p, size_t n, char out[static 65])
{
	struct sha256 h;

	sha256_init(&h);
	sha256_add(&h, p, n);
	sha256_hex(&h, out);
}

/* Where the file ends in whole lines, and what its last one is: the next line goes on from there. */
static int find_end(struct journal *j, int fd, struct den_err *err)
{
	size_t want, end, begin;
	auto_free char *tail = NULL;
	struct stat st;

	if (fstat(fd, &st) < 0)
		return den_fail_sys(err, errno, "read journal");
	want = (size_t)MIN(st.st_size, (off_t)LINE_MAX_BYTES * 2);
	j->size = (uint64_t)st.st_size;
	tail = mem_alloc(want + 1);
	if (pread(fd, tail, want, st.st_size - (off_t)want) != (ssize_t)want)
		return den_fail_sys(err, errno, "read journal");
	for (end = want; end && tail[end - 1] != '\n'; end--)
		;
	if (end < want && ftruncate(fd, st.st_size - (off_t)(want - end)) < 0)
		return den_fail_sys(err, errno, "mend journal");
	j->size -= want - end;
	if (!end)
		return 0;
	for (begin = end - 1; begin && tail[begin - 1] != '\n'; begin--)
		;
	hash_line(tail + begin, end - 1 - begin, j->prev);
	j->n = line_number(tail + begin, end - begin);
	return 0;
}

/* The last writer may have died after it put the full file aside. */
static int find_end_before(struct journal *j, struct den_err *err)
{
	char old[JOURNAL_NAME_MAX];
	auto_fd fd = openat(j->dirfd, journal_file(old, j->name, ".1"), O_RDWR | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0)
		return errno == ENOENT ? 0 : den_fail_sys(err, errno, "open journal");
	if (find_end(j, fd, err) < 0)
		return -1;
	j->size = 0;
	return 0;
}

static int open_now(const struct journal *j)
{
	return openat(j->dirfd, j->name, O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);
}

int journal_open(struct journal *j, int dirfd, const char *name, const struct journal_limits *limits,
	struct den_err *err)
{
	*j = (struct journal){ .dirfd = dirfd, .name = name, .limits = limits };
	memset(j->prev, '0', 64);
	j->fd = open_now(j);
	if (j->fd < 0)
		return den_fail_sys(err, errno, "open journal");
	if (find_end(j, j->fd, err) < 0 || (!j->size && find_end_before(j, err) < 0)) {
		journal_close(j);
		return -1;
	}
	return 0;
}

void journal_close(struct journal *j)
{
	fd_close(&j->fd);
}

/* ---- another file ---- */

static bool is_kept(const struct journal_limits *limits, const char *line, size_t n)
{
	for (const char *const *k = limits->kinds; *k; k++)
		if (line_is(line, n, *k))
			return true;
	return false;
}

struct gone {
	uint64_t lines, kept;
	uint64_t trimmed; /* of those that had been kept until now */
};

/* What is in NAME.kept and what must be kept of NAME.1, in one file. Doing it twice does no harm. */
static int keep(struct journal *j, struct gone *ret, struct den_err *err)
{
	char kept[JOURNAL_NAME_MAX], old[JOURNAL_NAME_MAX];
	struct lines before = { 0 }, now = { 0 };
	uint64_t last = 0, n;
	auto_buf b = { 0 };
	const char *line;
	size_t len;
	int r = -1;

	journal_file(kept, j->name, ".kept");
	if (lines_map(j->dirfd, kept, &before, err) < 0 ||
		lines_map(j->dirfd, journal_file(old, j->name, ".1"), &now, err) < 0)
		goto out;
	for (size_t at = 0; lines_at(&before, at, &line, &len); at += len + 1)
		last = line_number(line, len);
	buf_add(&b, before.p ? before.p : "", before.n);
	for (size_t at = 0; lines_at(&now, at, &line, &len); at += len + 1) {
		ret->lines++;
		n = line_number(line, len);
		if (!is_kept(j->limits, line, len))
			continue;
		ret->kept++;
		if (n > last)
			buf_add(&b, line, len + 1);
	}
	if (b.len > j->limits->kept) {
		const char *nl = memchr(b.p + (b.len - j->limits->kept), '\n', j->limits->kept);

		for (const char *p = b.p; p <= nl; p++)
			ret->trimmed += *p == '\n';
		buf_consume(&b, (size_t)(nl - b.p) + 1);
	}
	r = b.len ? file_replace_at(j->dirfd, kept, b.p, b.len, 0600, err) : 0;
out:
	lines_unmap(&before);
	lines_unmap(&now);
	return r;
}

static void rotate(struct journal *j)
{
	struct gone gone = { 0 };
	char old[JOURNAL_NAME_MAX];
	struct den_err err;
	struct json line;
	int fd;

	if (keep(j, &gone, &err) < 0)
		gone.kept = gone.trimmed = 0; /* no room for them: what happens now matters more than what was */
	journal_file(old, j->name, ".1");
	if (renameat(j->dirfd, j->name, j->dirfd, old) < 0)
		return; /* it grows on, until this works */
	fd = open_now(j);
	fd_close(&j->fd); /* without another one nothing is written into what was put aside */
	j->fd = fd;
	j->size = 0;
	journal_begin(j, &line, "rotated");
	gone.lines += gone.trimmed - gone.kept;
	json_str(&line, "text", gone.lines ? "the oldest lines were removed" : "another file was begun");
	json_u64(&line, "count", gone.lines);
	json_u64(&line, "kept", gone.kept);
	(void)journal_end(j, &line, &err);
}

/* ---- writing ---- */

void journal_begin(struct journal *j, struct json *line, const char *kind)
{
	char at[40];
	struct tm tm;
	int64_t now;
	time_t s;

	if (j->size >= j->limits->file)
		rotate(j);
	now = clock_wall_ms();
	s = (time_t)(now / 1000);
	*line = (struct json){ 0 };
	json_open(line, NULL, '{');
	json_u64(line, "n", j->n + 1);
	gmtime_r(&s, &tm);
	strftime(at, 32, "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(at + strlen(at), 8, ".%03dZ", (int)(now % 1000));
	json_str(line, "at", at);
	json_str(line, "kind", kind);
}

int journal_end(struct journal *j, struct json *line, struct den_err *err)
{
	char hash[65];
	ssize_t n;

	json_str(line, "prev", j->prev);
	json_close(line, '}');
	hash_line(line->b.p, line->b.len, hash);
	buf_addstr(&line->b, "\n");
	errno = EFBIG;
	n = line->b.len > LINE_MAX_BYTES ? -1 : write(j->fd, line->b.p, line->b.len);
	if (n != (ssize_t)line->b.len) {
		int sys = n < 0 ? errno : ENOSPC;

		if (n > 0)
			(void)!ftruncate(j->fd, (off_t)j->size);
		buf_free(&line->b);
		return den_fail_sys(err, sys, "write journal");
	}
	j->size += (uint64_t)n;
	buf_free(&line->b);
	memcpy(j->prev, hash, sizeof(hash));
	j->n++;
	return 0;
}
