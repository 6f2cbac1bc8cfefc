#include "plumb.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fd.h"
#include "mem.h"
#include "netlink.h"
#include "nl.h"
#include "parse.h"
#include "policy.h"
#include "sockaddr.h"
#include "span.h"

#define OUT_FD 3
#define INIT_FD 4
#define REDIRECTS_MAX 512
#define UDP_PORTS_MAX 32
#define BACKLOG 1024
#define POLICY_MAX (512U << 10)

static int give(enum plumb_kind kind, unsigned family, unsigned port, int fd, struct den_err *err)
{
	struct plumb_sock s = { kind, family, port };
	char control[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec iov = { &s, sizeof(s) };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (fd >= 0) {
		struct cmsghdr *c;

		m.msg_control = control;
		m.msg_controllen = sizeof(control);
		c = CMSG_FIRSTHDR(&m);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &fd, sizeof(int));
	}
	return sendmsg(OUT_FD, &m, MSG_NOSIGNAL) < 0 ? den_fail_sys(err, errno, "hand over a socket") : 0;
}

/* What each connection has from the socket that it was accepted on. Who is gone without a word is found
 * out, so nothing half-open stays for ever. */
static void inherit(int fd)
{
	int on = 1, idle = 60, every = 30, count = 4;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every, sizeof(every));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof(count));
}

/* Binds, listens if it is a stream, and gives it away; *port 0: any, and then it says which. */
static int open_socket(enum plumb_kind kind, int type, const struct net_addr *a, uint16_t *port,
	struct den_err *err)
{
	struct sockaddr_in6 sa;
	socklen_t len = sockaddr_put(a, *port, &sa);
	int on = 1;
	auto_fd fd = socket(sa.sin6_family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return den_fail_sys(err, errno, "socket");
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (*port && kind != PLUMB_UDP) /* the gate has one at that port until it takes the new one */
		setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on));
	/* IPv6 asks for an address of an interface, where IPv4 is content with a route */
	setsockopt(fd, IPPROTO_IP, IP_FREEBIND, &on, sizeof(on));
	if (a->family == 6) {
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
		setsockopt(fd, IPPROTO_IPV6, IPV6_FREEBIND, &on, sizeof(on));
	}
	if (kind == PLUMB_UDP && (setsockopt(fd, IPPROTO_IP, IP_PKTINFO, &on, sizeof(on)) < 0 ||
		(a->family == 6 && setsockopt(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, &on, sizeof(on)) < 0)))
		return den_fail_sys(err, errno, "socket options");
	if (type == SOCK_STREAM)
		inherit(fd);
	if (bind(fd, (struct sockaddr *)&sa, len) < 0)
		return den_fail_sys(err, errno, errno == EADDRINUSE ?
			"a program in the box has port %u, which the gate needs" : "bind port %u in the box", *port);
	if (type == SOCK_STREAM && listen(fd, BACKLOG) < 0)
		return den_fail_sys(err, errno, "listen in the box");
	if (!*port) {
		len = sizeof(sa);
		if (getsockname(fd, (struct sockaddr *)&sa, &len) < 0)
			return den_fail_sys(err, errno, "port");
		*port = ntohs(sa.sin6_port); /* at the same place in both families */
	}
	return give(kind, a->family, *port, fd, err);
}

static int open_own(const struct policy *p, bool v6, struct den_err *err)
{
	const struct net_addr at = v6 ? span_v6(SPAN_GATE_V4) : span_v4(SPAN_GATE_V4);
	uint16_t dns = 53, proxy = SPAN_PROXY_PORT;

	if (open_socket(PLUMB_DNS_UDP, SOCK_DGRAM, &at, &dns, err) < 0 ||
		open_socket(PLUMB_DNS_TCP, SOCK_STREAM, &at, &dns, err) < 0)
		return -1;
	return p->proxy_env && !v6 ? open_socket(PLUMB_PROXY, SOCK_STREAM, &at, &proxy, err) : 0;
}

/* A program of the box that has the port already keeps it: then the rule does not work, and the
 * connection is refused. */
static int open_udp(const struct policy *p, bool v6, struct den_err *err)
{
	static const struct net_addr any4 = { .family = 4 }, any6 = { .family = 6 };
	uint16_t done[UDP_PORTS_MAX];
	unsigned n = 0;

	for (unsigned i = 0; i < p->n_rules; i++) {
		const struct policy_rule *r = &p->rules[i];

		if (r->kind != RULE_CIDR || r->deny || !r->udp || (r->cidr.a.family == 6) != v6)
			continue;
		for (unsigned k = 0; k < r->ports.n; k++)
			for (unsigned port = r->ports.r[k].lo; port <= r->ports.r[k].hi; port++) {
				uint16_t one = (uint16_t)port;
				bool again = false;

				for (unsigned d = 0; d < n; d++)
					again |= done[d] == one;
				if (again)
					continue;
				if (n == UDP_PORTS_MAX)
					return den_fail(err, DEN_LIMIT, 0,
						"rules open more than %d UDP ports", UDP_PORTS_MAX);
				done[n++] = one;
				if (open_socket(PLUMB_UDP, SOCK_DGRAM, v6 ? &any6 : &any4, &one, err) < 0 &&
					err->sys != EADDRINUSE)
					return -1;
			}
	}
	return 0;
}

static int add(struct redirect *all, unsigned *n, struct net_cidr to, const struct port_set *ports,
	struct den_err *err)
{
	for (unsigned i = 0; i < ports->n; i++) {
		if (*n == REDIRECTS_MAX)
			return den_fail(err, DEN_LIMIT, 0, "more than %d ranges of addresses and ports",
				REDIRECTS_MAX);
		all[(*n)++] = (struct redirect){ to, ports->r[i] };
	}
	return 0;
}

static int lay_redirects(const struct policy *p, uint16_t port4, uint16_t port6, bool link, struct den_err *err)
{
	auto_free struct redirect *all = mem_alloc(sizeof(*all) * REDIRECTS_MAX);
	struct port_set classes[POLICY_CLASSES_MAX], every = { 1, { { 1, 65535 } } };
	unsigned n_classes = policy_port_classes(p, classes, POLICY_CLASSES_MAX), n = 0;

	for (unsigned i = 0; i < n_classes; i++) {
		uint32_t at = SPAN_V4 + span_block(i) * SPAN_BLOCK;

		if (add(all, &n, (struct net_cidr){ span_v4(at), 19 }, &classes[i], err) < 0 ||
			add(all, &n, (struct net_cidr){ span_v6(at), 96 + 19 }, &classes[i], err) < 0)
			return -1;
	}
	for (unsigned i = 0; i < p->n_rules; i++)
		if (p->rules[i].kind == RULE_CIDR && !p->rules[i].deny && p->rules[i].tcp &&
			add(all, &n, p->rules[i].cidr, &p->rules[i].ports, err) < 0)
			return -1;
	if (p->any_addr && (add(all, &n, (struct net_cidr){ { .family = 4 }, 0 }, &every, err) < 0 ||
		add(all, &n, (struct net_cidr){ { .family = 6 }, 0 }, &every, err) < 0))
		return -1;
	return netlink_redirect(all, n, port4, port6, link, err);
}

static int enter(struct den_err *err)
{
	/* both at once: the user namespace first, which gives the right to the other */
	if (setns(INIT_FD, CLONE_NEWUSER | CLONE_NEWNET) < 0)
		return den_fail_sys(err, errno, "enter the box's network");
	return 0;
}

/* Is the box at the other end of a link (wall/gvisor/link.c)? Else it is in this very namespace. */
static bool has_link(void)
{
	return if_nametoindex(LINK_GATE) != 0;
}

/* Addresses and routes; those of a link were there before the box was. */
static int lay_routes(bool link, struct den_err *err)
{
	const struct net_addr own4 = span_v4(SPAN_GATE_V4), own6 = span_v6(SPAN_GATE_V4);
	struct den_err no_v6;

	/* An address that is not the loopback's: without one, who asks for names with AI_ADDRCONFIG is told
	 * that there is no network. */
	if (nl_all_local(err) < 0 || (!link && netlink_address(&own4, err) < 0))
		return -1;
	if (!link)
		(void)netlink_address(&own6, &no_v6);
	return 0;
}

static int plumb(const struct policy *p, struct den_err *err)
{
	static const struct net_addr lo4 = { .family = 4, .b = { 127, 0, 0, 1 } };
	static const struct net_addr lo6 = { .family = 6, .b = { [15] = 1 } };
	const struct net_addr own4 = span_v4(SPAN_GATE_V4), own6 = span_v6(SPAN_GATE_V4);
	uint16_t port4 = 0, port6 = 0;
	struct den_err no_v6;
	bool v6, link;

	if (enter(err) < 0)
		return -1;
	link = has_link();
	if (lay_routes(link, err) < 0)
		return -1;
	/* where the kernel redirects to: to the loopback what begins here, to its own address what comes in by a link */
	v6 = open_socket(PLUMB_TCP, SOCK_STREAM, link ? &own6 : &lo6, &port6, &no_v6) == 0;
	if (!v6)
		port6 = 0;
	if (open_socket(PLUMB_TCP, SOCK_STREAM, link ? &own4 : &lo4, &port4, err) < 0 || open_own(p, false, err) < 0 ||
		(v6 && open_own(p, true, err) < 0) || open_udp(p, false, err) < 0 ||
		(v6 && open_udp(p, true, err) < 0))
		return -1;
	if (lay_redirects(p, port4, port6, link, err) < 0)
		return -1;
	return give(PLUMB_END, 0, 0, -1, err);
}

/* The parent reads what went wrong from descriptor 1. */
static int failed(const struct den_err *err)
{
	dprintf(STDOUT_FILENO, "%s\n", err->msg);
	return 1;
}

int plumb_main(void)
{
	auto_free char *text = NULL;
	struct policy *p = NULL;
	struct den_err err;
	size_t len;

	if (fd_read_all(STDIN_FILENO, POLICY_MAX, &text, &len, &err) < 0 ||
		policy_parse(text, len, &p, &err) < 0 || plumb(p, &err) < 0)
		return failed(&err);
	return 0;
}

/* Without waiting. 0, or errno: nobody listens. */
static int dial_start(int fd, const struct net_addr *a, uint16_t port)
{
	struct sockaddr_in6 sa;
	socklen_t len = sockaddr_put(a, port, &sa);

	return connect(fd, (struct sockaddr *)&sa, len) == 0 || errno == EINPROGRESS ? 0 : errno;
}

/* On its way to a port of the box's own loopback; or to the door of a box that is at the other end of a link. */
static int dial_port(uint16_t port, bool link)
{
	static const struct net_addr both[] = { { .family = 4, .b = { 127, 0, 0, 1 } },
		{ .family = 6, .b = { [15] = 1 } } }; /* a service listens on one of them or on both */
	const struct net_addr door = span_v4(LINK_BOX_V4);
	struct den_err err;

	for (int i = 0; i < (link ? 1 : 2); i++) {
		const struct net_addr *to = link ? &door : &both[i];
		auto_fd fd = socket(to->family == 4 ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

		if (fd < 0)
			continue; /* a kernel without that family */
		if (give(PLUMB_DIALED, link ? PLUMB_DOOR : to->family,
			    (unsigned)dial_start(fd, to, link ? LINK_DOOR_PORT : port), fd, &err) < 0)
			return failed(&err);
	}
	return give(PLUMB_END, 0, 0, -1, &err) < 0 ? failed(&err) : 0;
}

int dial_main(const char *count, const char *port)
{
	struct den_err err;
	uint64_t n;
	bool link;

	if (parse_u64(port ? port : count, 1, port ? UINT16_MAX : 64, &n, &err) < 0 || enter(&err) < 0)
		return failed(&err);
	link = has_link();
	if (port)
		return dial_port((uint16_t)n, link);
	for (uint64_t i = 0; i < n; i++) {
		auto_fd v4 = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		auto_fd v6 = link ? -1 : socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

		if (v4 < 0) {
			den_fail_sys(&err, errno, "socket");
			return failed(&err);
		}
		if (give(PLUMB_OUT, link ? PLUMB_DOOR : 4, 0, v4, &err) < 0 ||
			(v6 >= 0 && give(PLUMB_OUT, 6, 0, v6, &err) < 0))
			return failed(&err);
	}
	return give(PLUMB_END, 0, 0, -1, &err) < 0 ? failed(&err) : 0;
}

static int loopback_up(struct den_err *err)
{
	struct ifreq r = { .ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING };
	auto_fd fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	return fd < 0 || ioctl(fd, SIOCSIFFLAGS, &r) < 0 ? den_fail_sys(err, errno, "bring up lo") : 0;
}

int probe_main(void)
{
	struct redirect r = { { span_v4(SPAN_V4), 15 }, { 80, 80 } };
	struct den_err err;

	if (unshare(CLONE_NEWUSER | CLONE_NEWNET) < 0) {
		den_fail_sys(&err, errno, "network namespace");
		return failed(&err);
	}
	return loopback_up(&err) < 0 || nl_all_local(&err) < 0 || netlink_redirect(&r, 1, 1, 1, false, &err) < 0 ?
		failed(&err) : 0;
}
