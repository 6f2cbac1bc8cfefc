/*
 * The first message of a TLS client, read without ending TLS: which name does it say it wants? Pure, and
 * fed with all the bytes that came so far, however they were split over packets and records.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "name.h"

#define HELLO_MAX 65536U /* bytes looked at, headers of records included */

enum hello_result {
	HELLO_MORE, /* a good beginning so far */
	HELLO_NOT_TLS, /* some other protocol, or the hello of SSLv2 */
	HELLO_BAD, /* TLS, and broken, ambiguous, or not a ClientHello; *why says */
	HELLO_OK,
};

struct hello {
	bool has_sni;
	struct net_name sni;
	bool ech; /* carries an encrypted hello or name. One that is only grease cannot be told apart */
	bool alpn_h2, alpn_http11;
	uint16_t version; /* the highest offered: 0x0303 is TLS 1.2, 0x0304 TLS 1.3 */
};

/* *ret is written with HELLO_OK only, *why (static text) with HELLO_BAD and HELLO_NOT_TLS. A prefix never
 * says anything else than the whole will: HELLO_MORE, or the whole's result. */
enum hello_result hello_parse(const uint8_t *p, size_t n, struct hello *ret, const char **why);
