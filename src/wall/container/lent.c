#include "lent.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "buf.h"
#include "fd.h"
#include "mem.h"
#include "proc.h"
#include "wall.h"

#define LENT_FILE "den-lent"
#define LENT_MAX (1U << 20) /* bytes of it */

/* Whoever asked can ask for a copy that does not depend on anybody. */
static int over(struct den_err *err)
{
	return den_fail(err, DEN_CONFLICT, ESTALE, "the programs that are forked went on before their memory was copied");
}

int lent_write(int dirfd, const struct lender *v, size_t n, struct den_err *err)
{
	auto_buf b = { 0 };

	for (size_t i = 0; i < n; i++)
		buf_addf(&b, "%u %d %llu\n", (unsigned)v[i].inner, (int)v[i].pid, (unsigned long long)v[i].started);
	return file_replace_at(dirfd, LENT_FILE, b.p, b.len, 0600, err);
}

static int lent_read(int dirfd, struct lent *ret, struct den_err *err)
{
	auto_fd fd = openat(dirfd, LENT_FILE, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	auto_free char *text = NULL;
	int used;

	if (fd < 0)
		return errno == ENOENT ? 0 : den_fail_sys(err, errno, "images");
	if (fd_read_all(fd, LENT_MAX, &text, NULL, err) < 0)
		return -1;
	for (const char *p = text; *p; p += used) {
		struct lender l = { .mem = -1 };
		unsigned long long started;

		if (sscanf(p, "%u %d %llu\n%n", &l.inner, &l.pid, &started, &used) != 3 || l.pid <= 0)
			return den_fail(err, DEN_UNSUPPORTED, 0, "what was saved of the programs is damaged: '" LENT_FILE "'");
		l.started = started;
		if (ret->n % 64 == 0)
			ret->v = mem_realloc(ret->v, (ret->n + 64) * sizeof(*ret->v));
		ret->v[ret->n++] = l;
	}
	return 0;
}

/* A directory in /proc stays that of the process whose it was when it was opened. */
static int open_memory(struct lender *l)
{
	char path[32];
	uint64_t started;
	auto_fd dir = -1;

	snprintf(path, sizeof(path), "/proc/%d", (int)l->pid);
	dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0 || proc_start_time_at(dir, &started) < 0 || started != l->started)
		return -1;
	l->mem = openat(dir, "mem", O_RDONLY | O_CLOEXEC);
	return l->mem;
}

static int tell(struct lent *l, char what, struct den_err *err)
{
	ssize_t n;

	do
		n = write(l->fifo, &what, 1);
	while (n < 0 && errno == EINTR);
	return n == 1 ? 0 : over(err);
}

int lent_open(int dirfd, struct lent *ret, struct den_err *err)
{
	*ret = (struct lent){ .fifo = -1 };
	if (lent_read(dirfd, ret, err) < 0)
		goto fail;
	if (!ret->n)
		return 0;
	ret->fifo = openat(dirfd, WALL_LENT, O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
	if (ret->fifo < 0) {
		over(err);
		goto fail;
	}
	for (size_t i = 0; i < ret->n; i++)
		if (open_memory(&ret->v[i]) < 0) {
			over(err);
			goto fail;
		}
	if (tell(ret, LENT_FOUND, err) == 0)
		return 0;
fail:
	lent_close(ret);
	return -1;
}

int lent_by(const struct lent *l, uint32_t inner)
{
	for (size_t i = 0; i < l->n; i++)
		if (l->v[i].inner == inner)
			return l->v[i].mem;
	return -1;
}

int lent_end(struct lent *l, struct den_err *err)
{
	return tell(l, LENT_DONE, err);
}

void lent_close(struct lent *l)
{
	for (size_t i = 0; i < l->n; i++)
		fd_close(&l->v[i].mem);
	free(l->v);
	if (l->fifo >= 0)
		fd_close(&l->fifo);
	*l = (struct lent){ .fifo = -1 };
}
