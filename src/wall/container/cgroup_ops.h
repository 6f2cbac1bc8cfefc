/*
 * Inside the cgroup module.
 *
 *   cgroup.c        finding what there is, groups as directories, the interface of cgroup.h
 *   cgroup_pids.c   listing and signalling the processes of a group
 *   cgroup_v1.c     two tables: limits and core in v1
 *   cgroup_v2.c     likewise in v2
 *   cgroup_admin.c  what den gc and den doctor need
 *
 * Limits are what the controllers do; the core is membership, exec groups, freezing and CPU time.
 * A hybrid host has the limits of v1 and the core of v2.
 */
#pragma once

#include "cgroup.h"

enum cgroup_ctl { CTL_MEMORY, CTL_PIDS, CTL_CPU, CTL_CPUACCT, CTL_FREEZER, CTL_UNIFIED, CTLS };
extern const char *const cgroup_ctl_str[CTLS];

/* A hierarchy: co-mounted controllers share one. */
struct hier {
	int base; /* O_PATH: the group below which ours is */
	int box;  /* O_PATH: ours; -1: not made, or not looked for yet */
	dev_t dev;
	bool made; /* by us, now */
};

struct cgroup {
	const struct cgroup_limits *limits;
	const struct cgroup_core *core;
	char name[48];	/* of our group, below base: "den/TAG.ID" or "den.TAG.ID" */
	bool nested;	/* the first of the two */
	bool fresh;	/* cgroup_make() was done by this process: nothing else is there */
	struct hier hiers[CTLS];
	int n_hiers;
	struct hier *ctl[CTLS];
	int tried[CTLS]; /* 0: not yet; -1: there; else the errno that says why not */
	char *mount[CTLS]; /* where mountinfo has it; NULL: at the usual place */
};

struct cgroup_limits {
	/* Makes the hierarchies that the limits need and writes them. */
	int (*make)(struct cgroup *cg, const struct box_spec *spec, struct den_err *err);
	void (*stats)(struct cgroup *cg, struct box_stats *ret);
	uint64_t (*oom_kills)(struct cgroup *cg);
	uint64_t (*pids_refused)(struct cgroup *cg);
};

struct cgroup_core {
	int (*make)(struct cgroup *cg, struct den_err *err);
	/* The hierarchy that has every process of the box from its start, and the exec groups. */
	struct hier *(*members)(struct cgroup *cg);
	/* Readies a new exec group; the descriptor to enter it with, or -1 with errno. */
	int (*exec_open)(int box, const char *name);
	/* The kernel's own way to kill a group; -1 when there is none for this one. */
	int (*kill)(int group);
	bool (*empty)(int group);
	int (*cpu_usec)(int group, uint64_t *ret, struct den_err *err);
	int (*freeze)(struct cgroup *cg, bool on, struct den_err *err);
	int (*hold)(struct cgroup *cg, struct den_err *err);
};

extern const struct cgroup_limits cgroup_limits_v1, cgroup_limits_v2;
extern const struct cgroup_core cgroup_core_v1, cgroup_core_v2;

enum cgroup_kind { CGROUP_V1, CGROUP_HYBRID, CGROUP_V2 };
/* cgroup_open() with the choice made by the caller, for tests. root NULL: the usual place; else the
 * mount point of a v2 tree. */
int cgroup_open_kind(enum cgroup_kind kind, const char *root, const struct box_id *id,
	const char *tag, struct cgroup **ret, struct den_err *err);
enum cgroup_kind cgroup_kind_of(const struct cgroup *cg);
/* Puts the base group of the v2 tree at root into cg. */
int cgroup_v2_attach(struct cgroup *cg, const char *root, struct den_err *err);

/* The hierarchy of a controller; NULL with errno when this host has none that can be used. */
struct hier *hier_get(struct cgroup *cg, enum cgroup_ctl ctl);
/* Takes over base. */
struct hier *hier_add(struct cgroup *cg, enum cgroup_ctl ctl, int base);
/* Our group there as O_PATH, kept open; -1 with errno. */
int hier_box(struct cgroup *cg, struct hier *h);
int hier_make(struct cgroup *cg, struct hier *h, struct den_err *err);
/* Removes the group `name` and those below it. false with errno: EBUSY while processes are in. */
bool group_remove(int dirfd, const char *name);

/* "key value" of a file with one such pair a line; key NULL: the file is one number, "max" is 0. */
int group_get(int group, const char *file, const char *key, uint64_t *ret);
/* Like group_get(), and sets bit in *has when it worked. */
void group_stat(int group, const char *file, const char *key, uint64_t bit, uint64_t *ret,
	uint64_t *has);
int group_put(int group, const char *file, uint64_t value, struct den_err *err);

struct pidset {
	pid_t *v;
	size_t n, cap;
	bool threads; /* there are threads among them, not processes alone */
};
void pidset_add(struct pidset *s, pid_t pid);
void pidset_sort(struct pidset *s); /* and makes each appear once */
bool pidset_has(const struct pidset *s, pid_t pid); /* s is sorted */
void pidset_free(struct pidset *s);
#define auto_pidset __attribute__((cleanup(pidset_free))) struct pidset

enum pids_what {
	PIDS_BOX,	  /* processes of a group and those below it */
	PIDS_THREADED,	  /* likewise; of a threaded group, whose processes the kernel doesn't list,
			     the threads */
};
int group_pids(int group, enum pids_what what, struct pidset *ret);
int group_signal(int group, int sig, int *ret_count, struct den_err *err);
uint64_t pids_memory(const struct pidset *s);

/* Waiting in growing steps, from 0.1 to 10 ms. */
struct backoff {
	int64_t until, step;
};
void backoff_start(struct backoff *b, int64_t ns);
/* Waits one step, less if fd (-1: none) reports POLLPRI; false when the time is over. */
bool backoff_wait(struct backoff *b, int fd);

/* Bits of box_stats.has, in the order of its fields. */
enum {
	HAS_CPU = 1 << 0,
	HAS_THROTTLED = 1 << 1,
	HAS_MEM = 1 << 2,
	HAS_MEM_PEAK = 1 << 3,
	HAS_MEM_LIMIT = 1 << 4,
	HAS_PIDS = 1 << 5,
	HAS_PIDS_MAX = 1 << 6,
	HAS_IO_READ = 1 << 9,
	HAS_IO_WRITE = 1 << 10,
	HAS_OOM_KILLS = 1 << 11,
};
