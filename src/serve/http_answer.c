/* Answers: what handlers call, and how it reaches MHD. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/eventfd.h>

#include "http_int.h"
#include "json.h"
#include "log.h"

int http_status(enum den_code code)
{
	switch (code) {
	case DEN_OK:
		return 200;
	case DEN_INVALID:
		return 400;
	case DEN_NOT_FOUND:
		return 404;
	case DEN_CONFLICT:
		return 409;
	case DEN_DENIED:
		return 403;
	case DEN_LIMIT:
		return 429;
	case DEN_TIMEOUT:
		return 504;
	case DEN_UNSUPPORTED:
		return 501;
	case DEN_INTERNAL:
		break;
	}
	return 500;
}

int req_fail_status(const struct req *r, const struct den_err *err)
{
	/* what a quota does not allow will not be allowed in a second either: no 429, which clients try again */
	if (!r->fail_status && err->code == DEN_LIMIT && err->sys == EDQUOT)
		return 403;
	return r->fail_status ? r->fail_status : http_status(err->code);
}

void req_set_fail_status(struct req *r, int status)
{
	r->fail_status = status;
}

/* ---- headers ---- */

static bool ours(const char *name)
{
	static const char *const names[] = { "Content-Length", "Transfer-Encoding", "Connection",
		"Date", "Keep-Alive", "Upgrade", "Trailer" };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (!strcasecmp(name, names[i]))
			return true;
	return false;
}

static void out_remove(struct buf *b, const char *name)
{
	for (size_t at = 0; at < b->len;) {
		size_t name_n = strlen(b->p + at) + 1, n = name_n + strlen(b->p + at + name_n) + 1;

		if (strcasecmp(b->p + at, name)) {
			at += n;
			continue;
		}
		memmove(b->p + at, b->p + at + n, b->len - at - n);
		b->len -= n;
	}
}

void req_set(struct req *r, const char *header, const char *value)
{
	for (const char *p = value; *p; p++)
		if ((unsigned char)*p < ' ' && *p != '\t') {
			log_line("warn", "answer",
				"request %llu: a value of %s with control characters was left out",
				(unsigned long long)r->number, header);
			return;
		}
	if (ours(header) || strpbrk(header, "\r\n: ") || r->queued)
		return;
	if (strcasecmp(header, "Set-Cookie") && strcasecmp(header, "Vary") &&
		strcasecmp(header, "Link") && strcasecmp(header, "WWW-Authenticate"))
		out_remove(&r->out, header);
	buf_add(&r->out, header, strlen(header) + 1);
	buf_add(&r->out, value, strlen(value) + 1);
}

static void headers_put(const struct req *r, struct MHD_Response *m)
{
	for (size_t at = 0; at < r->out.len;) {
		const char *name = r->out.p + at, *value = name + strlen(name) + 1;

		MHD_add_response_header(m, name, value);
		at += strlen(name) + strlen(value) + 2;
	}
}

/* ---- the two threads ---- */

void req_resume(struct req *r)
{
	if (!r->suspended)
		return;
	r->suspended = false;
	MHD_resume_connection(r->c);
}

void req_wake(struct req *r)
{
	pthread_cond_signal(&r->cond);
	if (r->polling && r->worker)
		eventfd_write(r->worker->wake, 1);
}

/* ---- the HTTP thread takes the answer ---- */

/* To HTTP/1.0 the end of the connection is the end of the body, so a break must be a reset. MHD would say a
 * proper goodbye; a socket that is connected to nothing cannot. */
static void reset(int fd)
{
	struct sockaddr nobody = { .sa_family = AF_UNSPEC };

	connect(fd, &nobody, sizeof(nobody.sa_family)); /* more the filter does not allow */
}

static ssize_t on_take(void *cls, uint64_t pos, char *to, size_t max)
{
	struct req *r = cls;
	ssize_t n;

	pthread_mutex_lock(&r->lock);
	n = (ssize_t)ring_take(&r->down, to, max);
	if (n) {
		if (r->down.len <= r->down.max / 2)
			pthread_cond_signal(&r->cond);
	} else if (r->cut) {
		if (r->old)
			reset(r->conn->fd);
		n = MHD_CONTENT_READER_END_WITH_ERROR;
	} else if (r->ended) {
		n = MHD_CONTENT_READER_END_OF_STREAM;
	} else {
		MHD_suspend_connection(r->c);
		r->suspended = true;
		if (r->polling)
			req_wake(r); /* from now on it watches the socket */
	}
	pthread_mutex_unlock(&r->lock);
	return n;
}

static struct MHD_Response *whole_respond(struct req *r)
{
	struct MHD_Response *m = MHD_create_response_from_buffer(r->body_n, r->body ? r->body : "",
		r->body ? MHD_RESPMEM_MUST_FREE : MHD_RESPMEM_PERSISTENT);

	if (m)
		r->body = NULL;
	return m;
}

enum MHD_Result respond(struct req *r)
{
	struct MHD_Response *m = NULL;
	enum MHD_Result result;

	if (r->queued)
		return MHD_NO;
	if (r->answer == ANSWER_WHOLE)
		m = whole_respond(r);
	else if (r->answer == ANSWER_UPGRADE)
		upgrade_respond(r, &m);
	else if (r->down_length < 0 && (r->head_only || r->status == 204 || r->status == 304))
		m = MHD_create_response_from_buffer(
			0, "", MHD_RESPMEM_PERSISTENT); /* MHD would send the last chunk */
	else
		m = MHD_create_response_from_callback(
			r->down_length < 0 ? MHD_SIZE_UNKNOWN : (uint64_t)r->down_length, 32 << 10,
			on_take, r, NULL);
	if (!m)
		return MHD_NO;
	headers_put(r, m);
	if (r->dialect && r->dialect->cors && req_header(r, "Origin")) {
		MHD_add_response_header(m, "Access-Control-Allow-Origin", "*");
		MHD_add_response_header(m, "Access-Control-Expose-Headers", "*");
	}
	if (!r->launched && r->conn && conn_ended(r->conn))
		r->close = true;
	if ((r->close || http_stopping) && r->answer != ANSWER_UPGRADE)
		MHD_add_response_header(m, "Connection", "close");
	r->queued = true;
	r->at = AT_END;
	result = MHD_queue_response(r->c, (unsigned)r->status, m);
	MHD_destroy_response(m);
	return result;
}

/* ---- whole answers ---- */

/* In the middle of a body MHD has no way to answer. Where much of it is to come, the answer is written here,
 * and the connection ends. MHD writes nothing in this state, so the two do not mix. */
static void answer_over_body(struct req *r)
{
	auto_buf b = { 0 };

	if (r->at != AT_BODY || r->up_end || r->tls || !r->launched || r->answer != ANSWER_WHOLE ||
		r->body_n > HTTP_SHORT || (!r->chunked && r->length - r->up_total <= HTTP_SHORT))
		return;
	buf_addf(&b, "HTTP/1.1 %d %s\r\nConnection: close\r\nContent-Length: %zu\r\n", r->status,
		MHD_get_reason_phrase_for((unsigned)r->status), r->body_n);
	for (const char *name = r->out.p; name && name < r->out.p + r->out.len;) {
		const char *value = name + strlen(name) + 1;

		buf_addf(&b, "%s: %s\r\n", name, value);
		name = value + strlen(value) + 1;
	}
	buf_addstr(&b, "\r\n");
	if (r->body_n)
		buf_add(&b, r->body, r->body_n);
	if (send(r->conn->fd, b.p, b.len, MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t)b.len)
		return;
	r->queued = r->cut = true;
	/* No shutdown() for reading: once the other half is closed too, the kernel would answer the next bytes of
	 * the body with a reset, and the client might never see what was said. What comes next ends the
	 * connection (on_body()), and so does the client, or the reaper. */
	conn_linger(r->conn);
}

static int answer_whole(struct req *r, int status, char *take, size_t n)
{
	pthread_mutex_lock(&r->lock);
	if (r->answer != ANSWER_NONE) {
		log_line("error", "answer", "%s %s was answered twice", r->method, r->path);
		free(take);
	} else {
		r->answer = ANSWER_WHOLE;
		r->status = status;
		r->body = take;
		r->body_n = n;
		r->down_total = r->head_only ? 0 : n;
		if (!r->gone)
			answer_over_body(r);
		req_resume(r);
	}
	pthread_mutex_unlock(&r->lock);
	return 0;
}

int req_reply(struct req *r, int status, const char *type, const void *p, size_t n)
{
	char *copy = n ? malloc(n) : NULL;

	if (n && !copy) {
		status = 503;
		n = 0;
	}
	if (n)
		memcpy(copy, p, n);
	if (type && r->answer == ANSWER_NONE)
		req_set(r, "Content-Type", type);
	return answer_whole(r, status, copy, n);
}

int req_reply_json(struct req *r, int status, json_t *take)
{
	char *text = take ? json_dumps(take, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;

	json_decref(take);
	if (!text) {
		static const char sorry[] =
			"{\"error\":{\"code\":\"internal\",\"message\":\"the answer could not be "
			"written as JSON\"}}";

		log_line("error", "answer", "%s %s: no JSON to answer with", r->method, r->path);
		return req_reply(r, 500, "application/json", sorry, sizeof(sorry) - 1);
	}
	if (r->answer == ANSWER_NONE)
		req_set(r, "Content-Type", "application/json");
	return answer_whole(r, status, text, strlen(text));
}

int req_reply_empty(struct req *r, int status)
{
	return answer_whole(r, status, NULL, 0);
}

/* What the engine itself has to say, where no dialect has been picked. */
void fail_plain(struct req *r, const struct den_err *err)
{
	struct json j = { 0 };

	json_open(&j, NULL, '{');
	json_open(&j, "error", '{');
	json_str(&j, "code", den_code_str(err->code));
	json_str(&j, "message", err->msg);
	json_close(&j, '}');
	json_close(&j, '}');
	req_reply(r, req_fail_status(r, err), "application/json", j.b.p, j.b.len);
	buf_free(&j.b);
}

/* ---- streams ---- */

int req_begin(struct req *r, int status, const char *type, int64_t length, struct den_err *err)
{
	int result = 0;

	pthread_mutex_lock(&r->lock);
	if (r->answer != ANSWER_NONE)
		result = den_fail(err, DEN_INTERNAL, 0, "this request is answered already");
	else if (r->gone || r->cut)
		result = den_fail(err, DEN_CONFLICT, 0, "the client hung up");
	if (!result) {
		if (type)
			req_set(r, "Content-Type", type);
		r->answer = ANSWER_STREAM;
		r->status = status;
		r->down_length = length;
		metrics_stream(1);
		req_resume(r);
	}
	pthread_mutex_unlock(&r->lock);
	return result;
}

int req_write(struct req *r, const void *p, size_t n, struct den_err *err)
{
	const char *at = p;
	int result = 0;

	pthread_mutex_lock(&r->lock);
	if (r->answer != ANSWER_STREAM || r->ended)
		result = den_fail(err, DEN_INTERNAL, 0, "no stream has begun");
	else if (r->down_length >= 0 && n > (uint64_t)r->down_length - r->down_total)
		result = den_fail(
			err, DEN_INTERNAL, 0, "more is written than the length that was told");
	while (!result && n) {
		size_t put;

		if (r->gone || r->cut || r->head_only) {
			result = den_fail(err, DEN_CONFLICT, 0, "the client hung up");
			break;
		}
		put = ring_put(&r->down, at, n);
		at += put;
		n -= put;
		r->down_total += put;
		/* MHD sends nothing before the body is in: whoever has so much to say has heard enough */
		if (n && !r->up_end && r->has_body)
			r->drain = true;
		req_resume(r);
		if (n)
			pthread_cond_wait(&r->cond, &r->lock);
	}
	pthread_mutex_unlock(&r->lock);
	return result;
}

void req_end(struct req *r)
{
	pthread_mutex_lock(&r->lock);
	if (r->answer == ANSWER_STREAM && !r->ended) {
		r->ended = true;
		/* a promise of more that was not kept must not look like an end */
		if (r->down_length >= 0 && r->down_total != (uint64_t)r->down_length &&
			!r->head_only)
			r->cut = true;
		metrics_stream(-1);
		req_resume(r);
	}
	pthread_mutex_unlock(&r->lock);
}

void req_cut(struct req *r)
{
	pthread_mutex_lock(&r->lock);
	r->cut = true;
	if (r->answer == ANSWER_NONE)
		r->answer = ANSWER_STREAM; /* so that nobody words a failure */
	else if (r->answer == ANSWER_STREAM && !r->ended)
		metrics_stream(-1);
	r->ended = true;
	req_resume(r);
	pthread_mutex_unlock(&r->lock);
}

bool req_begun(const struct req *r)
{
	return r->answer == ANSWER_STREAM || r->answer == ANSWER_UPGRADE;
}
