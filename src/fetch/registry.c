#include <stdio.h>
#include <string.h>

#include "fetch.h"

#define ACCEPT                                                                                     \
	MEDIA_OCI_MANIFEST ", " MEDIA_OCI_INDEX ", " MEDIA_DOCKER_MANIFEST ", " MEDIA_DOCKER_LIST

static int http_make(struct fetch *f, bool plain, struct den_err *err)
{
	char origin[300];
	struct http_opt opt = { .origin = origin,
		.ca = f->ca,
		.ca_len = f->ca_len,
		.jobs = f->jobs,
		.stall_sec = f->stall_sec,
		.loopback = f->ref.loopback };

	snprintf(origin, sizeof(origin), "%s://%s", plain ? "http" : "https", f->ref.host);
	http_free(f->http);
	f->http = NULL;
	if (http_new(&opt, &f->auth, &f->http, err) < 0)
		return -1;
	free(f->base);
	if (asprintf(&f->base, "%s/v2/%s", origin, f->ref.repo) < 0) {
		f->base = NULL;
		return den_fail(err, DEN_LIMIT, 0, "out of memory");
	}
	return 0;
}

/* A registry on this machine is often one without TLS. Only a connection that never became TLS
 * decides so; a certificate that is not trusted does not, and nothing secret is sent with the
 * question. */
static int speaks_plain(struct fetch *f, bool *ret, struct den_err *err)
{
	struct http_req r;

	http_req_init(&r);
	if (asprintf(&r.url, "https://%s/v2/", f->ref.host) < 0)
		return den_fail(err, DEN_LIMIT, 0, "out of memory");
	r.quick = true;
	*ret = http_once(f->http, &r, &(struct den_err){ 0 }) < 0 &&
	       (r.code == CURLE_SSL_CONNECT_ERROR || r.code == CURLE_COULDNT_CONNECT ||
		       r.code == CURLE_OPERATION_TIMEDOUT);
	http_req_free(&r);
	return 0;
}

int registry_open(struct fetch *f, bool push, struct den_err *err)
{
	bool plain = f->plain;

	snprintf(f->auth.scope, sizeof(f->auth.scope), "repository:%s:%s", f->ref.repo,
		push ? "pull,push" : "pull");
	if (http_make(f, plain, err) < 0)
		return -1;
	if (!plain && f->ref.loopback) {
		if (speaks_plain(f, &plain, err) < 0)
			return -1;
		if (plain && http_make(f, true, err) < 0)
			return -1;
	}
	http_on_tick(f->http, (void (*)(void *))progress_tick, &f->progress);
	return 0;
}

void registry_close(struct fetch *f)
{
	http_free(f->http);
	f->http = NULL;
	free(f->base);
	f->base = NULL;
	auth_free(&f->auth);
}

char *registry_url(const struct fetch *f, const char *what, const char *name)
{
	auto_buf b = { 0 };

	buf_addf(&b, "%s/%s/%s", f->base, what, name);
	return mem_strdup(buf_str(&b));
}

int registry_refusal(
	const struct fetch *f, const struct http_req *r, const char *what, struct den_err *err)
{
	char why[120] = "", said[140] = "";

	if (r->body.len)
		refusal_parse(r->body.p, r->body.len, why);
	if (why[0])
		snprintf(said, sizeof(said), " (%s)", why);
	switch (r->status) {
	case 401:
	case 403:
		return den_fail(err, DEN_DENIED, 0, "%.60s does not give access to %s%.60s; %s",
			f->ref.host, what, said,
			f->auth.login.user || f->auth.login.bearer
				? "ask its owner for the right to it"
				: "give --user NAME --password-stdin, or --auth FILE");
	case 404:
		return den_fail(err, DEN_NOT_FOUND, 0,
			"%.60s has no %s%.70s; check the name and the tag", f->ref.host, what,
			said);
	case 429:
		return den_fail(err, DEN_LIMIT, 0,
			"%.60s lets us ask no more for now%.70s; log in, or try again later",
			f->ref.host, said);
	}
	if (r->status >= 500)
		return den_fail(err, DEN_TIMEOUT, 0,
			"%.60s answers %ld for %s%.70s; try again later", f->ref.host, r->status,
			what, said);
	return den_fail(err, DEN_UNSUPPORTED, 0,
		"%.60s answers %ld for %s%.70s; is it a registry (API v2)?", f->ref.host, r->status,
		what, said);
}

static int manifest_check(const struct http_req *r, const struct digest *wanted,
	const struct digest *got, struct den_err *err)
{
	if (wanted && !digest_same(wanted, got))
		return den_fail(err, DEN_CONFLICT, 0,
			"its digest is %.12s..., not %.12s...: the registry sent something else, "
			"nothing is kept",
			got->hex, wanted->hex);
	if (r->has_digest && !digest_same(&r->digest, got))
		return den_fail(err, DEN_CONFLICT, 0,
			"its digest is %.12s..., and the registry says %.12s...: damaged on the "
			"way, try again",
			got->hex, r->digest.hex);
	return 0;
}

int registry_manifest(struct fetch *f, const struct descriptor *wanted, struct buf *ret,
	struct descriptor *ret_d, struct den_err *err)
{
	const struct digest *digest = wanted		  ? &wanted->digest
				      : f->ref.has_digest ? &f->ref.digest
							  : NULL;
	char name[136], what[440];
	struct http_req r;
	int result = -1;

	if (wanted)
		snprintf(name, sizeof(name), "sha256:%s", wanted->digest.hex);
	else
		ref_version(&f->ref, name);
	snprintf(what, sizeof(what), "image '%.60s:%.30s'", f->ref.repo, name);
	http_req_init(&r);
	r.url = registry_url(f, "manifests", name);
	r.accept = ACCEPT;
	if (http_do(f->http, &r, err) < 0)
		goto end;
	if (r.status != 200) {
		registry_refusal(f, &r, what, err);
		goto end;
	}
	digest_of(r.body.p ? r.body.p : "", r.body.len, &ret_d->digest);
	if (wanted && r.body.len != wanted->size) {
		den_fail(err, DEN_CONFLICT, 0, "%s has %zu bytes, not %llu: nothing is kept", what,
			r.body.len, (unsigned long long)wanted->size);
		goto end;
	}
	if (manifest_check(&r, digest, &ret_d->digest, err) < 0) {
		den_wrap(err, "%s", what);
		goto end;
	}
	ret_d->size = r.body.len;
	snprintf(ret_d->media, sizeof(ret_d->media), "%s", r.content_type);
	buf_add(ret, r.body.p, r.body.len);
	result = 0;
end:
	http_req_free(&r);
	return result;
}
