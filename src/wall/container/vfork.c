/*
 * A process whose child of vfork() has not executed a program yet sleeps so that nothing but death wakes it: it cannot be
 * stopped and looked into. It is over in a moment, as a rule; whoever makes it last is not saved, and that is told at once.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>

#include "cgroup.h"
#include "fd.h"
#include "mem.h"
#include "memory.h"

#define TRIES 25
#define NAP_NS 20000000L

/* The number of the call that a task is in, if it sleeps in the way of vfork(); -1. */
static long sleeping_call(pid_t pid, const char *tid)
{
	char path[80], text[512];
	const char *state;

	snprintf(path, sizeof(path), "/proc/%d/task/%s/stat", (int)pid, tid);
	if (file_read_at(AT_FDCWD, path, text, sizeof(text), NULL) < 0)
		return -1;
	state = strrchr(text, ')');
	if (!state || strncmp(state, ") D", 3))
		return -1;
	snprintf(path, sizeof(path), "/proc/%d/task/%s/syscall", (int)pid, tid);
	return file_read_at(AT_FDCWD, path, text, sizeof(text), NULL) < 0 ? -1 : strtol(text, NULL, 10);
}

static bool is_vfork(long call)
{
#ifdef SYS_vfork
	if (call == SYS_vfork)
		return true;
#endif
	return call == SYS_clone || call == SYS_clone3;
}

static bool waits(pid_t pid)
{
	struct dirent *de;
	bool found = false;
	char path[40];
	DIR *d;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	d = opendir(path);
	while (d && !found && (de = readdir(d)))
		found = de->d_name[0] != '.' && is_vfork(sleeping_call(pid, de->d_name));
	if (d)
		closedir(d);
	return found;
}

/* Of these, those that wait; how many. */
static size_t keep_waiting(pid_t *pids, size_t n)
{
	size_t kept = 0;

	for (size_t i = 0; i < n; i++)
		if (waits(pids[i]))
			pids[kept++] = pids[i];
	return kept;
}

int vfork_none(struct cgroup *cg, struct den_err *err)
{
	auto_free pid_t *pids = NULL;
	char path[40], name[64] = "";
	size_t n;

	if (cgroup_pids(cg, &pids, &n, err) < 0)
		return -1;
	for (int i = 0; i < TRIES; i++) {
		n = keep_waiting(pids, n);
		if (!n) /* each of them went on for a moment at least, whoever waits by now */
			return 0;
		nanosleep(&(struct timespec){ .tv_nsec = NAP_NS }, NULL);
	}
	snprintf(path, sizeof(path), "/proc/%d/comm", (int)pids[0]);
	if (file_read_at(AT_FDCWD, path, name, sizeof(name), NULL) == 0)
		name[strcspn(name, "\n")] = '\0';
	for (char *p = name; *p; p++) /* the box chose it */
		if ((unsigned char)*p < ' ' || (unsigned char)*p >= 127)
			*p = '?';
	return den_fail(err, DEN_UNSUPPORTED, 0,
		"'%s' waits for a child that vfork() made and that has not executed a program; try again when it has", name);
}
