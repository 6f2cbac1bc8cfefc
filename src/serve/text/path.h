/* Paths and queries as strangers send them: taken apart, decoded once, matched with the patterns of routes. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "err.h"

#define PATH_ARGS_MAX 8

struct pair {
	const char *name, *value;
};

/* Decodes %XX in n bytes of s into out, which has n + 1 bytes. plus: '+' is a space, as in forms. DEN_INVALID:
 * a '%' without two hexadecimal digits, a NUL, or what is not UTF-8 in the end. */
int path_decode(const char *s, size_t n, bool plus, char *out, struct den_err *err);
bool utf8_valid(const char *s, size_t n, size_t *ret_at /* first bad byte; may be NULL */);

/* Does path fit the pattern? "{x}" takes one segment that is not empty, a last "{x...}" all the rest, even
 * nothing. The spans are not decoded. *ret_rank: the greater of two that fit is the more exact. */
struct span_arg {
	const char *name, *value;
	size_t name_n, value_n;
	bool rest;
};
bool path_fits(const char *pattern, const char *path, struct span_arg args[static PATH_ARGS_MAX],
	size_t *ret_n, unsigned *ret_rank);

/* "a=1&b=2" decoded into pairs, in order. One allocation: free(*ret). At most QUERY_MAX. */
#define QUERY_MAX 256
int query_parse(const char *query, struct pair **ret, size_t *ret_n, struct den_err *err);
