/*
 * The engine's inside: one request between two threads.
 *
 * The HTTP thread (libmicrohttpd's, one for each listener) calls on_request() in http.c and never waits. The
 * worker runs the handler. Both take r->lock for whatever is below it in struct req. Only the HTTP thread
 * suspends a connection; only the worker resumes it, so a worker that finds r->suspended may look at the socket:
 * nobody closes it meanwhile.
 *
 *   AT_HEAD  headers are in; with a body that is not short the connection stands still until the worker
 *            asks for the body (req_read) or answers without it (the connection is closed after that)
 *   AT_BODY  bytes come in; on_body() fills r->up, suspends when it is full
 *   AT_END   all is in; suspended until the worker has an answer, then MHD takes it (respond())
 *
 *   AT_HEAD -> AT_BODY   on_turn()    r->body_wanted
 *   AT_HEAD -> AT_END    first_call() no body; or respond() early
 *   AT_BODY -> AT_END    on_turn()    the last call of MHD for this request
 *   any     -> gone      on_completed() is the only one that sets r->conn to NULL
 *
 * A request is freed when both have let it go: the HTTP thread in on_completed(), the worker at its end.
 */
#pragma once

#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>

#include "auth.h"
#include "engine.h"
#include "mem.h"
#include "path.h"
#include "ring.h"

#define HTTP_URI_MAX 16384
#define HTTP_POOL                                                                                  \
	(40 << 10) /* MHD's memory for a connection: headers, read buffer. MHD clears it after each
				request, so it is all touched, and what 1,000 idle connections cost */
#define HTTP_HEAD_MAX (32 << 10)
#define HTTP_RING (256 << 10)
#define HTTP_SHORT (64 << 10) /* a body of at most this size is read before a worker is taken */
#define HTTP_DRAIN (64 << 20) /* so much of a body that nobody wants is read for politeness */

enum { AT_HEAD, AT_BODY, AT_END };
enum answer { ANSWER_NONE, ANSWER_WHOLE, ANSWER_STREAM, ANSWER_UPGRADE };

struct peer;

struct conn {
	struct list link;
	int fd;
	bool tls, tcp;
	char text[64]; /* the peer's address */
	struct peer *peer;
	/* what the reaper looks at; conns_lock */
	enum { CONN_IDLE, CONN_HEAD, CONN_BODY, CONN_BUSY } phase;
	bool used; /* has had a request */
	int64_t since; /* of the phase, or of the first byte of a next request */
	uint64_t received; /* TCP's count when the last request ended */
	uint64_t body; /* bytes since then, CONN_BODY */
	bool rated; /* the body has a minimum rate */
	bool ended; /* the reaper saw that nothing more comes */
	bool linger; /* there may be bytes that nobody read: a plain close() would take the answer back */
};

struct worker;
struct watch;

struct req {
	pthread_mutex_t lock;
	pthread_cond_t cond; /* the worker waits for the HTTP thread */
	atomic_int refs;
	uint64_t number;
	int64_t began;

	/* what was asked; constant once the worker has it */
	char *uri; /* as sent; the '?' is a NUL then */
	bool uri_long;
	char *head; /* memory of method, headers */
	const char *method, *path, *raw_query;
	struct pair *headers, *query;
	size_t n_headers, n_query;
	bool head_only, old /* HTTP/1.0 */, has_body, chunked;
	uint64_t length; /* Content-Length */
	bool tls;
	char peer[64];
	const struct dialect *dialect;
	const struct route *route;
	struct pair args[PATH_ARGS_MAX];
	size_t n_args;
	bool preflight;
	struct who who;
	bool has_who;
	int fail_status; /* better than what the code of the error says; 0: none */

	/* both threads; lock */
	struct MHD_Connection *c; /* NULL once MHD is done with it */
	struct conn *conn;
	int at;
	bool seen; /* HTTP thread: the first call has been */
	bool launched, suspended, body_wanted, gone, stop, kicked;
	bool up_end, up_over, drain /* the rest of the body is nobody's */;
	uint64_t up_total, drained, down_total;
	struct ring up, down;

	enum answer answer;
	bool queued, ended, cut, close;
	int status;
	struct buf out; /* headers of the answer: "Name\0value\0"... */
	char *body;
	size_t body_n;
	int64_t down_length; /* -1: not known */

	struct MHD_UpgradeResponseHandle *urh;
	int upgraded; /* descriptor for the handler; -1 */

	/* the worker's own */
	struct worker *worker;
	int64_t looked; /* when its key was last looked at */
	bool revoked;	/* lock: the key is none any more */
	bool polling; /* lock: it is in poll(): wake it through its eventfd */
	struct watch *watch;
	struct share *share; /* of its organisation; NULL: not known yet, or nobody's */
	size_t place; /* among all; reqs_lock */
};

/* ---- http.c: the HTTP thread ---- */
enum MHD_Result on_request(void *cls, struct MHD_Connection *c, const char *url, const char *method,
	const char *version, const char *data, size_t *size, void **con_cls);
void *on_uri(void *cls, const char *uri, struct MHD_Connection *c);
void on_completed(
	void *cls, struct MHD_Connection *c, void **con_cls, enum MHD_RequestTerminationCode code);
void req_unref(struct req *r);
void req_run(struct req *r); /* in a worker */

/* ---- http_head.c ---- */
/* Copies and checks the headers. -1: refuse with err and r->fail_status, and close. */
int head_read(struct req *r, const char *method, const char *version, struct den_err *err);

/* ---- http_answer.c ---- */
/* Hands the answer to MHD. lock is held, HTTP thread. */
enum MHD_Result respond(struct req *r);
/* Lets MHD go on. lock is held, worker. */
void req_resume(struct req *r);
void req_wake(struct req *r); /* wakes its worker wherever it waits; lock is held */
void fail_plain(struct req *r, const struct den_err *err);

/* ---- http_upgrade.c ---- */
enum MHD_Result upgrade_respond(struct req *r, struct MHD_Response **ret);
void upgrade_end(struct req *r);

/* ---- http_conn.c ---- */
void on_connection(
	void *cls, struct MHD_Connection *c, void **ctx, enum MHD_ConnectionNotificationCode code);
enum MHD_Result on_accept(void *cls, const struct sockaddr *addr, socklen_t len);
void conn_phase(struct conn *c, int phase);
void conn_body(struct conn *c, size_t n, bool rated);
void conn_linger(struct conn *c);
bool conn_ended(const struct conn *c);
void conns_start(const struct http_options *o);
void conns_cut(void); /* shutdown() of all */
size_t conns_count(void);

/* ---- http_pool.c ---- */
struct worker {
	struct list link;
	pthread_cond_t cond;
	struct req *job;
	struct den *den;
	int wake; /* eventfd, made when first needed; -1 */
};
void pool_start(const struct http_options *o);
bool pool_submit(struct req *r, bool always); /* false: all are busy. always: a few are kept for these */
void pool_count(unsigned *ret_threads, unsigned *ret_busy);

/* ---- http_watch.c ---- */
void watch_end(struct req *r);
/* poll() of at most 3, which also ends for REQ_GONE, REQ_STOP, REQ_KICK: those bits. Worker. */
struct pollfd;
int req_poll(struct req *r, struct pollfd *p, size_t n, int timeout_ms);
void reqs_add(struct req *r); /* that have a worker */
void reqs_remove(struct req *r);
size_t reqs_count(void);
void reqs_stop(bool cut); /* REQ_STOP for all; cut: their clients count as gone */
extern atomic_bool http_stopping,
	http_closing; /* the second: no new requests, not even on old connections */
extern atomic_int http_open; /* requests that MHD has not completed */

/* ---- metrics.c ---- */
void metrics_start(void);
void metrics_done(const struct req *r, int64_t ns);
void metrics_stream(int change);
extern struct http_options http_opt; /* as started, with defaults */
