/* The gVisor wall: a kernel of its own (runsc's sentry) over the same file system, gate, limits and init. */
#include "gvisor.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cgroup_ops.h"
#include "container.h"
#include "disk.h"
#include "fd.h"
#include "mem.h"

static int gvisor_probe(struct den_err *err)
{
	auto_free char *runsc = gvisor_runsc(err);

	return runsc ? wall_container.probe(err) : -1;
}

/* The group holds all that the box costs the host: so its count of tasks is not the box's, which its own
 * kernel counts (init/guest.c). */
static int make_limits(struct cgroup *cg, const struct box_spec *s, struct den_err *err)
{
	struct box_spec host = *s;

	host.pids = GVISOR_TASKS;
	host.flags |= BOX_PIDS_DEFAULT;
	return container_limits(cg, &host, err);
}

/* Mount points that its kernel fills itself: on the other wall the host's kernel refuses most of them. */
static int check_mounts(const struct box_spec *s, struct den_err *err)
{
	static const char *const taken[] = { "/proc", "/sys", "/dev", "/run/den" };

	for (size_t i = 0; i < s->n_mounts; i++) {
		const char *at = s->mounts[i].box;
		bool bad = !strcmp(at, "/") || !strcmp(at, "/run");

		for (size_t j = 0; j < ARRAY_SIZE(taken) && !bad; j++) {
			size_t n = strlen(taken[j]);

			bad = !strncmp(at, taken[j], n) && (!at[n] || at[n] == '/') && strncmp(at, "/dev/shm/", 9);
		}
		if (bad)
			return den_fail(err, DEN_INVALID, 0, "nothing can be mounted at '%.100s'", at);
	}
	return 0;
}

static int bring_up(const struct plan *p, int images, struct wall_box *ret, struct den_err *err)
{
	struct cgroup *cg = NULL;
	struct den_err why = { 0 };

	*ret = (struct wall_box){ .pidfd = -1, .mntns = -1, .door = -1 };
	if (check_mounts(p->spec, err) < 0)
		return -1;
	if (p->spec->disk && geteuid() != 0)
		return den_fail(err, DEN_UNSUPPORTED, 0,
			"--disk cannot be enforced for an ordinary user; run den as root, or leave it out");
	if (cgroup_open(p->id, p->tag, &cg, &why) < 0) {
		if (container_need_cgroup(p->spec, &why, err) < 0)
			return -1;
		ret->note = mem_strdup(why.msg);
	} else if (make_limits(cg, p->spec, err) < 0) {
		cgroup_free(cg);
		return -1;
	}
	if ((p->spec->disk && disk_make(p, err) < 0) || gvisor_launch(p, cg, images, ret, err) < 0) {
		if (cg) {
			cgroup_remove(cg);
			cgroup_free(cg);
		}
		free(ret->note);
		ret->note = NULL;
		return -1;
	}
	ret->cg = cg;
	return 0;
}

static int gvisor_start(const struct plan *p, struct wall_box *ret, struct den_err *err)
{
	return bring_up(p, -1, ret, err);
}

/* The host's groups know tasks of the sentry; init signals trees by itself. */
static int no_groups(struct den_err *err)
{
	return den_fail(err, DEN_UNSUPPORTED, 0, "behind the gvisor wall the host sees no processes of the box");
}

static int gvisor_exec_open(struct wall_box *b, uint32_t exec, int *ret_fd, struct den_err *err)
{
	(void)b;
	(void)exec;
	(void)ret_fd;
	return no_groups(err);
}

static int gvisor_exec_signal(struct wall_box *b, uint32_t exec, int sig, struct den_err *err)
{
	(void)b;
	(void)exec;
	(void)sig;
	return no_groups(err);
}

static int gvisor_exec_cpu(struct wall_box *b, uint32_t exec, uint64_t *usec, struct den_err *err)
{
	(void)b;
	(void)exec;
	(void)usec;
	return no_groups(err);
}

static void gvisor_exec_close(struct wall_box *b, uint32_t exec)
{
	(void)b;
	(void)exec;
}

/* Tasks of the host are not the box's processes: of those only init knows. */
static int gvisor_stats(struct wall_box *b, struct box_stats *ret, struct den_err *err)
{
	int r = container_stats(b, ret, err);

	ret->has &= ~(uint64_t)(HAS_PIDS | HAS_PIDS_MAX);
	return r;
}

static int gvisor_pids(struct wall_box *b, pid_t **ret, size_t *n, struct den_err *err)
{
	(void)b;
	(void)ret;
	(void)n;
	return no_groups(err);
}

static uint64_t gvisor_pids_refused(struct wall_box *b)
{
	(void)b;
	return 0;
}

static int gvisor_load(const struct plan *p, int dirfd, struct wall_box *ret, struct den_err *err)
{
	auto_fd images = -1;

	if (gvisor_memory(err) < 0)
		return -1;
	images = gvisor_open_images(p, dirfd, err);
	return images < 0 ? -1 : bring_up(p, images, ret, err);
}

/* Its processes are gone with the porter; on a busy host the kernel takes its time to say so of the last. */
static void gvisor_clean(struct wall_box *b)
{
	struct den_err ignored;

	if (b->cg)
		(void)cgroup_kill_all(b->cg, &ignored);
	container_clean(b);
}

static int gvisor_adopt(const struct plan *p, pid_t pid, int pidfd, struct wall_box *ret, struct den_err *err)
{
	char path[64], text[256] = "";
	auto_fd fd = -1;
	ssize_t n;

	if (container_adopt(p, pid, pidfd, ret, err) < 0)
		return -1;
	/* how it was started is in the porter's last argument */
	snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
	ret->host_net = n >= 5 && !memcmp(text + n - 5, "host", 5);
	ret->parked = pidfd >= 0 && gvisor_is_parked(ret);
	return 0;
}

/* A box that a keeper saved and then did not end is held by its own kernel as well. */
static int gvisor_freeze(struct wall_box *b, bool on, struct den_err *err)
{
	if (container_freeze(b, on, err) < 0)
		return -1;
	return on ? 0 : gvisor_hold(b, false, err);
}

const struct wall_ops wall_gvisor = {
	.name = "gvisor",
	.own_kernel = true,
	.pids_max = GVISOR_PIDS,
	.probe = gvisor_probe,
	.start = gvisor_start,
	.adopt = gvisor_adopt,
	.freeze = gvisor_freeze,
	.settle = container_settle,
	.exec_open = gvisor_exec_open,
	.exec_signal = gvisor_exec_signal,
	.exec_cpu = gvisor_exec_cpu,
	.exec_close = gvisor_exec_close,
	.stats = gvisor_stats,
	.pids = gvisor_pids,
	.oom_kills = container_oom_kills,
	.pids_refused = gvisor_pids_refused,
	.memory = gvisor_memory,
	.written = gvisor_written,
	.save = gvisor_save,
	.load = gvisor_load,
	.outside = gvisor_outside,
	.stop = container_stop,
	.release = container_release,
	.clean = gvisor_clean,
	.sweep = container_sweep,
};
