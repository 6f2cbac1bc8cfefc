/* Starting and stopping: one MHD daemon, with one thread, for each listening socket. */
#include <errno.h>
#include <netdb.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "clock.h"
#include "fd.h"
#include "http_int.h"
#include "log.h"

#define LISTEN_MAX 8
#define BACKLOG 1024

struct http_options http_opt;
static struct {
	struct MHD_Daemon *d;
	int fd;
} listeners[LISTEN_MAX];
static size_t listeners_n;

/* ---- sockets ---- */

static int bind_unix(const char *path, mode_t mode, int *ret, struct den_err *err)
{
	auto_fd fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	mode_t old;
	int failed;

	if (strlen(path) >= sizeof(a.sun_path))
		return den_fail(err, DEN_INVALID, 0, "'%s' is too long for a unix socket", path);
	memcpy(a.sun_path, path, strlen(path));
	if (fd >= 0 && connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0)
		return den_fail(err, DEN_CONFLICT, 0, "somebody listens on %s already", path);
	unlink(path);
	old = umask(0777 & ~mode);
	failed =
		fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 || listen(fd, BACKLOG) < 0;
	umask(old);
	if (failed)
		return den_fail_sys(err, errno, "listen on %s", path);
	*ret = fd_take(&fd);
	return 0;
}

static int bind_tcp(const struct addrinfo *a, const char *where, int *ret, struct den_err *err)
{
	auto_fd fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int one = 1;

	if (fd >= 0)
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (fd >= 0 && a->ai_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof(one));
	if (fd < 0 || bind(fd, a->ai_addr, a->ai_addrlen) < 0 || listen(fd, BACKLOG) < 0) {
		if (errno == EADDRINUSE)
			return den_fail(err, DEN_CONFLICT, errno,
				"listen on %s; choose another port with --listen", where);
		return den_fail_sys(err, errno, "listen on %s", where);
	}
	*ret = fd_take(&fd);
	return 0;
}

/* getaddrinfo() takes 99999 for 34463 */
static bool port_ok(const char *text)
{
	size_t n = strspn(text, "0123456789");

	return n && n <= 5 && !text[n] && atoi(text) <= 65535;
}

int http_bind(const char *where, mode_t mode, int *ret, struct den_err *err)
{
	struct addrinfo hint = { .ai_flags = AI_PASSIVE | AI_NUMERICHOST | AI_NUMERICSERV,
		.ai_socktype = SOCK_STREAM },
			*list = NULL;
	char host[64];
	const char *colon = strrchr(where, ':');
	size_t n = colon ? (size_t)(colon - where) : 0;
	int result;

	if (where[0] == '/')
		return bind_unix(where, mode, ret, err);
	if (!colon || n >= sizeof(host) || !port_ok(colon + 1))
		return den_fail(err, DEN_INVALID, 0,
			"'%s' is no address to listen on; it looks like 127.0.0.1:2600", where);
	snprintf(host, sizeof(host), "%.*s", (int)n, where);
	if (host[0] == '[' && n > 2 && host[n - 1] == ']') {
		memmove(host, host + 1, n - 2);
		host[n - 2] = 0;
	}
	if (!strcmp(host, "localhost"))
		strcpy(host, "127.0.0.1");
	if (getaddrinfo(*host ? host : NULL, colon + 1, &hint, &list) || !list)
		return den_fail(err, DEN_INVALID, 0,
			"'%s' is no address to listen on; it looks like 127.0.0.1:2600", where);
	result = bind_tcp(list, where, ret, err);
	freeaddrinfo(list);
	return result;
}

/* ---- daemons ---- */

/* Names and values stay as they were sent: they are decoded once, by us. */
static size_t no_unescape(void *cls, struct MHD_Connection *c, char *s)
{
	return strlen(s);
}

static void on_panic(void *cls, const char *file, unsigned line, const char *why)
{
	log_line("error", "panic", "libmicrohttpd %s:%u: %s", file, line, why ? why : "");
	abort();
}

static int listener_start(const struct http_listen *l, struct den_err *err)
{
	unsigned flags = MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME |
			 MHD_ALLOW_UPGRADE | MHD_USE_ITC;
	struct MHD_OptionItem tls[] = {
		{ MHD_OPTION_HTTPS_MEM_CERT, 0, (void *)http_opt.tls_cert },
		{ MHD_OPTION_HTTPS_MEM_KEY, 0, (void *)http_opt.tls_key },
		{ MHD_OPTION_HTTPS_PRIORITIES, 0, "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2" },
		{ MHD_OPTION_END, 0, NULL },
	};
	struct MHD_OptionItem none[] = { { MHD_OPTION_END, 0, NULL } };
	struct MHD_Daemon *d;

	if (listeners_n == LISTEN_MAX)
		return den_fail(err, DEN_LIMIT, 0, "at most %d addresses to listen on", LISTEN_MAX);
	if (l->tls && (!http_opt.tls_cert || !http_opt.tls_key))
		return den_fail(err, DEN_INVALID, 0, "TLS needs a certificate and its key");
	if (l->tls && MHD_is_feature_supported(MHD_FEATURE_TLS) != MHD_YES)
		return den_fail(
			err, DEN_UNSUPPORTED, 0, "this libmicrohttpd was built without TLS");
	if (l->tls)
		flags |= MHD_USE_TLS;
	fd_set_nonblock(l->fd, true);
	d = MHD_start_daemon(flags, 0, on_accept, NULL, on_request, NULL, MHD_OPTION_ARRAY,
		l->tls ? tls : none, MHD_OPTION_LISTEN_SOCKET, l->fd, MHD_OPTION_CONNECTION_LIMIT,
		http_opt.connections, MHD_OPTION_CONNECTION_TIMEOUT, http_opt.idle_s,
		MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HTTP_POOL, MHD_OPTION_NOTIFY_CONNECTION,
		on_connection, l->tls ? &http_opt : NULL, MHD_OPTION_NOTIFY_COMPLETED, on_completed,
		NULL, MHD_OPTION_URI_LOG_CALLBACK, on_uri, NULL, MHD_OPTION_UNESCAPE_CALLBACK,
		no_unescape, NULL,
#if MHD_VERSION >= 0x00097700
		MHD_OPTION_CLIENT_DISCIPLINE_LVL, 1,
#else
		MHD_OPTION_STRICT_FOR_CLIENT, 1,
#endif
		MHD_OPTION_END);
	if (!d)
		return den_fail(err, l->tls ? DEN_INVALID : DEN_INTERNAL, 0,
			l->tls ? "the server could not be started; are certificate and key PEM, "
				 "and do they belong together?"
			       : "the HTTP server could not be started");
	listeners[listeners_n].fd = l->fd;
	listeners[listeners_n++].d = d;
	return 0;
}

static char *copy_or_null(const char *s)
{
	return s ? mem_strdup(s) : NULL;
}

int http_start(const struct http_options *o, struct den_err *err)
{
	sigset_t all, old;
	int result = 0;

	http_opt = *o;
	http_opt.tls_cert = copy_or_null(o->tls_cert);
	http_opt.tls_key = copy_or_null(o->tls_key);
	http_opt.workers = o->workers ? o->workers : 2048;
	http_opt.connections = o->connections ? o->connections : 8192;
	http_opt.per_peer = o->per_peer ? o->per_peer : 1024;
	http_opt.header_ms = o->header_ms ? o->header_ms : 10000;
	http_opt.body_rate = o->body_rate ? o->body_rate : 512;
	http_opt.idle_s = o->idle_s ? o->idle_s : 660;
	MHD_set_panic_func(on_panic, NULL);
	metrics_start();
	pool_start(&http_opt);
	conns_start(&http_opt);
	sigfillset(&all); /* signals are main()'s */
	pthread_sigmask(SIG_SETMASK, &all, &old);
	for (size_t i = 0; !result && i < o->n_listen; i++)
		result = listener_start(&o->listen[i], err);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return result;
}

static void wait_until_none(unsigned ms)
{
	int64_t until = clock_mono_ns() + ms * NS_PER_MS;

	while ((reqs_count() || http_open) && clock_mono_ns() < until)
		usleep(2000);
}

void http_stop(unsigned grace_ms)
{
	for (size_t i = 0; i < listeners_n; i++) {
		MHD_socket fd = MHD_quiesce_daemon(listeners[i].d);

		if (fd != MHD_INVALID_SOCKET)
			close(fd);
	}
	http_stopping = true;
	reqs_stop(false);
	wait_until_none(grace_ms);
	http_closing = true;
	reqs_stop(true);
	wait_until_none(200);
	if (reqs_count() ||
		http_open) { /* somebody is deep in libden, or sends to a client that does not read:
					    MHD cannot be stopped under them */
		conns_cut();
		return;
	}
	for (size_t i = 0; i < listeners_n; i++)
		MHD_stop_daemon(listeners[i].d);
	listeners_n = 0;
}
