#include "challenge.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <strings.h>

#define TOKEN_CHARS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789!#$%&'*+-.^_`|~"
#define BLANK " \t"

/* A token or a quoted string into out; false if it does not fit, is no value or holds what no
 * URL should. *p is moved behind it either way. */
static bool value_read(const char **p, char *out, size_t cap)
{
	const char *s = *p;
	bool ok = true;
	size_t n = 0;

	if (*s != '"') {
		n = strspn(s, TOKEN_CHARS ":/?=@,;[]");
		n = strcspn(s, BLANK ",") < n ? strcspn(s, BLANK ",") : n;
		*p = s + n;
		if (!n || n >= cap)
			return false;
		memcpy(out, s, n);
		out[n] = '\0';
		return true;
	}
	for (s++; *s && *s != '"'; s++) {
		if (*s == '\\' && s[1])
			s++;
		if ((unsigned char)*s < ' ' || *s == 0x7f || n + 1 >= cap)
			ok = false;
		else
			out[n++] = *s;
	}
	ok = ok && *s == '"';
	*p = *s ? s + 1 : s;
	out[n] = '\0';
	return ok;
}

static enum challenge_kind kind_of(const char *s, size_t n)
{
	if (n == 5 && !strncasecmp(s, "basic", 5))
		return CHALLENGE_BASIC;
	if (n == 6 && !strncasecmp(s, "bearer", 6))
		return CHALLENGE_BEARER;
	return CHALLENGE_NONE;
}

static void param_read(struct challenge *c, const char *name, size_t n, const char **p)
{
	char text[1024];

	if (!value_read(p, text, sizeof(text)))
		return;
	if (n == 5 && !strncasecmp(name, "realm", 5))
		memcpy(c->realm, text, strlen(text) + 1);
	else if (n == 7 && !strncasecmp(name, "service", 7) && strlen(text) < sizeof(c->service))
		memcpy(c->service, text, strlen(text) + 1);
	else if (n == 5 && !strncasecmp(name, "scope", 5) && strlen(text) < sizeof(c->scope))
		memcpy(c->scope, text, strlen(text) + 1);
}

static void keep_better(struct challenge *c, const struct challenge *found)
{
	if (found->kind > c->kind && (found->kind != CHALLENGE_BEARER || found->realm[0]))
		*c = *found;
}

void challenge_add(struct challenge *c, const char *p)
{
	struct challenge now = { 0 };

	while (*p) {
		const char *word;
		size_t n;

		p += strspn(p, BLANK ",");
		word = p;
		n = strspn(p, TOKEN_CHARS);
		if (!n) { /* neither scheme nor parameter: to the next comma */
			p += strcspn(p, ",");
			continue;
		}
		p += n;
		p += strspn(p, BLANK);
		if (*p == '=') {
			p++;
			p += strspn(p, BLANK);
			param_read(&now, word, n, &p);
		} else { /* a word that no '=' follows begins the next challenge */
			keep_better(c, &now);
			now = (struct challenge){ .kind = kind_of(word, n) };
		}
	}
	keep_better(c, &now);
}
