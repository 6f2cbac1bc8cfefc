/* A policy from JSON. Everything is bounded, and every error says where. */
#include <ctype.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "mem.h"
#include "parse.h"
#include "policy_part.h"
#include "strv.h"

#define DEPTH_MAX 8
#define TEXT_MAX 255

static void json_freep(json_t **j)
{
	json_decref(*j);
}
#define auto_json __attribute__((cleanup(json_freep))) json_t *

/* ---- keys ------------------------------------------------------------------------------------ */

static const char *const keys_policy[] = { "version", "presets", "allow", "deny", "limits",
	"secrets", "identity", "resolver", "trust", "proxy_env", NULL };
static const char *const keys_limits[] = { "rate", "bytes", "connections", NULL };
static const char *const keys_secrets[] = { "name", "host", "port", "in", "env", "access_key",
	"region", "service", NULL };
static const char *const keys_identity[] = { "org", "task", "scopes", "audiences", "add", NULL };
static const char *const keys_add[] = { "host", "port", "audience", "header", NULL };

const char *const *policy_keys(const char *object)
{
	static const struct {
		const char *object;
		const char *const *keys;
	} all[] = { { "", keys_policy }, { "limits", keys_limits }, { "secrets", keys_secrets },
		{ "identity", keys_identity }, { "add", keys_add } };

	for (size_t i = 0; i < ARRAY_SIZE(all); i++)
		if (!strcmp(all[i].object, object))
			return all[i].keys;
	return NULL;
}

static int unknown_key(const char *key, const char *const *keys, struct den_err *err)
{
	int n = 0;
	const char *near;
	auto_buf all = { 0 };

	for (; keys[n]; n++)
		buf_addf(&all, "%s%s", n ? ", " : "", keys[n]);
	near = parse_nearest(key, keys, n);
	if (near)
		return den_fail(
			err, DEN_INVALID, 0, "unknown key '%.60s'; did you mean '%s'?", key, near);
	return den_fail(
		err, DEN_INVALID, 0, "unknown key '%.60s'; there are %s", key, buf_str(&all));
}

static int object_check(const json_t *j, const char *const *keys, struct den_err *err)
{
	const char *key;
	json_t *v;

	if (!json_is_object(j))
		return den_fail(err, DEN_INVALID, 0, "must be an object, like { ... }");
	json_object_foreach((json_t *)j, key, v)
	{
		const char *const *k = keys;

		while (*k && strcmp(*k, key))
			k++;
		if (!*k)
			return unknown_key(key, keys, err);
	}
	return 0;
}

/* ---- values ---------------------------------------------------------------------------------- */

/* Text without what could steer a terminal or end a line in a header. */
static int text_check(const json_t *v, bool ascii, const char **ret, struct den_err *err)
{
	const char *s = json_string_value(v);

	if (!s)
		return den_fail(err, DEN_INVALID, 0, "must be a text");
	if (!*s)
		return den_fail(err, DEN_INVALID, 0, "is empty");
	if (json_string_length(v) > TEXT_MAX)
		return den_fail(err, DEN_INVALID, 0, "is longer than %d bytes", TEXT_MAX);
	for (const char *p = s; *p; p++) {
		unsigned char c = (unsigned char)*p;

		if (c < ' ' || c == 0x7f ||
			(ascii && (c == ' ' || c >= 0x80 || c == '"' || c == '\\')))
			return den_fail(err, DEN_INVALID, 0, "'%.60s' holds %s", s,
				ascii ? "more than plain ASCII without spaces and quotes"
				      : "control characters");
	}
	*ret = s;
	return 0;
}

/* A member of an object; a missing one is *ret NULL, or an error if it must be there. */
static int get_text(const json_t *j, const char *key, bool must, bool ascii, const char **ret,
	struct den_err *err)
{
	const json_t *v = json_object_get(j, key);

	*ret = NULL;
	if (!v)
		return must ? den_fail(err, DEN_INVALID, 0, "'%s' is missing", key) : 0;
	if (text_check(v, ascii, ret, err) < 0)
		return den_wrap(err, "%s", key);
	return 0;
}

static int get_list(
	const json_t *j, const char *key, size_t max, const json_t **ret, struct den_err *err)
{
	const json_t *v = json_object_get(j, key);

	if (v && !json_is_array(v))
		return den_fail(err, DEN_INVALID, 0, "%s: must be a list, like [ ... ]", key);
	if (json_array_size(v) > max)
		return den_fail(err, DEN_INVALID, 0, "%s: has %zu entries; the limit is %zu", key,
			json_array_size(v), max);
	*ret = v;
	return 0;
}

static int get_texts(const json_t *j, const char *key, char ***ret, struct den_err *err)
{
	auto_strv all = NULL;
	const json_t *list;
	const char *s;

	if (get_list(j, key, POLICY_TEXTS_MAX, &list, err) < 0)
		return -1;
	for (size_t i = 0; i < json_array_size(list); i++) {
		if (text_check(json_array_get(list, i), true, &s, err) < 0)
			return den_wrap(err, "%s[%zu]", key, i);
		strv_add(&all, s);
	}
	*ret = mem_take(&all);
	return 0;
}

static int get_port(const json_t *j, uint16_t *ret, struct den_err *err)
{
	const json_t *v = json_object_get(j, "port");
	json_int_t n = json_integer_value(v);

	if (!v)
		return 0;
	if (!json_is_integer(v) || n < 1 || n > 65535)
		return den_fail(err, DEN_INVALID, 0, "port: must be a number from 1 to 65535");
	*ret = (uint16_t)n;
	return 0;
}

/* A number of bytes, or a text like "10M". */
static int get_size(const json_t *j, const char *key, uint64_t *ret, struct den_err *err)
{
	const json_t *v = json_object_get(j, key);

	if (!v)
		return 0;
	if (json_is_integer(v) && json_integer_value(v) > 0) {
		*ret = (uint64_t)json_integer_value(v);
		return 0;
	}
	if (!json_is_string(v))
		return den_fail(err, DEN_INVALID, 0,
			"limits.%s: must be a size like \"10M\", or a number of bytes from 1 on",
			key);
	if (parse_size(json_string_value(v), ret, err) < 0)
		return den_wrap(err, "limits.%s", key);
	return 0;
}

/* ---- parts ----------------------------------------------------------------------------------- */

static int read_rules(const json_t *j, const char *key, struct policy *p, struct den_err *err)
{
	const json_t *list;

	if (get_list(j, key, POLICY_RULES_MAX - p->n_rules, &list, err) < 0)
		return -1;
	for (size_t i = 0; i < json_array_size(list); i++) {
		const char *s = json_string_value(json_array_get(list, i));
		struct policy_rule r;
		auto_buf text = { 0 };

		if (!s)
			return den_fail(err, DEN_INVALID, 0, "%s[%zu]: must be a text", key, i);
		if (policy_rule_parse(s, key[0] == 'd', false, &r, &text, err) < 0)
			return den_wrap(err, "%s[%zu]", key, i);
		policy_rule_append(p, &r, buf_str(&text), NULL);
	}
	return 0;
}

static int unknown_preset(const char *name, struct den_err *err)
{
	const char *names[16], *near;
	auto_buf all = { 0 };
	int n = 0;

	for (const struct policy_preset *t = policy_presets; t->name; t++) {
		names[n++] = t->name;
		buf_addf(&all, "%s%s", all.len ? ", " : "", t->name);
	}
	near = parse_nearest(name, names, n);
	if (near)
		return den_fail(err, DEN_INVALID, 0,
			"there is no preset '%.60s'; did you mean '%s'?", name, near);
	return den_fail(err, DEN_INVALID, 0, "there is no preset '%.60s'; there are %s", name,
		buf_str(&all));
}

static int read_presets(const json_t *j, struct policy *p, struct den_err *err)
{
	const json_t *list;

	if (get_list(j, "presets", 16, &list, err) < 0)
		return -1;
	for (size_t i = 0; i < json_array_size(list); i++) {
		const char *s = json_string_value(json_array_get(list, i));
		bool had = false;

		if (!s)
			return den_fail(err, DEN_INVALID, 0, "presets[%zu]: must be a text", i);
		if (!policy_preset_find(s)) {
			unknown_preset(s, err);
			return den_wrap(err, "presets[%zu]", i);
		}
		for (char **q = p->presets; q && *q; q++)
			had |= !strcmp(*q, s);
		if (!had)
			strv_add(&p->presets, s);
	}
	return 0;
}

static int read_limits(const json_t *j, struct policy *p, struct den_err *err)
{
	const json_t *limits = json_object_get(j, "limits"),
		     *v = json_object_get(limits, "connections");
	json_int_t n = json_integer_value(v);

	if (!limits)
		return 0;
	if (object_check(limits, keys_limits, err) < 0)
		return den_wrap(err, "limits");
	if (v && (!json_is_integer(v) || n < 1 || n > POLICY_CONNECTIONS_MAX))
		return den_fail(err, DEN_INVALID, 0,
			"limits.connections: must be a number from 1 to %d",
			POLICY_CONNECTIONS_MAX);
	p->limits.connections = (uint64_t)n;
	if (get_size(limits, "rate", &p->limits.rate, err) < 0)
		return -1;
	return get_size(limits, "bytes", &p->limits.bytes, err);
}

/* A host of a grant: a name, with "*." in front where wild is not NULL. */
static int read_host(const json_t *j, struct net_name *ret, bool *wild, struct den_err *err)
{
	struct policy_rule r;
	const char *s;

	if (get_text(j, "host", true, false, &s, err) < 0)
		return -1;
	if (!strcmp(s, "host") ||
		!strcmp(s, NET_NAME_HOST)) { /* the host's loopback; it may speak clear HTTP */
		if (wild)
			*wild = false;
		return net_name_parse(NET_NAME_HOST, strlen(NET_NAME_HOST), ret, err);
	}
	if (policy_rule_parse(s, true, false, &r, NULL, err) < 0)
		return den_wrap(err, "host");
	if (r.kind != RULE_NAME && r.kind != RULE_SUFFIX)
		return den_fail(err, DEN_INVALID, 0,
			"host: '%.80s': must be a name that its server has a certificate for", s);
	if (strchr(s, ':'))
		return den_fail(err, DEN_INVALID, 0,
			"host: '%.80s': the name alone; the port is a key of its own", s);
	if (r.kind == RULE_SUFFIX && !wild)
		return den_fail(
			err, DEN_INVALID, 0, "host: '%.80s': must be one name, without *", s);
	if (wild)
		*wild = r.kind == RULE_SUFFIX;
	*ret = r.name;
	return 0;
}

static int read_place(const char *text, struct policy_secret *s, struct den_err *err)
{
	static const struct {
		const char *name;
		unsigned place;
	} plain[] = { { "bearer", PLACE_BEARER }, { "basic", PLACE_BASIC },
		{ "query", PLACE_QUERY }, { "body", PLACE_BODY }, { "sigv4", PLACE_SIGV4 } };
	auto_free char *header = NULL;

	for (size_t i = 0; i < ARRAY_SIZE(plain); i++) {
		if (!strcmp(text, plain[i].name)) {
			s->places |= plain[i].place;
			return 0;
		}
	}
	if (!strncmp(text, "header:", 7)) {
		if (policy_header_parse(text + 7, &header, err) < 0)
			return -1;
		strv_add(&s->headers, header);
		s->places |= PLACE_HEADER;
		return 0;
	}
	if (!strncmp(text, "query:", 6) && text[6]) {
		if (strlen(text + 6) > 64 || strpbrk(text + 6, "&=#?%+/;"))
			return den_fail(
				err, DEN_INVALID, 0, "'%.70s' is not a parameter's name", text + 6);
		strv_add(&s->queries, text + 6);
		s->places |= PLACE_QUERY;
		return 0;
	}
	return den_fail(err, DEN_INVALID, 0,
		"'%.60s' is no place for a secret; there are header:NAME, bearer, basic, query, "
		"query:NAME, "
		"body, sigv4",
		text);
}

static int read_places(const json_t *j, struct policy_secret *s, struct den_err *err)
{
	const json_t *list;
	bool any_query = false;

	if (get_list(j, "in", POLICY_TEXTS_MAX, &list, err) < 0)
		return -1;
	if (!json_array_size(list))
		return den_fail(err, DEN_INVALID, 0,
			"'in' is missing: where the secret may stand, like [\"header:x-api-key\"]");
	for (size_t i = 0; i < json_array_size(list); i++) {
		const char *text;

		if (text_check(json_array_get(list, i), true, &text, err) < 0 ||
			read_place(text, s, err) < 0)
			return den_wrap(err, "in[%zu]", i);
		any_query |= !strcmp(text, "query");
	}
	if (any_query) {
		strv_free(s->queries);
		s->queries = NULL;
	}
	if (s->places & PLACE_SIGV4 && s->places != PLACE_SIGV4)
		return den_fail(err, DEN_INVALID, 0,
			"in: a key that signs (sigv4) is sent nowhere; no other place goes with "
			"it");
	return 0;
}

static int take_word(const json_t *j, const char *key, const char *bytes, size_t max, char **ret,
	struct den_err *err)
{
	const char *s;

	if (get_text(j, key, false, true, &s, err) < 0)
		return -1;
	if (!s)
		return 0;
	if (strlen(s) > max || strspn(s, bytes) != strlen(s))
		return den_fail(err, DEN_INVALID, 0, "%s: '%.60s' is not one", key, s);
	*ret = mem_strdup(s);
	return 0;
}

#define LETTERS "abcdefghijklmnopqrstuvwxyz"
#define CAPITALS "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define DIGITS "0123456789"

static int read_sigv4(const json_t *j, struct policy_secret *s, struct den_err *err)
{
	if (take_word(j, "access_key", LETTERS CAPITALS DIGITS "_", 128, &s->access_key, err) < 0 ||
		take_word(j, "region", LETTERS DIGITS "-", 64, &s->region, err) < 0 ||
		take_word(j, "service", LETTERS DIGITS "-", 64, &s->service, err) < 0)
		return -1;
	if (s->places & PLACE_SIGV4 && !s->access_key)
		return den_fail(err, DEN_INVALID, 0,
			"'access_key' is missing: the id that belongs to the secret key");
	if (!(s->places & PLACE_SIGV4) && (s->access_key || s->region || s->service))
		return den_fail(err, DEN_INVALID, 0,
			"access_key, region and service belong to a secret with \"in\": "
			"[\"sigv4\"]");
	return 0;
}

static int read_secret(const json_t *j, struct policy_secret *s, struct den_err *err)
{
	const char *name, *env;

	s->port = 443;
	if (object_check(j, keys_secrets, err) < 0 ||
		get_text(j, "name", true, true, &name, err) < 0)
		return -1;
	if (!policy_secret_name_ok(name))
		return den_fail(err, DEN_INVALID, 0,
			"name: '%.80s': a secret's name is A-Z a-z 0-9 _ . -, at most 64, and "
			"begins with a letter or _",
			name);
	s->name = mem_strdup(name);
	if (read_host(j, &s->host, &s->suffix, err) < 0 || get_port(j, &s->port, err) < 0 ||
		read_places(j, s, err) < 0 || read_sigv4(j, s, err) < 0 ||
		get_text(j, "env", false, true, &env, err) < 0)
		return -1;
	if (s->suffix && !(s->places & PLACE_SIGV4))
		return den_fail(err, DEN_INVALID, 0,
			"host: a secret goes to one name; only sigv4, which sends none, may say "
			"*.");
	if (!env)
		env = s->places & PLACE_SIGV4 ? "AWS_SECRET_ACCESS_KEY" : s->name;
	if (!policy_env_name_ok(env))
		return den_fail(err, DEN_INVALID, 0,
			"env: '%.80s' is not the name of a variable; give one as 'env'", env);
	s->env = mem_strdup(env);
	return 0;
}

static int read_secrets(const json_t *j, struct policy *p, struct den_err *err)
{
	const json_t *list;

	if (get_list(j, "secrets", POLICY_SECRETS_MAX, &list, err) < 0)
		return -1;
	p->secrets = mem_zalloc((json_array_size(list) + 1) * sizeof(*p->secrets));
	for (size_t i = 0; i < json_array_size(list); i++)
		if (read_secret(json_array_get(list, i), &p->secrets[p->n_secrets++], err) < 0)
			return den_wrap(err, "secrets[%zu]", i);
	return 0;
}

static int read_add(const json_t *j, struct policy_add *a, struct den_err *err)
{
	const char *audience, *header;

	a->port = 443;
	if (object_check(j, keys_add, err) < 0 || read_host(j, &a->host, NULL, err) < 0 ||
		get_port(j, &a->port, err) < 0 ||
		get_text(j, "audience", true, true, &audience, err) < 0 ||
		get_text(j, "header", false, true, &header, err) < 0)
		return -1;
	a->audience = mem_strdup(audience);
	if (policy_header_parse(header ? header : "authorization", &a->header, err) < 0)
		return den_wrap(err, "header");
	return 0;
}

static int read_identity(const json_t *j, struct policy *p, struct den_err *err)
{
	const json_t *id = json_object_get(j, "identity"), *adds;
	const char *org, *task;

	if (!id)
		return 0;
	if (object_check(id, keys_identity, err) < 0 ||
		get_text(id, "org", false, false, &org, err) < 0 ||
		get_text(id, "task", false, false, &task, err) < 0)
		return den_wrap(err, "identity");
	p->identity.org = org ? mem_strdup(org) : NULL;
	p->identity.task = task ? mem_strdup(task) : NULL;
	if (get_texts(id, "scopes", &p->identity.scopes, err) < 0 ||
		get_texts(id, "audiences", &p->identity.audiences, err) < 0 ||
		get_list(id, "add", POLICY_ADDS_MAX, &adds, err) < 0)
		return den_wrap(err, "identity");
	p->identity.adds = mem_zalloc((json_array_size(adds) + 1) * sizeof(*p->identity.adds));
	for (size_t i = 0; i < json_array_size(adds); i++)
		if (read_add(json_array_get(adds, i), &p->identity.adds[p->identity.n_adds++],
			    err) < 0)
			return den_wrap(err, "identity.add[%zu]", i);
	return 0;
}

static int read_resolver(const char *text, struct policy_resolver *ret, struct den_err *err)
{
	struct policy_rule r;
	auto_buf with_port = { 0 };
	struct net_addr a;

	/* the same spelling as in a rule, and the port that names are asked at */
	if (net_addr_parse(text, &a) == 0)
		buf_addf(&with_port, a.family == 4 ? "%s:53" : "[%s]:53", text);
	else
		buf_addstr(&with_port, text);
	if (policy_rule_parse(buf_str(&with_port), false, false, &r, NULL, err) < 0)
		return -1;
	if (r.kind != RULE_CIDR || r.cidr.bits != (r.cidr.a.family == 4 ? 32 : 128) ||
		r.ports.r[0].lo != r.ports.r[0].hi || strchr(text, '/'))
		return den_fail(err, DEN_INVALID, 0,
			"'%.80s': must be an address and a port, like 192.0.2.1:53", text);
	*ret = (struct policy_resolver){ r.cidr.a, r.ports.r[0].lo };
	return 0;
}

static int read_resolvers(const json_t *j, struct policy *p, struct den_err *err)
{
	const json_t *list;
	const char *text;

	if (get_list(j, "resolver", POLICY_RESOLVERS_MAX, &list, err) < 0)
		return -1;
	for (size_t i = 0; i < json_array_size(list); i++)
		if (text_check(json_array_get(list, i), true, &text, err) < 0 ||
			read_resolver(text, &p->resolvers[p->n_resolvers++], err) < 0)
			return den_wrap(err, "resolver[%zu]", i);
	return 0;
}

static int read_policy(const json_t *j, struct policy *p, struct den_err *err)
{
	const json_t *version = json_object_get(j, "version"),
		     *proxy = json_object_get(j, "proxy_env");

	if (object_check(j, keys_policy, err) < 0)
		return -1;
	if (version && (!json_is_integer(version) || json_integer_value(version) != 1))
		return den_fail(err, DEN_INVALID, 0, "version: only 1 is known");
	if (proxy && !json_is_boolean(proxy))
		return den_fail(err, DEN_INVALID, 0, "proxy_env: must be true or false");
	p->proxy_env = json_is_true(proxy);
	if (read_presets(j, p, err) < 0 || read_rules(j, "allow", p, err) < 0 ||
		read_rules(j, "deny", p, err) < 0 || read_limits(j, p, err) < 0 ||
		read_secrets(j, p, err) < 0 || read_identity(j, p, err) < 0 ||
		read_resolvers(j, p, err) < 0 ||
		policy_trust_read(json_object_get(j, "trust"), &p->trust, err) < 0)
		return -1;
	return policy_finish(p, err);
}

/* jansson recurses, and its own limit is 2048. */
static bool too_deep(const char *p, size_t n)
{
	bool text = false;
	unsigned depth = 0;

	for (size_t i = 0; i < n; i++) {
		if (text && p[i] == '\\')
			i++;
		else if (p[i] == '"')
			text = !text;
		else if (!text && (p[i] == '{' || p[i] == '['))
			depth++;
		else if (!text && (p[i] == '}' || p[i] == ']') && depth)
			depth--;
		if (depth > DEPTH_MAX)
			return true;
	}
	return false;
}

int policy_parse(const char *json, size_t len, struct policy **ret, struct den_err *err)
{
	auto_policy p = NULL;
	auto_json j = NULL;
	json_error_t why;

	if (len > POLICY_JSON_MAX)
		return den_fail(err, DEN_INVALID, 0, "policy: %zu bytes; the limit is %d", len,
			POLICY_JSON_MAX);
	if (too_deep(json, len))
		return den_fail(err, DEN_INVALID, 0, "policy: nested deeper than any policy is");
	j = json_loadb(json, len, JSON_REJECT_DUPLICATES, &why);
	if (!j)
		return den_fail(err, DEN_INVALID, 0, "policy: not JSON: line %d: %.120s", why.line,
			why.text);
	p = mem_new(struct policy);
	if (read_policy(j, p, err) < 0)
		return den_wrap(err, "policy");
	*ret = mem_take(&p);
	return 0;
}
