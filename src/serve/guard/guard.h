/* What the server gives up before it hears the first byte; guard.c has the stages and their order. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "err.h"

/* An id that no account and no box has: just below the first range of boxes (store.h). */
#define GUARD_UID 0x3fffffffU

/* Only the directory `own` is left of the file system, and it is the working directory. *ret_alone: that worked;
 * an ordinary user on a host without user namespaces goes on with what its account can see. */
int guard_files(const char *own, bool *ret_alone, struct den_err *err);
/* As root: another user. No capability, no new ones, no dumps, and SIGKILL when the parent goes. */
int guard_rights(uid_t uid, gid_t gid, pid_t parent, struct den_err *err);
int guard_limits(struct den_err *err);
/* The filter on system calls. In the only thread; those it starts have it too. */
int guard_calls(struct den_err *err);
