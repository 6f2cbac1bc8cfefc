/*
 * The keeper's side of loading.
 *
 *   holder   a process that makes the box's namespaces and file system like any start does (the table below), and
 *            then waits: CRIU enters them, and asks for what needs a process that is there already
 *   CRIU     root of the box's user namespace, in the box's cgroup; makes the pid namespace and the processes
 *
 * Process 1 becomes a child of the keeper, as if it had been started. Until the last step nothing of the box has run.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cgroup.h"
#include "container.h"
#include "crew.h"
#include "criu.h"
#include "criu_fds.h"
#include "disk.h"
#include "fd.h"
#include "groups.h"
#include "idmap.h"
#include "images.h"
#include "launch.h"
#include "mem.h"
#include "memory.h"
#include "nl.h"
#include "pages.h"
#include "pb.h"
#include "status.h"
#include "tmpfs.h"

extern int umount2(const char *, int);
#define MNT_DETACH_ 2
#define LOADERS_MAX 32

struct load {
	const struct plan *plan;
	struct cgroup *cg;
	struct wall_box holder;
	int talk; /* with the holder */
	int images;
	pid_t criu;
	pid_t pid; /* process 1 */
	struct image_notes notes;
};

/* What its stages need. */
struct holding {
	int talk, tmpfs;
	bool routes;
};

/* What the holder is asked. */
struct ask {
	int what;
	pid_t pid;
};
enum { ASK_PROC = 1, ASK_DONE };

/* ---- in the holder ---- */

/* In a child that is in the new pid namespace: its /proc takes the place of the one that CRIU was started with. */
static int replace_proc(struct launch *l, struct den_err *err)
{
	if (make_proc(l, false, err) < 0)
		return -1;
	if (umount2("/proc", MNT_DETACH_) < 0)
		return den_fail_sys(err, errno, "unmount /proc");
	if (mount_attach(l->proc_fd, "/proc", err) < 0)
		return -1;
	return stage_mask(l, err);
}

static int holder_proc(struct launch *l, pid_t pid, struct den_err *err)
{
	auto_fd pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	int status = 0, back[2];
	struct den_err theirs;
	pid_t kid;

	if (pidfd < 0 || setns(pidfd, CLONE_NEWPID) < 0 || pipe2(back, O_CLOEXEC) < 0)
		return den_fail_sys(err, errno, "enter the new pid namespace");
	kid = fork();
	if (kid == 0) {
		if (replace_proc(l, &theirs) == 0)
			_exit(0);
		(void)!write(back[1], &theirs, sizeof(theirs));
		_exit(1);
	}
	close(back[1]);
	if (kid > 0 && read(back[0], &theirs, sizeof(theirs)) == (ssize_t)sizeof(theirs))
		*err = theirs;
	close(back[0]);
	if (kid < 0 || waitpid(kid, &status, 0) < 0)
		return den_fail_sys(err, errno, "fork");
	return status ? -1 : 0;
}

/* In the keeper. CRIU needs a /proc before there is the box's: this one is of the host's processes, and shows it none but
 * those of the box. */
static int gather(struct launch *l, struct den_err *err)
{
	return make_proc(l, true, err);
}

/* Sockets of the box had addresses that the gate will lay again; until then they must be there all the same. And what is
 * connected to somebody outside hears at once that nobody is there. */
static int stage_routes(struct launch *l, struct den_err *err)
{
	return ((struct holding *)l->own)->routes ? nl_all_local(err) : 0;
}

static int stage_tmpfs(struct launch *l, struct den_err *err)
{
	return tmpfs_unpack(((struct holding *)l->own)->tmpfs, err);
}

/* The keeper's descriptors are not for us: its lock must go with it, and so must its end of our socket. */
static void close_others(struct launch *l, int *talk)
{
	int *kept[] = { talk, &l->proc_file_fd[0], &l->proc_file_fd[1] };

	for (size_t i = 0; i < ARRAY_SIZE(kept); i++)
		if (*kept[i] >= 0)
			*kept[i] = fcntl(*kept[i], F_DUPFD_CLOEXEC, 16);
	for (size_t i = 0; i < ARRAY_SIZE(kept); i++)
		if (*kept[i] >= 0)
			*kept[i] = dup2(*kept[i], 3 + (int)i);
	fd_close_from(3 + (int)ARRAY_SIZE(kept));
}

/* Last: answers until it is told that all is done, or the keeper is gone. Does not return. */
static int stage_hold(struct launch *l, struct den_err *err)
{
	int talk = ((struct holding *)l->own)->talk;
	struct ask a;

	/* We are a copy of the keeper, and root of the box is about to read images that it must not trust: it could trace us
	 * else. The end of the report pipe is success. */
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		return den_fail_sys(err, errno, "prctl");
	close_others(l, &talk);
	while (recv(talk, &a, sizeof(a), 0) == (ssize_t)sizeof(a)) {
		struct den_err e = { 0 };

		if (a.what == ASK_PROC && holder_proc(l, a.pid, &e) < 0 && !e.msg[0])
			den_fail(&e, DEN_INTERNAL, 0, "/proc");
		if (a.what == ASK_DONE)
			break;
		if (send(talk, &e, sizeof(e), MSG_NOSIGNAL) < 0)
			break;
	}
	_exit(0);
}

static const struct launch_stage stages[] = {
	{ "wait", stage_wait },
	{ "ids", stage_ids },
	{ "cgroup", stage_cgroup },
	{ "session", stage_session },
	{ "hostname", stage_hostname },
	{ "loopback", stage_loopback },
	{ "layers", stage_layers },
	{ "prepare", stage_prepare },
	{ "pivot", stage_pivot },
	{ "system", stage_system },
	{ "shares", stage_shares },
	{ "trust", stage_trust },
	{ "owners", stage_owners },
	{ "routes", stage_routes },
	{ "tmpfs", stage_tmpfs },	/* after the last mount */
	{ "limits", stage_limits },
	{ "recorded", stage_wait },
	{ "hold", stage_hold },
};	/* mask: when there is the right /proc. caps, seccomp: they are in the images, each process has its own */

static const struct launch_kind launch_load = { stages, ARRAY_SIZE(stages), gather, .same_pids = true };

/* ---- in the keeper ---- */

static int ask(struct load *d, int what, pid_t pid, struct den_err *err)
{
	struct ask a = { what, pid };
	struct den_err e;

	if (send(d->talk, &a, sizeof(a), MSG_NOSIGNAL) < 0)
		return den_fail_sys(err, errno, "the process that holds the namespaces");
	if (what == ASK_DONE)
		return 0;
	if (recv(d->talk, &e, sizeof(e), 0) != (ssize_t)sizeof(e))
		return den_fail(err, DEN_INTERNAL, 0, "the process that holds the namespaces died");
	if (!e.code)
		return 0;
	e.msg[sizeof(e.msg) - 1] = '\0';
	*err = e;
	return -1;
}

static int restore_groups(void *user, size_t part, int who)
{
	struct load *d = user;
	struct den_err e = { 0 };

	(void)part;
	(void)who;
	return groups_restore(d->cg, buf_str(&d->notes.groups), &e) == 0 ? 0 : e.sys ? e.sys : EIO;
}

/* Process 1 is what CRIU says that it is, if it is our child: then its number is not used again before we reap it. */
static int first_process(struct load *d, pid_t pid, struct den_err *err)
{
	auto_fd fd = pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
	siginfo_t si;
	struct status st;

	if (d->pid || fd < 0 || waitid(P_PIDFD, (id_t)fd, &si, WEXITED | WNOHANG | WNOWAIT) < 0 || status_of(pid, &st) < 0 ||
		!st.nested || st.inner != 1)
		return den_fail(err, DEN_DENIED, 0, "CRIU names %d as process 1, which it is not", (int)pid);
	d->pid = pid;
	return 0;
}

/* All processes are there, their mappings are as they will be, and what fails still ends all of it. */
static int load_rest(struct load *d, struct den_err *err)
{
	struct crew groups;
	int r = crew_start(&groups, 1, 1, false, restore_groups, d, err); /* the kernel lets it wait: meanwhile */

	if (r == 0)
		r = pages_load(d->cg, d->holder.pidfd, d->images, d->notes.pages, err);
	return crew_wait(&groups, "put processes into the groups of their execs", r == 0 ? err : NULL) < 0 ? -1 : r;
}

static int load_step(const char *step, pid_t pid, void *user, struct den_err *err)
{
	struct load *d = user;

	if (!strcmp(step, "setup-namespaces")) {
		return first_process(d, pid, err) < 0 ? -1 : ask(d, ASK_PROC, pid, err);
	}
	if (!strcmp(step, "post-restore"))
		return load_rest(d, err);
	if (strcmp(step, "pre-resume"))
		return 0;
	if (cgroup_limit(d->cg, d->plan->spec, err) < 0 &&
		(err->code != DEN_UNSUPPORTED || !(d->plan->spec->flags & BOX_PIDS_DEFAULT)))
		return -1;
	if (walls_check(d->cg, d->criu, d->holder.pid, d->holder.pid, err) < 0)
		return -1;
	return d->plan->cloned(d->pid, d->plan->user, err);
}

/* A mount can be taken along only from our own mount namespace, and the descriptor may be from before we had one: then
 * by its path, if that is the same place. */
static int clone_dir(int dirfd, struct den_err *err)
{
	int fd = mount_clone(dirfd, "", err);
	char link[64], path[4096];
	struct stat a, b;
	ssize_t n;

	if (fd >= 0)
		return fd;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", dirfd);
	n = readlink(link, path, sizeof(path) - 1);
	if (n <= 0)
		return -1;
	path[n] = '\0';
	fd = mount_clone(AT_FDCWD, path, err);
	if (fd < 0)
		return -1;
	if (fstat(fd, &a) < 0 || fstat(dirfd, &b) < 0 || a.st_dev != b.st_dev || a.st_ino != b.st_ino) {
		close(fd);
		return den_fail(err, DEN_INTERNAL, 0, "the images are not at '%.150s'", path);
	}
	return fd;
}

/* Nobody can write through it; root of the box owns what is in it. */
static int open_images(const struct plan *p, int dirfd, struct den_err *err)
{
	struct mount_attr ro = { .attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC };
	auto_fd ns = -1, fd = clone_dir(dirfd, err);
	struct stat st;

	if (fd < 0)
		return -1;
	if (fstat(fd, &st) < 0 || syscall(SYS_mount_setattr, fd, "", AT_EMPTY_PATH, &ro, sizeof(ro)) < 0)
		return den_fail_sys(err, errno, "images");
	if (idmap_owner_ns(st.st_uid, st.st_gid, p->id_base, &ns, err) < 0 || idmap_mount(fd, ns, "the images", err) < 0)
		return -1;
	return fd_take(&fd);
}

/* The program of process 1 that was saved: the same file, since its text is not in the images. */
static int open_program(const struct load *d, struct den_err *err)
{
	struct mount_attr ro = { .attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID };
	const char *slash = strrchr(d->plan->init_path, '/');
	char path[4096];
	auto_fd mnt = -1;
	int fd;

	snprintf(path, sizeof(path), "%.*s/%s", slash ? (int)(slash - d->plan->init_path) : 0, d->plan->init_path,
		d->notes.init_file);
	mnt = mount_clone(AT_FDCWD, path, err);
	if (mnt < 0)
		return den_wrap(err, "the process 1 that was saved");
	if (syscall(SYS_mount_setattr, mnt, "", AT_EMPTY_PATH, &ro, sizeof(ro)) < 0)
		return den_fail_sys(err, errno, "protect init");
	snprintf(path, sizeof(path), "/proc/self/fd/%d", mnt);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	return fd < 0 ? den_fail_sys(err, errno, "open init") : fd;
}

static void load_options(struct buf *b, const struct load *d)
{
	auto_buf inherit = { 0 };

	pb_put_str(&inherit, 1, d->notes.init_key);
	pb_put_u64(&inherit, 2, CRIU_FD_INIT);
	criu_options(b);
	pb_put_u64(b, CRIU_OPT_SIBLING, 1);
	pb_put_bytes(b, CRIU_OPT_INHERIT, inherit.p, inherit.len);
}

static int run_criu(struct load *d, int dirfd, struct den_err *err)
{
	auto_fd images = open_images(d->plan, dirfd, err), init = -1, mounts = -1, kdat = criu_kdat(d->plan, true, err);
	auto_buf opts = { 0 }, answer = { 0 };
	int groups[CGROUP_MAX_FDS], n = 0, r;
	struct criu_start how = { .box = d->holder.pidfd, .inside = true, .group = -1, .watches = -1, .hide = -1, .images = images, .kdat = kdat,
		.enter = CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP, .groups = groups };
	struct criu c = { 0 };
	cpu_set_t cpus;
	char path[48];

	snprintf(path, sizeof(path), "/proc/%d/ns/mnt", (int)d->holder.pid);
	how.mounts = mounts = open(path, O_RDONLY | O_CLOEXEC);
	if (mounts < 0)
		return den_fail_sys(err, errno, "the box's mount namespace");
	if (images < 0 || kdat < 0 || (init = open_program(d, err)) < 0)
		return -1;
	how.init = init;
	/* nproc counts what a process may run on, and CRIU does not carry that: the holder has it from its stages */
	if (sched_getaffinity(d->holder.pid, sizeof(cpus), &cpus) == 0)
		how.cpus = &cpus;
	how.group = cgroup_into_fd(d->cg);
	if (cgroup_join_fds(d->cg, how.group >= 0, groups, &n, err) < 0)
		return -1;
	how.n_groups = n;
	load_options(&opts, d);
	r = criu_start(&how, &c, err);
	for (int i = 0; i < n; i++)
		close(groups[i]);
	d->criu = c.pid;
	if (r == 0)
		r = criu_call(&c, CRIU_RESTORE, &opts, load_step, d, &answer, err);
	criu_end(&c);
	return r;
}

static int not_yet(pid_t pid, void *user, struct den_err *err)
{
	(void)pid;
	(void)user;
	(void)err;
	return 0;
}

static int start_holder(struct load *d, int dirfd, int theirs, struct den_err *err)
{
	auto_fd tmpfs = openat(dirfd, "den-tmpfs", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	struct holding h = { theirs, tmpfs, d->notes.routes };
	struct plan p = *d->plan;

	if (tmpfs < 0)
		return den_fail_sys(err, errno, "images");
	p.cloned = not_yet;
	return launch_box(&p, d->cg, &launch_load, &h, &d->holder, err);
}

static void end_holder(struct load *d, bool well)
{
	struct den_err e;

	if (d->holder.pid <= 0)
		return;
	if (!well || ask(d, ASK_DONE, 0, &e) < 0)
		kill(d->holder.pid, SIGKILL);
	while (waitpid(d->holder.pid, NULL, 0) < 0 && errno == EINTR)
		;
	fd_close(&d->holder.pidfd);
}

static int load_all(struct load *d, int dirfd, struct wall_box *ret, struct den_err *err)
{
	int pair[2], r;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return den_fail_sys(err, errno, "socketpair");
	d->talk = pair[0];
	r = start_holder(d, dirfd, pair[1], err);
	close(pair[1]);
	if (r == 0)
		r = run_criu(d, dirfd, err);
	if (r == 0) {
		ret->pidfd = (int)syscall(SYS_pidfd_open, d->pid, 0);
		ret->pid = d->pid;
		if (ret->pidfd < 0)
			r = den_fail_sys(err, errno, "process 1");
	}
	end_holder(d, r == 0);
	fd_close(&d->talk);
	if (r == 0 && walls_strays(d->cg, d->pid, err) < 0) {
		fd_close(&ret->pidfd);
		r = -1;
	}
	if (r < 0) {
		(void)cgroup_kill_all(d->cg, NULL);
		if (d->pid > 0)
			while (waitpid(d->pid, NULL, 0) < 0 && errno == EINTR)
				;
	}
	return r;
}

/* What a keeper that died while it loaded this box has left: it never ran, and nobody knows it. */
static void take_apart(const struct plan *p)
{
	struct cgroup *cg;
	struct den_err e;

	if (cgroup_open(p->id, p->tag, &cg, &e) < 0)
		return;
	(void)cgroup_kill_all(cg, &e);
	cgroup_free(cg);
}

static int load_box(struct load *d, int dirfd, struct wall_box *ret, struct den_err *err)
{
	struct box_spec roomy = *d->plan->spec;
	struct plan p = *d->plan;

	take_apart(d->plan);
	if (roomy.pids) /* for those who load: a box may have as many processes as it is allowed */
		roomy.pids += LOADERS_MAX;
	p.spec = &roomy;
	if (container_memory(err) < 0 || images_notes_read(dirfd, &d->notes, err) < 0 ||
		container_cgroup(&p, ret, &d->cg, err) < 0)
		return -1;
	if (!d->cg)
		return den_fail(err, DEN_UNSUPPORTED, 0, "loading programs needs a cgroup: %s", ret->note);
	if (d->plan->spec->disk && disk_make(d->plan, err) < 0)
		return -1;
	return load_all(d, dirfd, ret, err);
}

int container_load(const struct plan *p, int dirfd, struct wall_box *ret, struct den_err *err)
{
	struct load d = { .plan = p, .talk = -1, .images = dirfd, .holder.pidfd = -1 };
	int r;

	*ret = (struct wall_box){ .pidfd = -1, .mntns = -1, .door = -1 };
	r = load_box(&d, dirfd, ret, err);
	buf_free(&d.notes.groups);
	if (r == 0) {
		ret->cg = d.cg;
		return 0;
	}
	if (d.cg)
		cgroup_remove(d.cg);
	cgroup_free(d.cg);
	free(ret->note);
	ret->note = NULL;
	return den_wrap(err, "load");
}
