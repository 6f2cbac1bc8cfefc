/*
 * Certificates of the box's own authority, made when a name is first asked for. One key for all leaves
 * of a gate: whoever could take it from the gate's memory could take them all.
 */
#pragma once

#include <openssl/ssl.h>

#include "err.h"
#include "name.h"

#define MINT_CACHE 64 /* names; the one that was not asked for longest goes first */
#define MINT_DAYS 7

struct mint;
int mint_new(
	const char *ca_key_pem, const char *ca_cert_pem, struct mint **ret, struct den_err *err);
void mint_free(struct mint *m);
/* A server context with a certificate for this name: TLS 1.2 at least, ALPN http/1.1 alone. Borrowed
 * until the next call (SSL_new() takes its own reference). A leaf near its end is made anew. NULL: err. */
SSL_CTX *mint_context(struct mint *m, const struct net_name *name, struct den_err *err);
unsigned mint_cached(const struct mint *m);
