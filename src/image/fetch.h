/*
 * Images from and to registries, through the program den-fetch: it speaks with the network and
 * knows nothing of boxes, we know boxes and speak with nobody. Between the two is an OCI layout in
 * a cache directory, named by what is fetched, so that what was broken off goes on where it was.
 */
#pragma once

#include "export.h"
#include "import.h"
#include "work.h"

struct fetch_opt {
	const char *user, *auth, *ca; /* NULL: none */
	const char *platform;
	bool password_stdin, plain_http;
};
/* import->name NULL: what ref is called, without its digest. */
int fetch_pull(const struct work *w, const char *ref, const struct fetch_opt *opt,
	const struct import_opt *import, char **ret_id, char **ret_name, struct den_err *err);
int fetch_push(const struct work *w, const char *template_ref, const char *ref,
	const struct fetch_opt *opt, enum export_pack pack, struct den_err *err);
