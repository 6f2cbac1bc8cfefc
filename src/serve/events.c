/*
 * The bus. Theory of operation: one ring holds the last events for everybody; a reader is a place in it and
 * an eventfd, nothing more. So a thousand slow readers cost nothing, and one that falls behind the ring's tail
 * loses the oldest and is told how many. One lock; it is never held while something blocks.
 *
 * Numbers begin at the wall clock of the start times 1024: they grow over restarts (unless there were more than a
 * million events a second), and stay below 2^53, where JavaScript still counts exactly.
 */
#include "events.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "clock.h"
#include "fd.h"
#include "log.h"
#include "mem.h"
#include "serve.h"

enum {
	RING = 8192, /* events ... */
	RING_BYTES = 8 << 20, /* ... and bytes of them, that are kept */
	EVENT_MAX = 32 << 10, /* bytes of one: a longer one loses its data */
	DATAGRAM_MAX = 64 << 10,
	HOOKS = 4,
};

struct event {
	uint64_t number;
	char *text; /* JSON */
	size_t len;
	char kind[32], org[33], box[32];
};

struct events_sub {
	struct list link;
	int fd;
	bool admin;
	char org[33], box[32];
	char *kinds; /* NULL: all */
	uint64_t next; /* number of the next to look at */
	uint64_t lost;
	bool away; /* what it saw last is no longer in the ring */
};

static struct {
	pthread_mutex_t lock;
	struct event ring[RING]; /* number N is at N % RING */
	uint64_t first, next; /* numbers: the oldest kept, the next */
	uint64_t began; /* first number of this server; 0: not started */
	size_t bytes;
	struct list subs;
	int feed, stop;
	bool running;
	pthread_t thread;
	void (*hooks[HOOKS])(const char *, const char *, const char *, const json_t *);
} bus = { .lock = PTHREAD_MUTEX_INITIALIZER, .subs = LIST_INIT(bus.subs), .feed = -1, .stop = -1 };

/* ---- matching ---- */

/* list: "net.denied,exec.,box" : a kind, or the beginning of one up to its dot. */
static bool kind_matches(const char *list, const char *kind)
{
	while (list && *list) {
		size_t n = strcspn(list, ",");

		if (n && !strncmp(list, kind, n) &&
			(!kind[n] || list[n - 1] == '.' || kind[n] == '.'))
			return true;
		list += n + (list[n] == ',');
	}
	return false;
}

static bool sub_wants(const struct events_sub *s, const struct event *e)
{
	if (!s->admin && strcmp(s->org, e->org))
		return false; /* also what is nobody's */
	if (s->box[0] && strcmp(s->box, e->box))
		return false;
	return !s->kinds || kind_matches(s->kinds, e->kind);
}

/* ---- writing ---- */

/* Who has not seen it yet, and would have, is told that it lost one. */
static void ring_drop(void)
{
	struct event *e = &bus.ring[bus.first % RING];

	list_for_each (l, &bus.subs) {
		struct events_sub *s = CONTAINER_OF(l, struct events_sub, link);

		s->lost += s->next <= e->number && sub_wants(s, e);
	}
	bus.bytes -= e->len;
	free(e->text);
	e->text = NULL;
	bus.first++;
}

static void ring_begin(void)
{
	if (!bus.began)
		bus.began = bus.first = bus.next = (uint64_t)clock_wall_ms() << 10;
}

static char *event_text(
	uint64_t number, int64_t time_ms, const char *kind, const char *box_id, json_t *data)
{
	auto_free char *out = NULL;
	json_t *o = json_pack("{sI ss sI ss? sO?}", "id", (json_int_t)number, "kind", kind, "time",
		(json_int_t)time_ms, "box", box_id, "data", data);

	out = o ? json_dumps(o, JSON_COMPACT) : NULL;
	json_decref(o);
	if (out && strlen(out) > EVENT_MAX && data)
		return event_text(number, time_ms, kind, box_id, NULL);
	return mem_take(&out);
}

static void post(
	int64_t time_ms, const char *kind, const char *org, const char *box_id, json_t *data)
{
	struct event *e;
	char *text;

	for (size_t i = 0; i < HOOKS && bus.hooks[i]; i++)
		bus.hooks[i](kind, org, box_id, data);
	pthread_mutex_lock(&bus.lock);
	ring_begin();
	text = event_text(bus.next, time_ms, kind, box_id, data);
	if (!text) { /* a name that is no UTF-8: keepers do not send such */
		pthread_mutex_unlock(&bus.lock);
		return;
	}
	if (bus.next - bus.first == RING)
		ring_drop();
	e = &bus.ring[bus.next % RING];
	*e = (struct event){ .number = bus.next++, .text = text, .len = strlen(text) };
	snprintf(e->kind, sizeof(e->kind), "%s", kind);
	snprintf(e->org, sizeof(e->org), "%s", org ? org : "");
	snprintf(e->box, sizeof(e->box), "%s", box_id ? box_id : "");
	bus.bytes += e->len;
	while (bus.bytes > RING_BYTES && bus.first < e->number)
		ring_drop();
	list_for_each (l, &bus.subs) {
		struct events_sub *s = CONTAINER_OF(l, struct events_sub, link);

		if (sub_wants(s, e))
			(void)eventfd_write(s->fd, 1);
	}
	pthread_mutex_unlock(&bus.lock);
}

void events_post(const char *kind, const char *org, const char *box_id, json_t *data)
{
	post(clock_wall_ms(), kind, org, box_id, data);
	json_decref(data);
}

void events_hook(void (*fn)(const char *, const char *, const char *, const json_t *))
{
	size_t i = 0;

	while (i < HOOKS - 1 && bus.hooks[i])
		i++;
	bus.hooks[i] = fn;
}

/* ---- readers ---- */

struct events_sub *events_subscribe(
	const struct who *who, const char *box_id, const char *kinds, uint64_t after)
{
	struct events_sub *s = mem_new(struct events_sub);

	s->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	s->admin = who->admin;
	snprintf(s->org, sizeof(s->org), "%s", who->org);
	snprintf(s->box, sizeof(s->box), "%s", box_id ? box_id : "");
	s->kinds = kinds ? mem_strdup(kinds) : NULL;
	pthread_mutex_lock(&bus.lock);
	ring_begin();
	s->next = after ? MIN(after + 1, bus.next) : bus.next;
	if (s->next <
		bus.first) { /* from before this server, or too long ago: nobody knows how many */
		s->away = true;
		s->next = bus.first;
	}
	list_append(&bus.subs, &s->link);
	pthread_mutex_unlock(&bus.lock);
	if (after)
		(void)eventfd_write(s->fd, 1); /* there may be some already */
	return s;
}

int events_fd(const struct events_sub *s)
{
	return s->fd;
}

/* What it missed, as an event of its own with the number of the last that it missed. */
static char *lost_text(struct events_sub *s, uint64_t *ret_number)
{
	json_t *data = s->lost ? json_pack("{sI}", "count", (json_int_t)s->lost)
			       : json_pack("{sn}", "count");
	char *text = event_text(s->next - 1, clock_wall_ms(), "lost", NULL, data);

	json_decref(data);
	s->lost = 0;
	s->away = false;
	*ret_number = s->next - 1;
	return text;
}

char *events_next(struct events_sub *s, uint64_t *ret_number)
{
	char *text = NULL;

	pthread_mutex_lock(&bus.lock);
	s->next = MAX(s->next, bus.first);
	if (s->lost || s->away) {
		text = lost_text(s, ret_number);
	} else {
		while (!text && s->next < bus.next) {
			const struct event *e = &bus.ring[s->next % RING];

			if (sub_wants(s, e)) {
				text = mem_strdup(e->text);
				*ret_number = e->number;
			}
			s->next++;
		}
	}
	if (!text) {
		eventfd_t v;

		(void)eventfd_read(s->fd, &v);
	}
	pthread_mutex_unlock(&bus.lock);
	return text;
}

void events_unsubscribe(struct events_sub *s)
{
	if (!s)
		return;
	pthread_mutex_lock(&bus.lock);
	list_remove(&s->link);
	pthread_mutex_unlock(&bus.lock);
	close(s->fd);
	free(s->kinds);
	free(s);
}

/* ---- the feed ---- */

static const char *const feed_kinds[] = { "box.created", "box.started", "box.paused", "box.resumed",
	"box.stopped", "box.deleted", "box.forked", "box.changed", "exec.started", "exec.ended",
	"file.changed", "checkpoint.made", "rollback", "policy.changed", "net.denied",
	"net.connection", "net.incident", "template.made", "template.removed" };

/* A keeper's datagram: {"kind","box","owner","time","data"}. What is not one is dropped. */
static void feed_take(const char *p, size_t n)
{
	json_t *o = json_loadb(p, n, JSON_REJECT_DUPLICATES, NULL),
	       *data = json_object_get(o, "data");
	const char *kind = json_string_value(json_object_get(o, "kind"));
	const char *box = json_string_value(json_object_get(o, "box"));
	const char *owner = json_string_value(json_object_get(o, "owner"));
	int64_t time_ms = json_integer_value(json_object_get(o, "time"));
	char org[33] = "";
	bool known = false;

	for (size_t i = 0; kind && i < ARRAY_SIZE(feed_kinds); i++)
		known = known || !strcmp(kind, feed_kinds[i]);
	if (owner)
		snprintf(org, sizeof(org), "%.*s", (int)MIN(strcspn(owner, "/"), sizeof(org) - 1),
			owner);
	if (known && (!box || strlen(box) < 32))
		post(time_ms > 0 ? time_ms : clock_wall_ms(), kind, org[0] ? org : NULL, box,
			json_is_object(data) ? data : NULL);
	json_decref(o);
}

static void *feed_main(void *arg)
{
	auto_free char *p = mem_alloc(DATAGRAM_MAX);

	(void)arg;
	pthread_setname_np(pthread_self(), "feed");
	for (;;) {
		ssize_t n = recv(bus.feed, p, DATAGRAM_MAX, MSG_TRUNC);

		if (!__atomic_load_n(&bus.running, __ATOMIC_ACQUIRE))
			return NULL;
		if (n < 0 && errno != EINTR) {
			log_line("error", "feed", "keepers are not heard any more: %s",
				strerror(errno));
			return NULL;
		}
		if (n > 0 && n <= DATAGRAM_MAX)
			feed_take(p, (size_t)n);
	}
}

static int feed_bind(struct den_err *err)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	auto_fd fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	int room = 4 << 20;

	if (fd < 0)
		return den_fail_sys(err, errno, "feed: socket");
	if (snprintf(a.sun_path, sizeof(a.sun_path), "%s/feed.sock", serve.own) >=
		(int)sizeof(a.sun_path))
		return den_fail(err, DEN_INVALID, 0,
			"the path of the state directory is too long for a socket in it: %s",
			serve.own);
	(void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof(room));
	(void)unlink(a.sun_path);
	/* no longer than its path: the filter lets nobody bind anything else (guard.c) */
	if (bind(fd, (struct sockaddr *)&a, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(a.sun_path) + 1)) < 0)
		return den_fail_sys(err, errno, "feed: bind '%s'", a.sun_path);
	(void)chmod(a.sun_path,
		0666); /* the directory says who comes near; keepers may have given up root's rights */
	bus.feed = fd_take(&fd);
	return 0;
}

int events_start(struct den_err *err)
{
	int e;

	if (feed_bind(err) < 0)
		return -1;
	__atomic_store_n(&bus.running, true, __ATOMIC_RELEASE);
	e = pthread_create(&bus.thread, NULL, feed_main, NULL);
	if (e) {
		bus.running = false;
		return den_fail_sys(err, e, "feed: thread");
	}
	return 0;
}

void events_stop(void)
{
	if (!bus.running)
		return;
	__atomic_store_n(&bus.running, false, __ATOMIC_RELEASE);
	(void)shutdown(bus.feed, SHUT_RDWR); /* wakes the thread */
	pthread_join(bus.thread, NULL);
	fd_close(&bus.feed);
}
