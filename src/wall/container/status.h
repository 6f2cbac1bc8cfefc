/* What /proc says of a process or thread. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct status {
	pid_t leader, parent;
	pid_t inner; /* the leader, as the innermost namespace has it */
	bool nested; /* that is another namespace than ours */
	bool shadow; /* it has a shadow stack */
	int seccomp;
	uint64_t filters; /* 0: a kernel that does not tell */
	uint64_t bound, effective, permitted;
};

/* path: of a file `status` */
int status_read(const char *path, struct status *ret);
int status_of(pid_t pid, struct status *ret);
