/*
 * CRIU, which saves and loads processes: a program of its own in a directory of its own (scripts/runtime.sh), started
 * for one request and spoken to over a socket. docs/decisions/0014-memory.md says why and how.
 */
#pragma once

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "buf.h"
#include "cgroup.h"
#include "err.h"
#include "wall.h"

/* Its requests (rpc.proto). */
enum criu_req { CRIU_DUMP = 1, CRIU_RESTORE = 2, CRIU_NOTIFY = 6, CRIU_FEATURE_CHECK = 9 };
/* Its options: the fields of criu_opts that are used. */
enum criu_opt {
	CRIU_OPT_IMAGES_FD = 1, /* required, -1: by path */
	CRIU_OPT_PID = 2,
	CRIU_OPT_LEAVE_RUNNING = 3,
	CRIU_OPT_EXT_UNIX = 4,
	CRIU_OPT_TCP = 5,
	CRIU_OPT_SHELL_JOB = 7,
	CRIU_OPT_FILE_LOCKS = 8,
	CRIU_OPT_LOG_LEVEL = 9,
	CRIU_OPT_NOTIFY = 12,
	CRIU_OPT_LINK_REMAP = 18,
	CRIU_OPT_FORCE_IRMAP = 21,
	CRIU_OPT_SIBLING = 26,
	CRIU_OPT_INHERIT = 27,
	CRIU_OPT_CGROUPS = 34,
	CRIU_OPT_GHOST_LIMIT = 35,
	CRIU_OPT_IRMAP_PATH = 36,
	CRIU_OPT_EXTERNAL = 37,
	CRIU_OPT_TIMEOUT = 45,
	CRIU_OPT_TCP_CLOSE = 52,
	CRIU_OPT_NETWORK_LOCK = 64,
	CRIU_OPT_NO_RWX_CHECK = 66,
	CRIU_OPT_IMAGES = 68,
	CRIU_OPT_TO_STDERR = 71,
};
#define CRIU_CGROUPS_IGNORE 0
#define CRIU_LOCK_SKIP 3

struct criu_start {
	int box;	      /* pidfd of a process in the box; -1: it stays where it is */
	bool inside;	      /* it becomes root of the box's user namespace: no right over the host is left */
	bool pids;	      /* it enters the pid namespace, too */
	bool keep;	      /* CRIU_ENV_KEEP */
	unsigned enter;	      /* CLONE_NEW* of what else it enters */
	const int *groups;    /* descriptors into which it writes "0" first, see cgroup_join_fds() */
	int n_groups, group;  /* and the one for clone3(), or -1 */
	int mounts;	      /* its mount namespace, if that of `box` is not to be looked into; -1: by `box` */
	int images;	      /* directory; -1: none */
	int init;	      /* process 1's program; -1: none */
	int watches;	      /* file in memory; -1: none */
	int hide;	      /* file in memory, see pages.h; -1: none */
	int kdat;	      /* file in memory */
	const cpu_set_t *cpus; /* that it may run on; NULL: ours */
};

struct criu {
	pid_t pid;
	int pidfd, rpc, log;
	int patience_ms; /* for one step */
};

/* Told of each step of a request: -1 ends it. pid: process 1 of the box, where there is one. */
typedef int (*criu_step)(const char *step, pid_t pid, void *user, struct den_err *err);

/* Opens the directory that has CRIU; err says how to get it. */
int criu_runtime(struct den_err *err);
/* "4.2.1" */
int criu_version(char out[static 24], struct den_err *err);

/* kdat.c: for criu_start.kdat, to close; `inside` like there. */
int criu_kdat(const struct plan *p, bool inside, struct den_err *err);

int criu_start(const struct criu_start *s, struct criu *ret, struct den_err *err);
/* What saving and loading have in common. */
void criu_options(struct buf *b);
/* One request. opts: encoded criu_opts, NULL: none. */
int criu_call(struct criu *c, enum criu_req type, const struct buf *opts, criu_step step, void *user,
	struct buf *answer, struct den_err *err);
/* Ends it, if it has not ended, and reaps. */
void criu_end(struct criu *c);
