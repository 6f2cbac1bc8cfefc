/* Bytes that have to be read twice, or from anywhere: in a file without a name, gone with us. */
#pragma once

#include <stdint.h>

#include "den.h"

/* A new, empty one in $TMPDIR, else /var/tmp: it may be as large as an image. The descriptor, or
 * -1. */
int spool_new(struct den_err *err);
/* All of source goes to the end of fd. */
int spool_fill(int fd, den_source source, void *user, uint64_t *ret_len, struct den_err *err);
/* pread() of all n bytes; fewer is DEN_INVALID. */
int spool_read(int fd, uint64_t at, void *buf, size_t n, struct den_err *err);

/* A stretch of a file as a den_source; user is the struct stretch. */
struct stretch {
	int fd;
	uint64_t at, left;
};
ssize_t stretch_read(void *buf, size_t cap, void *user, struct den_err *err);
