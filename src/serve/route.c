#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "parse.h"
#include "route_int.h"

static bool method_fits(const struct route *route, const char *method)
{
	return !strcmp(route->method, "*") || !strcmp(route->method, method) ||
	       (!strcmp(method, "HEAD") && !strcmp(route->method, "GET"));
}

/* Which methods this path has, for Allow. */
static void allowed(const struct dialect *d, const char *path, struct buf *b)
{
	struct span_arg args[PATH_ARGS_MAX];
	unsigned rank;
	size_t n;

	for (size_t i = 0; i < d->n; i++) {
		if (!path_fits(d->routes[i].path, path, args, &n, &rank))
			continue;
		if (b->len && strstr(buf_str(b), d->routes[i].method))
			continue;
		buf_addf(b, "%s%s", b->len ? ", " : "", d->routes[i].method);
		if (!strcmp(d->routes[i].method, "GET"))
			buf_addstr(b, ", HEAD");
	}
}

static int args_decode(struct req *r, const struct span_arg *args, size_t n, struct den_err *err)
{
	for (size_t i = 0; i < n; i++) {
		char *p = malloc(args[i].name_n + args[i].value_n + 2),
		     *value = p + args[i].name_n + 1;

		if (!p)
			return den_fail(err, DEN_LIMIT, 0, "no memory");
		memcpy(p, args[i].name, args[i].name_n);
		value[-1] = 0;
		r->args[r->n_args++] = (struct pair){ p, value };
		if (args[i].rest) {
			memcpy(value, args[i].value, args[i].value_n);
			value[args[i].value_n] = 0;
		} else if (path_decode(args[i].value, args[i].value_n, false, value, err) < 0) {
			return -1;
		}
	}
	return 0;
}

/* How many segments of the path are not the pattern's, though nearly; -1: some are quite different. Writes the path as
 * the pattern would have it. */
static int misspelt(const char *pattern, const char *path, struct buf *as)
{
	int wrong = 0, literal = 0;

	while (*pattern == '/' && *path == '/') {
		size_t n = strcspn(++pattern, "/"), m = strcspn(++path, "/");
		char want[64], have[64];

		if (n >= sizeof(want) || m >= sizeof(have) || !m)
			return -1;
		memcpy(want, pattern, n);
		memcpy(have, path, m);
		want[n] = have[m] = '\0';
		literal += *want != '{' && !strcmp(want, have);
		if (*want != '{' && strcmp(want, have)) {
			if (!parse_nearest(have, (const char *const[]){ want }, 1))
				return -1;
			wrong++;
		}
		buf_addf(as, "/%s", *want == '{' ? have : want);
		pattern += n;
		path += m;
	}
	return *pattern || *path || (!literal && wrong > 1) ? -1 : wrong;
}

static bool nearest(const struct dialect *d, const char *path, struct buf *ret)
{
	int best = 3;

	for (size_t i = 0; i < d->n; i++) {
		auto_buf as = { 0 };
		int wrong = misspelt(d->routes[i].path, path, &as);

		if (wrong < 1 || wrong >= best)
			continue;
		best = wrong;
		ret->len = 0;
		buf_addstr(ret, buf_str(&as));
	}
	return best < 3;
}

static int not_here(struct req *r, struct den_err *err)
{
	auto_buf methods = { 0 }, near = { 0 };

	allowed(r->dialect, r->path, &methods);
	if (!methods.len && nearest(r->dialect, r->path, &near))
		return den_fail(err, DEN_NOT_FOUND, 0, "there is nothing at %.100s; did you mean %.100s?", r->path,
			buf_str(&near));
	if (!methods.len)
		return den_fail(err, DEN_NOT_FOUND, 0, "there is nothing at %.120s", r->path);
	r->fail_status = 405;
	req_set(r, "Allow", buf_str(&methods));
	return den_fail(err, DEN_INVALID, 0, "%.20s is not for %.100s; it takes %s", r->method,
		r->path, buf_str(&methods));
}

static int find(struct req *r, struct den_err *err)
{
	struct span_arg args[PATH_ARGS_MAX], best[PATH_ARGS_MAX];
	const struct dialect *d = r->dialect;
	unsigned rank, best_rank = 0;
	size_t n, best_n = 0;

	for (size_t i = 0; i < d->n; i++) {
		const struct route *route = &d->routes[i];

		if (!method_fits(route, r->method) ||
			!path_fits(route->path, r->path, args, &n, &rank))
			continue;
		if (r->route && (rank < best_rank ||
					(rank == best_rank && strcmp(route->method, r->method))))
			continue;
		r->route = route;
		best_rank = rank;
		best_n = n;
		memcpy(best, args, sizeof(args));
	}
	if (!r->route)
		return not_here(r, err);
	return args_decode(r, best, best_n, err);
}

/* A browser asks whether it may: the answer depends on nothing but the path. */
static int preflight(struct req *r, struct den_err *err)
{
	const char *headers = req_header(r, "Access-Control-Request-Headers");
	auto_buf methods = { 0 };

	allowed(r->dialect, r->path, &methods);
	if (!methods.len)
		return not_here(r, err);
	if (!strcmp(buf_str(&methods), "*"))
		req_set(r, "Access-Control-Allow-Methods",
			req_header(r, "Access-Control-Request-Method"));
	else
		req_set(r, "Access-Control-Allow-Methods", buf_str(&methods));
	if (headers)
		req_set(r, "Access-Control-Allow-Headers", headers);
	req_set(r, "Access-Control-Max-Age", "7200");
	req_set(r, "Vary", "Origin, Access-Control-Request-Method, Access-Control-Request-Headers");
	return req_reply_empty(r, 204);
}

static int unknown_key(struct req *r, const char *why, struct den_err *err)
{
	r->fail_status = 401;
	req_set(r, "WWW-Authenticate", "Bearer");
	return den_fail(err, DEN_DENIED, 0, "%s", why);
}

static int body_check(struct req *r, struct den_err *err)
{
	if (r->has_body && !r->chunked && r->length > r->route->max_body) {
		r->fail_status = 413;
		return den_fail(err, DEN_LIMIT, 0,
			"the body of %llu bytes is larger than the %zu that are allowed here",
			(unsigned long long)r->length, r->route->max_body);
	}
	return 0;
}

int route_open(struct req *r, struct den_err *err)
{
	if (query_parse(r->raw_query, &r->query, &r->n_query, err) < 0)
		return -1;
	r->dialect = http_opt.pick(r);
	if (r->dialect->cors && !strcmp(r->method, "OPTIONS") && req_header(r, "Origin") &&
		req_header(r, "Access-Control-Request-Method"))
		return preflight(r, err);
	if (find(r, err) < 0 || body_check(r, err) < 0)
		return -1;
	if ((r->route->auth == AUTH_KEY || r->route->auth == AUTH_ADMIN) && !r->dialect->key(r))
		return unknown_key(r,
			"no key was sent; make one with 'den key create' and send it as a header",
			err);
	return 0;
}

static int auth_run(struct req *r, struct den_err *err)
{
	struct who who;

	if (auth_check(r, r->dialect->key(r), &who, err) < 0) {
		if (err->code == DEN_DENIED && !r->fail_status) {
			r->fail_status = 401;
			req_set(r, "WWW-Authenticate", "Bearer");
		}
		if (err->code == DEN_LIMIT)
			r->fail_status = 429;
		return -1;
	}
	req_set_who(r, &who);
	if (!who.admin && req_share(r, who.org, err) < 0)
		return -1;
	if (r->route->auth == AUTH_ADMIN && !who.admin && !auth_scope(&who, "admin"))
		return den_fail(err, DEN_DENIED, 0, "this needs a key with the scope 'admin'");
	if (r->route->scope && !who.admin && !auth_scope(&who, r->route->scope))
		return den_fail(err, DEN_DENIED, 0,
			"this key lacks the scope '%s'; 'den key create --scope %s' makes one",
			r->route->scope, r->route->scope);
	return 0;
}

int route_run(struct req *r, struct den_err *err)
{
	if ((r->route->auth == AUTH_KEY || r->route->auth == AUTH_ADMIN) && auth_run(r, err) < 0)
		return -1;
	return r->route->run(r, err);
}
