/* Waiting: for a descriptor, the client's end, the server's end, the end of a box. */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "auth.h"
#include "clock.h"
#include "http_int.h"

#define WATCH_SLOTS 256
#define LOOK_MS 3000 /* how long a stream may outlive its key */

struct watch {
	struct list link;
	char id[32];
	struct req *r;
};

static pthread_mutex_t watch_lock = PTHREAD_MUTEX_INITIALIZER;
static struct list
	watches[WATCH_SLOTS]; /* by box; an empty slot has next NULL until it is first used */

/* All that have a worker, for stopping: a table of pointers, its size the most that may be there. */
static pthread_mutex_t reqs_lock = PTHREAD_MUTEX_INITIALIZER;
static struct req **reqs;
static size_t reqs_n, reqs_cap;

static struct list *slot_of(const char *id)
{
	uint32_t h = 2166136261u;
	struct list *l;

	for (; *id; id++)
		h = (h ^ (unsigned char)*id) * 16777619u;
	l = &watches[h % WATCH_SLOTS];
	if (!l->next)
		list_init(l);
	return l;
}

void req_watch_box(struct req *r, const char *box_id)
{
	struct watch *w;

	watch_end(r);
	w = mem_new(struct watch);
	snprintf(w->id, sizeof(w->id), "%s", box_id);
	w->r = r;
	pthread_mutex_lock(&watch_lock);
	list_append(slot_of(w->id), &w->link);
	pthread_mutex_unlock(&watch_lock);
	r->watch = w;
}

void watch_end(struct req *r)
{
	if (!r->watch)
		return;
	pthread_mutex_lock(&watch_lock);
	list_remove(&r->watch->link);
	pthread_mutex_unlock(&watch_lock);
	free(r->watch);
	r->watch = NULL;
}

void http_kick_box(const char *id)
{
	pthread_mutex_lock(&watch_lock);
	list_for_each (l, slot_of(id)) {
		struct watch *w = CONTAINER_OF(l, struct watch, link);

		if (strcmp(w->id, id))
			continue;
		pthread_mutex_lock(&w->r->lock);
		w->r->kicked = true;
		req_wake(w->r);
		pthread_mutex_unlock(&w->r->lock);
	}
	pthread_mutex_unlock(&watch_lock);
}

/* ---- all requests ---- */

void reqs_add(struct req *r)
{
	pthread_mutex_lock(&reqs_lock);
	if (reqs_n == reqs_cap) {
		reqs_cap = reqs_cap ? 2 * reqs_cap : 64;
		reqs = mem_realloc(reqs, reqs_cap * sizeof(*reqs));
	}
	r->place = reqs_n;
	reqs[reqs_n++] = r;
	pthread_mutex_unlock(&reqs_lock);
}

void reqs_remove(struct req *r)
{
	pthread_mutex_lock(&reqs_lock);
	reqs[r->place] = reqs[--reqs_n];
	reqs[r->place]->place = r->place;
	pthread_mutex_unlock(&reqs_lock);
}

size_t reqs_count(void)
{
	size_t n;

	pthread_mutex_lock(&reqs_lock);
	n = reqs_n;
	pthread_mutex_unlock(&reqs_lock);
	return n;
}

void reqs_stop(bool cut)
{
	pthread_mutex_lock(&reqs_lock);
	for (size_t i = 0; i < reqs_n; i++) {
		struct req *r = reqs[i];

		pthread_mutex_lock(&r->lock);
		r->stop = true;
		if (cut)
			r->cut = true;
		req_wake(r);
		pthread_mutex_unlock(&r->lock);
	}
	pthread_mutex_unlock(&reqs_lock);
}

/* ---- req_wait() ---- */

static int bits_now(const struct req *r)
{
	return (r->gone || r->cut || r->revoked || (r->head_only && r->answer == ANSWER_STREAM) ? REQ_GONE : 0) |
	       (r->stop || http_stopping ? REQ_STOP : 0) | (r->kicked ? REQ_KICK : 0);
}

static void wake_make(struct worker *w)
{
	if (w->wake < 0)
		w->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
}

/* A stream may last for days, and its key may be taken back meanwhile. */
static bool still_allowed(struct req *r)
{
	int64_t now = clock_mono_ns();

	if (!r->has_who || now - MAX(r->looked, r->began) < LOOK_MS * NS_PER_MS)
		return true;
	r->looked = now;
	return auth_still(&r->who);
}

int req_poll(struct req *r, struct pollfd *p, size_t n, int timeout_ms)
{
	struct pollfd all[5] = { { .fd = -1, .events = POLLRDHUP } };
	eventfd_t count;
	bool allowed;
	int bits;

	wake_make(r->worker);
	all[1] = (struct pollfd){ .fd = r->worker->wake, .events = POLLIN };
	memcpy(all + 2, p, n * sizeof(*p));
	pthread_mutex_lock(&r->lock);
	bits = bits_now(r);
	/* suspended: MHD does not look at the socket, so we do. Only we resume it, so it stays open meanwhile. */
	if (r->suspended && r->answer != ANSWER_UPGRADE)
		all[0].fd = r->conn->fd;
	r->polling = !bits;
	ring_trim(&r->down);
	ring_trim(&r->up);
	pthread_mutex_unlock(&r->lock);
	if (r->has_who && (timeout_ms < 0 || timeout_ms > LOOK_MS))
		timeout_ms = LOOK_MS; /* whoever wants to wait longer asks again */
	if (poll(all, n + 2, bits ? 0 : timeout_ms) < 0)
		for (size_t i = 0; i < n + 2; i++)
			all[i].revents = 0;
	allowed = still_allowed(r);
	pthread_mutex_lock(&r->lock);
	r->polling = false;
	r->revoked = r->revoked || !allowed;
	bits = bits_now(r);
	pthread_mutex_unlock(&r->lock);
	if (all[1].revents)
		eventfd_read(r->worker->wake, &count);
	if (all[0].revents)
		bits |= REQ_GONE;
	memcpy(p, all + 2, n * sizeof(*p));
	return bits;
}

int req_wait(struct req *r, int fd, int timeout_ms)
{
	int64_t until = clock_mono_ns() + timeout_ms * NS_PER_MS;
	struct pollfd p = { .fd = fd, .events = POLLIN };

	for (;;) {
		int64_t left = timeout_ms < 0 ? 0 : until - clock_mono_ns();
		int bits = req_poll(r, &p, 1,
			timeout_ms < 0 ? -1
			: left <= 0    ? 0
				       : (int)((left + NS_PER_MS - 1) / NS_PER_MS));

		if (fd >= 0 && p.revents)
			bits |= REQ_READY;
		if (bits || (timeout_ms >= 0 && left <= 0))
			return bits;
	}
}
