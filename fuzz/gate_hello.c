/* The first bytes of a TLS client. What they say must not depend on how they were cut: not into reads,
 * and not into records. The first two bytes choose where to cut. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "buf.h"
#include "hello.h"
#include "mem.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok)
{
	if (!ok)
		abort();
}

static void same(const struct hello *a, const struct hello *b)
{
	check(a->has_sni == b->has_sni && !strcmp(a->sni.s, b->sni.s) && a->ech == b->ech);
	check(a->alpn_h2 == b->alpn_h2 && a->alpn_http11 == b->alpn_http11 &&
		a->version == b->version);
}

/* A copy of the first n bytes, so that reading past them is seen. */
static enum hello_result parse_copy(const uint8_t *p, size_t n, struct hello *h)
{
	auto_free uint8_t *copy = mem_alloc(n ? n : 1);
	const char *why = NULL;
	enum hello_result r;

	memcpy(copy, p, n);
	r = hello_parse(copy, n, h, &why);
	check((why != NULL) == (r == HELLO_BAD || r == HELLO_NOT_TLS));
	check(n || r == HELLO_MORE);
	return r;
}

static void prefixes_check(
	const uint8_t *p, size_t n, enum hello_result whole, const struct hello *h, size_t step)
{
	bool decided = false;

	step = MAX(step, n / 24);
	for (size_t at = 0; at < n; at += step) {
		struct hello part = { 0 };
		enum hello_result r = parse_copy(p, at, &part);

		check(r == whole || (r == HELLO_MORE && !decided));
		if (r == HELLO_OK)
			same(&part, h);
		decided = decided || r != HELLO_MORE;
	}
}

/* A whole message around these bytes as its extensions: what a fuzzer would not guess is given. */
static void message_make(const uint8_t *p, size_t n, struct buf *out)
{
	static const char before[] = "\3\3"
				     "0123456789abcdef0123456789abcdef"
				     "\0\0\2\x13\1\1\0";
	size_t body = sizeof(before) - 1 + 2 + n;

	buf_add(out, (uint8_t[]){ 1, (uint8_t)(body >> 16), (uint8_t)(body >> 8), (uint8_t)body },
		4);
	buf_add(out, before, sizeof(before) - 1);
	buf_add(out, (uint8_t[]){ (uint8_t)(n >> 8), (uint8_t)n }, 2);
	buf_add(out, p, n);
}

static void recut(const struct buf *message, size_t size, struct buf *out)
{
	for (size_t at = 0; at < message->len; at += size) {
		size_t part = MIN(size, message->len - at);

		buf_add(out, (uint8_t[]){ 22, 3, 1, (uint8_t)(part >> 8), (uint8_t)part }, 5);
		buf_add(out, message->p + at, part);
	}
}

static void input_check(
	const uint8_t *p, size_t n, size_t step, struct hello *h, enum hello_result *ret)
{
	struct net_name again;

	*ret = parse_copy(p, n, h);
	prefixes_check(p, n, *ret, h, step);
	check(*ret == HELLO_OK || !h->has_sni);
	if (h->has_sni)
		check(net_name_parse(h->sni.s, strlen(h->sni.s), &again, NULL) == 0 &&
			!strcmp(again.s, h->sni.s));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct hello h = { 0 }, one = { 0 }, many = { 0 };
	auto_buf message = { 0 }, whole = { 0 }, cut = { 0 };
	enum hello_result r, again;

	if (size < 2)
		return 0;
	input_check(data + 2, size - 2, 1 + data[0], &h, &r);
	if (size > 8000)
		return 0;
	message_make(data + 2, size - 2, &message);
	recut(&message, 16384, &whole);
	recut(&message, 1 + data[1] % 200, &cut);
	input_check((uint8_t *)whole.p, whole.len, 1 + data[0], &one, &r);
	input_check((uint8_t *)cut.p, cut.len, 1 + data[0], &many, &again);
	check(r == again && (r == HELLO_OK || r == HELLO_BAD));
	same(&one, &many);
	return 0;
}
