/* Programs of the machine that den runs: mmdebstrap, den-fetch. A clean environment: PATH, HOME,
 * TMPDIR, and the variables that say which proxy to use. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "err.h"

struct helper {
	pid_t pid; /* 0: none */
	int out; /* its standard output; -1: ours */
	int status; /* after helper_wait(): what it left with; -1: by a signal */
};

/* argv[0] is a path. pipe_out: h->out gives what it prints. pass_in: it reads our standard input,
 * else end of file. Its standard error is ours. */
int helper_start(
	struct helper *h, char *const *argv, bool pipe_out, bool pass_in, struct den_err *err);
/* A den_source; user is the struct helper. */
ssize_t helper_read(void *buf, size_t cap, void *user, struct den_err *err);
/* Waits, but not deaf to signals; a status other than 0 is DEN_INTERNAL, told with argv[0]'s
 * name. */
int helper_wait(struct helper *h, const char *name, struct den_err *err);
/* Ends it if it still runs. */
void helper_end(struct helper *h);
#define auto_helper __attribute__((cleanup(helper_end))) struct helper

/* The path of a program in PATH, else NULL; the caller frees it. */
char *helper_find(const char *name);
