#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "test.h"
#include "turnstile.h"

#define THREADS 16

static struct turnstile stile = TURNSTILE;
static atomic_int inside, most, done;

static void *pass(void *arg)
{
	int now;

	(void)arg;
	for (int i = 0; i < 50; i++) {
		turnstile_enter(&stile);
		now = atomic_fetch_add(&inside, 1) + 1;
		for (int seen = atomic_load(&most); now > seen && !atomic_compare_exchange_weak(&most, &seen, now);)
			;
		usleep(50);
		atomic_fetch_sub(&inside, 1);
		turnstile_leave(&stile);
	}
	atomic_fetch_add(&done, 1);
	return NULL;
}

TEST(turnstile_lets_few_in_and_everybody_through)
{
	pthread_t t[THREADS];

	stile.places = 3;
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_create(&t[i], NULL, pass, NULL) == 0);
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_join(t[i], NULL) == 0);
	CHECK(done == THREADS);
	CHECK(inside == 0);
	CHECK(most > 1 && most <= 3);
}
