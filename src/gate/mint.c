#include "mint.h"

#include <string.h>
#include <time.h>

#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>

#include "mem.h"

#define DAY 86400
#define BACK_SECONDS (DAY) /* a box whose clock is a little behind still accepts it */

struct slot {
	struct net_name name;
	SSL_CTX *ctx;
	time_t until; /* make it anew from here on */
	uint64_t used;
};

struct mint {
	EVP_PKEY *ca_key, *leaf_key;
	X509 *ca;
	struct slot slots[MINT_CACHE];
	unsigned n;
	uint64_t clock;
};

static int mint_fail(struct den_err *err, enum den_code code, const char *what)
{
	const char *why = ERR_reason_error_string(ERR_peek_last_error());

	ERR_clear_error();
	return den_fail(err, code, 0, "%s: %s", what, why ? why : "no reason given");
}

static int no_passphrase(char *buf, int size, int rwflag, void *user)
{
	(void)buf, (void)size, (void)rwflag, (void)user;
	return -1; /* never ask a terminal */
}

int mint_new(
	const char *ca_key_pem, const char *ca_cert_pem, struct mint **ret, struct den_err *err)
{
	struct mint *m = mem_new(struct mint);
	BIO *key = BIO_new_mem_buf(ca_key_pem, -1), *cert = BIO_new_mem_buf(ca_cert_pem, -1);
	int r = 0;

	if (key)
		m->ca_key = PEM_read_bio_PrivateKey(key, NULL, no_passphrase, NULL);
	if (cert)
		m->ca = PEM_read_bio_X509(cert, NULL, NULL, NULL);
	BIO_free(key);
	BIO_free(cert);
	if (!m->ca_key || !m->ca)
		r = mint_fail(err, DEN_INVALID, "the box's certificate authority");
	else if (X509_check_private_key(m->ca, m->ca_key) != 1)
		r = mint_fail(err, DEN_INVALID, "the box's certificate authority and its key");
	else if (!(m->leaf_key = EVP_EC_gen("P-256")))
		r = mint_fail(err, DEN_INTERNAL, "make a key");
	if (r < 0) {
		mint_free(m);
		return r;
	}
	*ret = m;
	return 0;
}

void mint_free(struct mint *m)
{
	if (!m)
		return;
	for (unsigned i = 0; i < m->n; i++)
		SSL_CTX_free(m->slots[i].ctx);
	EVP_PKEY_free(m->ca_key);
	EVP_PKEY_free(m->leaf_key);
	X509_free(m->ca);
	free(m);
}

static bool extension_add(X509 *leaf, X509 *ca, int nid, const char *value)
{
	X509V3_CTX ctx;
	X509_EXTENSION *e;
	bool ok;

	X509V3_set_ctx_nodb(&ctx);
	X509V3_set_ctx(&ctx, ca, leaf, NULL, NULL, 0);
	e = X509V3_EXT_conf_nid(NULL, &ctx, nid, value);
	ok = e && X509_add_ext(leaf, e, -1);
	X509_EXTENSION_free(e);
	return ok;
}

/* By the structure, not by text: a name that X509V3_EXT_conf() reads as syntax is no danger then. */
static bool name_add(X509 *leaf, const char *name)
{
	GENERAL_NAMES *names = sk_GENERAL_NAME_new_null();
	GENERAL_NAME *g = GENERAL_NAME_new();
	ASN1_IA5STRING *s = ASN1_IA5STRING_new();
	bool ok = names && g && s && ASN1_STRING_set(s, name, -1);

	if (g && s) {
		GENERAL_NAME_set0_value(g, GEN_DNS, s);
		s = NULL;
	}
	if (ok && sk_GENERAL_NAME_push(names, g) > 0)
		g = NULL;
	else
		ok = false;
	/* Critical: the subject is empty (RFC 5280, 4.2.1.6), since a name may be longer than a CN. */
	ok = ok && X509_add1_ext_i2d(leaf, NID_subject_alt_name, names, 1, 0) == 1;
	ASN1_STRING_free(s);
	GENERAL_NAME_free(g);
	GENERAL_NAMES_free(names);
	return ok;
}

static X509 *leaf_new(struct mint *m, const struct net_name *name, struct den_err *err)
{
	X509 *leaf = X509_new();
	unsigned char serial[16];
	BIGNUM *bn = NULL;
	bool ok = leaf && RAND_bytes(serial, sizeof(serial)) == 1;

	serial[0] = (serial[0] & 0x7f) | 0x40; /* positive, and never with leading zeros */
	ok = ok && (bn = BN_bin2bn(serial, sizeof(serial), NULL)) &&
	     BN_to_ASN1_INTEGER(bn, X509_get_serialNumber(leaf)) &&
	     X509_set_version(leaf, X509_VERSION_3) &&
	     X509_set_issuer_name(leaf, X509_get_subject_name(m->ca)) &&
	     X509_gmtime_adj(X509_getm_notBefore(leaf), -BACK_SECONDS) &&
	     X509_gmtime_adj(X509_getm_notAfter(leaf), (long)MINT_DAYS * DAY) &&
	     X509_set_pubkey(leaf, m->leaf_key) && name_add(leaf, name->s) &&
	     extension_add(leaf, m->ca, NID_basic_constraints, "critical,CA:FALSE") &&
	     extension_add(leaf, m->ca, NID_key_usage, "critical,digitalSignature") &&
	     extension_add(leaf, m->ca, NID_ext_key_usage, "serverAuth") &&
	     extension_add(leaf, m->ca, NID_subject_key_identifier, "hash") &&
	     (X509_get0_subject_key_id(m->ca) == NULL ||
		     extension_add(leaf, m->ca, NID_authority_key_identifier, "keyid"));
	if (ok) /* Ed25519 signs without a digest of its own */
		ok = X509_sign(leaf, m->ca_key,
			     EVP_PKEY_get_id(m->ca_key) == EVP_PKEY_ED25519 ? NULL : EVP_sha256()) >
		     0;
	BN_free(bn);
	if (ok)
		return leaf;
	mint_fail(err, DEN_INTERNAL, "make a certificate");
	X509_free(leaf);
	return NULL;
}

/* HTTP/1.1 is what the gate can read; a client that offers no ALPN gets none. */
static int choose_http11(SSL *ssl, const unsigned char **out, unsigned char *out_len,
	const unsigned char *in, unsigned in_len, void *user)
{
	static const unsigned char http11[] = "http/1.1";

	(void)ssl, (void)user;
	for (unsigned i = 0; i < in_len; i += 1U + in[i])
		if (in[i] == sizeof(http11) - 1 && i + 1U + in[i] <= in_len &&
			memcmp(in + i + 1, http11, sizeof(http11) - 1) == 0) {
			*out = in + i + 1;
			*out_len = in[i];
			return SSL_TLSEXT_ERR_OK;
		}
	return SSL_TLSEXT_ERR_ALERT_FATAL; /* it speaks h2 or something else alone */
}

static SSL_CTX *context_new(struct mint *m, const struct net_name *name, struct den_err *err)
{
	X509 *leaf = leaf_new(m, name, err);
	SSL_CTX *ctx;

	if (!leaf)
		return NULL;
	ctx = SSL_CTX_new(TLS_server_method());
	if (!ctx || !SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION) ||
		!SSL_CTX_use_certificate(ctx, leaf) || !SSL_CTX_use_PrivateKey(ctx, m->leaf_key) ||
		!SSL_CTX_add1_chain_cert(ctx, m->ca)) {
		mint_fail(err, DEN_INTERNAL, "TLS server");
		SSL_CTX_free(ctx);
		X509_free(leaf);
		return NULL;
	}
	X509_free(leaf);
	SSL_CTX_set_alpn_select_cb(ctx, choose_http11, NULL);
	SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
				      SSL_MODE_RELEASE_BUFFERS);
	SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
	SSL_CTX_set_session_cache_mode(
		ctx, SSL_SESS_CACHE_OFF); /* tickets do, and take no memory */
	return ctx;
}

SSL_CTX *mint_context(struct mint *m, const struct net_name *name, struct den_err *err)
{
	struct slot *slot = NULL;
	SSL_CTX *ctx;

	for (unsigned i = 0; i < m->n && !slot; i++)
		if (strcmp(m->slots[i].name.s, name->s) == 0)
			slot = &m->slots[i];
	if (slot && time(NULL) < slot->until) {
		slot->used = ++m->clock;
		return slot->ctx;
	}
	ctx = context_new(m, name, err);
	if (!ctx)
		return NULL;
	if (!slot && m->n < MINT_CACHE)
		slot = &m->slots[m->n++];
	for (unsigned i = 0; !slot && i < m->n; i++) {
		struct slot *oldest = &m->slots[0];

		for (unsigned k = 1; k < m->n; k++)
			if (m->slots[k].used < oldest->used)
				oldest = &m->slots[k];
		slot = oldest;
	}
	SSL_CTX_free(slot->ctx);
	*slot = (struct slot){ *name, ctx, time(NULL) + (MINT_DAYS - 1) * DAY, ++m->clock };
	return ctx;
}

unsigned mint_cached(const struct mint *m)
{
	return m->n;
}
