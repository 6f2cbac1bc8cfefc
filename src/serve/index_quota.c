/* Quotas: what the boxes of a key have together, and what is about to be made. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "index_int.h"
#include "mem.h"
#include "parse.h"

struct pending {
	struct pending *next;
	char org[33], key[17];
	struct index_use use;
};
static struct pending *pending; /* index_lock */

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

/* Which of them, how much of it is used, how much is asked for, and what there is to do. */
static int over(const struct who *w, const char *what, bool bytes, const uint64_t have_more_max[static 3],
	struct den_err *err)
{
	uint64_t have = have_more_max[0], more = have_more_max[1], max = have_more_max[2];
	char text[3][24];

	if (!max || have + more <= max)
		return 0;
	for (size_t i = 0; i < 3; i++) {
		if (bytes)
			format_size(have_more_max[i], text[i]);
		else if (!strcmp(what, "boxes"))
			snprintf(text[i], sizeof(text[i]), "%llu", (unsigned long long)have_more_max[i]);
		else /* thousandths */
			snprintf(text[i], sizeof(text[i]), "%g", (double)have_more_max[i] / 1000);
	}
	return den_fail(err, DEN_LIMIT, 0,
		"the quota of key %s allows %s %s; its boxes%s have %s, and this would need %s more: "
		"delete boxes, ask for less, or get a key with a larger quota ('den key create')",
		w->key, text[2], what, !strcmp(what, "of disk") ? ", saved programs and templates" : "", text[0], text[1]);
}

static int quota_check(const struct who *w, const struct index_use *h, const struct index_use *u, struct den_err *err)
{
	const struct quota *q = &w->quota;

	if (over(w, "boxes", false, (uint64_t[]){ h->boxes, u->boxes, q->boxes }, err) < 0 ||
		over(w, "processors", false, (uint64_t[]){ h->cpu_milli, u->cpu_milli, q->cpu_milli }, err) < 0 ||
		over(w, "of memory", true, (uint64_t[]){ h->memory, u->memory, q->memory }, err) < 0 ||
		over(w, "of disk", true, (uint64_t[]){ h->disk, u->disk, q->disk }, err) < 0)
		return -1;
	return 0;
}

int index_reserve(const struct who *w, const struct index_use *use, uint64_t saved, struct den_err *err)
{
	struct index_use have = { .disk = saved };
	struct pending *p;
	int r;

	pthread_mutex_lock(&index_lock);
	for (size_t b = 0; b < INDEX_BUCKETS; b++)
		for (struct entry *e = index_table[b]; e; e = e->next)
			if (same_key(e->org, e->key, w))
				use_add(&have, &e->use);
	for (p = pending; p; p = p->next)
		if (same_key(p->org, p->key, w))
			use_add(&have, &p->use);
	r = quota_check(w, &have, use, err);
	if (r == 0) {
		p = mem_new(struct pending);
		strcpy(p->org, w->org);
		strcpy(p->key, w->key);
		p->use = *use;
		p->next = pending;
		pending = p;
	}
	pthread_mutex_unlock(&index_lock);
	return r;
}

void index_reserved(const struct who *w, const struct index_use *use, const char *id, const char *name,
	const char *const *labels)
{
	pthread_mutex_lock(&index_lock);
	for (struct pending **pp = &pending; *pp; pp = &(*pp)->next) {
		struct pending *p = *pp;

		if (!same_key(p->org, p->key, w) || memcmp(&p->use, use, sizeof(*use)))
			continue;
		*pp = p->next;
		free(p);
		break;
	}
	if (id) {
		struct entry *e = entry_add(id);

		strcpy(e->org, w->org);
		strcpy(e->key, w->key);
		entry_name(e, name);
		entry_labels(e, labels);
		e->use = *use;
		e->state = RUNNING;
		e->seen = e->kept = index_clock();
	}
	pthread_mutex_unlock(&index_lock);
}
