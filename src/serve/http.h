/*
 * One HTTP request, as its handler sees it.
 *
 * libmicrohttpd speaks HTTP in one thread and never waits. A request whose headers are in gets a thread of
 * the pool, and its handler runs there from top to bottom and may block: in libden, for the body, for a
 * slow reader. Between the two are two bounded buffers, one each way: when one is full, the connection is
 * suspended (a slow box slows the client) or the handler waits (a slow client slows the box). Memory for
 * one request is bounded, whatever passes.
 *
 * A handler returns 0 after it has answered, or -1 with *err; then its dialect words the failure. Once
 * a stream has begun a failure cuts the connection, so that nobody takes a part for the whole.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <jansson.h>

#include "buf.h"
#include "den.h"
#include "err.h"

struct req;
struct who; /* auth.h */

/* ---- what was asked ---- */
const char *req_method(const struct req *r);
const char *req_path(const struct req *r);			/* as sent, without query; still %-encoded */
const char *req_arg(const struct req *r, const char *name);	/* "{name}" of the route, decoded; never NULL */
const char *req_query(const struct req *r, const char *name);	/* decoded once; NULL: absent */
const char *req_query_raw(const struct req *r);			/* the whole query string as sent; "" */
const char *req_header(const struct req *r, const char *name);	/* any case; NULL: absent */
void req_each_header(const struct req *r, void (*fn)(const char *name, const char *value, void *user), void *user);
int req_query_u64(const struct req *r, const char *name, uint64_t max, uint64_t otherwise, uint64_t *ret,
	struct den_err *err);
bool req_query_known(const struct req *r, const char *const *names, struct den_err *err); /* refuses others */
const char *req_peer(const struct req *r);			/* address in words, for logs and rate limits */
bool req_tls(const struct req *r);
const struct who *req_who(const struct req *r);			/* NULL on routes without key */
void req_set_who(struct req *r, const struct who *who);		/* auth.c; copied */
uint64_t req_number(const struct req *r);			/* for logs */
/* From here on this request is one of that organisation's, which has at most three quarters of all threads at a time.
 * DEN_LIMIT (429). Of a request with a key the engine says it. */
int req_share(struct req *r, const char *org, struct den_err *err);

/* ---- the body ---- */
/* Up to n bytes, waiting for the first; 0: the end. DEN_LIMIT beyond the route's max_body. */
ssize_t req_read(struct req *r, void *p, size_t n, struct den_err *err);
/* All of it, at most max bytes (DEN_LIMIT), with a NUL after. */
int req_body(struct req *r, size_t max, struct buf *ret, struct den_err *err);
/* All of it as a JSON object. An absent or empty body is an empty object. Depth, size and duplicate keys
 * are checked. The caller json_decref()s (auto_json). */
int req_json(struct req *r, json_t **ret, struct den_err *err);

/* ---- the answer, whole ---- */
void req_set(struct req *r, const char *header, const char *value); /* before the answer; CR LF is refused */
int req_reply(struct req *r, int status, const char *type, const void *p, size_t n);	/* always 0 */
int req_reply_json(struct req *r, int status, json_t *take);	/* takes the reference; always 0 */
int req_reply_empty(struct req *r, int status);			/* 204, or Content-Length: 0; always 0 */

/* ---- the answer, streamed ---- */
/* length -1: chunked. After it only req_write(), then req_end() (or return 0, which ends it). */
int req_begin(struct req *r, int status, const char *type, int64_t length, struct den_err *err);
/* Waits while the client is slow. -1: the client is gone (DEN_CONFLICT). Sent at once: nothing is held back. */
int req_write(struct req *r, const void *p, size_t n, struct den_err *err);
void req_end(struct req *r);
void req_cut(struct req *r); /* close the connection without an end, so that the client sees a break */
bool req_begun(const struct req *r);

/* Waits until fd (-1: none) is readable. Bits of what is so; 0: the time is up. */
enum { REQ_READY = 1, REQ_GONE = 2 /* client hung up */, REQ_STOP = 4 /* server is ending */, REQ_KICK = 8 /* req_watch_box() */ };
int req_wait(struct req *r, int fd, int timeout_ms);
/* From now on req_wait() gives REQ_KICK once that box is killed, paused or gone (also by others). */
void req_watch_box(struct req *r, const char *box_id);

/* ---- something else than HTTP ---- */
/* Answers 101 with these headers ("Upgrade: x" is added, and what req_set() said); from then on the caller has
 * the connection as a blocking socket (with TLS already taken off), and closes it. */
int req_upgrade(struct req *r, const char *protocol, int *ret_fd, struct den_err *err);

/* ---- libden ---- */
struct den *req_den(struct req *r); /* this thread's own; every call blocks only this request */

/* ---- small things ---- */
static inline void json_decref_cb(json_t **j) { json_decref(*j); }
#define auto_json __attribute__((cleanup(json_decref_cb))) json_t
static inline void box_close_cb(struct den_box **b) { den_box_close(*b); }
#define auto_box __attribute__((cleanup(box_close_cb))) struct den_box
static inline void saved_free_cb(struct den_saved **s) { den_saved_free(*s); }
#define auto_saved __attribute__((cleanup(saved_free_cb))) struct den_saved
int http_status(enum den_code code); /* the one place that maps them */
/* The status for a failure of this request: http_status(), or a better one that is known from where it failed
 * (401 no key, 405, 413, 414, 429, 503). For dialect->fail. */
int req_fail_status(const struct req *r, const struct den_err *err);
void req_set_fail_status(struct req *r, int status); /* by a handler, before it returns -1 */
