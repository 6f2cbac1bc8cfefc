/* Within http*.c: the engine (http.c) and what libcurl is told and tells (http_parts.c). */
#pragma once

#include "http.h"

struct http {
	struct http_opt opt;
	struct auth *auth;
	struct origin home;
	CURLM *multi;
	struct list waiting, running;
	unsigned n_running;
	bool stopped, reached;
	void (*tick)(void *user);
	void *tick_user;
};

/* Makes r->easy for the next attempt and forgets the last answer. */
int req_set_up(struct http *h, struct http_req *r, struct den_err *err);
/* An answer is complete: what is left to read from it. May set r->err. */
void req_answered(struct http_req *r);
/* An error that says what r->code means and what to do. */
int http_code_fail(const struct http_req *r, struct den_err *err);
