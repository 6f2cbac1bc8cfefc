/* Followers that went with their keeper: their place in the output is kept for a while. */
#include "clock.h"
#include "init.h"

static void hold_cb(struct loop_timer *t)
{
	exec_pump(CONTAINER_OF(t, struct exec, hold)); /* nobody came: read on */
}

static void hold_here(struct exec *x)
{
	x->hold_pos[0] = x->hold_pos[1] = UINT64_MAX;
	list_for_each (l, &x->subs)
		for (int i = 0; i < 2 && !CONTAINER_OF(l, struct sub, link)->live; i++)
			x->hold_pos[i] = MIN(
				x->hold_pos[i], sub_safe(x, CONTAINER_OF(l, struct sub, link), i));
}

/* Its followers are about to go with their keeper, and may come back with the next: their place in
 * the output is kept for a moment. */
static void exec_hold(struct exec *x, int64_t ms)
{
	bool followed = false;

	list_for_each (l, &x->subs)
		followed |= !CONTAINER_OF(l, struct sub, link)->live;
	if (!followed && !x->hold.when)
		return;
	if (followed) /* else it is kept already, for those of the keeper before */
		hold_here(x);
	x->hold.cb = hold_cb;
	loop_timer_set(x->init->loop, &x->hold, clock_mono_ns() + ms * NS_PER_MS);
}

static void drop_subs(struct init *in, int64_t hold_ms)
{
	list_for_each_safe (l, next, &in->execs) {
		struct exec *x = CONTAINER_OF(l, struct exec, link);

		exec_hold(x, hold_ms);
		x->request = 0;
		while (!list_empty(&x->subs))
			exec_unsubscribe(x, CONTAINER_OF(x->subs.next, struct sub, link));
		exec_pump(x); /* where nobody is waited for: read on */
	}
}

void exec_drop_subs(struct init *in)
{
	drop_subs(in, HOLD_MS);
}

void exec_park(struct init *in)
{
	drop_subs(in, PARKED_MS);
}

/* The next keeper comes in a moment, and those who follow with it. */
void exec_unpark(struct init *in, int64_t stopped_ms)
{
	list_for_each (l, &in->execs) {
		struct exec *x = CONTAINER_OF(l, struct exec, link);

		if (x->hold.when)
			loop_timer_set(in->loop, &x->hold, clock_mono_ns() + HOLD_MS * NS_PER_MS);
		if (x->spec.timeout_ms && !x->ended)
			x->spec.timeout_ms += (uint64_t)stopped_ms;
	}
}

void exec_disown(struct exec *x)
{
	x->spec.flags &= ~(uint64_t)EXEC_KILL_ON_CLOSE;
}
