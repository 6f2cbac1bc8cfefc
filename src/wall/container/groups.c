#include "groups.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cgroup_ops.h"
#include "fd.h"
#include "images.h"
#include "launch.h"
#include "mem.h"
#include "status.h"

#define PAIRS_MAX 4096

/* ---- what CRIU does not look at ---- */

static bool is_semaphore(pid_t pid, const char *fd)
{
	char path[64], text[512];

	snprintf(path, sizeof(path), "/proc/%d/fdinfo/%.16s", (int)pid, fd);
	return file_read_at(AT_FDCWD, path, text, sizeof(text), NULL) == 0 && strstr(text, "eventfd-semaphore: 1");
}

static void semaphores_of(pid_t pid, struct image_fds *ret)
{
	char path[64], link[32];
	struct status st = { 0 };
	struct dirent *de;
	DIR *d;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	d = opendir(path);
	while (d && (de = readdir(d))) {
		ssize_t n = readlinkat(dirfd(d), de->d_name, link, sizeof(link) - 1);

		if (n < 0)
			continue;
		link[n] = '\0';
		if (strcmp(link, "anon_inode:[eventfd]") || !is_semaphore(pid, de->d_name))
			continue;
		if (!st.inner && status_of(pid, &st) < 0)
			break;
		ret->v = mem_realloc(ret->v, sizeof(*ret->v) * (ret->n + 1));
		ret->v[ret->n++] = (struct image_fd){ .pid = (int)st.inner, .fd = (int)strtol(de->d_name, NULL, 10) };
	}
	if (d)
		closedir(d);
}

int groups_semaphores(struct cgroup *cg, struct image_fds *ret, struct den_err *err)
{
	auto_free pid_t *pids = NULL;
	size_t n;

	if (cgroup_pids(cg, &pids, &n, err) < 0)
		return -1;
	for (size_t i = 0; i < n; i++)
		semaphores_of(pids[i], ret);
	return 0;
}

/* ---- exec groups ---- */

int groups_note(struct cgroup *cg, struct buf *out, struct den_err *err)
{
	int box = hier_box(cg, cg->core->members(cg));
	auto_fd list = box < 0 ? -1 : openat(box, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct dirent *de;
	DIR *d = list < 0 ? NULL : fdopendir(list);

	if (!d)
		return den_fail_sys(err, errno, "the box's cgroup");
	list = -1; /* d has it */
	while ((de = readdir(d))) {
		unsigned exec;
		auto_pidset s = { 0 };
		auto_fd group = -1;
		pid_t before = 0;
		char tail;

		if (de->d_type != DT_DIR || sscanf(de->d_name, "x%u%c", &exec, &tail) != 1)
			continue;
		group = openat(dirfd(d), de->d_name, O_PATH | O_DIRECTORY | O_CLOEXEC);
		if (group < 0 || group_pids(group, PIDS_THREADED, &s) < 0)
			continue;
		for (size_t i = 0; i < s.n; i++) {
			struct status st;

			if (status_of(s.v[i], &st) < 0 || st.leader == before)
				continue;
			before = st.leader;
			buf_addf(out, "%u %d\n", exec, (int)st.inner);
		}
	}
	closedir(d);
	return 0;
}

static void move_threads(int fd, pid_t pid)
{
	char path[48];
	struct dirent *de;
	DIR *d;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	d = opendir(path);
	while (d && (de = readdir(d)))
		if (de->d_name[0] != '.')
			(void)!write(fd, de->d_name, strlen(de->d_name));
	if (d)
		closedir(d);
}

struct member {
	pid_t inner, pid;
};

static struct member *members(struct cgroup *cg, size_t *ret_n, struct den_err *err)
{
	auto_free pid_t *pids = NULL;
	struct member *m;
	size_t n = 0, all;

	if (cgroup_pids(cg, &pids, &all, err) < 0)
		return NULL;
	m = mem_alloc(sizeof(*m) * (all + 1));
	for (size_t i = 0; i < all; i++) {
		struct status st;

		if (status_of(pids[i], &st) == 0 && st.nested) /* not those who load */
			m[n++] = (struct member){ st.inner, pids[i] };
	}
	*ret_n = n;
	return m;
}

int groups_restore(struct cgroup *cg, const char *lines, struct den_err *err)
{
	auto_free struct member *m = NULL;
	auto_fd fd = -1;
	unsigned current = 0, exec;
	size_t n;
	int pid, used;

	if (!*lines)
		return 0;
	m = members(cg, &n, err);
	if (!m)
		return -1;
	for (; sscanf(lines, "%u %d%n", &exec, &pid, &used) == 2; lines += used) {
		if (fd < 0 || exec != current) {
			fd_close(&fd);
			if (cgroup_exec_make(cg, exec, &fd, err) < 0)
				return -1;
			current = exec;
		}
		for (size_t i = 0; i < n; i++)
			if (m[i].inner == pid)
				move_threads(fd, m[i].pid);
	}
	return 0;
}

/* ---- walls ---- */

static uint64_t kept_mask(void)
{
	uint64_t mask = 0;

	for (int i = 0; i < n_caps_kept; i++)
		mask |= 1ULL << caps_kept[i];
	return mask;
}

static int each_thread(pid_t pid, int (*look)(const char *path, const void *user, struct den_err *err), const void *user,
	struct den_err *err)
{
	char path[64];
	struct dirent *de;
	DIR *d;
	int r = 0;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	d = opendir(path);
	if (!d)
		return den_fail_sys(err, errno, "look at the box's processes");
	while (r == 0 && (de = readdir(d))) {
		if (de->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "/proc/%d/task/%.16s/status", (int)pid, de->d_name);
		r = look(path, user, err);
	}
	closedir(d);
	return r;
}

static int check_thread(const char *path, const void *user, struct den_err *err)
{
	struct status st;

	(void)user;
	if (status_read(path, &st) < 0)
		return errno == ENOENT || errno == ESRCH ? 0 : den_fail_sys(err, errno, "look at what was loaded");
	if (st.seccomp != 2 || (st.bound & ~kept_mask()) || (st.effective & ~kept_mask()) || (st.permitted & ~kept_mask()))
		return den_fail(err, DEN_DENIED, 0, "a process would be without a wall (filter %d, capabilities %llx)",
			st.seccomp, (unsigned long long)(st.bound | st.permitted));
	return 0;
}

static bool is_zombie(pid_t pid)
{
	char path[48], text[256];
	const char *p;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	if (file_read_at(AT_FDCWD, path, text, sizeof(text), NULL) < 0)
		return true;
	p = strrchr(text, ')');
	return p && p[1] == ' ' && (p[2] == 'Z' || p[2] == 'X');
}

static int check_process(pid_t pid, const struct stat *user, struct den_err *err)
{
	char path[64];
	struct stat st;

	if (is_zombie(pid)) /* it will never run */
		return 0;
	snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)pid);
	if (stat(path, &st) < 0 || st.st_ino != user->st_ino)
		return den_fail(err, DEN_DENIED, 0, "a process would be in another user namespace");
	return each_thread(pid, check_thread, NULL, err);
}

int walls_check(struct cgroup *cg, pid_t not_this, pid_t nor_this, pid_t same_as, struct den_err *err)
{
	auto_free pid_t *pids = NULL;
	char path[48];
	struct stat user;
	size_t n;

	snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)same_as);
	if (stat(path, &user) < 0)
		return den_fail_sys(err, errno, "the box's user namespace");
	if (cgroup_pids(cg, &pids, &n, err) < 0)
		return -1;
	for (size_t i = 0; i < n; i++)
		if (pids[i] != not_this && pids[i] != nor_this && check_process(pids[i], &user, err) < 0)
			return -1;
	return 0;
}

int walls_strays(struct cgroup *cg, pid_t init, struct den_err *err)
{
	auto_free pid_t *pids = NULL;
	char path[48];
	struct stat want, st;
	size_t n;

	snprintf(path, sizeof(path), "/proc/%d/ns/pid", (int)init);
	if (stat(path, &want) < 0)
		return den_fail_sys(err, errno, "process 1");
	if (cgroup_pids(cg, &pids, &n, err) < 0)
		return -1;
	for (size_t i = 0; i < n; i++) {
		snprintf(path, sizeof(path), "/proc/%d/ns/pid", (int)pids[i]);
		if (stat(path, &st) == 0 && st.st_ino != want.st_ino && !is_zombie(pids[i]))
			return den_fail(err, DEN_DENIED, 0, "a process is outside of the box's pid namespace");
	}
	return 0;
}

static int check_filters(const char *path, const void *user, struct den_err *err)
{
	const struct status *init = user;
	struct status st;

	if (status_read(path, &st) < 0 || st.filters <= init->filters)
		return 0;
	return den_fail(err, DEN_UNSUPPORTED, 0, "process %d has a seccomp filter of its own: it could not be loaded again",
		(int)st.inner);
}

int walls_own_filters(struct cgroup *cg, pid_t init, struct den_err *err)
{
	auto_free pid_t *pids = NULL;
	struct status first;
	size_t n;

	if (status_of(init, &first) < 0)
		return den_fail_sys(err, errno, "process 1");
	if (cgroup_pids(cg, &pids, &n, err) < 0)
		return -1;
	for (size_t i = 0; i < n; i++)
		if (!is_zombie(pids[i]) && each_thread(pids[i], check_filters, &first, err) < 0)
			return -1;
	return 0;
}
