/* Quotas: what the boxes of a key have together, and what is about to be made. */
#include <stdlib.h>
#include <string.h>

#include "index_int.h"
#include "mem.h"

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

	pthread_mutex_lock(&index_lock);
	for (size_t b = 0; b < INDEX_BUCKETS; b++)
		for (struct entry *e = index_table[b]; e; e = e->next)
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
