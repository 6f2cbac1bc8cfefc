/* Between the keeper's clone3() and init's first instruction. */
#pragma once

#include "wall.h"

#define LAYERS_MAX 160 /* of all trees; images have up to 127 */
#define DEVICES 6
#define CG_FDS_MAX 8

struct launch;

/* One step of the child's way from clone3() to its program. */
struct launch_stage {
	const char *name;
	int (*run)(struct launch *l, struct den_err *err);
};

/* What a wall that is built like this one does in its own way. */
struct launch_kind {
	const struct launch_stage *stages;
	int n_stages;
	/* In the keeper, before the clone: opens and makes what only its stages need. NULL: nothing. */
	int (*gather)(struct launch *l, struct den_err *err);
	bool same_pids; /* the child stays in our pid namespace: the box's comes later */
};

/*
 * Everything the child needs, gathered before clone3(): between clone and exec nothing is
 * allocated. Descriptors are opened by whoever may: as root the keeper opens them (the state
 * directory is closed to the box's ids, and only root may id-map a mount); for an ordinary user the
 * child does, since it gains the right to mount only with its user namespace.
 */
struct launch {
	const struct plan *plan;
	const struct launch_kind *kind;
	void *own;			 /* of another wall, see gather() */
	bool root;			 /* the keeper is host root */
	int go_fd, err_fd;		 /* the child waits on one and reports on the other */
	int cg_fds[CG_FDS_MAX], n_cg_fds;
	int lower_fd[LAYERS_MAX]; /* detached mounts, in the order of plan->trees and lowers */
	int n_lowers;
	int upper_fd;			 /* detached mount that holds uN and wN of each tree */
	int mount_fd[SPEC_MAX_MOUNTS];	 /* detached mounts of spec->mounts */
	int mount_is_file[SPEC_MAX_MOUNTS];
	int run_fd;			 /* detached mount of plan->run_path; -1: none */
	int init_fd;			 /* den-init on a read-only mount, O_PATH */
	int memuse_fd;			 /* -1: no memory limit */
	int owners_fd;			 /* plan->owners, or -1 */
	int meminfo_fd;			 /* made in the child */
	int device_fd[DEVICES], proc_fd; /* made in the child */
	int proc_file_fd[2];		 /* boot_id, meminfo: likewise */
	bool volatile_upper;		 /* a throwaway box: its changes need not reach the disk */
	bool time_ns;			 /* the kernel enters a time namespace at exec */
	unsigned cpus;			 /* processors to show; 0: all */
	char lower_path[1024];		 /* for messages */
	char hostname[65];
	char resolv[4096];
	char orphan_s[24], memory[24];	 /* init's arguments */
	char upper_path[4096];		 /* rootless: plan->fs_path */
	int step;			 /* child: index of the running stage */
};

/* stage.c: runs in the child and does not return. */
void launch_child(struct launch *l) __attribute__((noreturn));
/* The keeper's side; `own` is for the stages of that kind. */
int launch_box(const struct plan *p, struct cgroup *cg, const struct launch_kind *kind, void *own,
	struct wall_box *ret, struct den_err *err);
extern const struct launch_kind launch_container;

/* stage.c: stages that every kind has */
int stage_wait(struct launch *l, struct den_err *err);
int stage_ids(struct launch *l, struct den_err *err);
int stage_cgroup(struct launch *l, struct den_err *err);
int stage_session(struct launch *l, struct den_err *err);
int stage_hostname(struct launch *l, struct den_err *err);
int stage_loopback(struct launch *l, struct den_err *err);
int stage_limits(struct launch *l, struct den_err *err);
extern const int caps_kept[];
extern const int n_caps_kept;

/* rootfs.c: stages that build the file system */
int stage_layers(struct launch *l, struct den_err *err);
int stage_prepare(struct launch *l, struct den_err *err);
int stage_pivot(struct launch *l, struct den_err *err);
int stage_system(struct launch *l, struct den_err *err);
int stage_mask(struct launch *l, struct den_err *err);
int stage_shares(struct launch *l, struct den_err *err);
int stage_owners(struct launch *l, struct den_err *err);
extern const char *const trust_bundles[]; /* NULL at its end */
int stage_trust(struct launch *l, struct den_err *err);

/* A detached mount of the i-th of spec->mounts, or of the volume that it names. */
int open_share(struct launch *l, size_t i, struct den_err *err);
/* Detached mounts of all the template's layers, by whoever may open them. */
int open_lowers(struct launch *l, struct den_err *err);
/* Likewise of what the box sees at /run/den. */
int open_run(struct launch *l, struct den_err *err);
/* Detached mount of a path (not recursive). */
int mount_clone(int dirfd, const char *path, struct den_err *err);
/* /proc of the pid namespace that the caller is in, detached. hide: none but those processes that the reader may
 * trace. */
int make_proc(struct launch *l, bool hide, struct den_err *err);
int mount_attach(int fd, const char *at, struct den_err *err);

struct launch_msg {
	int step;
	struct den_err err;
};
