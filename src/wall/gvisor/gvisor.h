/* Inside of the gVisor wall. docs/decisions/0013-gvisor.md says why it is built like this. */
#pragma once

#include "buf.h"
#include "cgroup.h"
#include "launch.h"
#include "wall.h"

/* Tasks of the host that one box may have, sentry, gofer and all: below what any host can free at once
 * without harm. Reaching it would end the sentry, so the box's own count is held far below by its kernel. */
#define GVISOR_TASKS 880
#define GVISOR_PIDS 250 /* processes and threads inside: two tasks of the host each, and some */

/* What the stages need beyond a struct launch; made by gvisor_gather(). */
struct gvisor_launch {
	char *runsc;	/* path on the host */
	int runsc_fd;	/* detached mount of it */
	int init_fd;	/* den-init, for reading */
	int door[2];	/* the porter's end, init's end: keepers' connections go through */
	int ctl[2];	/* the porter's end, the keeper's: kept in the porter, see gvisor_ctl() */
	int netns;	/* the sentry's, with its end of the link; -1: the host's (tests only) */
	int images_fd;	/* load(): detached mount of the directory with the images; -1: a new start */
	struct buf config;
	char **argv;	/* of runsc */
};

/* runtime.c: where runsc is; NULL and *err (what to do) when it is nowhere. free() it. */
char *gvisor_runsc(struct den_err *err);
/* "runsc VERSION", of the one that was found. */
int gvisor_version(char **ret, struct den_err *err);

/* config.c */
void gvisor_config(struct launch *l, struct buf *out);
void gvisor_argv(struct launch *l, char ***argv);

/* link.c */
int stage_link(struct launch *l, struct den_err *err);
/* In the child that becomes runsc: into the sentry's network. */
int link_enter(int netns);

/* stage.c */
int gvisor_launch(const struct plan *p, struct cgroup *cg, int images, struct wall_box *ret, struct den_err *err);

/* times.c */
void gvisor_written(struct wall_box *b, void (*each)(const char *path, void *user), void *user);

/* save.c */
int gvisor_memory(struct den_err *err);
int gvisor_save(struct wall_box *b, const struct plan *p, struct wall_saving *s, struct den_err *err);
int gvisor_outside(struct wall_box *b, int ret[2], struct den_err *err);
/* A detached mount of the images, for root of the box. */
int gvisor_open_images(const struct plan *p, int dirfd, struct den_err *err);
/* Its init has closed its door. */
bool gvisor_is_parked(struct wall_box *b);
/* Holds all programs of the box by its own kernel, or lets them go on; both may be so already. */
int gvisor_hold(struct wall_box *b, bool on, struct den_err *err);
