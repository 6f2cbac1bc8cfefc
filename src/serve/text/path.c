#include "path.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static int hex(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

/* Bytes of the character at s, 0: it is none. No surrogates, nothing longer than needed (RFC 3629). */
static size_t utf8_one(const unsigned char *s, size_t n)
{
	size_t len = s[0] < 0x80		   ? 1
		     : s[0] >= 0xc2 && s[0] < 0xe0 ? 2
		     : s[0] >= 0xe0 && s[0] < 0xf0 ? 3
		     : s[0] >= 0xf0 && s[0] < 0xf5 ? 4
						   : 0;

	if (!len || len > n)
		return 0;
	for (size_t i = 1; i < len; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) ||
		(s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f))
		return 0;
	return len;
}

bool utf8_valid(const char *s, size_t n, size_t *ret_at)
{
	for (size_t i = 0; i < n;) {
		size_t len = utf8_one((const unsigned char *)s + i, n - i);

		if (!len) {
			if (ret_at)
				*ret_at = i;
			return false;
		}
		i += len;
	}
	return true;
}

int path_decode(const char *s, size_t n, bool plus, char *out, struct den_err *err)
{
	char *o = out;

	for (size_t i = 0; i < n; i++) {
		int high, low;

		if (plus && s[i] == '+') {
			*o++ = ' ';
			continue;
		}
		if (s[i] != '%') {
			*o++ = s[i];
			continue;
		}
		if (n - i < 3 || (high = hex(s[i + 1])) < 0 || (low = hex(s[i + 2])) < 0)
			return den_fail(err, DEN_INVALID, 0,
				"a '%%' in the address must be followed by two hexadecimal digits; "
				"write %%25 for it");
		if (!high && !low)
			return den_fail(
				err, DEN_INVALID, 0, "the address holds %%00, which cannot be");
		*o++ = (char)(high << 4 | low);
		i += 2;
	}
	*o = 0;
	if (!utf8_valid(out, (size_t)(o - out), NULL))
		return den_fail(err, DEN_INVALID, 0, "the address is not UTF-8 after decoding it");
	return 0;
}

bool path_fits(const char *pattern, const char *path, struct span_arg args[static PATH_ARGS_MAX],
	size_t *ret_n, unsigned *ret_rank)
{
	size_t n = 0;
	unsigned rank = 0, bit = 1u << 30;

	for (; *pattern == '/' && *path == '/'; bit >>= 1) {
		const char *pattern_end = strchrnul(++pattern, '/'),
			   *path_end = strchrnul(++path, '/');
		size_t len = (size_t)(pattern_end - pattern);

		if (len >= 2 && *pattern == '{' && pattern_end[-1] == '}') {
			bool rest = len > 5 && !memcmp(pattern_end - 4, "...", 3);

			if (n == PATH_ARGS_MAX || (!rest && path == path_end))
				return false;
			if (rest)
				path_end = path + strlen(path);
			args[n++] = (struct span_arg){ pattern + 1, path, len - (rest ? 5 : 2),
				(size_t)(path_end - path), rest };
		} else {
			if (len != (size_t)(path_end - path) || memcmp(pattern, path, len))
				return false;
			rank |= bit;
		}
		pattern = pattern_end;
		path = path_end;
	}
	if (*pattern || *path)
		return false;
	*ret_n = n;
	*ret_rank = rank;
	return true;
}

int query_parse(const char *query, struct pair **ret, size_t *ret_n, struct den_err *err)
{
	size_t len = strlen(query), n = 0, max = 1;
	struct pair *pairs;
	char *text;

	for (const char *p = query; *p; p++)
		max += *p == '&';
	if (max > QUERY_MAX)
		return den_fail(err, DEN_INVALID, 0, "more than %d query parameters", QUERY_MAX);
	pairs = malloc(max * sizeof(*pairs) + len + 2 * max + 2);
	if (!pairs)
		return den_fail(err, DEN_LIMIT, 0, "no memory for the query");
	text = (char *)(pairs + max);
	for (const char *p = query; *p;) {
		const char *end = strchrnul(p, '&'), *eq = memchr(p, '=', (size_t)(end - p));
		const char *name_end = eq ? eq : end;
		size_t name_n = (size_t)(name_end - p), value_n = eq ? (size_t)(end - eq - 1) : 0;

		if (end > p) {
			char *name = text, *value = text + name_n + 1;

			if (path_decode(p, name_n, true, name, err) < 0 ||
				path_decode(eq ? eq + 1 : end, value_n, true, value, err) < 0) {
				free(pairs);
				return -1;
			}
			text = value + value_n + 1;
			pairs[n++] = (struct pair){ name, value };
		}
		p = *end ? end + 1 : end;
	}
	*ret = pairs;
	*ret_n = n;
	return 0;
}
