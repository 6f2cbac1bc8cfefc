/*
 * cgroup v2: one group for the box, with the limits, and one below it for each exec.
 *
 * Controllers are never switched on below the box's group, so its processes may be in it and in
 * the groups of execs at once. The exec groups are threaded ones: the kernel lets a single-threaded
 * process enter such a group through cgroup.threads without the grace period that cgroup.procs
 * costs (0.03 instead of 10 ms). The price: cgroup.kill does not work on them, so the processes of
 * one exec are signalled one by one, and their cgroup.procs cannot be read. For the box as a whole
 * both work.
 *
 * Controllers are switched on when a limit file is found missing, not looked up before: on all
 * boxes but the first they are on already.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "cgroup_ops.h"
#include "clock.h"
#include "fd.h"
#include "mem.h"

#define CPU_PERIOD_USEC 100000
#define FREEZE_NS (5 * NS_PER_SEC)
#define SUBTREE "cgroup.subtree_control"

/* May we make groups in path and move processes between them? */
static bool delegated(int root, const char *path)
{
	static const char *const files[] = { ".", "cgroup.procs", SUBTREE };
	char file[4096 + 32];

	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		snprintf(file, sizeof(file), "%s/%s", path, files[i]);
		if (faccessat(root, file, W_OK, 0) < 0)
			return false;
	}
	return true;
}

/* The highest group above our own that is ours: a process may only be moved between groups whose
 * common ancestor is. Writes it to path, relative to root. */
static int delegated_base(int root, char *path, size_t cap, struct den_err *err)
{
	char text[8192], up[4096];
	char *p, *end;

	if (file_read_at(AT_FDCWD, "/proc/self/cgroup", text, sizeof(text), err) < 0)
		return -1;
	p = !strncmp(text, "0::/", 4) ? text : strstr(text, "\n0::/");
	if (!p)
		return den_fail(err, DEN_UNSUPPORTED, 0, "this process is in no cgroup v2 group");
	p = strstr(p, "0::/") + 4;
	end = strchrnul(p, '\n');
	if ((size_t)snprintf(path, cap, "./%.*s", (int)(end - p), p) >= cap)
		return den_fail(err, DEN_UNSUPPORTED, ENAMETOOLONG, "own cgroup");
	if (!delegated(root, path))
		return den_fail(err, DEN_UNSUPPORTED, 0,
			"the cgroup of this login is not delegated to you, so limits cannot be "
			"set; start den with: systemd-run --user --scope -p Delegate=yes den ...");
	for (;;) {
		snprintf(up, sizeof(up), "%s", path);
		p = strrchr(up, '/');
		if (!p)
			return 0;
		*p = '\0';
		if (!delegated(root, up))
			return 0;
		snprintf(path, cap, "%s", up);
	}
}

int cgroup_v2_attach(struct cgroup *cg, const char *root, struct den_err *err)
{
	auto_fd fd = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
	char path[4096];

	if (fd < 0)
		return den_fail(err, DEN_UNSUPPORTED, errno, "cgroup: open '%s'", root);
	if (faccessat(fd, ".", W_OK, 0) < 0) {
		int base;

		if (errno == EROFS)
			return den_fail(err, DEN_UNSUPPORTED, 0,
				"'%s' is mounted read-only, so limits cannot be set; in a "
				"container, ask for a writable cgroup",
				root);
		if (delegated_base(fd, path, sizeof(path), err) < 0)
			return -1;
		base = openat(fd, path, O_PATH | O_DIRECTORY | O_CLOEXEC);
		if (base < 0)
			return den_fail(err, DEN_UNSUPPORTED, errno, "cgroup: open '%s'", path);
		hier_add(cg, CTL_UNIFIED, base);
		return 0;
	}
	hier_add(cg, CTL_UNIFIED, fd_take(&fd));
	return 0;
}

static struct hier *v2_members(struct cgroup *cg)
{
	return hier_get(cg, CTL_UNIFIED);
}

static int v2_group(struct cgroup *cg)
{
	struct hier *h = v2_members(cg);

	return h ? hier_box(cg, h) : -1;
}

/* In base, and in den/ below it: a group has the controllers that all above it pass on. */
static int switch_on(const struct hier *h, enum cgroup_ctl ctl, struct den_err *err)
{
	const char *name = cgroup_ctl_str[ctl];
	struct den_err e;
	char text[16];

	snprintf(text, sizeof(text), "+%s", name);
	if (file_write_at(h->base, SUBTREE, text, &e) == 0 &&
		file_write_at(h->base, "den/" SUBTREE, text, &e) == 0) {
		/* For measuring, if the host has it on anyway; not switched on in base for that. */
		file_write_at(h->base, "den/" SUBTREE, "+io", NULL);
		return 0;
	}
	if (e.sys == EBUSY)
		return den_fail(err, DEN_UNSUPPORTED, 0,
			"cgroup controller '%s' cannot be switched on: the group that den may use "
			"has processes of its own. Move them into a group below it (in a "
			"container: before den starts), or leave the limit out",
			name);
	return den_fail(err, DEN_UNSUPPORTED, e.sys,
		"a %s limit needs the cgroup controller '%s', which this host does not pass on to "
		"den; delegate it (systemd: Delegate=yes), run den as root, or leave the limit out",
		name, name);
}

static int put_limit(const struct hier *h, enum cgroup_ctl ctl, const char *file, const char *text,
	struct den_err *err)
{
	struct den_err e;

	if (file_write_at(h->box, file, text, &e) == 0)
		return 0;
	if (e.sys == ENOENT && switch_on(h, ctl, err) < 0)
		return -1;
	if (e.sys != ENOENT || file_write_at(h->box, file, text, &e) < 0)
		return den_fail(err, e.sys == ENOENT ? DEN_UNSUPPORTED : e.code, 0, "cgroup: %s",
			e.msg);
	return 0;
}

static int v2_limits_make(struct cgroup *cg, const struct box_spec *spec, struct den_err *err)
{
	const struct hier *h = v2_members(cg);
	struct den_err swap;
	char text[64];

	if (spec->pids) {
		snprintf(text, sizeof(text), "%llu", (unsigned long long)spec->pids);
		if (put_limit(h, CTL_PIDS, "pids.max", text, err) < 0)
			return -1;
	}
	if (spec->memory) {
		snprintf(text, sizeof(text), "%llu", (unsigned long long)spec->memory);
		if (put_limit(h, CTL_MEMORY, "memory.max", text, err) < 0)
			return -1;
		/* A kernel without swap accounting has no such file. */
		if (file_write_at(h->box, "memory.swap.max", "0", &swap) < 0 && swap.sys != ENOENT)
			return den_fail(err, swap.code, 0, "cgroup: %s", swap.msg);
	} else if (faccessat(h->box, "memory.current", F_OK, 0) < 0) {
		/* For measuring alone; a host that cannot, cannot. */
		switch_on(h, CTL_MEMORY, NULL);
	}
	if (spec->cpu_milli) {
		snprintf(text, sizeof(text), "%llu %d",
			(unsigned long long)(spec->cpu_milli * (CPU_PERIOD_USEC / 1000)),
			CPU_PERIOD_USEC);
		if (put_limit(h, CTL_CPU, "cpu.max", text, err) < 0)
			return -1;
	}
	return 0;
}

static void io_stats(int group, struct box_stats *ret)
{
	auto_fd fd = openat(group, "io.stat", O_RDONLY | O_CLOEXEC);
	auto_free char *text = NULL;

	/* "8:0 rbytes=1 wbytes=2 ...", a line a device */
	if (fd < 0 || fd_read_all(fd, 1 << 20, &text, NULL, NULL) < 0)
		return;
	ret->io_read = ret->io_write = 0;
	for (const char *p = text; (p = strstr(p, "rbytes=")); p++)
		ret->io_read += strtoull(p + 7, NULL, 10);
	for (const char *p = text; (p = strstr(p, "wbytes=")); p++)
		ret->io_write += strtoull(p + 7, NULL, 10);
	ret->has |= HAS_IO_READ | HAS_IO_WRITE;
}

static void v2_stats(struct cgroup *cg, struct box_stats *ret)
{
	int g = v2_group(cg);
	uint64_t *has = &ret->has;

	if (g < 0)
		return;
	group_stat(g, "cpu.stat", "throttled_usec", HAS_THROTTLED, &ret->throttled_usec, has);
	group_stat(g, "memory.current", NULL, HAS_MEM, &ret->mem, has);
	group_stat(g, "memory.peak", NULL, HAS_MEM_PEAK, &ret->mem_peak, has);
	group_stat(g, "memory.max", NULL, HAS_MEM_LIMIT, &ret->mem_limit, has);
	group_stat(g, "memory.events", "oom_kill", HAS_OOM_KILLS, &ret->oom_kills, has);
	group_stat(g, "pids.current", NULL, HAS_PIDS, &ret->pids, has);
	group_stat(g, "pids.max", NULL, HAS_PIDS_MAX, &ret->pids_max, has);
	io_stats(g, ret);
}

static uint64_t v2_counter(struct cgroup *cg, const char *file, const char *key)
{
	int g = v2_group(cg);
	uint64_t n = 0;

	if (g >= 0)
		group_get(g, file, key, &n);
	return n;
}

static uint64_t v2_oom_kills(struct cgroup *cg)
{
	return v2_counter(cg, "memory.events", "oom_kill");
}

static uint64_t v2_pids_refused(struct cgroup *cg)
{
	return v2_counter(cg, "pids.events", "max");
}

const struct cgroup_limits cgroup_limits_v2 = {
	.make = v2_limits_make,
	.stats = v2_stats,
	.oom_kills = v2_oom_kills,
	.pids_refused = v2_pids_refused,
};

static int v2_core_make(struct cgroup *cg, struct den_err *err)
{
	return hier_make(cg, v2_members(cg), err);
}

static int v2_exec_open(int box, const char *name)
{
	char file[40];

	snprintf(file, sizeof(file), "%s/cgroup.type", name);
	/* Refused where ordinary groups with processes are below the box's: the slow way then. */
	if (file_write_at(box, file, "threaded", NULL) == 0)
		snprintf(file, sizeof(file), "%s/cgroup.threads", name);
	else
		snprintf(file, sizeof(file), "%s/cgroup.procs", name);
	return openat(box, file, O_WRONLY | O_CLOEXEC);
}

static int v2_kill(int group)
{
	return file_write_at(group, "cgroup.kill", "1", NULL);
}

static bool v2_empty(int group)
{
	uint64_t n;

	return group_get(group, "cgroup.events", "populated", &n) == 0 && n == 0;
}

static int v2_cpu_usec(int group, uint64_t *ret, struct den_err *err)
{
	if (group_get(group, "cpu.stat", "usage_usec", ret) < 0)
		return den_fail_sys(err, errno, "read cpu.stat");
	return 0;
}

/* The kernel reports a change of cgroup.events by POLLPRI, but at most every 10 ms, so we look
 * sooner ourselves.
 *
 * A group whose last process died when it was to be frozen calls itself frozen, and goes on to do so after it was let go
 * if one below it was not frozen at that moment. Nobody is there who could change that: nobody is there who is held. */
static bool frozen_wait(int group, bool on)
{
	auto_fd fd = openat(group, "cgroup.events", O_RDONLY | O_CLOEXEC);
	const char *want = on ? "frozen 1" : "frozen 0";
	struct backoff b;
	char text[256];

	backoff_start(&b, FREEZE_NS);
	do {
		ssize_t n = pread(fd, text, sizeof(text) - 1, 0);

		if (n < 0)
			return false;
		text[n] = '\0';
		if (strstr(text, want) || (!on && strstr(text, "populated 0")))
			return true;
	} while (backoff_wait(&b, fd));
	return false;
}

static int v2_hold(struct cgroup *cg, struct den_err *err)
{
	int g = v2_group(cg);

	return g < 0 ? den_fail_sys(err, errno, "the box has no cgroup") : file_write_at(g, "cgroup.freeze", "1", err);
}

static int v2_freeze(struct cgroup *cg, bool on, struct den_err *err)
{
	int g = v2_group(cg);

	if (g < 0)
		return den_fail_sys(err, errno, "the box has no cgroup");
	if (file_write_at(g, "cgroup.freeze", on ? "1" : "0", err) < 0)
		return -1;
	if (frozen_wait(g, on))
		return 0;
	file_write_at(g, "cgroup.freeze", "0", NULL);
	return den_fail(err, DEN_TIMEOUT, 0, "a process of the box could not be frozen within 5 s");
}

const struct cgroup_core cgroup_core_v2 = {
	.make = v2_core_make,
	.members = v2_members,
	.exec_open = v2_exec_open,
	.kill = v2_kill,
	.empty = v2_empty,
	.cpu_usec = v2_cpu_usec,
	.freeze = v2_freeze,
	.hold = v2_hold,
};
