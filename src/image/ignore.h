/* Patterns over paths, as .dockerignore and COPY use them. Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "err.h"

/* "*" and "?" and "[a-z]" within one part of a path, "**" for any number of parts. */
bool path_match(const char *pattern, const char *path);
bool path_is_pattern(const char *text);
/* "./a//b/../c" is "a/c"; "" for the top. NULL: it leads above it. The caller frees it. */
char *path_clean(const char *path);

/* The lines of a .dockerignore: the last one that matches a path, or a directory above it,
 * decides. */
struct ignore {
	char **patterns; /* cleaned; an exception starts with '!' */
	bool exceptions;
};
int ignore_parse(const char *text, struct ignore *ret, struct den_err *err);
bool ignore_has(const struct ignore *i, const char *path);
void ignore_free(struct ignore *i);
