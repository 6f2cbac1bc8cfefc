#include "http.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "clock.h"
#include "doc.h"
#include "fd.h"
#include "http_parts.h"

#define ATTEMPTS 5 /* without a byte of progress */
#define STARTS 100 /* with it */
#define REDIRECTS 5
#define LOGINS 2 /* the second for a token that ran out on the way */
#define PAUSE_MS 500 /* doubles */
#define PAUSE_MAX_SEC 60

int http_new(const struct http_opt *opt, struct auth *auth, struct http **ret, struct den_err *err)
{
	struct http *h = mem_new(struct http);

	h->opt = *opt;
	h->auth = auth;
	list_init(&h->waiting);
	list_init(&h->running);
	h->multi = curl_multi_init();
	if (!h->multi) {
		free(h);
		return den_fail(err, DEN_LIMIT, 0, "libcurl does not start");
	}
	if (url_origin(opt->origin, &h->home, err) < 0) {
		http_free(h);
		return -1;
	}
	/* blobs one beside the other, each with a window of its own */
	curl_multi_setopt(h->multi, CURLMOPT_MAX_HOST_CONNECTIONS, (long)opt->jobs);
	*ret = h;
	return 0;
}

static void req_detach(struct http_req *r)
{
	if (!r->easy)
		return;
	if (r->http->multi && !r->bare)
		curl_multi_remove_handle(r->http->multi, r->easy);
	curl_easy_cleanup(r->easy);
	curl_slist_free_all(r->headers);
	r->easy = NULL;
	r->headers = NULL;
}

void http_stop(struct http *h)
{
	h->stopped = true;
	list_for_each_safe (l, next, &h->running) {
		req_detach(CONTAINER_OF(l, struct http_req, link));
		list_remove(l);
	}
	list_for_each_safe (l, next, &h->waiting)
		list_remove(l);
	h->n_running = 0;
}

void http_free(struct http *h)
{
	if (!h)
		return;
	http_stop(h);
	curl_multi_cleanup(h->multi);
	free(h);
}

void http_on_tick(struct http *h, void (*tick)(void *user), void *user)
{
	h->tick = tick;
	h->tick_user = user;
}

void http_req_init(struct http_req *r)
{
	memset(r, 0, sizeof(*r));
	r->body_fd = -1;
	r->length = -1;
	list_init(&r->link);
}

void http_req_free(struct http_req *r)
{
	free(r->url);
	free(r->at);
	free(r->location);
	buf_free(&r->body);
	r->url = r->at = r->location = NULL;
}

void http_submit(struct http *h, struct http_req *r)
{
	r->http = h;
	r->attempts = r->starts = r->redirects = r->logins = 0;
	r->not_before = 0;
	r->failed = false;
	free(mem_take(&r->at));
	list_append(&h->waiting, &r->link);
}

static void req_end(struct http_req *r)
{
	if (r->done)
		r->done(r);
}

static void req_fail(struct http_req *r)
{
	r->failed = true;
	req_end(r);
}

static void req_again(struct http_req *r, int64_t pause_ms)
{
	r->not_before = pause_ms ? clock_mono_ns() + pause_ms * NS_PER_MS : 0;
	list_append(&r->http->waiting, &r->link);
}

static void req_start(struct http *h, struct http_req *r)
{
	list_remove(&r->link);
	r->starts++;
	if ((r->prepare && r->prepare(r, &r->err) < 0) || req_set_up(h, r, &r->err) < 0) {
		req_fail(r);
		return;
	}
	if (curl_multi_add_handle(h->multi, r->easy) != CURLM_OK) {
		req_detach(r);
		den_fail(&r->err, DEN_LIMIT, 0, "libcurl takes no further request");
		req_fail(r);
		return;
	}
	list_append(&h->running, &r->link);
	h->n_running++;
}

/* A pause that doubles, at least as long as the server asks for; but nobody waits for hours. */
static int64_t pause_ms(const struct http_req *r, curl_off_t asked_sec)
{
	int64_t ms = (int64_t)PAUSE_MS << MIN(r->attempts, 6U);

	return MIN(MAX(ms, (int64_t)asked_sec * 1000), PAUSE_MAX_SEC * 1000);
}

/* Tries again what may pass by itself. False: it was tried enough. */
static bool req_retry(struct http_req *r, curl_off_t asked_sec)
{
	if (r->moved)
		r->attempts = 0;
	if (r->attempts + 1 >= ATTEMPTS || r->starts >= STARTS)
		return false;
	/* the place that a redirect named may have been good for a while only */
	free(mem_take(&r->at));
	r->redirects = 0;
	req_again(r, pause_ms(r, asked_sec));
	r->attempts++;
	return true;
}

static bool is_redirect(const struct http_req *r)
{
	return !r->bare && r->location && (r->method == HTTP_GET || r->method == HTTP_HEAD) &&
	       (r->status == 301 || r->status == 302 || r->status == 303 || r->status == 307 ||
		       r->status == 308);
}

static void req_redirect(struct http_req *r)
{
	if (++r->redirects > REDIRECTS) {
		den_fail(&r->err, DEN_CONFLICT, 0, "the registry redirects more than %d times",
			REDIRECTS);
		req_fail(r);
		return;
	}
	free(r->at);
	r->at = mem_take(&r->location);
	req_again(r, 0);
}

/* 401 from the registry itself: a header that is newer than the refused one may do. */
static void req_login(struct http *h, struct http_req *r)
{
	if (r->logins++ >= LOGINS) {
		den_fail(&r->err, DEN_DENIED, 0,
			"the registry refuses again after it gave a token: "
			"this user may not do that here");
		req_fail(r);
	} else if (r->login_turn == h->auth->turn &&
		   auth_answer(h->auth, &r->challenge, !strcmp(h->home.scheme, "http"), h,
			   &r->err) < 0) {
		req_fail(r);
	} else {
		req_again(r, 0);
	}
}

static void req_broken(struct http *h, struct http_req *r)
{
	bool passes = r->code == CURLE_OPERATION_TIMEDOUT || r->code == CURLE_RECV_ERROR ||
		      r->code == CURLE_SEND_ERROR || r->code == CURLE_PARTIAL_FILE ||
		      r->code == CURLE_GOT_NOTHING || r->code == CURLE_HTTP2 ||
		      r->code == CURLE_HTTP2_STREAM;

	/* a name that never answered is a slip of the finger, not a bad moment */
	if (h->reached &&
		(r->code == CURLE_COULDNT_CONNECT || r->code == CURLE_COULDNT_RESOLVE_HOST))
		passes = true;
	if (passes && !r->once && req_retry(r, 0))
		return;
	http_code_fail(r, &r->err);
	req_fail(r);
}

static void req_finished(struct http *h, struct http_req *r, CURLcode code)
{
	curl_off_t wait = 0;

	list_remove(&r->link);
	h->n_running--;
	curl_easy_getinfo(r->easy, CURLINFO_RETRY_AFTER, &wait);
	r->code = code;
	if (code == CURLE_OK)
		req_answered(r);
	req_detach(r);
	if (r->err.code) {
		req_fail(r); /* one of the callbacks refused */
		return;
	}
	if (code != CURLE_OK) {
		req_broken(h, r);
		return;
	}
	h->reached = true;
	if (is_redirect(r))
		req_redirect(r);
	else if (r->status == 401 && !r->foreign && !r->bare)
		req_login(h, r);
	else if (!((r->status == 429 || (r->status >= 500 && !r->once && r->status != 501)) &&
			 req_retry(r, wait)))
		req_end(r);
}

static int64_t start_due(struct http *h)
{
	int64_t now = clock_mono_ns(), wait_ms = 250; /* the progress line wants to be on time */

	list_for_each_safe (l, next, &h->waiting) {
		struct http_req *r = CONTAINER_OF(l, struct http_req, link);

		if (h->stopped || h->n_running >= h->opt.jobs)
			break;
		if (r->not_before > now)
			wait_ms = MIN(wait_ms, (r->not_before - now) / NS_PER_MS + 1);
		else
			req_start(h, r);
	}
	return wait_ms;
}

int http_run(struct http *h, struct den_err *err)
{
	h->stopped = false;
	while (!h->stopped && (!list_empty(&h->waiting) || !list_empty(&h->running))) {
		int64_t wait_ms = start_due(h);
		CURLMsg *m;
		int n;

		if (h->stopped)
			break;
		if (curl_multi_perform(h->multi, &n) != CURLM_OK)
			return den_fail(err, DEN_INTERNAL, 0, "libcurl gave up");
		while (!h->stopped && (m = curl_multi_info_read(h->multi, &n))) {
			struct http_req *r = NULL;

			if (m->msg != CURLMSG_DONE)
				continue;
			curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &r);
			req_finished(h, r, m->data.result);
		}
		if (h->tick)
			h->tick(h->tick_user);
		if (!h->stopped && !list_empty(&h->running))
			curl_multi_poll(h->multi, NULL, 0, (int)wait_ms, NULL);
		else if (!h->stopped && !list_empty(&h->waiting))
			curl_multi_poll(h->multi, NULL, 0, (int)wait_ms, NULL);
	}
	return 0;
}

int http_do(struct http *h, struct http_req *r, struct den_err *err)
{
	http_submit(h, r);
	if (http_run(h, err) < 0)
		return -1;
	if (r->failed) {
		*err = r->err;
		return -1;
	}
	return 0;
}

int http_once(struct http *h, struct http_req *r, struct den_err *err)
{
	r->http = h;
	r->bare = true; /* never in the multi handle */
	free(mem_take(&r->at));
	if (req_set_up(h, r, err) < 0)
		return -1;
	r->code = curl_easy_perform(r->easy);
	if (r->code == CURLE_OK)
		req_answered(r);
	req_detach(r);
	if (!r->err.code && r->code != CURLE_OK)
		http_code_fail(r, &r->err);
	r->failed = r->err.code;
	if (r->failed)
		*err = r->err;
	return r->failed ? -1 : 0;
}
