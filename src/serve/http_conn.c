/*
 * Connections: how many, from whom, and the reaper, which cuts those that hold one without using it.
 *
 * MHD has one timeout, for silence. A client that sends a byte now and then is never silent, so its clock
 * runs here: from the first byte of a request (TCP's own count tells that one came, MHD does not) to the end of
 * its headers, and for bodies by rate. Cutting is shutdown(): the HTTP thread sees the end and cleans up.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "clock.h"
#include "http_int.h"
#include "log.h"

#define PEER_SLOTS 512
#define LINGER_MAX 64
#define LINGER_NS (2 * NS_PER_SEC)
#define BODY_GRACE_S 20

struct peer {
	struct list link;
	struct in6_addr key;
	bool local;
	unsigned n;
};

static pthread_mutex_t conns_lock = PTHREAD_MUTEX_INITIALIZER;
static struct list conns = LIST_INIT(conns), peers[PEER_SLOTS];
static size_t conns_n;
static struct {
	int fd;
	int64_t until;
} lingering[LINGER_MAX];
static size_t lingering_n;

/* ---- who ---- */

/* An IPv4 address as IPv6 writes it; of an IPv6 address the network, which is what one customer has. */
static bool key_of(const struct sockaddr *a, struct in6_addr *ret, bool *ret_local)
{
	*ret = (struct in6_addr){ 0 };
	*ret_local = true;
	if (a->sa_family == AF_INET) {
		const struct sockaddr_in *in = (const void *)a;

		memcpy(ret->s6_addr + 12, &in->sin_addr, 4);
		*ret_local = (ntohl(in->sin_addr.s_addr) >> 24) == 127;
		return true;
	}
	if (a->sa_family == AF_INET6) {
		const struct sockaddr_in6 *in = (const void *)a;

		if (IN6_IS_ADDR_V4MAPPED(&in->sin6_addr)) {
			memcpy(ret->s6_addr + 12, in->sin6_addr.s6_addr + 12, 4);
			*ret_local = ret->s6_addr[12] == 127;
		} else {
			memcpy(ret, &in->sin6_addr, 8);
			ret->s6_addr[15] = 1;
			*ret_local = IN6_IS_ADDR_LOOPBACK(&in->sin6_addr);
		}
		return true;
	}
	return false;
}

static void text_of(const struct sockaddr *a, char out[static 64])
{
	char ip[INET6_ADDRSTRLEN] = "";

	if (a->sa_family == AF_INET)
		inet_ntop(AF_INET, &((const struct sockaddr_in *)(const void *)a)->sin_addr, ip,
			sizeof(ip));
	else if (a->sa_family == AF_INET6)
		inet_ntop(AF_INET6, &((const struct sockaddr_in6 *)(const void *)a)->sin6_addr, ip,
			sizeof(ip));
	snprintf(out, 64, "%s", *ip ? ip : "unix");
}

static struct peer *peer_find(const struct in6_addr *key, bool make)
{
	uint32_t h = 2166136261u;
	struct list *slot;
	struct peer *p;

	for (size_t i = 0; i < sizeof(*key); i++)
		h = (h ^ key->s6_addr[i]) * 16777619u;
	slot = &peers[h % PEER_SLOTS];
	if (!slot->next)
		list_init(slot);
	list_for_each (l, slot) {
		p = CONTAINER_OF(l, struct peer, link);
		if (!memcmp(&p->key, key, sizeof(*key)))
			return p;
	}
	if (!make)
		return NULL;
	p = mem_new(struct peer);
	p->key = *key;
	list_append(slot, &p->link);
	return p;
}

static void peer_drop(struct peer *p)
{
	if (!p || --p->n)
		return;
	list_remove(&p->link);
	free(p);
}

enum MHD_Result on_accept(void *cls, const struct sockaddr *addr, socklen_t len)
{
	struct in6_addr key;
	struct peer *p;
	bool local, ok = true;

	if (http_stopping)
		return MHD_NO;
	if (!key_of(addr, &key, &local) || local)
		return MHD_YES;
	pthread_mutex_lock(&conns_lock);
	p = peer_find(&key, false);
	if (p && p->n >= http_opt.per_peer)
		ok = false;
	pthread_mutex_unlock(&conns_lock);
	return ok ? MHD_YES : MHD_NO;
}

/* ---- coming and going ---- */

static uint64_t bytes_received(int fd)
{
	struct tcp_info info = { 0 };
	socklen_t n = sizeof(info);

	getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &n);
	return info.tcpi_bytes_received;
}

static void conn_start(struct MHD_Connection *m, bool tls, void **ctx)
{
	const union MHD_ConnectionInfo *fd =
		MHD_get_connection_info(m, MHD_CONNECTION_INFO_CONNECTION_FD);
	const union MHD_ConnectionInfo *addr =
		MHD_get_connection_info(m, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
	struct conn *c = calloc(1, sizeof(*c));
	struct in6_addr key;
	int one = 1;
	bool local;

	*ctx = c;
	if (!c)
		return; /* on_uri() refuses */
	c->fd = fd->connect_fd;
	c->tls = tls;
	c->since = clock_mono_ns();
	text_of(addr->client_addr, c->text);
	c->tcp = key_of(addr->client_addr, &key, &local);
	if (c->tcp)
		setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	pthread_mutex_lock(&conns_lock);
	if (c->tcp) {
		c->peer = peer_find(&key, true);
		c->peer->n++;
	}
	list_append(&conns, &c->link);
	conns_n++;
	pthread_mutex_unlock(&conns_lock);
}

/* The answer is on its way, but a close() with unread bytes would send a reset after it, and the client might
 * never see it: half of the connection stays, and is emptied for a moment. */
static void linger_begin(int fd)
{
	int copy = lingering_n < LINGER_MAX ? fcntl(fd, F_DUPFD_CLOEXEC, 3) : -1;

	if (copy < 0)
		return;
	shutdown(copy, SHUT_WR);
	lingering[lingering_n].fd = copy;
	lingering[lingering_n++].until = clock_mono_ns() + LINGER_NS;
}

void on_connection(
	void *cls, struct MHD_Connection *m, void **ctx, enum MHD_ConnectionNotificationCode code)
{
	struct conn *c = *ctx;

	if (code == MHD_CONNECTION_NOTIFY_STARTED) {
		conn_start(m, cls != NULL, ctx);
		return;
	}
	if (!c)
		return;
	*ctx = NULL;
	pthread_mutex_lock(&conns_lock);
	list_remove(&c->link);
	conns_n--;
	peer_drop(c->peer);
	if (c->linger)
		linger_begin(c->fd);
	pthread_mutex_unlock(&conns_lock);
	free(c);
}

void conn_phase(struct conn *c, int phase)
{
	pthread_mutex_lock(&conns_lock);
	/* of a first request, connecting is part of it */
	if (phase != CONN_HEAD || c->phase != CONN_IDLE || c->used)
		c->since = clock_mono_ns();
	if (phase == CONN_IDLE) {
		c->used = true;
		c->received = c->tcp ? bytes_received(c->fd) : 0;
	}
	c->body = 0;
	c->phase = phase;
	pthread_mutex_unlock(&conns_lock);
}

void conn_body(struct conn *c, size_t n, bool rated)
{
	pthread_mutex_lock(&conns_lock);
	c->body += n;
	c->rated = rated;
	pthread_mutex_unlock(&conns_lock);
}

void conn_linger(struct conn *c)
{
	pthread_mutex_lock(&conns_lock);
	c->linger = true;
	pthread_mutex_unlock(&conns_lock);
}

size_t conns_count(void)
{
	size_t n;

	pthread_mutex_lock(&conns_lock);
	n = conns_n;
	pthread_mutex_unlock(&conns_lock);
	return n;
}

void conns_cut(void)
{
	pthread_mutex_lock(&conns_lock);
	list_for_each (l, &conns)
		shutdown(CONTAINER_OF(l, struct conn, link)->fd, SHUT_RDWR);
	pthread_mutex_unlock(&conns_lock);
}

/* The client sends no more, and all that it sent was read. MHD, which is told of news alone, overlooks an end that came
 * with the last bytes, and would keep such a connection for its idle time. */
bool conn_ended(const struct conn *c)
{
	char x;

	return recv(c->fd, &x, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

/* ---- the reaper ---- */

/* Of a request that is not whole, and will not be, or after the last one. Seen twice, because between two requests that
 * came together there is a moment, too. */
static bool half_closed(struct conn *c)
{
	bool before = c->ended;

	c->ended = c->phase != CONN_BUSY && conn_ended(c);
	return before && c->ended;
}

static const char *too_slow(struct conn *c, int64_t now)
{
	int64_t ms = (now - c->since) / NS_PER_MS;

	switch (c->phase) {
	case CONN_IDLE:
		if (c->used && c->tcp && bytes_received(c->fd) == c->received) {
			c->since = now; /* kept alive: its clock starts with the first byte */
			return NULL;
		}
		if (c->used && !c->tcp)
			return NULL;
		return ms > http_opt.header_ms ? "headers" : NULL;
	case CONN_HEAD:
		return ms > http_opt.header_ms ? "headers" : NULL;
	case CONN_BODY:
		if (!c->rated || ms < BODY_GRACE_S * 1000)
			return NULL;
		return c->body / (uint64_t)(ms / 1000) < http_opt.body_rate ? "body" : NULL;
	default:
		return NULL;
	}
}

static void reap(int64_t now)
{
	list_for_each (l, &conns) {
		struct conn *c = CONTAINER_OF(l, struct conn, link);
		const char *what = too_slow(c, now);

		if (half_closed(c)) {
			shutdown(c->fd, SHUT_RDWR);
			c->phase = CONN_BUSY;
			continue;
		}
		if (!what)
			continue;
		shutdown(c->fd, SHUT_RDWR);
		c->phase = CONN_BUSY; /* once is enough */
		log_line("info", "slow", "%s was cut: its %s took too long", c->text, what);
	}
}

static void linger_all(int64_t now)
{
	char waste[16384];

	for (size_t i = 0; i < lingering_n;) {
		ssize_t n = 1;

		for (int turns = 0; n > 0 && turns < 64; turns++)
			n = recv(lingering[i].fd, waste, sizeof(waste), MSG_DONTWAIT);
		if (n != 0 && now < lingering[i].until) {
			i++;
			continue;
		}
		close(lingering[i].fd);
		lingering[i] = lingering[--lingering_n];
	}
}

static void *reaper_main(void *p)
{
	int64_t next = 0;

	prctl(PR_SET_NAME, "reaper");
	for (;;) {
		int64_t now = clock_mono_ns();
		bool busy;

		pthread_mutex_lock(&conns_lock);
		if (now >= next) {
			reap(now);
			next = now + NS_PER_SEC;
		}
		linger_all(now);
		busy = lingering_n > 0;
		pthread_mutex_unlock(&conns_lock);
		poll(NULL, 0, busy ? 20 : 1000);
	}
	return NULL;
}

void conns_start(const struct http_options *o)
{
	sigset_t all, old;
	pthread_attr_t a;
	pthread_t t;

	pthread_attr_init(&a);
	pthread_attr_setstacksize(&a, 128 << 10);
	pthread_attr_setdetachstate(&a, PTHREAD_CREATE_DETACHED);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	if (pthread_create(&t, &a, reaper_main, NULL))
		log_line("error", "start", "no thread for the reaper: slow clients are not cut");
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&a);
}
