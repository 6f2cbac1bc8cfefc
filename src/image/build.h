/*
 * Templates from Dockerfiles.
 *
 * A step that changes files runs in a box made from what is there so far, and what the box then
 * holds becomes the next template. It is found again by the digest of what went into it (template
 * below, command, user, directory, environment, bytes that were copied) as "cache/HEX".
 */
#pragma once

#include "work.h"

struct build_opt {
	const char *dir; /* what is copied from */
	const char *file; /* NULL: DIR/Dockerfile */
	const char *name; /* NULL: known by its id alone */
	const char *target; /* the stage to end with; NULL: the last */
	char *const *args; /* "NAME=value", or "NAME" for the caller's own */
	bool no_cache;
};
int build_template(
	const struct work *w, const struct build_opt *opt, char **ret_id, struct den_err *err);
#define BUILD_CACHE "cache/"
