#include "text_diff.h"

#include <limits.h>
#include <stdbool.h>
#include <string.h>
#include <sys/random.h>

#include "mem.h"

#define COST_MAX 1024	       /* differences until a box is divided wherever it went best */
#define STEPS_MAX 400000000LL  /* of one text_diff(): about a second */
#define NONE (INT32_MIN / 2)   /* no path ends on this diagonal */
#define COMPACT_ROUNDS 8

/* ---- lines ----------------------------------------------------------------------------------- */

size_t text_count(const char *p, size_t len)
{
	size_t n = 0;

	for (const char *end = p + len; p < end; n++) {
		const char *nl = memchr(p, '\n', (size_t)(end - p));

		p = nl ? nl + 1 : end;
	}
	return n;
}

void text_split(const char *p, size_t len, struct text_lines *ret)
{
	const char *q = p, *end = p + len;
	size_t n = text_count(p, len);

	*ret = (struct text_lines){ .p = p, .n = n };
	ret->at = mem_alloc((n + 1) * sizeof(*ret->at));
	ret->id = mem_zalloc((n + 1) * sizeof(*ret->id));
	for (size_t i = 0; i < n; i++) {
		const char *nl = memchr(q, '\n', (size_t)(end - q));

		ret->at[i] = (uint32_t)(q - p);
		q = nl ? nl + 1 : end;
	}
	ret->at[n] = (uint32_t)len;
}

void text_lines_free(struct text_lines *t)
{
	free(t->at);
	free(t->id);
	*t = (struct text_lines){ 0 };
}

struct slot {
	const char *p;
	uint32_t len, id;
	uint64_t hash;
};

/* Keyed, so that nobody can write a text whose lines all meet in one slot. */
static uint64_t line_hash(const char *p, size_t n, const uint64_t key[2])
{
	uint64_t h = key[0] ^ n;

	for (; n >= 8; p += 8, n -= 8) {
		uint64_t v;
		__uint128_t m;

		memcpy(&v, p, 8);
		m = (__uint128_t)(h ^ v) * (key[1] | 1);
		h = (uint64_t)m ^ (uint64_t)(m >> 64);
	}
	for (; n; p++, n--) {
		__uint128_t m = (__uint128_t)(h ^ (unsigned char)*p) * (key[1] | 1);

		h = (uint64_t)m ^ (uint64_t)(m >> 64);
	}
	return h ^ h >> 29;
}

void text_number(struct text_lines *const *texts, size_t n)
{
	uint64_t key[2] = { 0x9e3779b97f4a7c15ULL, 0xd1b54a32d192ed03ULL };
	size_t lines = 0, cap = 16;
	uint32_t next = 1;
	auto_free struct slot *table = NULL;

	if (getrandom(key, sizeof(key), GRND_NONBLOCK) < 0)
		key[0] ^= (uintptr_t)&cap;
	for (size_t t = 0; t < n; t++)
		lines += texts[t]->n;
	while (cap < lines * 2)
		cap *= 2;
	table = mem_zalloc(cap * sizeof(*table));
	for (size_t t = 0; t < n; t++)
		for (size_t i = 0; i < texts[t]->n; i++) {
			const char *p = texts[t]->p + texts[t]->at[i];
			uint32_t len = texts[t]->at[i + 1] - texts[t]->at[i];
			uint64_t h = line_hash(p, len, key);
			size_t at = h & (cap - 1);

			while (table[at].id && (table[at].hash != h || table[at].len != len ||
						memcmp(table[at].p, p, len) != 0))
				at = (at + 1) & (cap - 1);
			if (!table[at].id)
				table[at] = (struct slot){
					.p = p, .len = len, .id = next++, .hash = h
				};
			texts[t]->id[i] = table[at].id;
		}
}

/* ---- the search ------------------------------------------------------------------------------ */

struct side {
	const uint32_t *id;
	bool *changed;	/* a line of the text, each */
	uint32_t *seq;	/* ids of the lines that the other text has, too */
	uint32_t *line; /* where they are */
	size_t n;
};

struct box {
	int32_t a0, a1, b0, b1;
};

struct search {
	struct side a, b;
	int32_t *forward, *backward; /* by diagonal */
	long long steps;
	struct box *todo;
	size_t n_todo, cap_todo;
};

static void box_push(struct search *s, struct box box)
{
	if (s->n_todo == s->cap_todo) {
		s->cap_todo = s->cap_todo ? s->cap_todo * 2 : 64;
		s->todo = mem_realloc(s->todo, s->cap_todo * sizeof(*s->todo));
	}
	s->todo[s->n_todo++] = box;
}

static void box_replace(struct search *s, const struct box *x)
{
	for (int32_t i = x->a0; i < x->a1; i++)
		s->a.changed[s->a.line[i]] = true;
	for (int32_t i = x->b0; i < x->b1; i++)
		s->b.changed[s->b.line[i]] = true;
}

static void box_trim(const struct search *s, struct box *x)
{
	while (x->a0 < x->a1 && x->b0 < x->b1 && s->a.seq[x->a0] == s->b.seq[x->b0]) {
		x->a0++;
		x->b0++;
	}
	while (x->a0 < x->a1 && x->b0 < x->b1 && s->a.seq[x->a1 - 1] == s->b.seq[x->b1 - 1]) {
		x->a1--;
		x->b1--;
	}
}

/* One way through a box: forward from its beginning, or backward from its end with all turned
 * round. v[k] is how far along a the best path with d differences on diagonal k got. */
struct way {
	const uint32_t *a, *b;
	int32_t n, m; /* lengths */
	int32_t dir;  /* 1 or -1 */
	int32_t *v;
};

static int32_t way_step(struct search *s, const struct way *w, int32_t k)
{
	int32_t right = w->v[k - 1], x = w->v[k + 1], y;

	if (x - k > w->m)
		x = NONE;
	if (right >= 0 && right < w->n && right + 1 > x)
		x = right + 1;
	if (x < 0) {
		w->v[k] = NONE;
		return NONE;
	}
	for (y = x - k; x < w->n && y < w->m && w->a[x * w->dir] == w->b[y * w->dir]; s->steps++) {
		x++;
		y++;
	}
	w->v[k] = x;
	return x;
}

/* The bounds of the diagonals for d differences, inside the box. */
static int32_t first_k(const struct way *w, int32_t d)
{
	return d <= w->m ? -d : -w->m + ((d - w->m) & 1);
}

static int32_t last_k(const struct way *w, int32_t d)
{
	return d <= w->n ? d : w->n - ((d - w->n) & 1);
}

/* Too many differences: where the way forward got furthest is a good place, too. */
static void best_place(const struct way *f, int32_t d, int32_t *ret_x, int32_t *ret_y)
{
	int32_t best = -1;

	for (int32_t k = first_k(f, d); k <= last_k(f, d); k += 2)
		if (f->v[k] >= 0 && 2 * f->v[k] - k > best) {
			best = 2 * f->v[k] - k;
			*ret_x = f->v[k];
			*ret_y = f->v[k] - k;
		}
}

/* A point that a shortest path through the box goes through. */
static void box_middle(struct search *s, const struct box *box, int32_t *ret_x, int32_t *ret_y)
{
	int32_t n = box->a1 - box->a0, m = box->b1 - box->b0, delta = n - m;
	struct way f = { s->a.seq + box->a0, s->b.seq + box->b0, n, m, 1, s->forward + m + 1 };
	struct way b = { s->a.seq + box->a1 - 1, s->b.seq + box->b1 - 1, n, m, -1,
		s->backward + m + 1 };

	for (int32_t k = -m - 1; k <= n + 1; k++)
		f.v[k] = b.v[k] = NONE;
	f.v[1] = b.v[1] = 0; /* a step down onto diagonal 0 */
	for (int32_t d = 0;; d++) {
		for (int32_t k = first_k(&f, d); k <= last_k(&f, d); k += 2, s->steps++) {
			int32_t x = way_step(s, &f, k), other = delta - k;

			if (delta & 1 && x >= 0 && other >= -(d - 1) && other <= d - 1 &&
				other >= -m && other <= n && x + b.v[other] >= n) {
				*ret_x = x;
				*ret_y = x - k;
				return;
			}
		}
		for (int32_t k = first_k(&b, d); k <= last_k(&b, d); k += 2, s->steps++) {
			int32_t x = way_step(s, &b, k), other = delta - k;

			if (!(delta & 1) && x >= 0 && other >= -d && other <= d && other >= -m &&
				other <= n && x + f.v[other] >= n) {
				*ret_x = n - x;
				*ret_y = m - (x - k);
				return;
			}
		}
		if (d >= COST_MAX || s->steps > STEPS_MAX) {
			best_place(&f, d, ret_x, ret_y);
			return;
		}
	}
}

static void search_run(struct search *s)
{
	while (s->n_todo) {
		struct box x = s->todo[--s->n_todo];
		int32_t dx = 0, dy = 0;

		box_trim(s, &x);
		if (x.a0 == x.a1 || x.b0 == x.b1 || s->steps > STEPS_MAX) {
			box_replace(s, &x);
			continue;
		}
		box_middle(s, &x, &dx, &dy);
		if (dx + dy <= 0 || dx + dy >= x.a1 - x.a0 + x.b1 - x.b0) {
			box_replace(s, &x);
			continue;
		}
		box_push(s, (struct box){ x.a0 + dx, x.a1, x.b0 + dy, x.b1 });
		box_push(s, (struct box){ x.a0, x.a0 + dx, x.b0, x.b0 + dy });
	}
}

/* A line that the other text does not have is changed, without any search. */
static void side_set(struct side *s, const struct text_lines *t, const bool *known)
{
	s->id = t->id;
	s->changed = mem_zalloc(t->n + 1);
	s->seq = mem_alloc((t->n + 1) * sizeof(*s->seq));
	s->line = mem_alloc((t->n + 1) * sizeof(*s->line));
	for (size_t i = 0; i < t->n; i++) {
		if (!known[t->id[i]]) {
			s->changed[i] = true;
			continue;
		}
		s->seq[s->n] = t->id[i];
		s->line[s->n++] = (uint32_t)i;
	}
}

static bool *ids_of(const struct text_lines *t, uint32_t max)
{
	bool *known = mem_zalloc((size_t)max + 1);

	for (size_t i = 0; i < t->n; i++)
		known[t->id[i]] = true;
	return known;
}

static uint32_t id_max(const struct text_lines *t, uint32_t max)
{
	for (size_t i = 0; i < t->n; i++)
		max = MAX(max, t->id[i]);
	return max;
}

/* ---- groups ---------------------------------------------------------------------------------- */

/* gap[u]: are there changed lines before the u-th unchanged one? */
static bool *gaps_of(const bool *changed, size_t n)
{
	bool *gap = mem_zalloc(n + 2);
	size_t u = 0;

	for (size_t i = 0; i < n; i++) {
		if (changed[i])
			gap[u] = true;
		else
			u++;
	}
	return gap;
}

struct group {
	size_t from, to; /* changed lines */
	size_t before;	 /* unchanged lines before it */
};

static bool group_up(const struct side *s, struct group *g)
{
	if (!g->from || s->id[g->from - 1] != s->id[g->to - 1])
		return false;
	s->changed[--g->from] = true;
	s->changed[--g->to] = false;
	g->before--;
	while (g->from && s->changed[g->from - 1])
		g->from--;
	return true;
}

static bool group_down(const struct side *s, size_t n, struct group *g)
{
	if (g->to == n || s->id[g->from] != s->id[g->to])
		return false;
	s->changed[g->from++] = false;
	s->changed[g->to++] = true;
	g->before++;
	while (g->to < n && s->changed[g->to])
		g->to++;
	return true;
}

/*
 * Among equal lines it is arbitrary which of them changed. Groups of changed lines go down as far
 * as they can, growing together where they meet, unless on the way they can stand beside a group of
 * the other text: then the two are one change.
 */
static void side_compact(const struct side *s, size_t n, const bool *gap)
{
	size_t before = 0;

	for (size_t i = 0; i < n;) {
		struct group g = { .from = i, .to = i, .before = before };
		size_t beside = SIZE_MAX, size = 0;

		if (!s->changed[i]) {
			before++;
			i++;
			continue;
		}
		while (g.to < n && s->changed[g.to])
			g.to++;
		for (int round = 0; round < COMPACT_ROUNDS && size != g.to - g.from; round++) {
			size = g.to - g.from;
			while (group_up(s, &g))
				;
			beside = gap[g.before] ? g.before : SIZE_MAX;
			while (group_down(s, n, &g))
				if (gap[g.before])
					beside = g.before;
		}
		while (beside != SIZE_MAX && g.before > beside && group_up(s, &g))
			;
		before = g.before;
		i = g.to;
	}
}

static size_t hunks_of(const struct search *s, size_t n_a, size_t n_b, struct text_hunk **ret)
{
	size_t n = 0, cap = 0, i = 0, j = 0;

	*ret = NULL;
	while (i < n_a || j < n_b) {
		struct text_hunk h = { .a = i, .b = j };

		while (i < n_a && s->a.changed[i])
			i++;
		while (j < n_b && s->b.changed[j])
			j++;
		h.n_a = i - h.a;
		h.n_b = j - h.b;
		if (!h.n_a && !h.n_b) {
			i++;
			j++;
			continue;
		}
		if (n == cap) {
			cap = cap ? cap * 2 : 64;
			*ret = mem_realloc(*ret, cap * sizeof(**ret));
		}
		(*ret)[n++] = h;
	}
	return n;
}

static void side_free(struct side *s)
{
	free(s->changed);
	free(s->seq);
	free(s->line);
}

size_t text_diff(const struct text_lines *a, const struct text_lines *b, struct text_hunk **ret)
{
	uint32_t max = id_max(b, id_max(a, 0));
	auto_free bool *in_a = ids_of(a, max), *in_b = ids_of(b, max);
	struct search s = { 0 };
	size_t room, n;

	side_set(&s.a, a, in_b);
	side_set(&s.b, b, in_a);
	room = (s.a.n + s.b.n + 4) * sizeof(int32_t);
	s.forward = mem_alloc(room);
	s.backward = mem_alloc(room);
	box_push(&s, (struct box){ 0, (int32_t)s.a.n, 0, (int32_t)s.b.n });
	search_run(&s);
	for (int side = 0; side < 2; side++) {
		const struct side *one = side ? &s.b : &s.a, *other = side ? &s.a : &s.b;
		auto_free bool *gap = gaps_of(other->changed, side ? a->n : b->n);

		side_compact(one, side ? b->n : a->n, gap);
	}
	n = hunks_of(&s, a->n, b->n, ret);
	side_free(&s.a);
	side_free(&s.b);
	free(s.forward);
	free(s.backward);
	free(s.todo);
	return n;
}
