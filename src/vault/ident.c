/* What others need to verify tokens: the issuer's name, its public keys, the OIDC discovery
 * document. */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "fd.h"
#include "vault.h"

#define ISSUER_NONE "https://den.invalid" /* RFC 2606: nobody can be asked there */

static bool is_loopback(const char *host, size_t n)
{
	static const char *const names[] = { "localhost", "127.0.0.1", "[::1]" };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (strlen(names[i]) <= n && !strncmp(host, names[i], strlen(names[i])) &&
			(strlen(names[i]) == n || host[strlen(names[i])] == ':'))
			return true;
	return false;
}

/* OIDC: https, a host, maybe a port and a path, nothing after it. Plain http to the loopback,
 * for trying. */
static int issuer_check(const char *text, struct den_err *err)
{
	bool https = !strncmp(text, "https://", 8), http = !strncmp(text, "http://", 7);
	const char *host = text + (https ? 8 : 7);
	size_t n = https || http ? strcspn(host, "/") : 0;
	bool bad = !n || (http && !is_loopback(host, n)) || text[strlen(text) - 1] == '/';

	for (const char *p = text; *p; p++)
		bad |= !isascii(*p) || (!isalnum(*p) && !strchr(":/.-_~[]%", *p));
	if (!bad)
		return 0;
	return den_fail(err, DEN_INVALID, 0,
		"'%.80s' is no issuer: it must be https://HOST[/PATH] without '/' at the end, "
		"where the discovery "
		"document is served",
		text);
}

int issuer_get(const struct vault *v, const char *asked, char ret[static ISSUER_MAX + 1],
	struct den_err *err)
{
	auto_fd fd =
		asked ? -1
		      : openat(v->dir, "issuer", O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	ssize_t n;

	if (asked || (fd < 0 && errno == ENOENT)) {
		snprintf(ret, ISSUER_MAX + 1, "%s", asked ? asked : ISSUER_NONE);
	} else {
		n = fd < 0 ? -1 : pread(fd, ret, ISSUER_MAX, 0);
		if (n < 0)
			return den_fail_sys(err, errno, "read the issuer");
		ret[n] = '\0';
	}
	return issuer_check(ret, err);
}

int op_ident_issuer(struct vault *v, json_t *req, json_t *ret, struct den_err *err)
{
	char iss[ISSUER_MAX + 1];
	const char *asked;

	if (member_text(req, "issuer", ISSUER_MAX, false, &asked, err) < 0 ||
		issuer_get(v, asked, iss, err) < 0)
		return -1;
	if (asked && (vault_lock(v, err) < 0 ||
			     vault_write(v->dir, "issuer", iss, strlen(iss), err) < 0))
		return -1;
	json_object_set_new(ret, "issuer", json_string(iss));
	return 0;
}

int op_ident_jwks(struct vault *v, json_t *req, json_t *ret, struct den_err *err)
{
	auto_secure struct sign_key *list = NULL;
	json_t *keys = json_array();
	size_t n;

	(void)req;
	json_object_set_new(ret, "keys", keys);
	for (enum sign_alg alg = ALG_EDDSA; alg <= ALG_ES256; alg++) {
		auto_secure struct sign_key *k = NULL;

		/* what will sign is told before it does */
		if (keys_current(v, alg, &k, err) < 0)
			return -1;
	}
	if (keys_all(v, &list, &n, err) < 0)
		return -1;
	for (size_t i = 0; i < n; i++) {
		json_t *jwk = key_jwk(&list[i]);

		json_object_set_new(jwk, "kid", json_string(list[i].kid));
		json_object_set_new(jwk, "use", json_string("sig"));
		json_object_set_new(jwk, "alg", json_string(alg_name(list[i].alg)));
		json_array_append_new(keys, jwk);
	}
	return 0;
}

int op_ident_rotate(struct vault *v, json_t *req, json_t *ret, struct den_err *err)
{
	json_t *made = json_array(), *retired = json_array();
	enum sign_alg only = 0;
	const char *text;

	json_object_set_new(ret, "made", made);
	json_object_set_new(ret, "retired", retired);
	if (member_text(req, "alg", 16, false, &text, err) < 0 ||
		(text && alg_parse(text, &only, err) < 0))
		return -1;
	for (enum sign_alg alg = ALG_EDDSA; alg <= ALG_ES256; alg++)
		if ((!only || alg == only) && keys_rotate(v, alg, made, retired, err) < 0)
			return -1;
	return 0;
}

int op_ident_openid(struct vault *v, json_t *req, json_t *ret, struct den_err *err)
{
	static const char *const claims[] = { "iss", "sub", "aud", "exp", "nbf", "iat", "jti",
		"den" };
	char iss[ISSUER_MAX + 1], uri[ISSUER_MAX + 32];
	json_t *list = json_array();
	const char *asked;

	if (member_text(req, "issuer", ISSUER_MAX, false, &asked, err) < 0 ||
		issuer_get(v, asked, iss, err) < 0) {
		json_decref(list);
		return -1;
	}
	snprintf(uri, sizeof(uri), "%s/.well-known/jwks.json", iss);
	json_object_set_new(ret, "issuer", json_string(iss));
	json_object_set_new(ret, "jwks_uri", json_string(uri));
	json_object_set_new(ret, "response_types_supported", json_pack("[s]", "id_token"));
	json_object_set_new(ret, "subject_types_supported", json_pack("[s]", "public"));
	json_object_set_new(ret, "id_token_signing_alg_values_supported",
		json_pack("[s,s]", alg_name(ALG_EDDSA), alg_name(ALG_ES256)));
	for (size_t i = 0; i < sizeof(claims) / sizeof(claims[0]); i++)
		json_array_append_new(list, json_string(claims[i]));
	json_object_set_new(ret, "claims_supported", list);
	return 0;
}
