/* Inside of the container wall. */
#pragma once

#include "cgroup.h"
#include "wall.h"

/* launch.c */
int container_launch(
	const struct plan *p, struct cgroup *cg, struct wall_box *ret, struct den_err *err);
