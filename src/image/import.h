/*
 * Images become templates.
 *
 * Each layer that is not here yet (by its diff-id) is unpacked inside a box of its own, so whatever
 * the archive does it does in there; then it becomes a template above the layers before it. Only
 * the last one gets the name: what is half done has none, and `den gc` takes it.
 */
#pragma once

#include "work.h"

/* bytes that an archive or a layer may unpack to, where the user does not say */
#define IMPORT_MAX (64ULL << 30)

struct import_opt {
	const char *name; /* NULL: the one that the image had */
	const char *ref; /* which image, where there are several */
	const char *platform; /* NULL: this machine's */
	uint64_t max; /* bytes of the archive and of each layer, unpacked; 0: IMPORT_MAX */
	const char *detail; /* for people; NULL: made up */
};

/* *ret_id, *ret_name: the caller frees them. path "-": standard input. */
int import_path(const struct work *w, const char *path, const struct import_opt *opt, char **ret_id,
	char **ret_name, struct den_err *err);
/* The plain tar of a root file system, as it comes; opt->name NULL: known by its id alone. */
int import_root(const struct work *w, den_source source, void *user, const struct import_opt *opt,
	char **ret_id, struct den_err *err);
