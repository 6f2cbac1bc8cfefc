/* The questions that the resolver and the relay ask of a policy, many times a second. */
#include <stdint.h>
#include <string.h>

#include "mem.h"
#include "policy_part.h"

/* FNV-1a: the names in the table are those of the policy, which nobody hostile writes. */
static unsigned hash(const char *s)
{
	uint32_t h = 2166136261U;

	for (; *s; s++)
		h = (h ^ (unsigned char)*s) * 16777619U;
	return h ^ h >> 15;
}

/* The slot where rules of this name are, or would be. */
static unsigned slot_of(const struct policy *p, const char *s)
{
	unsigned i = hash(s) & p->mask;

	while (p->slots[i] >= 0 && strcmp(p->rules[p->slots[i]].name.s, s))
		i = (i + 1) & p->mask;
	return i;
}

/*
 * Walks over the rules that match a name, the most specific first: those of the name itself, those of
 * "*." and what is left of it behind each dot, "*". host.den has its own, and other names that are local
 * have none.
 */
struct walk {
	const struct policy *p;
	const char *at; /* rest of the name whose rules are walked; NULL: beyond names */
	enum policy_kind kind; /* what of them counts */
	int next;
};

static struct walk walk_from(const struct policy *p, const char *name, enum policy_kind kind)
{
	return (struct walk){ p, name, kind, p->slots[slot_of(p, name)] };
}

static struct walk walk_name(const struct policy *p, const struct net_name *n)
{
	if (!strcmp(n->s, NET_NAME_HOST))
		return (struct walk){ p, NULL, RULE_HOST, p->host_rules };
	if (net_name_local(n))
		return (struct walk){ p, NULL, RULE_HOST, -1 };
	return walk_from(p, n->s, RULE_NAME);
}

/* Goes on to what is less specific; false: there is nothing. */
static bool walk_wider(struct walk *w)
{
	const char *dot = w->at ? strchr(w->at, '.') : NULL;

	if (dot) {
		*w = walk_from(w->p, dot + 1, RULE_SUFFIX);
		return true;
	}
	if (!w->at)
		return false;
	*w = (struct walk){ w->p, NULL, RULE_ANY, w->p->any_rule };
	return true;
}

static const struct policy_rule *walk_next(struct walk *w)
{
	do {
		while (w->next >= 0) {
			const struct policy_rule *r = &w->p->rules[w->next];

			w->next = r->next;
			if (r->kind == w->kind)
				return r;
		}
	} while (walk_wider(w));
	return NULL;
}

/* ---- names ----------------------------------------------------------------------------------- */

static bool same_spot(const struct policy_rule *a, const struct policy_rule *b)
{
	return a->kind == b->kind && strlen(a->name.s) == strlen(b->name.s);
}

static void decide(struct verdict *v, const struct policy_rule *r)
{
	v->by = r;
	v->rule = r->text;
	v->allow = !r->deny;
}

struct verdict policy_check_name(const struct policy *p, const struct net_name *n, uint16_t port)
{
	struct verdict v = { .rule = "" };
	const struct policy_rule *r;

	for (struct walk w = walk_name(p, n); (r = walk_next(&w));) {
		if (!port_set_has(&r->ports, port))
			continue;
		if (r->deny) {
			v = (struct verdict){ 0 };
			decide(&v, r);
			return v;
		}
		if (!v.by || (r->grant && !v.terminate))
			decide(&v, r);
		v.terminate |= r->grant;
		v.raw |= r->raw && same_spot(r, v.by);
		v.host_loopback |= r->kind == RULE_HOST;
	}
	v.raw &= !v.terminate;
	return v;
}

static void walk_ports(struct walk w, struct port_set *ret)
{
	struct walk again = w;
	const struct policy_rule *r;

	*ret = (struct port_set){ 0 };
	while ((r = walk_next(&w)))
		for (unsigned i = 0; !r->deny && i < r->ports.n; i++)
			port_set_add(ret, r->ports.r[i].lo, r->ports.r[i].hi);
	while (ret->n && (r = walk_next(&again)))
		for (unsigned i = 0; r->deny && i < r->ports.n; i++)
			port_set_remove(ret, r->ports.r[i].lo, r->ports.r[i].hi);
}

void policy_name_ports(const struct policy *p, const struct net_name *n, struct port_set *ret)
{
	walk_ports(walk_name(p, n), ret);
}

bool policy_name_known(const struct policy *p, const struct net_name *n, struct verdict *ret)
{
	struct verdict v = { .rule = "" };
	const struct policy_rule *r, *denied = NULL;
	struct port_set ports;

	policy_name_ports(p, n, &ports);
	for (struct walk w = walk_name(p, n); (r = walk_next(&w));) {
		if (r->deny) {
			denied = denied ? denied : r;
			continue;
		}
		if (!v.by)
			decide(&v, r);
		v.host_loopback |= r->kind == RULE_HOST;
	}
	if (!ports.n) {
		v = (struct verdict){ .rule = "" };
		if (denied)
			decide(&v, denied);
	}
	if (ret)
		*ret = v;
	return v.allow;
}

/* ---- addresses ------------------------------------------------------------------------------- */

/* What is special is opened by a range of that kind alone. */
static bool cidr_opens(const struct policy_rule *r, const struct net_addr *a, const char *special)
{
	const char *kind;

	if (!net_cidr_has(&r->cidr, a))
		return false;
	if (!special)
		return true;
	kind = net_cidr_special(&r->cidr);
	return kind && !strcmp(kind, special);
}

/* A deny that matches, else the narrowest allow, else NULL. */
static const struct policy_rule *find_cidr(
	const struct policy *p, const struct net_addr *a, uint16_t port, bool udp)
{
	const char *special = net_addr_special(a);
	const struct policy_rule *best = NULL;

	for (unsigned i = 0; i < p->n_rules; i++) {
		const struct policy_rule *r = &p->rules[i];

		if (r->kind != RULE_CIDR || !(udp ? r->udp : r->tcp) ||
			!port_set_has(&r->ports, port))
			continue;
		if (r->deny && net_cidr_has(&r->cidr, a))
			return r;
		if (!r->deny && cidr_opens(r, a, special) &&
			(!best || r->cidr.bits > best->cidr.bits))
			best = r;
	}
	return best;
}

struct verdict policy_check_addr(
	const struct policy *p, const struct net_addr *a, uint16_t port, bool udp)
{
	const struct policy_rule *r = find_cidr(p, a, port, udp);
	struct verdict v = { .rule = "" };

	if (!r && p->any_addr && !udp && port && !net_addr_special(a))
		r = &p->rules[p->any_rule];
	if (r) {
		decide(&v, r);
		v.raw = v.allow;
	}
	return v;
}

bool policy_answer_ok(
	const struct policy *p, const struct net_addr *a, uint16_t port, const char **why)
{
	const char *special = net_addr_special(a), *reason = NULL;
	const struct policy_rule *r = find_cidr(p, a, port, false);

	if (r && r->deny)
		reason = r->text;
	else if (!r && special)
		reason = special;
	if (reason && why)
		*why = reason;
	return !reason;
}

/* ---- grants ---------------------------------------------------------------------------------- */

int policy_next_secret(const struct policy *p, const struct net_name *n, uint16_t port, int i)
{
	for (i++; i < (int)p->n_secrets; i++) {
		const struct policy_secret *s = &p->secrets[i];

		if (s->port == port &&
			(s->suffix ? net_name_below(n, &s->host) : !strcmp(n->s, s->host.s)))
			return i;
	}
	return -1;
}

int policy_next_add(const struct policy *p, const struct net_name *n, uint16_t port, int i)
{
	for (i++; i < (int)p->identity.n_adds; i++)
		if (p->identity.adds[i].port == port && !strcmp(n->s, p->identity.adds[i].host.s))
			return i;
	return -1;
}

bool policy_audience_granted(const struct policy *p, const char *audience)
{
	for (char **a = p->identity.audiences; a && *a; a++)
		if (!strcmp(*a, audience))
			return true;
	return false;
}

/* ---- index and classes ----------------------------------------------------------------------- */

static void chain(struct policy *p, int *first, int rule)
{
	while (*first >= 0)
		first = &p->rules[*first].next;
	*first = rule;
}

static void class_add(struct policy *p, const struct port_set *s, bool *full)
{
	if (!s->n)
		return;
	for (unsigned i = 0; i < p->n_classes; i++)
		if (port_set_equal(&p->classes[i], s))
			return;
	if (p->n_classes < POLICY_CLASSES_MAX)
		p->classes[p->n_classes++] = *s;
	else
		*full = true;
}

/*
 * Which rules match a name is decided by the longest one that does: those of a name with an exact rule by
 * that, those of any other by the longest suffix, and of the rest by "*". So the sets of ports that names
 * can have are just those that begin at each rule.
 */
static void classes_make(struct policy *p)
{
	bool full = false;
	struct port_set s, all = { 0 };

	for (unsigned i = 0; i < p->n_rules; i++) {
		const struct policy_rule *r = &p->rules[i];

		if (r->kind == RULE_CIDR)
			continue;
		if (r->kind == RULE_HOST)
			walk_ports((struct walk){ p, NULL, RULE_HOST, p->host_rules }, &s);
		else if (r->kind == RULE_ANY)
			walk_ports((struct walk){ p, NULL, RULE_ANY, p->any_rule }, &s);
		else
			walk_ports(walk_from(p, r->name.s, r->kind), &s);
		class_add(p, &s, &full);
		for (unsigned k = 0; k < s.n; k++)
			port_set_add(&all, s.r[k].lo, s.r[k].hi);
	}
	if (full) {
		p->classes[0] = all;
		p->n_classes = 1;
	}
}

void policy_index(struct policy *p)
{
	unsigned size = 16;

	while (size < 2 * p->n_rules)
		size *= 2;
	p->slots = mem_alloc(size * sizeof(*p->slots));
	p->mask = size - 1;
	for (unsigned i = 0; i < size; i++)
		p->slots[i] = -1;
	p->any_rule = p->host_rules = -1;
	for (unsigned i = 0; i < p->n_rules; i++) {
		struct policy_rule *r = &p->rules[i];

		r->next = -1;
		if (r->kind == RULE_NAME || r->kind == RULE_SUFFIX)
			chain(p, &p->slots[slot_of(p, r->name.s)], (int)i);
		else if (r->kind != RULE_CIDR)
			chain(p, r->kind == RULE_ANY ? &p->any_rule : &p->host_rules, (int)i);
	}
	classes_make(p);
}

unsigned policy_port_classes(const struct policy *p, struct port_set *ret, unsigned max)
{
	assert(max >= POLICY_CLASSES_MAX);
	memcpy(ret, p->classes, p->n_classes * sizeof(*ret));
	return p->n_classes;
}

unsigned policy_class_of(const struct policy *p, const struct net_name *n)
{
	struct port_set s;

	policy_name_ports(p, n, &s);
	if (!s.n)
		return POLICY_NO_CLASS;
	for (unsigned i = 0; i < p->n_classes; i++)
		if (port_set_equal(&p->classes[i], &s))
			return i;
	return 0; /* there were too many: one has all */
}
