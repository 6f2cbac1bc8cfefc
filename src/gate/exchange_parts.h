/* Between the files of the exchange; nobody else includes this. */
#pragma once

#include "exchange.h"
#include "http.h"
#include "http_body.h"
#include "sigv4.h"
#include "swap.h"

struct secret {
	char *name, *placeholder, *value;
	size_t placeholder_len, value_len;
	unsigned in;
	char **headers, **queries;
	char *access_key, *region, *service, *session_token;
};

/* A request whose answer is not complete. */
struct asked {
	char method[32]; /* frames the answer */
	bool http11; /* may be answered with chunks */
	bool close; /* asked for the connection to end */
	bool upgrade;
};

/*
 * The box's side:
 *   HEAD    -> TOKEN    box_request()     a token has to be added and there is none
 *   HEAD    -> BODY     request_begin()   the head went out, or waits for its body (BODY_HOLD)
 *   HEAD, BODY -> UPGRADE request_end()   another protocol was asked for: nothing more until the answer
 *   TOKEN   -> HEAD     exchange_give_token()
 *   BODY    -> HEAD     request_end()
 *   UPGRADE -> HEAD     answer_begin()    upstream did not want to
 *   UPGRADE -> RAW      answer_begin()    101
 *   any     -> REFUSED  exchange_refuse() the answer waits until the requests before it are answered
 *   any     -> OVER     both sides are to be closed
 */
enum box_state { BOX_HEAD, BOX_TOKEN, BOX_BODY, BOX_UPGRADE, BOX_RAW, BOX_REFUSED, BOX_OVER };
enum up_state { UP_HEAD, UP_BODY, UP_RAW };

enum body_mode {
	BODY_LENGTH, /* as it comes, Content-Length as it was */
	BODY_CHUNKS, /* in chunks of our own */
	BODY_HOLD, /* all of it first: its length or its hash goes into the head */
	BODY_CLOSE, /* answers: until the end of the connection */
};

/* What the gate signs anew. */
struct signing {
	const struct secret *secret; /* NULL: nothing */
	char access_key[129], region[65], service[65];
	char payload[129]; /* "": hash of the body */
	bool put_hash; /* the box's hash is not right any more */
	char *names; /* of signed headers, as the box's signature has them */
};

/* A secret that this request has, told when it goes out. */
#define USES_MAX 16
struct use {
	unsigned secret;
	char where[80];
};

/* What a body is, by its Content-Type: how a value is written in it. */
enum body_text { TEXT_PLAIN, TEXT_FORM, TEXT_JSON, TEXT_BLANK };

/* The frames that a box sends. */
struct ws_scan {
	struct canary_scan scan;
	uint8_t head[14], have, key[4];
	uint32_t at; /* in the payload, for the mask */
	uint64_t left; /* of the payload */
};

#define TOKENS_MAX 4 /* that an answer may still have: the newest is the first */

struct exchange {
	struct net_name name;
	bool has_name, has_addr;
	struct net_addr addr;
	uint16_t port;
	struct secret *secrets;
	unsigned n_secrets;
	const struct canary *canaries;
	char *token_audience, *token_header, *tokens[TOKENS_MAX];
	time_t token_until;
	char *rule, *how_to_ask;
	uint64_t generation;
	struct exchange_options on; /* callbacks alone */

	enum box_state box;
	struct buf in; /* from the box, not understood yet */
	size_t in_seen; /* of it, without an end of a line */
	struct buf head; /* the head of this request for upstream, without framing and end */
	struct http_body body;
	enum body_mode mode;
	bool has_body, swap_body; /* of this request */
	bool drop_expect; /* answered here, since the body is waited for */
	uint64_t length; /* BODY_LENGTH */
	enum body_text text;
	struct swap *to_value; /* placeholders to values, as text; NULL: no such grant */
	struct swap *to_blank; /* the same placeholders to nothing: the rest must be clean */
	uint64_t body_used; /* secrets that were put into this body */
	struct canary_scan scan;
	struct buf hold; /* BODY_HOLD */
	struct buf piece; /* scratch, empty between calls */
	struct buf meta; /* framing since the last payload: at its end are the trailers */
	struct asked next; /* this request's entry, until its head is out */
	struct signing sign;
	struct use uses[USES_MAX];
	unsigned n_uses;
	bool websocket; /* was asked for */
	struct ws_scan ws;
	bool upgrade_asked; /* and not answered */
	struct asked asked[EXCHANGE_PIPELINE]; /* a ring */
	unsigned asked_at, asked_n;

	enum up_state up;
	struct buf up_in;
	size_t up_seen;
	struct http_body up_body;
	enum body_mode up_mode;
	bool up_until_eof; /* upstream ends this body with the connection */
	struct swap *to_placeholder; /* values to placeholders; NULL: no secrets, no token */
	struct buf up_meta;
	bool answer_ends; /* the connection ends after this answer */
	bool answering; /* something of the answer to the oldest request was sent */
	bool close;
	bool draining; /* no further head is taken */

	size_t counted; /* in the budget */
	struct buf refusal;
	char why[160];
	unsigned requests;
	int last_status;
};

/* exchange_head.c: the head of a request for upstream, into x->head. x->mode is known. */
int head_build(struct exchange *x, const struct http_head *h, struct buf *to_box);
/* Puts framing and, if it is to be, the signature at its end, and all of it to out. */
int head_finish(struct exchange *x, struct buf *out, struct buf *to_box);

/* exchange_grant.c. Secrets are a mask of their numbers. real gets the text with values for placeholders
 * of these secrets, clean with something in their place that no placeholder is in. False: there were
 * none, and nothing was appended. `where` is for the record. */
bool grant_text(struct exchange *x, const char *p, size_t n, uint64_t mask, const char *where,
	struct buf *real, struct buf *clean);
uint64_t grant_mask(const struct exchange *x, unsigned in);
/* Always append. */
void grant_field(
	struct exchange *x, const struct http_field *f, struct buf *real, struct buf *clean);
void grant_target(struct exchange *x, const char *p, size_t n, struct buf *real, struct buf *clean);
void grant_used(struct exchange *x, unsigned secret, const char *where);
void grant_tell(struct exchange *x); /* the uses so far */
struct swap *grant_swap_body(
	const struct exchange *x, enum body_text text); /* NULL: no such grant */
struct swap *grant_swap_answer(const struct exchange *x); /* NULL: no secrets, no token */

/* Is there anything that an answer must not give back? */
bool grant_guards(const struct exchange *x);
/* ... and that goes upstream as it is? A key that only signs does not. */
bool grant_shows(const struct exchange *x);

/* exchange_budget.c: counts what x keeps now, and gives back what is empty. */
void budget_settle(struct exchange *x);
/* May b of x grow by so many bytes? */
bool budget_allows(const struct exchange *x, const struct buf *b, size_t more);

/* exchange_ws.c: the canary in masked frames, or -1. */
int ws_look(const struct canary *c, struct ws_scan *w, const char *p, size_t n);

/* exchange_sign.c: is this request to be signed, and how? */
int sign_begin(struct exchange *x, const struct http_head *h, struct buf *to_box);
/* Is this field of the box's dropped, since the gate puts in its own? */
bool sign_drops(const struct exchange *x, const struct http_field *f);
int sign_finish(struct exchange *x, struct buf *to_box);
void sign_end(struct exchange *x);

/* exchange_body.c: the body of a request. */
int request_begin(
	struct exchange *x, const struct http_head *h, struct buf *to_up, struct buf *to_box);
int request_body(struct exchange *x, const char *p, size_t n, size_t *used, struct buf *to_up,
	struct buf *to_box);
/* Framing bytes of a chunked body, all but the payload; those since the last payload are kept. */
void meta_add(struct buf *meta, const char *p, size_t used, const char *data, size_t data_len);
/* The fields behind the last chunk that are at their end, each with its line end; may be empty. */
void meta_trailers(const struct buf *meta, const char **p, size_t *n);
void chunk_put(struct buf *out, const char *p, size_t n);

/* exchange_up.c: takes of p what it can. 0 or -1. */
int answer_run(struct exchange *x, const char *p, size_t n, size_t *used, struct buf *to_box);
int answer_eof(struct exchange *x, struct buf *to_box);

/* exchange_say.c. All give -1. what is static text, for the record; detail may be NULL. A refusal is
 * said when the requests before it are answered: until then the state is REFUSED. */
int exchange_refuse(
	struct exchange *x, int status, const char *what, const char *detail, struct buf *to_box);
/* 503: nothing is wrong with the request, so it is no denial. */
int exchange_busy(struct exchange *x, const char *what, bool partly_out, struct buf *to_box);
/* An incident; partly_out: bytes of this request went upstream already, so there is no waiting. */
int exchange_incident(
	struct exchange *x, int canary, const char *where, bool partly_out, struct buf *to_box);
/* Something of the request is upstream: both sides end now. */
int exchange_cut(struct exchange *x, int status, const char *what, struct buf *to_box);
/* Upstream did wrong: 502 if the box was told nothing of its answer yet. */
int exchange_bad_answer(
	struct exchange *x, const char *what, const char *detail, struct buf *to_box);
/* The end, without words. */
int exchange_over(struct exchange *x, const char *why);
/* A refusal whose turn it is: -1. 0: none, or not yet. */
int exchange_say_refusal(struct exchange *x, struct buf *to_box);
