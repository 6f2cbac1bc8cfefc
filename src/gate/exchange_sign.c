/*
 * AWS requests. The box's SDK signs with a placeholder for a key; the gate drops that signature and signs
 * what it sends. Which headers are signed, region and service are taken from the box's signature, unless
 * the grant says them: then they must be the same. Not signed anew, and refused: presigned URLs (they
 * would be good for others, elsewhere) and bodies signed chunk by chunk.
 */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "encode.h"
#include "exchange_parts.h"
#include "mem.h"
#include "sha256.h"

void sign_end(struct exchange *x)
{
	free(x->sign.names);
	x->sign = (struct signing){ 0 };
}

static bool same(const char *text, const char *p, size_t n)
{
	return strlen(text) == n && memcmp(text, p, n) == 0;
}

static bool copy_text(char *ret, size_t cap, const char *p, size_t n)
{
	if (n >= cap)
		return false;
	memcpy(ret, p, n);
	ret[n] = '\0';
	return true;
}

/* The names of parameters may be encoded as well. */
static bool presigned(const char *p, size_t n)
{
	const char *mark = memchr(p, '?', n);
	auto_buf query = { 0 };

	if (!mark)
		return false;
	decode_percent(&query, mark, n - (size_t)(mark - p), false);
	for (size_t i = 0; i < query.len; i++)
		if (!query.p[i])
			query.p[i] = ' '; /* no end of a text */
	return strcasestr(buf_str(&query), "X-Amz-Signature=") ||
	       strcasestr(buf_str(&query), "X-Amz-Credential=");
}

static const char *payload_take(struct signing *s, const struct http_head *h)
{
	const struct http_field *f = http_find(h, "x-amz-content-sha256");
	bool hash = f && f->value_len == 64;

	if (!f)
		return NULL;
	if (http_count(h, "x-amz-content-sha256") > 1)
		return "several x-amz-content-sha256 headers";
	for (size_t i = 0; hash && i < 64; i++)
		hash = hex_digit(f->value[i]) >= 0;
	if (!hash && !same(SIGV4_UNSIGNED, f->value, f->value_len) &&
		!same("STREAMING-" SIGV4_UNSIGNED "-TRAILER", f->value, f->value_len))
		return "an AWS body signed chunk by chunk, which cannot be signed anew: let the "
		       "SDK send it"
		       " unsigned over TLS, or with a hash of all of it";
	copy_text(s->payload, sizeof(s->payload), f->value, f->value_len);
	return NULL;
}

/* Whose key the request says it is signed with. */
static const struct secret *sign_secret(const struct exchange *x, const struct sigv4_claim *c)
{
	for (unsigned i = 0; i < x->n_secrets; i++) {
		const struct secret *s = &x->secrets[i];

		if ((s->in & EXCHANGE_IN_SIGV4) &&
			(!s->access_key || same(s->access_key, c->access_key, c->access_key_len)))
			return s;
	}
	return NULL;
}

int sign_begin(struct exchange *x, const struct http_head *h, struct buf *to_box)
{
	const struct http_field *f = http_find(h, "authorization");
	struct signing s = { 0 };
	struct sigv4_claim c;
	const char *wrong;
	int found;

	sign_end(x);
	if (!grant_mask(x, EXCHANGE_IN_SIGV4))
		return 0;
	if (presigned(h->path, h->path_len))
		return exchange_refuse(x, 403,
			"a presigned AWS URL: the grant is for signed requests, send those", NULL,
			to_box);
	if (!f || f->value_len < 5 || strncasecmp(f->value, "AWS4-", 5) != 0)
		return 0; /* not signed: public data */
	if (http_count(h, "authorization") > 1 || sigv4_claim_parse(f->value, f->value_len, &c) < 0)
		return exchange_refuse(x, 403,
			"an AWS signature other than " SIGV4_ALGORITHM
			" in one Authorization header",
			NULL, to_box);
	found = canary_find(x->canaries, f->value, f->value_len); /* parts of it are sent on */
	if (found >= 0)
		return exchange_incident(x, found, "header authorization", false, to_box);
	s.secret = sign_secret(x, &c);
	if (!s.secret)
		return exchange_refuse(
			x, 403, "an AWS access key that is not granted here", NULL, to_box);
	if ((s.secret->region && !same(s.secret->region, c.region, c.region_len)) ||
		(s.secret->service && !same(s.secret->service, c.service, c.service_len)))
		return exchange_refuse(x, 403,
			"an AWS region or service other than the granted one", NULL, to_box);
	wrong = payload_take(&s, h);
	if (wrong)
		return exchange_refuse(x, 403, wrong, NULL, to_box);
	if (!copy_text(s.access_key, sizeof(s.access_key), c.access_key, c.access_key_len) ||
		!copy_text(s.region, sizeof(s.region), c.region, c.region_len) ||
		!copy_text(s.service, sizeof(s.service), c.service, c.service_len))
		return exchange_refuse(
			x, 403, "an AWS credential with parts that are too long", NULL, to_box);
	s.names = mem_strndup(c.signed_headers, c.signed_headers_len);
	x->sign = s;
	return 0;
}

bool sign_drops(const struct exchange *x, const struct http_field *f)
{
	if (!x->sign.secret)
		return false;
	return http_field_is(f, "authorization") || http_field_is(f, "x-amz-security-token") ||
	       http_field_is(f, "x-amz-date") ||
	       (x->sign.put_hash && http_field_is(f, "x-amz-content-sha256"));
}

/* Signed are the fields that the box signed, and always these. */
static bool wants_signed(const struct exchange *x, const struct http_field *f)
{
	static const char *const always[] = { "host", "x-amz-date", "x-amz-security-token",
		"x-amz-content-sha256" };
	const char *p = x->sign.names;

	for (unsigned i = 0; i < ARRAY_SIZE(always); i++)
		if (http_field_is(f, always[i]))
			return true;
	while (*p) {
		size_t n = strcspn(p, ";");

		if (n == f->name_len && strncasecmp(p, f->name, n) == 0)
			return true;
		p += n + (p[n] == ';');
	}
	return false;
}

static void payload_hash(struct exchange *x)
{
	struct sha256 h;

	sha256_init(&h);
	sha256_add(&h, x->hold.len ? x->hold.p : "", x->hold.len);
	sha256_hex(&h, x->sign.payload);
}

int sign_finish(struct exchange *x, struct buf *to_box)
{
	struct signing *s = &x->sign;
	struct sigv4_key key = { s->access_key, s->secret->value, s->region, s->service };
	struct sigv4_request r = { .payload = s->payload };
	char date[SIGV4_DATE_SIZE], signature[65];
	auto_free struct http_field *f = NULL;
	auto_buf authorization = { 0 };
	struct http_head h;
	const char *why;

	if (!s->payload[0])
		payload_hash(x);
	sigv4_date(x->on.now ? x->on.now(x->on.user) : time(NULL), date);
	buf_addf(&x->head, "X-Amz-Date: %s\r\n", date);
	if (s->put_hash)
		buf_addf(&x->head, "X-Amz-Content-Sha256: %s\r\n", s->payload);
	if (s->secret->session_token)
		buf_addf(&x->head, "X-Amz-Security-Token: %s\r\n", s->secret->session_token);
	buf_addstr(&x->head, "\r\n");
	/* What is signed is read from what is sent. */
	if (http_request_parse(x->head.p, x->head.len, &h, &why) != HTTP_OK)
		return exchange_refuse(
			x, 431, "a head that is too large to be signed", NULL, to_box);
	f = mem_alloc((h.n + 1) * sizeof(*f));
	for (unsigned i = 0; i < h.n; i++)
		if (wants_signed(x, &h.f[i]))
			f[r.n++] = h.f[i];
	r.f = f;
	r.method = h.method;
	r.target = h.path;
	r.target_len = h.path_len;
	sigv4_sign(&r, &key, date, &authorization, signature);
	http_head_free(&h);
	x->head.len -= 2;
	buf_addf(&x->head, "Authorization: %s\r\n", buf_str(&authorization));
	grant_used(x, (unsigned)(s->secret - x->secrets), "sigv4");
	return 0;
}
