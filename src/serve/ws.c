/* Frames by wslay, over a socket that does not block; waiting is all in ws_poll(). */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <wslay/wslay.h>

#include "clock.h"
#include "fd.h"
#include "http_int.h"
#include "ws_int.h"

#define PING_NS (30 * NS_PER_SEC)
#define DEAD_NS (90 * NS_PER_SEC)
#define CLOSE_MS 2000
#define PONGS_MAX 16 /* a client that asks and does not read is not read either */
#define BACKLOG_MAX (1 << 20) /* messages that came while we were sending */

struct message {
	struct list link;
	int kind;
	size_t n;
	char bytes[];
};

struct ws {
	struct req *r;
	int fd;
	wslay_event_context_ptr ctx;
	struct list inbox;
	size_t inbox_bytes;
	struct message *current; /* given out, until the next call */
	int64_t heard, pinged;
	bool broken, full /* one message is enough for now */;
};

/* ---- what wslay calls ---- */

static ssize_t on_recv(wslay_event_context_ptr ctx, uint8_t *to, size_t n, int flags, void *user)
{
	struct ws *w = user;
	ssize_t got = -1;

	errno = EAGAIN;
	if (!w->full && wslay_event_get_queued_msg_count(ctx) <= PONGS_MAX)
		got = recv(w->fd, to, n, MSG_DONTWAIT);
	if (got > 0) {
		w->heard = clock_mono_ns();
		return got;
	}
	if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
		wslay_event_set_error(ctx, WSLAY_ERR_WOULDBLOCK);
	} else {
		w->broken = true;
		wslay_event_set_error(ctx, WSLAY_ERR_CALLBACK_FAILURE);
	}
	return -1;
}

static ssize_t on_send(
	wslay_event_context_ptr ctx, const uint8_t *p, size_t n, int flags, void *user)
{
	struct ws *w = user;
	ssize_t sent = send(
		w->fd, p, n, MSG_DONTWAIT | MSG_NOSIGNAL | (flags & WSLAY_MSG_MORE ? MSG_MORE : 0));

	if (sent >= 0)
		return sent;
	if (errno == EAGAIN || errno == EINTR) {
		wslay_event_set_error(ctx, WSLAY_ERR_WOULDBLOCK);
	} else {
		w->broken = true;
		wslay_event_set_error(ctx, WSLAY_ERR_CALLBACK_FAILURE);
	}
	return -1;
}

static void on_message(
	wslay_event_context_ptr ctx, const struct wslay_event_on_msg_recv_arg *arg, void *user)
{
	struct ws *w = user;
	struct message *m;

	if (arg->opcode != WSLAY_TEXT_FRAME && arg->opcode != WSLAY_BINARY_FRAME)
		return;
	m = malloc(sizeof(*m) + arg->msg_length + 1);
	if (!m) {
		w->broken = true;
		return;
	}
	m->kind = arg->opcode == WSLAY_TEXT_FRAME ? WS_TEXT : WS_BINARY;
	m->n = arg->msg_length;
	if (m->n)
		memcpy(m->bytes, arg->msg, m->n);
	m->bytes[m->n] = 0;
	list_append(&w->inbox, &m->link);
	w->inbox_bytes += m->n + sizeof(*m);
	w->full = true;
}

struct ws *ws_attach(struct req *r, int fd, size_t max_message)
{
	static const struct wslay_event_callbacks calls = { .recv_callback = on_recv,
		.send_callback = on_send,
		.on_msg_recv_callback = on_message };
	struct ws *w = mem_new(struct ws);

	w->r = r;
	w->fd = fd;
	w->heard = w->pinged = clock_mono_ns();
	list_init(&w->inbox);
	fd_set_nonblock(fd, true);
	if (wslay_event_context_server_init(&w->ctx, &calls, w) < 0)
		abort(); /* without memory, as mem_new() */
	wslay_event_config_set_max_recv_msg_length(w->ctx, max_message);
	return w;
}

/* ---- waiting ---- */

static void flush(struct ws *w)
{
	if (!w->broken && wslay_event_want_write(w->ctx) && wslay_event_send(w->ctx) < 0)
		w->broken = true;
}

static void pump(struct ws *w)
{
	if (!w->broken && wslay_event_want_read(w->ctx) && wslay_event_recv(w->ctx) < 0 &&
		!w->broken)
		wslay_event_queue_close(
			w->ctx, WSLAY_CODE_PROTOCOL_ERROR, NULL, 0); /* frames, not the socket */
	flush(w);
}

/* No more will come: it broke, or both have said goodbye. */
static bool over(const struct ws *w)
{
	return w->broken || (!wslay_event_want_read(w->ctx) && !wslay_event_want_write(w->ctx)) ||
	       wslay_event_get_close_received(w->ctx);
}

/* Waits for the socket, and for fd (-1: none). Bits of REQ_*; REQ_READY: fd is. */
static int ws_poll(struct ws *w, int fd, int timeout_ms)
{
	struct pollfd p[2] = { { .fd = w->fd }, { .fd = fd, .events = POLLIN } };
	int bits = 0;

	if (wslay_event_want_read(w->ctx) && !w->full &&
		wslay_event_get_queued_msg_count(w->ctx) <= PONGS_MAX)
		p[0].events |= POLLIN;
	if (wslay_event_want_write(w->ctx))
		p[0].events |= POLLOUT;
	if (w->r)
		bits = req_poll(w->r, p, 2, timeout_ms);
	else
		poll(p, 2, timeout_ms);
	if (fd >= 0 && p[1].revents)
		bits |= REQ_READY;
	if ((p[0].revents & (POLLHUP | POLLERR | POLLNVAL)) && !(p[0].revents & POLLIN))
		w->broken = true;
	return bits;
}

/* Is the other side there at all? */
static void keep_alive(struct ws *w)
{
	struct wslay_event_msg ping = { .opcode = WSLAY_PING };
	int64_t now = clock_mono_ns();

	if (now - w->heard > DEAD_NS)
		w->broken = true;
	if (now - w->heard < PING_NS || now - w->pinged < PING_NS)
		return;
	w->pinged = now;
	wslay_event_queue_msg(w->ctx, &ping);
	flush(w);
}

static void goodbye(struct ws *w, unsigned code, const char *why)
{
	wslay_event_queue_close(w->ctx, (uint16_t)code, (const uint8_t *)why, strnlen(why, 120));
	flush(w);
}

/* ---- sending ---- */

int ws_send(struct ws *w, int kind, const void *p, size_t n, struct den_err *err)
{
	struct wslay_event_msg m = { .opcode = kind == WS_TEXT ? WSLAY_TEXT_FRAME
							       : WSLAY_BINARY_FRAME,
		.msg = p,
		.msg_length = n };

	if (kind == WS_TEXT && !utf8_valid(p, n, NULL))
		return den_fail(err, DEN_INTERNAL, 0, "a WebSocket text that is not UTF-8");
	if (w->broken || wslay_event_queue_msg(w->ctx, &m) < 0)
		return den_fail(err, DEN_CONFLICT, 0, "the client hung up");
	flush(w);
	while (!w->broken && wslay_event_want_write(w->ctx)) {
		w->full =
			w->inbox_bytes >= BACKLOG_MAX; /* it may be writing too, and wait for us */
		if (ws_poll(w, -1, 1000) & REQ_GONE)
			w->broken = true;
		pump(w);
		keep_alive(w);
	}
	return w->broken ? den_fail(err, DEN_CONFLICT, 0, "the client hung up") : 0;
}

/* ---- receiving ---- */

static int give(struct ws *w, const char **ret, size_t *n)
{
	struct message *m = CONTAINER_OF(w->inbox.next, struct message, link);

	list_remove(&m->link);
	w->inbox_bytes -= m->n + sizeof(*m);
	w->current = m;
	*ret = m->bytes;
	*n = m->n;
	return m->kind << 4;
}

int ws_next(struct ws *w, int fd, int timeout_ms, const char **ret, size_t *n)
{
	int64_t until = clock_mono_ns() + timeout_ms * NS_PER_MS;

	free(w->current);
	w->current = NULL;
	w->full = !list_empty(&w->inbox);
	for (;;) {
		int64_t left = timeout_ms < 0 ? INT64_MAX : until - clock_mono_ns();
		int bits;

		pump(w);
		if (!list_empty(&w->inbox))
			return give(w, ret, n);
		if (over(w))
			return -1;
		bits = ws_poll(w, fd, left <= 0 ? 0 : (int)MIN(left / NS_PER_MS + 1, 5000));
		if (bits & REQ_READY)
			return 1;
		if (bits & REQ_STOP)
			goodbye(w, 1001, "the server is ending; connect again");
		else if (bits & REQ_KICK)
			goodbye(w, 1001, "the box is gone");
		if (bits)
			return -1;
		keep_alive(w);
		pump(w);
		if (left <= 0 && list_empty(&w->inbox) && !over(w))
			return 0;
	}
}

/* What the client still sent is read, or a reset would overtake our last frame. */
static void drain(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	char waste[4096];

	shutdown(fd, SHUT_WR);
	for (int turns = 0; turns < 1000 && poll(&p, 1, 200) > 0; turns++)
		if (recv(fd, waste, sizeof(waste), MSG_DONTWAIT) <= 0)
			return;
}

void ws_close(struct ws *w, unsigned code, const char *why)
{
	int64_t until = clock_mono_ns() + CLOSE_MS * NS_PER_MS;

	if (!w->broken && !wslay_event_get_close_sent(w->ctx))
		goodbye(w, code, why ? why : "");
	/* the other side answers; whoever closes first may lose what is still on its way */
	while (!over(w) && clock_mono_ns() < until) {
		if (ws_poll(w, -1, 100) & REQ_GONE)
			break;
		w->full = false;
		pump(w);
	}
	if (!w->broken)
		drain(w->fd);
	list_for_each_safe (l, next, &w->inbox)
		free(CONTAINER_OF(l, struct message, link));
	free(w->current);
	wslay_event_context_free(w->ctx);
	close(w->fd);
	free(w);
}
