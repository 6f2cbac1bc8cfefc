/*
 * Compressed bytes become plain ones in a child that can do nothing else.
 *
 * The child has two pipes and no other descriptor, 256 MiB of addresses, no new privileges, and a
 * seccomp filter that lets it read, write, get memory and leave: a defect in a decompressor is
 * worth no more than wrong bytes, which the digest then tells. Bytes that are not compressed pass
 * through without a child.
 */
#pragma once

#include "den.h"

enum decompress_kind { DECOMPRESS_NONE, DECOMPRESS_GZIP, DECOMPRESS_ZSTD, DECOMPRESS_XZ };

struct decompress;
/* Looks at the first bytes of in to see what they are. max: so many bytes may come out, more is
 * DEN_LIMIT; 0: any number. */
int decompress_new(
	den_source in, void *user, uint64_t max, struct decompress **ret, struct den_err *err);
/* A den_source; user is the struct decompress. What is truncated or corrupt is an error, never a
 * short end. When it gave 0, `in` was read to its end. */
ssize_t decompress_read(void *buf, size_t cap, void *user, struct den_err *err);
enum decompress_kind decompress_kind(const struct decompress *d);
const char *decompress_name(enum decompress_kind kind); /* "gzip"; "" for none */
void decompress_free(struct decompress *d); /* NULL is allowed */

/* decompress_child.c: what the child does, from bytes on 0 to bytes on 1. Does not return. */
enum decompress_end {
	CHILD_OK,
	CHILD_CORRUPT,
	CHILD_TRUNCATED,
	CHILD_MEMORY,
	CHILD_IO,
	CHILD_SETUP
};
void decompress_child(enum decompress_kind kind) __attribute__((noreturn));
