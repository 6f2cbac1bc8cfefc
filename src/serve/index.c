#include "index.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "clock.h"
#include "engine.h"
#include "index_int.h"
#include "mem.h"

#define RENEW_MS 200 /* who asks for what is not there makes us look at most so often */
#define GRAVES 256

static const char *const state_str[] = { "running", "paused", "stopped" };

pthread_mutex_t index_lock = PTHREAD_MUTEX_INITIALIZER;
struct entry *index_table[INDEX_BUCKETS];
static char graves[GRAVES][21]; /* gone lately, or going: a list that is read just now may still have them */
static unsigned next_grave;
static int64_t last_read;
static bool ready;

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
	return &index_table[h % INDEX_BUCKETS];
}

struct entry *entry_find(const char *id)
{
	for (struct entry *e = *slot(id); e; e = e->next)
		if (!strcmp(e->id, id))
			return e;
	return NULL;
}

struct entry *entry_add(const char *id)
{
	struct entry *e = entry_find(id), **s = slot(id);

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

void entry_bury(const char *id)
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

void entry_labels(struct entry *e, const char *const *labels)
{
	e->traffic.open = false;
	for (; labels && *labels; labels++)
		if (!strcmp(*labels, "den.traffic=public"))
			e->traffic.open = true;
}

static enum index_state state_of(const char *s)
{
	return !strcmp(s, "running") || !strcmp(s, "creating") ? RUNNING : !strcmp(s, "paused") ? PAUSED : STOPPED;
}

void entry_name(struct entry *e, const char *name)
{
	free(e->name);
	e->name = name ? mem_strdup(name) : NULL;
}

/* ---- reading all ---- */

static void take_one(const struct den_box_info *i, int64_t began, char *kick)
{
	struct entry *e = entry_find(i->id);
	bool ran = e && e->state == RUNNING;

	if (e && e->seen > began)
		return; /* we know better than the list */
	e = entry_add(i->id);
	entry_name(e, i->name);
	set_owner(e, i->owner);
	entry_labels(e, i->labels);
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

	for (size_t b = 0; b < INDEX_BUCKETS; b++)
		for (struct entry *e = index_table[b], *next; e; e = next) {
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

	pthread_mutex_lock(&index_lock);
	for (size_t i = 0; i < n; i++)
		if (strcmp(infos[i].state, "deleting") && !buried(infos[i].id))
			take_one(&infos[i], began, kicks + i * 21);
	if (began > last_read) {
		gone = sweep(began, &n_gone);
		last_read = began;
		ready = true;
	}
	pthread_mutex_unlock(&index_lock);
	for (size_t i = 0; i < n; i++)
		if (kicks[i * 21])
			http_kick_box(kicks + i * 21);
	for (size_t i = 0; i < n_gone; i++)
		http_kick_box(gone + i * 21);
}

int index_read_all(struct den *d, struct den_err *err)
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

/* Who asks too soon after the last time waits: a box that was made in between would not be found. */
bool index_renew(struct den *d)
{
	int64_t asked = index_clock(), left;
	struct den_err err;
	bool fresh;

	pthread_mutex_lock(&index_lock);
	left = last_read + RENEW_MS * NS_PER_MS - asked;
	pthread_mutex_unlock(&index_lock);
	if (left > 0)
		nanosleep(&(struct timespec){ .tv_nsec = left }, NULL);
	pthread_mutex_lock(&index_lock);
	fresh = last_read > asked; /* by somebody else meanwhile */
	pthread_mutex_unlock(&index_lock);
	return fresh || index_read_all(d, &err) == 0;
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

	pthread_mutex_lock(&index_lock);
	if (boxes_id(ref, id))
		found = entry_find(id);
	else
		for (size_t b = 0; b < INDEX_BUCKETS && !found; b++)
			for (struct entry *e = index_table[b]; e && !found; e = e->next)
				if (e->name && !strcmp(e->name, ref) && visible(e, w))
					found = e;
	if (found && !visible(found, w))
		found = NULL;
	if (found)
		memcpy(ret_id, found->id, sizeof(found->id));
	pthread_mutex_unlock(&index_lock);
	return found;
}

const char *boxes_state(const char *text)
{
	const char *s = NULL;
	struct entry *e;
	char id[21];

	if (!boxes_id(text, id))
		return NULL;
	pthread_mutex_lock(&index_lock);
	e = entry_find(id);
	if (e)
		s = state_str[e->state];
	pthread_mutex_unlock(&index_lock);
	return s;
}

void boxes_set_state(const char *id, const char *state)
{
	struct entry *e;

	pthread_mutex_lock(&index_lock);
	e = entry_find(id);
	if (e) {
		e->state = state_of(state);
		e->seen = index_clock();
	}
	pthread_mutex_unlock(&index_lock);
}

bool boxes_org(const char *id, char ret[static 33])
{
	struct entry *e;
	bool there;

	pthread_mutex_lock(&index_lock);
	e = entry_find(id);
	there = e && e->org[0];
	if (there)
		memcpy(ret, e->org, sizeof(e->org));
	pthread_mutex_unlock(&index_lock);
	return there;
}

bool boxes_traffic(const char *id, struct box_traffic *ret)
{
	struct entry *e;
	bool there;

	pthread_mutex_lock(&index_lock);
	e = entry_find(id);
	there = e != NULL;
	if (e) {
		*ret = e->traffic;
		ret->running = e->state == RUNNING;
	}
	pthread_mutex_unlock(&index_lock);
	return there;
}

int boxes_find(bool (*fn)(const char *id, void *user), void *user, char ret_id[static 32], struct den_err *err)
{
	auto_free char *ids = NULL;
	size_t n = 0;

	pthread_mutex_lock(&index_lock);
	for (size_t b = 0; b < INDEX_BUCKETS; b++)
		for (struct entry *e = index_table[b]; e; e = e->next) {
			ids = mem_realloc(ids, (n + 1) * 21);
			memcpy(ids + n++ * 21, e->id, 21);
		}
	pthread_mutex_unlock(&index_lock);
	for (size_t i = 0; i < n; i++)
		if (fn(ids + i * 21, user)) {
			snprintf(ret_id, 32, "%s", ids + i * 21);
			return 0;
		}
	return den_fail(err, DEN_NOT_FOUND, 0, "there is no such box");
}

void index_forget(const char *id)
{
	pthread_mutex_lock(&index_lock);
	entry_bury(id);
	pthread_mutex_unlock(&index_lock);
}

void index_unforget(const char *id)
{
	pthread_mutex_lock(&index_lock);
	for (size_t i = 0; i < GRAVES; i++)
		if (!strcmp(graves[i], id))
			graves[i][0] = '\0';
	pthread_mutex_unlock(&index_lock);
	index_wake();
}

bool index_gone(const char *id)
{
	bool r;

	pthread_mutex_lock(&index_lock);
	r = buried(id);
	pthread_mutex_unlock(&index_lock);
	return r;
}

void boxes_count(size_t ret[static 3])
{
	pthread_mutex_lock(&index_lock);
	ret[RUNNING] = ret[PAUSED] = ret[STOPPED] = 0;
	for (size_t b = 0; b < INDEX_BUCKETS; b++)
		for (struct entry *e = index_table[b]; e; e = e->next)
			ret[e->state]++;
	pthread_mutex_unlock(&index_lock);
}

bool boxes_ready(void)
{
	bool r;

	pthread_mutex_lock(&index_lock);
	r = ready;
	pthread_mutex_unlock(&index_lock);
	return r;
}
