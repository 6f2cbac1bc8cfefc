#include "journal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "fd.h"
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

/* The number at the beginning of a line of ours. */
static uint64_t line_number(const char *p, size_t n)
{
	char head[32];
	unsigned long long v = 0;

	snprintf(head, sizeof(head), "%.*s", (int)MIN(n, sizeof(head) - 1), p);
	return sscanf(head, "{\"n\":%llu,", &v) == 1 ? v : 0;
}

/* Where the file ends in whole lines, and what its last one is. */
static int find_end(struct journal *j, off_t size, struct den_err *err)
{
	size_t want = (size_t)MIN(size, (off_t)LINE_MAX_BYTES * 2), end, begin;
	auto_free char *tail = mem_alloc(want + 1);

	if (pread(j->fd, tail, want, size - (off_t)want) != (ssize_t)want)
		return den_fail_sys(err, errno, "read journal");
	for (end = want; end && tail[end - 1] != '\n'; end--)
		;
	if (end < want && ftruncate(j->fd, size - (off_t)(want - end)) < 0)
		return den_fail_sys(err, errno, "mend journal");
	if (!end)
		return 0;
	for (begin = end - 1; begin && tail[begin - 1] != '\n'; begin--)
		;
	hash_line(tail + begin, end - 1 - begin, j->prev);
	j->n = line_number(tail + begin, end - begin);
	return 0;
}

int journal_open(struct journal *j, int dirfd, const char *name, struct den_err *err)
{
	struct stat st;

	*j = (struct journal){ .fd = openat(dirfd, name, O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600) };
	memset(j->prev, '0', 64);
	if (j->fd < 0 || fstat(j->fd, &st) < 0)
		return den_fail_sys(err, errno, "open journal");
	if (st.st_size && find_end(j, st.st_size, err) < 0) {
		journal_close(j);
		return -1;
	}
	return 0;
}

void journal_close(struct journal *j)
{
	fd_close(&j->fd);
}

void journal_begin(struct journal *j, struct json *line, const char *kind)
{
	char at[40];
	int64_t now = clock_wall_ms();
	struct tm tm;
	time_t s = (time_t)(now / 1000);

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
	off_t before = lseek(j->fd, 0, SEEK_END);
	char hash[65];
	ssize_t n;

	json_str(line, "prev", j->prev);
	json_close(line, '}');
	hash_line(line->b.p, line->b.len, hash);
	buf_addstr(&line->b, "\n");
	n = line->b.len > LINE_MAX_BYTES ? -1 : write(j->fd, line->b.p, line->b.len);
	if (n != (ssize_t)line->b.len) {
		int sys = errno;

		if (n > 0)
			(void)!ftruncate(j->fd, before);
		buf_free(&line->b);
		return den_fail_sys(err, sys, "write journal");
	}
	buf_free(&line->b);
	memcpy(j->prev, hash, sizeof(hash));
	j->n++;
	return 0;
}

/* ---- reading ---- */

static bool is_kind(const char *line, size_t n, const char *kind)
{
	auto_buf want = { 0 };

	if (!kind)
		return true;
	buf_addf(&want, "\"kind\":\"%s\"", kind);
	/* it is the third field: what a box chose comes after it */
	return memmem(line, MIN(n, 160), want.p, want.len) != NULL;
}

/* Goes back from the end until it has seen enough lines. */
static size_t find_start(const char *p, size_t n, const char *kind, uint64_t count)
{
	size_t end = n;

	while (end && count) {
		const char *nl = end > 1 ? memrchr(p, '\n', end - 1) : NULL;
		size_t begin = nl ? (size_t)(nl - p) + 1 : 0;

		if (is_kind(p + begin, end - begin, kind))
			count--;
		end = begin;
	}
	return end;
}

int journal_tail(int dirfd, const char *name, const char *kind, uint64_t count,
	int (*fn)(const char *line, size_t len, void *user, struct den_err *err), void *user,
	struct den_err *err)
{
	auto_fd fd = openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;
	size_t at, n;
	char *p;
	int r = 0;

	if (fd < 0)
		return errno == ENOENT ? 0 : den_fail_sys(err, errno, "open journal");
	if (fstat(fd, &st) < 0)
		return den_fail_sys(err, errno, "read journal");
	if (!st.st_size)
		return 0;
	p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (p == MAP_FAILED)
		return den_fail_sys(err, errno, "read journal");
	n = (size_t)st.st_size;
	while (n && p[n - 1] != '\n')
		n--;
	for (at = find_start(p, n, kind, count); at < n && r == 0;) {
		const char *nl = memchr(p + at, '\n', n - at);
		size_t len = (size_t)(nl - (p + at));

		if (is_kind(p + at, len, kind))
			r = fn(p + at, len, user, err);
		at += len + 1;
	}
	munmap(p, (size_t)st.st_size);
	return r;
}
