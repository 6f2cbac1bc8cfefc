/* How fast, how much: the limits on all connections of the box together. */
#include "clock.h"
#include "flow.h"

#define REFILL_NS (20 * NS_PER_MS)
#define BURST_MIN 16384

int64_t gate_refill(struct gate *g)
{
	uint64_t rate = g->cfg->policy->limits.rate;
	int64_t now = clock_mono_ns(), more;

	if (!rate)
		return g->tokens = INT32_MAX;
	more = (int64_t)((double)rate * (double)(now - g->tokens_at) / 1e9);
	if (more) { /* else the time adds up */
		g->tokens = MIN(g->tokens + more, (int64_t)MAX(rate / 10, BURST_MIN));
		g->tokens_at = now;
	}
	return g->tokens;
}

static void refill_cb(struct loop_timer *t)
{
	struct gate *g = CONTAINER_OF(t, struct gate, refill);
	struct list all;

	if (gate_refill(g) <= 0) {
		loop_timer_set(g->loop, &g->refill, clock_mono_ns() + REFILL_NS);
		return;
	}
	list_init(&all);
	while (!list_empty(&g->throttled)) {
		struct list *l = g->throttled.next;

		list_remove(l);
		list_append(&all, l);
	}
	while (!list_empty(&all)) {
		struct flow *f = CONTAINER_OF(all.next, struct flow, throttle);

		list_remove(&f->throttle);
		f->throttled = false;
		flow_resume(f);
	}
}

bool flow_throttle(struct flow *f)
{
	struct gate *g = f->g;

	if (f->throttled)
		return true;
	if (f->inbound || !g->cfg->policy->limits.rate || g->tokens > 0)
		return false;
	f->throttled = true;
	list_append(&g->throttled, &f->throttle);
	if (!g->refill.when) {
		g->refill.cb = refill_cb;
		loop_timer_set(g->loop, &g->refill, clock_mono_ns() + REFILL_NS);
	}
	return true;
}

size_t flow_allowance(const struct flow *f, size_t max)
{
	if (f->inbound || !f->g->cfg->policy->limits.rate || f->g->tokens >= (int64_t)max)
		return max;
	return f->g->tokens > 0 ? (size_t)f->g->tokens : 1;
}

static void end_all(struct gate *g, const char *reason)
{
	list_for_each_safe(l, next, &g->flows) {
		struct flow *f = CONTAINER_OF(l, struct flow, link);

		if (!f->inbound)
			flow_end(f, reason, true);
	}
}

bool flow_count(struct flow *f, size_t n, bool out)
{
	struct gate *g = f->g;
	const struct policy *p = g->cfg->policy;

	if (out)
		f->bytes_out += n;
	else
		f->bytes_in += n;
	g->busy = true;
	if (f->inbound)
		return true;
	g->bytes += n;
	if (p->limits.rate)
		g->tokens -= (int64_t)n;
	if (p->limits.bytes && g->bytes - g->bytes_told > p->limits.bytes / 16)
		record_used(g);
	if (p->limits.bytes && g->bytes > p->limits.bytes) {
		struct where w = flow_where(f);

		record_used(g);
		record_denial(g, &w, "limits.bytes", "the limit on bytes is reached");
		end_all(g, "the limit on bytes is reached");
		return false;
	}
	return true;
}

void flow_unthrottle(struct flow *f)
{
	if (f->throttled)
		list_remove(&f->throttle);
	f->throttled = false;
}
