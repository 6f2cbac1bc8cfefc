/* The handshake of a WebSocket (RFC 6455, 4.2). */
#include <openssl/sha.h>
#include <string.h>
#include <strings.h>

#include "b64.h"
#include "http_int.h"
#include "ws_int.h"

/* Is word one of a comma list? */
static bool list_has(const char *list, const char *word)
{
	size_t n = strlen(word);

	while (list && *list) {
		size_t len;

		list += strspn(list, " \t,");
		len = strcspn(list, ",");
		while (len && (list[len - 1] == ' ' || list[len - 1] == '\t'))
			len--;
		if (len == n && !strncasecmp(list, word, n))
			return true;
		list += strcspn(list, ",");
	}
	return false;
}

int ws_accept_key(const char *key, char out[static 29])
{
	static const char guid[] = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
	unsigned char raw[16], digest[SHA_DIGEST_LENGTH];
	char text[24 + sizeof(guid)];

	if (strlen(key) != 24 || b64_get(raw, sizeof(raw), key, 24, B64_STD) != sizeof(raw))
		return -1;
	memcpy(text, key, 24);
	memcpy(text + 24, guid, sizeof(guid));
	SHA1((const unsigned char *)text, 24 + sizeof(guid) - 1, digest);
	b64_put(out, digest, sizeof(digest), B64_STD);
	return 0;
}

bool ws_origin_fits(const char *origin, const char *host)
{
	const char *at = strstr(origin, "://");

	if (!at || !host || (at - origin != 4 && at - origin != 5) ||
		strncasecmp(origin, "http", 4))
		return false;
	return !strcasecmp(at + 3, host);
}

static int origin_check(struct req *r, struct den_err *err)
{
	const char *origin = req_header(r, "Origin");

	/* A header with a key cannot come from a foreign page; a cookie can. */
	if (!origin || req_header(r, "Authorization") || req_header(r, "X-API-Key"))
		return 0;
	if (ws_origin_fits(origin, req_header(r, "Host")))
		return 0;
	return den_fail(err, DEN_DENIED, 0, "a page of another origin may not open this");
}

int ws_open(struct req *r, const char *protocol, size_t max_message, struct ws **ret,
	struct den_err *err)
{
	const char *key = req_header(r, "Sec-WebSocket-Key"),
		   *version = req_header(r, "Sec-WebSocket-Version");
	char accept[29];
	int fd;

	if (strcmp(req_method(r), "GET") || !list_has(req_header(r, "Upgrade"), "websocket") ||
		!list_has(req_header(r, "Connection"), "upgrade")) {
		req_set_fail_status(r, 426);
		return den_fail(err, DEN_INVALID, 0,
			"this is a WebSocket: open it with Upgrade: websocket");
	}
	if (!version || strcmp(version, "13")) {
		req_set_fail_status(r, 426);
		req_set(r, "Sec-WebSocket-Version", "13");
		return den_fail(err, DEN_INVALID, 0, "Sec-WebSocket-Version must be 13");
	}
	if (!key || ws_accept_key(key, accept) < 0)
		return den_fail(
			err, DEN_INVALID, 0, "Sec-WebSocket-Key must be 16 bytes in base64");
	if (origin_check(r, err) < 0)
		return -1;
	req_set(r, "Sec-WebSocket-Accept", accept);
	if (protocol && list_has(req_header(r, "Sec-WebSocket-Protocol"), protocol))
		req_set(r, "Sec-WebSocket-Protocol", protocol);
	if (req_upgrade(r, "websocket", &fd, err) < 0)
		return -1;
	*ret = ws_attach(r, fd, max_message);
	return 0;
}
