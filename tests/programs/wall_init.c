/*
 * A process 1 for tests of the wall alone: a child counts in /count, a number a line of 20 bytes that it rewrites,
 * in memory, and writes what its clock says. Static.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile unsigned long *shared;

int main(void)
{
	char line[64];
	int fd;

	for (int i = 3; i < 64; i++)
		close(i);
	shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (fork() == 0) {
		fd = open("/count", O_RDWR | O_CREAT, 0644);
		for (unsigned long n = 1;; n++) {
			struct timespec t, nap = { 0, 2000000 };
			char host[65] = "";

			clock_gettime(CLOCK_MONOTONIC, &t);
			gethostname(host, 64);
			snprintf(line, sizeof(line), "%010lu %010ld %.20s\n", n, (long)t.tv_sec, host);
			if (pwrite(fd, line, strlen(line), 0) < 0)
				_exit(1);
			*shared = n;
			nanosleep(&nap, NULL);
		}
	}
	for (;;) {
		int status;

		if (waitpid(-1, &status, 0) < 0)
			pause();
		else
			_exit(9); /* the counter must not end */
	}
}
