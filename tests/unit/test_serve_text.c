/* What den-serve reads from strangers: addresses, queries, JSON; and the queue between its two threads. */
#include "advice.h"
#include "json_fields.h"
#include "json_scan.h"
#include "mem.h"
#include "path.h"
#include "price.h"
#include "ring.h"
#include "strv.h"
#include "test.h"

TEST(serve_path_matches_by_segments)
{
	static const struct {
		const char *pattern, *path;
		bool fits;
		const char *value; /* of the first argument */
	} cases[] = {
		{ "/v1/boxes", "/v1/boxes", true, NULL },
		{ "/v1/boxes", "/v1/boxes/", false, NULL },
		{ "/v1/boxes", "/v1/boxesx", false, NULL },
		{ "/v1/boxes/{b}", "/v1/boxes/x", true, "x" },
		{ "/v1/boxes/{b}", "/v1/boxes/a%2fb", true, "a%2fb" },
		{ "/v1/boxes/{b}", "/v1/boxes/", false, NULL },
		{ "/v1/boxes/{b}", "/v1/boxes/a/b", false, NULL },
		{ "/{b}", "//", false, NULL },
		{ "/f/{r...}", "/f/a/b/../c", true, "a/b/../c" },
		{ "/f/{r...}", "/f/", true, "" },
		{ "/f/{r...}", "/f", false, NULL },
		{ "/", "/", true, NULL },
		{ "/", "*", false, NULL },
		{ "/", "", false, NULL },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct span_arg args[PATH_ARGS_MAX];
		unsigned rank;
		size_t n;

		CHECK(path_fits(cases[i].pattern, cases[i].path, args, &n, &rank) == cases[i].fits);
		if (cases[i].value)
			CHECK(n == 1 && args[0].value_n == strlen(cases[i].value) &&
				!memcmp(args[0].value, cases[i].value, args[0].value_n));
	}
}

TEST(serve_path_literal_outranks_argument)
{
	struct span_arg args[PATH_ARGS_MAX];
	unsigned fixed, open;
	size_t n;

	CHECK(path_fits("/a/{x}/c", "/a/b/c", args, &n, &open) &&
		path_fits("/a/b/{x}", "/a/b/c", args, &n, &fixed));
	CHECK(fixed > open);
}

TEST(serve_path_decodes_once_and_refuses_what_is_no_text)
{
	static const char *const bad[] = { "%", "%1", "%zz", "%00", "%ff", "%c0%af", "%ed%a0%80",
		"%f4%90%80%80", "a%e2%82" };
	struct den_err err;
	char out[64];

	CHECK(path_decode("a%2Fb%25%32", 11, false, out, &err) == 0 && !strcmp(out, "a/b%2"));
	CHECK(path_decode("a+b", 3, false, out, &err) == 0 && !strcmp(out, "a+b"));
	CHECK(path_decode("a+b", 3, true, out, &err) == 0 && !strcmp(out, "a b"));
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		CHECK(path_decode(bad[i], strlen(bad[i]), false, out, &err) < 0 &&
			err.code == DEN_INVALID);
}

TEST(serve_query_in_order_with_empty_ones)
{
	struct pair *q;
	struct den_err err;
	size_t n;
	char many[QUERY_MAX * 2 + 3];

	CHECK(query_parse("a=1&&b&c=&=d&a=%26", &q, &n, &err) == 0 && n == 5);
	CHECK(!strcmp(q[0].value, "1") && !strcmp(q[1].name, "b") && !*q[1].value &&
		!strcmp(q[2].name, "c"));
	CHECK(!*q[3].name && !strcmp(q[3].value, "d") && !strcmp(q[4].value, "&"));
	free(q);
	CHECK(query_parse("", &q, &n, &err) == 0 && n == 0);
	free(q);
	for (size_t i = 0; i < sizeof(many); i++)
		many[i] = i % 2 ? '&' : 'x';
	many[sizeof(many) - 1] = 0;
	CHECK(query_parse(many, &q, &n, &err) < 0);
}

TEST(serve_json_is_looked_at_before_it_is_parsed)
{
	struct den_err err;
	json_t *j;
	char deep[80];
	size_t big = 2 * JSON_VALUES_MAX + 10;
	char *many = mem_alloc(big);

	CHECK(json_read(" \n", 2, &j, &err) == 0 && json_object_size(j) == 0);
	json_decref(j);
	CHECK(json_read("[]", 2, &j, &err) < 0 && json_read("{} x", 4, &j, &err) < 0);
	CHECK(json_read("{\"a\":1,\"a\":2}", 13, &j, &err) < 0);
	CHECK(json_read("{\"a\":\"\xff\"}", 9, &j, &err) < 0 && strstr(err.msg, "byte 6"));
	memset(deep, '[', sizeof(deep));
	CHECK(json_scan(deep, JSON_DEPTH_MAX, &err) == 0 &&
		json_scan(deep, JSON_DEPTH_MAX + 1, &err) < 0);
	/* brackets in a text are none */
	deep[0] = '"';
	CHECK(json_scan(deep, sizeof(deep), &err) == 0);
	for (size_t i = 0; i < big; i++)
		many[i] = i % 2 ? ',' : '1';
	CHECK(json_scan(many, 2 * JSON_VALUES_MAX - 2, &err) == 0 &&
		json_scan(many, big, &err) < 0);
	free(many);
}

TEST(serve_fields_write_all_or_nothing)
{
	struct args {
		const char *name;
		uint64_t n;
		int64_t i;
		bool on, given;
		char **list, **map;
	} a = { .n = 5 };
	static const struct field table[] = {
		{ "name", FIELD_TEXT, offsetof(struct args, name), FIELD_MUST, .min = 1, .max = 5 },
		{ "n", FIELD_U64, offsetof(struct args, n), .max = 10,
			.given = FIELD_GIVEN(struct args, given) },
		{ "i", FIELD_I64, offsetof(struct args, i), FIELD_NULL, .max = 10 },
		{ "on", FIELD_BOOL, offsetof(struct args, on) },
		{ "list", FIELD_TEXTS, offsetof(struct args, list), .max = 2 },
		{ "map", FIELD_MAP, offsetof(struct args, map) },
	};
	static const char *const bad[] = { "{}", "{\"name\":\"\"}", "{\"name\":\"toolong\"}",
		"{\"name\":\"x\",\"n\":11}", "{\"name\":\"x\",\"n\":-1}",
		"{\"name\":\"x\",\"n\":1.5}", "{\"name\":\"x\",\"n\":null}",
		"{\"name\":\"x\",\"i\":-11}", "{\"name\":\"x\",\"on\":1}",
		"{\"name\":\"x\",\"list\":[\"a\",\"b\",\"c\"]}", "{\"name\":\"x\",\"list\":[1]}",
		"{\"name\":\"x\",\"map\":{\"a=\":\"b\"}}", "{\"name\":\"x\",\"map\":{\"\":\"b\"}}",
		"{\"name\":\"x\",\"map\":{\"a\":1}}", "{\"name\":\"x\",\"n\":3,\"nme\":1}" };
	struct den_err err;
	json_t *j;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		CHECK(json_read(bad[i], strlen(bad[i]), &j, &err) == 0);
		CHECK(fields_get(j, table, ARRAY_SIZE(table), true, &a, &err) < 0 &&
			err.code == DEN_INVALID);
		CHECK(!a.name && a.n == 5 && !a.list && !a.map && !a.given);
		json_decref(j);
	}
	CHECK(strstr(err.msg, "did you mean 'name'"));
	j = json_loads("{\"name\":\"x\",\"n\":2e0,\"i\":null,\"list\":[\"a\"],\"map\":{\"K\":\"V\"}"
		       ",\"more\":1}",
		0, NULL);
	CHECK(fields_get(j, table, ARRAY_SIZE(table), false, &a, &err) == 0);
	CHECK(!strcmp(a.name, "x") && a.n == 2 && a.given && a.i == 0 && !strcmp(a.list[0], "a") &&
		!strcmp(a.map[0], "K=V"));
	strv_free(a.list);
	strv_free(a.map);
	json_decref(j);
}

TEST(serve_json_text_of_any_bytes)
{
	json_t *j = json_text("a\xff\xc3\xa9\xc3");

	CHECK(!strcmp(json_string_value(j), "a\xef\xbf\xbd\xc3\xa9\xef\xbf\xbd"));
	json_decref(j);
}

TEST(serve_ring_keeps_order_and_bound)
{
	struct ring r = { .max = 40000 };
	unsigned put = 0, took = 0;
	unsigned char in[700], out[900];

	for (int turn = 0; turn < 2000; turn++) {
		size_t n = (size_t)(turn * 37 % 700), k;

		for (size_t i = 0; i < n; i++)
			in[i] = (unsigned char)(put + i);
		put += (unsigned)ring_put(&r, in, n);
		CHECK(r.len <= 40000 && r.len == put - took);
		k = ring_take(&r, out, (size_t)(turn * 31 % 650));
		for (size_t i = 0; i < k; i++)
			CHECK(out[i] == (unsigned char)(took + i));
		took += (unsigned)k;
	}
	CHECK(ring_put(&r, in, 0) == 0);
	while (ring_put(&r, in, sizeof(in)))
		;
	CHECK(r.len == 40000);
	while (ring_take(&r, out, sizeof(out)))
		;
	ring_trim(&r);
	CHECK(!r.p && ring_put(&r, "abc", 3) == 3);
	ring_trim(&r);
	CHECK(r.len == 3 && ring_take(&r, out, 9) == 3 && !memcmp(out, "abc", 3));
	ring_free(&r);
}

TEST(serve_prices_are_plain_decimals_given_once)
{
	static const char *const bad[] = { "", "=", "cpu", "cpu-hour", "cpu-hour=", "cpu-hour=x", "cpu-hour=-1", "cpu-hour=1e3",
		"cpu-hour=inf", "cpu-hour=nan", "cpu-hour=0x10", "cpu-hour=.5", "cpu-hour=1.", "cpu-hour= 1", "cpu-hour=1 ",
		"cpu-hour=1000001", "cpu-hour=0.0000000000000000000000001", "cpu-hours=1", "CPU-HOUR=1" };
	struct prices p = { 0 };
	struct den_err err;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		CHECK(price_parse(bad[i], &p, &err) < 0 && err.code == DEN_INVALID);
	CHECK(p.given == 0);
	CHECK(price_parse("cpu-hour=0.05", &p, &err) == 0);
	CHECK(price_parse("gib-out=1000000", &p, &err) == 0);
	CHECK(price_parse("cpu-hour=0.06", &p, &err) < 0);
	CHECK(p.given == (1U << PRICE_CPU_HOUR | 1U << PRICE_GIB_OUT));
	CHECK(p.each[PRICE_CPU_HOUR] > 0.0499 && p.each[PRICE_CPU_HOUR] < 0.0501);
	CHECK(currency_ok("EUR") && !currency_ok("eur") && !currency_ok("EURO") && !currency_ok(""));
}

TEST(serve_cost_is_the_sum_of_what_has_a_price)
{
	/* two processor hours, three GiB hours of memory, five of disk, seven GiB in, eleven out */
	struct price_use u = { .cpu_usec = 7200000000, .memory_mib_ms = 3 * 1024LL * 3600000, .disk_mib_ms = 5 * 1024LL * 3600000,
		.net_in = 7LL << 30, .net_out = 11LL << 30 };
	static const struct {
		const char *price;
		double sum;
	} cases[] = { { "cpu-hour=1", 2 }, { "gib-hour=0.1", 2.3 }, { "gib-disk-hour=0.01", 2.35 }, { "gib-in=2", 16.35 },
		{ "gib-out=0.5", 21.85 } };
	struct prices p = { 0 };
	struct den_err err;

	CHECK(price_of(&p, &u) == 0);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		double cost;

		CHECK(price_parse(cases[i].price, &p, &err) == 0);
		cost = price_of(&p, &u);
		CHECK(cost > cases[i].sum - 1e-9 && cost < cases[i].sum + 1e-9);
	}
}

TEST(serve_advice_is_of_the_dialect)
{
	static const struct {
		enum advice dialect;
		const char *msg, *box, *want;
	} cases[] = {
		{ ADVICE_V1, "the box is paused; 'den resume' lets it go on", "x", "the box is paused; POST /v1/boxes/x/resume lets it go on" },
		{ ADVICE_V1, "'den ls' lists them", "", "GET /v1/boxes lists them" },
		{ ADVICE_V1, "'den ps' lists them", NULL, "GET /v1/boxes/{box}/execs lists them" },
		{ ADVICE_V1, "'den secret set key' makes it", "x", "PUT /v1/secrets/key makes it" },
		{ ADVICE_V1, "'den rm two' frees it", "one", "DELETE /v1/boxes/two frees it" },
		{ ADVICE_V1, "('den lease BOX --ttl 1h')", "one", "(POST /v1/boxes/one/lease)" },
		{ ADVICE_V1, "'den doctor' says", "x", "'den doctor' on the server's host says" },
		{ ADVICE_V1, "'den psx' a 'den ps'", "x", "'den psx' on the server's host a GET /v1/boxes/x/execs" },
		{ ADVICE_V1, "cut off 'den res", "x", "cut off 'den res" },
		{ ADVICE_V1, "", "x", "" },
		{ ADVICE_E2B, "'den start' starts it", "x", "Sandbox.connect() starts it" },
		{ ADVICE_E2B, "'den log' shows them", "x", "'den log' on the server's host shows them" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		auto_buf b = { 0 };

		advice_text(cases[i].dialect, cases[i].msg, cases[i].box, &b);
		CHECK(!strcmp(buf_str(&b), cases[i].want));
	}
}
