/* The formats of E2B's agent: envelopes, multipart bodies, signatures. */
#include <stdbool.h>

#include "buf.h"
#include "connect.h"
#include "mem.h"
#include "multipart.h"
#include "signed.h"
#include "test.h"

/* ---- Connect ---- */

TEST(connect_takes_one_whole_message_and_nothing_else)
{
	static const struct {
		const char *bytes;
		size_t n;
		enum den_code code;
	} bad[] = {
		{ "", 0, DEN_INVALID },
		{ "\0\0\0\0", 4, DEN_INVALID },
		{ "\0\0\0\0\2{", 6, DEN_INVALID },
		{ "\0\0\0\0\2{}x", 8, DEN_INVALID },
		{ "\1\0\0\0\2{}", 7, DEN_UNSUPPORTED },
		{ "\2\0\0\0\2{}", 7, DEN_INVALID },
		{ "\0\xff\xff\xff\xff{}", 7, DEN_LIMIT },
		{ "\0\0\0\0\2{}\0\0\0\0\2{}", 14, DEN_INVALID },
	};
	const char *p = "untouched";
	struct den_err err;
	size_t n = 77;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		CHECK(connect_open(bad[i].bytes, bad[i].n, &p, &n, &err) < 0 && err.code == bad[i].code);
		CHECK(!strcmp(p, "untouched") && n == 77);
	}
	CHECK(connect_open("\0\0\0\0\2{}", 7, &p, &n, &err) == 0 && n == 2 && !memcmp(p, "{}", 2));
	CHECK(connect_open("\0\0\0\0\0", 5, &p, &n, &err) == 0 && n == 0);
}

TEST(connect_ends_a_stream_with_one_frame)
{
	struct buf b = { 0 };

	connect_finish(&b, CONNECT_UNKNOWN, NULL);
	CHECK(b.len == 7 && !memcmp(b.p, "\2\0\0\0\2{}", 7));
	b.len = 0;
	connect_finish(&b, CONNECT_NOT_FOUND, "no \"x\"\n\xff");
	CHECK(b.p[0] == 2 && (size_t)(uint8_t)b.p[4] == b.len - 5);
	CHECK(!strcmp(buf_str(&b) + 5, "{\"error\":{\"code\":\"not_found\",\"message\":\"no \\\"x\\\"\\n\\ufffd\"}}"));
	buf_free(&b);
}

TEST(connect_has_the_status_that_clients_expect_of_a_code)
{
	static const struct {
		enum den_code code;
		int sys, status;
		const char *name;
	} want[] = {
		{ DEN_INVALID, 0, 400, "invalid_argument" },
		{ DEN_NOT_FOUND, 0, 404, "not_found" },
		{ DEN_CONFLICT, 17 /* EEXIST */, 409, "already_exists" },
		{ DEN_CONFLICT, 0, 400, "failed_precondition" },
		{ DEN_DENIED, 0, 403, "permission_denied" },
		{ DEN_LIMIT, 0, 429, "resource_exhausted" },
		{ DEN_TIMEOUT, 0, 504, "deadline_exceeded" },
		{ DEN_UNSUPPORTED, 0, 501, "unimplemented" },
		{ DEN_INTERNAL, 0, 500, "internal" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(want); i++) {
		struct den_err err = { .code = want[i].code, .sys = want[i].sys };

		CHECK(connect_status(connect_code_of(&err)) == want[i].status);
		CHECK(!strcmp(connect_code_str(connect_code_of(&err)), want[i].name));
	}
}

TEST(connect_timeout_is_ten_digits_at_most)
{
	static const char *const bad[] = { "", "-1", "1.5", "12345678901", " 1", "1s" };
	struct den_err err;
	uint64_t ms = 7;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		CHECK(connect_timeout(bad[i], &ms, &err) < 0 && err.code == DEN_INVALID && ms == 7);
	CHECK(connect_timeout(NULL, &ms, &err) == 0 && ms == 0);
	CHECK(connect_timeout("0", &ms, &err) == 0 && ms == 1);
	CHECK(connect_timeout("9999999999", &ms, &err) == 0 && ms == 9999999999);
}

TEST(connect_reads_bytes_in_every_spelling_of_base64)
{
	static const char *const same[] = { "/+8=", "/+8", "_-8=", "_-8" };
	struct buf b = { 0 };
	struct den_err err;

	for (size_t i = 0; i < ARRAY_SIZE(same); i++) {
		b.len = 0;
		CHECK(connect_bytes(same[i], strlen(same[i]), &b, &err) == 0);
		CHECK(b.len == 2 && !memcmp(b.p, "\xff\xef", 2));
	}
	CHECK(connect_bytes("a", 1, &b, &err) < 0 && connect_bytes("a b=", 4, &b, &err) < 0);
	b.len = 0;
	CHECK(connect_bytes("", 0, &b, &err) == 0 && b.len == 0);
	buf_free(&b);
}

/* ---- multipart ---- */

/* Events as text: "[name|filename]data." for a part, "!" at the end, "error" */
static void parts(const char *type, const char *body, size_t n, size_t step, struct buf *out)
{
	auto_multipart m = { 0 };
	struct den_err err;
	int ev = multipart_init(&m, type, &err);

	for (size_t at = 0; ev >= 0 && at < n; at += step) {
		const char *p = body + at;
		size_t left = MIN(step, n - at);

		while ((ev = multipart_next(&m, &p, &left, &err)) != MULTIPART_MORE) {
			if (ev == MULTIPART_PART)
				buf_addf(out, "[%s|%s]", m.name, m.filename ? m.filename : "-");
			else if (ev == MULTIPART_DATA)
				buf_add(out, m.data, m.len);
			else if (ev == MULTIPART_PART_END)
				buf_addstr(out, ".");
			else
				break;
		}
	}
	buf_addstr(out, ev < 0 ? "error" : ev == MULTIPART_END ? "!" : "");
}

static void parts_are(const char *body, const char *want)
{
	for (size_t step = 1; step < 40; step += 3) { /* whatever the pieces are in which it comes */
		struct buf b = { 0 };

		parts("multipart/form-data; boundary=XyZ", body, strlen(body), step, &b);
		if (strcmp(buf_str(&b), want))
			printf("step %zu: %s\n", step, b.p);
		CHECK(!strcmp(buf_str(&b), want));
		buf_free(&b);
	}
}

#define HEAD(name) "--XyZ\r\nContent-Disposition: form-data; " name "\r\nContent-Type: x/y\r\n\r\n"

TEST(multipart_gives_each_part_whole)
{
	parts_are(HEAD("name=\"file\"; filename=\"a/b c.txt\"") "one\r\n" HEAD("name=file")
		"\r\ntwo\r\n\r\n--XyZ--\r\n",
		"[file|a/b c.txt]one.[file|-]\r\ntwo\r\n.!");
	parts_are("preamble --XyZ\r\n" HEAD("name=\"f\"") "\r\n--XyZ--epilogue", "[f|-].!");
	parts_are("--XyZ  \t\r\nCONTENT-disposition:form-data;name=f\r\n\r\nx\r\n--XyZ--", "[f|-]x.!");
}

TEST(multipart_does_not_take_data_for_a_delimiter)
{
	parts_are(HEAD("name=f") "\r\n--Xy\r\n--\r\r\n--XyY\r\n-\r\n--XyZ--", "[f|-]\r\n--Xy\r\n--\r\r\n--XyY\r\n-.!");
	parts_are(HEAD("name=f") "\r\r\r\n\n\r\n--XyZ--", "[f|-]\r\r\r\n\n.!");
}

TEST(multipart_decodes_what_cannot_stand_in_a_name)
{
	parts_are(HEAD("name=\"file\"; filename=\"a%22b%0D%0Ac\\d;e%41\"") "\r\n--XyZ--", "[file|a\"b\r\nc\\d;e%41].!");
	parts_are(HEAD("name=\"file\"; filename=\"a\\\"b\"") "\r\n--XyZ--", "[file|a\"b].!");
	parts_are(HEAD("name=\"file\"; filename=\"\xc3\xa4/\xe6\x97\xa5.txt\"") "\r\n--XyZ--",
		"[file|\xc3\xa4/\xe6\x97\xa5.txt].!");
}

TEST(multipart_refuses_what_it_does_not_understand)
{
	parts_are("--XyZx\r\n", "error");
	parts_are("--XyZ-\r\n", "error");
	parts_are("--XyZ\r\nContent-Type: x\r\n\r\ndata\r\n--XyZ--", "error"); /* no name */
	parts_are(HEAD("name=\"f") "data\r\n--XyZ--", "error");
	parts_are(HEAD("name=f") "cut short\r\n--Xy", "[f|-]cut short");
}

TEST(multipart_bounds_headers_and_parts)
{
	struct buf body = { 0 }, out = { 0 };

	buf_addstr(&body, "--b\r\nContent-Disposition: form-data; name=");
	for (int i = 0; i < MULTIPART_HEAD_MAX; i++)
		buf_addstr(&body, "x");
	parts("multipart/form-data; boundary=b", body.p, body.len, 1000, &out);
	CHECK(!strcmp(buf_str(&out), "error"));
	body.len = out.len = 0;
	for (int i = 0; i <= MULTIPART_PARTS_MAX; i++)
		buf_addstr(&body, "--b\r\nContent-Disposition: form-data; name=x\r\n\r\n\r\n");
	parts("multipart/form-data; boundary=b", body.p, body.len, 1000, &out);
	CHECK(out.len > 50000 && !strcmp(buf_str(&out) + out.len - 5, "error"));
	buf_free(&body);
	buf_free(&out);
}

TEST(multipart_needs_a_boundary_that_can_be_one)
{
	static const char *const bad[] = { "multipart/form-data", "multipart/form-data; boundary=",
		"multipart/form-data; boundary=\"a b \"", "multipart/form-data; boundary=\"a\rb\"",
		"multipart/form-data; boundary=01234567890123456789012345678901234567890123456789012345678901234567890",
		"multipart/form-datax; boundary=b", "text/plain; boundary=b", "multipart/form-data; boundary=\"b" };
	struct multipart m;
	struct den_err err;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		CHECK(multipart_init(&m, bad[i], &err) < 0 && err.code == DEN_INVALID);
	CHECK(multipart_init(&m, "Multipart/Form-Data; charset=utf-8; Boundary=\"a b\"", &err) == 0);
	CHECK(!strcmp(m.delim, "\r\n--a b"));
	multipart_free(&m);
}

/* ---- signatures ---- */

TEST(signature_is_the_one_that_clients_make)
{
	/* made with Node's crypto, as the npm package does */
	char s[SIGNED_SIZE];

	signed_make("/home/user/x", "read", "user", "0123456789abcdef", NULL, s);
	CHECK(!strcmp(s, "v1_AVR/vlWt0di7Rc+n2ZnP3T2mjgKKrB5df0FOvuUsaOo"));
	signed_make("a b", "write", "", "0123456789abcdef", "1700000000", s);
	CHECK(!strcmp(s, "v1_83sIO2MVsI2OMHXOdxSSCYjilas77Y9wHuB1O3rdAn8"));
}
