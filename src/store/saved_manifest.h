#pragma once

#include "saved.h"

#define SAVED_MANIFEST "manifest"

int saved_manifest_write(int dirfd, const struct saved *v, struct den_err *err);
int saved_manifest_read(int dirfd, struct saved *v, struct den_err *err);
/* text is taken apart */
int saved_manifest_parse(char *text, struct saved *v, struct den_err *err);
void saved_about_host(struct saved_about *a); /* what is not set yet */
void saved_boot(char ret[static 37]); /* id of this boot of the host */

/* saved_pack.c: "" of a hash: none is known. Reads NAME or NAME.zst of dirfd. */
int saved_hash(int dirfd, const char *name, char ret[static 65], struct den_err *err);
int saved_pack(int dirfd, const char *name, struct den_err *err); /* NAME.zst beside it, on disk */
/* As `to` in the other directory; ret: hash of the content. At most `max` bytes. */
int saved_unpack(int dirfd, const char *name, int to_dir, const char *to, uint64_t max,
	char ret[static 65], struct den_err *err);
