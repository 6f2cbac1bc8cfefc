#include "idmap.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "buf.h"
#include "fd.h"
#include "mem.h"

/* ---- what an ordinary user was given ---- */

/* The line of /etc/subuid for this user (by name or number) with at least 65,535 ids. */
static bool subid_find(const char *file, const char *name, uint32_t *ret)
{
	FILE *f = fopen(file, "re");
	char line[512], number[16];
	bool found = false;

	snprintf(number, sizeof(number), "%u", getuid());
	while (f && !found && fgets(line, sizeof(line), f)) {
		char *start = strchr(line, ':'), *count;
		unsigned long first, n;

		if (!start)
			continue;
		*start++ = '\0';
		count = strchr(start, ':');
		if (!count || (strcmp(line, number) && (!name[0] || strcmp(line, name))))
			continue;
		first = strtoul(start, NULL, 10);
		n = strtoul(count + 1, NULL, 10);
		if (first > 0 && first < UINT32_MAX - ID_RANGE && n >= ID_RANGE - 1) {
			*ret = (uint32_t)first;
			found = true;
		}
	}
	if (f)
		fclose(f);
	return found;
}

static void user_name(char *out, size_t cap)
{
	FILE *f = fopen("/etc/passwd", "re");
	char line[1024];

	out[0] = '\0';
	while (f && fgets(line, sizeof(line), f)) {
		char *pass = strchr(line, ':'), *uid = pass ? strchr(pass + 1, ':') : NULL;

		if (uid && (uid_t)strtoul(uid + 1, NULL, 10) == getuid()) {
			*pass = '\0';
			snprintf(out, cap, "%s", line);
			break;
		}
	}
	if (f)
		fclose(f);
}

static const char *helper(const char *name, char *buf, size_t cap)
{
	static const char *const dirs[] = { "/usr/bin", "/bin", "/usr/local/bin" };

	for (size_t i = 0; i < ARRAY_SIZE(dirs); i++) {
		snprintf(buf, cap, "%s/%s", dirs[i], name);
		if (access(buf, X_OK) == 0)
			return buf;
	}
	return NULL;
}

int idmap_subids(uint32_t *uid, uint32_t *gid, const char **why)
{
	char name[256], path[64];

	user_name(name, sizeof(name));
	if (!helper("newuidmap", path, sizeof(path)) || !helper("newgidmap", path, sizeof(path))) {
		*why = "newuidmap is not installed (package uidmap)";
		return 0;
	}
	if (!subid_find("/etc/subuid", name, uid) || !subid_find("/etc/subgid", name, gid)) {
		*why = "/etc/subuid and /etc/subgid give this user no range of 65,536 ids";
		return 0;
	}
	return 1;
}

enum plan_ids wall_ids(const char **why)
{
	const char *text = NULL;
	uint32_t uid, gid;
	enum plan_ids ids = IDS_MAPPED;

	if (geteuid() != 0)
		ids = idmap_subids(&uid, &gid, &text) ? IDS_SHIFTED : IDS_SINGLE;
	if (why)
		*why = text;
	return ids;
}

/* ---- maps ---- */

static int map_write(pid_t pid, const char *file, const char *text, struct den_err *err)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, file);
	return file_write_at(AT_FDCWD, path, text, err);
}

static int map_helper(
	const char *tool, pid_t pid, uint32_t own, uint32_t first, struct den_err *err)
{
	char path[64], a[4][16];
	char *argv[] = { NULL, a[0], (char *)"0", a[1], (char *)"1", (char *)"1", a[2],
		(char *)"65535", NULL };
	char *env[] = { (char *)"PATH=/usr/bin:/bin", NULL };
	pid_t child;
	int status;

	argv[0] = (char *)helper(tool, path, sizeof(path));
	if (!argv[0])
		return den_fail(
			err, DEN_UNSUPPORTED, 0, "%s is not installed (package uidmap)", tool);
	snprintf(a[0], sizeof(a[0]), "%d", (int)pid);
	snprintf(a[1], sizeof(a[1]), "%u", own);
	snprintf(a[2], sizeof(a[2]), "%u", first);
	if (posix_spawn(&child, argv[0], NULL, NULL, argv, env) != 0)
		return den_fail_sys(err, errno, "run %s", tool);
	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		return den_fail(err, DEN_DENIED, 0, "%s refused the range from /etc/subuid", tool);
	return 0;
}

int idmap_write(pid_t pid, const struct plan *p, struct den_err *err)
{
	char text[64];
	uint32_t uid = 0, gid = 0;
	const char *why = "";

	if (p->ids == IDS_SINGLE) {
		/* The kernel lets an ordinary user map his group only with setgroups() given up. */
		if (map_write(pid, "setgroups", "deny", err) < 0)
			return -1;
		snprintf(text, sizeof(text), "0 %u 1", geteuid());
		if (map_write(pid, "uid_map", text, err) < 0)
			return -1;
		snprintf(text, sizeof(text), "0 %u 1", getegid());
		return map_write(pid, "gid_map", text, err);
	}
	if (geteuid() != 0) {
		if (!idmap_subids(&uid, &gid, &why))
			return den_fail(err, DEN_UNSUPPORTED, 0, "%s", why);
		if (map_helper("newuidmap", pid, geteuid(), uid, err) < 0)
			return -1;
		return map_helper("newgidmap", pid, getegid(), gid, err);
	}
	snprintf(text, sizeof(text), "0 %u %u", p->id_base, ID_RANGE);
	if (map_write(pid, "uid_map", text, err) < 0)
		return -1;
	return map_write(pid, "gid_map", text, err);
}

/* In the child: waits for its ids, then works. Its error goes back through the pipe. */
static void box_root_child(
	pid_t parent, int go, int back, int (*fn)(void *arg, struct den_err *err), void *arg)
{
	struct den_err err = { 0 };
	char c;

	if (read(go, &c, 1) != 1)
		_exit(1);
	if (setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0)
		den_fail_sys(&err, errno, "become root of the box");
	/* after the ids, which would clear it: it has the box's lock and sockets from its parent,
	 * so a next keeper could not work while it goes on */
	else if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || getppid() != parent)
		_exit(1);
	else if (fn(arg, &err) == 0)
		_exit(0);
	(void)!write(back, &err, sizeof(err));
	_exit(1);
}

int wall_as_box_root(int (*fn)(void *arg, struct den_err *err), void *arg, struct den_err *err)
{
	struct plan p = { .ids = wall_ids(NULL) };
	auto_fd go_r = -1, go_w = -1, back_r = -1, back_w = -1;
	struct den_err theirs;
	int fds[2], status = 0, ended = 0;
	pid_t pid, self;

	if (geteuid() == 0)
		return fn(arg, err);
	if (pipe2(fds, O_CLOEXEC) < 0)
		return den_fail_sys(err, errno, "pipe");
	go_r = fds[0], go_w = fds[1];
	if (pipe2(fds, O_CLOEXEC) < 0)
		return den_fail_sys(err, errno, "pipe");
	back_r = fds[0], back_w = fds[1];
	self = getpid();
	pid = (pid_t)syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, NULL, NULL, NULL, NULL);
	if (pid == 0) {
		close(go_w);
		box_root_child(self, go_r, back_w, fn, arg);
	}
	if (pid < 0)
		return den_fail_sys(err, errno, "user namespace");
	fd_close(&back_w);
	if (idmap_write(pid, &p, err) < 0 || fd_write_all(go_w, "g", 1, err) < 0) {
		kill(pid, SIGKILL);
		status = -1;
	}
	if (status == 0 && read(back_r, &theirs, sizeof(theirs)) == (ssize_t)sizeof(theirs)) {
		*err = theirs;
		status = -1;
	}
	while (waitpid(pid, &ended, 0) < 0 && errno == EINTR)
		;
	if (status == 0 && ended)
		return den_fail(err, DEN_INTERNAL, 0, "the process that did it was killed");
	return status;
}

int idmap_mount(int mount_fd, int userns_fd, const char *what, struct den_err *err)
{
	struct mount_attr attr = { .attr_set = MOUNT_ATTR_IDMAP, .userns_fd = (uint64_t)userns_fd };

	if (syscall(SYS_mount_setattr, mount_fd, "", AT_EMPTY_PATH, &attr, sizeof(attr)) == 0)
		return 0;
	if (errno == EINVAL)
		return den_fail(err, DEN_UNSUPPORTED, 0,
			"the file system of '%.120s' cannot be id-mapped (ext4, xfs, btrfs can); "
			"use another "
			"--state, or run den as an ordinary user",
			what);
	return den_fail_sys(err, errno, "id-map '%.120s'", what);
}

int idmap_owner_ns(uint32_t uid, uint32_t gid, uint32_t id_base, int *ret_fd, struct den_err *err)
{
	char path[64], text[64];
	int sync[2], fd;
	pid_t pid;

	if (pipe2(sync, O_CLOEXEC) < 0)
		return den_fail_sys(err, errno, "pipe");
	pid = (pid_t)syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, NULL, NULL, NULL, NULL);
	if (pid == 0) { /* only holds the namespace until it has been opened */
		char c;

		close(sync[1]);
		(void)!read(sync[0], &c, 1);
		_exit(0);
	}
	close(sync[0]);
	if (pid < 0) {
		close(sync[1]);
		return den_fail_sys(err, errno, "user namespace");
	}
	snprintf(text, sizeof(text), "%u %u 1", uid, id_base);
	fd = map_write(pid, "uid_map", text, err);
	snprintf(text, sizeof(text), "%u %u 1", gid, id_base);
	if (fd == 0)
		fd = map_write(pid, "gid_map", text, err);
	if (fd == 0) {
		snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)pid);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd < 0)
			den_fail_sys(err, errno, "open user namespace");
	}
	close(sync[1]);
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	if (fd < 0)
		return -1;
	*ret_fd = fd;
	return 0;
}
