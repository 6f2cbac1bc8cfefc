/*
 * cgroup v1: a hierarchy for each controller, each entered on its own.
 *
 * A group in one more hierarchy costs up to 0.15 ms over the life of a box (made, entered,
 * removed), so memory and cpu are left out when no limit asks for them. The hierarchy of the exec
 * groups is entered first: whoever is in any of our groups is in that one, so it alone is listed
 * and killed.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "cgroup_ops.h"
#include "clock.h"
#include "fd.h"
#include "mem.h"

#define CPU_USEC_PER_MILLI 100	     /* of the period that the kernel starts with, 100 ms */
#define MEMORY_NONE (UINT64_C(1) << 62) /* "no limit" is a number a little below 2^63 */

/* The group of a controller whose limit is asked for. */
static int limit_group(struct cgroup *cg, enum cgroup_ctl ctl, struct den_err *err)
{
	struct hier *h = hier_get(cg, ctl);

	if (!h)
		return den_fail(err, DEN_UNSUPPORTED, errno,
			"a %s limit needs the cgroup controller '%s', which this host does not "
			"offer; leave the limit out, or run den as root where it is mounted",
			cgroup_ctl_str[ctl], cgroup_ctl_str[ctl]);
	if (hier_make(cg, h, err) < 0)
		return -1;
	return h->box;
}

static int memory_make(struct cgroup *cg, uint64_t bytes, struct den_err *err)
{
	int group = limit_group(cg, CTL_MEMORY, err);
	struct den_err swap;

	if (group < 0 || group_put(group, "memory.limit_in_bytes", bytes, err) < 0)
		return -1;
	/* Memory and swap together: no swap for the box. Without accounting, as little as can. */
	if (group_put(group, "memory.memsw.limit_in_bytes", bytes, &swap) < 0) {
		if (swap.sys != ENOENT)
			return den_fail(err, swap.code, 0, "%s", swap.msg);
		return group_put(group, "memory.swappiness", 0, err);
	}
	return 0;
}

static int v1_limits_make(struct cgroup *cg, const struct box_spec *spec, struct den_err *err)
{
	int group;

	if (spec->pids) {
		group = limit_group(cg, CTL_PIDS, err);
		if (group < 0 || group_put(group, "pids.max", spec->pids, err) < 0)
			return -1;
	}
	if (spec->memory && memory_make(cg, spec->memory, err) < 0)
		return -1;
	if (spec->cpu_milli) {
		group = limit_group(cg, CTL_CPU, err);
		if (group < 0 || group_put(group, "cpu.cfs_quota_us",
					 spec->cpu_milli * CPU_USEC_PER_MILLI, err) < 0)
			return -1;
	}
	return 0;
}

/* The box's group in a controller's hierarchy if it has one there. */
static int find_group(struct cgroup *cg, enum cgroup_ctl ctl)
{
	struct hier *h = hier_get(cg, ctl);

	return h ? hier_box(cg, h) : -1;
}

static void v1_stats(struct cgroup *cg, struct box_stats *ret)
{
	int group = find_group(cg, CTL_MEMORY);
	uint64_t ns;

	if (group >= 0) {
		group_stat(group, "memory.usage_in_bytes", NULL, HAS_MEM, &ret->mem, &ret->has);
		group_stat(group, "memory.max_usage_in_bytes", NULL, HAS_MEM_PEAK, &ret->mem_peak,
			&ret->has);
		group_stat(group, "memory.limit_in_bytes", NULL, HAS_MEM_LIMIT, &ret->mem_limit,
			&ret->has);
		if (ret->mem_limit >= MEMORY_NONE)
			ret->mem_limit = 0;
		group_stat(group, "memory.oom_control", "oom_kill", HAS_OOM_KILLS, &ret->oom_kills,
			&ret->has);
	}
	group = find_group(cg, CTL_PIDS);
	if (group >= 0) {
		group_stat(group, "pids.current", NULL, HAS_PIDS, &ret->pids, &ret->has);
		group_stat(group, "pids.max", NULL, HAS_PIDS_MAX, &ret->pids_max, &ret->has);
	}
	group = find_group(cg, CTL_CPU);
	if (group >= 0 && group_get(group, "cpu.stat", "throttled_time", &ns) == 0) {
		ret->throttled_usec = ns / 1000;
		ret->has |= HAS_THROTTLED;
	}
}

static uint64_t counter(struct cgroup *cg, enum cgroup_ctl ctl, const char *file, const char *key)
{
	int group = find_group(cg, ctl);
	uint64_t n = 0;

	if (group >= 0)
		group_get(group, file, key, &n);
	return n;
}

static uint64_t v1_oom_kills(struct cgroup *cg)
{
	return counter(cg, CTL_MEMORY, "memory.oom_control", "oom_kill");
}

static uint64_t v1_pids_refused(struct cgroup *cg)
{
	return counter(cg, CTL_PIDS, "pids.events", "max");
}

const struct cgroup_limits cgroup_limits_v1 = {
	.make = v1_limits_make,
	.stats = v1_stats,
	.oom_kills = v1_oom_kills,
	.pids_refused = v1_pids_refused,
};

/* The first one there: cpuacct measures execs, the others only hold them together. */
static struct hier *v1_members(struct cgroup *cg)
{
	static const enum cgroup_ctl order[] = { CTL_CPUACCT, CTL_FREEZER, CTL_PIDS };

	for (size_t i = 0; i < ARRAY_SIZE(order); i++) {
		struct hier *h = hier_get(cg, order[i]);

		if (h)
			return h;
	}
	return NULL;
}

static int v1_core_make(struct cgroup *cg, struct den_err *err)
{
	struct hier *members = v1_members(cg), *freezer = hier_get(cg, CTL_FREEZER);

	if (hier_make(cg, members, err) < 0)
		return -1;
	/* At once, not when first paused: moving running processes there later could miss some. */
	return freezer && freezer != members ? hier_make(cg, freezer, err) : 0;
}

static int v1_exec_open(int box, const char *name)
{
	char file[32];

	snprintf(file, sizeof(file), "%s/tasks", name);
	return openat(box, file, O_WRONLY | O_CLOEXEC);
}

static int v1_kill(int group)
{
	(void)group;
	return -1;
}

static bool v1_empty(int group)
{
	auto_pidset s = { 0 };

	return group_pids(group, PIDS_BOX, &s) == 0 && s.n == 0;
}

static int v1_cpu_usec(int group, uint64_t *ret, struct den_err *err)
{
	uint64_t ns;

	if (group_get(group, "cpuacct.usage", NULL, &ns) < 0)
		return den_fail(err, DEN_UNSUPPORTED, errno,
			"CPU time is not measured on this host (no cgroup controller 'cpuacct')");
	*ret = ns / 1000;
	return 0;
}

#define FREEZE_NS (5 * NS_PER_SEC)

static int v1_hold(struct cgroup *cg, struct den_err *err)
{
	int group = find_group(cg, CTL_FREEZER);

	if (group < 0)
		return den_fail(err, DEN_UNSUPPORTED, errno, "the box has no freezer group");
	return file_write_at(group, "freezer.state", "FROZEN", err);
}

static int v1_freeze(struct cgroup *cg, bool on, struct den_err *err)
{
	int group = find_group(cg, CTL_FREEZER);
	const char *want = on ? "FROZEN" : "THAWED";
	struct backoff b;
	char state[16];

	if (group < 0)
		return den_fail(err, errno == ENOENT && hier_get(cg, CTL_FREEZER) ? DEN_NOT_FOUND :
					DEN_UNSUPPORTED, errno, "the box has no freezer group");
	backoff_start(&b, FREEZE_NS);
	for (;;) {
		/* Again each time: a process that was waiting for a vfork() child when the first
		 * request came is only reached by another. */
		if (file_write_at(group, "freezer.state", want, err) < 0 ||
			file_read_at(group, "freezer.state", state, sizeof(state), err) < 0)
			return -1;
		if (!strcmp(state, want))
			return 0;
		if (!backoff_wait(&b, -1))
			break;
	}
	file_write_at(group, "freezer.state", "THAWED", NULL);
	return den_fail(err, DEN_TIMEOUT, 0, "a process of the box could not be frozen within 5 s");
}

const struct cgroup_core cgroup_core_v1 = {
	.make = v1_core_make,
	.members = v1_members,
	.exec_open = v1_exec_open,
	.kill = v1_kill,
	.empty = v1_empty,
	.cpu_usec = v1_cpu_usec,
	.freeze = v1_freeze,
	.hold = v1_hold,
};
