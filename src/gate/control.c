/* The keeper's side of the gate: it comes, says what holds, takes what is to be written down. When it
 * dies the gate goes on under the policy that it has, and the next keeper comes to the same socket. */
#include "control.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "clock.h"
#include "fd.h"
#include "flow.h"
#include "gate.h"
#include "resolve.h"

#define QUEUE_MAX (4U << 20) /* bytes of records that the keeper has not taken */
#define TOKENS_MAX 256

void control_send(struct gate *g, uint8_t type, const struct buf *b)
{
	if (g->ctl_up)
		conn_send_buf(&g->ctl, type, 0, b);
}

void control_record(struct gate *g, const struct buf *b)
{
	auto_buf lost = { 0 };

	if (!g->ctl_up || g->ctl.tx.len > QUEUE_MAX) {
		g->lost++;
		return;
	}
	if (g->lost) {
		wire_put_u64(&lost, F_KIND, RECORD_LOST);
		wire_put_u64(&lost, F_COUNT, g->lost);
		g->lost = 0;
		control_send(g, WM_GATE_RECORD, &lost);
	}
	control_send(g, WM_GATE_RECORD, b);
}

/* ---- setup ---- */

static int take_fds(struct gate *g, uint64_t flags, int fds[3], struct den_err *err)
{
	for (int i = 0; i < 3; i++)
		if ((flags & (1U << i)) && conn_take_fds(&g->ctl, &fds[i], 1) < 0)
			return den_fail(err, DEN_INVALID, 0, "a descriptor is missing");
	return 0;
}

static int setup(struct gate *g, const char *json, size_t len, int fds[3], struct den_err *err)
{
	struct config *c, *old = g->cfg;

	if (config_parse(json, len, &c, err) < 0)
		return -1;
	if (resolver_servers(g->resolver, c, err) < 0) {
		config_unref(c);
		return -1;
	}
	g->cfg = c;
	g->bytes = MAX(g->bytes, c->used);
	if (fds[0] >= 0 && socks_take(g, fds[0], err) < 0) {
		/* nothing of the old is there any more either: closed, never open */
		config_unref(old);
		return -1;
	}
	if (fds[1] >= 0) {
		fd_close(&g->bundle_fd);
		g->bundle_fd = fd_take(&fds[1]);
	}
	if (fds[2] >= 0 && ident_take(g, fd_take(&fds[2]), err) < 0) {
		config_unref(old);
		return -1;
	}
	config_unref(old);
	return 0;
}

static int on_setup(struct gate *g, const struct wire_frame *f, struct buf *out, struct den_err *err)
{
	struct wire_reader rd = wire_reader(f->p, f->len);
	struct wire_value v, config = { 0 };
	uint64_t flags = 0;
	int fds[3] = { -1, -1, -1 }, r;

	while ((r = wire_next(&rd, &v, err)) > 0) {
		if (v.tag == F_CONFIG)
			config = v;
		else if (v.tag != F_FLAGS || wire_u64(&v, 7, &flags, err) < 0)
			return den_fail(err, DEN_INVALID, 0, "setup: field %u", v.tag);
	}
	if (r < 0)
		return -1;
	r = take_fds(g, flags, fds, err) < 0 ? -1 : setup(g, config.p, config.len, fds, err);
	for (int i = 0; i < 3; i++)
		fd_close(&fds[i]);
	if (r < 0)
		return -1;
	wire_put_u64(out, F_COUNT, flow_recheck(g));
	udp_recheck(g);
	return 0;
}

/* ---- tokens ---- */

void token_ask(struct gate *g, struct token_wait *w, const char *audience, const char *alg)
{
	auto_buf b = { 0 };
	unsigned n = 0;

	list_for_each(l, &g->waiting_tokens)
		n++;
	if (!g->ctl_up || n >= TOKENS_MAX) {
		list_init(&w->link);
		w->done(w, NULL, "the keeper is not there");
		return;
	}
	w->number = ++g->next_token;
	list_append(&g->waiting_tokens, &w->link);
	wire_put_u64(&b, F_NUMBER, w->number);
	wire_put_str(&b, F_NAME, audience);
	wire_put_str(&b, F_RULE, alg);
	control_send(g, WM_GATE_TOKEN, &b);
}

void token_forget(struct token_wait *w)
{
	if (!w->number)
		return;
	list_remove(&w->link);
	w->number = 0;
}

static void token_done(struct token_wait *w, const char *token, const char *reason)
{
	token_forget(w);
	w->done(w, token, reason);
}

static int on_token(struct gate *g, const struct wire_frame *f, struct den_err *err)
{
	struct wire_reader rd = wire_reader(f->p, f->len);
	auto_free char *token = NULL, *reason = NULL;
	struct wire_value v;
	uint64_t number = 0;
	int r;

	while ((r = wire_next(&rd, &v, err)) > 0)
		if ((v.tag == F_NUMBER && wire_u64(&v, UINT64_MAX, &number, err) < 0) ||
			(v.tag == F_MSG && wire_str(&v, 16384, &token, err) < 0) ||
			(v.tag == F_REASON && wire_str(&v, 1024, &reason, err) < 0))
			return -1;
	list_for_each_safe(l, n, &g->waiting_tokens) {
		struct token_wait *w = CONTAINER_OF(l, struct token_wait, link);

		if (w->number == number) {
			token_done(w, token, reason ? reason : "refused");
			break;
		}
	}
	return r;
}

/* ---- frames ---- */

/* With a descriptor: opens it. With F_FLAGS: is it open? Neither: closes it. */
static int on_port(struct gate *g, const struct wire_frame *f, struct buf *out, struct den_err *err)
{
	struct wire_reader rd = wire_reader(f->p, f->len);
	struct wire_value v;
	uint64_t port = 0, asks = 0;
	int fd = -1;

	while (wire_next(&rd, &v, NULL) > 0)
		if ((v.tag == F_PORT && wire_u64(&v, 65535, &port, err) < 0) ||
			(v.tag == F_FLAGS && wire_u64(&v, 1, &asks, err) < 0))
			return -1;
	(void)conn_take_fds(&g->ctl, &fd, 1);
	if (!port) {
		fd_close(&fd);
		return den_fail(err, DEN_INVALID, 0, "no port");
	}
	if (asks && fd < 0)
		wire_put_u64(out, F_COUNT, inbound_has(g, (uint16_t)port));
	else
		inbound_port(g, (uint16_t)port, fd);
	return 0;
}

static void on_frame(struct conn *c, const struct wire_frame *f)
{
	struct gate *g = CONTAINER_OF(c, struct gate, ctl);
	auto_buf out = { 0 };
	struct den_err err = { 0 };
	int r, fd;

	switch (f->type) {
	case WM_GATE_SETUP:
		r = on_setup(g, f, &out, &err);
		break;
	case WM_HELLO:
		wire_put_u64(&out, F_GENERATION, g->cfg ? g->cfg->generation : 0);
		r = 0;
		break;
	case WM_GATE_PORT:
		r = on_port(g, f, &out, &err);
		break;
	case WM_GATE_TOKEN: /* an answer */
		(void)on_token(g, f, &err);
		return;
	case WM_GATE_SOCKETS: /* an answer */
		if (conn_take_fds(&g->ctl, &fd, 1) == 0)
			inbound_sockets(g, fd);
		else
			g->asked_sockets = false;
		return;
	default:
		r = den_fail(&err, DEN_INVALID, 0, "message %u", f->type);
	}
	if (r < 0)
		conn_fail(&g->ctl, 0, &err);
	else
		conn_send_buf(&g->ctl, WM_OK, 0, &out);
}

static void on_close(struct conn *c, const struct den_err *why)
{
	struct gate *g = CONTAINER_OF(c, struct gate, ctl);

	(void)why;
	conn_close(&g->ctl);
	g->ctl_up = false;
	g->asked_sockets = false;
	while (!list_empty(&g->waiting_tokens))
		token_done(CONTAINER_OF(g->waiting_tokens.next, struct token_wait, link), NULL,
			"the keeper is not there");
}

static void on_keeper(struct loop_source *s, uint32_t events)
{
	struct gate *g = CONTAINER_OF(s, struct gate, listen);
	int fd = accept4(s->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct den_err err;

	(void)events;
	if (fd < 0)
		return;
	/* one keeper at a time: it holds the lock on the box, so the one before is gone */
	if (g->ctl_up)
		on_close(&g->ctl, NULL);
	g->ctl = (struct conn){ .on_frame = on_frame, .on_close = on_close, .take_fds = true };
	g->ctl_up = conn_open(&g->ctl, g->loop, fd, &err) == 0;
}

int control_listen(struct gate *g, struct den_err *err)
{
	g->listen = (struct loop_source){ .fd = GATE_LISTEN_FD, .events = EPOLLIN, .cb = on_keeper };
	fd_set_nonblock(GATE_LISTEN_FD, true);
	return loop_add(g->loop, &g->listen, err);
}
