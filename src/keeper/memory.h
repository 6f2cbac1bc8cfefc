/* What memory.c and load.c share. */
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
