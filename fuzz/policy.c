/*
 * A policy is read, printed and read again; a rule likewise; names and addresses. What was understood
 * keeps its promises: the three who decide about a name (kernel, resolver, relay) agree.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "mem.h"
#include "policy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok)
{
	if (!ok)
		abort();
}

static void fuzz_name(const char *text, size_t n)
{
	struct net_name name, again;
	struct den_err err = { 0 };
	struct net_addr a;

	if (net_name_parse(text, n, &name, &err) < 0) {
		check(err.code == DEN_INVALID && err.msg[0]);
		return;
	}
	check(strspn(name.s, "abcdefghijklmnopqrstuvwxyz0123456789-_.") == strlen(name.s));
	check(name.s[0] != '.' && !strstr(name.s, "..") && strlen(name.s) <= NET_NAME_MAX);
	check(name.s[strlen(name.s) - 1] != '.' && net_addr_parse(name.s, &a) < 0);
	check(net_name_parse(name.s, strlen(name.s), &again, NULL) == 0 &&
		!strcmp(name.s, again.s));
}

static void fuzz_addr(const char *text, const uint8_t *data, size_t n)
{
	struct net_addr a, again;
	struct net_cidr c;
	char out[46];

	if (n >= 17) {
		a = net_addr_v6(data + 1);
		net_addr_format(&a, out);
		check(net_addr_parse(out, &again) == 0 && net_addr_equal(&a, &again));
		c = (struct net_cidr){ a, (uint8_t)(data[0] % (a.family == 4 ? 33 : 129)) };
		net_cidr_mask(&c);
		check(net_cidr_has(&c, &a) && !net_cidr_mask(&c));
		(void)net_addr_special(&a);
		(void)net_cidr_special(&c);
	}
	if (net_addr_parse(text, &a) == 0) {
		net_addr_format(&a, out);
		check(net_addr_parse(out, &again) == 0 && net_addr_equal(&a, &again));
	}
}

static void fuzz_rule(const char *text)
{
	for (int deny = 0; deny < 2; deny++) {
		struct policy_rule r, again;
		struct den_err err = { 0 };
		auto_buf once = { 0 }, twice = { 0 };

		if (policy_rule_parse(text, deny, false, &r, &once, &err) < 0) {
			check(err.code == DEN_INVALID && err.msg[0]);
			continue;
		}
		check(r.ports.n && r.kind != RULE_ANY && (r.tcp || r.udp) && !(deny && r.raw));
		check(!port_set_has(&r.ports, 0));
		check(policy_rule_parse(buf_str(&once), deny, false, &again, &twice, &err) == 0);
		check(!strcmp(buf_str(&once), buf_str(&twice)) && r.kind == again.kind &&
			port_set_equal(&r.ports, &again.ports) && r.raw == again.raw &&
			r.udp == again.udp && r.tcp == again.tcp);
	}
}

static void agree(const struct policy *p, const struct net_name *n)
{
	static const uint16_t ports[] = { 1, 22, 80, 443, 5432, 65535 };
	struct port_set s;
	struct verdict v;

	policy_name_ports(p, n, &s);
	for (size_t i = 0; i < ARRAY_SIZE(ports); i++) {
		v = policy_check_name(p, n, ports[i]);
		check(v.rule && (!v.allow || v.by) && !(v.raw && v.terminate));
		check(!v.allow || port_set_has(&s, ports[i]));
		check(!v.terminate || policy_next_secret(p, n, ports[i], -1) >= 0 ||
			policy_next_add(p, n, ports[i], -1) >= 0);
	}
	check(!policy_check_name(p, n, 0).allow);
	check(policy_name_known(p, n, &v) == (s.n > 0));
	check((policy_class_of(p, n) < p->n_classes) == (s.n > 0));
}

static void fuzz_policy(const char *text, size_t n)
{
	struct policy *p = NULL, *q = NULL;
	struct den_err err = { 0 };
	auto_buf once = { 0 }, twice = { 0 };

	if (policy_parse(text, n, &p, &err) < 0) {
		check(err.code == DEN_INVALID && !strncmp(err.msg, "policy: ", 8) && !p);
		return;
	}
	policy_print(p, &once);
	check(policy_parse(once.p, once.len, &q, &err) == 0);
	policy_print(q, &twice);
	check(once.len == twice.len && !memcmp(once.p, twice.p, once.len));
	check(p->n_classes <= POLICY_CLASSES_MAX);
	for (unsigned i = 0; i < p->n_rules && i < 64; i++) {
		struct policy_rule *r = &p->rules[i];
		struct net_name below;

		if (r->kind > RULE_SUFFIX)
			continue;
		agree(p, &r->name);
		if (strlen(r->name.s) > 200)
			continue;
		strcpy(below.s, "b.");
		strcat(below.s, r->name.s);
		agree(p, &below);
	}
	agree(p, &(struct net_name){ NET_NAME_HOST });
	agree(p, &(struct net_name){ "localhost" });
	policy_free(q);
	policy_free(p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	auto_free char *text = mem_alloc(size + 1);

	memcpy(text, data, size);
	text[size] = '\0';
	fuzz_name(text, size);
	fuzz_addr(text, data, size);
	fuzz_rule(text);
	fuzz_policy(text, size);
	return 0;
}
