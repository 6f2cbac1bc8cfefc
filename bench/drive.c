/*
 * Times commands against each other: every round runs each of them once, in random order, so that
 * whatever else the machine does at the moment hits all of them alike.
 *
 *   drive ROUNDS WARMUP <PLAN >SAMPLES
 *
 * PLAN has one contestant a line: its name and its argv, separated by tabs. SAMPLES has one line a
 * run: the name and nanoseconds from just before vfork() until the process was reaped. Standard output
 * of a contestant goes to /dev/null. One that fails is reported and left out of all later rounds.
 *
 * In C and with vfork(), since the cost of starting a process from an interpreter is larger than
 * what is measured.
 */
#include <errno.h>
#include <fcntl.h>
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

struct contestant {
	char *name, **argv;
	bool out; /* failed before */
};

static struct contestant all[CONTESTANTS_MAX];
static size_t n_all;

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

/* -1: it could not be started, or did not end with 0 */
static int64_t run_once(struct contestant *c, posix_spawn_file_actions_t *fa)
{
	extern char **environ;
	int64_t start = now_ns(), ns;
	int status = -1;
	pid_t pid;

	errno = posix_spawn(&pid, c->argv[0], fa, NULL, c->argv, environ);
	if (errno) {
		fprintf(stderr, "drive: %s: %s: %s\n", c->name, c->argv[0], strerror(errno));
		return -1;
	}
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	ns = now_ns() - start;
	if (status) {
		fprintf(stderr, "drive: %s: ended with status %d, signal %d\n", c->name,
			WEXITSTATUS(status), WIFSIGNALED(status) ? WTERMSIG(status) : 0);
		return -1;
	}
	return ns;
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

int main(int argc, char **argv)
{
	int rounds = argc > 1 ? atoi(argv[1]) : 30, warmup = argc > 2 ? atoi(argv[2]) : 3;
	posix_spawn_file_actions_t fa;
	size_t order[CONTESTANTS_MAX];

	read_plan();
	srandom((unsigned)now_ns());
	posix_spawn_file_actions_init(&fa);
	posix_spawn_file_actions_addopen(&fa, 0, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_addopen(&fa, 1, "/dev/null", O_WRONLY, 0);
	for (int r = -warmup; r < rounds; r++) {
		shuffle(order, n_all);
		for (size_t i = 0; i < n_all; i++) {
			struct contestant *c = &all[order[i]];
			int64_t ns = c->out ? -1 : run_once(c, &fa);

			c->out = ns < 0;
			if (ns >= 0 && r >= 0)
				printf("%s\t%lld\n", c->name, (long long)ns);
		}
	}
	return 0;
}
