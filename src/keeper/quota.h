/*
 * How much disk the boxes of one owner may take together.
 *
 * A server gives each box an owner, and what that owner may have (box_spec.quota). Three things count:
 *   boxes      the limit of each box's files (--disk), whether they fill it or not
 *   images     what their programs take on disk, saved by full checkpoints, pauses, forks and bakes: blocks that
 *              are there, and what boxes and templates share once
 *   templates  the files of the owner's templates with programs (seeds), as blocks
 *
 * Whatever puts more on disk is refused before it begins, by what the programs have in memory, and once more when it
 * is there and known: then it is undone. It is the keeper that looks, so that a box which goes to disk by
 * itself, when it is idle, is held to it like one that a client asks for.
 */
#pragma once

#include "keeper.h"

struct quota_use {
	uint64_t boxes, images, templates;
};
int quota_use(struct store *s, const char *owner, struct quota_use *ret, struct den_err *err);
/* Is there room for so much more? DEN_LIMIT with EDQUOT; a box without a quota always has. */
int quota_room(struct keeper *k, uint64_t more, struct den_err *err);
/* About what its programs will take on disk. */
uint64_t quota_estimate(struct keeper *k);
/* What the files of a seed take. */
uint64_t quota_files(struct keeper *k);
int clerk_disk_use(
	struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err);
