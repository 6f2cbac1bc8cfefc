/* Datagrams to what a CIDR rule opened: each pair of addresses is a flow, which ends by silence. */
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include "clock.h"
#include "fd.h"
#include "gate.h"
#include "sockaddr.h"

#define FLOWS_MAX 512U
#define IDLE_NS (60 * NS_PER_SEC)
#define DATAGRAMS 64
#define DATAGRAM_MAX 65536

struct udp_flow {
	struct list link;
	struct gate *g;
	struct config *cfg;
	struct loop_source up;
	struct gsock *sock;
	struct sockaddr_in6 peer; /* in the box */
	socklen_t peer_len;
	struct net_addr to;
	uint16_t port;
	struct verdict v;
	int64_t began, used;
	uint64_t bytes_out, bytes_in;
};

static char datagram[DATAGRAM_MAX];

static void flow_free(struct udp_flow *f)
{
	struct where w = { NULL, &f->to, f->port };
	auto_buf b = { 0 };

	wire_put_u64(&b, F_KIND, RECORD_CONNECTION);
	record_where(&b, &w);
	wire_put_str(&b, F_RULE, f->v.rule);
	wire_put_u64(&b, F_GENERATION, f->cfg->generation);
	wire_put_u64(&b, F_BYTES_OUT, f->bytes_out);
	wire_put_u64(&b, F_BYTES_IN, f->bytes_in);
	wire_put_u64(&b, F_DURATION_MS, (uint64_t)((f->used - f->began) / NS_PER_MS));
	wire_put_str(&b, F_REASON, "udp");
	control_record(f->g, &b);
	loop_remove(f->g->loop, &f->up);
	fd_close(&f->up.fd);
	list_remove(&f->link);
	f->g->n_udp--;
	config_unref(f->cfg);
	free(f);
}

static bool within_limits(struct gate *g, size_t n)
{
	const struct policy *p = g->cfg->policy;

	if ((p->limits.bytes && g->bytes + n > p->limits.bytes) || (p->limits.rate && gate_refill(g) <= 0))
		return false; /* a datagram may be lost */
	g->bytes += n;
	g->busy = true;
	if (p->limits.rate)
		g->tokens -= (int64_t)n;
	return true;
}

/* An answer: to the box it comes from the address that it wrote to. */
static void answer(struct udp_flow *f, size_t n)
{
	char control[CMSG_SPACE(sizeof(struct in6_pktinfo))] = { 0 };
	struct iovec iov = { datagram, n };
	struct msghdr m = { .msg_name = &f->peer, .msg_namelen = f->peer_len, .msg_iov = &iov, .msg_iovlen = 1,
		.msg_control = control };
	struct cmsghdr *c = (struct cmsghdr *)(void *)control;

	if (f->to.family == 4) {
		struct in_pktinfo p = { 0 };

		memcpy(&p.ipi_spec_dst, f->to.b, 4);
		*c = (struct cmsghdr){ .cmsg_level = IPPROTO_IP, .cmsg_type = IP_PKTINFO, .cmsg_len = CMSG_LEN(sizeof(p)) };
		memcpy(CMSG_DATA(c), &p, sizeof(p));
		m.msg_controllen = CMSG_SPACE(sizeof(p));
	} else {
		struct in6_pktinfo p = { 0 };

		memcpy(&p.ipi6_addr, f->to.b, 16);
		*c = (struct cmsghdr){ .cmsg_level = IPPROTO_IPV6, .cmsg_type = IPV6_PKTINFO, .cmsg_len = CMSG_LEN(sizeof(p)) };
		memcpy(CMSG_DATA(c), &p, sizeof(p));
		m.msg_controllen = CMSG_SPACE(sizeof(p));
	}
	if (f->sock)
		(void)!sendmsg(f->sock->src.fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void up_ready(struct loop_source *s, uint32_t events)
{
	struct udp_flow *f = CONTAINER_OF(s, struct udp_flow, up);

	(void)events;
	for (int i = 0; i < DATAGRAMS; i++) {
		ssize_t n = recv(s->fd, datagram, sizeof(datagram), MSG_DONTWAIT);

		if (n < 0) {
			if (errno != EAGAIN && errno != EINTR && errno != ECONNREFUSED)
				flow_free(f);
			return;
		}
		f->used = clock_mono_ns();
		f->bytes_in += (uint64_t)n;
		if (within_limits(f->g, (size_t)n))
			answer(f, (size_t)n);
	}
}

static struct udp_flow *flow_find(struct gate *g, const struct sockaddr_in6 *peer, socklen_t len,
	const struct net_addr *to, uint16_t port)
{
	list_for_each(l, &g->udp_flows) {
		struct udp_flow *f = CONTAINER_OF(l, struct udp_flow, link);

		if (f->port == port && f->peer_len == len && !memcmp(&f->peer, peer, len) &&
			net_addr_equal(&f->to, to))
			return f;
	}
	return NULL;
}

static struct udp_flow *flow_new(struct gsock *s, const struct sockaddr_in6 *peer, socklen_t len,
	const struct net_addr *to)
{
	struct gate *g = s->g;
	struct verdict v = policy_check_addr(g->cfg->policy, to, s->port, true);
	struct where w = { NULL, to, s->port };
	struct sockaddr_in6 sa;
	socklen_t len_up;
	struct udp_flow *f;
	struct den_err err;
	int fd;

	if (!v.allow || g->n_udp >= FLOWS_MAX) {
		record_denial(g, &w, v.rule, v.allow ? "too many datagram flows" : "UDP to that address is not allowed");
		return NULL;
	}
	len_up = sockaddr_put(to, s->port, &sa);
	fd = socket(sa.sin6_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0 || connect(fd, (struct sockaddr *)&sa, len_up) < 0) {
		fd_close(&fd);
		return NULL;
	}
	f = mem_new(struct udp_flow);
	*f = (struct udp_flow){ .g = g, .cfg = config_ref(g->cfg), .sock = s, .peer = *peer, .peer_len = len,
		.to = *to, .port = s->port, .v = v, .began = clock_mono_ns(),
		.up = { .fd = fd, .events = EPOLLIN, .cb = up_ready } };
	list_append(&g->udp_flows, &f->link);
	g->n_udp++;
	if (loop_add(g->loop, &f->up, &err) < 0) {
		flow_free(f);
		return NULL;
	}
	return f;
}

/* Which address the box wrote to: every one is local there. */
static bool destination(struct msghdr *m, struct net_addr *ret)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
		if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO) {
			struct in_pktinfo p;

			memcpy(&p, CMSG_DATA(c), sizeof(p));
			*ret = net_addr_v4((const uint8_t *)&p.ipi_addr);
			return true;
		}
		if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_PKTINFO) {
			struct in6_pktinfo p;

			memcpy(&p, CMSG_DATA(c), sizeof(p));
			*ret = net_addr_v6((const uint8_t *)&p.ipi6_addr);
			return true;
		}
	}
	return false;
}

void udp_datagram(struct gsock *s)
{
	for (int i = 0; i < DATAGRAMS; i++) {
		char control[256];
		struct sockaddr_in6 peer = { 0 };
		struct iovec iov = { datagram, sizeof(datagram) };
		struct msghdr m = { .msg_name = &peer, .msg_namelen = sizeof(peer), .msg_iov = &iov, .msg_iovlen = 1,
			.msg_control = control, .msg_controllen = sizeof(control) };
		ssize_t n = recvmsg(s->src.fd, &m, MSG_DONTWAIT);
		struct udp_flow *f;
		struct net_addr to;
		int found;

		if (n < 0)
			return;
		if (!s->g->cfg || !destination(&m, &to))
			continue;
		f = flow_find(s->g, &peer, m.msg_namelen, &to, s->port);
		if (!f)
			f = flow_new(s, &peer, m.msg_namelen, &to);
		if (!f || !within_limits(s->g, (size_t)n))
			continue;
		f->used = clock_mono_ns();
		f->bytes_out += (uint64_t)n;
		found = canary_find(f->cfg->canaries, datagram, (size_t)n);
		if (found >= 0) {
			struct where w = { NULL, &to, s->port };

			record_incident(s->g, &w, f->cfg->secrets[f->cfg->canary_of[found]].name, "datagram");
			continue;
		}
		(void)!send(f->up.fd, datagram, (size_t)n, MSG_DONTWAIT | MSG_NOSIGNAL);
	}
}

void udp_recheck(struct gate *g)
{
	list_for_each_safe(l, next, &g->udp_flows) {
		struct udp_flow *f = CONTAINER_OF(l, struct udp_flow, link);

		if (!f->sock || !policy_check_addr(g->cfg->policy, &f->to, f->port, true).allow)
			flow_free(f);
	}
}

void udp_forget(struct gate *g, const struct gsock *s)
{
	list_for_each(l, &g->udp_flows) {
		struct udp_flow *f = CONTAINER_OF(l, struct udp_flow, link);

		if (f->sock == s)
			f->sock = NULL;
	}
}

void udp_tick(struct gate *g, int64_t now)
{
	list_for_each_safe(l, next, &g->udp_flows) {
		struct udp_flow *f = CONTAINER_OF(l, struct udp_flow, link);

		if (now - f->used > IDLE_NS)
			flow_free(f);
	}
}
