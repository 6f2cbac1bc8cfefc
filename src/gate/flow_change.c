/* The policy changed: what the new one does not allow ends, before the change is acknowledged. */
#include <string.h>

#include "flow.h"

static bool same_text(const char *a, const char *b)
{
	return a == b || (a && b && !strcmp(a, b));
}

static bool same_list(char *const *a, char *const *b)
{
	if (!a || !b)
		return a == b;
	for (; *a && *b; a++, b++)
		if (strcmp(*a, *b))
			return false;
	return *a == *b;
}

static bool same_secret(const struct policy_secret *a, const struct policy_secret *b)
{
	return !strcmp(a->name, b->name) && a->places == b->places && same_list(a->headers, b->headers) &&
		same_list(a->queries, b->queries) && same_text(a->access_key, b->access_key) &&
		same_text(a->region, b->region) && same_text(a->service, b->service);
}

/* Has the flow's host the same secrets, in the same places, and the same token? */
static bool same_grants(const struct flow *f, const struct policy *new)
{
	const struct policy *old = f->cfg->policy;
	int a = -1, b = -1;

	do {
		a = policy_next_secret(old, &f->name, f->port, a);
		b = policy_next_secret(new, &f->name, f->port, b);
		if ((a < 0) != (b < 0) || (a >= 0 && !same_secret(&old->secrets[a], &new->secrets[b])))
			return false;
	} while (a >= 0);
	a = policy_next_add(old, &f->name, f->port, -1);
	b = policy_next_add(new, &f->name, f->port, -1);
	if (a < 0 || b < 0)
		return a == b;
	return !strcmp(old->identity.adds[a].audience, new->identity.adds[b].audience) &&
		!strcmp(old->identity.adds[a].header, new->identity.adds[b].header);
}

/* Is the flow what a new connection would be under the new policy? *ret: its verdict. */
static bool still_allowed(struct gate *g, struct flow *f, struct verdict *ret)
{
	struct verdict v = f->named ? policy_check_name(g->cfg->policy, &f->name, f->port) :
				      policy_check_addr(g->cfg->policy, &f->addr, f->port, false);

	*ret = v;
	if (!v.allow || v.terminate != f->v.terminate || (f->v.raw && !v.raw))
		return false;
	if (f->named && f->addr.family && !v.host_loopback &&
		!policy_answer_ok(g->cfg->policy, &f->addr, f->port, NULL))
		return false;
	return !f->pump || !f->named || same_grants(f, g->cfg->policy);
}

/* One that has said nothing yet goes on under the new policy. */
static void renew(struct gate *g, struct flow *f, const struct verdict *v)
{
	config_unref(f->cfg);
	f->cfg = config_ref(g->cfg);
	f->v = *v;
}

unsigned flow_recheck(struct gate *g)
{
	unsigned n = 0;

	list_for_each_safe(l, next, &g->flows) {
		struct flow *f = CONTAINER_OF(l, struct flow, link);
		struct verdict v = { .rule = "" };

		if (f->inbound || f->check == CHECK_LINGER)
			continue;
		if (f->proxy && !f->named && !f->addr.family) {
			renew(g, f, &v);
		} else if (!still_allowed(g, f, &v)) {
			flow_end(f, "the policy no longer allows it", true);
			n++;
		} else if (f->pump && pump_idle(f)) {
			flow_end(f, "the policy changed", false); /* its secrets may be old */
		} else if (f->check == CHECK_WAIT) {
			renew(g, f, &v);
		}
	}
	return n;
}
