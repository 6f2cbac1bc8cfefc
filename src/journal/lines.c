#include "lines.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "buf.h"
#include "fd.h"
#include "journal.h"
#include "mem.h"

const char *journal_file(char out[static JOURNAL_NAME_MAX], const char *name, const char *end)
{
	snprintf(out, JOURNAL_NAME_MAX, "%s%s", name, end);
	return out;
}

int lines_map(int dirfd, const char *name, struct lines *ret, struct den_err *err)
{
	auto_fd fd = openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	struct lines l = { 0 };
	struct stat st;
	void *p;

	if (fd < 0 && errno == ENOENT) {
		*ret = l;
		return 0;
	}
	if (fd < 0)
		return den_fail_sys(err, errno, "open journal");
	if (fstat(fd, &st) < 0)
		return den_fail_sys(err, errno, "read journal");
	if (st.st_size) {
		l.n = l.mapped = (size_t)st.st_size;
		p = mmap(NULL, l.mapped, PROT_READ, MAP_PRIVATE, fd, 0);
		if (p == MAP_FAILED)
			return den_fail_sys(err, errno, "read journal");
		l.p = p;
		while (l.n && l.p[l.n - 1] != '\n')
			l.n--;
	}
	*ret = l;
	return 0;
}

void lines_unmap(struct lines *l)
{
	if (l->mapped)
		munmap((void *)(uintptr_t)l->p, l->mapped);
	*l = (struct lines){ 0 };
}

bool lines_at(const struct lines *l, size_t at, const char **line, size_t *len)
{
	if (at >= l->n)
		return false;
	*line = l->p + at;
	*len = (size_t)((const char *)memchr(l->p + at, '\n', l->n - at) - *line);
	return true;
}

bool line_is(const char *line, size_t n, const char *kind)
{
	auto_buf want = { 0 };

	if (!kind)
		return true;
	buf_addf(&want, "\"kind\":\"%s\"", kind);
	/* it is the third field: what a box chose comes after it */
	return memmem(line, MIN(n, 160), want.p, want.len) != NULL;
}

uint64_t line_number(const char *line, size_t n)
{
	char head[32];
	unsigned long long v = 0;

	snprintf(head, sizeof(head), "%.*s", (int)MIN(n, sizeof(head) - 1), line);
	return sscanf(head, "{\"n\":%llu,", &v) == 1 ? v : 0;
}

size_t lines_back(const struct lines *l, const char *kind, uint64_t *count)
{
	size_t end = l->n;

	while (end && *count) {
		const char *nl = end > 1 ? memrchr(l->p, '\n', end - 1) : NULL;
		size_t begin = nl ? (size_t)(nl - l->p) + 1 : 0;

		if (line_is(l->p + begin, end - begin, kind))
			--*count;
		end = begin;
	}
	return end;
}

int journal_tail(int dirfd, const char *name, const char *kind, uint64_t count,
	int (*fn)(const char *line, size_t len, void *user, struct den_err *err), void *user,
	struct den_err *err)
{
	static const char *const ends[] = { "", ".1", ".kept" }; /* the newest first */
	struct lines files[ARRAY_SIZE(ends)] = { 0 };
	size_t from[ARRAY_SIZE(ends)], len;
	char file[JOURNAL_NAME_MAX];
	const char *line;
	int r = 0;

	for (size_t i = 0; i < ARRAY_SIZE(ends) && r == 0; i++) {
		r = lines_map(dirfd, journal_file(file, name, ends[i]), &files[i], err);
		from[i] = r == 0 ? lines_back(&files[i], kind, &count) : 0;
	}
	for (size_t i = ARRAY_SIZE(ends); i-- && r == 0;)
		for (size_t at = from[i]; r == 0 && lines_at(&files[i], at, &line, &len); at += len + 1)
			if (line_is(line, len, kind))
				r = fn(line, len, user, err);
	for (size_t i = 0; i < ARRAY_SIZE(ends); i++)
		lines_unmap(&files[i]);
	return r;
}
