/*
 * Blobs that go. For each:
 *
 *   ASK    HEAD blobs/DIGEST        200: it is there, done
 *   OPEN   POST blobs/uploads/      202: a Location to send to
 *   SEND   PUT LOCATION?digest=     all of it at once; 201: done
 *   PATCH  PATCH LOCATION           or, when it is big, piece by piece; 202: the next Location
 *   CLOSE  PUT LOCATION?digest=     and then the end without a body
 *
 * When a piece is lost on the way the upload begins anew at OPEN: what the registry has of it is
 * unknown. The manifest goes last, so nobody sees an image that is not whole.
 */
#include <stdio.h>
#include <string.h>

#include "fd.h"
#include "fetch.h"

#define WHOLE_MAX (64ULL << 20) /* bigger blobs go in pieces */
#define PIECE (32ULL << 20)
#define TRIES 3

enum upload_step { UPLOAD_ASK, UPLOAD_OPEN, UPLOAD_SEND, UPLOAD_PATCH, UPLOAD_CLOSE };

struct push_state {
	struct fetch *f;
	struct den_err *err;
	bool failed;
};

struct upload {
	struct http_req req;
	const struct descriptor *d;
	struct push_state *all;
	enum upload_step step;
	char *to; /* the registry's last Location */
	uint64_t at, counted;
	unsigned tries;
	int fd;
};

static void on_sent(struct http_req *r, size_t n)
{
	struct upload *u = r->user;
	uint64_t fresh = MIN(n, u->d->size - u->counted); /* sent again is not counted again */

	u->counted += fresh;
	u->all->f->progress.bytes += fresh;
}

/* Fills in the request for u->step and submits it. */
static int upload_go(struct upload *u, enum upload_step step, struct den_err *err)
{
	static const enum http_method methods[] = { [UPLOAD_ASK] = HTTP_HEAD,
		[UPLOAD_OPEN] = HTTP_POST,
		[UPLOAD_SEND] = HTTP_PUT,
		[UPLOAD_PATCH] = HTTP_PATCH,
		[UPLOAD_CLOSE] = HTTP_PUT };
	struct http_req *r = &u->req;
	char digest[80];

	snprintf(digest, sizeof(digest), "sha256:%s", u->d->digest.hex);
	u->step = step;
	r->method = methods[step];
	r->once = step >= UPLOAD_SEND;
	r->type = step >= UPLOAD_SEND ? "application/octet-stream" : NULL;
	r->content_range[0] = '\0';
	r->body_at = r->body_len = 0;
	free(r->url);
	if (step == UPLOAD_ASK)
		r->url = registry_url(u->all->f, "blobs", digest);
	else if (step == UPLOAD_OPEN)
		r->url = registry_url(u->all->f, "blobs/uploads", "");
	else
		r->url = mem_strdup(u->to);
	if (step == UPLOAD_SEND || step == UPLOAD_CLOSE)
		if (url_query(&r->url, "digest", digest, err) < 0)
			return -1;
	if (step == UPLOAD_SEND) {
		r->body_len = u->d->size;
	} else if (step == UPLOAD_PATCH) {
		r->body_at = u->at;
		r->body_len = MIN(PIECE, u->d->size - u->at);
		snprintf(r->content_range, sizeof(r->content_range), "%llu-%llu",
			(unsigned long long)u->at, (unsigned long long)(u->at + r->body_len - 1));
	}
	http_submit(u->all->f->http, r);
	return 0;
}

static int location_take(struct upload *u, struct den_err *err)
{
	if (!u->req.location)
		return den_fail(err, DEN_INVALID, 0, "%.60s does not say where to send a blob to",
			u->all->f->ref.host);
	free(u->to);
	u->to = mem_take(&u->req.location);
	return 0;
}

/* A lost piece: from the beginning, a few times. */
static int upload_again(struct upload *u, struct den_err *err)
{
	char what[32];

	if (u->req.failed && u->req.code == CURLE_OK)
		*err = u->req.err; /* refused by ourselves: no second time */
	else if (++u->tries < TRIES)
		return upload_go(u, UPLOAD_OPEN, err);
	else if (u->req.failed)
		*err = u->req.err;
	else {
		snprintf(what, sizeof(what), "blob %.12s", u->d->digest.hex);
		registry_refusal(u->all->f, &u->req, what, err);
	}
	return -1;
}

/* 1: done; 0: the next request is on its way; -1 */
static int upload_step(struct upload *u, struct den_err *err)
{
	struct http_req *r = &u->req;
	bool lost = r->failed || r->status >= 500 || r->status == 416;
	char what[48];

	snprintf(what, sizeof(what), "blob %.12s", u->d->digest.hex);
	if (u->step >= UPLOAD_SEND && lost)
		return upload_again(u, err);
	if (r->failed) {
		*err = r->err;
		return -1;
	}
	switch (u->step) {
	case UPLOAD_ASK:
		if (r->status == 404)
			return upload_go(u, UPLOAD_OPEN, err);
		if (r->status != 200)
			break;
		if (r->length >= 0 && (uint64_t)r->length != u->d->size)
			return den_fail(err, DEN_CONFLICT, 0,
				"%s has %lld bytes at %.60s, and %llu here", what,
				(long long)r->length, u->all->f->ref.host,
				(unsigned long long)u->d->size);
		return 1;
	case UPLOAD_OPEN:
		if (r->status != 202)
			break;
		u->at = 0;
		if (location_take(u, err) < 0)
			return -1;
		return upload_go(u, u->d->size > WHOLE_MAX ? UPLOAD_PATCH : UPLOAD_SEND, err);
	case UPLOAD_PATCH:
		if (r->status != 202 && r->status != 204)
			break;
		u->at += r->body_len;
		if (location_take(u, err) < 0)
			return -1;
		return upload_go(u, u->at < u->d->size ? UPLOAD_PATCH : UPLOAD_CLOSE, err);
	case UPLOAD_SEND:
	case UPLOAD_CLOSE:
		if (r->status == 201 || r->status == 204)
			return 1;
		break;
	}
	snprintf(what, sizeof(what), "%s blob %.12s", u->step == UPLOAD_OPEN ? "sending" : "a",
		u->d->digest.hex);
	return registry_refusal(u->all->f, r, what, err);
}

static void on_done(struct http_req *r)
{
	struct upload *u = r->user;
	struct push_state *all = u->all;
	int verdict = upload_step(u, all->err);

	if (verdict == 0)
		return;
	if (verdict < 0) {
		all->failed = true;
		http_stop(all->f->http);
		return;
	}
	fd_close(&u->fd);
	all->f->progress.bytes += u->d->size - u->counted;
	all->f->progress.done++;
}

/* The registry would find a wrong digest too, after all of it was sent. */
static int upload_prepare(struct fetch *f, struct upload *u, struct den_err *err)
{
	struct sha256 sum;
	struct digest got;

	if (layout_blob_open(&f->layout, u->d, &u->fd, err) < 0)
		return -1;
	sha256_init(&sum);
	if (file_sum(u->fd, u->d->size, &sum, err) < 0)
		return den_wrap(err, "blob %.12s", u->d->digest.hex);
	digest_end(&sum, &got);
	if (!digest_same(&got, &u->d->digest))
		return den_fail(err, DEN_CONFLICT, 0,
			"blob %.12s of the layout directory has another digest, %.12s...: it is "
			"damaged",
			u->d->digest.hex, got.hex);
	u->req.body_fd = u->fd;
	return 0;
}

static int blobs_push(struct fetch *f, const struct doc *doc, struct den_err *err)
{
	size_t n = doc->n_layers + 1;
	auto_free struct upload *all = mem_zalloc(n * sizeof(*all));
	struct push_state state = { .f = f, .err = err };
	int r = 0;

	for (size_t i = 0; i < n; i++)
		all[i].fd = -1;
	for (size_t i = 0; i < n && r == 0; i++) {
		struct upload *u = &all[i];
		bool twice = false;

		http_req_init(&u->req);
		u->d = i < doc->n_layers ? &doc->layers[i] : &doc->config;
		u->all = &state;
		for (size_t k = 0; k < i; k++)
			twice = twice || digest_same(&all[k].d->digest, &u->d->digest);
		if (twice)
			continue;
		u->req.done = on_done;
		u->req.sent = on_sent;
		u->req.user = u;
		f->progress.total++;
		f->progress.bytes_total += u->d->size;
		r = upload_prepare(f, u, err);
		if (r == 0)
			r = upload_go(u, UPLOAD_ASK, err);
	}
	if (r == 0)
		r = http_run(f->http, err);
	else
		http_stop(f->http);
	for (size_t i = 0; i < n; i++) {
		http_req_free(&all[i].req);
		free(all[i].to);
		fd_close(&all[i].fd);
	}
	return r < 0 || state.failed ? -1 : 0;
}

static int manifest_push(
	struct fetch *f, const struct descriptor *d, const struct buf *text, struct den_err *err)
{
	char name[136];
	struct http_req r;
	int result = -1;

	http_req_init(&r);
	ref_version(&f->ref, name);
	r.method = HTTP_PUT;
	r.url = registry_url(f, "manifests", name);
	r.type = d->media;
	r.body_mem = text->p;
	r.body_len = text->len;
	if (http_do(f->http, &r, err) < 0)
		goto end;
	if (r.status != 201 && r.status != 200 && r.status != 202) {
		registry_refusal(f, &r, "the image's manifest", err);
		goto end;
	}
	if (r.has_digest && !digest_same(&r.digest, &d->digest)) {
		den_fail(err, DEN_CONFLICT, 0,
			"%.60s stored another manifest than was sent; push again", f->ref.host);
		goto end;
	}
	result = 0;
end:
	http_req_free(&r);
	return result;
}

int fetch_push(struct fetch *f, struct digest *ret, struct den_err *err)
{
	struct descriptor d;
	auto_buf text = { 0 };
	auto_doc doc = { 0 };

	if (layout_image(&f->layout, &d, err) < 0 ||
		layout_blob_read(&f->layout, &d, &text, err) < 0)
		return -1;
	if (doc_parse(text.p ? text.p : "", text.len, d.media, &doc, err) < 0)
		return den_wrap(err, "the layout directory's image");
	if (doc.is_index)
		return den_fail(err, DEN_UNSUPPORTED, 0,
			"the layout directory's image is an index of several; push one image at a "
			"time");
	if (f->ref.has_digest && !digest_same(&f->ref.digest, &d.digest))
		return den_fail(err, DEN_INVALID, 0,
			"the image's digest is sha256:%.12s..., not the one in its name; leave "
			"'@...' out",
			d.digest.hex);
	snprintf(d.media, sizeof(d.media), "%s", doc.media);
	progress_init(&f->progress, "pushing", f->quiet);
	if (registry_open(f, true, err) < 0)
		return -1;
	if (blobs_push(f, &doc, err) < 0 || manifest_push(f, &d, &text, err) < 0)
		return -1;
	*ret = d.digest;
	return 0;
}
