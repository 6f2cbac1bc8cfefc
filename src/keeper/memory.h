/* What memory.c, memory_after.c and load.c share. */
#pragma once

#include "keeper.h"
#include "saved.h"

#define MEMORY_TELL_BYTES (256ULL << 20) /* what takes long enough to be told */

/* What images that are made now are of; saved_about_free() */
void memory_about(struct keeper *k, struct saved_about *a);
/* Can these be loaded here, for this box? */
int memory_fits(struct keeper *k, const struct saved *v, struct den_err *err);
/* The directory again, as a wall needs it that mounts it. */
int memory_dir(int dirfd, struct den_err *err);

/* lend.c: whoever asked makes a fork now, of the images in dirfd, whose memory is lent. Over when this returns. */
int memory_lend(struct client *c, uint64_t number, int dirfd, struct den_err *err);

/* ---- memory_after.c ---- */

#define FOR_FORK "for a fork" /* message of a checkpoint that nobody asked for */
/* Hashes, and compresses (pack), what was saved, beside the keeper. */
void memory_seal_later(struct keeper *k, uint64_t number, bool pack);
/* What was made by pausing or for forks, and is not the newest. */
void memory_drop_passing(struct keeper *k);
/* This client makes forks of those; made: for it alone. */
void memory_forks_of(struct client *c, uint64_t number, bool made);
