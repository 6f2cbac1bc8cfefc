/*
 * Questions of a box to its resolver, and the answers. Pure: bytes in, bytes out; every byte that comes
 * in is hostile. A question is never forwarded, so what is odd about one needs no interpretation: it
 * is refused.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "addr.h"
#include "name.h"

#define DNS_HEADER 12
#define DNS_UDP_MIN 512U /* what a question without EDNS can take back */
#define DNS_UDP_MAX 1232U /* what no path fragments */
#define DNS_TCP_MAX 4096U /* of one question over TCP; a sane one has 50 bytes */

enum dns_rcode {
	DNS_NOERROR = 0,
	DNS_FORMERR = 1,
	DNS_SERVFAIL = 2,
	DNS_NXDOMAIN = 3,
	DNS_NOTIMP = 4,
	DNS_REFUSED = 5,
	DNS_BADVERS = 16, /* needs EDNS, and only a question with EDNS gets it */
};
enum dns_type { DNS_A = 1, DNS_AAAA = 28, DNS_OPT = 41 };
enum dns_class { DNS_IN = 1 };

struct dns_query {
	uint16_t id;
	bool rd;
	struct net_name name; /* folded; dns_answer() echoes the letters as they came */
	uint16_t type, class;
	bool edns;
	uint16_t
		edns_size; /* DNS_UDP_MIN..DNS_UDP_MAX, also without EDNS: @max of an answer over UDP */
	size_t question_len; /* bytes of the question, for the echo; 0: it was not understood */
};

/*
 * 0: a question of class IN for a name that can be a host's, *ret is whole. The caller answers A and
 *    AAAA, and any other type with no records (NODATA).
 * -1: drop it silently (shorter than a header, or itself an answer); *ret is untouched.
 * >0: the RCODE to answer with by dns_answer(); of *ret only the name may be missing. FORMERR: not one
 *    question, compressed, records where none belong, junk at the end. NOTIMP: not a query. REFUSED:
 *    another class, or a name no host can have. BADVERS: EDNS other than 0.
 */
int dns_query_parse(const uint8_t *p, size_t n, struct dns_query *ret);

/*
 * The answer to what dns_query_parse() made *q of: the question echoed from @msg (the same bytes), the
 * @addrs that are of the type asked for, OPT if the question had one. What does not fit into @max is
 * left out and TC is set. Returns the bytes written to @out, 0 when @max has no room for a header.
 */
size_t dns_answer(const struct dns_query *q, const uint8_t *msg, size_t len, int rcode,
	const struct net_addr *addrs, unsigned n, uint32_t ttl, uint8_t *out, size_t max);

/* DNS over TCP puts two bytes of length before each message. 1: the first whole message of the @n bytes
 * so far is *msg, *len, and ends at *used; 0: more is needed; -1: no question has that length, close. */
int dns_tcp_next(const uint8_t *p, size_t n, const uint8_t **msg, size_t *len, size_t *used);
/* dns_answer() with the two bytes before it; @max counts them. */
size_t dns_tcp_answer(const struct dns_query *q, const uint8_t *msg, size_t len, int rcode,
	const struct net_addr *addrs, unsigned n, uint32_t ttl, uint8_t *out, size_t max);
