/* HTTP from an upstream back to a box, upgrades, and long streams. */
#include <malloc.h>
#include <string.h>

#include "encode.h"
#include "kit_talk.h"
#include "mem.h"
#include "test.h"

TEST(gate_exchange_frames_pipelined_answers_by_their_requests)
{
	struct talk t;

	talk_begin(&t, EXCHANGE_IN_BEARER, NULL);
	CHECK(say(&t, "HEAD /1 HTTP/1.1\r\n" HOST "\r\nGET /2 HTTP/1.1\r\n" HOST
		      "\r\nGET /3 HTTP/1.1\r\n" HOST "\r\nPOST /4 HTTP/1.1\r\n" HOST
		      "Expect: 100-continue\r\nContent-Length: 2\r\n\r\n") == 0);
	CHECK(exchange_requests(t.x) == 4 && has(&t.up, "Expect: 100-continue\r\n"));
	CHECK(answer(&t,
		      "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nHTTP/1.1 304 Not Modified\r\n"
		      "Content-Length: 5\r\n\r\nHTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 100 "
		      "Continue\r\n\r\n") == 0);
	CHECK(say(&t, "ok") == 0 && !exchange_idle(t.x));
	CHECK(answer(&t, "HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\nTrailer: "
			 "X-Sum\r\n\r\n3;ext=1"
			 "\r\nabc\r\n0\r\nX-Sum: 9\r\n\r\n") == 0);
	CHECK(is(&t.box,
		"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nHTTP/1.1 304 Not Modified\r\n"
		"Content-Length: 5\r\n\r\nHTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 100 "
		"Continue\r\n\r\n"
		"HTTP/1.1 201 Created\r\nTrailer: X-Sum\r\nTransfer-Encoding: "
		"chunked\r\n\r\n3\r\nabc\r\n"
		"0\r\nX-Sum: 9\r\n\r\n"));
	CHECK(exchange_idle(t.x) && !exchange_wants_close(t.x) && exchange_last_status(t.x) == 201);
	CHECK(answer(&t, "HTTP/1.1 200 OK\r\n\r\n") < 0); /* unasked */
	talk_end(&t);
}

TEST(gate_exchange_keeps_at_most_so_many_requests_under_way)
{
	struct talk t;
	auto_buf many = { 0 };

	for (unsigned i = 0; i < EXCHANGE_PIPELINE + 8; i++)
		buf_addf(&many, "GET /%u HTTP/1.1\r\n" HOST "\r\n", i);
	talk_begin(&t, 0, NULL);
	CHECK(say(&t, buf_str(&many)) == 0);
	CHECK(exchange_requests(t.x) == EXCHANGE_PIPELINE && !exchange_wants_box(t.x));
	for (unsigned i = 0; i < EXCHANGE_PIPELINE + 8; i++)
		CHECK(answer(&t, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n") == 0);
	CHECK(is(&t.up, buf_str(&many)) && exchange_idle(t.x) && exchange_wants_box(t.x));
	talk_end(&t);
}

TEST(gate_exchange_gives_the_placeholder_back_for_the_value)
{
	struct talk t;
	auto_buf b = { 0 };

	talk_begin(&t, EXCHANGE_IN_BASIC | EXCHANGE_IN_QUERY, NULL);
	CHECK(say(&t, "GET / HTTP/1.1\r\n" HOST "\r\n") == 0);
	buf_addstr(&b, "{\"basic\":\"");
	basic_of(&b, "user:" VALUE);
	buf_addstr(&b,
		"\",\"value\":\"" VALUE "\",\"url\":\"?k=sk-ant-REAL%2Bvalue%2F99%26x%3D%3D\","
		"\"json\":\"sk-ant-REAL+value\\/99&x==\",\"hex\":\"");
	encode_hex(&b, VALUE, strlen(VALUE));
	buf_addstr(&b, "\"}");
	t.box.len = 0;
	{
		auto_buf head = { 0 };

		buf_addf(&head,
			"HTTP/1.1 200 " VALUE "\r\nX-Echo: a" VALUE
			"b\r\nContent-Length: %zu\r\n\r\n",
			b.len);
		CHECK(answer(&t, buf_str(&head)) == 0);
	}
	for (size_t i = 0; i < b.len; i++)
		CHECK(exchange_from_up(t.x, b.p + i, 1, false, &t.box, &t.up, &t.why) == 0);
	CHECK(has(&t.box,
		"HTTP/1.1 200 " PH "\r\nX-Echo: a" PH "b\r\nTransfer-Encoding: chunked\r\n"));
	CHECK(!has(&t.box, "Content-Length") && exchange_idle(t.x));
	CHECK(!has(&t.box, VALUE) && has(&t.box, "\r\n0\r\n\r\n"));
	talk_end(&t);
}

TEST(gate_exchange_keeps_the_length_when_value_and_placeholder_have_the_same)
{
	struct exchange_secret s = { "KEY", PH, "0123456789abcdefghijklm", EXCHANGE_IN_BEARER };
	struct talk t;

	CHECK(strlen(s.value) == strlen(PH));
	talk_with(&t, &s, NULL);
	CHECK(say(&t, "GET / HTTP/1.1\r\n" HOST "\r\n") == 0);
	CHECK(answer(&t,
		      "HTTP/1.1 200 OK\r\nContent-Length: 25\r\n\r\n<0123456789abcdefghijklm>") ==
		0);
	CHECK(is(&t.box, "HTTP/1.1 200 OK\r\nContent-Length: 25\r\n\r\n<" PH ">"));
	talk_end(&t);
}

TEST(gate_exchange_ends_an_answer_with_the_connection)
{
	struct talk t;

	talk_begin(&t, EXCHANGE_IN_BEARER, NULL);
	CHECK(say(&t, "GET / HTTP/1.0\r\n" HOST "\r\n") == 0);
	CHECK(answer(&t, "HTTP/1.1 200 OK\r\nContent-Length: 30\r\n\r\n123456" VALUE) == 0);
	CHECK(is(&t.box, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n123456" PH));
	CHECK(exchange_wants_close(t.x) && !exchange_wants_box(t.x));
	talk_end(&t);

	talk_begin(&t, EXCHANGE_IN_BEARER, NULL); /* an upstream of old, a box of today */
	CHECK(say(&t, "GET / HTTP/1.1\r\n" HOST "\r\n") == 0);
	CHECK(answer(&t, "HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nabc") == 0);
	CHECK(is(&t.box,
		      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
		      "3\r\nabc\r\n0\r\n\r\n") &&
		exchange_wants_close(t.x));
	talk_end(&t);

	talk_begin(&t, EXCHANGE_IN_BEARER, NULL);
	CHECK(say(&t, "GET / HTTP/1.1\r\n" HOST "\r\n") == 0);
	CHECK(answer(&t, "HTTP/1.1 200 OK\r\n\r\nabc sk-ant-") == 0 && !exchange_wants_close(t.x));
	CHECK(is(&t.box, "HTTP/1.1 200 OK\r\n\r\nabc "));
	CHECK(exchange_from_up(t.x, "x", 1, true, &t.box, &t.up, &t.why) == 0);
	CHECK(is(&t.box, "HTTP/1.1 200 OK\r\n\r\nabc sk-ant-x") && exchange_wants_close(t.x));
	talk_end(&t);

	talk_begin(&t, 0, NULL); /* cut short */
	CHECK(say(&t, "GET / HTTP/1.1\r\n" HOST "\r\n") == 0);
	CHECK(answer(&t, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc") == 0);
	CHECK(exchange_from_up(t.x, NULL, 0, true, &t.box, &t.up, &t.why) < 0 &&
		strstr(t.why, "middle"));
	talk_end(&t);
}

TEST(gate_exchange_refuses_an_answer_it_cannot_read)
{
	struct talk t;

	talk_begin(&t, EXCHANGE_IN_BEARER, NULL);
	CHECK(say(&t, "GET / HTTP/1.1\r\n" HOST "\r\n") == 0);
	CHECK(answer(&t,
		      "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc") <
		0);
	CHECK(!strncmp(buf_str(&t.box), "HTTP/1.1 502 ", 13) && !has(&t.box, "abc"));
	talk_end(&t);

	talk_begin(&t, 0, NULL); /* without secrets it is no matter of ours */
	CHECK(say(&t, "GET / HTTP/1.1\r\n" HOST "Accept-Encoding: gzip\r\n\r\n") == 0);
	CHECK(has(&t.up, "Accept-Encoding: gzip\r\n"));
	CHECK(answer(&t, "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: "
			 "3\r\n\r\nabc") == 0);
	talk_end(&t);

	talk_begin(&t, 0, NULL);
	CHECK(say(&t, "GET / HTTP/1.1\r\n" HOST "\r\n") == 0);
	CHECK(answer(&t, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "
			 "x\r\n\r\n") < 0);
	CHECK(!strncmp(buf_str(&t.box), "HTTP/1.1 502 ", 13));
	talk_end(&t);
}

TEST(gate_exchange_is_raw_after_an_upgrade_but_still_looks)
{
	struct talk t;

	talk_begin(&t, EXCHANGE_IN_BEARER, NULL);
	CHECK(say(&t, "GET /ws HTTP/1.1\r\n" HOST UPGRADE "Authorization: Bearer " PH
		      "\r\n\r\nearly") == 0);
	CHECK(has(&t.up, VALUE) && !has(&t.up, "early") && !exchange_wants_box(t.x));
	t.up.len = 0;
	CHECK(answer(&t, "HTTP/1.1 101 Switching Protocols\r\n" UPGRADE "\r\n\x81\x05hello") == 0);
	CHECK(exchange_raw(t.x) && is(&t.up, "early") && exchange_wants_box(t.x));
	CHECK(is(&t.box, "HTTP/1.1 101 Switching Protocols\r\n" UPGRADE "\r\n\x81\x05hello"));
	t.box.len = t.up.len = 0;
	CHECK(answer(&t, "a" VALUE "b") == 0 && is(&t.box, "a" PH "b"));
	t.box.len = 0;
	CHECK(answer(&t, "yes") == 0 && is(&t.box, "yes")); /* not held, though a value begins so */
	CHECK(answer(&t, &VALUE[1]) == 0 && is(&t.box, "yes" PH));
	t.box.len = 0;
	CHECK(answer(&t, "sk-ant-") == 0 && t.box.len == 0 && answer(&t, "other") == 0);
	CHECK(is(&t.box, "sk-ant-other"));
	CHECK(say(&t, "GET / HTTP/1.1\r\nHost: any\r\n\r\nden-ph-Qm7x") == 0);
	CHECK(is(&t.up, "GET / HTTP/1.1\r\nHost: any\r\n\r\nden-ph-Qm7x"));
	t.box.len = t.up.len = 0;
	CHECK(say(&t, "A0fK3vLp9ZtR") < 0 && t.up.len == 0 && t.box.len == 0 && t.n_incidents == 1);
	CHECK(!strcmp(t.incident, "upgraded connection"));
	talk_end(&t);

	talk_begin(&t, 0, NULL); /* upstream does not want to: HTTP goes on */
	CHECK(say(&t, "GET /ws HTTP/1.1\r\n" HOST UPGRADE "\r\nGET /2 HTTP/1.1\r\n" HOST "\r\n") ==
		0);
	CHECK(exchange_requests(t.x) == 1);
	CHECK(answer(&t, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n") == 0);
	CHECK(exchange_requests(t.x) == 2 && !exchange_raw(t.x) && has(&t.up, "GET /2 "));
	talk_end(&t);
}

/* A masked frame with this text. */
static void frame_put(struct buf *out, const char *text, size_t n, uint8_t first)
{
	static const uint8_t key[4] = { 0x37, 0xfa, 0x21, 0x3d };

	buf_add(out, (uint8_t[]){ first, n < 126 ? 0x80 | (uint8_t)n : 0x80 | 126 }, 2);
	if (n >= 126)
		buf_add(out, (uint8_t[]){ (uint8_t)(n >> 8), (uint8_t)n }, 2);
	buf_add(out, key, 4);
	for (size_t i = 0; i < n; i++)
		buf_add(out, (uint8_t[]){ (uint8_t)text[i] ^ key[i % 4] }, 1);
}

TEST(gate_exchange_looks_below_the_mask_of_websocket_frames)
{
	auto_buf clean = { 0 };
	auto_buf bad = { 0 };
	auto_buf text = { 0 };

	for (unsigned i = 0; i < 40; i++)
		buf_addf(&text, "message %u ", i);
	frame_put(&clean, "hi", 2, 0x81);
	frame_put(&clean, text.p, text.len, 0x81);
	frame_put(&bad, PH, 10, 0x01); /* a message in two frames */
	frame_put(&bad, &PH[10], strlen(PH) - 10, 0x80);
	CHECK(!has(&bad, PH) && text.len > 126);
	for (size_t piece = 1; piece < 40; piece += 6) {
		struct talk t;

		talk_begin(&t, EXCHANGE_IN_BEARER, NULL);
		CHECK(say(&t, "GET /ws HTTP/1.1\r\n" HOST UPGRADE
			      "Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n") == 0);
		CHECK(!has(&t.up, "deflate"));
		CHECK(answer(&t, "HTTP/1.1 101 Switching Protocols\r\n" UPGRADE "\r\n") == 0);
		t.up.len = 0;
		for (size_t i = 0; i < clean.len; i += piece)
			CHECK(exchange_from_box(t.x, clean.p + i, MIN(piece, clean.len - i), &t.up,
				      &t.box, &t.why) == 0);
		CHECK(t.up.len == clean.len && !memcmp(t.up.p, clean.p, clean.len));
		t.r = 0;
		for (size_t i = 0; i < bad.len && t.r == 0; i += piece)
			t.r = exchange_from_box(
				t.x, bad.p + i, MIN(piece, bad.len - i), &t.up, &t.box, &t.why);
		CHECK(t.r < 0 && t.n_incidents == 1 && t.up.len < clean.len + bad.len);
		talk_end(&t);
	}
}

TEST(gate_exchange_passes_events_at_once)
{
	struct talk t;

	talk_begin(&t, EXCHANGE_IN_BEARER, NULL);
	CHECK(say(&t, "POST /v1/messages HTTP/1.1\r\n" HOST "Content-Length: 2\r\n\r\n{}") == 0);
	CHECK(answer(&t, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: "
			 "chunked\r\n"
			 "\r\n") == 0);
	for (unsigned i = 0; i < 100; i++) {
		char event[64], chunk[80];

		snprintf(event, sizeof(event), "data: {\"token\":\"s%u\"}\n\n", i);
		snprintf(chunk, sizeof(chunk), "%zx\r\n%s\r\n", strlen(event), event);
		t.box.len = 0;
		CHECK(answer(&t, chunk) == 0 && is(&t.box, chunk));
	}
	talk_end(&t);
}

/* What a reader of HTTP makes of it, so that other chunks of the same body count as the same. */
static void unchunk(struct buf *b, struct buf *out)
{
	char *p = (char *)buf_str(b), *end = p + b->len;

	while (p < end) {
		char *body = memmem(p, (size_t)(end - p), "\r\n\r\n", 4);
		bool chunked = body && memmem(p, (size_t)(body - p), "chunked", 7);

		CHECK(body);
		buf_add(out, p, (size_t)(body + 4 - p));
		p = body + 4;
		for (size_t n = 1; chunked && n;) {
			n = strtoul(p, &p, 16);
			buf_add(out, p + 2, n);
			p += n + 4;
		}
		while (!chunked && p < end && strncmp(p, "HTTP/", 5) && strncmp(p, "POST ", 5) &&
			strncmp(p, "GET ", 4))
			buf_add(out, p++, 1);
	}
}

TEST(gate_exchange_understands_the_same_however_the_bytes_are_cut)
{
	static const char requests[] =
		"POST /1 HTTP/1.1\r\n" HOST "X-Api-Key: " PH "\r\nContent-Length: 40\r\n\r\n<" PH
		">123456789012345"
		"POST /2 HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n5\r\nden-p\r\n12\r\n"
		"h-Qm7xA0fK3vLp9ZtR\r\n2\r\nxy\r\n0\r\n\r\nGET /3?q=1 HTTP/1.1\r\n" HOST "\r\n";
	static const char answers[] =
		"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 30\r\n\r\n"
		"..." VALUE
		"...HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nsk-\r\n15\r\n"
		"ant-REAL+value/99&x==\r\n0\r\n\r\nHTTP/1.1 404 Not Found\r\nContent-Length: "
		"4\r\n\r\nnone";
	static char *header[] = { "x-api-key", NULL };
	struct exchange_secret s = { "KEY", PH, VALUE, EXCHANGE_IN_HEADER | EXCHANGE_IN_BODY,
		header };
	auto_buf up = { 0 };
	auto_buf box = { 0 };

	for (size_t piece = sizeof(requests); piece; piece = piece > 40 ? piece / 2 : piece - 1) {
		auto_buf got_up = { 0 };
		auto_buf got_box = { 0 };
		struct talk t;

		talk_with(&t, &s, NULL);
		for (size_t i = 0; i < strlen(requests); i += piece)
			CHECK(exchange_from_box(t.x, requests + i, MIN(piece, strlen(requests) - i),
				      &t.up, &t.box, &t.why) == 0);
		for (size_t i = 0; i < strlen(answers); i += piece)
			CHECK(exchange_from_up(t.x, answers + i, MIN(piece, strlen(answers) - i),
				      false, &t.box, &t.up, &t.why) == 0);
		CHECK(exchange_idle(t.x) && !has(&t.up, PH) && !has(&t.box, VALUE));
		unchunk(&t.up, &got_up);
		unchunk(&t.box, &got_box);
		if (!up.len) {
			buf_add(&up, got_up.p, got_up.len);
			buf_add(&box, got_box.p, got_box.len);
			CHECK(has(&up, "<" VALUE ">123456789012345POST /2") &&
				has(&up, VALUE "xyGET /3?q=1"));
			CHECK(has(&box, "..." PH "...HTTP/1.1 200") &&
				has(&box, "\r\n\r\n" PH "HTTP/1.1 404"));
		}
		CHECK(is(&got_up, buf_str(&up)) && is(&got_box, buf_str(&box)));
		CHECK(t.n_used == 3);
		talk_end(&t);
	}
}

TEST(gate_exchange_memory_does_not_grow_with_bodies)
{
	struct talk t;
	auto_free char *piece = mem_alloc(65536);
	size_t sent = 0, got = 0, before = 0;

	memset(piece, 'x', 65536);
	talk_begin(&t, EXCHANGE_IN_BODY, NULL);
	CHECK(say(&t, "PUT / HTTP/1.1\r\n" HOST "Content-Length: 268435456\r\n\r\n") == 0);
	for (unsigned i = 0; i < 4096; i++) {
		t.up.len = 0;
		CHECK(exchange_from_box(t.x, piece, 65536, &t.up, &t.box, &t.why) == 0);
		sent += t.up.len;
		if (i == 16)
			before = mallinfo2().uordblks;
	}
	CHECK(sent > 268435456 && mallinfo2().uordblks <= before + 65536);
	CHECK(answer(&t, "HTTP/1.1 200 OK\r\nContent-Length: 268435456\r\n\r\n") == 0);
	for (unsigned i = 0; i < 4096; i++) {
		t.box.len = 0;
		CHECK(exchange_from_up(t.x, piece, 65536, false, &t.box, &t.up, &t.why) == 0);
		got += t.box.len;
	}
	CHECK(got > 268435456 && mallinfo2().uordblks <= before + 262144 && exchange_idle(t.x));
	talk_end(&t);
}

/* What the box gets of an answer with this text in it, fed in pieces. */
static void echoed(struct talk *t, const char *text, size_t piece)
{
	auto_buf b = { 0 };

	buf_addf(&b, "HTTP/1.1 200 OK\r\nX-Echo: <%s>\r\nContent-Length: %zu\r\n\r\n<%s>", text,
		strlen(text) + 2, text);
	for (size_t i = 0; i < b.len; i += piece)
		CHECK(exchange_from_up(t->x, b.p + i, MIN(piece, b.len - i), false, &t->box, &t->up, &t->why) ==
			0);
	CHECK(has(&t->box, "\r\n0\r\n\r\n") && exchange_idle(t->x));
}

TEST(gate_exchange_finds_the_value_in_the_spellings_of_programs)
{
	static const char *const texts[] = {
		"sk-ant-REAL+value/99%26x==", /* JavaScript's encodeURI, and such that leave some */
		"sk-ant-REAL%2Bvalue/99%26x%3D%3D", /* Python's quote */
		"sk-ant-REAL%2bvalue%2f99&x=%3d",
		"sk-ant-REAL\\u002bvalue/99\\u0026x\\u003d\\u003d", /* Go, Ruby and PHP in JSON */
		"sk-ant-REAL\\u002Bvalue\\/99\\u0026x==",
		"sk\\x2dant-REAL\\x2Bvalue/99\\x26x==",
		"sk-ant-REAL+value/99&amp;x==", /* HTML */
		"sk-ant-REAL&#43;value&#x2F;99&#38;x&#x3d;&#061;",
		"%73%6b-ant-REAL+value/99&x==", /* from its first byte */
		"&#115;k-ant-REAL+value/99&x==",
		"sk-ant-REAL%252Bvalue%252F99%2526x%253D%253D", /* twice */
		"sk-ant-REAL+value/99\\\\u0026x==",
		"sk-ant-REAL+value/99&amp;amp;x==",
	};

	for (unsigned i = 0; i < ARRAY_SIZE(texts); i++)
		for (size_t piece = 1; piece < 400; piece += piece < 9 ? 1 : 130) {
			struct talk t;

			talk_begin(&t, EXCHANGE_IN_BEARER, NULL);
			CHECK(say(&t, "GET / HTTP/1.1\r\n" HOST "\r\n") == 0);
			echoed(&t, texts[i], piece);
			CHECK(has(&t.box, "X-Echo: <" PH ">\r\n"));
			CHECK(!has(&t.box, "value") && !has(&t.box, "REAL"));
			talk_end(&t);
		}
}

TEST(gate_exchange_finds_the_value_in_hex_of_either_case)
{
	for (unsigned upper = 0; upper < 2; upper++) {
		struct talk t;
		auto_buf b = { 0 };

		for (const char *p = VALUE; *p; p++)
			buf_addf(&b, upper ? "%02X" : "%02x", (unsigned char)*p);
		talk_begin(&t, EXCHANGE_IN_BEARER, NULL);
		CHECK(say(&t, "GET / HTTP/1.1\r\n" HOST "\r\n") == 0);
		echoed(&t, buf_str(&b), 7);
		CHECK(!has(&t.box, buf_str(&b)) && has(&t.box, "<000000000000"));
		talk_end(&t);
	}
}

#define SIGNATURE "c2lnbmF0dXJlLW9mLWEtdG9rZW4_LQ"
#define TOKEN "eyJhbGciOiJFZERTQSJ9.eyJzdWIiOiJib3g6MSJ9." SIGNATURE
#define SIGNATURE2 "YW5vdGhlci1zaWduYXR1cmUtMDAwMQ"
#define TOKEN2 "eyJhbGciOiJFZERTQSJ9.eyJzdWIiOiJib3g6MiJ9." SIGNATURE2

TEST(gate_exchange_gives_no_token_back)
{
	static const char *const texts[] = { TOKEN, SIGNATURE, ("Bearer " TOKEN), ("eyJhbGciOiJFZERTQSJ9%2E" SIGNATURE),
		"c2lnbmF0dXJlLW9mLWEtdG9rZW4%5FLQ" };
	struct talk t;

	for (unsigned i = 0; i < ARRAY_SIZE(texts); i++)
		for (size_t piece = 1; piece < 400; piece *= 3) {
			talk_with(&t, NULL, "https://api.internal");
			CHECK(say(&t, "GET / HTTP/1.1\r\n" HOST "Accept-Encoding: gzip\r\n\r\n") == 0);
			CHECK(exchange_give_token(t.x, TOKEN, NOW + 60, &t.up, &t.box, &t.why) == 0);
			CHECK(has(&t.up, IDENTITY) && !has(&t.up, "gzip") && has(&t.up, "Bearer " TOKEN "\r\n"));
			echoed(&t, texts[i], piece);
			CHECK(!has(&t.box, SIGNATURE) && !has(&t.box, "LW9mLWEt") && has(&t.box, EXCHANGE_TOKEN_GONE));
			talk_end(&t);
		}
	talk_with(&t, NULL, "https://api.internal");
	CHECK(say(&t, "GET / HTTP/1.1\r\n" HOST "\r\n") == 0);
	CHECK(exchange_give_token(t.x, TOKEN, NOW + 60, &t.up, &t.box, &t.why) == 0);
	CHECK(answer(&t, "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\nab") < 0);
	CHECK(has(&t.box, "HTTP/1.1 502 "));
	talk_end(&t);
}

TEST(gate_exchange_gives_no_earlier_token_back_either)
{
	struct talk t;

	talk_with(&t, NULL, "https://api.internal");
	CHECK(say(&t, "GET /1 HTTP/1.1\r\n" HOST "\r\n") == 0);
	/* good for this request, and over at the next one */
	CHECK(exchange_give_token(t.x, TOKEN, NOW + 1, &t.up, &t.box, &t.why) == 0);
	CHECK(answer(&t, "HTTP/1.1 200 OK\r\nContent-Length: 200\r\n\r\n<c2lnbmF0dXJlLW9m") == 0);
	t.now = 10;
	CHECK(say(&t, "GET /2 HTTP/1.1\r\n" HOST "\r\n") == 0 && exchange_needs_token(t.x));
	CHECK(exchange_give_token(t.x, TOKEN2, NOW + 60, &t.up, &t.box, &t.why) == 0);
	CHECK(answer(&t, "LWEtdG9rZW4_LQ> <" TOKEN2 "> <" TOKEN ">") == 0);
	CHECK(has(&t.box, "\r\n" EXCHANGE_TOKEN_GONE "> <" EXCHANGE_TOKEN_GONE "> <" EXCHANGE_TOKEN_GONE ">"));
	CHECK(!has(&t.box, "c2lnbmF0"));
	talk_end(&t);
}
