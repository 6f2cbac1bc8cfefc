/* What was asked, as handlers see it. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "http_int.h"
#include "parse.h"

const char *req_method(const struct req *r)
{
	return r->method;
}

const char *req_path(const struct req *r)
{
	return r->path;
}

const char *req_arg(const struct req *r, const char *name)
{
	for (size_t i = 0; i < r->n_args; i++)
		if (!strcmp(r->args[i].name, name))
			return r->args[i].value;
	return "";
}

const char *req_query(const struct req *r, const char *name)
{
	for (size_t i = 0; i < r->n_query; i++)
		if (!strcmp(r->query[i].name, name))
			return r->query[i].value;
	return NULL;
}

const char *req_query_raw(const struct req *r)
{
	return r->raw_query;
}

const char *req_header(const struct req *r, const char *name)
{
	for (size_t i = 0; i < r->n_headers; i++)
		if (!strcasecmp(r->headers[i].name, name))
			return r->headers[i].value;
	return NULL;
}

void req_each_header(const struct req *r,
	void (*fn)(const char *name, const char *value, void *user), void *user)
{
	for (size_t i = 0; i < r->n_headers; i++)
		fn(r->headers[i].name, r->headers[i].value, user);
}

int req_query_u64(const struct req *r, const char *name, uint64_t max, uint64_t otherwise,
	uint64_t *ret, struct den_err *err)
{
	const char *text = req_query(r, name);

	if (!text) {
		*ret = otherwise;
		return 0;
	}
	if (parse_u64(text, 0, max, ret, err) < 0)
		return den_wrap(err, "query parameter '%s'", name);
	return 0;
}

bool req_query_known(const struct req *r, const char *const *names, struct den_err *err)
{
	int n = 0;

	while (names[n])
		n++;
	for (size_t i = 0; i < r->n_query; i++) {
		const char *name = r->query[i].name, *near;
		int k = 0;

		while (k < n && strcmp(names[k], name))
			k++;
		if (k == n) {
			near = parse_nearest(name, names, n);
			den_fail(err, DEN_INVALID, 0,
				near ? "unknown query parameter '%.60s'; did you mean '%s'?"
				     : "unknown query parameter '%.60s'",
				name, near);
			return false;
		}
		for (size_t other = 0; other < i; other++)
			if (!strcmp(r->query[other].name, name)) {
				den_fail(err, DEN_INVALID, 0,
					"the query parameter '%s' is given twice", name);
				return false;
			}
	}
	return true;
}

const char *req_peer(const struct req *r)
{
	return r->peer;
}

bool req_tls(const struct req *r)
{
	return r->tls;
}

const struct who *req_who(const struct req *r)
{
	return r->has_who ? &r->who : NULL;
}

void req_set_who(struct req *r, const struct who *who)
{
	r->who = *who;
	r->has_who = true;
}

uint64_t req_number(const struct req *r)
{
	return r->number;
}
