/*
 * /ui: the page. Its files are in the program, compressed; it talks to /v1 with a session, which is a cookie
 * that no script can read.
 *
 * The policy that goes with it lets the browser run and load what this server sends, and nothing else: no
 * inline script or style, no other origin, no frame, and (trusted types) no way to make markup out of text.
 * So a name or a file that a box made up stays text, even if the page had a fault.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "assets.h"
#include "auth.h"
#include "json_fields.h"
#include "mem.h"
#include "route.h"

/* clang-format off: a directive a line */
static const char policy[] =
	"default-src 'none'; "
	"script-src 'self'; "
	"style-src 'self'; "
	"img-src 'self'; "
	"connect-src 'self'; "
	"form-action 'none'; "
	"base-uri 'none'; "
	"frame-ancestors 'none'; "
	"require-trusted-types-for 'script'; "
	"trusted-types 'none'";
/* clang-format on */

static const char *const headers[][2] = {
	{ "Content-Security-Policy", policy },
	{ "X-Content-Type-Options", "nosniff" },
	{ "Referrer-Policy", "no-referrer" },
	{ "X-Frame-Options", "DENY" },
	{ "Cross-Origin-Opener-Policy", "same-origin" },
	{ "Cross-Origin-Resource-Policy", "same-origin" },
	{ "Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()" },
};

static void guard(struct req *r)
{
	for (size_t i = 0; i < ARRAY_SIZE(headers); i++)
		req_set(r, headers[i][0], headers[i][1]);
}

/* ---- files ---- */

/* Among the encodings that the client names; "gzip;q=0" refuses it. */
static bool takes_gzip(const struct req *r)
{
	const char *at = req_header(r, "Accept-Encoding");

	at = at ? strstr(at, "gzip") : NULL;
	if (!at)
		return false;
	at += strlen("gzip");
	at += strspn(at, "; \t");
	return strncmp(at, "q=", 2) != 0 || strtod(at + 2, NULL) > 0;
}

static bool has_it(const struct req *r, const char *etag)
{
	const char *sent = req_header(r, "If-None-Match");

	return sent && (strstr(sent, etag) || !strcmp(sent, "*"));
}

/* For who cannot unpack it: curl, mostly. */
static int reply_plain(struct req *r, const struct ui_asset *a, struct den_err *err)
{
	auto_free char *text = mem_alloc(a->len + 1);
	z_stream z = { .next_in = (Bytef *)a->gz,
		.avail_in = (uInt)a->gz_len,
		.next_out = (Bytef *)text,
		.avail_out = (uInt)a->len + 1 };
	int got;

	if (inflateInit2(&z, 16 + MAX_WBITS) != Z_OK)
		return den_fail(err, DEN_INTERNAL, 0, "zlib does not start");
	got = inflate(&z, Z_FINISH);
	inflateEnd(&z);
	if (got != Z_STREAM_END || z.total_out != a->len)
		return den_fail(err, DEN_INTERNAL, 0,
			"the page's file '%s' is damaged; install den again", a->name);
	return req_reply(r, 200, a->type, text, a->len);
}

static int reply_asset(
	struct req *r, const struct ui_asset *a, const char *cache, struct den_err *err)
{
	char etag[40];

	/* weak: the same file is sent packed and unpacked */
	snprintf(etag, sizeof(etag), "W/%s", a->etag);
	guard(r);
	req_set(r, "Cache-Control", cache);
	req_set(r, "ETag", etag);
	req_set(r, "Vary", "Accept-Encoding");
	if (has_it(r, a->etag))
		return req_reply_empty(r, 304);
	if (!takes_gzip(r))
		return reply_plain(r, a, err);
	req_set(r, "Content-Encoding", "gzip");
	return req_reply(r, 200, a->type, a->gz, a->gz_len);
}

static const struct ui_asset *find(const char *name)
{
	for (size_t i = 0; i < ui_n_assets; i++)
		if (!strcmp(ui_assets[i].name, name))
			return &ui_assets[i];
	return NULL;
}

static int page_get(struct req *r, struct den_err *err)
{
	const struct ui_asset *a = find("index.html");

	if (a)
		return reply_asset(r, a, "no-cache", err);
	guard(r);
	req_set(r, "Cache-Control", "no-store");
	return req_reply(r, 503, "text/plain; charset=utf-8", ui_missing, strlen(ui_missing));
}

/* A version that is not ours is a page that was loaded before the server was replaced: what it still asks for
 * is answered, but not kept under that name. */
static int asset_get(struct req *r, struct den_err *err)
{
	const struct ui_asset *a = find(req_arg(r, "name"));
	bool ours = !strcmp(req_arg(r, "version"), ui_version);

	if (!a)
		return den_fail(err, DEN_NOT_FOUND, 0,
			"the page has no file '%s'; its start is /ui", req_arg(r, "name"));
	return reply_asset(r, a, ours ? "public, max-age=31536000, immutable" : "no-cache", err);
}

/* ---- sessions ---- */

static void set_cookie(struct req *r, const char *value, long long seconds)
{
	const char *name = auth_session_cookie(r);
	char text[160];

	snprintf(text, sizeof(text), "%s=%s; Path=/; HttpOnly; SameSite=Strict; Max-Age=%lld%s",
		name, value, seconds, name[0] == '_' ? "; Secure" : "");
	req_set(r, "Set-Cookie", text);
	req_set(r, "Cache-Control", "no-store");
}

/* Another origin can make a browser send a form, but no header of its own: so nobody is signed in to a key that
 * is not theirs. */
static bool from_page(const struct req *r)
{
	return req_header(r, "X-Den-Page") != NULL;
}

static int refuse(struct req *r, int status, const char *message, const char *next)
{
	guard(r);
	return req_reply_json(r, status,
		json_pack("{s:{s:s, s:s, s:s}}", "error", "code", "denied", "message", message,
			"next", next));
}

static int session_make(struct req *r, struct den_err *err)
{
	static const struct field fields[] = {
		{ "key", FIELD_TEXT, 0, FIELD_MUST, .min = 1, .max = 256 },
	};
	char session[AUTH_SESSION];
	auto_json *body = NULL;
	const char *key = NULL;
	struct who who;

	if (!from_page(r))
		return refuse(r, 403, "Only the page itself may sign in.",
			"Programs send the key with each request: Authorization: Bearer KEY.");
	if (req_json(r, &body, err) < 0 ||
		fields_get(body, fields, ARRAY_SIZE(fields), true, &key, err) < 0)
		return -1;
	if (!strncmp(key, "ses_", 4)) /* what auth_check() takes besides keys */
		return refuse(
			r, 401, "This is no key.", "'den key create' on the server makes one.");
	if (auth_check(r, key, &who, err) < 0) {
		if (err->code != DEN_DENIED)
			return -1;
		return refuse(r, 401, "There is no such key, or it was revoked.",
			"'den key create' on the server makes a new one.");
	}
	if (auth_session_make(&who, session, err) < 0)
		return -1;
	set_cookie(r, session, AUTH_SESSION_MS / 1000);
	guard(r);
	return req_reply_json(r, 200, json_pack("{s:b}", "signed_in", 1));
}

/* Asked first, so that who is not signed in sees no failure. */
static int session_get(struct req *r, struct den_err *err)
{
	const char *session = auth_session_sent(r);
	struct who who;
	bool in = session && auth_session_check(session, &who, err) == 0;

	if (session && !in && err->code != DEN_DENIED)
		return -1;
	guard(r);
	req_set(r, "Cache-Control", "no-store");
	return req_reply_json(r, 200, json_pack("{s:b}", "signed_in", in));
}

static int session_end(struct req *r, struct den_err *err)
{
	const char *session = auth_session_sent(r);

	if (!from_page(r))
		return refuse(r, 403, "Only the page itself may sign out.",
			"Use the button on the page.");
	if (session && auth_session_end(session, err) < 0)
		return -1;
	set_cookie(r, "", 0);
	guard(r);
	return req_reply_empty(r, 204);
}

/* ---- the table ---- */

static const struct route routes[] = {
	{ "GET", "/ui", page_get, AUTH_NONE, 0, NULL },
	{ "GET", "/ui/", page_get, AUTH_NONE, 0, NULL },
	{ "GET", "/ui/session", session_get, AUTH_NONE, 0, NULL },
	{ "POST", "/ui/session", session_make, AUTH_NONE, 4096, NULL },
	{ "DELETE", "/ui/session", session_end, AUTH_NONE, 0, NULL },
	{ "GET", "/ui/{version}/{name}", asset_get, AUTH_NONE, 0, NULL },
};

static void fail(struct req *r, const struct den_err *err)
{
	guard(r);
	req_set(r, "Cache-Control", "no-store");
	req_reply_json(r, req_fail_status(r, err),
		json_pack("{s:{s:s, s:s}}", "error", "code", den_code_str(err->code), "message",
			err->msg));
}

const struct dialect dialect_ui = {
	.name = "ui",
	.routes = routes,
	.n = ARRAY_SIZE(routes),
	.fail = fail,
};
