#include "sockets.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fd.h"
#include "mem.h"
#include "nl.h"

#define LIST_MAX (64U << 20)
#define TABLE "den-hold"
#define TABLE_F_OWNER 2 /* NFT_TABLE_F_OWNER, of Linux 5.12 */

/* ---- what there is ---- */

enum { ST_TIME_WAIT = 6, ST_CLOSE = 7, ST_LISTEN = 10 };

struct conn {
	char here[40], there[40]; /* "ADDRESS:PORT", in hexadecimal digits, IPv4 as itself */
};

struct conns {
	struct conn *v;
	size_t n;
	bool routes;
};

/* An IPv4 address in IPv6's clothes is told as what it is. */
static const char *plain(const char *a)
{
	return strlen(a) == 32 && !strncmp(a, "0000000000000000FFFF0000", 24) ? a + 24 : a;
}

static bool is_local(const char *a)
{
	size_t n = strlen(a = plain(a));

	if (strspn(a, "0") == n)
		return true;
	if (n == 8)
		return !strcmp(a + 6, "7F"); /* 127.0.0.0/8; the machine's order of bytes */
	return !strcmp(a, "00000000000000000000000001000000");
}

static void take_line(const char *line, bool tcp, uint32_t first, uint32_t ids, struct conns *c)
{
	char here[36], there[36];
	unsigned port, peer, state, uid;
	struct conn *x;

	if (sscanf(line, "%*d: %32[0-9A-F]:%x %32[0-9A-F]:%x %x %*s %*s %*s %u", here, &port, there, &peer, &state, &uid) != 6)
		return;
	if (uid - first >= ids) /* the gate's */
		return;
	c->routes |= !is_local(here);
	if (!tcp || state == ST_LISTEN || state == ST_TIME_WAIT || state == ST_CLOSE)
		return;
	c->v = mem_realloc(c->v, sizeof(*c->v) * (c->n + 1));
	x = &c->v[c->n++];
	snprintf(x->here, sizeof(x->here), "%s:%X", plain(here), port);
	snprintf(x->there, sizeof(x->there), "%s:%X", plain(there), peer);
}

static int take_list(pid_t pid, const char *name, uint32_t first, uint32_t ids, struct conns *c, struct den_err *err)
{
	auto_free char *text = NULL;
	char path[48];
	auto_fd fd = -1;

	snprintf(path, sizeof(path), "/proc/%d/net/%s", (int)pid, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? 0 : den_fail_sys(err, errno, "'%s'", path); /* no IPv6 */
	if (fd_read_all(fd, LIST_MAX, &text, NULL, err) < 0)
		return -1;
	for (char *p = text, *end; (end = strchr(p, '\n')); p = end + 1) {
		*end = '\0';
		take_line(p, name[0] == 't', first, ids, c);
	}
	return 0;
}

static int conn_compare(const void *a, const void *b)
{
	return strcmp(((const struct conn *)a)->here, ((const struct conn *)b)->here);
}

/* Has somebody in the box its other end? Several may have the same address here. */
static bool has_peer(const struct conns *c, const struct conn *x)
{
	struct conn key;
	size_t lo = 0, hi = c->n;

	memcpy(key.here, x->there, sizeof(key.here));
	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (conn_compare(&c->v[mid], &key) < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	for (; lo < c->n && !strcmp(c->v[lo].here, x->there); lo++)
		if (!strcmp(c->v[lo].there, x->here))
			return true;
	return false;
}

/* Is there any of that kind? The lists take the kernel a millisecond each, in which the box stands still. */
static bool has_any(pid_t pid, const char *list)
{
	bool six = list[3] == '6';
	char path[48], text[1024], key[16];
	const char *p;

	snprintf(path, sizeof(path), "/proc/%d/net/sockstat%s", (int)pid, six ? "6" : "");
	if (file_read_at(AT_FDCWD, path, text, sizeof(text), NULL) < 0)
		return true;
	snprintf(key, sizeof(key), "%s%s: inuse ", list[0] == 't' ? "TCP" : "UDP", six ? "6" : "");
	p = strstr(text, key);
	return !p || strtoul(p + strlen(key), NULL, 10);
}

int sockets_look(pid_t pid, uint32_t first, uint32_t n, struct sockets *ret, struct den_err *err)
{
	static const char *const lists[] = { "tcp", "tcp6", "udp", "udp6" };
	struct conns c = { 0 };
	struct sockets s = { 0 };

	for (size_t i = 0; i < ARRAY_SIZE(lists); i++) {
		if (has_any(pid, lists[i]) && take_list(pid, lists[i], first, n, &c, err) < 0) {
			free(c.v);
			return -1;
		}
	}
	if (c.n)
		qsort(c.v, c.n, sizeof(*c.v), conn_compare);
	for (size_t i = 0; i < c.n; i++)
		s.outside += !has_peer(&c, &c.v[i]);
	s.connected = (unsigned)c.n;
	s.routes = c.routes;
	free(c.v);
	*ret = s;
	return 0;
}

/* ---- keeping it still ---- */

static void put_table(struct buf *b, uint16_t type, uint16_t flags, uint32_t *seq)
{
	size_t at = nl_nft(b, type, flags, seq);

	nl_str(b, NFTA_TABLE_NAME, TABLE);
	if (type == NFT_MSG_NEWTABLE) /* the socket's: gone with it, if the keeper dies */
		nl_be32(b, NFTA_TABLE_FLAGS, TABLE_F_OWNER);
	nl_close(b, at);
}

/* A chain whose policy it is to drop what comes in. */
static void put_chain(struct buf *b, uint32_t *seq)
{
	size_t at = nl_nft(b, NFT_MSG_NEWCHAIN, NLM_F_CREATE | NLM_F_ACK, seq), hook;

	nl_str(b, NFTA_CHAIN_TABLE, TABLE);
	nl_str(b, NFTA_CHAIN_NAME, "in");
	hook = nl_nest(b, NFTA_CHAIN_HOOK);
	nl_be32(b, NFTA_HOOK_HOOKNUM, NF_INET_LOCAL_IN);
	nl_be32(b, NFTA_HOOK_PRIORITY, (uint32_t)-500);
	nl_nest_end(b, hook);
	nl_be32(b, NFTA_CHAIN_POLICY, NF_DROP);
	nl_str(b, NFTA_CHAIN_TYPE, "filter");
	nl_close(b, at);
}

int sockets_hold(int box, int *ret, struct den_err *err)
{
	auto_fd own = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC), fd = -1;
	auto_buf b = { 0 };
	uint32_t seq = 1;

	if (own < 0 || setns(box, CLONE_NEWNET) < 0)
		return den_fail_sys(err, errno, "the box's network");
	fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_NETFILTER);
	if (setns(own, CLONE_NEWNET) < 0)
		abort(); /* its own one is always allowed */
	nl_nft_batch(&b, NFNL_MSG_BATCH_BEGIN);
	put_table(&b, NFT_MSG_NEWTABLE, NLM_F_CREATE | NLM_F_EXCL, &seq);
	put_chain(&b, &seq);
	nl_nft_batch(&b, NFNL_MSG_BATCH_END);
	if (nl_exchange_on(fd, &b, 1, "hold the box's connections (nftables)", err) < 0)
		return -1;
	*ret = fd_take(&fd);
	return 0;
}

int sockets_go(int fd, struct den_err *err)
{
	auto_buf b = { 0 };
	uint32_t seq = 10;

	nl_nft_batch(&b, NFNL_MSG_BATCH_BEGIN);
	put_table(&b, NFT_MSG_DELTABLE, NLM_F_ACK, &seq);
	nl_nft_batch(&b, NFNL_MSG_BATCH_END);
	return nl_exchange_on(fd, &b, 1, "let the box's connections go on (nftables)", err);
}
