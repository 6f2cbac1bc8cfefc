/* A request's head, written anew for upstream from what was understood of it. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "exchange_parts.h"
#include "mem.h"

#define FIELDS_ADDED 8 /* at most, by the gate: what it sends must be as clean as what it takes */

static void host_put(const struct http_head *h, struct buf *out)
{
	char addr[46];

	buf_addstr(out, "Host: ");
	if (h->host_is_addr) {
		net_addr_format(&h->host_addr, addr);
		buf_addf(out, h->host_addr.family == 6 ? "[%s]" : "%s", addr);
	} else {
		buf_addstr(out, h->host.s);
	}
	if (h->host_port)
		buf_addf(out, ":%u", h->host_port);
	buf_addstr(out, "\r\n");
}

/* HTTP/2 in clear would hide everything that follows: what asks for it is left out. */
static void connection_put(const struct http_field *f, struct buf *out)
{
	const char *p = f->value, *end = f->value + f->value_len;
	bool any = false;

	while (p < end) {
		size_t n = 0, blanks;

		blanks = strspn(p, " \t,"); /* the head goes on behind it, so it ends */
		p += MIN(blanks, (size_t)(end - p));
		while (p + n < end && p[n] != ',' && p[n] != ' ' && p[n] != '\t')
			n++;
		if (n && !(n == 7 && strncasecmp(p, "upgrade", 7) == 0) &&
			!(n == 14 && strncasecmp(p, "http2-settings", 14) == 0)) {
			buf_addstr(out, any ? ", " : "Connection: ");
			buf_add(out, p, n);
			any = true;
		}
		p += n;
	}
	if (any)
		buf_addstr(out, "\r\n");
}

/* Fields that the gate writes itself, or leaves out. */
static bool field_special(struct exchange *x, const struct http_head *h, const struct http_field *f,
	bool *host, bool *accept)
{
	if (http_field_is(f, "host")) {
		if (!*host)
			host_put(h, &x->head);
		*host = true;
		return true;
	}
	if (grant_guards(x) && http_field_is(f, "accept-encoding")) {
		if (!*accept)
			buf_addstr(&x->head, "Accept-Encoding: identity\r\n");
		*accept = true;
		return true;
	}
	if (h->h2c && http_field_is(f, "connection")) {
		connection_put(f, &x->head);
		return true;
	}
	/* Compression of another name: nobody could look into the frames. */
	if (x->websocket && grant_guards(x) && http_field_is(f, "sec-websocket-extensions"))
		return true;
	/* In two halves nobody would know what it is. */
	if (grant_shows(x) && (http_field_is(f, "range") || http_field_is(f, "if-range")))
		return true;
	return http_field_is(f, "content-length") || http_field_is(f, "transfer-encoding") ||
	       (h->h2c && (http_field_is(f, "upgrade") || http_field_is(f, "http2-settings"))) ||
	       (x->drop_expect && http_field_is(f, "expect")) ||
	       (x->token_audience && http_field_is(f, x->token_header));
}

static int field_put(struct exchange *x, const struct http_head *h, const struct http_field *f,
	bool *host, bool *accept, struct buf *to_box)
{
	auto_buf clean = { 0 };
	auto_buf real = { 0 };
	char where[96];
	int found;

	if (sign_drops(x, f))
		return 0;
	buf_add(&clean, f->name, f->name_len);
	buf_addstr(&clean, ": ");
	grant_field(x, f, &real, &clean);
	found = canary_find(x->canaries, clean.p, clean.len);
	if (found >= 0) {
		snprintf(where, sizeof(where), "header %.*s", (int)MIN(f->name_len, 64U), f->name);
		if (canary_find(x->canaries, f->name, f->name_len) >= 0)
			snprintf(where, sizeof(where), "header name");
		return exchange_incident(x, found, where, false, to_box);
	}
	if (!field_special(x, h, f, host, accept)) {
		buf_add(&x->head, f->name, f->name_len);
		buf_addstr(&x->head, ": ");
		buf_add(&x->head, real.p, real.len);
		buf_addstr(&x->head, "\r\n");
	}
	explicit_bzero(real.p, real.cap);
	return 0;
}

static int line_put(struct exchange *x, const struct http_head *h, struct buf *to_box)
{
	auto_buf clean = { 0 };
	bool query;
	int found;

	buf_addf(&x->head, "%s ", h->method);
	buf_addf(&clean, "%s ", h->method);
	grant_target(x, h->path, h->path_len, &x->head, &clean);
	/* On from the last body: a method can end what that began. */
	found = canary_feed(x->canaries, &x->scan, clean.p, clean.len);
	query = memchr(h->path, '?', h->path_len) != NULL;
	if (found >= 0)
		return exchange_incident(x, found, query ? "path or query" : "path", false, to_box);
	buf_addf(&x->head, " HTTP/1.%d\r\n", h->minor);
	return 0;
}

int head_build(struct exchange *x, const struct http_head *h, struct buf *to_box)
{
	bool host = false, accept = false;

	x->head.len = x->n_uses = 0;
	if (h->n > HTTP_FIELDS_MAX - FIELDS_ADDED)
		return exchange_refuse(x, 431, "a head with too many fields", NULL, to_box);
	if (line_put(x, h, to_box) < 0)
		return -1;
	for (unsigned i = 0; i < h->n; i++)
		if (field_put(x, h, &h->f[i], &host, &accept, to_box) < 0)
			return -1;
	if (!host && h->has_host)
		host_put(h, &x->head);
	if (grant_guards(x) && !accept)
		buf_addstr(&x->head, "Accept-Encoding: identity\r\n");
	if (x->token_audience)
		buf_addf(&x->head, "%s: %s%s\r\n", x->token_header,
			strcasecmp(x->token_header, "authorization") == 0 ? "Bearer " : "",
			x->tokens[0]);
	return 0;
}

int head_finish(struct exchange *x, struct buf *out, struct buf *to_box)
{
	if (x->mode == BODY_CHUNKS)
		buf_addstr(&x->head, "Transfer-Encoding: chunked\r\n");
	else if (x->has_body)
		buf_addf(&x->head, "Content-Length: %llu\r\n",
			(unsigned long long)(x->mode == BODY_HOLD ? x->hold.len : x->length));
	if (x->sign.secret && sign_finish(x, to_box) < 0)
		return -1;
	buf_addstr(&x->head, "\r\n");
	if (x->head.len > HTTP_HEAD_MAX)
		return exchange_refuse(
			x, 431, "a head that is too large with what is put into it", NULL, to_box);
	buf_add(out, x->head.p, x->head.len);
	explicit_bzero(x->head.p, x->head.cap);
	x->head.len = 0;
	x->asked[(x->asked_at + x->asked_n++) % EXCHANGE_PIPELINE] = x->next;
	x->upgrade_asked = x->next.upgrade;
	x->requests++;
	grant_tell(x);
	return 0;
}
