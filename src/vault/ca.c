/*
 * The authority of a box: made from the master key and the box's id, byte for byte the same each
 * time, so that a gate that starts again has the certificate that the box trusts, and no key of
 * it is on disk.
 */
#include <openssl/bio.h>
#include <openssl/bn.h>
#include <openssl/pem.h>
#include <openssl/sha.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "buf.h"
#include "id.h"
#include "vault.h"

#define VALID_S (3652LL * 86400)
#define EPOCH_S 1767225600LL /* 2026-01-01, where the caller says no other */
#define TIME_MAX_S 4102444800LL /* 2100-01-01 */

struct ca {
	struct box_id id;
	int64_t from;
	uint8_t scalar[32], point[P256_POINT], serial[16];
};

static int ca_derive(const struct vault *v, struct ca *ca, struct den_err *err)
{
	auto_secure uint8_t *wide = secure_alloc(48, err);

	if (!wide || vault_derive(v, "den box ca 1", ca->id.s, wide, 48, err) < 0 ||
		p256_derive(wide, ca->scalar, err) < 0 ||
		p256_public(ca->scalar, ca->point, err) < 0 ||
		vault_derive(v, "den box ca serial 1", ca->id.s, ca->serial, sizeof(ca->serial),
			err) < 0)
		return -1;
	ca->serial[0] = (ca->serial[0] & 0x7f) | 0x40; /* positive, and of one length */
	return 0;
}

static bool add_extension(X509 *x, int nid, const char *value)
{
	X509V3_CTX ctx;
	X509_EXTENSION *e;
	bool ok;

	X509V3_set_ctx(&ctx, x, x, NULL, NULL, 0);
	e = X509V3_EXT_conf_nid(NULL, &ctx, nid, value);
	ok = e && X509_add_ext(x, e, -1) == 1;
	X509_EXTENSION_free(e);
	return ok;
}

/* RFC 7093: the first 20 bytes of the key's SHA-256, as text for the extension. */
static void key_id(const struct ca *ca, char out[static 64])
{
	uint8_t hash[32];

	SHA256(ca->point, sizeof(ca->point), hash);
	for (int i = 0; i < 20; i++)
		snprintf(out + 3 * i, 4, i < 19 ? "%02X:" : "%02X", hash[i]);
}

static bool fill(X509 *x, const struct ca *ca, EVP_PKEY *pkey)
{
	BIGNUM *serial = BN_bin2bn(ca->serial, sizeof(ca->serial), NULL);
	X509_NAME *name = X509_get_subject_name(x);
	char cn[64], ski[64];
	bool ok;

	snprintf(cn, sizeof(cn), "den box %s", ca->id.s);
	key_id(ca, ski);
	ok = serial && BN_to_ASN1_INTEGER(serial, X509_get_serialNumber(x)) &&
	     X509_set_version(x, 2) &&
	     X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const uint8_t *)cn, -1, -1, 0) &&
	     X509_set_issuer_name(x, name) &&
	     ASN1_TIME_set(X509_getm_notBefore(x), (time_t)ca->from) &&
	     ASN1_TIME_set(X509_getm_notAfter(x), (time_t)(ca->from + VALID_S)) &&
	     X509_set_pubkey(x, pkey) &&
	     add_extension(x, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") &&
	     add_extension(x, NID_key_usage, "critical,keyCertSign") &&
	     add_extension(x, NID_subject_key_identifier, ski);
	BN_free(serial);
	return ok;
}

static void der_head(struct buf *b, uint8_t tag, size_t n)
{
	uint8_t h[4] = { tag };
	size_t len = 2;

	if (n < 128) {
		h[1] = (uint8_t)n;
	} else if (n < 256) {
		h[1] = 0x81, h[2] = (uint8_t)n;
		len = 3;
	} else {
		h[1] = 0x82, h[2] = (uint8_t)(n >> 8), h[3] = (uint8_t)n;
		len = 4;
	}
	buf_add(b, h, len);
}

/*
 * OpenSSL 3.0 signs with a random number, so the signature is made here: its number comes from
 * the master key, the box and what is signed, as RFC 6979 has it in spirit.
 */
static int sign_again(
	const struct vault *v, const struct ca *ca, X509 *x, struct buf *out, struct den_err *err)
{
	static const uint8_t ecdsa_sha256[] = { 0x30, 0x0a, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce,
		0x3d, 0x04, 0x03, 0x02 };
	auto_secure uint8_t *wide = secure_alloc(48 + 32, err);
	char context[96], hash_text[B64_SIZE(32)];
	uint8_t *tbs = NULL, hash[32], sig[80];
	size_t sig_n;
	int n = i2d_re_X509_tbs(x, &tbs), r = -1;
	auto_buf body = { 0 };

	if (n <= 0 || !wide) {
		OPENSSL_free(tbs);
		return wide ? crypto_fail(err, "certificate") : -1;
	}
	SHA256(tbs, (size_t)n, hash);
	b64_put(hash_text, hash, 32, B64_URL);
	snprintf(context, sizeof(context), "%s/%s", ca->id.s, hash_text);
	if (vault_derive(v, "den box ca nonce 1", context, wide, 48, err) == 0 &&
		p256_derive(wide, wide + 48, err) == 0 &&
		p256_sign_with(ca->scalar, wide + 48, tbs, (size_t)n, sig, sizeof(sig), &sig_n,
			err) == 0) {
		buf_add(&body, tbs, (size_t)n);
		buf_add(&body, ecdsa_sha256, sizeof(ecdsa_sha256));
		der_head(&body, 0x03, sig_n + 1);
		buf_add(&body, "", 1); /* no unused bits */
		buf_add(&body, sig, sig_n);
		der_head(out, 0x30, body.len);
		buf_add(out, body.p, body.len);
		r = 0;
	}
	OPENSSL_free(tbs);
	return r;
}

static int bio_to_json(BIO *bio, json_t *ret, const char *key, struct den_err *err)
{
	char *text;
	long n = BIO_get_mem_data(bio, &text);

	if (n <= 0 || json_object_set_new(ret, key, json_stringn(text, (size_t)n)) < 0)
		return den_fail(err, DEN_INTERNAL, 0, "certificate as text");
	return 0;
}

static int ca_certificate(const struct vault *v, const struct ca *ca, EVP_PKEY *pkey, json_t *ret,
	struct den_err *err)
{
	X509 *x = X509_new(), *done = NULL;
	BIO *bio = BIO_new(BIO_s_mem());
	auto_buf der = { 0 };
	const uint8_t *at;
	int r = -1;

	/* signed once by OpenSSL, which fills in the algorithm */
	if (!x || !bio || !fill(x, ca, pkey) || !X509_sign(x, pkey, EVP_sha256())) {
		crypto_fail(err, "certificate");
	} else if (sign_again(v, ca, x, &der, err) == 0) {
		at = (const uint8_t *)der.p;
		done = d2i_X509(NULL, &at, (long)der.len);
		if (!done || X509_verify(done, pkey) != 1 || !PEM_write_bio_X509(bio, done))
			crypto_fail(err, "certificate");
		else
			r = bio_to_json(bio, ret, "cert", err);
	}
	X509_free(x);
	X509_free(done);
	BIO_free(bio);
	return r;
}

static int ca_key(EVP_PKEY *pkey, json_t *ret, struct den_err *err)
{
	BIO *bio = BIO_new(BIO_s_secmem());
	int r;

	if (bio && PEM_write_bio_PrivateKey(bio, pkey, NULL, NULL, 0, NULL, NULL))
		r = bio_to_json(bio, ret, "key", err);
	else
		r = crypto_fail(err, "key as text");
	BIO_free(bio);
	return r;
}

int op_box_ca(struct vault *v, json_t *req, json_t *ret, struct den_err *err)
{
	auto_secure struct ca *ca = secure_alloc(sizeof(*ca), err);
	const json_t *from = json_object_get(req, "not_before");
	EVP_PKEY *pkey = NULL;
	const char *box;
	int r;

	if (!ca || member_text(req, "box", 64, true, &box, err) < 0 ||
		box_id_parse(box, &ca->id, err) < 0)
		return -1;
	ca->from = from ? json_integer_value(from) : EPOCH_S;
	if ((from && !json_is_integer(from)) || ca->from < 0 || ca->from > TIME_MAX_S)
		return den_fail(
			err, DEN_INVALID, 0, "'not_before' is a time in seconds since 1970");
	if (ca_derive(v, ca, err) < 0 || p256_pkey(ca->scalar, &pkey, err) < 0)
		return -1;
	r = ca_certificate(v, ca, pkey, ret, err);
	if (r == 0)
		r = ca_key(pkey, ret, err);
	EVP_PKEY_free(pkey);
	return r;
}
