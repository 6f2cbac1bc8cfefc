#include "ring.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "mem.h"

#define RING_MIN 4096

void ring_init(struct ring *r, size_t keep)
{
	*r = (struct ring){ .keep = MAX(keep, (size_t)RING_MIN) };
}

void ring_free(struct ring *r)
{
	if (r->p)
		munmap(r->p, r->cap);
	r->p = NULL;
	r->cap = 0;
	r->tail = r->head;
}

/* Mapped, not malloc()ed: it goes back to the system at once, and children do not get a copy. */
static void grow(struct ring *r, size_t cap)
{
	char *p = mmap(NULL, cap, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return; /* then fewer bytes are kept */
	madvise(p, cap, MADV_DONTFORK);
	for (uint64_t at = r->tail; at < r->head;) {
		const char *from = NULL;
		size_t n = ring_peek(r, at, &from);

		n = MIN(n, cap - (at & (cap - 1)));
		memcpy(p + (at & (cap - 1)), from, n);
		at += n;
	}
	if (r->p)
		munmap(r->p, r->cap);
	r->p = p;
	r->cap = cap;
}

ssize_t ring_fill(struct ring *r, int fd, size_t max)
{
	size_t used = (size_t)(r->head - r->tail), at, first;
	struct iovec iov[2];
	ssize_t n;

	/* Grow when the kept part is full: doubling, until it holds `keep`. */
	if (!r->cap || (used == r->cap && r->cap < r->keep))
		grow(r, r->cap ? r->cap * 2 : RING_MIN);
	if (!r->cap) {
		errno = ENOMEM;
		return -1;
	}
	if (used < r->cap && r->cap < r->keep)
		max = MIN(max, r->cap - used); /* rather grow than lose */
	max = MIN(max, r->cap);
	at = (size_t)(r->head & (r->cap - 1));
	first = MIN(max, r->cap - at);
	iov[0] = (struct iovec){ r->p + at, first };
	iov[1] = (struct iovec){ r->p, max - first };
	n = readv(fd, iov, max > first ? 2 : 1);
	if (n <= 0)
		return n;
	r->head += (uint64_t)n;
	if (r->head - r->tail > r->cap)
		r->tail = r->head - r->cap;
	return n;
}

size_t ring_peek(const struct ring *r, uint64_t at, const char **p)
{
	size_t off;

	if (at < r->tail || at >= r->head)
		return 0;
	off = (size_t)(at & (r->cap - 1));
	*p = r->p + off;
	return MIN(r->cap - off, (size_t)(r->head - at));
}
