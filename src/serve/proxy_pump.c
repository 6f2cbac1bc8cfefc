#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "fd.h"
#include "mem.h"
#include "proxy.h"

#define PIECE (64U << 10)
#define LOOK_MS 1000 /* so often we look whether the server ends or the box was killed */

/* One direction. It ends when its source has ended and all of it is written: the other may go on (a half-closed
 * connection is a way to say "that was all" in some protocols). */
struct way {
	int from, to;
	char *buf;
	size_t have, done;
	bool ended; /* the source */
	bool closed;
};

static bool way_broken(ssize_t n)
{
	return n < 0 && errno != EAGAIN && errno != EINTR;
}

/* False: it broke. */
static bool way_move(struct way *w)
{
	if (!w->ended && w->have == w->done) {
		ssize_t n = recv(w->from, w->buf, PIECE, MSG_DONTWAIT);

		if (way_broken(n))
			return false;
		w->done = 0;
		w->have = n > 0 ? (size_t)n : 0;
		w->ended = n == 0;
	}
	if (w->done < w->have) {
		ssize_t n = send(w->to, w->buf + w->done, w->have - w->done, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (way_broken(n))
			return false;
		if (n > 0)
			w->done += (size_t)n;
	}
	if (w->ended && w->done == w->have && !w->closed) {
		shutdown(w->to, SHUT_WR);
		w->closed = true;
	}
	return true;
}

static void way_wants(const struct way *w, struct pollfd *from, struct pollfd *to)
{
	if (w->done < w->have)
		to->events |= POLLOUT;
	else if (!w->ended)
		from->events |= POLLIN;
}

void proxy_pump(struct req *r, int client, int box, const void *first, size_t n)
{
	auto_free char *down_buf = mem_alloc(MAX(PIECE, n)), *up_buf = mem_alloc(PIECE);
	struct way down = { .from = box, .to = client, .buf = down_buf, .have = n };
	struct way up = { .from = client, .to = box, .buf = up_buf };

	memcpy(down_buf, first, n);
	while (!down.closed || !up.closed) {
		struct pollfd f[2] = { { .fd = client }, { .fd = box } };

		if (!way_move(&down) || !way_move(&up))
			return;
		/* whoever has ended for good is not waited for in the other direction */
		if (down.closed && up.done == up.have && up.ended)
			return;
		way_wants(&down, &f[1], &f[0]);
		way_wants(&up, &f[0], &f[1]);
		if (poll(f, 2, LOOK_MS) == 0 && (req_wait(r, -1, 0) & (REQ_KICK | REQ_STOP)))
			return;
		if ((f[0].revents & POLLERR) || (f[1].revents & POLLERR) || (f[0].revents & POLLNVAL))
			return;
	}
}
