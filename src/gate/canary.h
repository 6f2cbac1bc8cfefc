/*
 * Finds a box's placeholders in what goes out of it, also in disguise: any mix of upper and lower case,
 * reversed, hex, base64 (any alignment, both alphabets), with any of its letters percent-encoded or as
 * JSON's \u00XX, broken by line ends, or as UTF-16. What a program computes on purpose (encryption,
 * compression) cannot be found, and needs not be: a placeholder is worth nothing outside.
 *
 * struct canary is built once per box and shared; a stream has a struct canary_scan of its own.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct canary;

/* Copies. A placeholder of less than CANARY_MIN bytes would be found by chance: it is looked for as it
 * is alone, without its disguises. */
#define CANARY_MIN 12
struct canary *canary_new(const char *const *placeholders, unsigned n);
void canary_free(struct canary *c);

/* Zeroed: at the beginning of a stream. */
struct canary_scan {
	uint32_t raw, clear; /* states of the two readings: as is, and decoded */
	uint8_t esc[6]; /* bytes of an escape that is not complete yet */
	uint8_t esc_len;
	bool apart; /* the two readings differ */
};
/* Index of the placeholder whose last byte is in p, -1: none. Takes up where the last feed ended. c may
 * be NULL (no placeholders). After a hit the scan is at its beginning again. */
int canary_feed(const struct canary *c, struct canary_scan *s, const char *p, size_t n);
/* The same for one whole text. */
int canary_find(const struct canary *c, const char *p, size_t n);
