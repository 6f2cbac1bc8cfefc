/* The HTTP thread's side of a request: http_int.h has the states. Nothing here waits. */
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "http_int.h"
#include "log.h"
#include "route_int.h"
#include "share.h"

static atomic_uint_fast64_t numbers;
atomic_bool http_stopping, http_closing;
atomic_int http_open;

/* Recursive: a dialect that words a refusal in the HTTP thread calls req_reply() with the lock held. */
static void lock_init(pthread_mutex_t *m)
{
	pthread_mutexattr_t a;

	pthread_mutexattr_init(&a);
	pthread_mutexattr_settype(&a, PTHREAD_MUTEX_RECURSIVE);
	pthread_mutex_init(m, &a);
	pthread_mutexattr_destroy(&a);
}

void *on_uri(void *cls, const char *uri, struct MHD_Connection *c)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
	struct req *r = calloc(1, sizeof(*r));

	if (!r || !info)
		return NULL; /* on_request() closes */
	lock_init(&r->lock);
	pthread_cond_init(&r->cond, NULL);
	r->refs = 1;
	r->number = ++numbers;
	r->began = clock_mono_ns();
	r->c = c;
	r->conn = info->socket_context;
	r->upgraded = -1;
	r->up.max = r->down.max = HTTP_RING;
	r->uri_long = uri && strlen(uri) > HTTP_URI_MAX;
	r->uri = strdup(uri && !r->uri_long ? uri : "");
	if (!r->uri || !r->conn) {
		req_unref(r);
		return NULL;
	}
	r->tls = r->conn->tls;
	memcpy(r->peer, r->conn->text, sizeof(r->peer));
	conn_phase(r->conn, CONN_HEAD);
	return r;
}

void req_unref(struct req *r)
{
	if (--r->refs)
		return;
	ring_free(&r->up);
	ring_free(&r->down);
	buf_free(&r->out);
	for (size_t i = 0; i < r->n_args; i++)
		free((char *)r->args[i].name);
	free(r->query);
	free(r->body);
	free(r->head);
	free(r->uri);
	pthread_cond_destroy(&r->cond);
	pthread_mutex_destroy(&r->lock);
	free(r);
}

/* A refusal that needs no worker. */
static void refuse(struct req *r, const struct den_err *err)
{
	if (r->dialect)
		r->dialect->fail(r, err);
	if (r->answer == ANSWER_NONE)
		fail_plain(r, err);
}

static enum MHD_Result launch(struct req *r)
{
	struct den_err err;

	r->launched = true;
	r->refs++;
	if (pool_submit(r, r->dialect == &dialect_base))
		return MHD_YES;
	r->refs--;
	r->launched = false;
	r->fail_status = 503;
	req_set(r, "Retry-After", "1");
	den_fail(&err, DEN_LIMIT, 0,
		"the server has as many requests as it can hold; try again in a second");
	refuse(r, &err);
	return MHD_YES;
}

static enum MHD_Result stand_still(struct req *r)
{
	MHD_suspend_connection(r->c);
	r->suspended = true;
	if (r->polling)
		req_wake(r); /* it may watch the socket now */
	return MHD_YES;
}

/* Headers are in. */
static enum MHD_Result first_call(struct req *r, const char *method, const char *version)
{
	bool is_short;
	struct den_err err;

	if (http_closing)
		return MHD_NO;
	r->seen = true;
	http_open++;
	if (head_read(r, method, version, &err) < 0) {
		r->close = true;
		fail_plain(r, &err);
		return respond(r);
	}
	if (r->chunked)
		r->close =
			true; /* MHD reads chunks too kindly (bare LF): what follows is nobody's next request */
	if (route_open(r, &err) < 0)
		refuse(r, &err);
	conn_phase(r->conn, r->has_body ? CONN_BODY : CONN_BUSY);
	is_short = !r->chunked && r->length <= HTTP_SHORT;
	if (is_short) { /* on to the body, and the last call */
		r->at = AT_BODY;
		return MHD_YES;
	}
	if (r->answer == ANSWER_NONE)
		launch(r);
	if (r->answer != ANSWER_NONE) {
		conn_linger(r->conn);
		return respond(r);
	}
	r->at = AT_HEAD;
	conn_phase(r->conn, CONN_BUSY);
	return stand_still(r);
}

static enum MHD_Result on_body(struct req *r, const char *data, size_t *size)
{
	size_t n = *size, max = r->route ? r->route->max_body : 0, put;

	if (r->cut)
		return MHD_NO;
	conn_body(r->conn, n, max != SIZE_MAX);
	if (r->answer == ANSWER_WHOLE || r->ended || r->up_over ||
		r->drain) { /* nobody wants it any more */
		r->drained += n;
		*size = 0;
		return r->drained > HTTP_DRAIN ? MHD_NO : MHD_YES;
	}
	if (max != SIZE_MAX && r->up_total + r->up.len + n > max) {
		r->up_over = true;
		*size = 0;
		req_wake(r);
		return MHD_YES;
	}
	put = ring_put(&r->up, data, n);
	*size = n - put;
	if (put)
		req_wake(r);
	if (!*size)
		return MHD_YES;
	conn_phase(r->conn, CONN_BUSY); /* that it is slow now is our doing */
	return stand_still(r);
}

/* Called without data: the first call again, or the last one, perhaps again. */
static enum MHD_Result on_turn(struct req *r)
{
	if (r->cut && (r->answer != ANSWER_STREAM ||
			      !r->status)) /* of a stream, the half that is there goes out */
		return MHD_NO;
	if (r->at == AT_HEAD) {
		if (r->answer != ANSWER_NONE) {
			conn_linger(r->conn);
			return respond(r);
		}
		if (!r->body_wanted)
			return stand_still(r);
		r->at = AT_BODY;
		conn_phase(r->conn, CONN_BODY);
		return MHD_YES;
	}
	if (r->at == AT_BODY) {
		r->at = AT_END;
		r->up_end = true;
		conn_phase(r->conn, CONN_BUSY);
		req_wake(r);
		if (!r->launched && r->answer == ANSWER_NONE)
			launch(r);
	}
	return r->answer == ANSWER_NONE ? stand_still(r) : respond(r);
}

enum MHD_Result on_request(void *cls, struct MHD_Connection *c, const char *url, const char *method,
	const char *version, const char *data, size_t *size, void **con_cls)
{
	struct req *r = *con_cls;
	enum MHD_Result result;

	if (!r)
		return MHD_NO;
	pthread_mutex_lock(&r->lock);
	result = !r->seen ? first_call(r, method, version)
		 : *size  ? on_body(r, data, size)
			  : on_turn(r);
	pthread_mutex_unlock(&r->lock);
	return result;
}

static void access_log(const struct req *r, int64_t ns, bool whole)
{
	struct log l;

	log_begin(&l, "info", "request");
	json_u64(&l.j, "number", r->number);
	json_str(&l.j, "method", r->method ? r->method : "-");
	/* never the query: signatures and tokens are there */
	json_bytes(&l.j, "path", r->path ? r->path : "-", r->path ? strnlen(r->path, 500) : 1);
	json_str(&l.j, "dialect", r->dialect ? r->dialect->name : "-");
	json_i64(&l.j, "status", r->status);
	json_i64(&l.j, "ms", ns / NS_PER_MS);
	json_u64(&l.j, "in", r->up_total + r->up.len + r->drained);
	json_u64(&l.j, "out", r->down_total);
	json_str(&l.j, "peer", r->peer);
	if (r->has_who)
		json_str(&l.j, "key", r->who.key);
	if (!whole)
		json_bool(&l.j, "broken", true);
	log_end(&l);
}

void on_completed(
	void *cls, struct MHD_Connection *c, void **con_cls, enum MHD_RequestTerminationCode code)
{
	struct req *r = *con_cls;
	int64_t ns;

	if (!r)
		return;
	*con_cls = NULL;
	pthread_mutex_lock(&r->lock);
	ns = clock_mono_ns() - r->began;
	if (r->conn)
		conn_phase(r->conn, CONN_IDLE);
	if (r->seen) {
		http_open--;
		metrics_done(r, ns);
		access_log(r, ns, code == MHD_REQUEST_TERMINATED_COMPLETED_OK);
	}
	r->c = NULL;
	r->conn = NULL;
	r->suspended = false;
	r->gone = true;
	req_wake(r);
	pthread_mutex_unlock(&r->lock);
	req_unref(r);
}

/* ---- the worker's ---- */

static void stream_broken(struct req *r, const struct den_err *err)
{
	bool gone;

	pthread_mutex_lock(&r->lock);
	gone = r->gone;
	pthread_mutex_unlock(&r->lock);
	if (!gone)
		log_line("warn", "stream", "request %llu was cut: %s",
			(unsigned long long)r->number, err->msg);
	req_cut(r);
}

void req_run(struct req *r)
{
	struct den_err err = { .code = DEN_INTERNAL, .msg = "the handler gave no reason" };
	int result;

	reqs_add(r); /* not earlier: the lock of all requests is never taken inside that of one */
	result = route_run(r, &err);
	if (result < 0 && r->answer == ANSWER_NONE) {
		r->dialect->fail(r, &err);
	} else if (result < 0 && r->answer == ANSWER_STREAM && !r->ended) {
		if (r->head_only)
			req_end(r);
		else
			stream_broken(r, &err);
	}
	if (r->answer == ANSWER_NONE) {
		den_fail(&err, DEN_INTERNAL, 0, "nothing was answered");
		log_line("error", "route", "%s %s: no answer", r->method, r->path);
		fail_plain(r, &err);
	}
	if (r->answer == ANSWER_STREAM && !r->ended)
		req_end(r);
	upgrade_end(r);
	watch_end(r);
	share_give(r->share);
	r->share = NULL;
	reqs_remove(r);
	pthread_mutex_lock(&r->lock);
	r->worker = NULL;
	pthread_mutex_unlock(&r->lock);
	req_unref(r);
}
