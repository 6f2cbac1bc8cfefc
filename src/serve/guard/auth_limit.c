#include "auth_limit.h"

#include <math.h>
#include <pthread.h>
#include <stddef.h>

#include "clock.h"

#define ATTEMPTS 20	   /* wrong keys at once ... */
#define ATTEMPT_RATE 0.2   /* ... and then so many a second */
#define PEERS 4096	   /* remembered; more share a place, which can only be stricter */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct bucket peers[PEERS];

static double bucket_used(const struct bucket *b, double rate, int64_t now_ns)
{
	double left = b->used - (double)(now_ns - b->at) / NS_PER_SEC * rate;

	return b->at && left > 0 ? left : 0;
}

unsigned bucket_take(struct bucket *b, double rate, double room, int64_t now_ns)
{
	double used = bucket_used(b, rate, now_ns);

	if (used + 1 > room)
		return (unsigned)ceil((used + 1 - room) / rate);
	b->used = used + 1;
	b->at = now_ns;
	return 0;
}

bool limit_attempt(uint64_t peer)
{
	bool blocked;

	pthread_mutex_lock(&lock);
	blocked = bucket_take(&peers[peer % PEERS], ATTEMPT_RATE, ATTEMPTS, clock_mono_ns()) > 0;
	pthread_mutex_unlock(&lock);
	return blocked;
}

bool limit_blocked(uint64_t peer)
{
	bool blocked;

	pthread_mutex_lock(&lock);
	blocked = bucket_used(&peers[peer % PEERS], ATTEMPT_RATE, clock_mono_ns()) + 1 > ATTEMPTS;
	pthread_mutex_unlock(&lock);
	return blocked;
}
