/* The machine's own apt sources, read as apt reads them: one-line files and deb822 files. Pure but
 * for apt_sources_load(). */
#pragma once

#include <stddef.h>

#include "err.h"

struct apt_source {
	char *uri, *suite, *components, *signed_by; /* signed_by: a file; NULL: none */
};
struct apt_sources {
	struct apt_source *list;
	size_t n;
};
/* Binary sources that are enabled are added; what is not understood is left out. */
void apt_sources_add_list(struct apt_sources *s, const char *text);
void apt_sources_add_deb822(struct apt_sources *s, const char *text);
int apt_sources_load(const char *dir, struct apt_sources *ret, struct den_err *err);
void apt_sources_free(struct apt_sources *s);

/* The lines "deb [signed-by=...] URI SUITE COMPONENTS" for a suite: those that the machine has for
 * its own (own: "bookworm", with bookworm-updates and the like), with the name of the suite put in.
 * NULL: none. A strv that the caller frees. */
char **apt_sources_lines(const struct apt_sources *s, const char *own, const char *suite);
