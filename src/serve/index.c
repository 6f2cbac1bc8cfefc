#include "index.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "boxes.h"
#include "clock.h"
#include "engine.h"
#include "events.h"
#include "log.h"
#include "mem.h"
#include "serve.h"

#define BUCKETS 1024
#define TICK_MS 2000
#define RENEW_MS 200 /* who asks for what is not there makes us look at most so often */
#define GRAVES 256
#define LATE_MS 3000
#define LATE_AGAIN_MS 30000
#define LEASE_LOOK_MS 300000
#define LEASES_AT_ONCE 64

enum state { RUNNING, PAUSED, STOPPED };
static const char *const state_str[] = { "running", "paused", "stopped" };

struct entry {
	struct entry *next;
	char id[21], org[33], key[17];
	char *name;
	enum state state;
	struct index_use use;
	struct box_traffic traffic;
	int64_t expires_ms, seen; /* index_clock() of what told us of it */
	bool leased;		  /* it has a deadline or an idle time */
	int64_t kept;		  /* index_clock() when its keeper was last seen to be there; 0: never */
};

struct pending {
	struct pending *next;
	char org[33], key[17];
	struct index_use use;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed;
static struct entry *table[BUCKETS];
static struct pending *pending;
static char graves[GRAVES][21]; /* gone lately, or going: a list that is read just now may still have them */
static unsigned next_grave;
static int64_t last_read;
static bool ready, wanted, ending;
static pthread_t thread;

int64_t index_clock(void)
{
	return clock_mono_ns();
}

/* ---- entries; the lock is held ---- */

static struct entry **slot(const char *id)
{
	unsigned h = 5381;

	for (const char *p = id; *p; p++)
		h = h * 33 + (unsigned char)*p;
	return &table[h % BUCKETS];
}

static struct entry *find(const char *id)
{
	for (struct entry *e = *slot(id); e; e = e->next)
		if (!strcmp(e->id, id))
			return e;
	return NULL;
}

static struct entry *add(const char *id)
{
	struct entry *e = find(id), **s = slot(id);

	if (e)
		return e;
	e = mem_new(struct entry);
	snprintf(e->id, sizeof(e->id), "%s", id);
	e->next = *s;
	return *s = e;
}

static void drop(const char *id)
{
	for (struct entry **p = slot(id); *p; p = &(*p)->next) {
		struct entry *e = *p;

		if (strcmp(e->id, id))
			continue;
		*p = e->next;
		free(e->name);
		free(e);
		return;
	}
}

/* Ids are never used again: who is buried stays so, whatever a list that was read meanwhile says. */
static bool buried(const char *id)
{
	for (size_t i = 0; i < GRAVES; i++)
		if (!strcmp(graves[i], id))
			return true;
	return false;
}

static void bury(const char *id)
{
	unsigned i = next_grave++ % GRAVES;

	drop(id);
	snprintf(graves[i], sizeof(graves[i]), "%s", id);
}

static void set_owner(struct entry *e, const char *owner)
{
	const char *slash = owner ? strchr(owner, '/') : NULL;

	e->org[0] = e->key[0] = '\0';
	if (slash && (size_t)(slash - owner) < sizeof(e->org))
		snprintf(e->org, sizeof(e->org), "%.*s", (int)(slash - owner), owner);
	if (slash)
		snprintf(e->key, sizeof(e->key), "%s", slash + 1);
}

static void set_labels(struct entry *e, const char *const *labels)
{
	e->traffic.open = false;
	for (; labels && *labels; labels++)
		if (!strcmp(*labels, "den.traffic=public"))
			e->traffic.open = true;
}

static enum state state_of(const char *s)
{
	return !strcmp(s, "running") || !strcmp(s, "creating") ? RUNNING : !strcmp(s, "paused") ? PAUSED : STOPPED;
}

static void set_name(struct entry *e, const char *name)
{
	free(e->name);
	e->name = name ? mem_strdup(name) : NULL;
}

/* ---- reading all ---- */

static void take_one(const struct den_box_info *i, int64_t began, char *kick)
{
	struct entry *e = find(i->id);
	bool ran = e && e->state == RUNNING;

	if (e && e->seen > began)
		return; /* we know better than the list */
	e = add(i->id);
	set_name(e, i->name);
	set_owner(e, i->owner);
	set_labels(e, i->labels);
	e->state = state_of(i->state);
	e->use = (struct index_use){ 1, i->cpu_milli, i->memory, i->disk };
	e->expires_ms = i->expires_ms;
	e->leased = i->expires_ms || i->idle_ms;
	e->seen = began;
	if (ran && e->state != RUNNING)
		snprintf(kick, 21, "%s", e->id);
}

/* Those that the list no longer has; gives their ids, one after the other, for http_kick_box(). */
static char *sweep(int64_t began, size_t *ret_n)
{
	char *gone = NULL;
	size_t n = 0;

	for (size_t b = 0; b < BUCKETS; b++)
		for (struct entry *e = table[b], *next; e; e = next) {
			next = e->next;
			if (e->seen >= began)
				continue;
			gone = mem_realloc(gone, (n + 1) * 21);
			memcpy(gone + n++ * 21, e->id, 21);
			drop(e->id);
		}
	*ret_n = n;
	return gone;
}

void index_take(const struct den_box_info *infos, size_t n, int64_t began)
{
	auto_free char *gone = NULL;
	auto_free char *kicks = mem_zalloc(n * 21 + 1);
	size_t n_gone = 0;

	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < n; i++)
		if (strcmp(infos[i].state, "deleting") && !buried(infos[i].id))
			take_one(&infos[i], began, kicks + i * 21);
	if (began > last_read) {
		gone = sweep(began, &n_gone);
		last_read = began;
		ready = true;
	}
	pthread_mutex_unlock(&lock);
	for (size_t i = 0; i < n; i++)
		if (kicks[i * 21])
			http_kick_box(kicks + i * 21);
	for (size_t i = 0; i < n_gone; i++)
		http_kick_box(gone + i * 21);
}

static int read_all(struct den *d, struct den_err *err)
{
	int64_t began = index_clock();
	struct den_box_info *infos;
	size_t n;

	if (den_list(d, &infos, &n, err) < 0)
		return -1;
	index_take(infos, n, began);
	den_box_infos_free(infos, n);
	return 0;
}

bool index_renew(struct den *d)
{
	struct den_err err;
	bool old;

	pthread_mutex_lock(&lock);
	old = index_clock() - last_read > RENEW_MS * NS_PER_MS;
	pthread_mutex_unlock(&lock);
	return old && read_all(d, &err) == 0;
}

/* ---- asking ---- */

static bool visible(const struct entry *e, const struct who *w)
{
	return w->admin || (e->org[0] && !strcmp(e->org, w->org));
}

bool index_find(const struct who *w, const char *ref, char ret_id[static 21])
{
	struct entry *found = NULL;
	char id[21];

	pthread_mutex_lock(&lock);
	if (boxes_id(ref, id))
		found = find(id);
	else
		for (size_t b = 0; b < BUCKETS && !found; b++)
			for (struct entry *e = table[b]; e && !found; e = e->next)
				if (e->name && !strcmp(e->name, ref) && visible(e, w))
					found = e;
	if (found && !visible(found, w))
		found = NULL;
	if (found)
		memcpy(ret_id, found->id, sizeof(found->id));
	pthread_mutex_unlock(&lock);
	return found;
}

const char *boxes_state(const char *text)
{
	const char *s = NULL;
	struct entry *e;
	char id[21];

	if (!boxes_id(text, id))
		return NULL;
	pthread_mutex_lock(&lock);
	e = find(id);
	if (e)
		s = state_str[e->state];
	pthread_mutex_unlock(&lock);
	return s;
}

void boxes_set_state(const char *id, const char *state)
{
	struct entry *e;

	pthread_mutex_lock(&lock);
	e = find(id);
	if (e) {
		e->state = state_of(state);
		e->seen = index_clock();
	}
	pthread_mutex_unlock(&lock);
}

bool boxes_traffic(const char *id, struct box_traffic *ret)
{
	struct entry *e;
	bool there;

	pthread_mutex_lock(&lock);
	e = find(id);
	there = e != NULL;
	if (e) {
		*ret = e->traffic;
		ret->running = e->state == RUNNING;
	}
	pthread_mutex_unlock(&lock);
	return there;
}

int boxes_find(bool (*fn)(const char *id, void *user), void *user, char ret_id[static 32], struct den_err *err)
{
	auto_free char *ids = NULL;
	size_t n = 0;

	pthread_mutex_lock(&lock);
	for (size_t b = 0; b < BUCKETS; b++)
		for (struct entry *e = table[b]; e; e = e->next) {
			ids = mem_realloc(ids, (n + 1) * 21);
			memcpy(ids + n++ * 21, e->id, 21);
		}
	pthread_mutex_unlock(&lock);
	for (size_t i = 0; i < n; i++)
		if (fn(ids + i * 21, user)) {
			snprintf(ret_id, 32, "%s", ids + i * 21);
			return 0;
		}
	return den_fail(err, DEN_NOT_FOUND, 0, "there is no such box");
}

void index_forget(const char *id)
{
	pthread_mutex_lock(&lock);
	bury(id);
	pthread_mutex_unlock(&lock);
}

void index_unforget(const char *id)
{
	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < GRAVES; i++)
		if (!strcmp(graves[i], id))
			graves[i][0] = '\0';
	pthread_mutex_unlock(&lock);
	index_wake();
}

bool index_gone(const char *id)
{
	bool r;

	pthread_mutex_lock(&lock);
	r = buried(id);
	pthread_mutex_unlock(&lock);
	return r;
}

void boxes_count(size_t ret[static 3])
{
	pthread_mutex_lock(&lock);
	ret[RUNNING] = ret[PAUSED] = ret[STOPPED] = 0;
	for (size_t b = 0; b < BUCKETS; b++)
		for (struct entry *e = table[b]; e; e = e->next)
			ret[e->state]++;
	pthread_mutex_unlock(&lock);
}

/* ---- quotas ---- */

static void use_add(struct index_use *to, const struct index_use *u)
{
	to->boxes += u->boxes;
	to->cpu_milli += u->cpu_milli;
	to->memory += u->memory;
	to->disk += u->disk;
}

static bool same_key(const char *org, const char *key, const struct who *w)
{
	return !strcmp(key, w->key) && !strcmp(org, w->org);
}

static int over(const char *what, uint64_t have, uint64_t more, uint64_t max, struct den_err *err)
{
	if (!max || have + more <= max)
		return 0;
	return den_fail(err, DEN_LIMIT, 0, "this key may have %s of %llu in all and has %llu; delete boxes, or ask for a larger quota",
		what, (unsigned long long)max, (unsigned long long)have);
}

int index_reserve(const struct who *w, const struct index_use *use, struct den_err *err)
{
	const struct quota *q = &w->quota;
	struct index_use have = { 0 };
	struct pending *p;
	int r;

	pthread_mutex_lock(&lock);
	for (size_t b = 0; b < BUCKETS; b++)
		for (struct entry *e = table[b]; e; e = e->next)
			if (same_key(e->org, e->key, w))
				use_add(&have, &e->use);
	for (p = pending; p; p = p->next)
		if (same_key(p->org, p->key, w))
			use_add(&have, &p->use);
	r = over("boxes", have.boxes, use->boxes, q->boxes, err) < 0 ||
			    over("processors (thousandths)", have.cpu_milli, use->cpu_milli, q->cpu_milli, err) < 0 ||
			    over("memory (bytes)", have.memory, use->memory, q->memory, err) < 0 ||
			    over("disk (bytes)", have.disk, use->disk, q->disk, err) < 0
		    ? -1
		    : 0;
	if (r == 0) {
		p = mem_new(struct pending);
		strcpy(p->org, w->org);
		strcpy(p->key, w->key);
		p->use = *use;
		p->next = pending;
		pending = p;
	}
	pthread_mutex_unlock(&lock);
	return r;
}

void index_reserved(const struct who *w, const struct index_use *use, const char *id, const char *name,
	const char *const *labels)
{
	pthread_mutex_lock(&lock);
	for (struct pending **pp = &pending; *pp; pp = &(*pp)->next) {
		struct pending *p = *pp;

		if (!same_key(p->org, p->key, w) || memcmp(&p->use, use, sizeof(*use)))
			continue;
		*pp = p->next;
		free(p);
		break;
	}
	if (id) {
		struct entry *e = add(id);

		strcpy(e->org, w->org);
		strcpy(e->key, w->key);
		set_name(e, name);
		set_labels(e, labels);
		e->use = *use;
		e->state = RUNNING;
		e->seen = e->kept = index_clock();
	}
	pthread_mutex_unlock(&lock);
}

/* ---- what keepers tell, and the clock ---- */

void index_wake(void)
{
	pthread_mutex_lock(&lock);
	wanted = true;
	pthread_cond_signal(&changed);
	pthread_mutex_unlock(&lock);
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
	pthread_mutex_lock(&lock);
	e = find(box_id);
	known = e;
	if (e && !strcmp(kind, "box.deleted")) {
		bury(box_id);
	} else if (e) {
		e->state = !strcmp(kind, "box.paused") ? PAUSED : !strcmp(kind, "box.stopped") ? STOPPED : RUNNING;
		e->seen = index_clock();
	}
	pthread_mutex_unlock(&lock);
	if (left)
		http_kick_box(box_id);
	if (!known && !left)
		index_wake();
}

/* The next box whose keeper has to be looked after; the lock is held. */
static struct entry *lease_due(void)
{
	int64_t now = clock_wall_ms(), mono = index_clock();

	for (size_t b = 0; b < BUCKETS; b++)
		for (struct entry *e = table[b]; e; e = e->next) {
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

		pthread_mutex_lock(&lock);
		e = lease_due();
		if (e) {
			e->kept = index_clock();
			memcpy(id, e->id, sizeof(id));
		}
		pthread_mutex_unlock(&lock);
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
	pthread_mutex_lock(&lock);
	while (!wanted && !ending && pthread_cond_timedwait(&changed, &lock, &t) == 0)
		;
	wanted = false;
	pthread_mutex_unlock(&lock);
}

static void *tick(void *user)
{
	struct den *d = user;
	struct den_err err;
	bool failed = false;

	while (!ending) {
		if (read_all(d, &err) < 0) {
			if (!failed)
				log_line("warn", "index", "boxes cannot be listed: %s", err.msg);
			failed = true;
		} else {
			failed = false;
			leases_look(d);
		}
		wait_for_change(TICK_MS);
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
	pthread_mutex_lock(&lock);
	ending = true;
	pthread_cond_signal(&changed);
	pthread_mutex_unlock(&lock);
}

bool boxes_ready(void)
{
	bool r;

	pthread_mutex_lock(&lock);
	r = ready;
	pthread_mutex_unlock(&lock);
	return r;
}
