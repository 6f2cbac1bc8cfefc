/*
 * The box's resolver. What the policy does not allow is refused at once, and no question for it ever
 * leaves. A name that is allowed is resolved outside first, so that one that does not exist does not
 * exist inside either, and gets an address of the box's own.
 */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <netinet/in.h>

#include "clock.h"
#include "dns.h"
#include "fd.h"
#include "gate.h"
#include "pins.h"
#include "resolve.h"
#include "span.h"

#define TTL 30		   /* less than pins keep */
#define QUERIES_MAX 512	   /* waiting for an answer from outside */
#define CONNS_MAX 64
#define CONN_IDLE_NS (20 * NS_PER_SEC)
#define RATE 500U	   /* names a second that must be asked for outside; a flood is a channel */
#define BURST 1000U
#define DATAGRAMS 64

struct dns_conn {
	struct list link;
	struct gate *g;
	struct loop_source src;
	struct buf in;
	int64_t used;
	unsigned waiting;
	bool closed;
	struct loop_deferred later;
};

/* A question whose answer is not known yet. */
struct query {
	struct list link;
	struct gate *g;
	struct lookup lookup;
	struct dns_query q;
	uint8_t msg[DNS_UDP_MAX];
	size_t len;
	struct gsock *sock;	/* UDP: answer here; NULL when it went away */
	struct sockaddr_in6 peer;
	socklen_t peer_len;
	struct dns_conn *conn;	/* TCP */
	unsigned index;
};

/* ---- answers ---- */

static void conn_drop(struct dns_conn *c);

static void answer(struct query *q, int rcode, const struct net_addr *a, unsigned n)
{
	uint8_t out[DNS_UDP_MAX + 2];
	size_t len;

	if (q->conn) {
		len = dns_tcp_answer(&q->q, q->msg, q->len, rcode, a, n, TTL, out, sizeof(out));
		if (!q->conn->closed && send(q->conn->src.fd, out, len, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)len)
			conn_drop(q->conn); /* does not read its answers */
		return;
	}
	len = dns_answer(&q->q, q->msg, q->len, rcode, a, n, TTL, out, q->q.edns_size);
	if (len && q->sock)
		(void)!sendto(q->sock->src.fd, out, len, MSG_DONTWAIT | MSG_NOSIGNAL,
			(struct sockaddr *)&q->peer, q->peer_len);
}

static void answer_pinned(struct query *q)
{
	struct gate *g = q->g;
	unsigned class = policy_class_of(g->cfg->policy, &q->q.name), index;
	struct net_addr a[2];

	index = class == POLICY_NO_CLASS ? 0 : pins_get(g->pins, &q->q.name, span_block(class));
	if (!index) {
		answer(q, DNS_REFUSED, NULL, 0);
		return;
	}
	a[0] = span_v4(SPAN_V4 + index);
	a[1] = span_v6(SPAN_V4 + index);
	answer(q, DNS_NOERROR, a, 2);
}

static void query_free(struct query *q)
{
	lookup_cancel(&q->lookup);
	list_remove(&q->link);
	q->g->n_queries--;
	if (q->conn && --q->conn->waiting == 0 && q->conn->closed)
		loop_defer(q->g->loop, &q->conn->later);
	free(q);
}

/* May some rule open this address? Connecting looks at the very port, and at what kind of range it is. */
static bool opened_by_range(const struct policy *p, const struct net_addr *a)
{
	for (unsigned i = 0; i < p->n_rules; i++)
		if (p->rules[i].kind == RULE_CIDR && !p->rules[i].deny && p->rules[i].tcp &&
			net_cidr_has(&p->rules[i].cidr, a))
			return true;
	return false;
}

/* A name whose every address is out of bounds gets no address, and the reason is told. */
static bool all_out_of_bounds(struct query *q, const struct net_addr *addrs, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		if (!net_addr_special(&addrs[i]) || opened_by_range(q->g->cfg->policy, &addrs[i]))
			return false;
	return n > 0;
}

static void on_resolved(struct lookup *l, const struct net_addr *addrs, unsigned n, bool failed)
{
	struct query *q = CONTAINER_OF(l, struct query, lookup);
	struct where w = { &q->q.name, n ? &addrs[0] : NULL, 0 };
	struct verdict v;

	if (!policy_name_known(q->g->cfg->policy, &q->q.name, &v)) { /* it became stricter meanwhile */
		answer(q, DNS_REFUSED, NULL, 0);
	} else if (!n) {
		answer(q, failed ? DNS_SERVFAIL : DNS_NXDOMAIN, NULL, 0);
	} else if (all_out_of_bounds(q, addrs, n)) {
		record_denial(q->g, &w, v.rule, "the name's address is not public");
		answer(q, DNS_REFUSED, NULL, 0);
	} else {
		answer_pinned(q);
	}
	query_free(q);
}

/* ---- questions ---- */

static bool too_many(struct gate *g)
{
	int64_t now = clock_mono_ns();
	uint64_t more = (uint64_t)(now - g->dns_tokens_at) * RATE / NS_PER_SEC;

	if (more) {
		g->dns_tokens = (unsigned)MIN(BURST, g->dns_tokens + more);
		g->dns_tokens_at = now;
	}
	if (!g->dns_tokens)
		return true;
	g->dns_tokens--;
	return false;
}

static void judge(struct query *q)
{
	struct gate *g = q->g;
	struct where w = { &q->q.name, NULL, 0 };
	struct verdict v;

	if (!policy_name_known(g->cfg->policy, &q->q.name, &v)) {
		record_denial(g, &w, v.rule, "the name is not allowed");
		answer(q, DNS_REFUSED, NULL, 0);
		query_free(q);
		return;
	}
	if (q->q.type != DNS_A && q->q.type != DNS_AAAA) {
		answer(q, DNS_NOERROR, NULL, 0);
		query_free(q);
		return;
	}
	if (v.host_loopback) {
		answer_pinned(q);
		query_free(q);
		return;
	}
	if (!resolver_knows(g->resolver, &q->q.name) && too_many(g)) {
		record_denial(g, &w, v.rule, "too many names a second");
		answer(q, DNS_REFUSED, NULL, 0);
		query_free(q);
		return;
	}
	q->lookup.done = on_resolved;
	resolver_ask(g->resolver, &q->q.name, &q->lookup);
}

static void question(struct gate *g, const uint8_t *msg, size_t len, struct gsock *sock,
	const struct sockaddr_in6 *peer, socklen_t peer_len, struct dns_conn *conn)
{
	struct dns_query parsed;
	struct query *q;
	int rc;

	if (len > sizeof(q->msg) || !g->cfg)
		return;
	rc = dns_query_parse(msg, len, &parsed);
	if (rc < 0 || g->n_queries >= QUERIES_MAX)
		return;
	q = mem_new(struct query);
	q->g = g;
	q->q = parsed;
	memcpy(q->msg, msg, len);
	q->len = len;
	q->sock = sock;
	if (peer) {
		q->peer = *peer;
		q->peer_len = peer_len;
	}
	q->conn = conn;
	if (conn)
		conn->waiting++;
	list_append(&g->queries, &q->link);
	g->n_queries++;
	if (rc > 0) {
		answer(q, rc, NULL, 0);
		query_free(q);
		return;
	}
	judge(q);
}

void dnsd_datagram(struct gsock *s)
{
	for (int i = 0; i < DATAGRAMS; i++) {
		struct sockaddr_in6 peer;
		socklen_t len = sizeof(peer);
		uint8_t msg[DNS_UDP_MAX];
		ssize_t n = recvfrom(s->src.fd, msg, sizeof(msg), MSG_DONTWAIT | MSG_TRUNC,
			(struct sockaddr *)&peer, &len);

		if (n < 0)
			return;
		if (n <= (ssize_t)sizeof(msg))
			question(s->g, msg, (size_t)n, s, &peer, len, NULL);
	}
}

/* ---- TCP ---- */

static void conn_free(struct loop_deferred *d)
{
	struct dns_conn *c = CONTAINER_OF(d, struct dns_conn, later);

	buf_free(&c->in);
	free(c);
}

static void conn_drop(struct dns_conn *c)
{
	if (c->closed)
		return;
	c->closed = true;
	loop_remove(c->g->loop, &c->src);
	fd_close(&c->src.fd);
	list_remove(&c->link);
	c->g->n_dns_conns--;
	c->later.cb = conn_free;
	if (!c->waiting)
		loop_defer(c->g->loop, &c->later);
}

static void conn_ready(struct loop_source *src, uint32_t events)
{
	struct dns_conn *c = CONTAINER_OF(src, struct dns_conn, src);
	uint8_t in[2048];
	ssize_t n = recv(src->fd, in, sizeof(in), MSG_DONTWAIT);
	const uint8_t *msg;
	size_t len, used;
	int r = 0;

	(void)events;
	if (n <= 0) {
		if (n == 0 || (errno != EAGAIN && errno != EINTR))
			conn_drop(c);
		return;
	}
	c->used = clock_mono_ns();
	buf_add(&c->in, in, (size_t)n);
	while (!c->closed && c->in.len && (r = dns_tcp_next((uint8_t *)c->in.p, c->in.len, &msg, &len, &used)) > 0) {
		question(c->g, msg, len, NULL, NULL, 0, c);
		buf_consume(&c->in, used);
	}
	if (r < 0)
		conn_drop(c);
}

void dnsd_accept(struct gate *g, int fd)
{
	struct dns_conn *c;
	struct den_err err;

	if (g->n_dns_conns >= CONNS_MAX) {
		close(fd);
		return;
	}
	c = mem_new(struct dns_conn);
	*c = (struct dns_conn){ .g = g, .src = { .fd = fd, .events = EPOLLIN, .cb = conn_ready },
		.used = clock_mono_ns() };
	list_append(&g->dns_conns, &c->link);
	g->n_dns_conns++;
	if (loop_add(g->loop, &c->src, &err) < 0)
		conn_drop(c);
}

void dnsd_tick(struct gate *g, int64_t now)
{
	list_for_each_safe(l, next, &g->dns_conns) {
		struct dns_conn *c = CONTAINER_OF(l, struct dns_conn, link);

		if (now - c->used > CONN_IDLE_NS)
			conn_drop(c);
	}
}

void dnsd_forget(struct gate *g, const struct gsock *s)
{
	list_for_each(l, &g->queries) {
		struct query *q = CONTAINER_OF(l, struct query, link);

		if (q->sock == s)
			q->sock = NULL;
	}
}
