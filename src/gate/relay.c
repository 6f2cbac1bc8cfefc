/* Bytes that nobody looks at: from socket to socket through a pipe, without a copy. */
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>

#include "fd.h"
#include "flow.h"

#define PIECE (256U << 10)
#define ROUNDS 8 /* in one go, so that others get their turn */
#define SHORT (64U << 10) /* who had less than this has no more for now, most probably */
#define POOL 64

static int pool[POOL][2];
static unsigned pooled;

/* Pipes are only held while there is something in them: ten thousand idle connections have none. */
static int pipe_get(struct relay_dir *d)
{
	if (d->pipe[0] >= 0)
		return 0;
	if (pooled) {
		pooled--;
		d->pipe[0] = pool[pooled][0];
		d->pipe[1] = pool[pooled][1];
		return 0;
	}
	if (pipe2(d->pipe, O_CLOEXEC | O_NONBLOCK) < 0)
		return -1;
	(void)fcntl(d->pipe[1], F_SETPIPE_SZ, PIECE); /* smaller works as well */
	return 0;
}

static void pipe_put(struct relay_dir *d)
{
	if (d->pipe[0] < 0 || d->held)
		return;
	if (pooled < POOL) {
		pool[pooled][0] = fd_take(&d->pipe[0]);
		pool[pooled][1] = fd_take(&d->pipe[1]);
		pooled++;
		return;
	}
	fd_close(&d->pipe[0]);
	fd_close(&d->pipe[1]);
}

void relay_free(struct flow *f)
{
	for (int i = 0; i < 2; i++) {
		if (!f->dir[i].held)
			pipe_put(&f->dir[i]);
		fd_close(&f->dir[i].pipe[0]);
		fd_close(&f->dir[i].pipe[1]);
	}
}

/* Nothing can be written there any more: what was on its way is lost. */
static void dir_break(struct relay_dir *d)
{
	fd_close(&d->pipe[0]);
	fd_close(&d->pipe[1]);
	d->held = 0;
	d->eof = d->shut = d->broken = true;
}

/* One filling of the pipe. 1: there may be more; 0: not now; -1: no more, ever. */
static int fill(struct flow *f, int which, int from)
{
	struct relay_dir *d = &f->dir[which];
	ssize_t n;

	if (pipe_get(d) < 0)
		return -1;
	n = splice(from, NULL, d->pipe[1], NULL, flow_allowance(f, PIECE), SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
	if (n < 0)
		return errno == EAGAIN ? 0 : -1;
	d->eof = n == 0;
	d->held = (size_t)n;
	if (n && !flow_count(f, (size_t)n, which == 0))
		return -1;
	return n == 0 || (size_t)n >= SHORT;
}

/* -1: the connection is broken (the flow may be over). */
static int move(struct flow *f, int which)
{
	struct relay_dir *d = &f->dir[which];
	int from = which == 0 ? f->box.fd : f->up.fd, to = which == 0 ? f->up.fd : f->box.fd, more = 1;

	d->wants_out = false;
	d->wants_in = !d->shut;
	for (int i = 0; i < ROUNDS && more && !d->shut; i++) {
		if (!d->held && !d->eof) {
			if (flow_throttle(f))
				break;
			more = fill(f, which, from);
			if (more < 0)
				return -1;
		}
		if (d->held) {
			ssize_t n = splice(d->pipe[0], NULL, to, NULL, d->held, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);

			if (n < 0 && errno != EAGAIN) {
				dir_break(d); /* what it said before it broke can still be read */
				break;
			}
			if (n > 0)
				d->held -= (size_t)n;
			if (d->held) {
				d->wants_out = true;
				break;
			}
		}
		if (d->eof) {
			shutdown(to, SHUT_WR);
			d->shut = true;
		}
	}
	d->wants_in = !d->shut && !d->held;
	pipe_put(d);
	return 0;
}

void relay_go(struct flow *f, bool out, bool in)
{
	const uint32_t wrong = EPOLLERR | EPOLLHUP;
	uint32_t box = f->box_ready, up = f->up_ready;
	bool all = !box && !up; /* not because of an event */

	f->box_ready = f->up_ready = 0;
	if (out && (all || (box & ~(uint32_t)EPOLLOUT) || (up & (EPOLLOUT | wrong))) && move(f, 0) < 0) {
		flow_end(f, "broken", true); /* nothing, if it is over already */
		return;
	}
	if (in && (all || (up & ~(uint32_t)EPOLLOUT) || (box & (EPOLLOUT | wrong))) && move(f, 1) < 0) {
		flow_end(f, "broken", true);
		return;
	}
	if (f->dir[0].shut && f->dir[1].shut) {
		bool broken = f->dir[0].broken || f->dir[1].broken;

		flow_end(f, broken ? "broken" : NULL, broken);
		return;
	}
	box = (out && f->dir[0].wants_in ? EPOLLIN : 0U) | (f->dir[1].wants_out ? EPOLLOUT : 0U);
	up = (in && f->dir[1].wants_in ? EPOLLIN : 0U) | (f->dir[0].wants_out ? EPOLLOUT : 0U);
	if (f->check == CHECK_WAIT)
		box |= EPOLLIN;
	if (f->throttled)
		box = up = 0;
	flow_watch(f, &f->box, box);
	flow_watch(f, &f->up, up);
	/* One that was reset is no longer watched: what is left of it is fetched without being told. */
	if ((box && !f->box.added) || (up && !f->up.added))
		flow_again(f);
}
