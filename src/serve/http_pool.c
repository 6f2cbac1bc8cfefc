/*
 * Workers: a thread for each request that is being handled, made when there is none to spare, gone after
 * 10 idle seconds. The one that was used last is taken first, so that few stay warm and the rest leave.
 */
#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "http_int.h"
#include "log.h"
#include "share.h"

#define WORKER_STACK (256 << 10)
#define WORKER_IDLE_S 10
#define WORKERS_KEEP 4
#define WORKERS_SPARE 8 /* so that who asks whether we live is told, however much there is to do */

static pthread_mutex_t pool_lock = PTHREAD_MUTEX_INITIALIZER;
static struct list idle = LIST_INIT(idle); /* the first was used last */
static unsigned threads, n_idle, threads_max;
static pthread_attr_t attr;

void pool_start(const struct http_options *o)
{
	mallopt(M_ARENA_MAX, 4); /* else each thread would have an arena of its own, and keep it */
	mallopt(M_MMAP_THRESHOLD, 64 << 10);
	threads_max = o->workers;
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, WORKER_STACK);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
}

static void worker_free(struct worker *w)
{
	if (w->den)
		den_close(w->den);
	if (w->wake >= 0)
		close(w->wake);
	pthread_cond_destroy(&w->cond);
	free(w);
}

/* Waits for the next job; NULL: leave. pool_lock is held. */
static struct req *worker_wait(struct worker *w)
{
	struct timespec until;
	struct req *r;

	list_append(idle.next, &w->link); /* to the front */
	n_idle++;
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += WORKER_IDLE_S;
	while (!w->job) {
		if (pthread_cond_timedwait(&w->cond, &pool_lock, &until) != ETIMEDOUT || w->job)
			continue;
		if (threads > WORKERS_KEEP) {
			list_remove(&w->link);
			n_idle--;
			return NULL;
		}
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_sec += WORKER_IDLE_S;
	}
	r = w->job;
	w->job = NULL;
	return r;
}

static void *worker_main(void *p)
{
	struct worker *w = p;
	struct req *r = w->job;

	w->job = NULL;
	prctl(PR_SET_NAME, "worker");
	while (r) {
		pthread_mutex_lock(&r->lock);
		r->worker = w;
		pthread_mutex_unlock(&r->lock);
		req_run(r);
		pthread_mutex_lock(&pool_lock);
		r = worker_wait(w);
		if (!r)
			threads--;
		pthread_mutex_unlock(&pool_lock);
	}
	worker_free(w);
	return NULL;
}

static bool worker_new(struct req *r)
{
	struct worker *w = mem_new(struct worker);
	sigset_t all, old;
	pthread_t thread;
	int failed;

	w->wake = -1;
	w->job = r;
	list_init(&w->link);
	pthread_cond_init(&w->cond, NULL);
	sigfillset(&all); /* signals are main()'s */
	pthread_sigmask(SIG_SETMASK, &all, &old);
	failed = pthread_create(&thread, &attr, worker_main, w);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (!failed)
		return true;
	worker_free(w);
	return false;
}

bool pool_submit(struct req *r, bool always)
{
	bool ok = true;

	pthread_mutex_lock(&pool_lock);
	if (!list_empty(&idle)) {
		struct worker *w = CONTAINER_OF(idle.next, struct worker, link);

		list_remove(&w->link);
		n_idle--;
		w->job = r;
		pthread_cond_signal(&w->cond);
	} else if (threads < threads_max + (always ? WORKERS_SPARE : 0)) {
		ok = worker_new(r);
		threads += ok;
	} else {
		ok = false;
	}
	pthread_mutex_unlock(&pool_lock);
	return ok;
}

void pool_count(unsigned *ret_threads, unsigned *ret_busy)
{
	pthread_mutex_lock(&pool_lock);
	*ret_threads = threads;
	*ret_busy = threads - n_idle;
	pthread_mutex_unlock(&pool_lock);
}

struct den *req_den(struct req *r)
{
	struct worker *w = r->worker;

	if (!w->den && http_opt.den_make)
		w->den = http_opt.den_make();
	return w->den;
}

int req_share(struct req *r, const char *org, struct den_err *err)
{
	unsigned max = MAX(threads_max - threads_max / 4, 1U);
	char name[64];

	if (r->share)
		return 0;
	snprintf(name, sizeof(name), "threads %s", org);
	r->share = share_take(name, max);
	if (r->share)
		return 0;
	r->fail_status = 429;
	req_set(r, "Retry-After", "1");
	return den_fail(err, DEN_LIMIT, 0,
		"your organisation has %u requests at work, which is all it may have at a time; end some of them", max);
}
