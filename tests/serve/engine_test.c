/*
 * A server with nothing behind it, for tests/serve/raw.py: every way in which a handler can answer, wait or
 * fail, and keys that are good or not by their name.
 *
 *   serve-engine [--tls CERT KEY] [--header-ms N] [--workers N] ADDRESS...
 *
 * Prints "port N" for each TCP address, then "ready". SIGTERM stops it with a second of grace.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "auth.h"
#include "clock.h"
#include "engine.h"
#include "fd.h"
#include "json_fields.h"
#include "log.h"
#include "mem.h"
#include "ws.h"

/* ---- instead of auth.c ---- */

int auth_check(struct req *r, const char *key, struct who *ret, struct den_err *err)
{
	if (!strcmp(key, "slow"))
		return den_fail(err, DEN_LIMIT, 0, "too many attempts");
	if (strcmp(key, "good") && strcmp(key, "admin"))
		return den_fail(err, DEN_DENIED, 0, "no such key");
	*ret = (struct who){ .org = "default", .key = "k1", .admin = !strcmp(key, "admin") };
	return 0;
}

bool auth_still(const struct who *w)
{
	(void)w;
	return true;
}

bool auth_scope(const struct who *w, const char *scope)
{
	return !strcmp(scope, "boxes");
}

/* ---- handlers ---- */

static int get_hello(struct req *r, struct den_err *err)
{
	return req_reply(r, 200, "text/plain", "hello\n", 6);
}

static int any_echo(struct req *r, struct den_err *err)
{
	auto_buf b = { 0 };

	if (req_body(r, 1 << 20, &b, err) < 0)
		return -1;
	return req_reply(r, 200, "application/octet-stream", b.p, b.len);
}

/* Reads all, so slowly as ?us= for each read says; answers with the count. */
static int post_sink(struct req *r, struct den_err *err)
{
	uint64_t us, total = 0;
	char part[65536], text[32];
	ssize_t n;

	if (req_query_u64(r, "us", 1000000, 0, &us, err) < 0)
		return -1;
	while ((n = req_read(r, part, sizeof(part), err)) > 0) {
		total += (uint64_t)n;
		if (us)
			usleep((useconds_t)us);
	}
	if (n < 0)
		return -1;
	snprintf(text, sizeof(text), "%llu\n", (unsigned long long)total);
	return req_reply(r, 200, "text/plain", text, strlen(text));
}

/* Answers after the first bytes, whatever else comes. */
static int post_impatient(struct req *r, struct den_err *err)
{
	char part[100];

	if (req_read(r, part, sizeof(part), err) < 0)
		return -1;
	return den_fail(err, DEN_CONFLICT, 0, "enough");
}

static int get_source(struct req *r, struct den_err *err)
{
	static char part[65536];
	uint64_t n, known;

	memset(part, 'x', sizeof(part));
	if (req_query_u64(r, "n", UINT64_MAX / 2, 0, &n, err) < 0 ||
		req_query_u64(r, "known", 1, 0, &known, err) < 0 ||
		req_begin(r, 200, "application/octet-stream", known ? (int64_t)n : -1, err) < 0)
		return -1;
	while (n) {
		size_t now = MIN(n, sizeof(part));

		if (req_write(r, part, now, err) < 0)
			return -1;
		n -= now;
	}
	return 0;
}

/* A line each ?ms=; what ends it is logged. */
static int get_ticks(struct req *r, struct den_err *err)
{
	uint64_t ms;
	int bits;

	if (req_query(r, "box"))
		req_watch_box(r, req_query(r, "box"));
	if (req_query_u64(r, "ms", 1000000, 1000, &ms, err) < 0 ||
		req_begin(r, 200, "text/event-stream", -1, err) < 0)
		return -1;
	do {
		if (req_write(r, "tick\n", 5, err) < 0) {
			log_line("info", "ticks", "write failed");
			return -1;
		}
		bits = req_wait(r, -1, (int)ms);
	} while (!bits);
	log_line("info", "ticks", "ended by %d", bits);
	return bits & REQ_GONE ? -1 : req_write(r, "end\n", 4, err);
}

static int get_lazy(struct req *r, struct den_err *err)
{
	uint64_t ms;
	int bits;

	if (req_query_u64(r, "ms", 1000000, 1000, &ms, err) < 0)
		return -1;
	bits = req_wait(r, -1, (int)ms);
	log_line("info", "lazy", "waited: %d", bits);
	return req_reply(r, 200, "text/plain", bits ? "woken\n" : "slept\n", 6);
}

static int post_json(struct req *r, struct den_err *err)
{
	struct {
		const char *name;
		uint64_t count;
		char **words;
	} a = { .name = "-" };
	static const char *const names[] = { "one", "two", "-", NULL };
	static const struct field fields[] = {
		{ "name", FIELD_TEXT, 0, .words = names },
		{ "count", FIELD_U64, 8, .max = 100 },
		{ "words", FIELD_TEXTS, 16, .max = 1000000 },
	};
	auto_json *j = NULL;
	size_t n = 0;

	if (req_json(r, &j, err) < 0 ||
		fields_get(j, fields, ARRAY_SIZE(fields), true, &a, err) < 0)
		return -1;
	while (a.words && a.words[n])
		free(a.words[n++]);
	free(a.words);
	return req_reply_json(r, 200,
		json_pack("{s:s,s:I,s:I}", "name", a.name, "count", (json_int_t)a.count, "words",
			(json_int_t)n));
}

static int get_boom(struct req *r, struct den_err *err)
{
	return den_fail(err, DEN_INTERNAL, 0, "boom \x01 \xff \"quoted\"");
}

static int get_cut(struct req *r, struct den_err *err)
{
	if (req_begin(r, 200, "text/plain", -1, err) < 0 || req_write(r, "half", 4, err) < 0)
		return -1;
	return den_fail(err, DEN_INTERNAL, 0, "it broke");
}

static int get_short(struct req *r, struct den_err *err)
{
	if (req_begin(r, 200, "text/plain", 100, err) < 0)
		return -1;
	return req_write(r, "half", 4, err);
}

static int get_silent(struct req *r, struct den_err *err)
{
	return 0;
}

static int get_kick(struct req *r, struct den_err *err)
{
	http_kick_box(req_arg(r, "box"));
	return req_reply_empty(r, 204);
}

static int get_arg(struct req *r, struct den_err *err)
{
	req_set(r, "X-Arg", "a\r\nX-Injected: 1");
	req_set(r, "X-Fine", "yes");
	return req_reply(r, 200, "text/plain", req_arg(r, "x"), strlen(req_arg(r, "x")));
}

static int get_query(struct req *r, struct den_err *err)
{
	static const char *const known[] = { "name", "other", NULL };
	const char *name = req_query(r, "name");

	if (!req_query_known(r, known, err))
		return -1;
	return req_reply(r, 200, "text/plain", name ? name : "-", name ? strlen(name) : 1);
}

static int get_whoami(struct req *r, struct den_err *err)
{
	return req_reply(r, 200, "text/plain", req_who(r)->key, strlen(req_who(r)->key));
}

static int get_ws(struct req *r, struct den_err *err)
{
	const char *p;
	struct ws *w;
	size_t n;
	int got;

	if (req_query(r, "box"))
		req_watch_box(r, req_query(r, "box"));
	if (ws_open(r, "den", 100000, &w, err) < 0)
		return -1;
	while ((got = ws_next(w, -1, 300000, &p, &n)) > 1) {
		if (n == 4 && !memcmp(p, "quit", 4))
			break;
		if (ws_send(w, got >> 4, p, n, err) < 0)
			break;
	}
	log_line("info", "ws", "ended with %d", got);
	ws_close(w, 1000, "bye");
	return 0;
}

static int get_raw(struct req *r, struct den_err *err)
{
	char part[1000];
	ssize_t n;
	int fd;

	if (req_upgrade(r, "raw", &fd, err) < 0)
		return -1;
	while ((n = read(fd, part, sizeof(part))) > 0)
		if (fd_write_all(fd, part, (size_t)n, NULL) < 0)
			break;
	close(fd);
	return 0;
}

static void fail(struct req *r, const struct den_err *err)
{
	req_reply_json(r, req_fail_status(r, err),
		json_pack("{s:{s:s,s:o}}", "error", "code", den_code_str(err->code), "message",
			json_text(err->msg)));
}

static const char *key(const struct req *r)
{
	const char *h = req_header(r, "X-API-Key");

	return h && *h ? h : NULL;
}

static const struct route routes[] = {
	{ "GET", "/hello", get_hello, AUTH_NONE, 0 },
	{ "POST", "/echo", any_echo, AUTH_NONE, 1 << 20 },
	{ "PUT", "/echo", any_echo, AUTH_NONE, 1 << 20 },
	{ "POST", "/small", any_echo, AUTH_NONE, 100 },
	{ "POST", "/secret", any_echo, AUTH_KEY, SIZE_MAX },
	{ "POST", "/sink", post_sink, AUTH_NONE, SIZE_MAX },
	{ "POST", "/impatient", post_impatient, AUTH_NONE, SIZE_MAX },
	{ "POST", "/json", post_json, AUTH_NONE, 8 << 20 },
	{ "GET", "/source", get_source, AUTH_NONE, 0 },
	{ "GET", "/ticks", get_ticks, AUTH_NONE, 0 },
	{ "GET", "/lazy", get_lazy, AUTH_NONE, 0 },
	{ "GET", "/boom", get_boom, AUTH_NONE, 0 },
	{ "GET", "/cut", get_cut, AUTH_NONE, 0 },
	{ "GET", "/short", get_short, AUTH_NONE, 0 },
	{ "GET", "/silent", get_silent, AUTH_NONE, 0 },
	{ "GET", "/kick/{box}", get_kick, AUTH_NONE, 0 },
	{ "GET", "/arg/{x}", get_arg, AUTH_NONE, 0 },
	{ "GET", "/arg/fixed", get_hello, AUTH_NONE, 0 },
	{ "GET", "/rest/{x...}", get_arg, AUTH_NONE, 0 },
	{ "GET", "/query", get_query, AUTH_NONE, 0 },
	{ "GET", "/whoami", get_whoami, AUTH_KEY, 0 },
	{ "GET", "/scoped", get_whoami, AUTH_KEY, 0, "boxes" },
	{ "GET", "/unscoped", get_whoami, AUTH_KEY, 0, "secrets" },
	{ "GET", "/admin", get_whoami, AUTH_ADMIN, 0 },
	{ "GET", "/ws", get_ws, AUTH_NONE, 0 },
	{ "GET", "/raw", get_raw, AUTH_NONE, 0 },
	{ "*", "/any/{x...}", any_echo, AUTH_NONE, 1 << 20 },
};
static const struct dialect dialect_test = { "test", routes, ARRAY_SIZE(routes), fail, key, true };

static const struct dialect *pick(struct req *r)
{
	const char *p = req_path(r);

	return !strcmp(p, "/healthz") || !strcmp(p, "/readyz") || !strcmp(p, "/metrics")
		       ? &dialect_base
		       : &dialect_test;
}

static struct http_listen listens[8];

static int listen_on(const char *where, bool tls, struct http_options *o, struct den_err *err)
{
	struct sockaddr_storage a;
	socklen_t n = sizeof(a);

	if (http_bind(where, 0600, &listens[o->n_listen].fd, err) < 0)
		return -1;
	listens[o->n_listen].tls = tls;
	getsockname(listens[o->n_listen++].fd, (struct sockaddr *)&a, &n);
	if (a.ss_family != AF_UNIX)
		printf("port %d\n", ntohs(((struct sockaddr_in *)&a)->sin_port));
	return 0;
}

int main(int argc, char **argv)
{
	struct http_options o = { .pick = pick, .listen = listens };
	struct den_err err;
	char *pem[2] = { 0 };
	sigset_t set;
	int sig;

	signal(SIGPIPE, SIG_IGN);
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigprocmask(SIG_BLOCK, &set, NULL);
	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--tls")) {
			for (int k = 0; k < 2; k++) {
				auto_fd fd = open(argv[++i], O_RDONLY);

				if (fd < 0 || fd_read_all(fd, 65536, &pem[k], NULL, &err) < 0)
					return 1;
			}
			o.tls_cert = pem[0];
			o.tls_key = pem[1];
		} else if (!strcmp(argv[i], "--header-ms")) {
			o.header_ms = (unsigned)atoi(argv[++i]);
		} else if (!strcmp(argv[i], "--workers")) {
			o.workers = (unsigned)atoi(argv[++i]);
		} else if (listen_on(argv[i], o.tls_cert != NULL, &o, &err) < 0) {
			fprintf(stderr, "%s\n", err.msg);
			return 1;
		}
	}
	if (http_start(&o, &err) < 0) {
		fprintf(stderr, "%s\n", err.msg);
		return 1;
	}
	printf("ready\n");
	fflush(stdout);
	sigwait(&set, &sig);
	http_stop(1000);
	free(pem[0]);
	free(pem[1]);
	return 0;
}
