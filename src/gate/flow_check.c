/* What the box says first, looked at before any of it goes out. The bytes stay in the socket until then:
 * whoever moves them later finds them all. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "flow.h"
#include "hello.h"
#include "http.h"

#define LOOK_MAX 65536

static char looked[LOOK_MAX]; /* one thread: nobody else needs it meanwhile */

void flow_teach(struct flow *f, const char *what, struct buf *out)
{
	auto_buf body = { 0 };

	buf_addf(&body, "den: refused: %s\n", what);
	if (f->named)
		buf_addf(&body, "host: %s\n", f->name.s);
	if (f->port)
		buf_addf(&body, "port: %u\n", f->port);
	buf_addf(&body, "rule: %s\npolicy generation: %llu\nhow to ask: %s\n",
		f->v.rule && *f->v.rule ? f->v.rule : "none matches", (unsigned long long)f->cfg->generation,
		f->cfg->ask);
	buf_addf(out,
		"HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %zu\r\n"
		"Connection: close\r\nX-Den-Denied: 1\r\n\r\n%s",
		body.len, buf_str(&body));
}

static void refuse_http(struct flow *f, const char *reason)
{
	auto_buf b = { 0 };

	flow_teach(f, reason, &b);
	flow_deny(f, reason, b.p, b.len);
}

static void refuse_tls(struct flow *f, const char *reason)
{
	/* a fatal alert: unrecognized_name */
	static const uint8_t alert[] = { 21, 3, 1, 0, 2, 2, 112 };

	flow_deny(f, reason, alert, sizeof(alert));
}

/* More is needed to tell: wake us when there is more than this. */
static void look_later(struct flow *f, size_t n)
{
	int want = (int)n + 1;

	if (n == f->peeked || n >= LOOK_MAX) { /* woken, and nothing new: no more will come */
		flow_deny(f, n ? "it stopped in the middle of its first message" : "it said nothing", NULL, 0);
		return;
	}
	f->peeked = n;
	setsockopt(f->box.fd, SOL_SOCKET, SO_RCVLOWAT, &want, sizeof(want));
}

/* What follows is woken by any byte again. */
static void look_no_more(struct flow *f)
{
	int one = 1;

	if (f->peeked)
		setsockopt(f->box.fd, SOL_SOCKET, SO_RCVLOWAT, &one, sizeof(one));
	f->peeked = 0;
}

static void passes(struct flow *f, enum flow_check as)
{
	struct den_err err;

	look_no_more(f);
	f->check = as;
	f->deadline = f->ups == UP_READY ? 0 : f->deadline;
	if (as != CHECK_RAW && pump_new(f, &err) < 0)
		flow_deny(f, "the gate could not begin", NULL, 0);
	else if (f->dead && as != CHECK_RAW)
		pump_unreachable(f, f->dead);
	else if (f->dead)
		flow_end(f, f->dead, true);
}

/* A ClientHello in full: is it for the name? */
static void judge_hello(struct flow *f, const struct hello *h)
{
	if (!f->named || f->v.raw) {
		passes(f, CHECK_RAW);
		return;
	}
	if (h->ech)
		refuse_tls(f, "an encrypted ClientHello hides the name");
	else if (!h->has_sni)
		refuse_tls(f, "TLS without a server name");
	else if (strcmp(h->sni.s, f->name.s))
		refuse_tls(f, "TLS for another name");
	else
		passes(f, f->v.terminate ? CHECK_TLS : CHECK_RAW);
}

/* Neither TLS nor HTTP. */
static void judge_other(struct flow *f)
{
	if (flow_strict(f))
		flow_deny(f, f->port == 80 ? "port 80 must speak HTTP" : "port 443 must speak TLS with the name",
			NULL, 0);
	else
		passes(f, f->cfg->canaries ? CHECK_SCAN : CHECK_RAW);
}

static void judge_http(struct flow *f)
{
	if (!f->named || f->v.raw)
		passes(f, f->cfg->canaries ? CHECK_SCAN : CHECK_RAW);
	else if (f->port == 443)
		refuse_http(f, "port 443 must speak TLS with the name");
	else if (f->v.terminate && !f->v.host_loopback)
		refuse_http(f, "a granted secret travels in TLS only");
	else
		passes(f, CHECK_HTTP);
}

void flow_look(struct flow *f)
{
	ssize_t n = recv(f->box.fd, looked, sizeof(looked), MSG_PEEK | MSG_DONTWAIT);
	enum hello_result r;
	struct hello h;
	const char *why;
	bool more = false;

	if (n < 0) {
		if (errno != EAGAIN && errno != EINTR)
			flow_end(f, NULL, true);
		return;
	}
	if (n == 0) { /* closed its side without a word: a server that speaks first may be meant */
		passes(f, CHECK_RAW);
		return;
	}
	r = hello_parse((uint8_t *)looked, (size_t)n, &h, &why);
	if (r == HELLO_OK)
		judge_hello(f, &h);
	else if (r == HELLO_BAD && f->named && !f->v.raw)
		refuse_tls(f, why);
	else if (r == HELLO_MORE && f->named && !f->v.raw)
		look_later(f, (size_t)n);
	else if (http_looks_like_request(looked, (size_t)n, &more))
		judge_http(f);
	else if (more)
		look_later(f, (size_t)n);
	else
		judge_other(f);
}

/* ---- the proxy ---- */

static bool proxy_target(struct flow *f, const struct http_head *h)
{
	f->named = !h->host_is_addr;
	if (f->named)
		f->name = h->host;
	else
		f->addr = h->host_addr;
	f->port = h->host_port ? h->host_port : h->https ? 443 : 80;
	f->v = f->named ? policy_check_name(f->cfg->policy, &f->name, f->port) :
			  policy_check_addr(f->cfg->policy, &f->addr, f->port, false);
	return f->v.allow;
}

static void proxy_connect(struct flow *f, const struct http_head *h)
{
	static const char ok[] = "HTTP/1.1 200 Connection established\r\n\r\n";
	size_t left = h->head_len;

	while (left) { /* what was looked at is there */
		ssize_t n = recv(f->box.fd, looked, left, MSG_DONTWAIT);

		if (n <= 0) {
			flow_end(f, NULL, true);
			return;
		}
		left -= (size_t)n;
	}
	if (send(f->box.fd, ok, sizeof(ok) - 1, MSG_NOSIGNAL | MSG_DONTWAIT) != sizeof(ok) - 1) {
		flow_end(f, NULL, true);
		return;
	}
	look_no_more(f);
	f->proxy = false; /* from here on it is like any other */
	if (f->v.raw || !f->named)
		f->check = f->cfg->canaries ? CHECK_WAIT : CHECK_RAW;
	flow_up_start(f);
}

static void proxy_request(struct flow *f, const struct http_head *h)
{
	if (!h->has_host) {
		refuse_http(f, "the proxy needs to know whom a request is for");
		return;
	}
	if (!proxy_target(f, h)) {
		refuse_http(f, f->named ? "the name is not allowed" : "the address is not allowed");
		return;
	}
	if (h->form == HTTP_FORM_AUTHORITY) {
		proxy_connect(f, h);
	} else if (h->https) {
		refuse_http(f, "https through a proxy goes with CONNECT");
	} else {
		judge_http(f); /* first, so that it can be told what becomes of it */
		if (!f->ended && f->check != CHECK_LINGER)
			flow_up_start(f);
	}
}

void flow_look_proxy(struct flow *f)
{
	ssize_t n = recv(f->box.fd, looked, sizeof(looked), MSG_PEEK | MSG_DONTWAIT);
	struct http_head h;
	const char *why;

	if (n <= 0) {
		if (n == 0 || (errno != EAGAIN && errno != EINTR))
			flow_end(f, NULL, false);
		return;
	}
	switch (http_request_parse(looked, (size_t)n, &h, &why)) {
	case HTTP_MORE:
		look_later(f, (size_t)n);
		return;
	case HTTP_BAD:
		refuse_http(f, why);
		return;
	default:
		proxy_request(f, &h);
		http_head_free(&h);
	}
}
