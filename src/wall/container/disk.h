/* A disk limit that holds: the box's changes live in a file system of that size, in a file. */
#pragma once

#include "err.h"
#include "wall.h"

/* Makes boxes/ID/disk.img when missing. */
int disk_make(const struct plan *p, struct den_err *err);
/* While it is mounted. Nothing to do when there is none. */
int disk_settle(int fsfd, enum wall_settle how, struct den_err *err);
/* Mounts it, detached, with uN and wN for each tree; returns the descriptor. Needs root. */
int disk_mount(const struct plan *p, struct den_err *err);
