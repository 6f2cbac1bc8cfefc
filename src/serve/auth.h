/*
 * Keys: who may ask. A key is "den_" or "e2b_" (the same key; old clients insist on the second) and 40
 * hexadecimal digits; the database has its SHA-256. An organisation has many keys, and owns what they make.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "err.h"

struct req;

struct quota { /* 0: none */
	uint64_t boxes, cpu_milli, memory, disk; /* of all boxes of the key together */
	uint64_t rate;				 /* requests a minute */
};

struct who {
	char org[33];  /* a-z 0-9 -, "default" for the first */
	char key[17];  /* id of the key, not secret */
	char name[65]; /* for people */
	bool admin;    /* all boxes, all organisations, keys */
	uint32_t scopes; /* bits, auth.c */
	struct quota quota;
};

/* The server's secret and tables; before the first thread. */
int auth_start(struct den_err *err);

/* Checks a key as sent, with the limits on attempts. *ret set on success. DEN_DENIED: no such key (401);
 * DEN_LIMIT: too many attempts or requests (429, Retry-After is set). A session of the page (below) is taken
 * too; then what changes something needs the header X-Den-Page, and an upgrade an Origin that is this host. */
int auth_check(struct req *r, const char *key, struct who *ret, struct den_err *err);
/* Is the key that was checked earlier still one? When that cannot be told, it is. */
bool auth_still(const struct who *w);
bool auth_scope(const struct who *w, const char *scope);
/* For struct dialect.key: from "Authorization: Bearer", X-API-Key, or the cookie of a session. NULL: none.
 * Valid until this thread asks again. */
const char *auth_sent(const struct req *r);

/* What belongs to an organisation by name (secrets, policies, templates): "default" has plain names, others
 * "o.ORG.NAME". DEN_INVALID: the name cannot be one. free() *ret */
int auth_name(const struct who *w, const char *name, char **ret, struct den_err *err);
/* The name as its organisation sees it, or NULL: it is another's. Plain names of templates are everybody's
 * to read (shared true). */
const char *auth_name_seen(const struct who *w, const char *stored, bool shared);

/* Tokens of boxes: derived from the server's own secret, so nothing is stored and a restart changes nothing.
 * what: "envd", "traffic". 40 hexadecimal digits. */
void auth_box_token(const char *box_id, const char *what, char out[static 41]);
bool auth_same(const char *a, const char *b); /* in constant time; false if one is NULL or empty */

/* Sessions of the page: a cookie for who has shown a key. Stored hashed; they end after 12 hours, with
 * auth_session_end(), and with the key. */
#define AUTH_SESSION 45 /* "ses_", 40 hexadecimal digits, NUL */
#define AUTH_SESSION_MS (12 * 3600 * 1000LL)
int auth_session_make(const struct who *w, char ret[static AUTH_SESSION], struct den_err *err);
int auth_session_check(const char *session, struct who *ret, struct den_err *err); /* DEN_DENIED */
int auth_session_end(const char *session, struct den_err *err);
/* What the cookie is called: "den_session", or over TLS "__Host-den_session" (which needs Secure and Path=/): a
 * browser lets no other host set that one, so no box can plant a session at PORT-ID.DOMAIN. */
const char *auth_session_cookie(const struct req *r);
bool auth_session_is(const char *cookie); /* "NAME=VALUE" is one of the two: not a box's to see or set */
/* The cookie's value, if the request has it once; NULL. Who sends two has been given one by somebody else, and
 * nothing tells which. Valid until this thread asks again. */
const char *auth_session_sent(const struct req *r);
