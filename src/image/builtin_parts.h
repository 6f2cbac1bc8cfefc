/* What builtin.c (which recipe, is it up to date) and builtin_box.c (in the box) share. */
#pragma once

#include "builtin.h"

/* The tar that builtin.sh made. */
extern const char den_builtin_tar[], den_builtin_tar_end[];

struct recipe {
	const char *name, *alias, *summary;
	const char *base; /* a recipe, or "host" */
	const char *script; /* in the tar's builtin/ */
	const char *start, *ready, *port; /* NULL: none */
};

/* Makes the files in the box, which is the caller's: words are the recipe's own, packages names for
 * apt-get. Warnings are added to *warnings; *root is set when there can be no other account. */
int recipe_run(const struct work *w, const struct recipe *r, struct den_box *box,
	char *const *words, char *const *packages, char ***warnings, bool *root,
	struct den_err *err);
