/* TLS onward: what the gate speaks to the world in a box's place. */
#pragma once

#include <stddef.h>
#include <openssl/ssl.h>

#include "err.h"
#include "name.h"

/* Once, at start-up, while files can be opened: OpenSSL reads no configuration and has all it needs. */
int tls_start(struct den_err *err);
/* Trusts the certificates in the PEM text alone; TLS 1.2 at least, ALPN http/1.1. The caller frees it. */
SSL_CTX *tls_client_context(const char *ca_bundle_pem, size_t len, struct den_err *err);
/* A connection in client state that says this name and accepts a certificate for this name alone. */
SSL *tls_client_new(SSL_CTX *ctx, const struct net_name *name, struct den_err *err);
/* Why the last TLS step failed, for people ("certificate has expired"). */
void tls_reason(const SSL *ssl, char *ret, size_t cap);
