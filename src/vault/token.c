/* Tokens (JWT) that say who a box is. What is in one is the keeper's decision; here is decided
 * what it must look like, how long it lives, and what it is called. */
#include <openssl/rand.h>
#include <string.h>

#include "clock.h"
#include "vault.h"

#define TEXT_MAX 512
#define SCOPES_MAX 64
#define JWT_MAX (64 << 10)

static int den_claims_check(const json_t *den, struct den_err *err)
{
	static const char *const texts[] = { "org", "task", "box", "template", "parent" };
	const json_t *gen = json_object_get(den, "policy_generation");
	const json_t *scopes = json_object_get(den, "scopes"), *s;
	const char *ignored;
	size_t i;

	if (!json_is_object(den))
		return den_fail(err, DEN_INVALID, 0, "'claims.den' must be an object");
	if (members_known(den, "claims.den",
		    "org task box template policy_generation scopes parent", err) < 0)
		return -1;
	for (i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		if (member_text(den, texts[i], TEXT_MAX, !strcmp(texts[i], "box"), &ignored, err) <
			0)
			return den_wrap(err, "claims.den");
	if (gen && (!json_is_integer(gen) || json_integer_value(gen) < 0))
		return den_fail(
			err, DEN_INVALID, 0, "'claims.den.policy_generation' must be a number");
	if (scopes && (!json_is_array(scopes) || json_array_size(scopes) > SCOPES_MAX))
		return den_fail(err, DEN_INVALID, 0,
			"'claims.den.scopes' must be a list of at most %d texts", SCOPES_MAX);
	json_array_foreach(
		(json_t *)scopes, i, s) if (!json_is_string(s) || !json_string_length(s) ||
					    json_string_length(s) > TEXT_MAX) return den_fail(err,
		DEN_INVALID, 0, "'claims.den.scopes' has something that is no scope");
	return 0;
}

/* The claims of the token: those asked for, and those that are ours to say. */
static int claims_make(const struct vault *v, const json_t *req, json_t *out, char jti[static 23],
	int64_t *exp, struct den_err *err)
{
	const json_t *claims = json_object_get(req, "claims"), *ttl = json_object_get(req, "ttl");
	int64_t now = clock_wall_ms() / 1000,
		life = ttl ? json_integer_value(ttl) : TOKEN_TTL_DEFAULT;
	const char *asked, *sub, *aud;
	char iss[ISSUER_MAX + 1];
	uint8_t id[16];

	if (!json_is_object(claims))
		return den_fail(err, DEN_INVALID, 0, "'claims' must be an object");
	if (members_known(claims, "claims", "iss sub aud den", err) < 0)
		return -1;
	if (life < 1 || life > TOKEN_TTL_MAX)
		return den_fail(err, DEN_INVALID, 0, "'ttl' is 1 to %d seconds", TOKEN_TTL_MAX);
	if (member_text(claims, "iss", ISSUER_MAX, false, &asked, err) < 0 ||
		issuer_get(v, asked, iss, err) < 0 ||
		member_text(claims, "sub", TEXT_MAX, true, &sub, err) < 0 ||
		member_text(claims, "aud", TEXT_MAX, true, &aud, err) < 0 ||
		den_claims_check(json_object_get(claims, "den"), err) < 0)
		return -1;
	if (RAND_bytes(id, sizeof(id)) != 1)
		return crypto_fail(err, "random bytes");
	b64_put(jti, id, sizeof(id), B64_URL);
	*exp = now + life;
	json_object_set_new(out, "iss", json_string(iss));
	json_object_set_new(out, "sub", json_string(sub));
	json_object_set_new(out, "aud", json_string(aud));
	json_object_set_new(out, "iat", json_integer(now));
	json_object_set_new(out, "nbf", json_integer(now));
	json_object_set_new(out, "exp", json_integer(*exp));
	json_object_set_new(out, "jti", json_string(jti));
	json_object_set(out, "den", json_object_get(claims, "den"));
	return 0;
}

/* Appends base64url of the JSON text, and a dot. */
static int part_add(char *out, size_t *at, const json_t *j, struct den_err *err)
{
	char *text = json_dumps(j, JSON_COMPACT);
	size_t n = text ? strlen(text) : 0;
	int r = 0;

	if (!text || *at + B64_SIZE(n) + 1 + B64_SIZE(64) > JWT_MAX) {
		r = den_fail(err, DEN_LIMIT, 0, "the claims are too long for a token");
	} else {
		*at += b64_put(out + *at, text, n, B64_URL);
		out[(*at)++] = '.';
	}
	OPENSSL_secure_free(text);
	return r;
}

int op_token_sign(struct vault *v, json_t *req, json_t *ret, struct den_err *err)
{
	auto_secure struct sign_key *k = NULL;
	auto_secure char *jwt = secure_alloc(JWT_MAX, err);
	auto_json json_t *head = json_object(), *claims = json_object();
	enum sign_alg alg = ALG_EDDSA;
	const char *text;
	char jti[23];
	uint8_t sig[64];
	size_t n = 0;
	int64_t exp = 0;

	if (!jwt || member_text(req, "alg", 16, false, &text, err) < 0 ||
		(text && alg_parse(text, &alg, err) < 0) ||
		claims_make(v, req, claims, jti, &exp, err) < 0 ||
		keys_current(v, alg, &k, err) < 0)
		return -1;
	json_object_set_new(head, "alg", json_string(alg_name(alg)));
	json_object_set_new(head, "typ", json_string("JWT"));
	json_object_set_new(head, "kid", json_string(k->kid));
	if (part_add(jwt, &n, head, err) < 0 || part_add(jwt, &n, claims, err) < 0 ||
		key_sign(k, jwt, n - 1, sig, err) < 0)
		return -1;
	n += b64_put(jwt + n, sig, sizeof(sig), B64_URL);
	json_object_set_new(ret, "token", json_stringn(jwt, n));
	json_object_set_new(ret, "alg", json_string(alg_name(alg)));
	json_object_set_new(ret, "kid", json_string(k->kid));
	json_object_set_new(ret, "jti", json_string(jti));
	json_object_set_new(ret, "exp", json_integer(exp));
	return 0;
}
