#include "watches.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "enter.h"
#include "fd.h"
#include "mem.h"
#include "walk.h"

#ifndef AT_HANDLE_FID
#define AT_HANDLE_FID 0x200 /* of Linux 6.5: one that can be compared and need not be opened */
#endif
#define WATCHES_MAX 8192U
#define ENTRIES_MAX 2000000U
#define ANSWER_MAX (4U << 20)

struct watch {
	char handle[160]; /* "TYPE:BYTES" */
	unsigned long long dev, ino;
	bool found;
};

struct watches {
	struct watch *v;
	size_t n, left;
};

/* ---- who watches what ---- */

static void take_line(const char *line, struct watches *w)
{
	unsigned long long ino, dev;
	unsigned type;
	char bytes[132];

	if (w->n == WATCHES_MAX ||
		sscanf(line, "inotify wd:%*x ino:%llx sdev:%llx mask:%*x ignored_mask:%*x fhandle-bytes:%*x fhandle-type:%x "
			     "f_handle:%131[0-9a-f]",
			&ino, &dev, &type, bytes) != 4)
		return;
	w->v = mem_realloc(w->v, sizeof(*w->v) * (w->n + 1));
	w->v[w->n] = (struct watch){ .dev = dev, .ino = ino };
	snprintf(w->v[w->n].handle, sizeof(w->v->handle), "%x:%s", type, bytes);
	w->n++;
}

static void watches_of(pid_t pid, struct watches *w)
{
	char path[64], link[32];
	struct dirent *de;
	DIR *d;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	d = opendir(path);
	while (d && (de = readdir(d))) {
		ssize_t n = readlinkat(dirfd(d), de->d_name, link, sizeof(link) - 1);
		auto_free char *text = NULL;
		auto_fd fd = -1;

		if (n < 0)
			continue;
		link[n] = '\0';
		if (strcmp(link, "anon_inode:inotify"))
			continue;
		snprintf(path, sizeof(path), "/proc/%d/fdinfo/%.16s", (int)pid, de->d_name);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd < 0 || fd_read_all(fd, ANSWER_MAX, &text, NULL, NULL) < 0)
			continue;
		for (char *p = text, *end; (end = strchr(p, '\n')); p = end + 1) {
			*end = '\0';
			take_line(p, w);
		}
	}
	if (d)
		closedir(d);
}

static int watch_compare(const void *a, const void *b)
{
	return strcmp(((const struct watch *)a)->handle, ((const struct watch *)b)->handle);
}

static void watches_sort(struct watches *w)
{
	size_t n = 0;

	if (w->n)
		qsort(w->v, w->n, sizeof(*w->v), watch_compare);
	for (size_t i = 0; i < w->n; i++)
		if (!n || strcmp(w->v[n - 1].handle, w->v[i].handle))
			w->v[n++] = w->v[i];
	w->n = w->left = n;
}

/* ---- looking for them, as root of the box in its file system ---- */

static void look_at(int dirfd, const char *name, const char *top, const char *path, struct watches *w, int out)
{
	struct {
		struct file_handle h;
		unsigned char bytes[64];
	} h = { .h.handle_bytes = sizeof(h.bytes) };
	struct watch key, *found;
	int mount, n;

	if (name_to_handle_at(dirfd, name, &h.h, &mount, AT_HANDLE_FID) < 0)
		return;
	n = snprintf(key.handle, sizeof(key.handle), "%x:", (unsigned)h.h.handle_type);
	for (unsigned i = 0; i < h.h.handle_bytes && i < sizeof(h.bytes); i++)
		n += snprintf(key.handle + n, sizeof(key.handle) - (size_t)n, "%02x", h.bytes[i]);
	found = bsearch(&key, w->v, w->n, sizeof(*w->v), watch_compare);
	if (!found || found->found || strchr(path, '\n'))
		return;
	found->found = true;
	w->left--;
	dprintf(out, "%llx %llx %s%s%s\n", found->dev, found->ino, top, path[0] || !top[0] ? "/" : "", path);
}

static void look_below(const char *top, struct watches *w, unsigned *budget, int out)
{
	int fd = open(top[0] ? top : "/", O_RDONLY | O_DIRECTORY | O_CLOEXEC | (top[0] ? O_NOFOLLOW : 0));
	struct walk_entry e;
	struct den_err err;
	struct walk *k;

	if (fd < 0)
		return;
	look_at(AT_FDCWD, top[0] ? top : "/", top, "", w, out);
	if (walk_new(fd, 0, WALK_SKIP_DENIED | WALK_SKIP_KERNEL, &k, &err) < 0)
		return;
	while (w->left && *budget && walk_next(k, &e, &err) == WALK_ENTRY) {
		--*budget;
		look_at(e.dirfd, e.name, top, e.path, w, out);
	}
	walk_free(k);
}

static void look(int box, struct watches *w, int out)
{
	/* first where programs work; the whole of it last */
	static const char *const tops[] = { "/home", "/root", "/tmp", "/srv", "/opt", "/work", "/workspace", "/app",
		"/run", "/dev/shm", "/etc", "/var", "" };
	unsigned budget = ENTRIES_MAX;

	if (enter_as_root(box, CLONE_NEWNS) < 0)
		_exit(1);
	for (size_t i = 0; i < ARRAY_SIZE(tops) && w->left; i++)
		look_below(tops[i], w, &budget, out);
	_exit(0);
}

int watches_find(struct cgroup *cg, int box, struct buf *ret, struct den_err *err)
{
	auto_free pid_t *pids = NULL;
	auto_free char *text = NULL;
	auto_fd said = -1, say = -1;
	struct watches w = { 0 };
	size_t n, len = 0;
	int pair[2], r;
	pid_t pid;

	if (cgroup_pids(cg, &pids, &n, err) < 0)
		return -1;
	for (size_t i = 0; i < n; i++)
		watches_of(pids[i], &w);
	watches_sort(&w);
	if (!w.n)
		return 0;
	if (pipe2(pair, O_CLOEXEC) < 0) {
		free(w.v);
		return den_fail_sys(err, errno, "pipe");
	}
	said = pair[0];
	say = pair[1];
	pid = fork();
	if (pid == 0) {
		close(pair[0]);
		look(box, &w, pair[1]);
	}
	fd_close(&say);
	free(w.v);
	r = pid < 0 ? den_fail_sys(err, errno, "fork") : fd_read_all(said, ANSWER_MAX, &text, &len, err);
	fd_close(&said);
	while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	if (r == 0)
		buf_add(ret, text, len);
	return r;
}
