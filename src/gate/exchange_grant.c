/* Where a secret may stand, and what is put there. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "encode.h"
#include "exchange_parts.h"
#include "mem.h"

#define BLANK "\x01" /* stands in clean text for a placeholder that may be there */
#define PER_TEXT 64 /* placeholders in one header or parameter */
#define ENCODED_MIN 12 /* a shorter value's encodings would be found by chance */

void grant_used(struct exchange *x, unsigned secret, const char *where)
{
	struct use *u = &x->uses[x->n_uses];

	for (unsigned i = 0; i < x->n_uses; i++)
		if (x->uses[i].secret == secret && strcmp(x->uses[i].where, where) == 0)
			return;
	if (x->n_uses == USES_MAX)
		return;
	u->secret = secret;
	snprintf(u->where, sizeof(u->where), "%s", where);
	x->n_uses++;
}

void grant_tell(struct exchange *x)
{
	for (unsigned i = 0; i < x->n_uses && x->on.used; i++)
		x->on.used(x->on.user, x->secrets[x->uses[i].secret].name, x->uses[i].where);
	x->n_uses = 0;
}

uint64_t grant_mask(const struct exchange *x, unsigned in)
{
	uint64_t mask = 0;

	for (unsigned i = 0; i < x->n_secrets; i++)
		if (x->secrets[i].in & in)
			mask |= 1ULL << i;
	return mask;
}

static bool listed(char *const *v, const char *p, size_t n)
{
	for (; v && *v; v++)
		if (strlen(*v) == n && strncasecmp(*v, p, n) == 0)
			return true;
	return false;
}

static uint64_t mask_header(const struct exchange *x, const struct http_field *f)
{
	uint64_t mask = 0;

	for (unsigned i = 0; i < x->n_secrets; i++)
		if ((x->secrets[i].in & EXCHANGE_IN_HEADER) &&
			listed(x->secrets[i].headers, f->name, f->name_len))
			mask |= 1ULL << i;
	return mask;
}

/* Names of parameters have a case. */
static uint64_t mask_query(const struct exchange *x, const struct buf *name)
{
	uint64_t mask = 0;

	for (unsigned i = 0; i < x->n_secrets; i++) {
		const struct secret *s = &x->secrets[i];
		bool ok = !s->queries || !s->queries[0];

		for (char **q = s->queries; q && *q && !ok; q++)
			ok = strlen(*q) == name->len && memcmp(*q, name->p, name->len) == 0;
		if (ok && (s->in & EXCHANGE_IN_QUERY))
			mask |= 1ULL << i;
	}
	return mask;
}

/* The first placeholder in the text; of two at one place the longer one. */
static const char *grant_next(
	const struct exchange *x, const char *p, size_t n, uint64_t mask, unsigned *which)
{
	const char *best = NULL;

	for (unsigned i = 0; i < x->n_secrets; i++) {
		const struct secret *s = &x->secrets[i];
		const char *at;

		if (!(mask >> i & 1) || n < s->placeholder_len)
			continue;
		at = memmem(p, n, s->placeholder, s->placeholder_len);
		if (!at)
			continue;
		if (!best || at < best ||
			(at == best && s->placeholder_len > x->secrets[*which].placeholder_len)) {
			best = at;
			*which = i;
		}
	}
	return best;
}

bool grant_text(struct exchange *x, const char *p, size_t n, uint64_t mask, const char *where,
	struct buf *real, struct buf *clean)
{
	const char *at;
	unsigned which = 0;
	bool any = false;

	/* Each one costs a look through the rest, so there is a limit; what is left over is an incident. */
	for (unsigned i = 0; i < PER_TEXT && (at = grant_next(x, p, n, mask, &which)); i++) {
		const struct secret *s = &x->secrets[which];
		size_t before = (size_t)(at - p);

		buf_add(real, p, before);
		buf_add(real, s->value, s->value_len);
		buf_add(clean, p, before);
		buf_addstr(clean, BLANK);
		grant_used(x, which, where);
		p = at + s->placeholder_len;
		n -= before + s->placeholder_len;
		any = true;
	}
	if (any) {
		buf_add(real, p, n);
		buf_add(clean, p, n);
	}
	return any;
}

/* "Basic " and the like: the length of scheme and blanks; 0: another one. */
static size_t scheme_len(const struct http_field *f, const char *scheme)
{
	size_t n = strlen(scheme);

	if (f->value_len <= n || strncasecmp(f->value, scheme, n) != 0 || f->value[n] != ' ')
		return 0;
	while (n < f->value_len && f->value[n] == ' ')
		n++;
	return n;
}

static bool grant_bearer(
	struct exchange *x, const struct http_field *f, struct buf *real, struct buf *clean)
{
	size_t skip = scheme_len(f, "Bearer");

	for (unsigned i = 0; skip && i < x->n_secrets; i++) {
		const struct secret *s = &x->secrets[i];

		if (!(s->in & EXCHANGE_IN_BEARER) || f->value_len - skip != s->placeholder_len ||
			memcmp(f->value + skip, s->placeholder, s->placeholder_len) != 0)
			continue;
		buf_addf(real, "Bearer %s", s->value);
		buf_addstr(clean, "Bearer " BLANK);
		grant_used(x, i, "bearer");
		return true;
	}
	return false;
}

static bool grant_basic(
	struct exchange *x, const struct http_field *f, struct buf *real, struct buf *clean)
{
	uint64_t mask = grant_mask(x, EXCHANGE_IN_BASIC);
	size_t skip = mask ? scheme_len(f, "Basic") : 0;
	auto_buf plain = { 0 };
	auto_buf swapped = { 0 };
	bool used;

	if (!skip || decode_base64(&plain, f->value + skip, f->value_len - skip) < 0)
		return false;
	used = grant_text(x, plain.p, plain.len, mask, "basic", &swapped, clean);
	if (used) {
		buf_addstr(real, "Basic ");
		encode_base64(real, swapped.p, swapped.len);
		explicit_bzero(swapped.p, swapped.cap);
	}
	return used;
}

void grant_field(
	struct exchange *x, const struct http_field *f, struct buf *real, struct buf *clean)
{
	uint64_t mask = mask_header(x, f);
	char where[96];

	if (http_field_is(f, "authorization") &&
		(grant_bearer(x, f, real, clean) || grant_basic(x, f, real, clean)))
		return;
	snprintf(where, sizeof(where), "header %.*s", (int)MIN(f->name_len, 64U), f->name);
	if (mask && grant_text(x, f->value, f->value_len, mask, where, real, clean))
		return;
	buf_add(real, f->value, f->value_len);
	buf_add(clean, f->value, f->value_len);
}

/* One name=value. It is left as it is unless a placeholder is in it. */
static void grant_parameter(
	struct exchange *x, const char *p, size_t n, struct buf *real, struct buf *clean)
{
	const char *eq = memchr(p, '=', n);
	size_t name_len = eq ? (size_t)(eq - p) : n;
	auto_buf name = { 0 };
	auto_buf value = { 0 };
	auto_buf swapped = { 0 };
	uint64_t mask;

	decode_percent(&name, p, name_len, true);
	mask = eq ? mask_query(x, &name) : 0;
	if (mask) {
		decode_percent(&value, eq + 1, n - name_len - 1, true);
		buf_add(clean, p, name_len + 1);
		if (grant_text(x, value.p, value.len, mask, "query", &swapped, clean)) {
			buf_add(real, p, name_len + 1);
			encode_percent(real, swapped.p, swapped.len, "");
			explicit_bzero(swapped.p, swapped.cap);
			return;
		}
		clean->len -= name_len + 1;
	}
	buf_add(real, p, n);
	buf_add(clean, p, n);
}

void grant_target(struct exchange *x, const char *p, size_t n, struct buf *real, struct buf *clean)
{
	const char *mark = memchr(p, '?', n), *end = p + n;
	size_t path = mark ? (size_t)(mark - p) + 1 : n;

	if (!mark || !grant_mask(x, EXCHANGE_IN_QUERY))
		path = n;
	buf_add(real, p, path);
	buf_add(clean, p, path);
	for (p += path; p < end;) {
		const char *amp = memchr(p, '&', (size_t)(end - p));
		size_t len = (size_t)((amp ? amp : end) - p);

		grant_parameter(x, p, len, real, clean);
		p += len;
		if (amp) {
			buf_addstr(real, "&");
			buf_addstr(clean, "&");
			p++;
		}
	}
}

/* ---- encodings of a value ---------------------------------------------------------------------- */

static struct buf text_of(const char *p)
{
	struct buf b = { 0 };

	buf_addstr(&b, p);
	return b;
}

static struct buf percent_of(const char *p)
{
	struct buf b = { 0 };

	encode_percent(&b, p, strlen(p), "");
	return b;
}

static struct buf lower_percent_of(const char *p)
{
	struct buf b = percent_of(p);

	for (size_t i = 0; i + 2 < b.len; i++)
		if (b.p[i] == '%') { /* a letter among the digits gets small */
			b.p[i + 1] |= b.p[i + 1] > '9' ? 0x20 : 0;
			b.p[i + 2] |= b.p[i + 2] > '9' ? 0x20 : 0;
		}
	return b;
}

/* As the text of a JSON string; slash: with \/ */
static struct buf json_of(const char *p, bool slash)
{
	struct buf b = { 0 };

	for (; *p; p++) {
		if (*p == '"' || *p == '\\' || (*p == '/' && slash))
			buf_addstr(&b, "\\");
		buf_add(&b, p, 1);
	}
	return b;
}

static struct buf value_in(const char *value, enum body_text text)
{
	switch (text) {
	case TEXT_FORM:
		return percent_of(value);
	case TEXT_JSON:
		return json_of(value, false);
	case TEXT_BLANK:
		return text_of(BLANK);
	default:
		return text_of(value);
	}
}

struct swap *grant_swap_body(const struct exchange *x, enum body_text text)
{
	struct swap_pair pairs[EXCHANGE_SECRETS_MAX] = {
		0
	}; /* an empty pattern keeps the numbers the same */
	struct buf values[EXCHANGE_SECRETS_MAX] = { 0 };
	struct swap *s;

	if (!grant_mask(x, EXCHANGE_IN_BODY))
		return NULL;
	for (unsigned i = 0; i < x->n_secrets; i++)
		if (x->secrets[i].in & EXCHANGE_IN_BODY) {
			values[i] = value_in(x->secrets[i].value, text);
			pairs[i] = (struct swap_pair){ x->secrets[i].placeholder,
				x->secrets[i].placeholder_len, values[i].p, values[i].len };
		}
	s = swap_new(pairs, x->n_secrets);
	for (unsigned i = 0; i < x->n_secrets; i++) {
		if (values[i].p)
			explicit_bzero(values[i].p, values[i].len);
		buf_free(&values[i]);
	}
	return s;
}

/* ---- the way back ------------------------------------------------------------------------------ */

bool grant_guards(const struct exchange *x)
{
	return x->n_secrets || x->token_audience;
}

bool grant_shows(const struct exchange *x)
{
	bool shows = x->token_audience != NULL;

	for (unsigned i = 0; i < x->n_secrets; i++)
		shows |= x->secrets[i].in != EXCHANGE_IN_SIGV4 || x->secrets[i].session_token;
	return shows;
}

struct pairs {
	struct buf *texts; /* from and to, in turn */
	unsigned n;
};

static void pair_add(struct pairs *v, struct buf from, struct buf to)
{
	for (unsigned i = 0; i < v->n; i += 2)
		if (v->texts[i].len == from.len && memcmp(v->texts[i].p, from.p, from.len) == 0) {
			explicit_bzero(from.p, from.len);
			buf_free(&from);
			buf_free(&to);
			return;
		}
	v->texts = mem_realloc(v->texts, (v->n + 2) * sizeof(*v->texts));
	v->texts[v->n++] = from;
	v->texts[v->n++] = to;
}

/* An encoded value has no encoded placeholder of the same alignment and length: it becomes a row of one
 * letter that says nothing. */
static void pair_mask(struct pairs *v, struct buf from, char letter)
{
	struct buf to = { 0 };

	buf_reserve(&to, from.len);
	memset(to.p, letter, from.len);
	to.len = from.len;
	pair_add(v, from, to);
}

static void pairs_encoded(struct pairs *v, const char *value)
{
	size_t n = strlen(value);
	struct buf hex = { 0 }, upper = { 0 };

	encode_hex(&hex, value, n);
	for (size_t i = 0; i < hex.len; i++)
		buf_add(&upper, &(char){ hex.p[i] > '9' ? (char)(hex.p[i] & ~0x20) : hex.p[i] }, 1);
	pair_mask(v, hex, '0');
	pair_mask(v, upper, '0');
	for (unsigned skip = 0; skip < 3; skip++) {
		struct buf std = { 0 }, url = { 0 };

		encode_base64_inside(&std, value, n, skip, encode_base64_alphabet);
		encode_base64_inside(&url, value, n, skip, encode_base64url_alphabet);
		pair_mask(v, std, 'A');
		pair_mask(v, url, 'A');
	}
}

static void pairs_of(struct pairs *v, const char *value, const char *placeholder)
{
	pair_add(v, text_of(value), text_of(placeholder));
	pair_add(v, percent_of(value), percent_of(placeholder));
	pair_add(v, lower_percent_of(value), percent_of(placeholder));
	pair_add(v, json_of(value, false), json_of(placeholder, false));
	pair_add(v, json_of(value, true), json_of(placeholder, true));
	if (strlen(value) >= ENCODED_MIN)
		pairs_encoded(v, value);
}

/* Its signature alone is worth the token: the rest can be guessed. */
static void pairs_token(struct pairs *v, const char *token)
{
	const char *dot = strrchr(token, '.');

	pairs_of(v, token, EXCHANGE_TOKEN_GONE);
	if (dot && strlen(dot + 1) >= ENCODED_MIN)
		pairs_of(v, dot + 1, EXCHANGE_TOKEN_GONE);
}

struct swap *grant_swap_answer(const struct exchange *x)
{
	struct pairs v = { 0 };
	auto_free struct swap_pair *pairs = NULL;
	struct swap *s;

	if (!grant_guards(x))
		return NULL;
	for (unsigned i = 0; i < TOKENS_MAX && x->tokens[i]; i++)
		pairs_token(&v, x->tokens[i]);
	for (unsigned i = 0; i < x->n_secrets; i++) {
		pairs_of(&v, x->secrets[i].value, x->secrets[i].placeholder);
		if (x->secrets[i].session_token)
			pairs_of(&v, x->secrets[i].session_token, x->secrets[i].placeholder);
	}
	pairs = mem_alloc((v.n / 2 + 1) * sizeof(*pairs));
	for (unsigned i = 0; i < v.n; i += 2)
		pairs[i / 2] = (struct swap_pair){ v.texts[i].p, v.texts[i].len, v.texts[i + 1].p,
			v.texts[i + 1].len, true };
	s = swap_new(pairs, v.n / 2);
	for (unsigned i = 0; i < v.n; i++) {
		explicit_bzero(v.texts[i].p, v.texts[i].len);
		buf_free(&v.texts[i]);
	}
	free(v.texts);
	return s;
}
