/* Stdin of execs: what followers send goes to the pipe or terminal, and is credited back as it is taken. */
#include <errno.h>
#include <unistd.h>

#include "fd.h"
#include "init.h"

#define INPUT_MAX (64 * WIRE_WINDOW) /* bytes of stdin that wait, of all who write together */

void input_close(struct exec *x)
{
	if (x->in.fd < 0)
		return;
	loop_remove(x->init->loop, &x->in);
	fd_close(&x->in.fd);
	buf_free(&x->in_buf);
}

size_t input_credit_to(struct exec *x, struct sub *s, size_t n)
{
	size_t give = MIN(n, (size_t)s->in_owed);

	if (give && x->init->keeper) {
		auto_buf b = { 0 };

		wire_put_u64(&b, F_CREDIT, give);
		conn_send_buf(x->init->keeper, WM_IN_CREDIT, s->chan, &b);
	}
	s->in_owed -= give;
	return give;
}

static void input_credit(struct exec *x, size_t n)
{
	list_for_each (l, &x->subs)
		n -= input_credit_to(x, CONTAINER_OF(l, struct sub, link), n);
}

static ssize_t input_write(struct exec *x)
{
	if (x->init->guest && (x->spec.flags & EXEC_TTY))
		return line_write(x, x->in_buf.p, x->in_buf.len);
	return write(x->in.fd, x->in_buf.p, x->in_buf.len);
}

void input_flush(struct exec *x)
{
	if (!x->started)
		return; /* nobody reads yet, and no credit may be given before STARTED */
	while (x->in.fd >= 0 && x->in_buf.len) {
		ssize_t n = input_write(x);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			break;
		if (n < 0) { /* the program closed its stdin: swallow the rest as a pipe would */
			input_credit(x, x->in_buf.len);
			input_close(x);
			return;
		}
		buf_consume(&x->in_buf, (size_t)n);
		input_credit(x, (size_t)n);
	}
	if (x->in.fd >= 0 && x->in_eof && !x->in_buf.len) {
		if (x->spec.flags & EXEC_TTY) {
			(void)!write(x->in.fd, "\004", 1);
			x->in_eof = false;
		} else {
			input_close(x);
			return;
		}
	}
	if (x->in_buf.len == 0)
		buf_free(&x->in_buf);
	if (x->in.fd >= 0)
		loop_set_events(x->init->loop, &x->in, x->in_buf.len ? EPOLLOUT : 0);
}

void input_cb(struct loop_source *src, uint32_t events)
{
	struct exec *x = CONTAINER_OF(src, struct exec, in);

	if (!x->in_buf.len && (events & (EPOLLERR | EPOLLHUP))) { /* nobody reads any more */
		input_close(x);
		return;
	}
	input_flush(x);
}

void exec_input(struct exec *x, struct sub *s, const struct wire_frame *f)
{
	if (s->in_owed + f->len > 2 * WIRE_WINDOW || x->in_buf.len > INPUT_MAX)
		return; /* somebody ignores credit; he loses, not we */
	s->in_owed += f->len;
	if (x->in.fd < 0 || x->in_eof) { /* not wanted: credited, so that nobody waits */
		x->in_taken += f->len;
		input_credit(x, f->len);
		return;
	}
	x->in_taken += f->len;
	buf_add(&x->in_buf, f->p, f->len);
	input_flush(x);
}

void exec_input_eof(struct exec *x)
{
	x->in_eof = true;
	input_flush(x);
}
