/*
 * E2B's network settings as a policy of den.
 *
 * There, everything is open unless denied, and an allowed address wins over a denied range. Here a deny wins
 * over everything, so ranges that are denied are told without what is allowed of them. Names are allowed on 80
 * and 443 by what a connection says of itself, there as here. What den's gate cannot do (somebody else's proxy,
 * headers of one's own) is refused, never left out.
 */
#include "e2b_parts.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "buf.h"
#include "mem.h"
#include "parse.h"
#include "policies.h"
#include "strv.h"

#define RULES_MAX 1000
#define OUT_MAX 4000 /* rules that den is told; it takes 4096 */
#define ASKED_MAX 3800 /* a label's room */

struct cidr {
	int family;
	uint8_t addr[16];
	unsigned len;
};

/* ---- addresses ---- */

static unsigned cidr_bits(const struct cidr *c)
{
	return c->family == AF_INET ? 32 : 128;
}

static int bit(const uint8_t *a, unsigned i)
{
	return a[i / 8] >> (7 - i % 8) & 1;
}

static bool cidr_parse(const char *text, struct cidr *ret)
{
	char addr[64];
	size_t n = strcspn(text, "/");
	uint64_t len;

	if (n >= sizeof(addr))
		return false;
	memcpy(addr, text, n);
	addr[n] = '\0';
	*ret = (struct cidr){ .family = strchr(addr, ':') ? AF_INET6 : AF_INET };
	if (inet_pton(ret->family, addr, ret->addr) != 1)
		return false;
	len = cidr_bits(ret);
	if (text[n] && parse_u64(text + n + 1, 0, len, &len, NULL) < 0)
		return false;
	ret->len = (unsigned)len;
	for (unsigned i = ret->len; i < cidr_bits(ret); i++) /* 10.1.2.3/8 means 10.0.0.0/8 */
		ret->addr[i / 8] &= (uint8_t) ~(1U << (7 - i % 8));
	return true;
}

static bool cidr_covers(const struct cidr *a, const struct cidr *b)
{
	if (a->family != b->family || a->len > b->len)
		return false;
	for (unsigned i = 0; i < a->len; i++)
		if (bit(a->addr, i) != bit(b->addr, i))
			return false;
	return true;
}

static void cidr_rule(const struct cidr *c, char out[static 64])
{
	char text[INET6_ADDRSTRLEN];

	inet_ntop(c->family, c->addr, text, sizeof(text));
	snprintf(out, 64, c->family == AF_INET ? "%s/%u" : "[%s]/%u", text, c->len);
}

/* ---- names ---- */

static bool name_ok(const char *s)
{
	size_t n = strlen(s);

	if (!strncmp(s, "*.", 2))
		s += 2, n -= 2;
	/* one without a dot would be den's word for the host, or its like */
	if (n < 3 || n > 253 || !strchr(s, '.') || s[0] == '.' || s[0] == '-' || s[n - 1] == '.' ||
		strstr(s, ".."))
		return false;
	if (n > 4 && !strcasecmp(s + n - 4, ".den"))
		return false;
	for (; *s; s++)
		if (!isalnum((unsigned char)*s) && *s != '.' && *s != '-' && *s != '_')
			return false;
	return true;
}

/* ---- a policy ---- */

struct rules {
	const struct who *who;
	struct cidr allow[RULES_MAX], deny[RULES_MAX];
	size_t n_allow, n_deny;
	bool deny_all, allow_all;
	json_t *names; /* array */
	size_t n_out;
};

static int allow_add(struct rules *x, const char *text, struct den_err *err)
{
	struct cidr c;

	if (!cidr_parse(text, &c)) {
		if (!name_ok(text))
			return den_fail(err, DEN_INVALID, 0,
				"allowOut: '%.100s' is no address, range or name like "
				"api.example.com or *.example.com",
				text);
		json_array_append_new(x->names, json_string(text));
		return 0;
	}
	if (c.len == 0) {
		x->allow_all = true;
		return 0;
	}
	x->allow[x->n_allow++] = c;
	return 0;
}

static int deny_add(struct rules *x, const char *text, struct den_err *err)
{
	struct cidr c;

	if (!cidr_parse(text, &c))
		return den_fail(err, DEN_INVALID, 0,
			"denyOut: '%.100s' is no address or range; names can only be allowed",
			text);
	if (c.len == 0)
		x->deny_all = true;
	else
		x->deny[x->n_deny++] = c;
	return 0;
}

static int list_read(const json_t *network, const char *key, struct rules *x,
	int (*add)(struct rules *, const char *, struct den_err *), struct den_err *err)
{
	json_t *list = json_object_get(network, key), *v;
	size_t i;

	if (!list || json_is_null(list))
		return 0;
	if (!json_is_array(list) || json_array_size(list) > RULES_MAX)
		return den_fail(
			err, DEN_INVALID, 0, "%s is a list of at most %d texts", key, RULES_MAX);
	json_array_foreach (list, i, v)
		if (!json_is_string(v) || strlen(json_string_value(v)) != json_string_length(v))
			return den_fail(err, DEN_INVALID, 0, "%s: each element is a text", key);
		else if (add(x, json_string_value(v), err) < 0)
			return -1;
	return 0;
}

static int out_add(
	struct rules *x, json_t *list, const char *fmt, const char *text, struct den_err *err)
{
	if (x->n_out++ >= OUT_MAX)
		return den_fail(err, DEN_INVALID, 0,
			"network: these come to more than %d rules; name fewer", OUT_MAX);
	json_array_append_new(list, json_sprintf(fmt, text));
	return 0;
}

/* d without everything that is allowed from the i-th on */
static int deny_put(struct rules *x, struct cidr d, size_t i, json_t *list, struct den_err *err)
{
	char text[64];

	for (; i < x->n_allow; i++) {
		struct cidr half = d;

		if (cidr_covers(&x->allow[i], &d))
			return 0;
		if (!cidr_covers(&d, &x->allow[i]))
			continue;
		half.len++;
		if (deny_put(x, half, i, list, err) < 0)
			return -1;
		half.addr[d.len / 8] |= (uint8_t)(1U << (7 - d.len % 8));
		return deny_put(x, half, i, list, err);
	}
	cidr_rule(&d, text);
	return out_add(x, list, "%s", text, err);
}

/* ---- headers that the gate adds: tokens of the box's identity ---- */

static const char *token_name(const char *value, size_t *ret_n)
{
	static const char before[] = "Bearer ${e2b.identity.tokens.";
	size_t n = strlen(value);

	if (strncmp(value, before, strlen(before)) || n < sizeof(before) + 1 || value[n - 1] != '}')
		return NULL;
	*ret_n = n - strlen(before) - 1;
	return value + strlen(before);
}

static int header_read(const char *host, const char *header, const json_t *value, const json_t *iam,
	json_t *adds, struct den_err *err)
{
	const char *text = json_string_value(value), *audience, *at;
	auto_free char *name = NULL;
	size_t n;

	at = text ? token_name(text, &n) : NULL;
	if (!at)
		return den_fail(err, DEN_INVALID, 0,
			"rules: den's gate adds no header of its own but "
			"'Bearer ${e2b.identity.tokens.NAME}'; for '%.40s' grant a secret by a "
			"policy of den",
			header);
	name = mem_strndup(at, n);
	audience = json_string_value(
		json_object_get(json_object_get(json_object_get(iam, "tokens"), name), "audience"));
	if (!audience)
		return den_fail(err, DEN_INVALID, 0,
			"rules: iam has no token '%.60s' with an audience", name);
	json_array_append_new(adds,
		json_pack("{s:s, s:s, s:s}", "host", host, "audience", audience, "header", header));
	return 0;
}

static int rules_read(const json_t *rules, const json_t *iam, json_t *adds, struct den_err *err)
{
	const char *host, *header;
	json_t *list, *rule, *value;
	size_t i;

	if (!rules || json_is_null(rules))
		return 0;
	if (!json_is_object(rules))
		return den_fail(
			err, DEN_INVALID, 0, "rules is an object: a list of rules for each host");
	json_object_foreach ((json_t *)rules, host, list) {
		if (!name_ok(host))
			return den_fail(
				err, DEN_INVALID, 0, "rules: '%.100s' is no name of a host", host);
		json_array_foreach (list, i, rule) {
			json_t *headers =
				json_object_get(json_object_get(rule, "transform"), "headers");

			json_object_foreach (headers, header, value)
				if (header_read(host, header, value, iam, adds, err) < 0)
					return -1;
		}
	}
	return 0;
}

/* ---- all of it ---- */

static int refuse(const json_t *network, struct den_err *err)
{
	const json_t *proxy = json_object_get(network, "egressProxy"),
		     *mask = json_object_get(network, "maskRequestHost"),
		     *https = json_object_get(network, "httpsPorts");

	if (proxy && !json_is_null(proxy))
		return den_fail(err, DEN_INVALID, 0,
			"egressProxy: den's gate connects by itself; leave it out");
	if (mask && !json_is_null(mask))
		return den_fail(err, DEN_INVALID, 0,
			"maskRequestHost: a port gets the Host that was asked for; leave it out");
	if (json_array_size(https))
		return den_fail(err, DEN_INVALID, 0,
			"httpsPorts: ports of a sandbox are reached by HTTP; leave it out");
	return 0;
}

static int policy_make(struct rules *x, json_t *adds, char **ret, struct den_err *err)
{
	auto_json *policy = json_pack("{s:i}", "version", 1);
	json_t *allow = json_array(), *deny = json_array(), *name;
	bool open = x->allow_all || !x->deny_all;
	size_t i;

	json_object_set_new(policy, "allow", allow);
	json_object_set_new(policy, "deny", deny);
	if (open)
		json_object_set_new(policy, "presets", json_pack("[s]", "open"));
	for (i = 0; i < x->n_allow; i++) {
		char text[64];

		cidr_rule(&x->allow[i], text);
		/* the gate opens few ports for datagrams: those of names, time and QUIC */
		if (out_add(x, allow, "%s:*/tcp", text, err) < 0 ||
			out_add(x, allow, "%s:53/udp", text, err) < 0 ||
			out_add(x, allow, "%s:123/udp", text, err) < 0 ||
			out_add(x, allow, "%s:443/udp", text, err) < 0)
			return -1;
	}
	json_array_foreach (x->names, i, name)
		if (!open && out_add(x, allow, "%s", json_string_value(name), err) < 0)
			return -1;
	for (i = 0; !x->allow_all && i < x->n_deny; i++)
		if (deny_put(x, x->deny[i], 0, deny, err) < 0)
			return -1;
	if (json_array_size(adds))
		json_object_set_new(policy, "identity", json_pack("{s:O}", "add", adds));
	if (!open && !json_array_size(allow) && !json_array_size(adds))
		return 0; /* nothing gets out: no gate is needed */
	/* private networks, and what the box's tokens say of its organisation: policies.h */
	return policies_in(x->who, policy, ret, err);
}

static int asked_make(const json_t *network, char **ret, struct den_err *err)
{
	if (!network)
		return 0;
	*ret = json_dumps(network, JSON_COMPACT);
	if (!*ret || strlen(*ret) > ASKED_MAX)
		return den_fail(
			err, DEN_INVALID, 0, "network: more than %d bytes of settings", ASKED_MAX);
	return 0;
}

int e2b_net_read(const struct who *who, const json_t *network, const json_t *iam, int internet,
	struct e2b_net *ret, struct den_err *err)
{
	auto_free struct rules *x = mem_zalloc(sizeof(*x));
	auto_json *names = json_array(), *adds = json_array();
	auto_net got = { .internet = internet };

	x->who = who;
	x->names = names;
	x->deny_all = internet == 0;
	got.private_ports = json_is_false(json_object_get(network, "allowPublicTraffic"));
	if (refuse(network, err) < 0 || list_read(network, "denyOut", x, deny_add, err) < 0 ||
		list_read(network, "allowOut", x, allow_add, err) < 0 ||
		rules_read(json_object_get(network, "rules"), iam, adds, err) < 0)
		return -1;
	if (json_array_size(names) && !x->deny_all)
		return den_fail(err, DEN_INVALID, 0,
			"When specifying allowed domains in allow out, you must include "
			"'ALL_TRAFFIC' (0.0.0.0/0) in deny out to block all other traffic.");
	if (policy_make(x, adds, &got.policy, err) < 0 || asked_make(network, &got.asked, err) < 0)
		return -1;
	*ret = got;
	got = (struct e2b_net){ 0 };
	return 0;
}

void e2b_net_free(struct e2b_net *n)
{
	free(n->policy);
	free(n->asked);
}

/* ---- changing it ---- */

/* Labels other than those that the change brings. */
static char **labels_other(const struct den_box_info *i)
{
	static const char *const ours[] = { "e2b.network=", "e2b.internet=" };
	char **labels = NULL;

	for (const char *const *l = i->labels; l && *l; l++) {
		bool keep = true;

		for (size_t k = 0; k < ARRAY_SIZE(ours); k++)
			keep = keep && strncmp(*l, ours[k], strlen(ours[k]));
		if (keep)
			strv_add(&labels, *l);
	}
	return labels;
}

/* Ports belong to the box's making, and are not in what a change sends. */
static void keep_ports(const struct den_box_info *i, json_t *asked)
{
	const char *old = e2b_label(i, "e2b.network");
	auto_json *was = old ? json_loads(old, 0, NULL) : NULL;
	json_t *ports = json_object_get(was, "allowPublicTraffic");

	if (ports)
		json_object_set(asked, "allowPublicTraffic", ports);
}

static int network_set(struct den_box *box, const struct den_box_info *i, const struct e2b_net *net,
	struct den_err *err)
{
	auto_strv labels = labels_other(i);
	auto_free char *text = NULL;

	if (asprintf(&text, "e2b.network=%s", net->asked) < 0)
		abort();
	strv_add(&labels, text);
	if (net->internet >= 0)
		strv_add(&labels, net->internet ? "e2b.internet=1" : "e2b.internet=0");
	/* the policy first: what the labels say must never be stricter than what holds */
	if (den_policy_set(box, net->policy ? net->policy : "{\"version\":1}", NULL,
		    DEN_ANY_GENERATION, NULL, NULL, err) < 0)
		return -1;
	return den_box_label(box, (const char *const *)labels, err);
}

int e2b_network(struct req *r, struct den_err *err)
{
	auto_json *body = NULL, *asked = json_object();
	static const char *const keys[] = { "allowOut", "denyOut", "rules", "egressProxy" };
	auto_json *iam = NULL;
	auto_net net = { 0 };
	auto_box *box = NULL;
	struct den_box_info *i;
	const json_t *internet;
	const char *tokens;
	int status;

	if (req_json(r, &body, err) < 0 || e2b_open(r, &box, err) < 0)
		return -1;
	internet = json_object_get(body, "allow_internet_access");
	if (internet && !json_is_boolean(internet) && !json_is_null(internet))
		return den_fail(err, DEN_INVALID, 0, "allow_internet_access is true or false");
	for (size_t k = 0; k < ARRAY_SIZE(keys); k++)
		if (json_object_get(body, keys[k]))
			json_object_set(asked, keys[k], json_object_get(body, keys[k]));
	if (den_box_info(box, &i, err) < 0)
		return -1;
	keep_ports(i, asked);
	tokens = e2b_label(i, "e2b.iam");
	iam = tokens ? json_loads(tokens, 0, NULL) : NULL;
	status = e2b_net_read(req_who(r), asked, iam,
		json_is_boolean(internet) ? json_is_true(internet) : -1, &net, err);
	if (status == 0)
		status = network_set(box, i, &net, err);
	den_box_infos_free(i, 1);
	return status < 0 ? -1 : req_reply_empty(r, 204);
}
