/*
 * Heads of HTTP/1.0 and 1.1 messages (RFC 9112), read strictly: what two programs could understand
 * differently is refused, never mended, because a gate that understands a request in another way than
 * the server behind it lets a second request through unseen. Pure: borrows the bytes it is given.
 *
 * Refused: bare CR or LF, folded lines, space before a colon, NUL and control bytes, an empty line
 * before the first, both lengths, more than one Content-Length or Transfer-Encoding or other values
 * than digits and "chunked", Transfer-Encoding in HTTP/1.0, names of these fields with '_' for '-', no
 * or many Hosts, userinfo, a target whose authority is not the Host, a fragment or bytes above 0x7e in
 * a target, versions other than 1.0 and 1.1, more than HTTP_HEAD_MAX bytes or HTTP_FIELDS_MAX fields.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "addr.h"
#include "name.h"

#define HTTP_HEAD_MAX 65536U
#define HTTP_FIELDS_MAX 200U

enum http_result { HTTP_MORE, HTTP_BAD, HTTP_OK };

struct http_field {
	const char *name; /* a token, as it came: compare with strncasecmp, or use http_find() */
	size_t name_len;
	const char *value; /* without the white space around it; may be empty */
	size_t value_len;
};

enum http_body_kind {
	HTTP_BODY_NONE,
	HTTP_BODY_LENGTH,
	HTTP_BODY_CHUNKED,
	HTTP_BODY_CLOSE, /* responses only: until the connection ends */
};
enum http_form { HTTP_FORM_ORIGIN, HTTP_FORM_ABSOLUTE, HTTP_FORM_AUTHORITY, HTTP_FORM_ASTERISK };

struct http_head {
	bool request;
	char method[32]; /* of a request */
	const char *target; /* of a request, as it came */
	size_t target_len;
	enum http_form form;
	const char *path; /* from '/' on, also of an absolute-form; else the target */
	size_t path_len;
	bool https; /* absolute-form with https:// */
	int status; /* of a response, 100..999 */
	int minor; /* HTTP/1.minor, 0 or 1 */
	struct http_field *f;
	unsigned n;
	size_t head_len; /* to the end of the empty line; the body begins there */

	/* Who a request is for: Host, or the target's authority when HTTP/1.0 sends no Host; both agree
	 * if both are there. Without either (HTTP/1.0 only) has_host is false. */
	bool has_host, host_is_addr;
	struct net_name host; /* unless host_is_addr */
	struct net_addr host_addr; /* if host_is_addr */
	uint16_t host_port; /* 0: none given. CONNECT always has one */

	enum http_body_kind body;
	uint64_t length; /* with HTTP_BODY_LENGTH; may be 0 */
	bool keep_alive; /* another message may follow on this connection */
	/* A request that asks for another protocol (and a 101 that grants it, and a 2xx to CONNECT): after
	 * such a response the bytes are no longer HTTP. */
	bool upgrade;
	/* ... but to HTTP/2 in clear, or TLS, where nobody looks at heads any more: upgrade is false then,
	 * and whoever forwards this leaves out Upgrade, HTTP2-Settings and their mention in Connection. */
	bool h2c;
	bool expect_continue;
};

/*
 * HTTP_OK: *ret is written, its views point into @p (or at static text: a path of "/" that an absolute
 * form left out), and http_head_free() ends it.
 * HTTP_BAD: *why (static text) says what is wrong. HTTP_MORE: come back with more bytes at the end.
 * A prefix never says anything else than the whole will: HTTP_MORE, or the whole's result.
 */
enum http_result http_request_parse(
	const char *p, size_t n, struct http_head *ret, const char **why);
/* The same for a response to a request of this method (NULL: not known, taken as GET): HEAD, 1xx, 204
 * and 304 have no body whatever their lengths say, nor has a 2xx to CONNECT. */
enum http_result http_response_parse(const char *p, size_t n, const char *request_method,
	struct http_head *ret, const char **why);
void http_head_free(struct http_head *h);

/* The first field of this name, in any case; NULL: there is none. */
const struct http_field *http_find(const struct http_head *h, const char *name);
unsigned http_count(const struct http_head *h, const char *name);
bool http_field_is(const struct http_field *f, const char *name);
/* Is this word in the comma-separated lists of all fields of that name? Any case, parameters ignored. */
bool http_has_token(const struct http_head *h, const char *name, const char *word);

/*
 * Is this HTTP, going by the first bytes of a client? Generous on purpose, since what is taken for
 * another protocol is not looked at: empty lines and blanks before it, any method, any case and
 * garbage in the line count as HTTP, and http_request_parse() then refuses them. Not HTTP are lines
 * without " HTTP/", such as SSH's, SMTP's and Redis's, and everything binary.
 * *need_more: cannot be told yet (false is returned).
 */
bool http_looks_like_request(const char *p, size_t n, bool *need_more);
