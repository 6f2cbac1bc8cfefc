#include "auth.h"

#include <stdio.h>
#include <string.h>

#include "base64.h"
#include "http.h"

static void secret_set(char **at, char *s)
{
	if (*at)
		explicit_bzero(*at, strlen(*at));
	free(*at);
	*at = s;
}

static char *basic_header(const struct login *l)
{
	auto_buf plain = { 0 }, b = { 0 };

	buf_addf(&plain, "%s:%s", l->user, l->password);
	buf_addstr(&b, "Basic ");
	base64_put(&b, plain.p, plain.len);
	explicit_bzero(plain.p, plain.len);
	return mem_strdup(buf_str(&b));
}

static void form_add(struct buf *b, const char *name, const char *value)
{
	char *text = curl_easy_escape(NULL, value, 0);

	buf_addf(b, "%s%s=%s", b->len ? "&" : "", name, text ? text : "");
	curl_free(text);
}

/* Asks the token server that the registry named. */
static int token_ask(
	struct auth *a, const struct challenge *c, struct http *h, char **ret, struct den_err *err)
{
	const char *scope = c->scope[0] ? c->scope : a->scope;
	auto_free char *basic = NULL;
	auto_buf form = { 0 };
	struct http_req r;
	int result = -1;

	http_req_init(&r);
	r.url = mem_strdup(c->realm);
	r.bare = true;
	if (a->login.refresh) {
		r.method = HTTP_POST;
		r.type = "application/x-www-form-urlencoded";
		form_add(&form, "grant_type", "refresh_token");
		form_add(&form, "client_id", "den");
		form_add(&form, "service", c->service);
		form_add(&form, "scope", scope);
		form_add(&form, "refresh_token", a->login.refresh);
		r.body_mem = form.p;
		r.body_len = form.len;
	} else {
		if ((c->service[0] && url_query(&r.url, "service", c->service, err) < 0) ||
			url_query(&r.url, "scope", scope, err) < 0)
			goto end;
		if (a->login.user)
			basic = basic_header(&a->login);
		r.authorization = basic;
	}
	if (http_once(h, &r, err) < 0)
		goto end;
	if (r.status == 401 || r.status == 403)
		den_fail(err, DEN_DENIED, 0,
			a->login.user || a->login.refresh
				? "the registry does not know this user and password"
				: "the registry gives no token to strangers; give --user NAME "
				  "--password-stdin, or --auth FILE");
	else if (r.status != 200)
		den_fail(err, DEN_TIMEOUT, 0, "the token server answers %ld; try again later",
			r.status);
	else
		result = token_parse(r.body.p ? r.body.p : "", r.body.len, ret, err);
end:
	if (form.p)
		explicit_bzero(form.p, form.len);
	if (basic)
		explicit_bzero(basic, strlen(basic));
	http_req_free(&r);
	return result;
}

static int bearer_answer(struct auth *a, const struct challenge *c, bool home_plain, struct http *h,
	struct den_err *err)
{
	auto_free char *token = NULL;
	struct origin realm;
	char *header = NULL;

	if (a->login.bearer) {
		if (a->header)
			return den_fail(
				err, DEN_DENIED, 0, "the registry does not take this token");
		token = mem_strdup(a->login.bearer);
	} else {
		if (url_origin(c->realm, &realm, err) < 0)
			return den_wrap(err, "token server");
		if (!home_plain && strcmp(realm.scheme, "https"))
			return den_fail(err, DEN_DENIED, 0,
				"the registry's token server '%.100s' is not https: nothing is "
				"sent to it",
				c->realm);
		if (token_ask(a, c, h, &token, err) < 0)
			return den_wrap(err, "token from '%.60s'", realm.host);
	}
	if (asprintf(&header, "Bearer %s", token) < 0)
		return den_fail(err, DEN_LIMIT, 0, "out of memory");
	secret_set(&a->header, header);
	explicit_bzero(token, strlen(token));
	return 0;
}

static const char *who_hint(const struct auth *a)
{
	return a->helper ? "the auth file leaves this host to a helper program, which is not "
			   "asked; give "
			   "--user NAME --password-stdin"
			 : "give --user NAME --password-stdin, or --auth FILE";
}

int auth_answer(struct auth *a, const struct challenge *c, bool home_plain, struct http *h,
	struct den_err *err)
{
	switch (c->kind) {
	case CHALLENGE_BEARER:
		if (bearer_answer(a, c, home_plain, h, err) < 0)
			return -1;
		break;
	case CHALLENGE_BASIC:
		if (!a->login.user || !a->login.password)
			return den_fail(err, DEN_DENIED, 0,
				"the registry wants a user and a password; %s", who_hint(a));
		if (a->header)
			return den_fail(err, DEN_DENIED, 0,
				"the registry does not know this user and password");
		secret_set(&a->header, basic_header(&a->login));
		break;
	default:
		return den_fail(err, DEN_DENIED, 0,
			"the registry refuses, and says no way to log in; %s", who_hint(a));
	}
	a->turn++;
	return 0;
}

void auth_free(struct auth *a)
{
	login_free(&a->login);
	secret_set(&a->header, NULL);
}
