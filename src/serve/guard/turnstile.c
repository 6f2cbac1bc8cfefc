#include "turnstile.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mem.h"

#define EACH 2 /* one of them waits for the disk */

struct waiter {
	struct waiter *next;
	uint64_t ticket; /* who came first, over all queues */
	bool go;
};

struct stile_queue {
	struct stile_queue *next;
	char org[64];
	unsigned inside;
	struct waiter *first, **last;
};

static unsigned places(struct turnstile *t)
{
	long n;

	if (!t->places) {
		n = sysconf(_SC_NPROCESSORS_ONLN);
		t->places = EACH * (n > 0 ? (unsigned)n : 1);
	}
	return t->places;
}

static struct stile_queue *queue_of(struct turnstile *t, const char *org)
{
	struct stile_queue *q = t->queues;

	while (q && strncmp(q->org, org, sizeof(q->org) - 1))
		q = q->next;
	if (q)
		return q;
	q = mem_new(struct stile_queue);
	snprintf(q->org, sizeof(q->org), "%s", org);
	q->last = &q->first;
	q->next = t->queues;
	t->queues = q;
	return q;
}

/* The queue with the fewest inside; of equals, the one whose first came first. */
static struct stile_queue *whose_turn(struct turnstile *t)
{
	struct stile_queue *best = NULL;

	for (struct stile_queue *q = t->queues; q; q = q->next) {
		if (!q->first)
			continue;
		if (!best || q->inside < best->inside ||
			(q->inside == best->inside && q->first->ticket < best->first->ticket))
			best = q;
	}
	return best;
}

static void hand_out(struct turnstile *t)
{
	struct stile_queue *q;

	while (t->inside < places(t) && (q = whose_turn(t))) {
		struct waiter *w = q->first;

		q->first = w->next;
		if (!q->first)
			q->last = &q->first;
		q->inside++;
		t->inside++;
		w->go = true;
	}
}

void turnstile_enter(struct turnstile *t, const char *org)
{
	struct waiter w = { 0 };
	struct stile_queue *q;

	pthread_mutex_lock(&t->lock);
	q = queue_of(t, org);
	w.ticket = t->tickets++;
	*q->last = &w;
	q->last = &w.next;
	hand_out(t);
	while (!w.go)
		pthread_cond_wait(&t->moved, &t->lock);
	pthread_mutex_unlock(&t->lock);
}

void turnstile_leave(struct turnstile *t, const char *org)
{
	pthread_mutex_lock(&t->lock);
	queue_of(t, org)->inside--;
	t->inside--;
	hand_out(t);
	for (struct stile_queue **at = &t->queues; *at;) { /* those that have nobody any more */
		struct stile_queue *q = *at;

		if (q->inside || q->first) {
			at = &q->next;
			continue;
		}
		*at = q->next;
		free(q);
	}
	pthread_cond_broadcast(&t->moved);
	pthread_mutex_unlock(&t->lock);
}
