#include "test.h"

#include "buf.h"
#include "http.h"
#include "mem.h"

#define TEXT(s)                                                                                    \
	{                                                                                          \
		s, sizeof(s) - 1                                                                   \
	}
struct text {
	const char *p;
	size_t n;
};

/* Each prefix must say MORE or the same as the whole, once and for all. */
static enum http_result request_checked(struct text t, struct http_head *h, const char **why)
{
	enum http_result whole = http_request_parse(t.p, t.n, h, why);
	bool decided = false;

	for (size_t n = 0; n <= t.n; n += t.n > 4000 ? 61 : 1) {
		/* a copy, so that a sanitizer sees a read past the end */
		auto_free char *copy = mem_alloc(n ? n : 1);
		const char *ignored;
		struct http_head part;
		enum http_result r;

		memcpy(copy, t.p, n);
		r = http_request_parse(copy, n, &part, &ignored);
		CHECK(r == whole || (r == HTTP_MORE && !decided));
		CHECK(r == HTTP_MORE || n >= 1);
		if (r == HTTP_OK) {
			CHECK(part.head_len == h->head_len && part.n == h->n);
			http_head_free(&part);
		}
		decided = decided || r != HTTP_MORE;
	}
	return whole;
}

static bool view_is(const char *p, size_t n, const char *text)
{
	return n == strlen(text) && !memcmp(p, text, n);
}

#define GET "GET / HTTP/1.1\r\n"
#define POST "POST / HTTP/1.1\r\nHost: a.com\r\n"
#define HOST "Host: a.com\r\n"
#define END "\r\n"

TEST(http_reads_a_request)
{
	struct text t = TEXT("POST /v1/x?y=z HTTP/1.1\r\nHost: API.Example.com:8080\r\nX-Empty:\r\n"
			     "accept: \t a, b\xff \t\r\nContent-Length: 5\r\n\r\nhelloGET");
	const struct http_field *f;
	struct http_head h;
	const char *why;

	CHECK(request_checked(t, &h, &why) == HTTP_OK);
	CHECK(h.request && !strcmp(h.method, "POST") &&
		view_is(h.target, h.target_len, "/v1/x?y=z"));
	CHECK(h.form == HTTP_FORM_ORIGIN && view_is(h.path, h.path_len, "/v1/x?y=z") &&
		h.minor == 1);
	CHECK(h.has_host && !strcmp(h.host.s, "api.example.com") && h.host_port == 8080);
	CHECK(h.head_len == t.n - 8 && h.n == 4 && h.keep_alive && !h.upgrade &&
		!h.expect_continue);
	CHECK(h.body == HTTP_BODY_LENGTH && h.length == 5);
	f = http_find(&h, "Accept");
	CHECK(f && view_is(f->value, f->value_len, "a, b\xff") &&
		view_is(f->name, f->name_len, "accept"));
	CHECK(http_find(&h, "x-empty")->value_len == 0 && !http_find(&h, "x-none"));
	CHECK(http_count(&h, "HOST") == 1 && !http_count(&h, "hos"));
	http_head_free(&h);
}

TEST(http_takes_what_real_clients_send)
{
	static const struct {
		struct text t;
		enum http_body_kind body;
		enum http_form form;
		bool keep, upgrade, expect;
		const char *host;
		unsigned port;
	} cases[] = {
		{ TEXT("GET / HTTP/1.0\r\n\r\n"), 0, 0, 0, 0, 0, NULL, 0 },
		{ TEXT("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n" HOST END), 0, 0, 1, 0, 0,
			"a.com", 0 },
		{ TEXT("GET /\\\"<>{}|^` HTTP/1.1\r\n" HOST END), 0, 0, 1, 0, 0, "a.com", 0 },
		{ TEXT("GET //x HTTP/1.1\r\nConnection: x, Close\r\n" HOST END), 0, 0, 0, 0, 0,
			"a.com", 0 },
		{ TEXT("GET / HTTP/1.1\r\nhOST:a.com.\r\n\r\n"), 0, 0, 1, 0, 0, "a.com", 0 },
		{ TEXT(POST "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), HTTP_BODY_CHUNKED, 0, 1,
			0, 0, "a.com", 0 },
		{ TEXT(POST "Content-Length: 0\r\n\r\n"), HTTP_BODY_LENGTH, 0, 1, 0, 0, "a.com",
			0 },
		{ TEXT(POST "Content-Length: 9\r\nExpect: 100-Continue\r\n\r\n"), HTTP_BODY_LENGTH,
			0, 1, 0, 1, "a.com", 0 },
		{ TEXT(GET HOST "Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\r\n"), 0,
			0, 1, 1, 0, "a.com", 0 },
		{ TEXT(GET HOST "Upgrade: websocket\r\n\r\n"), 0, 0, 1, 0, 0, "a.com", 0 },
		{ TEXT("OPTIONS * HTTP/1.1\r\n" HOST END), 0, HTTP_FORM_ASTERISK, 1, 0, 0, "a.com",
			0 },
		{ TEXT("GET http://a.com/x HTTP/1.1\r\n" HOST END), 0, HTTP_FORM_ABSOLUTE, 1, 0, 0,
			"a.com", 0 },
		{ TEXT("GET HTTP://A.com:80 HTTP/1.1\r\n" HOST END), 0, HTTP_FORM_ABSOLUTE, 1, 0, 0,
			"a.com", 0 },
		{ TEXT("GET https://a.com/ HTTP/1.1\r\nHost: a.com:443\r\n\r\n"), 0,
			HTTP_FORM_ABSOLUTE, 1, 0, 0, "a.com", 443 },
		{ TEXT("GET http://a.com:81/ HTTP/1.0\r\n\r\n"), 0, HTTP_FORM_ABSOLUTE, 0, 0, 0,
			"a.com", 81 },
		{ TEXT("CONNECT a.com:443 HTTP/1.1\r\nHost: a.com:443\r\n\r\n"), 0,
			HTTP_FORM_AUTHORITY, 1, 0, 0, "a.com", 443 },
		{ TEXT("CONNECT a.com:443 HTTP/1.1\r\n" HOST END), 0, HTTP_FORM_AUTHORITY, 1, 0, 0,
			"a.com", 443 },
		{ TEXT("CONNECT a.com:22 HTTP/1.0\r\n\r\n"), 0, HTTP_FORM_AUTHORITY, 0, 0, 0,
			"a.com", 22 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct http_head h;
		const char *why;

		CHECK(request_checked(cases[i].t, &h, &why) == HTTP_OK);
		CHECK(h.body == cases[i].body && h.form == cases[i].form);
		CHECK(h.keep_alive == cases[i].keep && h.upgrade == cases[i].upgrade);
		CHECK(h.expect_continue == cases[i].expect && h.has_host == !!cases[i].host);
		CHECK(!h.has_host || !strcmp(h.host.s, cases[i].host));
		CHECK(h.host_port == cases[i].port);
		CHECK(h.form == HTTP_FORM_ASTERISK || h.form == HTTP_FORM_AUTHORITY ||
			h.path[0] == '/');
		http_head_free(&h);
	}
}

TEST(http_refuses_what_two_programs_read_differently)
{
	static const struct text bad[] = {
		/* lines */
		TEXT("GET / HTTP/1.1\nHost: a.com\n\n"),
		TEXT(GET "Host: a.com\n\r\n"),
		TEXT(GET HOST "\n"),
		TEXT(GET HOST "X: a\rb\r\n\r\n"),
		TEXT(GET HOST "X: a\nContent-Length: 5\r\n\r\n"),
		TEXT("\r\n" GET HOST END),
		TEXT(" " GET HOST END),
		TEXT(GET HOST "X: a\r\n b\r\n\r\n"),
		TEXT(GET HOST "X: a\r\n\tb\r\n\r\n"),
		TEXT(GET " Host: a.com\r\n\r\n"),
		TEXT(GET HOST "X: a\0b\r\n\r\n"),
		TEXT(GET HOST "X: a\x01\r\n\r\n"),
		TEXT(GET HOST "X: a\x7f\r\n\r\n"),
		/* names of headers */
		TEXT(GET HOST "Content-Length : 5\r\n\r\n"),
		TEXT(GET HOST "Content-Length\t: 5\r\n\r\n"),
		TEXT(GET HOST "X\tY: 5\r\n\r\n"),
		TEXT(GET HOST "X\0: 5\r\n\r\n"),
		TEXT(GET HOST "X\xe9: 5\r\n\r\n"),
		TEXT(GET HOST "X(y): 5\r\n\r\n"),
		TEXT(GET HOST ": 5\r\n\r\n"),
		TEXT(GET HOST "nothing\r\n\r\n"),
		/* lengths */
		TEXT(POST "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"),
		TEXT(POST "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n"),
		TEXT(POST "Content-Length: 5\r\nContent-Length: 6\r\n\r\n"),
		TEXT(POST "Content-Length: 5\r\ncontent-length: 5\r\n\r\n"),
		TEXT(POST "Content-Length: 5, 5\r\n\r\n"),
		TEXT(POST "Content-Length: +5\r\n\r\n"),
		TEXT(POST "Content-Length: -5\r\n\r\n"),
		TEXT(POST "Content-Length: 05\r\n\r\n"),
		TEXT(POST "Content-Length: 0x5\r\n\r\n"),
		TEXT(POST "Content-Length: 5 5\r\n\r\n"),
		TEXT(POST "Content-Length: 5;\r\n\r\n"),
		TEXT(POST "Content-Length: \"5\"\r\n\r\n"),
		TEXT(POST "Content-Length:\r\n\r\n"),
		TEXT(POST "Content-Length: 9223372036854775808\r\n\r\n"),
		TEXT(POST "Content-Length: 18446744073709551621\r\n\r\n"),
		TEXT(POST "Content_Length: 5\r\n\r\n"),
		TEXT(POST "TRANSFER_ENCODING: chunked\r\n\r\n"),
		TEXT(POST "Transfer-Encoding: xchunked\r\n\r\n"),
		TEXT(POST "Transfer-Encoding: chunkedx\r\n\r\n"),
		TEXT(POST "Transfer-Encoding: Chunked\r\n\r\n"),
		TEXT(POST "Transfer-Encoding: chunked, identity\r\n\r\n"),
		TEXT(POST "Transfer-Encoding: identity, chunked\r\n\r\n"),
		TEXT(POST "Transfer-Encoding: gzip, chunked\r\n\r\n"),
		TEXT(POST "Transfer-Encoding: identity\r\n\r\n"),
		TEXT(POST "Transfer-Encoding: chunked;q=1\r\n\r\n"),
		TEXT(POST "Transfer-Encoding: \"chunked\"\r\n\r\n"),
		TEXT(POST "Transfer-Encoding: \x0b"
			  "chunked\r\n\r\n"),
		TEXT(POST "Transfer-Encoding:\r\n\r\n"),
		TEXT(POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n"),
		TEXT(POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n"),
		TEXT("POST / HTTP/1.0\r\nHost: a.com\r\nTransfer-Encoding: chunked\r\n\r\n"),
		TEXT(POST "Connection: close, Content-Length\r\nContent-Length: 5\r\n\r\n"),
		TEXT(GET HOST "Connection: host\r\n\r\n"),
		TEXT(GET HOST "Expect: 200-maybe\r\n\r\n"),
		/* whom it is for */
		TEXT(GET END),
		TEXT(GET HOST HOST END),
		TEXT(GET HOST "host: b.com\r\n\r\n"),
		TEXT(GET "Host:\r\n\r\n"),
		TEXT(GET "Host: u@a.com\r\n\r\n"),
		TEXT(GET "Host: a.com, b.com\r\n\r\n"),
		TEXT(GET "Host: a.com b.com\r\n\r\n"),
		TEXT(GET "Host: a.com/x\r\n\r\n"),
		TEXT(GET "Host: http://a.com\r\n\r\n"),
		TEXT(GET "Host: a.com:\r\n\r\n"),
		TEXT(GET "Host: a.com:0\r\n\r\n"),
		TEXT(GET "Host: a.com:080\r\n\r\n"),
		TEXT(GET "Host: a.com:65536\r\n\r\n"),
		TEXT(GET "Host: a.com:80:80\r\n\r\n"),
		TEXT(GET "Host: a.com:80@b.com\r\n\r\n"),
		TEXT(GET "Host: a.com\\.b.com\r\n\r\n"),
		TEXT(GET "Host: a%2ecom\r\n\r\n"),
		TEXT(GET "Host: 0x7f.1\r\n\r\n"),
		TEXT(GET "Host: 2130706433\r\n\r\n"),
		TEXT(GET "Host: 127.1\r\n\r\n"),
		TEXT(GET "Host: [127.0.0.1]\r\n\r\n"),
		TEXT(GET "Host: [::1\r\n\r\n"),
		TEXT(GET "Host: [::1]x\r\n\r\n"),
		TEXT(GET "Host: [fe80::1%25lo]\r\n\r\n"),
		TEXT(GET "Host: ::1\r\n\r\n"),
		TEXT("GET http://b.com/ HTTP/1.1\r\n" HOST END),
		TEXT("GET http://a.com:81/ HTTP/1.1\r\n" HOST END),
		TEXT("GET http://a.com/ HTTP/1.1\r\nHost: a.com:443\r\n\r\n"),
		TEXT("GET http://u@a.com/ HTTP/1.1\r\n" HOST END),
		TEXT("GET http://a.com@b.com/ HTTP/1.1\r\n" HOST END),
		TEXT("GET http://a.com\\@b.com/ HTTP/1.1\r\n" HOST END),
		TEXT("GET http:///x HTTP/1.1\r\n" HOST END),
		TEXT("GET http:/a.com/ HTTP/1.1\r\n" HOST END),
		TEXT("GET http://a.com?x HTTP/1.1\r\n" HOST END),
		TEXT("GET http://a.com/ HTTP/1.1\r\n\r\n"),
		TEXT("GET ftp://a.com/ HTTP/1.1\r\n" HOST END),
		TEXT("GET a.com:80 HTTP/1.1\r\n" HOST END),
		TEXT("GET x HTTP/1.1\r\n" HOST END),
		TEXT("GET * HTTP/1.1\r\n" HOST END),
		TEXT("CONNECT a.com HTTP/1.1\r\n" HOST END),
		TEXT("CONNECT / HTTP/1.1\r\n" HOST END),
		TEXT("CONNECT a.com:443 HTTP/1.1\r\nHost: b.com:443\r\n\r\n"),
		TEXT("CONNECT a.com:443 HTTP/1.1\r\nHost: a.com:80\r\n\r\n"),
		TEXT("CONNECT a.com:443 HTTP/1.1\r\n" HOST "Content-Length: 5\r\n\r\n"),
		TEXT("CONNECT a.com:443 HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n"),
		/* first lines */
		TEXT("GET  / HTTP/1.1\r\n" HOST END),
		TEXT("GET /  HTTP/1.1\r\n" HOST END),
		TEXT("GET / HTTP/1.1 \r\n" HOST END),
		TEXT("GET\t/ HTTP/1.1\r\n" HOST END),
		TEXT("GET /a b HTTP/1.1\r\n" HOST END),
		TEXT("GET /a\tb HTTP/1.1\r\n" HOST END),
		TEXT("GET /a\0b HTTP/1.1\r\n" HOST END),
		TEXT("GET /\xa0HTTP/1.1 HTTP/1.1\r\n" HOST END),
		TEXT("GET /#x HTTP/1.1\r\n" HOST END),
		TEXT("GET /\r\n" HOST END),
		TEXT("GET\r\n" HOST END),
		TEXT("GET / HTTP/2.0\r\n" HOST END),
		TEXT("GET / HTTP/1.2\r\n" HOST END),
		TEXT("GET / HTTP/1.10\r\n" HOST END),
		TEXT("GET / HTTP/0.9\r\n" HOST END),
		TEXT("GET / http/1.1\r\n" HOST END),
		TEXT("GET / HTTP/1.1, HTTP/1.0\r\n" HOST END),
		TEXT("G(T / HTTP/1.1\r\n" HOST END),
		TEXT("ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEFG / HTTP/1.1\r\n" HOST END),
		TEXT("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
		TEXT("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
		TEXT("\0"),
	};

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct http_head h = { .n = 77 };
		const char *why = NULL;

		if (request_checked(bad[i], &h, &why) != HTTP_BAD)
			fprintf(stderr, "taken: %s\n", bad[i].p);
		CHECK(http_request_parse(bad[i].p, bad[i].n, &h, &why) == HTTP_BAD);
		CHECK(why && why[0] && h.n == 77);
	}
}

TEST(http_host_may_be_an_address)
{
	static const struct {
		struct text t;
		const char *addr;
		unsigned port;
	} cases[] = {
		{ TEXT(GET "Host: 127.0.0.1:8080\r\n\r\n"), "127.0.0.1", 8080 },
		{ TEXT(GET "Host: [2001:DB8::1]\r\n\r\n"), "2001:db8::1", 0 },
		{ TEXT(GET "Host: [::ffff:127.0.0.1]:1\r\n\r\n"), "127.0.0.1", 1 },
		{ TEXT("GET http://[::1]:9/ HTTP/1.1\r\nHost: [0:0::1]:9\r\n\r\n"), "::1", 9 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct http_head h;
		const char *why;
		char text[46];

		CHECK(request_checked(cases[i].t, &h, &why) == HTTP_OK && h.has_host &&
			h.host_is_addr);
		net_addr_format(&h.host_addr, text);
		CHECK(!strcmp(text, cases[i].addr) && h.host_port == cases[i].port && !h.host.s[0]);
		http_head_free(&h);
	}
}

TEST(http_upgrade_to_a_hidden_http_is_told)
{
	static const struct text cases[] = {
		TEXT(GET HOST "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\r\n"),
		TEXT(GET HOST "Connection: Upgrade\r\nUpgrade: websocket, H2C\r\n\r\n"),
		TEXT(GET HOST
			"Connection: Upgrade\r\nUpgrade: websocket\r\nUpgrade: HTTP/2.0\r\n\r\n"),
		TEXT(GET HOST "Upgrade: TLS/1.0\r\n\r\n"),
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct http_head h;
		const char *why;

		CHECK(request_checked(cases[i], &h, &why) == HTTP_OK && h.h2c && !h.upgrade);
		http_head_free(&h);
	}
}

TEST(http_head_has_limits)
{
	struct http_head h;
	const char *why;

	for (unsigned fields = HTTP_FIELDS_MAX - 1; fields <= HTTP_FIELDS_MAX + 1; fields++) {
		auto_buf b = { 0 };

		buf_addstr(&b, GET HOST);
		for (unsigned i = 1; i < fields; i++)
			buf_addstr(&b, "X: y\r\n");
		buf_addstr(&b, END);
		CHECK(http_request_parse(b.p, b.len, &h, &why) ==
			(fields <= HTTP_FIELDS_MAX ? HTTP_OK : HTTP_BAD));
		if (fields <= HTTP_FIELDS_MAX) {
			CHECK(h.n == fields);
			http_head_free(&h);
		}
	}
	for (size_t len = HTTP_HEAD_MAX - 1; len <= HTTP_HEAD_MAX + 1; len++) {
		auto_buf b = { 0 };

		buf_addstr(&b, GET HOST "X: ");
		while (b.len < len - 4)
			buf_add(&b, "y", 1);
		buf_addstr(&b, "\r\n\r\n");
		CHECK(b.len == len);
		CHECK(http_request_parse(b.p, HTTP_HEAD_MAX - 2, &h, &why) == HTTP_MORE);
		CHECK(request_checked((struct text){ b.p, b.len }, &h, &why) ==
			(len <= HTTP_HEAD_MAX ? HTTP_OK : HTTP_BAD));
		if (len <= HTTP_HEAD_MAX)
			http_head_free(&h);
	}
}

TEST(http_response_is_framed_by_status_and_method)
{
	static const struct {
		const char *method;
		struct text t;
		enum http_result want;
		enum http_body_kind body;
		bool keep, upgrade;
	} cases[] = {
#define R(status) "HTTP/1.1 " status "\r\n"
		{ "GET", TEXT(R("200 OK") "Content-Length: 5\r\n\r\n"), HTTP_OK, HTTP_BODY_LENGTH,
			1, 0 },
		{ "GET", TEXT(R("200 OK") "Content-Length: 0005\r\n\r\n"), HTTP_OK,
			HTTP_BODY_LENGTH, 1, 0 },
		{ "GET", TEXT(R("200") "Transfer-Encoding: Chunked\r\n\r\n"), HTTP_OK,
			HTTP_BODY_CHUNKED, 1, 0 },
		{ "GET", TEXT(R("200 ") "\r\n"), HTTP_OK, HTTP_BODY_CLOSE, 0, 0 },
		{ NULL, TEXT("HTTP/1.0 404 N\xf6t\r\nContent-Length: 1\r\n\r\n"), HTTP_OK,
			HTTP_BODY_LENGTH, 0, 0 },
		{ "HEAD", TEXT(R("200 OK") "Content-Length: 5\r\n\r\n"), HTTP_OK, HTTP_BODY_NONE, 1,
			0 },
		{ "HEAD", TEXT(R("200 OK") "Transfer-Encoding: chunked\r\n\r\n"), HTTP_OK,
			HTTP_BODY_NONE, 1, 0 },
		{ "head", TEXT(R("200 OK") "Content-Length: 5\r\n\r\n"), HTTP_OK, HTTP_BODY_LENGTH,
			1, 0 },
		{ "POST", TEXT(R("100 Continue") "\r\n"), HTTP_OK, HTTP_BODY_NONE, 1, 0 },
		{ "GET", TEXT(R("103 Early Hints") "Link: x\r\n\r\n"), HTTP_OK, HTTP_BODY_NONE, 1,
			0 },
		{ "GET", TEXT(R("101 S") "Connection: upgrade\r\nUpgrade: x\r\n\r\n"), HTTP_OK,
			HTTP_BODY_NONE, 1, 1 },
		{ "GET", TEXT(R("204 No") "Content-Length: 0\r\n\r\n"), HTTP_OK, HTTP_BODY_NONE, 1,
			0 },
		{ "GET", TEXT(R("304 Not") "Content-Length: 500\r\n\r\n"), HTTP_OK, HTTP_BODY_NONE,
			1, 0 },
		{ "CONNECT", TEXT(R("200 OK") "Content-Length: 5\r\n\r\n"), HTTP_OK, HTTP_BODY_NONE,
			1, 1 },
		{ "CONNECT", TEXT(R("403 No") "Content-Length: 5\r\n\r\n"), HTTP_OK,
			HTTP_BODY_LENGTH, 1, 0 },
		{ "GET", TEXT(R("999 Odd") "Connection: close\r\nContent-Length: 5\r\n\r\n"),
			HTTP_OK, HTTP_BODY_LENGTH, 0, 0 },
		{ "GET", TEXT(R("204 No") "Content-Length: 5\r\n\r\n"), HTTP_BAD, 0, 0, 0 },
		{ "GET", TEXT(R("100 C") "Transfer-Encoding: chunked\r\n\r\n"), HTTP_BAD, 0, 0, 0 },
		{ "GET",
			TEXT(R("200 OK") "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n"),
			HTTP_BAD, 0, 0, 0 },
		{ "GET", TEXT(R("200 OK") "Content-Length: 5\r\nContent-Length: 5\r\n\r\n"),
			HTTP_BAD, 0, 0, 0 },
		{ "GET", TEXT(R("200 OK") "Transfer-Encoding: gzip\r\n\r\n"), HTTP_BAD, 0, 0, 0 },
		{ "GET", TEXT("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"), HTTP_BAD, 0,
			0, 0 },
		{ "GET", TEXT("HTTP/1.1 200 OK\nX: y\n\n"), HTTP_BAD, 0, 0, 0 },
		{ "GET", TEXT("HTTP/2 200\r\n\r\n"), HTTP_BAD, 0, 0, 0 },
		{ "GET", TEXT("HTTP/1.1 20\r\n\r\n"), HTTP_BAD, 0, 0, 0 },
		{ "GET", TEXT("HTTP/1.1 2000\r\n\r\n"), HTTP_BAD, 0, 0, 0 },
		{ "GET", TEXT("HTTP/1.1 099 x\r\n\r\n"), HTTP_BAD, 0, 0, 0 },
		{ "GET", TEXT("HTTP/1.1  200 x\r\n\r\n"), HTTP_BAD, 0, 0, 0 },
		{ "GET", TEXT("HTTP/1.1 200 \x01\r\n\r\n"), HTTP_BAD, 0, 0, 0 },
		{ "GET", TEXT("<html>"), HTTP_BAD, 0, 0, 0 },
		{ "GET", TEXT("HTT"), HTTP_MORE, 0, 0, 0 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct http_head h;
		const char *why;

		CHECK(http_response_parse(cases[i].t.p, cases[i].t.n, cases[i].method, &h, &why) ==
			cases[i].want);
		if (cases[i].want != HTTP_OK)
			continue;
		CHECK(!h.request && h.head_len == cases[i].t.n);
		CHECK(h.body == cases[i].body && h.keep_alive == cases[i].keep);
		CHECK(h.upgrade == cases[i].upgrade);
		CHECK(h.body != HTTP_BODY_LENGTH || h.length == 5 || h.length == 1);
		http_head_free(&h);
	}
}

TEST(http_is_told_from_other_protocols)
{
	static const struct {
		struct text t;
		int want; /* 1 HTTP, 0 not, -1 more */
	} cases[] = {
		{ TEXT("GET / HTTP/1.1\r\n"), 1 },
		{ TEXT("GET /"), 1 },
		{ TEXT("get /\n"), 1 },
		{ TEXT("\r\n\r\n  GET /"), 1 },
		{ TEXT("G3T x HTTP/1.1\r\n"), 1 },
		{ TEXT("G\tx\x01\thttp/1.0\n"), 1 },
		{ TEXT("PRI * HTTP/2.0\r\n\r\nSM"), 1 },
		{ TEXT("CONNECT a.com:443 HTTP/1.1\r\n"), 1 },
		{ TEXT("GET http://a.com HTTP/1.1\n"), 1 },
		{ TEXT(""), -1 },
		{ TEXT("G"), -1 },
		{ TEXT("GET "), -1 },
		{ TEXT("\r\n"), -1 },
		{ TEXT("FOO bar HTTP"), -1 },
		{ TEXT("SSH-2.0-OpenSSH_9.2p1"), -1 },
		{ TEXT("SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n"), 0 },
		{ TEXT("EHLO a.com\r\n"), 0 },
		{ TEXT("SSH-2.0-x\r\n"), 0 },
		{ TEXT("*1\r\n$4\r\nPING\r\n"), 0 },
		{ TEXT("GET key\r\n"), 0 },
		{ TEXT("003agit-upload-pack /x\0host=a"), 0 },
		{ TEXT("\0\0\0\x08\x04\xd2\x16\x2f"), 0 },
		{ TEXT("\x16\3\1"), 0 },
		{ TEXT("0\x0c\2\1"), 0 },
		{ TEXT("OPTIONS rtsp://x RTSP/1.0\r\n"), 0 },
	};
	auto_buf big = { 0 };
	bool more;

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		bool is = http_looks_like_request(cases[i].t.p, cases[i].t.n, &more);

		CHECK(is == (cases[i].want == 1) && more == (cases[i].want < 0));
		for (size_t n = 0; n < cases[i].t.n; n++) {
			is = http_looks_like_request(cases[i].t.p, n, &more);
			CHECK(more ? !is : is == (cases[i].want == 1));
		}
	}
	/* padded, so that the end is never seen: HTTP */
	buf_addstr(&big, "FOO /");
	while (big.len < 20000)
		buf_add(&big, "x", 1);
	CHECK(http_looks_like_request(big.p, big.len, &more) && !more);
	memset(big.p, ' ', big.len);
	CHECK(http_looks_like_request(big.p, big.len, &more) && !more);
}
