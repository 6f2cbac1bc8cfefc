/* Execs: one channel each, streamed with credit, taken up again when a keeper dies. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "fd.h"
#include "lib.h"
#include "mem.h"
#include "parse.h"

const char *exec_reason_name(enum exec_reason r)
{
	return (unsigned)r < EXEC_REASONS ? exec_reason_str[r] : "";
}

#define START_TRIES 3

static struct den_exec *exec_by_chan(struct den_box *box, uint32_t chan)
{
	list_for_each(l, &box->execs) {
		struct den_exec *e = CONTAINER_OF(l, struct den_exec, link);

		if (e->chan == chan)
			return e;
	}
	return NULL;
}

static void exec_free(struct den_exec *e)
{
	buf_free(&e->in_kept);
	buf_free(&e->spec);
	free(e);
}

static void free_later_cb(struct loop_deferred *d)
{
	exec_free(CONTAINER_OF(d, struct den_exec, free_later));
}

static void exec_finish(struct den_exec *e, const struct den_err *err)
{
	if (e->ended)
		return;
	e->ended = true;
	if (err)
		e->err = *err;
	else
		e->err.code = DEN_OK;
	list_remove(&e->link);
	list_append(&e->box->done, &e->link);
	if (e->ops && e->ops->ended)
		e->ops->ended(e, err ? NULL : &e->result, err, e->user);
}

/* Some stdin bytes may have been under way to a keeper that died: init says how many it has. */
static void resend_input(struct den_exec *e, uint64_t taken)
{
	uint64_t missing = e->in_sent > taken ? e->in_sent - taken : 0;

	e->rejoining = false;
	if (missing > e->in_kept.len) /* cannot be, unless somebody else feeds it as well */
		missing = 0;
	buf_consume(&e->in_kept, e->in_kept.len - (size_t)missing);
	for (size_t at = 0; at < e->in_kept.len;) {
		size_t part = MIN(e->in_kept.len - at, (size_t)WIRE_MAX_DATA);

		conn_send(&e->box->conn, WM_IN, e->chan, e->in_kept.p + at, part);
		at += part;
	}
	e->in_room = WIRE_WINDOW - missing;
	if (e->in_eof)
		conn_send(&e->box->conn, WM_IN_EOF, e->chan, NULL, 0);
	if (e->in_wanted && e->ops && e->ops->writable) {
		e->in_wanted = false;
		e->ops->writable(e, e->user);
	}
}

static void give_credit(struct den_exec *e, size_t n)
{
	auto_buf b = { 0 };

	e->eaten += n;
	if (e->eaten < WIRE_WINDOW / 4)
		return;
	wire_put_u64(&b, F_CREDIT, e->eaten);
	conn_send_buf(&e->box->conn, WM_CREDIT, e->chan, &b);
	e->eaten = 0;
}

static void on_started(struct den_exec *e, const struct wire_frame *f)
{
	uint64_t off[2] = { wire_find_u64(f->p, f->len, F_OFF_OUT, 0), wire_find_u64(f->p, f->len, F_OFF_ERR, 0) };
	bool again = e->started;

	if (again && e->live && !e->rejoining) /* it was too slow: this takes room like output */
		give_credit(e, WIRE_GAP_COST);
	if (e->live && !again) { /* nothing that was before is missed */
		e->pos[0] = off[0];
		e->pos[1] = off[1];
	}
	e->started = true;
	e->number = wire_find_u64(f->p, f->len, F_EXEC, 0);
	e->pid = (pid_t)wire_find_u64(f->p, f->len, F_PID, 0);
	e->input = wire_find_u64(f->p, f->len, F_FLAGS, 0) & (EXEC_STDIN | EXEC_TTY);
	for (int i = 0; i < 2; i++) {
		if (off[i] > e->pos[i])
			e->lost += off[i] - e->pos[i];
		e->pos[i] = off[i];
	}
	if (!again && e->ops && e->ops->started)
		e->ops->started(e, e->pid, e->user);
	buf_free(&e->spec);
	if (e->rejoining && !e->unref)
		resend_input(e, wire_find_u64(f->p, f->len, F_SIZE, 0));
	if (e->detach) {
		e->result = (struct den_exec_result){ .exited = true, .reason = "" };
		exec_finish(e, NULL);
	}
}

static void on_output(struct den_exec *e, int i, const struct wire_frame *f)
{
	e->pos[i] += f->len;
	if (e->ops && e->ops->output)
		e->ops->output(e, i + 1, f->p, f->len, e->user);
	if (e->box && !e->ended && !e->unref) /* the callback may have let go of it */
		give_credit(e, f->len);
}

static void on_ended(struct den_exec *e, const struct wire_frame *f)
{
	struct exec_result r;
	struct den_err err;

	if (exec_result_get(f->p, f->len, &r, &err) < 0) {
		exec_finish(e, &err);
		return;
	}
	e->result = (struct den_exec_result){
		.exited = r.exited,
		.status = (int)r.status,
		.reason = exec_reason_name(r.reason),
		.oom_kills = r.oom_kills,
		.out_bytes = r.off_out,
		.err_bytes = r.off_err,
		.lost_bytes = e->lost,
	};
	exec_finish(e, NULL);
}

void exec_frame(struct den_box *box, const struct wire_frame *f)
{
	struct den_exec *e = exec_by_chan(box, f->chan);
	struct den_err err;

	if (!e)
		return;
	switch (f->type) {
	case WM_STARTED:
		on_started(e, f);
		break;
	case WM_OUT:
	case WM_ERR:
		on_output(e, f->type == WM_ERR, f);
		break;
	case WM_IN_CREDIT:
		e->in_room = MIN(e->in_room + wire_find_u64(f->p, f->len, F_CREDIT, 0), (uint64_t)WIRE_WINDOW);
		buf_consume(&e->in_kept, (size_t)wire_find_u64(f->p, f->len, F_CREDIT, 0));
		if (!e->in_kept.len)
			buf_free(&e->in_kept);
		if (e->in_wanted && e->ops && e->ops->writable) {
			e->in_wanted = false;
			e->ops->writable(e, e->user);
		}
		break;
	case WM_EXIT:
		on_ended(e, f);
		break;
	case WM_FAIL:
		wire_get_err(f->p, f->len, &err);
		exec_finish(e, &err);
		break;
	}
}

static void send_attach(struct den_exec *e, const char *ref)
{
	auto_buf b = { 0 };
	uint64_t pid;

	if (!ref)
		wire_put_u64(&b, F_EXEC, e->number);
	else if (parse_u64(ref, 1, 1 << 30, &pid, NULL) == 0)
		wire_put_u64(&b, F_PID, pid);
	else
		wire_put_str(&b, F_TAG, ref);
	wire_put_u64(&b, F_OFF_OUT, e->pos[0]);
	wire_put_u64(&b, F_OFF_ERR, e->pos[1]);
	wire_put_u64(&b, F_CREDIT, WIRE_WINDOW);
	if (e->attached)
		wire_put_u64(&b, F_FLAGS, ATTACH_OTHER | (e->live ? ATTACH_LIVE : 0));
	conn_send_buf(&e->box->conn, WM_ATTACH, e->chan, &b);
}

void exec_reconnect(struct den_box *box, bool ok, const struct den_err *why)
{
	list_for_each_safe(l, next, &box->execs) {
		struct den_exec *e = CONTAINER_OF(l, struct den_exec, link);
		struct den_err err;

		if (ok && e->started && e->number) {
			e->eaten = 0;
			e->rejoining = true;
			send_attach(e, NULL);
			continue;
		}
		/* runs once, however often it is asked for */
		if (ok && !e->started && e->spec.len && e->tries++ < START_TRIES) {
			e->rejoining = true;
			conn_send_buf(&box->conn, WM_EXEC, e->chan, &e->spec);
			continue;
		}
		if (ok)
			den_fail(&err, DEN_INTERNAL, EPIPE,
				"the keeper died before it said whether the program started");
		else
			err = *why;
		exec_finish(e, &err);
	}
}

static struct den_exec *exec_new(struct den_box *box, const struct den_exec_ops *ops, void *user)
{
	struct den_exec *e = mem_new(struct den_exec);

	e->box = box;
	e->ops = ops;
	e->user = user;
	e->in_room = WIRE_WINDOW;
	do
		e->chan = ++box->next_chan;
	while (e->chan == 0 || exec_by_chan(box, e->chan));
	list_append(&box->execs, &e->link);
	return e;
}

int exec_start_raw(struct den_box *box, const struct exec_spec *s, const struct den_exec_ops *ops,
	void *user, struct den_exec **ret, struct den_err *err)
{
	struct exec_spec asked = *s;
	auto_buf b = { 0 };
	struct den_exec *e;

	if (getrandom(&asked.nonce, sizeof(asked.nonce), 0) != sizeof(asked.nonce))
		asked.nonce = 0; /* then it cannot be asked for twice */
	exec_spec_put(&b, &asked);
	if (b.len > WIRE_MAX_PAYLOAD)
		return den_fail(err, DEN_INVALID, E2BIG, "arguments and environment are too long");
	if (!box->connected && box_connect(box, err) < 0)
		return -1;
	e = exec_new(box, ops, user);
	e->detach = s->flags & EXEC_DETACH;
	conn_send_buf(&box->conn, WM_EXEC, e->chan, &b);
	if (asked.nonce)
		buf_add(&e->spec, b.p, b.len);
	*ret = e;
	return 0;
}

int den_exec_start(struct den_box *box, const struct den_exec_opt *opt,
	const struct den_exec_ops *ops, void *user, struct den_exec **ret, struct den_err *err)
{
	struct exec_spec s = {
		.argv = (char **)opt->argv,
		.env = (char **)opt->env,
		.cwd = (char *)opt->cwd,
		.user = (char *)opt->user,
		.tag = (char *)opt->tag,
		.flags = opt->flags &
			 (DEN_EXEC_TTY | DEN_EXEC_STDIN | DEN_EXEC_DETACH | DEN_EXEC_KILL_ON_CLOSE),
		.rows = opt->rows,
		.cols = opt->cols,
		.timeout_ms = opt->timeout_ms,
		.cpu_ms = opt->cpu_ms,
		.grace_ms = opt->grace_ms,
		.max_output = opt->max_output,
		.keep = opt->keep,
		.credit = WIRE_WINDOW,
	};

	if (opt->size != sizeof(*opt))
		return den_fail(err, DEN_INVALID, 0, "den_exec_opt.size is not set");
	if (!opt->argv || !opt->argv[0])
		return den_fail(err, DEN_INVALID, 0, "nothing to run");
	if (opt->keep > EXEC_KEEP_MAX)
		return den_fail(err, DEN_INVALID, 0, "at most 64 MiB of output can be kept");
	return exec_start_raw(box, &s, ops, user, ret, err);
}

static int attach(struct den_box *box, const char *ref, bool live, const struct den_exec_ops *ops,
	void *user, struct den_exec **ret, struct den_err *err)
{
	struct den_exec *e;

	if (!ref[0])
		return den_fail(err, DEN_INVALID, 0, "no pid or tag was given");
	if (!box->connected && box_connect(box, err) < 0)
		return -1;
	e = exec_new(box, ops, user);
	e->attached = true;
	e->live = live;
	if (live)
		e->pos[0] = e->pos[1] = UINT64_MAX; /* from the end; STARTED says where that is */
	send_attach(e, ref);
	*ret = e;
	return 0;
}

int den_exec_attach(struct den_box *box, const char *ref, const struct den_exec_ops *ops,
	void *user, struct den_exec **ret, struct den_err *err)
{
	return attach(box, ref, false, ops, user, ret, err);
}

int den_exec_attach_live(struct den_box *box, const char *ref, const struct den_exec_ops *ops,
	void *user, struct den_exec **ret, struct den_err *err)
{
	return attach(box, ref, true, ops, user, ret, err);
}

uint64_t den_exec_lost(const struct den_exec *e)
{
	return e->lost;
}

bool den_exec_takes_input(const struct den_exec *e)
{
	return e->input;
}

static int check_open(const struct den_exec *e, struct den_err *err)
{
	if (!e->box || e->ended)
		return den_fail(err, DEN_CONFLICT, ESRCH, "the exec has ended");
	return 0;
}

ssize_t den_exec_write(struct den_exec *e, const void *data, size_t n, struct den_err *err)
{
	const char *p = data;
	size_t sent = 0;

	if (check_open(e, err) < 0)
		return -1;
	if (e->in_eof)
		return den_fail(err, DEN_CONFLICT, EPIPE, "stdin is closed");
	while (sent < n && e->in_room && e->box->connected && !e->rejoining) {
		size_t part = MIN(MIN(n - sent, (size_t)e->in_room), (size_t)WIRE_MAX_DATA);

		conn_send(&e->box->conn, WM_IN, e->chan, p + sent, part);
		buf_add(&e->in_kept, p + sent, part);
		e->in_sent += part;
		sent += part;
		e->in_room -= part;
	}
	if (sent < n)
		e->in_wanted = true;
	return (ssize_t)sent;
}

int den_exec_close_stdin(struct den_exec *e, struct den_err *err)
{
	if (check_open(e, err) < 0)
		return -1;
	e->in_eof = true;
	if (!e->rejoining) /* else it goes after what has to be sent again */
		conn_send(&e->box->conn, WM_IN_EOF, e->chan, NULL, 0);
	return 0;
}

int den_exec_resize(struct den_exec *e, uint16_t rows, uint16_t cols, struct den_err *err)
{
	auto_buf b = { 0 };

	if (check_open(e, err) < 0)
		return -1;
	wire_put_u64(&b, F_ROWS, rows);
	wire_put_u64(&b, F_COLS, cols);
	conn_send_buf(&e->box->conn, WM_RESIZE, e->chan, &b);
	return 0;
}

int den_exec_signal(struct den_exec *e, int sig, enum den_scope scope, struct den_err *err)
{
	auto_buf b = { 0 };

	if (check_open(e, err) < 0)
		return -1;
	wire_put_u64(&b, F_SIG, (uint64_t)sig);
	wire_put_u64(&b, F_SCOPE, scope);
	conn_send_buf(&e->box->conn, WM_SIGNAL, e->chan, &b);
	return 0;
}

int den_kill(
	struct den_box *box, const char *ref, int sig, enum den_scope scope, struct den_err *err)
{
	auto_buf b = { 0 };
	uint64_t pid;

	if (parse_u64(ref, 1, 1 << 30, &pid, NULL) == 0)
		wire_put_u64(&b, F_PID, pid);
	else
		wire_put_str(&b, F_TAG, ref);
	wire_put_u64(&b, F_SIG, (uint64_t)sig);
	wire_put_u64(&b, F_SCOPE, scope);
	return box_ask(box, WM_SIGNAL, &b, 0, NULL, err);
}

int den_exec_wait(struct den_exec *e, struct den_exec_result *ret, struct den_err *err)
{
	struct den_err unheard;

	err = err ? err : &unheard;
	while (!e->ended) {
		if (!e->box)
			return den_fail(err, DEN_CONFLICT, 0, "the box handle was closed");
		if (box_step(e->box, -1, err) < 0)
			return -1;
	}
	if (e->err.code != DEN_OK) {
		*err = e->err;
		return -1;
	}
	if (ret)
		*ret = e->result;
	return 0;
}

void den_exec_unref(struct den_exec *e)
{
	if (!e)
		return;
	if (e->box) {
		list_remove(&e->link);
		if (!e->ended && e->box->connected)
			conn_send(&e->box->conn, WM_DETACH, e->chan, NULL, 0);
	}
	e->unref = true;
	if (e->box && e->box->depth) { /* from inside one of its own callbacks */
		e->free_later.cb = free_later_cb;
		loop_defer(e->box->loop, &e->free_later);
		return;
	}
	exec_free(e);
}
