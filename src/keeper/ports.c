/* Ports of the box that can be reached from outside, and connections into it. */
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fd.h"
#include "gate.h"
#include "parse.h"
#include "strv.h"

#define PORTS_MAX 64

static int parse_publish(const char *text, uint16_t *inside, uint16_t *outside, struct den_err *err)
{
	auto_free char *in = mem_strdup(text);
	char *eq = strchr(in, '=');
	uint64_t a, b = 0;

	if (eq)
		*eq++ = '\0';
	if (parse_u64(in, 1, 65535, &a, err) < 0 || (eq && parse_u64(eq, 1, 65535, &b, err) < 0))
		return den_wrap(err, "port '%.20s'", text);
	*inside = (uint16_t)a;
	*outside = (uint16_t)b;
	return 0;
}

/* On the host's loopback alone. *port 0: any, and it then says which. */
static int listen_outside(uint16_t *port, int *ret, struct den_err *err)
{
	struct sockaddr_in sa = { .sin_family = AF_INET, .sin_port = htons(*port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(sa);
	int on = 1;
	auto_fd fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return den_fail_sys(err, errno, "socket");
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (bind(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0 || listen(fd, 512) < 0)
		return den_fail_sys(err, errno, "listen on 127.0.0.1:%u", *port);
	if (getsockname(fd, (struct sockaddr *)&sa, &len) < 0)
		return den_fail_sys(err, errno, "port");
	*port = ntohs(sa.sin_port);
	*ret = fd_take(&fd);
	return 0;
}

/* A gate that goes on under another policy, or another keeper, still has it, and its connections. */
static bool is_open(struct kgate *g, uint16_t port)
{
	struct den_err err;
	auto_buf b = { 0 };

	wire_put_u64(&b, F_PORT, port);
	wire_put_u64(&b, F_FLAGS, 1);
	return gate_ask(g, WM_GATE_PORT, &b, NULL, 0, &err) == 0 && g->ended == 1;
}

/* One that a waker holds comes with who is waiting there. Where it took the port just now, after it was asked, it is asked
 * again; what somebody else took while the box was down is another's. */
static int listen_again(struct kgate *g, uint16_t *out, int *ret, struct waker_ports *held, struct den_err *err)
{
	uint16_t any = 0;

	*ret = *out ? waker_port(held, *out) : -1;
	if (*ret >= 0 || listen_outside(out, ret, err) == 0)
		return 0;
	waker_ports_free(held);
	waker_take(g->k, held);
	*ret = waker_port(held, *out);
	if (*ret >= 0 || listen_outside(out, ret, err) == 0)
		return 0;
	if (listen_outside(&any, ret, err) < 0)
		return -1;
	*out = any;
	return 0;
}

static int publish_one(struct kgate *g, char **text, struct waker_ports *held, struct den_err *err)
{
	uint16_t in = 0, out = 0;
	auto_fd fd = -1;
	auto_buf b = { 0 }, now = { 0 };

	if (parse_publish(*text, &in, &out, err) < 0)
		return -1;
	if (out && is_open(g, in))
		return 0;
	if (listen_again(g, &out, &fd, held, err) < 0)
		return -1;
	wire_put_u64(&b, F_PORT, in);
	if (gate_ask(g, WM_GATE_PORT, &b, &fd, 1, err) < 0)
		return -1;
	buf_addf(&now, "%u=%u", in, out);
	free(*text);
	*text = mem_strdup(buf_str(&now));
	return 0;
}

int ports_publish(struct kgate *g, struct den_err *err)
{
	char **all = g->k->row.info.spec.publish;
	struct waker_ports held = { 0 };
	int r = 0;

	if (all && all[0])
		waker_take(g->k, &held);
	for (size_t i = 0; r == 0 && all && all[i]; i++)
		r = publish_one(g, &all[i], &held, err);
	waker_ports_free(&held);
	return r < 0 ? den_wrap(err, "publish") : 0;
}

static void put_ports(const struct keeper *k, struct buf *out)
{
	char **all = k->row.info.spec.publish;

	for (size_t i = 0; all && all[i]; i++)
		wire_put_str(out, F_PUBLISH, all[i]);
}

static long find(const struct keeper *k, uint16_t port)
{
	char **all = k->row.info.spec.publish;

	for (size_t i = 0; all && all[i]; i++)
		if (strtoul(all[i], NULL, 10) == port)
			return (long)i;
	return -1;
}

static int close_port(struct keeper *k, uint16_t port, struct den_err *err)
{
	char **all = k->row.info.spec.publish;
	long at = find(k, port);
	auto_buf b = { 0 };

	if (at < 0)
		return den_fail(err, DEN_NOT_FOUND, 0, "port %u is not published", port);
	wire_put_u64(&b, F_PORT, port);
	if (k->gate && k->gate->up && gate_ask(k->gate, WM_GATE_PORT, &b, NULL, 0, err) < 0)
		return -1;
	free(all[at]);
	for (size_t i = (size_t)at; all[i]; i++)
		all[i] = all[i + 1];
	return box_save(k, err);
}

static int open_port(struct keeper *k, uint16_t port, uint64_t outside, struct den_err *err)
{
	auto_buf text = { 0 };
	uint64_t ended;
	size_t n = strv_len(k->row.info.spec.publish);

	if (find(k, port) >= 0)
		return 0;
	if (n >= PORTS_MAX)
		return den_fail(err, DEN_LIMIT, 0, "more than %d ports", PORTS_MAX);
	if (!box_is_up(k))
		return den_fail(err, DEN_CONFLICT, 0, "the box is not running; 'den start' starts it");
	buf_addf(&text, outside ? "%u=%llu" : "%u", port, (unsigned long long)outside);
	if (outside) { /* asked for by number: that one, or none */
		uint16_t want = (uint16_t)outside;
		auto_fd probe = -1;

		if (listen_outside(&want, &probe, err) < 0)
			return -1;
	}
	strv_add(&k->row.info.spec.publish, buf_str(&text));
	if (k->gate && k->gate->up) {
		struct waker_ports none = { 0 };

		if (publish_one(k->gate, &k->row.info.spec.publish[n], &none, err) < 0) {
			free(k->row.info.spec.publish[n]);
			k->row.info.spec.publish[n] = NULL;
			return -1;
		}
	} else if ((k->gate && gate_load(k->gate, err) < 0) || gate_change(k, &ended, err) < 0) {
		free(k->row.info.spec.publish[n]);
		k->row.info.spec.publish[n] = NULL;
		return -1;
	}
	return box_save(k, err);
}

int req_port(struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err)
{
	uint64_t port = field_u64(f, F_PORT, 0), outside = field_u64(f, F_NUMBER, 0);
	int r = 0;

	if (port > 65535 || outside > 65535)
		return den_fail(err, DEN_INVALID, 0, "a port is 1 to 65535");
	if (port)
		r = field_u64(f, F_FLAGS, 0) & 1 ? close_port(c->k, (uint16_t)port, err) :
						   open_port(c->k, (uint16_t)port, outside, err);
	if (r == 0)
		put_ports(c->k, out);
	return r;
}

int req_dial(struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err)
{
	uint64_t port = field_u64(f, F_PORT, 0);
	auto_fd sock = -1;

	(void)out;
	if (port > UINT16_MAX)
		return den_fail(err, DEN_INVALID, 0, "a port is 1 to 65535");
	if (conn_take_fds(&c->conn, &sock, 1) < 0)
		return den_fail(err, DEN_INVALID, 0, "no socket to answer on");
	if (!box_is_up(c->k))
		return den_fail(err, DEN_CONFLICT, 0, "the box is not running; 'den start' starts it");
	return gate_dial(c->k, 1, (uint16_t)port, sock, err);
}
