/* User namespaces from the outside: maps, ranges, id-mapped mounts. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "err.h"
#include "wall.h"

#define ID_RANGE 65536U

/* The range that /etc/subuid and /etc/subgid give the calling user, when newuidmap is there too.
 * 1: *uid and *gid set; 0: none, *why (static text) says what is missing. */
int idmap_subids(uint32_t *uid, uint32_t *gid, const char **why);
/* Writes the maps of a process that is alone in a new user namespace. */
int idmap_write(pid_t pid, const struct plan *p, struct den_err *err);
/* Maps the ids of a detached mount through a user namespace. */
int idmap_mount(int mount_fd, int userns_fd, const char *what, struct den_err *err);
/* A user namespace in which the host's owner `uid:gid` is the box's root (id_base), for --mount. */
int idmap_owner_ns(uint32_t uid, uint32_t gid, uint32_t id_base, int *ret_fd, struct den_err *err);
