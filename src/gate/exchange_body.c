/* The body of a request: passed on piece by piece, looked at on the way. */
#include <string.h>
#include <strings.h>

#include "exchange_parts.h"
#include "mem.h"

void chunk_put(struct buf *out, const char *p, size_t n)
{
	if (!n)
		return; /* an empty chunk would be the last */
	buf_addf(out, "%zx\r\n", n);
	buf_add(out, p, n);
	buf_addstr(out, "\r\n");
}

void meta_add(struct buf *meta, const char *p, size_t used, const char *data, size_t data_len)
{
	if (data_len) { /* what was before is the framing of this payload */
		meta->len = 0;
		buf_add(meta, data + data_len, (size_t)(p + used - (data + data_len)));
	} else if (meta->len + used <= 2 * HTTP_HEAD_MAX) {
		buf_add(meta, p, used);
	}
}

void meta_trailers(const struct buf *meta, const char **p, size_t *n)
{
	const char *at = meta->p, *end = meta->p + meta->len, *line;

	*p = "";
	*n = 0;
	if (meta->len >= 2 && at[0] == '\r') /* the end of the last payload */
		at += 2;
	line = meta->len ? memmem(at, (size_t)(end - at), "\r\n", 2) : NULL;
	if (!line || end - line < 4)
		return;
	*p = line + 2; /* behind "0" */
	*n = (size_t)(end - *p) - 2;
}

/* How the body travels, and whether it has to be waited for. */
static int mode_choose(struct exchange *x, const struct http_head *h, struct buf *to_box)
{
	bool chunked = h->body == HTTP_BODY_CHUNKED;

	x->has_body = h->body != HTTP_BODY_NONE;
	x->length = h->length;
	x->swap_body = x->to_value && x->has_body && (chunked || h->length);
	if (x->swap_body && x->sign.secret && strlen(x->sign.payload) == 64) {
		x->sign.put_hash = true; /* of what it becomes */
		x->sign.payload[0] = '\0';
	}
	x->mode = chunked ? BODY_CHUNKS : BODY_LENGTH;
	if (x->sign.secret && !x->sign.payload[0]) {
		x->mode = BODY_HOLD;
		if (!chunked && h->length > EXCHANGE_SIGN_MAX)
			return exchange_refuse(x, 413,
				"an AWS body of more than 8 MiB without x-amz-content-sha256", NULL,
				to_box);
	} else if (x->swap_body && !chunked && !swap_keeps_length(x->to_value)) {
		x->mode = h->length <= EXCHANGE_SWAP_MAX ? BODY_HOLD : BODY_CHUNKS;
		if (x->mode == BODY_CHUNKS && h->minor == 0)
			return exchange_refuse(x, 413,
				"an HTTP/1.0 body of more than 64 KiB where a secret may stand in "
				"it: use "
				"HTTP/1.1",
				NULL, to_box);
	}
	return 0;
}

/* A value is written as its surroundings demand. */
static void text_choose(struct exchange *x, const struct http_head *h)
{
	static const struct {
		const char *type;
		enum body_text text;
	} types[] = { { "application/x-www-form-urlencoded", TEXT_FORM },
		{ "application/json", TEXT_JSON } };
	const struct http_field *f = http_find(h, "content-type");
	enum body_text text = TEXT_PLAIN;

	for (unsigned i = 0; f && i < ARRAY_SIZE(types); i++) {
		size_t n = strlen(types[i].type);

		if (f->value_len >= n && strncasecmp(f->value, types[i].type, n) == 0 &&
			(f->value_len == n || f->value[n] == ';' || f->value[n] == ' '))
			text = types[i].text;
	}
	if (!x->to_value || text == x->text)
		return;
	swap_free(x->to_value);
	x->to_value = grant_swap_body(x, text);
	x->text = text;
}

static void request_end(struct exchange *x)
{
	sign_end(x);
	x->box = x->upgrade_asked ? BOX_UPGRADE : BOX_HEAD;
}

static int request_out(struct exchange *x, struct buf *to_up, struct buf *to_box)
{
	if (head_finish(x, to_up, to_box) < 0)
		return -1;
	if (x->mode == BODY_HOLD) {
		buf_add(to_up, x->hold.p, x->hold.len);
		if (x->hold.cap)
			explicit_bzero(x->hold.p, x->hold.cap);
		buf_free(&x->hold); /* up to 8 MiB */
	}
	return 0;
}

int request_begin(
	struct exchange *x, const struct http_head *h, struct buf *to_up, struct buf *to_box)
{
	x->meta.len = x->hold.len = 0;
	x->body_used = 0;
	text_choose(x, h);
	if (sign_begin(x, h, to_box) < 0 || mode_choose(x, h, to_box) < 0)
		return -1;
	if (x->swap_body) {
		swap_reset(x->to_value);
		swap_reset(x->to_blank);
	}
	x->drop_expect = x->mode == BODY_HOLD && h->expect_continue && x->has_body;
	if (head_build(x, h, to_box) < 0)
		return -1;
	x->scan = (struct canary_scan){ 0 };
	http_body_init(&x->body, h);
	x->box = BOX_BODY;
	if (http_body_done(&x->body)) {
		if (request_out(x, to_up, to_box) < 0)
			return -1;
		request_end(x);
		return 0;
	}
	if (x->mode != BODY_HOLD)
		return head_finish(x, to_up, to_box);
	if (x->drop_expect &&
		!x->asked_n) /* else it would be taken for the answer to another request */
		buf_addstr(to_box, "HTTP/1.1 100 Continue\r\n\r\n");
	return 0;
}

static int body_scan(
	struct exchange *x, const char *p, size_t n, const char *where, struct buf *to_box)
{
	int found = canary_feed(x->canaries, &x->scan, p, n);

	return found < 0 ? 0 : exchange_incident(x, found, where, x->mode != BODY_HOLD, to_box);
}

/* Payload; with end set, whatever the swaps still hold. To x->piece. */
static int body_piece(struct exchange *x, const char *p, size_t n, bool end, struct buf *to_box)
{
	auto_buf clean = { 0 };

	if (!x->swap_body) {
		if (body_scan(x, p, n, "body", to_box) < 0)
			return -1;
		buf_add(&x->piece, p, n);
		return 0;
	}
	swap_feed(x->to_blank, p, n, &clean);
	swap_feed(x->to_value, p, n, &x->piece);
	if (end) {
		swap_end(x->to_blank, &clean);
		swap_end(x->to_value, &x->piece);
	}
	for (unsigned i = 0; i < x->n_secrets; i++)
		if (!(x->body_used >> i & 1) && swap_hits(x->to_value, i)) {
			x->body_used |= 1ULL << i;
			grant_used(x, i, "body");
		}
	return body_scan(x, clean.p, clean.len, "body", to_box);
}

/* What has gathered in x->piece, and the end. */
static int body_flush(struct exchange *x, bool end, struct buf *to_up, struct buf *to_box)
{
	const char *trailers;
	size_t n;

	switch (x->mode) {
	case BODY_CHUNKS:
		meta_trailers(&x->meta, &trailers, &n);
		if (end && n && body_scan(x, trailers, n, "trailer", to_box) < 0)
			return -1;
		chunk_put(to_up, x->piece.p, x->piece.len);
		if (end) {
			buf_addstr(to_up, "0\r\n");
			buf_add(to_up, trailers, n);
			buf_addstr(to_up, "\r\n");
		}
		break;
	case BODY_HOLD:
		if (x->hold.len + x->piece.len > EXCHANGE_SIGN_MAX)
			return exchange_refuse(x, 413,
				"a body of more than 8 MiB where all of it must be known first",
				NULL, to_box);
		if (!budget_allows(x, &x->hold, x->piece.len))
			return exchange_busy(x, "too much is held for signing at the same time", false, to_box);
		buf_add(&x->hold, x->piece.p, x->piece.len);
		break;
	default:
		buf_add(to_up, x->piece.p, x->piece.len);
	}
	if (x->mode != BODY_HOLD)
		grant_tell(x);
	if (!end)
		return 0;
	if (x->mode == BODY_HOLD && request_out(x, to_up, to_box) < 0)
		return -1;
	request_end(x);
	return 0;
}

int request_body(struct exchange *x, const char *p, size_t n, size_t *used, struct buf *to_up,
	struct buf *to_box)
{
	int r = 0;

	*used = 0;
	x->piece.len = 0;
	while (r == 0 && *used < n) {
		const char *data = NULL, *bad;
		size_t took = 0, len = 0;

		r = http_body_feed(&x->body, p + *used, n - *used, &took, &data, &len, &bad);
		if (r < 0 && x->mode == BODY_HOLD)
			return exchange_refuse(x, 400, bad, NULL, to_box);
		if (r < 0)
			return exchange_cut(x, 400, bad, to_box);
		meta_add(&x->meta, p + *used, took, data, len);
		*used += took;
		if (body_piece(x, data, len, r == 1, to_box) < 0)
			return -1;
	}
	return body_flush(x, r == 1, to_up, to_box);
}
