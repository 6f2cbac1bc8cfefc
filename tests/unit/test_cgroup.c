/* Limits of cgroups, and that nothing of them stays; kit_cgroup.h says where they run. */
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "cgroup.h"
#include "clock.h"
#include "kit_cgroup.h"
#include "mem.h"
#include "test.h"

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
