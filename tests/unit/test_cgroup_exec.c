/* Processes in cgroups: killed, frozen, adopted, signalled by exec; kit_cgroup.h says where they run. */
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "cgroup.h"
#include "cgroup_ops.h"
#include "clock.h"
#include "kit_cgroup.h"
#include "mem.h"
#include "test.h"

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

/* In a system call that writes to memory which nobody ever brings: it can be killed, but not frozen. */
static void stuck(void *arg)
{
	struct uffdio_api api = { .api = UFFD_API };
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	void *p = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct uffdio_register reg = { .range = { (uintptr_t)p, page }, .mode = UFFDIO_REGISTER_MODE_MISSING };
	int fd = (int)syscall(SYS_userfaultfd, 0);

	if (fd < 0 || ioctl(fd, UFFDIO_API, &api) < 0 || ioctl(fd, UFFDIO_REGISTER, &reg) < 0) {
		atomic_store((atomic_int *)arg, -1);
		return;
	}
	atomic_store((atomic_int *)arg, 1);
	(void)!read(open("/dev/zero", O_RDONLY), p, page);
}

static pid_t stuck_in(struct cgroup *cg, uint32_t exec, atomic_int *up)
{
	struct den_err err;
	int fd;
	pid_t pid;

	CHECK(cgroup_exec_make(cg, exec, &fd, &err) == 0);
	pid = fork(); /* in no user namespace: it needs a right for this */
	if (pid == 0) {
		int fds[CGROUP_MAX_FDS], n;

		CHECK(cgroup_join_fds(cg, false, fds, &n, &err) == 0);
		for (int i = 0; i < n; i++)
			CHECK(write(fds[i], "0", 1) == 1);
		CHECK(write(fd, "0", 1) == 1);
		stuck(up);
		_exit(0);
	}
	close(fd);
	for (int i = 0; i < 5000 && !atomic_load(up); i++)
		sleep_ms(1);
	return pid;
}

/* The kernel goes on to call such a group frozen, see frozen_wait(). */
TEST(cgroup_thaw_does_not_wait_for_the_dead)
{
	int ran = 0;

	FOR_KINDS(kind) {
		struct cgroup *cg = box_make(kind, &(struct box_spec){ 0 });
		atomic_int *up = shared(sizeof(*up));
		struct den_err err;
		pid_t first, below, killer;
		int64_t t;

		if (!cg)
			continue;
		ran++;
		first = spawn(cg, -1, idle, NULL);
		below = stuck_in(cg, 1, up);
		if (atomic_load(up) < 0) {
			box_end(cg);
			SKIP("no userfaultfd() here");
		}
		sleep_ms(50);
		CHECK(cgroup_hold(cg, &err) == 0);
		sleep_ms(50);
		kill(first, SIGKILL);
		if (kind != CGROUP_V1) /* there it does not die before it is let go */
			CHECK(waitpid(first, NULL, 0) == first);
		killer = fork();
		if (killer == 0) {
			sleep_ms(100);
			cgroup_kill(cg);
			kill(below, SIGKILL);
			_exit(0);
		}
		t = clock_mono_ns();
		CHECK(cgroup_freeze(cg, false, &err) == 0);
		CHECK(clock_mono_ns() - t < 2 * NS_PER_SEC);
		waitpid(killer, NULL, 0);
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
