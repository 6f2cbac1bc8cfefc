/* What keeps the index fresh: keepers tell, and a thread reads all of it now and then. */
#include <string.h>
#include <time.h>

#include "clock.h"
#include "engine.h"
#include "events.h"
#include "index_int.h"
#include "log.h"
#include "serve.h"

#define TICK_MS 2000
#define QUIET_MS 250
#define LATE_MS 3000
#define LATE_AGAIN_MS 30000
#define LEASE_LOOK_MS 300000
#define LEASES_AT_ONCE 64

static pthread_cond_t changed;
static bool wanted, ending; /* index_lock */
static pthread_t thread;

void index_wake(void)
{
	pthread_mutex_lock(&index_lock);
	wanted = true;
	pthread_cond_signal(&changed);
	pthread_mutex_unlock(&index_lock);
}

static void on_event(const char *kind, const char *org, const char *box_id, const json_t *data)
{
	bool left = !strcmp(kind, "box.paused") || !strcmp(kind, "box.stopped") || !strcmp(kind, "box.deleted");
	struct entry *e;
	bool known;

	(void)org;
	(void)data;
	if (!box_id || strncmp(kind, "box.", 4))
		return;
	pthread_mutex_lock(&index_lock);
	e = entry_find(box_id);
	known = e;
	if (e && !strcmp(kind, "box.deleted")) {
		entry_bury(box_id);
	} else if (e) {
		e->state = !strcmp(kind, "box.paused") ? PAUSED : !strcmp(kind, "box.stopped") ? STOPPED : RUNNING;
		e->seen = index_clock();
	}
	pthread_mutex_unlock(&index_lock);
	if (left)
		http_kick_box(box_id);
	if (!known && !left)
		index_wake();
}

/* The next box whose keeper has to be looked after; the lock is held. */
static struct entry *lease_due(void)
{
	int64_t now = clock_wall_ms(), mono = index_clock();

	for (size_t b = 0; b < INDEX_BUCKETS; b++)
		for (struct entry *e = index_table[b]; e; e = e->next) {
			bool late = e->expires_ms && e->expires_ms + LATE_MS < now;

			if (e->leased && e->state == RUNNING &&
				(!e->kept || mono - e->kept > (late ? LATE_AGAIN_MS : LEASE_LOOK_MS) * NS_PER_MS))
				return e;
		}
	return NULL;
}

/* Its keeper ends a box when its time is up. One that was killed cannot: opening the box starts another, which does
 * what is due. So each box with a lease is opened when this server first hears of it, when it is late, and now
 * and then. */
static void leases_look(struct den *d)
{
	for (int i = 0; i < LEASES_AT_ONCE; i++) {
		struct den_box *box;
		struct den_err err;
		struct entry *e;
		char id[21];

		pthread_mutex_lock(&index_lock);
		e = lease_due();
		if (e) {
			e->kept = index_clock();
			memcpy(id, e->id, sizeof(id));
		}
		pthread_mutex_unlock(&index_lock);
		if (!e)
			return;
		if (den_box_open(d, id, &box, &err) == 0)
			den_box_close(box);
	}
}

static void wait_for_change(int64_t ms)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	t.tv_sec += ms / 1000;
	t.tv_nsec += ms % 1000 * NS_PER_MS;
	if (t.tv_nsec >= NS_PER_SEC) {
		t.tv_sec++;
		t.tv_nsec -= NS_PER_SEC;
	}
	pthread_mutex_lock(&index_lock);
	while (!wanted && !ending && pthread_cond_timedwait(&changed, &index_lock, &t) == 0)
		;
	wanted = false;
	pthread_mutex_unlock(&index_lock);
}

static void *tick(void *user)
{
	struct den *d = user;
	struct den_err err;
	bool failed = false;

	while (!ending) {
		if (index_read_all(d, &err) < 0) {
			if (!failed)
				log_line("warn", "index", "boxes cannot be listed: %s", err.msg);
			failed = true;
		} else {
			failed = false;
			leases_look(d);
		}
		wait_for_change(TICK_MS);
		if (!ending) /* who makes a hundred boxes makes us look once */
			nanosleep(&(struct timespec){ .tv_nsec = QUIET_MS * NS_PER_MS }, NULL);
	}
	den_close(d);
	return NULL;
}

int boxes_start(struct den_err *err)
{
	pthread_condattr_t attr;
	struct den *d;
	int r;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&changed, &attr);
	events_hook(on_event);
	if (serve_den(&d, err) < 0)
		return -1;
	r = pthread_create(&thread, NULL, tick, d);
	return r ? den_fail_sys(err, r, "start a thread") : 0;
}

void boxes_stop(void)
{
	pthread_mutex_lock(&index_lock);
	ending = true;
	pthread_cond_signal(&changed);
	pthread_mutex_unlock(&index_lock);
}
