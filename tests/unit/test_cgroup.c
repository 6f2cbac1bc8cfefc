/*
 * Each test runs in every kind of cgroup that this host lets us use: v1 alone, v1 with the v2 tree,
 * and v2, which on a hybrid host is the tree without controllers (limits cannot be tried there).
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <time.h>

#include <linux/sched.h> /* after sched.h: struct clone_args */

#include "cgroup.h"
#include "cgroup_ops.h"
#include "clock.h"
#include "fd.h"
#include "mem.h"
#include "test.h"

static const char *const kind_str[] = { "v1", "hybrid", "v2" };

static bool is_v2(const char *path)
{
	struct statfs fs;

	return statfs(path, &fs) == 0 && fs.f_type == CGROUP2_SUPER_MAGIC;
}

/* Shared by all tests of one run, and by no other run. */
static const char *tag(void)
{
	static char t[9];

	snprintf(t, sizeof(t), "%08x", 0xd0000000U | (unsigned)getppid());
	return t;
}

static struct cgroup *open_kind(enum cgroup_kind kind, const struct box_id *id)
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
static pid_t guard(struct cgroup *cg)
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

static void guard_end(pid_t pid)
{
	if (pid > 0) {
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
	}
}

/* A box for a kind; NULL when this host has no such kind, or not the limits asked for. */
static struct cgroup *box_make(enum cgroup_kind kind, const struct box_spec *spec)
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

static bool is_there(struct cgroup *cg)
{
	bool there = false;

	for (int c = 0; c < CTLS; c++) {
		struct hier *h = cg->nested && c != CTL_UNIFIED ? NULL : hier_get(cg, c);

		there = there || (h && faccessat(h->base, cg->name, F_OK, 0) == 0);
	}
	return there;
}

static void box_end(struct cgroup *cg)
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
static pid_t spawn(struct cgroup *cg, int exec_fd, void (*fn)(void *), void *arg)
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

static void *shared(size_t n)
{
	void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	CHECK(p != MAP_FAILED);
	return p;
}

static void sleep_ms(int ms)
{
	poll(NULL, 0, ms);
}

static bool wait_until(atomic_int *v, int least)
{
	for (int i = 0; i < 5000 && atomic_load(v) < least; i++)
		sleep_ms(1);
	return atomic_load(v) >= least;
}

static void idle(void *arg)
{
	if (arg)
		atomic_fetch_add((atomic_int *)arg, 1);
	for (;;)
		pause();
}

static void count_up(void *arg)
{
	for (;;) {
		atomic_fetch_add((atomic_int *)arg, 1);
		sleep_ms(1);
	}
}

#define FOR_KINDS(kind) \
	for (enum cgroup_kind kind = CGROUP_V1; kind <= CGROUP_V2; \
		kind = (enum cgroup_kind)(kind + 1))

static void need_any(int ran)
{
	if (!ran)
		SKIP("no cgroup here that could do this");
}

/* ---- limits ---------------------------------------------------------------------------------- */

struct forks {
	atomic_int made, sys, done;
};

static void fork_many(void *arg)
{
	struct forks *f = arg;

	for (int i = 0; i < 50; i++) {
		pid_t pid = fork();

		if (pid == 0)
			idle(NULL);
		if (pid < 0) {
			atomic_store(&f->sys, errno);
			break;
		}
		atomic_fetch_add(&f->made, 1);
	}
	atomic_store(&f->done, 1);
	idle(NULL);
}

TEST(cgroup_pids_limit_refuses_the_next_fork_and_counts_it)
{
	int ran = 0;

	FOR_KINDS(kind) {
		struct cgroup *cg = box_make(kind, &(struct box_spec){ .pids = 10 });
		struct forks *f = shared(sizeof(*f));
		struct box_stats st = { 0 };

		if (!cg)
			continue;
		ran++;
		CHECK(cgroup_pids_refused(cg) == 0);
		spawn(cg, -1, fork_many, f);
		CHECK(wait_until(&f->done, 1));
		CHECK(f->made == 9 && f->sys == EAGAIN);
		CHECK(cgroup_pids_refused(cg) == 1);
		cgroup_stats(cg, &st);
		CHECK((st.has & HAS_PIDS) && st.pids == 10);
		CHECK((st.has & HAS_PIDS_MAX) && st.pids_max == 10);
		box_end(cg);
	}
	need_any(ran);
}

static void eat(void *arg)
{
	size_t n = *(size_t *)arg;
	char *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	for (size_t i = 0; p != MAP_FAILED && i < n; i += 4096)
		p[i] = 1;
}

TEST(cgroup_memory_limit_kills_and_counts_and_leaves_the_frugal_alone)
{
	size_t much = 64 << 20, little = 4 << 20;
	int ran = 0;

	FOR_KINDS(kind) {
		struct cgroup *cg = box_make(kind, &(struct box_spec){ .memory = 24 << 20 });
		struct box_stats st = { 0 };
		int status;

		if (!cg)
			continue;
		ran++;
		CHECK(waitpid(spawn(cg, -1, eat, &little), &status, 0) > 0);
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
		CHECK(cgroup_oom_kills(cg) == 0);
		CHECK(waitpid(spawn(cg, -1, eat, &much), &status, 0) > 0);
		CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
		CHECK(cgroup_oom_kills(cg) == 1);
		cgroup_stats(cg, &st);
		CHECK((st.has & HAS_MEM_LIMIT) && st.mem_limit == 24 << 20);
		CHECK((st.has & HAS_OOM_KILLS) && st.oom_kills == 1);
		if (st.has & HAS_MEM_PEAK)
			CHECK(st.mem_peak > 20 << 20 && st.mem_peak <= 24 << 20);
		box_end(cg);
	}
	need_any(ran);
}

static int64_t cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return t.tv_sec * NS_PER_SEC + t.tv_nsec;
}

/* CPU time of a child and the children it waited for, as the kernel tells its parent: what a group
 * measures must agree with it, however busy the machine is. */
static uint64_t wait_usec(pid_t pid)
{
	struct rusage u;

	CHECK(wait4(pid, NULL, 0, &u) == pid);
	return (uint64_t)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000000 +
		(uint64_t)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static bool agree(uint64_t a, uint64_t b)
{
	return (a > b ? a - b : b - a) < 10000;
}

static void burn(void *arg)
{
	while (cpu_ns() < *(int *)arg * NS_PER_MS)
		;
}

TEST(cgroup_cpu_limit_throttles)
{
	int ms = 100, ran = 0;

	FOR_KINDS(kind) {
		struct cgroup *cg = box_make(kind, &(struct box_spec){ .cpu_milli = 200 });
		struct box_stats st = { 0 };
		int64_t start = clock_mono_ns();
		uint64_t used;

		if (!cg)
			continue;
		ran++;
		used = wait_usec(spawn(cg, -1, burn, &ms));
		/* 100 ms of CPU in shares of 20 ms every 100 ms */
		CHECK(clock_mono_ns() - start > 300 * NS_PER_MS);
		cgroup_stats(cg, &st);
		fprintf(stderr, "  %s: used %llu us, throttled for %llu us\n", kind_str[kind],
			(unsigned long long)st.cpu_usec, (unsigned long long)st.throttled_usec);
		CHECK((st.has & HAS_THROTTLED) && st.throttled_usec > 100000);
		CHECK((st.has & HAS_CPU) && used > 90000 && agree(st.cpu_usec, used));
		box_end(cg);
	}
	need_any(ran);
}

TEST(cgroup_all_limits_at_once_are_in_force_before_anyone_is_in)
{
	int ran = 0;

	FOR_KINDS(kind) {
		struct cgroup *cg = box_make(kind,
			&(struct box_spec){ .cpu_milli = 500, .memory = 32 << 20, .pids = 7 });
		struct box_stats st = { 0 };

		if (!cg)
			continue;
		ran++;
		cgroup_stats(cg, &st);
		CHECK(st.mem_limit == 32 << 20 && st.pids_max == 7 && st.pids == 0);
		box_end(cg);
	}
	need_any(ran);
}

TEST(cgroup_without_memory_limit_still_measures_memory)
{
	int ran = 0;

	FOR_KINDS(kind) {
		struct cgroup *cg = box_make(kind, &(struct box_spec){ 0 });
		atomic_int *up = shared(sizeof(*up));
		struct box_stats st = { .disk = 77 };

		if (!cg)
			continue;
		ran++;
		spawn(cg, -1, idle, up);
		CHECK(wait_until(up, 1));
		cgroup_stats(cg, &st);
		CHECK((st.has & HAS_MEM) && st.mem > 0);
		CHECK(st.disk == 77 && !(st.has & (1 << 7))); /* not ours to say */
		box_end(cg);
	}
	need_any(ran);
}

/* ---- processes ------------------------------------------------------------------------------- */

/* Double-forked, in a session of its own, ignoring what can be ignored. */
static void daemonize(void *arg)
{
	if (fork() > 0)
		_exit(0);
	setsid();
	if (fork() > 0)
		_exit(0);
	signal(SIGTERM, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	idle(arg);
}

TEST(cgroup_kill_reaches_a_daemon)
{
	int ran = 0;

	FOR_KINDS(kind) {
		struct cgroup *cg = box_make(kind, &(struct box_spec){ .pids = 0 });
		atomic_int *up = shared(sizeof(*up));
		auto_free pid_t *pids = NULL;
		struct den_err err;
		size_t n = 0;
		int status;
		pid_t pid;

		if (!cg)
			continue;
		ran++;
		CHECK(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0); /* to see how it ended */
		pid = spawn(cg, -1, daemonize, up);
		CHECK(wait_until(up, 1));
		CHECK(waitpid(pid, NULL, 0) == pid);
		for (int i = 0; i < 100 && n != 1; i++) { /* the middle one may still be dying */
			free(mem_take(&pids));
			CHECK(cgroup_pids(cg, &pids, &n, &err) == 0);
			sleep_ms(1);
		}
		CHECK(n == 1 && kill(pids[0], 0) == 0);
		CHECK(cgroup_kill_all(cg, &err) == 0);
		CHECK(waitpid(pids[0], &status, 0) == pids[0]);
		CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
		box_end(cg);
	}
	need_any(ran);
}

static void fork_bomb(void *arg)
{
	int64_t until = clock_mono_ns() + 20 * NS_PER_SEC; /* if killing fails, it still ends */

	while (clock_mono_ns() < until) {
		if (fork() == 0)
			atomic_fetch_add((atomic_int *)arg, 1);
		while (waitpid(-1, NULL, WNOHANG) > 0)
			;
		if (atomic_load((atomic_int *)arg) > 3000) /* children end and are made anew */
			_exit(0);
	}
}

TEST(cgroup_kill_ends_a_fork_bomb_within_its_limit)
{
	int ran = 0;

	FOR_KINDS(kind) {
		struct cgroup *cg = box_make(kind, &(struct box_spec){ .pids = 40 });
		atomic_int *made = shared(sizeof(*made));
		struct den_err err;

		if (!cg)
			continue;
		ran++;
		spawn(cg, -1, fork_bomb, made);
		CHECK(wait_until(made, 39));
		CHECK(cgroup_kill_all(cg, &err) == 0);
		CHECK(cg->core->empty(hier_box(cg, cg->core->members(cg))));
		box_end(cg);
	}
	need_any(ran);
}

TEST(cgroup_freeze_stops_and_thaw_continues)
{
	int ran = 0;

	FOR_KINDS(kind) {
		struct cgroup *cg = box_make(kind, &(struct box_spec){ 0 });
		atomic_int *n = shared(sizeof(*n));
		struct den_err err;
		int at, fd;

		if (!cg)
			continue;
		ran++;
		CHECK(cgroup_exec_make(cg, 1, &fd, &err) == 0);
		spawn(cg, fd, count_up, n); /* in a group below, which is frozen with it */
		close(fd);
		CHECK(wait_until(n, 3));
		CHECK(cgroup_freeze(cg, true, &err) == 0);
		at = atomic_load(n);
		sleep_ms(50);
		CHECK(atomic_load(n) == at);
		CHECK(cgroup_freeze(cg, false, &err) == 0);
		CHECK(wait_until(n, at + 3));
		/* and a frozen box can be killed */
		CHECK(cgroup_freeze(cg, true, &err) == 0);
		box_end(cg);
	}
	need_any(ran);
}

TEST(cgroup_adopted_box_is_known_whole)
{
	int ran = 0;

	FOR_KINDS(kind) {
		struct cgroup *cg = box_make(kind,
			&(struct box_spec){ .pids = kind == CGROUP_V2 ? 0 : 9 });
		struct cgroup *again;
		atomic_int *up = shared(sizeof(*up));
		auto_free pid_t *pids = NULL;
		struct box_id id;
		struct den_err err;
		size_t n;
		pid_t pid;
		int fd;

		if (!cg)
			continue;
		ran++;
		pid = spawn(cg, -1, idle, up);
		CHECK(wait_until(up, 1));
		CHECK(box_id_parse(strchr(cg->name, '-') - 1, &id, &err) == 0);
		cgroup_free(cg);
		again = open_kind(kind, &id);
		CHECK(again);
		CHECK(cgroup_pids(again, &pids, &n, &err) == 0 && n == 1 && pids[0] == pid);
		CHECK(cgroup_exec_make(again, 5, &fd, &err) == 0);
		close(fd);
		CHECK(cgroup_freeze(again, true, &err) == 0);
		CHECK(cgroup_make(again, &(struct box_spec){ 0 }, &err) < 0 &&
			err.code == DEN_CONFLICT); /* a live one is not made anew */
		CHECK(is_there(again) && kill(pid, 0) == 0);
		box_end(again);
	}
	need_any(ran);
}

/* ---- execs ----------------------------------------------------------------------------------- */

struct tree {
	atomic_int up, terms;
};
static struct tree *tree;

static void on_term(int sig)
{
	(void)sig;
	atomic_fetch_add(&tree->terms, 1);
}

static void *thread_idle(void *arg)
{
	idle(arg);
	return NULL;
}

/* A process, a thread in it, a child and a daemon: three processes. */
static void grow(void *arg)
{
	pthread_t t;

	tree = arg;
	signal(SIGTERM, on_term);
	if (fork() == 0)
		idle(&tree->up);
	if (fork() == 0) {
		setsid();
		if (fork() > 0)
			_exit(0);
		idle(&tree->up);
	}
	pthread_create(&t, NULL, thread_idle, &tree->up);
	idle(&tree->up);
}

/* The leader ends, the thread goes on. */
static void leaderless(void *arg)
{
	pthread_t t;

	pthread_create(&t, NULL, thread_idle, arg);
	pthread_exit(NULL);
}

TEST(cgroup_exec_signal_reaches_its_whole_tree_once_and_nobody_else)
{
	int ran = 0;

	FOR_KINDS(kind) {
		struct cgroup *cg = box_make(kind, &(struct box_spec){ 0 });
		struct tree *mine = shared(sizeof(*mine)), *other = shared(sizeof(*other));
		struct den_err err;
		int fd1, fd2, count;

		if (!cg)
			continue;
		ran++;
		CHECK(cgroup_exec_make(cg, 1, &fd1, &err) == 0);
		CHECK(cgroup_exec_make(cg, 2, &fd2, &err) == 0);
		CHECK(cgroup_exec_empty(cg, 1));
		spawn(cg, fd1, grow, mine);
		spawn(cg, fd2, grow, other);
		CHECK(wait_until(&mine->up, 4) && wait_until(&other->up, 4));
		sleep_ms(20); /* for the middle processes to be gone */
		CHECK(!cgroup_exec_empty(cg, 1));
		CHECK(cgroup_exec_signal(cg, 1, SIGTERM, &count, &err) == 0);
		CHECK(count == 3 && wait_until(&mine->terms, 3));
		sleep_ms(20);
		CHECK(mine->terms == 3 && other->terms == 0);
		CHECK(cgroup_exec_signal(cg, 1, SIGKILL, &count, &err) == 0 && count == 3);
		for (int i = 0; i < 1000 && !cgroup_exec_empty(cg, 1); i++)
			sleep_ms(1);
		CHECK(cgroup_exec_empty(cg, 1) && !cgroup_exec_empty(cg, 2));
		cgroup_exec_remove(cg, 1);
		cgroup_exec_remove(cg, 2); /* has processes: stays, silently */
		CHECK(cgroup_exec_signal(cg, 1, SIGKILL, &count, &err) < 0 &&
			err.code == DEN_NOT_FOUND);
		CHECK(cgroup_exec_make(cg, 2, &fd2, &err) < 0 && err.code == DEN_CONFLICT);
		CHECK(cgroup_exec_signal(cg, 2, 0, &count, &err) == 0 && count == 3);
		close(fd1);
		box_end(cg);
	}
	need_any(ran);
}

TEST(cgroup_exec_kill_reaches_a_process_whose_leader_ended)
{
	int ran = 0;

	FOR_KINDS(kind) {
		struct cgroup *cg = box_make(kind, &(struct box_spec){ 0 });
		atomic_int *up = shared(sizeof(*up));
		struct den_err err;
		int fd, count, status;
		pid_t pid;

		if (!cg)
			continue;
		ran++;
		CHECK(cgroup_exec_make(cg, 3, &fd, &err) == 0);
		pid = spawn(cg, fd, leaderless, up);
		close(fd);
		CHECK(wait_until(up, 1));
		sleep_ms(20);
		CHECK(cgroup_exec_signal(cg, 3, SIGKILL, &count, &err) == 0);
		CHECK(count == 1);
		CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status));
		box_end(cg);
	}
	need_any(ran);
}

static void burn_in_child(void *arg)
{
	pid_t pid = fork();

	if (pid == 0) {
		burn(arg);
		_exit(0);
	}
	waitpid(pid, NULL, 0);
}

TEST(cgroup_exec_cpu_time_is_that_of_its_tree)
{
	int ms = 60, ran = 0;

	FOR_KINDS(kind) {
		struct cgroup *cg = box_make(kind, &(struct box_spec){ 0 });
		uint64_t one = 0, two = 0, used;
		struct den_err err;
		int fd1, fd2;

		if (!cg)
			continue;
		ran++;
		CHECK(cgroup_exec_make(cg, 1, &fd1, &err) == 0);
		CHECK(cgroup_exec_make(cg, 2, &fd2, &err) == 0);
		used = wait_usec(spawn(cg, fd1, burn_in_child, &ms));
		CHECK(cgroup_exec_cpu_usec(cg, 1, &one, &err) == 0);
		CHECK(cgroup_exec_cpu_usec(cg, 2, &two, &err) == 0);
		CHECK(used > 55000 && agree(one, used) && two == 0);
		cgroup_exec_remove(cg, 1);
		CHECK(cgroup_exec_cpu_usec(cg, 1, &one, &err) < 0 && err.code == DEN_NOT_FOUND);
		close(fd1);
		close(fd2);
		box_end(cg);
	}
	need_any(ran);
}

/* ---- leaving nothing ------------------------------------------------------------------------- */

struct swept {
	struct box_id live;
	int asked, removed;
};

static bool is_live(const struct box_id *id, void *user)
{
	struct swept *s = user;

	s->asked++;
	return !strcmp(s->live.s, id->s);
}

static void on_removed(const char *what, void *user)
{
	struct swept *s = user;

	s->removed += strstr(what, "b-") != NULL;
}

TEST(cgroup_sweep_removes_what_nobody_owns_and_only_of_its_tag)
{
	char mine[9], other[9]; /* like tag(), of this run alone */
	struct cgroup *dead, *live, *foreign;
	struct box_id id[3];
	struct swept s = { 0 };
	struct den_err err;
	pid_t pid, guards[3];

	snprintf(mine, sizeof(mine), "%08x", 0xe0000000U | (unsigned)getpid());
	snprintf(other, sizeof(other), "%08x", 0xf0000000U | (unsigned)getpid());
	for (int i = 0; i < 3; i++)
		CHECK(box_id_make(&id[i], &err) == 0);
	if (cgroup_open(&id[0], mine, &dead, &err) < 0)
		SKIP(err.msg);
	CHECK(cgroup_open(&id[1], mine, &live, &err) == 0);
	CHECK(cgroup_open(&id[2], other, &foreign, &err) == 0);
	CHECK(cgroup_make(dead, &(struct box_spec){ .pids = 9 }, &err) == 0);
	CHECK(cgroup_make(live, &(struct box_spec){ .pids = 9 }, &err) == 0);
	CHECK(cgroup_make(foreign, &(struct box_spec){ .pids = 9 }, &err) == 0);
	guards[0] = guard(dead);
	guards[1] = guard(live);
	guards[2] = guard(foreign);
	pid = spawn(dead, -1, idle, NULL);
	s.live = id[1];
	CHECK(cgroup_sweep(mine, is_live, on_removed, &s, &err) == 0);
	CHECK(s.asked == 2 && s.removed == 1);
	CHECK(waitpid(pid, NULL, 0) == pid);
	CHECK(!is_there(dead) && is_there(live) && is_there(foreign));
	cgroup_free(dead);
	box_end(live);
	box_end(foreign);
	for (int i = 0; i < 3; i++)
		guard_end(guards[i]);
}

TEST(cgroup_missing_controller_is_named_and_nothing_stays)
{
	struct cgroup *cg;
	struct box_id id;
	struct den_err err;

	CHECK(box_id_make(&id, &err) == 0);
	if (is_v2("/sys/fs/cgroup") || !is_v2("/sys/fs/cgroup/unified"))
		SKIP("needs a v2 tree without controllers");
	cg = open_kind(CGROUP_V2, &id);
	if (!cg)
		SKIP("no right to make groups");
	CHECK(cgroup_make(cg, &(struct box_spec){ .memory = 1 << 24 }, &err) < 0);
	CHECK(err.code == DEN_UNSUPPORTED && strstr(err.msg, "'memory'"));
	CHECK(!is_there(cg));
	cgroup_free(cg);
}

static bool den_is_empty(void)
{
	struct stat st;

	return (stat("/sys/fs/cgroup/den", &st) == 0 ||
		       stat("/sys/fs/cgroup/unified/den", &st) == 0) && st.st_nlink == 2;
}

TEST(cgroup_many_come_and_go_at_once)
{
	pid_t pids[4];
	int status;

	for (size_t p = 0; p < ARRAY_SIZE(pids); p++) {
		pids[p] = fork();
		if (pids[p] > 0)
			continue;
		for (int i = 0; i < 25; i++) {
			FOR_KINDS(kind) {
				struct box_id id;
				struct den_err err;
				struct cgroup *cg;

				CHECK(box_id_make(&id, &err) == 0);
				cg = open_kind(kind, &id);
				if (!cg)
					continue;
				CHECK(cgroup_make(cg, &(struct box_spec){ 0 }, &err) == 0);
				CHECK(cgroup_remove(cg) && !is_there(cg));
				cgroup_free(cg);
			}
		}
		_exit(0);
	}
	for (size_t p = 0; p < ARRAY_SIZE(pids); p++)
		CHECK(waitpid(pids[p], &status, 0) > 0 && status == 0);
	/* den/ goes with the last in it; boxes of others may be there, coming and going. */
	for (int i = 0; i < 1000 && den_is_empty(); i++)
		sleep_ms(1);
	CHECK(!den_is_empty());
}

TEST(cgroup_ordinary_user_is_told_the_way_out)
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		struct cgroup *cg;
		struct box_id id;
		struct den_err err = { 0 };

		CHECK(box_id_make(&id, &err) == 0);
		if (geteuid() == 0)
			CHECK(setresgid(65534, 65534, 65534) == 0 &&
				setresuid(65534, 65534, 65534) == 0);
		if (cgroup_open(&id, tag(), &cg, &err) == 0)
			_exit(9); /* delegated */
		CHECK(err.code == DEN_UNSUPPORTED);
		CHECK(strstr(err.msg, "systemd") && strlen(err.msg) < sizeof(err.msg) - 1);
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
	if (WEXITSTATUS(status) == 9)
		SKIP("this user has a delegated group");
	CHECK(WEXITSTATUS(status) == 0);
}

TEST(cgroup_describe_says_what_works)
{
	auto_buf b = { 0 };
	enum cgroup_level level = cgroup_describe(&b);

	fprintf(stderr, "  %s\n", buf_str(&b));
	CHECK(b.len > 20);
	CHECK((level == CGROUP_OK) == !strstr(buf_str(&b), " no "));
}
