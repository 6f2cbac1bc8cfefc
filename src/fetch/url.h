/* URLs that a registry names: taken apart, judged and put together by libcurl, in this one
 * place. */
#pragma once

#include <stdbool.h>

#include "digest.h"
#include "err.h"

#define URL_MAX 8192

/* Where a URL leads to; credentials for one origin are never sent to another. */
struct origin {
	char scheme[8]; /* "http" or "https" */
	char host[256];
	char port[8];
};

/* Checks that url is http or https, without a user in it. */
int url_origin(const char *url, struct origin *ret, struct den_err *err);
bool origin_same(const struct origin *a, const struct origin *b);
/* What "Location: to" in an answer from `from` means. From https it never leads to http. */
int url_follow(const char *from, const char *to, char **ret, struct den_err *err);
/* Adds "name=value" to the query, encoded. *url is replaced. */
int url_query(char **url, const char *name, const char *value, struct den_err *err);
