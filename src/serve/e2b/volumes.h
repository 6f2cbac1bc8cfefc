/* Volumes, between the files that know of them. */
#pragma once

#include "e2b_parts.h"

#define VOLUME_ID 20 /* "v" + 18 hexadecimal digits, and a NUL */
#define VOLUME_MOUNTS 16

struct volume_mounts {
	struct den_mount mounts[VOLUME_MOUNTS];
	char hosts[VOLUME_MOUNTS][32];
	size_t n;
};

/* volumes.c */
int volumes_id(
	const struct who *w, const char *ref, char ret[static VOLUME_ID], struct den_err *err);
int volumes_org(const char *id, char ret[static 33], struct den_err *err);
/* [{name, path}] for a box's spec; the paths are those of the JSON */
int volumes_mounts(
	const struct who *w, const json_t *asked, struct volume_mounts *ret, struct den_err *err);

/* volume_files.c */
int volume_empty(struct req *r, const char *id, struct den_err *err);
