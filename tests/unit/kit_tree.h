/* For tests of trees: made by hand or at random, read back the plain way, layers applied to them. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "buf.h"
#include "err.h"
#include "view.h"

/* Everything about one name that a change can be of. */
struct kit_node {
	char *path;
	char type;
	unsigned mode, uid, gid;
	char *data; /* content or target */
	size_t len;
	char *xattrs; /* sorted "name=value " */
};
struct kit_tree {
	struct kit_node *list; /* depth first, names in byte order */
	size_t n, cap;
};

int kit_dir(const char *fmt, ...) __attribute__((format(printf, 1, 2))); /* makes and opens it in test_dir() */
/* Parents are made. */
void kit_put(int root, const char *path, mode_t mode, const char *text);
void kit_mkdir(int root, const char *path, mode_t mode);
void kit_link(int root, const char *path, const char *target);
void kit_whiteout(int root, const char *path);
void kit_opaque(int root, const char *path, const char *value);

void kit_read(int root, struct kit_tree *ret);
void kit_free(struct kit_tree *t);
/* Lines "KIND WHAT PATH\n" of what differs, as changes_each() would tell it. */
void kit_compare(const struct kit_tree *a, const struct kit_tree *b, bool sockets, struct buf *out);
/* The same from changes_each(). */
void kit_changes(const struct view *a, const struct view *b, struct buf *out);
/* Applies a layer. */
void kit_apply(int root, const struct buf *tar);
/* "type path" a line, for a table of what a tar should hold. */
void kit_list(const struct buf *tar, struct buf *out);
int kit_sink(const void *p, size_t n, void *buf, struct den_err *err); /* user: a struct buf */

/* One random change below root, in at most three levels. */
void kit_scramble(int root, unsigned *seed);
unsigned kit_rand(unsigned *seed, unsigned n);
/* cp -a with everything. */
void kit_copy(const char *from, const char *to);
