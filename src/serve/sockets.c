#include "sockets.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "buf.h"
#include "log.h"
#include "mem.h"
#include "systemd.h"

#define DEFAULT_LISTEN "127.0.0.1:2600"
#define UNIX_MODE 0666 /* like a port of the loopback: a key decides who may */

/* The address in words; *ret_port 0: it has none (a unix socket). */
static char *address_text(int fd, unsigned *ret_port)
{
	union {
		struct sockaddr any;
		struct sockaddr_in in;
		struct sockaddr_in6 in6;
	} a = { 0 };
	socklen_t n = sizeof(a);
	char ip[INET6_ADDRSTRLEN] = "";
	auto_buf b = { 0 };

	*ret_port = 0;
	if (getsockname(fd, &a.any, &n) < 0)
		return mem_strdup("?");
	if (a.any.sa_family == AF_INET) {
		inet_ntop(AF_INET, &a.in.sin_addr, ip, sizeof(ip));
		*ret_port = ntohs(a.in.sin_port);
		buf_addf(&b, "%s:%u", ip, *ret_port);
	} else if (a.any.sa_family == AF_INET6) {
		inet_ntop(AF_INET6, &a.in6.sin6_addr, ip, sizeof(ip));
		*ret_port = ntohs(a.in6.sin6_port);
		buf_addf(&b, "[%s]:%u", ip, *ret_port);
	} else {
		buf_addstr(&b, "unix");
	}
	return mem_strdup(buf_str(&b));
}

static int add(struct sockets *k, int fd, bool tls, struct den_err *err)
{
	auto_free char *where = NULL;
	unsigned port;

	if (k->n == SOCKETS_MAX)
		return den_fail(err, DEN_INVALID, 0, "more than %d sockets", SOCKETS_MAX);
	where = address_text(fd, &port);
	if (port && !tls && strncmp(where, "127.", 4) && strncmp(where, "[::1]", 5))
		log_line("warn", "listen", "%s is no loopback, and without TLS keys can be read on the way: --tls-cert, or a proxy",
			where);
	k->listen[k->n++] = (struct http_listen){ .fd = fd, .tls = tls && port };
	return 0;
}

static int open_asked(const struct settings *s, bool tls, struct sockets *k, struct den_err *err)
{
	int fd;

	for (size_t i = 0; i < MAX(s->n_listen, s->socket ? 0U : 1U); i++)
		if (http_bind(s->n_listen ? s->listen[i] : DEFAULT_LISTEN, 0, &fd, err) < 0 || add(k, fd, tls, err) < 0)
			return -1;
	if (!s->socket)
		return 0;
	if (s->socket[0] != '/')
		return den_fail(err, DEN_INVALID, 0, "--socket is an absolute path");
	return http_bind(s->socket, UNIX_MODE, &fd, err) < 0 ? -1 : add(k, fd, false, err);
}

/* How others reach it: an address that stands for all of them is reached by this host's loopback here. */
static void names(const struct settings *s, bool tls, struct sockets *k)
{
	auto_buf domain = { 0 }, url = { 0 };
	unsigned port = 0;

	for (size_t i = 0; i < k->n && !port; i++) {
		free(k->where);
		k->where = address_text(k->listen[i].fd, &port);
	}
	if (s->domain)
		buf_addstr(&domain, s->domain);
	else
		buf_addf(&domain, port ? "localhost:%u" : "localhost", port);
	k->domain = mem_strdup(buf_str(&domain));
	k->name = mem_strndup(k->domain, strcspn(k->domain, ":"));
	if (s->url)
		buf_addstr(&url, s->url);
	else if (s->domain)
		buf_addf(&url, "http%s://%s", tls ? "s" : "", s->domain);
	else if (!strncmp(k->where, "0.0.0.0:", 8) || !strncmp(k->where, "[::", 3) || !port)
		buf_addf(&url, "http%s://localhost:%u", tls ? "s" : "", port);
	else
		buf_addf(&url, "http%s://%s", tls ? "s" : "", k->where);
	k->url = mem_strdup(buf_str(&url));
}

int sockets_open(const struct settings *s, struct sockets *ret, struct den_err *err)
{
	bool tls = s->tls_cert || s->tls_self_signed;
	struct sockets k = { 0 };
	int passed = systemd_sockets();

	for (int i = 0; i < passed; i++)
		if (add(&k, 3 + i, tls, err) < 0)
			return -1;
	if (!passed && open_asked(s, tls, &k, err) < 0)
		return -1;
	names(s, tls, &k);
	*ret = k;
	return 0;
}

void sockets_close(struct sockets *k)
{
	for (size_t i = 0; i < k->n; i++)
		close(k->listen[i].fd);
	k->n = 0;
}
