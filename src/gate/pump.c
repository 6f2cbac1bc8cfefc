/*
 * Bytes that are looked at: HTTP in clear, HTTP in TLS that ends here, and what is none of these where
 * the box has placeholders that must not get out. Both sides are streams, with or without TLS; between
 * them stands an exchange (exchange.h), or a scan alone.
 */
#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <string.h>
#include <sys/socket.h>

#include "clock.h"
#include "exchange.h"
#include "flow.h"
#include "mint.h"
#include "tls_ctx.h"

/* On the way to a side that does not take it: then the other waits. Of all flows together HELD_ALL. */
#define HELD_MAX (256U << 10)
#define HELD_MIN (16U << 10)
#define HELD_ALL (64U << 20)
#define ROUNDS 16
/* idle ones have no buffers */
#define TLS_MODE (SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS)
#define SECRETS_MAX 64

struct side {
	SSL *ssl; /* NULL: in clear */
	bool met; /* the handshake is done */
	bool eof;
	bool broken; /* takes no more */
	uint32_t wants;
	struct buf out;
	size_t sent;
};

struct pump {
	struct side box, up;
	struct exchange *x; /* NULL: a scan */
	struct canary_scan scan;
	struct token_wait token;
	struct flow *f;
	bool closing; /* when what is for the box has gone */
	bool answered; /* the box got bytes: an error page would come too late */
	size_t counted; /* of what waits to be sent, in the budget of exchanges */
};

static char piece[16384];

/* ---- records ---- */

static void on_used(void *user, const char *secret, const char *place)
{
	struct flow *f = user;
	struct where w = flow_where(f);

	record_secret(f->g, &w, secret, place);
}

static void on_incident(void *user, unsigned canary, const char *place)
{
	struct flow *f = user;
	struct where w = flow_where(f);

	record_incident(f->g, &w,
		canary < f->cfg->n_canaries ? f->cfg->secrets[f->cfg->canary_of[canary]].name : "?", place);
}

/* Several grants may share a placeholder. */
static const char *on_gone(void *user, unsigned canary)
{
	struct flow *f = user;
	const struct gate_secret *all = f->cfg->secrets;

	if (!f->named || !f->v.terminate || canary >= f->cfg->n_canaries)
		return NULL;
	for (int i = -1; (i = policy_next_secret(f->cfg->policy, &f->name, f->port, i)) >= 0;)
		if (!all[i].value && !strcmp(all[i].placeholder, all[f->cfg->canary_of[canary]].placeholder))
			return all[i].name;
	return NULL;
}

static void on_denied(void *user, const char *what)
{
	struct flow *f = user;
	struct where w = flow_where(f);

	if (!strcmp(what, "a secret that was removed")) {
		record_denial(f->g, &w, f->v.rule, what);
		return;
	}
	/* of many words; the reasons in records are a few */
	record_denial(f->g, &w, f->v.rule, "the request is not for the name, or not plain HTTP/1.1");
}

/* ---- making one ---- */

static void put_secret(struct flow *f, int i, struct exchange_secret *s)
{
	const struct policy_secret *p = &f->cfg->policy->secrets[i];

	static_assert((int)PLACE_HEADER == (int)EXCHANGE_IN_HEADER && (int)PLACE_BEARER == (int)EXCHANGE_IN_BEARER &&
		(int)PLACE_BASIC == (int)EXCHANGE_IN_BASIC && (int)PLACE_QUERY == (int)EXCHANGE_IN_QUERY &&
		(int)PLACE_BODY == (int)EXCHANGE_IN_BODY && (int)PLACE_SIGV4 == (int)EXCHANGE_IN_SIGV4,
		"the policy and the exchange name places alike");
	*s = (struct exchange_secret){ .name = p->name, .placeholder = f->cfg->secrets[i].placeholder,
		.value = f->cfg->secrets[i].value, .in = p->places, .headers = p->headers,
		.queries = p->queries, .access_key = p->access_key, .region = p->region,
		.service = p->service };
}

/* One, and the others that stand for the same. */
static void put_secrets(struct flow *f, int i, struct exchange_secret *to, unsigned *n)
{
	char *const *also = f->cfg->secrets[i].also;

	put_secret(f, i, &to[(*n)++]);
	for (size_t k = 0; also && also[k] && *n < SECRETS_MAX; k++) {
		to[*n] = to[*n - 1];
		to[(*n)++].placeholder = also[k];
	}
}

static struct exchange *make_exchange(struct flow *f)
{
	struct exchange_secret secrets[SECRETS_MAX];
	struct exchange_options o = { .port = f->port, .secrets = secrets, .canaries = f->cfg->canaries,
		.rule = f->v.rule, .generation = f->cfg->generation, .how_to_ask = f->cfg->ask, .user = f,
		.used = on_used, .incident = on_incident, .denied = on_denied,
		.gone = on_gone };
	const struct policy *p = f->cfg->policy;

	if (f->named)
		o.name = &f->name;
	if (f->named && f->v.terminate) {
		for (int i = policy_next_secret(p, &f->name, f->port, -1); i >= 0 && o.n_secrets < SECRETS_MAX;
			i = policy_next_secret(p, &f->name, f->port, i))
			put_secrets(f, i, secrets, &o.n_secrets);
		for (int i = policy_next_add(p, &f->name, f->port, -1); i >= 0; i = -1) {
			o.token_audience = p->identity.adds[i].audience;
			o.token_header = p->identity.adds[i].header;
		}
	}
	return exchange_new(&o);
}

static int make_tls(struct flow *f, struct den_err *err)
{
	struct pump *p = f->pump;
	SSL_CTX *server, *client;

	if (!f->cfg->mint)
		return den_fail(err, DEN_INTERNAL, 0, "the box has no authority");
	server = mint_context(f->cfg->mint, &f->name, err);
	client = server ? config_client(f->g, f->cfg, err) : NULL;
	if (!client)
		return -1;
	p->box.ssl = SSL_new(server);
	p->up.ssl = tls_client_new(client, &f->name, err);
	if (!p->box.ssl || !p->up.ssl)
		return den_fail(err, DEN_INTERNAL, 0, "TLS");
	SSL_set_accept_state(p->box.ssl);
	SSL_set_mode(p->box.ssl, TLS_MODE);
	SSL_set_mode(p->up.ssl, TLS_MODE);
	return SSL_set_fd(p->box.ssl, f->box.fd) == 1 ? 0 : den_fail(err, DEN_INTERNAL, 0, "TLS");
}

static void token_done(struct token_wait *w, const char *token, const char *reason);

int pump_new(struct flow *f, struct den_err *err)
{
	struct pump *p = mem_new(struct pump);

	f->pump = p;
	p->f = f;
	p->token.done = token_done;
	if (f->check == CHECK_TLS && make_tls(f, err) < 0) {
		pump_free(f);
		return -1;
	}
	if (f->check != CHECK_SCAN)
		p->x = make_exchange(f);
	p->box.met = !p->box.ssl;
	p->up.met = !p->up.ssl;
	return 0;
}

void pump_free(struct flow *f)
{
	struct pump *p = f->pump;

	if (!p)
		return;
	token_forget(&p->token);
	SSL_free(p->box.ssl);
	SSL_free(p->up.ssl);
	if (p->x)
		exchange_free(p->x);
	buf_free(&p->box.out);
	buf_free(&p->up.out);
	exchange_budget_count(&p->counted, 0);
	free(p);
	f->pump = NULL;
}

bool pump_idle(const struct flow *f)
{
	const struct pump *p = f->pump;

	return p->x && !exchange_raw(p->x) && exchange_idle(p->x) && !p->box.out.len && !p->up.out.len;
}

/* ---- bytes ---- */

enum io { IO_WAIT = -1, IO_BROKEN = -2 };

static ssize_t ssl_result(struct side *s, int r)
{
	switch (SSL_get_error(s->ssl, r)) {
	case SSL_ERROR_WANT_READ:
		s->wants |= EPOLLIN;
		return IO_WAIT;
	case SSL_ERROR_WANT_WRITE:
		s->wants |= EPOLLOUT;
		return IO_WAIT;
	case SSL_ERROR_ZERO_RETURN:
		return 0;
	default:
		return IO_BROKEN;
	}
}

static ssize_t side_read(struct side *s, int fd)
{
	ssize_t n;

	if (s->ssl) {
		ERR_clear_error();
		n = SSL_read(s->ssl, piece, sizeof(piece));
		return n > 0 ? n : ssl_result(s, (int)n);
	}
	n = recv(fd, piece, sizeof(piece), MSG_DONTWAIT);
	if (n >= 0)
		return n;
	if (errno != EAGAIN && errno != EINTR)
		return IO_BROKEN;
	s->wants |= EPOLLIN;
	return IO_WAIT;
}

static size_t held(const struct side *s)
{
	return s->out.len - s->sent;
}

static bool is_full(const struct flow *f, const struct side *s)
{
	return held(s) > MAX(HELD_MIN, MIN(HELD_MAX, HELD_ALL / (f->g->n_flows + 1)));
}

/* false: broken */
static bool side_flush(struct side *s, int fd, bool *moved)
{
	if (s->sent > s->out.len / 2) { /* who reads slowly, but always, must not have it all kept */
		buf_consume(&s->out, s->sent);
		s->sent = 0;
	}
	while (s->sent < s->out.len) {
		ssize_t n;

		if (s->ssl) {
			ERR_clear_error();
			n = SSL_write(s->ssl, s->out.p + s->sent, (int)MIN(s->out.len - s->sent, 1U << 30));
			if (n <= 0 && ssl_result(s, (int)n) != IO_WAIT)
				return false;
		} else {
			n = send(fd, s->out.p + s->sent, s->out.len - s->sent, MSG_DONTWAIT | MSG_NOSIGNAL);
			if (n < 0 && errno != EAGAIN && errno != EINTR)
				return false;
			if (n < 0)
				s->wants |= EPOLLOUT;
		}
		if (n <= 0)
			return true;
		s->sent += (size_t)n;
		*moved = true;
	}
	buf_free(&s->out); /* memory goes back while nothing is held */
	s->sent = 0;
	return true;
}

/* true: done; false: not yet, or broken (eof) */
static bool side_meet(struct side *s)
{
	int r;

	if (s->met)
		return true;
	ERR_clear_error();
	r = SSL_do_handshake(s->ssl);
	if (r == 1) {
		s->met = true;
		return true;
	}
	if (ssl_result(s, r) == IO_WAIT)
		return false;
	s->eof = true; /* finish() sees to it */
	return false;
}

/* ---- from side to side ---- */

/* Have the secrets of the flow's host the values that they have by now? Their names and places are the
 * same, else the flow would have ended with the change. */
static bool values_same(const struct flow *f)
{
	int a = -1, b = -1;

	for (;;) {
		const char *was, *is;

		a = policy_next_secret(f->cfg->policy, &f->name, f->port, a);
		b = policy_next_secret(f->g->cfg->policy, &f->name, f->port, b);
		if (a < 0 || b < 0)
			return a == b;
		was = f->cfg->secrets[a].value;
		is = f->g->cfg->secrets[b].value;
		if (was && (!is || strcmp(was, is) != 0))
			return false;
	}
}

/* Of an old policy: its secrets may be old. What is under way is finished; another connection gets the
 * new ones. */
static void drain_old(struct flow *f)
{
	struct pump *p = f->pump;
	const char *why;

	if (!p->x || f->cfg == f->g->cfg || p->closing)
		return;
	if (exchange_drain(p->x, f->named && !values_same(f), &p->box.out, &why) < 0)
		p->closing = true;
}

static void token_done(struct token_wait *w, const char *token, const char *reason)
{
	struct pump *p = CONTAINER_OF(w, struct pump, token);
	const char *why;

	(void)reason;
	drain_old(p->f);
	if (exchange_give_token(p->x, token, time(NULL) + 60, &p->up.out, &p->box.out, &why) < 0)
		p->closing = true;
	flow_again(p->f); /* not from here: pump_go() may be up the stack */
}

static void scan_found(struct flow *f, int which)
{
	on_incident(f, (unsigned)which, "bytes");
	flow_deny(f, "a placeholder was on its way out", NULL, 0);
}

/* false: the flow is over */
static bool from_box(struct flow *f, ssize_t n)
{
	struct pump *p = f->pump;
	const char *why;
	int hit;

	if (!flow_count(f, (size_t)n, true))
		return false;
	if (p->x) {
		if (exchange_from_box(p->x, piece, (size_t)n, &p->up.out, &p->box.out, &why) < 0)
			p->closing = true;
		return true;
	}
	hit = canary_feed(f->cfg->canaries, &p->scan, piece, (size_t)n);
	if (hit >= 0) {
		scan_found(f, hit);
		return false;
	}
	buf_add(&p->up.out, piece, (size_t)n);
	return true;
}

static bool from_up(struct flow *f, ssize_t n)
{
	struct pump *p = f->pump;
	const char *why;

	if (n > 0 && !flow_count(f, (size_t)n, false))
		return false;
	p->answered = true;
	if (!p->x)
		buf_add(&p->box.out, piece, (size_t)n);
	else if (exchange_from_up(p->x, piece, (size_t)n, n == 0, &p->box.out, &p->up.out, &why) < 0)
		p->closing = true;
	return true;
}

/* 1: something moved; 0: nothing; -1: the flow is over */
static int step_box(struct flow *f)
{
	struct pump *p = f->pump;
	ssize_t n;

	if (p->box.eof || !side_meet(&p->box))
		return 0;
	if (p->closing || p->up.broken || is_full(f, &p->up) || (p->x && !exchange_wants_box(p->x)) ||
		flow_throttle(f))
		return 0;
	n = side_read(&p->box, f->box.fd);
	if (n == IO_WAIT)
		return 0;
	if (n == IO_BROKEN) {
		flow_end(f, "broken by the box", true);
		return -1;
	}
	if (n == 0) {
		p->box.eof = true;
		return 1;
	}
	return from_box(f, n) ? 1 : -1;
}

static int step_up(struct flow *f)
{
	struct pump *p = f->pump;
	ssize_t n;

	if (f->ups != UP_READY || p->up.eof || p->closing || !side_meet(&p->up))
		return 0;
	if (is_full(f, &p->box) || flow_throttle(f))
		return 0;
	n = side_read(&p->up, f->up.fd);
	if (n == IO_WAIT)
		return 0;
	if (n == IO_BROKEN) { /* many servers end TLS without a word */
		p->up.eof = true;
		n = 0;
	}
	if (n == 0) {
		p->up.eof = true;
		return from_up(f, 0) ? 1 : -1;
	}
	return from_up(f, n) ? 1 : -1;
}

void pump_up_broken(struct flow *f)
{
	f->pump->up.broken = true;
	buf_free(&f->pump->up.out);
	f->pump->up.sent = 0;
}

void pump_unreachable(struct flow *f, const char *reason)
{
	struct pump *p = f->pump;
	auto_buf body = { 0 };

	buf_addf(&body, "den: no connection to %s: %s\n", f->name.s, reason);
	if (!p->answered)
		buf_addf(&p->box.out,
			"HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/plain\r\nContent-Length: %zu\r\n"
			"Connection: close\r\n\r\n%s",
			body.len, buf_str(&body));
	p->closing = true;
}

/* Upstream would not speak TLS as it must: the box is told, if it can be. */
static void up_failed(struct flow *f)
{
	char reason[160];

	tls_reason(f->pump->up.ssl, reason, sizeof(reason));
	pump_unreachable(f, reason);
}

/* Ends in both directions are passed on; true: all is done and the flow is over. */
static bool finish(struct flow *f)
{
	struct pump *p = f->pump;
	bool box_sent = !p->box.out.len, up_sent = !p->up.out.len, moved;

	if (p->up.ssl && !p->up.met && p->up.eof && !p->closing) {
		up_failed(f);
		if (p->box.met && !side_flush(&p->box, f->box.fd, &moved)) {
			flow_end(f, "broken", true);
			return true;
		}
		box_sent = !p->box.out.len;
	}
	if (p->box.ssl && !p->box.met && p->box.eof) {
		flow_deny(f, "the box does not trust the gate's certificate (see /run/den/ca.pem)", NULL, 0);
		return true;
	}
	if (p->x && exchange_wants_close(p->x) && box_sent && up_sent)
		p->closing = true;
	if (p->up.eof && box_sent && p->box.met) {
		if (p->x || p->box.eof || p->up.broken) {
			p->closing = true;
		} else if (!f->dir[1].shut) { /* bytes alone: the other direction may go on */
			f->dir[1].shut = true;
			shutdown(f->box.fd, SHUT_WR);
		}
	}
	if (p->box.eof && box_sent && up_sent && p->x && exchange_idle(p->x) && !exchange_raw(p->x))
		p->closing = true;
	if (p->closing && !p->box.out.len) {
		if (p->box.ssl)
			SSL_shutdown(p->box.ssl);
		flow_linger(f);
		return true;
	}
	if (p->box.eof && up_sent && f->ups == UP_READY && p->up.met && !f->dir[0].shut) {
		f->dir[0].shut = true;
		if (!p->up.ssl)
			shutdown(f->up.fd, SHUT_WR);
	}
	return false;
}

/* false: broken */
static bool flush_both(struct flow *f, bool *moved)
{
	struct pump *p = f->pump;

	if (p->up.broken)
		pump_up_broken(f); /* what the exchange made for it meanwhile */
	else if (f->ups == UP_READY && p->up.met && !side_flush(&p->up, f->up.fd, moved)) {
		pump_up_broken(f); /* it may have answered before, and said why */
		*moved = true;
	}
	return !p->box.met || side_flush(&p->box, f->box.fd, moved);
}

void pump_go(struct flow *f)
{
	struct pump *p = f->pump;
	bool moved = true;

	if (f->ups == UP_READY && p->up.ssl && SSL_get_fd(p->up.ssl) < 0)
		SSL_set_fd(p->up.ssl, f->up.fd);
	drain_old(f);
	for (int i = 0; i < ROUNDS && moved; i++) {
		int a, b;

		p->box.wants = p->up.wants = 0;
		a = step_box(f);
		if (a < 0)
			return;
		b = step_up(f);
		if (b < 0)
			return;
		moved = a + b > 0;
		/* what was flushed may be what the other side waited for */
		if (!flush_both(f, &moved)) {
			flow_end(f, "broken", true);
			return;
		}
		if (p->x && !p->token.number && exchange_needs_token(p->x)) {
			token_ask(f->g, &p->token, exchange_needs_token(p->x), "EdDSA");
			if (f->ended || !f->pump)
				return;
		}
	}
	if (finish(f))
		return;
	exchange_budget_count(&p->counted, p->box.out.cap + p->up.out.cap);
	if (f->throttled)
		p->box.wants = p->up.wants = 0;
	else if (moved) /* also if all is read from the sockets; or the socket is no longer watched */
		flow_again(f);
	flow_watch(f, &f->box, p->box.wants);
	if (f->ups == UP_READY)
		flow_watch(f, &f->up, p->up.wants);
}
