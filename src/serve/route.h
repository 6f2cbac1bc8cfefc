/*
 * Routes. A dialect is a const table of them and a function that words a failure. A path is matched by
 * segments; "{x}" takes one segment, decoded after matching (so an encoded slash stays inside). A last "{x...}"
 * takes all the rest, slashes too, as it was sent: not decoded. Of two that fit the one with the literal segment
 * wins, wherever it stands in the table. The method "*" is any; a GET answers HEAD too (without its body).
 */
#pragma once

#include "http.h"

enum auth {
	AUTH_NONE,  /* anybody */
	AUTH_KEY,   /* a key; req_who() says whose */
	AUTH_BOX,   /* the dialect's handler checks a token of the box itself */
	AUTH_ADMIN, /* a key with the scope "admin" */
};

struct route {
	const char *method, *path;
	int (*run)(struct req *r, struct den_err *err);
	enum auth auth;
	size_t max_body;   /* bytes; SIZE_MAX: streamed, never held in memory */
	const char *scope; /* that the key must have ("boxes", "read", "secrets", "templates"); NULL: any key */
};

struct dialect {
	const char *name; /* "v1", "e2b", "envd" */
	const struct route *routes;
	size_t n;
	/* words a failure; called only when nothing was answered yet */
	void (*fail)(struct req *r, const struct den_err *err);
	/* this dialect's key, as the client sent it; NULL: none */
	const char *(*key)(const struct req *r);
	bool cors; /* browsers of any origin may use it (its credentials are headers, never cookies) */
};

/* main.c lists them by hand, in the order in which they are asked; serve.c picks by Host, headers and path. */
extern const struct dialect dialect_v1, dialect_e2b, dialect_envd, dialect_ui, dialect_base, dialect_ports;
