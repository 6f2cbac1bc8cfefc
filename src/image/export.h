/*
 * Templates become images that other tools take: an OCI layout, an archive of one, or what
 * `docker load` reads. The same template gives the same bytes.
 *
 * A template that stands alone keeps its layers; one that stands on the host's own system becomes
 * one layer with all of it.
 */
#pragma once

#include "work.h"

enum export_pack { EXPORT_GZIP, EXPORT_ZSTD, EXPORT_PLAIN };
int export_pack_parse(const char *text, enum export_pack *ret, struct den_err *err);

struct export_opt {
	enum export_pack pack;
	bool docker; /* a docker archive; its layers are plain */
	const char *ref; /* the name inside; NULL: the template's */
};

/* dest: "-" for standard output, "DIR/" or an existing directory for a layout, else a file, which
 * appears when it is complete. */
int export_template(const struct work *w, const char *template_ref, const char *dest,
	const struct export_opt *opt, struct den_err *err);
