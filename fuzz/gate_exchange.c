/*
 * HTTP between a box and an upstream, both hostile. Whatever they send and however it is cut:
 *   - what goes upstream reads as clean requests for the one Host, each with that Host once;
 *   - no placeholder goes upstream, and no value unless it is granted;
 *   - no value reaches the box.
 * The first two bytes choose the grant and how to cut. The rest is what the two say in turn: 0xff gives
 * the word to the other side, other bytes from 0x80 on stand for words.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "exchange.h"
#include "http.h"
#include "http_body.h"
#include "mem.h"

#define PH "den-ph-Qm7xA0fK3vLp9ZtR"
#define OTHER "den-ph-other-0000000000"
#define VALUE "sk-REAL-value-0123456789"
#define TURN 0xff

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok)
{
	if (!ok)
		abort();
}

static const char *const words[] = {
	"GET / HTTP/1.1\r\nHost: a.example\r\n",
	"POST /p?k=" PH " HTTP/1.1\r\nHost: a.example\r\n",
	"HEAD /h HTTP/1.1\r\nhost: A.example:443\r\n\r\n",
	"GET /0 HTTP/1.0\r\nHost: a.example\r\n\r\n",
	"Host: b.example\r\n",
	"Host: a.example\r\n",
	"\r\n\r\n",
	"\r\n",
	"Content-Length: ",
	"Content-Length: 30\r\n\r\n",
	"Transfer-Encoding: chunked\r\n\r\n",
	"0\r\n\r\n",
	"1\r\nx\r\n",
	"17\r\n" PH "\r\n",
	"18\r\n" VALUE "\r\n",
	"X-Key: " PH "\r\n",
	"Authorization: Bearer " PH "\r\n",
	"Authorization: Basic dTpkZW4tcGgtUW03eEEwZkszdkxwOVp0Ug==\r\n",
	PH,
	OTHER,
	VALUE,
	"den-ph-",
	"sk-REAL-",
	"den%2Dph-Qm7xA0fK3vLp9ZtR",
	"Expect: 100-continue\r\n",
	"Connection: close\r\n",
	"Connection: Upgrade\r\nUpgrade: websocket\r\n",
	"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n",
	"HTTP/1.1 200 OK\r\n",
	"HTTP/1.1 100 Continue\r\n\r\n",
	"HTTP/1.1 101 Switching Protocols\r\n",
	"HTTP/1.1 204 No Content\r\n\r\n",
	"HTTP/1.0 200 OK\r\n",
	"HTTP/1.1 304 " VALUE "\r\n",
	"Content-Encoding: gzip\r\n",
	"X-Echo: " VALUE "\r\n",
	"X-Trailer: " PH "\r\n\r\n",
	"CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n\r\n",
	"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
	"GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\n",
	"x-amz-content-sha256: UNSIGNED-PAYLOAD\r\n",
	"Authorization: AWS4-HMAC-SHA256 Credential=AK/20200101/r/s3/aws4_request, "
	"SignedHeaders=host;x-key, "
	"Signature=0\r\n",
	"X-Key: a\r\n",
	"c2stUkVBTC12YWx1ZS0wMTIzNDU2Nzg5",
	"?k=a&k=" PH "&",
	"%64",
	"\\u0064",
};

struct both {
	struct exchange *x;
	struct buf up, box;
	size_t raw_from; /* of up: from here on it is not HTTP; SIZE_MAX: it all is */
	bool over, knows; /* knows: the box said the value itself */
};

static bool inside(const struct buf *b, const char *text)
{
	return b->len && memmem(b->p, b->len, text, strlen(text));
}

static void feed(struct both *t, bool up, const char *p, size_t n, bool eof)
{
	const char *why = NULL;
	bool was_raw = exchange_raw(t->x);
	size_t before = t->up.len;
	int r = up ? exchange_from_up(t->x, p, n, eof, &t->box, &t->up, &why)
		   : exchange_from_box(t->x, p, n, &t->up, &t->box, &why);

	check(why != NULL);
	if (r == 0 && exchange_needs_token(t->x))
		r = exchange_give_token(
			t->x, n % 7 ? "to.k.en" : NULL, 2000000000, &t->up, &t->box, &why);
	if (!was_raw && exchange_raw(t->x))
		t->raw_from = before;
	t->over = r < 0;
}

/* Upstream's own reading, by the strict parser, of all that was sent. */
static void up_check(const struct both *t)
{
	size_t n = MIN(t->up.len, t->raw_from), i = 0;

	while (i < n) {
		struct http_head h;
		struct http_body b;
		const char *why, *data;
		size_t used, len;
		int r = 0;

		/* a head goes out whole */
		check(http_request_parse(t->up.p + i, n - i, &h, &why) == HTTP_OK);
		check(http_count(&h, "host") == 1 && !h.host_is_addr &&
			!strcmp(h.host.s, "a.example"));
		check(h.host_port == 0 || h.host_port == 443);
		check(strcmp(h.method, "CONNECT") != 0 && !h.h2c);
		i += h.head_len;
		http_body_init(&b, &h);
		if (http_body_done(&b))
			r = 1;
		http_head_free(&h);
		while (r == 0 && i < n) {
			r = http_body_feed(&b, t->up.p + i, n - i, &used, &data, &len, &why);
			check(r >= 0);
			i += used;
		}
	}
}

static struct exchange *exchange_make(uint8_t how, const struct canary *c)
{
	static const struct net_name name = { "a.example" };
	static char *header[] = { "x-key", NULL }, *query[] = { "k", NULL };
	struct exchange_secret s = { "KEY", PH, VALUE, how & 63, header, query };
	struct exchange_options o = { .name = &name,
		.port = 443,
		.secrets = &s,
		.n_secrets = how & 63 ? 1 : 0,
		.canaries = c,
		.token_audience = how & 64 ? "aud" : NULL,
		.token_header = "x-token",
		.rule = "a.example:443",
		.generation = 1 };

	return exchange_new(&o);
}

static void talk(struct both *t, const uint8_t *p, size_t n, size_t step)
{
	auto_buf said = { 0 };
	bool up = false;

	for (size_t i = 0; i <= n && !t->over; i++) {
		if (i < n && p[i] != TURN) {
			if (p[i] >= 0x80)
				buf_addstr(&said, words[(p[i] - 0x80) % ARRAY_SIZE(words)]);
			else
				buf_add(&said, &p[i], 1);
			continue;
		}
		t->knows |= !up && inside(&said, "REAL-v");
		for (size_t k = 0; k < said.len && !t->over; k += step)
			feed(t, up, said.p + k, MIN(step, said.len - k), false);
		said.len = 0;
		up = !up;
	}
	if (!t->over && step % 2)
		feed(t, true, "", 0, true);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const canaries[] = { PH, OTHER };
	static struct canary *c;
	struct both t = { .raw_from = SIZE_MAX };

	if (size < 2 || size > 4096)
		return 0;
	if (!c)
		c = canary_new(canaries, 2);
	t.x = exchange_make(data[0], c);
	talk(&t, data + 2, size - 2, data[1] ? data[1] : 4096);
	up_check(&t);
	check(!inside(&t.up, PH) && !inside(&t.up, OTHER));
	/* The box does not know the value; where it says it all the same, nothing can be concluded. */
	check((data[0] & 31) || t.knows || !inside(&t.up, VALUE));
	check(!(data[0] & 63) || t.knows || !inside(&t.box, VALUE));
	exchange_free(t.x);
	buf_free(&t.up);
	buf_free(&t.box);
	return 0;
}
