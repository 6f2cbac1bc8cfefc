/*
 * Theory of operation: the handshake message is put together from the payloads of records, then read
 * once, from a cursor that never passes its end. Anything that a server might read in two ways (the same
 * extension twice, two names, bytes behind the message) is HELLO_BAD: the gate decides by this name, the
 * server may choose by another.
 */
#include "hello.h"

#include <string.h>

#include "addr.h"
#include "mem.h"

#define RECORD_HEADER 5U
#define RECORD_MAX 16384U
#define MESSAGE_HEADER 4U

enum record_type { RECORD_CCS = 20, RECORD_ALERT, RECORD_HANDSHAKE, RECORD_DATA, RECORD_HEARTBEAT };
enum { CLIENT_HELLO = 1 };
enum extension { EXT_SNI = 0, EXT_ALPN = 16, EXT_VERSIONS = 43 };

/* What is left to read. A read past the end fails, and all later ones too. */
struct cursor {
	const uint8_t *p;
	size_t n;
	bool bad;
};

static const uint8_t *cursor_take(struct cursor *c, size_t n)
{
	const uint8_t *p = c->p;

	if (c->bad || n > c->n) {
		c->bad = true;
		return NULL;
	}
	c->p += n;
	c->n -= n;
	return p;
}

static unsigned cursor_number(struct cursor *c, size_t bytes)
{
	const uint8_t *p = cursor_take(c, bytes);
	unsigned v = 0;

	for (size_t i = 0; p && i < bytes; i++)
		v = v << 8 | p[i];
	return v;
}

/* A vector: so many bytes of length, then its content. */
static struct cursor cursor_vector(struct cursor *c, size_t length_bytes)
{
	struct cursor v = { .n = cursor_number(c, length_bytes) };

	v.p = cursor_take(c, v.n);
	v.bad = c->bad;
	if (v.bad)
		v.n = 0;
	return v;
}

/* ---- records */

/* NULL: a record of a handshake can begin with these bytes. */
static const char *record_check(const uint8_t *p, size_t n)
{
	size_t len;

	if (p[0] != RECORD_HANDSHAKE)
		return "a TLS record that is no handshake stands where the ClientHello should";
	if (n > 1 && p[1] != 3)
		return "a TLS record of an unknown version";
	if (n < RECORD_HEADER)
		return NULL;
	len = (size_t)p[3] << 8 | p[4];
	if (!len)
		return "an empty TLS record inside of the ClientHello";
	return len > RECORD_MAX ? "a TLS record longer than 16 KiB" : NULL;
}

static bool looks_like_tls(const uint8_t *p, size_t n)
{
	/* whatever the minor version: servers do not look at it, so it must not be a way around us */
	return p[0] >= RECORD_CCS && p[0] <= RECORD_HEARTBEAT && (n < 2 || p[1] == 3);
}

/* The size of the whole message (with its header) that its first bytes announce; 0: not known yet. */
static const char *message_size(const uint8_t *p, size_t n, size_t *ret)
{
	*ret = 0;
	if (n && p[0] != CLIENT_HELLO)
		return "the first TLS message is no ClientHello";
	if (n < MESSAGE_HEADER)
		return NULL;
	*ret = MESSAGE_HEADER + ((size_t)p[1] << 16 | (size_t)p[2] << 8 | p[3]);
	return *ret > HELLO_MAX - RECORD_HEADER ? "the ClientHello is longer than 64 KiB" : NULL;
}

/*
 * Puts the payloads of the records at p into message, which has room for n bytes, until it holds a whole
 * one. NULL: nothing is wrong, and *ret is its size, or 0 when more bytes are needed.
 */
static const char *message_gather(const uint8_t *p, size_t n, uint8_t *message, size_t *ret)
{
	size_t have = 0, want = 0;

	*ret = 0;
	while (n) {
		const char *why = record_check(p, n);
		size_t whole, part;

		if (why || n <= RECORD_HEADER)
			return why;
		whole = (size_t)p[3] << 8 | p[4];
		part = MIN(whole, n - RECORD_HEADER);
		memcpy(message + have, p + RECORD_HEADER, part);
		why = message_size(message, have + part, &want);
		if (why)
			return why;
		if (want && want < have + whole)
			return "more handshake bytes behind the ClientHello";
		have += part;
		if (want && have == want) {
			*ret = want;
			return NULL;
		}
		p += RECORD_HEADER + part;
		n -= RECORD_HEADER + part;
	}
	return NULL;
}

/* ---- the message */

static const char *sni_read(struct cursor e, struct hello *h)
{
	struct cursor list = cursor_vector(&e, 2), name;
	unsigned type = cursor_number(&list, 1);
	char text[64];
	struct net_addr a;

	name = cursor_vector(&list, 2);
	if (name.bad || e.n)
		return "a malformed server name (SNI)";
	if (type || list.n)
		return "more than one server name (SNI), or one that is no host name";
	if (net_name_parse((const char *)name.p, name.n, &h->sni, NULL) == 0) {
		h->has_sni = true;
		return NULL;
	}
	if (name.n < sizeof(text)) {
		memcpy(text, name.p, name.n);
		text[name.n] = '\0';
		if (strlen(text) == name.n && net_addr_parse(text, &a) == 0)
			return "the server name (SNI) is an address";
	}
	return "the server name (SNI) is not a host name";
}

static const char *alpn_read(struct cursor e, struct hello *h)
{
	struct cursor list = cursor_vector(&e, 2);

	if (list.bad || e.n || !list.n)
		return "a malformed list of protocols (ALPN)";
	while (list.n) {
		struct cursor one = cursor_vector(&list, 1);

		if (one.bad || !one.n)
			return "a malformed list of protocols (ALPN)";
		if (one.n == 2 && !memcmp(one.p, "h2", 2))
			h->alpn_h2 = true;
		else if (one.n == 8 && !memcmp(one.p, "http/1.1", 8))
			h->alpn_http11 = true;
	}
	return NULL;
}

static const char *versions_read(struct cursor e, struct hello *h)
{
	struct cursor list = cursor_vector(&e, 1);
	unsigned highest = 0;

	if (list.bad || e.n || !list.n || list.n % 2)
		return "a malformed list of versions";
	while (list.n) {
		unsigned v = cursor_number(&list, 2);

		if (v >> 8 == 3 && v > highest) /* others are grease, or drafts */
			highest = v;
	}
	if (highest)
		h->version = (uint16_t)highest;
	return NULL;
}

/* The encrypted hello and its drafts, and the encrypted name before them. */
static bool hides_a_name(unsigned type)
{
	return (type >= 0xfe08 && type <= 0xfe0f) || type == 0xff02 || type == 0xff03 ||
	       type == 0xffce;
}

static const char *extensions_read(struct cursor all, struct hello *h)
{
	uint8_t seen[65536 / 8] = { 0 };

	while (all.n) {
		unsigned type = cursor_number(&all, 2);
		struct cursor e = cursor_vector(&all, 2);
		const char *why = NULL;

		if (e.bad)
			return "a malformed extension in the ClientHello";
		if (seen[type / 8] & 1U << type % 8)
			return "the same extension twice in the ClientHello";
		seen[type / 8] |= (uint8_t)(1U << type % 8);
		if (type == EXT_SNI)
			why = sni_read(e, h);
		else if (type == EXT_ALPN)
			why = alpn_read(e, h);
		else if (type == EXT_VERSIONS)
			why = versions_read(e, h);
		else if (hides_a_name(type))
			h->ech = true;
		if (why)
			return why;
	}
	return NULL;
}

/* NULL: read into *h. */
static const char *message_read(const uint8_t *p, size_t n, struct hello *h)
{
	struct cursor c = { .p = p + MESSAGE_HEADER, .n = n - MESSAGE_HEADER };
	struct cursor session, suites, compression, extensions;

	h->version = (uint16_t)cursor_number(&c, 2);
	cursor_take(&c, 32); /* random */
	session = cursor_vector(&c, 1);
	suites = cursor_vector(&c, 2);
	compression = cursor_vector(&c, 1);
	if (c.bad || session.n > 32 || !suites.n || suites.n % 2 || !compression.n)
		return "a malformed ClientHello";
	if (h->version >> 8 != 3)
		return "a ClientHello of an unknown version";
	if (!c.n)
		return NULL; /* TLS 1.0 had no extensions */
	extensions = cursor_vector(&c, 2);
	if (c.bad || c.n)
		return "a malformed ClientHello";
	return extensions_read(extensions, h);
}

enum hello_result hello_parse(const uint8_t *p, size_t n, struct hello *ret, const char **why)
{
	size_t looked_at = MIN(n, HELLO_MAX), size;
	auto_free uint8_t *message = NULL;
	struct hello h = { 0 };
	const char *wrong;

	if (n && !looks_like_tls(p, n)) {
		*why = "not TLS";
		return HELLO_NOT_TLS;
	}
	if (n < 3) /* what looks like an alert may still be no TLS at all */
		return HELLO_MORE;
	message = mem_alloc(looked_at);
	wrong = message_gather(p, looked_at, message, &size);
	if (!wrong && !size && looked_at == HELLO_MAX)
		wrong = "the ClientHello does not end within 64 KiB";
	if (!wrong && !size)
		return HELLO_MORE;
	if (!wrong)
		wrong = message_read(message, size, &h);
	if (wrong) {
		*why = wrong;
		return HELLO_BAD;
	}
	*ret = h;
	return HELLO_OK;
}
