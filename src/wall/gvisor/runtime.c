/* Finding runsc. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fd.h"
#include "gvisor.h"
#include "mem.h"

#define RUNTIME_DIR "/usr/local/lib/den/runtime"

char *gvisor_runsc(struct den_err *err)
{
	static const char *const usual[] = { RUNTIME_DIR "/bin/runsc", "/usr/bin/runsc", "/usr/local/bin/runsc" };
	const char *dir = getenv("DEN_RUNTIME");
	char path[4096];

	if (dir && dir[0]) { /* said: then nothing else will do */
		snprintf(path, sizeof(path), "%s/bin/runsc", dir);
		if (access(path, X_OK) == 0)
			return mem_strdup(path);
		den_fail(err, DEN_UNSUPPORTED, 0, "the gvisor wall needs runsc, and there is none at '%.150s'", path);
		return NULL;
	}
	for (size_t i = 0; i < ARRAY_SIZE(usual); i++)
		if (access(usual[i], X_OK) == 0)
			return mem_strdup(usual[i]);
	den_fail(err, DEN_UNSUPPORTED, 0,
		"the gvisor wall needs runsc: 'scripts/runtime.sh runsc' or 'apt-get install runsc' "
		"(on Debian 12 from bookworm-backports)");
	return NULL;
}

int gvisor_version(char **ret, struct den_err *err)
{
	auto_free char *runsc = gvisor_runsc(err), *text = NULL;
	auto_fd out = -1;
	int fds[2], status = 0;
	char *end;
	pid_t pid;

	if (!runsc)
		return -1;
	if (pipe2(fds, O_CLOEXEC) < 0)
		return den_fail_sys(err, errno, "pipe");
	out = fds[0];
	pid = fork();
	if (pid == 0) {
		dup2(fds[1], 1);
		execl(runsc, "runsc", "--version", (char *)NULL);
		_exit(127);
	}
	close(fds[1]);
	if (pid < 0)
		return den_fail_sys(err, errno, "fork");
	if (fd_read_all(out, 4096, &text, NULL, err) < 0)
		text = mem_strdup("");
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	end = strchr(text, '\n');
	if (end)
		*end = '\0';
	/* "runsc version 0.0~20240729.0" */
	if (status || strncmp(text, "runsc version ", 14))
		return den_fail(err, DEN_UNSUPPORTED, 0, "'%.120s --version' does not say what it is", runsc);
	if (asprintf(ret, "runsc %.64s", text + 14) < 0)
		return den_fail(err, DEN_INTERNAL, ENOMEM, "version");
	return 0;
}
