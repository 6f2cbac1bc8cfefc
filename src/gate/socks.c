/* The sockets in the box's namespace: taken over from the plumber, accepted from. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "fd.h"
#include "flow.h"
#include "gate.h"
#include "plumb.h"

#define BURST 64 /* accepted in one go, so that others get their turn */
#define SOCKS_MAX 128

static void gsock_free(struct gsock *s)
{
	dnsd_forget(s->g, s);
	udp_forget(s->g, s);
	loop_remove(s->g->loop, &s->src);
	fd_close(&s->src.fd);
	list_remove(&s->link);
	free(s);
}

static void on_ready(struct loop_source *src, uint32_t events)
{
	struct gsock *s = CONTAINER_OF(src, struct gsock, src);

	(void)events;
	if (s->kind == PLUMB_DNS_UDP) {
		dnsd_datagram(s);
		return;
	}
	if (s->kind == PLUMB_UDP) {
		udp_datagram(s);
		return;
	}
	for (int i = 0; i < BURST; i++) {
		int fd = accept4(src->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd < 0) {
			if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)
				socks_pause(s->g, true);
			return;
		}
		if (s->kind == PLUMB_TCP)
			flow_accept(s->g, fd, s->family);
		else if (s->kind == PLUMB_DNS_TCP)
			dnsd_accept(s->g, fd);
		else
			flow_accept_proxy(s->g, fd);
	}
}

/* One message: *ret_fd -1 without a descriptor. */
static int receive(int sock, struct plumb_sock *ret, int *ret_fd, struct den_err *err)
{
	char control[CMSG_SPACE(sizeof(int))];
	struct iovec iov = { ret, sizeof(*ret) };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control,
		.msg_controllen = sizeof(control) };
	ssize_t n = recvmsg(sock, &m, MSG_CMSG_CLOEXEC);
	struct cmsghdr *c;

	*ret_fd = -1;
	if (n < 0)
		return den_fail_sys(err, errno, "the plumber's sockets");
	c = CMSG_FIRSTHDR(&m);
	if (c && c->cmsg_type == SCM_RIGHTS)
		memcpy(ret_fd, CMSG_DATA(c), sizeof(int));
	if (n != sizeof(*ret)) {
		fd_close(ret_fd);
		return den_fail(err, DEN_INVALID, 0, "the plumber's sockets: not all came");
	}
	return 0;
}

int socks_take(struct gate *g, int fd, struct den_err *err)
{
	/* What listened until now goes first: the redirections lead to the new ones already. */
	while (!list_empty(&g->socks))
		gsock_free(CONTAINER_OF(g->socks.next, struct gsock, link));
	for (int i = 0; i < SOCKS_MAX; i++) {
		struct plumb_sock m;
		struct gsock *s;
		int got;

		if (receive(fd, &m, &got, err) < 0)
			return -1;
		if (m.kind == PLUMB_END)
			return 0;
		if (got < 0 || m.kind >= PLUMB_KINDS) {
			fd_close(&got);
			return den_fail(err, DEN_INVALID, 0, "the plumber's sockets: kind %u", m.kind);
		}
		s = mem_new(struct gsock);
		*s = (struct gsock){ .g = g, .kind = m.kind, .family = m.family, .port = (uint16_t)m.port,
			.src = { .fd = got, .events = EPOLLIN, .cb = on_ready } };
		list_append(&g->socks, &s->link);
		if (loop_add(g->loop, &s->src, err) < 0)
			return -1;
	}
	return den_fail(err, DEN_LIMIT, 0, "more than %d sockets", SOCKS_MAX);
}

void socks_pause(struct gate *g, bool on)
{
	list_for_each(l, &g->socks) {
		struct gsock *s = CONTAINER_OF(l, struct gsock, link);

		if (s->kind != PLUMB_DNS_UDP && s->kind != PLUMB_UDP)
			loop_set_events(g->loop, &s->src, on ? 0 : EPOLLIN);
	}
}
