/* CRIU's images: what den changes in them, and reads from them. They lay on disk and hold what a box had in memory:
 * every length is checked. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "buf.h"
#include "err.h"

/* CRIU makes a namespace where a process has another than the one that saved it; by its numbers, which this makes
 * say: all but the pid namespace are where CRIU runs at load. */
int images_adopt(int dirfd, struct den_err *err);
/* How long nothing ran, by CRIU's own account. */
int64_t images_frozen_ns(int dirfd);

/* What den writes beside them. */
struct image_notes {
	char init_key[64];   /* what CRIU calls the program of process 1 */
	char init_file[128]; /* its name, beside the one of today */
	bool routes;	     /* sockets have addresses that are the box's by a route alone */
	bool ipc;	     /* CRIU makes the ipc namespace, too: something was in it */
	struct buf groups;   /* see groups.h */
};
int images_notes_write(int dirfd, const struct image_notes *n, struct den_err *err);
int images_notes_read(int dirfd, struct image_notes *ret, struct den_err *err);
