/*
 * A box's cgroup: limits, measuring, freezing, and reaching every process it has, daemons too.
 *
 * Three kinds of host, told apart by cgroup_open():
 *   v2      one tree; the box is den/TAG.ID below its root, or below the part that is delegated to
 *           an ordinary user
 *   hybrid  v1 controllers and a v2 tree without them: limits in v1, everything else in v2
 *   v1      v1 alone
 * In v1 and hybrid a group is made in a hierarchy only when it is needed, as den.TAG.ID.
 *
 * TAG (8 hexadecimal digits) names the state directory, so that a sweep of one never touches
 * another's boxes.
 *
 * Joining is where the time goes: writing cgroup.procs waits for an RCU grace period (5 to 20 ms
 * when nothing did so just before). Three ways around it are used: clone3(CLONE_INTO_CGROUP) and,
 * for a process that has one thread and moves itself, v1 `tasks` and v2 `cgroup.threads`.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "buf.h"
#include "err.h"
#include "id.h"
#include "spec.h"

#define CGROUP_MAX_FDS 6
#define CGROUP_TAG_LEN 8

struct cgroup;

/* Finds out what this host has; creates nothing. For a new box and for one that is adopted.
 * DEN_UNSUPPORTED, with the way out, when no group can be made here. End it with cgroup_free(). */
int cgroup_open(const struct box_id *id, const char *tag, struct cgroup **ret,
	struct den_err *err);
void cgroup_free(struct cgroup *cg); /* the group itself stays; NULL is allowed */

/* Makes the group with the limits in force (cpu_milli, memory, pids of spec; 0: none). A limit
 * whose controller is missing is DEN_UNSUPPORTED; on failure nothing stays. An empty group that a
 * crash left is made anew, one with processes is DEN_CONFLICT. */
int cgroup_make(struct cgroup *cg, const struct box_spec *spec, struct den_err *err);

/* Puts other limits in force in a group that was made. */
int cgroup_limit(struct cgroup *cg, const struct box_spec *spec, struct den_err *err);

/* For clone3(CLONE_INTO_CGROUP); borrowed. -1: this host's way is the descriptors alone. */
int cgroup_into_fd(struct cgroup *cg);
/* Descriptors into each of which the box's first process, single-threaded, writes "0" before it
 * unshares its cgroup namespace; it needs no privilege for that, in whatever user namespace. With
 * into, the process is already cloned into cgroup_into_fd(). The caller closes them. */
int cgroup_join_fds(struct cgroup *cg, bool into, int fds[CGROUP_MAX_FDS], int *ret_n,
	struct den_err *err);

/* The group of one exec's whole tree. A process that is in the box and has one thread writes "0"
 * into *ret_fd to enter; what it forks stays in. The number may be used again after removal. */
int cgroup_exec_make(struct cgroup *cg, uint32_t exec, int *ret_fd, struct den_err *err);
/* Signals every process in it, ones being forked meanwhile too; never one outside. *ret_count: how
 * many (may be NULL). An exec without a group is DEN_NOT_FOUND. */
int cgroup_exec_signal(struct cgroup *cg, uint32_t exec, int sig, int *ret_count,
	struct den_err *err);
int cgroup_exec_cpu_usec(struct cgroup *cg, uint32_t exec, uint64_t *ret, struct den_err *err);
bool cgroup_exec_empty(struct cgroup *cg, uint32_t exec); /* also when there is no such group */
void cgroup_exec_remove(struct cgroup *cg, uint32_t exec); /* stays while processes are in it */

/* Returns when all are frozen, or run again. DEN_TIMEOUT: not frozen, all run. */
int cgroup_freeze(struct cgroup *cg, bool on, struct den_err *err);
/* Asks for it and does not wait: of processes that are stopped by a tracer none runs again when it lets go. */
int cgroup_hold(struct cgroup *cg, struct den_err *err);
/* Kills all of them and does not wait. Who is frozen (v1) dies when it is thawed, and runs no more. */
void cgroup_kill(struct cgroup *cg);
/* Ends every process, frozen or not, and returns when none is left (zombies don't count). */
int cgroup_kill_all(struct cgroup *cg, struct den_err *err);
/* All processes, as pids of the caller's namespace. */
int cgroup_pids(struct cgroup *cg, pid_t **ret, size_t *ret_n, struct den_err *err);

/* Sets the fields of *ret that can be measured, and their bits in ret->has; leaves the others. A
 * limit that is not set is 0. Where a box without memory limit has no memory controller, mem is the
 * sum of its processes' proportional shares, without page cache. */
void cgroup_stats(struct cgroup *cg, struct box_stats *ret);
uint64_t cgroup_oom_kills(struct cgroup *cg);	 /* processes killed for the box's memory limit */
uint64_t cgroup_pids_refused(struct cgroup *cg); /* forks refused by the box's pids limit */

/* A file that always holds the bytes of memory in use, for reading; -1 when none is measured. */
int cgroup_memory_fd(struct cgroup *cg);

/* Removes everything that cgroup_make() and cgroup_exec_make() made, for an adopted box too. Waits
 * up to 2 s for processes that are just dying; false: something is still there. */
bool cgroup_remove(struct cgroup *cg);

/* Kills and removes the groups of this tag that no live box owns. removed (may be NULL) is told the
 * name of each. */
int cgroup_sweep(const char *tag, bool (*alive)(const struct box_id *id, void *user),
	void (*removed)(const char *what, void *user), void *user, struct den_err *err);

enum cgroup_level {
	CGROUP_OK,
	CGROUP_LIMITED, /* works, at a cost */
	CGROUP_MISSING,
};
/* One sentence or two for people: what there is (tried, not guessed), what is missing, what that
 * costs and what to do. */
enum cgroup_level cgroup_describe(struct buf *out);
