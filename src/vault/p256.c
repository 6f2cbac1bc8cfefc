#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/ecdsa.h>
#include <openssl/param_build.h>
#include <openssl/sha.h>
#include <string.h>

#include "vault.h"

/* What each function here needs; every BIGNUM of it is wiped. */
struct work {
	EC_GROUP *g;
	BN_CTX *bn;
	BIGNUM *n; /* borrowed from g: the group's order */
};

static int work_begin(struct work *w, struct den_err *err)
{
	w->g = EC_GROUP_new_by_curve_name(NID_X9_62_prime256v1);
	w->bn = BN_CTX_secure_new();
	if (!w->g || !w->bn)
		return crypto_fail(err, "P-256");
	w->n = (BIGNUM *)EC_GROUP_get0_order(w->g);
	BN_CTX_start(w->bn);
	return 0;
}

static void work_end(struct work *w)
{
	if (w->bn)
		BN_CTX_end(w->bn);
	BN_CTX_free(w->bn);
	EC_GROUP_free(w->g);
}
#define auto_work __attribute__((cleanup(work_end))) struct work

/* A number of the work, with these bytes; NULL when OpenSSL has no memory. */
static BIGNUM *number(struct work *w, const uint8_t *p, size_t n)
{
	BIGNUM *b = BN_CTX_get(w->bn);

	if (!b || (p && !BN_bin2bn(p, (int)n, b)))
		return NULL;
	BN_set_flags(b, BN_FLG_CONSTTIME);
	return b;
}

/* FIPS 186-5, A.2.1: 128 bits more than the order has, so the remainder is as good as even. */
int p256_derive(const uint8_t wide[static 48], uint8_t ret_scalar[static 32], struct den_err *err)
{
	auto_work w = { 0 };
	BIGNUM *c, *less, *d;

	if (work_begin(&w, err) < 0)
		return -1;
	c = number(&w, wide, 48);
	less = number(&w, NULL, 0);
	d = number(&w, NULL, 0);
	if (!c || !less || !d || !BN_sub(less, w.n, BN_value_one()) || !BN_mod(d, c, less, w.bn) ||
		!BN_add_word(d, 1) || BN_bn2binpad(d, ret_scalar, 32) != 32)
		return crypto_fail(err, "P-256");
	return 0;
}

int p256_public(
	const uint8_t scalar[static 32], uint8_t ret[static P256_POINT], struct den_err *err)
{
	auto_work w = { 0 };
	EC_POINT *q;
	BIGNUM *d;
	int ok;

	if (work_begin(&w, err) < 0)
		return -1;
	d = number(&w, scalar, 32);
	q = EC_POINT_new(w.g);
	ok = d && q && !BN_is_zero(d) && BN_cmp(d, w.n) < 0 &&
	     EC_POINT_mul(w.g, q, d, NULL, NULL, w.bn) &&
	     EC_POINT_point2oct(w.g, q, POINT_CONVERSION_UNCOMPRESSED, ret, P256_POINT, w.bn) ==
		     P256_POINT;
	EC_POINT_free(q);
	return ok ? 0 : crypto_fail(err, "P-256");
}

int p256_pkey(const uint8_t scalar[static 32], EVP_PKEY **ret, struct den_err *err)
{
	EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_name(NULL, "EC", NULL);
	OSSL_PARAM_BLD *bld = OSSL_PARAM_BLD_new();
	BIGNUM *d = BN_secure_new();
	uint8_t pub[P256_POINT];
	OSSL_PARAM *params = NULL;
	EVP_PKEY *pkey = NULL;
	int ok;

	ok = p256_public(scalar, pub, err) == 0 && ctx && bld && d && BN_bin2bn(scalar, 32, d) &&
	     OSSL_PARAM_BLD_push_utf8_string(bld, OSSL_PKEY_PARAM_GROUP_NAME, "prime256v1", 0) &&
	     OSSL_PARAM_BLD_push_octet_string(bld, OSSL_PKEY_PARAM_PUB_KEY, pub, sizeof(pub)) &&
	     OSSL_PARAM_BLD_push_BN(bld, OSSL_PKEY_PARAM_PRIV_KEY, d);
	params = ok ? OSSL_PARAM_BLD_to_param(bld) : NULL;
	ok = params && EVP_PKEY_fromdata_init(ctx) == 1 &&
	     EVP_PKEY_fromdata(ctx, &pkey, EVP_PKEY_KEYPAIR, params) == 1;
	OSSL_PARAM_free(params);
	OSSL_PARAM_BLD_free(bld);
	BN_clear_free(d);
	EVP_PKEY_CTX_free(ctx);
	if (!ok)
		return crypto_fail(err, "P-256");
	*ret = pkey;
	return 0;
}

/* r = x of kG, s = (z + r d) / k, both modulo n */
static int sign_numbers(struct work *w, BIGNUM *d, BIGNUM *k, BIGNUM *z, BIGNUM *r, BIGNUM *s)
{
	EC_POINT *p = EC_POINT_new(w->g);
	BIGNUM *x = BN_CTX_get(w->bn), *inv = BN_CTX_get(w->bn);
	int ok = p && x && inv && EC_POINT_mul(w->g, p, k, NULL, NULL, w->bn) &&
		 EC_POINT_get_affine_coordinates(w->g, p, x, NULL, w->bn) &&
		 BN_nnmod(r, x, w->n, w->bn) && BN_mod_inverse(inv, k, w->n, w->bn) &&
		 BN_mod_mul(s, r, d, w->n, w->bn) && BN_mod_add(s, s, z, w->n, w->bn) &&
		 BN_mod_mul(s, s, inv, w->n, w->bn);

	EC_POINT_free(p);
	return ok && !BN_is_zero(r) && !BN_is_zero(s);
}

int p256_sign_with(const uint8_t scalar[static 32], const uint8_t k[static 32], const void *p,
	size_t n, uint8_t *ret, size_t max, size_t *ret_n, struct den_err *err)
{
	auto_work w = { 0 };
	uint8_t digest[32];
	BIGNUM *r = BN_new(), *s = BN_new(), *d, *kn, *z;
	ECDSA_SIG *sig = ECDSA_SIG_new();
	int len = -1;

	if (work_begin(&w, err) == 0) {
		SHA256(p, n, digest);
		d = number(&w, scalar, 32);
		kn = number(&w, k, 32);
		z = number(&w, digest, 32);
		if (r && s && sig && d && kn && z && sign_numbers(&w, d, kn, z, r, s) &&
			ECDSA_SIG_set0(sig, r, s)) {
			r = s = NULL;
			len = i2d_ECDSA_SIG(sig, NULL);
		}
	}
	if (len > 0 && (size_t)len <= max)
		*ret_n = (size_t)i2d_ECDSA_SIG(sig, &ret);
	BN_free(r);
	BN_free(s);
	ECDSA_SIG_free(sig);
	return len > 0 && (size_t)len <= max ? 0 : crypto_fail(err, "sign with P-256");
}
