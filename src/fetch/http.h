/*
 * Requests, some at once, over libcurl's multi interface; no threads of ours.
 *
 * A request goes through:
 *
 *   WAITING -> RUNNING   req_start()     a slot is free and its time has come
 *   RUNNING -> WAITING   req_again()     401 and we could log in; a redirect; 429, 5xx or a broken
 *                                        connection, after a pause
 *   RUNNING -> done()    req_end()       an answer that is the caller's to judge, or a failure
 *
 * done() may submit the same request anew, with another URL, and may call http_stop().
 */
#pragma once

#include <curl/curl.h>
#include <stdbool.h>
#include <stdint.h>

#include "auth.h"
#include "buf.h"
#include "challenge.h"
#include "digest.h"
#include "err.h"
#include "mem.h"
#include "url.h"

struct http;

enum http_method { HTTP_GET, HTTP_HEAD, HTTP_POST, HTTP_PUT, HTTP_PATCH };

struct http_req {
	/* What is asked. The texts are the caller's and live as long as the request. */
	enum http_method method;
	char *url; /* the request's: http_req_free() */
	const char *accept, *type; /* type: of the body that is sent */
	char content_range[64]; /* "" for none */
	int body_fd; /* what is sent: bytes of a file, or of memory, or nothing */
	const void *body_mem;
	uint64_t body_at, body_len;
	uint64_t from; /* ask for the bytes from here on */
	bool once; /* a broken connection or a 5xx is not tried again: the caller begins anew */
	bool bare; /* no Authorization, no redirect */
	bool quick; /* the other side is near: connected soon or not at all */
	const char *authorization; /* with bare: this one */

	/* Before each attempt. */
	int (*prepare)(struct http_req *r, struct den_err *err);
	/* Of a 2xx answer: once when its headers are there, then its bytes. NULL: they go to
	 * body. */
	int (*head)(struct http_req *r, struct den_err *err);
	int (*data)(struct http_req *r, const void *p, size_t n, struct den_err *err);
	void (*sent)(struct http_req *r, size_t n); /* bytes of our body that went out */
	void (*done)(struct http_req *r);
	void *user;

	/* What came. */
	bool failed; /* err says why; no answer */
	struct den_err err;
	CURLcode code; /* with failed: why, for who must tell one failure from another */
	long status;
	struct buf body; /* at most DOC_MAX */
	char content_type[128];
	char *location; /* resolved; NULL */
	bool has_digest; /* Docker-Content-Digest */
	struct digest digest;
	int64_t length; /* Content-Length; -1 */
	uint64_t range_from, range_total; /* Content-Range of a 206; total 0: not said */
	bool has_range;
	char range[64]; /* "Range" of an answer to an upload */

	/* The engine's. */
	struct http *http;
	struct list link;
	CURL *easy;
	struct curl_slist *headers;
	char *at; /* the URL after redirects */
	struct challenge challenge;
	char curl_text[CURL_ERROR_SIZE];
	unsigned attempts, starts, redirects, logins, login_turn;
	int64_t not_before;
	uint64_t sent_bytes, head_bytes, refusal_bytes;
	bool head_told, moved, foreign;
};

struct http_opt {
	const char *origin; /* "https://registry.example:5000": the one that gets the credentials */
	const char *ca; /* certificates (PEM) to trust instead of the system's; NULL */
	size_t ca_len;
	unsigned jobs; /* requests at a time */
	unsigned stall_sec; /* give up a connection on which nothing moves */
	bool loopback; /* the registry is on this machine, so it may lead to this machine */
};

int http_new(const struct http_opt *opt, struct auth *auth, struct http **ret, struct den_err *err);
void http_free(struct http *h);
void http_on_tick(struct http *h, void (*tick)(void *user), void *user);

void http_req_init(struct http_req *r);
void http_req_free(struct http_req *r);
void http_submit(struct http *h, struct http_req *r);
/* Until nothing is left to do, or http_stop() was called. */
int http_run(struct http *h, struct den_err *err);
/* Gives up all requests without calling done(). */
void http_stop(struct http *h);
/* One request, alone. -1: there was no answer. */
int http_do(struct http *h, struct http_req *r, struct den_err *err);
/* One request, without retries, while others may be under way. */
int http_once(struct http *h, struct http_req *r, struct den_err *err);
