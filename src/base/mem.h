/* Ownership helpers: acquire into an auto_ variable, hand over with *_take(). */
#pragma once

#include <assert.h>
#include <stddef.h>
#include <stdlib.h>

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define CONTAINER_OF(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))

static inline void mem_freep(void *p)
{
	free(*(void **)p);
}
#define auto_free __attribute__((cleanup(mem_freep)))

static inline void *mem_take_ptr(void *pp)
{
	void *p = *(void **)pp;

	*(void **)pp = NULL;
	return p;
}
#define mem_take(pp) ((__typeof__(*(pp)))mem_take_ptr(pp))

/* Allocation that cannot be recovered from: a message and abort(). For small, bounded sizes only;
 * what a stranger sizes is allocated with plain malloc() and its failure is an error. */
void *mem_alloc(size_t n) __attribute__((malloc, returns_nonnull));
void *mem_zalloc(size_t n) __attribute__((malloc, returns_nonnull));
void *mem_realloc(void *p, size_t n) __attribute__((returns_nonnull));
char *mem_strdup(const char *s) __attribute__((malloc, returns_nonnull));
char *mem_strndup(const char *s, size_t n) __attribute__((malloc, returns_nonnull));
#define mem_new(type) ((type *)mem_zalloc(sizeof(type)))

/* For a process that is about to wait for long: gives back free heap, and drops its own program
 * text from memory (it is read again, from the page cache, as it is needed). */
void mem_idle(void);

/* An intrusive doubly linked list; a head points at itself when empty. */
struct list {
	struct list *next, *prev;
};
#define LIST_INIT(name)          \
	{                        \
		&(name), &(name) \
	}
static inline void list_init(struct list *l)
{
	l->next = l->prev = l;
}
static inline int list_empty(const struct list *l)
{
	return l->next == l;
}
static inline void list_append(struct list *head, struct list *e)
{
	e->prev = head->prev;
	e->next = head;
	head->prev->next = e;
	head->prev = e;
}
static inline void list_remove(struct list *e)
{
	e->prev->next = e->next;
	e->next->prev = e->prev;
	e->next = e->prev = e;
}
/* l may be removed in the body; n is the saved successor. */
#define list_for_each_safe(l, n, head) \
	for (struct list *l = (head)->next, *n = l->next; l != (head); l = n, n = n->next)
#define list_for_each(l, head) for (struct list *l = (head)->next; l != (head); l = l->next)
