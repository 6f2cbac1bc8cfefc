/* The keeper's side of starting a box: gather, clone, map, let go, listen for trouble. */
#include "launch.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cgroup.h"
#include "container.h"
#include "disk.h"
#include "fd.h"
#include "idmap.h"
#include "mem.h"
#include "volume.h"

static bool kernel_at_least(int major, int minor)
{
	struct utsname u;
	int a = 0, b = 0;

	uname(&u);
	sscanf(u.release, "%d.%d", &a, &b);
	return a > major || (a == major && b >= minor);
}

static void launch_init(struct launch *l, const struct plan *p)
{
	memset(l, 0xff, offsetof(struct launch, volatile_upper)); /* every descriptor is -1 */
	memset((char *)l + offsetof(struct launch, volatile_upper), 0,
		sizeof(*l) - offsetof(struct launch, volatile_upper));
	l->plan = p;
	l->root = geteuid() == 0;
	l->n_cg_fds = 0;
	l->n_lowers = 0;
	/* with history it is copied, and a copy of what was mounted like that cannot be mounted again */
	l->volatile_upper = (p->spec->flags & BOX_EPHEMERAL) && p->spec->history == HISTORY_OFF;
	l->time_ns = kernel_at_least(6, 3);
	if (p->spec->cpu_milli)
		l->cpus = (unsigned)((p->spec->cpu_milli + 999) / 1000);
	snprintf(l->hostname, sizeof(l->hostname), "%s",
		p->spec->hostname ? p->spec->hostname : p->spec->name ? p->spec->name : p->id->s);
	snprintf(l->orphan_s, sizeof(l->orphan_s), "%d", p->spec->flags & BOX_EPHEMERAL ? 10 : 0);
	snprintf(l->memory, sizeof(l->memory), "%llu", (unsigned long long)p->spec->memory);
	/* the gate's, which may come later; until then it cannot be reached, and that is said at once */
	snprintf(l->resolv, sizeof(l->resolv), "nameserver 198.18.0.1\n");
	if (p->host_net)
		(void)file_read_at(AT_FDCWD, "/etc/resolv.conf", l->resolv, sizeof(l->resolv), NULL);
}

static void launch_close(struct launch *l)
{
	fd_close(&l->go_fd);
	fd_close(&l->err_fd);
	for (int i = 0; i < l->n_cg_fds; i++)
		fd_close(&l->cg_fds[i]);
	for (int i = 0; i < l->n_lowers; i++)
		fd_close(&l->lower_fd[i]);
	fd_close(&l->upper_fd);
	for (size_t i = 0; i < l->plan->spec->n_mounts; i++)
		fd_close(&l->mount_fd[i]);
	fd_close(&l->run_fd);
	fd_close(&l->init_fd);
	fd_close(&l->memuse_fd);
	fd_close(&l->owners_fd);
	fd_close(&l->proc_fd);
}

/* ---- as root: the keeper opens what the box's ids may not reach ---- */

static int open_shares(struct launch *l, struct den_err *err)
{
	for (size_t i = 0; i < l->plan->spec->n_mounts; i++) {
		const struct box_mount *m = &l->plan->spec->mounts[i];
		auto_fd ns = -1;
		struct stat st;

		if (open_share(l, i, err) < 0)
			return den_wrap(err, "mount");
		if (fstat(l->mount_fd[i], &st) < 0)
			return den_fail_sys(err, errno, "mount '%s'", m->host);
		l->mount_is_file[i] = !S_ISDIR(st.st_mode);
		if (volume_name(m->host)) { /* has the ids of the box: map_layers() */
			if (l->plan->ids != IDS_MAPPED)
				return den_fail(err, DEN_UNSUPPORTED, 0, "volumes need a file system that can be id-mapped");
			continue;
		}
		/* The owner of what is shared and root of the box are one: what the box writes belongs to
		 * him. Other ids of the host are nobody there. */
		if (idmap_owner_ns(st.st_uid, st.st_gid, l->plan->id_base, &ns, err) < 0)
			return den_wrap(err, "mount '%s'", m->host);
		if (idmap_mount(l->mount_fd[i], ns, m->host, err) < 0 && !m->ro)
			return den_wrap(err, "mount (with :ro it works without)");
	}
	return 0;
}

static int open_as_root(struct launch *l, struct den_err *err)
{
	if (open_lowers(l, err) < 0)
		return -1;
	if (l->plan->spec->disk)
		l->upper_fd = disk_mount(l->plan, err);
	else
		/* by path: fsfd may be from before this process had a mount namespace of its own */
		l->upper_fd = mount_clone(AT_FDCWD, l->plan->fs_path, err);
	if (l->upper_fd < 0 || open_run(l, err) < 0)
		return -1;
	return open_shares(l, err);
}

static int map_layers(struct launch *l, pid_t pid, struct den_err *err)
{
	char path[64];
	auto_fd ns = -1;
	int i = 0;

	snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)pid);
	ns = open(path, O_RDONLY | O_CLOEXEC);
	if (ns < 0)
		return den_fail_sys(err, errno, "open user namespace");
	for (size_t t = 0; t < l->plan->n_trees; t++)
		for (const char *const *p = l->plan->trees[t].lowers; *p; p++)
			if (idmap_mount(l->lower_fd[i++], ns, *p, err) < 0)
				return -1;
	for (size_t m = 0; m < l->plan->spec->n_mounts; m++)
		if (volume_name(l->plan->spec->mounts[m].host) && idmap_mount(l->mount_fd[m], ns, "volume", err) < 0)
			return -1;
	return idmap_mount(l->upper_fd, ns, "the state directory", err);
}

/* den-init on a mount of its own that nobody can write through, not even by way of /proc/1/exe. */
static int open_init(struct launch *l, struct den_err *err)
{
	struct mount_attr ro = { .attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID };

	if (!l->root) {
		l->init_fd = open(l->plan->init_path, O_PATH | O_CLOEXEC);
		return l->init_fd < 0 ? den_fail_sys(err, errno, "open '%s'", l->plan->init_path) : 0;
	}
	l->init_fd = mount_clone(AT_FDCWD, l->plan->init_path, err);
	if (l->init_fd < 0)
		return -1;
	if (syscall(SYS_mount_setattr, l->init_fd, "", AT_EMPTY_PATH, &ro, sizeof(ro)) < 0)
		return den_fail_sys(err, errno, "protect init");
	return 0;
}

/* ---- clone ---- */

static pid_t clone_box(struct launch *l, int cgroup_fd, int *pidfd)
{
	struct clone_args a = {
		.flags = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS |
			CLONE_PIDFD,
		.pidfd = (uint64_t)(uintptr_t)pidfd,
		.exit_signal = SIGCHLD,
	};

	if (l->kind->same_pids)
		a.flags &= ~(uint64_t)CLONE_NEWPID;
	if (!l->plan->host_net)
		a.flags |= CLONE_NEWNET;
	if (cgroup_fd >= 0) {
		a.flags |= CLONE_INTO_CGROUP;
		a.cgroup = (uint64_t)cgroup_fd;
	}
	return (pid_t)syscall(SYS_clone3, &a, sizeof(a));
}

/* Success is the end of the pipe at exec; anything else is the child's report. */
static int await_exec(const struct launch_kind *kind, int fd, struct den_err *err)
{
	struct launch_msg m;
	ssize_t n;

	do
		n = read(fd, &m, sizeof(m));
	while (n < 0 && errno == EINTR);
	if (n == 0)
		return 0;
	if (n != (ssize_t)sizeof(m))
		return den_fail(err, DEN_INTERNAL, 0, "the box died while it was being built");
	m.err.msg[sizeof(m.err.msg) - 1] = '\0';
	*err = m.err;
	return den_wrap(err, "build box (%s)",
		m.step >= 0 && m.step < kind->n_stages ? kind->stages[m.step].name : "start");
}

static int clone_failed(struct den_err *err)
{
	if (errno == EPERM || errno == ENOSPC || errno == EACCES)
		return den_fail(err, DEN_UNSUPPORTED, errno,
			"user namespaces are not available here; 'den doctor' says what to do");
	return den_fail_sys(err, errno, "make namespaces");
}

static int run_launch(struct launch *l, struct cgroup *cg, int go[2], int status[2], struct wall_box *ret,
	struct den_err *err)
{
	auto_fd pidfd = -1;
	pid_t pid = clone_box(l, cg ? cgroup_into_fd(cg) : -1, &pidfd);

	if (pid == 0) {
		close(go[1]);
		close(status[0]);
		launch_child(l);
	}
	if (pid < 0)
		return clone_failed(err);
	fd_close(&l->err_fd);
	/* Where to find the process again is written down while it builds its file system; it executes
	 * init only after that. */
	if (idmap_write(pid, l->plan, err) < 0 ||
		(l->plan->ids == IDS_MAPPED && map_layers(l, pid, err) < 0) ||
		fd_write_all(go[1], "g", 1, err) < 0 || l->plan->cloned(pid, l->plan->user, err) < 0 ||
		fd_write_all(go[1], "x", 1, err) < 0 || await_exec(l->kind, status[0], err) < 0) {
		kill(pid, SIGKILL);
		while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
			;
		return -1;
	}
	ret->pid = pid;
	ret->pidfd = fd_take(&pidfd);
	return 0;
}

int container_launch(const struct plan *p, struct cgroup *cg, struct wall_box *ret, struct den_err *err)
{
	return launch_box(p, cg, &launch_container, NULL, ret, err);
}

int launch_box(const struct plan *p, struct cgroup *cg, const struct launch_kind *kind, void *own,
	struct wall_box *ret, struct den_err *err)
{
	struct launch *l = mem_alloc(sizeof(*l));
	int go[2] = { -1, -1 }, status[2] = { -1, -1 };
	bool ok;

	launch_init(l, p);
	l->kind = kind;
	l->own = own;
	ok = pipe2(go, O_CLOEXEC) == 0 && pipe2(status, O_CLOEXEC) == 0;
	if (!ok)
		den_fail_sys(err, errno, "pipe");
	l->go_fd = go[0];
	l->err_fd = status[1];
	snprintf(l->upper_path, sizeof(l->upper_path), "%s", p->fs_path);
	if (p->owners && p->ids == IDS_SHIFTED)
		l->owners_fd = open(p->owners, O_RDONLY | O_CLOEXEC);
	ok = ok && open_init(l, err) == 0 && (!l->root || open_as_root(l, err) == 0);
	ok = ok && (!kind->gather || kind->gather(l, err) == 0);
	if (ok && cg)
		ok = cgroup_join_fds(cg, cgroup_into_fd(cg) >= 0, l->cg_fds, &l->n_cg_fds, err) == 0;
	if (ok && cg && p->spec->memory)
		l->memuse_fd = cgroup_memory_fd(cg);
	ok = ok && run_launch(l, cg, go, status, ret, err) == 0;
	fd_close(&go[1]);
	fd_close(&status[0]);
	launch_close(l);
	free(l);
	return ok ? 0 : -1;
}
