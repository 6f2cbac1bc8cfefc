/* A connection to the keeper of a box, which is found or started, and requests on it. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "fd.h"
#include "lib.h"
#include "mem.h"
#include "place.h"

#define CONNECT_TRIES 400
#define CONNECT_WAIT_MS 10
#define ASK_TRIES 3

static void on_progress(struct den_box *box, const struct wire_frame *f)
{
	struct wire_reader rd = wire_reader(f->p, f->len);
	auto_free char *text = NULL;
	struct wire_value v;

	while (wire_next(&rd, &v, NULL) > 0)
		if (v.tag == F_MSG)
			(void)wire_str(&v, 4096, &text, NULL);
	if (text && box->d->progress)
		box->d->progress(text, box->d->progress_user);
}

static void on_frame(struct conn *c, const struct wire_frame *f)
{
	struct den_box *box = CONTAINER_OF(c, struct den_box, conn);
	struct reply *r = box->reply;

	if (f->chan) {
		exec_frame(box, f);
		return;
	}
	if (f->type == WM_PROGRESS)
		on_progress(box, f);
	if (!r || r->done)
		return;
	if (f->type == WM_OK || (r->more && f->type == r->more))
		buf_add(&r->data, f->p, f->len);
	if (f->type == WM_OK)
		r->done = true;
	if (f->type == WM_FAIL) {
		r->done = true;
		r->result = wire_get_err(f->p, f->len, &r->err);
	}
}

static void on_close(struct conn *c, const struct den_err *why)
{
	struct den_box *box = CONTAINER_OF(c, struct den_box, conn);

	(void)why;
	box->connected = false;
	box->lost = true; /* acted on by box_step(), not from inside the loop */
}

struct den_box *box_new(struct den *d, struct den_err *err)
{
	struct den_box *box = mem_new(struct den_box);

	box->d = d;
	list_init(&box->execs);
	list_init(&box->done);
	if (loop_new(&box->loop, err) < 0) {
		free(box);
		return NULL;
	}
	return box;
}

int box_take_conn(struct den_box *box, int fd, struct den_err *err)
{
	buf_free(&box->conn.rx);
	box->conn = (struct conn){ .on_frame = on_frame, .on_close = on_close };
	if (conn_open(&box->conn, box->loop, fd, err) < 0)
		return -1;
	box->connected = true;
	box->lost = false;
	return 0;
}

static void nap(int ms)
{
	struct timespec t = { .tv_nsec = ms * 1000000L };

	nanosleep(&t, NULL);
}

/* A keeper that was just started says whether it has the box. */
static int await_keeper(struct den_box *box, struct den_err *err)
{
	struct reply r = { 0 };

	box->reply = &r;
	while (!r.done && box->connected)
		if (loop_step(box->loop, -1, err) < 0)
			break;
	box->reply = NULL;
	buf_free(&r.data);
	if (r.done && r.result == 0)
		return 0;
	if (r.done)
		*err = r.err;
	else
		den_fail(err, DEN_CONFLICT, EAGAIN, "the keeper went away while it started");
	conn_close(&box->conn);
	box->connected = false;
	return -1;
}

static int dial_once(struct den_box *box, struct den_err *err)
{
	bool started;
	int fd;

	if (dial(box->d, &box->id, &fd, &started, err) < 0) {
		if (err->code == DEN_NOT_FOUND)
			err->sys = 0; /* no box: not to be tried again */
		return -1;
	}
	if (box_take_conn(box, fd, err) < 0)
		return -1;
	return started ? await_keeper(box, err) : 0;
}

static int connect_once(struct den_box *box, struct den_err *err)
{
	auto_fd dir = -1;
	int fd;

	if (box->d->dial)
		return dial_once(box, err);
	if (den_need_state(box->d, false, err) < 0 ||
		place_box(box->d->fd, &box->id, &dir, err) < 0) {
		if (err->code == DEN_NOT_FOUND)
			den_fail(err, DEN_NOT_FOUND, 0, "no box '%s'; 'den ls' lists them",
				box->id.s);
		return -1;
	}
	if (place_connect(dir, PLACE_KEEPER_SOCK, &fd, err) == 0)
		return box_take_conn(box, fd, err);
	if (err->sys != ENOENT && err->sys != ECONNREFUSED)
		return -1;
	keeper_reap(&box->keeper, false);
	if (keeper_spawn(box->d, &box->id, &fd, &box->keeper, err) < 0 ||
		box_take_conn(box, fd, err) < 0)
		return -1;
	return await_keeper(box, err);
}

int box_connect(struct den_box *box, struct den_err *err)
{
	struct den_err unheard;

	err = err ? err : &unheard;
	for (int i = 0; i < CONNECT_TRIES; i++) {
		if (connect_once(box, err) == 0) {
			auto_buf b = { 0 };

			if (!box->owner)
				return 0;
			wire_put_u64(&b, F_FLAGS, 1);
			return box_ask(box, WM_HELLO, &b, 0, NULL, err);
		}
		/* two keepers raced for the lock, or one is just leaving: look again */
		if (err->code != DEN_CONFLICT && err->sys != ENOENT && err->sys != ECONNREFUSED &&
			err->sys != ECONNRESET && err->sys != EPIPE)
			return -1;
		nap(CONNECT_WAIT_MS);
	}
	return -1;
}

/* Runs the loop once. A lost keeper is replaced, if there is anything to go on with. */
int box_step(struct den_box *box, int timeout_ms, struct den_err *err)
{
	struct den_err why;
	int r;

	if (!box->connected && !box->lost)
		return den_fail(err, DEN_CONFLICT, 0, "not connected to the box");
	if (!box->lost) {
		box->depth++;
		r = loop_step(box->loop, timeout_ms, err);
		box->depth--;
		if (r < 0)
			return -1;
	}
	if (!box->lost)
		return 0;
	box->lost = false;
	if (list_empty(&box->execs) || box->deleted)
		return 0;
	r = box_connect(box, &why);
	exec_reconnect(box, r == 0, &why);
	return 0;
}

int den_dispatch(struct den_box *box, int timeout_ms, struct den_err *err)
{
	return box_step(box, timeout_ms, err);
}

int den_poll_fd(const struct den_box *box)
{
	return loop_fd(box->loop);
}

static int ms_until(int64_t until)
{
	return until ? (int)MAX((until - clock_mono_ns()) / NS_PER_MS, 0) : -1;
}

static int ask_once(struct den_box *box, uint8_t type, const struct buf *req, int fd,
	struct reply *r, struct den_err *err)
{
	if (!box->connected && box_connect(box, err) < 0)
		return -1;
	box->reply = r;
	conn_send_fds(&box->conn, type, 0, req ? req->p : NULL, req ? req->len : 0, &fd, fd >= 0);
	while (!r->done && box->connected) {
		int step;

		box->depth++;
		step = loop_step(box->loop, ms_until(r->until), err);
		box->depth--;
		if (step < 0)
			break;
		if (!r->done && r->until && clock_mono_ns() >= r->until) {
			conn_close(&box->conn);
			box->connected = false;
			box->reply = NULL;
			return den_fail(err, DEN_TIMEOUT, ETIMEDOUT, "the box's keeper is busy");
		}
		if (r->then && r->data.len) {
			r->then(&r->data, r->user);
			r->then = NULL;
			r->data.len = 0;
		}
	}
	box->reply = NULL;
	if (!r->done)
		return den_fail(err, DEN_INTERNAL, EPIPE, "the keeper went away");
	if (r->result < 0) {
		*err = r->err;
		return -1;
	}
	return 0;
}

/* What the first try may have done before its keeper died is no failure of the second. */
static bool done_before(uint8_t type, const struct den_err *err)
{
	switch (type) {
	case WM_DELETE:
		return err->code == DEN_NOT_FOUND;
	case WM_START:
	case WM_STOP:
	case WM_PAUSE:
	case WM_RESUME:
	case WM_HIBERNATE:
		return err->code == DEN_CONFLICT;
	default:
		return false;
	}
}

/* May be asked again of a new keeper when the old one may have done it before it died. */
static bool may_repeat(uint8_t type)
{
	return type != WM_CREATE && type != WM_READY && type != WM_CLAIM && type != WM_ROLLBACK &&
	       type != WM_MERGE_END && type != WM_BAKE;
}

/* Before something that cannot be asked for twice: a keeper may be leaving just now, and then the
 * next one is met. One that has answered a client stays as long as that client does. */
static int be_met(struct den_box *box, struct den_err *err)
{
	return box_ask(box, WM_HELLO, NULL, 0, NULL, err);
}

int box_ask_stream(struct den_box *box, uint8_t type, const struct buf *req, struct buf *out,
	int *ret, struct den_err *err)
{
	struct reply r = { 0 };
	int fds[2], res;

	if (box->reply)
		return den_fail(err, DEN_CONFLICT, 0, "called from inside a callback");
	if (box->id.s[0] && be_met(box, err) < 0)
		return -1;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0)
		return den_fail_sys(err, errno, "socketpair");
	res = ask_once(box, type, req, fds[1], &r, err);
	close(fds[1]);
	if (res == 0 && out)
		*out = r.data;
	else
		buf_free(&r.data);
	if (res < 0) {
		close(fds[0]);
		return -1;
	}
	*ret = fds[0];
	return 0;
}

int box_ask_between(struct den_box *box, uint8_t type, const struct buf *req, uint8_t more,
	void (*then)(const struct buf *part, void *user), void *user, struct buf *out, struct den_err *err)
{
	struct reply r = { .more = more, .then = then, .user = user };
	int res;

	if (box->reply)
		return den_fail(err, DEN_CONFLICT, 0, "called from inside a callback");
	if (be_met(box, err) < 0)
		return -1;
	res = ask_once(box, type, req, -1, &r, err);
	if (res == 0)
		*out = r.data;
	else
		buf_free(&r.data);
	return res;
}

int box_ask_soon(struct den_box *box, uint8_t type, int ms, struct buf *out, struct den_err *err)
{
	struct reply r = { .until = clock_mono_ns() + ms * NS_PER_MS };
	int res;

	if (box->reply)
		return den_fail(err, DEN_CONFLICT, 0, "called from inside a callback");
	res = ask_once(box, type, NULL, -1, &r, err);
	if (res == 0)
		*out = r.data;
	else
		buf_free(&r.data);
	return res;
}

int box_ask(struct den_box *box, uint8_t type, const struct buf *req, uint8_t more, struct buf *out,
	struct den_err *err)
{
	struct den_err unheard;

	err = err ? err : &unheard;
	if (!may_repeat(type) && box->id.s[0] && be_met(box, err) < 0)
		return -1;
	for (int i = 0;; i++) {
		struct reply r = { .more = more };
		int res;

		if (box->reply)
			return den_fail(err, DEN_CONFLICT, 0, "called from inside a callback");
		res = ask_once(box, type, req, -1, &r, err);
		if (res == 0 && out)
			*out = r.data;
		else
			buf_free(&r.data);
		if (res == 0 || (i > 0 && done_before(type, err)))
			return 0;
		if (r.done || err->sys != EPIPE || !may_repeat(type) || i == ASK_TRIES)
			return -1;
		if (box->lost) { /* the others go on with the new keeper, too */
			struct den_err why;

			if (box_step(box, 0, &why) < 0)
				return -1;
		}
	}
}
