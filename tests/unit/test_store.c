/* What many may do at once to a state directory that nobody has used before. */
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fd.h"
#include "mem.h"
#include "store.h"

#define MANY 12
#define ROUNDS 40

/* 0: it could be run as soon as it had its name */
static int unpack_and_run(const char *state, const char *blob, size_t len, const char *hash)
{
	struct store *s;
	struct den_err err;
	char *path, *argv[] = { (char *)"true", NULL };

	if (store_open(state, true, &s, &err) < 0 ||
		store_init_path(s, blob, len, hash, &path, &err) < 0)
		return 1;
	execv(path, argv);
	return errno == ETXTBSY ? 2 : 3;
}

TEST(store_init_can_be_run_by_all_who_find_it)
{
	auto_fd fd = open("/bin/true", O_RDONLY | O_CLOEXEC);
	auto_free char *blob = NULL;
	char state[300];
	struct den_err err;
	size_t len;

	CHECK(fd >= 0 && fd_read_all(fd, 16 << 20, &blob, &len, &err) == 0);
	snprintf(state, sizeof(state), "%s/new", test_dir());
	for (int round = 0; round < ROUNDS; round++) {
		pid_t pids[MANY];
		char hash[16];

		snprintf(hash, sizeof(hash), "%d", round);
		for (int i = 0; i < MANY; i++) {
			pids[i] = fork();
			if (pids[i] == 0)
				_exit(unpack_and_run(state, blob, len, hash));
		}
		for (int i = 0; i < MANY; i++) {
			int status = -1;

			CHECK(pids[i] > 0 && waitpid(pids[i], &status, 0) == pids[i]);
			CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
		}
	}
}
