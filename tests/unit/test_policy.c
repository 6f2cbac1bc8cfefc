#include "test.h"

#include <jansson.h>
#include <stdbool.h>

#include "kit_policy.h"
#include "mem.h"
#include "policy.h"

/* The JSON is written with ' for ". */
static char *quoted(const char *text)
{
	char *json = mem_strdup(text);

	for (char *p = json; *p; p++)
		if (*p == '\'')
			*p = '"';
	return json;
}

static struct policy *policy(const char *text)
{
	auto_free char *json = quoted(text);
	struct den_err err = { 0 };
	struct policy *p = NULL;

	if (policy_parse(json, strlen(json), &p, &err) < 0)
		test_fail(__FILE__, __LINE__, err.msg);
	return p;
}

static bool refused(const char *text, const char *why)
{
	auto_free char *json = quoted(text);
	struct den_err err = { 0 };
	struct policy *p = (struct policy *)1;

	if (policy_parse(json, strlen(json), &p, &err) == 0) {
		printf("accepted: %s\n", text);
		return false;
	}
	if (p != (struct policy *)1 || err.code != DEN_INVALID || strncmp(err.msg, "policy: ", 8) ||
		!strstr(err.msg, why)) {
		printf("%s\n  says: %s\n  not:  %s\n", text, err.msg, why);
		return false;
	}
	return true;
}

static bool allows(const struct policy *p, const char *n, uint16_t port)
{
	struct net_name nn = name(n);
	struct verdict v = policy_check_name(p, &nn, port);
	struct port_set s;

	/* what the kernel is told, what the resolver says and what the relay decides never disagree */
	policy_name_ports(p, &nn, &s);
	CHECK(port_set_has(&s, port) == v.allow);
	CHECK(!v.allow || policy_name_known(p, &nn, NULL));
	CHECK(!v.allow || policy_class_of(p, &nn) < p->n_classes);
	return v.allow;
}

static bool reaches(const struct policy *p, const char *a, uint16_t port, bool udp)
{
	struct net_addr na = addr(a);

	return policy_check_addr(p, &na, port, udp).allow;
}

static bool answer(const struct policy *p, const char *a, uint16_t port)
{
	struct net_addr na = addr(a);

	return policy_answer_ok(p, &na, port, NULL);
}

/* ---- what is allowed ------------------------------------------------------------------------- */

TEST(policy_that_says_nothing_allows_nothing)
{
	auto_policy p = policy("{}");

	CHECK(!policy_opens_anything(p) && !p->n_classes);
	CHECK(!allows(p, "example.com", 443) && !allows(p, "host.den", 80));
	CHECK(!reaches(p, "1.1.1.1", 443, false));
	CHECK(answer(p, "1.1.1.1", 443) && !answer(p, "127.0.0.1", 443));
}

TEST(policy_names_match_whole_and_wildcards_only_below)
{
	auto_policy p = policy("{'allow': ['example.com', '*.x.org:443', 'a.x.org:22']}");

	CHECK(policy_opens_anything(p));
	CHECK(allows(p, "example.com", 80) && allows(p, "EXAMPLE.com.", 443));
	CHECK(!allows(p, "example.com", 22) && !allows(p, "www.example.com", 443));
	CHECK(!allows(p, "example.com.evil", 443) && !allows(p, "xexample.com", 443));
	CHECK(allows(p, "b.x.org", 443) && allows(p, "a.b.c.x.org", 443));
	CHECK(!allows(p, "x.org", 443) && !allows(p, "b.x.org", 80) && !allows(p, "yx.org", 443));
	CHECK(allows(p, "a.x.org", 22) && allows(p, "a.x.org", 443)); /* they add up */
	CHECK(!allows(p, "b.x.org", 22) && !allows(p, "b.a.x.org", 22));
	CHECK(!allows(p, "com", 443) && !allows(p, "org", 443));
}

TEST(policy_deny_wins_over_everything)
{
	auto_policy p = policy(
		"{'presets': ['open'], 'allow': ['bad.x.org', '*.y.org', 'z.org:*'],"
		"'deny': ['bad.x.org', '*.y.org', 'z.org:22', '10.0.0.0/8', '1.2.3.0/24:80/tcp']}");
	struct verdict v;

	CHECK(!allows(p, "bad.x.org", 443) && allows(p, "a.bad.x.org", 443));
	CHECK(!allows(p, "a.y.org", 443) && !allows(p, "a.b.y.org", 443) &&
		allows(p, "y.org", 443));
	CHECK(!allows(p, "z.org", 22) && allows(p, "z.org", 23));
	v = policy_check_name(p, &(struct net_name){ "a.y.org" }, 443);
	CHECK(!v.allow && !strcmp(v.rule, "*.y.org") && v.by->deny && !v.raw && !v.terminate);
	CHECK(!policy_name_known(p, &(struct net_name){ "a.y.org" }, &v) &&
		!strcmp(v.rule, "*.y.org"));
	CHECK(policy_name_known(p, &(struct net_name){ "z.org" }, &v) &&
		!strcmp(v.rule, "z.org:*"));
	CHECK(!answer(p, "1.2.3.4", 80) && answer(p, "1.2.3.4", 443) &&
		!answer(p, "10.0.0.1", 443));
}

TEST(policy_most_specific_rule_says_whether_raw)
{
	auto_policy p =
		policy("{'allow': ['*.x.org:443:raw', 'api.x.org', '*.db.x.org:443', 'a.y.org:443',"
		       "'a.y.org:raw', '*.y.org:443']}");
	struct verdict v = policy_check_name(p, &(struct net_name){ "b.x.org" }, 443);

	CHECK(v.allow && v.raw && !strcmp(v.rule, "*.x.org:443:raw"));
	v = policy_check_name(p, &(struct net_name){ "api.x.org" }, 443);
	CHECK(v.allow && !v.raw && !strcmp(v.rule, "api.x.org"));
	v = policy_check_name(p, &(struct net_name){ "a.db.x.org" }, 443);
	CHECK(v.allow && !v.raw && !strcmp(v.rule, "*.db.x.org:443"));
	v = policy_check_name(p, &(struct net_name){ "db.x.org" }, 443);
	CHECK(v.raw && !strcmp(v.rule, "*.x.org:443:raw"));
	v = policy_check_name(p, &(struct net_name){ "a.y.org" }, 443);
	CHECK(v.allow && v.raw);
	v = policy_check_name(p, &(struct net_name){ "nobody.example" }, 443);
	CHECK(!v.allow && !v.raw && v.rule && !v.rule[0] && !v.by);
}

TEST(policy_open_is_what_is_public_and_nothing_of_the_host)
{
	auto_policy p = policy("{'presets': ['open']}");
	auto_policy q = policy("{'presets': ['open'], 'deny': ['evil.org']}");
	auto_policy r = policy("{'presets': ['open'], 'deny': ['9.9.9.0/24']}");

	CHECK(allows(p, "anything.example", 1) && allows(p, "x", 65535));
	CHECK(!allows(p, "localhost", 80) && !allows(p, "a.localhost", 80) &&
		!allows(p, "host.den", 80));
	CHECK(!allows(p, "x.den", 80));
	CHECK(policy_check_name(p, &(struct net_name){ "a.b" }, 443).raw);
	CHECK(p->any_addr && reaches(p, "1.1.1.1", 443, false) &&
		!reaches(p, "1.1.1.1", 443, true));
	CHECK(!reaches(p, "10.0.0.1", 443, false) && !reaches(p, "169.254.169.254", 80, false));
	CHECK(!reaches(p, "::1", 443, false) && reaches(p, "2606:4700::1", 443, false));
	CHECK(!reaches(p, "1.1.1.1", 0, false));
	CHECK(!answer(p, "127.0.0.1", 80) && !answer(p, "169.254.169.254", 80));
	/* with a name denied, an address or a made-up SNI would be the way around it */
	CHECK(!q->any_addr && !reaches(q, "1.1.1.1", 443, false) && allows(q, "fine.org", 443));
	CHECK(!policy_check_name(q, &(struct net_name){ "fine.org" }, 443).raw);
	CHECK(r->any_addr && !reaches(r, "9.9.9.9", 53, false) && reaches(r, "9.9.8.9", 53, false));
}

TEST(policy_addresses_are_reached_by_range_port_and_protocol)
{
	auto_policy p =
		policy("{'allow': ['10.1.0.0/16:5432', '[fd00::]/8:443', '10.0.0.1:53/udp',"
		       "'8.8.8.8:53-54'], 'deny': ['10.1.2.0/24', '10.1.3.0/24:5432/udp']}");

	CHECK(reaches(p, "10.1.0.1", 5432, false) && !reaches(p, "10.1.0.1", 5433, false));
	CHECK(!reaches(p, "10.1.0.1", 5432, true) && !reaches(p, "10.2.0.1", 5432, false));
	CHECK(!reaches(p, "10.1.2.1", 5432, false) && reaches(p, "10.1.3.1", 5432, false));
	CHECK(reaches(p, "fd12::1", 443, false) && !reaches(p, "fc00::1", 443, false));
	CHECK(reaches(p, "10.0.0.1", 53, true) && !reaches(p, "10.0.0.1", 53, false));
	CHECK(reaches(p, "8.8.8.8", 54, false) && !reaches(p, "8.8.8.9", 53, false));
	CHECK(reaches(p, "::ffff:10.1.0.1", 5432, false));
	CHECK(answer(p, "10.1.0.1", 5432) && !answer(p, "10.1.0.1", 443) &&
		!answer(p, "10.1.2.1", 5432));
	CHECK(answer(p, "1.1.1.1", 443) && !answer(p, "10.0.0.1", 53));
	CHECK(!allows(p, "x.org", 5432));
}

TEST(policy_a_wide_range_opens_nothing_special)
{
	auto_policy p = policy(
		"{'allow': ['0.0.0.0/0:*', '[::]/0:*', '169.254.0.0/16:80', '172.0.0.0/8:80']}");
	auto_policy q = policy("{'allow': ['169.254.169.254:80', '127.0.0.0/8:*', '[::1]:80']}");
	const char *why = NULL;
	struct net_addr a = addr("169.254.169.254");

	CHECK(reaches(p, "1.1.1.1", 22, false) && reaches(p, "2606:4700::1", 22, false));
	CHECK(!reaches(p, "10.0.0.1", 22, false) && !reaches(p, "127.0.0.1", 22, false));
	CHECK(!reaches(p, "::1", 22, false) && !reaches(p, "fd00::1", 22, false));
	CHECK(!reaches(p, "172.16.0.1", 80, false) && reaches(p, "172.15.0.1", 80, false));
	CHECK(reaches(p, "169.254.1.1", 80, false) && !reaches(p, "169.254.169.254", 80, false));
	CHECK(!policy_answer_ok(p, &a, 80, &why) && !strcmp(why, "metadata"));
	CHECK(reaches(q, "169.254.169.254", 80, false) && policy_answer_ok(q, &a, 80, &why));
	CHECK(answer(q, "127.0.0.1", 1234) && answer(q, "::1", 80) && !answer(q, "::1", 81));
}

TEST(policy_host_rules_open_the_loopback_by_one_name)
{
	auto_policy p = policy("{'presets': ['open'], 'allow': ['host:8080', 'host:9000-9001:raw'],"
			       "'deny': ['host:9001']}");
	struct verdict v = policy_check_name(p, &(struct net_name){ "host.den" }, 8080);

	CHECK(v.allow && v.host_loopback && !v.raw && !strcmp(v.rule, "host:8080"));
	v = policy_check_name(p, &(struct net_name){ "host.den" }, 9000);
	CHECK(v.allow && v.host_loopback && v.raw);
	CHECK(!allows(p, "host.den", 9001) && !allows(p, "host.den", 80));
	CHECK(!policy_check_name(p, &(struct net_name){ "x.org" }, 8080).host_loopback);
	CHECK(!allows(p, "a.host.den", 8080));
	CHECK(policy_name_known(p, &(struct net_name){ "host.den" }, &v) && v.host_loopback);
}

/* ---- grants ---------------------------------------------------------------------------------- */

#define KEY "{'secrets': [{'name': 'KEY', 'host': 'api.x.org', 'in': ['bearer']}]"

TEST(policy_grants_allow_their_host_and_end_tls)
{
	auto_policy p = policy(
		"{'allow': ['*.x.org:*:raw'], 'secrets': ["
		"{'name': 'KEY', 'host': 'API.x.org', 'in': ['header:X-Api-Key', 'query:k'],"
		" 'env': 'MY_KEY'},"
		"{'name': 'KEY', 'host': 'api.y.org', 'port': 8443, 'in': ['query:a', 'query']},"
		"{'name': 'AWS', 'host': '*.amazonaws.com', 'in': ['sigv4'], 'access_key': "
		"'AKIA1'}],"
		"'identity': {'add': [{'host': 'api.z.org', 'audience': 'https://z'}]}}");
	struct net_name api = name("api.x.org"), s3 = name("s3.eu.amazonaws.com"),
			z = name("api.z.org");
	struct verdict v = policy_check_name(p, &api, 443);

	CHECK(v.allow && v.terminate && !v.raw && !strcmp(v.rule, "api.x.org:443 (secret KEY)"));
	v = policy_check_name(p, &api, 444);
	CHECK(v.allow && !v.terminate && v.raw);
	CHECK(policy_next_secret(p, &api, 443, -1) == 0 &&
		policy_next_secret(p, &api, 443, 0) == -1);
	CHECK(policy_next_secret(p, &api, 444, -1) == -1);
	CHECK(p->secrets[0].places == (PLACE_HEADER | PLACE_QUERY));
	CHECK(!strcmp(p->secrets[0].headers[0], "x-api-key") &&
		!strcmp(p->secrets[0].queries[0], "k"));
	CHECK(!strcmp(p->secrets[0].env, "MY_KEY") && !strcmp(p->secrets[1].env, "KEY"));
	CHECK(p->secrets[1].port == 8443 && !p->secrets[1].queries); /* any parameter */
	CHECK(policy_check_name(p, &s3, 443).terminate && policy_next_secret(p, &s3, 443, -1) == 2);
	CHECK(policy_next_secret(p, &(struct net_name){ "amazonaws.com" }, 443, -1) == -1);
	CHECK(!strcmp(p->secrets[2].env, "AWS_SECRET_ACCESS_KEY"));
	CHECK(policy_check_name(p, &z, 443).terminate && policy_next_add(p, &z, 443, -1) == 0);
	CHECK(!strcmp(p->identity.adds[0].header, "authorization"));
	CHECK(!allows(p, "api.y.org", 443) && allows(p, "api.y.org", 8443));
}

TEST(policy_grants_may_be_for_the_loopback_of_the_host)
{
	auto_policy p = policy(
		"{'secrets': [{'name': 'K', 'host': 'host', 'port': 8080, 'in': ['bearer']}]}");
	struct net_name host = name("host.den");
	struct verdict v = policy_check_name(p, &host, 8080);

	CHECK(v.allow && v.terminate && v.host_loopback &&
		policy_next_secret(p, &host, 8080, -1) == 0);
	CHECK(!allows(p, "host.den", 443) && !allows(p, "a.host.den", 8080));
	CHECK(refused(
		"{'secrets': [{'name': 'K', 'host': 'host.den', 'port': 80, 'in': ['bearer']}],"
		"'deny': ['host:80']}",
		"takes away"));
	CHECK(refused(
		"{'secrets': [{'name': 'K', 'host': 'host.den', 'port': 80, 'in': ['bearer']}],"
		"'allow': ['host:80:raw']}",
		"is raw"));
}

TEST(policy_contradictions_are_refused)
{
	CHECK(refused(KEY ", 'deny': ['api.x.org']}", "takes away"));
	CHECK(refused(KEY ", 'deny': ['*.x.org']}", "'*.x.org' takes away"));
	CHECK(refused(KEY ", 'deny': ['*.org:443']}", "drop one"));
	CHECK(refused(KEY ", 'deny': ['x.org'], 'allow': ['api.x.org:443:raw']}", "is raw"));
	policy_free(policy(KEY ", 'deny': ['*.org:80', 'x.org', '*.api.x.org', 'b.x.org'],"
			       "'allow': ['*.x.org:raw', 'api.x.org:22:raw']}"));
	CHECK(refused("{'secrets': [{'name': 'A', 'host': '*.a.com', 'in': ['sigv4'], "
		      "'access_key': 'A'}],"
		      "'deny': ['*.a.com']}",
		"takes away"));
	policy_free(policy("{'secrets': [{'name': 'A', 'host': '*.a.com', 'in': ['sigv4'], "
			   "'access_key': 'A'}],"
			   "'deny': ['b.a.com', 'a.com', '*.b.a.com']}"));
	CHECK(refused("{'identity': {'add': [{'host': 'a.b', 'audience': 'x'}]}, 'deny': ['*.b']}",
		"takes away"));
	CHECK(refused(
		"{'secrets': [{'name': 'K', 'host': 'a.b', 'in': ['basic']}], 'identity': {'add':"
		"[{'host': 'a.b', 'audience': 'x'}]}}",
		"both fill the header authorization"));
	CHECK(refused("{'identity': {'add': [{'host': 'a.b', 'audience': 'x'},"
		      "{'host': 'a.b', 'audience': 'y', 'header': 'x-t'}]}}",
		"same host and port"));
}

TEST(policy_secrets_that_make_no_sense_are_refused)
{
#define SECRET(s) "{'secrets': [{'name': 'K', 'host': 'a.b', 'in': ['bearer']}, {" s "}]}"
	CHECK(refused(SECRET("'name': 'L', 'host': 'a.b', 'in': ['basic'], 'env': 'K'"),
		"another 'env'"));
	CHECK(refused(SECRET("'name': 'K', 'host': 'A.b', 'in': ['basic']"), "one 'in'"));
	CHECK(refused(SECRET("'name': 'L', 'host': '*.c', 'in': ['bearer']"),
		"secrets[1]: host: a secret goes"));
	CHECK(refused(SECRET("'name': 'L', 'host': '10.0.0.1', 'in': ['bearer']"), "certificate"));
	CHECK(refused(SECRET("'name': 'L', 'host': 'x.den', 'in': ['bearer']"), "den's own"));
	CHECK(refused(
		SECRET("'name': 'L', 'host': 'a.b:443', 'in': ['bearer']"), "key of its own"));
	CHECK(refused(SECRET("'name': 'L', 'host': 'https://a.b', 'in': ['bearer']"), "host: "));
	CHECK(refused(SECRET("'name': 'L', 'in': ['bearer']"), "secrets[1]: 'host' is missing"));
	CHECK(refused(SECRET("'host': 'c.d', 'in': ['bearer']"), "'name' is missing"));
	CHECK(refused(SECRET("'name': 'L', 'host': 'c.d'"), "'in' is missing"));
	CHECK(refused(SECRET("'name': 'L', 'host': 'c.d', 'in': []"), "'in' is missing"));
	CHECK(refused(SECRET("'name': 'L', 'host': 'c.d', 'in': 'bearer'"), "must be a list"));
	CHECK(refused(
		SECRET("'name': 'L', 'host': 'c.d', 'in': ['cookie']"), "no place for a secret"));
	CHECK(refused(SECRET("'name': 'L', 'host': 'c.d', 'in': ['header:']"),
		"not the name of a header"));
	CHECK(refused(SECRET("'name': 'L', 'host': 'c.d', 'in': ['header:a b']"), "in[0]"));
	CHECK(refused(SECRET("'name': 'L', 'host': 'c.d', 'in': ['header:Host']"), "gate's own"));
	CHECK(refused(SECRET("'name': 'L', 'host': 'c.d', 'in': ['header:content-LENGTH']"),
		"gate's own"));
	CHECK(refused(SECRET("'name': 'L', 'host': 'c.d', 'in': ['query:a&b']"), "parameter"));
	CHECK(refused(
		SECRET("'name': 'L', 'host': 'c.d', 'in': ['bearer'], 'port': 0"), "1 to 65535"));
	CHECK(refused(SECRET("'name': 'L', 'host': 'c.d', 'in': ['bearer'], 'port': 65536"),
		"1 to 65535"));
	CHECK(refused(SECRET("'name': 'L', 'host': 'c.d', 'in': ['bearer'], 'port': '443'"),
		"1 to 65535"));
	CHECK(refused(
		SECRET("'name': 'L', 'host': 'c.d', 'in': ['bearer'], 'env': 'A=B'"), "variable"));
	CHECK(refused(
		SECRET("'name': 'a-b', 'host': 'c.d', 'in': ['bearer']"), "give one as 'env'"));
	CHECK(refused(SECRET("'name': '../x', 'host': 'c.d', 'in': ['bearer']"), "secret's name"));
	CHECK(refused(
		SECRET("'name': 'L', 'host': 'c.d', 'in': ['bearer'], 'region': 'eu'"), "sigv4"));
	CHECK(refused(
		SECRET("'name': 'L', 'host': 'c.d', 'in': ['sigv4']"), "'access_key' is missing"));
	CHECK(refused(
		SECRET("'name': 'L', 'host': 'c.d', 'in': ['sigv4', 'body'], 'access_key': 'A'"),
		"sent nowhere"));
	CHECK(refused(
		SECRET("'name': 'L', 'host': 'c.d', 'in': ['bearer'], 'hots': 'x'"), "'host'"));
#undef SECRET
}

/* ---- JSON ------------------------------------------------------------------------------------ */

TEST(policy_errors_name_the_place_and_the_nearest_key)
{
	CHECK(refused("{'alow': []}", "policy: unknown key 'alow'; did you mean 'allow'?"));
	CHECK(refused("{'limits': {'rates': 1}}",
		"policy: limits: unknown key 'rates'; did you mean 'rate'?"));
	CHECK(refused("{'identity': {'audience': []}}", "did you mean 'audiences'?"));
	CHECK(refused("{'identity': {'add': [{'host': 'a', 'audience': 'b', 'headers': 'x'}]}}",
		"identity.add[0]: unknown key 'headers'; did you mean 'header'?"));
	CHECK(refused("{'zzzzzzzz': 1}", "there are version, presets, allow"));
	CHECK(refused("{'allow': ['x.org', 'y.org:0']}",
		"policy: allow[1]: 'y.org:0': there is no port 0"));
	CHECK(refused("{'allow': ['x.org', 5]}", "allow[1]: must be a text"));
	CHECK(refused("{'deny': ['x.org:raw']}", "deny[0]: 'x.org:raw': a deny is not raw"));
	CHECK(refused("{'deny': ['*']}", "leave the * out"));
	CHECK(refused("{'allow': 'x.org'}", "allow: must be a list"));
	CHECK(refused("{'presets': ['registry']}", "presets[0]: there is no preset 'registry'"));
	CHECK(refused("{'presets': ['gti']}", "did you mean 'git'?"));
	CHECK(refused("{'presets': ['everything']}", "there are registries, git, llm, open"));
	CHECK(refused("{'limits': {'rate': '10X'}}", "policy: limits.rate: '10X' is not a size"));
	CHECK(refused("{'limits': {'rate': 0}}", "limits.rate"));
	CHECK(refused("{'limits': {'rate': -1}}", "limits.rate"));
	CHECK(refused("{'limits': {'bytes': 1.5}}", "limits.bytes"));
	CHECK(refused("{'limits': {'connections': 0}}", "limits.connections"));
	CHECK(refused("{'limits': {'connections': 65537}}", "limits.connections"));
	CHECK(refused("{'limits': 5}", "limits: must be an object"));
	CHECK(refused("{'version': 2}", "version: only 1"));
	CHECK(refused("{'version': '1'}", "version"));
	CHECK(refused("{'proxy_env': 1}", "true or false"));
	CHECK(refused("{'resolver': ['dns.example:53']}", "resolver[0]"));
	CHECK(refused("{'resolver': ['10.0.0.0/8:53']}", "address and a port"));
	CHECK(refused("{'resolver': ['10.0.0.1:53-54']}", "address and a port"));
	CHECK(refused("{'resolver': ['10.0.0.1:53/udp']}", "address and a port"));
	CHECK(refused("{'identity': {'audiences': ['a b']}}", "identity: audiences[0]"));
	CHECK(refused("{'identity': {'org': 'a\\nb'}}", "control characters"));
	CHECK(refused("[]", "must be an object"));
	CHECK(refused("null", "not JSON"));
	CHECK(refused("", "not JSON"));
	CHECK(refused("{} {}", "not JSON"));
	CHECK(refused("{'allow': ['a.b'], 'allow': []}", "not JSON"));
	CHECK(refused("{'allow': ['a\\u0000b']}", "not JSON"));
	CHECK(refused("{'a':{'a':{'a':{'a':{'a':{'a':{'a':{'a':{'a':1}}}}}}}}}", "nested"));
}

TEST(policy_sizes_are_bounded)
{
	auto_buf b = { 0 };
	struct den_err err = { 0 };
	struct policy *p = NULL;

	buf_addstr(&b, "{\"allow\":[\"a.b\"");
	for (int i = 1; i < POLICY_RULES_MAX; i++)
		buf_addf(&b, ",\"n%d.example:%d\"", i, 1 + i % 60);
	buf_addstr(&b, "]}");
	CHECK(policy_parse(b.p, b.len, &p, &err) == 0 && p->n_rules == POLICY_RULES_MAX);
	CHECK(p->n_classes == 61); /* and 80 with 443 */
	CHECK(allows(p, "n59.example", 60) && !allows(p, "n59.example", 61));
	policy_free(p);
	b.len -= 2;
	buf_addstr(&b, ",\"c.d\"]}");
	CHECK(policy_parse(b.p, b.len, &p, &err) < 0 && strstr(err.msg, "4097"));
	b.len -= 8;
	buf_addstr(&b, "],\"deny\":[\"c.d\"]}");
	CHECK(policy_parse(b.p, b.len, &p, &err) < 0 && strstr(err.msg, "deny"));
	b.len = 0;
	for (int i = 0; i <= POLICY_JSON_MAX; i++)
		buf_add(&b, " ", 1);
	CHECK(policy_parse(b.p, b.len, &p, &err) < 0 && strstr(err.msg, "limit"));
	b.len = 0;
	buf_addstr(&b, "{\"resolver\":[");
	for (int i = 0; i < 9; i++)
		buf_addf(&b, "%s\"10.0.0.%d\"", i ? "," : "", i);
	buf_addstr(&b, "]}");
	CHECK(policy_parse(b.p, b.len, &p, &err) < 0 && strstr(err.msg, "resolver: has 9"));
}

TEST(policy_prints_what_it_reads)
{
	static const char whole[] =
		"{'version': 1, 'presets': ['registries', 'git', 'registries'],"
		"'allow': ['Example.com', '*.example.com:443', '10.1.0.0/16:5432', 'host:8080'],"
		"'deny': ['bad.example.com', '10.1.2.0/24'],"
		"'limits': {'rate': '10M', 'bytes': '1G', 'connections': 256},"
		"'secrets': [{'name': 'K', 'host': 'k.example', 'in': ['header:X-Key', 'bearer', "
		"'query:q']},"
		"{'name': 'AWS', 'host': '*.amazonaws.com', 'in': ['sigv4'], 'access_key': 'AKIA', "
		"'region': "
		"'eu-west-1', 'service': 's3'}],"
		"'identity': {'org': 'O\\u00f6', 'task': 't', 'scopes': ['a:b'], 'audiences': "
		"['https://i'],"
		"'add': [{'host': 'i.example', 'port': 8443, 'audience': 'https://i', 'header': "
		"'X-T'}]},"
		"'resolver': ['127.0.0.1:5353', '::1', '10.0.0.1'], 'proxy_env': true}";
	auto_policy p = policy(whole);
	auto_buf once = { 0 }, twice = { 0 };
	struct policy *q = NULL;
	struct den_err err = { 0 };

	policy_print(p, &once);
	CHECK(policy_parse(once.p, once.len, &q, &err) == 0);
	policy_print(q, &twice);
	CHECK(once.len == twice.len && !memcmp(once.p, twice.p, once.len));
	CHECK(strstr(buf_str(&once), "\"presets\":[\"registries\",\"git\"]"));
	CHECK(strstr(buf_str(&once), "\"rate\":10485760,\"bytes\":1073741824"));
	CHECK(strstr(buf_str(&once), "\"allow\":[\"example.com\",\"*.example.com:443\""));
	CHECK(strstr(
		buf_str(&once), "\"resolver\":[\"127.0.0.1:5353\",\"[::1]:53\",\"10.0.0.1:53\"]"));
	CHECK(strstr(buf_str(&once), "\"header\":\"x-t\"") && !strstr(buf_str(&once), "debian"));
	policy_free(q);
	once.len = 0;
	policy_free(p);
	p = policy("{}");
	policy_print(p, &once);
	CHECK(!strcmp(buf_str(&once), "{\"version\":1}"));
}

/* ---- classes of ports ------------------------------------------------------------------------ */

TEST(policy_classes_are_all_sets_that_a_name_can_have)
{
	auto_policy p = policy(
		"{'allow': ['a.x', '*.x:22', 'b.a.x:5000-6000', '*.a.x:80', 'host:9', 'q:22'],"
		"'deny': ['c.x:22', '*.b.x:22', 'd.x:80', '10.0.0.0/8']}");
	static const struct {
		const char *name;
		int lo[4];
	} all[] = { { "a.x", { 22, 80, 443 } }, { "e.x", { 22 } }, { "b.a.x", { 22, 80, 5000 } },
		{ "c.a.x", { 22, 80 } }, { "host.den", { 9 } }, { "d.x", { 22 } },
		{ "f.e.x", { 22 } } };
	struct port_set classes[POLICY_CLASSES_MAX];
	unsigned n = policy_port_classes(p, classes, POLICY_CLASSES_MAX);

	CHECK(n == 5);
	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		struct net_name nn = name(all[i].name);
		unsigned at = policy_class_of(p, &nn);
		struct port_set s;

		CHECK(at < n);
		policy_name_ports(p, &nn, &s);
		CHECK(port_set_equal(&s, &classes[at]));
		for (unsigned k = 0; k < s.n; k++)
			CHECK(s.r[k].lo == all[i].lo[k]);
		CHECK(!all[i].lo[s.n]);
	}
	CHECK(policy_class_of(p, &(struct net_name){ "c.x" }) == POLICY_NO_CLASS);
	CHECK(policy_class_of(p, &(struct net_name){ "a.b.x" }) == POLICY_NO_CLASS);
	CHECK(policy_class_of(p, &(struct net_name){ "x" }) == POLICY_NO_CLASS);
	CHECK(!policy_name_known(p, &(struct net_name){ "c.x" }, NULL));
	CHECK(policy_class_of(p, &(struct net_name){ "q" }) ==
		policy_class_of(p, &(struct net_name){ "e.x" }));
}

TEST(policy_too_many_classes_become_one_with_all)
{
	auto_buf b = { 0 };
	struct policy *p = NULL;
	struct den_err err = { 0 };

	buf_addstr(&b, "{\"allow\":[\"a.b:1000\"");
	for (int i = 1; i <= POLICY_CLASSES_MAX; i++)
		buf_addf(&b, ",\"n%d.b:%d\"", i, 1000 + i);
	buf_addstr(&b, "]}");
	CHECK(policy_parse(b.p, b.len, &p, &err) == 0);
	CHECK(p->n_classes == 1 && p->classes[0].r[0].lo == 1000 && p->classes[0].r[0].hi == 1064);
	CHECK(policy_class_of(p, &(struct net_name){ "n7.b" }) == 0);
	CHECK(policy_class_of(p, &(struct net_name){ "z.b" }) == POLICY_NO_CLASS);
	policy_free(p);
}

static unsigned any(uint64_t *seed, unsigned n)
{
	*seed = *seed * 6364136223846793005U + 1442695040888963407U;
	return (unsigned)(*seed >> 40) % n;
}

/* Rules in any order, against the definition spelled out: deny, then any allow. */
TEST(policy_agrees_with_a_plain_reading_of_its_rules)
{
	static const char *const labels[] = { "a", "b", "c" };
	uint64_t seed = 42;

	for (int round = 0; round < 300; round++) {
		auto_buf json = { 0 };
		struct policy_rule rules[24];
		struct policy *p = NULL;
		struct den_err err = { 0 };
		unsigned n = 1 + any(&seed, 24);

		buf_addstr(&json, "{");
		for (int deny = 0; deny < 2; deny++) {
			buf_addf(&json, "%s\"%s\":[", deny ? "," : "", deny ? "deny" : "allow");
			for (unsigned i = deny ? n / 2 : 0, first = i; i < (deny ? n : n / 2);
				i++) {
				char text[64] = "";
				unsigned depth = 1 + any(&seed, 3);

				strcat(text, any(&seed, 2) ? "*." : "");
				for (unsigned d = 0; d < depth; d++) {
					strcat(text, d ? "." : "");
					strcat(text, labels[any(&seed, 3)]);
				}
				depth = 1 + any(&seed, 3);
				snprintf(text + strlen(text), 20, ":%u-%u", depth,
					4 + any(&seed, 3));
				CHECK(policy_rule_parse(text, deny, false, &rules[i], NULL, &err) ==
					0);
				buf_addf(&json, "%s\"%s\"", i > first ? "," : "", text);
			}
			buf_addstr(&json, "]");
		}
		buf_addstr(&json, "}");
		CHECK(policy_parse(json.p, json.len, &p, &err) == 0);
		for (int k = 0; k < 60; k++) {
			struct net_name nn = { 0 };
			uint16_t port = (uint16_t)(1 + any(&seed, 7));
			bool yes = false, no = false;

			for (unsigned d = 0, depth = 1 + any(&seed, 4); d < depth; d++) {
				strcat(nn.s, d ? "." : "");
				strcat(nn.s, labels[any(&seed, 3)]);
			}
			for (unsigned i = 0; i < n; i++) {
				bool match = rules[i].kind == RULE_NAME
						     ? !strcmp(rules[i].name.s, nn.s)
						     : net_name_below(&nn, &rules[i].name);

				match = match && port_set_has(&rules[i].ports, port);
				yes |= match && !rules[i].deny;
				no |= match && rules[i].deny;
			}
			CHECK(allows(p, nn.s, port) == (yes && !no));
		}
		policy_free(p);
	}
}

/* ---- presets and the schema ------------------------------------------------------------------ */

TEST(policy_presets_parse_and_say_what_they_promise)
{
	auto_policy p = policy("{'presets': ['registries']}");
	auto_policy g = policy("{'presets': ['git']}");
	auto_policy l = policy("{'presets': ['llm']}");

	/* every name that the table has, on its port, and no other port */
	for (const char *const *r = policy_preset_find("registries")->rules; *r; r++) {
		const char *name = strncmp(*r, "*.", 2) ? *r : *r + 2;
		auto_free char *host = mem_strndup(name, strcspn(name, ":"));
		auto_buf below = { 0 };

		buf_addf(&below, "%s%s", name == *r ? "" : "x.", host);
		CHECK(allows(p, buf_str(&below), 443) || allows(p, buf_str(&below), 80));
		CHECK(!allows(p, buf_str(&below), 22));
	}
	CHECK(!allows(p, "people.debian.org", 80) && !allows(p, "github.com", 443));
	CHECK(allows(g, "github.com", 22) && allows(g, "github.com", 443) &&
		allows(g, "gitlab.com", 22));
	CHECK(allows(l, "api.anthropic.com", 443) && !allows(l, "api.anthropic.com", 80));
	CHECK(!strcmp(policy_check_name(l, &(struct net_name){ "api.openai.com" }, 443).rule,
		"api.openai.com:443 (preset llm)"));
	/* a deny takes a part of a preset away */
	policy_free(p);
	p = policy("{'presets': ['git'], 'deny': ['gitlab.com']}");
	CHECK(!allows(p, "gitlab.com", 443) && allows(p, "github.com", 443));
	for (const struct policy_preset *t = policy_presets; t->name; t++)
		CHECK(policy_preset_find(t->name) == t && t->summary[0] && t->rules[0]);
	CHECK(!policy_preset_find("") && !policy_preset_find("Open"));
}

/* The keys of an object of the schema are those of the parser, in both directions. */
static void same_keys(const json_t *object, const char *which)
{
	const json_t *props = json_object_get(object, "properties");
	const char *const *keys = policy_keys(which);
	size_t n = 0;

	CHECK(json_is_object(props) && keys);
	CHECK(json_is_false(json_object_get(object, "additionalProperties")));
	for (; keys[n]; n++)
		if (!json_object_get(props, keys[n]))
			test_fail(__FILE__, __LINE__, keys[n]);
	CHECK(json_object_size(props) == n);
}

TEST(policy_schema_and_parser_know_the_same_keys)
{
	json_error_t why;
	json_t *j = json_loads(policy_schema, JSON_REJECT_DUPLICATES, &why), *props, *presets;
	json_t *identity, *secrets;
	size_t n = 0;

	if (!j)
		test_fail(__FILE__, why.line, why.text);
	props = json_object_get(j, "properties");
	identity = json_object_get(props, "identity");
	secrets = json_object_get(json_object_get(props, "secrets"), "items");
	same_keys(j, "");
	same_keys(json_object_get(props, "limits"), "limits");
	same_keys(secrets, "secrets");
	same_keys(identity, "identity");
	same_keys(json_object_get(
			  json_object_get(json_object_get(identity, "properties"), "add"), "items"),
		"add");
	CHECK(!policy_keys("nothing"));
	presets = json_object_get(
		json_object_get(json_object_get(props, "presets"), "items"), "enum");
	for (const struct policy_preset *t = policy_presets; t->name; t++, n++)
		CHECK(!strcmp(json_string_value(json_array_get(presets, n)), t->name));
	CHECK(json_array_size(presets) == n);
	CHECK(json_integer_value(json_object_get(json_object_get(props, "allow"), "maxItems")) ==
		POLICY_RULES_MAX);
	CHECK(json_integer_value(json_object_get(json_object_get(props, "secrets"), "maxItems")) ==
		POLICY_SECRETS_MAX);
	json_decref(j);
}

/* The examples of the schema are policies, and its required keys are required. */
TEST(policy_schema_gives_examples_that_parse)
{
	json_t *j = json_loads(policy_schema, 0, NULL), *props = json_object_get(j, "properties"),
	       *p;
	static const char *const lists[] = { "allow", "deny" };

	for (size_t i = 0; i < ARRAY_SIZE(lists); i++) {
		json_t *list = json_array_get(
			json_object_get(json_object_get(props, lists[i]), "examples"), 0);
		struct policy *made = NULL;
		struct den_err err = { 0 };
		char *text;

		CHECK(json_array_size(list) > 2);
		p = json_object();
		json_object_set(p, lists[i], list);
		text = json_dumps(p, 0);
		if (policy_parse(text, strlen(text), &made, &err) < 0)
			test_fail(__FILE__, __LINE__, err.msg);
		policy_free(made);
		json_decref(p);
		free(text);
	}
	json_decref(j);
}
