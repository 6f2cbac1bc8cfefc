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
#include "fd.h"
#include "mem.h"

#define LOOPBACK_INDEX 1 /* of lo, in every network namespace */

/* ---- messages ---- */

static size_t msg_open(struct buf *b, uint16_t type, uint16_t flags, uint32_t seq)
{
	struct nlmsghdr h = { .nlmsg_type = type, .nlmsg_flags = (uint16_t)(NLM_F_REQUEST | flags),
		.nlmsg_seq = seq };
	size_t at = b->len;

	buf_add(b, &h, sizeof(h));
	return at;
}

static void pad(struct buf *b)
{
	static const char zero[4];

	buf_add(b, zero, NLMSG_ALIGN(b->len) - b->len);
}

static void msg_close(struct buf *b, size_t at)
{
	uint32_t len = (uint32_t)(b->len - at);

	memcpy(b->p + at, &len, sizeof(len)); /* nlmsg_len is first */
	pad(b);
}

static void attr(struct buf *b, uint16_t type, const void *p, size_t n)
{
	struct nlattr a = { .nla_type = type, .nla_len = (uint16_t)(sizeof(a) + n) };

	buf_add(b, &a, sizeof(a));
	buf_add(b, p, n);
	pad(b);
}

static void attr_str(struct buf *b, uint16_t type, const char *s)
{
	attr(b, type, s, strlen(s) + 1);
}

static void attr_be32(struct buf *b, uint16_t type, uint32_t v)
{
	v = htonl(v);
	attr(b, type, &v, sizeof(v));
}

static size_t nest_open(struct buf *b, uint16_t type)
{
	struct nlattr a = { .nla_type = type | NLA_F_NESTED };
	size_t at = b->len;

	buf_add(b, &a, sizeof(a));
	return at;
}

static void nest_close(struct buf *b, size_t at)
{
	uint16_t len = (uint16_t)(b->len - at);

	memcpy(b->p + at, &len, sizeof(len));
}

/* Sends, and reads answers until each of the n messages that asked for one has it. */
static int exchange_messages(int proto, const struct buf *b, unsigned n, const char *what,
	struct den_err *err)
{
	auto_fd fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, proto);
	char in[16384];

	if (fd < 0 || send(fd, b->p, b->len, 0) != (ssize_t)b->len)
		return den_fail_sys(err, errno, "%s: netlink", what);
	while (n) {
		ssize_t got = recv(fd, in, sizeof(in), 0);
		struct nlmsghdr *h = (struct nlmsghdr *)(void *)in;

		if (got < 0)
			return den_fail_sys(err, errno, "%s: netlink answer", what);
		for (; NLMSG_OK(h, (size_t)got); h = NLMSG_NEXT(h, got)) {
			const struct nlmsgerr *e = NLMSG_DATA(h);

			if (h->nlmsg_type != NLMSG_ERROR)
				continue;
			if (e->error)
				return den_fail_sys(err, -e->error, "%s", what);
			n--;
		}
	}
	return 0;
}

/* ---- routes ---- */

static void put_local_default(struct buf *b, uint8_t family, uint32_t seq)
{
	struct rtmsg r = { .rtm_family = family, .rtm_table = RT_TABLE_LOCAL, .rtm_type = RTN_LOCAL,
		.rtm_protocol = RTPROT_BOOT, .rtm_scope = family == AF_INET ? RT_SCOPE_HOST : RT_SCOPE_UNIVERSE };
	uint32_t lo = LOOPBACK_INDEX;
	size_t at = msg_open(b, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE | NLM_F_ACK, seq);

	buf_add(b, &r, sizeof(r));
	attr(b, RTA_OIF, &lo, sizeof(lo));
	msg_close(b, at);
}

int netlink_all_local(struct den_err *err)
{
	auto_buf v4 = { 0 }, v6 = { 0 };
	struct den_err no_v6;

	put_local_default(&v4, AF_INET, 1);
	if (exchange_messages(NETLINK_ROUTE, &v4, 1, "route", err) < 0)
		return -1;
	put_local_default(&v6, AF_INET6, 1);
	/* a kernel without IPv6: nothing to route there */
	(void)exchange_messages(NETLINK_ROUTE, &v6, 1, "route", &no_v6);
	return 0;
}

int netlink_address(const struct net_addr *a, struct den_err *err)
{
	struct ifaddrmsg m = { .ifa_family = a->family == 4 ? AF_INET : AF_INET6,
		.ifa_prefixlen = a->family == 4 ? 32 : 128, .ifa_flags = a->family == 4 ? 0 : IFA_F_NODAD,
		.ifa_scope = RT_SCOPE_UNIVERSE, .ifa_index = LOOPBACK_INDEX };
	size_t n = a->family == 4 ? 4 : 16;
	auto_buf b = { 0 };
	size_t at = msg_open(&b, RTM_NEWADDR, NLM_F_CREATE | NLM_F_REPLACE | NLM_F_ACK, 1);

	buf_add(&b, &m, sizeof(m));
	attr(&b, IFA_LOCAL, a->b, n);
	attr(&b, IFA_ADDRESS, a->b, n);
	msg_close(&b, at);
	return exchange_messages(NETLINK_ROUTE, &b, 1, "address", err);
}

/* ---- redirections ---- */

static size_t nft_open(struct buf *b, uint16_t type, uint16_t flags, uint32_t *seq)
{
	struct nfgenmsg g = { .nfgen_family = NFPROTO_INET, .version = NFNETLINK_V0 };
	size_t at = msg_open(b, (uint16_t)(NFNL_SUBSYS_NFTABLES << 8 | type), flags, (*seq)++);

	buf_add(b, &g, sizeof(g));
	return at;
}

static void nft_batch(struct buf *b, uint16_t type)
{
	struct nfgenmsg g = { .nfgen_family = AF_UNSPEC, .res_id = htons(NFNL_SUBSYS_NFTABLES) };
	size_t at = msg_open(b, type, 0, 0);

	buf_add(b, &g, sizeof(g));
	msg_close(b, at);
}

static void nft_table(struct buf *b, uint16_t type, uint16_t flags, uint32_t *seq)
{
	size_t at = nft_open(b, type, flags, seq);

	attr_str(b, NFTA_TABLE_NAME, "den");
	msg_close(b, at);
}

static void nft_chain(struct buf *b, uint32_t *seq)
{
	size_t at = nft_open(b, NFT_MSG_NEWCHAIN, NLM_F_CREATE, seq), hook;

	attr_str(b, NFTA_CHAIN_TABLE, "den");
	attr_str(b, NFTA_CHAIN_NAME, "out");
	hook = nest_open(b, NFTA_CHAIN_HOOK);
	attr_be32(b, NFTA_HOOK_HOOKNUM, NF_INET_LOCAL_OUT);
	attr_be32(b, NFTA_HOOK_PRIORITY, (uint32_t)-100); /* where destinations are translated */
	nest_close(b, hook);
	attr_be32(b, NFTA_CHAIN_POLICY, NF_ACCEPT);
	attr_str(b, NFTA_CHAIN_TYPE, "nat");
	msg_close(b, at);
}

struct expr {
	size_t elem, data;
};

static struct expr expr_open(struct buf *b, const char *name)
{
	struct expr e = { .elem = nest_open(b, NFTA_LIST_ELEM) };

	attr_str(b, NFTA_EXPR_NAME, name);
	e.data = nest_open(b, NFTA_EXPR_DATA);
	return e;
}

static void expr_close(struct buf *b, struct expr e)
{
	nest_close(b, e.data);
	nest_close(b, e.elem);
}

static void put_value(struct buf *b, uint16_t type, const void *p, size_t n)
{
	size_t at = nest_open(b, type);

	attr(b, NFTA_DATA_VALUE, p, n);
	nest_close(b, at);
}

static void expr_meta(struct buf *b, uint32_t key)
{
	struct expr e = expr_open(b, "meta");

	attr_be32(b, NFTA_META_DREG, NFT_REG_1);
	attr_be32(b, NFTA_META_KEY, key);
	expr_close(b, e);
}

static void expr_payload(struct buf *b, uint32_t base, uint32_t offset, uint32_t len)
{
	struct expr e = expr_open(b, "payload");

	attr_be32(b, NFTA_PAYLOAD_DREG, NFT_REG_1);
	attr_be32(b, NFTA_PAYLOAD_BASE, base);
	attr_be32(b, NFTA_PAYLOAD_OFFSET, offset);
	attr_be32(b, NFTA_PAYLOAD_LEN, len);
	expr_close(b, e);
}

static void expr_mask(struct buf *b, const uint8_t *mask, size_t n)
{
	static const uint8_t zero[16];
	struct expr e = expr_open(b, "bitwise");

	attr_be32(b, NFTA_BITWISE_SREG, NFT_REG_1);
	attr_be32(b, NFTA_BITWISE_DREG, NFT_REG_1);
	attr_be32(b, NFTA_BITWISE_LEN, (uint32_t)n);
	put_value(b, NFTA_BITWISE_MASK, mask, n);
	put_value(b, NFTA_BITWISE_XOR, zero, n);
	expr_close(b, e);
}

static void expr_cmp(struct buf *b, uint32_t op, const void *p, size_t n)
{
	struct expr e = expr_open(b, "cmp");

	attr_be32(b, NFTA_CMP_SREG, NFT_REG_1);
	attr_be32(b, NFTA_CMP_OP, op);
	put_value(b, NFTA_CMP_DATA, p, n);
	expr_close(b, e);
}

static void expr_accept(struct buf *b)
{
	struct expr e = expr_open(b, "immediate");
	size_t data, verdict;

	attr_be32(b, NFTA_IMMEDIATE_DREG, NFT_REG_VERDICT);
	data = nest_open(b, NFTA_IMMEDIATE_DATA);
	verdict = nest_open(b, NFTA_DATA_VERDICT);
	attr_be32(b, NFTA_VERDICT_CODE, NF_ACCEPT);
	nest_close(b, verdict);
	nest_close(b, data);
	expr_close(b, e);
}

static void expr_redirect(struct buf *b, uint16_t port)
{
	struct expr e = expr_open(b, "immediate");

	port = htons(port);
	attr_be32(b, NFTA_IMMEDIATE_DREG, NFT_REG_1);
	put_value(b, NFTA_IMMEDIATE_DATA, &port, sizeof(port));
	expr_close(b, e);
	e = expr_open(b, "redir");
	attr_be32(b, NFTA_REDIR_REG_PROTO_MIN, NFT_REG_1);
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
	size_t at = nft_open(b, NFT_MSG_NEWRULE, NLM_F_CREATE | NLM_F_APPEND, seq), list;

	attr_str(b, NFTA_RULE_TABLE, "den");
	attr_str(b, NFTA_RULE_CHAIN, "out");
	list = nest_open(b, NFTA_RULE_EXPRESSIONS);
	match_address(b, &r->to);
	match_ports(b, r->ports);
	if (port)
		expr_redirect(b, port);
	else
		expr_accept(b);
	nest_close(b, list);
	msg_close(b, at);
}

/* The whole table in one step, so that at no moment there is half of it */
static void nft_all(struct buf *b, bool replace, const struct redirect *r, unsigned n, uint16_t port4, uint16_t port6)
{
	/* the box's own loopback is its own, whatever a rule covers */
	static const struct redirect own[] = {
		{ { { .family = 4, .b = { 127 } }, 8 }, { 0, 65535 } },
		{ { { .family = 6, .b = { [15] = 1 } }, 128 }, { 0, 65535 } },
	};
	uint32_t seq = 1;
	struct nlmsghdr h;
	size_t last = 0;

	nft_batch(b, NFNL_MSG_BATCH_BEGIN);
	if (replace) {
		nft_table(b, NFT_MSG_NEWTABLE, NLM_F_CREATE, &seq); /* so that there is one to delete */
		nft_table(b, NFT_MSG_DELTABLE, 0, &seq);
	}
	nft_table(b, NFT_MSG_NEWTABLE, NLM_F_CREATE | (replace ? 0 : NLM_F_EXCL), &seq);
	nft_chain(b, &seq);
	for (size_t i = 0; i < ARRAY_SIZE(own); i++) {
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
	nft_batch(b, NFNL_MSG_BATCH_END);
}

int netlink_redirect(const struct redirect *r, unsigned n, uint16_t port4, uint16_t port6,
	struct den_err *err)
{
	auto_buf fresh = { 0 }, again = { 0 };

	/* Of a new namespace there is nothing to delete, and who deletes waits 10 ms for the kernel's readers
	 * when the socket is closed. */
	nft_all(&fresh, false, r, n, port4, port6);
	if (exchange_messages(NETLINK_NETFILTER, &fresh, 1, "nftables", err) == 0)
		return 0;
	if (err->sys != EEXIST)
		return -1;
	nft_all(&again, true, r, n, port4, port6);
	return exchange_messages(NETLINK_NETFILTER, &again, 1, "nftables", err);
}
