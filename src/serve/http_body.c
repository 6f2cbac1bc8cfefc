/* The body of a request, as handlers read it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "http_int.h"
#include "json_scan.h"

/* The next call of on_body() is not slow because of the client. */
static void body_go_on(struct req *r)
{
	if (r->suspended && r->at != AT_END) {
		if (r->at == AT_BODY)
			conn_phase(r->conn, CONN_BODY);
		req_resume(r);
	}
}

/* An upload that pauses gives its buffer back. */
static void body_wait(struct req *r)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec++;
	if (r->up.cap && pthread_cond_timedwait(&r->cond, &r->lock, &until) != ETIMEDOUT)
		return;
	ring_trim(&r->up);
	if (!r->up.len && !r->up_end && !r->up_over && !r->gone && !r->cut && !r->drain)
		pthread_cond_wait(&r->cond, &r->lock);
}

ssize_t req_read(struct req *r, void *p, size_t n, struct den_err *err)
{
	ssize_t result = -1;

	pthread_mutex_lock(&r->lock);
	for (;;) {
		if (r->up_over) {
			r->fail_status = 413;
			den_fail(err, DEN_LIMIT, 0,
				"the body is larger than the %zu bytes that are allowed here",
				r->route->max_body);
			break;
		}
		if (r->up.len) {
			result = (ssize_t)ring_take(&r->up, p, n);
			r->up_total += (uint64_t)result;
			if (r->up.len <= r->up.max / 2)
				body_go_on(r);
			break;
		}
		if (r->drain) {
			den_fail(err, DEN_CONFLICT, 0,
				"the answer was longer than what could be kept until the body is "
				"in");
			break;
		}
		if (r->up_end || !r->has_body) {
			result = 0;
			break;
		}
		if (r->gone || r->cut) {
			den_fail(err, DEN_CONFLICT, 0,
				"the client hung up before its body was complete");
			break;
		}
		r->body_wanted = true;
		body_go_on(r);
		body_wait(r);
	}
	pthread_mutex_unlock(&r->lock);
	return result;
}

int req_body(struct req *r, size_t max, struct buf *ret, struct den_err *err)
{
	auto_buf b = { 0 };
	char part[16384];

	for (;;) {
		ssize_t n = req_read(r, part, sizeof(part), err);

		if (n < 0)
			return -1;
		if (!n)
			break;
		if ((size_t)n > max - b.len) {
			r->fail_status = 413;
			return den_fail(err, DEN_LIMIT, 0,
				"the body is larger than the %zu bytes that are allowed here", max);
		}
		buf_add(&b, part, (size_t)n);
	}
	buf_add(&b, "", 1);
	b.len--;
	*ret = b;
	b = (struct buf){ 0 };
	return 0;
}

int req_json(struct req *r, json_t **ret, struct den_err *err)
{
	size_t max = r->route ? r->route->max_body : 0;
	auto_buf b = { 0 };

	if (req_body(r, MIN(max, (size_t)16 << 20), &b, err) < 0)
		return -1;
	return json_read(b.p, b.len, ret, err);
}
