/*
 * For tests of cgroups. Each runs in every kind of cgroup that this host lets us use: v1 alone, v1 with
 * the v2 tree, and v2, which on a hybrid host is the tree without controllers (limits cannot be tried
 * there).
 */
#pragma once

#include <errno.h>
#include <linux/magic.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <time.h>

#include <linux/sched.h> /* after sched.h: struct clone_args */

#include "cgroup.h"
#include "cgroup_ops.h"
#include "clock.h"
#include "test.h"

static const char *const kind_str[] = { "v1", "hybrid", "v2" };

static inline bool is_v2(const char *path)
{
	struct statfs fs;

	return statfs(path, &fs) == 0 && fs.f_type == CGROUP2_SUPER_MAGIC;
}

/* Shared by all tests of one run, and by no other run. */
static inline const char *tag(void)
{
	static char t[9];

	snprintf(t, sizeof(t), "%08x", 0xd0000000U | (unsigned)getppid());
	return t;
}

static inline struct cgroup *open_kind(enum cgroup_kind kind, const struct box_id *id)
{
	const char *root = is_v2("/sys/fs/cgroup") ? "/sys/fs/cgroup" : "/sys/fs/cgroup/unified";
	struct cgroup *cg;
	struct den_err err;

	if (kind == CGROUP_V2 && !is_v2(root))
		return NULL;
	if (cgroup_open_kind(kind, kind == CGROUP_V2 ? root : NULL, id, tag(), &cg, &err) < 0)
		return NULL;
	return cg;
}

/* A failed CHECK ends the test at once, and must leave no group behind either: a process outside of
 * the test's process group waits for the test's end and cleans up. */
static inline pid_t guard(struct cgroup *cg)
{
	int parent = (int)syscall(SYS_pidfd_open, getpid(), 0);
	struct pollfd p = { .fd = parent, .events = POLLIN };
	pid_t pid = fork();

	setpgid(pid, pid); /* by both: it must be so before the test can fail */
	if (pid == 0) {
		poll(&p, 1, -1);
		cgroup_kill_all(cg, NULL);
		cgroup_remove(cg);
		_exit(0);
	}
	close(parent);
	return pid;
}
static pid_t guard_pid;

static inline void guard_end(pid_t pid)
{
	if (pid > 0) {
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
	}
}

/* A box for a kind; NULL when this host has no such kind, or not the limits asked for. */
static inline struct cgroup *box_make(enum cgroup_kind kind, const struct box_spec *spec)
{
	struct cgroup *cg;
	struct box_id id;
	struct den_err err;

	CHECK(box_id_make(&id, &err) == 0);
	cg = open_kind(kind, &id);
	if (!cg)
		return NULL;
	if (cgroup_make(cg, spec, &err) < 0) {
		fprintf(stderr, "  %s: %s\n", kind_str[kind], err.msg);
		CHECK(err.code == DEN_UNSUPPORTED);
		CHECK(cgroup_into_fd(cg) < 0); /* nothing half-made */
		cgroup_free(cg);
		return NULL;
	}
	guard_pid = guard(cg);
	return cg;
}

static inline bool is_there(struct cgroup *cg)
{
	bool there = false;

	for (int c = 0; c < CTLS; c++) {
		struct hier *h = cg->nested && c != CTL_UNIFIED ? NULL : hier_get(cg, c);

		there = there || (h && faccessat(h->base, cg->name, F_OK, 0) == 0);
	}
	return there;
}

static inline void box_end(struct cgroup *cg)
{
	struct den_err err;

	CHECK(cgroup_kill_all(cg, &err) == 0);
	while (waitpid(-1, NULL, WNOHANG) > 0)
		;
	CHECK(cgroup_remove(cg));
	CHECK(!is_there(cg));
	cgroup_free(cg);
	guard_end(guard_pid);
	guard_pid = 0;
}

/* Starts fn in the box as the wall does it: cloned into the group where that works, and without any
 * privilege when it enters the others. */
static inline pid_t spawn(struct cgroup *cg, int exec_fd, void (*fn)(void *), void *arg)
{
	int fds[CGROUP_MAX_FDS], n, into = cgroup_into_fd(cg);
	struct clone_args ca = { .exit_signal = SIGCHLD, .flags = CLONE_NEWUSER };
	struct den_err err;
	pid_t pid;

	CHECK(cgroup_join_fds(cg, into >= 0, fds, &n, &err) == 0);
	if (into >= 0) {
		ca.flags |= CLONE_INTO_CGROUP;
		ca.cgroup = (uint64_t)into;
	}
	pid = (pid_t)syscall(SYS_clone3, &ca, sizeof(ca));
	if (pid < 0 && errno == EPERM)
		SKIP("no user namespaces here");
	CHECK(pid >= 0);
	if (pid == 0) {
		for (int i = 0; i < n; i++)
			CHECK(write(fds[i], "0", 1) == 1);
		if (exec_fd >= 0)
			CHECK(write(exec_fd, "0", 1) == 1);
		fn(arg);
		_exit(0);
	}
	for (int i = 0; i < n; i++)
		close(fds[i]);
	return pid;
}

static inline void *shared(size_t n)
{
	void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	CHECK(p != MAP_FAILED);
	return p;
}

static inline void sleep_ms(int ms)
{
	poll(NULL, 0, ms);
}

static inline bool wait_until(atomic_int *v, int least)
{
	for (int i = 0; i < 5000 && atomic_load(v) < least; i++)
		sleep_ms(1);
	return atomic_load(v) >= least;
}

static inline void idle(void *arg)
{
	if (arg)
		atomic_fetch_add((atomic_int *)arg, 1);
	for (;;)
		pause();
}

static inline void count_up(void *arg)
{
	for (;;) {
		atomic_fetch_add((atomic_int *)arg, 1);
		sleep_ms(1);
	}
}

#define FOR_KINDS(kind) \
	for (enum cgroup_kind kind = CGROUP_V1; kind <= CGROUP_V2; \
		kind = (enum cgroup_kind)(kind + 1))

static inline void need_any(int ran)
{
	if (!ran)
		SKIP("no cgroup here that could do this");
}

static inline int64_t cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return t.tv_sec * NS_PER_SEC + t.tv_nsec;
}

/* CPU time of a child and the children it waited for, as the kernel tells its parent: what a group
 * measures must agree with it, however busy the machine is. */
static inline uint64_t wait_usec(pid_t pid)
{
	struct rusage u;

	CHECK(wait4(pid, NULL, 0, &u) == pid);
	return (uint64_t)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000000 +
		(uint64_t)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static inline bool agree(uint64_t a, uint64_t b)
{
	return (a > b ? a - b : b - a) < 10000;
}

static inline void burn(void *arg)
{
	while (cpu_ns() < *(int *)arg * NS_PER_MS)
		;
}
