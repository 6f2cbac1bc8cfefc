/*
 * Lets a few in at a time, in the order in which they came. A hundred boxes made at once would each take as long as
 * all of them together; one after the other, half of them are done in half of the time, and those that are there can
 * be used meanwhile.
 */
#pragma once

#include <pthread.h>
#include <stdint.h>

struct turnstile {
	pthread_mutex_t lock;
	pthread_cond_t moved;
	uint64_t tickets, left; /* given out, given back */
	unsigned places;	/* 0: two for each processor */
};
#define TURNSTILE { .lock = PTHREAD_MUTEX_INITIALIZER, .moved = PTHREAD_COND_INITIALIZER }

void turnstile_enter(struct turnstile *t);
void turnstile_leave(struct turnstile *t);
