/* The page's files, made part of the program when it was built (ui/embed.mjs, scripts/ui.sh). */
#pragma once

#include <stddef.h>

struct ui_asset {
	const char *name, *type;
	const char *etag; /* with its quotes */
	const unsigned char *gz;
	size_t gz_len, len; /* len: unpacked */
};
extern const struct ui_asset ui_assets[];
extern const size_t ui_n_assets;
extern const char ui_version[];	     /* hash of all: assets are at /ui/VERSION/NAME */
extern const char *const ui_missing; /* why there is no page in this program, and what to do; NULL: there is */
