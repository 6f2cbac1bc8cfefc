#pragma once

#include "envd.h"
#include "handlers.h"

json_t *v1_entry_json(const struct den_entry *e);

/*
 * Who says no user means the box's own: a path that does not begin with "/" is in his home, and what is made is his, also
 * where only root may make it. Everything else is done as root: a key of the box may reach all of it.
 */
struct v1_owner {
	struct den_box *box;
	struct envd e;
	struct person p;
	bool given; /* false: user was said, or is root anyway */
};
int v1_owner_of(struct den_box *box, const char *user, char **path, struct v1_owner *ret, struct den_err *err);
int v1_owner_write(struct v1_owner *o, const char *path, const struct den_file_opt *opt, den_source source, void *user,
	struct den_err *err);
int v1_owner_mkdir(struct v1_owner *o, const char *path, const struct den_file_opt *opt, struct den_err *err);
/* The path alone. */
int v1_home_path(struct den_box *box, const char *user, char **path, struct den_err *err);
