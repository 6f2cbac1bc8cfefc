/*
 * Replaces byte patterns in a stream. What is held back is only what may be the beginning of a pattern
 * (at most the longest one minus a byte), so a stream whose pieces end in anything else, a line of
 * server-sent events for example, passes whole at once: there is nothing to flush.
 *
 * Leftmost, then longest: of two patterns that begin at the same place the longer one counts.
 *
 * A pair that is `spelled` is found with any of its bytes written as an escape too (spell.h), and all of
 * that is replaced.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "buf.h"

struct swap;
struct swap_pair {
	const char *from;
	size_t from_len;
	const char *to;
	size_t to_len;
	bool spelled;
};

/* Copies the pairs. A pair with an empty `from` never hits. */
struct swap *swap_new(const struct swap_pair *pairs, unsigned n);
void swap_free(struct swap *s);
void swap_feed(struct swap *s, const char *p, size_t n, struct buf *out);
/*
 * For a stream whose pieces are messages that somebody waits for: gives out what is held if that is at most
 * max bytes. They stay the beginning of a pattern: if it is completed, what comes of it then is replaced,
 * and no more than those bytes were seen.
 */
void swap_release(struct swap *s, size_t max, struct buf *out);
/* The stream ended: gives out what was held. The object can be used for another stream then. */
void swap_end(struct swap *s, struct buf *out);
/* Forgets what is held and the hits: as new. */
void swap_reset(struct swap *s);
/* s is new, and goes on with the stream that old is in. */
void swap_follow(struct swap *s, struct swap *old);
/* How many times pair number i was replaced. */
unsigned swap_hits(const struct swap *s, unsigned i);
/* Bytes held back now. */
size_t swap_held(const struct swap *s);
/* True: nothing is held, all that was fed is out. */
static inline bool swap_flush_safe(const struct swap *s)
{
	return swap_held(s) == 0;
}
/* No replacement changes a length: what takes the place of longer spellings is filled up. */
bool swap_keeps_length(const struct swap *s);
