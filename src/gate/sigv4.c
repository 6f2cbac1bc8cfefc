#include "sigv4.h"

#include <stdio.h>
#include <string.h>

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "encode.h"
#include "mem.h"
#include "sha256.h"

struct text {
	char *name, *value;
};

static bool blank(char c)
{
	return c == ' ' || c == '\t';
}

void sigv4_date(time_t now, char ret[static SIGV4_DATE_SIZE])
{
	struct tm tm;

	gmtime_r(&now, &tm);
	strftime(ret, SIGV4_DATE_SIZE, "%Y%m%dT%H%M%SZ", &tm);
}

static int text_order(const void *a, const void *b)
{
	const struct text *x = a, *y = b;
	int r = strcmp(x->name, y->name);

	return r ? r : strcmp(x->value, y->value);
}

static void texts_free(struct text *t, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		free(t[i].name);
		free(t[i].value);
	}
	free(t);
}

/* "/a/../b//c/" becomes "/b/c/". */
static void path_normalise(const char *p, size_t n, struct buf *out)
{
	size_t i = 0;
	bool slash = true; /* the path ends in one, or in a segment that stands for a directory */

	while (i < n) {
		size_t from = i, len;

		while (i < n && p[i] != '/')
			i++;
		len = i - from;
		slash = i < n;
		i++;
		if (len == 0)
			continue;
		if (len == 1 && p[from] == '.') {
			slash = true;
			continue;
		}
		if (len == 2 && p[from] == '.' && p[from + 1] == '.') {
			while (out->len && out->p[--out->len] != '/')
				;
			slash = true;
			continue;
		}
		buf_addstr(out, "/");
		buf_add(out, p + from, len);
	}
	if (slash || !out->len)
		buf_addstr(out, "/");
}

/* S3 takes the path as it was before the client encoded it; all others encode what is on the wire once
 * more. */
static void path_put(const char *p, size_t n, bool s3, struct buf *out)
{
	auto_buf plain = { 0 };

	if (s3)
		decode_percent(&plain, p, n, false);
	else
		path_normalise(p, n, &plain);
	if (!plain.len)
		buf_addstr(&plain, "/");
	encode_percent(out, plain.p, plain.len, "/");
}

static char *query_part(const char *p, size_t n)
{
	auto_buf plain = { 0 };
	struct buf out = { 0 };

	decode_percent(&plain, p, n, true);
	encode_percent(&out, plain.p, plain.len, "");
	buf_str(&out);
	return out.p;
}

static void query_put(const char *p, size_t n, struct buf *out)
{
	struct text *t = mem_zalloc((n + 1) * sizeof(*t)); /* n is bounded by the head's limit */
	size_t count = 0;

	for (size_t i = 0; i < n;) {
		const char *end = memchr(p + i, '&', n - i);
		size_t len = end ? (size_t)(end - p) - i : n - i;
		const char *eq = memchr(p + i, '=', len);
		size_t name = eq ? (size_t)(eq - p) - i : len;

		if (len) {
			t[count].name = query_part(p + i, name);
			t[count++].value = query_part(p + i + name + !!eq, len - name - !!eq);
		}
		i += len + 1;
	}
	qsort(t, count, sizeof(*t), text_order);
	for (size_t i = 0; i < count; i++)
		buf_addf(out, "%s%s=%s", i ? "&" : "", t[i].name, t[i].value);
	texts_free(t, count);
}

/* Blanks around are gone, several inside become one. */
static void value_put(struct buf *out, const char *p, size_t n)
{
	while (n && blank(p[0])) {
		p++;
		n--;
	}
	while (n && blank(p[n - 1]))
		n--;
	for (size_t i = 0; i < n; i++)
		if (!blank(p[i]))
			buf_add(out, &p[i], 1);
		else if (!blank(p[i - 1]))
			buf_addstr(out, " ");
}

static int name_order(const void *a, const void *b)
{
	const struct http_field *x = *(const struct http_field *const *)a,
				*y = *(const struct http_field *const *)b;
	int r = strncasecmp(x->name, y->name, MIN(x->name_len, y->name_len));

	if (r)
		return r;
	if (x->name_len != y->name_len)
		return x->name_len < y->name_len ? -1 : 1;
	return x < y ? -1 : x > y; /* several of one name keep their order */
}

/* The canonical fields, and the list of their names. */
static void fields_put(const struct sigv4_request *r, struct buf *out, struct buf *names)
{
	const struct http_field **f = mem_alloc((r->n + 1) * sizeof(*f));
	const struct http_field *last = NULL;

	for (unsigned i = 0; i < r->n; i++)
		f[i] = &r->f[i];
	qsort(f, r->n, sizeof(*f), name_order);
	for (unsigned i = 0; i < r->n; i++) {
		if (last && last->name_len == f[i]->name_len &&
			strncasecmp(last->name, f[i]->name, last->name_len) == 0) {
			out->p[out->len - 1] = ','; /* over the line's end */
		} else {
			buf_addstr(names, last ? ";" : "");
			for (size_t k = 0; k < f[i]->name_len; k++) {
				char c = f[i]->name[k];

				c = c >= 'A' && c <= 'Z' ? (char)(c | 0x20) : c;
				buf_add(names, &c, 1);
				buf_add(out, &c, 1);
			}
			buf_addstr(out, ":");
		}
		value_put(out, f[i]->value, f[i]->value_len);
		buf_addstr(out, "\n");
		last = f[i];
	}
	free(f);
}

static void canonical_put(
	const struct sigv4_request *r, bool s3, struct buf *out, struct buf *names)
{
	const char *mark = memchr(r->target, '?', r->target_len);
	size_t path = mark ? (size_t)(mark - r->target) : r->target_len;

	buf_addf(out, "%s\n", r->method);
	path_put(r->target, path, s3, out);
	buf_addstr(out, "\n");
	if (mark)
		query_put(mark + 1, r->target_len - path - 1, out);
	buf_addstr(out, "\n");
	fields_put(r, out, names);
	buf_addf(out, "\n%s\n%s", buf_str(names), r->payload);
}

static void hash_hex(const void *p, size_t n, char ret[static 65])
{
	struct sha256 h;

	sha256_init(&h);
	sha256_add(&h, p, n);
	sha256_hex(&h, ret);
}

static void hmac(const void *key, size_t key_len, const void *p, size_t n, uint8_t ret[static 32])
{
	unsigned len = 32;

	if (!HMAC(EVP_sha256(), key, (int)key_len, p, n, ret, &len))
		abort(); /* no memory: as mem_alloc() */
}

static void signature_of(const struct sigv4_key *k, const char date[static SIGV4_DATE_SIZE],
	const struct buf *text, char ret[static 65])
{
	auto_buf key = { 0 };
	auto_buf hex = { 0 };
	uint8_t h[32];

	buf_addf(&key, "AWS4%s", k->secret);
	hmac(key.p, key.len, date, 8, h);
	hmac(h, 32, k->region, strlen(k->region), h);
	hmac(h, 32, k->service, strlen(k->service), h);
	hmac(h, 32, "aws4_request", 12, h);
	hmac(h, 32, text->p, text->len, h);
	encode_hex(&hex, h, 32);
	memcpy(ret, buf_str(&hex), 65);
	explicit_bzero(key.p, key.len);
	explicit_bzero(h, sizeof(h));
}

static void scope_put(struct buf *b, const struct sigv4_key *k, const char *date)
{
	buf_addf(b, "%.8s/%s/%s/aws4_request", date, k->region, k->service);
}

/* Services whose paths are not encoded a second time. */
static bool is_s3(const char *service)
{
	static const char *const s3[] = { "s3", "s3-object-lambda", "s3-outposts", "s3express" };

	for (unsigned i = 0; i < ARRAY_SIZE(s3); i++)
		if (strcmp(service, s3[i]) == 0)
			return true;
	return false;
}

void sigv4_sign(const struct sigv4_request *r, const struct sigv4_key *k,
	const char date[static SIGV4_DATE_SIZE], struct buf *authorization,
	char signature[static 65])
{
	auto_buf canonical = { 0 };
	auto_buf names = { 0 };
	auto_buf text = { 0 };
	char hex[65];

	canonical_put(r, is_s3(k->service), &canonical, &names);
	hash_hex(canonical.p, canonical.len, hex);
	buf_addf(&text, SIGV4_ALGORITHM "\n%s\n", date);
	scope_put(&text, k, date);
	buf_addf(&text, "\n%s", hex);
	signature_of(k, date, &text, signature);
	buf_addf(authorization, SIGV4_ALGORITHM " Credential=%s/", k->access_key);
	scope_put(authorization, k, date);
	buf_addf(authorization, ", SignedHeaders=%s, Signature=%s", buf_str(&names), signature);
}

/* Up to the next `end`, or to the end of the text; nothing that could not stand in a header. */
static bool claim_take(const char **p, const char *stop, char end, const char **ret, size_t *len)
{
	const char *q = *p;

	while (q<stop && * q != end && * q> ' ' && *q < 0x7f)
		q++;
	if (q == *p || (end && (q == stop || *q != end)))
		return false;
	*ret = *p;
	*len = (size_t)(q - *p);
	*p = q + (end && q < stop);
	return true;
}

/* name=, then what is behind it. */
static const char *claim_find(const char *value, size_t len, const char *name)
{
	size_t n = strlen(name);

	for (size_t i = 0; i + n <= len; i++)
		if (memcmp(value + i, name, n) == 0 &&
			(i == 0 || blank(value[i - 1]) || value[i - 1] == ','))
			return value + i + n;
	return NULL;
}

int sigv4_claim_parse(const char *value, size_t len, struct sigv4_claim *ret)
{
	static const char head[] = SIGV4_ALGORITHM;
	const char *stop = value + len, *p, *date, *term;
	struct sigv4_claim c;
	size_t date_len, term_len;

	if (len < sizeof(head) || memcmp(value, head, sizeof(head) - 1) != 0 ||
		!blank(value[sizeof(head) - 1]))
		return -1;
	p = claim_find(value, len, "Credential=");
	if (!p || !claim_take(&p, stop, '/', &c.access_key, &c.access_key_len) ||
		!claim_take(&p, stop, '/', &date, &date_len) ||
		!claim_take(&p, stop, '/', &c.region, &c.region_len) ||
		!claim_take(&p, stop, '/', &c.service, &c.service_len) ||
		!claim_take(&p, stop, ',', &term, &term_len) || term_len != 12 ||
		memcmp(term, "aws4_request", 12) != 0)
		return -1;
	p = claim_find(value, len, "SignedHeaders=");
	if (!p || !claim_take(&p, stop, ',', &c.signed_headers, &c.signed_headers_len))
		return -1;
	*ret = c;
	return 0;
}
