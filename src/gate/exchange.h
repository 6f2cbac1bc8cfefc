/*
 * HTTP/1.1 between a box and one upstream, over one connection, without sockets: it is fed with the
 * bytes of either side (decrypted, where the gate ends TLS) and gives the bytes for either side.
 *
 *   - Every request must be for the connection's name. CONNECT and HTTP/2 are refused. What is forwarded
 *     is written anew from what was understood, so upstream cannot understand it otherwise.
 *   - A granted secret's placeholder becomes the value in the granted places, in no other.
 *   - Any placeholder of the box anywhere else is an incident: 403, nothing of that request goes out. In
 *     a body that is on its way already, the connection is cut before the piece that completes it.
 *   - The value that comes back becomes the placeholder again, in heads, bodies and after an upgrade.
 *     For that to work upstream is asked for no compression; an answer that is compressed all the same is
 *     refused (502), for nobody can look into it without unpacking a stranger's data in the gate.
 *     Known encodings (percent, JSON, HTML, base64, hex) are found as well, and a part of an answer cannot
 *     be asked for (Range). A granted host that can be made to give its callers' credentials back in
 *     pieces by itself or reckoned into something else cannot be helped.
 *   - A token that the gate adds is guarded the same way: EXCHANGE_TOKEN_GONE comes in its place.
 *
 * Nothing is buffered but heads (64 KiB), and where the grant demands it, bodies: at most
 * EXCHANGE_SWAP_MAX to keep a Content-Length, at most EXCHANGE_SIGN_MAX to sign what is hashed nowhere; of
 * all exchanges together EXCHANGE_BUDGET, beyond that a request gets a 503.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "addr.h"
#include "buf.h"
#include "canary.h"
#include "name.h"

#define EXCHANGE_PIPELINE 32
#define EXCHANGE_SWAP_MAX (64u << 10)
#define EXCHANGE_SIGN_MAX (8u << 20)
#define EXCHANGE_BUDGET (128u << 20)
#define EXCHANGE_TOKEN_GONE "den-token-withheld"

enum exchange_in {
	EXCHANGE_IN_HEADER = 1 << 0, /* the headers in `headers` */
	EXCHANGE_IN_BEARER = 1 << 1, /* Authorization: Bearer PLACEHOLDER */
	EXCHANGE_IN_BASIC = 1 << 2, /* Authorization: Basic, user or password */
	EXCHANGE_IN_QUERY = 1 << 3, /* the parameters in `queries`; any if there are none */
	EXCHANGE_IN_BODY = 1 << 4,
	EXCHANGE_IN_SIGV4 = 1 << 5,
};

/* A secret granted to this host and port. All strings are copied. */
#define EXCHANGE_SECRETS_MAX 64 /* on one connection; further ones are not granted */
struct exchange_secret {
	const char *name; /* for records */
	const char *placeholder; /* not empty, printable ASCII */
	const char *value; /* not empty, no control characters; else, or if NULL, it is not granted */
	unsigned in; /* enum exchange_in */
	char *const *headers; /* NULL-terminated, any case; NULL: none */
	char *const *queries;
	/* sigv4: NULL takes what the box's own signature says; otherwise it must say the same. */
	const char *access_key, *region, *service;
	const char *session_token; /* NULL: none */
};

struct exchange_options {
	/* Whom every Host must name. NULL name and has_addr false: any Host passes (a flow to an address that
	 * a CIDR rule allows). */
	const struct net_name *name;
	bool has_addr;
	struct net_addr addr;
	uint16_t port;

	const struct exchange_secret *secrets;
	unsigned n_secrets;
	/* All placeholders of the box, those of `secrets` too. Borrowed; may be NULL. */
	const struct canary *canaries;

	/* The gate adds a token by itself: NULL audience means no. A header of that name from the box is
	 * dropped. header "authorization" gets "Bearer TOKEN", others the bare token. */
	const char *token_audience;
	const char *token_header;

	/* For the body of a refusal. NULL leaves the line out. */
	const char *rule;
	uint64_t generation;
	const char *how_to_ask; /* "den policy set BOX --allow NAME" ... */

	/* Records; each may be NULL. `where` is a place such as "header x-api-key", "query", "body": a line
	 * of printable ASCII, valid during the call. `what` is static text. */
	void *user;
	void (*used)(void *user, const char *secret, const char *where);
	void (*incident)(void *user, unsigned canary, const char *where);
	void (*denied)(void *user, const char *what);
	/* Is this the placeholder of a secret that is granted here and has no value any more? Its name, or NULL. */
	const char *(*gone)(void *user, unsigned canary);
	time_t (*now)(void *user); /* NULL: time() */
};

struct exchange;
struct exchange *exchange_new(const struct exchange_options *o);
/* Wipes the values. */
void exchange_free(struct exchange *x);

/*
 * Bytes from the box, or from upstream (eof: and nothing after them). What is to be sent is appended.
 * 0, or -1: send what was appended, then close both sides; *why says it in a line that lasts as long as
 * x. An answer for the box that explains was appended where one can be.
 */
int exchange_from_box(struct exchange *x, const char *p, size_t n, struct buf *to_up,
	struct buf *to_box, const char **why);
int exchange_from_up(struct exchange *x, const char *p, size_t n, bool eof, struct buf *to_box,
	struct buf *to_up, const char **why);

/* False: feed no more from the box for now (a token is waited for, an upgrade is not answered yet, too
 * many requests are under way): stop reading it. Ask again after any other call. Bytes fed all the same
 * are kept. */
bool exchange_wants_box(const struct exchange *x);
/* Non-NULL: get a token for this audience and call exchange_give_token(). */
const char *exchange_needs_token(const struct exchange *x);
/* token NULL: there is none, the box gets a 502. Used until `until` (Unix time), then asked for again. */
int exchange_give_token(struct exchange *x, const char *token, time_t until, struct buf *to_up,
	struct buf *to_box, const char **why);
/*
 * The policy is another now: no further request is taken, those under way are finished, then the connection
 * is to be closed. One that is not whole yet gets a 503. stale: values of secrets changed, so none is put
 * into anything from now on; a request whose body still had to get one is refused or cut. May be called again.
 */
int exchange_drain(struct exchange *x, bool stale, struct buf *to_box, const char **why);
/* No request is under way and nothing is held: the connection may be closed without loss. */
bool exchange_idle(const struct exchange *x);
/* After a 101: bytes pass in both directions. */
bool exchange_raw(const struct exchange *x);
/* Upstream (or the box) wants the connection closed after what was sent: close when it is flushed. */
bool exchange_wants_close(const struct exchange *x);
/* Memory that others hold for exchanges is of the same budget: *counted, zero at first, becomes now. */
void exchange_budget_count(size_t *counted, size_t now);
size_t exchange_budget_used(void);
/* Requests forwarded so far, and the status of the last answer (0: none), for the journal. */
unsigned exchange_requests(const struct exchange *x);
int exchange_last_status(const struct exchange *x);
