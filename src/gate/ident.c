/* /run/den/identity.sock: a program in the box asks for a token that says who the box is.
 *   GET /token?audience=URL[&alg=ES256]     the token, as text
 * The keeper decides and has it signed; nothing here has a key. But what the keeper grants the gate, to be
 * added to requests, is not the box's to have: that is seen to here. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "clock.h"
#include "fd.h"
#include "gate.h"
#include "http.h"

#define CONNS_MAX 64U
#define IDLE_NS (10 * NS_PER_SEC)
#define HEAD_MAX 8192U
#define AUDIENCE_MAX 512U

struct ident {
	struct list link;
	struct gate *g;
	struct loop_source src;
	struct loop_deferred later;
	struct token_wait token;
	struct buf in;
	int64_t began;
	bool ended;
};

static void ident_free(struct loop_deferred *d)
{
	struct ident *i = CONTAINER_OF(d, struct ident, later);

	buf_free(&i->in);
	free(i);
}

static void ident_end(struct ident *i)
{
	if (i->ended)
		return;
	i->ended = true;
	token_forget(&i->token);
	loop_remove(i->g->loop, &i->src);
	fd_close(&i->src.fd);
	list_remove(&i->link);
	i->g->n_idents--;
	i->later.cb = ident_free;
	loop_defer(i->g->loop, &i->later);
}

static void say(struct ident *i, const char *status, const char *text)
{
	auto_buf b = { 0 };

	buf_addf(&b,
		"HTTP/1.1 %s\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %zu\r\n"
		"Cache-Control: no-store\r\nConnection: close\r\n\r\n%s",
		status, strlen(text), text);
	(void)!send(i->src.fd, b.p, b.len, MSG_DONTWAIT | MSG_NOSIGNAL);
	shutdown(i->src.fd, SHUT_WR);
	ident_end(i);
}

static void on_token(struct token_wait *w, const char *token, const char *reason)
{
	struct ident *i = CONTAINER_OF(w, struct ident, token);
	char text[1100];

	if (token) {
		say(i, "200 OK", token);
		return;
	}
	snprintf(text, sizeof(text), "den: no token: %s\n", reason);
	say(i, "403 Forbidden", text);
}

static int hex(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The value of a parameter, decoded; false: it is not there, or not decent. */
static bool parameter(const char *query, size_t n, const char *name, char *out, size_t cap)
{
	size_t len = strlen(name), at = 0, o = 0;

	while (at < n && (n - at <= len || memcmp(query + at, name, len) || query[at + len] != '=')) {
		const char *amp = memchr(query + at, '&', n - at);

		if (!amp)
			return false;
		at = (size_t)(amp - query) + 1;
	}
	if (at >= n)
		return false;
	for (at += len + 1; at < n && query[at] != '&'; at++) {
		int c = query[at];

		if (c == '%') {
			if (n - at < 3 || hex(query[at + 1]) < 0 || hex(query[at + 2]) < 0)
				return false;
			c = hex(query[at + 1]) << 4 | hex(query[at + 2]);
			at += 2;
		}
		if (c < 0x21 || c > 0x7e || o + 1 >= cap)
			return false;
		out[o++] = (char)c;
	}
	out[o] = '\0';
	return o > 0;
}

static void request(struct ident *i, const struct http_head *h)
{
	static const char path[] = "/token?";
	char audience[AUDIENCE_MAX], alg[16] = "EdDSA", reason[300];
	const char *query = h->target + sizeof(path) - 1;
	size_t n = h->target_len - (sizeof(path) - 1);

	if (strcmp(h->method, "GET")) {
		say(i, "405 Method Not Allowed", "den: GET /token?audience=URL\n");
		return;
	}
	if (h->target_len < sizeof(path) || memcmp(h->target, path, sizeof(path) - 1)) {
		say(i, "404 Not Found", "den: GET /token?audience=URL\n");
		return;
	}
	(void)parameter(query, n, "alg", alg, sizeof(alg));
	if (!parameter(query, n, "audience", audience, sizeof(audience)) ||
		(strcmp(alg, "EdDSA") && strcmp(alg, "ES256"))) {
		say(i, "400 Bad Request", "den: GET /token?audience=URL[&alg=EdDSA|ES256]\n");
		return;
	}
	i->token.done = on_token;
	if (!policy_audience_granted(i->g->cfg->policy, audience)) {
		snprintf(reason, sizeof(reason),
			"the policy of this box (generation %llu) grants no token for '%.100s'; add it to "
			"identity.audiences of the policy",
			(unsigned long long)i->g->cfg->generation, audience);
		on_token(&i->token, NULL, reason);
		return;
	}
	token_ask(i->g, &i->token, audience, alg);
}

static void on_ready(struct loop_source *s, uint32_t events)
{
	struct ident *i = CONTAINER_OF(s, struct ident, src);
	char in[2048];
	ssize_t n = recv(s->fd, in, sizeof(in), MSG_DONTWAIT);
	struct http_head h;
	const char *why;

	(void)events;
	if (n <= 0) {
		if (n == 0 || (errno != EAGAIN && errno != EINTR))
			ident_end(i);
		return;
	}
	if (i->token.number) /* has asked; what else it says does not matter */
		return;
	buf_add(&i->in, in, (size_t)n);
	switch (http_request_parse(i->in.p, i->in.len, &h, &why)) {
	case HTTP_OK:
		request(i, &h);
		http_head_free(&h);
		return;
	case HTTP_BAD:
		say(i, "400 Bad Request", "den: not plain HTTP/1.1\n");
		return;
	default:
		if (i->in.len > HEAD_MAX)
			say(i, "431 Too Large", "den: too long\n");
	}
}

static void on_accept(struct loop_source *s, uint32_t events)
{
	struct gate *g = CONTAINER_OF(s, struct gate, identity);
	int fd = accept4(s->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct den_err err;
	struct ident *i;

	(void)events;
	if (fd < 0)
		return;
	if (g->n_idents >= CONNS_MAX) {
		close(fd);
		return;
	}
	i = mem_new(struct ident);
	*i = (struct ident){ .g = g, .src = { .fd = fd, .events = EPOLLIN, .cb = on_ready },
		.began = clock_mono_ns() };
	list_append(&g->idents, &i->link);
	g->n_idents++;
	if (loop_add(g->loop, &i->src, &err) < 0)
		ident_end(i);
}

int ident_take(struct gate *g, int listen_fd, struct den_err *err)
{
	if (g->identity.fd >= 0) {
		loop_remove(g->loop, &g->identity);
		fd_close(&g->identity.fd);
	}
	fd_set_nonblock(listen_fd, true);
	g->identity = (struct loop_source){ .fd = listen_fd, .events = EPOLLIN, .cb = on_accept };
	return loop_add(g->loop, &g->identity, err);
}

void ident_tick(struct gate *g, int64_t now)
{
	list_for_each_safe(l, next, &g->idents) {
		struct ident *i = CONTAINER_OF(l, struct ident, link);

		if (now - i->began > IDLE_NS)
			ident_end(i);
	}
}
