/* A Debian (or Ubuntu) as a template, made by mmdebstrap from the machine's own apt sources. */
#pragma once

#include "work.h"

struct debian_opt {
	const char *suite; /* NULL: this machine's */
	const char *packages; /* "a,b"; NULL: none besides the variant's */
	const char *variant; /* as mmdebstrap's; NULL: "minbase" */
	const char *name; /* NULL: "debian:SUITE", as /etc/os-release calls it */
};
int debian_template(const struct work *w, const struct debian_opt *opt, char **ret_id,
	char **ret_name, struct den_err *err);
