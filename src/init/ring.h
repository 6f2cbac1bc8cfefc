/*
 * The last bytes of one output stream, by absolute offset. It grows as needed up to `keep`, then
 * the oldest bytes go. Readers hold offsets of their own and are told by ring_tail() what is gone.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct ring {
	char *p;
	size_t cap, keep; /* cap is 0 or a power of two, at most keep rounded up */
	uint64_t head;	  /* bytes produced in all */
	uint64_t tail;	  /* offset of the oldest byte kept */
};

void ring_init(struct ring *r, size_t keep);
void ring_free(struct ring *r);
/* Reads at most max bytes from fd into it, dropping the oldest. Like read(2). */
ssize_t ring_fill(struct ring *r, int fd, size_t max);
/* The contiguous bytes at offset `at` (between tail and head): length, pointer in *p. */
size_t ring_peek(const struct ring *r, uint64_t at, const char **p);
