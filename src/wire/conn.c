#include "conn.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fd.h"

static void drop_fds(int *fds, int *n)
{
	for (int i = 0; i < *n; i++)
		close(fds[i]);
	*n = 0;
}

static void conn_lost(struct conn *c, const struct den_err *why)
{
	if (c->dead)
		return;
	conn_close(c);
	c->on_close(c, why);
}

/* Writes what the socket takes. -1: the connection is broken (found again by the reader). */
static int conn_flush(struct conn *c)
{
	while (c->tx_done < c->tx.len) {
		char control[CMSG_SPACE(sizeof(int) * CONN_MAX_FDS)];
		struct iovec iov = { c->tx.p + c->tx_done, c->tx.len - c->tx_done };
		struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
		ssize_t r;

		if (c->n_tx_fds) {
			struct cmsghdr *cm;
			size_t bytes = sizeof(int) * (size_t)c->n_tx_fds;

			memset(control, 0, sizeof(control));
			m.msg_control = control;
			m.msg_controllen = CMSG_SPACE(bytes);
			cm = CMSG_FIRSTHDR(&m);
			cm->cmsg_level = SOL_SOCKET;
			cm->cmsg_type = SCM_RIGHTS;
			cm->cmsg_len = CMSG_LEN(bytes);
			memcpy(CMSG_DATA(cm), c->tx_fds, bytes);
		}
		r = sendmsg(c->src.fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0)
			return errno == EAGAIN ? 0 : -1;
		drop_fds(c->tx_fds, &c->n_tx_fds);
		c->tx_done += (size_t)r;
	}
	buf_free(&c->tx);
	c->tx_done = 0;
	return 0;
}

static void want_events(struct conn *c)
{
	loop_set_events(c->loop, &c->src, EPOLLIN | (c->tx.len ? EPOLLOUT : 0));
}

static ssize_t receive(struct conn *c, char *p, size_t n)
{
	char control[CMSG_SPACE(sizeof(int) * CONN_MAX_FDS)];
	struct iovec iov = { p, n };
	struct msghdr m = { .msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control,
		.msg_controllen = sizeof(control) };
	ssize_t r;

	do
		r = recvmsg(c->src.fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	while (r < 0 && errno == EINTR);
	if (r < 0)
		return r;
	for (struct cmsghdr *cm = CMSG_FIRSTHDR(&m); cm; cm = CMSG_NXTHDR(&m, cm)) {
		int n_fds = (int)((cm->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		int fds[CONN_MAX_FDS];

		if (cm->cmsg_level != SOL_SOCKET || cm->cmsg_type != SCM_RIGHTS)
			continue;
		n_fds = MIN(n_fds, CONN_MAX_FDS);
		memcpy(fds, CMSG_DATA(cm), sizeof(int) * (size_t)n_fds);
		for (int i = 0; i < n_fds; i++) {
			if (c->take_fds && c->n_rx_fds < CONN_MAX_FDS)
				c->rx_fds[c->n_rx_fds++] = fds[i];
			else
				close(fds[i]);
		}
	}
	return r;
}

static void conn_read(struct conn *c)
{
	struct den_err err;
	size_t at = 0;
	ssize_t r;

	buf_reserve(&c->rx, 64 << 10);
	r = receive(c, c->rx.p + c->rx.len, c->rx.cap - c->rx.len);
	if (r < 0 && errno == EAGAIN)
		return;
	if (r <= 0) {
		if (r < 0)
			den_fail_sys(&err, errno, "receive");
		conn_lost(c, r < 0 ? &err : NULL);
		return;
	}
	c->rx.len += (size_t)r;
	c->reading = true;
	while (!c->dead) {
		struct wire_frame f;
		size_t used;
		int got = wire_frame_get(c->rx.p + at, c->rx.len - at, &f, &used, &err);

		if (got < 0)
			conn_lost(c, &err);
		if (got <= 0)
			break;
		at += used;
		c->on_frame(c, &f);
	}
	c->reading = false;
	buf_consume(&c->rx, at);
	if (c->rx.len == 0 || c->dead)
		buf_free(&c->rx);
}

static void conn_event(struct loop_source *s, uint32_t events)
{
	struct conn *c = CONTAINER_OF(s, struct conn, src);

	if (events & EPOLLOUT) {
		conn_flush(c);
		want_events(c);
	}
	if (events & (EPOLLIN | EPOLLHUP | EPOLLERR))
		conn_read(c);
}

int conn_open(struct conn *c, struct loop *l, int fd, struct den_err *err)
{
	c->loop = l;
	c->src = (struct loop_source){ .fd = fd, .events = EPOLLIN, .cb = conn_event };
	if (loop_add(l, &c->src, err) < 0) {
		close(fd);
		c->dead = true;
		return -1;
	}
	return 0;
}

void conn_close(struct conn *c)
{
	if (c->dead)
		return;
	c->dead = true;
	loop_remove(c->loop, &c->src);
	fd_close(&c->src.fd);
	drop_fds(c->tx_fds, &c->n_tx_fds);
	drop_fds(c->rx_fds, &c->n_rx_fds);
	buf_free(&c->tx);
	c->tx_done = 0;
	if (!c->reading) /* else the frame being handled points into it; conn_read() frees it */
		buf_free(&c->rx);
}

void conn_send_fds(struct conn *c, uint8_t type, uint32_t chan, const void *p, size_t n,
	const int *fds, int n_fds)
{
	if (c->dead)
		return;
	if (n_fds)
		/* earlier bytes first, so that the descriptors go with their frame */
		conn_flush(c);
	if (n > WIRE_MAX_PAYLOAD || c->tx.len - c->tx_done > CONN_TX_MAX ||
		c->n_tx_fds + n_fds > CONN_MAX_FDS) {
		shutdown(c->src.fd, SHUT_RDWR); /* the reader sees the end and reports it */
		return;
	}
	for (int i = 0; i < n_fds; i++) {
		int fd = fcntl(fds[i], F_DUPFD_CLOEXEC, 3);

		if (fd >= 0)
			c->tx_fds[c->n_tx_fds++] = fd;
	}
	if (c->tx_done) {
		buf_consume(&c->tx, c->tx_done);
		c->tx_done = 0;
	}
	wire_frame_put(&c->tx, type, chan, p, (uint32_t)n);
	conn_flush(c);
	want_events(c);
}

void conn_send(struct conn *c, uint8_t type, uint32_t chan, const void *p, size_t n)
{
	conn_send_fds(c, type, chan, p, n, NULL, 0);
}

void conn_send_buf(struct conn *c, uint8_t type, uint32_t chan, const struct buf *b)
{
	conn_send_fds(c, type, chan, b->p, b->len, NULL, 0);
}

void conn_ok(struct conn *c, uint32_t chan)
{
	conn_send(c, WM_OK, chan, NULL, 0);
}

void conn_fail(struct conn *c, uint32_t chan, const struct den_err *e)
{
	auto_buf b = { 0 };

	wire_put_err(&b, e);
	conn_send_buf(c, WM_FAIL, chan, &b);
}

int conn_take_fds(struct conn *c, int *fds, int want)
{
	if (want > c->n_rx_fds)
		return -1;
	memcpy(fds, c->rx_fds, sizeof(int) * (size_t)want);
	c->n_rx_fds -= want;
	memmove(c->rx_fds, c->rx_fds + want, sizeof(int) * (size_t)c->n_rx_fds);
	return 0;
}

bool conn_tx_empty(const struct conn *c)
{
	return c->tx.len == 0;
}
