/*
 * What a box has in its memory file systems: carried beside CRIU's images, since CRIU is not given the mounts. One file,
 * "den-tmpfs", written and read with no more rights than root of the box has.
 */
#pragma once

#include <sys/types.h>

#include "err.h"
#include "wall.h"

/* Begins to write it, in a process of its own, while nothing of the box runs; tmpfs_packed() waits for its end. */
int tmpfs_pack(int box, int dirfd, pid_t *ret, struct den_err *err);
int tmpfs_packed(pid_t pid, struct den_err *err);
/* In a process in the box's mount namespace, as its root. */
int tmpfs_unpack(int fd, struct den_err *err);
