/*
 * The network of a box with a kernel of its own: a cable (veth) between two network namespaces.
 *
 *     sentry's own TCP/IP ── eth0 ═══════ gate0 ── the host's kernel: the gate's redirections and sockets
 *     namespace of the sentry            namespace of the porter, which is the one that the gate enters
 *
 * Neither has another interface but lo, and nothing is forwarded. At the gate's end every address is local, as behind the
 * other wall: what no rule redirects and nothing listens on is refused by the kernel at once. runsc takes the addresses
 * of eth0 and its routes over, and speaks through a packet socket that it opens there.
 *
 * All boxes have the same addresses on both ends: what was saved in one fits into another.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/if_link.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <net/if.h>
#include <sched.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fd.h"
#include "gvisor.h"
#include "boxlink.h"
#include "nl.h"

/* One end, as its namespace sees it. */
struct end {
	const char *name;
	uint32_t own, other;
	uint8_t mac[6], other_mac[6];
};
static const struct end box_end = { LINK_BOX, LINK_BOX_V4, LINK_GATE_V4, { 2, 0, 0, 0, 0, 2 }, { 2, 0, 0, 0, 0, 1 } };
static const struct end gate_end = { LINK_GATE, LINK_GATE_V4, LINK_BOX_V4, { 2, 0, 0, 0, 0, 1 }, { 2, 0, 0, 0, 0, 2 } };

/* Messages of one request; each is answered. */
struct batch {
	struct buf b;
	unsigned n;
};

static size_t begin(struct batch *t, uint16_t type, uint16_t flags)
{
	return nl_open(&t->b, type, flags | NLM_F_ACK, ++t->n);
}

static void put_u32(struct buf *b, uint16_t type, uint32_t v)
{
	nl_attr(b, type, &v, sizeof(v));
}

static size_t put_address(int family, uint32_t v4, uint8_t to[16])
{
	const uint8_t six[16] = { LINK_V6, (uint8_t)(v4 >> 24), (uint8_t)(v4 >> 16), (uint8_t)(v4 >> 8), (uint8_t)v4 };

	memcpy(to, six + (family == AF_INET ? 12 : 0), family == AF_INET ? 4 : 16);
	return family == AF_INET ? 4 : 16;
}

static int run(struct batch *t, const char *what, struct den_err *err)
{
	int r = nl_exchange(NETLINK_ROUTE, &t->b, t->n, what, err);

	buf_free(&t->b);
	t->n = 0;
	return r;
}

static void put_end(struct buf *b, const struct end *e)
{
	nl_str(b, IFLA_IFNAME, e->name);
	nl_attr(b, IFLA_ADDRESS, e->mac, sizeof(e->mac));
	put_u32(b, IFLA_MTU, LINK_MTU);
}

/* Both ends; that of the gate in the namespace `there`. */
static int make_cable(int there, struct den_err *err)
{
	struct ifinfomsg i = { .ifi_index = LINK_INDEX };
	struct batch t = { 0 };
	size_t at = begin(&t, RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL), info, data, peer;

	buf_add(&t.b, &i, sizeof(i));
	put_end(&t.b, &box_end);
	info = nl_nest(&t.b, IFLA_LINKINFO);
	nl_str(&t.b, IFLA_INFO_KIND, "veth");
	data = nl_nest(&t.b, IFLA_INFO_DATA);
	peer = nl_nest(&t.b, VETH_INFO_PEER);
	buf_add(&t.b, &i, sizeof(i));
	put_end(&t.b, &gate_end);
	put_u32(&t.b, IFLA_NET_NS_FD, (uint32_t)there);
	nl_nest_end(&t.b, peer);
	nl_nest_end(&t.b, data);
	nl_nest_end(&t.b, info);
	nl_close(&t.b, at);
	if (run(&t, "veth", err) == 0)
		return 0;
	return err->sys == EOPNOTSUPP ? den_wrap(err, "the kernel has no veth, which the gvisor wall needs") : -1;
}

/* No address that the kernel would give it by itself, and make known. Fails where there is no IPv6. */
static int no_own_address(struct den_err *err)
{
	struct ifinfomsg i = { .ifi_index = LINK_INDEX };
	uint8_t none = IN6_ADDR_GEN_MODE_NONE;
	struct batch t = { 0 };
	size_t at = begin(&t, RTM_SETLINK, 0), spec, six;

	buf_add(&t.b, &i, sizeof(i));
	spec = nl_nest(&t.b, IFLA_AF_SPEC);
	six = nl_nest(&t.b, AF_INET6);
	nl_attr(&t.b, IFLA_INET6_ADDR_GEN_MODE, &none, sizeof(none));
	nl_nest_end(&t.b, six);
	nl_nest_end(&t.b, spec);
	nl_close(&t.b, at);
	return run(&t, "IPv6", err);
}

static void set_up(struct batch *t, int index)
{
	struct ifinfomsg i = { .ifi_index = index, .ifi_flags = IFF_UP, .ifi_change = IFF_UP };
	size_t at = begin(t, RTM_SETLINK, 0);

	buf_add(&t->b, &i, sizeof(i));
	nl_close(&t->b, at);
}

static void add_address(struct batch *t, int family, uint32_t v4)
{
	uint8_t a[16];
	size_t n = put_address(family, v4, a), at = begin(t, RTM_NEWADDR, NLM_F_CREATE);
	struct ifaddrmsg m = { .ifa_family = (uint8_t)family, .ifa_prefixlen = (uint8_t)(n * 8),
		.ifa_flags = family == AF_INET ? 0 : IFA_F_NODAD, .ifa_scope = RT_SCOPE_UNIVERSE, .ifa_index = LINK_INDEX };

	buf_add(&t->b, &m, sizeof(m));
	nl_attr(&t->b, IFA_LOCAL, a, n);
	nl_attr(&t->b, IFA_ADDRESS, a, n);
	nl_close(&t->b, at);
}

/* Nobody has to ask who is at the other end. */
static void add_neighbour(struct batch *t, int family, const struct end *e)
{
	struct ndmsg m = { .ndm_family = (uint8_t)family, .ndm_ifindex = LINK_INDEX, .ndm_state = NUD_PERMANENT };
	uint8_t a[16];
	size_t n = put_address(family, e->other, a), at = begin(t, RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_REPLACE);

	buf_add(&t->b, &m, sizeof(m));
	nl_attr(&t->b, NDA_DST, a, n);
	nl_attr(&t->b, NDA_LLADDR, e->other_mac, sizeof(e->other_mac));
	nl_close(&t->b, at);
}

/* To the other end; or (all) to everybody, by way of it. */
static void add_route(struct batch *t, int family, const struct end *e, uint8_t table, bool all)
{
	uint8_t a[16];
	size_t n = put_address(family, e->other, a), at = begin(t, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE);
	struct rtmsg m = { .rtm_family = (uint8_t)family, .rtm_table = table, .rtm_type = RTN_UNICAST,
		.rtm_protocol = RTPROT_BOOT, .rtm_dst_len = all ? 0 : (uint8_t)(n * 8),
		.rtm_scope = all || family == AF_INET6 ? RT_SCOPE_UNIVERSE : RT_SCOPE_LINK };

	buf_add(&t->b, &m, sizeof(m));
	nl_attr(&t->b, all ? RTA_GATEWAY : RTA_DST, a, n);
	put_u32(&t->b, RTA_OIF, LINK_INDEX);
	nl_close(&t->b, at);
}

static int one_family(int family, const struct end *e, struct den_err *err)
{
	bool box = e == &box_end;
	struct batch t = { 0 };

	add_address(&t, family, e->own);
	add_neighbour(&t, family, e);
	/* at the gate's end in the table that says of every address that it is local: this one is not */
	add_route(&t, family, e, box ? RT_TABLE_MAIN : RT_TABLE_LOCAL, false);
	if (box)
		add_route(&t, family, e, RT_TABLE_MAIN, true);
	return run(&t, family == AF_INET ? "address of the link" : "IPv6 address of the link", err);
}

static int configure(const struct end *e, struct den_err *err)
{
	struct batch t = { 0 };
	struct den_err no_v6;
	bool v6 = no_own_address(&no_v6) == 0;

	set_up(&t, LOOPBACK_INDEX);
	set_up(&t, LINK_INDEX);
	if (run(&t, "link", err) < 0 || one_family(AF_INET, e, err) < 0)
		return -1;
	return v6 ? one_family(AF_INET6, e, err) : 0;
}

/* What is refused is refused each time: the kernel counts such answers where they leave by another interface than lo. */
static void answer_always(void)
{
	(void)file_write_at(AT_FDCWD, "/proc/sys/net/ipv4/icmp_ratelimit", "0", NULL);
	(void)file_write_at(AT_FDCWD, "/proc/sys/net/ipv6/icmp/ratelimit", "0", NULL);
	/* and no router at the box's end is believed: routes and addresses are ours to give */
	(void)file_write_at(AT_FDCWD, "/proc/sys/net/ipv6/conf/all/accept_ra", "0", NULL);
	(void)file_write_at(AT_FDCWD, "/proc/sys/net/ipv6/conf/" LINK_GATE "/accept_ra", "0", NULL);
}

int stage_link(struct launch *l, struct den_err *err)
{
	struct gvisor_launch *g = l->own;
	auto_fd here = -1;

	if (l->plan->host_net)
		return 0;
	here = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	if (here < 0 || unshare(CLONE_NEWNET) < 0)
		return den_fail_sys(err, errno, "network namespace");
	if (make_cable(here, err) < 0 || configure(&box_end, err) < 0)
		return -1;
	g->netns = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	if (g->netns < 0 || setns(here, CLONE_NEWNET) < 0)
		return den_fail_sys(err, errno, "network namespace");
	answer_always();
	return configure(&gate_end, err) < 0 ? -1 : nl_all_local(err);
}

int link_enter(int netns)
{
	static const char core[] = "/proc/sys/net/core", file[] = "/proc/sys/net/core/rmem_default";

	if (netns < 0)
		return 0;
	if (setns(netns, CLONE_NEWNET) < 0)
		return -1;
	/* runsc takes it for the host's own network where this is, and refuses; newer kernels show it everywhere. Each
	 * network has a directory of its own there, so it is this one alone that is covered. */
	return access(file, F_OK) < 0 ? 0 : mount("none", core, "tmpfs", MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, "size=4k");
}
