#include "connect.h"

#include <errno.h>
#include <string.h>

#include "b64.h"
#include "json.h"
#include "mem.h"

static const struct {
	const char *name;
	int status;
} codes[] = {
	[CONNECT_CANCELED] = { "canceled", 499 },
	[CONNECT_UNKNOWN] = { "unknown", 500 },
	[CONNECT_INVALID_ARGUMENT] = { "invalid_argument", 400 },
	[CONNECT_DEADLINE_EXCEEDED] = { "deadline_exceeded", 504 },
	[CONNECT_NOT_FOUND] = { "not_found", 404 },
	[CONNECT_ALREADY_EXISTS] = { "already_exists", 409 },
	[CONNECT_PERMISSION_DENIED] = { "permission_denied", 403 },
	[CONNECT_RESOURCE_EXHAUSTED] = { "resource_exhausted", 429 },
	[CONNECT_FAILED_PRECONDITION] = { "failed_precondition", 400 },
	[CONNECT_UNIMPLEMENTED] = { "unimplemented", 501 },
	[CONNECT_INTERNAL] = { "internal", 500 },
	[CONNECT_UNAVAILABLE] = { "unavailable", 503 },
	[CONNECT_UNAUTHENTICATED] = { "unauthenticated", 401 },
};
static_assert(ARRAY_SIZE(codes) == CONNECT_CODES, "a code has no name");

const char *connect_code_str(enum connect_code c)
{
	return codes[c].name;
}

int connect_status(enum connect_code c)
{
	return codes[c].status;
}

enum connect_code connect_code_of(const struct den_err *err)
{
	switch (err->code) {
	case DEN_INVALID:
		return CONNECT_INVALID_ARGUMENT;
	case DEN_NOT_FOUND:
		return CONNECT_NOT_FOUND;
	case DEN_CONFLICT:
		return err->sys == EEXIST ? CONNECT_ALREADY_EXISTS : CONNECT_FAILED_PRECONDITION;
	case DEN_DENIED:
		return CONNECT_PERMISSION_DENIED;
	case DEN_LIMIT:
		return CONNECT_RESOURCE_EXHAUSTED;
	case DEN_TIMEOUT:
		return CONNECT_DEADLINE_EXCEEDED;
	case DEN_UNSUPPORTED:
		return CONNECT_UNIMPLEMENTED;
	default:
		return CONNECT_INTERNAL;
	}
}

/* ---- envelopes ---- */

int connect_open(const void *p, size_t n, const char **ret, size_t *ret_len, struct den_err *err)
{
	const uint8_t *b = p;
	uint32_t len;

	if (n < CONNECT_HEAD)
		return den_fail(err, DEN_INVALID, 0, "the body is shorter than the 5 bytes that begin a message");
	len = (uint32_t)b[1] << 24 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 8 | b[4];
	if (b[0] & CONNECT_COMPRESSED)
		return den_fail(err, DEN_UNSUPPORTED, 0, "the message is compressed; send it as it is");
	if (b[0])
		return den_fail(err, DEN_INVALID, 0, "unknown message flags 0x%02x", b[0]);
	if (len > CONNECT_MAX)
		return den_fail(err, DEN_LIMIT, 0, "a message has at most %u bytes, not %u", CONNECT_MAX, len);
	if (len != n - CONNECT_HEAD)
		return den_fail(err, DEN_INVALID, 0, "the message says that it has %u bytes, and %zu are there", len,
			n - CONNECT_HEAD);
	*ret = (const char *)b + CONNECT_HEAD;
	*ret_len = len;
	return 0;
}

size_t connect_begin(struct buf *b, unsigned flags)
{
	size_t at = b->len;
	const char head[CONNECT_HEAD] = { (char)flags };

	buf_add(b, head, sizeof(head));
	return at;
}

void connect_end(struct buf *b, size_t at)
{
	size_t n = b->len - at - CONNECT_HEAD;

	for (int i = 0; i < 4; i++)
		b->p[at + 1 + (size_t)i] = (char)(n >> (24 - 8 * i) & 0xff);
}

void connect_error(struct buf *b, enum connect_code c, const char *text)
{
	struct json j = { .b = *b };

	json_open(&j, NULL, '{');
	json_str(&j, "code", connect_code_str(c));
	json_str(&j, "message", text);
	json_close(&j, '}');
	*b = j.b;
}

void connect_finish(struct buf *b, enum connect_code c, const char *text)
{
	size_t at = connect_begin(b, CONNECT_END);

	if (text) {
		buf_addstr(b, "{\"error\":");
		connect_error(b, c, text);
		buf_addstr(b, "}");
	} else {
		buf_addstr(b, "{}");
	}
	connect_end(b, at);
}

/* ---- values ---- */

int connect_timeout(const char *header, uint64_t *ret, struct den_err *err)
{
	uint64_t v = 0;
	size_t n = header ? strlen(header) : 0;

	if (header && (n < 1 || n > 10 || strspn(header, "0123456789") != n))
		return den_fail(err, DEN_INVALID, 0, "Connect-Timeout-Ms is a number of at most ten digits");
	for (size_t i = 0; i < n; i++)
		v = v * 10 + (uint64_t)(header[i] - '0');
	*ret = header && !v ? 1 : v; /* none left is not the same as no limit */
	return 0;
}

int connect_bytes(const char *text, size_t n, struct buf *out, struct den_err *err)
{
	auto_free char *copy = NULL;
	ssize_t got;

	while (n && text[n - 1] == '=')
		n--;
	copy = mem_alloc(n + 1);
	for (size_t i = 0; i < n; i++)
		copy[i] = (char)(text[i] == '+' ? '-' : text[i] == '/' ? '_' : text[i]);
	buf_reserve(out, n);
	got = b64_get(out->p + out->len, n, copy, n, B64_URL);
	if (got < 0)
		return den_fail(err, DEN_INVALID, 0, "bytes are not base64");
	out->len += (size_t)got;
	return 0;
}

void connect_put_bytes(struct buf *b, const void *p, size_t n)
{
	buf_reserve(b, B64_SIZE(n));
	b->len += b64_put(b->p + b->len, p, n, B64_STD);
}
