#include "resolve.h"

#include <ares.h>
#include <arpa/nameser.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "clock.h"

/* c-ares has newer names for some of this since 1.28; Debian 12 has 1.18. */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

#define SOCKETS 64
#define BUCKETS 512U
#define NAMES_MAX 2048U
#define FIXED_MAX 4096U /* of the hosts file, which may be somebody's list of advertisers */
#define TTL_MIN 5
#define TTL_MAX 300
#define TTL_FAILED 2
#define TIMEOUT_MS 2000
#define TRIES 3

struct entry {
	struct list link;   /* in resolver.used, the newest last */
	struct entry *next; /* of the bucket */
	struct resolver *r;
	struct net_name name;
	struct net_addr addrs[RESOLVE_ADDRS];
	unsigned n, pending;
	int ttl;
	bool failed;
	bool fixed; /* from the hosts file */
	int64_t until;
	struct list waiting;
};

struct slot {
	struct resolver *r;
	struct loop_source src;
};

struct resolver {
	struct gate *g;
	ares_channel ares;
	struct slot slots[SOCKETS];
	struct loop_timer timer;
	struct entry *bucket[BUCKETS];
	struct list used;
	unsigned n, n_fixed; /* n: without the fixed ones */
	char *servers;
};

/* ---- c-ares on our loop ---- */

static void arm(struct resolver *r)
{
	struct timeval max = { 3600, 0 }, tv, *t = ares_timeout(r->ares, &max, &tv);

	if (t)
		loop_timer_set(r->g->loop, &r->timer,
			clock_mono_ns() + t->tv_sec * NS_PER_SEC + t->tv_usec * 1000LL + NS_PER_MS);
}

static void on_timer(struct loop_timer *t)
{
	struct resolver *r = CONTAINER_OF(t, struct resolver, timer);

	ares_process_fd(r->ares, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
	arm(r);
}

static void on_socket(struct loop_source *src, uint32_t events)
{
	struct slot *s = CONTAINER_OF(src, struct slot, src);
	struct resolver *r = s->r;
	int fd = src->fd;

	ares_process_fd(r->ares, events & (EPOLLIN | EPOLLERR | EPOLLHUP) ? fd : ARES_SOCKET_BAD,
		events & EPOLLOUT ? fd : ARES_SOCKET_BAD);
	arm(r);
}

static void on_state(void *user, ares_socket_t fd, int readable, int writable)
{
	struct resolver *r = user;
	struct slot *s = NULL, *empty = NULL;
	uint32_t events = (readable ? EPOLLIN : 0U) | (writable ? EPOLLOUT : 0U);
	struct den_err err;

	for (unsigned i = 0; i < SOCKETS; i++) {
		if (r->slots[i].src.added && r->slots[i].src.fd == fd)
			s = &r->slots[i];
		else if (!r->slots[i].src.added)
			empty = &r->slots[i];
	}
	if (s && !events)
		loop_remove(r->g->loop, &s->src);
	else if (s)
		loop_set_events(r->g->loop, &s->src, events);
	else if (events && empty) {
		*empty = (struct slot){ r, { .fd = fd, .events = events, .cb = on_socket } };
		(void)loop_add(r->g->loop, &empty->src, &err); /* else the query times out */
	}
}

int resolver_new(struct gate *g, struct resolver **ret, struct den_err *err)
{
	struct resolver *r = mem_new(struct resolver);
	struct ares_options o = { .flags = ARES_FLAG_NOSEARCH | ARES_FLAG_NOALIASES, .timeout = TIMEOUT_MS,
		.tries = TRIES, .lookups = (char *)"b", .sock_state_cb = on_state, .sock_state_cb_data = r };
	int rc = ares_library_init(ARES_LIB_INIT_ALL);

	r->g = g;
	r->timer.cb = on_timer;
	list_init(&r->used);
	if (rc == ARES_SUCCESS)
		rc = ares_init_options(&r->ares, &o, ARES_OPT_FLAGS | ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES |
			ARES_OPT_LOOKUPS | ARES_OPT_SOCK_STATE_CB);
	if (rc != ARES_SUCCESS) {
		free(r);
		return den_fail(err, DEN_INTERNAL, 0, "resolver: %s", ares_strerror(rc));
	}
	*ret = r;
	return 0;
}

/* ---- what is known ---- */

static unsigned hash(const char *s)
{
	uint64_t h = 0xcbf29ce484222325ULL;

	for (; *s; s++)
		h = (h ^ (unsigned char)*s) * 0x100000001b3ULL;
	return (unsigned)((h ^ h >> 29) % BUCKETS);
}

static struct entry *entry_find(struct resolver *r, const struct net_name *n)
{
	for (struct entry *e = r->bucket[hash(n->s)]; e; e = e->next)
		if (!strcmp(e->name.s, n->s))
			return e;
	return NULL;
}

static void entry_free(struct entry *e)
{
	struct entry **at = &e->r->bucket[hash(e->name.s)];

	while (*at != e)
		at = &(*at)->next;
	*at = e->next;
	list_remove(&e->link);
	if (e->fixed)
		e->r->n_fixed--;
	else
		e->r->n--;
	free(e);
}

/* Room for one more: the oldest that nobody waits for goes. */
static bool make_room(struct resolver *r)
{
	if (r->n < NAMES_MAX)
		return true;
	list_for_each_safe(l, next, &r->used) {
		struct entry *e = CONTAINER_OF(l, struct entry, link);

		if (e->pending || e->fixed)
			continue;
		entry_free(e);
		return true;
	}
	return false;
}

static struct entry *entry_new(struct resolver *r, const struct net_name *n, bool fixed)
{
	struct entry *e;
	unsigned h = hash(n->s);

	if (fixed ? r->n_fixed >= FIXED_MAX : !make_room(r))
		return NULL;
	e = mem_new(struct entry);
	e->r = r;
	e->name = *n;
	list_init(&e->waiting);
	e->next = r->bucket[h];
	r->bucket[h] = e;
	list_append(&r->used, &e->link);
	e->fixed = fixed;
	if (fixed)
		r->n_fixed++;
	else
		r->n++;
	return e;
}

static void entry_add(struct entry *e, const struct net_addr *a)
{
	for (unsigned i = 0; i < e->n; i++)
		if (net_addr_equal(&e->addrs[i], a))
			return;
	if (e->n < RESOLVE_ADDRS)
		e->addrs[e->n++] = *a;
}

/* ---- asking ---- */

static void entry_done(struct entry *e)
{
	e->until = clock_mono_ns() + (e->n ? MAX(TTL_MIN, MIN(e->ttl, TTL_MAX)) : TTL_FAILED) * NS_PER_SEC;
	if (e->n)
		e->failed = false;
	e->pending = 1; /* stays while it is told */
	while (!list_empty(&e->waiting)) {
		struct lookup *l = CONTAINER_OF(e->waiting.next, struct lookup, link);

		list_remove(&l->link);
		l->waiting = false;
		l->done(l, e->addrs, e->n, e->failed);
	}
	e->pending = 0;
}

static void take_answer(struct entry *e, int family, const unsigned char *p, int len)
{
	struct ares_addrttl v4[RESOLVE_ADDRS];
	struct ares_addr6ttl v6[RESOLVE_ADDRS];
	int n = RESOLVE_ADDRS, rc;

	rc = family == 4 ? ares_parse_a_reply(p, len, NULL, v4, &n) : ares_parse_aaaa_reply(p, len, NULL, v6, &n);
	if (rc != ARES_SUCCESS)
		return;
	for (int i = 0; i < n; i++) {
		struct net_addr a = family == 4 ? net_addr_v4((const uint8_t *)&v4[i].ipaddr) :
						  net_addr_v6((const uint8_t *)&v6[i].ip6addr);
		int ttl = family == 4 ? v4[i].ttl : v6[i].ttl;

		entry_add(e, &a);
		e->ttl = MIN(e->ttl, ttl);
	}
}

static void on_answer(struct entry *e, int family, int status, const unsigned char *p, int len)
{
	if (status == ARES_SUCCESS)
		take_answer(e, family, p, len);
	else if (status != ARES_ENOTFOUND && status != ARES_ENODATA)
		e->failed = true;
	if (--e->pending == 0)
		entry_done(e);
}

static void on_v4(void *user, int status, int timeouts, unsigned char *p, int len)
{
	(void)timeouts;
	on_answer(user, 4, status, p, len);
}

static void on_v6(void *user, int status, int timeouts, unsigned char *p, int len)
{
	(void)timeouts;
	on_answer(user, 6, status, p, len);
}

bool resolver_knows(struct resolver *r, const struct net_name *n)
{
	const struct entry *e = entry_find(r, n);

	return e && (e->pending || e->fixed || e->until > clock_mono_ns());
}

void resolver_ask(struct resolver *r, const struct net_name *n, struct lookup *l)
{
	struct entry *e = entry_find(r, n);
	int64_t now = clock_mono_ns();

	if (!e)
		e = entry_new(r, n, false);
	if (!e) {
		l->done(l, NULL, 0, true);
		return;
	}
	if (!e->pending && (e->fixed || e->until > now)) {
		list_remove(&e->link);
		list_append(&r->used, &e->link);
		e->pending++; /* done may ask for others, for which there must be room */
		l->done(l, e->addrs, e->n, e->failed);
		e->pending--;
		return;
	}
	l->waiting = true;
	list_append(&e->waiting, &l->link);
	if (e->pending)
		return;
	e->n = 0;
	e->failed = false;
	e->ttl = TTL_MAX;
	e->pending = 2;
	ares_query(r->ares, n->s, ns_c_in, ns_t_a, on_v4, e);
	ares_query(r->ares, n->s, ns_c_in, ns_t_aaaa, on_v6, e);
	arm(r);
}

void lookup_cancel(struct lookup *l)
{
	if (!l->waiting)
		return;
	l->waiting = false;
	list_remove(&l->link);
}

/* ---- servers and the hosts file ---- */

static void put_server(struct buf *b, const struct net_addr *a, unsigned port)
{
	char text[46];

	net_addr_format(a, text);
	buf_addf(b, a->family == 4 ? "%s%s:%u" : "%s[%s]:%u", b->len ? "," : "", text, port);
}

static void servers_of_host(struct buf *b, const char *resolv)
{
	auto_free char *text = mem_strdup(resolv);
	char *save = NULL;

	for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		char word[64];
		struct net_addr a;

		/* a zone (%eth0) belongs to link-local servers, which c-ares could not reach without it */
		if (sscanf(line, " nameserver %63s", word) == 1 && net_addr_parse(word, &a) == 0)
			put_server(b, &a, 53);
	}
}

static void hosts_line(struct resolver *r, const struct policy *p, char *line)
{
	char *save = NULL, *word;
	struct net_addr a;
	struct net_name n;

	line[strcspn(line, "#")] = '\0';
	word = strtok_r(line, " \t\r", &save);
	if (!word || net_addr_parse(word, &a) < 0)
		return;
	while ((word = strtok_r(NULL, " \t\r", &save))) {
		struct entry *e;

		/* what the box may not ask for needs no place */
		if (net_name_parse(word, strlen(word), &n, NULL) < 0 || !policy_name_known(p, &n, NULL))
			continue;
		e = entry_find(r, &n);
		if (!e || !e->fixed)
			e = entry_new(r, &n, true);
		if (!e)
			return;
		entry_add(e, &a);
	}
}

static void forget_all(struct resolver *r)
{
	list_for_each_safe(l, next, &r->used) {
		struct entry *e = CONTAINER_OF(l, struct entry, link);

		e->until = 0;
		if (!e->pending)
			entry_free(e);
	}
}

int resolver_servers(struct resolver *r, const struct config *c, struct den_err *err)
{
	auto_free char *hosts = mem_strdup(c->hosts);
	auto_buf b = { 0 };
	char *save = NULL;
	int rc;

	for (unsigned i = 0; i < c->policy->n_resolvers; i++)
		put_server(&b, &c->policy->resolvers[i].addr, c->policy->resolvers[i].port);
	if (!b.len)
		servers_of_host(&b, c->resolv);
	if (!b.len)
		buf_addstr(&b, "127.0.0.1:53");
	if (!r->servers || strcmp(r->servers, buf_str(&b))) {
		ares_cancel(r->ares); /* servers cannot change under a question */
		rc = ares_set_servers_ports_csv(r->ares, buf_str(&b));
		if (rc != ARES_SUCCESS)
			return den_fail(err, DEN_INVALID, 0, "resolver '%.80s': %s", buf_str(&b),
				ares_strerror(rc));
		free(r->servers);
		r->servers = mem_strdup(buf_str(&b));
	}
	forget_all(r);
	if (c->policy->n_resolvers) /* who names a resolver means it */
		return 0;
	for (char *line = strtok_r(hosts, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
		hosts_line(r, c->policy, line);
	return 0;
}
