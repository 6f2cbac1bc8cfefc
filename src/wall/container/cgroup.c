/* Finding what there is, groups as directories, and the interface of cgroup.h. See cgroup_ops.h. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "cgroup_ops.h"
#include "clock.h"
#include "fd.h"
#include "mem.h"

#define ROOT "/sys/fs/cgroup"
#define REMOVE_NS (10 * NS_PER_SEC) /* on a busy machine the dead need a while to leave */
#define KILL_NS (5 * NS_PER_SEC)
#define MAKE_TRIES 64 /* each needs another process to remove den/ in between */
#define DEPTH_MAX 16

const char *const cgroup_ctl_str[CTLS] = {
	[CTL_MEMORY] = "memory",
	[CTL_PIDS] = "pids",
	[CTL_CPU] = "cpu",
	[CTL_CPUACCT] = "cpuacct",
	[CTL_FREEZER] = "freezer",
	[CTL_UNIFIED] = "unified",
};

/* ---- what there is --------------------------------------------------------------------------- */

static bool is_fs(const char *path, long magic)
{
	struct statfs fs;

	return statfs(path, &fs) == 0 && fs.f_type == magic;
}

/* A mount point as mountinfo writes it: blanks and backslashes are \ooo. */
static char *unescape(const char *s, size_t n)
{
	char *out = mem_strndup(s, n), *w = out;

	for (const char *r = out; *r; r++) {
		unsigned c;

		if (*r == '\\' && sscanf(r + 1, "%3o", &c) == 1) {
			*w++ = (char)c;
			r += 3;
		} else {
			*w++ = *r;
		}
	}
	*w = '\0';
	return out;
}

/* One line of mountinfo: "36 35 98:0 /root /mount/point opts... - type source superopts" */
static void mountinfo_line(struct cgroup *cg, const char *line)
{
	const char *point = line, *tail = strstr(line, " - "), *opts;
	bool v2;

	if (!tail || (strncmp(tail + 3, "cgroup ", 7) && strncmp(tail + 3, "cgroup2 ", 8)))
		return;
	v2 = tail[9] == '2';
	for (int i = 0; i < 4; i++) {
		point = strchr(point, ' ');
		if (!point++)
			return;
	}
	opts = strrchr(tail, ' ') + 1;
	for (int c = 0; c < CTLS; c++) {
		size_t n = strlen(cgroup_ctl_str[c]);
		bool match = c == CTL_UNIFIED && v2;

		for (const char *o = opts; !v2 && o && !match; o = strchr(o, ',')) {
			o += *o == ',';
			match = !strncmp(o, cgroup_ctl_str[c], n) && strchr(",", o[n]);
		}
		if (match && !cg->mount[c])
			cg->mount[c] = unescape(point, strcspn(point, " "));
	}
}

static void mountinfo_read(struct cgroup *cg)
{
	auto_fd fd = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
	auto_free char *text = NULL;
	char *save = NULL;

	if (fd < 0 || fd_read_all(fd, 16 << 20, &text, NULL, NULL) < 0)
		return;
	for (char *l = strtok_r(text, "\n", &save); l; l = strtok_r(NULL, "\n", &save))
		mountinfo_line(cg, l);
}

struct hier *hier_add(struct cgroup *cg, enum cgroup_ctl ctl, int base)
{
	struct stat st = { 0 };
	struct hier *h;

	cg->tried[ctl] = -1;
	fstat(base, &st);
	for (int i = 0; i < cg->n_hiers; i++) {
		if (cg->hiers[i].dev == st.st_dev) { /* mounted together with another */
			close(base);
			return cg->ctl[ctl] = &cg->hiers[i];
		}
	}
	h = &cg->hiers[cg->n_hiers++];
	*h = (struct hier){ .base = base, .box = -1, .dev = st.st_dev };
	return cg->ctl[ctl] = h;
}

/* Opened when first needed: most boxes need few of them. */
struct hier *hier_get(struct cgroup *cg, enum cgroup_ctl ctl)
{
	long magic = ctl == CTL_UNIFIED ? CGROUP2_SUPER_MAGIC : CGROUP_SUPER_MAGIC;
	auto_fd fd = -1;
	struct statfs fs;
	char path[64];

	if (cg->tried[ctl] > 0)
		errno = cg->tried[ctl];
	if (cg->tried[ctl])
		return cg->ctl[ctl];
	snprintf(path, sizeof(path), ROOT "/%s", cgroup_ctl_str[ctl]);
	fd = open(cg->mount[ctl] ?: path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || fstatfs(fd, &fs) < 0)
		cg->tried[ctl] = errno;
	else if (fs.f_type != magic)
		cg->tried[ctl] = ENOENT;
	else if (faccessat(fd, ".", W_OK, 0) < 0)
		cg->tried[ctl] = errno; /* not ours, or mounted read-only */
	else
		return hier_add(cg, ctl, fd_take(&fd));
	errno = cg->tried[ctl];
	return NULL;
}

static enum cgroup_kind kind_find(struct cgroup *cg, const char **root)
{
	*root = ROOT;
	if (is_fs(ROOT, CGROUP2_SUPER_MAGIC))
		return CGROUP_V2;
	if (!is_fs(ROOT "/pids", CGROUP_SUPER_MAGIC) &&
		!is_fs(ROOT "/memory", CGROUP_SUPER_MAGIC)) {
		mountinfo_read(cg);
		*root = cg->mount[CTL_UNIFIED];
		if (*root && !cg->mount[CTL_PIDS] && !cg->mount[CTL_MEMORY])
			return CGROUP_V2;
	}
	return hier_get(cg, CTL_UNIFIED) ? CGROUP_HYBRID : CGROUP_V1;
}

static int cgroup_setup(struct cgroup *cg, enum cgroup_kind kind, const char *root,
	const char *name, struct den_err *err)
{
	cg->limits = kind == CGROUP_V2 ? &cgroup_limits_v2 : &cgroup_limits_v1;
	cg->core = kind == CGROUP_V1 ? &cgroup_core_v1 : &cgroup_core_v2;
	/* All boxes together in one group, where the controllers divide the machine between
	 * groups: a hundred boxes must not outweigh the rest of the system. Elsewhere without, as
	 * it costs time. */
	cg->nested = kind == CGROUP_V2;
	snprintf(cg->name, sizeof(cg->name), "den%c%s", cg->nested ? '/' : '.', name);
	if (kind == CGROUP_V2)
		return cgroup_v2_attach(cg, root, err);
	if (!cg->core->members(cg))
		return den_fail(err, DEN_UNSUPPORTED, errno,
			"no cgroup can be made here, so a box has no limits; run den as root, or "
			"boot with cgroup v2 (systemd.unified_cgroup_hierarchy=1)");
	return 0;
}

static bool tag_ok(const char *tag)
{
	return strlen(tag) == CGROUP_TAG_LEN && strspn(tag, "0123456789abcdef") == CGROUP_TAG_LEN;
}

static int open_as(const enum cgroup_kind *kind, const char *root, const struct box_id *id,
	const char *tag, struct cgroup **ret, struct den_err *err)
{
	struct cgroup *cg;
	enum cgroup_kind k;
	char name[40];

	if (!tag_ok(tag))
		return den_fail(err, DEN_INVALID, 0, "'%.20s' is no cgroup tag", tag);
	snprintf(name, sizeof(name), "%s.%s", tag, id->s);
	cg = mem_new(struct cgroup);
	if (kind) {
		k = *kind;
		if (root)
			cg->mount[CTL_UNIFIED] = mem_strdup(root);
	} else {
		k = kind_find(cg, &root);
	}
	if (cgroup_setup(cg, k, root, name, err) < 0) {
		cgroup_free(cg);
		return -1;
	}
	*ret = cg;
	return 0;
}

int cgroup_open(const struct box_id *id, const char *tag, struct cgroup **ret,
	struct den_err *err)
{
	return open_as(NULL, NULL, id, tag, ret, err);
}

int cgroup_open_kind(enum cgroup_kind kind, const char *root, const struct box_id *id,
	const char *tag, struct cgroup **ret, struct den_err *err)
{
	return open_as(&kind, root, id, tag, ret, err);
}

enum cgroup_kind cgroup_kind_of(const struct cgroup *cg)
{
	if (cg->limits == &cgroup_limits_v2)
		return CGROUP_V2;
	return cg->core == &cgroup_core_v2 ? CGROUP_HYBRID : CGROUP_V1;
}

void cgroup_free(struct cgroup *cg)
{
	if (!cg)
		return;
	for (int i = 0; i < cg->n_hiers; i++) {
		fd_close(&cg->hiers[i].base);
		fd_close(&cg->hiers[i].box);
	}
	for (int i = 0; i < CTLS; i++)
		free(cg->mount[i]);
	free(cg);
}

/* ---- groups as directories ------------------------------------------------------------------- */

int hier_box(struct cgroup *cg, struct hier *h)
{
	if (h->box < 0)
		h->box = openat(h->base, cg->name, O_PATH | O_DIRECTORY | O_CLOEXEC);
	return h->box;
}

/* mkdir, with den/ above it when that is missing. Others remove den/ when it is empty, which may be
 * just now, so that is tried again. */
static int group_mkdir(struct cgroup *cg, int base)
{
	for (int i = 0; i < MAKE_TRIES; i++) {
		if (mkdirat(base, cg->name, 0755) == 0)
			return 0;
		if (errno == EEXIST && group_remove(base, cg->name))
			continue; /* a crash left it; its counters must not be ours */
		if (errno != ENOENT || !cg->nested)
			return -1;
		if (mkdirat(base, "den", 0755) < 0 && errno != EEXIST)
			return -1;
	}
	return -1;
}

int hier_make(struct cgroup *cg, struct hier *h, struct den_err *err)
{
	if (h->made)
		return 0;
	fd_close(&h->box);
	if (group_mkdir(cg, h->base) < 0) {
		int sys = errno;

		if (sys == EBUSY || sys == EEXIST)
			return den_fail(err, DEN_CONFLICT, 0, "cgroup '%s' still has processes",
				cg->name);
		if (sys == EAGAIN)
			return den_fail(err, DEN_LIMIT, 0, "this host allows no more cgroups");
		if (sys == EACCES || sys == EPERM || sys == EROFS)
			return den_fail(err, DEN_UNSUPPORTED, sys, "make cgroup '%s'", cg->name);
		return den_fail_sys(err, sys, "make cgroup '%s'", cg->name);
	}
	h->made = true;
	if (hier_box(cg, h) < 0)
		return den_fail_sys(err, errno, "open cgroup '%s'", cg->name);
	return 0;
}

static bool group_remove_below(int dirfd, const char *name, int depth)
{
	int fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *de;

	if (!d) {
		fd_close(&fd);
		return errno == ENOENT;
	}
	while ((de = readdir(d))) {
		if (de->d_type != DT_DIR || de->d_name[0] == '.')
			continue;
		if (unlinkat(fd, de->d_name, AT_REMOVEDIR) < 0 && errno == EBUSY &&
			depth < DEPTH_MAX)
			group_remove_below(fd, de->d_name, depth + 1);
	}
	closedir(d);
	return unlinkat(dirfd, name, AT_REMOVEDIR) == 0 || errno == ENOENT;
}

bool group_remove(int dirfd, const char *name)
{
	/* Usually nothing is below any more. */
	if (unlinkat(dirfd, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
		return true;
	return errno == EBUSY && group_remove_below(dirfd, name, 0);
}

int group_get(int group, const char *file, const char *key, uint64_t *ret)
{
	struct den_err e;
	char text[4096];
	size_t n = key ? strlen(key) : 0;
	const char *p = text;

	if (file_read_at(group, file, text, sizeof(text), &e) < 0) {
		errno = e.sys;
		return -1;
	}
	while (key && (strncmp(p, key, n) || p[n] != ' ')) {
		p = strchr(p, '\n');
		if (!p++) {
			errno = ENODATA;
			return -1;
		}
	}
	*ret = strtoull(p + n, NULL, 10); /* "max" becomes 0 */
	return 0;
}

void group_stat(int group, const char *file, const char *key, uint64_t bit, uint64_t *ret,
	uint64_t *has)
{
	if (group_get(group, file, key, ret) == 0)
		*has |= bit;
}

int group_put(int group, const char *file, uint64_t value, struct den_err *err)
{
	char text[24];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
	if (file_write_at(group, file, text, err) < 0)
		return den_wrap(err, "cgroup");
	return 0;
}

/* ---- making, entering, removing -------------------------------------------------------------- */

int cgroup_make(struct cgroup *cg, const struct box_spec *spec, struct den_err *err)
{
	if (cg->core->make(cg, err) < 0 || cg->limits->make(cg, spec, err) < 0) {
		for (int i = 0; i < cg->n_hiers; i++) {
			struct hier *h = &cg->hiers[i];

			if (h->made && group_remove(h->base, cg->name) && cg->nested)
				unlinkat(h->base, "den", AT_REMOVEDIR);
			fd_close(&h->box);
			h->made = false;
		}
		return -1;
	}
	cg->fresh = true;
	return 0;
}

int cgroup_limit(struct cgroup *cg, const struct box_spec *spec, struct den_err *err)
{
	return cg->limits->make(cg, spec, err);
}

int cgroup_into_fd(struct cgroup *cg)
{
	struct hier *h = cg->core == &cgroup_core_v2 ? cg->core->members(cg) : NULL;

	return h ? hier_box(cg, h) : -1;
}

int cgroup_join_fds(struct cgroup *cg, bool into, int fds[CGROUP_MAX_FDS], int *ret_n,
	struct den_err *err)
{
	const struct hier *members = cg->core->members(cg), *unified = cg->ctl[CTL_UNIFIED];
	int n = 0;

	/* members first: whoever is in any of our groups must be in that one, see kill_all */
	for (int i = -1; i < cg->n_hiers; i++) {
		const struct hier *h = i < 0 ? members : &cg->hiers[i];

		if (!h->made || (i >= 0 && h == members) || (into && h == unified))
			continue;
		fds[n] = openat(h->box, h == unified ? "cgroup.procs" : "tasks",
			O_WRONLY | O_CLOEXEC);
		if (fds[n] < 0) {
			den_fail_sys(err, errno, "open the cgroup to enter it");
			while (n > 0)
				close(fds[--n]);
			return -1;
		}
		n++;
	}
	*ret_n = n;
	return 0;
}

bool cgroup_remove(struct cgroup *cg)
{
	bool gone = true;
	struct backoff b;

	for (int c = 0; !cg->fresh && c < CTLS; c++) /* whatever an earlier keeper made */
		if (cg->limits == &cgroup_limits_v1 || c == CTL_UNIFIED)
			hier_get(cg, c);
	backoff_start(&b, REMOVE_NS);
	for (int i = 0; i < cg->n_hiers; i++) {
		struct hier *h = &cg->hiers[i];
		bool ok;

		if (cg->fresh && !h->made)
			continue;
		do
			ok = group_remove(h->base, cg->name);
		while (!ok && errno == EBUSY && backoff_wait(&b, -1));
		gone = gone && ok;
		if (cg->nested)
			unlinkat(h->base, "den", AT_REMOVEDIR); /* stays while others are there */
		if (ok) {
			fd_close(&h->box);
			h->made = false;
		}
	}
	return gone;
}

/* ---- processes ------------------------------------------------------------------------------- */

static int box_group(struct cgroup *cg, struct den_err *err)
{
	int fd = hier_box(cg, cg->core->members(cg));

	if (fd < 0)
		return den_fail_sys(err, errno, "cgroup '%s'", cg->name);
	return fd;
}

void cgroup_kill(struct cgroup *cg)
{
	struct den_err e;
	int group = box_group(cg, &e);

	if (group >= 0 && cg->core->kill(group) < 0)
		(void)group_signal(group, SIGKILL, NULL, &e);
}

int cgroup_kill_all(struct cgroup *cg, struct den_err *err)
{
	struct den_err e;
	struct backoff b;
	int group = box_group(cg, &e);

	if (group < 0)
		return e.sys == ENOENT ? 0 : den_fail(err, e.code, e.sys, "cgroup '%s'", cg->name);
	backoff_start(&b, KILL_NS);
	while (!cg->core->empty(group)) {
		if (cg->core->kill(group) < 0) {
			if (group_signal(group, SIGKILL, NULL, err) < 0)
				return -1;
			/* In v1 the frozen die when thawed. That is also where a box whose keeper
			 * crashed while it was paused gets its end. */
			cg->core->freeze(cg, false, NULL);
		}
		if (cg->core->empty(group))
			break;
		if (!backoff_wait(&b, -1))
			return den_fail(err, DEN_TIMEOUT, 0,
				"processes of the box did not die within 5 s");
	}
	return 0;
}

int cgroup_pids(struct cgroup *cg, pid_t **ret, size_t *ret_n, struct den_err *err)
{
	auto_pidset s = { 0 };
	int group = box_group(cg, err);

	if (group < 0)
		return -1;
	if (group_pids(group, PIDS_BOX, &s) < 0)
		return den_fail_sys(err, errno, "list the processes of the box");
	*ret_n = s.n;
	*ret = mem_take(&s.v);
	return 0;
}

int cgroup_freeze(struct cgroup *cg, bool on, struct den_err *err)
{
	return cg->core->freeze(cg, on, err);
}

int cgroup_hold(struct cgroup *cg, struct den_err *err)
{
	return cg->core->hold(cg, err);
}

/* ---- execs ----------------------------------------------------------------------------------- */

struct exec_name {
	char s[16];
};

static struct exec_name exec_name(uint32_t exec)
{
	struct exec_name n;

	snprintf(n.s, sizeof(n.s), "x%u", (unsigned)exec);
	return n;
}

/* Also -1 with errno ENOENT when the box or the exec has no group. */
static int exec_group(struct cgroup *cg, uint32_t exec)
{
	int box = hier_box(cg, cg->core->members(cg));

	if (box < 0)
		return -1;
	return openat(box, exec_name(exec).s, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

int cgroup_exec_make(struct cgroup *cg, uint32_t exec, int *ret_fd, struct den_err *err)
{
	struct exec_name name = exec_name(exec);
	int box = box_group(cg, err), r, fd;

	if (box < 0)
		return -1;
	r = mkdirat(box, name.s, 0755);
	if (r < 0 && errno == EEXIST) {
		if (!group_remove(box, name.s))
			return den_fail(err, DEN_CONFLICT, 0,
				"the group of an earlier exec %u still has processes",
				(unsigned)exec);
		r = mkdirat(box, name.s, 0755);
	}
	if (r < 0)
		return den_fail_sys(err, errno, "make the group of exec %u", (unsigned)exec);
	fd = cg->core->exec_open(box, name.s);
	if (fd < 0) {
		den_fail_sys(err, errno, "open the group of exec %u", (unsigned)exec);
		unlinkat(box, name.s, AT_REMOVEDIR);
		return -1;
	}
	*ret_fd = fd;
	return 0;
}

int cgroup_exec_signal(struct cgroup *cg, uint32_t exec, int sig, int *ret_count,
	struct den_err *err)
{
	auto_fd group = exec_group(cg, exec);

	if (sig < 0 || sig > SIGRTMAX)
		return den_fail(err, DEN_INVALID, 0, "%d is no signal", sig);
	if (group < 0)
		return den_fail_sys(err, errno, "group of exec %u", (unsigned)exec);
	return group_signal(group, sig, ret_count, err);
}

int cgroup_exec_cpu_usec(struct cgroup *cg, uint32_t exec, uint64_t *ret, struct den_err *err)
{
	auto_fd group = exec_group(cg, exec);

	if (group < 0)
		return den_fail_sys(err, errno, "group of exec %u", (unsigned)exec);
	return cg->core->cpu_usec(group, ret, err);
}

bool cgroup_exec_empty(struct cgroup *cg, uint32_t exec)
{
	auto_fd group = exec_group(cg, exec);

	return group < 0 ? errno == ENOENT : cg->core->empty(group);
}

void cgroup_exec_remove(struct cgroup *cg, uint32_t exec)
{
	int box = hier_box(cg, cg->core->members(cg));

	if (box >= 0)
		group_remove(box, exec_name(exec).s);
}

/* ---- measuring ------------------------------------------------------------------------------- */

void cgroup_stats(struct cgroup *cg, struct box_stats *ret)
{
	int group = hier_box(cg, cg->core->members(cg));
	auto_pidset s = { 0 };

	if (group < 0)
		return;
	if (cg->core->cpu_usec(group, &ret->cpu_usec, NULL) == 0)
		ret->has |= HAS_CPU;
	cg->limits->stats(cg, ret);
	if (!(ret->has & HAS_MEM) && group_pids(group, PIDS_BOX, &s) == 0) {
		ret->mem = pids_memory(&s);
		ret->has |= HAS_MEM;
	}
}

uint64_t cgroup_oom_kills(struct cgroup *cg)
{
	return cg->limits->oom_kills(cg);
}

uint64_t cgroup_pids_refused(struct cgroup *cg)
{
	return cg->limits->pids_refused(cg);
}

int cgroup_memory_fd(struct cgroup *cg)
{
	static const struct {
		enum cgroup_ctl ctl;
		const char *file;
	} places[] = { { CTL_MEMORY, "memory.usage_in_bytes" }, { CTL_UNIFIED, "memory.current" } };

	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		struct hier *h = hier_get(cg, places[i].ctl);
		int box = h ? hier_box(cg, h) : -1;
		int fd = box < 0 ? -1 : openat(box, places[i].file, O_RDONLY | O_CLOEXEC);

		if (fd >= 0)
			return fd;
	}
	return -1;
}
