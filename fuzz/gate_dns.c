/* Questions of a box to its resolver, and what is answered to each. The first byte chooses how much room
 * and how many addresses there are; the rest is the question, also read as DNS over TCP. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "dns.h"
#include "mem.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok)
{
	if (!ok)
		abort();
}

static void query_check(const struct dns_query *q, size_t size)
{
	struct net_name again;

	check(q->class == DNS_IN && q->question_len >= 7 && q->question_len + DNS_HEADER <= size);
	check(q->edns_size >= DNS_UDP_MIN && q->edns_size <= DNS_UDP_MAX);
	check(q->edns || q->edns_size == DNS_UDP_MIN);
	check(strlen(q->name.s) + 2 + 4 == q->question_len);
	check(net_name_parse(q->name.s, strlen(q->name.s), &again, NULL) == 0);
	check(!strcmp(again.s, q->name.s));
}

static void answer_check(
	const struct dns_query *q, const uint8_t *msg, size_t size, int rcode, uint8_t how)
{
	unsigned n = how % 96;
	size_t max = (size_t)how * 8, len, question;
	auto_free uint8_t *out = mem_alloc(max ? max : 1);
	struct net_addr a[96];

	for (unsigned i = 0; i < n; i++)
		a[i] = (struct net_addr){ .family = i % 3 ? 4 : 6, .b = { (uint8_t)i } };
	len = dns_answer(q, msg, size, rcode, a, n, 60, out, max);
	check(len <= max && !!len == (max >= DNS_HEADER));
	if (!len)
		return;
	check(out[0] << 8 == (q->id & 0xff00) && out[1] == (q->id & 0xff) && out[2] & 0x80);
	check((out[3] & 0xf) == (rcode & 0xf));
	check(!rcode || !(out[6] | out[7]));
	question = len > DNS_HEADER ? q->question_len : 0;
	check(!memcmp(out + DNS_HEADER, msg + DNS_HEADER, question));
	/* an answer must not be taken for a question, or two resolvers would never end */
	check(dns_query_parse(out, len, &(struct dns_query){ 0 }) == -1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const uint8_t *msg;
	struct dns_query q;
	size_t len, used;
	int rcode;

	if (!size)
		return 0;
	rcode = dns_query_parse(data + 1, size - 1, &q);
	check(rcode == -1 || rcode == 0 || rcode == DNS_FORMERR || rcode == DNS_NOTIMP ||
		rcode == DNS_REFUSED || rcode == DNS_BADVERS);
	check(rcode != DNS_BADVERS || q.edns);
	if (rcode == 0)
		query_check(&q, size - 1);
	if (rcode >= 0)
		answer_check(&q, data + 1, size - 1, rcode, data[0]);
	if (dns_tcp_next(data + 1, size - 1, &msg, &len, &used) == 1)
		check(msg == data + 3 && used == len + 2 && used <= size - 1 && len >= DNS_HEADER);
	return 0;
}
