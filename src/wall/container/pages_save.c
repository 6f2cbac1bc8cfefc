#include "pages.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "crew.h"
#include "fd.h"
#include "lent.h"
#include "mem.h"
#include "pages_fds.h"
#include "proc.h"
#include "status.h"

#define MAPS_MAX (16U << 20)
#define SPANS_MAX (1U << 20) /* of all processes together */
#define SPAN_MIN (2U << 20)	   /* bytes of addresses that are worth it, and that CRIU asks for by themselves */
#define SPAN_PAGES_MIN 64	   /* and pages in them */
#define ALL_PAGES_MIN 1024	   /* and in all of the box */
#define LEND_PAGES_MIN 8192	   /* less is copied sooner than a process is made */
#define PIECES_MAX (1U << 16)
#define REGIONS 1024
/* Written at once. With more the page cache takes its memory in larger pieces, and in a virtual machine those are the
 * ones that the host has taken back: they come ten times as slowly. */
#define WRITE_BYTES (64U << 10)

struct span {
	uint64_t start, end;
	bool shared; /* perhaps: not for us */
};

struct proc {
	pid_t pid, parent;
	uint32_t inner;
	struct span *v;
	size_t n;
};

struct pages {
	struct cgroup *cg;
	struct hide *hide;
	struct proc *procs;
	size_t n_procs;
	int dirfd;
	struct piece *v; /* shared with the crew */
	pid_t *hosts;	 /* of each piece */
	size_t n, all;
	size_t *parts, n_parts;
	struct crew crew;
	bool lend;
	int out; /* of one of the crew */
	uint64_t at;
	char *part;
};

/* ---- which memory ---- */

/* "START-END rw-p OFFSET DEV INODE [NAME]": private, of no file. */
static bool take_line(const char *line, struct span *ret)
{
	unsigned long long start, end, inode;
	char mode[5];
	int used = 0;

	if (sscanf(line, "%llx-%llx %4s %*x %*s %llu%n", &start, &end, mode, &inode, &used) != 4 || strcmp(mode, "rw-p") || inode)
		return false;
	line += used + strspn(line + used, " ");
	if (*line && strcmp(line, "[heap]") && strncmp(line, "[anon:", 6))
		return false;
	*ret = (struct span){ start, end, false };
	return true;
}

static int read_spans(struct proc *p, size_t *all, struct den_err *err)
{
	auto_free char *text = NULL;
	char path[48];
	auto_fd fd = -1;
	struct span s;

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)p->pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return den_fail_sys(err, errno, "'%s'", path);
	if (fd_read_all(fd, MAPS_MAX, &text, NULL, err) < 0)
		return -1;
	for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
		*end = '\0';
		if (!take_line(line, &s))
			continue;
		if (++*all > SPANS_MAX)
			return den_fail(err, DEN_LIMIT, 0, "there are too many mappings");
		if (p->n % 64 == 0)
			p->v = mem_realloc(p->v, (p->n + 64) * sizeof(*p->v));
		p->v[p->n++] = s;
	}
	return 0;
}

/* Memory that is at the same place in parent and child may be one and the same, until one of them writes. CRIU keeps it so. */
static void mark_shared(struct proc *a, struct proc *b)
{
	for (size_t i = 0, k = 0; i < a->n && k < b->n;) {
		struct span *x = &a->v[i], *y = &b->v[k];

		if (x->start < y->end && y->start < x->end)
			x->shared = y->shared = true;
		if (x->end < y->end)
			i++;
		else
			k++;
	}
}

static int read_procs(struct pages *p, struct cgroup *cg, struct den_err *err)
{
	auto_free pid_t *pids = NULL;
	struct status st;
	size_t n, all = 0;

	if (cgroup_pids(cg, &pids, &n, err) < 0)
		return -1;
	p->procs = mem_zalloc((n + 1) * sizeof(*p->procs));
	for (size_t i = 0; i < n; i++) {
		struct proc *q = &p->procs[p->n_procs];

		if (status_of(pids[i], &st) < 0 || !st.nested || st.shadow)
			continue;
		*q = (struct proc){ .pid = pids[i], .parent = st.parent, .inner = (uint32_t)st.inner };
		p->n_procs++;
		if (read_spans(q, &all, err) < 0)
			return -1;
	}
	for (size_t i = 0; i < p->n_procs; i++)
		for (size_t k = 0; k < p->n_procs; k++)
			if (p->procs[i].parent == p->procs[k].pid)
				mark_shared(&p->procs[i], &p->procs[k]);
	return 0;
}

/* ---- which pages ---- */

static int scan(int fd, uint64_t start, uint64_t end, struct scan_region *ret, uint64_t *walked)
{
	static uint64_t guard = SCAN_GUARD; /* since Linux 6.15 */
	struct scan_arg a = { .size = sizeof(a), .start = start, .end = end, .vec = (uint64_t)(uintptr_t)ret, .vec_len = REGIONS,
		.inverted = SCAN_ZERO | SCAN_FILE | guard, .mask = SCAN_ZERO | SCAN_FILE | guard,
		.anyof = SCAN_PRESENT | SCAN_SWAPPED, .wanted = SCAN_PRESENT };
	int n = ioctl(fd, SCAN_PAGES, &a);

	if (n < 0 && errno == EINVAL && guard) {
		guard = 0;
		return scan(fd, start, end, ret, walked);
	}
	*walked = a.walk_end;
	return n;
}

static void add_piece(struct pages *p, const struct proc *q, uint64_t start, uint64_t pages)
{
	p->hosts[p->n] = q->pid;
	p->v[p->n++] = (struct piece){ .pid = q->inner, .start = start, .pages = pages };
	p->all += pages;
}

/* All of it, or nothing. */
static void take_span(struct pages *p, const struct proc *q, int fd, const struct span *s)
{
	struct scan_region regions[REGIONS];
	size_t n = p->n, all = p->all;
	uint64_t at = s->start;
	int got;

	while (at < s->end) {
		uint64_t before = at;

		got = scan(fd, at, s->end, regions, &at);
		for (int i = 0; i < got; i++)
			for (uint64_t a = regions[i].start; a < regions[i].end; a += PIECE_PAGES * PAGE) {
				if (p->n == PIECES_MAX)
					goto not;
				add_piece(p, q, a, MIN((regions[i].end - a) / PAGE, PIECE_PAGES));
			}
		if (got < 0 || at == before)
			goto not;
	}
	if (p->all - all < SPAN_PAGES_MIN || p->hide->n_ranges == HIDE_RANGES_MAX)
		goto not;
	p->hide->ranges[p->hide->n_ranges++] = (struct hide_range){ q->inner, s->start, s->end };
	return;
not:
	p->n = n;
	p->all = all;
}

static void take_proc(struct pages *p, const struct proc *q)
{
	auto_fd fd = -1;
	char path[48];

	for (size_t i = 0; i < q->n; i++) {
		const struct span *s = &q->v[i];

		if (s->shared || s->end - s->start < SPAN_MIN)
			continue;
		if (fd < 0) {
			snprintf(path, sizeof(path), "/proc/%d/pagemap", (int)q->pid);
			fd = open(path, O_RDONLY | O_CLOEXEC);
			if (fd < 0)
				return;
		}
		take_span(p, q, fd, s);
	}
}

/* ---- copying, in the crew ---- */

static int copy_piece(struct pages *p, struct piece *v, pid_t host)
{
	size_t len = v->pages * PAGE;

	for (size_t done = 0; done < len;) {
		struct iovec to = { p->part + done, len - done }, from = { (void *)(uintptr_t)(v->start + done), len - done };
		ssize_t n = process_vm_readv(host, &to, 1, &from, 1, 0);

		if (n <= 0)
			return n < 0 ? errno : EFAULT;
		done += (size_t)n;
	}
	for (size_t done = 0; done < len;) {
		ssize_t n = write(p->out, p->part + done, MIN(len - done, WRITE_BYTES));

		if (n < 0 && errno != EINTR)
			return errno;
		done += n < 0 ? 0 : (size_t)n;
	}
	v->at = p->at;
	p->at += len;
	return 0;
}

static int copy_part(void *user, size_t part, int who)
{
	struct pages *p = user;
	char name[32];
	int r = 0;

	if (p->out < 0) {
		snprintf(name, sizeof(name), PAGES_FILE "-%d", who);
		p->out = openat(p->dirfd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
		if (p->out < 0)
			return errno;
		p->part = mem_alloc(PIECE_PAGES * PAGE);
	}
	for (size_t i = p->parts[part]; r == 0 && i < p->parts[part + 1]; i++) {
		p->v[i].file = (uint32_t)who;
		r = copy_piece(p, &p->v[i], p->hosts[i]);
	}
	return r;
}

/* ---- from outside ---- */

static struct pages *pages_new(struct cgroup *cg, int dirfd)
{
	struct pages *p = mem_zalloc(sizeof(*p));

	p->cg = cg;
	p->dirfd = dirfd;
	p->out = -1;
	p->hosts = mem_alloc(PIECES_MAX * sizeof(*p->hosts));
	p->v = mmap(NULL, PIECES_MAX * sizeof(*p->v), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	p->hide = MAP_FAILED;
	return p;
}

int pages_begin(struct cgroup *cg, int dirfd, int memfd, bool lend, struct pages **ret, struct den_err *err)
{
	struct pages *p = pages_new(cg, dirfd);
	struct den_err why;

	*ret = NULL;
	p->hide = mmap(NULL, sizeof(*p->hide), PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
	if (p->v == MAP_FAILED || p->hide == MAP_FAILED) {
		den_fail_sys(err, errno, "memory");
		goto fail;
	}
	if (read_procs(p, cg, &why) < 0) { /* then all of it is CRIU's */
		pages_free(p);
		return 0;
	}
	for (size_t i = 0; i < p->n_procs; i++)
		take_proc(p, &p->procs[i]);
	if (p->all < ALL_PAGES_MIN) {
		p->hide->n_ranges = 0;
		pages_free(p);
		return 0;
	}
	p->parts = pages_parts(p->v, p->n, &p->n_parts);
	p->lend = lend && p->all >= LEND_PAGES_MIN;
	*ret = p;
	if (!p->lend && crew_start(&p->crew, p->n_parts, CREW_MAX, true, copy_part, p, err) < 0) {
		*ret = NULL;
		goto fail;
	}
	return 0;
fail:
	pages_free(p);
	return -1;
}

int pages_copied(struct pages *p, bool (*gone)(void *user), void *user, struct den_err *err)
{
	if (gone && !crew_await(&p->crew, gone, user)) {
		crew_end(&p->crew);
		return den_fail(err, DEN_CONFLICT, ECANCELED, "nobody waits for it any more");
	}
	return crew_wait(&p->crew, "save the memory of a process", err);
}

bool pages_lent(const struct pages *p)
{
	return p->lend && p->hide->used;
}

/* The box is held, and nobody in it can make a process: a number that is in its group is that of the one we know. */
static int still_there(const struct pages *p, const struct lender *v, size_t n, struct den_err *err)
{
	auto_free pid_t *pids = NULL;
	size_t n_pids, k;

	if (cgroup_pids(p->cg, &pids, &n_pids, err) < 0)
		return -1;
	for (size_t i = 0; i < n; i++) {
		for (k = 0; k < n_pids && pids[k] != v[i].pid; k++)
			;
		if (k == n_pids)
			return den_fail(err, DEN_CONFLICT, 0, "a process of the box died while it was held");
	}
	return 0;
}

/* Who has it, of those whose pages are in the table. */
static int write_lenders(struct pages *p, const struct piece *v, size_t n, struct den_err *err)
{
	auto_free struct lender *all = mem_alloc((p->n_procs + 1) * sizeof(*all));
	size_t n_all = 0;

	for (size_t i = 0; i < p->n_procs; i++) {
		struct lender l = { .inner = p->procs[i].inner, .pid = p->procs[i].pid };
		bool has = false;

		for (size_t k = 0; k < n && !has; k++)
			has = v[k].pid == l.inner;
		if (!has)
			continue;
		if (proc_start_time(l.pid, &l.started) < 0)
			return den_fail(err, DEN_CONFLICT, 0, "a process of the box died while it was held");
		all[n_all++] = l;
	}
	/* after that: else it could be another's who got the number */
	return still_there(p, all, n_all, err) < 0 ? -1 : lent_write(p->dirfd, all, n_all, err);
}

static void drop_files(int dirfd)
{
	char name[32];

	for (int i = 0; i < PAGES_FILES_MAX; i++) {
		snprintf(name, sizeof(name), PAGES_FILE "-%d", i);
		unlinkat(dirfd, name, 0);
	}
}

static bool is_asked(const struct hide *h, const struct piece *v)
{
	for (uint32_t i = 0; i < h->n_ranges; i++)
		if (h->ranges[i].pid == v->pid && h->ranges[i].start <= v->start && v->start < h->ranges[i].end)
			return h->ranges[i].asked;
	return false;
}

/* What CRIU does not keep of a process comes back empty: so it shall be with us. */
static void leave_unasked(struct pages *p)
{
	bool all = true;
	size_t n = 0;

	for (uint32_t i = 0; i < p->hide->n_ranges; i++)
		all &= p->hide->ranges[i].asked;
	for (size_t i = 0; !all && i < p->n; i++)
		if (is_asked(p->hide, &p->v[i]))
			p->v[n++] = p->v[i];
	p->n = all ? p->n : n;
}

int pages_end(struct pages *p, struct den_err *err)
{
	auto_free struct piece *all = NULL;
	size_t n;

	if (!p->hide->used) { /* CRIU was told of them: then it has them */
		drop_files(p->dirfd);
		return 0;
	}
	leave_unasked(p);
	all = pages_leave_out(p->v, p->n, p->hide->kept, MIN(p->hide->n_kept, HIDE_KEPT_MAX), &n);
	if (n && p->lend && write_lenders(p, all, n, err) < 0)
		return -1;
	return n ? pages_table_write(p->dirfd, all, n, err) : (drop_files(p->dirfd), 0);
}

void pages_free(struct pages *p)
{
	if (!p)
		return;
	crew_end(&p->crew);
	for (size_t i = 0; i < p->n_procs; i++)
		free(p->procs[i].v);
	free(p->procs);
	free(p->hosts);
	free(p->parts);
	if (p->v != MAP_FAILED)
		munmap(p->v, PIECES_MAX * sizeof(*p->v));
	if (p->hide != MAP_FAILED)
		munmap(p->hide, sizeof(*p->hide));
	free(p);
}
