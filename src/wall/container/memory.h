/* Saving and loading the programs of a box: docs/decisions/0014-memory.md. */
#pragma once

#include "wall.h"

int container_memory(struct den_err *err);
char *container_runtime(void);
/* vfork.c: nobody of the box waits for a child of vfork(), or soon nobody does; CRIU would try for ten seconds. */
int vfork_none(struct cgroup *cg, struct den_err *err);
int container_save(struct wall_box *b, const struct plan *p, struct wall_saving *s, struct den_err *err);
void container_unsaved(struct wall_box *b, int dirfd);
int container_load(const struct plan *p, int dirfd, struct wall_box *ret, struct den_err *err);
int container_outside(struct wall_box *b, int ret[2], struct den_err *err);
/* container.c: the box's cgroup with its limits; NULL and 0: this host gives none, ret->note says why. */
int container_cgroup(const struct plan *p, struct wall_box *ret, struct cgroup **ret_cg, struct den_err *err);
