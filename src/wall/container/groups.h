/* What processes of a box are to find again at load that CRIU does not carry, and what den makes sure of. */
#pragma once

#include "buf.h"
#include "cgroup.h"

/* Which process is in which exec's group: "EXEC PID\n", pid as the box has it. */
int groups_note(struct cgroup *cg, struct buf *out, struct den_err *err);
/* The eventfds of the box that are semaphores, see images_mend(). */
struct image_fds;
int groups_semaphores(struct cgroup *cg, struct image_fds *ret, struct den_err *err);
/* Makes the groups of these lines and puts the processes in. None of them has run. */
int groups_restore(struct cgroup *cg, const char *lines, struct den_err *err);
/* Every process but those two has what each of a started box has: den's filter, no capability beyond, the box's own user
 * namespace. */
int walls_check(struct cgroup *cg, pid_t not_this, pid_t nor_this, pid_t same_as, struct den_err *err);
/* And none is outside of the pid namespace of that one: what reads the images must not leave anything behind. */
int walls_strays(struct cgroup *cg, pid_t init, struct den_err *err);
/* Refuses processes with filters beside den's. A filter that forbids what CRIU has still to do when it is in force kills
 * the process at load, and only who has rights over the host may suspend it. */
int walls_own_filters(struct cgroup *cg, pid_t init, struct den_err *err);
