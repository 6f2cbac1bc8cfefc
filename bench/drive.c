/*
 * Times commands.
 *
 *   drive ROUNDS WARMUP <PLAN >SAMPLES
 *
 * Against each other: every round runs each contestant once, in random order, so that whatever else
 * the machine does at the moment hits all of them alike. PLAN has one contestant a line, separated by
 * tabs: its name, a mount namespace to run it in ("-": this one), its argv. SAMPLES has one line a run:
 * name and nanoseconds from just before vfork() until the process was reaped. A contestant that fails
 * is reported and left out of all later rounds.
 *
 *   drive batch JOBS FIRST COUNT ARGV... >SAMPLES
 *
 * The same command COUNT times, JOBS at a time; "{}" in ARGV becomes FIRST, FIRST + 1 and so on.
 * Lines are "one" and nanoseconds for each, then "all" and nanoseconds for the whole.
 *
 * Standard output of what is timed goes to /dev/null. This is in C and uses vfork(), since starting a
 * process from an interpreter costs more than what is measured.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CONTESTANTS_MAX 64
#define ARGS_MAX 256
#define JOBS_MAX 64

struct contestant {
	char *name, **argv;
	int ns;	  /* mount namespace, -1: ours */
	bool out; /* failed before */
};

static struct contestant all[CONTESTANTS_MAX];
static size_t n_all;
static int own_ns;

static void read_plan(void)
{
	char *line = NULL;
	size_t cap = 0;

	while (getline(&line, &cap, stdin) > 0 && n_all < CONTESTANTS_MAX) {
		struct contestant *c = &all[n_all];
		char **argv = calloc(ARGS_MAX + 1, sizeof(*argv)), *rest;
		size_t n = 0;

		line[strcspn(line, "\n")] = '\0';
		rest = strdup(line);
		if (!argv || !rest)
			exit(2);
		c->name = strsep(&rest, "\t");
		c->ns = -1;
		if (rest && strncmp(rest, "-\t", 2)) {
			c->ns = open(strsep(&rest, "\t"), O_RDONLY | O_CLOEXEC);
			c->out = c->ns < 0;
		} else {
			strsep(&rest, "\t");
		}
		while (rest && n < ARGS_MAX)
			argv[n++] = strsep(&rest, "\t");
		c->argv = argv;
		n_all += n > 0;
	}
	free(line);
}

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

/* 0, or -1 with the reason told: it could not be started */
static int start(const char *name, char **argv, posix_spawn_file_actions_t *fa, pid_t *pid)
{
	extern char **environ;

	errno = posix_spawn(pid, argv[0], fa, NULL, argv, environ);
	if (!errno)
		return 0;
	fprintf(stderr, "drive: %s: %s: %s\n", name, argv[0], strerror(errno));
	return -1;
}

static bool ended_well(const char *name, int status)
{
	if (status)
		fprintf(stderr, "drive: %s: ended with status %d, signal %d\n", name,
			WEXITSTATUS(status), WIFSIGNALED(status) ? WTERMSIG(status) : 0);
	return status == 0;
}

/* nanoseconds, or -1: it could not be started, or did not end with 0 */
static int64_t run_once(struct contestant *c, posix_spawn_file_actions_t *fa)
{
	int64_t before, ns;
	int status = -1;
	pid_t pid;

	if (c->ns >= 0 && setns(c->ns, CLONE_NEWNS) < 0)
		return -1;
	before = now_ns();
	if (start(c->name, c->argv, fa, &pid) == 0)
		while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
			;
	ns = now_ns() - before;
	if (c->ns >= 0 && setns(own_ns, CLONE_NEWNS) < 0)
		exit(2);
	return status != -1 && ended_well(c->name, status) ? ns : -1;
}

static void shuffle(size_t *order, size_t n)
{
	for (size_t i = 0; i < n; i++)
		order[i] = i;
	for (size_t i = n; i > 1; i--) {
		size_t j = (size_t)random() % i, t = order[i - 1];

		order[i - 1] = order[j];
		order[j] = t;
	}
}

static int against(int rounds, int warmup, posix_spawn_file_actions_t *fa)
{
	size_t order[CONTESTANTS_MAX];

	own_ns = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
	read_plan();
	for (int r = -warmup; r < rounds; r++) {
		shuffle(order, n_all);
		for (size_t i = 0; i < n_all; i++) {
			struct contestant *c = &all[order[i]];
			int64_t ns = c->out ? -1 : run_once(c, fa);

			c->out = ns < 0;
			if (ns >= 0 && r >= 0)
				printf("%s\t%lld\n", c->name, (long long)ns);
		}
	}
	return 0;
}

/* argv with "{}" replaced; only good until the next call. */
static char **argv_for(char **argv, int number)
{
	static char text[ARGS_MAX][256], *out[ARGS_MAX + 1];
	int n = 0;

	for (; argv[n] && n < ARGS_MAX; n++) {
		char *at = strstr(argv[n], "{}");

		out[n] = argv[n];
		if (!at)
			continue;
		snprintf(text[n], sizeof(text[n]), "%.*s%d%s", (int)(at - argv[n]), argv[n], number, at + 2);
		out[n] = text[n];
	}
	out[n] = NULL;
	return out;
}

static int batch(int jobs, int first, int count, char **argv, posix_spawn_file_actions_t *fa)
{
	struct {
		pid_t pid;
		int64_t since;
	} job[JOBS_MAX] = { 0 };
	int64_t before = now_ns();
	int started = 0, running = 0, status, bad = 0;

	while (started < count || running) {
		pid_t pid;

		for (int i = 0; i < jobs && started < count; i++) {
			if (job[i].pid)
				continue;
			job[i].since = now_ns();
			if (start("batch", argv_for(argv, first + started++), fa, &job[i].pid) < 0)
				return 1;
			running++;
		}
		pid = waitpid(-1, &status, 0);
		for (int i = 0; pid > 0 && i < jobs; i++) {
			if (job[i].pid != pid)
				continue;
			printf("one\t%lld\n", (long long)(now_ns() - job[i].since));
			bad += !ended_well("batch", status);
			job[i].pid = 0;
			running--;
		}
	}
	printf("all\t%lld\n", (long long)(now_ns() - before));
	return bad != 0;
}

int main(int argc, char **argv)
{
	posix_spawn_file_actions_t fa;

	srandom((unsigned)now_ns());
	posix_spawn_file_actions_init(&fa);
	posix_spawn_file_actions_addopen(&fa, 0, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_addopen(&fa, 1, "/dev/null", O_WRONLY, 0);
	if (argc > 5 && !strcmp(argv[1], "batch")) {
		int jobs = atoi(argv[2]);

		return batch(jobs < JOBS_MAX ? jobs : JOBS_MAX, atoi(argv[3]), atoi(argv[4]), argv + 5, &fa);
	}
	if (argc != 3) {
		fprintf(stderr, "drive ROUNDS WARMUP <PLAN, or drive batch JOBS FIRST COUNT ARGV...\n");
		return 2;
	}
	return against(atoi(argv[1]), atoi(argv[2]), &fa);
}
