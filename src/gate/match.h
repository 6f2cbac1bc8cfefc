/*
 * Several byte patterns looked for at once (Aho-Corasick): one table look-up a byte, however many
 * patterns there are. A state stands for the longest beginning of any pattern that the bytes so far end
 * with; state 0 is none. The table is built once and never changes, so streams share it.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct match_pattern {
	const char *p;
	size_t len;
};

struct match {
	uint8_t class[256]; /* bytes that no pattern tells apart share a class */
	unsigned shift, width; /* a row of the table has 1 << shift entries */
	uint32_t *next; /* next[(state << shift) + class] */
	uint16_t *depth; /* how long the beginning is that a state stands for */
	int32_t *hit; /* the longest pattern that ends here; -1: none */
	unsigned n_states, n;
	size_t longest;
};

#define MATCH_PATTERN_MAX 16384 /* bytes; a longer pattern is a mistake of the caller */

/* fold: case of ASCII letters does not count. An empty pattern is never found. Copies what it needs. */
struct match *match_new(const struct match_pattern *p, unsigned n, bool fold);
void match_free(struct match *m);

static inline uint32_t match_step(const struct match *m, uint32_t state, uint8_t byte)
{
	return m->next[(state << m->shift) + m->class[byte]];
}
