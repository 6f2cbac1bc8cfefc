/* The container wall: namespaces, cgroup, seccomp. */
#include "container.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "disk.h"
#include "fd.h"
#include "mem.h"
#include "memory.h"

static int container_probe(struct den_err *err)
{
	pid_t pid = (pid_t)syscall(SYS_clone,
		CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | SIGCHLD, NULL, NULL,
		NULL, NULL);

	if (pid == 0)
		_exit(0);
	if (pid < 0)
		return den_fail(err, DEN_UNSUPPORTED, errno,
			"namespaces cannot be made (see user.max_user_namespaces, "
			"kernel.unprivileged_userns_clone, "
			"kernel.apparmor_restrict_unprivileged_userns)");
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	return 0;
}

/* Limits that need a cgroup are refused where there is none: never silently dropped. */
int container_need_cgroup(const struct box_spec *s, const struct den_err *why, struct den_err *err)
{
	const char *what = s->memory ? "--memory" : s->cpu_milli ? "--cpus" : NULL;

	if (!what)
		return 0;
	*err = *why;
	den_wrap(err, "%s cannot be enforced here", what);
	err->code = DEN_UNSUPPORTED;
	return -1;
}

int container_limits(struct cgroup *cg, const struct box_spec *s, struct den_err *err)
{
	struct box_spec less = *s;

	if (cgroup_make(cg, s, err) == 0)
		return 0;
	if (err->code != DEN_UNSUPPORTED || !(s->flags & BOX_PIDS_DEFAULT))
		return -1;
	less.pids = 0; /* our own choice, not the user's: no reason to refuse him a box */
	return cgroup_make(cg, &less, err);
}

int container_cgroup(const struct plan *p, struct wall_box *ret, struct cgroup **ret_cg, struct den_err *err)
{
	struct cgroup *cg = NULL;
	struct den_err why = { 0 };

	if (cgroup_open(p->id, p->tag, &cg, &why) < 0) {
		if (container_need_cgroup(p->spec, &why, err) < 0)
			return -1;
		ret->note = mem_strdup(why.msg);
	} else if (container_limits(cg, p->spec, err) < 0) {
		cgroup_free(cg);
		return -1;
	}
	*ret_cg = cg;
	return 0;
}

static int container_start(const struct plan *p, struct wall_box *ret, struct den_err *err)
{
	struct cgroup *cg = NULL;

	*ret = (struct wall_box){ .pidfd = -1, .mntns = -1, .door = -1 };
	if (p->spec->disk && geteuid() != 0)
		return den_fail(err, DEN_UNSUPPORTED, 0,
			"--disk cannot be enforced for an ordinary user; run den as root, or leave "
			"it out");
	if (container_cgroup(p, ret, &cg, err) < 0)
		return -1;
	if ((p->spec->disk && disk_make(p, err) < 0) || container_launch(p, cg, ret, err) < 0) {
		if (cg) {
			cgroup_remove(cg);
			cgroup_free(cg);
		}
		free(ret->note);
		return -1;
	}
	ret->cg = cg;
	return 0;
}

int container_adopt(
	const struct plan *p, pid_t pid, int pidfd, struct wall_box *ret, struct den_err *err)
{
	struct den_err why;

	(void)err;
	*ret = (struct wall_box){ .pid = pid, .pidfd = pidfd, .mntns = -1, .door = -1 };
	if (cgroup_open(p->id, p->tag, &ret->cg, &why) < 0)
		ret->note = mem_strdup(why.msg);
	return 0;
}

static int no_cgroup(const struct wall_box *b, struct den_err *err)
{
	return den_fail(err, DEN_UNSUPPORTED, 0, "this needs a cgroup: %s",
		b->note ? b->note : "none here");
}

int container_settle(struct wall_box *b, int fsfd, enum wall_settle how, struct den_err *err)
{
	(void)b;
	return disk_settle(fsfd, how, err);
}

int container_freeze(struct wall_box *b, bool on, struct den_err *err)
{
	return b->cg ? cgroup_freeze(b->cg, on, err) : no_cgroup(b, err);
}

static int container_exec_open(struct wall_box *b, uint32_t exec, int *ret_fd, struct den_err *err)
{
	return b->cg ? cgroup_exec_make(b->cg, exec, ret_fd, err) : no_cgroup(b, err);
}

static int container_exec_signal(struct wall_box *b, uint32_t exec, int sig, struct den_err *err)
{
	return b->cg ? cgroup_exec_signal(b->cg, exec, sig, NULL, err) : no_cgroup(b, err);
}

static int container_exec_cpu(
	struct wall_box *b, uint32_t exec, uint64_t *usec, struct den_err *err)
{
	return b->cg ? cgroup_exec_cpu_usec(b->cg, exec, usec, err) : no_cgroup(b, err);
}

static void container_exec_close(struct wall_box *b, uint32_t exec)
{
	if (b->cg)
		cgroup_exec_remove(b->cg, exec);
}

int container_stats(struct wall_box *b, struct box_stats *ret, struct den_err *err)
{
	(void)err;
	if (b->cg)
		cgroup_stats(b->cg, ret);
	return 0;
}

static int container_pids(struct wall_box *b, pid_t **ret, size_t *n, struct den_err *err)
{
	return b->cg ? cgroup_pids(b->cg, ret, n, err) : no_cgroup(b, err);
}

uint64_t container_oom_kills(struct wall_box *b)
{
	return b->cg ? cgroup_oom_kills(b->cg) : 0;
}

static uint64_t container_pids_refused(struct wall_box *b)
{
	return b->cg ? cgroup_pids_refused(b->cg) : 0;
}

/* Process 1 of a pid namespace takes all others with it; the kernel does not let it go before they
 * are gone. A frozen box has to be thawed for that. */
void container_stop(struct wall_box *b, bool later)
{
	struct pollfd p = { .fd = b->pidfd, .events = POLLIN };
	struct den_err err;

	if (b->pidfd < 0) {
		if (b->cg) /* of a load that was cut short: there is no init, but there may be others */
			(void)cgroup_kill_all(b->cg, &err);
		return;
	}
	if (later) {
		char path[64];

		/* A mount namespace lives as long as somebody holds it, and goes with its last
		 * process else, which is not reaped before all is unmounted. */
		snprintf(path, sizeof(path), "/proc/%d/ns/mnt", (int)b->pid);
		b->mntns = open(path, O_RDONLY | O_CLOEXEC);
	}
	syscall(SYS_pidfd_send_signal, b->pidfd, SIGKILL, NULL, 0);
	if (poll(&p, 1, 0) == 0 && b->cg) {
		/* with init all others die, but not at once: who is held must not run on for a moment when it is let go */
		cgroup_kill(b->cg);
		(void)cgroup_freeze(b->cg, false, &err);
	}
	for (int i = 0; i < 100 && poll(&p, 1, 100) == 0; i++)
		if (i == 10 && b->cg)
			cgroup_kill_all(b->cg, &err);
	while (waitpid(b->pid, NULL, 0) < 0 && errno == EINTR)
		; /* ours to reap, or ECHILD when it was adopted */
	fd_close(&b->pidfd);
}

void container_release(struct wall_box *b)
{
	fd_close(&b->mntns);
}

void container_clean(struct wall_box *b)
{
	b->left = b->cg && !cgroup_remove(b->cg);
	cgroup_free(b->cg);
	b->cg = NULL;
	free(b->note);
	b->note = NULL;
}

int container_sweep(const char *tag, bool (*alive)(const struct box_id *, void *),
	void *user, void (*removed)(const char *what, void *user), struct den_err *err)
{
	return cgroup_sweep(tag, alive, removed, user, err);
}

const char *wall_limits(struct buf *out)
{
	static const char *const level[] = { [CGROUP_OK] = "ok", [CGROUP_LIMITED] = "limited",
		[CGROUP_MISSING] = "missing" };

	return level[cgroup_describe(out)];
}

const struct wall_ops wall_container = {
	.name = "container",
	.probe = container_probe,
	.start = container_start,
	.adopt = container_adopt,
	.freeze = container_freeze,
	.settle = container_settle,
	.exec_open = container_exec_open,
	.exec_signal = container_exec_signal,
	.exec_cpu = container_exec_cpu,
	.exec_close = container_exec_close,
	.stats = container_stats,
	.pids = container_pids,
	.oom_kills = container_oom_kills,
	.pids_refused = container_pids_refused,
	.memory = container_memory,
	.runtime = container_runtime,
	.save = container_save,
	.unsaved = container_unsaved,
	.load = container_load,
	.outside = container_outside,
	.stop = container_stop,
	.release = container_release,
	.clean = container_clean,
	.sweep = container_sweep,
};
