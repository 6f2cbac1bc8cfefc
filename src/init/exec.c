/*
 * Execs: streams with credit, input, and what is kept afterwards.
 *
 * Output goes from the pipe into a ring and from there to each subscriber within its credit. While
 * somebody follows, the pipe is not read further than the slowest follower allows: the program
 * blocks, memory does not grow. With nobody following, the ring keeps the last bytes and the
 * program runs on. Live followers do not count: one that is behind by more than the ring holds goes
 * on with what is there, and gets STARTED once more, which says where that is.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "clock.h"
#include "fd.h"
#include "init.h"
#include "strv.h"

#define ARGV_SHOWN 4000 /* bytes of a command line in a record */
#define ARG_COST 16     /* of an argument besides its bytes: the field's header, "..." */

struct exec *exec_by_pid(struct init *in, pid_t pid)
{
	list_for_each(l, &in->execs) {
		struct exec *x = CONTAINER_OF(l, struct exec, link);

		if (x->pid == pid && !x->ended)
			return x;
	}
	return NULL;
}

struct exec *exec_by_number(struct init *in, uint64_t number)
{
	list_for_each(l, &in->execs) {
		struct exec *x = CONTAINER_OF(l, struct exec, link);

		if (x->spec.exec == number)
			return x;
	}
	return NULL;
}

struct exec *exec_by_chan(struct init *in, uint32_t chan, struct sub **ret_sub)
{
	list_for_each(l, &in->execs) {
		struct exec *x = CONTAINER_OF(l, struct exec, link);

		list_for_each(k, &x->subs) {
			struct sub *s = CONTAINER_OF(k, struct sub, link);

			if (s->chan == chan) {
				*ret_sub = s;
				return x;
			}
		}
	}
	return NULL;
}

bool exec_any_running(struct init *in)
{
	list_for_each(l, &in->execs)
		if (!CONTAINER_OF(l, struct exec, link)->ended)
			return true;
	return false;
}

/* The beginning of a command line, "..." where it was cut: a record must stay small, since all of
 * them travel when a keeper says hello. */
static char **argv_short(char *const *argv)
{
	size_t left = ARGV_SHOWN;
	char **out = NULL;

	for (size_t i = 0; argv[i]; i++) {
		size_t n = strlen(argv[i]);
		auto_buf b = { 0 };

		/* with a place for a cut one after it */
		if (n + (argv[i + 1] ? 2 : 1) * ARG_COST <= left) {
			strv_add(&out, argv[i]);
			left -= n + ARG_COST;
			continue;
		}
		n = MIN(n, left - ARG_COST);
		while (n && ((unsigned char)argv[i][n] & 0xc0) == 0x80)
			n--; /* not inside a character */
		buf_add(&b, argv[i], n);
		buf_addstr(&b, "...");
		strv_add(&out, buf_str(&b));
		break;
	}
	return out;
}

void exec_put_info(struct buf *b, const struct exec *x)
{
	auto_buf rec = { 0 };
	struct exec_info i = {
		.exec = x->spec.exec,
		.pid = (uint64_t)x->pid,
		.argv = x->shown,
		.tag = x->spec.tag,
		.user = x->spec.user,
		.cwd = x->spec.cwd,
		.flags = x->spec.flags,
		.started_ms = x->started_ms,
		.timeout_ms = x->spec.timeout_ms,
		.cpu_ms = x->spec.cpu_ms,
		.grace_ms = x->spec.grace_ms,
		.nonce = x->spec.nonce,
		.ended_ms = x->closed ? x->ended_ms : 0,
		.result = x->result,
	};

	i.result.off_out = x->out[0].ring.head;
	i.result.off_err = x->out[1].ring.head;
	exec_info_put(&rec, &i);
	wire_put_bytes(b, F_RECORD, rec.p, rec.len);
}

static void stream_close(struct init *in, struct stream *s)
{
	if (s->src.fd < 0)
		return;
	loop_remove(in->loop, &s->src);
	fd_close(&s->src.fd);
}

static void report_close(struct exec *x)
{
	loop_remove(x->init->loop, &x->report);
	fd_close(&x->report.fd);
}

static void free_later_cb(struct loop_deferred *d)
{
	struct exec *x = CONTAINER_OF(d, struct exec, free_later);

	exec_spec_free(&x->spec);
	strv_free(x->shown);
	free(x->failure);
	free(x->marks);
	free(x);
}

void exec_free(struct exec *x)
{
	while (!list_empty(&x->subs))
		exec_unsubscribe(x, CONTAINER_OF(x->subs.next, struct sub, link));
	loop_timer_clear(&x->held);
	loop_timer_clear(&x->hold);
	report_close(x);
	input_close(x);
	for (int i = 0; i < 2; i++) {
		stream_close(x->init, &x->out[i]);
		ring_free(&x->out[i].ring);
	}
	list_remove(&x->link);
	x->free_later.cb = free_later_cb;
	loop_defer(x->init->loop, &x->free_later);
}

void exec_unsubscribe(struct exec *x, struct sub *s)
{
	if (s->chan == x->request)
		x->request = 0;
	list_remove(&s->link);
	free(s);
}

static bool streams_ended(const struct exec *x)
{
	for (int i = 0; i < x->n_out; i++)
		if (x->out[i].src.fd >= 0)
			return false;
	return true;
}

/* Nothing more comes of it. Not so while something it left behind still has its streams: closing
 * them here would kill that with SIGPIPE. */
static bool exec_over(const struct exec *x)
{
	return x->closed && streams_ended(x);
}

static bool exec_wanted(const struct exec *x)
{
	return !list_empty(&x->subs) || x->hold.when;
}

/* Is there anybody for whom the program waits? */
static bool exec_paced(const struct exec *x)
{
	list_for_each(l, &x->subs)
		if (!CONTAINER_OF(l, struct sub, link)->live)
			return true;
	return x->hold.when;
}

void exec_thin_ended(struct init *in)
{
	size_t n = 0;

	list_for_each(l, &in->execs)
		n += exec_over(CONTAINER_OF(l, struct exec, link));
	list_for_each_safe(l, next, &in->execs) {
		struct exec *x = CONTAINER_OF(l, struct exec, link);

		if (!exec_over(x) || exec_wanted(x))
			continue;
		if (n > ENDED_MAX || (x->spec.flags & EXEC_FORGET)) {
			exec_free(x);
			n--;
		}
	}
}

void exec_forget(struct exec *x)
{
	x->spec.flags |= EXEC_FORGET;
	exec_thin_ended(x->init);
}

/* Up to where a follower has surely got stream i. Bytes that it has not given credit for may be
 * lost with a dying keeper and are then asked for again; half the ring is left for them at most, so
 * that a small one does not stop for good. */
uint64_t sub_safe(const struct exec *x, const struct sub *s, int i)
{
	uint64_t under_way = MIN(s->window - s->credit, (uint64_t)x->out[i].ring.keep / 2);

	return s->pos[i] - MIN(s->pos[i], under_way);
}

/* How many bytes of stream i may be read without overtaking the slowest follower. */
static size_t room(const struct exec *x, int i)
{
	const struct ring *r = &x->out[i].ring;
	uint64_t slowest = r->head;

	if (!exec_paced(x))
		return r->keep;
	if (x->hold.when)
		slowest = MAX(x->hold_pos[i], r->tail);
	list_for_each(l, &x->subs) {
		const struct sub *s = CONTAINER_OF(l, struct sub, link);

		if (s->live)
			continue;
		slowest = MIN(slowest, MAX(sub_safe(x, s, i), r->tail));
	}
	return r->keep - MIN(r->keep, (size_t)(r->head - slowest));
}

static void tell_started(struct exec *x, struct sub *s, uint32_t chan);

/* A live follower was too slow: it goes on with what is kept, and is told. */
static bool gap_tell(struct exec *x, struct sub *s)
{
	if (s->credit < WIRE_GAP_COST)
		return false;
	s->credit -= WIRE_GAP_COST;
	for (int i = 0; i < 2; i++)
		s->pos[i] = MAX(s->pos[i], x->out[i].ring.tail);
	tell_started(x, s, s->chan);
	return true;
}

static bool pump_stream(struct exec *x, struct sub *s, int i)
{
	const struct ring *r = &x->out[i].ring;

	if (s->pos[i] < r->tail && s->live && !gap_tell(x, s))
		return false; /* when there is credit for it */
	if (s->pos[i] < r->tail)
		s->pos[i] = r->tail; /* gone; the follower sees it from the offsets */
	while (s->credit && s->pos[i] < r->head) {
		const char *p;
		size_t n = ring_peek(r, s->pos[i], &p);

		n = MIN(n, MIN((size_t)s->credit, (size_t)WIRE_MAX_DATA));
		conn_send(x->init->keeper, i == 0 ? WM_OUT : WM_ERR, s->chan, p, n);
		s->pos[i] += n;
		s->credit -= n;
	}
	return s->pos[i] == r->head;
}

/* Sends what can be sent; a follower that has everything of a closed exec gets EXIT and goes. */
void exec_pump(struct exec *x)
{
	struct init *in = x->init;

	list_for_each_safe(l, next, &x->subs) {
		struct sub *s = CONTAINER_OF(l, struct sub, link);
		bool all = true;

		if (!in->keeper)
			break;
		if (!s->told)
			continue;
		for (int i = 0; i < 2; i++)
			all = pump_stream(x, s, i) && all;
		if (all && x->closed) {
			auto_buf b = { 0 };

			x->result.off_out = x->out[0].ring.head;
			x->result.off_err = x->out[1].ring.head;
			exec_result_put(&b, &x->result);
			conn_send_buf(in->keeper, WM_EXIT, s->chan, &b);
			exec_unsubscribe(x, s);
		}
	}
	for (int i = 0; i < x->n_out; i++)
		if (x->out[i].src.fd >= 0)
			loop_set_events(in->loop, &x->out[i].src, room(x, i) ? EPOLLIN : 0);
	if (exec_over(x) && !exec_wanted(x) && (x->spec.flags & EXEC_FORGET))
		exec_free(x);
}

static void exec_settle(struct exec *x)
{
	if (x->closed || !x->ended)
		return;
	x->closed = true;
	loop_timer_clear(&x->held);
	input_close(x);
	if (x->init->keeper) { /* the keeper is told of every end, followed or not */
		auto_buf b = { 0 };

		exec_put_info(&b, x);
		conn_send_buf(x->init->keeper, WM_EXIT, 0, &b);
	}
	exec_pump(x);
	exec_thin_ended(x->init);
}

static void held_cb(struct loop_timer *t)
{
	/* Something it left in the background holds a stream open. Its output goes on being read
	 * and kept, so that it is not killed by SIGPIPE; but the exec itself is over. */
	exec_settle(CONTAINER_OF(t, struct exec, held));
}

static void report_read(struct exec *x);
static void exec_started(struct exec *x);
static void exec_failed(struct exec *x);

void exec_reaped(struct exec *x, bool exited, int status)
{
	if (x->report.fd >= 0)
		report_read(x); /* its end may be seen before its report */
	if (x->failure) {
		exec_failed(x);
		return;
	}
	if (!x->started)
		exec_started(x); /* it was killed on the way, or somebody else holds the pipe */
	if (x->limited)
		tree_kill_left(x->pid, x->marks, x->n_marks);
	x->ended = true;
	x->ended_ms = clock_wall_ms();
	x->result.exited = exited;
	x->result.status = (uint64_t)status;
	if (streams_ended(x))
		exec_settle(x);
	else {
		x->held.cb = held_cb;
		loop_timer_set(x->init->loop, &x->held, clock_mono_ns() + HELD_OPEN_MS * NS_PER_MS);
	}
}

static ssize_t discard(int fd)
{
	char buf[16384];

	return read(fd, buf, sizeof(buf));
}

/* How much may be read: with an output limit not a byte more than that. */
static size_t output_part(const struct exec *x, size_t max)
{
	uint64_t sum = x->out[0].ring.head + x->out[1].ring.head;

	max = MIN(max, (size_t)(128 << 10));
	return x->spec.max_output ? MIN(max, (size_t)(x->spec.max_output - sum)) : max;
}

/* It has used up its limit and has more to say. */
static bool output_over(struct exec *x)
{
	if (!x->spec.max_output || x->over_output ||
		x->out[0].ring.head + x->out[1].ring.head < x->spec.max_output)
		return false;
	x->over_output = true;
	x->result.reason = EXEC_BY_OUTPUT;
	if (!x->ended)
		tree_signal(x->pid, SIGKILL);
	return true;
}

static void output_cb(struct loop_source *src, uint32_t events)
{
	struct stream *s = CONTAINER_OF(src, struct stream, src);
	struct exec *x = s->exec;
	struct init *in = x->init;
	int i = (int)(s - x->out);
	size_t max = room(x, i);
	ssize_t n;

	if ((events & EPOLLIN) && output_over(x))
		max = 1; /* what follows is thrown away, so nobody has to keep up with it */
	/* hung up, but the follower is behind: wait for it without spinning */
	if (!max && !x->over_output) {
		loop_set_events(x->init->loop, src, EPOLLET);
		return;
	}
	n = x->over_output ? discard(src->fd) : ring_fill(&s->ring, src->fd, output_part(x, max));
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) /* end of file, or EIO: the last user of the pty's other side went */
		stream_close(x->init, s);
	if (n > 0 && x->over_output)
		return;
	if (x->ended && !x->closed && streams_ended(x))
		exec_settle(x); /* pumps, and may free x */
	else
		exec_pump(x);
	if (n <= 0)
		exec_thin_ended(in); /* what was kept for its streams alone may go now */
}

/* ---- starting and following ---- */

static struct sub *subscribe(struct exec *x, uint32_t chan, uint64_t credit)
{
	struct sub *s = mem_new(struct sub);

	s->chan = chan;
	s->credit = s->window = credit;
	list_append(&x->subs, &s->link);
	return s;
}

static void tell_started(struct exec *x, struct sub *s, uint32_t chan)
{
	auto_buf b = { 0 };

	wire_put_u64(&b, F_PID, (uint64_t)x->pid);
	wire_put_u64(&b, F_EXEC, x->spec.exec);
	wire_put_u64(&b, F_FLAGS, x->spec.flags);
	wire_put_u64(&b, F_SIZE, x->in_taken); /* what a client need not send again */
	if (s) {
		wire_put_u64(&b, F_OFF_OUT, s->pos[0]);
		wire_put_u64(&b, F_OFF_ERR, s->pos[1]);
		s->told = true;
	}
	if (x->init->keeper)
		conn_send_buf(x->init->keeper, WM_STARTED, chan, &b);
}

static void exec_started(struct exec *x)
{
	report_close(x);
	x->started = true;
	/* the child has its own; they may be large, and this is kept for long */
	strv_free(x->spec.argv);
	strv_free(x->spec.env);
	x->spec.argv = x->spec.env = NULL;
	list_for_each(l, &x->subs) {
		struct sub *s = CONTAINER_OF(l, struct sub, link);

		tell_started(x, s, s->chan);
	}
	if ((x->spec.flags & EXEC_DETACH) && x->request)
		tell_started(x, NULL, x->request);
	input_flush(x);
	exec_pump(x);
}

static void tell_failed(struct exec *x)
{
	struct conn *keeper = x->init->keeper;
	auto_buf b = { 0 };

	if (!keeper)
		return;
	list_for_each(l, &x->subs)
		conn_fail(keeper, CONTAINER_OF(l, struct sub, link)->chan, x->failure);
	if ((x->spec.flags & EXEC_DETACH) && x->request)
		conn_fail(keeper, x->request, x->failure);
	if (x->request)
		return;
	/* Who asked is gone. The keeper knows it as running, so it has to end. */
	x->closed = true;
	x->ended_ms = clock_wall_ms();
	x->result.exited = true;
	x->result.status = x->failure->code == DEN_NOT_FOUND ? 127 : 126;
	exec_put_info(&b, x);
	conn_send_buf(keeper, WM_EXIT, 0, &b);
}

/* It could not become the program, and its process is gone: the exec never was. */
static void exec_failed(struct exec *x)
{
	tell_failed(x);
	exec_free(x);
}

/* Looks whether it has become the program. A failure is told only when the child has been reaped,
 * so that its cgroup is empty by then. */
static void report_read(struct exec *x)
{
	struct den_err e;
	ssize_t n = read(x->report.fd, &e, sizeof(e));

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n != (ssize_t)sizeof(e)) {
		exec_started(x);
		return;
	}
	e.msg[sizeof(e.msg) - 1] = '\0';
	x->failure = mem_new(struct den_err);
	*x->failure = e;
	report_close(x);
	kill(x->pid, SIGKILL); /* it has said all; nobody shall keep it from going */
}

static void report_cb(struct loop_source *src, uint32_t events)
{
	(void)events;
	report_read(CONTAINER_OF(src, struct exec, report));
}

static struct exec *exec_new(struct init *in, struct exec_spec *spec)
{
	struct exec *x = mem_new(struct exec);

	x->init = in;
	x->spec = *spec; /* taken over */
	*spec = (struct exec_spec){ 0 };
	x->shown = argv_short(x->spec.argv);
	list_init(&x->subs);
	list_append(&in->execs, &x->link);
	x->in.fd = -1;
	x->in.cb = input_cb;
	x->report = (struct loop_source){ .fd = -1, .events = EPOLLIN, .cb = report_cb };
	for (int i = 0; i < 2; i++) {
		x->out[i].exec = x;
		x->out[i].src =
			(struct loop_source){ .fd = -1, .events = EPOLLIN, .cb = output_cb };
		ring_init(&x->out[i].ring, x->spec.keep ? (size_t)x->spec.keep : EXEC_KEEP_DEFAULT);
	}
	return x;
}

static int exec_begin(struct init *in, uint32_t chan, struct exec_spec *spec, int cgroup_fd,
	struct den_err *err)
{
	struct exec *x = exec_new(in, spec);

	if (exec_spawn(x, cgroup_fd, err) < 0) {
		exec_free(x);
		return -1;
	}
	x->started_ms = clock_wall_ms();
	for (int i = 0; i < x->n_out; i++)
		if (loop_add(in->loop, &x->out[i].src, err) < 0)
			fd_close(&x->out[i].src.fd);
	if (x->in.fd >= 0 && loop_add(in->loop, &x->in, err) < 0)
		fd_close(&x->in.fd);
	x->request = chan;
	if (!(x->spec.flags & EXEC_DETACH))
		subscribe(x, chan, x->spec.credit); /* now: input may come before it has started */
	if (x->report.fd < 0 || loop_add(in->loop, &x->report, err) < 0)
		exec_started(x);
	return 0;
}

void exec_request(struct init *in, uint32_t chan, const struct wire_frame *f)
{
	struct exec_spec spec;
	struct den_err err;
	auto_fd cgroup_fd = -1;

	if (exec_spec_get(f->p, f->len, &spec, &err) < 0) {
		conn_fail(in->keeper, chan, &err);
		return;
	}
	in->highest = MAX(in->highest, spec.exec);
	if ((spec.flags & EXEC_CGROUP) && conn_take_fds(in->keeper, &cgroup_fd, 1) < 0)
		den_fail(&err, DEN_INTERNAL, 0, "exec without its cgroup descriptor");
	else if (exec_begin(in, chan, &spec, cgroup_fd, &err) == 0)
		return;
	exec_spec_free(&spec);
	conn_fail(in->keeper, chan, &err);
}

void exec_attach(struct init *in, uint32_t chan, const struct wire_frame *f)
{
	struct wire_reader rd = wire_reader(f->p, f->len);
	struct wire_value v;
	uint64_t number = 0, off[2] = { 0, 0 }, credit = 0, flags = 0, owed = 0;
	struct den_err err;
	struct exec *x;
	struct sub *s;

	while (wire_next(&rd, &v, NULL) > 0) {
		if (v.tag == F_EXEC)
			wire_u64(&v, UINT32_MAX, &number, NULL);
		else if (v.tag == F_OFF_OUT)
			wire_u64(&v, UINT64_MAX, &off[0], NULL);
		else if (v.tag == F_OFF_ERR)
			wire_u64(&v, UINT64_MAX, &off[1], NULL);
		else if (v.tag == F_CREDIT)
			wire_u64(&v, WIRE_WINDOW, &credit, NULL);
		else if (v.tag == F_SIZE)
			wire_u64(&v, 2 * WIRE_WINDOW, &owed, NULL);
		else if (v.tag == F_FLAGS)
			wire_u64(&v, ATTACH_LIVE | ATTACH_OTHER, &flags, NULL);
	}
	x = exec_by_number(in, number);
	if (!x) {
		den_fail(&err, DEN_NOT_FOUND, 0, "no such exec; 'den ps' lists them");
		conn_fail(in->keeper, chan, &err);
		return;
	}
	s = subscribe(x, chan, credit);
	for (int i = 0; i < 2; i++)
		s->pos[i] = MIN(MAX(off[i], x->out[i].ring.tail), x->out[i].ring.head);
	s->live = flags & ATTACH_LIVE;
	if (!s->live) /* perhaps the one whose place in the output was kept */
		loop_timer_clear(&x->hold);
	s->in_owed = owed;
	if (x->started) /* else it is told with the others */
		tell_started(x, s, chan);
	/* what was written while nobody was there to be told */
	if (x->started && owed > x->in_buf.len)
		input_credit_to(x, s, (size_t)(owed - x->in_buf.len));
	exec_pump(x);
}
