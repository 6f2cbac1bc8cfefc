#include "match.h"

#include <string.h>

#include "mem.h"

static uint8_t fold_byte(uint8_t b, bool fold)
{
	return fold && b >= 'A' && b <= 'Z' ? (uint8_t)(b | 0x20) : b;
}

static size_t match_classes(struct match *m, const struct match_pattern *p, unsigned n, bool fold)
{
	size_t states = 1;
	unsigned classes = 1; /* class 0: in no pattern */

	for (unsigned i = 0; i < n; i++) {
		assert(p[i].len <= MATCH_PATTERN_MAX);
		states += p[i].len;
		m->longest = MAX(m->longest, p[i].len);
		for (size_t k = 0; k < p[i].len; k++) {
			uint8_t *c = &m->class[fold_byte((uint8_t)p[i].p[k], fold)];

			if (!*c)
				*c = (uint8_t)classes++;
		}
	}
	for (unsigned b = 0; b < 256 && fold; b++)
		m->class[b] = m->class[fold_byte((uint8_t)b, true)];
	while (1U << m->shift < classes)
		m->shift++;
	m->width = 1U << m->shift;
	return states;
}

/* The patterns as a tree: 0 in next[] means no edge yet, since no edge leads to the root. */
static void match_plant(struct match *m, const struct match_pattern *p, unsigned n)
{
	m->n_states = 1;
	for (unsigned i = 0; i < n; i++) {
		uint32_t state = 0;

		for (size_t k = 0; k < p[i].len; k++) {
			uint32_t *edge =
				&m->next[(state << m->shift) + m->class[(uint8_t)p[i].p[k]]];

			if (!*edge) {
				m->depth[m->n_states] = (uint16_t)(k + 1);
				*edge = m->n_states++;
			}
			state = *edge;
		}
		if (p[i].len && m->hit[state] < 0)
			m->hit[state] = (int32_t)i;
	}
}

/* Breadth first, so that the state to fall back to, which is shorter, is complete already. */
static void match_close(struct match *m)
{
	auto_free uint32_t *queue = mem_alloc(m->n_states * sizeof(*queue));
	auto_free uint32_t *back = mem_zalloc(m->n_states * sizeof(*back));
	unsigned head = 0, tail = 0;

	queue[tail++] = 0;
	while (head < tail) {
		uint32_t s = queue[head++];

		for (unsigned c = 0; c < m->width; c++) {
			uint32_t *edge = &m->next[(s << m->shift) + c];
			uint32_t other = s ? m->next[(back[s] << m->shift) + c] : 0;

			if (!*edge) {
				*edge = other;
				continue;
			}
			back[*edge] = other;
			if (m->hit[*edge] < 0)
				m->hit[*edge] = m->hit[other];
			queue[tail++] = *edge;
		}
	}
}

struct match *match_new(const struct match_pattern *p, unsigned n, bool fold)
{
	struct match *m = mem_new(struct match);
	size_t states = match_classes(m, p, n, fold);

	m->n = n;
	m->next = mem_zalloc((states << m->shift) * sizeof(*m->next));
	m->depth = mem_zalloc(states * sizeof(*m->depth));
	m->hit = mem_alloc(states * sizeof(*m->hit));
	memset(m->hit, 0xff, states * sizeof(*m->hit));
	match_plant(m, p, n);
	match_close(m);
	return m;
}

void match_free(struct match *m)
{
	if (!m)
		return;
	free(m->next);
	free(m->depth);
	free(m->hit);
	free(m);
}
