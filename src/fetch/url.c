#include "url.h"

#include <curl/curl.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "mem.h"

static void curlup(CURLU **u)
{
	curl_url_cleanup(*u);
}
#define auto_url __attribute__((cleanup(curlup))) CURLU

static int part_get(CURLU *u, CURLUPart part, char *ret, size_t cap)
{
	char *text = NULL;
	int r = -1;

	if (curl_url_get(u, part, &text, CURLU_DEFAULT_PORT) == CURLUE_OK && strlen(text) < cap) {
		memcpy(ret, text, strlen(text) + 1);
		r = 0;
	}
	curl_free(text);
	return r;
}

static int origin_get(CURLU *u, const char *text, struct origin *ret, struct den_err *err)
{
	struct origin o;

	if (part_get(u, CURLUPART_SCHEME, o.scheme, sizeof(o.scheme)) < 0 ||
		(strcmp(o.scheme, "http") && strcmp(o.scheme, "https")))
		return den_fail(err, DEN_DENIED, 0, "'%.100s' is neither http nor https", text);
	if (part_get(u, CURLUPART_HOST, o.host, sizeof(o.host)) < 0 ||
		part_get(u, CURLUPART_PORT, o.port, sizeof(o.port)) < 0)
		return den_fail(err, DEN_INVALID, 0, "'%.100s' names no host", text);
	*ret = o;
	return 0;
}

int url_origin(const char *url, struct origin *ret, struct den_err *err)
{
	auto_url *u = curl_url();

	if (!u || strlen(url) > URL_MAX ||
		curl_url_set(u, CURLUPART_URL, url, CURLU_DISALLOW_USER) != CURLUE_OK)
		return den_fail(
			err, DEN_INVALID, 0, "'%.100s' is not a URL that can be asked", url);
	return origin_get(u, url, ret, err);
}

bool origin_same(const struct origin *a, const struct origin *b)
{
	return !strcmp(a->scheme, b->scheme) && !strcasecmp(a->host, b->host) &&
	       !strcmp(a->port, b->port);
}

static int url_text(CURLU *u, char **ret, struct den_err *err)
{
	char *text = NULL;

	curl_url_set(u, CURLUPART_FRAGMENT, NULL, 0);
	if (curl_url_get(u, CURLUPART_URL, &text, 0) != CURLUE_OK || strlen(text) > URL_MAX) {
		curl_free(text);
		return den_fail(err, DEN_INVALID, 0, "a URL of more than %d bytes", URL_MAX);
	}
	*ret = mem_strdup(text);
	curl_free(text);
	return 0;
}

int url_follow(const char *from, const char *to, char **ret, struct den_err *err)
{
	auto_url *u = curl_url();
	struct origin a, b;

	if (!u || curl_url_set(u, CURLUPART_URL, from, 0) != CURLUE_OK)
		return den_fail(err, DEN_INVALID, 0, "'%.100s' is not a URL", from);
	if (origin_get(u, from, &a, err) < 0)
		return -1;
	if (!*to || strlen(to) > URL_MAX ||
		curl_url_set(u, CURLUPART_URL, to, CURLU_DISALLOW_USER) != CURLUE_OK)
		return den_fail(err, DEN_INVALID, 0,
			"the registry leads to '%.100s', which is not a URL", to);
	if (origin_get(u, to, &b, err) < 0)
		return den_wrap(err, "the registry leads astray");
	if (!strcmp(a.scheme, "https") && strcmp(b.scheme, "https"))
		return den_fail(err, DEN_DENIED, 0,
			"the registry leads from https to '%.100s', which anybody on the way can "
			"read",
			to);
	return url_text(u, ret, err);
}

int url_query(char **url, const char *name, const char *value, struct den_err *err)
{
	auto_url *u = curl_url();
	auto_free char *pair = NULL;
	char *text;

	if (asprintf(&pair, "%s=%s", name, value) < 0)
		pair = NULL;
	if (!u || !pair || curl_url_set(u, CURLUPART_URL, *url, 0) != CURLUE_OK ||
		curl_url_set(u, CURLUPART_QUERY, pair, CURLU_APPENDQUERY | CURLU_URLENCODE) !=
			CURLUE_OK)
		return den_fail(err, DEN_INVALID, 0, "'%.100s' is not a URL", *url);
	if (url_text(u, &text, err) < 0)
		return -1;
	free(*url);
	*url = text;
	return 0;
}
