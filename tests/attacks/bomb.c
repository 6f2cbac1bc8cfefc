/*
 * Takes too much of something.
 *
 *   bomb fork			processes until it is stopped; prints how many when fork fails
 *   bomb threads		the same with sleeping children that never end by themselves, in groups
 *   bomb memory BYTES		touches so many bytes
 *   bomb file PATH BYTES	writes so many bytes into a file; prints how many fitted
 *   bomb spin N		N processes that only burn processor time
 *   bomb stubborn		ignores every signal that can be ignored
 *   bomb daemon FILE		leaves a daemon: double fork, own session, ignoring TERM; its work is to
 *				append to FILE ten times a second
 *   bomb hold			ends at once; a daemon keeps its output open
 *   bomb stop			stops itself
 *   bomb files			opens files until it may not; prints how many
 *   bomb print BYTES		prints so many bytes without a newline
 */
#include "attack.h"

#include <fcntl.h>
#include <inttypes.h>
#include <sys/mman.h>

static int bomb_fork(bool keep)
{
	int n = 0;

	for (;;) {
		pid_t pid = fork();

		if (pid < 0) {
			if (!keep) {
				printf("fork failed after %d: %s\n", n, strerror(errno));
				fflush(stdout);
				return 3;
			}
			usleep(1000);
			continue;
		}
		if (pid == 0) {
			if (keep)
				continue;
			for (;;)
				pause();
		}
		n++;
	}
}

static int bomb_memory(uint64_t n)
{
	const size_t step = 1 << 20;

	for (uint64_t done = 0; done < n; done += step) {
		char *p = mmap(NULL, step, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (p == MAP_FAILED) {
			printf("mmap failed after %" PRIu64 "\n", done);
			return 3;
		}
		memset(p, 0x5a, step);
	}
	printf("took %" PRIu64 "\n", n);
	return 0;
}

static int bomb_file(const char *path, uint64_t n)
{
	static char block[1 << 20];
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
	uint64_t done = 0;

	memset(block, 0x5a, sizeof(block));
	if (fd < 0) {
		perror(path);
		return 3;
	}
	while (done < n) {
		ssize_t r = write(fd, block, sizeof(block));

		if (r < 0) {
			printf("%" PRIu64 " %s\n", done, strerror(errno));
			return 3;
		}
		done += r;
	}
	if (fsync(fd) < 0) {
		printf("%" PRIu64 " fsync %s\n", done, strerror(errno));
		return 3;
	}
	printf("%" PRIu64 " all\n", done);
	return 0;
}

static void bomb_spin(int n)
{
	for (int i = 1; i < n; i++)
		if (fork() == 0)
			break;
	for (volatile unsigned long x = 0;; x++)
		;
}

static void ignore_all(void)
{
	for (int s = 1; s < 65; s++)
		if (s != SIGCHLD)
			signal(s, SIG_IGN);
}

/* True in the daemon. */
static bool become_daemon(void)
{
	if (fork() != 0)
		return false;
	setsid();
	if (fork() != 0)
		_exit(0);
	ignore_all();
	return true;
}

static int bomb_files(void)
{
	int n = 0;

	while (open("/dev/null", O_RDONLY) >= 0)
		n++;
	printf("%d\n", n + 3);
	return errno == EMFILE ? 0 : 3;
}

static int bomb_print(uint64_t n)
{
	static char block[65536];

	memset(block, 'x', sizeof(block));
	while (n > 0) {
		ssize_t r = write(1, block, n < sizeof(block) ? n : sizeof(block));

		if (r < 0)
			return 3;
		n -= r;
	}
	return 0;
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";

	if (!strcmp(what, "fork"))
		return bomb_fork(false);
	if (!strcmp(what, "threads"))
		return bomb_fork(true);
	if (!strcmp(what, "memory") && argc == 3)
		return bomb_memory(strtoull(argv[2], NULL, 0));
	if (!strcmp(what, "file") && argc == 4)
		return bomb_file(argv[2], strtoull(argv[3], NULL, 0));
	if (!strcmp(what, "spin") && argc == 3)
		bomb_spin(atoi(argv[2]));
	if (!strcmp(what, "stubborn")) {
		ignore_all();
		puts("ready");
		fflush(stdout);
		for (;;)
			pause();
	}
	if (!strcmp(what, "daemon") && argc == 3) {
		if (!become_daemon()) {
			wait(NULL);
			return 0;
		}
		for (int fd = 0; fd < 3; fd++)
			close(fd);
		for (;;) {
			int fd = open(argv[2], O_WRONLY | O_CREAT | O_APPEND, 0644);

			if (fd >= 0) {
				write(fd, "x", 1);
				close(fd);
			}
			usleep(100000);
		}
	}
	if (!strcmp(what, "hold")) {
		puts("main is done");
		fflush(stdout);
		if (become_daemon())
			for (;;)
				pause();
		wait(NULL);
		return 7;
	}
	if (!strcmp(what, "stop")) {
		raise(SIGSTOP);
		return 0;
	}
	if (!strcmp(what, "files"))
		return bomb_files();
	if (!strcmp(what, "print") && argc == 3)
		return bomb_print(strtoull(argv[2], NULL, 0));
	fputs("usage: see the top of bomb.c\n", stderr);
	return 2;
}
