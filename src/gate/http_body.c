#include "http_body.h"

#include <string.h>
#include <strings.h>

#include "http_parts.h"
#include "mem.h"

#define EXTENSION_MAX 1024U /* bytes between the size of a chunk and the end of its line */
#define DIGITS_MAX 16
#define NAME_LONG 255

enum body_state {
	BODY_DONE,
	BODY_BAD,
	BODY_LENGTH, /* so many bytes of payload */
	BODY_CLOSE, /* payload until the connection ends */
	BODY_SIZE, /* hex digits */
	BODY_SIZE_PAD, /* blanks behind them, in responses */
	BODY_EXTENSION, /* from ';' on, in responses */
	BODY_SIZE_LF,
	BODY_DATA, /* payload of a chunk */
	BODY_DATA_CR,
	BODY_DATA_LF,
	BODY_TRAILER, /* the first byte of a line behind the last chunk */
	BODY_TRAILER_NAME,
	BODY_TRAILER_VALUE,
	BODY_TRAILER_LF,
	BODY_END_LF,
};

void http_body_init(struct http_body *b, const struct http_head *h)
{
	*b = (struct http_body){ .request = h->request };
	switch (h->body) {
	case HTTP_BODY_NONE:
		b->state = BODY_DONE;
		break;
	case HTTP_BODY_LENGTH:
		b->left = h->length;
		b->state = h->length ? BODY_LENGTH : BODY_DONE;
		break;
	case HTTP_BODY_CHUNKED:
		b->state = BODY_SIZE;
		break;
	case HTTP_BODY_CLOSE:
		b->state = BODY_CLOSE;
		break;
	}
}

bool http_body_done(const struct http_body *b)
{
	return b->state == BODY_DONE;
}

static int hex_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static const char *size_step(struct http_body *b, char c)
{
	int digit = hex_value(c);

	if (digit >= 0) {
		if (++b->digits > DIGITS_MAX || b->left > INT64_MAX >> 4)
			return "a chunk whose size is too large";
		b->left = b->left << 4 | (unsigned)digit;
		return NULL;
	}
	if (!b->digits)
		return "a chunk without a size";
	if (c == '\r')
		b->state = BODY_SIZE_LF;
	else if (!b->request && c == ';')
		b->state = BODY_EXTENSION;
	else if (!b->request && (c == ' ' || c == '\t'))
		b->state = BODY_SIZE_PAD;
	else
		return c == ';' ? "an extension of a chunk" : "a malformed size of a chunk";
	b->extra = 0;
	return NULL;
}

/* Servers pad sizes and, rarely, add extensions; neither means anything to anybody. */
static const char *extension_step(struct http_body *b, char c)
{
	if (c == '\r')
		b->state = BODY_SIZE_LF;
	else if (!http_is_value_char(c))
		return "a control byte behind the size of a chunk";
	else if (b->state == BODY_SIZE_PAD && c == ';')
		b->state = BODY_EXTENSION;
	else if (b->state == BODY_SIZE_PAD && c != ' ' && c != '\t')
		return "a malformed size of a chunk";
	return ++b->extra > EXTENSION_MAX ? "too much behind the size of a chunk" : NULL;
}

static bool trailer_is_refused(const struct http_body *b)
{
	static const char *const refused[] = { "connection", "content-length", "expect", "host",
		"te", "trailer", "transfer-encoding", "upgrade" };

	for (size_t i = 0; i < ARRAY_SIZE(refused); i++)
		if (b->name_len == strlen(refused[i]) &&
			!strncasecmp(b->name, refused[i], b->name_len))
			return true;
	return false;
}

static const char *trailer_name_step(struct http_body *b, char c)
{
	if (http_is_token_char(c)) {
		if (b->name_len < sizeof(b->name))
			b->name[b->name_len++] = c == '_' ? '-' : c;
		else
			b->name_len = NAME_LONG;
		return NULL;
	}
	if (c != ':' || !b->name_len)
		return "a malformed name of a trailer";
	if (trailer_is_refused(b))
		return "a trailer that may only be a header";
	b->state = BODY_TRAILER_VALUE;
	return NULL;
}

static const char *trailer_step(struct http_body *b, char c)
{
	if (++b->extra > HTTP_TRAILERS_MAX)
		return "too long trailers";
	switch (b->state) {
	case BODY_TRAILER:
		if (c == '\r') {
			b->state = BODY_END_LF;
			return NULL;
		}
		b->name_len = 0;
		b->state = BODY_TRAILER_NAME;
		return trailer_name_step(b, c);
	case BODY_TRAILER_NAME:
		return trailer_name_step(b, c);
	case BODY_TRAILER_VALUE:
		if (c == '\r')
			b->state = BODY_TRAILER_LF;
		else if (!http_is_value_char(c))
			return "a control byte in a trailer";
		return NULL;
	default:
		if (c != '\n')
			return "a CR that ends no line";
		b->trailers += b->state == BODY_TRAILER_LF;
		b->state = b->state == BODY_TRAILER_LF ? BODY_TRAILER : BODY_DONE;
		return NULL;
	}
}

/* One byte that is no payload. */
static const char *frame_step(struct http_body *b, char c)
{
	switch (b->state) {
	case BODY_SIZE:
		return size_step(b, c);
	case BODY_SIZE_PAD:
	case BODY_EXTENSION:
		return extension_step(b, c);
	case BODY_SIZE_LF:
		b->state = b->left ? BODY_DATA : BODY_TRAILER;
		b->extra = 0;
		return c == '\n' ? NULL : "a CR that ends no line";
	case BODY_DATA_CR:
		b->state = BODY_DATA_LF;
		return c == '\r' ? NULL : "a chunk longer than its size";
	case BODY_DATA_LF:
		b->state = BODY_SIZE;
		b->digits = 0;
		return c == '\n' ? NULL : "a chunk longer than its size";
	default:
		return trailer_step(b, c);
	}
}

static bool in_payload(const struct http_body *b)
{
	return b->state == BODY_LENGTH || b->state == BODY_CLOSE || b->state == BODY_DATA;
}

static size_t payload_take(struct http_body *b, size_t n)
{
	if (b->state == BODY_CLOSE)
		return n;
	if (n > b->left)
		n = (size_t)b->left;
	b->left -= n;
	if (!b->left)
		b->state = b->state == BODY_DATA ? BODY_DATA_CR : BODY_DONE;
	return n;
}

int http_body_feed(struct http_body *b, const char *p, size_t n, size_t *used, const char **data,
	size_t *data_len, const char **why)
{
	const char *piece = p, *wrong = NULL;
	size_t at = 0, piece_len = 0;

	if (b->state == BODY_BAD)
		wrong = "a body that was bad before";
	while (!wrong && at < n && b->state != BODY_DONE) {
		if (!in_payload(b)) {
			wrong = frame_step(b, p[at++]);
			continue;
		}
		if (piece_len)
			break; /* the next piece is for the next call */
		piece = p + at;
		piece_len = payload_take(b, n - at);
		at += piece_len;
	}
	if (wrong) {
		b->state = BODY_BAD;
		*why = wrong;
		return -1;
	}
	*used = at;
	*data = piece;
	*data_len = piece_len;
	return b->state == BODY_DONE;
}
