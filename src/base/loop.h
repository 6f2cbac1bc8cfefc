/*
 * One epoll loop, sources embedded in their owner.
 *
 * A source belongs to whoever embeds it: add, then remove before its memory goes. A callback may
 * remove any source, its own too; the loop never touches a removed one again, even when epoll had
 * already reported it in the same batch. To free an owner from inside a callback, use loop_defer():
 * it runs at the end of the batch.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>

#include "err.h"
#include "mem.h"

struct loop;

struct loop_source {
	int fd;
	uint32_t events;
	void (*cb)(struct loop_source *s, uint32_t events);
	bool added;
	struct list link; /* of a wary loop */
};

struct loop_timer {
	int64_t when; /* CLOCK_MONOTONIC ns; 0: not armed */
	void (*cb)(struct loop_timer *t);
	struct list link;
};

struct loop_deferred {
	void (*cb)(struct loop_deferred *d);
	struct list link;
	bool queued;
};

int loop_new(struct loop **ret, struct den_err *err);
void loop_free(struct loop *l);

int loop_add(struct loop *l, struct loop_source *s, struct den_err *err);
/* Changes the events that an added source waits for; no system call when nothing changes. */
void loop_set_events(struct loop *l, struct loop_source *s, uint32_t events);
void loop_remove(struct loop *l, struct loop_source *s);
/*
 * For a kernel that may report a source once more when it was removed (gVisor's: one whose event comes in while it is
 * taken out of the list stays in that). Before anything was added: from then on what is not known is not believed.
 */
void loop_wary(struct loop *l);
/* Of a wary loop: another epoll with the same sources, so that nothing of removed ones is left. */
void loop_renew(struct loop *l);

void loop_timer_set(struct loop *l, struct loop_timer *t, int64_t when_ns);
void loop_timer_clear(struct loop_timer *t);
void loop_defer(struct loop *l, struct loop_deferred *d);

/* Waits once (at most timeout_ms; -1: until something happens) and runs what is due. */
int loop_step(struct loop *l, int timeout_ms, struct den_err *err);
int loop_run(struct loop *l, struct den_err *err); /* until loop_quit() */
void loop_quit(struct loop *l);
/* The epoll descriptor, readable when loop_step(l, 0) has something to do (timers excepted). */
int loop_fd(const struct loop *l);
