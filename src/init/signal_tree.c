/*
 * Signals to everything below a process, found by walking /proc. Used where the host gives the box
 * no cgroup; the root is then a subreaper, so nothing it started can leave the tree while it lives.
 *
 * When a limit ends an exec, its root may go first and leave the others to init, where nothing
 * tells whose they were. So the tree is remembered before, and what is left of it is killed after.
 * Whoever was started in between is known by the session that the root had opened.
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
#define MARKS_MAX 8192
/* the kernel's; root of the box may have put anything in place of /proc */
#define PID_LIMIT (1 << 22)

struct proc {
	pid_t pid, ppid, session;
	uint64_t start;
	bool alive; /* else it only waits to be reaped */
	bool in;    /* it is to be signalled */
};

/* All processes of the box, as of one walk. */
struct table {
	struct proc *p;
	size_t n;
};

static bool proc_read(pid_t pid, struct proc *ret)
{
	char path[64], text[512], state;
	struct proc p = { .pid = pid };
	unsigned long long start;
	const char *s;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	if (file_read_at(AT_FDCWD, path, text, sizeof(text), NULL) < 0)
		return false;
	s = strrchr(text, ')'); /* the name before it may contain anything */
	if (!s || sscanf(s + 1,
			  " %c %d %*d %d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d "
			  "%*d %llu",
			  &state, &p.ppid, &p.session, &start) != 4)
		return false;
	if (p.ppid < 0 || p.ppid >= PID_LIMIT)
		return false;
	p.start = start;
	p.alive = state != 'Z' && state != 'X';
	*ret = p;
	return true;
}

static void table_read(struct table *t)
{
	DIR *d = opendir("/proc");
	struct dirent *de;

	t->n = 0;
	while (d && t->n < TREE_MAX && (de = readdir(d))) {
		int pid = atoi(de->d_name);

		if (pid > 1 && pid < PID_LIMIT && proc_read(pid, &t->p[t->n]))
			t->n++;
	}
	if (d)
		closedir(d);
}

/* Adds everything below those that are in. Passes over the table until nothing is added: a tree of
 * depth d takes d passes when pids run against it, one when they run with it. */
static void table_add_below(struct table *t)
{
	static unsigned char member[PID_LIMIT / 8]; /* by pid */
	bool more;

	for (size_t i = 0; i < t->n; i++)
		if (t->p[i].in)
			member[t->p[i].pid / 8] |= (unsigned char)(1 << t->p[i].pid % 8);
	do {
		more = false;
		for (size_t i = 0; i < t->n; i++) {
			struct proc *p = &t->p[i];

			if (p->in || !(member[p->ppid / 8] & 1 << p->ppid % 8))
				continue;
			p->in = more = true;
			member[p->pid / 8] |= (unsigned char)(1 << p->pid % 8);
		}
	} while (more);
	for (size_t i = 0; i < t->n; i++)
		member[t->p[i].pid / 8] = 0;
}

static void table_read_tree(struct table *t, pid_t root)
{
	table_read(t);
	for (size_t i = 0; i < t->n; i++)
		t->p[i].in = t->p[i].pid == root;
	table_add_below(t);
}

/* Signals all that are in, except one; returns how many live ones that were. */
static size_t table_signal(const struct table *t, pid_t except, int sig)
{
	size_t count = 0;

	for (size_t i = 0; i < t->n; i++) {
		if (!t->p[i].in || !t->p[i].alive || t->p[i].pid == except)
			continue;
		count++;
		kill(t->p[i].pid, sig);
	}
	return count;
}

void tree_signal(pid_t root, int sig)
{
	struct table t = { .p = malloc(TREE_MAX * sizeof(*t.p)) };

	/* For KILL the root goes last: as long as it lives (stopped), its tree stays findable. */
	if (sig == SIGKILL)
		kill(root, SIGSTOP);
	for (int round = 0; t.p && round < (sig == SIGKILL ? TREE_ROUNDS : 1); round++) {
		table_read_tree(&t, root);
		if (!table_signal(&t, root, sig))
			break;
	}
	kill(root, sig);
	if (sig == SIGKILL)
		kill(root, SIGCONT);
	free(t.p);
}

static int mark_cmp(const void *a, const void *b)
{
	const struct mark *x = a, *y = b;

	if (x->pid != y->pid)
		return x->pid < y->pid ? -1 : 1;
	return (x->start > y->start) - (x->start < y->start);
}

static bool marked(const struct proc *p, const struct mark *marks, size_t n)
{
	struct mark key = { p->pid, p->start };

	return n && bsearch(&key, marks, n, sizeof(key), mark_cmp);
}

void tree_remember(pid_t root, struct mark **marks, size_t *n)
{
	struct table t = { .p = malloc(TREE_MAX * sizeof(*t.p)) };
	size_t before = *n;
	struct mark *m;

	if (!t.p)
		return;
	table_read_tree(&t, root);
	m = realloc(*marks, (*n + t.n) * sizeof(*m) + 1); /* at least a byte: 0 would free it */
	if (m) {
		*marks = m;
		for (size_t i = 0; i < t.n && *n < MARKS_MAX; i++)
			if (t.p[i].in && t.p[i].pid != root && !marked(&t.p[i], m, before))
				m[(*n)++] = (struct mark){ t.p[i].pid, t.p[i].start };
		qsort(m, *n, sizeof(*m), mark_cmp);
	}
	free(t.p);
}

void tree_kill_left(pid_t session, const struct mark *marks, size_t n)
{
	struct table t = { .p = malloc(TREE_MAX * sizeof(*t.p)) };

	for (int round = 0; t.p && round < TREE_ROUNDS; round++) {
		table_read(&t);
		for (size_t i = 0; i < t.n; i++)
			t.p[i].in = (session && t.p[i].session == session) ||
				marked(&t.p[i], marks, n);
		table_add_below(&t);
		if (!table_signal(&t, 0, SIGKILL))
			break;
	}
	free(t.p);
}
