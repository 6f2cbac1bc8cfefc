/*
 * Templates that den knows how to make by itself: what E2B's clients ask for by name.
 *
 * A recipe is a script that runs in a box (share/builtin), carried inside the executable together with the
 * files that it puts there. It first tells which packages are missing; only when there are any does the
 * box get a way out, to the package mirrors and nowhere else.
 *
 * What was made says so in a label of its configuration, with a digest of all that went into it: so it is
 * known whether it is there, and whether it is up to date.
 */
#pragma once

#include "work.h"

#define BUILTIN_LABEL "den.builtin"
#define BUILTIN_LABEL_PACKAGES "den.builtin.packages"
#define BUILTIN_LABEL_WITH "den.builtin.with"
/* What is to run in a box of the template from its start on, and a command that succeeds once it is ready;
 * both for a shell, as the template's user. */
#define BUILTIN_LABEL_START "den.start"
#define BUILTIN_LABEL_READY "den.ready"
#define BUILTIN_LABEL_PORT "den.port" /* the port that it listens on then */

enum builtin_state {
	BUILTIN_MISSING,
	BUILTIN_BUILT,
	BUILTIN_OLD, /* made from something that has changed since */
	BUILTIN_OTHER, /* the name is somebody else's template */
};
const char *builtin_state_str(enum builtin_state s);

struct builtin_info {
	const char *name, *alias, *summary; /* alias NULL: none */
	enum builtin_state state;
	char *id; /* NULL: none */
};
/* All recipes. *ret: array of *n, builtin_infos_free(). */
int builtin_list(struct den *d, struct builtin_info **ret, size_t *n, struct den_err *err);
void builtin_infos_free(struct builtin_info *list, size_t n);

struct builtin_opt {
	const char *packages; /* "A,B" to install besides; NULL: those of the last time */
	const char
		*with; /* parts that are not there by themselves, "r,typescript"; NULL: the same */
	bool force; /* also when it is up to date; also when the name is somebody else's */
};
struct builtin_made {
	char *id;
	const char *name; /* static */
	bool made; /* false: it was there */
	char **warnings;
};
/* name: a recipe's or its alias. What it stands on is made first. The caller frees *ret with
 * builtin_made_free(). */
int builtin_make(const struct work *w, const char *name, const struct builtin_opt *opt,
	struct builtin_made *ret, struct den_err *err);
void builtin_made_free(struct builtin_made *m);
