/* HTTP from a box to an upstream, with secrets put in on the way. */
#include <string.h>

#include "kit_talk.h"
#include "mem.h"
#include "test.h"

TEST(gate_exchange_puts_a_secret_into_each_granted_place)
{
	struct talk t;

	talk_begin(&t, EXCHANGE_IN_HEADER, "X-Api-Key");
	CHECK(say(&t, "GET /v1 HTTP/1.1\r\nhost: API.example.com:443\r\nx-api-key:" PH
		      "\r\nAccept-Encoding: gzip, br\r\n\r\n") == 0);
	CHECK(is(&t.up, "GET /v1 HTTP/1.1\r\nHost: api.example.com:443\r\nx-api-key: " VALUE
			"\r\n" IDENTITY "\r\n"));
	CHECK(t.n_used == 1 && !strcmp(t.used, "header x-api-key") && !t.n_incidents &&
		!t.n_denied);
	talk_end(&t);

	talk_begin(&t, EXCHANGE_IN_BEARER, NULL);
	CHECK(say(&t, "GET / HTTP/1.1\r\n" HOST "Authorization: bearer " PH "\r\n\r\n") == 0);
	CHECK(has(&t.up, "Authorization: Bearer " VALUE "\r\n") && !strcmp(t.used, "bearer"));
	talk_end(&t);

	talk_begin(&t, EXCHANGE_IN_QUERY, "key");
	CHECK(say(&t, "GET /a?x=1&key=" PH "&y=2 HTTP/1.1\r\n" HOST "\r\n") == 0);
	CHECK(has(&t.up, "GET /a?x=1&key=sk-ant-REAL%2Bvalue%2F99%26x%3D%3D&y=2 HTTP/1.1\r\n"));
	CHECK(!strcmp(t.used, "query"));
	talk_end(&t);

	talk_begin(&t, EXCHANGE_IN_QUERY, NULL); /* any parameter */
	CHECK(say(&t, "GET http://api.example.com/?token=a" PH " HTTP/1.1\r\n" HOST "\r\n") == 0);
	CHECK(has(&t.up, "GET /?token=ask-ant-REAL%2Bvalue%2F99%26x%3D%3D HTTP/1.1\r\n"));
	talk_end(&t);
}

TEST(gate_exchange_puts_a_secret_into_basic_credentials)
{
	static const char *const users[] = { "user:" PH, PH ":", PH ":x-oauth-basic", "a" PH };
	static const char *const want[] = { "user:" VALUE, VALUE ":", VALUE ":x-oauth-basic",
		"a" VALUE };

	for (unsigned i = 0; i < ARRAY_SIZE(users); i++) {
		auto_buf request = { 0 };
		auto_buf expected = { 0 };
		struct talk t;

		buf_addstr(&request, "GET / HTTP/1.1\r\n" HOST "Authorization: Basic ");
		basic_of(&request, users[i]);
		buf_addstr(&request, "\r\n\r\n");
		buf_addstr(&expected, "Authorization: Basic ");
		basic_of(&expected, want[i]);
		buf_addstr(&expected, "\r\n");
		talk_begin(&t, EXCHANGE_IN_BASIC, NULL);
		CHECK(say(&t, buf_str(&request)) == 0 && has(&t.up, buf_str(&expected)));
		CHECK(t.n_used == 1 && !strcmp(t.used, "basic"));
		talk_end(&t);
		talk_begin(&t, EXCHANGE_IN_BEARER, NULL); /* another grant: base64 hides nothing */
		say(&t, buf_str(&request));
		CHECK(refused(&t, "403") && t.n_incidents == 1 && t.last_canary == 0);
		CHECK(!strcmp(t.incident, "header Authorization"));
		talk_end(&t);
	}
}

TEST(gate_exchange_swaps_bodies_and_keeps_a_length_where_it_can)
{
	struct talk t;
	auto_buf big = { 0 };

	talk_begin(&t, EXCHANGE_IN_BODY, NULL);
	CHECK(say(&t, "POST / HTTP/1.1\r\n" HOST "Content-Length: 30\r\n\r\n{\"k\":\"" PH) == 0);
	CHECK(t.up.len == 0); /* the length is not known yet */
	CHECK(say(&t, "\"") == 0 && has(&t.up, "Content-Length: 31\r\n\r\n{\"k\":\"" VALUE "\""));
	talk_end(&t);

	talk_begin(&t, EXCHANGE_IN_BODY, NULL);
	buf_addf(&big, "POST / HTTP/1.1\r\n" HOST "Content-Length: %zu\r\n\r\n{\"k\":\"" PH "\"}",
		strlen(PH) + 8);
	CHECK(say(&t, buf_str(&big)) == 0);
	big.len = 0;
	buf_addf(&big,
		"POST / HTTP/1.1\r\n" HOST IDENTITY "Content-Length: %zu\r\n\r\n{\"k\":\"" VALUE
		"\"}",
		strlen(VALUE) + 8);
	CHECK(is(&t.up, buf_str(&big)) && t.n_used == 1 && !strcmp(t.used, "body"));
	talk_end(&t);

	talk_begin(&t, EXCHANGE_IN_BODY, NULL); /* chunked stays chunked */
	CHECK(say(&t, "POST / HTTP/1.1\r\n" HOST
		      "Transfer-Encoding: chunked\r\n\r\n8\r\nden-ph-Q\r\n") == 0);
	CHECK(say(&t, "10\r\nm7xA0fK3vLp9ZtR.\r\n0\r\n\r\n") == 0);
	CHECK(is(&t.up, "POST / HTTP/1.1\r\n" HOST IDENTITY
			"Transfer-Encoding: chunked\r\n\r\n19\r\n" VALUE ".\r\n0\r\n\r\n"));
	talk_end(&t);

	talk_begin(&t, EXCHANGE_IN_BODY, NULL); /* too long to be waited for */
	CHECK(say(&t, "POST / HTTP/1.1\r\n" HOST "Content-Length: 100000\r\n\r\nabc" PH) == 0);
	CHECK(has(&t.up, "Transfer-Encoding: chunked\r\n\r\n1b\r\nabc" VALUE "\r\n"));
	talk_end(&t);
}

TEST(gate_exchange_writes_a_value_as_the_body_demands)
{
	static const char *const cases[] = { "application/x-www-form-urlencoded",
		"Application/JSON; charset=utf-8", "text/plain" };
	static const char *const want[] = { "s=a%22b%5C%2B", "s=a\\\"b\\\\+", "s=a\"b\\+" };
	struct exchange_secret s = { "KEY", PH, "a\"b\\+", EXCHANGE_IN_BODY };
	struct talk t;

	talk_with(&t, &s, NULL);
	for (unsigned i = 0; i < 2 * ARRAY_SIZE(cases); i++) { /* on one connection, in turn */
		const char *expected = want[i % ARRAY_SIZE(cases)];
		auto_buf b = { 0 };
		auto_buf w = { 0 };

		t.up.len = 0;
		buf_addf(&b,
			"POST / HTTP/1.1\r\n" HOST
			"Content-Type: %s\r\nContent-Length: 25\r\n\r\ns=" PH,
			cases[i % ARRAY_SIZE(cases)]);
		CHECK(say(&t, buf_str(&b)) == 0);
		buf_addf(&w, "Content-Length: %zu\r\n\r\n%s", strlen(expected), expected);
		CHECK(t.up.len > w.len && !memcmp(t.up.p + t.up.len - w.len, w.p, w.len));
		CHECK(t.n_used == i + 1);
	}
	talk_end(&t);
}

TEST(gate_exchange_tells_of_a_use_only_when_it_happened)
{
	struct talk t;

	talk_begin(&t, EXCHANGE_IN_HEADER, "x-api-key");
	say(&t, "GET / HTTP/1.1\r\n" HOST "X-Api-Key: " PH "\r\nX-Other: " PH "\r\n\r\n");
	CHECK(refused(&t, "403") && t.n_used == 0 && t.n_incidents == 1);
	talk_end(&t);
}

TEST(gate_exchange_without_a_name_takes_any_host_and_still_looks)
{
	static const char *const canaries[] = { PH };
	struct canary *c = canary_new(canaries, 1);
	struct exchange_options o = { .port = 80, .canaries = c };
	struct talk t = { 0 };

	t.x = exchange_new(&o);
	CHECK(say(&t, "GET / HTTP/1.0\r\n\r\n") == 0 && is(&t.up, "GET / HTTP/1.0\r\n\r\n"));
	exchange_free(t.x);
	t.up.len = 0;
	t.x = exchange_new(&o);
	CHECK(say(&t, "GET / HTTP/1.1\r\nHost: any.example\r\n\r\n") == 0);
	CHECK(is(&t.up, "GET / HTTP/1.1\r\nHost: any.example\r\n\r\n"));
	t.up.len = 0;
	CHECK(answer(&t, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n") == 0);
	CHECK(say(&t, "GET /" PH " HTTP/1.1\r\nHost: any.example\r\n\r\n") < 0 && t.up.len == 0);
	t.c = c;
	talk_end(&t);
}

TEST(gate_exchange_reports_a_placeholder_where_it_is_not_granted)
{
	static const char *const requests[] = {
		"GET /" PH " HTTP/1.1\r\n" HOST "\r\n",
		"GET /?x=" PH " HTTP/1.1\r\n" HOST "\r\n",
		"GET /?x=den%2dph-Qm7xA0fK3vLp9ZtR HTTP/1.1\r\n" HOST "\r\n",
		"GET / HTTP/1.1\r\n" HOST "X-Other: " PH "\r\n\r\n",
		"GET / HTTP/1.1\r\n" HOST "X-Api-Key: " PH "\r\nCookie: a=b; c=" PH "\r\n\r\n",
		"GET / HTTP/1.1\r\n" HOST "X-" PH ": 1\r\n\r\n",
		"GET / HTTP/1.1\r\n" HOST "X-Api-Key: RtZ9pLv3Kf0Ax7mQ-hp-ned\r\n\r\n",
		"GET / HTTP/1.1\r\n" HOST "X-Api-Key: " OTHER
		"\r\n\r\n", /* that place is another's */
		"GET / HTTP/1.1\r\n" HOST "Authorization: Bearer " PH "\r\n\r\n",
		"POST / HTTP/1.1\r\n" HOST "Accept-Encoding: " PH
		"\r\nContent-Length: 3\r\n\r\nabc",
	};

	for (unsigned i = 0; i < ARRAY_SIZE(requests); i++) {
		struct talk t;

		talk_begin(&t, EXCHANGE_IN_HEADER, "x-api-key");
		say(&t, requests[i]);
		CHECK(refused(&t, "403") && t.n_incidents == 1 && t.n_denied == 0);
		CHECK(!has(&t.box, VALUE) && !has(&t.box, PH));
		CHECK(say(&t, "GET / HTTP/1.1\r\n" HOST "\r\n") < 0 && t.up.len == 0);
		talk_end(&t);
		talk_begin(&t, 0, NULL); /* a connection without secrets looks as well */
		say(&t, requests[i]);
		CHECK(refused(&t, "403") && t.n_incidents == 1);
		talk_end(&t);
	}
}

TEST(gate_exchange_cuts_a_body_before_the_piece_with_the_placeholder)
{
	struct talk t;

	talk_begin(&t, EXCHANGE_IN_HEADER, "x-api-key");
	CHECK(say(&t, "POST / HTTP/1.1\r\n" HOST
		      "Content-Length: 1000\r\n\r\nbefore den-ph-Qm7xA0f") == 0);
	CHECK(say(&t, "K3vLp9ZtR after") < 0 && t.n_incidents == 1 && !strcmp(t.incident, "body"));
	CHECK(has(&t.up, "before") && !has(&t.up, "after") && !has(&t.up, PH));
	CHECK(has(&t.box, "403 Forbidden"));
	talk_end(&t);

	talk_begin(&t, 0, NULL); /* over chunks, and in a trailer */
	CHECK(say(&t, "POST / HTTP/1.1\r\n" HOST
		      "Transfer-Encoding: chunked\r\n\r\n9\r\nden-ph-Qm\r\n") == 0);
	CHECK(say(&t, "e\r\n7xA0fK3vLp9ZtR\r\n0\r\n\r\n") < 0 && t.n_incidents == 1);
	talk_end(&t);
	talk_begin(&t, 0, NULL);
	CHECK(say(&t, "POST / HTTP/1.1\r\n" HOST
		      "Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX: " PH "\r\n\r\n") < 0);
	CHECK(t.n_incidents == 1 && !strcmp(t.incident, "trailer") && !has(&t.up, PH));
	talk_end(&t);

	talk_begin(&t, EXCHANGE_IN_BODY, NULL); /* granted in clear is not granted in disguise */
	CHECK(say(&t, "POST / HTTP/1.1\r\n" HOST "Content-Length: 90000\r\n\r\n" PH
		      " den%2Dph-Qm7xA0fK3v"
		      "Lp9ZtR") < 0 &&
		t.n_incidents == 1);
	talk_end(&t);
	talk_begin(&t, EXCHANGE_IN_BODY, NULL);
	say(&t, "POST / HTTP/1.1\r\n" HOST "Content-Length: 30\r\n\r\n" OTHER "123456");
	CHECK(refused(&t, "403") && t.n_incidents == 1 &&
		t.last_canary == 1); /* held: nothing went out */
	talk_end(&t);
}

TEST(gate_exchange_refuses_other_hosts_and_what_smuggles)
{
	static const struct {
		const char *status, *text;
	} bad[] = {
		{ "403", "GET / HTTP/1.1\r\nHost: evil.example.org\r\n\r\n" },
		{ "403", "GET / HTTP/1.1\r\nHost: api.example.com:8443\r\n\r\n" },
		{ "403", "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" },
		{ "403",
			"GET http://evil.example.org/ HTTP/1.1\r\nHost: evil.example.org\r\n\r\n" },
		{ "400", "GET http://evil.example.org/ HTTP/1.1\r\n" HOST "\r\n" },
		{ "400", "GET / HTTP/1.1\r\n\r\n" },
		{ "400", "GET / HTTP/1.0\r\n\r\n" },
		{ "400", "GET / HTTP/1.1\r\n" HOST HOST "\r\n" },
		{ "405", "CONNECT api.example.com:443 HTTP/1.1\r\nHost: "
			 "api.example.com:443\r\n\r\n" },
		{ "505", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" },
		{ "400", "POST / HTTP/1.1\r\n" HOST
			 "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n" },
		{ "400", "POST / HTTP/1.1\r\n" HOST
			 "Content-Length: 3\r\nContent-Length: 4\r\n\r\n" },
		{ "400", "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: xchunked\r\n\r\n" },
		{ "400", "GET / HTTP/1.1\n" HOST "\r\n" },
		{ "400", "GET / HTTP/1.1\r\n" HOST "X: a\r\n folded\r\n\r\n" },
		{ "400", "GET / HTTP/1.1\r\n" HOST "X : a\r\n\r\n" },
	};

	for (unsigned i = 0; i < ARRAY_SIZE(bad); i++) {
		struct talk t;

		talk_begin(&t, i % 2 ? EXCHANGE_IN_BEARER : 0, NULL);
		say(&t, bad[i].text);
		CHECK(refused(&t, bad[i].status) && t.n_denied == 1);
		talk_end(&t);
	}
}

TEST(gate_exchange_leaves_out_http2_in_clear)
{
	struct talk t;

	talk_begin(&t, 0, NULL);
	CHECK(say(&t, "GET / HTTP/1.1\r\n" HOST
		      "Connection: Upgrade, keep-alive, HTTP2-Settings\r\n"
		      "Upgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\nAccept: */*\r\n\r\n") == 0);
	CHECK(is(&t.up, "GET / HTTP/1.1\r\n" HOST "Connection: keep-alive\r\nAccept: */*\r\n\r\n"));
	talk_end(&t);
}

TEST(gate_exchange_answers_refusals_in_their_turn)
{
	struct talk t;

	talk_begin(&t, 0, NULL);
	CHECK(say(&t, "GET /1 HTTP/1.1\r\n" HOST
		      "\r\nGET /2 HTTP/1.1\r\nHost: evil.example.org\r\n\r\n"
		      "GET /3 HTTP/1.1\r\n" HOST "\r\n") == 0);
	CHECK(is(&t.up, "GET /1 HTTP/1.1\r\n" HOST "\r\n") && t.box.len == 0 && t.n_denied == 1);
	CHECK(!exchange_wants_box(t.x));
	CHECK(say(&t, "GET /4 HTTP/1.1\r\n" HOST "\r\n") == 0);
	CHECK(answer(&t, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nh") == 0);
	CHECK(answer(&t, "i") < 0);
	CHECK(!strncmp(buf_str(&t.box),
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhiHTTP/1.1 403 ", 53));
	CHECK(exchange_requests(t.x) == 1 && exchange_last_status(t.x) == 200);
	talk_end(&t);
}

TEST(gate_exchange_adds_a_token_and_waits_for_it)
{
	struct talk t;

	talk_with(&t, NULL, "https://api.internal");
	CHECK(!exchange_needs_token(t.x));
	CHECK(say(&t, "GET /1 HTTP/1.1\r\n" HOST
		      "authorization: mine\r\n\r\nGET /2 HTTP/1.1\r\n" HOST "\r\n") == 0);
	CHECK(t.up.len == 0 && !strcmp(exchange_needs_token(t.x), "https://api.internal"));
	CHECK(!exchange_wants_box(t.x));
	CHECK(exchange_give_token(t.x, "aaa.bbb.ccc", NOW + 60, &t.up, &t.box, &t.why) == 0);
	CHECK(is(&t.up, "GET /1 HTTP/1.1\r\n" HOST IDENTITY "Authorization: Bearer aaa.bbb.ccc\r\n\r\n"
			"GET /2 HTTP/1.1\r\n" HOST IDENTITY "Authorization: Bearer aaa.bbb.ccc\r\n\r\n"));
	CHECK(!exchange_needs_token(t.x) && exchange_wants_box(t.x));
	talk_end(&t);

	talk_with(&t, NULL, "https://api.internal");
	CHECK(say(&t, "GET /1 HTTP/1.1\r\n" HOST "\r\n") == 0);
	t.r = exchange_give_token(t.x, NULL, 0, &t.up, &t.box, &t.why);
	CHECK(refused(&t, "502"));
	talk_end(&t);
	talk_with(&t, NULL, "https://api.internal");
	CHECK(say(&t, "GET /1 HTTP/1.1\r\n" HOST "\r\n") == 0);
	t.r = exchange_give_token(t.x, "a\r\nX: y", NOW + 60, &t.up, &t.box, &t.why);
	CHECK(refused(&t, "502"));
	talk_end(&t);
}

TEST(gate_exchange_asks_for_whole_answers_where_a_secret_may_come_back)
{
	static const char ask[] = "GET / HTTP/1.1\r\n" HOST "Range: bytes=0-9\r\nif-range: \"x\"\r\n\r\n";
	struct exchange_secret aws = { "KEY", PH, VALUE, EXCHANGE_IN_SIGV4 };
	struct talk t;

	talk_begin(&t, EXCHANGE_IN_BEARER, NULL);
	CHECK(say(&t, ask) == 0 && is(&t.up, "GET / HTTP/1.1\r\n" HOST IDENTITY "\r\n"));
	talk_end(&t);
	talk_with(&t, NULL, "https://api.internal");
	CHECK(say(&t, ask) == 0);
	CHECK(exchange_give_token(t.x, "aaa.bbb.ccc", NOW + 60, &t.up, &t.box, &t.why) == 0);
	CHECK(t.up.len && !has(&t.up, "ange: "));
	talk_end(&t);
	talk_begin(&t, 0, NULL); /* there is nothing to guard */
	CHECK(say(&t, ask) == 0 && has(&t.up, "Range: bytes=0-9\r\nif-range: "));
	talk_end(&t);
	talk_with(&t, &aws, NULL); /* a key that only signs never gets there */
	CHECK(say(&t, ask) == 0 && has(&t.up, "Range: bytes=0-9\r\n"));
	talk_end(&t);
}

TEST(gate_exchange_takes_no_request_after_the_policy_changed)
{
	struct talk t;

	talk_begin(&t, EXCHANGE_IN_BEARER, NULL);
	CHECK(say(&t, "GET /1 HTTP/1.1\r\n" HOST "\r\nGET /2 HTTP/1.1\r\n" HOST "\r\n") == 0);
	CHECK(exchange_drain(t.x, true, &t.box, &t.why) == 0 && !exchange_wants_box(t.x));
	t.up.len = 0;
	CHECK(say(&t, "GET /3 HTTP/1.1\r\n" HOST "Authorization: Bearer " PH "\r\n\r\n") == 0);
	CHECK(answer(&t, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n") == 0);
	CHECK(is(&t.box, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n") && !exchange_wants_close(t.x));
	t.box.len = 0;
	CHECK(answer(&t, "HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nContent-Length: 0\r\n\r\n") == 0);
	CHECK(is(&t.box, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"));
	CHECK(exchange_wants_close(t.x) && t.up.len == 0 && t.n_used == 0);
	talk_end(&t);

	talk_begin(&t, EXCHANGE_IN_BEARER, NULL); /* the last answer has begun already: the end is the end */
	CHECK(say(&t, "GET /1 HTTP/1.1\r\n" HOST "\r\n") == 0);
	CHECK(answer(&t, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nab") == 0);
	CHECK(exchange_drain(t.x, false, &t.box, &t.why) == 0 && !exchange_wants_close(t.x));
	CHECK(answer(&t, "cd") == 0 && exchange_wants_close(t.x));
	talk_end(&t);

	talk_begin(&t, EXCHANGE_IN_BEARER, NULL); /* half a head, the first one: it is told to come again */
	CHECK(say(&t, "GET /1 HTTP/1.1\r\n" HOST "Author") == 0);
	t.r = exchange_drain(t.x, false, &t.box, &t.why);
	CHECK(refused(&t, "503") && has(&t.box, "policy changed") && t.n_denied == 0);
	talk_end(&t);
	talk_begin(&t, EXCHANGE_IN_BEARER, NULL); /* and one that comes later */
	CHECK(exchange_drain(t.x, false, &t.box, &t.why) == 0 && exchange_wants_box(t.x));
	say(&t, "GET / HTTP/1.1\r\n" HOST "Authorization: Bearer " PH "\r\n\r\n");
	CHECK(refused(&t, "503") && t.n_used == 0);
	talk_end(&t);
	talk_with(&t, NULL, "https://api.internal"); /* and one that waits for its token */
	CHECK(say(&t, "GET / HTTP/1.1\r\n" HOST "\r\n") == 0);
	t.r = exchange_drain(t.x, false, &t.box, &t.why);
	CHECK(refused(&t, "503"));
	CHECK(exchange_give_token(t.x, "aaa.bbb.ccc", NOW + 60, &t.up, &t.box, &t.why) < 0 && !t.up.len);
	talk_end(&t);
}

TEST(gate_exchange_puts_no_old_value_into_a_body_under_way)
{
	static const char ask[] = "POST / HTTP/1.1\r\n" HOST "Content-Length: 100000\r\n\r\nabc";
	struct talk t;

	for (int stale = 0; stale < 2; stale++) {
		talk_begin(&t, EXCHANGE_IN_BODY, NULL);
		CHECK(say(&t, ask) == 0 && has(&t.up, "abc"));
		CHECK(exchange_drain(t.x, stale, &t.box, &t.why) == (stale ? -1 : 0));
		CHECK(has(&t.box, "HTTP/1.1 503 ") == stale && t.n_denied == 0);
		CHECK(say(&t, PH) == (stale ? -1 : 0) && has(&t.up, VALUE) == !stale);
		talk_end(&t);

		talk_begin(&t, EXCHANGE_IN_BODY | EXCHANGE_IN_BEARER, NULL); /* held, the head too */
		CHECK(say(&t, "POST / HTTP/1.1\r\n" HOST "Authorization: Bearer " PH
			      "\r\nContent-Length: 3\r\n\r\nab") == 0 && !t.up.len);
		t.r = exchange_drain(t.x, stale, &t.box, &t.why);
		CHECK(stale ? refused(&t, "503") : t.r == 0);
		CHECK(say(&t, "c") == (stale ? -1 : 0) && has(&t.up, VALUE) == !stale);
		talk_end(&t);
	}
}

TEST(gate_exchange_keeps_no_more_than_there_is_for_all)
{
	enum { MANY = 4000 };
	static struct talk t[MANY];
	size_t before = exchange_budget_used(), most = 0;
	unsigned refusals = 0;
	auto_buf head = { 0 };

	buf_addstr(&head, "GET / HTTP/1.1\r\n" HOST "X-Long: ");
	while (head.len < 60000)
		buf_addstr(&head, "0123456789abcdef");
	for (unsigned i = 0; i < MANY; i++) {
		talk_begin(&t[i], 0, NULL);
		for (size_t at = 0; at < head.len && t[i].r == 0; at += 16000)
			t[i].r = exchange_from_box(t[i].x, head.p + at, MIN(16000, head.len - at), &t[i].up,
				&t[i].box, &t[i].why);
		if (t[i].r < 0) {
			CHECK(refused(&t[i], "503"));
			refusals++;
		}
		most = MAX(most, exchange_budget_used());
	}
	CHECK(refusals && refusals < MANY && most < EXCHANGE_BUDGET + (32u << 20));
	talk_end(&t[0]);
	talk_begin(&t[0], 0, NULL); /* a small one passes */
	CHECK(say(&t[0], "GET / HTTP/1.1\r\n") == 0 && say(&t[0], HOST "\r\n") == 0 && t[0].up.len);
	for (unsigned i = 0; i < MANY; i++)
		talk_end(&t[i]);
	CHECK(exchange_budget_used() == before);
}
