/*
 * Which lines of a text became which of another.
 *
 * The texts are hostile: the work and the memory are bounded. A shortest difference is looked for
 * (Myers' divide and conquer, linear space); where that takes too long, a good place to divide is
 * taken for the best one, and in the end what is left counts as replaced as a whole.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct text_lines {
	const char *p;
	uint32_t *at; /* where each line begins; at[n]: the end */
	uint32_t *id; /* equal lines of the texts that were numbered together have the same */
	size_t n;
};

struct text_hunk {
	size_t a, n_a, b, n_b; /* lines [a, a + n_a) became [b, b + n_b) */
};

/* How many lines; the last one may lack its newline. */
size_t text_count(const char *p, size_t len);
/* len < 4 GiB. Borrows p. */
void text_split(const char *p, size_t len, struct text_lines *ret);
/* Gives the lines of all texts their numbers. */
void text_number(struct text_lines *const *texts, size_t n);
void text_lines_free(struct text_lines *t);
/* Hunks in order, never touching each other: an unchanged line is between. free() *ret. */
size_t text_diff(const struct text_lines *a, const struct text_lines *b, struct text_hunk **ret);
