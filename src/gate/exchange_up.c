/* Answers: from upstream to the box, with placeholders where values were. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "exchange_parts.h"
#include "mem.h"

/* One whole text. */
static void swap_text(struct exchange *x, const char *p, size_t n, struct buf *out)
{
	if (!x->to_placeholder) {
		buf_add(out, p, n);
		return;
	}
	swap_reset(x->to_placeholder);
	swap_feed(x->to_placeholder, p, n, out);
	swap_end(x->to_placeholder, out);
}

static bool compressed(const struct http_head *h)
{
	for (unsigned i = 0; i < h->n; i++)
		if (http_field_is(&h->f[i], "content-encoding") && h->f[i].value_len &&
			!(h->f[i].value_len == 8 && strncasecmp(h->f[i].value, "identity", 8) == 0))
			return true;
	return false;
}

static enum body_mode answer_mode(
	const struct exchange *x, const struct http_head *h, const struct asked *a)
{
	/* the next token may have another length */
	bool same = !h->length || (!x->token_audience &&
		(!x->to_placeholder || swap_keeps_length(x->to_placeholder)));

	if (h->body == HTTP_BODY_CLOSE)
		return BODY_CLOSE;
	if (h->body == HTTP_BODY_LENGTH && same)
		return BODY_LENGTH;
	return a->http11 ? BODY_CHUNKS : BODY_CLOSE;
}

/* Framing is written here, except that of an answer without a body: what it says is of another one. */
static bool answer_drops(const struct http_head *h, const struct http_field *f, bool end)
{
	if (end && (http_field_is(f, "connection") || http_field_is(f, "keep-alive")))
		return true;
	return h->body != HTTP_BODY_NONE &&
	       (http_field_is(f, "content-length") || http_field_is(f, "transfer-encoding"));
}

static void answer_head(struct exchange *x, const char *p, const struct http_head *h,
	enum body_mode mode, bool last, struct buf *out)
{
	const char *reason = p + strlen("HTTP/1.1 200"), *eol = memchr(reason, '\r', h->head_len);
	/* Ended by us and not by upstream, or said in another version's way: the box must be told. */
	bool end = last || (h->body != HTTP_BODY_NONE &&
		   ((mode == BODY_CLOSE && h->body != HTTP_BODY_CLOSE) ||
			   (mode == BODY_CHUNKS && !h->minor && !h->keep_alive)));

	buf_addf(out, "HTTP/1.%d %03d", mode == BODY_CHUNKS ? 1 : h->minor, h->status);
	swap_text(x, reason, (size_t)(eol - reason), out);
	buf_addstr(out, "\r\n");
	for (unsigned i = 0; i < h->n; i++) {
		if (answer_drops(h, &h->f[i], end))
			continue;
		swap_text(x, h->f[i].name, h->f[i].name_len, out);
		buf_addstr(out, ": ");
		swap_text(x, h->f[i].value, h->f[i].value_len, out);
		buf_addstr(out, "\r\n");
	}
	if (h->body != HTTP_BODY_NONE && mode == BODY_CHUNKS)
		buf_addstr(out, "Transfer-Encoding: chunked\r\n");
	if (h->body != HTTP_BODY_NONE && mode == BODY_LENGTH)
		buf_addf(out, "Content-Length: %llu\r\n", (unsigned long long)h->length);
	if (end)
		buf_addstr(out, "Connection: close\r\n");
	buf_addstr(out, "\r\n");
}

static int answer_end(struct exchange *x)
{
	x->asked_at = (x->asked_at + 1) % EXCHANGE_PIPELINE;
	x->asked_n--;
	x->up = UP_HEAD;
	x->answering = false;
	if (x->answer_ends)
		x->close = true;
	return 0;
}

/* No request will follow, and none waits for its body or for its refusal. */
static bool answer_last(const struct exchange *x)
{
	return x->draining && x->asked_n == 1 && x->box != BOX_REFUSED &&
	       !(x->box == BOX_BODY && x->mode == BODY_HOLD);
}

static int answer_begin(
	struct exchange *x, const char *p, const struct http_head *h, struct buf *to_box)
{
	const struct asked *a = &x->asked[x->asked_at];
	bool last;

	if (h->status == 101) {
		if (!a->upgrade || !h->upgrade || x->box != BOX_UPGRADE || x->asked_n != 1)
			return exchange_bad_answer(
				x, "upstream changed the protocol unasked", NULL, to_box);
		answer_head(x, p, h, BODY_CLOSE, false, to_box);
		if (x->to_placeholder)
			swap_reset(x->to_placeholder);
		x->scan = (struct canary_scan){ 0 };
		x->last_status = 101;
		x->up = UP_RAW;
		x->box = BOX_RAW;
		x->upgrade_asked = false;
		return 0;
	}
	if (h->status < 200) { /* the answer proper comes later */
		answer_head(x, p, h, BODY_LENGTH, false, to_box);
		return 0;
	}
	if (x->to_placeholder && h->body != HTTP_BODY_NONE && compressed(h))
		return exchange_bad_answer(x,
			"upstream compressed an answer though it was asked not to",
			"a secret or a token is granted for this host, and what comes back must be readable",
			to_box);
	x->last_status = h->status;
	if (a->upgrade && x->upgrade_asked && x->asked_n == 1) {
		x->upgrade_asked = false;
		if (x->box == BOX_UPGRADE)
			x->box = BOX_HEAD;
	}
	x->up_mode = answer_mode(x, h, a);
	last = answer_last(x);
	x->answer_ends = !h->keep_alive || a->close || last ||
			 (h->body != HTTP_BODY_NONE && x->up_mode == BODY_CLOSE);
	answer_head(x, p, h, x->up_mode, last, to_box);
	x->answering = true;
	x->up_meta.len = 0;
	if (x->to_placeholder)
		swap_reset(x->to_placeholder);
	http_body_init(&x->up_body, h);
	x->up_until_eof = h->body == HTTP_BODY_CLOSE;
	x->up = UP_BODY;
	return http_body_done(&x->up_body) ? answer_end(x) : 0;
}

/* A head is looked at when a line has ended, not for each byte: that would be quadratic. */
static int answer_first(
	struct exchange *x, const char *p, size_t n, size_t *used, struct buf *to_box)
{
	struct http_head h;
	const char *bad;
	bool fresh;
	int r;

	*used = 0;
	if (!x->asked_n)
		return exchange_over(x, "upstream spoke unasked");
	fresh = memchr(p + x->up_seen, '\n', n - x->up_seen) != NULL;
	x->up_seen = n;
	if (!fresh && n <= HTTP_HEAD_MAX)
		return 0;
	switch (http_response_parse(p, n, x->asked[x->asked_at].method, &h, &bad)) {
	case HTTP_MORE:
		return 0;
	case HTTP_BAD:
		return exchange_bad_answer(
			x, "upstream's answer is not clean HTTP/1.1", bad, to_box);
	default:
		break;
	}
	r = answer_begin(x, p, &h, to_box);
	*used = h.head_len;
	x->up_seen = 0;
	http_head_free(&h);
	return r;
}

static void answer_flush(struct exchange *x, bool end, struct buf *to_box)
{
	const char *trailers;
	size_t n;

	if (x->up_mode != BODY_CHUNKS) {
		buf_add(to_box, x->piece.p, x->piece.len);
		return;
	}
	chunk_put(to_box, x->piece.p, x->piece.len);
	if (!end)
		return;
	meta_trailers(&x->up_meta, &trailers, &n);
	buf_addstr(to_box, "0\r\n");
	swap_text(x, trailers, n, to_box);
	buf_addstr(to_box, "\r\n");
}

static int answer_body(
	struct exchange *x, const char *p, size_t n, size_t *used, struct buf *to_box)
{
	struct buf *out = x->up_mode == BODY_CHUNKS ? &x->piece : to_box;
	int r = 0;

	*used = 0;
	x->piece.len = 0;
	while (r == 0 && *used < n) {
		const char *data = NULL, *bad;
		size_t took = 0, len = 0;

		r = http_body_feed(&x->up_body, p + *used, n - *used, &took, &data, &len, &bad);
		if (r < 0)
			return exchange_over(x, "upstream's answer is badly framed");
		meta_add(&x->up_meta, p + *used, took, data, len);
		*used += took;
		if (x->to_placeholder)
			swap_feed(x->to_placeholder, data, len, out);
		else
			buf_add(out, data, len);
	}
	if (r == 1 && x->to_placeholder)
		swap_end(x->to_placeholder, out);
	answer_flush(x, r == 1, to_box);
	x->piece.len = 0;
	return r == 1 ? answer_end(x) : 0;
}

/* A message of another protocol may end in the first letters of a value, and both sides wait then: these
 * few go at once. A value that is cut in just that place shows them, and no more. */
#define RAW_RELEASE 3

static int answer_raw(struct exchange *x, const char *p, size_t n, size_t *used, struct buf *to_box)
{
	if (x->to_placeholder) {
		swap_feed(x->to_placeholder, p, n, to_box);
		swap_release(x->to_placeholder, RAW_RELEASE, to_box);
	} else {
		buf_add(to_box, p, n);
	}
	*used = n;
	return 0;
}

int answer_run(struct exchange *x, const char *p, size_t n, size_t *used, struct buf *to_box)
{
	*used = 0;
	while (*used < n && !(x->close && x->up == UP_HEAD)) {
		size_t took = 0;
		int r;

		if (x->up == UP_RAW)
			r = answer_raw(x, p + *used, n - *used, &took, to_box);
		else if (x->up == UP_BODY)
			r = answer_body(x, p + *used, n - *used, &took, to_box);
		else
			r = answer_first(x, p + *used, n - *used, &took, to_box);
		*used += took;
		if (r < 0)
			return -1;
		if (!took)
			break;
	}
	return 0;
}

int answer_eof(struct exchange *x, struct buf *to_box)
{
	x->close = true;
	if (x->up == UP_RAW) {
		if (x->to_placeholder)
			swap_end(x->to_placeholder, to_box);
		return 0;
	}
	if (x->up == UP_BODY && x->up_until_eof) {
		x->piece.len = 0;
		if (x->to_placeholder)
			swap_end(x->to_placeholder, to_box);
		answer_end(x);
		return 0;
	}
	if (x->up == UP_BODY)
		return exchange_over(x, "upstream ended in the middle of an answer");
	return x->asked_n ? exchange_over(x, "upstream ended without an answer") : 0;
}
