/*
 * Three texts into one, by line.
 *
 * Changes of either side that touch the same lines of the base, or lines beside each other, are one
 * place: where both sides made the same of it, they agree; where not, it is a conflict. Between two
 * places there is at least one line that neither side changed.
 */
#include <stdlib.h>
#include <string.h>

#include "change_parts.h"
#include "mem.h"
#include "merge.h"
#include "text_diff.h"

enum { BASE, OURS, THEIRS };

struct merge3 {
	struct text_lines t[3];
	struct text_hunk *hunks[3]; /* from BASE to OURS, to THEIRS */
	size_t n[3], next[3];
	bool crlf;
	struct buf *out;
};

/* Lines of one text. */
struct span {
	const struct text_lines *t;
	size_t from, to;
};

static void span_put(const struct merge3 *m, struct span s)
{
	if (s.from < s.to)
		buf_add(m->out, s.t->p + s.t->at[s.from], s.t->at[s.to] - s.t->at[s.from]);
}

/* With line ends like those around it, and at the beginning of a line. */
static void marker_put(const struct merge3 *m, const char *text)
{
	const char *end = m->crlf ? "\r\n" : "\n";

	if (m->out->len && m->out->p[m->out->len - 1] != '\n')
		buf_addstr(m->out, end);
	buf_addf(m->out, "%s%s", text, end);
}

static bool spans_equal(struct span a, struct span b)
{
	return a.to - a.from == b.to - b.from &&
	       (a.from == a.to || !memcmp(a.t->id + a.from, b.t->id + b.from,
					  (a.to - a.from) * sizeof(*a.t->id)));
}

static void conflict_put(const struct merge3 *m, struct span ours, struct span theirs)
{
	struct span tail;

	/* What both begin and end with is not what they differ in. */
	while (ours.from < ours.to && theirs.from < theirs.to &&
		ours.t->id[ours.from] == theirs.t->id[theirs.from]) {
		span_put(m, (struct span){ ours.t, ours.from, ours.from + 1 });
		ours.from++;
		theirs.from++;
	}
	tail = (struct span){ ours.t, ours.to, ours.to };
	while (ours.from < ours.to && theirs.from < theirs.to &&
		ours.t->id[ours.to - 1] == theirs.t->id[theirs.to - 1]) {
		tail.from = --ours.to;
		theirs.to--;
	}
	marker_put(m, "<<<<<<< ours");
	span_put(m, ours);
	marker_put(m, "=======");
	span_put(m, theirs);
	marker_put(m, ">>>>>>> theirs");
	span_put(m, tail);
}

/* Where the lines [from, to) of the base are in a side, given the hunks that lie in them: before
 * the first and after the last of them, line follows line. */
static struct span side_span(const struct merge3 *m, int side, size_t first, size_t from, size_t to)
{
	const struct text_hunk *h = m->hunks[side];
	size_t last = m->next[side];
	struct span s = { .t = &m->t[side] };

	if (first == last) { /* none: only shifted by those before */
		size_t shift_a = first ? h[first - 1].a + h[first - 1].n_a : 0;
		size_t shift_b = first ? h[first - 1].b + h[first - 1].n_b : 0;

		s.from = from - shift_a + shift_b;
		s.to = to - shift_a + shift_b;
		return s;
	}
	s.from = h[first].b - (h[first].a - from);
	s.to = h[last - 1].b + h[last - 1].n_b + (to - (h[last - 1].a + h[last - 1].n_a));
	return s;
}

/* The next place: extends it by the hunks of both sides that touch it. */
static void place_find(struct merge3 *m, size_t *from, size_t *to)
{
	const struct text_hunk *o = m->hunks[OURS], *t = m->hunks[THEIRS];
	bool more = true;

	if (m->next[THEIRS] == m->n[THEIRS] ||
		(m->next[OURS] < m->n[OURS] && o[m->next[OURS]].a <= t[m->next[THEIRS]].a))
		*from = o[m->next[OURS]].a;
	else
		*from = t[m->next[THEIRS]].a;
	*to = *from;
	while (more) {
		more = false;
		for (int side = OURS; side <= THEIRS; side++)
			for (size_t *i = &m->next[side];
				*i < m->n[side] && m->hunks[side][*i].a <= *to; ++*i) {
				const struct text_hunk *h = &m->hunks[side][*i];

				*to = MAX(*to, h->a + h->n_a);
				more = true;
			}
	}
}

static int merge_run(struct merge3 *m)
{
	size_t done = 0; /* lines of the base */
	int conflicts = 0;

	while (m->next[OURS] < m->n[OURS] || m->next[THEIRS] < m->n[THEIRS]) {
		size_t o = m->next[OURS], t = m->next[THEIRS], from, to;
		struct span ours, theirs;

		place_find(m, &from, &to);
		span_put(m, (struct span){ &m->t[BASE], done, from });
		ours = side_span(m, OURS, o, from, to);
		theirs = side_span(m, THEIRS, t, from, to);
		if (t == m->next[THEIRS] || spans_equal(ours, theirs)) {
			span_put(m, ours);
		} else if (o == m->next[OURS]) {
			span_put(m, theirs);
		} else {
			conflict_put(m, ours, theirs);
			conflicts++;
		}
		done = to;
	}
	span_put(m, (struct span){ &m->t[BASE], done, m->t[BASE].n });
	return conflicts;
}

/* By the first line: a file has one kind of line ends, or nobody can say what it should have. */
static bool is_crlf(const struct text_lines *t)
{
	return t->n && t->at[1] >= 2 && t->p[t->at[1] - 1] == '\n' && t->p[t->at[1] - 2] == '\r';
}

int merge_text(const char *base, size_t n_base, const char *ours, size_t n_ours, const char *theirs,
	size_t n_theirs, struct buf *ret, struct den_err *err)
{
	struct merge3 m = { .out = ret };
	int conflicts;

	if (!text_is(base, n_base) || !text_is(ours, n_ours) || !text_is(theirs, n_theirs))
		return den_fail(
			err, DEN_UNSUPPORTED, 0, "not a text, or too large to be merged by line");
	text_split(base, n_base, &m.t[BASE]);
	text_split(ours, n_ours, &m.t[OURS]);
	text_split(theirs, n_theirs, &m.t[THEIRS]);
	text_number((struct text_lines *[]){ &m.t[BASE], &m.t[OURS], &m.t[THEIRS] }, 3);
	for (int side = OURS; side <= THEIRS; side++)
		m.n[side] = text_diff(&m.t[BASE], &m.t[side], &m.hunks[side]);
	m.crlf = is_crlf(&m.t[OURS]) && is_crlf(&m.t[THEIRS]);
	conflicts = merge_run(&m);
	for (int i = BASE; i <= THEIRS; i++) {
		text_lines_free(&m.t[i]);
		free(m.hunks[i]);
	}
	return conflicts ? 1 : 0;
}
