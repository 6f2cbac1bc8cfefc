#include "turnstile.h"

#include <unistd.h>

#define EACH 2 /* one of them waits for the disk */

static unsigned places(struct turnstile *t)
{
	long n;

	if (!t->places) {
		n = sysconf(_SC_NPROCESSORS_ONLN);
		t->places = EACH * (n > 0 ? (unsigned)n : 1);
	}
	return t->places;
}

void turnstile_enter(struct turnstile *t)
{
	uint64_t mine;

	pthread_mutex_lock(&t->lock);
	mine = t->tickets++;
	while (mine >= t->left + places(t)) /* those behind may have left before we woke */
		pthread_cond_wait(&t->moved, &t->lock);
	pthread_mutex_unlock(&t->lock);
}

void turnstile_leave(struct turnstile *t)
{
	pthread_mutex_lock(&t->lock);
	t->left++;
	pthread_cond_broadcast(&t->moved);
	pthread_mutex_unlock(&t->lock);
}
