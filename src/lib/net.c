/* The network of boxes: policies, what was refused, connections into a box. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "boxlink.h"
#include "fd.h"
#include "lib.h"
#include "mem.h"
#include "sock_msg.h"
#include "strv.h"

#define CONNECT_MS 5000

static int take_text(const struct buf *b, uint16_t tag, char **ret, struct den_err *err)
{
	struct wire_reader rd = wire_reader(b->p, b->len);
	struct wire_value v;

	*ret = NULL;
	while (wire_next(&rd, &v, NULL) > 0)
		if (v.tag == tag)
			return wire_str(&v, WIRE_MAX_PAYLOAD, ret, err);
	return 0;
}

/* ---- policies ---- */

void den_policy_free(struct den_policy *p)
{
	if (!p)
		return;
	free((void *)p->json);
	free((void *)p->name);
	free(p);
}

int den_policy_get(struct den_box *box, struct den_policy **ret, struct den_err *err)
{
	auto_buf out = { 0 };
	auto_free char *json = NULL, *name = NULL;
	struct den_policy *p;

	if (box_ask(box, WM_POLICY_GET, NULL, 0, &out, err) < 0 || take_text(&out, F_POLICY, &json, err) < 0 ||
		take_text(&out, F_POLICY_NAME, &name, err) < 0)
		return -1;
	p = mem_new(struct den_policy);
	p->json = mem_take(&json);
	p->name = mem_take(&name);
	p->generation = wire_find_u64(out.p, out.len, F_GENERATION, 0);
	*ret = p;
	return 0;
}

int den_policy_set(struct den_box *box, const char *json, const char *name, uint64_t expect,
	uint64_t *ret_generation, uint64_t *ret_ended, struct den_err *err)
{
	auto_buf req = { 0 }, out = { 0 };

	wire_put_str(&req, F_POLICY, json);
	wire_put_str(&req, F_POLICY_NAME, name);
	if (expect != DEN_ANY_GENERATION)
		wire_put_u64(&req, F_GENERATION, expect);
	if (box_ask(box, WM_POLICY_SET, &req, 0, &out, err) < 0)
		return -1;
	if (ret_generation)
		*ret_generation = wire_find_u64(out.p, out.len, F_GENERATION, 0);
	if (ret_ended)
		*ret_ended = wire_find_u64(out.p, out.len, F_COUNT, 0);
	return 0;
}

/* Boxes that use what changed, told by the clerk as F_ID each: their gates take it over. */
int net_reload(struct den *d, const struct buf *answer, struct den_err *err)
{
	struct wire_reader rd = wire_reader(answer->p, answer->len);
	struct wire_value v;
	int r = 0;

	while (wire_next(&rd, &v, NULL) > 0) {
		auto_free char *id = NULL;
		struct den_box *box;

		if (v.tag != F_ID || wire_str(&v, 20, &id, NULL) < 0)
			continue;
		if (den_box_open(d, id, &box, err) < 0) {
			r = err->code == DEN_NOT_FOUND ? r : -1; /* it went meanwhile */
			continue;
		}
		if (den_policy_set(box, NULL, NULL, DEN_ANY_GENERATION, NULL, NULL, err) < 0)
			r = den_wrap(err, "box %s still has what it had", id);
		den_box_close(box);
	}
	return r;
}

static int stored_ask(struct den *d, const char *what, const char *name, const char *json, struct buf *out,
	struct den_err *err)
{
	auto_buf req = { 0 };

	wire_put_str(&req, F_WHAT, what);
	wire_put_str(&req, F_NAME, name);
	wire_put_str(&req, F_POLICY, json);
	return clerk_ask(d, WM_POLICY_STORED, &req, 0, out, err);
}

int den_policy_save(struct den *d, const char *name, const char *json, struct den_err *err)
{
	auto_buf out = { 0 };

	return stored_ask(d, "save", name, json, &out, err) < 0 ? -1 : net_reload(d, &out, err);
}

int den_policy_remove(struct den *d, const char *name, struct den_err *err)
{
	return stored_ask(d, "remove", name, NULL, NULL, err);
}

static int take_list(const struct buf *out, uint16_t tag, char ***ret, struct den_err *err)
{
	struct wire_reader rd = wire_reader(out->p, out->len);
	struct wire_value v;
	auto_strv all = NULL;

	while (wire_next(&rd, &v, NULL) > 0) {
		auto_free char *s = NULL;

		if (v.tag != tag)
			continue;
		if (wire_str(&v, 255, &s, err) < 0)
			return -1;
		strv_add(&all, s);
	}
	*ret = all ? all : mem_zalloc(sizeof(char *));
	all = NULL;
	return 0;
}

int den_policy_load(struct den *d, const char *name, char **ret, struct den_err *err)
{
	auto_buf out = { 0 };

	return stored_ask(d, "get", name, NULL, &out, err) < 0 ? -1 : take_text(&out, F_POLICY, ret, err);
}

int den_policy_list(struct den *d, char ***ret, struct den_err *err)
{
	auto_buf out = { 0 };

	return stored_ask(d, "list", NULL, NULL, &out, err) < 0 ? -1 : take_list(&out, F_NAME, ret, err);
}

void den_strings_free(char **list)
{
	strv_free(list);
}

/* ---- the journal ---- */

int den_journal(struct den_box *box, const char *kind, uint64_t count, den_sink sink, void *user,
	struct den_err *err)
{
	auto_buf req = { 0 }, out = { 0 };
	struct wire_reader rd;
	struct wire_value v;

	wire_put_str(&req, F_KIND, kind);
	wire_put_u64(&req, F_COUNT, count ? count : UINT64_MAX);
	if (box_ask(box, WM_JOURNAL, &req, WM_RECORD, &out, err) < 0)
		return -1;
	rd = wire_reader(out.p, out.len);
	while (wire_next(&rd, &v, NULL) > 0)
		if (v.tag == F_MSG && sink(v.p, v.len, user, err) < 0)
			return -1;
	return 0;
}

/* ---- into the box ---- */

int den_port(struct den_box *box, uint16_t port, uint16_t outside, bool close_it, char ***ret, struct den_err *err)
{
	auto_buf req = { 0 }, out = { 0 };

	if (port)
		wire_put_u64(&req, F_PORT, port);
	if (outside)
		wire_put_u64(&req, F_NUMBER, outside);
	if (close_it)
		wire_put_u64(&req, F_FLAGS, 1);
	if (box_ask(box, WM_PORT, &req, 0, &out, err) < 0)
		return -1;
	return ret ? take_list(&out, F_PUBLISH, ret, err) : 0;
}

static int receive(int sock, struct plumb_sock *m)
{
	char control[CMSG_SPACE(sizeof(int))];
	struct iovec iov = { m, sizeof(*m) };
	struct msghdr h = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control) };
	struct cmsghdr *c;
	int fd = -1;

	if (recvmsg(sock, &h, MSG_CMSG_CLOEXEC | MSG_WAITALL) != sizeof(*m))
		return -1;
	c = CMSG_FIRSTHDR(&h);
	if (c && c->cmsg_type == SCM_RIGHTS)
		memcpy(&fd, CMSG_DATA(c), sizeof(int));
	return fd;
}

static int pending(int fd)
{
	socklen_t len = sizeof(int);
	int e = 0;

	return getsockopt(fd, SOL_SOCKET, SO_ERROR, &e, &len) < 0 ? errno : e;
}

/* It is the box's init that lets us through. */
static int knock(int fd, uint16_t port)
{
	struct link_knock k = { { (uint8_t)(port >> 8), (uint8_t)port }, LINK_TELL };
	struct pollfd p = { .fd = fd, .events = POLLIN };
	uint8_t said;

	if (send(fd, &k, sizeof(k), MSG_NOSIGNAL) != (ssize_t)sizeof(k))
		return errno ? errno : ECONNRESET;
	if (poll(&p, 1, CONNECT_MS) <= 0)
		return ETIMEDOUT;
	return recv(fd, &said, 1, 0) == 1 ? said : ECONNREFUSED;
}

/* It was sent on its way in the box; we wait. 0, or errno */
static int try_connect(int fd, const struct plumb_sock *m, uint16_t port)
{
	struct pollfd p = { .fd = fd, .events = POLLOUT };
	int e;

	if (m->kind != PLUMB_DIALED)
		return EPROTO;
	if (m->port)
		return (int)m->port;
	e = poll(&p, 1, CONNECT_MS) <= 0 ? ETIMEDOUT : pending(fd);
	return e || m->family != PLUMB_DOOR ? e : knock(fd, port);
}

int den_box_connect(struct den_box *box, uint16_t port, int *ret, struct den_err *err)
{
	auto_fd sock = -1;
	auto_buf req = { 0 };
	int why = ECONNREFUSED;

	if (!port)
		return den_fail(err, DEN_INVALID, 0, "a port is 1 to 65535");
	wire_put_u64(&req, F_PORT, port);
	if (box_ask_stream(box, WM_DIAL, &req, NULL, &sock, err) < 0)
		return -1;
	for (int i = 0; i < 2; i++) { /* a service listens on one family or on both */
		struct plumb_sock m;
		auto_fd fd = receive(sock, &m);

		if (fd < 0)
			break;
		why = try_connect(fd, &m, port);
		if (why == 0) {
			*ret = fd_take(&fd);
			return 0;
		}
	}
	if (why == EPROTO)
		return den_fail(err, DEN_CONFLICT, 0,
			"the box's keeper is of an older den, which does not connect for others; stop and start the box");
	return den_fail_sys(err, why, "port %u of the box", port);
}
