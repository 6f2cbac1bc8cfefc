/* Untrusted text becomes a type here; whoever holds one may put it into a path. */
#pragma once

#include <stdbool.h>

#include "err.h"

/* "b-" and 18 characters of [a-z2-7]. Only box_id_parse() and box_id_make() make one, so it may
 * stand in a path, a cgroup name or an nft set name. */
struct box_id {
	char s[21];
};
int box_id_parse(const char *text, struct box_id *ret, struct den_err *err);
int box_id_make(struct box_id *ret, struct den_err *err);
bool box_id_looks(const char *text);

/* [a-z0-9][a-z0-9._-]*, at most 63 characters, not shaped like an id. */
struct box_name {
	char s[64];
};
int box_name_parse(const char *text, struct box_name *ret, struct den_err *err);
