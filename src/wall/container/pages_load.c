#include "pages.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "crew.h"
#include "enter.h"
#include "fd.h"
#include "lent.h"
#include "mem.h"
#include "pages_fds.h"
#include "status.h"

struct member {
	uint32_t inner;
	pid_t pid;
};

struct loading {
	int box;     /* see pages_load() */
	bool inside; /* one of the crew: it is the box's root */
	struct piece *v;
	size_t n, *parts, n_parts;
	pid_t *hosts; /* of each piece */
	const char *maps[PAGES_FILES_MAX];
	size_t sizes[PAGES_FILES_MAX];
	struct lent lent; /* instead of files */
	char *through;	  /* LENT_BYTES of it, a copy for each of the crew */
};
#define LENT_BYTES (256UL << 10)

static int damaged(struct den_err *err)
{
	return den_fail(err, DEN_UNSUPPORTED, 0,
		"what was saved of the programs is damaged: '" PAGES_FILE "' speaks of what is not there");
}

/* ---- who and where ---- */

static int member_compare(const void *a, const void *b)
{
	const struct member *x = a, *y = b;

	return (x->inner > y->inner) - (x->inner < y->inner);
}

/* Those who load are in the same cgroup, but not in the box's pid namespace. */
static struct member *members(struct cgroup *cg, size_t *ret_n, struct den_err *err)
{
	auto_free pid_t *pids = NULL;
	struct member *m;
	struct status st;
	size_t n;

	if (cgroup_pids(cg, &pids, &n, err) < 0)
		return NULL;
	m = mem_alloc((n + 1) * sizeof(*m));
	*ret_n = 0;
	for (size_t i = 0; i < n; i++)
		if (status_of(pids[i], &st) == 0 && st.nested)
			m[(*ret_n)++] = (struct member){ (uint32_t)st.inner, pids[i] };
	qsort(m, *ret_n, sizeof(*m), member_compare);
	return m;
}

static int find_hosts(struct loading *l, struct cgroup *cg, struct den_err *err)
{
	size_t n;
	auto_free struct member *m = members(cg, &n, err);

	if (!m)
		return -1;
	l->hosts = mem_alloc(l->n * sizeof(*l->hosts));
	for (size_t i = 0; i < l->n; i++) {
		struct member key = { .inner = l->v[i].pid }, *found = bsearch(&key, m, n, sizeof(*m), member_compare);

		if (!found)
			return damaged(err);
		l->hosts[i] = found->pid;
	}
	return 0;
}

static int map_file(struct loading *l, int dirfd, uint32_t k, struct den_err *err)
{
	char name[32];
	auto_fd fd = -1;
	struct stat st;
	void *p;

	snprintf(name, sizeof(name), PAGES_FILE "-%u", (unsigned)k);
	fd = openat(dirfd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || !st.st_size)
		return damaged(err);
	p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		return den_fail_sys(err, errno, "images");
	l->maps[k] = p;
	l->sizes[k] = (size_t)st.st_size;
	return 0;
}

static int map_files(struct loading *l, int dirfd, struct den_err *err)
{
	for (size_t i = 0; i < l->n; i++) {
		const struct piece *v = &l->v[i];

		if (!l->maps[v->file] && map_file(l, dirfd, v->file, err) < 0)
			return -1;
		if (v->at > l->sizes[v->file] || v->pages * PAGE > l->sizes[v->file] - v->at)
			return damaged(err);
	}
	return 0;
}

/* ---- copying, in the crew ---- */

static int put(pid_t host, const char *p, uint64_t at, size_t len)
{
	for (size_t done = 0; done < len;) {
		struct iovec from = { (void *)(uintptr_t)(p + done), len - done }, to = { (void *)(uintptr_t)(at + done), len - done };
		ssize_t n = process_vm_writev(host, &from, 1, &to, 1, 0);

		if (n <= 0)
			return n < 0 ? errno : EFAULT;
		done += (size_t)n;
	}
	return 0;
}

static int fill_piece(const struct loading *l, const struct piece *v, pid_t host)
{
	const char *p = l->maps[v->file] + v->at;

	(void)madvise((void *)(uintptr_t)p, v->pages * PAGE, MADV_POPULATE_READ);
	return put(host, p, v->start, v->pages * PAGE);
}

/* From one process to the other. What is read is in the processor's cache when it is written. */
static int fill_lent(const struct loading *l, const struct piece *v, pid_t host)
{
	int from = lent_by(&l->lent, v->pid), r = 0;

	for (size_t done = 0, n; r == 0 && done < v->pages * PAGE; done += n) {
		n = MIN(v->pages * PAGE - done, LENT_BYTES);
		if (pread(from, l->through, n, (off_t)(v->start + done)) != (ssize_t)n)
			return ESTALE;
		r = put(host, l->through, v->start + done, n);
	}
	return r;
}

static int fill_part(void *user, size_t part, int who)
{
	struct loading *l = user;
	int r = 0;

	(void)who;
	/* A process is named by its number here, and who loads could have it used again by another one of the host. So the
	 * kernel shall refuse us all that it refuses root of the box. */
	if (!l->inside && enter_as_root(l->box, 0) < 0)
		return errno;
	l->inside = true;
	for (size_t i = l->parts[part]; r == 0 && i < l->parts[part + 1]; i++)
		r = l->through ? fill_lent(l, &l->v[i], l->hosts[i]) : fill_piece(l, &l->v[i], l->hosts[i]);
	return r;
}

/* None of it by ourselves: we have too many rights. */
static int fill(struct loading *l, struct den_err *err)
{
	struct crew c;
	int r = crew_start(&c, l->n_parts, CREW_MAX, false, fill_part, l, err);

	return crew_wait(&c, "load the memory of a process", r == 0 ? err : NULL) < 0 ? -1 : r;
}

/* Files, or those who lend it. */
static int source(struct loading *l, int dirfd, struct den_err *err)
{
	if (lent_open(dirfd, &l->lent, err) < 0)
		return -1;
	if (!l->lent.n)
		return map_files(l, dirfd, err);
	for (size_t i = 0; i < l->n; i++)
		if (lent_by(&l->lent, l->v[i].pid) < 0)
			return damaged(err);
	l->through = mem_alloc(LENT_BYTES);
	return 0;
}

int pages_load(struct cgroup *cg, int box, int dirfd, bool needed, struct den_err *err)
{
	struct loading l = { .box = box, .lent.fifo = -1 };
	int r;

	if (pages_table_read(dirfd, &l.v, &l.n, err) < 0)
		return -1;
	if (!l.n)
		return needed ? damaged(err) : 0;
	l.parts = pages_parts(l.v, l.n, &l.n_parts);
	r = find_hosts(&l, cg, err) < 0 || source(&l, dirfd, err) < 0 ? -1 : fill(&l, err);
	if (r == 0 && l.through)
		r = lent_end(&l.lent, err);
	lent_close(&l.lent);
	free(l.through);
	for (int i = 0; i < PAGES_FILES_MAX; i++)
		if (l.maps[i])
			munmap((void *)(uintptr_t)l.maps[i], l.sizes[i]);
	free(l.v);
	free(l.parts);
	free(l.hosts);
	return r;
}
