#include "netlink.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "buf.h"
#include "mem.h"
#include "nl.h"
#include "span.h"

/* ---- routes ---- */

int netlink_address(const struct net_addr *a, struct den_err *err)
{
	struct ifaddrmsg m = { .ifa_family = a->family == 4 ? AF_INET : AF_INET6,
		.ifa_prefixlen = a->family == 4 ? 32 : 128, .ifa_flags = a->family == 4 ? 0 : IFA_F_NODAD,
		.ifa_scope = RT_SCOPE_UNIVERSE, .ifa_index = LOOPBACK_INDEX };
	size_t n = a->family == 4 ? 4 : 16;
	auto_buf b = { 0 };
	size_t at = nl_open(&b, RTM_NEWADDR, NLM_F_CREATE | NLM_F_REPLACE | NLM_F_ACK, 1);

	buf_add(&b, &m, sizeof(m));
	nl_attr(&b, IFA_LOCAL, a->b, n);
	nl_attr(&b, IFA_ADDRESS, a->b, n);
	nl_close(&b, at);
	return nl_exchange(NETLINK_ROUTE, &b, 1, "address", err);
}

/* ---- redirections ---- */

static void nft_table(struct buf *b, uint16_t type, uint16_t flags, uint32_t *seq)
{
	size_t at = nl_nft(b, type, flags, seq);

	nl_str(b, NFTA_TABLE_NAME, "den");
	nl_close(b, at);
}

static void nft_chain(struct buf *b, bool link, uint32_t *seq)
{
	size_t at = nl_nft(b, NFT_MSG_NEWCHAIN, NLM_F_CREATE, seq), hook;

	nl_str(b, NFTA_CHAIN_TABLE, "den");
	nl_str(b, NFTA_CHAIN_NAME, "out");
	hook = nl_nest(b, NFTA_CHAIN_HOOK);
	nl_be32(b, NFTA_HOOK_HOOKNUM, link ? NF_INET_PRE_ROUTING : NF_INET_LOCAL_OUT);
	nl_be32(b, NFTA_HOOK_PRIORITY, (uint32_t)-100); /* where destinations are translated */
	nl_nest_end(b, hook);
	nl_be32(b, NFTA_CHAIN_POLICY, NF_ACCEPT);
	nl_str(b, NFTA_CHAIN_TYPE, "nat");
	nl_close(b, at);
}

struct expr {
	size_t elem, data;
};

static struct expr expr_open(struct buf *b, const char *name)
{
	struct expr e = { .elem = nl_nest(b, NFTA_LIST_ELEM) };

	nl_str(b, NFTA_EXPR_NAME, name);
	e.data = nl_nest(b, NFTA_EXPR_DATA);
	return e;
}

static void expr_close(struct buf *b, struct expr e)
{
	nl_nest_end(b, e.data);
	nl_nest_end(b, e.elem);
}

static void put_value(struct buf *b, uint16_t type, const void *p, size_t n)
{
	size_t at = nl_nest(b, type);

	nl_attr(b, NFTA_DATA_VALUE, p, n);
	nl_nest_end(b, at);
}

static void expr_meta(struct buf *b, uint32_t key)
{
	struct expr e = expr_open(b, "meta");

	nl_be32(b, NFTA_META_DREG, NFT_REG_1);
	nl_be32(b, NFTA_META_KEY, key);
	expr_close(b, e);
}

static void expr_payload(struct buf *b, uint32_t base, uint32_t offset, uint32_t len)
{
	struct expr e = expr_open(b, "payload");

	nl_be32(b, NFTA_PAYLOAD_DREG, NFT_REG_1);
	nl_be32(b, NFTA_PAYLOAD_BASE, base);
	nl_be32(b, NFTA_PAYLOAD_OFFSET, offset);
	nl_be32(b, NFTA_PAYLOAD_LEN, len);
	expr_close(b, e);
}

static void expr_mask(struct buf *b, const uint8_t *mask, size_t n)
{
	static const uint8_t zero[16];
	struct expr e = expr_open(b, "bitwise");

	nl_be32(b, NFTA_BITWISE_SREG, NFT_REG_1);
	nl_be32(b, NFTA_BITWISE_DREG, NFT_REG_1);
	nl_be32(b, NFTA_BITWISE_LEN, (uint32_t)n);
	put_value(b, NFTA_BITWISE_MASK, mask, n);
	put_value(b, NFTA_BITWISE_XOR, zero, n);
	expr_close(b, e);
}

static void expr_cmp(struct buf *b, uint32_t op, const void *p, size_t n)
{
	struct expr e = expr_open(b, "cmp");

	nl_be32(b, NFTA_CMP_SREG, NFT_REG_1);
	nl_be32(b, NFTA_CMP_OP, op);
	put_value(b, NFTA_CMP_DATA, p, n);
	expr_close(b, e);
}

static void expr_accept(struct buf *b)
{
	struct expr e = expr_open(b, "immediate");
	size_t data, verdict;

	nl_be32(b, NFTA_IMMEDIATE_DREG, NFT_REG_VERDICT);
	data = nl_nest(b, NFTA_IMMEDIATE_DATA);
	verdict = nl_nest(b, NFTA_DATA_VERDICT);
	nl_be32(b, NFTA_VERDICT_CODE, NF_ACCEPT);
	nl_nest_end(b, verdict);
	nl_nest_end(b, data);
	expr_close(b, e);
}

static void expr_redirect(struct buf *b, uint16_t port)
{
	struct expr e = expr_open(b, "immediate");

	port = htons(port);
	nl_be32(b, NFTA_IMMEDIATE_DREG, NFT_REG_1);
	put_value(b, NFTA_IMMEDIATE_DATA, &port, sizeof(port));
	expr_close(b, e);
	e = expr_open(b, "redir");
	nl_be32(b, NFTA_REDIR_REG_PROTO_MIN, NFT_REG_1);
	expr_close(b, e);
}

static void match_address(struct buf *b, const struct net_cidr *c)
{
	bool v4 = c->a.family == 4;
	uint8_t proto = v4 ? NFPROTO_IPV4 : NFPROTO_IPV6, mask[16] = { 0 }, want[16];
	size_t n = v4 ? 4 : 16;

	expr_meta(b, NFT_META_NFPROTO);
	expr_cmp(b, NFT_CMP_EQ, &proto, 1);
	if (!c->bits)
		return;
	for (unsigned i = 0; i < c->bits; i++)
		mask[i / 8] |= (uint8_t)(0x80 >> i % 8);
	for (size_t i = 0; i < n; i++)
		want[i] = c->a.b[i] & mask[i];
	expr_payload(b, NFT_PAYLOAD_NETWORK_HEADER, v4 ? 16 : 24, (uint32_t)n);
	expr_mask(b, mask, n);
	expr_cmp(b, NFT_CMP_EQ, want, n);
}

static void match_ports(struct buf *b, struct port_range r)
{
	uint8_t tcp = IPPROTO_TCP;
	uint16_t lo = htons(r.lo), hi = htons(r.hi);

	expr_meta(b, NFT_META_L4PROTO);
	expr_cmp(b, NFT_CMP_EQ, &tcp, 1);
	expr_payload(b, NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2);
	if (lo == hi) {
		expr_cmp(b, NFT_CMP_EQ, &lo, 2);
		return;
	}
	expr_cmp(b, NFT_CMP_GTE, &lo, 2);
	expr_cmp(b, NFT_CMP_LTE, &hi, 2);
}

/* port 0: leave such connections alone */
static void nft_rule(struct buf *b, const struct redirect *r, uint16_t port, uint32_t *seq)
{
	size_t at = nl_nft(b, NFT_MSG_NEWRULE, NLM_F_CREATE | NLM_F_APPEND, seq), list;

	nl_str(b, NFTA_RULE_TABLE, "den");
	nl_str(b, NFTA_RULE_CHAIN, "out");
	list = nl_nest(b, NFTA_RULE_EXPRESSIONS);
	match_address(b, &r->to);
	match_ports(b, r->ports);
	if (port)
		expr_redirect(b, port);
	else
		expr_accept(b);
	nl_nest_end(b, list);
	nl_close(b, at);
}

/* The whole table in one step, so that at no moment there is half of it */
static void nft_all(struct buf *b, bool replace, const struct redirect *r, unsigned n, uint16_t port4, uint16_t port6,
	bool link)
{
	/* whatever a rule covers, the box's own loopback is its own; and who speaks to the gate itself means it */
	const struct redirect own[] = {
		{ { (struct net_addr){ .family = 4, .b = { 127 } }, 8 }, { 0, 65535 } },
		{ { link ? span_v6(SPAN_GATE_V4) : (struct net_addr){ .family = 6, .b = { [15] = 1 } }, 128 }, { 0, 65535 } },
		{ { span_v4(SPAN_GATE_V4), 32 }, { 0, 65535 } }, /* with a link alone */
	};
	uint32_t seq = 1;
	struct nlmsghdr h;
	size_t last = 0;

	nl_nft_batch(b, NFNL_MSG_BATCH_BEGIN);
	if (replace) {
		nft_table(b, NFT_MSG_NEWTABLE, NLM_F_CREATE, &seq); /* so that there is one to delete */
		nft_table(b, NFT_MSG_DELTABLE, 0, &seq);
	}
	nft_table(b, NFT_MSG_NEWTABLE, NLM_F_CREATE | (replace ? 0 : NLM_F_EXCL), &seq);
	nft_chain(b, link, &seq);
	for (size_t i = 0; i < ARRAY_SIZE(own) - !link; i++) {
		last = b->len;
		nft_rule(b, &own[i], 0, &seq);
	}
	for (unsigned i = 0; i < n; i++) {
		uint16_t port = r[i].to.a.family == 4 ? port4 : port6;

		if (!port)
			continue;
		last = b->len;
		nft_rule(b, &r[i], port, &seq);
	}
	/* One answer is enough: what fails is told anyway, and before it. */
	memcpy(&h, b->p + last, sizeof(h));
	h.nlmsg_flags |= NLM_F_ACK;
	memcpy(b->p + last, &h, sizeof(h));
	nl_nft_batch(b, NFNL_MSG_BATCH_END);
}

int netlink_redirect(const struct redirect *r, unsigned n, uint16_t port4, uint16_t port6, bool link,
	struct den_err *err)
{
	auto_buf fresh = { 0 }, again = { 0 };

	/* Of a new namespace there is nothing to delete, and who deletes waits 10 ms for the kernel's readers
	 * when the socket is closed. */
	nft_all(&fresh, false, r, n, port4, port6, link);
	if (nl_exchange(NETLINK_NETFILTER, &fresh, 1, "nftables", err) == 0)
		return 0;
	if (err->sys != EEXIST)
		return -1;
	nft_all(&again, true, r, n, port4, port6, link);
	return nl_exchange(NETLINK_NETFILTER, &again, 1, "nftables", err);
}
