#include "policy_part.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "json.h"
#include "mem.h"
#include "strv.h"

static void secret_free(struct policy_secret *s)
{
	free(s->name);
	free(s->env);
	strv_free(s->headers);
	strv_free(s->queries);
	free(s->access_key);
	free(s->region);
	free(s->service);
}

void policy_free(struct policy *p)
{
	if (!p)
		return;
	for (unsigned i = 0; i < p->n_rules; i++)
		free((char *)p->rules[i].text);
	for (unsigned i = 0; i < p->n_secrets; i++)
		secret_free(&p->secrets[i]);
	for (unsigned i = 0; i < p->identity.n_adds; i++) {
		free(p->identity.adds[i].audience);
		free(p->identity.adds[i].header);
	}
	free(p->rules);
	free(p->secrets);
	free(p->identity.adds);
	free(p->identity.org);
	free(p->identity.task);
	strv_free(p->identity.scopes);
	strv_free(p->identity.audiences);
	strv_free(p->presets);
	free(p->trust);
	free(p->slots);
	free(p);
}

bool policy_opens_anything(const struct policy *p)
{
	for (unsigned i = 0; i < p->n_rules; i++)
		if (!p->rules[i].deny)
			return true;
	return false;
}

/* ---- checked words --------------------------------------------------------------------------- */

bool policy_secret_name_ok(const char *text)
{
	size_t n = strlen(text);

	if (!n || n > 64 || strchr("0123456789.-", text[0]))
		return false;
	return strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") ==
	       n;
}

bool policy_env_name_ok(const char *text)
{
	size_t n = strlen(text);

	if (!n || n > 128 || (text[0] >= '0' && text[0] <= '9'))
		return false;
	return strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == n;
}

int policy_header_parse(const char *text, char **ret, struct den_err *err)
{
	/* of the message's own making, or of one hop: no place for a secret, and the gate writes them */
	static const char *const own[] = { "accept-encoding", "connection", "content-length",
		"expect", "host", "keep-alive", "proxy-authorization", "proxy-connection", "te",
		"trailer", "transfer-encoding", "upgrade" };
	size_t n = strlen(text);
	char *low;

	if (!n || n > 64 ||
		strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789!#$%&'*"
			     "+-.^_`|~") != n)
		return den_fail(err, DEN_INVALID, 0, "'%.60s' is not the name of a header", text);
	low = mem_strdup(text);
	for (char *p = low; *p; p++)
		*p = (char)tolower((unsigned char)*p);
	for (size_t i = 0; i < ARRAY_SIZE(own); i++) {
		if (strcmp(low, own[i]))
			continue;
		free(low);
		return den_fail(err, DEN_INVALID, 0,
			"header %s is the gate's own; choose the one that the service reads",
			own[i]);
	}
	*ret = low;
	return 0;
}

/* ---- what follows from what was read --------------------------------------------------------- */

struct policy_rule *policy_rule_append(
	struct policy *p, const struct policy_rule *r, const char *text, const char *from)
{
	struct policy_rule *at;

	/* room for 2^n: thousands of rules are not moved thousands of times */
	if (!(p->n_rules & (p->n_rules - 1)))
		p->rules = mem_realloc(
			p->rules, (p->n_rules ? 2 * p->n_rules : 1) * sizeof(*p->rules));
	at = &p->rules[p->n_rules++];
	*at = *r;
	at->text = mem_strdup(text);
	at->from = from;
	return at;
}

static int add_preset(struct policy *p, const char *name, struct den_err *err)
{
	const struct policy_preset *preset = policy_preset_find(name);

	for (const char *const *t = preset->rules; *t; t++) {
		struct policy_rule r;
		auto_buf text = { 0 };

		if (policy_rule_parse(*t, false, true, &r, &text, err) < 0)
			return den_wrap(err, "preset %s", name);
		buf_addf(&text, " (preset %s)", name);
		policy_rule_append(p, &r, buf_str(&text), preset->name);
	}
	return 0;
}

static void add_grant(struct policy *p, const struct net_name *host, bool suffix, uint16_t port,
	const char *kind, const char *from)
{
	bool loopback = !strcmp(host->s, NET_NAME_HOST);
	struct policy_rule r = { .kind = loopback ? RULE_HOST
					 : suffix ? RULE_SUFFIX
						  : RULE_NAME,
		.grant = true,
		.tcp = true,
		.name = *host,
		.next = -1 };
	auto_buf text = { 0 };

	port_set_add(&r.ports, port, port);
	buf_addf(&text, "%s%s:%u (%s%s%s)", suffix ? "*." : "", host->s, port, kind,
		kind[0] ? " " : "", from);
	policy_rule_append(p, &r, buf_str(&text), from);
}

/* Does d leave nothing of g? */
static bool covers(const struct policy_rule *d, const struct policy_rule *g)
{
	bool same = !strcmp(d->name.s, g->name.s), below = net_name_below(&g->name, &d->name);

	if (d->kind == RULE_HOST || g->kind == RULE_HOST)
		return d->kind == g->kind;
	if (d->kind == RULE_NAME)
		return g->kind == RULE_NAME && same;
	return d->kind == RULE_SUFFIX && (below || (g->kind == RULE_SUFFIX && same));
}

static int check_grant(const struct policy *p, const struct policy_rule *g, struct den_err *err)
{
	uint16_t port = g->ports.r[0].lo;

	for (unsigned i = 0; i < p->n_rules; i++) {
		const struct policy_rule *r = &p->rules[i];

		if (r == g || !port_set_has(&r->ports, port))
			continue;
		if (r->deny && covers(r, g))
			return den_fail(err, DEN_INVALID, 0,
				"deny '%.80s' takes away what is granted, %.100s; drop one of the "
				"two",
				r->text, g->text);
		if (r->raw && r->kind == g->kind && covers(r, g) &&
			(r->kind == RULE_HOST || !strcmp(r->name.s, g->name.s)))
			return den_fail(err, DEN_INVALID, 0,
				"'%.80s' is raw, but the gate must read what goes to %.100s; drop "
				"one of "
				"the two",
				r->text, g->text);
	}
	return 0;
}

static int check_secrets(const struct policy *p, struct den_err *err)
{
	for (unsigned i = 0; i < p->n_secrets; i++) {
		const struct policy_secret *a = &p->secrets[i];

		for (unsigned k = 0; k < i; k++) {
			const struct policy_secret *b = &p->secrets[k];

			if (!strcmp(a->env, b->env) && strcmp(a->name, b->name))
				return den_fail(err, DEN_INVALID, 0,
					"secrets[%u] and secrets[%u]: %.64s and %.64s cannot both "
					"be the "
					"variable %.60s; give one of them another 'env'",
					k, i, b->name, a->name, a->env);
			if (!strcmp(a->name, b->name) && a->port == b->port &&
				a->suffix == b->suffix && !strcmp(a->host.s, b->host.s))
				return den_fail(err, DEN_INVALID, 0,
					"secrets[%u] and secrets[%u] grant %.64s to the same host "
					"and "
					"port; put all places into one 'in'",
					k, i, a->name);
		}
	}
	return 0;
}

static bool fills(const struct policy_secret *s, const char *header)
{
	if (!strcmp(header, "authorization") &&
		s->places & (PLACE_BEARER | PLACE_BASIC | PLACE_SIGV4))
		return true;
	for (char **h = s->headers; h && *h; h++)
		if (!strcmp(*h, header))
			return true;
	return false;
}

static int check_adds(const struct policy *p, struct den_err *err)
{
	for (unsigned i = 0; i < p->identity.n_adds; i++) {
		const struct policy_add *a = &p->identity.adds[i];

		for (int k = -1; (k = policy_next_secret(p, &a->host, a->port, k)) >= 0;)
			if (fills(&p->secrets[k], a->header))
				return den_fail(err, DEN_INVALID, 0,
					"identity.add[%u] and secrets[%d] both fill the header "
					"%.64s of "
					"%.80s; drop one of the two",
					i, k, a->header, a->host.s);
		for (unsigned k = 0; k < i; k++)
			if (p->identity.adds[k].port == a->port &&
				!strcmp(p->identity.adds[k].host.s, a->host.s))
				return den_fail(err, DEN_INVALID, 0,
					"identity.add[%u] and identity.add[%u] are for the same "
					"host and "
					"port; one token is added to a request",
					k, i);
	}
	return 0;
}

int policy_finish(struct policy *p, struct den_err *err)
{
	bool names_denied = false;

	for (unsigned i = 0; i < p->n_rules; i++)
		names_denied |= p->rules[i].deny && p->rules[i].kind <= RULE_SUFFIX;
	for (char **name = p->presets; name && *name; name++)
		if (add_preset(p, *name, err) < 0)
			return -1;
	for (unsigned i = 0; i < p->n_secrets; i++)
		add_grant(p, &p->secrets[i].host, p->secrets[i].suffix, p->secrets[i].port,
			"secret", p->secrets[i].name);
	for (unsigned i = 0; i < p->identity.n_adds; i++)
		add_grant(p, &p->identity.adds[i].host, false, p->identity.adds[i].port, "",
			"identity");
	for (unsigned i = 0; i < p->n_rules; i++) {
		if (p->rules[i].kind == RULE_ANY)
			p->any_addr = p->rules[i].raw = !names_denied;
		if (p->rules[i].grant && check_grant(p, &p->rules[i], err) < 0)
			return -1;
	}
	if (check_secrets(p, err) < 0 || check_adds(p, err) < 0)
		return -1;
	policy_index(p);
	return 0;
}

/* ---- back to JSON ---------------------------------------------------------------------------- */

static void print_texts(struct json *j, const char *key, char *const *v)
{
	if (!v || !*v)
		return;
	json_open(j, key, '[');
	for (; *v; v++)
		json_str(j, NULL, *v);
	json_close(j, ']');
}

static void print_rules(struct json *j, const char *key, const struct policy *p, bool deny)
{
	bool any = false;

	for (unsigned i = 0; i < p->n_rules; i++) {
		if (p->rules[i].from || p->rules[i].deny != deny)
			continue;
		if (!any)
			json_open(j, key, '[');
		any = true;
		json_str(j, NULL, p->rules[i].text);
	}
	if (any)
		json_close(j, ']');
}

static void print_limits(struct json *j, const struct policy *p)
{
	if (!p->limits.rate && !p->limits.bytes && !p->limits.connections)
		return;
	json_open(j, "limits", '{');
	if (p->limits.rate)
		json_u64(j, "rate", p->limits.rate);
	if (p->limits.bytes)
		json_u64(j, "bytes", p->limits.bytes);
	if (p->limits.connections)
		json_u64(j, "connections", p->limits.connections);
	json_close(j, '}');
}

static void print_places(struct json *j, const struct policy_secret *s)
{
	static const struct {
		unsigned place;
		const char *name;
	} plain[] = { { PLACE_BEARER, "bearer" }, { PLACE_BASIC, "basic" }, { PLACE_BODY, "body" },
		{ PLACE_SIGV4, "sigv4" } };
	char text[96];

	json_open(j, "in", '[');
	for (char **h = s->headers; h && *h; h++) {
		snprintf(text, sizeof(text), "header:%s", *h);
		json_str(j, NULL, text);
	}
	for (char **q = s->queries; q && *q; q++) {
		snprintf(text, sizeof(text), "query:%s", *q);
		json_str(j, NULL, text);
	}
	if (s->places & PLACE_QUERY && !s->queries)
		json_str(j, NULL, "query");
	for (size_t i = 0; i < ARRAY_SIZE(plain); i++)
		if (s->places & plain[i].place)
			json_str(j, NULL, plain[i].name);
	json_close(j, ']');
}

static void print_secrets(struct json *j, const struct policy *p)
{
	if (!p->n_secrets)
		return;
	json_open(j, "secrets", '[');
	for (unsigned i = 0; i < p->n_secrets; i++) {
		const struct policy_secret *s = &p->secrets[i];
		char host[NET_NAME_MAX + 3];

		snprintf(host, sizeof(host), "%s%s", s->suffix ? "*." : "", s->host.s);
		json_open(j, NULL, '{');
		json_str(j, "name", s->name);
		json_str(j, "host", host);
		json_u64(j, "port", s->port);
		print_places(j, s);
		json_str(j, "env", s->env);
		if (s->access_key)
			json_str(j, "access_key", s->access_key);
		if (s->region)
			json_str(j, "region", s->region);
		if (s->service)
			json_str(j, "service", s->service);
		json_close(j, '}');
	}
	json_close(j, ']');
}

static void print_identity(struct json *j, const struct policy *p)
{
	const __typeof__(p->identity) *id = &p->identity;

	if (!id->org && !id->task && !id->scopes && !id->audiences && !id->n_adds)
		return;
	json_open(j, "identity", '{');
	if (id->org)
		json_str(j, "org", id->org);
	if (id->task)
		json_str(j, "task", id->task);
	print_texts(j, "scopes", id->scopes);
	print_texts(j, "audiences", id->audiences);
	if (id->n_adds)
		json_open(j, "add", '[');
	for (unsigned i = 0; i < id->n_adds; i++) {
		json_open(j, NULL, '{');
		json_str(j, "host", id->adds[i].host.s);
		json_u64(j, "port", id->adds[i].port);
		json_str(j, "audience", id->adds[i].audience);
		json_str(j, "header", id->adds[i].header);
		json_close(j, '}');
	}
	if (id->n_adds)
		json_close(j, ']');
	json_close(j, '}');
}

static void print_resolvers(struct json *j, const struct policy *p)
{
	if (!p->n_resolvers)
		return;
	json_open(j, "resolver", '[');
	for (unsigned i = 0; i < p->n_resolvers; i++) {
		char addr[46], text[64];

		net_addr_format(&p->resolvers[i].addr, addr);
		snprintf(text, sizeof(text), p->resolvers[i].addr.family == 4 ? "%s:%u" : "[%s]:%u",
			addr, p->resolvers[i].port);
		json_str(j, NULL, text);
	}
	json_close(j, ']');
}

void policy_print(const struct policy *p, struct buf *out)
{
	struct json j = { 0 };

	json_open(&j, NULL, '{');
	json_u64(&j, "version", 1);
	print_texts(&j, "presets", p->presets);
	print_rules(&j, "allow", p, false);
	print_rules(&j, "deny", p, true);
	print_limits(&j, p);
	print_secrets(&j, p);
	print_identity(&j, p);
	print_resolvers(&j, p);
	if (p->trust)
		json_str(&j, "trust", p->trust);
	if (p->proxy_env)
		json_bool(&j, "proxy_env", true);
	json_close(&j, '}');
	buf_add(out, j.b.p, j.b.len);
	buf_free(&j.b);
}
