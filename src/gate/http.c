#include "http.h"

#include <string.h>
#include <strings.h>

#include "http_parts.h"
#include "mem.h"

#define EARLY 64U /* bytes of an unfinished first line that are looked at */
#define GUESS_MAX 8192U /* a line that has not ended by then is no other protocol's */

bool http_is_token_char(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       (c && strchr("!#$%&'*+-.^_`|~", c));
}

bool http_is_value_char(char c)
{
	unsigned char u = (unsigned char)c;

	return u == '\t' || (u >= ' ' && u != 0x7f);
}

static size_t token_len(const char *p, size_t n)
{
	size_t i = 0;

	while (i < n && http_is_token_char(p[i]))
		i++;
	return i;
}

static bool is_blank(char c)
{
	return c == ' ' || c == '\t';
}

static bool same_word(const char *p, size_t n, const char *word)
{
	return n == strlen(word) && !strncasecmp(p, word, n);
}

/* ---- fields */

bool http_field_is(const struct http_field *f, const char *name)
{
	return same_word(f->name, f->name_len, name);
}

const struct http_field *http_find(const struct http_head *h, const char *name)
{
	for (unsigned i = 0; i < h->n; i++)
		if (http_field_is(&h->f[i], name))
			return &h->f[i];
	return NULL;
}

unsigned http_count(const struct http_head *h, const char *name)
{
	unsigned count = 0;

	for (unsigned i = 0; i < h->n; i++)
		count += http_field_is(&h->f[i], name);
	return count;
}

/* Calls each on the members of a comma-separated list, without blanks and parameters, till it says true. */
static bool list_any(const struct http_field *f,
	bool (*each)(const char *p, size_t n, const char *word), const char *word)
{
	const char *p = f->value, *end = f->value + f->value_len;

	for (;;) {
		const char *comma = memchr(p, ',', (size_t)(end - p)), *stop = comma ? comma : end;
		const char *semi = memchr(p, ';', (size_t)(stop - p)), *last = semi ? semi : stop;

		while (p < last && is_blank(*p))
			p++;
		while (p < last && is_blank(last[-1]))
			last--;
		if (each(p, (size_t)(last - p), word))
			return true;
		if (!comma)
			return false;
		p = comma + 1;
	}
}

static bool lists_any(const struct http_head *h, const char *name,
	bool (*each)(const char *p, size_t n, const char *word), const char *word)
{
	for (unsigned i = 0; i < h->n; i++)
		if (http_field_is(&h->f[i], name) && list_any(&h->f[i], each, word))
			return true;
	return false;
}

bool http_has_token(const struct http_head *h, const char *name, const char *word)
{
	return lists_any(h, name, same_word, word);
}

static const char *field_read(const char *p, size_t n, struct http_field *ret)
{
	size_t name = token_len(p, n), at = name + 1, end = n;

	if (is_blank(p[0]))
		return "a folded header";
	if (name == n || p[name] != ':')
		return name && name < n && is_blank(p[name])
			       ? "a blank before the colon of a header"
			       : "a malformed name of a header";
	if (!name)
		return "a header without a name";
	while (at < end && is_blank(p[at]))
		at++;
	while (end > at && is_blank(p[end - 1]))
		end--;
	for (size_t i = at; i < end; i++)
		if (!http_is_value_char(p[i]))
			return "a control byte in a header";
	*ret = (struct http_field){ p, name, p + at, end - at };
	return NULL;
}

/* Lines from p to end, each with CR LF behind it, the last one empty: head_scan() saw to that. */
static const char *fields_read(const char *p, const char *end, struct http_head *h)
{
	while (p[0] != '\r') {
		size_t n = (size_t)((const char *)memchr(p, '\r', (size_t)(end - p)) - p);
		const char *why;

		if (h->n == HTTP_FIELDS_MAX)
			return "too many headers";
		why = field_read(p, n, &h->f[h->n]);
		if (why)
			return why;
		h->n++;
		p += n + 2;
	}
	return NULL;
}

/* ---- how long the body is, and what follows it */

static const char *length_read(const struct http_field *f, bool strict, uint64_t *ret)
{
	uint64_t v = 0;

	/* a zero in front may be meant in base 8; servers that fill in the length later write such ones */
	if (!f->value_len || (strict && f->value_len > 1 && f->value[0] == '0'))
		return "a malformed Content-Length";
	for (size_t i = 0; i < f->value_len; i++) {
		unsigned digit = (unsigned char)f->value[i] - (unsigned)'0';

		if (digit > 9)
			return "a malformed Content-Length";
		if (v > ((uint64_t)INT64_MAX - digit) / 10)
			return "a Content-Length that is too large";
		v = v * 10 + digit;
	}
	*ret = v;
	return NULL;
}

/* Some servers make both into CONTENT_LENGTH. */
static bool is_lookalike(const struct http_field *f)
{
	static const char *const names[] = { "content-length", "transfer-encoding" };

	if (!memchr(f->name, '_', f->name_len))
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		size_t at = 0;

		while (at < f->name_len && names[i][at] &&
			(f->name[at] == '_' ? '-' : f->name[at] | 0x20) == names[i][at])
			at++;
		if (at == f->name_len && !names[i][at])
			return true;
	}
	return false;
}

/* Sets body (LENGTH, CHUNKED, or NONE when neither is given) and length. */
static const char *framing_read(struct http_head *h)
{
	const struct http_field *length = http_find(h, "content-length");
	const struct http_field *coding = http_find(h, "transfer-encoding");

	for (unsigned i = 0; h->request && i < h->n; i++)
		if (is_lookalike(&h->f[i]))
			return "a header that some servers take for Content-Length or "
			       "Transfer-Encoding";
	if (http_count(h, "content-length") > 1)
		return "more than one Content-Length";
	if (http_count(h, "transfer-encoding") > 1)
		return "more than one Transfer-Encoding";
	if (length && coding)
		return "both Content-Length and Transfer-Encoding";
	if (coding && !h->minor)
		return "Transfer-Encoding in HTTP/1.0";
	if (coding) {
		/* the case of a request is up to the box, and not all servers ignore it */
		if (!same_word(coding->value, coding->value_len, "chunked") ||
			(h->request && memcmp(coding->value, "chunked", 7)))
			return "a Transfer-Encoding other than chunked";
		h->body = HTTP_BODY_CHUNKED;
	} else if (length) {
		const char *why = length_read(length, h->request, &h->length);

		if (why)
			return why;
		h->body = HTTP_BODY_LENGTH;
	}
	return NULL;
}

static void keep_alive_read(struct http_head *h)
{
	h->keep_alive = !http_has_token(h, "connection", "close") &&
			(h->minor || http_has_token(h, "connection", "keep-alive"));
}

/* A protocol that could carry requests past the gate. */
static bool is_hidden_http(const char *p, size_t n, const char *word)
{
	(void)word;
	return (n >= 2 && !strncasecmp(p, "h2", 2)) || (n >= 5 && !strncasecmp(p, "http/", 5)) ||
	       (n >= 3 && !strncasecmp(p, "tls", 3));
}

static const char *request_finish(struct http_head *h)
{
	static const char *const kept[] = { "host", "content-length", "transfer-encoding" };
	const struct http_field *expect = http_find(h, "expect"),
				*upgrade = http_find(h, "upgrade");
	const char *why = http_target_read(h);

	if (!why)
		why = framing_read(h);
	if (why)
		return why;
	if (h->form == HTTP_FORM_AUTHORITY && (h->body == HTTP_BODY_CHUNKED || h->length))
		return "CONNECT with a body";
	/* a proxy further on would take away what Connection names */
	for (size_t i = 0; i < ARRAY_SIZE(kept); i++)
		if (http_has_token(h, "connection", kept[i]))
			return "a Connection that names what must stay";
	if (expect && (http_count(h, "expect") > 1 ||
			      !same_word(expect->value, expect->value_len, "100-continue")))
		return "an Expect other than 100-continue";
	h->expect_continue = expect && h->minor;
	h->h2c = lists_any(h, "upgrade", is_hidden_http, NULL);
	h->upgrade = upgrade && upgrade->value_len && h->minor && !h->h2c &&
		     http_has_token(h, "connection", "upgrade");
	keep_alive_read(h);
	return NULL;
}

static const char *response_finish(struct http_head *h, const char *method)
{
	bool tunnel = method && !strcmp(method, "CONNECT") && h->status / 100 == 2;
	const char *why = framing_read(h);

	if (why)
		return why;
	keep_alive_read(h);
	h->upgrade = h->status == 101 || tunnel;
	/* some clients read a body here, though there is none */
	if ((h->status < 200 || h->status == 204) && (h->body == HTTP_BODY_CHUNKED || h->length))
		return "a body where the status allows none";
	if (h->status < 200 || h->status == 204 || h->status == 304 || tunnel ||
		(method && !strcmp(method, "HEAD"))) {
		h->body = HTTP_BODY_NONE;
		h->length = 0;
	} else if (h->body == HTTP_BODY_NONE) {
		h->body = HTTP_BODY_CLOSE;
		h->keep_alive = false;
	}
	return NULL;
}

/* ---- the first line */

static bool version_read(const char *p, size_t n, int *minor)
{
	if (n != 8 || memcmp(p, "HTTP/1.", 7) || (p[7] != '0' && p[7] != '1'))
		return false;
	*minor = p[7] - '0';
	return true;
}

static const char *request_line_read(const char *p, size_t n, struct http_head *h)
{
	size_t method = token_len(p, n), at = method + 1;

	if (!method || method >= sizeof(h->method) || method == n || p[method] != ' ')
		return "a malformed method";
	memcpy(h->method, p, method);
	h->target = p + at;
	for (; at < n && p[at] != ' '; at++)
		if ((unsigned char)p[at] <= ' ' || (unsigned char)p[at] > '~' || p[at] == '#')
			return "a byte in the target that belongs in no URL";
	h->target_len = (size_t)(p + at - h->target);
	if (!h->target_len)
		return "no target";
	if (at == n || !version_read(p + at + 1, n - at - 1, &h->minor))
		return "a version other than HTTP/1.0 and HTTP/1.1, or more than one blank";
	return NULL;
}

static const char *status_line_read(const char *p, size_t n, struct http_head *h)
{
	if (n < 12 || !version_read(p, 8, &h->minor) || p[8] != ' ')
		return "a malformed status line";
	for (size_t i = 9; i < 12; i++) {
		if (p[i] < '0' || p[i] > '9')
			return "a malformed status";
		h->status = h->status * 10 + (p[i] - '0');
	}
	if (h->status < 100 || (n > 12 && p[12] != ' '))
		return "a malformed status";
	for (size_t i = 13; i < n; i++)
		if (!http_is_value_char(p[i]))
			return "a control byte in the status line";
	return NULL;
}

/* Can a first line begin so? A client that speaks something else is not kept waiting for the end of a
 * line that will never come. */
static bool line_begins_well(const char *p, size_t n, bool request)
{
	n = MIN(n, EARLY);
	if (!request)
		return !memcmp(p, "HTTP/1.", MIN(n, 7U));
	if (n && !http_is_token_char(p[0]))
		return false;
	for (size_t i = 0; i < n && p[i] != '\r'; i++)
		if (p[i] < ' ' || p[i] > '~')
			return false;
	return true;
}

/* ---- the whole */

/* Where the first line and the head end; 0 for one that has not come yet. */
static const char *head_scan(const char *p, size_t n, size_t *line, size_t *head)
{
	size_t at = 0;

	*line = *head = 0;
	for (;;) {
		const char *cr = memchr(p + at, '\r', n - at);
		size_t stop = cr ? (size_t)(cr - p) : n;

		if (memchr(p + at, '\n', stop - at))
			return "a line that ends in LF alone";
		if (!cr || stop + 1 == n)
			return NULL;
		if (p[stop + 1] != '\n')
			return "a CR that ends no line";
		if (!stop)
			return "an empty line before the first";
		if (!*line)
			*line = stop;
		if (stop == at) {
			*head = stop + 2;
			return NULL;
		}
		at = stop + 2;
	}
}

static enum http_result head_parse(
	const char *p, size_t n, const char *method, struct http_head *h, const char **why)
{
	const char *wrong;
	size_t line, looked_at = MIN(n, HTTP_HEAD_MAX);

	wrong = head_scan(p, looked_at, &line, &h->head_len);
	if (!wrong && line)
		wrong = h->request ? request_line_read(p, line, h) : status_line_read(p, line, h);
	else if (!wrong && !line_begins_well(p, looked_at, h->request))
		wrong = "not HTTP";
	if (!wrong && !h->head_len && looked_at == HTTP_HEAD_MAX)
		wrong = "a head longer than 64 KiB";
	if (!wrong && !h->head_len)
		return HTTP_MORE;
	if (!wrong) {
		h->f = mem_alloc(HTTP_FIELDS_MAX * sizeof(*h->f));
		wrong = fields_read(p + line + 2, p + h->head_len, h);
	}
	if (!wrong)
		wrong = h->request ? request_finish(h) : response_finish(h, method);
	if (wrong) {
		*why = wrong;
		return HTTP_BAD;
	}
	return HTTP_OK;
}

static enum http_result parse(const char *p, size_t n, bool request, const char *method,
	struct http_head *ret, const char **why)
{
	struct http_head h = { .request = request };
	enum http_result r = n ? head_parse(p, n, method, &h, why) : HTTP_MORE;

	if (r != HTTP_OK) {
		http_head_free(&h);
		return r;
	}
	/* nearly all heads have far less fields than are allowed */
	h.f = mem_realloc(h.f, MAX(h.n, 1U) * sizeof(*h.f));
	*ret = h;
	return HTTP_OK;
}

enum http_result http_request_parse(
	const char *p, size_t n, struct http_head *ret, const char **why)
{
	return parse(p, n, true, NULL, ret, why);
}

enum http_result http_response_parse(const char *p, size_t n, const char *request_method,
	struct http_head *ret, const char **why)
{
	return parse(p, n, false, request_method, ret, why);
}

void http_head_free(struct http_head *h)
{
	free(mem_take(&h->f));
	h->n = 0;
}

/* ---- a guess */

static bool has_known_method(const char *p, size_t n)
{
	static const char *const known[] = { "GET /", "HEAD /", "POST /", "PUT /", "DELETE /",
		"PATCH /", "OPTIONS /", "TRACE /" };

	for (size_t i = 0; i < ARRAY_SIZE(known); i++)
		if (n >= strlen(known[i]) && !strncasecmp(p, known[i], strlen(known[i])))
			return true;
	return false;
}

bool http_looks_like_request(const char *p, size_t n, bool *need_more)
{
	size_t at = 0, word, end;
	const char *lf;

	*need_more = false;
	while (at < n && (is_blank(p[at]) || p[at] == '\r' || p[at] == '\n'))
		at++;
	p += at;
	n -= at;
	word = token_len(p, n);
	if (has_known_method(p, n) || at > GUESS_MAX)
		return true;
	if (word == n) {
		*need_more = n < GUESS_MAX; /* no server takes a longer method */
		return false;
	}
	if (!word || !is_blank(p[word]))
		return false;
	/* a word and a blank: a line of text, and a request if it says so */
	lf = memchr(p, '\n', n);
	end = lf ? (size_t)(lf - p) : n;
	if (memchr(p, '\0', end))
		return false;
	for (size_t i = word; i + 6 <= end; i++)
		if (is_blank(p[i]) && !strncasecmp(p + i + 1, "http/", 5))
			return true;
	*need_more = !lf && n < GUESS_MAX;
	return !lf && !*need_more;
}
