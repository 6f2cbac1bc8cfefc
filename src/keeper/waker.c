/* The ports of a box on disk are held by a server's waker (wire/waker.h). Nobody waits long for it: it may be gone. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fd.h"
#include "gate.h"
#include "keeper.h"
#include "place.h"
#include "waker.h"

#define WAIT_S 3

static int say(struct keeper *k, uint32_t op, struct waker_message *m, int *ret)
{
	char **all = k->row.info.spec.publish;
	struct timeval wait = { .tv_sec = WAIT_S };
	struct den_err ignored;
	auto_fd fd = -1;

	*m = (struct waker_message){ .op = op };
	snprintf(m->id, sizeof(m->id), "%s", k->id.s);
	for (size_t i = 0; all && all[i] && m->n < WAKER_PORTS; i++) {
		unsigned in, out;

		if (sscanf(all[i], "%u=%u", &in, &out) != 2)
			continue;
		m->ports[m->n].in = (uint16_t)in;
		m->ports[m->n++].out = (uint16_t)out;
	}
	if ((!m->n && op != WAKER_DROP) || place_connect(k->store->fd, WAKER_SOCK, &fd, &ignored) < 0)
		return -1;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait));
	if (send(fd, m, sizeof(*m), MSG_NOSIGNAL) != sizeof(*m))
		return -1;
	*ret = fd_take(&fd);
	return 0;
}

void waker_hold(struct keeper *k)
{
	struct waker_message m;
	auto_fd fd = -1;

	(void)say(k, WAKER_HOLD, &m, &fd);
}

void waker_drop(struct keeper *k)
{
	struct waker_message m;
	auto_fd fd = -1;

	(void)say(k, WAKER_DROP, &m, &fd);
}

void waker_take(struct keeper *k, struct waker_ports *ret)
{
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(WAKER_PORTS * sizeof(int))];
	} control = { 0 };
	struct waker_message m;
	struct iovec v = { &m, sizeof(m) };
	struct msghdr h = { .msg_iov = &v,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control) };
	struct cmsghdr *c;
	auto_fd fd = -1;
	size_t n;

	ret->n = 0;
	if (say(k, WAKER_TAKE, &m, &fd) < 0 ||
		recvmsg(fd, &h, MSG_CMSG_CLOEXEC | MSG_WAITALL) != sizeof(m))
		return;
	c = CMSG_FIRSTHDR(&h);
	if (!c || c->cmsg_type != SCM_RIGHTS)
		return;
	n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
	for (size_t i = 0; i < n; i++) {
		int got;

		memcpy(&got, CMSG_DATA(c) + i * sizeof(int), sizeof(got));
		if (i >= m.n || i >= WAKER_PORTS) {
			close(got);
			continue;
		}
		ret->out[ret->n] = m.ports[i].out;
		ret->fd[ret->n++] = got;
	}
}

int waker_port(struct waker_ports *p, uint16_t out)
{
	for (size_t i = 0; i < p->n; i++)
		if (p->out[i] == out && p->fd[i] >= 0) {
			int fd = p->fd[i];

			p->fd[i] = -1;
			return fd;
		}
	return -1;
}

void waker_ports_free(struct waker_ports *p)
{
	for (size_t i = 0; i < p->n; i++)
		fd_close(&p->fd[i]);
	p->n = 0;
}
