/*
 * What den puts into CRIU's process before CRIU's own code runs: a library that its loader is told to load first.
 *
 * CRIU has to work inside a box's mount namespace, and must not read there what the box may have written:
 *   1. the loader and every library are loaded before the process enters it (a box's /etc/ld.so.preload would be
 *      code in a process with rights); then this enters, and goes on;
 *   2. CRIU keeps what it found out about the kernel in /run/criu.kdat: here that is a file in memory which the
 *      keeper gave.
 * It is told of no page that den saves itself (pages.h). And where CRIU asks for what only the host's root gets, at load it makes do with less.
 *
 * It is compiled without a libc of its own: it uses the one that CRIU was linked with.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "criu_fds.h"
#include "pages_fds.h"

#define KDAT "/run/criu.kdat"
#define PTS_MAJOR 136

int open64(const char *path, int flags, ...);
int openat64(int dirfd, const char *path, int flags, ...);

static int is_kdat(const char *path)
{
	return !strcmp(path, KDAT) || !strcmp(path, KDAT ".tmp");
}

int open64(const char *path, int flags, ...)
{
	va_list ap;
	int mode;

	va_start(ap, flags);
	mode = va_arg(ap, int);
	va_end(ap);
	if (is_kdat(path)) {
		if (flags & O_CREAT)
			(void)!syscall(SYS_ftruncate, CRIU_FD_KDAT, 0L);
		syscall(SYS_lseek, CRIU_FD_KDAT, 0L, SEEK_SET);
		return (int)syscall(SYS_dup, CRIU_FD_KDAT);
	}
	return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

/* ---- pages that den saves itself ---- */

#define RSEQ_MAX 32768
#define REGIONS_MAX 4096

static struct hide *hidden;
static unsigned long shown_pid; /* whose pages CRIU is looking at */
/* Where the kernel writes by itself, as soon as a thread has told it: that must be CRIU's, who does it in order. CRIU asks
 * for these of all threads of a process, and then looks at its pages. */
static unsigned long rseqs[RSEQ_MAX];
static int n_rseqs, rseqs_used, too_many;

static void looks_at(int fd)
{
	char link[32], path[64], *p;
	long n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = syscall(SYS_readlinkat, AT_FDCWD, link, path, sizeof(path) - 1);
	path[n > 0 ? n : 0] = '\0';
	p = strstr(path, "/pagemap");
	while (p && p > path && p[-1] >= '0' && p[-1] <= '9')
		p--;
	shown_pid = p ? strtoul(p, NULL, 10) : 0;
	rseqs_used = 1;
}

long ptrace(enum __ptrace_request request, ...)
{
	struct {
		unsigned long pointer;
		unsigned size, signature, flags, pad;
	} *rseq;
	va_list ap;
	long pid, r;
	void *addr, *data, *ret;

	va_start(ap, request);
	pid = va_arg(ap, pid_t);
	addr = va_arg(ap, void *);
	data = va_arg(ap, void *);
	va_end(ap);
	if (request >= PTRACE_PEEKTEXT && request <= PTRACE_PEEKUSER)
		data = &ret; /* the system call has no other way to return it */
	r = syscall(SYS_ptrace, (long)request, pid, addr, data);
	if (r >= 0 && request >= PTRACE_PEEKTEXT && request <= PTRACE_PEEKUSER) {
		errno = 0;
		return (long)ret;
	}
	if (r < (long)sizeof(*rseq) - 4 || (int)request != 0x420f) /* PTRACE_GET_RSEQ_CONFIGURATION */
		return r;
	rseq = data;
	if (rseqs_used)
		n_rseqs = rseqs_used = 0;
	if (n_rseqs == RSEQ_MAX) { /* more threads than any box may have */
		errno = ENOMEM;
		return -1;
	}
	if (rseq->pointer)
		rseqs[n_rseqs++] = rseq->pointer & ~(PAGE - 1);
	return r;
}

struct told {
	struct scan_region v[REGIONS_MAX];
	unsigned long n, end; /* end: up to where all of it fit */
};

static void tell(struct told *t, unsigned long start, unsigned long end, unsigned long categories)
{
	if (start >= end || t->end)
		return;
	if (t->n == REGIONS_MAX) {
		t->end = start;
		return;
	}
	t->v[t->n++] = (struct scan_region){ start, end, categories };
}

/* Of a region in a hidden range: what must be CRIU's all the same. */
static void tell_kept(struct told *t, unsigned long start, unsigned long end, unsigned long categories)
{
	for (unsigned long next; start < end && !t->end; start = next + PAGE) {
		next = end;
		for (int i = 0; i < n_rseqs; i++)
			if (rseqs[i] >= start && rseqs[i] < next)
				next = rseqs[i];
		if (next == end)
			return;
		if (hidden->n_kept == HIDE_KEPT_MAX) {
			too_many = 1;
			return;
		}
		hidden->kept[hidden->n_kept++] = (struct hide_page){ shown_pid, next };
		tell(t, next, next + PAGE, categories);
	}
}

static void tell_region(struct told *t, const struct scan_region *r)
{
	unsigned long at = r->start;

	for (unsigned i = 0; i < hidden->n_ranges; i++) { /* of one process they are in order */
		const struct hide_range *h = &hidden->ranges[i];

		if (h->pid != shown_pid || h->end <= at || h->start >= r->end)
			continue;
		tell(t, at, h->start, r->categories);
		at = h->start > at ? h->start : at;
		tell_kept(t, at, h->end < r->end ? h->end : r->end, r->categories);
		at = h->end;
	}
	tell(t, at, r->end, r->categories);
}

static int hide_pages(struct scan_arg *a, int n)
{
	static struct told t;
	struct scan_region *v = (struct scan_region *)a->vec;

	t.n = t.end = 0;
	for (int i = 0; i < n; i++)
		tell_region(&t, &v[i]);
	if (t.n > a->vec_len) {
		t.end = t.v[a->vec_len].start;
		t.n = a->vec_len;
	}
	if (t.end)
		a->walk_end = t.end;
	memcpy(v, t.v, t.n * sizeof(*v));
	hidden->used = 1;
	if (too_many) { /* CRIU takes its code out of the programs again, and gives up */
		errno = ENOMEM;
		return -1;
	}
	return (int)t.n;
}

/* Nothing but hidden memory: the kernel need not be asked, which takes it long. */
static int is_hidden(const struct scan_arg *a)
{
	for (unsigned i = 0; i < hidden->n_ranges; i++) {
		struct hide_range *h = &hidden->ranges[i];

		if (h->pid == shown_pid && h->start <= a->start && a->end <= h->end) {
			h->asked = 1; /* of one that is so large CRIU asks by itself */
			return 1;
		}
	}
	return 0;
}

int ioctl(int fd, unsigned long request, ...)
{
	va_list ap;
	void *arg;
	int r;

	va_start(ap, request);
	arg = va_arg(ap, void *);
	va_end(ap);
	/* it also asks for guards, which are its own */
	if (request != SCAN_PAGES || !hidden || !hidden->n_ranges || !shown_pid || !(((struct scan_arg *)arg)->anyof & SCAN_PRESENT))
		return (int)syscall(SYS_ioctl, fd, request, arg);
	if (is_hidden(arg)) {
		struct scan_arg *a = arg;

		*(struct scan_region *)a->vec = (struct scan_region){ a->start, a->end, SCAN_PRESENT };
		a->walk_end = a->end;
		return hide_pages(a, 1);
	}
	r = (int)syscall(SYS_ioctl, fd, request, arg);
	return r > 0 ? hide_pages(arg, r) : r;
}

/* The program of process 1 is given open, and CRIU opens it again, by its number. Nobody in a box may read it: then the
 * open one does. */
int openat64(int dirfd, const char *path, int flags, ...)
{
	va_list ap;
	int mode, fd;

	va_start(ap, flags);
	mode = va_arg(ap, int);
	va_end(ap);
	fd = (int)syscall(SYS_openat, dirfd, path, flags, mode);
	if (fd < 0 && errno == EACCES && !strncmp(path, "fd/", 3) && !strchr(path + 3, '/'))
		fd = (int)syscall(SYS_dup, atoi(path + 3));
	if (fd < 0 && errno == EACCES && !strcmp(path, "ns/ipc")) /* likewise: process 1 may not be looked at */
		fd = (int)syscall(SYS_dup, CRIU_FD_INIT);
	if (fd >= 0 && !strcmp(path, "pagemap"))
		looks_at(fd);
	return fd;
}

/* ---- /dev/tty is told as the terminal that it stands for ----
 *
 * CRIU keeps an open /dev/tty only where nobody but the session's leader has its terminal open, and a shell's is also
 * held by whoever holds the other end. As one more descriptor of the terminal itself, it can be kept always.
 */

static int terminal_of(int fd, char *out, size_t cap)
{
	unsigned dev, index;
	struct stat st;

	if (syscall(SYS_newfstatat, fd, "", &st, AT_EMPTY_PATH) < 0 || !S_ISCHR(st.st_mode) ||
		st.st_rdev != makedev(5, 0) || syscall(SYS_ioctl, fd, TIOCGDEV, &dev) < 0)
		return 0;
	index = (dev & 0xff) | ((dev >> 12) & 0xfff00);
	index += (((dev >> 8) & 0xfff) - PTS_MAJOR) << 8;
	if (((dev >> 8) & 0xfff) < PTS_MAJOR || ((dev >> 8) & 0xfff) >= PTS_MAJOR + 8)
		return 0;
	snprintf(out, cap, "/dev/pts/%u", index);
	return 1;
}

int fstat64(int fd, struct stat64 *st)
{
	char path[32];

	if (terminal_of(fd, path, sizeof(path)))
		return (int)syscall(SYS_newfstatat, AT_FDCWD, path, st, AT_SYMLINK_NOFOLLOW);
	return (int)syscall(SYS_newfstatat, fd, "", st, AT_EMPTY_PATH);
}

/* What a watch is on, as its handle has it: on an overlay that is not what stat() says. */
int fstatat64(int dirfd, const char *path, struct stat64 *st, int flags)
{
	static const char mark[] = "./././";
	static char table[1 << 20];
	static long len = -1;
	int r = (int)syscall(SYS_newfstatat, dirfd, path, st, flags);
	unsigned long dev, ino;
	char *p, *end;

	if (r < 0 || strncmp(path, mark, sizeof(mark) - 1))
		return r;
	if (len < 0) {
		len = syscall(SYS_pread64, CRIU_FD_WATCHES, table, sizeof(table) - 1, 0L);
		table[len > 0 ? len : 0] = '\0';
	}
	path += sizeof(mark) - 1;
	for (p = table; (end = strchr(p, '\n')); p = end + 1) {
		dev = strtoul(p, &p, 16);
		ino = strtoul(p, &p, 16);
		if (p + 2 > end || (size_t)(end - p - 2) != strlen(path) || strncmp(p + 2, path, strlen(path)))
			continue;
		st->st_dev = makedev(dev >> 20, dev & 0xfffff);
		st->st_ino = ino;
		st->st_mode = S_IFREG; /* so that nobody looks for more below it */
		return 0;
	}
	return r;
}

ssize_t readlink(const char *path, char *out, size_t cap)
{
	static const char fds[] = "/proc/self/fd/";
	char name[32];
	size_t n;

	if (strncmp(path, fds, sizeof(fds) - 1) || !terminal_of(atoi(path + sizeof(fds) - 1), name, sizeof(name)))
		return syscall(SYS_readlinkat, AT_FDCWD, path, out, cap);
	n = strlen(name);
	memcpy(out, name, n < cap ? n : cap);
	return (ssize_t)(n < cap ? n : cap);
}

/* ---- what CRIU would put back, or leave out ---- */

static int keep_links; /* the box does not go on: a file that is open by a name of CRIU's must have it at load */

/* Noted before it is made: who is killed in between has left nothing, or what is noted. */
int linkat(int from, const char *name, int dirfd, const char *path, int flags)
{
	char text[4200];
	struct stat st;
	int fd, n;

	if (strstr(path, CRIU_LINK) && syscall(SYS_newfstatat, from, name, &st, AT_EMPTY_PATH) == 0) {
		fd = (int)syscall(SYS_openat, CRIU_FD_IMAGES, CRIU_LINKS, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
		n = snprintf(text, sizeof(text), "%lu %s", (unsigned long)st.st_ino, path);
		if (fd < 0 || n >= (int)sizeof(text) || syscall(SYS_write, fd, text, n + 1) != n + 1)
			return -1;
		syscall(SYS_close, fd);
	}
	return (int)syscall(SYS_linkat, from, name, dirfd, path, flags);
}

int unlinkat(int dirfd, const char *path, int flags)
{
	if (keep_links && strstr(path, CRIU_LINK))
		return 0;
	return (int)syscall(SYS_unlinkat, dirfd, path, flags);
}

/* A semaphore's counter has the highest bit set in its image: see images.c. */
int eventfd(unsigned count, int flags)
{
	return (int)syscall(SYS_eventfd2, count & 0x7fffffff, flags | (count & 0x80000000U ? EFD_SEMAPHORE : 0));
}

int unlink(const char *path)
{
	return is_kdat(path) ? 0 : (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0);
}

int rename(const char *from, const char *to)
{
	return is_kdat(from) ? 0 : (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

/* The sizes of buffers beyond what the system allows take a right over the host. No socket of a box had more. */
int setsockopt(int fd, int level, int name, const void *p, socklen_t n)
{
	long r = syscall(SYS_setsockopt, fd, level, name, p, n);

	if (r < 0 && errno == EPERM && level == SOL_SOCKET && (name == SO_SNDBUFFORCE || name == SO_RCVBUFFORCE))
		r = syscall(SYS_setsockopt, fd, level, name == SO_SNDBUFFORCE ? SO_SNDBUF : SO_RCVBUF, p, n);
	return (int)r;
}

__attribute__((constructor)) static void enter(void)
{
	const char *text = getenv(CRIU_ENV_ENTER);
	long flags = text ? strtol(text, NULL, 0) : 0;

	keep_links = getenv(CRIU_ENV_KEEP) != NULL;
	unsetenv(CRIU_ENV_ENTER);
	unsetenv("LD_PRELOAD");
	if (getenv(CRIU_ENV_DIES))
		syscall(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	if (flags && syscall(SYS_setns, CRIU_FD_BOX, flags) < 0)
		_exit(CRIU_EXIT_ENTER);
	if (getenv(CRIU_ENV_HIDE)) {
		hidden = (void *)syscall(SYS_mmap, NULL, sizeof(*hidden), PROT_READ | PROT_WRITE, MAP_SHARED, CRIU_FD_HIDE, 0L);
		if (hidden == MAP_FAILED)
			_exit(CRIU_EXIT_ENTER);
		syscall(SYS_close, CRIU_FD_HIDE);
	}
	syscall(SYS_close, CRIU_FD_BOX);
	syscall(SYS_close, CRIU_FD_SHIM);
}
