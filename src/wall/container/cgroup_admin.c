/* What den gc and den doctor need: sweeping what a crash left, and telling what this host can. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "cgroup_ops.h"
#include "fd.h"
#include "mem.h"
#include "strv.h"

/* Adds the box ids of our tag among the entries of a directory. */
static void collect(int dirfd, const char *name, const char *prefix, char ***ids)
{
	int fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *de;

	if (!d) {
		fd_close(&fd);
		return;
	}
	while ((de = readdir(d))) {
		const char *id = de->d_name + strlen(prefix);
		bool known = false;

		if (de->d_type != DT_DIR || strncmp(de->d_name, prefix, strlen(prefix)) ||
			!box_id_looks(id))
			continue;
		for (char **i = *ids; i && *i; i++)
			known = known || !strcmp(*i, id);
		if (!known)
			strv_add(ids, id);
	}
	closedir(d);
}

/* Any id does to look around: nothing is made. */
static int open_any(const char *tag, struct cgroup **ret, struct den_err *err)
{
	struct box_id id;

	return box_id_make(&id, err) < 0 ? -1 : cgroup_open(&id, tag, ret, err);
}

static int list_ids(const char *tag, char ***ids, struct den_err *err)
{
	struct cgroup *cg;
	char nested[16], flat[16];

	if (open_any(tag, &cg, err) < 0)
		return -1;
	snprintf(nested, sizeof(nested), "%s.", tag);
	snprintf(flat, sizeof(flat), "den.%s.", tag);
	for (int c = 0; c < CTLS; c++)
		if (!cg->nested || c == CTL_UNIFIED)
			hier_get(cg, c);
	for (int i = 0; i < cg->n_hiers; i++)
		collect(cg->hiers[i].base, cg->nested ? "den" : ".", cg->nested ? nested : flat,
			ids);
	cgroup_free(cg);
	return 0;
}

int cgroup_sweep(const char *tag, bool (*alive)(const struct box_id *id, void *user),
	void (*removed)(const char *what, void *user), void *user, struct den_err *err)
{
	auto_strv ids = NULL;
	struct den_err e;
	int r = 0;

	if (list_ids(tag, &ids, &e) < 0)
		return e.code == DEN_UNSUPPORTED ? 0 : /* none can be made, so none was left */
			den_fail(err, e.code, 0, "%s", e.msg);
	for (char **i = ids; i && *i; i++) {
		struct cgroup *cg;
		struct box_id id;

		if (box_id_parse(*i, &id, err) < 0 || alive(&id, user))
			continue;
		if (cgroup_open(&id, tag, &cg, err) < 0)
			return -1;
		if (cgroup_kill_all(cg, err) < 0)
			r = den_wrap(err, "sweep cgroup '%s'", cg->name);
		else if (!cgroup_remove(cg))
			r = den_fail(err, DEN_CONFLICT, EBUSY, "sweep cgroup '%s'", cg->name);
		else if (removed)
			removed(cg->name, user);
		cgroup_free(cg); /* and on: one that cannot go must not keep the others */
	}
	return r;
}

/* Tries a limit for real, in a group that lives for the moment. */
static bool try_limit(const struct box_spec *spec, struct den_err *err)
{
	struct cgroup *cg;
	bool ok;

	if (open_any("00000000", &cg, err) < 0)
		return false;
	ok = cgroup_make(cg, spec, err) == 0;
	if (ok)
		cgroup_remove(cg);
	cgroup_free(cg);
	return ok;
}

enum cgroup_level cgroup_describe(struct buf *out)
{
	static const char *const kinds[] = {
		[CGROUP_V1] = "v1",
		[CGROUP_HYBRID] = "v1 with a v2 tree",
		[CGROUP_V2] = "v2",
	};
	static const struct {
		const char *name, *cost;
		struct box_spec spec;
	} limits[] = {
		{ "memory", "a box can use all memory of the host", { .memory = 64 << 20 } },
		{ "pids", "a fork bomb in a box reaches the host's limit", { .pids = 64 } },
		{ "cpu", "a box can use all processors", { .cpu_milli = 1000 } },
	};
	enum cgroup_level level = CGROUP_OK;
	struct cgroup *cg;
	struct den_err err;

	if (open_any("00000000", &cg, &err) < 0) {
		buf_addf(out,
			"%s. Cost: no memory, process or CPU limits, no pause, and daemons of an "
			"exec are found by parentage alone",
			err.msg);
		return CGROUP_MISSING;
	}
	buf_addf(out, "cgroup %s, as %s", kinds[cgroup_kind_of(cg)],
		geteuid() == 0 ? "root" : "an ordinary user with a delegated group");
	if (cgroup_kind_of(cg) == CGROUP_V1 && !hier_get(cg, CTL_FREEZER)) {
		buf_addstr(out, "; no controller 'freezer': boxes cannot be paused");
		level = CGROUP_LIMITED;
	}
	cgroup_free(cg);
	for (size_t i = 0; i < ARRAY_SIZE(limits); i++) {
		if (try_limit(&limits[i].spec, &err)) {
			buf_addf(out, "; %s limits work", limits[i].name);
			continue;
		}
		buf_addf(out, "; no %s limits, so %s: %s", limits[i].name, limits[i].cost, err.msg);
		level = CGROUP_LIMITED;
	}
	return level;
}
