/*
 * The head of a request: copied out of MHD's memory, which is gone when the client is, and checked.
 *
 * MHD 0.9.75 takes a bare LF for the end of a line, ends the headers at a line that begins with a NUL, cuts
 * a value at a NUL, glues a folded line to the *name* of the header before it, and lets Transfer-Encoding win over
 * Content-Length. Each is a way to make two programs see two different requests. It parses in place, though: the
 * block still shows where each line ended. So head_exact() walks over it, and whatever does not look like what
 * RFC 9112 prescribes byte for byte is refused. From 0.9.77 on MHD has that strictness itself.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "http_int.h"

#define HEADERS_MAX 200

static bool is_token(const char *s, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!isalnum((unsigned char)s[i]) && !strchr("!#$%&'*+-.^_`|~", s[i]))
			return false;
	return n > 0;
}

struct found {
	struct {
		const char *name, *value;
		size_t name_n, value_n;
	} list[HEADERS_MAX];
	size_t n, bytes;
	bool over;
};

static enum MHD_Result find_one(void *cls, enum MHD_ValueKind kind, const char *name, size_t name_n,
	const char *value, size_t value_n)
{
	struct found *f = cls;

	if (f->n == HEADERS_MAX) {
		f->over = true;
		return MHD_NO;
	}
	f->list[f->n].name = name;
	f->list[f->n].name_n = name_n;
	f->list[f->n].value = value ? value : "";
	f->list[f->n++].value_n = value ? value_n : 0;
	f->bytes += name_n + value_n + 2;
	return MHD_YES;
}

/* The line break of the block that is at p: two bytes that were CR LF. */
static bool is_break(const char *p, const char *end)
{
	return end - p >= 2 && !p[0] && !p[1];
}

static bool head_exact(const struct req *r, const struct found *f, const char *method,
	const char *version, size_t size)
{
	const char *p = method, *end = method + size;
	size_t uri_n = strlen(r->uri);

	p += strlen(method) + 1;
	if (version != p + uri_n + 1) /* one space between method, target, version */
		return false;
	p = version + strlen(version);
	if (!is_break(p, end))
		return false;
	p += 2;
	for (size_t i = 0; i < f->n; i++) {
		if (f->list[i].name != p)
			return false;
		p += f->list[i].name_n + 1;
		while (p < end && (*p == ' ' || *p == '\t'))
			p++;
		if (f->list[i].value != p)
			return false;
		p += f->list[i].value_n;
		if (!is_break(p, end))
			return false;
		p += 2;
	}
	return is_break(p, end) && p + 2 == end;
}

static bool value_clean(const char *s, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (((unsigned char)s[i] < 0x20 && s[i] != '\t') || s[i] == 0x7f)
			return false;
	return true;
}

static int refuse(struct req *r, int status, const char *why, struct den_err *err)
{
	r->fail_status = status;
	return den_fail(
		err, status == 431 || status == 414 ? DEN_LIMIT : DEN_INVALID, 0, "%s", why);
}

/* What decides where this request ends, and whose it is. */
static int framing_check(struct req *r, struct den_err *err)
{
	unsigned lengths = 0, hosts = 0, encodings = 0;

	for (size_t i = 0; i < r->n_headers; i++) {
		const char *name = r->headers[i].name, *value = r->headers[i].value;

		hosts += !strcasecmp(name, "Host");
		if (!strcasecmp(name, "Content-Length")) {
			lengths++;
			if (!*value || value[strspn(value, "0123456789")] || strlen(value) > 18)
				return refuse(r, 400, "Content-Length must be a number", err);
			r->length = strtoull(value, NULL, 10);
			r->has_body = r->length > 0;
		}
		if (!strcasecmp(name, "Transfer-Encoding")) {
			encodings++;
			if (strcasecmp(value, "chunked"))
				return refuse(
					r, 501, "the only Transfer-Encoding here is chunked", err);
			r->chunked = r->has_body = true;
		}
	}
	if (lengths > 1 || encodings > 1 || (lengths && encodings))
		return refuse(r, 400, "more than one header says how long the body is", err);
	if (encodings && r->old)
		return refuse(r, 400, "Transfer-Encoding needs HTTP/1.1", err);
	if (hosts > 1 || (!hosts && !r->old))
		return refuse(r, 400,
			hosts ? "more than one Host header" : "the Host header is missing", err);
	return 0;
}

static int target_check(struct req *r, struct den_err *err)
{
	char *mark;

	for (const char *p = r->uri; *p; p++)
		if ((unsigned char)*p <= ' ' || (unsigned char)*p == 0x7f || *p == '#')
			return refuse(
				r, 400, "the address holds characters that must be %-encoded", err);
	if (r->uri[0] != '/' && strcmp(r->uri, "*"))
		return refuse(r, 400, "the address in the first line must begin with '/'", err);
	mark = strchr(r->uri, '?');
	if (mark)
		*mark = 0;
	r->path = r->uri;
	r->raw_query = mark ? mark + 1 : "";
	return 0;
}

/* All into one allocation of our own. */
static int head_copy(struct req *r, const struct found *f, const char *method, struct den_err *err)
{
	size_t method_n = strlen(method);
	char *p = malloc(f->n * sizeof(*r->headers) + f->bytes + method_n + 1);

	if (!p)
		return refuse(r, 503, "no memory", err);
	r->head = p;
	r->headers = (struct pair *)p;
	p += f->n * sizeof(*r->headers);
	r->method = memcpy(p, method, method_n + 1);
	p += method_n + 1;
	for (size_t i = 0; i < f->n; i++) {
		size_t n = f->list[i].value_n;

		while (n && (f->list[i].value[n - 1] == ' ' || f->list[i].value[n - 1] == '\t'))
			n--;
		r->headers[i].name = memcpy(p, f->list[i].name, f->list[i].name_n);
		p += f->list[i].name_n;
		*p++ = 0;
		r->headers[i].value = memcpy(p, f->list[i].value, n);
		p += n;
		*p++ = 0;
	}
	r->n_headers = f->n;
	return 0;
}

int head_read(struct req *r, const char *method, const char *version, struct den_err *err)
{
	const union MHD_ConnectionInfo *size =
		MHD_get_connection_info(r->c, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
	struct found f;

	f.n = f.bytes = 0;
	f.over = false;
	r->method = "-"; /* until it is known */
	r->path = r->raw_query = "";
	MHD_get_connection_values_n(r->c, MHD_HEADER_KIND, find_one, &f);
	if (r->uri_long)
		return refuse(r, 414, "the address is longer than 16 KiB", err);
	if (f.over || !size || size->header_size > HTTP_HEAD_MAX)
		return refuse(r, 431, "the headers are larger than 32 KiB or more than 200", err);
	if (strcmp(version, "HTTP/1.1") && strcmp(version, "HTTP/1.0"))
		return refuse(r, 505, "this server speaks HTTP/1.1", err);
	r->old = version[7] == '0';
	if (!is_token(method, strlen(method)) || strlen(method) > 32)
		return refuse(r, 400, "the method is no word", err);
	if (MHD_get_version()[0] == '0' && strcmp(MHD_get_version(), "0.9.77") < 0 &&
		!head_exact(r, &f, method, version, size->header_size))
		return refuse(r, 400,
			"the headers are not written as HTTP/1.1 prescribes (CR LF after each "
			"line, no folding, no NUL)",
			err);
	for (size_t i = 0; i < f.n; i++)
		if (!is_token(f.list[i].name, f.list[i].name_n) ||
			!value_clean(f.list[i].value, f.list[i].value_n))
			return refuse(r, 400,
				"a header has a name or value that HTTP/1.1 does not allow", err);
	if (head_copy(r, &f, method, err) < 0 || target_check(r, err) < 0)
		return -1;
	r->head_only = !strcmp(r->method, "HEAD");
	return framing_check(r, err);
}
