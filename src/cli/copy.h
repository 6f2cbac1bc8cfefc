/*
 * Copying between the host and a box: where things go, and progress.
 *
 * As cp -r: a destination that is a directory is copied into, else it is the new name. A source
 * that ends in "/." means what is in it. Out of a box only regular files, directories and links
 * inside copied directories are made, below the one place that the user named, without setuid bits;
 * the box chooses none of the names above it.
 */
#pragma once

#include "cli.h"

/* One side of a copy. */
struct place {
	char *box; /* NULL: on the host */
	char *path; /* without slashes and "/." at its end */
	bool stream; /* "-": a tar stream on stdin or stdout */
	bool contents; /* ended in "/." (or is "/"): what is in it */
	bool slash; /* ended in a slash: has to be a directory */
};
void place_parse(const char *text, struct place *ret);
void place_free(struct place *p);
#define auto_place __attribute__((cleanup(place_free))) struct place
/* "/a/b" is "/a" and "b", "b" is "." and "b". -1 when the last part is no name, as ".." is none. */
int path_split(const char *path, char **dir, char **name, struct den_err *err);

/* A copy under way. */
struct copy {
	const struct args *args;
	struct den_box *box;
	struct den_file_opt opt;
	uint64_t bytes, skipped;
	int64_t start_ns, shown_ns;
	bool tty, shown;
	int status; /* not 0: leave with it (stdout was closed) */
};
void copy_progress(struct copy *c, size_t n);
void copy_progress_end(struct copy *c);

/* What the path names in the box, links followed; type "": nothing is there, and *err says so. */
struct box_file {
	char type[16];
	uint32_t mode;
	int64_t mtime_ns;
};
int box_file_stat(struct copy *c, const char *path, struct box_file *ret, struct den_err *err);

int copy_in(struct copy *c, const struct place *from, const struct place *to, struct den_err *err);
int copy_out(struct copy *c, const struct place *from, const struct place *to, struct den_err *err);
