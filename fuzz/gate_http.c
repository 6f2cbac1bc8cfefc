/*
 * HTTP messages from a box and from servers. What is read must not depend on how the bytes come, and a
 * head that is taken must hold nothing that another program could read as something else. The first
 * byte chooses request or response and its method, the second how to cut; the rest is given as it is,
 * and with words for some bytes.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "buf.h"
#include "http.h"
#include "http_body.h"
#include "mem.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok)
{
	if (!ok)
		abort();
}

struct how {
	bool request;
	const char *method;
	size_t step;
};

static enum http_result parse(const struct how *how, const char *p, size_t n, struct http_head *h)
{
	const char *why = NULL;
	enum http_result r = how->request ? http_request_parse(p, n, h, &why)
					  : http_response_parse(p, n, how->method, h, &why);

	check((why != NULL) == (r == HTTP_BAD));
	return r;
}

static bool is_inside(const struct http_head *h, const char *p, const char *view, size_t n)
{
	return view >= p && view + n <= p + h->head_len;
}

/* No line ends but CR LF, no control byte: whoever splits this head finds the lines that we found. */
static void bytes_check(const struct http_head *h, const char *p)
{
	unsigned lines = 0;

	for (size_t i = 0; i < h->head_len; i++) {
		unsigned char c = (unsigned char)p[i];

		if (c == '\r')
			check(i + 1 < h->head_len && p[i + 1] == '\n');
		else if (c == '\n')
			check(i && p[i - 1] == '\r');
		else
			check(c == '\t' || (c >= ' ' && c != 0x7f));
		lines += c == '\n';
	}
	check(lines == h->n + 2 && !memcmp(p + h->head_len - 4, "\r\n\r\n", 4));
}

static void fields_check(const struct http_head *h, const char *p)
{
	for (unsigned i = 0; i < h->n; i++) {
		const struct http_field *f = &h->f[i];

		check(f->name_len && is_inside(h, p, f->name, f->name_len));
		check(is_inside(h, p, f->value, f->value_len));
		check(f->name == p || f->name[-1] == '\n');
		check(f->name[f->name_len] == ':' && !memchr(f->name, ' ', f->name_len));
		check(!f->value_len || (f->value[0] != ' ' && f->value[f->value_len - 1] != ' '));
	}
	check(http_count(h, "content-length") + http_count(h, "transfer-encoding") <= 1);
	check(h->body != HTTP_BODY_CHUNKED || http_count(h, "transfer-encoding") == 1);
}

static void request_check(const struct http_head *h, const char *p)
{
	struct net_name again;
	bool more;

	check(h->method[0] && strlen(h->method) < sizeof(h->method) && h->body != HTTP_BODY_CLOSE);
	check(h->target_len && is_inside(h, p, h->target, h->target_len));
	check(!memchr(h->target, ' ', h->target_len) && !memchr(h->target, '#', h->target_len));
	check(http_count(h, "host") <= 1 && (h->has_host || !h->minor));
	check(h->path_len && (h->path[0] == '/' || h->form > HTTP_FORM_ABSOLUTE));
	check(!h->upgrade || !h->h2c);
	if (h->has_host && !h->host_is_addr)
		check(net_name_parse(h->host.s, strlen(h->host.s), &again, NULL) == 0 &&
			!strcmp(again.s, h->host.s));
	/* whatever is taken as a request was seen to be one */
	check(http_looks_like_request(p, h->head_len, &more) && !more);
}

static void prefixes_check(const struct how *how, const char *p, size_t n, enum http_result whole,
	const struct http_head *h)
{
	size_t step = MAX(how->step, n / 24);
	bool decided = false;

	for (size_t at = 0; at < n; at += step) {
		auto_free char *copy = mem_alloc(at ? at : 1);
		struct http_head part;
		enum http_result r;

		memcpy(copy, p, at);
		r = parse(how, copy, at, &part);
		check(r == whole || (r == HTTP_MORE && !decided));
		if (r == HTTP_OK) {
			check(part.n == h->n && part.head_len == h->head_len &&
				part.body == h->body);
			check(part.length == h->length && part.has_host == h->has_host);
			check(!strcmp(part.host.s, h->host.s) && at >= h->head_len);
			http_head_free(&part);
		}
		decided = decided || r != HTTP_MORE;
	}
}

/* Feeds p in pieces of step bytes. */
static int body_run(const struct http_head *h, const char *p, size_t n, size_t step, size_t *used,
	struct buf *out)
{
	struct http_body b;
	int r;

	http_body_init(&b, h);
	r = http_body_done(&b);
	*used = 0;
	while (r == 0 && *used < n) {
		size_t part = MIN(step, n - *used), took, len;
		const char *data, *why = NULL;

		r = http_body_feed(&b, p + *used, part, &took, &data, &len, &why);
		check((r < 0) == (why != NULL));
		if (r < 0)
			break;
		check(took <= part && (took || r) && data >= p + *used &&
			data + len <= p + *used + took);
		check(http_body_done(&b) == r);
		buf_add(out, data, len);
		*used += took;
	}
	return r;
}

static void body_check(const struct http_head *h, const char *p, size_t n, size_t step)
{
	auto_buf once = { 0 }, pieces = { 0 };
	size_t used, used_pieces;
	int r = body_run(h, p, n, n ? n : 1, &used, &once);

	check(body_run(h, p, n, step, &used_pieces, &pieces) == r);
	if (r < 0)
		return;
	check(used == used_pieces && once.len == pieces.len && once.len <= used);
	check(!once.len || !memcmp(once.p, pieces.p, once.len));
	check(h->body != HTTP_BODY_LENGTH || once.len == MIN(n, h->length));
	check(h->body != HTTP_BODY_CHUNKED || r != 1 || !memcmp(p + used - 4, "\r\n\r\n", 4));
}

/* Bytes above 0x9f stand for what a fuzzer would be long in guessing. */
static void mend(struct buf *out, const char *p, size_t n)
{
	static const char *const words[] = { "\r\n", "\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a.com\r\n", "POST / HTTP/1.1\r\nHost: a.com\r\n",
		" HTTP/1.1\r\n", " HTTP/1.0\r\n", "HTTP/1.1 200 OK\r\n",
		"\r\nHost: ", "\r\nContent-Length: ", "\r\nTransfer-Encoding: ", "chunked",
		"\r\nConnection: ", "\r\nUpgrade: ", "\r\nExpect: 100-continue", "http://",
		"CONNECT a.com:443 HTTP/1.1\r\n", "5\r\nhello\r\n", "0\r\n\r\n", "a.com",
		"a.com:80", "[::1]" };

	for (size_t i = 0; i < n; i++) {
		size_t word = (unsigned char)p[i] - 0xa0U;

		if (word < ARRAY_SIZE(words))
			buf_addstr(out, words[word]);
		else
			buf_add(out, p + i, 1);
	}
}

static void message_check(const struct how *how, const char *p, size_t n)
{
	struct http_head chunked = { .request = how->request, .body = HTTP_BODY_CHUNKED },
			 h = { 0 };
	enum http_result r;
	bool more;

	if (http_looks_like_request(p, n, &more))
		check(!more);
	/* the body's state machine alone: no need to guess a head for it */
	body_check(&chunked, p, n, how->step);
	r = parse(how, p, n, &h);
	prefixes_check(how, p, n, r, &h);
	if (r != HTTP_OK)
		return;
	check(h.head_len <= n && h.head_len <= HTTP_HEAD_MAX && h.n <= HTTP_FIELDS_MAX);
	bytes_check(&h, p);
	fields_check(&h, p);
	if (how->request)
		request_check(&h, p);
	else
		check(h.status >= 100 && h.status <= 999 && !h.has_host);
	body_check(&h, p + h.head_len, n - h.head_len, how->step);
	http_head_free(&h);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const methods[] = { "GET", "HEAD", "CONNECT", NULL };
	auto_buf mended = { 0 };
	struct how how;

	if (size < 2)
		return 0;
	how = (struct how){ data[0] & 1, methods[data[0] >> 1 & 3], 1 + data[1] };
	message_check(&how, (const char *)data + 2, size - 2);
	mend(&mended, (const char *)data + 2, size - 2);
	message_check(&how, buf_str(&mended), mended.len);
	return 0;
}
