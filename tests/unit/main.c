#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <regex.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

extern const struct test *const __start_den_tests[];
extern const struct test *const __stop_den_tests[];

#define EXIT_FAILED 101
#define EXIT_SKIPPED 102

static char scratch[64];

void test_fail(const char *file, int line, const char *expr)
{
	const char *base = strrchr(file, '/');

	fprintf(stderr, "  %s:%d: %s (errno %d: %s)\n", base ? base + 1 : file, line, expr, errno,
		strerror(errno));
	_exit(EXIT_FAILED);
}

void test_skip(const char *why)
{
	fprintf(stderr, "  skipped: %s\n", why);
	_exit(EXIT_SKIPPED);
}

const char *test_dir(void)
{
	return scratch;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *f)
{
	(void)st, (void)type, (void)f;
	return remove(path);
}

static int run_one(const struct test *t)
{
	pid_t pid;
	int status;

	snprintf(scratch, sizeof(scratch), "/tmp/den-unit.XXXXXX");
	if (!mkdtemp(scratch))
		return -1;
	chmod(scratch, 0755);
	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		setpgid(0, 0);
		alarm(120);
		t->run();
		fflush(NULL);
		exit(0); /* with exit handlers, so that leak checking runs */
	}
	waitpid(pid, &status, 0);
	kill(-pid, SIGKILL); /* what the test left running */
	nftw(scratch, remove_one, 32, FTW_DEPTH | FTW_PHYS);
	return status;
}

/* The pattern is a regular expression over "unit.NAME", as everywhere in the suite. */
static int wanted(const char *pattern, const char *name)
{
	char full[256];
	regex_t re;
	int r;

	if (regcomp(&re, pattern, REG_EXTENDED | REG_NOSUB) != 0) {
		fprintf(stderr, "'%s' is not a pattern\n", pattern);
		exit(2);
	}
	snprintf(full, sizeof(full), "unit.%s", name);
	r = regexec(&re, full, 0, NULL, 0) == 0;
	regfree(&re);
	return r;
}

int main(int argc, char **argv)
{
	int passed = 0, failed = 0, skipped = 0;

	for (const struct test *const *t = __start_den_tests; t < __stop_den_tests; t++) {
		int status;

		if (argc > 1 && !wanted(argv[1], (*t)->name))
			continue;
		status = run_one(*t);
		if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
			passed++;
			printf("ok %s\n", (*t)->name);
		} else if (WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SKIPPED) {
			skipped++;
			printf("skip %s\n", (*t)->name);
		} else {
			failed++;
			printf("FAIL %s (%s %d)\n", (*t)->name, WIFSIGNALED(status) ? "signal" : "status",
				WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
		}
	}
	printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped);
	return failed ? 1 : 0;
}
