/*
 * Files that the box has written since it was started, of those that its kernel still has in its hands.
 *
 * The sentry stamps a file by its own clock when something is written, and keeps that to itself; the host's file has
 * the moment when the host wrote. What is loaded again sees the host's, and an editor asks whether somebody else has
 * changed its file. So before a box is saved init says to the host, file by file, what the sentry says. The sentry holds
 * a descriptor of each file that it knows: which they are can be seen from outside.
 */
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "fd.h"
#include "gvisor.h"
#include "mem.h"

#define ROOT "/root" /* where the gofer has the box's root */
#define WRITTEN_MAX 400
#define BYTES_MAX 32768U

static pid_t parent_of(pid_t pid)
{
	char path[64], text[1024], *p;
	int parent = -1;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	if (file_read_at(AT_FDCWD, path, text, sizeof(text), NULL) < 0 || !(p = strrchr(text, ')')) ||
		sscanf(p + 1, " %*c %d", &parent) != 1)
		return -1;
	return (pid_t)parent;
}

/* While that holds, what was opened by its number since the pidfd was made is its own. */
static bool runs(int pidfd)
{
	struct pollfd p = { .fd = pidfd, .events = POLLIN };

	return poll(&p, 1, 0) == 0;
}

/* The box's sentry: the child of the porter that has the box's root open and is not the gofer. Its number may be given
 * to another when it ends: the pidfd tells. */
static pid_t sentry_of(pid_t porter, int *pidfd)
{
	char path[64], text[4096], *p, *save = NULL;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)porter, (int)porter);
	if (file_read_at(AT_FDCWD, path, text, sizeof(text), NULL) < 0)
		return -1;
	for (p = strtok_r(text, " \n", &save); p; p = strtok_r(NULL, " \n", &save)) {
		char name[64];
		auto_fd fd = -1, pin = (int)syscall(SYS_pidfd_open, (pid_t)atoi(p), 0);
		ssize_t n;

		if (pin < 0 || parent_of((pid_t)atoi(p)) != porter)
			continue;
		snprintf(path, sizeof(path), "/proc/%.10s/cmdline", p);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		n = fd < 0 ? 0 : read(fd, name, sizeof(name) - 1);
		name[MAX(n, 0)] = '\0';
		if (!strcmp(name, "runsc-sandbox")) {
			*pidfd = fd_take(&pin);
			return (pid_t)atoi(p);
		}
	}
	return -1;
}

/* When it was started, in seconds of the host's clock. */
static int64_t started(pid_t pid)
{
	char path[64], text[1024], *p;
	unsigned long long ticks = 0;
	struct timespec boot, now;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	if (file_read_at(AT_FDCWD, path, text, sizeof(text), NULL) < 0 || !(p = strrchr(text, ')')) ||
		sscanf(p + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu", &ticks) != 1)
		return INT64_MAX;
	clock_gettime(CLOCK_BOOTTIME, &boot);
	clock_gettime(CLOCK_REALTIME, &now);
	return now.tv_sec - (boot.tv_sec - (int64_t)(ticks / (unsigned long long)sysconf(_SC_CLK_TCK)));
}

struct written {
	uint64_t seen[WRITTEN_MAX];
	size_t n;
	uint64_t mount; /* of the box's root: what is mounted elsewhere is somebody else's */
	int64_t since;
};

static bool is_new(struct written *w, int dir, const char *name)
{
	struct statx st;

	if (statx(dir, name, 0, STATX_BASIC_STATS | STATX_MNT_ID, &st) < 0 || !S_ISREG(st.stx_mode) || !st.stx_nlink ||
		st.stx_mnt_id != w->mount || st.stx_mtime.tv_sec < w->since || w->n == WRITTEN_MAX)
		return false;
	for (size_t i = 0; i < w->n; i++)
		if (w->seen[i] == st.stx_ino)
			return false;
	w->seen[w->n++] = st.stx_ino;
	return true;
}

static bool find_root(struct written *w, DIR *d)
{
	struct dirent *de;

	while ((de = readdir(d))) {
		char path[sizeof(ROOT) + 1];
		ssize_t n = readlinkat(dirfd(d), de->d_name, path, sizeof(path));
		struct statx st;

		if (n != (ssize_t)strlen(ROOT) || memcmp(path, ROOT, (size_t)n) ||
			statx(dirfd(d), de->d_name, 0, STATX_MNT_ID, &st) < 0 || !(st.stx_mask & STATX_MNT_ID))
			continue;
		w->mount = st.stx_mnt_id;
		rewinddir(d);
		return true;
	}
	return false;
}

void gvisor_written(struct wall_box *b, void (*each)(const char *path, void *user), void *user)
{
	auto_fd pidfd = -1;
	pid_t pid = sentry_of(b->pid, &pidfd);
	auto_free struct written *w = mem_zalloc(sizeof(*w));
	char path[4096];
	size_t bytes = 0;
	struct dirent *de;
	DIR *d;
	bool found;

	w->since = started(pid) - 1;
	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	d = pid > 0 ? opendir(path) : NULL;
	found = d && runs(pidfd) && find_root(w, d);
	while (found && bytes < BYTES_MAX && (de = readdir(d))) {
		ssize_t n = readlinkat(dirfd(d), de->d_name, path, sizeof(path) - 1);

		path[MAX(n, 0)] = '\0';
		if (strncmp(path, ROOT "/", sizeof(ROOT)) || !is_new(w, dirfd(d), de->d_name))
			continue;
		bytes += (size_t)n;
		each(path + strlen(ROOT), user);
	}
	if (d)
		closedir(d);
}
