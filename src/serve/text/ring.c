#include "ring.h"

#include <stdlib.h>
#include <string.h>

#include "mem.h"

#define RING_FIRST 4096

static void copy_out(const struct ring *r, char *to, size_t n)
{
	size_t first = MIN(n, r->cap - r->head);

	memcpy(to, r->p + r->head, first);
	memcpy(to + first, r->p, n - first);
}

static void ring_grow(struct ring *r, size_t need)
{
	size_t cap = r->cap ? r->cap : RING_FIRST;
	char *p;

	while (cap < need && cap < r->max)
		cap *= 2;
	cap = MIN(cap, r->max);
	if (cap <= r->cap || !(p = malloc(cap)))
		return;
	if (r->len)
		copy_out(r, p, r->len);
	free(r->p);
	r->p = p;
	r->cap = cap;
	r->head = 0;
}

size_t ring_put(struct ring *r, const void *p, size_t n)
{
	size_t at, first;

	if (n > r->cap - r->len)
		ring_grow(r, r->len + n);
	n = MIN(n, r->cap - r->len);
	if (!n)
		return 0;
	at = (r->head + r->len) % r->cap;
	first = MIN(n, r->cap - at);
	memcpy(r->p + at, p, first);
	memcpy(r->p, (const char *)p + first, n - first);
	r->len += n;
	return n;
}

size_t ring_take(struct ring *r, void *p, size_t n)
{
	n = MIN(n, r->len);
	if (!n)
		return 0;
	copy_out(r, p, n);
	r->head = (r->head + n) % r->cap;
	r->len -= n;
	if (!r->len)
		r->head = 0;
	return n;
}

void ring_trim(struct ring *r)
{
	if (!r->len)
		ring_free(r);
}

void ring_free(struct ring *r)
{
	free(r->p);
	r->p = NULL;
	r->cap = r->head = r->len = 0;
}
