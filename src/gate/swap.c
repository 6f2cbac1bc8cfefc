/*
 * A place where a pattern may begin is found by its first two bytes; there the patterns are compared,
 * longest first. No automaton: a value may be thousands of bytes long, and each connection has its own.
 */
#include "swap.h"

#include <stdint.h>
#include <string.h>

#include "mem.h"
#include "spell.h"

struct pair {
	char *from, *to;
	size_t from_len, to_len;
	bool spelled;
	unsigned hits;
	int next; /* of the same first byte, not longer; -1: none */
};

struct swap {
	struct pair *pairs;
	unsigned n;
	bool spelled; /* any of them */
	bool same; /* no replacement changes a length */
	int first[256]; /* the longest pair that begins with this byte; -1 */
	uint64_t two[65536 / 64]; /* first two bytes, the earlier one in the high half */
	struct buf held;
	size_t released; /* bytes at its front that are out already */
};

static void swap_link(struct swap *s, unsigned i)
{
	struct pair *p = &s->pairs[i];
	uint8_t b = (uint8_t)p->from[0];
	int *at = &s->first[b];

	while (*at >= 0 && s->pairs[*at].from_len >= p->from_len)
		at = &s->pairs[*at].next;
	p->next = *at;
	*at = (int)i;
	for (unsigned c = 0; c < 256; c++) {
		unsigned two = (unsigned)b << 8 | c;

		if (p->from_len == 1 || (uint8_t)p->from[1] == c ||
			(p->spelled && (spell_begins((uint8_t)c) || (c == '+' && p->from[1] == ' '))))
			s->two[two / 64] |= 1ULL << (two % 64);
	}
}

/* Any pattern may begin with an escape. */
static void swap_link_escapes(struct swap *s)
{
	s->spelled = true;
	for (unsigned two = 0; two < 65536; two++)
		if (spell_begins_two((uint8_t)(two >> 8), (uint8_t)two))
			s->two[two / 64] |= 1ULL << (two % 64);
}

static char *bytes_copy(const char *p, size_t n)
{
	char *c = mem_alloc(n + 1);

	if (n)
		memcpy(c, p, n);
	return c;
}

struct swap *swap_new(const struct swap_pair *pairs, unsigned n)
{
	struct swap *s = mem_new(struct swap);

	s->n = n;
	s->same = true;
	s->pairs = mem_zalloc((n + 1) * sizeof(*s->pairs));
	memset(s->first, 0xff, sizeof(s->first));
	for (unsigned i = 0; i < n; i++) {
		s->pairs[i].from = bytes_copy(pairs[i].from, pairs[i].from_len);
		s->pairs[i].from_len = pairs[i].from_len;
		s->pairs[i].to = bytes_copy(pairs[i].to, pairs[i].to_len);
		s->pairs[i].to_len = pairs[i].to_len;
		s->pairs[i].spelled = pairs[i].spelled;
		s->same &= !pairs[i].from_len || pairs[i].from_len == pairs[i].to_len;
		if (pairs[i].from_len)
			swap_link(s, i);
		if (pairs[i].from_len && pairs[i].spelled && !s->spelled)
			swap_link_escapes(s);
	}
	return s;
}

void swap_free(struct swap *s)
{
	if (!s)
		return;
	for (unsigned i = 0; i < s->n; i++) {
		explicit_bzero(s->pairs[i].from, s->pairs[i].from_len);
		explicit_bzero(s->pairs[i].to, s->pairs[i].to_len);
		free(s->pairs[i].from);
		free(s->pairs[i].to);
	}
	if (s->held.cap)
		explicit_bzero(s->held.p, s->held.cap);
	buf_free(&s->held);
	free(s->pairs);
	free(s);
}

static size_t swap_skip(const struct swap *s, const char *p, size_t i, size_t n)
{
	for (; i + 1 < n; i++) {
		unsigned two = (unsigned)(uint8_t)p[i] << 8 | (uint8_t)p[i + 1];

		if (s->two[two / 64] >> (two % 64) & 1)
			return i;
	}
	if (i + 1 == n && s->first[(uint8_t)p[i]] < 0 && !(s->spelled && spell_begins((uint8_t)p[i])))
		i++;
	return i;
}

/* What stands at a place. */
struct sight {
	struct pair *pair; /* NULL: nothing */
	size_t len; /* of its spelling there */
	bool more; /* it may be there when more bytes have come */
};

/* The length of the pair's spelling at p, 0: it is not there. *more: perhaps it will be. */
static size_t pair_read(const struct pair *pair, const char *p, size_t n, unsigned level, bool end, bool *more)
{
	size_t at = 0;

	*more = false;
	if (!level) {
		if (memcmp(pair->from, p, MIN(n, pair->from_len)) != 0)
			return 0;
		*more = n < pair->from_len && !end;
		return n < pair->from_len ? 0 : pair->from_len;
	}
	for (size_t i = 0; i < pair->from_len; i++) {
		size_t len = 0;
		bool same = false;

		for (unsigned l = level + 1; l-- > 0 && !same;) {
			uint8_t b = 0;

			len = spell_read(p + at, n - at, l, end, &b);
			if (!len) {
				*more = !end;
				return 0;
			}
			same = b == (uint8_t)pair->from[i] || (b == '+' && pair->from[i] == ' ');
		}
		if (!same)
			return 0;
		at += len;
	}
	return at;
}

/* Looks on with so many levels of escapes for a longer pair than the one in *s. */
static void swap_at_level(
	struct swap *w, const char *p, size_t n, unsigned level, bool end, struct sight *s)
{
	uint8_t b = 0;

	if (!spell_read(p, n, level, end, &b)) {
		s->more |= !end;
		return;
	}
	for (int k = w->first[b]; k >= 0; k = w->pairs[k].next) {
		struct pair *pair = &w->pairs[k];
		size_t len;
		bool more;

		if (s->pair && pair->from_len <= s->pair->from_len)
			return;
		if (level && !pair->spelled)
			continue;
		len = pair_read(pair, p, n, level, end, &more);
		if (!len && !more)
			continue;
		*s = (struct sight){ pair, len, more };
		return;
	}
}

static struct sight swap_at(struct swap *w, const char *p, size_t n, bool end)
{
	struct sight s = { 0 };

	for (unsigned level = 0; level <= (w->spelled ? SPELL_LEVELS : 0); level++)
		swap_at_level(w, p, n, level, end, &s);
	return s;
}

static void swap_put(const struct swap *s, const char *p, size_t from, size_t to, struct buf *out)
{
	from = MAX(from, s->released);
	if (from < to)
		buf_add(out, p + from, to - from);
}

static void swap_replace(struct swap *s, const struct sight *at, struct buf *out)
{
	buf_add(out, at->pair->to, at->pair->to_len);
	for (size_t i = at->pair->from_len; s->same && i < at->len; i++)
		buf_addstr(out, "-");
	at->pair->hits++;
}

/* How many bytes at the end of p are left over: the possible beginning of a pattern. */
static size_t swap_run(struct swap *s, const char *p, size_t n, bool final, struct buf *out)
{
	size_t from = 0, i = 0;

	while ((i = swap_skip(s, p, i, n)) < n) {
		struct sight at = swap_at(s, p + i, n - i, final);

		if (at.more)
			break;
		if (!at.pair) {
			i++;
			continue;
		}
		swap_put(s, p, from, i, out);
		swap_replace(s, &at, out);
		i += at.len;
		from = i;
	}
	swap_put(s, p, from, i, out);
	s->released = s->released > i ? s->released - i : 0;
	return n - i;
}

void swap_feed(struct swap *s, const char *p, size_t n, struct buf *out)
{
	size_t left;

	if (!n)
		return;
	if (s->held.len) {
		buf_add(&s->held, p, n);
		left = swap_run(s, s->held.p, s->held.len, false, out);
		buf_consume(&s->held, s->held.len - left);
		return;
	}
	left = swap_run(s, p, n, false, out);
	buf_add(&s->held, p + n - left, left);
}

void swap_release(struct swap *s, size_t max, struct buf *out)
{
	if (s->held.len > max)
		return;
	swap_put(s, s->held.p, 0, s->held.len, out);
	s->released = s->held.len;
}

void swap_end(struct swap *s, struct buf *out)
{
	if (s->held.len)
		swap_run(s, s->held.p, s->held.len, true, out);
	s->held.len = s->released = 0;
}

void swap_reset(struct swap *s)
{
	s->held.len = s->released = 0;
	for (unsigned i = 0; i < s->n; i++)
		s->pairs[i].hits = 0;
}

unsigned swap_hits(const struct swap *s, unsigned i)
{
	return s->pairs[i].hits;
}

size_t swap_held(const struct swap *s)
{
	return s->held.len;
}

bool swap_keeps_length(const struct swap *s)
{
	return s->same;
}

void swap_follow(struct swap *s, struct swap *old)
{
	struct buf was = s->held;

	s->held = old->held;
	s->released = old->released;
	old->held = was;
	old->held.len = old->released = 0;
}
