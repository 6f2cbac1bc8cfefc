/*
 * The exchange itself: what it is made of, and the box's side up to a request's head. The rest is in
 * exchange_head.c (heads), exchange_body.c (bodies), exchange_grant.c and exchange_sign.c (secrets),
 * exchange_up.c (answers) and exchange_say.c (refusals).
 */
#include "exchange.h"

#include <stdio.h>
#include <string.h>

#include "exchange_parts.h"
#include "mem.h"
#include "strv.h"

#define WAITING_MAX (1u << 20) /* bytes from a box that goes on though nobody asked for more */

static char *copy_or_null(const char *s)
{
	return s ? mem_strdup(s) : NULL;
}

static bool printable(const char *s)
{
	if (!s || !*s)
		return false;
	for (; *s; s++)
		if ((unsigned char)*s < ' ' || *s == 0x7f)
			return false;
	return true;
}

static void secret_copy(struct secret *s, const struct exchange_secret *o)
{
	*s = (struct secret){
		.name = mem_strdup(o->name),
		.placeholder = mem_strdup(o->placeholder),
		.value = mem_strdup(o->value),
		.placeholder_len = strlen(o->placeholder),
		.value_len = strlen(o->value),
		.in = o->in,
		.headers = strv_copy((const char *const *)o->headers),
		.queries = strv_copy((const char *const *)o->queries),
		.access_key = copy_or_null(o->access_key),
		.region = copy_or_null(o->region),
		.service = copy_or_null(o->service),
		.session_token = copy_or_null(o->session_token),
	};
}

struct exchange *exchange_new(const struct exchange_options *o)
{
	struct exchange *x = mem_new(struct exchange);

	x->on = *o;
	x->has_name = o->name != NULL;
	if (o->name)
		x->name = *o->name;
	x->has_addr = o->has_addr;
	x->addr = o->addr;
	x->port = o->port;
	x->canaries = o->canaries;
	x->token_audience = copy_or_null(o->token_audience);
	x->token_header = mem_strdup(o->token_header ? o->token_header : "authorization");
	x->rule = copy_or_null(o->rule);
	x->generation = o->generation;
	x->how_to_ask = copy_or_null(o->how_to_ask);
	x->secrets =
		mem_zalloc((MIN(o->n_secrets, EXCHANGE_SECRETS_MAX) + 1) * sizeof(*x->secrets));
	for (unsigned i = 0; i < o->n_secrets && x->n_secrets < EXCHANGE_SECRETS_MAX; i++)
		/* A value that would break out of its header is none; its placeholder stays a canary. */
		if (printable(o->secrets[i].value) && printable(o->secrets[i].placeholder))
			secret_copy(&x->secrets[x->n_secrets++], &o->secrets[i]);
	x->to_value = grant_swap_body(x, TEXT_PLAIN);
	x->to_blank = grant_swap_body(x, TEXT_BLANK);
	x->to_placeholder = grant_swap_answer(x);
	return x;
}

static void wipe(char *s)
{
	if (s)
		explicit_bzero(s, strlen(s));
	free(s);
}

static void buf_wipe(struct buf *b)
{
	if (b->p)
		explicit_bzero(b->p, b->cap);
	buf_free(b);
}

void exchange_free(struct exchange *x)
{
	if (!x)
		return;
	for (unsigned i = 0; i < x->n_secrets; i++) {
		struct secret *s = &x->secrets[i];

		free(s->name);
		free(s->placeholder);
		wipe(s->value);
		strv_free(s->headers);
		strv_free(s->queries);
		free(s->access_key);
		free(s->region);
		free(s->service);
		wipe(s->session_token);
	}
	free(x->secrets);
	sign_end(x);
	swap_free(x->to_value);
	swap_free(x->to_blank);
	swap_free(x->to_placeholder);
	free(x->token_audience);
	free(x->token_header);
	for (unsigned i = 0; i < TOKENS_MAX; i++)
		wipe(x->tokens[i]);
	free(x->rule);
	free(x->how_to_ask);
	buf_wipe(&x->in);
	buf_wipe(&x->head);
	buf_wipe(&x->hold);
	buf_wipe(&x->piece);
	buf_wipe(&x->meta);
	buf_wipe(&x->up_in);
	buf_wipe(&x->up_meta);
	buf_wipe(&x->refusal);
	exchange_budget_count(&x->counted, 0);
	free(x);
}

/* ---- a request --------------------------------------------------------------------------------- */

/* Without a port the Host means the port of the connection: there is no other that it could reach. */
static bool host_right(const struct exchange *x, const struct http_head *h)
{
	if (h->host_port && h->host_port != x->port)
		return false;
	if (x->has_name)
		return !h->host_is_addr && strcmp(h->host.s, x->name.s) == 0;
	if (x->has_addr)
		return h->host_is_addr && net_addr_equal(&h->host_addr, &x->addr);
	return true;
}

static int host_refuse(struct exchange *x, const struct http_head *h, struct buf *to_box)
{
	char detail[640], said[300];

	if (h->host_is_addr)
		net_addr_format(&h->host_addr, said);
	else
		snprintf(said, sizeof(said), "%s", h->host.s);
	snprintf(detail, sizeof(detail),
		"this connection was made to %s port %u, the Host is %s port %u",
		x->has_name ? x->name.s : "an address", x->port, said,
		h->host_port ? h->host_port : x->port);
	return exchange_refuse(
		x, 403, "a request for another Host than the one connected to", detail, to_box);
}

static time_t now_of(const struct exchange *x)
{
	return x->on.now ? x->on.now(x->on.user) : time(NULL);
}

/* 1: the head stays where it is until there is a token. */
static int box_request(
	struct exchange *x, const struct http_head *h, struct buf *to_up, struct buf *to_box)
{
	x->next = (struct asked){
		.http11 = h->minor == 1, .close = !h->keep_alive, .upgrade = h->upgrade
	};
	snprintf(x->next.method, sizeof(x->next.method), "%s", h->method);
	x->websocket = h->upgrade && http_has_token(h, "upgrade", "websocket");
	x->ws = (struct ws_scan){ 0 };
	if (strcmp(h->method, "CONNECT") == 0)
		return exchange_refuse(x, 405, "CONNECT: connect to the name itself", NULL, to_box);
	if (!h->has_host && (x->has_name || x->has_addr))
		return exchange_refuse(x, 400, "a request without a Host", NULL, to_box);
	if (h->has_host && !host_right(x, h))
		return host_refuse(x, h, to_box);
	if (x->token_audience && (!x->tokens[0] || now_of(x) >= x->token_until)) {
		x->box = BOX_TOKEN;
		return 1;
	}
	return request_begin(x, h, to_up, to_box);
}

static int head_refuse(
	struct exchange *x, const char *p, size_t n, const char *bad, struct buf *to_box)
{
	static const char preface[] = "PRI * HTTP/2";

	x->next = (struct asked){ 0 };
	if (n >= sizeof(preface) - 1 && memcmp(p, preface, sizeof(preface) - 1) == 0)
		return exchange_refuse(
			x, 505, "HTTP/2 without being asked for: use HTTP/1.1", NULL, to_box);
	return exchange_refuse(x, 400, "a request that is not clean HTTP/1.1", bad, to_box);
}

/* A head is looked at when a line has ended, not for each byte: that would be quadratic. */
static int box_head(struct exchange *x, const char *p, size_t n, size_t *used, struct buf *to_up,
	struct buf *to_box)
{
	struct http_head h;
	const char *bad = "";
	bool fresh;
	int r;

	*used = 0;
	fresh = memchr(p + x->in_seen, '\n', n - x->in_seen) != NULL;
	x->in_seen = n;
	if (!fresh && n <= HTTP_HEAD_MAX)
		return 0;
	switch (http_request_parse(p, n, &h, &bad)) {
	case HTTP_MORE:
		return 0;
	case HTTP_BAD:
		return head_refuse(x, p, n, bad, to_box);
	default:
		break;
	}
	r = box_request(x, &h, to_up, to_box);
	if (r == 0) {
		*used = h.head_len;
		x->in_seen = 0;
	}
	http_head_free(&h);
	return r < 0 ? -1 : 0;
}

static int box_raw(struct exchange *x, const char *p, size_t n, size_t *used, struct buf *to_up,
	struct buf *to_box)
{
	int found = canary_feed(x->canaries, &x->scan, p, n);

	if (found < 0 && x->websocket)
		found = ws_look(x->canaries, &x->ws, p, n);
	if (found >= 0) {
		x->answering = true; /* these are not HTTP any more: nothing can be said */
		return exchange_incident(x, found, "upgraded connection", true, to_box);
	}
	buf_add(to_up, p, n);
	*used = n;
	return 0;
}

/* May the next head be read? Not behind a request that ends the connection. */
static bool head_may(const struct exchange *x)
{
	return x->asked_n < EXCHANGE_PIPELINE && !x->close && !x->draining &&
	       !(x->asked_n && x->asked[(x->asked_at + x->asked_n - 1) % EXCHANGE_PIPELINE].close);
}

static int box_run(struct exchange *x, const char *p, size_t n, size_t *used, struct buf *to_up,
	struct buf *to_box)
{
	*used = 0;
	while (*used < n) {
		size_t took = 0;
		int r = 0;

		if (x->box == BOX_HEAD && head_may(x))
			r = box_head(x, p + *used, n - *used, &took, to_up, to_box);
		else if (x->box == BOX_BODY)
			r = request_body(x, p + *used, n - *used, &took, to_up, to_box);
		else if (x->box == BOX_RAW)
			r = box_raw(x, p + *used, n - *used, &took, to_up, to_box);
		*used += took;
		if (r < 0 || !took)
			return r;
	}
	return 0;
}

/* Goes on with what waits. -1: the end; a refusal that waits for its turn is not the end yet. */
static int box_resume(struct exchange *x, struct buf *to_up, struct buf *to_box)
{
	size_t used;

	if (box_run(x, x->in.p, x->in.len, &used, to_up, to_box) < 0)
		return x->box == BOX_REFUSED ? 0 : -1;
	buf_consume(&x->in, used);
	return 0;
}

/* Keeps bytes of the box's that cannot be understood yet. */
static int box_keep(struct exchange *x, const char *p, size_t n, struct buf *to_box)
{
	if (!budget_allows(x, &x->in, n)) {
		exchange_busy(x, "too many requests are on their way at the same time", false, to_box);
		return x->box == BOX_REFUSED ? 0 : -1;
	}
	buf_add(&x->in, p, n);
	return 0;
}

/* What was under way is done: what is left is not taken any more. */
static int box_drained(struct exchange *x, struct buf *to_box)
{
	if (!x->draining || x->close || x->asked_n || (x->box != BOX_HEAD && x->box != BOX_TOKEN))
		return 0;
	if (x->in.len)
		return exchange_busy(x, "the policy changed while this request came", false, to_box);
	x->close = x->requests > 0; /* who has asked nothing would take a plain end for an error */
	return 0;
}

static int from_box(struct exchange *x, const char *p, size_t n, struct buf *to_up, struct buf *to_box)
{
	size_t used;
	int r;

	if (x->box == BOX_OVER)
		return -1;
	if (x->box == BOX_REFUSED || !n)
		return 0;
	if (x->in.len) {
		r = box_keep(x, p, n, to_box);
		if (r == 0 && x->box != BOX_REFUSED)
			r = box_resume(x, to_up, to_box);
	} else if (box_run(x, p, n, &used, to_up, to_box) < 0) {
		r = x->box == BOX_REFUSED ? 0 : -1;
	} else {
		r = box_keep(x, p + used, n - used, to_box);
	}
	if (r == 0 && x->in.len > WAITING_MAX)
		return exchange_over(x, "the box sends though nothing is taken from it");
	return r < 0 ? r : box_drained(x, to_box);
}

int exchange_from_box(struct exchange *x, const char *p, size_t n, struct buf *to_up,
	struct buf *to_box, const char **why)
{
	int r = from_box(x, p, n, to_up, to_box);

	*why = x->why;
	budget_settle(x);
	return r;
}

/* The same for upstream's. */
static int up_keep(struct exchange *x, const char *p, size_t n, struct buf *to_box)
{
	if (!budget_allows(x, &x->up_in, n))
		return exchange_bad_answer(
			x, "too many answers are on their way at the same time", NULL, to_box);
	buf_add(&x->up_in, p, n);
	return 0;
}

static int from_up(struct exchange *x, const char *p, size_t n, bool eof, struct buf *to_box,
	struct buf *to_up)
{
	size_t used = 0;
	int r;

	if (x->box == BOX_OVER)
		return -1;
	if (!n) {
		r = 0;
	} else if (x->up_in.len) {
		r = up_keep(x, p, n, to_box);
		if (r == 0)
			r = answer_run(x, x->up_in.p, x->up_in.len, &used, to_box);
		buf_consume(&x->up_in, used);
	} else {
		r = answer_run(x, p, n, &used, to_box);
		if (r == 0 && !x->close) /* what comes behind the last answer is nobody's */
			r = up_keep(x, p + used, n - used, to_box);
	}
	if (r < 0 || exchange_say_refusal(x, to_box) < 0 || box_resume(x, to_up, to_box) < 0 ||
		box_drained(x, to_box) < 0)
		return -1;
	return eof ? answer_eof(x, to_box) : 0;
}

int exchange_from_up(struct exchange *x, const char *p, size_t n, bool eof, struct buf *to_box,
	struct buf *to_up, const char **why)
{
	int r = from_up(x, p, n, eof, to_box, to_up);

	*why = x->why;
	budget_settle(x);
	return r;
}

/* An answer to an earlier request may be on its way, in the middle of an earlier token. */
static void token_put(struct exchange *x, const char *token, time_t until)
{
	struct swap *old = x->to_placeholder;

	wipe(x->tokens[TOKENS_MAX - 1]);
	memmove(x->tokens + 1, x->tokens, (TOKENS_MAX - 1) * sizeof(*x->tokens));
	x->tokens[0] = mem_strdup(token);
	x->token_until = until;
	x->to_placeholder = grant_swap_answer(x);
	swap_follow(x->to_placeholder, old);
	swap_free(old);
}

int exchange_give_token(struct exchange *x, const char *token, time_t until, struct buf *to_up,
	struct buf *to_box, const char **why)
{
	int r;

	*why = x->why;
	if (x->box != BOX_TOKEN)
		return x->box == BOX_OVER ? -1 : 0;
	x->box = BOX_HEAD;
	x->in_seen = 0;
	if (!token || !printable(token) || until <= now_of(x)) {
		exchange_refuse(
			x, 502, "no identity token could be had for this host", NULL, to_box);
		return x->box == BOX_REFUSED ? 0 : -1;
	}
	token_put(x, token, until);
	r = box_resume(x, to_up, to_box);
	budget_settle(x);
	return r;
}

int exchange_drain(struct exchange *x, bool stale, struct buf *to_box, const char **why)
{
	bool held = x->mode == BODY_HOLD; /* with its head, and that has the old value */
	int r;

	*why = x->why;
	if (x->box == BOX_OVER)
		return -1;
	x->draining = true;
	if (stale && x->box == BOX_BODY && (held || x->swap_body)) {
		exchange_busy(x, "a secret changed while this request came", !held, to_box);
		r = x->box == BOX_REFUSED ? 0 : -1;
	} else {
		r = box_drained(x, to_box);
	}
	budget_settle(x);
	return r;
}

bool exchange_wants_box(const struct exchange *x)
{
	return x->box == BOX_BODY || x->box == BOX_RAW ||
	       (x->box == BOX_HEAD && (head_may(x) || (x->draining && !x->requests && !x->in.len)));
}

const char *exchange_needs_token(const struct exchange *x)
{
	return x->box == BOX_TOKEN ? x->token_audience : NULL;
}

bool exchange_idle(const struct exchange *x)
{
	return x->box == BOX_HEAD && !x->in.len && !x->asked_n && x->up == UP_HEAD && !x->up_in.len;
}

bool exchange_raw(const struct exchange *x)
{
	return x->box == BOX_RAW;
}

bool exchange_wants_close(const struct exchange *x)
{
	return x->close;
}

unsigned exchange_requests(const struct exchange *x)
{
	return x->requests;
}

int exchange_last_status(const struct exchange *x)
{
	return x->last_status;
}
