/* Ports of the box that were asked for, reachable from outside: a listener of the host's, and for each
 * connection a socket that was made in the box's namespace and is connected from here. */
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include "boxlink.h"
#include "clock.h"
#include "fd.h"
#include "flow.h"
#include "plumb.h"

#define SPARE_LOW 8U
#define SPARE_MAX 64U
#define PORTS_MAX 256
#define BURST 16
#define FLOWS_MAX 16384U /* of all directions */

struct port {
	struct list link;
	struct gate *g;
	struct loop_source src;
	uint16_t port;
};

/* Sockets in store; loop_source is not needed, they wait for nothing. They come in pairs, and each
 * connection takes a v4 one first: gate.n_spare counts those, and of the others there are never fewer. */
struct spare {
	struct list link;
	int fd;
	unsigned family; /* 4, 6 or PLUMB_DOOR, which counts as one of 4 */
};

static int spare_take(struct gate *g, unsigned family)
{
	list_for_each_safe(l, next, &g->spare) {
		struct spare *s = CONTAINER_OF(l, struct spare, link);
		int fd = s->fd;

		if (s->family != family)
			continue;
		list_remove(&s->link);
		free(s);
		if (family != 6)
			g->n_spare--;
		return fd;
	}
	return -1;
}

static unsigned count(const struct gate *g, unsigned family)
{
	unsigned n = 0;

	list_for_each(l, &g->spare)
		n += CONTAINER_OF(l, struct spare, link)->family == family;
	return n;
}

static void spare_ask(struct gate *g)
{
	auto_buf b = { 0 };

	if (g->n_spare >= SPARE_LOW || g->asked_sockets || list_empty(&g->ports) || !g->ctl_up)
		return;
	g->asked_sockets = true;
	control_send(g, WM_GATE_SOCKETS, &b);
}

static void start_accepting(struct gate *g, bool on)
{
	list_for_each(l, &g->ports)
		loop_set_events(g->loop, &CONTAINER_OF(l, struct port, link)->src, on ? EPOLLIN : 0);
}

/* To the other end of the link, where somebody asks for the port. */
static int dial_door(int fd)
{
	struct sockaddr_in door = { .sin_family = AF_INET, .sin_port = htons(LINK_DOOR_PORT),
		.sin_addr.s_addr = htonl(LINK_BOX_V4) };

	if (connect(fd, (struct sockaddr *)&door, sizeof(door)) < 0 && errno != EINPROGRESS)
		fd_close(&fd);
	return fd;
}

/* A service of the box listens on one family or on both: whichever takes it. */
static int dial(struct gate *g, uint16_t port)
{
	struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = htons(port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_port = htons(port),
		.sin6_addr = IN6ADDR_LOOPBACK_INIT };
	int fd = spare_take(g, 4);

	/* on loopback the answer is there at once: refused, or a connection */
	if (fd >= 0 && (connect(fd, (struct sockaddr *)&v4, sizeof(v4)) == 0 || errno == EINPROGRESS)) {
		socklen_t len = sizeof(int);
		int e = 0;

		if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &e, &len) == 0 && !e)
			return fd;
	}
	fd_close(&fd);
	fd = spare_take(g, 6);
	if (fd >= 0 && connect(fd, (struct sockaddr *)&v6, sizeof(v6)) < 0 && errno != EINPROGRESS)
		fd_close(&fd);
	return fd;
}

static void on_ready(struct loop_source *src, uint32_t events)
{
	struct port *p = CONTAINER_OF(src, struct port, src);
	struct gate *g = p->g;

	(void)events;
	for (int i = 0; i < BURST; i++) {
		int fd, in;
		bool door;

		if (!g->n_spare || g->n_flows >= FLOWS_MAX) { /* they wait in the queue until there are sockets */
			start_accepting(g, false);
			break;
		}
		fd = accept4(src->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (fd < 0) {
			if (errno != EAGAIN && errno != ECONNABORTED)
				start_accepting(g, false); /* until inbound_tick() */
			break;
		}
		in = spare_take(g, PLUMB_DOOR);
		door = in >= 0;
		in = door ? dial_door(in) : dial(g, p->port);
		if (in < 0 || !g->cfg) {
			struct linger now = { 1, 0 };

			setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
			close(fd);
			fd_close(&in);
			continue;
		}
		flow_inbound(g, fd, in, p->port, door);
	}
	spare_ask(g);
}

bool inbound_has(const struct gate *g, uint16_t port)
{
	list_for_each(l, (struct list *)&g->ports)
		if (CONTAINER_OF(l, struct port, link)->port == port)
			return true;
	return false;
}

void inbound_port(struct gate *g, uint16_t port, int listen_fd)
{
	struct port *p;
	struct den_err err;
	unsigned n = 0;

	list_for_each_safe(l, next, &g->ports) {
		struct port *old = CONTAINER_OF(l, struct port, link);

		n++;
		if (old->port != port)
			continue;
		loop_remove(g->loop, &old->src);
		fd_close(&old->src.fd);
		list_remove(&old->link);
		free(old);
	}
	if (listen_fd < 0) {
		list_for_each_safe(l, next, &g->flows) {
			struct flow *f = CONTAINER_OF(l, struct flow, link);

			if (f->inbound && f->port == port)
				flow_end(f, NULL, true);
		}
		return;
	}
	if (n >= PORTS_MAX) {
		close(listen_fd);
		return;
	}
	fd_set_nonblock(listen_fd, true);
	p = mem_new(struct port);
	*p = (struct port){ .g = g, .port = port, .src = { .fd = listen_fd, .events = EPOLLIN, .cb = on_ready } };
	list_append(&g->ports, &p->link);
	if (loop_add(g->loop, &p->src, &err) < 0) {
		fd_close(&p->src.fd);
		list_remove(&p->link);
		free(p);
	}
	spare_ask(g);
}

void inbound_sockets(struct gate *g, int sock)
{
	unsigned n6 = 0;

	g->asked_sockets = false;
	for (unsigned i = 0; i < 2 * SPARE_MAX; i++) {
		char control[CMSG_SPACE(sizeof(int))];
		struct plumb_sock m;
		struct iovec iov = { &m, sizeof(m) };
		struct msghdr h = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control,
			.msg_controllen = sizeof(control) };
		struct spare *s;
		struct cmsghdr *c;
		int fd = -1;

		if (recvmsg(sock, &h, MSG_CMSG_CLOEXEC) != sizeof(m) || m.kind != PLUMB_OUT)
			break;
		c = CMSG_FIRSTHDR(&h);
		if (!c || c->cmsg_type != SCM_RIGHTS)
			break;
		memcpy(&fd, CMSG_DATA(c), sizeof(int));
		s = mem_new(struct spare);
		*s = (struct spare){ .fd = fd, .family = m.family };
		list_append(&g->spare, &s->link);
		if (m.family != 6)
			g->n_spare++;
		else
			n6++;
	}
	close(sock);
	for (; n6 && count(g, 6) > SPARE_MAX; n6--) {
		int fd = spare_take(g, 6);

		fd_close(&fd);
	}
	start_accepting(g, true);
}

void inbound_tick(struct gate *g)
{
	if (g->n_spare)
		start_accepting(g, true);
	spare_ask(g); /* a keeper that could not help may be able to now */
}
