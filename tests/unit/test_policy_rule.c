#include "test.h"

#include <stdbool.h>

#include "kit_policy.h"
#include "mem.h"
#include "policy.h"

/* ---- names ----------------------------------------------------------------------------------- */

TEST(net_name_folds_case_and_drops_one_dot)
{
	struct net_name n;

	CHECK(!strcmp(name("ExAmPle.COM.").s, "example.com"));
	CHECK(!strcmp(name("_dmarc.x-y.org").s, "_dmarc.x-y.org"));
	CHECK(!strcmp(name("xn--bcher-kva.example").s, "xn--bcher-kva.example"));
	CHECK(!strcmp(name("r1---sn-a5m.example").s, "r1---sn-a5m.example"));
	CHECK(net_name_parse("a.bXXX", 3, &n, NULL) == 0 && !strcmp(n.s, "a.b"));
}

TEST(net_name_refuses_what_is_not_one)
{
	static const char *const bad[] = { "", ".", "..", "a..b", ".a", "a..", "a b", "a/b", "a:b",
		"a@b", "*", "*.a", "a.*", "a\nb", "a\\b", "a%2eb", "b\303\274cher.example", "a,b",
		"[::1]", "::1", "a\x7f" };
	struct net_name n = { "kept" };

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct den_err err = { 0 };

		CHECK(net_name_parse(bad[i], strlen(bad[i]), &n, &err) < 0);
		CHECK(err.code == DEN_INVALID && err.msg[0]);
	}
	CHECK(net_name_parse("a\0b", 3, &n, NULL) < 0);
	CHECK(!strcmp(n.s, "kept"));
}

TEST(net_name_is_never_an_address_in_any_spelling)
{
	static const char *const bad[] = { "127.0.0.1", "127.1", "2130706433", "0x7f000001",
		"0x7F.1", "0177.0.0.1", "1.2.3.4.", "1.2.3.0x4", "0x", "a.0x", "a.0xDEADBEEF", "0",
		"a.b.5", "0x7f.0x1", "999", "1.2.3.4.5" };
	struct net_name n;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		CHECK(net_name_parse(bad[i], strlen(bad[i]), &n, NULL) < 0);
	CHECK(!strcmp(name("1.2.3.4.example").s, "1.2.3.4.example"));
	CHECK(!strcmp(name("4chan.org").s, "4chan.org"));
	CHECK(!strcmp(name("a.0xg").s, "a.0xg"));
}

TEST(net_name_lengths_are_bounded)
{
	char text[300];
	struct net_name n;

	memset(text, 'a', sizeof(text));
	CHECK(net_name_parse(text, 63, &n, NULL) == 0);
	CHECK(net_name_parse(text, 64, &n, NULL) < 0);
	for (size_t i = 50; i < sizeof(text); i += 50)
		text[i] = '.';
	CHECK(net_name_parse(text, 253, &n, NULL) == 0 && strlen(n.s) == 253);
	CHECK(net_name_parse(text, 254, &n, NULL) < 0);
	text[253] = '.';
	CHECK(net_name_parse(text, 254, &n, NULL) == 0 && strlen(n.s) == 253);
	CHECK(net_name_parse(text, sizeof(text), &n, NULL) < 0);
}

TEST(net_name_below_needs_a_whole_label)
{
	struct net_name x = name("x.org");

	CHECK(net_name_below(&(struct net_name){ "a.x.org" }, &x));
	CHECK(net_name_below(&(struct net_name){ "a.b.x.org" }, &x));
	CHECK(!net_name_below(&(struct net_name){ "x.org" }, &x));
	CHECK(!net_name_below(&(struct net_name){ "ax.org" }, &x));
	CHECK(!net_name_below(&(struct net_name){ "x.org.evil" }, &x));
	CHECK(!net_name_below(&(struct net_name){ "org" }, &x));
}

/* ---- addresses ------------------------------------------------------------------------------- */

TEST(net_addr_is_strict_and_unmaps)
{
	static const char *const bad[] = { "", "1.2.3", "1.2.3.4.5", "01.2.3.4", "1.2.3.256",
		"0x7f.0.0.1", "[::1]", "::1%lo", "1.2.3.4 ", " 1.2.3.4", ":::", "1::2::3", "::g" };
	struct net_addr a;
	char text[46];

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		CHECK(net_addr_parse(bad[i], &a) < 0);
	a = addr("::ffff:10.0.0.1");
	CHECK(a.family == 4 && a.b[0] == 10);
	net_addr_format(&a, text);
	CHECK(!strcmp(text, "10.0.0.1"));
	a = addr("2001:DB8::1");
	net_addr_format(&a, text);
	CHECK(a.family == 6 && !strcmp(text, "2001:db8::1"));
	CHECK(net_addr_equal(
		&a, &(struct net_addr){ .family = 6, .b = { 0x20, 1, 0xd, 0xb8, [15] = 1 } }));
}

TEST(net_addr_knows_what_is_not_public)
{
	static const struct {
		const char *addr, *why;
	} all[] = {
		{ "1.1.1.1", NULL },
		{ "8.8.8.8", NULL },
		{ "11.0.0.0", NULL },
		{ "9.255.255.255", NULL },
		{ "172.15.255.255", NULL },
		{ "172.32.0.0", NULL },
		{ "100.63.255.255", NULL },
		{ "100.128.0.0", NULL },
		{ "198.17.255.255", NULL },
		{ "198.20.0.0", NULL },
		{ "223.255.255.255", NULL },
		{ "192.0.1.0", NULL },
		{ "168.63.129.15", NULL },
		{ "0.0.0.0", "unspecified" },
		{ "0.1.2.3", "reserved" },
		{ "10.0.0.0", "private" },
		{ "10.255.255.255", "private" },
		{ "172.16.0.0", "private" },
		{ "172.31.255.255", "private" },
		{ "192.168.0.1", "private" },
		{ "100.64.0.0", "shared" },
		{ "100.127.255.255", "shared" },
		{ "127.0.0.1", "loopback" },
		{ "127.255.255.255", "loopback" },
		{ "169.254.0.1", "link-local" },
		{ "169.254.169.254", "metadata" },
		{ "169.254.170.2", "metadata" },
		{ "100.100.100.200", "metadata" },
		{ "168.63.129.16", "metadata" },
		{ "192.0.0.192", "metadata" },
		{ "192.0.0.1", "reserved" },
		{ "192.0.2.1", NULL },
		{ "198.51.100.7", NULL },
		{ "203.0.113.255", NULL },
		{ "192.88.99.1", "6to4" },
		{ "198.18.0.1", "benchmark" },
		{ "198.19.255.255", "benchmark" },
		{ "224.0.0.1", "multicast" },
		{ "239.255.255.255", "multicast" },
		{ "240.0.0.1", "reserved" },
		{ "255.255.255.255", "broadcast" },
		{ "2606:4700::1111", NULL },
		{ "2a00:1450::1", NULL },
		{ "2001:4860:4860::8888", NULL },
		{ "2001:200::1", NULL },
		{ "::", "unspecified" },
		{ "::1", "loopback" },
		{ "::ffff:127.0.0.1", "loopback" },
		{ "::ffff:8.8.8.8", NULL },
		{ "::127.0.0.1", "reserved" },
		{ "::ffff:0:127.0.0.1", "reserved" },
		{ "64:ff9b::7f00:1", "loopback" },
		{ "64:ff9b::a9fe:a9fe", "metadata" },
		{ "64:ff9b::808:808", NULL },
		{ "64:ff9b:1::1", "reserved" },
		{ "100::1", "reserved" },
		{ "2001::1", "Teredo" },
		{ "2001:10::1", "reserved" },
		{ "2001:db8::1", NULL },
		{ "2002:7f00:1::", "6to4" },
		{ "2002:808:808::1", "6to4" },
		{ "3fff:fff::1", NULL },
		{ "3fff:1000::1", NULL },
		{ "4000::1", "reserved" },
		{ "fc00::1", "private" },
		{ "fdff::1", "private" },
		{ "fd00:ec2::254", "metadata" },
		{ "fd20:ce::254", "metadata" },
		{ "fe80::1", "link-local" },
		{ "febf::1", "link-local" },
		{ "fec0::1", "private" },
		{ "ff02::1", "multicast" },
		{ "2606:4700::5efe:10.0.0.1", "private" },
		{ "2606:4700::200:5efe:127.0.0.1", "loopback" },
		{ "2606:4700::5efe:8.8.8.8", NULL },
	};

	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		struct net_addr a = addr(all[i].addr);
		const char *why = net_addr_special(&a);

		if (!why != !all[i].why || (why && strcmp(why, all[i].why)))
			test_fail(__FILE__, __LINE__, all[i].addr);
	}
	CHECK(net_addr_special(&(struct net_addr){ 0 }));
}

TEST(net_cidr_has_its_edges)
{
	struct net_cidr c = { addr("10.1.2.0"), 23 }, all4 = { addr("0.0.0.0"), 0 }, w = c;
	struct net_addr a = addr("10.1.3.255"), b = addr("10.1.4.0"), v6 = addr("::a01:200");

	CHECK(net_cidr_has(&c, &a) && !net_cidr_has(&c, &b) && !net_cidr_has(&c, &v6));
	CHECK(net_cidr_has(&all4, &a) && !net_cidr_has(&all4, &v6));
	CHECK(net_cidr_covers(&all4, &c) && !net_cidr_covers(&c, &all4) && net_cidr_covers(&c, &w));
	w.bits = 22;
	CHECK(net_cidr_mask(&w) && w.a.b[2] == 0 && !net_cidr_mask(&w));
	CHECK(!strcmp(net_cidr_special(&c), "private") && !net_cidr_special(&all4));
}

/* ---- ports ----------------------------------------------------------------------------------- */

TEST(port_sets_stay_sorted_and_merged)
{
	struct port_set s = { 0 };

	port_set_add(&s, 443, 443);
	port_set_add(&s, 80, 80);
	port_set_add(&s, 81, 90);
	CHECK(s.n == 2 && s.r[0].lo == 80 && s.r[0].hi == 90 && s.r[1].lo == 443);
	port_set_add(&s, 85, 500);
	CHECK(s.n == 1 && s.r[0].hi == 500);
	port_set_remove(&s, 100, 200);
	CHECK(s.n == 2 && s.r[0].hi == 99 && s.r[1].lo == 201);
	port_set_remove(&s, 1, 65535);
	CHECK(s.n == 0);
	port_set_add(&s, 1, 65535);
	port_set_remove(&s, 65535, 65535);
	port_set_remove(&s, 1, 1);
	CHECK(s.n == 1 && s.r[0].lo == 2 && s.r[0].hi == 65534);
	port_set_add(&s, 65535, 65535);
	CHECK(s.n == 1 && s.r[0].hi == 65535);
}

TEST(port_sets_that_are_full_grow_too_large_never_too_small)
{
	struct port_set s = { 0 };
	uint64_t seed = 7;
	bool want[65536] = { 0 };

	for (unsigned i = 0; i < 200; i++) {
		uint16_t lo, hi;

		seed = seed * 6364136223846793005U + 1;
		lo = (uint16_t)(seed >> 33);
		hi = (uint16_t)MIN(lo + (seed >> 50) % 40, 65535);
		port_set_add(&s, lo, hi);
		for (unsigned k = lo; k <= hi; k++)
			want[k] = true;
		CHECK(s.n <= POLICY_PORTS_MAX);
		for (unsigned k = 1; k < s.n; k++)
			CHECK(s.r[k - 1].hi + 1 < s.r[k].lo);
	}
	for (unsigned k = 0; k < 65536; k++)
		CHECK(!want[k] || port_set_has(&s, (uint16_t)k));
	for (unsigned k = 100; k < 60000; k += 1000)
		port_set_remove(&s, (uint16_t)k, (uint16_t)k);
	CHECK(s.n <= POLICY_PORTS_MAX);
	for (unsigned k = 0; k < 65536; k++)
		CHECK(!want[k] || k % 1000 == 100 || port_set_has(&s, (uint16_t)k));
}

/* ---- texts of rules -------------------------------------------------------------------------- */

static bool canonical(const char *text, bool deny, const char *want)
{
	struct policy_rule r;
	struct den_err err = { 0 };
	auto_buf out = { 0 };

	if (policy_rule_parse(text, deny, false, &r, &out, &err) < 0) {
		printf("%s\n", err.msg);
		return false;
	}
	if (strcmp(buf_str(&out), want)) {
		printf("'%s' became '%s', not '%s'\n", text, buf_str(&out), want);
		return false;
	}
	return true;
}

TEST(policy_rules_have_one_spelling)
{
	static const char *const same[] = { "example.com", "*.example.com", "x.org:22",
		"x.org:22-23", "x.org:*", "x.org:443:raw", "x.org:raw", "10.1.0.0/16:5432",
		"[fd00::]/8:443", "10.0.0.1:53/udp", "host:8080", "host:8000-8010", "0.0.0.0/0:443",
		"[::1]:80-90", "intranet", "x.org:80", "10.0.0.0/8:*" };
	static const char *const denies[] = { "example.com", "*.com", "x.org:22", "10.1.2.0/24",
		"[fd00::]/8", "10.0.0.1", "10.0.0.0/8:53/udp", "10.0.0.0/8:53/tcp", "10.0.0.0/8:53",
		"host", "host:22", "10.0.0.0/8:*/udp" };

	for (size_t i = 0; i < ARRAY_SIZE(same); i++)
		CHECK(canonical(same[i], false, same[i]));
	for (size_t i = 0; i < ARRAY_SIZE(denies); i++)
		CHECK(canonical(denies[i], true, denies[i]));
	CHECK(canonical("EXAMPLE.Com.", false, "example.com"));
	CHECK(canonical("HOST:8080", false, "host:8080"));
	CHECK(canonical("host.:8080", false, "host:8080"));
	CHECK(canonical("x.org:5-5", false, "x.org:5"));
	CHECK(canonical("x.org:1-65535", false, "x.org:*"));
	CHECK(canonical("10.0.0.1/32:80/tcp", false, "10.0.0.1:80"));
	CHECK(canonical("[FD00:0::]/8:443", false, "[fd00::]/8:443"));
	CHECK(canonical("fd00::/8", true, "[fd00::]/8"));
	CHECK(canonical("fd00::1", true, "[fd00::1]"));
	CHECK(canonical("x.org:*", true, "x.org"));
}

TEST(policy_rules_that_mean_nothing_are_refused_with_advice)
{
	static const struct {
		const char *rule, *why;
	} all[] = {
		{ "", "empty" },
		{ "https://x.org", "no URL" },
		{ "x.org/path", "no path" },
		{ "x.org:443/path", "no path" },
		{ "x.org:0", "no port 0" },
		{ "x.org:00", "not a port" },
		{ "x.org:080", "not a port" },
		{ "x.org:65536", "not between" },
		{ "x.org:http", "not a port" },
		{ "x.org:", "not a port" },
		{ "x.org:-5", "not a port" },
		{ "x.org:5-", "not a port" },
		{ "x.org:9-5", "the smaller one" },
		{ "x.org:80,443", "not a port" },
		{ "x.org:80:81", "too much" },
		{ "x.org:80:RAW", "too much" },
		{ "x.org:53/udp", "by address" },
		{ "x.org:+1", "not a port" },
		{ "x.org: 80", "no spaces" },
		{ "x .org", "no spaces" },
		{ "*", "preset open" },
		{ "*:443", "preset open" },
		{ "*.", "empty" },
		{ "*.*.x.org", "front" },
		{ "a*.x.org", "front" },
		{ ".x.org", "*.x.org" },
		{ "b\303\274cher.example", "xn--" },
		{ "localhost", "host:PORT" },
		{ "localhost:8080", "host:PORT" },
		{ "a.localhost", "host:PORT" },
		{ "host.den:80", "host:PORT" },
		{ "x.den", "den's own" },
		{ "host", "which port" },
		{ "host.", "which port" },
		{ "host:*", "which port" },
		{ "host:raw", "which port" },
		{ "10.0.0.1", "needs a port" },
		{ "10.0.0.0/8", "needs a port" },
		{ "fd00::1", "needs a port" },
		{ "10.0.0.1/8:80", "10.0.0.0/8" },
		{ "10.0.0.0/33:80", "0 to 32" },
		{ "10.0.0.0/:80", "0 to 32" },
		{ "10.0.0.0/08:80", "0 to 32" },
		{ "[fd00::]/129:80", "0 to 128" },
		{ "10.0.0.0/8:80:raw", "always raw" },
		{ "10.0.0.0/8:80/icmp", "neither" },
		{ "[::1", "never closed" },
		{ "[x]:80", "not an IPv6" },
		{ "[10.0.0.1]:80", "no brackets" },
		{ "[::ffff:10.0.0.1]:80", "10.0.0.1" },
		{ "[::1]80", "too much" },
		{ "2130706433:80", "address" },
		{ "0x7f.1:80", "address" },
		{ "010.0.0.1:80", "address" },
		{ "user@x.org", "not a host name" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		struct den_err err = { 0 };
		struct policy_rule r = { .next = 77 };

		if (policy_rule_parse(all[i].rule, false, false, &r, NULL, &err) == 0 ||
			!strstr(err.msg, all[i].why) || err.code != DEN_INVALID || r.next != 77) {
			printf("'%s': %s\n", all[i].rule, err.msg);
			CHECK(!"refused with the right words");
		}
	}
}
