/*
 * A file that is open under a name it has lost, but that has others, is saved by giving it one more, "link_remap.N", beside
 * where it was. CRIU takes these away again when the box goes on, unless it was to be put away: then they stay for the
 * load. When that is not gone through with, they go here: those that were noted when they were made (criu_shim.c), and
 * are still the same file.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "criu_fds.h"
#include "enter.h"
#include "fd.h"
#include "mem.h"
#include "memory.h"

#define LINKS_MAX (4U << 20)

static bool is_link_name(const char *path)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	size_t n = strlen(CRIU_LINK);

	return !strncmp(name, CRIU_LINK, n) && name[n] &&
	       strspn(name + n, "0123456789") == strlen(name + n);
}

/* In a child, as root of the box, which may have written any of these names. */
static void remove_all(const char *p, const char *end)
{
	for (size_t n; p < end; p += n + 1) {
		char *path;
		unsigned long ino = strtoul(p, &path, 10);
		struct stat st;

		n = strnlen(p, (size_t)(end - p));
		if (p + n == end) /* cut short: it was not made */
			return;
		while (*path == ' ' || *path == '/')
			path++;
		if (is_link_name(path) && fstatat(AT_FDCWD, path, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
			S_ISREG(st.st_mode) && st.st_ino == ino)
			unlinkat(AT_FDCWD, path, 0);
	}
}

void container_unsaved(struct wall_box *b, int dirfd)
{
	auto_fd fd = openat(dirfd, CRIU_LINKS, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	auto_free char *text = NULL;
	size_t len = 0;
	pid_t pid;

	if (fd < 0 || b->pidfd < 0 || fd_read_all(fd, LINKS_MAX, &text, &len, NULL) < 0)
		return;
	pid = fork();
	if (pid == 0) {
		if (enter_as_root(b->pidfd, CLONE_NEWNS) == 0 && chdir("/") == 0)
			remove_all(text, text + len);
		_exit(0);
	}
	while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
}
