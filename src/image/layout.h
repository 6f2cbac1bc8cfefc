/* Where an exported image goes: the files of a directory, or of a tar archive. Until
 * layout_finish() a file that was asked for is not there. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"

struct layout;
/* As export_template() says about dest. */
int layout_open(const char *dest, bool docker, struct layout **ret, struct den_err *err);
bool layout_is_dir(const struct layout *l);
/* name: "blobs/sha256/HEX". The first size bytes of fd. */
int layout_put_fd(struct layout *l, const char *name, int fd, uint64_t size, struct den_err *err);
int layout_put(struct layout *l, const char *name, const void *data, size_t n, struct den_err *err);
/* The index.json of a layout that was there before, NULL: none. The caller frees it. */
int layout_index(struct layout *l, char **ret, size_t *ret_len, struct den_err *err);
int layout_finish(struct layout *l, struct den_err *err);
void layout_free(struct layout *l); /* NULL is allowed; what was not finished is removed */
