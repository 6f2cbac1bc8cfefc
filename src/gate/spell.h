/*
 * The ways in which a program writes a byte when it puts text into other text: %26, \u0026, \x26, \/ and the
 * like, &amp; &#38; &#x26;. Which bytes get one is each program's choice, so a text has too many spellings to
 * list: they are undone while it is read.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SPELL_LEVELS 2 /* text in text in text: so often are escapes undone at most */

/* Reads a byte; levels: 0 takes it as it is. Bytes that it took, 0: more are needed to know. end: there are
 * no more, what is no whole escape stands for itself. */
size_t spell_read(const char *p, size_t n, unsigned levels, bool end, uint8_t *ret);
/* May a and b be the first bytes of an escape? */
bool spell_begins(uint8_t a);
bool spell_begins_two(uint8_t a, uint8_t b);
