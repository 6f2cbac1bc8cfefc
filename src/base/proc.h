/* What /proc tells of processes. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

/* When it was started, in ticks since the machine was: with its number, that is one process and no other. dirfd: of its
 * directory in /proc, which stays that process's. -1: it is not there. */
int proc_start_time(pid_t pid, uint64_t *ret);
int proc_start_time_at(int dirfd, uint64_t *ret);
