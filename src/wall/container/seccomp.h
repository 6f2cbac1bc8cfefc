/* The system call filter of a box: what is in it is said in seccomp_list.h. */
#pragma once

#include "err.h"

/*
 * Puts the calling process, and all that it starts, behind the filter, for good. For the child
 * between clone and exec: it does not allocate. The caller must have CAP_SYS_ADMIN in its user
 * namespace; no_new_privs is not used, since setuid programs have to work in a box. Call it last:
 * mounts, namespaces and keyrings are out of reach afterwards.
 */
int seccomp_load(struct den_err *err);
