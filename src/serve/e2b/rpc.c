/* Calls and streams of the Connect protocol, over a request. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "boxes.h"
#include "clock.h"
#include "advice.h"
#include "envd.h"
#include "json_scan.h"
#include "mem.h"
#include "parse.h"

#define UNARY_TYPE "application/json"
#define STREAM_TYPE "application/connect+json"
#define KEEPALIVE_S 90
#define GOING_MS 2000 /* so long a box may take from the end of its programs to its own */
#define OUT_KEPT (256U << 10)

static bool type_is(const char *header, const char *type)
{
	size_t n = strlen(type);

	return header && !strncasecmp(header, type, n) && strchr("; \t", header[n]);
}

void json_member(struct json *j, const char *key, size_t n, const char *value)
{
	json_bytes(j, NULL, key, n);
	buf_addstr(&j->b, ":");
	j->comma = false;
	json_str(j, NULL, value);
}

bool rpc_u64(const json_t *j, uint64_t max, uint64_t *ret)
{
	if (json_is_integer(j) && json_integer_value(j) >= 0 && (uint64_t)json_integer_value(j) <= max) {
		*ret = (uint64_t)json_integer_value(j);
		return true;
	}
	return json_is_string(j) && parse_u64(json_string_value(j), 0, max, ret, NULL) == 0;
}

/* ---- unary ---- */

int rpc_enter(struct req *r, struct envd *e, json_t **args, struct den_err *err)
{
	int got;

	if (!type_is(req_header(r, "Content-Type"), UNARY_TYPE))
		return e2b_error(r, 415, "calls are " UNARY_TYPE " here"), 1;
	got = envd_enter(r, NULL, e, err);
	return got ? got : req_json(r, args, err);
}

int rpc_reply(struct req *r, struct json *take)
{
	req_reply(r, 200, UNARY_TYPE, take->b.p, take->b.len);
	buf_free(&take->b);
	return 0;
}

int rpc_reply_empty(struct req *r)
{
	return req_reply(r, 200, UNARY_TYPE, "{}", 2);
}

static int refuse(struct req *r, enum connect_code c, const char *text)
{
	auto_buf b = { 0 }, said = { 0 };

	advice_text(ADVICE_E2B, text, NULL, &said);
	connect_error(&b, c, buf_str(&said));
	return req_reply(r, connect_status(c), UNARY_TYPE, b.p, b.len);
}

int rpc_refuse(struct req *r, enum connect_code c, const char *fmt, ...)
{
	auto_free char *text = NULL;
	va_list ap;

	va_start(ap, fmt);
	if (vasprintf(&text, fmt, ap) < 0)
		text = NULL;
	va_end(ap);
	return refuse(r, c, text ? text : "");
}

int rpc_failed(struct req *r, const struct envd *e, const struct den_err *why)
{
	return envd_gone(r, e) ? 0 : refuse(r, connect_code_of(why), why->msg);
}

/* ---- streams ---- */

static int args_read(struct req *r, json_t **args, struct den_err *err)
{
	auto_buf body = { 0 };
	const char *text;
	size_t n;

	if (req_body(r, CONNECT_MAX + CONNECT_HEAD, &body, err) < 0 ||
		connect_open(body.p, body.len, &text, &n, err) < 0)
		return -1;
	return json_read(text, n, args, err);
}

int rpc_stream_enter(struct req *r, struct envd *e, struct rpc *s, json_t **args, struct den_err *err)
{
	const char *interval = req_header(r, "Keepalive-Ping-Interval");
	uint64_t seconds = KEEPALIVE_S;
	int got;

	if (!type_is(req_header(r, "Content-Type"), STREAM_TYPE))
		return e2b_error(r, 415, "streaming calls are " STREAM_TYPE " here"), 1;
	got = envd_enter(r, NULL, e, err);
	if (got)
		return got;
	*s = (struct rpc){ .r = r, .e = e, .deadline = INT64_MAX, .last = clock_mono_ns() };
	if (interval)
		(void)parse_u64(interval, 1, 3600, &seconds, NULL);
	s->keepalive = (int64_t)seconds * NS_PER_SEC;
	if (connect_timeout(req_header(r, "Connect-Timeout-Ms"), &s->timeout, err) < 0 || args_read(r, args, err) < 0)
		return rpc_stream_failed(s, err), 1;
	if (s->timeout)
		s->deadline = clock_mono_ns() + (int64_t)s->timeout * NS_PER_MS;
	return 0;
}

void rpc_stream_free(struct rpc *s)
{
	buf_free(&s->out);
}

void rpc_flush(struct rpc *s)
{
	struct den_err ignored;

	if (!s->out.len || s->gone)
		return;
	if ((!req_begun(s->r) && req_begin(s->r, 200, STREAM_TYPE, -1, &ignored) < 0) ||
		req_write(s->r, s->out.p, s->out.len, &ignored) < 0)
		s->gone = true;
	if (s->out.cap > OUT_KEPT)
		buf_free(&s->out);
	s->out.len = 0;
	s->last = clock_mono_ns();
}

static int finish(struct rpc *s, enum connect_code c, const char *text)
{
	auto_buf said = { 0 };

	s->over = true;
	if (text)
		advice_text(ADVICE_E2B, text, NULL, &said);
	connect_finish(&s->out, c, text ? buf_str(&said) : NULL);
	rpc_flush(s);
	if (!s->gone)
		req_end(s->r);
	return 0;
}

int rpc_finish(struct rpc *s)
{
	return finish(s, CONNECT_UNKNOWN, NULL);
}

int rpc_stream_refuse(struct rpc *s, enum connect_code c, const char *fmt, ...)
{
	auto_free char *text = NULL;
	va_list ap;

	va_start(ap, fmt);
	if (vasprintf(&text, fmt, ap) < 0)
		text = NULL;
	va_end(ap);
	return finish(s, c, text ? text : "");
}

int rpc_stream_failed(struct rpc *s, const struct den_err *why)
{
	if (envd_gone(s->r, s->e)) {
		s->over = true;
		return 0;
	}
	return finish(s, connect_code_of(why), why->msg);
}

static void keepalive_send(struct rpc *s, const char *text)
{
	size_t at = connect_begin(&s->out, 0);

	buf_addstr(&s->out, text);
	connect_end(&s->out, at);
	rpc_flush(s);
}

void rpc_break(struct rpc *s)
{
	struct timespec nap = { .tv_nsec = 10 * NS_PER_MS };

	for (int i = 0; i < GOING_MS / 10; i++) {
		const char *state = boxes_state(s->e->id);

		if (!state || strcmp(state, "running"))
			break;
		nanosleep(&nap, NULL);
	}
	s->over = true;
	req_cut(s->r);
}

int rpc_wait(struct rpc *s, int fd, int max_ms, const char *keepalive)
{
	int64_t now = clock_mono_ns(), until = MIN(s->deadline, s->last + s->keepalive);
	int bits = req_wait(s->r, fd, (int)MIN(MAX(0, (until - now + NS_PER_MS - 1) / NS_PER_MS), max_ms));

	if (bits & REQ_GONE) {
		s->gone = s->over = true;
		return -1;
	}
	if (bits & REQ_STOP) {
		s->over = true;
		req_cut(s->r);
		return -1;
	}
	if (s->kicked) {
		rpc_break(s);
		return -1;
	}
	now = clock_mono_ns();
	if (now >= s->deadline) {
		finish(s, CONNECT_DEADLINE_EXCEEDED, "context deadline exceeded");
		return -1;
	}
	s->kicked = bits & REQ_KICK; /* once more: the end of a program may have come with that of its box */
	if (bits & REQ_READY)
		return 1;
	if (s->kicked) {
		rpc_break(s);
		return -1;
	}
	if (now - s->last >= s->keepalive && req_begun(s->r))
		keepalive_send(s, keepalive);
	return 0;
}
