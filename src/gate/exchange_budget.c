/*
 * What all exchanges of the gate keep at the same time. A box decides how many connections it makes and how
 * much it sends on each before any of it can go on, and the gate ends when it gets no memory: so whoever
 * would keep more than there is for all is refused. The counter is the process's, as its memory is.
 */
#include <string.h>

#include "exchange_parts.h"
#include "mem.h"

#define SMALL (16u << 10) /* always: a plain request passes while others keep all there is */

#define SPARE (4u << 10) /* an empty buffer of more goes back */

static size_t used_all;

size_t exchange_budget_used(void)
{
	return used_all;
}

void exchange_budget_count(size_t *counted, size_t now)
{
	used_all = used_all - *counted + now;
	*counted = now;
}

void budget_settle(struct exchange *x)
{
	struct buf *const v[] = { &x->in, &x->head, &x->hold, &x->piece, &x->meta, &x->up_in, &x->up_meta,
		&x->refusal };
	size_t now = 0;

	if (x->box == BOX_REFUSED || x->box == BOX_OVER) /* nothing of it goes anywhere */
		x->in.len = x->hold.len = x->head.len = 0;
	for (unsigned i = 0; i < ARRAY_SIZE(v); i++) {
		if (!v[i]->len && v[i]->cap > SPARE) {
			explicit_bzero(v[i]->p, v[i]->cap);
			buf_free(v[i]);
		}
		now += v[i]->cap;
	}
	exchange_budget_count(&x->counted, now);
}

bool budget_allows(const struct exchange *x, const struct buf *b, size_t more)
{
	size_t grows = b->len + more < b->cap ? 0 : MAX(b->len + more + 1, 2 * b->cap) - b->cap;

	return !grows || x->counted + grows <= SMALL || used_all + grows <= EXCHANGE_BUDGET;
}
