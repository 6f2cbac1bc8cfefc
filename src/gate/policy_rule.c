/* The text of a rule, and sets of ports. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "mem.h"
#include "parse.h"
#include "policy_part.h"

#define TEXT_MAX 320 /* a longest name, "*.", a range of ports and ":raw" */

/* ---- sets of ports --------------------------------------------------------------------------- */

bool port_set_has(const struct port_set *s, uint16_t port)
{
	for (unsigned i = 0; i < s->n; i++)
		if (port >= s->r[i].lo && port <= s->r[i].hi)
			return true;
	return false;
}

bool port_set_equal(const struct port_set *a, const struct port_set *b)
{
	return a->n == b->n && !memcmp(a->r, b->r, a->n * sizeof(a->r[0]));
}

/* v has room for one range more than a set; what is too much is closed at the smallest gap. */
static void set_store(struct port_set *s, struct port_range *v, unsigned n)
{
	if (n > POLICY_PORTS_MAX) {
		unsigned best = 0;

		for (unsigned i = 1; i + 1 < n; i++)
			if (v[i + 1].lo - v[i].hi < v[best + 1].lo - v[best].hi)
				best = i;
		v[best].hi = v[best + 1].hi;
		n--;
		memmove(&v[best + 1], &v[best + 2], (n - best - 1) * sizeof(*v));
	}
	*s = (struct port_set){ .n = n };
	memcpy(s->r, v, n * sizeof(*v));
}

void port_set_add(struct port_set *s, uint16_t lo, uint16_t hi)
{
	struct port_range v[POLICY_PORTS_MAX + 1], add = { lo, hi };
	unsigned n = 0;
	bool placed = false;

	for (unsigned i = 0; i < s->n; i++) {
		struct port_range r = s->r[i];

		if (r.hi + 1 < add.lo) {
			v[n++] = r;
		} else if (add.hi + 1 < r.lo) {
			if (!placed)
				v[n++] = add;
			placed = true;
			v[n++] = r;
		} else {
			add.lo = MIN(add.lo, r.lo);
			add.hi = MAX(add.hi, r.hi);
		}
	}
	if (!placed)
		v[n++] = add;
	set_store(s, v, n);
}

void port_set_remove(struct port_set *s, uint16_t lo, uint16_t hi)
{
	struct port_range v[POLICY_PORTS_MAX + 1];
	unsigned n = 0;

	for (unsigned i = 0; i < s->n; i++) {
		struct port_range r = s->r[i];

		if (r.hi < lo || r.lo > hi) {
			v[n++] = r;
			continue;
		}
		if (r.lo < lo)
			v[n++] = (struct port_range){ r.lo, (uint16_t)(lo - 1) };
		if (r.hi > hi)
			v[n++] = (struct port_range){ (uint16_t)(hi + 1), r.hi };
	}
	set_store(s, v, n);
}

/* ---- rules ----------------------------------------------------------------------------------- */

static int parse_port(const char *text, size_t n, uint16_t *ret, struct den_err *err)
{
	char digits[6];
	uint64_t v;

	if (!n || n > 5 || strspn(text, "0123456789") < n || (text[0] == '0' && n > 1))
		return den_fail(err, DEN_INVALID, 0,
			"'%.*s' is not a port; write a number, a range like 8000-8010, or *",
			(int)MIN(n, 40), text);
	memcpy(digits, text, n);
	digits[n] = '\0';
	if (!strcmp(digits, "0"))
		return den_fail(err, DEN_INVALID, 0, "there is no port 0; for all ports write *");
	if (parse_u64(digits, 1, 65535, &v, err) < 0)
		return den_wrap(err, "port");
	*ret = (uint16_t)v;
	return 0;
}

static int parse_ports(const char *text, size_t n, struct port_set *ret, struct den_err *err)
{
	const char *dash = memchr(text, '-', n);
	size_t first = dash ? (size_t)(dash - text) : n;
	struct port_set s = { 0 };
	uint16_t lo, hi;

	if (n == 1 && text[0] == '*') {
		port_set_add(ret, 1, 65535);
		return 0;
	}
	if (parse_port(text, first, &lo, err) < 0)
		return -1;
	hi = lo;
	if (dash && parse_port(dash + 1, n - first - 1, &hi, err) < 0)
		return -1;
	if (hi < lo)
		return den_fail(
			err, DEN_INVALID, 0, "ports %u-%u: the smaller one comes first", lo, hi);
	port_set_add(&s, lo, hi);
	*ret = s;
	return 0;
}

static void put_ports(struct buf *out, const struct port_set *s)
{
	if (s->r[0].lo == 1 && s->r[0].hi == 65535)
		buf_addstr(out, ":*");
	else if (s->r[0].lo == s->r[0].hi)
		buf_addf(out, ":%u", s->r[0].lo);
	else
		buf_addf(out, ":%u-%u", s->r[0].lo, s->r[0].hi);
}

static int parse_bits(const char *p, size_t n, unsigned max, uint8_t *ret, struct den_err *err)
{
	unsigned v = 0;

	if (!n || n > 3 || strspn(p, "0123456789") < n || (p[0] == '0' && n > 1))
		n = 0;
	for (size_t i = 0; i < n; i++)
		v = v * 10 + (unsigned)(p[i] - '0');
	if (!n || v > max)
		return den_fail(err, DEN_INVALID, 0,
			"behind the / of a range stands a number of bits, 0 to %u", max);
	*ret = (uint8_t)v;
	return 0;
}

/* ":PORTS", then "/udp" or "/tcp", or nothing at all. */
static int cidr_tail(const char *p, struct policy_rule *r, struct den_err *err)
{
	size_t n;

	r->tcp = true;
	r->udp = r->deny;
	if (!*p && r->deny) {
		port_set_add(&r->ports, 1, 65535);
		return 0;
	}
	if (!*p)
		return den_fail(err, DEN_INVALID, 0,
			"an address needs a port, like 10.1.0.0/16:5432 or [fd00::]/8:443");
	if (*p != ':')
		return den_fail(err, DEN_INVALID, 0, "'%.40s' is too much behind an address", p);
	n = strcspn(++p, ":/");
	if (parse_ports(p, n, &r->ports, err) < 0)
		return -1;
	p += n;
	if (!strcmp(p, ":raw"))
		return den_fail(err, DEN_INVALID, 0,
			"what goes to an address is always raw; leave the ':raw' out");
	if (!strcmp(p, "/udp") || !strcmp(p, "/tcp")) {
		r->udp = p[1] == 'u';
		r->tcp = !r->udp;
		return 0;
	}
	return *p ? den_fail(err, DEN_INVALID, 0, "'%.40s' is neither /udp nor /tcp", p) : 0;
}

static void put_cidr(struct buf *out, const struct policy_rule *r)
{
	bool all = r->ports.r[0].lo == 1 && r->ports.r[0].hi == 65535;
	char text[46];

	net_addr_format(&r->cidr.a, text);
	buf_addf(out, r->cidr.a.family == 4 ? "%s" : "[%s]", text);
	if (r->cidr.bits != (r->cidr.a.family == 4 ? 32 : 128))
		buf_addf(out, "/%u", r->cidr.bits);
	if (r->deny && all && r->tcp && r->udp)
		return;
	put_ports(out, &r->ports);
	if (r->udp != r->tcp && (r->udp || r->deny))
		buf_addstr(out, r->udp ? "/udp" : "/tcp");
}

/* The part of a text that is an address, if one stands at its front; *end is behind it. 1: none. */
static int find_addr(const char *text, struct net_addr *ret, const char **end, struct den_err *err)
{
	char part[64];
	const char *p = text, *close;
	size_t n;

	if (*p == '[') {
		close = strchr(++p, ']');
		if (!close)
			return den_fail(err, DEN_INVALID, 0, "a [ is never closed");
		n = (size_t)(close - p);
		*end = close + 1;
	} else {
		/* IPv6 without brackets can have no port */
		bool v6 = strchr(p, ':') && strchr(strchr(p, ':') + 1, ':');

		n = strcspn(p, v6 ? "/" : ":/");
		*end = p + n;
		close = NULL;
	}
	if (n < sizeof(part)) {
		memcpy(part, p, n);
		part[n] = '\0';
	}
	if (n >= sizeof(part) || net_addr_parse(part, ret) < 0)
		return close ? den_fail(err, DEN_INVALID, 0, "'%.*s' is not an IPv6 address",
				       (int)MIN(n, 60), p)
			     : 1;
	if (ret->family == 4 && memchr(p, ':', n)) {
		net_addr_format(ret, part);
		return den_fail(err, DEN_INVALID, 0, "that is an IPv4 address; write %s", part);
	}
	if (ret->family == 4 && close)
		return den_fail(err, DEN_INVALID, 0, "an IPv4 address needs no brackets");
	return 0;
}

static int parse_cidr(const char *tail, struct policy_rule *r, struct den_err *err)
{
	unsigned max = r->cidr.a.family == 4 ? 32 : 128;
	char right[46];

	r->kind = RULE_CIDR;
	r->cidr.bits = (uint8_t)max;
	if (*tail == '/') {
		size_t n = strcspn(++tail, ":/");

		if (parse_bits(tail, n, max, &r->cidr.bits, err) < 0)
			return -1;
		tail += n;
	}
	if (net_cidr_mask(&r->cidr)) {
		net_addr_format(&r->cidr.a, right);
		return den_fail(err, DEN_INVALID, 0,
			"the address has bits behind the first %u; is %s/%u meant?", r->cidr.bits,
			right, r->cidr.bits);
	}
	return cidr_tail(tail, r, err);
}

static int check_name(const struct policy_rule *r, struct den_err *err)
{
	if (!net_name_local(&r->name))
		return 0;
	if (strstr(r->name.s, "localhost"))
		return den_fail(err, DEN_INVALID, 0,
			"localhost is the box itself and needs no rule; a service of the host is "
			"host:PORT");
	return den_fail(err, DEN_INVALID, 0,
		"names below .den are den's own; a service of the host is host:PORT");
}

/* What stands before the ports. */
static int name_part(
	const char *text, size_t n, bool preset, struct policy_rule *r, struct den_err *err)
{
	bool wild = n >= 2 && text[0] == '*' && text[1] == '.';

	if (n == 1 && text[0] == '*') {
		r->kind = RULE_ANY;
		if (preset)
			return 0;
		return den_fail(err, DEN_INVALID, 0, "%s",
			r->deny ? "what no rule allows is denied; leave the * out"
				: "* alone is not a rule; all that is public is preset open");
	}
	if ((n == 4 || (n == 5 && text[4] == '.')) && !strncasecmp(text, "host", 4)) {
		r->kind = RULE_HOST;
		return 0;
	}
	if (n && text[0] == '.')
		return den_fail(err, DEN_INVALID, 0,
			"a name begins with no dot; all names below one are *%.*s", (int)MIN(n, 80),
			text);
	r->kind = wild ? RULE_SUFFIX : RULE_NAME;
	if (net_name_parse(text + 2 * wild, n - 2 * wild, &r->name, err) < 0)
		return -1;
	return check_name(r, err);
}

static int name_tail(const char *p, struct policy_rule *r, struct den_err *err)
{
	bool said = false;

	if (*p == ':' && strcmp(p, ":raw")) {
		size_t n = strcspn(++p, ":/");

		if (p[n] == '/')
			return den_fail(err, DEN_INVALID, 0, "%s",
				!strcmp(p + n, "/udp")
					? "a name is reached by TCP alone; UDP is opened by "
					  "address, like 10.0.0.1:53/udp"
					: "a rule has no path; it is a name and a port");
		if (parse_ports(p, n, &r->ports, err) < 0)
			return -1;
		said = true;
		p += n;
	}
	if (!strcmp(p, ":raw") && !r->deny)
		r->raw = true;
	else if (!strcmp(p, ":raw"))
		return den_fail(err, DEN_INVALID, 0, "a deny is not raw; leave the ':raw' out");
	else if (*p)
		return den_fail(err, DEN_INVALID, 0,
			"'%.40s' is too much; a rule is NAME[:PORTS][:raw]", p);
	if (r->kind == RULE_HOST && !r->deny &&
		(!said || (r->ports.r[0].lo == 1 && r->ports.r[0].hi == 65535)))
		return den_fail(err, DEN_INVALID, 0,
			"which port of the host's loopback? Write it like host:8080");
	if (!said && (r->deny || r->kind == RULE_ANY)) {
		port_set_add(&r->ports, 1, 65535);
	} else if (!said) {
		port_set_add(&r->ports, 80, 80);
		port_set_add(&r->ports, 443, 443);
	}
	return 0;
}

static void put_name(struct buf *out, const struct policy_rule *r)
{
	bool all = r->ports.r[0].lo == 1 && r->ports.r[0].hi == 65535;

	if (r->kind == RULE_HOST)
		buf_addstr(out, "host");
	else if (r->kind == RULE_ANY)
		buf_addstr(out, "*");
	else
		buf_addf(out, "%s%s", r->kind == RULE_SUFFIX ? "*." : "", r->name.s);
	if (r->ports.n == 1 && !(all && (r->deny || r->kind == RULE_ANY)))
		put_ports(out, &r->ports);
	if (r->raw)
		buf_addstr(out, ":raw");
}

static int parse_rule(const char *text, bool preset, struct policy_rule *r, struct den_err *err)
{
	const char *end = text;
	int found;

	for (const char *p = text; *p; p++)
		if ((unsigned char)*p <= ' ' || *p == 0x7f)
			return den_fail(err, DEN_INVALID, 0, "a rule has no spaces in it");
	if (strstr(text, "://"))
		return den_fail(err, DEN_INVALID, 0,
			"a rule is no URL; write the name alone, and the port if it is not 80 or "
			"443");
	found = find_addr(text, &r->cidr.a, &end, err);
	if (found <= 0)
		return found < 0 ? -1 : parse_cidr(end, r, err);
	r->tcp = true;
	end = text + strcspn(text, ":/");
	if (*end == '/')
		return den_fail(err, DEN_INVALID, 0,
			"a rule has no path; it is a name and a port, or an address like "
			"10.1.0.0/16:443");
	if (name_part(text, (size_t)(end - text), preset, r, err) < 0)
		return -1;
	return name_tail(end, r, err);
}

int policy_rule_parse(const char *text, bool deny, bool preset, struct policy_rule *ret,
	struct buf *canonical, struct den_err *err)
{
	struct policy_rule r = { .deny = deny, .next = -1 };

	if (!*text)
		return den_fail(err, DEN_INVALID, 0, "a rule is empty");
	if (strlen(text) > TEXT_MAX)
		return den_fail(err, DEN_INVALID, 0, "'%.60s...' is too long for a rule", text);
	if (parse_rule(text, preset, &r, err) < 0)
		return den_wrap(err, "'%.80s'", text);
	if (canonical && r.kind == RULE_CIDR)
		put_cidr(canonical, &r);
	else if (canonical)
		put_name(canonical, &r);
	*ret = r;
	return 0;
}
