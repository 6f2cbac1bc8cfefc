#include "tls_ctx.h"

#include <stdio.h>

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>

#include "mem.h"

static const unsigned char alpn_http11[] = "\x08http/1.1";

/* The last error in OpenSSL's queue, which is empty then. */
static const char *openssl_why(void)
{
	const char *why = ERR_reason_error_string(ERR_peek_last_error());

	ERR_clear_error();
	return why ? why : "no reason given";
}

int tls_start(struct den_err *err)
{
	unsigned char b[16];

	if (!OPENSSL_init_ssl(OPENSSL_INIT_NO_LOAD_CONFIG | OPENSSL_INIT_LOAD_SSL_STRINGS |
				      OPENSSL_INIT_LOAD_CRYPTO_STRINGS,
		    NULL))
		return den_fail(err, DEN_INTERNAL, 0, "start OpenSSL: %s", openssl_why());
	/* The generator is seeded now: with getrandom() alone, but it may look at devices first. */
	if (RAND_bytes(b, sizeof(b)) != 1)
		return den_fail(err, DEN_INTERNAL, 0, "random numbers: %s", openssl_why());
	return 0;
}

static int bundle_load(X509_STORE *store, const char *pem, size_t len, struct den_err *err)
{
	BIO *bio = BIO_new_mem_buf(pem, (int)len);
	X509 *cert;
	unsigned n = 0;

	if (!bio)
		return den_fail(err, DEN_INTERNAL, 0, "trusted certificates: %s", openssl_why());
	while ((cert = PEM_read_bio_X509(bio, NULL, NULL, NULL))) {
		n += X509_STORE_add_cert(store, cert) == 1;
		X509_free(cert);
	}
	ERR_clear_error(); /* the end of the text is an error to it */
	BIO_free(bio);
	if (!n)
		return den_fail(err, DEN_INVALID, 0,
			"no certificate authority to trust: install ca-certificates on the host");
	return 0;
}

SSL_CTX *tls_client_context(const char *ca_bundle_pem, size_t len, struct den_err *err)
{
	SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());

	if (!ctx || !SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION) ||
		SSL_CTX_set_alpn_protos(ctx, alpn_http11, sizeof(alpn_http11) - 1) != 0) {
		den_fail(err, DEN_INTERNAL, 0, "TLS client: %s", openssl_why());
		SSL_CTX_free(ctx);
		return NULL;
	}
	SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, NULL);
	SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
				      SSL_MODE_RELEASE_BUFFERS);
	SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
	if (bundle_load(SSL_CTX_get_cert_store(ctx), ca_bundle_pem, len, err) < 0) {
		SSL_CTX_free(ctx);
		return NULL;
	}
	return ctx;
}

SSL *tls_client_new(SSL_CTX *ctx, const struct net_name *name, struct den_err *err)
{
	SSL *ssl = SSL_new(ctx);

	if (!ssl || !SSL_set_tlsext_host_name(ssl, name->s) || !SSL_set1_host(ssl, name->s)) {
		den_fail(err, DEN_INTERNAL, 0, "TLS to %s: %s", name->s, openssl_why());
		SSL_free(ssl);
		return NULL;
	}
	SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
	SSL_set_connect_state(ssl);
	return ssl;
}

void tls_reason(const SSL *ssl, char *ret, size_t cap)
{
	long verify = SSL_get_verify_result(ssl);

	if (verify != X509_V_OK) {
		snprintf(ret, cap, "%s", X509_verify_cert_error_string(verify));
		ERR_clear_error();
		return;
	}
	snprintf(ret, cap, "%s", openssl_why());
}
