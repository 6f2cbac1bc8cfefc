/* File descriptors: automatic closing, whole reads and writes, descriptors over sockets. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <unistd.h>

#include "err.h"

static inline void fd_closep(int *fd)
{
	if (*fd >= 0)
		close(*fd);
}
#define auto_fd __attribute__((cleanup(fd_closep))) int

static inline int fd_take(int *fd)
{
	int f = *fd;

	*fd = -1;
	return f;
}
/* Closes *fd if open and sets it to -1; keeps errno. */
void fd_close(int *fd);

int fd_write_all(int fd, const void *buf, size_t n, struct den_err *err);
/* The next bytes of a new, empty file. A chunk of nothing but zeros becomes a hole, so that a sparse file needs no
 * more room than where it came from; *hole then says that the size is not set yet: fd_end_sparse() does that. */
int fd_write_sparse(int fd, const void *buf, size_t n, bool *hole, struct den_err *err);
int fd_end_sparse(int fd, struct den_err *err);
/* Reads up to max bytes until end of file; more than max is DEN_LIMIT. *ret gets a NUL after the
 * last byte; *ret_len may be NULL. */
int fd_read_all(int fd, size_t max, char **ret, size_t *ret_len, struct den_err *err);
int fd_set_nonblock(int fd, bool on);
/* Moves fd to a number >= min, keeping close-on-exec; -1 on failure. Consumes fd. */
int fd_move_up(int fd, int min);
/* Closes every descriptor from `from` upward. */
void fd_close_from(int from);

/* Small files of /proc, /sys and cgroup, relative to dirfd (AT_FDCWD allowed). */
int file_write_at(int dirfd, const char *path, const char *text, struct den_err *err);
/* Reads at most cap-1 bytes into buf, strips one trailing newline. */
int file_read_at(int dirfd, const char *path, char *buf, size_t cap, struct den_err *err);
/* Creates or replaces path with text, through a temporary name and rename(). */
int file_replace_at(int dirfd, const char *path, const void *data, size_t n, mode_t mode,
	struct den_err *err);

/* Removes a tree below dirfd without following links or entering what is mounted in it.
 * Missing is not an error. */
int tree_remove_at(int dirfd, const char *name, struct den_err *err);
