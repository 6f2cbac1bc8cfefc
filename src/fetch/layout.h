/*
 * An OCI image layout directory: oci-layout, index.json, blobs/sha256/HEX.
 *
 * Invariants
 *  1. A file blobs/sha256/HEX that we made had that digest when it got its name.
 *  2. What is not whole is called .part-...; an end at any moment leaves nothing else behind.
 *  3. index.json gets its name last, so a directory that has one has all that it points to.
 *  4. One process works in a directory at a time.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "buf.h"
#include "doc.h"

struct layout {
	int top, blobs; /* LAYOUTDIR, and blobs/sha256 in it */
};

/* Opens and locks it; with make also creates what is missing, for the owner uid:gid (-1: the
 * caller). */
int layout_open(
	struct layout *l, const char *path, bool make, uid_t uid, gid_t gid, struct den_err *err);
void layout_close(struct layout *l);

/* Is the blob there, with this size and this digest? Reads all of it, and gives a part its name
 * that is whole. 1, 0, or -1. */
int layout_has(const struct layout *l, const struct descriptor *d, struct den_err *err);
/* A blob for reading, of the size that the descriptor says. */
int layout_blob_open(
	const struct layout *l, const struct descriptor *d, int *ret, struct den_err *err);
/* A whole small one, digest checked. */
int layout_blob_read(
	const struct layout *l, const struct descriptor *d, struct buf *ret, struct den_err *err);
/* Stores a small one under its digest. */
int layout_blob_put(const struct layout *l, const struct digest *d, const void *p, size_t n,
	struct den_err *err);

/* What came of a blob so far; opened for reading and writing, created when it is not there. */
int layout_part_open(const struct layout *l, const struct digest *d, int *ret, struct den_err *err);
void layout_part_remove(const struct layout *l, const struct digest *d);
/* The digest was checked: the part becomes the blob. */
int layout_part_keep(const struct layout *l, const struct digest *d, struct den_err *err);

/* oci-layout and an index.json with this one image; ref_name "" for none. */
int layout_finish(const struct layout *l, const struct descriptor *image, const struct platform *p,
	const char *ref_name, struct den_err *err);
/* The one image of index.json. */
int layout_image(const struct layout *l, struct descriptor *ret, struct den_err *err);

/* Feeds a file from its beginning, `bytes` of it, to sum. */
int file_sum(int fd, uint64_t bytes, struct sha256 *sum, struct den_err *err);
