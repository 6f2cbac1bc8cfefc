#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

#include "mem.h"
#include "test.h"
#include "turnstile.h"

#define THREADS 16

static struct turnstile stile = TURNSTILE;
static atomic_int inside, most, done;

static void *pass(void *arg)
{
	int now;

	for (int i = 0; i < 50; i++) {
		turnstile_enter(&stile, arg);
		now = atomic_fetch_add(&inside, 1) + 1;
		for (int seen = atomic_load(&most); now > seen && !atomic_compare_exchange_weak(&most, &seen, now);)
			;
		usleep(50);
		atomic_fetch_sub(&inside, 1);
		turnstile_leave(&stile, arg);
	}
	atomic_fetch_add(&done, 1);
	return NULL;
}

TEST(turnstile_lets_few_in_and_everybody_through)
{
	pthread_t t[THREADS];

	stile.places = 3;
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_create(&t[i], NULL, pass, i % 2 ? "one" : "two") == 0);
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_join(t[i], NULL) == 0);
	CHECK(done == THREADS);
	CHECK(inside == 0);
	CHECK(most > 1 && most <= 3);
}

static struct turnstile fair = TURNSTILE;
static atomic_int one_in, two_in;

static void *one_box(void *arg)
{
	turnstile_enter(&fair, "one");
	atomic_fetch_add(&one_in, 1);
	return arg;
}

static void *two_box(void *arg)
{
	turnstile_enter(&fair, "two");
	atomic_fetch_add(&two_in, 1);
	return arg;
}

static bool soon(const atomic_int *what, int want)
{
	for (int i = 0; i < 2000 && atomic_load(what) != want; i++)
		usleep(1000);
	return atomic_load(what) == want;
}

TEST(turnstile_of_one_organisation_delays_another_by_one_place)
{
	pthread_t t[10], two;

	fair.places = 2;
	for (int i = 0; i < 10; i++)
		CHECK(pthread_create(&t[i], NULL, one_box, NULL) == 0);
	CHECK(soon(&one_in, 2));
	CHECK(pthread_create(&two, NULL, two_box, NULL) == 0);
	usleep(20000);
	CHECK(two_in == 0);
	turnstile_leave(&fair, "one"); /* eight of "one" came before, and wait on */
	CHECK(soon(&two_in, 1));
	CHECK(one_in == 2);
	turnstile_leave(&fair, "two");
	for (int i = 0; i < 9; i++) {
		CHECK(soon(&one_in, MIN(i + 3, 10)));
		turnstile_leave(&fair, "one");
	}
	CHECK(pthread_join(two, NULL) == 0);
	for (int i = 0; i < 10; i++)
		CHECK(pthread_join(t[i], NULL) == 0);
	CHECK(fair.inside == 0 && !fair.queues);
}
