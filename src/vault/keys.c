/*
 * Signing keys. Of each algorithm the newest signs. Rotation makes a new one and destroys the
 * private half of the old, whose public half stays as long as a token of it can be valid.
 *
 * Sealed is: alg (1 byte), 1 if private follows else 0 (1), created and retired (8 each, Unix
 * milliseconds), then the private key (32) or the public one (32, or 65 of P-256). Named by its
 * kid.
 */
#include <openssl/ec.h>
#include <openssl/ecdsa.h>
#include <openssl/rand.h>
#include <openssl/sha.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "mem.h"
#include "strv.h"
#include "vault.h"

#define HEAD 18
#define KEYS_MAX 128 /* that verify, so that others can take them all */
#define FILES_MAX 4096 /* with those that wait to be removed */
#define KEEP_MS ((TOKEN_TTL_MAX + CLOCK_SKEW_S) * 1000LL)

const char *alg_name(enum sign_alg alg)
{
	return alg == ALG_EDDSA ? "EdDSA" : "ES256";
}

int alg_parse(const char *text, enum sign_alg *ret, struct den_err *err)
{
	if (!strcmp(text, "EdDSA"))
		*ret = ALG_EDDSA;
	else if (!strcmp(text, "ES256"))
		*ret = ALG_ES256;
	else
		return den_fail(err, DEN_INVALID, 0,
			"'%.20s' is no algorithm here; EdDSA and ES256 are", text);
	return 0;
}

/* ---- one key ---- */

static void set_b64(json_t *o, const char *name, const uint8_t *p)
{
	char text[B64_SIZE(32)];

	b64_put(text, p, 32, B64_URL);
	json_object_set_new(o, name, json_string(text));
}

json_t *key_jwk(const struct sign_key *k)
{
	json_t *o = json_object();

	json_object_set_new(o, "crv", json_string(k->alg == ALG_EDDSA ? "Ed25519" : "P-256"));
	json_object_set_new(o, "kty", json_string(k->alg == ALG_EDDSA ? "OKP" : "EC"));
	set_b64(o, "x", k->alg == ALG_EDDSA ? k->public : k->public + 1);
	if (k->alg == ALG_ES256)
		set_b64(o, "y", k->public + 33);
	return o;
}

/* RFC 7638: the hash of the members that make the key, sorted, without spaces. */
static int key_name(struct sign_key *k, struct den_err *err)
{
	auto_json json_t *jwk = key_jwk(k);
	char text[256];
	uint8_t hash[32];
	size_t n = json_dumpb(jwk, text, sizeof(text), JSON_COMPACT | JSON_SORT_KEYS);

	if (!n || n > sizeof(text))
		return den_fail(err, DEN_INTERNAL, 0, "thumbprint");
	SHA256((const uint8_t *)text, n, hash);
	b64_put(k->kid, hash, 32, B64_URL);
	return 0;
}

static int key_complete(struct sign_key *k, struct den_err *err)
{
	EVP_PKEY *pkey;
	int ok;

	k->public_len = k->alg == ALG_EDDSA ? 32 : P256_POINT;
	if (k->alg == ALG_ES256)
		return p256_public(k->private, k->public, err);
	pkey = EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, NULL, k->private, 32);
	ok = pkey && EVP_PKEY_get_raw_public_key(pkey, k->public, &k->public_len) == 1;
	EVP_PKEY_free(pkey);
	return ok ? 0 : crypto_fail(err, "Ed25519");
}

static int key_save(struct vault *v, const struct sign_key *k, struct den_err *err)
{
	auto_secure uint8_t *p = secure_alloc(HEAD + P256_POINT, err);

	if (!p)
		return -1;
	p[0] = (uint8_t)k->alg;
	p[1] = !k->retired_ms;
	put_u64(p + 2, (uint64_t)k->created_ms);
	put_u64(p + 10, (uint64_t)k->retired_ms);
	memcpy(p + HEAD, k->retired_ms ? k->public : k->private,
		k->retired_ms ? k->public_len : 32);
	return seal_write(v, SEAL_KEY, k->kid, p, HEAD + (k->retired_ms ? k->public_len : 32), err);
}

static int key_load(const struct vault *v, const char *kid, struct sign_key *k, struct den_err *err)
{
	auto_secure uint8_t *p = NULL;
	size_t n, want;

	if (seal_read(v, SEAL_KEY, kid, &p, &n, err) < 0)
		return -1;
	k->alg = n > HEAD ? (enum sign_alg)p[0] : 0;
	k->public_len = k->alg == ALG_EDDSA ? 32 : P256_POINT;
	want = HEAD + (n > HEAD && p[1] ? 32 : k->public_len);
	if (n != want || (k->alg != ALG_EDDSA && k->alg != ALG_ES256))
		return den_fail(err, DEN_CONFLICT, 0, "the signing key '%s' makes no sense", kid);
	k->created_ms = (int64_t)get_u64(p + 2);
	k->retired_ms = (int64_t)get_u64(p + 10);
	memcpy(p[1] ? k->private : k->public, p + HEAD, n - HEAD);
	if ((p[1] && key_complete(k, err) < 0) || key_name(k, err) < 0)
		return -1;
	if (strcmp(k->kid, kid))
		return den_fail(
			err, DEN_CONFLICT, 0, "the signing key '%s' has another's name", kid);
	return 0;
}

static int key_make(struct vault *v, enum sign_alg alg, struct sign_key *k, struct den_err *err)
{
	auto_secure uint8_t *wide = secure_alloc(48, err);

	if (!wide)
		return -1;
	if (RAND_priv_bytes(wide, 48) != 1)
		return crypto_fail(err, "random bytes");
	OPENSSL_cleanse(k, sizeof(*k));
	k->alg = alg;
	k->created_ms = clock_wall_ms();
	if (alg == ALG_EDDSA)
		memcpy(k->private, wide, 32);
	else if (p256_derive(wide, k->private, err) < 0)
		return -1;
	if (key_complete(k, err) < 0 || key_name(k, err) < 0)
		return -1;
	return key_save(v, k, err);
}

int key_sign(const struct sign_key *k, const void *p, size_t n, uint8_t ret[static 64],
	struct den_err *err)
{
	EVP_MD_CTX *ctx = EVP_MD_CTX_new();
	EVP_PKEY *pkey = NULL;
	uint8_t der[80];
	const uint8_t *at = der;
	size_t len = k->alg == ALG_EDDSA ? 64 : sizeof(der);
	ECDSA_SIG *sig = NULL;
	int ok;

	if (k->alg == ALG_EDDSA)
		pkey = EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, NULL, k->private, 32);
	else if (p256_pkey(k->private, &pkey, err) < 0)
		pkey = NULL;
	ok = ctx && pkey &&
	     EVP_DigestSignInit(ctx, NULL, k->alg == ALG_EDDSA ? NULL : EVP_sha256(), NULL, pkey) ==
		     1 &&
	     EVP_DigestSign(ctx, k->alg == ALG_EDDSA ? ret : der, &len, p, n) == 1;
	if (ok && k->alg == ALG_ES256) { /* JWS has the two numbers side by side */
		sig = d2i_ECDSA_SIG(NULL, &at, (long)len);
		ok = sig && BN_bn2binpad(ECDSA_SIG_get0_r(sig), ret, 32) == 32 &&
		     BN_bn2binpad(ECDSA_SIG_get0_s(sig), ret + 32, 32) == 32;
	}
	ECDSA_SIG_free(sig);
	EVP_PKEY_free(pkey);
	EVP_MD_CTX_free(ctx);
	return ok ? 0 : crypto_fail(err, "sign");
}

/* ---- all keys ---- */

static bool key_needed(const struct sign_key *k)
{
	return !k->retired_ms || clock_wall_ms() < k->retired_ms + KEEP_MS;
}

/* Those that sign before those that did, the newest first. */
static int by_use(const void *a, const void *b)
{
	const struct sign_key *x = a, *y = b;

	if (!x->retired_ms != !y->retired_ms)
		return x->retired_ms ? 1 : -1;
	if (x->created_ms != y->created_ms)
		return x->created_ms > y->created_ms ? -1 : 1;
	return strcmp(x->kid, y->kid);
}

static int keys_read(const struct vault *v, bool old_too, struct sign_key **ret, size_t *ret_n,
	struct den_err *err)
{
	auto_secure struct sign_key *list = NULL;
	auto_strv names = NULL;
	size_t n = 0, names_n;

	if (seal_names(v, SEAL_KEY, &names, err) < 0)
		return -1;
	names_n = strv_len(names);
	if (names_n > FILES_MAX)
		return den_fail(err, DEN_LIMIT, 0, "there are %zu files in 'vault/keys'", names_n);
	list = secure_alloc((names_n + 1) * sizeof(*list), err);
	if (!list)
		return -1;
	for (size_t i = 0; i < names_n; i++) {
		if (key_load(v, names[i], &list[n], err) < 0) {
			if (err->code == DEN_NOT_FOUND)
				continue; /* an old one that just went */
			return -1;
		}
		if (old_too || key_needed(&list[n]))
			n++;
		else
			OPENSSL_cleanse(&list[n], sizeof(list[n]));
	}
	qsort(list, n, sizeof(*list), by_use);
	*ret = list;
	*ret_n = n;
	list = NULL;
	return 0;
}

int keys_all(const struct vault *v, struct sign_key **ret, size_t *ret_n, struct den_err *err)
{
	return keys_read(v, false, ret, ret_n, err);
}

/* 1: found; 0: none */
static int current_find(
	const struct vault *v, enum sign_alg alg, struct sign_key *k, struct den_err *err)
{
	auto_secure struct sign_key *list = NULL;
	size_t n;

	if (keys_read(v, false, &list, &n, err) < 0)
		return -1;
	for (size_t i = 0; i < n; i++) {
		if (list[i].alg != alg || list[i].retired_ms)
			continue;
		*k = list[i];
		return 1;
	}
	return 0;
}

int keys_current(struct vault *v, enum sign_alg alg, struct sign_key **ret, struct den_err *err)
{
	auto_secure struct sign_key *k = secure_alloc(sizeof(*k), err);
	int r = k ? current_find(v, alg, k, err) : -1;

	if (r == 0) {
		if (vault_lock(v, err) < 0)
			return -1;
		r = current_find(v, alg, k, err); /* somebody may have been faster */
	}
	if (r < 0 || (r == 0 && key_make(v, alg, k, err) < 0))
		return -1;
	*ret = k;
	k = NULL;
	return 0;
}

static void tell_key(json_t *list, const struct sign_key *k)
{
	json_array_append_new(
		list, json_pack("{s:s, s:s}", "alg", alg_name(k->alg), "kid", k->kid));
}

int keys_rotate(
	struct vault *v, enum sign_alg alg, json_t *made, json_t *retired, struct den_err *err)
{
	auto_secure struct sign_key *list = NULL, *k = secure_alloc(sizeof(*k), err);
	size_t n, needed = 0;

	if (!k || vault_lock(v, err) < 0 || keys_read(v, true, &list, &n, err) < 0)
		return -1;
	for (size_t i = 0; i < n; i++)
		needed += key_needed(&list[i]);
	if (needed >= KEYS_MAX)
		return den_fail(err, DEN_LIMIT, 0,
			"%zu signing keys are needed to verify; wait until the tokens of old ones "
			"have ended, "
			"about an hour, before you rotate again",
			needed);
	/* The new one first: killed in between there are two that could sign, and the newest
	 * does. */
	if (key_make(v, alg, k, err) < 0)
		return -1;
	tell_key(made, k);
	for (size_t i = 0; i < n; i++) {
		if (!key_needed(&list[i])) {
			if (seal_remove(v, SEAL_KEY, list[i].kid, err) < 0)
				return -1;
		} else if (list[i].alg == alg && !list[i].retired_ms) {
			list[i].retired_ms = MAX(clock_wall_ms(), (int64_t)1);
			OPENSSL_cleanse(list[i].private, sizeof(list[i].private));
			if (key_save(v, &list[i], err) < 0)
				return -1;
			tell_key(retired, &list[i]);
		}
	}
	return 0;
}
