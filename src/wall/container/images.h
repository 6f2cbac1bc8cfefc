/* CRIU's images: what den changes in them, and reads from them. They lay on disk and hold what a box had in memory:
 * every length is checked. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "err.h"

/* CRIU makes a namespace where a process has another than the one that saved it; by its numbers, which this makes
 * say: all but the pid namespace (and that of ipc, with `ipc`) are where CRIU runs at load. */
int images_adopt(int dirfd, bool ipc, struct den_err *err);
/* How long nothing ran, by CRIU's own account. */
int64_t images_frozen_ns(int dirfd);

/* A descriptor of a process, by the box's pid; id: what its file is called in the images. */
struct image_fd {
	int pid, fd;
	uint64_t id;
};
struct image_fds {
	struct image_fd *v;
	size_t n;
};
/* images_files.c: puts right what CRIU keeps wrongly; sems: which eventfds are semaphores. */
int images_mend(int dirfd, struct image_fds *sems, struct den_err *err);
/* The ids of a process; *ret is in *ret_all, to be freed. */
struct pb_field;
int images_ids(int dirfd, int pid, char **ret_all, struct pb_field *ret, struct den_err *err);

/* What den writes beside them. */
struct image_notes {
	char init_key[64];   /* what CRIU calls the program of process 1 */
	char init_file[128]; /* its name, beside the one of today */
	bool routes;	     /* sockets have addresses that are the box's by a route alone */
	bool ipc;	     /* CRIU makes the ipc namespace, too: something was in it */
	bool pages;	     /* there is memory that CRIU was told nothing of, see pages.h */
	struct buf groups;   /* see groups.h */
};
int images_notes_write(int dirfd, const struct image_notes *n, struct den_err *err);
int images_notes_read(int dirfd, struct image_notes *ret, struct den_err *err);
