/*
 * A wall is how a box is walled off. Each is one const table with every operation in it; what a
 * wall cannot do, its operation answers with DEN_UNSUPPORTED and the reason.
 *
 * The keeper says what is wanted in a plan; a wall says what it made in a wall_box. It keeps no
 * other state: what a new keeper needs to take a box over is in the plan and the process id.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "buf.h"
#include "err.h"
#include "id.h"
#include "spec.h"

/* One overlay of the box's root file system. */
struct plan_tree {
	const char *at;		     /* mount point in the box, "/" first */
	const char *const *lowers;   /* host paths, topmost first, NULL-terminated */
};

enum plan_ids {
	IDS_MAPPED,  /* a range of 65,536; layers id-mapped: ids on disk are the box's own */
	IDS_SHIFTED, /* a range, but the file system cannot be id-mapped, or there is no root */
	/* an ordinary user without a range: root in the box is that user, nobody else is */
	IDS_SINGLE,
};

struct plan {
	const struct box_id *id;
	/* of the state directory: eight hex digits, for cgroup names */
	const char *tag;
	const struct box_spec *spec;
	const struct plan_tree *trees;
	size_t n_trees;
	int fsfd; /* where the box's changes are: uN and wN of each tree, or a disk */
	const char *fs_path;	     /* the same */
	const char *init_path;	     /* the den-init file on the host */
	int listen_fd;		     /* init's socket */
	enum plan_ids ids;
	uint32_t id_base;	     /* IDS_MAPPED, IDS_SHIFTED as root: first id of the range */
	const char *run_path;	     /* directory that the box sees at /run/den, read-only */
	const char *volumes;	     /* folder of volumes, for mounts from "volume:NAME"; NULL: none */
	bool trust;		     /* its ca-bundle.pem takes the place of the system's bundle */
	const char *owners; /* file with "path uid gid" lines to apply at first start; NULL: none */
	char boot_id[37], machine_id[33];
	bool host_net;		     /* tests only */
	/* Called when init's process exists and before it executes: what it writes down is there
	 * when the keeper dies a moment later. */
	int (*cloned)(pid_t pid, void *user, struct den_err *err);
	void *user;
};

struct cgroup;

struct wall_box {
	pid_t pid;    /* init, on the host */
	int pidfd;
	struct cgroup *cg; /* NULL: this host gives us none */
	int mntns;    /* held while a box that is deleted goes down, see stop() */
	int door;     /* what a woken init gets in place of its listening socket; -1: that one */
	bool host_net; /* tests only */
	bool left;    /* clean(): its last process took too long to go, and its cgroup is still there */
	bool parked;  /* adopt(): its init waits to be woken, whoever else listens for it */
	char *note;   /* what could not be had, for den inspect; NULL: nothing */
};

/* A box with its running programs is put away (save) and brought back (load). See docs/decisions/0014-memory.md. */
struct wall_saving {
	int dirfd;	 /* an empty directory of the keeper's: images go here, and nowhere else */
	bool stay;	 /* it runs on afterwards; else its processes end without having run again */
	/* With stay. Somebody is about to load the images, once: the memory may be left out of them, and be read from the
	 * processes by whoever loads. Then `lent` is set, and they are held when save() returns, until freeze() lets them go.
	 * Before that the keeper ends the loan: see WALL_LENT. */
	bool lend;
	/* Called once, while nothing of the box runs: its files are copied now. */
	int (*frozen)(void *user, struct den_err *err);
	/* Does nobody want it any more? Asked where it can be given up; NULL: somebody does. */
	bool (*gone)(void *user);
	void *user;
	/* set by the wall */
	char **lost;	   /* what is not in the images, in words for people, one each (strv); NULL: nothing */
	char *runtime;	   /* what made the images and must load them: "criu 4.2" */
	int64_t frozen_ns; /* how long nothing ran */
	bool lent;
	int64_t held_ns;   /* with lent: since when they are held, of the monotonic clock; not in frozen_ns */
};

/* A FIFO beside images whose memory is lent, made by the keeper who lends. Who loads writes LENT_FOUND when he has found it
 * and LENT_DONE when he needs the processes no longer. The keeper closes his end before he lets them go: so whoever could
 * write the second has read nothing but what was held. */
#define WALL_LENT ".lent"
enum { LENT_FOUND = 'f', LENT_DONE = 'd' };

enum wall_settle { SETTLE_FLUSH, SETTLE_HOLD, SETTLE_GO };

struct wall_ops {
	const char *name;
	bool own_kernel; /* the host sees none of the box's processes */
	uint64_t pids_max; /* it holds no box to more, whatever is asked for; 0: it does not say */
	/* Can this host run it? err says what is missing and what to do. */
	int (*probe)(struct den_err *err);
	/* Starts init. On failure nothing stays. */
	int (*start)(const struct plan *p, struct wall_box *ret, struct den_err *err);
	/* Takes a running box over: pid was checked by the keeper. */
	int (*adopt)(const struct plan *p, pid_t pid, int pidfd, struct wall_box *ret,
		struct den_err *err);
	int (*freeze)(struct wall_box *b, bool on, struct den_err *err);
	/* What the box has written is in fsfd, and (HOLD, until GO) nothing is half. */
	int (*settle)(struct wall_box *b, int fsfd, enum wall_settle how, struct den_err *err);
	/* A group for one exec's tree; *ret_fd goes to init. -1 with DEN_UNSUPPORTED: none here. */
	int (*exec_open)(struct wall_box *b, uint32_t exec, int *ret_fd, struct den_err *err);
	int (*exec_signal)(struct wall_box *b, uint32_t exec, int sig, struct den_err *err);
	int (*exec_cpu)(struct wall_box *b, uint32_t exec, uint64_t *usec, struct den_err *err);
	void (*exec_close)(struct wall_box *b, uint32_t exec);
	int (*stats)(struct wall_box *b, struct box_stats *ret, struct den_err *err);
	int (*pids)(struct wall_box *b, pid_t **ret, size_t *n, struct den_err *err);
	uint64_t (*oom_kills)(struct wall_box *b);
	uint64_t (*pids_refused)(struct wall_box *b);
	/* Can programs be saved and loaded here? err says what is missing and what to do. */
	int (*memory)(struct den_err *err);
	/* Paths in the box of files whose times its kernel keeps to itself: init gives them to the host before the box is
	 * saved. NULL: there are none. What it tells is the box's word. */
	void (*written)(struct wall_box *b, void (*each)(const char *path, void *user), void *user);
	/* "criu 4.2": what would load images, if that is known at no cost; free() it. NULL: who loads refuses by himself */
	char *(*runtime)(void);
	/* Saves a running or frozen box whose init is parked (WM_PARK: it holds nothing from outside). On
	 * failure the box is as it was, whatever `stay` says; what is in dirfd is the keeper's to remove. */
	int (*save)(struct wall_box *b, const struct plan *p, struct wall_saving *s, struct den_err *err);
	/* The box goes on, and what save() made in dirfd is of no use: takes away what it left in the box's files for load().
	 * NULL: nothing. */
	void (*unsaved)(struct wall_box *b, int dirfd);
	/* Like start(), but what comes up is what was saved. Its init is parked and looks for its keeper
	 * (init/park.c). The plan may be another box's: its id, host name, ids and paths are the plan's. On
	 * failure nothing stays. */
	int (*load)(const struct plan *p, int dirfd, struct wall_box *ret, struct den_err *err);
	/* What init holds from outside, for one that is no longer parked: the file seen as /proc/meminfo (or
	 * -1) and the one that tells memory use (or -1); the caller's to close. */
	int (*outside)(struct wall_box *b, int ret[2], struct den_err *err);
	/* Ends every process; idempotent, cannot fail. init is dead when it returns. With `later`,
	 * taking its mounts apart (which costs more than all else) is left for release(). */
	void (*stop)(struct wall_box *b, bool later);
	void (*release)(struct wall_box *b);
	/* Frees what the host holds for a box that is down. */
	void (*clean)(struct wall_box *b);
	/* Removes what boxes that are not alive left on the host. */
	int (*sweep)(const char *tag, bool (*alive)(const struct box_id *, void *), void *user,
		void (*removed)(const char *what, void *user), struct den_err *err);
};

/* How the ids of boxes made here are laid out; why (may be NULL) says what keeps it from more. */
enum plan_ids wall_ids(const char **why);
/* Runs fn as one who may do with the files of boxes whatever their root may: of an ordinary user in
 * a process of its own, in a user namespace like theirs; as root right here. */
int wall_as_box_root(int (*fn)(void *arg, struct den_err *err), void *arg, struct den_err *err);
/* Where a layer is a disk (--disk), *fd becomes the directory inside of it, read-only. Needs
 * root. */
int wall_open_disk(int *fd, struct den_err *err);
/* Which limits can be enforced, in words; returns "ok", "limited" or "missing". */
const char *wall_limits(struct buf *out);

extern const struct wall_ops wall_container, wall_gvisor;

/* NULL and *err: no such wall. */
const struct wall_ops *wall_find(const char *name, struct den_err *err);
