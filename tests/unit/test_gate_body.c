#include "test.h"

#include "buf.h"
#include "http_body.h"
#include "mem.h"

#define TEXT(s)                                                                                    \
	{                                                                                          \
		s, sizeof(s) - 1                                                                   \
	}
struct text {
	const char *p;
	size_t n;
};

/* Feeds all in pieces of so many bytes; the result, what was used, and the payload. */
static int body_run(
	const struct http_head *h, struct text t, size_t step, size_t *used, struct buf *out)
{
	struct http_body b;
	int r = 0;

	http_body_init(&b, h);
	*used = 0;
	while (r == 0 && *used < t.n) {
		size_t n = MIN(step, t.n - *used), took = 12345, len;
		auto_free char *copy = mem_alloc(n);
		const char *data, *why = NULL;

		memcpy(copy, t.p + *used, n);
		r = http_body_feed(&b, copy, n, &took, &data, &len, &why);
		if (r < 0) {
			CHECK(why && took == 12345 && !http_body_done(&b));
			CHECK(http_body_feed(&b, "0", 1, &took, &data, &len, &why) < 0);
			return r;
		}
		CHECK(took <= n && (took || r) && data >= copy && data + len <= copy + n);
		CHECK(http_body_done(&b) == r);
		buf_add(out, data, len);
		*used += took;
	}
	return r;
}

TEST(http_body_is_the_same_however_it_comes)
{
	static const struct {
		struct text t;
		bool response;
		int want;
		const char *payload, *rest;
	} cases[] = {
		{ TEXT("5\r\nhello\r\n0\r\n\r\nGET"), 0, 1, "hello", "GET" },
		{ TEXT("5\r\nhello\r\n006\r\n world\r\n0000\r\n\r\n\r\n"), 0, 1, "hello world",
			"\r\n" },
		{ TEXT("A\r\n0123456789\r\na\r\n0123456789\r\n0\r\n\r\n"), 0, 1,
			"01234567890123456789", "" },
		{ TEXT("2\r\n\r\n\r\n0\r\n\r\n"), 0, 1, "\r\n", "" },
		{ TEXT("0\r\nX-Sum: 1\r\nY:\r\n\r\nHTTP"), 0, 1, "", "HTTP" },
		{ TEXT("5;a=b\r\nhello\r\n0;x\r\n\r\n"), 1, 1, "hello", "" },
		{ TEXT("5  \r\nhello\r\n0 ;q=\"\xe9\" \r\n\r\n"), 1, 1, "hello", "" },
		{ TEXT("5\r\nhel"), 0, 0, "hel", "" },
		{ TEXT("5\r\nhello\r\n0\r\n"), 0, 0, "hello", "" },
		{ TEXT("7fffffffffffffff\r\nx"), 0, 0, "x", "" },
		/* bad ones */
		{ TEXT("5;a=b\r\nhello\r\n0\r\n\r\n"), 0, -1, NULL, NULL },
		{ TEXT("5 \r\nhello\r\n0\r\n\r\n"), 0, -1, NULL, NULL },
		{ TEXT(" 5\r\nhello\r\n0\r\n\r\n"), 0, -1, NULL, NULL },
		{ TEXT("5\nhello\n0\n\n"), 0, -1, NULL, NULL },
		{ TEXT("5\nhello\n0\n\n"), 1, -1, NULL, NULL },
		{ TEXT("5;\n\r\nhello"), 1, -1, NULL, NULL },
		{ TEXT("5 5\r\nhello"), 1, -1, NULL, NULL },
		{ TEXT("5\r\nhelloX\r\n"), 0, -1, NULL, NULL },
		{ TEXT("5\r\nhello\r"), 0, 0, "hello", "" },
		{ TEXT("5\r\nhello\rX"), 0, -1, NULL, NULL },
		{ TEXT("5\r\nhelloX\n0\r\n\r\n"), 0, -1, NULL, NULL },
		{ TEXT("5\r\nhello0\r\n\r\n"), 0, -1, NULL, NULL },
		{ TEXT("5\r\nhello\n0\r\n\r\n"), 0, -1, NULL, NULL },
		{ TEXT("5\rhello"), 0, -1, NULL, NULL },
		{ TEXT("\r\n"), 0, -1, NULL, NULL },
		{ TEXT("0x5\r\nhello"), 0, -1, NULL, NULL },
		{ TEXT("-5\r\nhello"), 0, -1, NULL, NULL },
		{ TEXT("+5\r\nhello"), 0, -1, NULL, NULL },
		{ TEXT("5,5\r\nhello"), 0, -1, NULL, NULL },
		{ TEXT("g\r\n"), 0, -1, NULL, NULL },
		{ TEXT("5\0\r\nhello"), 0, -1, NULL, NULL },
		{ TEXT("ffffffffffffffff1\r\n"), 0, -1, NULL, NULL },
		{ TEXT("ffffffffffffffff1\r\n"), 1, -1, NULL, NULL },
		{ TEXT("10000000000000005\r\nhello"), 0, -1, NULL, NULL },
		{ TEXT("8000000000000000\r\n"), 0, -1, NULL, NULL },
		{ TEXT("00000000000000005\r\nhello"), 0, -1, NULL, NULL },
		{ TEXT("0\r\n folded\r\n\r\n"), 0, -1, NULL, NULL },
		{ TEXT("0\r\nX: a\r\n b\r\n\r\n"), 0, -1, NULL, NULL },
		{ TEXT("0\r\nX : a\r\n\r\n"), 0, -1, NULL, NULL },
		{ TEXT("0\r\nX\r\n\r\n"), 0, -1, NULL, NULL },
		{ TEXT("0\r\n: a\r\n\r\n"), 0, -1, NULL, NULL },
		{ TEXT("0\r\nX: a\nY: b\r\n\r\n"), 0, -1, NULL, NULL },
		{ TEXT("0\r\nX: a\0\r\n\r\n"), 0, -1, NULL, NULL },
		{ TEXT("0\r\n\rX"), 0, -1, NULL, NULL },
		{ TEXT("0\r\nGET / HTTP/1.1\r\nHost: b.com\r\n\r\n"), 0, -1, NULL, NULL },
		{ TEXT("0\r\nhOst: b.com\r\n\r\n"), 0, -1, NULL, NULL },
		{ TEXT("0\r\nContent-Length: 5\r\n\r\n"), 0, -1, NULL, NULL },
		{ TEXT("0\r\ntransfer_encoding: chunked\r\n\r\n"), 1, -1, NULL, NULL },
	};
	static const size_t steps[] = { 1, 2, 3, 5, 7, 1000 };

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct http_head h = { .request = !cases[i].response, .body = HTTP_BODY_CHUNKED };

		for (size_t s = 0; s < ARRAY_SIZE(steps); s++) {
			auto_buf out = { 0 };
			size_t used;
			int r = body_run(&h, cases[i].t, steps[s], &used, &out);

			if (r != cases[i].want)
				fprintf(stderr, "%d: %s\n", r, cases[i].t.p);
			CHECK(r == cases[i].want);
			CHECK(r < 0 || !strcmp(buf_str(&out), cases[i].payload));
			CHECK(r < 0 || cases[i].t.n - used == strlen(cases[i].rest));
		}
	}
}

TEST(http_body_by_length_ends_where_it_says)
{
	static const struct text t = TEXT("helloGET / HTTP/1.1\r\n");
	static const size_t steps[] = { 1, 2, 5, 6, 1000 };

	for (size_t s = 0; s < ARRAY_SIZE(steps); s++) {
		struct http_head h = { .request = true, .body = HTTP_BODY_LENGTH, .length = 5 };
		auto_buf out = { 0 }, all = { 0 };
		size_t used;

		CHECK(body_run(&h, t, steps[s], &used, &out) == 1 && used == 5 && out.len == 5);
		h.length = 0;
		CHECK(body_run(&h, t, steps[s], &used, &all) == 1 && used == 0);
		h.body = HTTP_BODY_NONE;
		CHECK(body_run(&h, t, steps[s], &used, &all) == 1 && used == 0 && all.len == 0);
		h = (struct http_head){ .body = HTTP_BODY_CLOSE };
		CHECK(body_run(&h, t, steps[s], &used, &all) == 0 && used == t.n && all.len == t.n);
		h = (struct http_head){ .body = HTTP_BODY_LENGTH, .length = UINT64_MAX };
		CHECK(body_run(&h, t, steps[s], &used, &all) == 0 && used == t.n);
	}
}

TEST(http_body_extensions_and_trailers_have_limits)
{
	struct http_head h = { .body = HTTP_BODY_CHUNKED };

	for (unsigned trailers = 0; trailers < 2; trailers++) {
		auto_buf b = { 0 }, out = { 0 };
		size_t used;

		buf_addstr(&b, trailers ? "0\r\nX: " : "5;");
		for (unsigned i = 0; i < HTTP_TRAILERS_MAX + 1; i++)
			buf_add(&b, "y", 1);
		CHECK(body_run(&h, (struct text){ b.p, 900 }, 64, &used, &out) == 0);
		CHECK(body_run(&h, (struct text){ b.p, b.len }, 64, &used, &out) < 0);
	}
}
