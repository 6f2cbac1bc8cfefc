/*
 * Into a box that has a kernel of its own: who is at the other end of its link (wire/boxlink.h) connects to a door of
 * init's, says to which port, and is let through to what listens on the box's loopback, as behind the other wall. So a
 * service that is meant for its neighbours alone is reached through a published port, and sees one of them.
 *
 *   KNOCK    way_knock()    the first bytes: which port
 *   CALLING  way_called()   127.0.0.1, and then ::1: a service listens on one of them or on both
 *   OPEN     way_move()     bytes, both ways, each end in its own time
 *
 * When the box is saved the ends outside are cut; then these ways end, and the services see that.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "boxlink.h"
#include "clock.h"
#include "fd.h"
#include "init.h"

#define WAYS_MAX 1024U
#define BACKLOG 512
#define PIECE 65536U
#define ROUNDS 4 /* in one go, so that others get their turn */
#define KNOCK_NS (60 * NS_PER_SEC)

enum way_state { WAY_KNOCK, WAY_CALLING, WAY_OPEN };

/* One direction; the buffer is there while something is in it. */
struct lane {
	char *p;
	size_t at, len;
	bool eof, shut;
	bool used; /* something went this way */
	bool drop; /* nobody takes it any more: it is read and thrown away */
};

struct way {
	struct list link;
	struct init *in;
	struct loop_source side[2]; /* 0: outside, 1: the service */
	struct lane lane[2];	    /* 0: inward, 1: outward */
	enum way_state state;
	struct link_knock knock;
	size_t knocked;
	bool six;
	struct loop_timer patience;
	struct loop_deferred later;
	bool ended;
};

static struct {
	struct init *in;
	struct loop_source listen;
	struct list ways;
	unsigned n;
} inward;

static void accepting(struct init *in, bool on)
{
	if (inward.listen.added)
		loop_set_events(in->loop, &inward.listen, on ? EPOLLIN : 0);
}

static void free_cb(struct loop_deferred *d)
{
	free(CONTAINER_OF(d, struct way, later));
}

static void end_side(struct way *w, int i, bool reset)
{
	struct linger now = { 1, 0 };
	int fd = w->side[i].fd;

	if (fd < 0)
		return;
	loop_remove(w->in->loop, &w->side[i]);
	if (reset)
		setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	close(fd);
	w->side[i].fd = -1;
}

static void way_end(struct way *w, bool reset)
{
	if (w->ended)
		return;
	w->ended = true;
	loop_timer_clear(&w->patience);
	for (int i = 0; i < 2; i++) {
		end_side(w, i, reset);
		free(w->lane[i].p);
	}
	list_remove(&w->link);
	inward.n--;
	accepting(w->in, true);
	w->later.cb = free_cb;
	loop_defer(w->in->loop, &w->later);
}

/* ---- bytes ---- */

/* -1: broken */
static int fill(struct lane *l, int from)
{
	ssize_t n;

	if (!l->p)
		l->p = mem_alloc(PIECE);
	n = recv(from, l->p, PIECE, MSG_DONTWAIT);
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -1;
	l->eof = n == 0;
	l->at = 0;
	l->len = (size_t)n;
	return 0;
}

/* -1: the other end is */
static int pass(struct lane *l, int to)
{
	ssize_t n = l->drop ? (ssize_t)l->len : send(to, l->p + l->at, l->len, MSG_DONTWAIT | MSG_NOSIGNAL);

	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -1;
	l->at += (size_t)n;
	l->len -= (size_t)n;
	l->used = l->used || n > 0;
	return 0;
}

static int lane_move(struct lane *l, int from, int to)
{
	for (int i = 0; i < ROUNDS && !l->shut; i++) {
		if (!l->len && !l->eof && fill(l, from) < 0)
			return -1;
		if (l->len) {
			if (pass(l, to) < 0)
				return -1;
			if (l->len)
				break;
		} else if (!l->eof) {
			break;
		}
		if (l->eof) {
			shutdown(to, SHUT_WR);
			l->shut = true;
		}
	}
	if (!l->len) {
		free(l->p);
		l->p = NULL;
	}
	return 0;
}

static uint32_t wanted(const struct lane *from_here, const struct lane *to_here)
{
	uint32_t e = (!from_here->eof && !from_here->len ? EPOLLIN : 0U) | (to_here->len ? EPOLLOUT : 0U);

	return e ? e : EPOLLET; /* one that hung up is reported though nobody asks: once is enough */
}

/*
 * A service may answer and close before it has read all: that breaks what goes to it, not what it said. What still
 * comes for it is dropped, its answer goes out, and then the end; not a reset, which would overtake the answer.
 */
static int way_both(struct way *w)
{
	struct lane *in = &w->lane[0], *out = &w->lane[1];

	if (lane_move(in, w->side[0].fd, w->side[1].fd) < 0) {
		if (in->drop || !in->len) /* it is the end outside that broke */
			return -1;
		in->drop = true;
		in->len = 0;
	}
	if (lane_move(out, w->side[1].fd, w->side[0].fd) < 0) {
		if (out->len || out->eof || !out->used)
			return -1;
		in->drop = true;
		in->len = 0;
		out->eof = out->shut = true;
		shutdown(w->side[0].fd, SHUT_WR);
	}
	if (in->drop && out->shut && !w->patience.when)
		loop_timer_set(w->in->loop, &w->patience, clock_mono_ns() + KNOCK_NS);
	return 0;
}

static void way_move(struct way *w)
{
	if (way_both(w) < 0) {
		way_end(w, true);
		return;
	}
	if (w->lane[0].shut && w->lane[1].shut) {
		way_end(w, false);
		return;
	}
	for (int i = 0; i < 2; i++)
		loop_set_events(w->in->loop, &w->side[i], wanted(&w->lane[i], &w->lane[!i]));
}

/* ---- the service ---- */

static void service_event(struct loop_source *s, uint32_t events);

static void tell(struct way *w, int e)
{
	uint8_t said = (uint8_t)e;

	if (w->knock.flags & LINK_TELL)
		(void)!send(w->side[0].fd, &said, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* 0: under way, or there; else errno */
static int call(struct way *w)
{
	struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	auto_fd fd = fd_move_up(socket(w->six ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), 16);
	struct den_err err;
	int on = 1, r;

	if (fd < 0)
		return errno;
	memcpy(&v4.sin_port, w->knock.port, 2);
	v6.sin6_port = v4.sin_port;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	r = w->six ? connect(fd, (struct sockaddr *)&v6, sizeof(v6)) : connect(fd, (struct sockaddr *)&v4, sizeof(v4));
	if (r < 0 && errno != EINPROGRESS)
		return errno;
	w->side[1] = (struct loop_source){ .fd = fd, .events = EPOLLOUT, .cb = service_event };
	if (loop_add(w->in->loop, &w->side[1], &err) < 0) {
		w->side[1].fd = -1;
		return ENOMEM;
	}
	(void)fd_take(&fd);
	w->state = WAY_CALLING;
	loop_set_events(w->in->loop, &w->side[0], EPOLLET); /* it waits with us */
	return 0;
}

static void call_next(struct way *w, int why)
{
	for (; why; why = call(w)) {
		if (w->six) {
			tell(w, why);
			way_end(w, !(w->knock.flags & LINK_TELL));
			return;
		}
		w->six = true;
	}
}

static void way_called(struct way *w)
{
	socklen_t n = sizeof(int);
	int e = 0;

	if (getsockopt(w->side[1].fd, SOL_SOCKET, SO_ERROR, &e, &n) < 0)
		e = errno;
	if (e) {
		end_side(w, 1, true);
		call_next(w, e);
		return;
	}
	tell(w, 0);
	loop_timer_clear(&w->patience);
	w->state = WAY_OPEN;
	way_move(w);
}

/* ---- who comes ---- */

static void way_knock(struct way *w)
{
	ssize_t n = recv(w->side[0].fd, (char *)&w->knock + w->knocked, sizeof(w->knock) - w->knocked, MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		way_end(w, true);
		return;
	}
	w->knocked += (size_t)n;
	if (w->knocked == sizeof(w->knock))
		call_next(w, call(w));
}

static void outside_event(struct loop_source *s, uint32_t events)
{
	struct way *w = CONTAINER_OF(s, struct way, side[0]);

	if (w->state == WAY_KNOCK)
		way_knock(w);
	else if (w->state == WAY_OPEN)
		way_move(w);
	else if (events & (EPOLLERR | EPOLLHUP))
		way_end(w, true);
}

static void service_event(struct loop_source *s, uint32_t events)
{
	struct way *w = CONTAINER_OF(s, struct way, side[1]);

	(void)events;
	if (w->state == WAY_OPEN)
		way_move(w);
	else
		way_called(w);
}

static void patience_cb(struct loop_timer *t)
{
	way_end(CONTAINER_OF(t, struct way, patience), true);
}

static void way_new(struct init *in, int fd)
{
	struct way *w = mem_new(struct way);
	struct den_err err;

	*w = (struct way){ .in = in, .patience.cb = patience_cb,
		.side = { { .fd = fd, .events = EPOLLIN, .cb = outside_event }, { .fd = -1 } } };
	list_append(&inward.ways, &w->link);
	inward.n++;
	loop_timer_set(in->loop, &w->patience, clock_mono_ns() + KNOCK_NS);
	if (loop_add(in->loop, &w->side[0], &err) < 0)
		way_end(w, true);
}

static void accept_cb(struct loop_source *s, uint32_t events)
{
	struct sockaddr_in from = { 0 };
	socklen_t len = sizeof(from);
	int fd, on = 1;

	(void)events;
	if (inward.n >= WAYS_MAX) { /* until one ends */
		accepting(inward.in, false);
		return;
	}
	/* not a number that init has for something else */
	fd = fd_move_up(accept4(s->fd, (struct sockaddr *)&from, &len, SOCK_CLOEXEC | SOCK_NONBLOCK), 16);
	if (fd < 0) {
		if (inward.n && (errno == EMFILE || errno == ENFILE))
			accepting(inward.in, false);
		return;
	}
	if (from.sin_addr.s_addr != htonl(LINK_GATE_V4)) { /* a program of the box: it knows the way */
		close(fd);
		return;
	}
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	way_new(inward.in, fd);
}

void inward_start(struct init *in)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(LINK_DOOR_PORT),
		.sin_addr.s_addr = htonl(LINK_BOX_V4) };
	auto_fd fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct den_err err;

	list_init(&inward.ways);
	/* without a link there is no such address, and nobody who would come */
	if (fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof(at)) < 0 || listen(fd, BACKLOG) < 0)
		return;
	inward.in = in;
	inward.listen = (struct loop_source){ .fd = fd_move_up(fd_take(&fd), 16), .events = EPOLLIN, .cb = accept_cb };
	(void)loop_add(in->loop, &inward.listen, &err);
}
