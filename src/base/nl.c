#include "nl.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fd.h"

size_t nl_open(struct buf *b, uint16_t type, uint16_t flags, uint32_t seq)
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

void nl_close(struct buf *b, size_t at)
{
	uint32_t len = (uint32_t)(b->len - at);

	memcpy(b->p + at, &len, sizeof(len)); /* nlmsg_len is first */
	pad(b);
}

void nl_attr(struct buf *b, uint16_t type, const void *p, size_t n)
{
	struct nlattr a = { .nla_type = type, .nla_len = (uint16_t)(sizeof(a) + n) };

	buf_add(b, &a, sizeof(a));
	buf_add(b, p, n);
	pad(b);
}

void nl_str(struct buf *b, uint16_t type, const char *s)
{
	nl_attr(b, type, s, strlen(s) + 1);
}

void nl_be32(struct buf *b, uint16_t type, uint32_t v)
{
	v = htonl(v);
	nl_attr(b, type, &v, sizeof(v));
}

size_t nl_nest(struct buf *b, uint16_t type)
{
	struct nlattr a = { .nla_type = type | NLA_F_NESTED };
	size_t at = b->len;

	buf_add(b, &a, sizeof(a));
	return at;
}

void nl_nest_end(struct buf *b, size_t at)
{
	uint16_t len = (uint16_t)(b->len - at);

	memcpy(b->p + at, &len, sizeof(len));
}

int nl_exchange_on(int fd, const struct buf *b, unsigned n, const char *what, struct den_err *err)
{
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

int nl_exchange(int proto, const struct buf *b, unsigned n, const char *what, struct den_err *err)
{
	auto_fd fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, proto);

	return nl_exchange_on(fd, b, n, what, err);
}

size_t nl_nft(struct buf *b, uint16_t type, uint16_t flags, uint32_t *seq)
{
	struct nfgenmsg g = { .nfgen_family = NFPROTO_INET, .version = NFNETLINK_V0 };
	size_t at = nl_open(b, (uint16_t)(NFNL_SUBSYS_NFTABLES << 8 | type), flags, (*seq)++);

	buf_add(b, &g, sizeof(g));
	return at;
}

void nl_nft_batch(struct buf *b, uint16_t type)
{
	struct nfgenmsg g = { .nfgen_family = AF_UNSPEC, .res_id = htons(NFNL_SUBSYS_NFTABLES) };
	size_t at = nl_open(b, type, 0, 0);

	buf_add(b, &g, sizeof(g));
	nl_close(b, at);
}

/* ---- routes ---- */

static void put_local_default(struct buf *b, uint8_t family, uint32_t seq)
{
	struct rtmsg r = { .rtm_family = family, .rtm_table = RT_TABLE_LOCAL, .rtm_type = RTN_LOCAL,
		.rtm_protocol = RTPROT_BOOT, .rtm_scope = family == AF_INET ? RT_SCOPE_HOST : RT_SCOPE_UNIVERSE };
	uint32_t lo = LOOPBACK_INDEX;
	size_t at = nl_open(b, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE | NLM_F_ACK, seq);

	buf_add(b, &r, sizeof(r));
	nl_attr(b, RTA_OIF, &lo, sizeof(lo));
	nl_close(b, at);
}

int nl_all_local(struct den_err *err)
{
	auto_buf v4 = { 0 }, v6 = { 0 };
	struct den_err no_v6;

	put_local_default(&v4, AF_INET, 1);
	if (nl_exchange(NETLINK_ROUTE, &v4, 1, "route", err) < 0)
		return -1;
	put_local_default(&v6, AF_INET6, 1);
	/* a kernel without IPv6: nothing to route there */
	(void)nl_exchange(NETLINK_ROUTE, &v6, 1, "route", &no_v6);
	return 0;
}
