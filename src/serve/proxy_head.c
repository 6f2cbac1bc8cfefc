/* The request as the program in the box gets it: written anew, field by field. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "auth.h"
#include "keys.h"
#include "mem.h"
#include "proxy.h"

#define HEAD_MAX (48U << 10)

char *proxy_query(const char *query)
{
	auto_buf b = { 0 };

	while (*query) {
		size_t n = strcspn(query, "&");

		if (n && (strncmp(query, TOKEN_NAME "=", sizeof(TOKEN_NAME)) != 0))
			buf_addf(&b, "%s%.*s", b.len ? "&" : "", (int)n, query);
		query += n + (query[n] == '&');
	}
	return mem_strdup(buf_str(&b));
}

struct head {
	struct buf b;
	bool bad;
};

static bool of_connection(const char *name)
{
	static const char *const hop[] = { "Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization",
		"Proxy-Connection", "TE", "Trailer", "Transfer-Encoding", "Upgrade", "Content-Length", "Expect", "Host",
		"HTTP2-Settings", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "Forwarded", "X-Real-IP",
		/* ours, which are none of the box's business */
		TOKEN_HEADER, "E2b-Sandbox-Id", "E2b-Sandbox-Port", "Cookie" };

	for (size_t i = 0; i < ARRAY_SIZE(hop); i++)
		if (!strcasecmp(name, hop[i]))
			return true;
	return false;
}

/* A key of this server that strayed into a request for a box stays here. */
static bool is_key(const char *name, const char *value)
{
	uint8_t hash[32];

	if (!strcasecmp(name, "X-API-Key"))
		return key_hash(value, hash);
	return !strcasecmp(name, "Authorization") && !strncasecmp(value, "Bearer ", 7) && key_hash(value + 7, hash);
}

static bool field_ok(const char *name, const char *value)
{
	if (!*name)
		return false;
	for (; *name; name++)
		if ((unsigned char)*name <= ' ' || (unsigned char)*name >= 0x7f || strchr("()<>@,;:\\\"/[]?={}", *name))
			return false;
	for (; *value; value++)
		if (((unsigned char)*value < ' ' && *value != '\t') || *value == 0x7f)
			return false;
	return true;
}

static void put_field(const char *name, const char *value, void *user)
{
	struct head *h = user;

	if (of_connection(name) || is_key(name, value) || h->bad)
		return;
	h->bad = !field_ok(name, value) || h->b.len + strlen(name) + strlen(value) > HEAD_MAX;
	if (!h->bad)
		buf_addf(&h->b, "%s: %s\r\n", name, value);
}

/* All cookies but ours. */
static void put_cookies(struct head *h, const char *cookies)
{
	auto_buf b = { 0 };

	while (cookies && *cookies) {
		size_t n;

		cookies += strspn(cookies, " \t;");
		n = strcspn(cookies, ";");
		if (n && strncmp(cookies, TOKEN_NAME "=", sizeof(TOKEN_NAME)) && !auth_session_is(cookies))
			buf_addf(&b, "%s%.*s", b.len ? "; " : "", (int)n, cookies);
		cookies += n;
	}
	if (!b.len)
		return;
	h->bad = h->bad || !field_ok("Cookie", buf_str(&b)) || h->b.len + b.len > HEAD_MAX;
	if (!h->bad)
		buf_addf(&h->b, "Cookie: %s\r\n", buf_str(&b));
}

static bool target_ok(const char *s)
{
	for (; *s; s++)
		if ((unsigned char)*s <= ' ' || (unsigned char)*s >= 0x7f || *s == '#')
			return false;
	return true;
}

/* "1.2.3.4" of "1.2.3.4:567"; a unix socket has none */
static void put_forwarded(struct req *r, struct head *h)
{
	const char *peer = req_peer(r), *host = req_header(r, "Host"), *port = strrchr(peer, ':');
	size_t n = port && (strchr(peer, ':') == port || peer[0] == '[') ? (size_t)(port - peer) : strlen(peer);

	buf_addf(&h->b, "X-Forwarded-For: %.*s\r\nX-Forwarded-Proto: %s\r\n", (int)n, peer, req_tls(r) ? "https" : "http");
	if (host && field_ok("Host", host))
		buf_addf(&h->b, "X-Forwarded-Host: %s\r\n", host);
}

int proxy_head(struct req *r, bool upgrade, struct buf *ret, bool *ret_chunked, struct den_err *err)
{
	const char *method = req_method(r), *length = req_header(r, "Content-Length"), *host = req_header(r, "Host");
	auto_free char *query = proxy_query(req_query_raw(r));
	struct head h = { 0 };

	*ret_chunked = req_header(r, "Transfer-Encoding");
	if (!target_ok(req_path(r)) || !target_ok(query) || !field_ok(method, "")) {
		return den_fail(err, DEN_INVALID, 0, "the address has characters that must be %%-encoded");
	}
	buf_addf(&h.b, "%s %s%s%s HTTP/1.1\r\n", method, req_path(r), *query ? "?" : "", query);
	buf_addf(&h.b, "Host: %s\r\n", host && field_ok("Host", host) ? host : "localhost");
	req_each_header(r, put_field, &h);
	put_cookies(&h, req_header(r, "Cookie"));
	put_forwarded(r, &h);
	if (upgrade && field_ok("Upgrade", req_header(r, "Upgrade")))
		buf_addf(&h.b, "Connection: Upgrade\r\nUpgrade: %s\r\n", req_header(r, "Upgrade"));
	else
		buf_addstr(&h.b, "Connection: close\r\n");
	if (*ret_chunked)
		buf_addstr(&h.b, "Transfer-Encoding: chunked\r\n");
	else if (length && strspn(length, "0123456789") == strlen(length))
		buf_addf(&h.b, "Content-Length: %s\r\n", length);
	buf_addstr(&h.b, "\r\n");
	*ret = h.b;
	return h.bad ? den_fail(err, DEN_INVALID, 0, "the headers are too long for the box, or not well formed") : 0;
}
