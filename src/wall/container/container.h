/* Inside of the container wall. */
#pragma once

#include "cgroup.h"
#include "wall.h"

/* launch.c */
int container_launch(
	const struct plan *p, struct cgroup *cg, struct wall_box *ret, struct den_err *err);

/* container.c: what a wall with the same cgroup and the same kind of first process does in the same way */
int container_need_cgroup(const struct box_spec *s, const struct den_err *why, struct den_err *err);
int container_limits(struct cgroup *cg, const struct box_spec *s, struct den_err *err);
int container_adopt(const struct plan *p, pid_t pid, int pidfd, struct wall_box *ret, struct den_err *err);
int container_freeze(struct wall_box *b, bool on, struct den_err *err);
int container_settle(struct wall_box *b, int fsfd, enum wall_settle how, struct den_err *err);
int container_stats(struct wall_box *b, struct box_stats *ret, struct den_err *err);
uint64_t container_oom_kills(struct wall_box *b);
void container_stop(struct wall_box *b, bool later);
void container_release(struct wall_box *b);
void container_clean(struct wall_box *b);
int container_sweep(const char *tag, bool (*alive)(const struct box_id *, void *), void *user,
	void (*removed)(const char *what, void *user), struct den_err *err);
