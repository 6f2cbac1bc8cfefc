/*
 * An attack program tries things that must be refused, each in a child of its own, because a filter
 * may answer by killing. It prints one line for each that was not refused and ends with 1 if any.
 */
#pragma once

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

struct attack {
	const char *name;
	long (*run)(void); /* negative with errno set: refused */
	bool own;	   /* of a kernel that is the box's own: it may work there, and harms that alone */
};

/* A box with a kernel of its own (ATTACK_KERNEL=own): what that answers is its own affair, as long as it fails. */
static inline bool attack_own_kernel(void)
{
	const char *k = getenv("ATTACK_KERNEL");

	return k && !strcmp(k, "own");
}

/* A refusal that shows the call never reached code that looks at its arguments. */
static inline bool attack_refused(int error)
{
	return error == EPERM || error == ENOSYS || error == EACCES || attack_own_kernel();
}

static inline int attack_all(const struct attack *list, size_t n)
{
	int open = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	for (size_t i = 0; i < n; i++) {
		int status;
		pid_t pid;

		if (list[i].own && attack_own_kernel())
			continue;
		pid = fork();

		if (pid < 0) {
			perror("fork");
			return 2;
		}
		if (pid == 0) {
			struct rlimit none = { 0, 0 };
			long r;

			setrlimit(RLIMIT_CORE, &none);
			alarm(10);
			errno = 0;
			r = list[i].run();
			if (r >= 0) {
				printf("OPEN %s: gave %ld\n", list[i].name, r);
				_exit(1);
			}
			if (!attack_refused(errno)) {
				printf("OPEN %s: reached the kernel: %s\n", list[i].name, strerror(errno));
				_exit(1);
			}
			_exit(0);
		}
		if (waitpid(pid, &status, 0) < 0) {
			perror("waitpid");
			return 2;
		}
		if (WIFEXITED(status) && WEXITSTATUS(status) == 1)
			open++;
		else if (WIFSIGNALED(status) && WTERMSIG(status) != SIGSYS && WTERMSIG(status) != SIGSEGV) {
			printf("OPEN %s: ended by signal %d\n", list[i].name, WTERMSIG(status));
			open++;
		}
	}
	printf("%zu tried, %d open\n", n, open);
	return open ? 1 : 0;
}
