/*
 * The processes of a group.
 *
 * A pid that was read from cgroup.procs may belong to somebody else a moment later. So signals go
 * through a pidfd, and the list is read again after the pidfd was opened: if the pid is in the
 * second list, then either the pidfd's process is that member, or it has died since and the signal
 * fails. Either way nobody else is hit.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>

#include "cgroup_ops.h"
#include "clock.h"
#include "fd.h"
#include "mem.h"

#define DEPTH_MAX 16	 /* groups below groups: what a box could make itself is bounded by this */
#define SIGNAL_BATCH 128 /* pidfds open at a time */
#define SIGNAL_ROUNDS 256

void pidset_add(struct pidset *s, pid_t pid)
{
	if (s->n == s->cap) {
		s->cap = s->cap ? s->cap * 2 : 32;
		s->v = mem_realloc(s->v, s->cap * sizeof(*s->v));
	}
	s->v[s->n++] = pid;
}

static int pid_compare(const void *a, const void *b)
{
	pid_t x = *(const pid_t *)a, y = *(const pid_t *)b;

	return (x > y) - (x < y);
}

void pidset_sort(struct pidset *s)
{
	size_t n = 0;

	if (s->n)
		qsort(s->v, s->n, sizeof(*s->v), pid_compare);
	for (size_t i = 0; i < s->n; i++)
		if (n == 0 || s->v[n - 1] != s->v[i])
			s->v[n++] = s->v[i];
	s->n = n;
}

bool pidset_has(const struct pidset *s, pid_t pid)
{
	return s->n && bsearch(&pid, s->v, s->n, sizeof(*s->v), pid_compare);
}

void pidset_free(struct pidset *s)
{
	free(s->v);
	*s = (struct pidset){ 0 };
}

/* The file is opened anew for each reading: v1 keeps the list of an open one for a second. */
static int pids_read(int group, const char *file, struct pidset *s)
{
	auto_fd fd = openat(group, file, O_RDONLY | O_CLOEXEC);
	char text[4096];
	pid_t pid = 0;

	if (fd < 0)
		return -1;
	for (;;) {
		ssize_t n = read(fd, text, sizeof(text));

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return (int)n;
		for (ssize_t i = 0; i < n; i++) {
			if (text[i] >= '0' && text[i] <= '9') {
				pid = pid * 10 + (text[i] - '0');
				continue;
			}
			if (pid > 0) /* 0: a process that our pid namespace does not have */
				pidset_add(s, pid);
			pid = 0;
		}
	}
}

static int pids_walk(int group, enum pids_what what, int depth, struct pidset *s)
{
	struct stat st;
	struct dirent *de;
	DIR *d;
	int fd;

	if (pids_read(group, "cgroup.procs", s) < 0) {
		/* A threaded group. The processes are listed by the box's own group, above it. */
		if (errno != EOPNOTSUPP)
			return -1;
		if (what == PIDS_THREADED) {
			s->threads = true;
			if (pids_read(group, "cgroup.threads", s) < 0)
				return -1;
		}
	}
	/* Reading the directory costs more than all the rest, and most groups have none below. */
	if (depth >= DEPTH_MAX || fstat(group, &st) < 0 || st.st_nlink <= 2)
		return 0;
	fd = openat(group, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	d = fd < 0 ? NULL : fdopendir(fd);
	if (!d) {
		fd_close(&fd);
		return -1;
	}
	while ((de = readdir(d))) {
		int sub;

		if (de->d_type != DT_DIR || de->d_name[0] == '.')
			continue;
		sub = openat(group, de->d_name, O_PATH | O_DIRECTORY | O_CLOEXEC);
		if (sub < 0)
			continue; /* removed meanwhile */
		pids_walk(sub, what, depth + 1, s);
		close(sub);
	}
	closedir(d);
	return 0;
}

int group_pids(int group, enum pids_what what, struct pidset *ret)
{
	ret->n = 0;
	ret->threads = false;
	if (pids_walk(group, what, 0, ret) < 0 && errno != ENOENT && errno != ENODEV)
		return -1;
	pidset_sort(ret);
	return 0;
}

static int pidfd_of(pid_t pid)
{
	return (int)syscall(SYS_pidfd_open, pid, 0);
}

/* The process that a thread belongs to. */
static pid_t thread_leader(pid_t tid)
{
	char path[32], text[512];
	const char *p;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)tid);
	if (file_read_at(AT_FDCWD, path, text, sizeof(text), NULL) < 0)
		return 0;
	p = strstr(text, "\nTgid:");
	return p ? (pid_t)strtol(p + 6, NULL, 10) : 0;
}

/* One batch of the members v[0..n): see the top of the file. */
static int signal_batch(int group, int sig, const pid_t *v, size_t n, int *count)
{
	int fds[SIGNAL_BATCH], sys = 0;
	pid_t leaders[SIGNAL_BATCH];
	auto_pidset again = { 0 };

	for (size_t i = 0; i < n; i++) {
		leaders[i] = v[i];
		fds[i] = pidfd_of(v[i]);
		if (fds[i] < 0 && errno != ESRCH) { /* a thread, see drop_threads() */
			leaders[i] = thread_leader(v[i]);
			fds[i] = leaders[i] > 0 ? pidfd_of(leaders[i]) : -1;
		}
	}
	if (group_pids(group, PIDS_THREADED, &again) < 0)
		sys = errno;
	for (size_t i = 0; i < n; i++) {
		if (fds[i] < 0)
			continue;
		if (!sys && pidset_has(&again, v[i]) &&
			(leaders[i] == v[i] || thread_leader(v[i]) == leaders[i])) {
			if (syscall(SYS_pidfd_send_signal, fds[i], sig, NULL, 0) == 0)
				(*count)++;
			else if (errno != ESRCH)
				sys = errno;
		}
		close(fds[i]);
	}
	errno = sys;
	return sys ? -1 : 0;
}

/* A threaded group lists threads, and a signal must reach a process once. Leaves the leaders, and
 * one thread of each process whose leader ended before its threads and so is not listed. */
static void drop_threads(const struct pidset *all, struct pidset *s)
{
	auto_pidset kept = { 0 };
	size_t n = 0;

	for (size_t i = 0; i < s->n; i++) {
		pid_t leader = thread_leader(s->v[i]);

		if (leader <= 0 || (leader != s->v[i] && pidset_has(all, leader)) ||
			pidset_has(&kept, leader))
			continue;
		pidset_add(&kept, leader);
		pidset_sort(&kept);
		s->v[n++] = s->v[i];
	}
	s->n = n;
}

int group_signal(int group, int sig, int *ret_count, struct den_err *err)
{
	auto_pidset seen = { 0 }, now = { 0 }, todo = { 0 };
	int count = 0;

	for (int round = 0; round < SIGNAL_ROUNDS; round++) {
		if (group_pids(group, PIDS_THREADED, &now) < 0)
			return den_fail_sys(err, errno, "list the processes of the group");
		todo.n = 0;
		for (size_t i = 0; i < now.n; i++)
			if (!pidset_has(&seen, now.v[i]))
				pidset_add(&todo, now.v[i]);
		if (!todo.n)
			break;
		for (size_t i = 0; i < todo.n; i++)
			pidset_add(&seen, todo.v[i]);
		pidset_sort(&seen);
		if (now.threads)
			drop_threads(&now, &todo);
		for (size_t i = 0; i < todo.n; i += SIGNAL_BATCH)
			if (signal_batch(group, sig, todo.v + i, MIN(todo.n - i, SIGNAL_BATCH),
				    &count) < 0)
				return den_fail_sys(err, errno, "signal the group's processes");
	}
	if (ret_count)
		*ret_count = count;
	return 0;
}

uint64_t pids_memory(const struct pidset *s)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < s->n; i++) {
		char path[40], text[2048];
		const char *p;

		snprintf(path, sizeof(path), "/proc/%d/smaps_rollup", (int)s->v[i]);
		if (file_read_at(AT_FDCWD, path, text, sizeof(text), NULL) < 0)
			continue;
		p = strstr(text, "\nPss:");
		if (p)
			sum += strtoull(p + 5, NULL, 10) * 1024;
	}
	return sum;
}

void backoff_start(struct backoff *b, int64_t ns)
{
	b->until = clock_mono_ns() + ns;
	b->step = NS_PER_MS / 10;
}

bool backoff_wait(struct backoff *b, int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLPRI };
	struct timespec t = { .tv_nsec = b->step };

	if (clock_mono_ns() >= b->until)
		return false;
	ppoll(&p, 1, &t, NULL);
	b->step = MIN(b->step * 2, 10 * NS_PER_MS);
	return true;
}
