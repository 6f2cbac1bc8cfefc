/*
 * Signals to everything below a process, found by walking /proc. Used where the host gives the box
 * no cgroup; the root is then a subreaper, so nothing it started can leave the tree while it lives.
 */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fd.h"
#include "init.h"

#define TREE_MAX 32768
#define TREE_ROUNDS 16

struct proc {
	pid_t pid, ppid;
};

static int parent_of(pid_t pid)
{
	char path[64], text[512];
	const char *p;
	int ppid;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	if (file_read_at(AT_FDCWD, path, text, sizeof(text), NULL) < 0)
		return -1;
	p = strrchr(text, ')'); /* the name before it may contain anything */
	return p && sscanf(p + 1, " %*c %d", &ppid) == 1 ? ppid : -1;
}

static size_t all_processes(struct proc *out, size_t max)
{
	DIR *d = opendir("/proc");
	struct dirent *de;
	size_t n = 0;

	while (d && n < max && (de = readdir(d))) {
		pid_t pid = (pid_t)atoi(de->d_name);

		if (pid > 1)
			out[n++] = (struct proc){ pid, parent_of(pid) };
	}
	if (d)
		closedir(d);
	return n;
}

/* Sets in[] for everything below root; returns how many. Passes over the table until nothing is
 * added: a tree of depth d takes d passes when pids run against it, one when they run with it. */
static size_t below(const struct proc *p, size_t n, pid_t root, bool *in)
{
	static unsigned char member[(1 << 22) / 8]; /* by pid; pid_max cannot be larger */
	size_t count = 0, before;

	memset(in, 0, n * sizeof(*in));
	member[root / 8] |= (unsigned char)(1 << root % 8);
	do {
		before = count;
		for (size_t i = 0; i < n; i++) {
			if (in[i] || p[i].ppid < 0)
				continue;
			if (p[i].pid == root || (member[p[i].ppid / 8] & 1 << p[i].ppid % 8)) {
				in[i] = true;
				member[p[i].pid / 8] |= (unsigned char)(1 << p[i].pid % 8);
				count++;
			}
		}
	} while (count != before);
	for (size_t i = 0; i < n; i++)
		member[p[i].pid / 8] = 0;
	member[root / 8] = 0;
	return count;
}

void tree_signal(pid_t root, int sig)
{
	struct proc *p = malloc(TREE_MAX * sizeof(*p));
	bool *in = malloc(TREE_MAX * sizeof(*in));

	/* For KILL the root goes last: as long as it lives (stopped), its tree stays findable. */
	if (sig == SIGKILL)
		kill(root, SIGSTOP);
	for (int round = 0; p && in && round < (sig == SIGKILL ? TREE_ROUNDS : 1); round++) {
		size_t n = all_processes(p, TREE_MAX);
		size_t count = below(p, n, root, in), left = 0;

		for (size_t i = 0; count && i < n; i++) {
			if (!in[i] || p[i].pid == root)
				continue;
			left++;
			kill(p[i].pid, sig);
		}
		if (!left)
			break;
	}
	kill(root, sig);
	if (sig == SIGKILL)
		kill(root, SIGCONT);
	free(p);
	free(in);
}
