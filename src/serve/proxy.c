/*
 * A port of a box through this server. The request is written anew for the program in the box, and its answer is
 * taken apart strictly and framed by us: neither side can make the other see a message that is not there.
 *
 *   1. who may: ports_public(), or the box's token
 *   2. connect; a port on which nothing listens is told in E2B's words
 *   3. head and body up. What comes back meanwhile is kept, as much as there is room for; an answer before the
 *      body's end stops the body when nobody takes it any more
 *   4. the answer down, as it comes: nothing is held back, so that events arrive when they happen
 *   5. or, after 101, bytes both ways until one of them ends (proxy_pump.c)
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "advice.h"
#include "auth.h"
#include "boxes.h"
#include "clock.h"
#include "e2b.h"
#include "fd.h"
#include "json_fields.h"
#include "log.h"
#include "mem.h"
#include "pick.h"
#include "ports.h"
#include "proxy.h"
#include "serve.h"
#include "upstream.h"

#define PIECE (64U << 10)
#define SLOW_PORT 49999	/* the code interpreter: a box that was just made is still starting it */
#define SLOW_MS 10000
#define STALL_MS 5000	/* so long may a body stand still once the answer has begun */

struct proxy {
	struct req *r;
	char id[21];
	uint16_t port;
	int fd;
	bool upgrade; /* asked for */
	struct upstream *up;
	bool up_closed; /* it sends no more */
};

/* ---- what is said when it does not work ---- */

/* People's browsers get words, programs JSON in E2B's shape. */
static bool wants_words(const struct req *r)
{
	const char *accept = req_header(r, "Accept");

	return accept && !strstr(accept, "application/json") && (strstr(accept, "text/html") || strstr(accept, "text/plain"));
}

static int tell(struct proxy *p, int status, const char *message, bool with_port)
{
	const char *asked = req_header(p->r, "E2b-Sandbox-Id");
	char id[E2B_ID_SIZE];
	json_t *j;

	req_set(p->r, "Cache-Control", "no-store");
	if (wants_words(p->r)) {
		auto_buf text = { 0 };

		buf_addf(&text, "%d: %s", status, message);
		if (with_port)
			buf_addf(&text, " (port %u)", p->port);
		buf_addstr(&text, "\n");
		return req_reply(p->r, status, "text/plain; charset=utf-8", text.p, text.len);
	}
	if (!p->id[0])
		return req_reply_json(p->r, status, json_pack("{s:o, s:i}", "message", json_text(message), "code", status));
	e2b_id_sandbox(p->id, id);
	j = json_pack("{s:o, s:o, s:i}", "sandboxId", json_text(asked ? asked : id), "message", json_text(message), "code",
		status);
	if (with_port)
		json_object_set_new(j, "port", json_integer(p->port));
	return req_reply_json(p->r, status, j);
}

/* E2B's clients look for 502 and these words, when they ask by their headers. Who came by a host's name is told what
 * is the matter. */
static int not_there(struct proxy *p)
{
	const char *state = p->id[0] ? boxes_state(p->id) : NULL;
	auto_buf said = { 0 }, text = { 0 };

	if (req_header(p->r, "E2b-Sandbox-Id"))
		return tell(p, 502, "The sandbox was not found", false);
	if (!p->id[0])
		buf_addf(&text, "There is no such box: the address of a port is PORT-ID.%s, with the id of a box", serve.domain);
	else if (!state)
		buf_addf(&text, "There is no box %s: it was deleted, or there never was one", p->id);
	else
		buf_addf(&text, "The box is %s, so nothing listens on its port %u: 'den %s' lets it run", state, p->port,
			!strcmp(state, "paused") ? "resume" : "start");
	advice_text(ADVICE_V1, buf_str(&text), p->id, &said);
	return tell(p, state ? 502 : 404, buf_str(&said), state);
}

/* ---- who may ---- */

/* The value of a cookie; false: none, or too long. */
static bool cookie(const char *cookies, const char *name, char *out, size_t cap)
{
	size_t len = strlen(name);

	while (cookies && *cookies) {
		cookies += strspn(cookies, " ;");
		if (!strncmp(cookies, name, len) && cookies[len] == '=') {
			size_t n = strcspn(cookies + len + 1, "; ");

			if (n >= cap)
				return false;
			memcpy(out, cookies + len + 1, n);
			out[n] = '\0';
			return true;
		}
		cookies += strcspn(cookies, ";");
	}
	return false;
}

/* A link with the token becomes a cookie of that host, so that what the page loads works too, and the token is in
 * no address that could be copied. */
static int welcome(struct proxy *p, const char *token)
{
	auto_free char *rest = proxy_query(req_query_raw(p->r));
	auto_buf cookie_text = { 0 }, where = { 0 };
	const char *path = req_path(p->r);

	buf_addf(&cookie_text, TOKEN_NAME "=%s; Path=/; HttpOnly; SameSite=Lax%s", token, req_tls(p->r) ? "; Secure" : "");
	/* "//x" would be another host */
	buf_addf(&where, "%s%s%s%s", path[1] == '/' || path[1] == '\\' ? "/." : "", path, *rest ? "?" : "", rest);
	req_set(p->r, "Set-Cookie", buf_str(&cookie_text));
	req_set(p->r, "Location", buf_str(&where));
	req_set(p->r, "Cache-Control", "no-store");
	return req_reply_empty(p->r, 302);
}

/* 1: come in; 0: it was answered. */
static int let_in(struct proxy *p)
{
	const char *query = req_query(p->r, TOKEN_NAME), *header = req_header(p->r, TOKEN_HEADER);
	char token[41], sent[64];

	if (ports_public(p->id, p->port))
		return 1;
	auth_box_token(p->id, "traffic", token);
	if (auth_same(header, token))
		return 1;
	if (cookie(req_header(p->r, "Cookie"), TOKEN_NAME, sent, sizeof(sent)) && auth_same(sent, token))
		return 1;
	if (auth_same(query, token)) {
		if (strcmp(req_method(p->r), "GET") || p->upgrade)
			return 1;
		welcome(p, token);
		return 0;
	}
	tell(p, 403, header || query ? "The traffic access token is not valid for this sandbox"
				     : "This port is not public: send the header " TOKEN_HEADER ", or open it with ?" TOKEN_NAME "=",
		true);
	return 0;
}

/* ---- up ---- */

/* Takes what the box has sent, if there is room. -1: the connection broke. */
static int take(struct proxy *p)
{
	size_t room;
	char *to = upstream_room(p->up, &room);
	ssize_t n;

	if (!room)
		return 0;
	n = recv(p->fd, to, room, MSG_DONTWAIT);
	if (n > 0)
		upstream_put(p->up, (size_t)n);
	if (n == 0)
		p->up_closed = true;
	return n < 0 && errno != EAGAIN && errno != EINTR ? -1 : 0;
}

static bool answered(struct proxy *p)
{
	const char *why;

	return upstream_head(p->up, &why) != 0;
}

/* 1: sent; 0: nobody wants it any more; -1: the client is gone. */
static int send_up(struct proxy *p, const char *data, size_t n)
{
	int64_t moved = clock_mono_ns();

	while (n) {
		struct pollfd f = { .fd = p->fd, .events = POLLIN | POLLOUT };
		ssize_t r = send(p->fd, data, n, MSG_DONTWAIT | MSG_NOSIGNAL);
		size_t room;

		if (r > 0) {
			data += r;
			n -= (size_t)r;
			moved = clock_mono_ns();
			continue;
		}
		if (r < 0 && errno != EAGAIN && errno != EINTR)
			return 0; /* it closed early: its answer may be there all the same */
		upstream_room(p->up, &room);
		if (p->up_closed || !room)
			f.events = POLLOUT;
		poll(&f, 1, 500);
		if ((f.revents & POLLIN) && take(p) < 0)
			return 0;
		if (clock_mono_ns() - moved > STALL_MS * NS_PER_MS && answered(p))
			return 0;
		if (req_wait(p->r, -1, 0) & (REQ_GONE | REQ_KICK | REQ_STOP))
			return -1;
	}
	return 1;
}

static int body_up(struct proxy *p, bool chunked, struct den_err *err)
{
	auto_free char *buf = mem_alloc(PIECE);
	char size[16];
	int sent = 1;

	for (;;) {
		ssize_t n = req_read(p->r, buf, PIECE, err);

		if (n < 0)
			return -1;
		if (sent == 0) { /* read and dropped, so that the connection can go on */
			if (n == 0)
				return 0;
			continue;
		}
		if (chunked) {
			snprintf(size, sizeof(size), "%zx\r\n", (size_t)n);
			sent = send_up(p, size, strlen(size));
		}
		if (sent == 1 && n)
			sent = send_up(p, buf, (size_t)n);
		if (sent == 1 && chunked)
			sent = send_up(p, "\r\n", 2);
		if (sent < 0)
			return den_fail(err, DEN_CONFLICT, 0, "broken off");
		if (n == 0)
			return 0;
	}
}

/* ---- down ---- */

/* A cookie is for this host alone: one of the whole domain would reach other boxes and the page. */
static void cookie_down(struct req *r, const char *value)
{
	auto_buf b = { 0 };

	if (!strncmp(value, TOKEN_NAME "=", sizeof(TOKEN_NAME)) || auth_session_is(value))
		return;
	while (*value) {
		size_t n = strcspn(value, ";"), blank = strspn(value, " \t");

		if (strncasecmp(value + blank, "domain", 6) || !strchr("= \t;", value[blank + 6]))
			buf_addf(&b, "%s%.*s", b.len ? ";" : "", (int)n, value);
		value += n + (value[n] == ';');
	}
	req_set(r, "Set-Cookie", buf_str(&b));
}

static void field_down(const char *name, const char *value, void *user)
{
	struct req *r = user;

	if (!strcasecmp(name, "Set-Cookie"))
		cookie_down(r, value);
	else
		req_set(r, name, value);
}

/* Waits for more from the box. 1: some, or its end; 0: somebody hung up, stopped or killed it. */
static int more(struct proxy *p)
{
	for (;;) {
		int bits = req_wait(p->r, p->fd, -1);

		if (bits & REQ_READY) {
			if (take(p) < 0)
				p->up_closed = true;
			return 1;
		}
		if (bits & (REQ_GONE | REQ_KICK | REQ_STOP))
			return 0;
	}
}

static int head_down(struct proxy *p, struct den_err *err)
{
	const char *why = "";
	int r;

	while ((r = upstream_head(p->up, &why)) == 0) {
		if (p->up_closed)
			return den_fail(err, DEN_CONFLICT, 0, "the program on that port closed the connection without an answer");
		if (!more(p))
			return den_fail(err, DEN_CONFLICT, 0, "broken off");
	}
	if (r < 0)
		return den_fail(err, DEN_CONFLICT, 0, "the program on that port does not speak HTTP properly: %s", why);
	return 0;
}

static int body_down(struct proxy *p, struct den_err *err)
{
	for (;;) {
		const char *data;
		size_t n;
		int r = upstream_body(p->up, &data, &n);

		if (r == 1) {
			if (req_write(p->r, data, n, err) < 0)
				return -1;
			continue;
		}
		if (r == 2)
			return 0;
		if (r < 0)
			return den_fail(err, DEN_CONFLICT, 0, "the answer is broken");
		if (p->up_closed)
			return upstream_closed(p->up) ? 0 : den_fail(err, DEN_CONFLICT, 0, "the answer was cut off");
		if (!more(p))
			return den_fail(err, DEN_CONFLICT, 0, "broken off");
	}
}

static int answer_down(struct proxy *p, struct den_err *err)
{
	int status = upstream_status(p->up);
	char type[256], length[24];
	bool typed = upstream_find(p->up, "Content-Type", type, sizeof(type));
	bool head = !strcmp(req_method(p->r), "HEAD");

	upstream_each(p->up, field_down, p->r);
	if (status == 101)
		return den_fail(err, DEN_CONFLICT, 0, "the program changed the protocol without being asked");
	if (upstream_no_body(p->up) && !head)
		return req_reply_empty(p->r, status);
	if (head) {
		uint64_t n = 0;

		if (upstream_find(p->up, "Content-Length", length, sizeof(length)))
			n = strtoull(length, NULL, 10);
		return req_begin(p->r, status, typed ? type : NULL, (int64_t)MIN(n, (uint64_t)INT64_MAX), err);
	}
	if (req_begin(p->r, status, typed ? type : NULL, upstream_length(p->up), err) < 0)
		return -1;
	return body_down(p, err);
}

static void upgrade_field(const char *name, const char *value, void *user)
{
	field_down(name, value, user);
}

static int upgrade_down(struct proxy *p, struct den_err *err)
{
	char protocol[128];
	const char *rest;
	size_t n;
	int fd;

	upstream_each(p->up, upgrade_field, p->r);
	if (!upstream_find(p->up, "Upgrade", protocol, sizeof(protocol)))
		snprintf(protocol, sizeof(protocol), "%.127s", req_header(p->r, "Upgrade"));
	if (req_upgrade(p->r, protocol, &fd, err) < 0)
		return -1;
	rest = upstream_rest(p->up, &n);
	proxy_pump(p->r, fd, p->fd, rest, n);
	close(fd);
	return 0;
}

/* ---- all of it ---- */

static int connect_box(struct proxy *p, struct den_err *err)
{
	int64_t until = clock_mono_ns() + SLOW_MS * NS_PER_MS;
	auto_box *box = NULL;

	if (boxes_open_any(p->r, p->id, &box, err) < 0)
		return -1;
	while (den_box_connect(box, p->port, &p->fd, err) < 0) {
		if (err->sys != ECONNREFUSED || p->port != SLOW_PORT || clock_mono_ns() > until)
			return -1;
		if (req_wait(p->r, -1, 100))
			return -1;
	}
	return 0;
}

static int talk(struct proxy *p, struct den_err *err)
{
	auto_buf head = { 0 };
	bool chunked;

	if (proxy_head(p->r, p->upgrade, &head, &chunked, err) < 0)
		return -1;
	req_watch_box(p->r, p->id);
	if (send_up(p, head.p, head.len) < 0 || body_up(p, chunked, err) < 0 || head_down(p, err) < 0) {
		if (err->code == DEN_INVALID)
			return -1;
		return tell(p, 502, err->code == DEN_CONFLICT ? err->msg : "The sandbox was not found", true);
	}
	if (p->upgrade && upstream_status(p->up) == 101)
		return upgrade_down(p, err);
	return answer_down(p, err);
}

static int ports_any(struct req *r, struct den_err *err)
{
	auto_fd fd = -1;
	auto_upstream *up = upstream_new(req_method(r));
	struct proxy p = { .r = r, .fd = -1, .up = up, .upgrade = req_header(r, "Upgrade") };
	int res;

	if (!pick_box(r, p.id, &p.port))
		p.id[0] = '\0';
	if (!p.id[0] || !boxes_state(p.id))
		return not_there(&p);
	if (!let_in(&p))
		return 0;
	if (e2b_wake(r, p.id, err) < 0)
		return not_there(&p);
	if (connect_box(&p, err) < 0) {
		const char *state = boxes_state(p.id);

		if (err->code == DEN_NOT_FOUND && err->sys == 0)
			return not_there(&p);
		if (!state || strcmp(state, "running"))
			return not_there(&p);
		if (err->sys == ECONNREFUSED)
			return tell(&p, 502, "The sandbox is running but port is not open", true);
		log_line("warn", "port", "%s port %u: %s", p.id, p.port, err->msg);
		return tell(&p, 502, err->msg, true);
	}
	fd = p.fd;
	res = talk(&p, err);
	return res;
}

static void ports_fail(struct req *r, const struct den_err *err)
{
	int status = req_fail_status(r, err);

	req_reply_json(r, status, json_pack("{s:s, s:i}", "message", err->msg, "code", status));
}

static const struct route ports_routes[] = {
	{ "*", "/{path...}", ports_any, AUTH_BOX, SIZE_MAX, NULL },
};

const struct dialect dialect_ports = {
	.name = "ports",
	.routes = ports_routes,
	.n = ARRAY_SIZE(ports_routes),
	.fail = ports_fail,
};
