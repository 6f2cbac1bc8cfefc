/*
 * From clone3() to the porter, in the box's namespaces.
 *
 * What runsc, its gofer and its sentry find around them is a tmpfs with just what they need, and nothing of
 * the host below it. It is never seen by the host, and goes with the last process.
 *
 *   /r            the box's root: the same overlays as behind the other wall
 *   /run, /mN     what becomes /run/den, and --mount
 *   /b            the bundle
 *   /s            runsc's own state: nobody outside ever reads it
 *   /runsc        on a mount that nobody can write through
 *   /init         a copy of den-init: the sentry has to read it, and the file itself cannot be read
 *   /images       what is loaded
 *   /proc /dev    what runsc needs for itself
 *
 * The first process is the porter (init/porter.c): it stays, as the one that the keeper watches. Its death is
 * the end of all the others.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <linux/openat2.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "container.h"
#include "fd.h"
#include "gvisor.h"
#include "mem.h"
#include "strv.h"

extern int umount2(const char *, int);
#define MNT_DETACH_ 2

static int make_dir(const char *path, struct den_err *err)
{
	return mkdir(path, 0755) < 0 && errno != EEXIST ? den_fail_sys(err, errno, "make '%s'", path) : 0;
}

static int make_file(const char *path, const char *text, size_t n, struct den_err *err)
{
	auto_fd fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);

	if (fd < 0 || write(fd, text, n) != (ssize_t)n)
		return den_fail_sys(err, errno, "make '%s'", path);
	return 0;
}

static int place(int fd, const char *at, bool file, uint64_t attrs, struct den_err *err)
{
	struct mount_attr a = { .attr_set = attrs };

	if ((file ? make_file(at, "", 0, err) : make_dir(at, err)) < 0)
		return -1;
	if (attrs && syscall(SYS_mount_setattr, fd, "", AT_EMPTY_PATH | AT_RECURSIVE, &a, sizeof(a)) < 0)
		return den_fail_sys(err, errno, "protect '%s'", at);
	return mount_attach(fd, at, err);
}

static int copy_init(int from, struct den_err *err)
{
	auto_fd to = open("init", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0555);
	char buf[16384];
	ssize_t n;

	if (to < 0)
		return den_fail_sys(err, errno, "make 'init'");
	while ((n = read(from, buf, sizeof(buf))) > 0)
		if (fd_write_all(to, buf, (size_t)n, err) < 0)
			return -1;
	return n < 0 ? den_fail_sys(err, errno, "read init") : 0;
}

/* runsc believes /proc/meminfo: its kernel then tells the box of its limit, not of the host's memory. */
static int tell_memory(struct launch *l, struct den_err *err)
{
	char text[64];
	int n = snprintf(text, sizeof(text), "MemTotal: %llu kB\n", (unsigned long long)l->plan->spec->memory / 1024);

	if (pwrite(l->meminfo_fd, text, (size_t)n, 0) != n)
		return den_fail_sys(err, errno, "write meminfo");
	return mount_attach(l->proc_file_fd[1], "proc/meminfo", err);
}

/* What an ordinary user's keeper could not take along; before anything covers it. */
static int stage_programs(struct launch *l, struct den_err *err)
{
	struct gvisor_launch *g = l->own;

	if (l->root)
		return 0;
	g->runsc_fd = mount_clone(AT_FDCWD, g->runsc, err);
	if (g->runsc_fd < 0)
		return -1;
	g->init_fd = open(l->plan->init_path, O_RDONLY | O_CLOEXEC);
	return g->init_fd < 0 ? den_fail_sys(err, errno, "read '%s'", l->plan->init_path) : 0;
}

/* The working directory is the tmpfs that stage_layers() made. */
static int stage_place(struct launch *l, struct den_err *err)
{
	static const char *const dirs[] = { "proc", "dev", "tmp", "b", "s" };
	static const char *const devices[DEVICES] = { "dev/null", "dev/zero", "dev/full", "dev/random",
		"dev/urandom", "dev/tty" };
	struct gvisor_launch *g = l->own;
	const uint64_t ro = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID;
	char name[16];

	for (size_t i = 0; i < ARRAY_SIZE(dirs); i++)
		if (make_dir(dirs[i], err) < 0)
			return -1;
	if (mount_attach(l->proc_fd, "proc", err) < 0)
		return -1;
	if (l->plan->spec->memory && tell_memory(l, err) < 0)
		return -1;
	for (int i = 0; i < DEVICES; i++)
		if (place(l->device_fd[i], devices[i], true, 0, err) < 0)
			return -1;
	if (place(g->runsc_fd, "runsc", true, l->root ? ro : 0, err) < 0 || copy_init(g->init_fd, err) < 0)
		return -1;
	if (l->run_fd >= 0 && place(l->run_fd, "run", false, ro | MOUNT_ATTR_NODEV |
				(l->plan->spec->flags & BOX_RESEED ? 0 : MOUNT_ATTR_NOEXEC), err) < 0)
		return -1;
	if (g->images_fd >= 0 && place(g->images_fd, "images", false, ro | MOUNT_ATTR_NODEV, err) < 0)
		return -1;
	for (size_t i = 0; i < l->plan->spec->n_mounts; i++) {
		snprintf(name, sizeof(name), "m%zu", i);
		if (place(l->mount_fd[i], name, l->mount_is_file[i],
			    MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV |
				    (l->plan->spec->mounts[i].ro ? MOUNT_ATTR_RDONLY : 0),
			    err) < 0)
			return -1;
	}
	return make_file("b/config.json", g->config.p, g->config.len, err);
}

static int stage_leave(struct launch *l, struct den_err *err)
{
	auto_fd old = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);

	(void)l;
	if (old < 0 || syscall(SYS_pivot_root, ".", ".") < 0)
		return den_fail_sys(err, errno, "pivot_root");
	if (fchdir(old) < 0 || umount2(".", MNT_DETACH_) < 0 || chdir("/") < 0)
		return den_fail_sys(err, errno, "leave the old root");
	return 0;
}

/* The authority of the box's gate among those that its programs trust, as stage_trust() of the other wall does it;
 * but here the box's own links could lead to what is beside its root. */
static int stage_trust_root(struct launch *l, struct den_err *err)
{
	struct open_how how = { .flags = O_PATH | O_NOFOLLOW | O_CLOEXEC, .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS };
	auto_fd root = open("/r", O_PATH | O_DIRECTORY | O_CLOEXEC);

	for (const char *const *at = trust_bundles; l->plan->trust && *at; at++) {
		auto_fd file = (int)syscall(SYS_openat2, root, *at, &how, sizeof(how));
		auto_fd bundle = -1;
		struct stat st;

		if (file < 0 || fstat(file, &st) < 0 || !S_ISREG(st.st_mode))
			continue;
		bundle = mount_clone(AT_FDCWD, "/run/ca-bundle.pem", err);
		if (bundle < 0)
			return -1;
		if (syscall(SYS_move_mount, bundle, "", file, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0)
			return den_fail_sys(err, errno, "certificates at '%s'", *at);
	}
	return 0;
}

/* stage_owners() of the other wall, in the box's root alone: a link of the box leads nowhere else. */
static int stage_owners_root(struct launch *l, struct den_err *err)
{
	auto_fd place = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	int r;

	if (l->owners_fd < 0)
		return 0;
	if (place < 0 || chroot("/r") < 0 || chdir("/") < 0)
		return den_fail_sys(err, errno, "enter the box's root");
	r = stage_owners(l, err);
	if (fchdir(place) < 0 || chroot(".") < 0)
		return den_fail_sys(err, errno, "leave the box's root");
	return r;
}

/* Where no group of the host's counts. */
static int stage_tasks(struct launch *l, struct den_err *err)
{
	struct rlimit n = { GVISOR_TASKS, GVISOR_TASKS };

	if (l->n_cg_fds || getrlimit(RLIMIT_NPROC, &n) < 0)
		return 0;
	n.rlim_cur = n.rlim_max = MIN(n.rlim_max, (rlim_t)GVISOR_TASKS);
	return setrlimit(RLIMIT_NPROC, &n) < 0 ? den_fail_sys(err, errno, "limit of tasks") : 0;
}

/* Nobody here gains anything by executing a file: what is setuid in the box is so for the sentry alone. */
static int stage_privs(struct launch *l, struct den_err *err)
{
	(void)l;
	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ? den_fail_sys(err, errno, "no new privileges") : 0;
}

static void exec_runsc(struct launch *l, int null)
{
	struct gvisor_launch *g = l->own;
	char *env[] = { (char *)"PATH=/", NULL };
	int says = open("/err", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);

	if (link_enter(g->netns) < 0)
		_exit(126);
	setsid();
	dup2(null, 0);
	dup2(null, 1);
	dup2(says >= 0 ? says : null, 2);
	dup2(g->door[1], 3);
	fd_close_from(4);
	execve("/runsc", g->argv, env);
	_exit(127);
}

/* Puts the porter's descriptors where it expects them (init/porter.c) and closes all others. */
static int stage_start(struct launch *l, struct den_err *err)
{
	struct gvisor_launch *g = l->own;
	char pid_text[16], step[16];
	char *argv[] = { (char *)"den-porter", (char *)"porter", pid_text, step,
		(char *)(l->plan->host_net ? "host" : "own"), NULL };
	char *env[] = { NULL };
	int fds[] = { l->plan->listen_fd, g->door[0], l->err_fd, g->ctl[0], g->ctl[1], l->init_fd };
	int program;
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	pid_t pid;

	if (null < 0)
		return den_fail_sys(err, errno, "open /dev/null");
	g->door[1] = fcntl(g->door[1], F_DUPFD_CLOEXEC, 16);
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
		fds[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, 16);
	null = fcntl(null, F_DUPFD_CLOEXEC, 16);
	l->err_fd = fds[2];
	pid = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
	if (pid == 0)
		exec_runsc(l, null);
	if (pid < 0)
		return den_fail_sys(err, errno, "start runsc");
	snprintf(pid_text, sizeof(pid_text), "%d", (int)pid);
	snprintf(step, sizeof(step), "%d", l->step);
	for (int i = 0; i < 3; i++)
		if (dup2(null, i) < 0)
			return den_fail_sys(err, errno, "stdio");
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
		if (dup2(fds[i], 3 + (int)i) < 0)
			return den_fail_sys(err, errno, "descriptors");
	l->err_fd = 5;
	program = 3 + (int)ARRAY_SIZE(fds) - 1;
	fcntl(program, F_SETFD, FD_CLOEXEC);
	fd_close_from(program + 1);
	syscall(SYS_execveat, program, "", argv, env, AT_EMPTY_PATH);
	return den_fail_sys(err, errno, "execute the porter");
}

static const struct launch_stage stages[] = {
	{ "wait", stage_wait },
	{ "ids", stage_ids },
	{ "cgroup", stage_cgroup },
	{ "session", stage_session },
	{ "hostname", stage_hostname },
	{ "loopback", stage_loopback },
	{ "link", stage_link },		/* before anything covers the host's /proc */
	{ "programs", stage_programs },
	{ "layers", stage_layers },
	{ "prepare", stage_prepare },
	{ "place", stage_place },
	{ "leave", stage_leave },	/* no host path resolves from here */
	{ "trust", stage_trust_root },
	{ "owners", stage_owners_root },
	{ "limits", stage_limits },
	{ "tasks", stage_tasks },
	{ "privs", stage_privs },
	{ "recorded", stage_wait },	/* what could not be found again must not run */
	{ "runsc", stage_start },
};

static int gather(struct launch *l, struct den_err *err)
{
	struct gvisor_launch *g = l->own;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, g->door) < 0 ||
		socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, g->ctl) < 0)
		return den_fail_sys(err, errno, "socketpair");
	if (l->root) {
		g->runsc_fd = mount_clone(AT_FDCWD, g->runsc, err);
		g->init_fd = open(l->plan->init_path, O_RDONLY | O_CLOEXEC);
		if (g->runsc_fd < 0)
			return -1;
	}
	gvisor_config(l, &g->config);
	gvisor_argv(l, &g->argv);
	return 0;
}

static const struct launch_kind launch_gvisor = { stages, ARRAY_SIZE(stages), gather };

int gvisor_launch(const struct plan *p, struct cgroup *cg, int images, struct wall_box *ret, struct den_err *err)
{
	struct gvisor_launch g = { .runsc_fd = -1, .init_fd = -1, .netns = -1, .door = { -1, -1 }, .ctl = { -1, -1 },
		.images_fd = images };
	int r;

	g.runsc = gvisor_runsc(err);
	r = g.runsc ? launch_box(p, cg, &launch_gvisor, &g, ret, err) : -1;
	ret->host_net = p->host_net;
	if (r == 0 && images >= 0)
		ret->door = fd_take(&g.door[1]);
	for (int i = 0; i < 2; i++) {
		fd_close(&g.door[i]);
		fd_close(&g.ctl[i]);
	}
	fd_close(&g.runsc_fd);
	fd_close(&g.init_fd);
	buf_free(&g.config);
	strv_free(g.argv);
	free(g.runsc);
	return r;
}
