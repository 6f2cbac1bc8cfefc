#pragma once

#include "saved.h"

#define SAVED_MANIFEST "manifest"

int saved_manifest_write(int dirfd, const struct saved *v, struct den_err *err);
int saved_manifest_read(int dirfd, struct saved *v, struct den_err *err);
/* text is taken apart */
int saved_manifest_parse(char *text, struct saved *v, struct den_err *err);
void saved_about_host(struct saved_about *a); /* what is not set yet */
void saved_boot(char ret[static 37]); /* id of this boot of the host */

/* saved_pack.c: "" of a hash: none is known. */
int saved_hash(int dirfd, const char *name, char ret[static 65], struct den_err *err);
/* NAME.zst as `to` in the other directory; ret: hash of the content. At most `max` bytes. */
int saved_unpack(int dirfd, const char *name, int to_dir, const char *to, uint64_t max,
	char ret[static 65], struct den_err *err);

/* saved.c */
void saved_path(const struct box_id *id, const char *before, uint64_t n, char out[static 96]);
int saved_open_dir(int at, const char *path);
/* how: of flock(); 0: no lock. On failure the caller closes v. */
int saved_open_locked(struct store *s, const struct box_id *id, uint64_t n, int how, struct saved *v,
	struct den_err *err);
int saved_verify_plain(
	const struct saved *v, const struct saved_file *f, bool same_boot, struct den_err *err);

/* saved_remove.c: what was being read when it was removed, and what dead processes had unpacked. */
void saved_sweep_box(struct store *s, const struct box_id *id);
