/* den forward: ports of this machine that lead into boxes, as long as the command runs. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>

#include "cli.h"
#include "fd.h"
#include "loop.h"
#include "mem.h"
#include "parse.h"
#include "verbs.h"

#define PIECE (64U << 10)
#define CONNS_MAX 1024

struct way { /* one direction of a connection */
	char *held;
	size_t at, len;
	bool eof, shut;
};

struct pair {
	struct list link;
	struct forwarder *fw;
	struct loop_source side[2];
	struct way way[2]; /* [0]: from side 0 to side 1 */
	struct loop_deferred later;
	bool ended;
};

struct entrance {
	struct forwarder *fw;
	struct loop_source src;
	struct session s;
	uint16_t port;
};

struct forwarder {
	const struct args *a;
	struct loop *loop;
	struct list pairs;
	unsigned n;
	struct loop_source signals;
	int signal;
};

/* ---- a connection ---- */

static void pair_free(struct loop_deferred *d)
{
	struct pair *p = CONTAINER_OF(d, struct pair, later);

	free(p->way[0].held);
	free(p->way[1].held);
	free(p);
}

static void pair_end(struct pair *p)
{
	if (p->ended)
		return;
	p->ended = true;
	for (int i = 0; i < 2; i++) {
		loop_remove(p->fw->loop, &p->side[i]);
		fd_close(&p->side[i].fd);
	}
	list_remove(&p->link);
	p->fw->n--;
	p->later.cb = pair_free;
	loop_defer(p->fw->loop, &p->later);
}

/* -1: broken */
static int move(struct way *w, int from, int to)
{
	ssize_t n;

	if (!w->len && !w->eof) {
		n = recv(from, w->held, PIECE, MSG_DONTWAIT);
		if (n < 0)
			return errno == EAGAIN || errno == EINTR ? 0 : -1;
		w->eof = n == 0;
		w->at = 0;
		w->len = (size_t)n;
	}
	while (w->len) {
		n = send(to, w->held + w->at, w->len, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n < 0)
			return errno == EAGAIN || errno == EINTR ? 0 : -1;
		w->at += (size_t)n;
		w->len -= (size_t)n;
	}
	if (w->eof && !w->shut) {
		shutdown(to, SHUT_WR);
		w->shut = true;
	}
	return 0;
}

static void pair_go(struct pair *p)
{
	if (move(&p->way[0], p->side[0].fd, p->side[1].fd) < 0 || move(&p->way[1], p->side[1].fd, p->side[0].fd) < 0 ||
		(p->way[0].shut && p->way[1].shut)) {
		pair_end(p);
		return;
	}
	for (int i = 0; i < 2; i++) {
		const struct way *out = &p->way[i], *in = &p->way[1 - i];
		uint32_t events = (!out->eof && !out->len ? EPOLLIN : 0U) | (in->len ? EPOLLOUT : 0U);

		if (out->eof && in->shut) /* would report its end for ever */
			loop_remove(p->fw->loop, &p->side[i]);
		else
			loop_set_events(p->fw->loop, &p->side[i], events);
	}
}

static void side_ready(struct pair *p, uint32_t events)
{
	if (events & EPOLLERR)
		pair_end(p);
	else
		pair_go(p);
}

static void side0_ready(struct loop_source *s, uint32_t events)
{
	side_ready(CONTAINER_OF(s, struct pair, side[0]), events);
}

static void side1_ready(struct loop_source *s, uint32_t events)
{
	side_ready(CONTAINER_OF(s, struct pair, side[1]), events);
}

static void pair_new(struct forwarder *fw, int out, int in)
{
	struct pair *p = mem_new(struct pair);
	struct den_err err;
	int on = 1;

	p->fw = fw;
	for (int i = 0; i < 2; i++) {
		p->way[i].held = mem_alloc(PIECE);
		p->side[i] = (struct loop_source){ .fd = i ? in : out, .events = EPOLLIN,
			.cb = i ? side1_ready : side0_ready };
		setsockopt(p->side[i].fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	}
	list_append(&fw->pairs, &p->link);
	fw->n++;
	if (loop_add(fw->loop, &p->side[0], &err) < 0 || loop_add(fw->loop, &p->side[1], &err) < 0)
		pair_end(p);
}

static void entrance_ready(struct loop_source *src, uint32_t events)
{
	struct entrance *e = CONTAINER_OF(src, struct entrance, src);
	int fd = accept4(src->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK), in;
	struct linger now = { 1, 0 };
	struct den_err err = { 0 };

	(void)events;
	if (fd < 0)
		return;
	if (e->fw->n < CONNS_MAX && den_box_connect(e->s.box, e->port, &in, &err) == 0) {
		pair_new(e->fw, fd, in);
		return;
	}
	if (!e->fw->a->quiet)
		fprintf(stderr, "den: %s\n", e->fw->n < CONNS_MAX ? err.msg : "too many connections");
	setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now)); /* refused, as it would be inside */
	close(fd);
}

/* ---- the command ---- */

/* [ADDRESS:]PORT:BOX:PORT */
static int parse_forward(const char *text, struct sockaddr_in *sa, char **box, uint16_t *port, struct den_err *err)
{
	auto_free char *copy = mem_strdup(text);
	char *part[4], *save = NULL;
	uint64_t outside, inside;
	int n = 0;

	for (char *p = strtok_r(copy, ":", &save); p && n < 4; p = strtok_r(NULL, ":", &save))
		part[n++] = p;
	*sa = (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	if (n < 3 || (n == 4 && inet_pton(AF_INET, part[0], &sa->sin_addr) != 1) ||
		parse_u64(part[n - 3], 0, 65535, &outside, err) < 0 || parse_u64(part[n - 1], 1, 65535, &inside, err) < 0)
		return den_fail(err, DEN_INVALID, 0, "'%.80s' is not [ADDRESS:]PORT:BOX:PORT, like 8080:web:3000", text);
	sa->sin_port = htons((uint16_t)outside);
	*box = mem_strdup(part[n - 2]);
	*port = (uint16_t)inside;
	return 0;
}

static int open_entrance(struct forwarder *fw, struct entrance *e, const char *text)
{
	struct sockaddr_in sa;
	socklen_t len = sizeof(sa);
	auto_free char *box = NULL;
	struct den_err err = { 0 };
	char addr[INET_ADDRSTRLEN];
	int on = 1, status;

	e->fw = fw;
	e->src.fd = -1;
	if (parse_forward(text, &sa, &box, &e->port, &err) < 0)
		return cli_fail(fw->a, &err, NULL);
	status = session_open(&e->s, fw->a, box);
	if (status)
		return status;
	e->src = (struct loop_source){ .fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0),
		.events = EPOLLIN, .cb = entrance_ready };
	setsockopt(e->src.fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (e->src.fd < 0 || bind(e->src.fd, (struct sockaddr *)&sa, sizeof(sa)) < 0 || listen(e->src.fd, 512) < 0 ||
		getsockname(e->src.fd, (struct sockaddr *)&sa, &len) < 0) {
		den_fail_sys(&err, errno, "listen for '%.80s'", text);
		return cli_fail(fw->a, &err, NULL);
	}
	if (loop_add(fw->loop, &e->src, &err) < 0)
		return cli_fail(fw->a, &err, NULL);
	inet_ntop(AF_INET, &sa.sin_addr, addr, sizeof(addr));
	printf("%s:%u -> %s:%u\n", addr, ntohs(sa.sin_port), box, e->port);
	fflush(stdout);
	return 0;
}

static void on_signal(struct loop_source *s, uint32_t events)
{
	struct forwarder *fw = CONTAINER_OF(s, struct forwarder, signals);

	(void)events;
	loop_quit(fw->loop);
}

static int forward(const struct args *a)
{
	auto_free struct entrance *e = mem_zalloc(sizeof(*e) * (size_t)a->n_words);
	struct forwarder fw = { .a = a };
	struct den_err err = { 0 };
	sigset_t set;
	int status = 0, n = 0;

	list_init(&fw.pairs);
	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	sigprocmask(SIG_BLOCK, &set, NULL);
	fw.signals = (struct loop_source){ .fd = signalfd(-1, &set, SFD_CLOEXEC), .events = EPOLLIN, .cb = on_signal };
	if (loop_new(&fw.loop, &err) < 0 || loop_add(fw.loop, &fw.signals, &err) < 0)
		return cli_fail(a, &err, NULL);
	for (; n < a->n_words && !status; n++)
		status = open_entrance(&fw, &e[n], a->words[n]);
	if (!status && loop_run(fw.loop, &err) < 0)
		status = cli_fail(a, &err, NULL);
	list_for_each_safe(l, next, &fw.pairs)
		pair_end(CONTAINER_OF(l, struct pair, link));
	for (int i = 0; i < n; i++) {
		fd_close(&e[i].src.fd);
		session_close(&e[i].s);
	}
	return status;
}

const struct verb verb_forward = {
	.name = "forward",
	.words = "[ADDRESS:]PORT:BOX:PORT...",
	.summary = "let ports of this machine lead into boxes, until Ctrl-C",
	.help = "The first port is this machine's (0: any that is free), on 127.0.0.1 unless an\n"
		"address is given; the second is the box's. 'den port' does it without staying.\n"
		"\n"
		"Examples:\n"
		"  den forward 8080:web:3000\n"
		"  den forward 8080:web:3000 5432:db:5432\n",
	.min_words = 1,
	.max_words = 64,
	.complete = "-",
	.run = forward,
};
