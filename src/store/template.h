/*
 * What a box starts from. A template is immutable once it has a version; a box keeps the version it
 * was made with, so that its own changes always lie above the same tree.
 *
 * There is one so far: "host", made from the host's own system directories without a download
 * (docs/decisions/0003-host-template.md says what goes in, what never does, and why).
 *
 *   templates/host-VERSION/trees    one line a tree: where TAB lower TAB lower ...
 *                         /root     the tree at "/": generated, with a copied, allow-listed /etc
 *                         /skel/X   what lies above the host's directory X: what is hidden of it
 *                                   and, without id-mapped mounts, its directories over again
 *                         /owners   who should own what, where the builder could not do it
 *                         /detail   for people
 *   templates/.tmp-*                half-built or half-removed: template_sweep() takes it away
 *   templates/.lock                 flock()ed by whoever builds or sweeps
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "err.h"

struct template_tree {
	char *at; /* "/", "/usr": in this order they are mounted */
	char **lowers; /* absolute host paths, topmost first; NULL-terminated */
};

struct template
{
	char *name;
	char *version; /* 16 hexadecimal digits */
	char *detail; /* for `den inspect`: what it is made of, one line a part */
	/* Lines "UID GID MODE PATH" to be applied inside the box at its first start, where it has a
	 * range of ids: ids of the box in decimal, mode in octal or "-" for a link (lchown() first,
	 * then chmod()), path without leading slash. NULL when the tree is owned right as it is. */
	char *owners_path;
	struct template_tree *trees;
	size_t n_trees;
};

typedef void (*template_progress)(const char *text, void *user);

/**
 * template_open() - the template called @name in the version that fits the host as it is now
 * @statefd:       the state directory, O_DIRECTORY
 * @state_path:    the same as an absolute path: the lowers are below it
 * @idmap:         lowers will be id-mapped mounts: trees hold ids of the box. Needs root
 * @have_id_range: without @idmap: the box will have more ids than one
 * @progress:      may be NULL; called with a text for people while a build takes over a second
 * @ret:           set on success; template_free()
 *
 * The first call builds (about a second), later ones cost a dozen stat calls and two small reads.
 * DEN_NOT_FOUND for an unknown name.
 */
int template_open(int statefd, const char *state_path, const char *name, bool idmap,
	bool have_id_range, template_progress progress, void *user, struct template *ret,
	struct den_err *err);
/* The very version a box was made with; never builds. DEN_NOT_FOUND when it is gone. */
int template_open_version(int statefd, const char *state_path, const char *name,
	const char *version, struct template *ret, struct den_err *err);
void template_free(struct template *t);
/* Another text when "host" would be made anew, for who has made something from it. */
void template_host_state(char ret[static 17]);

/* Is this version the ground of some box? */
typedef bool (*template_used)(const char *name, const char *version, void *user);
/* Removes what a killed builder left, and each version that no box uses and no template_open()
 * would choose now. While somebody builds it does nothing. *ret_removed may be NULL. */
int template_sweep(
	int statefd, template_used used, void *user, unsigned *ret_removed, struct den_err *err);
