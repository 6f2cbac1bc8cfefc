/* The files of an image, by name: below a directory, or inside a tar archive without unpacking
 * it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"

struct archive;
/* Both take fd, also on failure. */
int archive_open_dir(int fd, struct archive **ret, struct den_err *err);
/* A tar archive, compressed or not, also from a pipe: then it is spooled, up to max bytes (0: any
 * number). */
int archive_open_tar(int fd, uint64_t max, struct archive **ret, struct den_err *err);
void archive_close(struct archive *a); /* NULL is allowed */

bool archive_is_dir(const struct archive *a);
/* It has what a root file system has at its top: etc, usr, bin. */
bool archive_is_root(const struct archive *a);
bool archive_has(struct archive *a, const char *name);
/* Where the bytes of a file are. own: *fd is the caller's to close. */
struct archive_file {
	int fd;
	bool own;
	uint64_t at, size;
};
int archive_file(
	struct archive *a, const char *name, struct archive_file *ret, struct den_err *err);
/* All of the archive itself, plain. */
int archive_whole(struct archive *a, struct archive_file *ret, struct den_err *err);
/* A small file; *ret has a NUL after the last byte. */
int archive_text(
	struct archive *a, const char *name, char **ret, size_t *ret_len, struct den_err *err);
