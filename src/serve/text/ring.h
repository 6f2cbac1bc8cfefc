/* A bounded queue of bytes that grows as it is needed. */
#pragma once

#include <stddef.h>

struct ring {
	char *p;
	size_t cap, head, len, max; /* max: never more than this; set before the first use */
};

/* As many of n bytes as there is room for. Less than max without memory: then the caller waits, as when full. */
size_t ring_put(struct ring *r, const void *p, size_t n);
size_t ring_take(struct ring *r, void *p, size_t n);
void ring_trim(
	struct ring *r); /* for who is about to wait for long: an empty one gives its memory back */
void ring_free(struct ring *r);
