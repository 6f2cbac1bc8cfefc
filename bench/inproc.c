/*
 * An exec in a running box from a program that holds a connection to it, against plain vfork + exec +
 * wait of the same program on the host, in turns.
 *
 *   inproc BOX ROUNDS >SAMPLES       (DEN_STATE and DEN_EXE say where)
 */
#include <den.h>
#include <errno.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>

static char *const true_argv[] = { (char *)"/bin/true", NULL };

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static int in_box(struct den_box *box, struct den_err *err)
{
	static const struct den_exec_ops ops = { 0 };
	struct den_exec_opt opt = { .size = sizeof(opt), .argv = (const char *const *)true_argv };
	struct den_exec_result result;
	struct den_exec *e;
	int r;

	if (den_exec_start(box, &opt, &ops, NULL, &e, err) < 0)
		return -1;
	r = den_exec_wait(e, &result, err);
	den_exec_unref(e);
	return r < 0 || !result.exited || result.status ? -1 : 0;
}

static int on_host(void)
{
	char *env[] = { NULL };
	int status;
	pid_t pid;

	if (posix_spawn(&pid, true_argv[0], NULL, NULL, true_argv, env))
		return -1;
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return status ? -1 : 0;
}

int main(int argc, char **argv)
{
	int rounds = argc > 2 ? atoi(argv[2]) : 0;
	struct den_err err = { 0 };
	struct den_box *box;
	struct den *d;

	if (rounds < 1 || den_open(NULL, &d, &err) < 0 || den_box_open(d, argv[1], &box, &err) < 0) {
		fprintf(stderr, "inproc: %s\n", rounds < 1 ? "inproc BOX ROUNDS" : err.msg);
		return 1;
	}
	for (int i = -3; i < rounds; i++) {
		int64_t a = now_ns(), b, c;

		if (in_box(box, &err) < 0) {
			fprintf(stderr, "inproc: %s\n", err.msg);
			return 1;
		}
		b = now_ns();
		if (on_host() < 0)
			return 1;
		c = now_ns();
		if (i >= 0)
			printf("exec through libden\t%lld\nplain vfork and exec\t%lld\n", (long long)(b - a),
				(long long)(c - b));
	}
	den_box_close(box);
	den_close(d);
	return 0;
}
