#include "share.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "mem.h"

#define SLOTS 64

struct share {
	struct list link;
	char name[64];
	unsigned n; /* 0: gone with the last one */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct list slots[SLOTS]; /* an empty one has next NULL until it is first used */

static struct share *find(const char *name)
{
	uint32_t h = 2166136261u;
	struct list *slot;
	struct share *s;

	for (const char *p = name; *p; p++)
		h = (h ^ (unsigned char)*p) * 16777619u;
	slot = &slots[h % SLOTS];
	if (!slot->next)
		list_init(slot);
	list_for_each (l, slot) {
		s = CONTAINER_OF(l, struct share, link);
		if (!strcmp(s->name, name))
			return s;
	}
	s = mem_new(struct share);
	snprintf(s->name, sizeof(s->name), "%s", name);
	list_append(slot, &s->link);
	return s;
}

static void drop_empty(struct share *s)
{
	if (s->n)
		return;
	list_remove(&s->link);
	free(s);
}

struct share *share_take(const char *name, unsigned max)
{
	struct share *s;

	pthread_mutex_lock(&lock);
	s = find(name);
	if (s->n < max) {
		s->n++;
	} else {
		drop_empty(s);
		s = NULL;
	}
	pthread_mutex_unlock(&lock);
	return s;
}

void share_give(struct share *s)
{
	if (!s)
		return;
	pthread_mutex_lock(&lock);
	s->n--;
	drop_empty(s);
	pthread_mutex_unlock(&lock);
}
