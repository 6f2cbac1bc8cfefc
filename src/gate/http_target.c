/* Whom a request is for: its target and its Host, which must not disagree. */
#include <string.h>
#include <strings.h>

#include "http_parts.h"
#include "mem.h"

/* host[:port], as in Host and in a target. */
struct authority {
	bool is_addr;
	struct net_name name;
	struct net_addr addr;
	uint16_t port; /* 0: none */
};

/* Digits without a zero before them, so that there is one spelling a port. */
static bool port_read(const char *p, size_t n, uint16_t *ret)
{
	unsigned v = 0;

	if (!n || n > 5 || p[0] == '0')
		return false;
	for (size_t i = 0; i < n; i++) {
		if (p[i] < '0' || p[i] > '9')
			return false;
		v = v * 10 + (unsigned)(p[i] - '0');
	}
	if (v > UINT16_MAX)
		return false;
	*ret = (uint16_t)v;
	return true;
}

static bool addr_read(const char *p, size_t n, struct net_addr *ret)
{
	char text[64];

	if (n >= sizeof(text) || memchr(p, '\0', n))
		return false;
	memcpy(text, p, n);
	text[n] = '\0';
	return net_addr_parse(text, ret) == 0;
}

static bool authority_read(const char *p, size_t n, struct authority *ret)
{
	const char *colon, *end = p + n;
	struct authority a = { 0 };

	if (n && p[0] == '[') {
		const char *close = memchr(p, ']', n);

		/* a quad in brackets is no address, though it reads as one */
		if (!close || !memchr(p, ':', (size_t)(close - p)) ||
			!addr_read(p + 1, (size_t)(close - p) - 1, &a.addr))
			return false;
		a.is_addr = true;
		colon = close + 1;
	} else {
		colon = memchr(p, ':', n);
		if (!colon)
			colon = end;
		a.is_addr = addr_read(p, (size_t)(colon - p), &a.addr);
		if (!a.is_addr && net_name_parse(p, (size_t)(colon - p), &a.name, NULL) < 0)
			return false;
	}
	if (colon != end &&
		(*colon != ':' || !port_read(colon + 1, (size_t)(end - colon) - 1, &a.port)))
		return false;
	*ret = a;
	return true;
}

static bool authority_same_host(const struct authority *a, const struct authority *b)
{
	if (a->is_addr != b->is_addr)
		return false;
	return a->is_addr ? net_addr_equal(&a->addr, &b->addr) : !strcmp(a->name.s, b->name.s);
}

static bool has_prefix(const char *p, size_t n, const char *prefix)
{
	return n >= strlen(prefix) && !strncasecmp(p, prefix, strlen(prefix));
}

static const char *absolute_read(struct http_head *h, struct authority *a)
{
	const char *p, *end = h->target + h->target_len, *slash;

	h->https = has_prefix(h->target, h->target_len, "https://");
	if (!h->https && !has_prefix(h->target, h->target_len, "http://"))
		return "a target that is neither a path nor an http or https URL";
	p = h->target + (h->https ? 8 : 7);
	slash = memchr(p, '/', (size_t)(end - p));
	if (!authority_read(p, (size_t)((slash ? slash : end) - p), a))
		return "a target whose host is malformed";
	h->form = HTTP_FORM_ABSOLUTE;
	h->path = slash ? slash : "/";
	h->path_len = slash ? (size_t)(end - slash) : 1;
	return NULL;
}

/* *given: the target itself says a host. */
static const char *form_read(struct http_head *h, struct authority *a, bool *given)
{
	*given = false;
	h->path = h->target;
	h->path_len = h->target_len;
	if (!strcmp(h->method, "CONNECT")) {
		if (!authority_read(h->target, h->target_len, a) || !a->port)
			return "CONNECT to what is not HOST:PORT";
		h->form = HTTP_FORM_AUTHORITY;
		*given = true;
		return NULL;
	}
	if (h->target[0] == '/') {
		h->form = HTTP_FORM_ORIGIN;
		return NULL;
	}
	if (h->target_len == 1 && h->target[0] == '*') {
		if (strcmp(h->method, "OPTIONS"))
			return "a target of '*' without OPTIONS";
		h->form = HTTP_FORM_ASTERISK;
		return NULL;
	}
	*given = true;
	return absolute_read(h, a);
}

/* Does Host say the same as the target? A port that the scheme implies may be left out. */
static bool authority_agrees(
	const struct http_head *h, const struct authority *target, const struct authority *host)
{
	uint16_t usual = h->form == HTTP_FORM_AUTHORITY ? target->port : h->https ? 443 : 80;

	return authority_same_host(target, host) &&
	       (target->port ? target->port : usual) == (host->port ? host->port : usual);
}

const char *http_target_read(struct http_head *h)
{
	const struct http_field *f = http_find(h, "host");
	struct authority target = { 0 }, host;
	bool given;
	const char *why = form_read(h, &target, &given);

	if (why)
		return why;
	if (http_count(h, "host") > 1)
		return "more than one Host";
	if (!f && h->minor)
		return "no Host";
	if (!f && !given)
		return NULL;
	host = target;
	if (f && !authority_read(f->value, f->value_len, &host))
		return "a malformed Host";
	if (f && given && !authority_agrees(h, &target, &host))
		return "a target whose host is not the Host";
	h->has_host = true;
	h->host_is_addr = host.is_addr;
	h->host = host.name;
	h->host_addr = host.addr;
	h->host_port = h->form == HTTP_FORM_AUTHORITY ? target.port : host.port;
	return NULL;
}
