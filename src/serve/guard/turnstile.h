/*
 * Lets a few in at a time. A hundred boxes made at once would each take as long as all of them together; one after
 * the other, half of them are done in half of the time, and those that are there can be used meanwhile.
 *
 * Each organisation has a queue of its own, in the order in which they came. A place that becomes free goes to the one
 * that has the fewest inside: whoever makes a hundred boxes delays themselves, and others by one box at most.
 */
#pragma once

#include <pthread.h>
#include <stdint.h>

struct stile_queue;

struct turnstile {
	pthread_mutex_t lock;
	pthread_cond_t moved;
	struct stile_queue *queues; /* of those that are inside or wait */
	uint64_t tickets;
	unsigned inside;
	unsigned places; /* 0: two for each processor */
};
#define TURNSTILE { .lock = PTHREAD_MUTEX_INITIALIZER, .moved = PTHREAD_COND_INITIALIZER }

void turnstile_enter(struct turnstile *t, const char *org);
void turnstile_leave(struct turnstile *t, const char *org); /* the same org */
