#include "pins.h"

#include <string.h>
#include <sys/random.h>

#include "clock.h"
#include "mem.h"
#include "span.h"

#define BUCKETS 4096U
#define KEEP_NS (120 * NS_PER_SEC) /* longer than any answer of ours may be remembered */

struct pin {
	struct net_name name;
	unsigned index, held;
	int64_t used;
	struct pin *next; /* of the bucket */
};

struct pins {
	struct pin *bucket[BUCKETS];
	struct pin **block[SPAN_BLOCKS]; /* SPAN_BLOCK each, made when first needed */
	unsigned next[SPAN_BLOCKS];
	uint64_t seed;
};

struct pins *pins_new(void)
{
	struct pins *p = mem_new(struct pins);
	uint32_t r[SPAN_BLOCKS] = { 0 };

	(void)!getrandom(&p->seed, sizeof(p->seed), 0);
	(void)!getrandom(r, sizeof(r), 0);
	/* A gate that is started anew begins elsewhere: what the box remembers of the old one means nothing. */
	for (unsigned i = 0; i < SPAN_BLOCKS; i++)
		p->next[i] = r[i] % SPAN_BLOCK;
	return p;
}

static unsigned hash(const struct pins *p, const char *s)
{
	uint64_t h = p->seed ^ 0xcbf29ce484222325ULL;

	for (; *s; s++)
		h = (h ^ (unsigned char)*s) * 0x100000001b3ULL;
	return (unsigned)((h ^ h >> 29) % BUCKETS);
}

static void unlink_pin(struct pins *p, struct pin *x)
{
	struct pin **at = &p->bucket[hash(p, x->name.s)];

	while (*at != x)
		at = &(*at)->next;
	*at = x->next;
}

static struct pin *place(struct pins *p, unsigned block)
{
	struct pin *oldest = NULL;
	int64_t now = clock_mono_ns();

	if (!p->block[block])
		p->block[block] = mem_zalloc(sizeof(struct pin *) * SPAN_BLOCK);
	for (unsigned i = 0; i < SPAN_BLOCK; i++) {
		unsigned at = (p->next[block] + i) % SPAN_BLOCK;
		struct pin *x = p->block[block][at];

		if (!x) {
			p->next[block] = at + 1;
			x = p->block[block][at] = mem_new(struct pin);
			x->index = block * SPAN_BLOCK + at;
			return x;
		}
		if (x->held)
			continue;
		if (x->used + KEEP_NS < now) {
			oldest = x;
			p->next[block] = at + 1;
			break;
		}
		if (!oldest || x->used < oldest->used)
			oldest = x;
	}
	if (oldest)
		unlink_pin(p, oldest);
	return oldest;
}

unsigned pins_get(struct pins *p, const struct net_name *n, unsigned block)
{
	unsigned h = hash(p, n->s);
	struct pin *x;

	for (x = p->bucket[h]; x; x = x->next)
		if (x->index / SPAN_BLOCK == block && !strcmp(x->name.s, n->s))
			break;
	if (!x) {
		x = place(p, block);
		if (!x) /* 8,192 names, all of them connected: more than connections are allowed */
			return 0;
		x->name = *n;
		x->next = p->bucket[h];
		p->bucket[h] = x;
	}
	x->used = clock_mono_ns();
	return x->index;
}

static struct pin *find(struct pins *p, unsigned index)
{
	if (index / SPAN_BLOCK >= SPAN_BLOCKS || !p->block[index / SPAN_BLOCK])
		return NULL;
	return p->block[index / SPAN_BLOCK][index % SPAN_BLOCK];
}

const struct net_name *pins_name(struct pins *p, unsigned index)
{
	struct pin *x = find(p, index);

	if (!x)
		return NULL;
	x->used = clock_mono_ns();
	return &x->name;
}

void pins_hold(struct pins *p, unsigned index, int by)
{
	struct pin *x = find(p, index);

	if (x)
		x->held += (unsigned)by;
}
