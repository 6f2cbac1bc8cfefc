/* A tar stream on its way through, with other owners, modes or names. */
#pragma once

#include <stdint.h>

#include "den.h"

struct retar_opt {
	bool owner; /* all belongs to uid and gid */
	uint32_t uid, gid;
	int mode; /* for all but links; -1: as it is */
	const char *rename; /* the first part of every name becomes this; NULL: stays */
};
struct retar;
/* Reads from in what it gives. */
struct retar *retar_new(den_source in, void *user, const struct retar_opt *opt);
ssize_t retar_read(void *buf, size_t cap, void *user, struct den_err *err); /* a den_source */
void retar_free(struct retar *r); /* NULL is allowed */
