#include "name.h"

#include <ctype.h>
#include <string.h>

#include "mem.h"

#define LABEL_MAX 63

static int fail_byte(const char *text, size_t len, unsigned char c, struct den_err *err)
{
	int n = (int)MIN(len, 80);

	if (c >= 0x80)
		return den_fail(err, DEN_INVALID, 0,
			"'%.*s': a name is ASCII here; write the xn-- form of it", n, text);
	if (c == '*')
		return den_fail(err, DEN_INVALID, 0,
			"'%.*s': a * stands only at the front, as in *.example.com", n, text);
	return den_fail(err, DEN_INVALID, 0, "'%.*s' is not a host name", n, text);
}

/* Whether resolvers and libraries may take the name for an address: the WHATWG's rule, the last label is
 * a number. inet_aton() takes no others. */
static bool ends_in_number(const char *s)
{
	const char *dot = strrchr(s, '.'), *last = dot ? dot + 1 : s;

	if (last[0] == '0' && last[1] == 'x')
		return !last[2 + strspn(last + 2, "0123456789abcdef")];
	return !last[strspn(last, "0123456789")];
}

int net_name_parse(const char *text, size_t len, struct net_name *ret, struct den_err *err)
{
	struct net_name n;
	size_t label = 0, end = len;

	if (end && text[end - 1] == '.')
		end--;
	if (!end)
		return den_fail(err, DEN_INVALID, 0, "a host name is empty");
	if (end > NET_NAME_MAX)
		return den_fail(err, DEN_INVALID, 0,
			"a host name has at most %d characters, not %zu", NET_NAME_MAX, end);
	for (size_t i = 0; i < end; i++) {
		unsigned char c = (unsigned char)text[i];

		if (c == '.' ? !label : ++label > LABEL_MAX)
			return den_fail(err, DEN_INVALID, 0,
				"'%.*s' is not a host name: between dots stand 1 to %d characters",
				(int)MIN(len, 80), text, LABEL_MAX);
		if (c == '.')
			label = 0;
		else if (c >= 0x80 || (!isalnum(c) && c != '-' && c != '_'))
			return fail_byte(text, len, c, err);
		n.s[i] = (char)(c >= 'A' && c <= 'Z' ? c + 32 : c);
	}
	if (!label)
		return den_fail(err, DEN_INVALID, 0, "'%.*s' ends in more than one dot",
			(int)MIN(len, 80), text);
	n.s[end] = '\0';
	if (ends_in_number(n.s))
		return den_fail(err, DEN_INVALID, 0,
			"'%.*s' is an address, or looks like one; write it like 192.0.2.1",
			(int)MIN(len, 80), text);
	*ret = n;
	return 0;
}

bool net_name_below(const struct net_name *n, const struct net_name *suffix)
{
	size_t a = strlen(n->s), b = strlen(suffix->s);

	return a > b + 1 && n->s[a - b - 1] == '.' && !memcmp(n->s + a - b, suffix->s, b);
}

bool net_name_local(const struct net_name *n)
{
	const char *dot = strrchr(n->s, '.'), *last = dot ? dot + 1 : n->s;

	return !strcmp(last, "localhost") || !strcmp(last, "den");
}
