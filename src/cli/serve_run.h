/* den serve and den key: what was asked for, spelled out for den-serve. */
#pragma once

#include "cli.h"

/* Starts den-serve with argv (its own name first) instead of this program; returns only with an exit status of a
 * failure that was told. Takes argv, adds --state, --den and --json. */
int serve_run(const struct args *a, char **argv);
void serve_add(char ***argv, const char *option, const char *value); /* nothing when value is NULL */
void serve_add_u64(char ***argv, const char *option, uint64_t value, const char *unit); /* nothing when it is 0 */
