#include "dns.h"

#include <string.h>

#include "mem.h"

/* The third and fourth byte of a header. */
#define FLAG_QR 0x80
#define FLAG_OPCODE 0x78
#define FLAG_TC 0x02
#define FLAG_RD 0x01
#define FLAG_RA 0x80

#define OPT_SIZE 11U /* with no options */
#define NAME_WIRE_MAX 255U

static uint16_t get16(const uint8_t *p)
{
	return (uint16_t)(p[0] << 8 | p[1]);
}

static void put16(uint8_t *p, unsigned v)
{
	p[0] = (uint8_t)(v >> 8);
	p[1] = (uint8_t)v;
}

/* Reads the name at p as text with dots. Returns its bytes, 0: malformed. *host: no label has a dot
 * or NUL of its own in it, so the text says the same as the labels did. */
static size_t name_read(
	const uint8_t *p, size_t n, char text[static NAME_WIRE_MAX], size_t *text_len, bool *host)
{
	size_t at = 0, len = 0;

	*host = true;
	while (at < n && p[at]) {
		size_t label = p[at++];

		/* 0xc0 is compression, and the first question has nothing to point at */
		if (label > 63 || label > n - at || at + label + 1 > NAME_WIRE_MAX)
			return 0;
		if (memchr(p + at, '.', label) || memchr(p + at, '\0', label))
			*host = false;
		if (len)
			text[len++] = '.';
		memcpy(text + len, p + at, label);
		len += label;
		at += label;
	}
	if (at == n)
		return 0;
	*text_len = len;
	return at + 1;
}

/* The only record a question may carry: OPT, to the last byte of the message. */
static int opt_read(const uint8_t *p, size_t n, struct dns_query *q)
{
	if (n < OPT_SIZE || p[0] != 0 || get16(p + 1) != DNS_OPT || get16(p + 9) != n - OPT_SIZE)
		return DNS_FORMERR;
	q->edns = true;
	q->edns_size = (uint16_t)MIN(MAX(get16(p + 3), DNS_UDP_MIN), DNS_UDP_MAX);
	return p[6] ? DNS_BADVERS : 0;
}

static int sections_read(const uint8_t *p, size_t n, struct dns_query *q)
{
	char text[NAME_WIRE_MAX];
	size_t at = DNS_HEADER, name_len, text_len;
	bool host;
	int rcode = 0;

	/* one question, no answer, no authority, at most OPT */
	if (get16(p + 4) != 1 || get16(p + 6) || get16(p + 8) || get16(p + 10) > 1)
		return DNS_FORMERR;
	name_len = name_read(p + at, n - at, text, &text_len, &host);
	if (!name_len || n - at - name_len < 4)
		return DNS_FORMERR;
	at += name_len + 4;
	q->type = get16(p + at - 4);
	q->class = get16(p + at - 2);
	q->question_len = name_len + 4;
	if (get16(p + 10))
		rcode = opt_read(p + at, n - at, q);
	else if (at != n)
		rcode = DNS_FORMERR;
	if (rcode)
		return rcode;
	if (q->class != DNS_IN || !host || net_name_parse(text, text_len, &q->name, NULL) < 0)
		return DNS_REFUSED;
	return 0;
}

int dns_query_parse(const uint8_t *p, size_t n, struct dns_query *ret)
{
	struct dns_query q = { .edns_size = DNS_UDP_MIN };
	int rcode;

	/* an answer is never answered: two resolvers would talk for ever */
	if (n < DNS_HEADER || p[2] & FLAG_QR)
		return -1;
	q.id = get16(p);
	q.rd = p[2] & FLAG_RD;
	if (p[2] & FLAG_OPCODE)
		rcode = DNS_NOTIMP;
	else if (p[2] & FLAG_TC)
		rcode = DNS_FORMERR;
	else
		rcode = sections_read(p, n, &q);
	*ret = q;
	return rcode;
}

static size_t record_put(uint8_t *out, const struct net_addr *a, uint32_t ttl)
{
	size_t len = a->family == 4 ? 4 : 16;

	put16(out, 0xc000 | DNS_HEADER); /* the name of the question */
	put16(out + 2, a->family == 4 ? DNS_A : DNS_AAAA);
	put16(out + 4, DNS_IN);
	put16(out + 6, ttl >> 16);
	put16(out + 8, ttl & 0xffff);
	put16(out + 10, (unsigned)len);
	memcpy(out + 12, a->b, len);
	return 12 + len;
}

static bool addr_is_asked(const struct dns_query *q, const struct net_addr *a)
{
	return q->type == (a->family == 4 ? DNS_A : DNS_AAAA);
}

size_t dns_answer(const struct dns_query *q, const uint8_t *msg, size_t len, int rcode,
	const struct net_addr *addrs, unsigned n, uint32_t ttl, uint8_t *out, size_t max)
{
	size_t at = DNS_HEADER, opt = q->edns ? OPT_SIZE : 0;
	bool question = q->question_len && len >= DNS_HEADER + q->question_len;
	unsigned count = 0;

	if (max < DNS_HEADER)
		return 0;
	memset(out, 0, DNS_HEADER);
	put16(out, q->id);
	out[2] = (uint8_t)(FLAG_QR | (len > 2 ? msg[2] & FLAG_OPCODE : 0) | (q->rd ? FLAG_RD : 0));
	out[3] = (uint8_t)(FLAG_RA | (rcode & 0xf));
	if (max < at + (question ? q->question_len : 0) + opt) {
		out[2] |= FLAG_TC;
		return at;
	}
	if (question) {
		memcpy(out + at, msg + DNS_HEADER, q->question_len);
		at += q->question_len;
		put16(out + 4, 1);
	}
	for (unsigned i = 0; question && rcode == DNS_NOERROR && i < n; i++) {
		if (!addr_is_asked(q, &addrs[i]))
			continue;
		if (max - at - opt < 12U + (addrs[i].family == 4 ? 4 : 16) || count == UINT16_MAX) {
			out[2] |= FLAG_TC;
			break;
		}
		at += record_put(out + at, &addrs[i], ttl);
		count++;
	}
	put16(out + 6, count);
	if (opt) {
		memset(out + at, 0, OPT_SIZE);
		put16(out + at + 1, DNS_OPT);
		put16(out + at + 3, DNS_UDP_MAX);
		out[at + 5] = (uint8_t)(rcode >> 4); /* the upper bits of BADVERS */
		at += OPT_SIZE;
		put16(out + 10, 1);
	}
	return at;
}

int dns_tcp_next(const uint8_t *p, size_t n, const uint8_t **msg, size_t *len, size_t *used)
{
	size_t want;

	if (n < 2)
		return 0;
	want = get16(p);
	if (want < DNS_HEADER || want > DNS_TCP_MAX)
		return -1;
	if (n - 2 < want)
		return 0;
	*msg = p + 2;
	*len = want;
	*used = 2 + want;
	return 1;
}

size_t dns_tcp_answer(const struct dns_query *q, const uint8_t *msg, size_t len, int rcode,
	const struct net_addr *addrs, unsigned n, uint32_t ttl, uint8_t *out, size_t max)
{
	size_t done;

	if (max < 2)
		return 0;
	done = dns_answer(
		q, msg, len, rcode, addrs, n, ttl, out + 2, MIN(max - 2, (size_t)UINT16_MAX));
	if (!done)
		return 0;
	put16(out, (unsigned)done);
	return done + 2;
}
