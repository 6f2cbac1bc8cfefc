/*
 * Theory of operation. One automaton looks for all spellings that are other bytes (reversed, hex,
 * base64), in any case. Spellings that can be mixed letter by letter (percent, \u00XX, bytes between) are
 * too many for that: they are undone, and the same automaton reads the stream twice, as it is (`raw`) and
 * undone (`clear`). As long as there is nothing to undo both are in the same state and it runs once; and
 * in state 0, which is nearly always, bytes are passed over by two at a time being no beginning.
 */
#include "canary.h"

#include <string.h>

#include "buf.h"
#include "encode.h"
#include "match.h"
#include "mem.h"
#include "strv.h"

struct canary {
	struct match *m;
	unsigned *owner; /* of each pattern: which placeholder */
	uint64_t stop[65536 / 64]; /* two bytes at which state 0 has to look closer */
};

struct spellings {
	char **text;
	unsigned *owner;
	unsigned n;
};

static void spelling_add(struct spellings *s, struct buf *b, unsigned owner)
{
	strv_addn(&s->text, b->p, b->len);
	s->owner = mem_realloc(s->owner, (s->n + 1) * sizeof(*s->owner));
	s->owner[s->n++] = owner;
	b->len = 0;
}

static void spellings_of(struct spellings *s, const char *p, unsigned owner)
{
	size_t n = strlen(p);
	auto_buf b = { 0 };

	buf_add(&b, p, n);
	spelling_add(s, &b, owner);
	if (n < CANARY_MIN)
		return;
	for (size_t i = n; i-- > 0;)
		buf_add(&b, &p[i], 1);
	spelling_add(s, &b, owner);
	encode_hex(&b, p, n);
	spelling_add(s, &b, owner);
	for (unsigned skip = 0; skip < 3; skip++) {
		encode_base64_inside(&b, p, n, skip, encode_base64_alphabet);
		spelling_add(s, &b, owner);
		encode_base64_inside(&b, p, n, skip, encode_base64url_alphabet);
		spelling_add(s, &b, owner);
	}
}

/* Bytes that the clear reading leaves out: line ends, and the zeros of UTF-16. */
static bool left_out(uint8_t b)
{
	return b == '\0' || b == '\r' || b == '\n';
}

static bool escape_may_begin(uint8_t a, uint8_t b)
{
	return (a == '%' && hex_digit((char)b) >= 0) ||
	       (a == '\\' && (b == 'u' || b == 'x' || b == '/'));
}

static void stops_fill(struct canary *c)
{
	for (unsigned two = 0; two < 65536; two++) {
		uint8_t a = (uint8_t)(two >> 8), b = (uint8_t)two;
		uint32_t one = match_step(c->m, 0, a);
		bool stop = escape_may_begin(a, b) || c->m->hit[one] >= 0;

		if (one)
			stop |= c->m->depth[match_step(c->m, one, b)] > 1 || left_out(b) ||
				b == '%' || b == '\\';
		if (stop)
			c->stop[two / 64] |= 1ULL << (two % 64);
	}
}

struct canary *canary_new(const char *const *placeholders, unsigned n)
{
	struct canary *c = mem_new(struct canary);
	struct spellings s = { 0 };
	auto_free struct match_pattern *p = NULL;

	for (unsigned i = 0; i < n; i++)
		spellings_of(&s, placeholders[i], i);
	p = mem_zalloc((s.n + 1) * sizeof(*p));
	for (unsigned i = 0; i < s.n; i++)
		p[i] = (struct match_pattern){ s.text[i], strlen(s.text[i]) };
	c->m = match_new(p, s.n, true);
	c->owner = s.owner;
	stops_fill(c);
	strv_free(s.text);
	return c;
}

void canary_free(struct canary *c)
{
	if (!c)
		return;
	match_free(c->m);
	free(c->owner);
	free(c);
}

enum escape { ESCAPE_MORE, ESCAPE_NONE, ESCAPE_WHOLE };

/* Are these bytes an escape, its beginning, or neither? */
static enum escape escape_look(const uint8_t *e, size_t n, uint8_t *ret)
{
	static const char *const forms[] = { "%hh", "\\u00hh", "\\xhh", "\\/" };

	for (unsigned f = 0; f < ARRAY_SIZE(forms); f++) {
		size_t i = 0;

		while (i < n &&
			(forms[f][i] == 'h' ? hex_digit((char)e[i]) >= 0 : e[i] == forms[f][i]))
			i++;
		if (i < n)
			continue;
		if (forms[f][n])
			return ESCAPE_MORE;
		*ret = n == 2 ? '/'
			      : (uint8_t)(hex_digit((char)e[n - 2]) << 4 |
					  hex_digit((char)e[n - 1]));
		return ESCAPE_WHOLE;
	}
	return ESCAPE_NONE;
}

/* A byte of the clear reading; true: a placeholder is complete. */
static bool clear_step(const struct canary *c, struct canary_scan *s, uint8_t b)
{
	if (left_out(b))
		return false;
	s->clear = match_step(c->m, s->clear, b);
	return c->m->hit[s->clear] >= 0;
}

static int canary_hit(const struct canary *c, struct canary_scan *s, uint32_t state)
{
	int owner = (int)c->owner[c->m->hit[state]];

	*s = (struct canary_scan){ 0 };
	return owner;
}

/*
 * A byte of the stream, for the clear reading. What an escape stands for may begin another one ("%2561"),
 * so it is read again; each such round is shorter than the one before. When the bytes turn out to be no
 * escape, the first counts as itself and the others are looked at anew.
 */
static bool clear_feed(const struct canary *c, struct canary_scan *s, uint8_t b)
{
	uint8_t todo[sizeof(s->esc) + 1] = { b };
	size_t n = 1;

	while (n) {
		uint8_t now = todo[0], byte;

		memmove(todo, todo + 1, --n);
		if (!s->esc_len && now != '%' && now != '\\') {
			if (clear_step(c, s, now))
				return true;
			continue;
		}
		s->esc[s->esc_len++] = now;
		switch (escape_look(s->esc, s->esc_len, &byte)) {
		case ESCAPE_MORE:
			continue;
		case ESCAPE_WHOLE:
			memmove(todo + 1, todo, n++);
			todo[0] = byte;
			s->esc_len = 0;
			continue;
		case ESCAPE_NONE:
			memmove(todo + s->esc_len - 1, todo, n);
			memcpy(todo, s->esc + 1, s->esc_len - 1U);
			n += s->esc_len - 1U;
			s->esc_len = 0;
			if (clear_step(c, s, s->esc[0]))
				return true;
		}
	}
	return false;
}

static size_t canary_skip(const struct canary *c, const uint8_t *p, size_t i, size_t n)
{
	unsigned two = p[i];

	for (; i + 1 < n; i++) {
		two = (two << 8 | p[i + 1]) & 0xffff;
		if (c->stop[two / 64] >> (two % 64) & 1)
			break;
	}
	return i;
}

int canary_feed(const struct canary *c, struct canary_scan *s, const char *p, size_t n)
{
	const uint8_t *b = (const uint8_t *)p;

	for (size_t i = 0; c && i < n; i++) {
		if (!s->apart) {
			if (!s->raw)
				i = canary_skip(c, b, i, n);
			if (b[i] != '%' && b[i] != '\\' && !left_out(b[i])) {
				s->raw = s->clear = match_step(c->m, s->raw, b[i]);
				if (c->m->hit[s->raw] >= 0)
					return canary_hit(c, s, s->raw);
				continue;
			}
		}
		s->raw = match_step(c->m, s->raw, b[i]);
		if (c->m->hit[s->raw] >= 0)
			return canary_hit(c, s, s->raw);
		if (clear_feed(c, s, b[i]))
			return canary_hit(c, s, s->clear);
		s->apart = s->esc_len || s->raw != s->clear;
	}
	return -1;
}

int canary_find(const struct canary *c, const char *p, size_t n)
{
	struct canary_scan s = { 0 };

	return canary_feed(c, &s, p, n);
}
