/*
 * The directory that a build copies from.
 *
 * Nothing outside of it is ever opened: a source's own path may lead through links only as long as
 * they stay inside (openat2), and what lies below it is walked without following any. Links are
 * copied as links.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "den.h"
#include "ignore.h"

struct context {
	int fd;
	struct ignore ignore;
};
/* dockerfile: its FILE.dockerignore goes before DIR/.dockerignore. */
int context_open(const char *dir, const char *dockerfile, struct context *ret, struct den_err *err);
void context_close(struct context *c);

/* What a source names: a file or a directory. */
struct context_item {
	char *path; /* cleaned; "" is the top */
	bool dir;
	char *text; /* a heredoc: path is its name, and this is what is in it */
};
struct context_items {
	struct context_item *list;
	size_t n;
};
/* One source of COPY or ADD, which may be a pattern. Nothing found is DEN_NOT_FOUND. */
int context_find(const struct context *c, const char *source, struct context_items *add,
	struct den_err *err);
void context_add_text(struct context_items *add, const char *name, const char *text);
void context_items_free(struct context_items *i);
/* A file, for reading. */
int context_file(const struct context *c, const char *path, struct den_err *err);

/* Items as a tar stream: directories give what is in them, files their name. */
struct context_pack_opt {
	uint32_t uid, gid;
	int mode; /* for all of it; -1: as it is */
	const char *rename; /* the one file's new name; NULL: its own */
};
struct context_packer;
struct context_packer *context_packer_new(const struct context *c,
	const struct context_items *items, const struct context_pack_opt *opt);
/* A den_source; user is the packer. */
ssize_t context_packer_read(void *buf, size_t cap, void *user, struct den_err *err);
/* After the end: what was packed, without times. */
void context_packer_sum(struct context_packer *p, char ret[static 65]);
void context_packer_free(struct context_packer *p);
