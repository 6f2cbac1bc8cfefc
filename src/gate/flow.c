#include "flow.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

#include "boxlink.h"
#include "clock.h"
#include "fd.h"
#include "pins.h"
#include "sockaddr.h"
#include "span.h"

#define SO_ORIGINAL_DST 80 /* of both families; the kernel's header clashes with libc's */
#define FLOWS_DEFAULT 4096U
#define CONNECT_NS (10 * NS_PER_SEC)
#define LOOK_NS (30 * NS_PER_SEC)
#define LINGER_NS (1 * NS_PER_SEC)

struct where flow_where(const struct flow *f)
{
	return (struct where){ f->named ? &f->name : NULL, f->addr.family ? &f->addr : NULL, f->port };
}

/* ---- the end ---- */

static void flow_free(struct loop_deferred *d)
{
	struct flow *f = CONTAINER_OF(d, struct flow, later);

	config_unref(f->cfg);
	free(f);
}

static void close_side(struct flow *f, struct loop_source *s, bool reset)
{
	struct linger now = { 1, 0 };

	if (s->fd < 0)
		return;
	loop_remove(f->g->loop, s);
	if (reset)
		setsockopt(s->fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	fd_close(&s->fd);
}

static void tell_end(struct flow *f, const char *reason)
{
	auto_buf b = { 0 };
	struct where w = flow_where(f);

	if (f->ups != UP_READY || f->inbound) /* one that never went out is a denial, or nothing */
		return;
	wire_put_u64(&b, F_KIND, RECORD_CONNECTION);
	record_where(&b, &w);
	wire_put_str(&b, F_RULE, f->v.rule);
	wire_put_u64(&b, F_GENERATION, f->cfg->generation);
	wire_put_u64(&b, F_BYTES_OUT, f->bytes_out);
	wire_put_u64(&b, F_BYTES_IN, f->bytes_in);
	wire_put_u64(&b, F_DURATION_MS, (uint64_t)((clock_mono_ns() - f->began) / NS_PER_MS));
	if (reason)
		wire_put_str(&b, F_REASON, reason);
	control_record(f->g, &b);
}

void flow_end(struct flow *f, const char *reason, bool reset)
{
	if (f->ended)
		return;
	f->ended = true;
	tell_end(f, reason);
	lookup_cancel(&f->lookup);
	loop_timer_clear(&f->again);
	relay_free(f);
	pump_free(f);
	close_side(f, &f->box, reset);
	close_side(f, &f->up, reset);
	if (f->pin)
		pins_hold(f->g->pins, f->pin, -1);
	flow_unthrottle(f);
	list_remove(&f->link);
	f->g->n_flows--;
	f->later.cb = flow_free;
	loop_defer(f->g->loop, &f->later);
}

void flow_watch(struct flow *f, struct loop_source *s, uint32_t events)
{
	/* A side that ended in both directions is reported though nobody asks: level-triggered, for ever */
	loop_set_events(f->g->loop, s, events ? events : EPOLLET);
}

void flow_resume(struct flow *f)
{
	f->box_ready = f->up_ready = 0; /* not because of an event: all that can be done is tried */
	flow_go(f);
}

static void again_cb(struct loop_timer *t)
{
	flow_resume(CONTAINER_OF(t, struct flow, again));
}

void flow_again(struct flow *f)
{
	f->again.cb = again_cb;
	loop_timer_set(f->g->loop, &f->again, clock_mono_ns());
}

void flow_linger(struct flow *f)
{
	/* Closing now, with bytes of the box unread, would reset the connection under our words. */
	shutdown(f->box.fd, SHUT_WR);
	close_side(f, &f->up, true);
	lookup_cancel(&f->lookup);
	relay_free(f);
	pump_free(f);
	loop_timer_clear(&f->again);
	flow_unthrottle(f);
	f->check = CHECK_LINGER;
	f->deadline = clock_mono_ns() + LINGER_NS;
	flow_watch(f, &f->box, EPOLLIN);
}

void flow_deny(struct flow *f, const char *reason, const void *tell, size_t n)
{
	struct where w = flow_where(f);

	record_denial(f->g, &w, f->v.rule, reason);
	if (!n || send(f->box.fd, tell, n, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)n) {
		flow_end(f, reason, true);
		return;
	}
	f->ups = UP_NONE;
	flow_linger(f);
}

/* ---- the way out ---- */

bool flow_strict(const struct flow *f)
{
	return f->named && !f->v.raw && (f->port == 443 || f->port == 80 || f->v.terminate);
}

static void up_event(struct loop_source *s, uint32_t events)
{
	struct flow *f = CONTAINER_OF(s, struct flow, up);

	/* Reset, which would be reported for ever. What it said before is there to be read all the same. */
	if ((events & EPOLLERR) && f->ups == UP_READY) {
		loop_remove(f->g->loop, s);
		if (f->pump)
			pump_up_broken(f);
	}
	f->up_ready |= events;
	flow_go(f);
}

static void box_event(struct loop_source *s, uint32_t events)
{
	struct flow *f = CONTAINER_OF(s, struct flow, box);

	if (events & EPOLLERR) {
		if (f->pump || f->check != CHECK_RAW || f->ups != UP_READY) {
			flow_end(f, "reset by the box", true);
			return;
		}
		loop_remove(f->g->loop, s); /* as above */
	}
	f->box_ready |= events;
	flow_go(f);
}

/* Who is gone without a word is found out, so nothing half-open stays for ever. On the box's side this is
 * the listening socket's, see plumb.c. */
static void keep_alive(int fd)
{
	int on = 1, idle = 60, every = 30, count = 4;

	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every, sizeof(every));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof(count));
}

static void no_delay(int fd)
{
	int on = 1;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

/* On loopback the connection is there when connect() returns, though it says otherwise. */
static bool there_already(int fd)
{
	struct sockaddr_storage sa;
	socklen_t len = sizeof(sa);

	return getpeername(fd, (struct sockaddr *)&sa, &len) == 0;
}

static void up_is_ready(struct flow *f)
{
	f->ups = UP_READY;
	f->up_ready = 0;
	/* who waits for the server to speak may wait for long */
	f->deadline = f->check == CHECK_WAIT && flow_strict(f) ? f->began + LOOK_NS : 0;
}

/* There is no way to where it wants to go. */
static void give_up(struct flow *f, const char *reason)
{
	f->ups = UP_NONE;
	f->deadline = clock_mono_ns() + LOOK_NS;
	if (!f->pump && f->check == CHECK_WAIT && f->port == 80 && flow_strict(f)) {
		f->dead = reason; /* the box speaks first there, and can be told in its words */
		return;
	}
	if (!f->pump) {
		flow_end(f, reason, true);
		return;
	}
	pump_unreachable(f, reason);
	flow_again(f); /* not from here: we may be called for one of a list of flows */
}

/* By the policy that holds at this moment: it may have become stricter since the name was resolved. */
static bool may_connect(const struct flow *f, const struct net_addr *a)
{
	const struct policy *p = f->g->cfg->policy;

	if (f->v.host_loopback)
		return policy_check_name(p, &f->name, f->port).allow;
	return f->named ? policy_answer_ok(p, a, f->port, NULL) : policy_check_addr(p, a, f->port, false).allow;
}

/* Connects to the very address that was checked, and to the next when that fails. */
static void connect_next(struct flow *f)
{
	struct den_err err;

	close_side(f, &f->up, true);
	while (f->tried < f->n_tries) {
		struct sockaddr_in6 sa;
		const struct net_addr *a = &f->tries[f->tried++];
		socklen_t len = sockaddr_put(a, f->port, &sa);
		int fd = may_connect(f, a) ?
			socket(a->family == 4 ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0) : -1;

		if (fd < 0)
			continue;
		no_delay(fd);
		if (connect(fd, (struct sockaddr *)&sa, len) < 0 && errno != EINPROGRESS) {
			close(fd);
			continue;
		}
		f->addr = *a;
		f->ups = UP_CONNECTING;
		f->up_ready = 0;
		f->up = (struct loop_source){ .fd = fd, .events = EPOLLOUT, .cb = up_event };
		f->deadline = clock_mono_ns() + CONNECT_NS;
		if (there_already(fd)) {
			f->up.events = EPOLLIN;
			up_is_ready(f);
		}
		if (loop_add(f->g->loop, &f->up, &err) == 0) {
			if (f->ups == UP_READY && !f->starting)
				flow_again(f); /* no event will say so */
			return;
		}
		fd_close(&f->up.fd);
		f->ups = UP_CONNECTING;
	}
	give_up(f, "nobody answers there");
}

static void on_resolved(struct lookup *l, const struct net_addr *addrs, unsigned n, bool failed)
{
	struct flow *f = CONTAINER_OF(l, struct flow, lookup);
	const char *why = NULL;
	struct where w;

	(void)failed;
	for (int family = 4; family <= 6; family += 2) /* v4 first: more networks have it */
		for (unsigned i = 0; i < n; i++)
			if (addrs[i].family == family &&
				policy_answer_ok(f->g->cfg->policy, &addrs[i], f->port, &why))
				f->tries[f->n_tries++] = addrs[i];
	if (f->n_tries) {
		connect_next(f);
		return;
	}
	if (n)
		f->addr = addrs[0];
	w = flow_where(f);
	if (n)
		record_denial(f->g, &w, f->v.rule, "the name's address is not public");
	give_up(f, "the name has no address that may be reached");
}

static void up_start(struct flow *f)
{
	static const struct net_addr lo4 = { .family = 4, .b = { 127, 0, 0, 1 } };
	static const struct net_addr lo6 = { .family = 6, .b = { [15] = 1 } };

	f->ups = UP_RESOLVING;
	if (f->v.host_loopback) {
		f->tries[f->n_tries++] = lo4;
		f->tries[f->n_tries++] = lo6;
		connect_next(f);
		return;
	}
	if (!f->named) {
		f->tries[f->n_tries++] = f->addr;
		connect_next(f);
		return;
	}
	f->lookup.done = on_resolved;
	resolver_ask(f->g->resolver, &f->name, &f->lookup);
}

void flow_up_start(struct flow *f)
{
	f->starting = true; /* whoever calls goes on with it */
	up_start(f);
	f->starting = false;
}

/* Some bytes into an empty socket: all of them, at once. */
static int say_port(struct flow *f)
{
	struct link_knock k = { { (uint8_t)(f->port >> 8), (uint8_t)f->port }, 0 };

	f->knock = false;
	return send(f->up.fd, &k, sizeof(k), MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)sizeof(k) ? 0 : -1;
}

/* The result of connect(); true: it is there. */
static bool connected(struct flow *f)
{
	socklen_t len = sizeof(int);
	int e = 0;

	if (!(f->up_ready & (EPOLLOUT | EPOLLERR | EPOLLHUP)))
		return false;
	if (getsockopt(f->up.fd, SOL_SOCKET, SO_ERROR, &e, &len) < 0 || e) {
		connect_next(f);
		return false;
	}
	if (f->knock && say_port(f) < 0) {
		flow_end(f, "broken", true);
		return false;
	}
	up_is_ready(f);
	return true;
}

/* ---- going ---- */

static void linger(struct flow *f)
{
	char trash[16384];
	ssize_t n = 1;

	for (int i = 0; i < 16 && n > 0; i++) /* a box that never stops does not keep us here */
		n = recv(f->box.fd, trash, sizeof(trash), MSG_DONTWAIT);
	if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
		flow_end(f, NULL, false);
}

void flow_go(struct flow *f)
{
	if (f->ended || f->throttled)
		return;
	if (f->check == CHECK_LINGER) {
		linger(f);
		return;
	}
	if (f->ups == UP_CONNECTING)
		(void)connected(f);
	if (f->ended || f->check == CHECK_LINGER)
		return;
	if (f->check == CHECK_WAIT && (f->box_ready & ~(uint32_t)EPOLLOUT)) { /* room is nothing to look at */
		f->box_ready = f->up_ready = 0; /* whatever it is, both directions are tried */
		if (f->proxy)
			flow_look_proxy(f);
		else
			flow_look(f);
	}
	if (f->ended || f->check == CHECK_LINGER)
		return;
	if (f->pump) {
		pump_go(f);
	} else if (f->ups == UP_READY) {
		/* a server that speaks first (ssh, smtp) is heard before the box has said anything */
		relay_go(f, f->check == CHECK_RAW, f->check == CHECK_RAW || !f->v.terminate);
	} else {
		/* nothing more to do here until the other side is there */
		flow_watch(f, &f->box, f->check == CHECK_WAIT ? EPOLLIN : 0);
	}
}

/* ---- the way in ---- */

static struct flow *flow_new(struct gate *g, int fd)
{
	struct flow *f = mem_new(struct flow);

	f->g = g;
	f->cfg = config_ref(g->cfg);
	f->box = (struct loop_source){ .fd = fd, .events = EPOLLIN, .cb = box_event };
	f->up.fd = -1;
	f->began = clock_mono_ns();
	f->deadline = f->began + LOOK_NS;
	for (int i = 0; i < 2; i++)
		f->dir[i] = (struct relay_dir){ .pipe = { -1, -1 }, .wants_in = true };
	list_append(&g->flows, &f->link);
	g->n_flows++;
	return f;
}

static bool refuse_at_door(struct gate *g, int fd)
{
	struct linger now = { 1, 0 };
	uint64_t max = g->cfg && g->cfg->policy->limits.connections ? g->cfg->policy->limits.connections :
								      FLOWS_DEFAULT;
	struct where nowhere = { 0 };

	if (g->cfg && g->n_flows < max && !(g->cfg->policy->limits.bytes && g->bytes > g->cfg->policy->limits.bytes))
		return false;
	if (g->cfg)
		record_denial(g, &nowhere, g->n_flows < max ? "limits.bytes" : "limits.connections",
			g->n_flows < max ? "the limit on bytes is reached" : "too many connections at once");
	setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	close(fd);
	return true;
}

static int original(int fd, unsigned family, struct net_addr *a, uint16_t *port)
{
	struct sockaddr_in6 v6;
	struct sockaddr_in v4;
	socklen_t len = family == 4 ? sizeof(v4) : sizeof(v6);

	if (family == 4) {
		if (getsockopt(fd, SOL_IP, SO_ORIGINAL_DST, &v4, &len) < 0)
			return -1;
		*a = net_addr_v4((const uint8_t *)&v4.sin_addr);
		*port = ntohs(v4.sin_port);
		return 0;
	}
	if (getsockopt(fd, SOL_IPV6, SO_ORIGINAL_DST, &v6, &len) < 0)
		return -1;
	*a = net_addr_v6((const uint8_t *)&v6.sin6_addr);
	*port = ntohs(v6.sin6_port);
	return 0;
}

/* Whom the connection is for, and whether that is allowed. */
static bool judge(struct flow *f, const struct net_addr *to)
{
	int index = span_index(to);
	const struct net_name *name = index >= 0 ? pins_name(f->g->pins, (unsigned)index) : NULL;
	struct where w;

	if (name) {
		f->named = true;
		f->name = *name;
		f->pin = (unsigned)index;
		pins_hold(f->g->pins, f->pin, 1);
		f->v = policy_check_name(f->cfg->policy, name, f->port);
	} else {
		f->addr = *to;
		f->v = policy_check_addr(f->cfg->policy, to, f->port, false);
		if (index >= 0) /* of our own range, and nobody's: a box that remembers too long, or guesses */
			f->v.allow = false;
	}
	if (f->v.allow)
		return true;
	w = flow_where(f);
	record_denial(f->g, &w, f->v.rule, name ? "the port is not allowed" : "the address is not allowed");
	return false;
}

static void flow_begin(struct flow *f)
{
	struct den_err err;

	if (loop_add(f->g->loop, &f->box, &err) < 0) {
		flow_end(f, NULL, true);
		return;
	}
	if (f->v.raw || !f->named)
		f->check = f->cfg->canaries ? CHECK_WAIT : CHECK_RAW;
	if (f->check == CHECK_WAIT)
		f->box_ready = EPOLLIN; /* it may have spoken already */
	flow_up_start(f);
	if (!f->ended)
		flow_go(f);
}

void flow_accept(struct gate *g, int fd, unsigned family)
{
	struct net_addr to;
	struct flow *f;

	if (refuse_at_door(g, fd))
		return;
	f = flow_new(g, fd);
	if (original(fd, family, &to, &f->port) < 0 || !judge(f, &to)) {
		flow_end(f, NULL, true);
		return;
	}
	flow_begin(f);
}

void flow_accept_proxy(struct gate *g, int fd)
{
	struct den_err err;
	struct flow *f;

	if (refuse_at_door(g, fd))
		return;
	f = flow_new(g, fd);
	f->proxy = true;
	if (loop_add(g->loop, &f->box, &err) < 0)
		flow_end(f, NULL, true);
}

void flow_inbound(struct gate *g, int outside, int inside, uint16_t port, bool door)
{
	struct flow *f = flow_new(g, outside);
	struct den_err err;

	f->inbound = true;
	f->knock = door;
	f->port = port;
	f->check = CHECK_RAW;
	f->ups = UP_CONNECTING;
	f->deadline = f->began + CONNECT_NS;
	f->up = (struct loop_source){ .fd = inside, .events = EPOLLOUT, .cb = up_event };
	no_delay(inside);
	no_delay(outside);
	keep_alive(outside);
	if (loop_add(g->loop, &f->box, &err) < 0 || loop_add(g->loop, &f->up, &err) < 0)
		flow_end(f, NULL, true);
}

void flow_tick(struct gate *g, int64_t now)
{
	list_for_each_safe(l, next, &g->flows) {
		struct flow *f = CONTAINER_OF(l, struct flow, link);

		if (f->ups == UP_READY && !f->tuned) { /* not for those that are over in a moment */
			f->tuned = true;
			keep_alive(f->up.fd);
		}
		if (!f->deadline || f->deadline > now)
			continue;
		if (f->ups == UP_CONNECTING && !f->inbound)
			connect_next(f);
		else
			flow_end(f, "nothing came in time", true);
	}
}
