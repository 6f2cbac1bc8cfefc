#include "ignore.h"

#include <string.h>

#include "buf.h"
#include "mem.h"
#include "strv.h"

#define PATTERNS_MAX 10000

/* ---- one part of a path ---------------------------------------------------------------------- */

/* At '[': whether c is in the class; *end is behind it. A class that is not closed is a bracket. */
static bool class_match(const char *p, const char *stop, char c, const char **end)
{
	bool not = p + 1 < stop && (p[1] == '^' || p[1] == '!'), hit = false;
	const char *q = p + 1 + not ;
	const char *first = q;

	for (; q < stop && (*q != ']' || q == first); q++) {
		unsigned char from = (unsigned char)*q, to = from;

		if (*q == '\\' && q + 1 < stop)
			from = to = (unsigned char)*++q;
		if (q + 2 < stop && q[1] == '-' && q[2] != ']') {
			to = (unsigned char)q[2];
			q += 2;
		}
		hit = hit || ((unsigned char)c >= from && (unsigned char)c <= to);
	}
	if (q >= stop) {
		*end = p + 1;
		return c == '[';
	}
	*end = q + 1;
	return hit != not ;
}

/* Whether the pattern's one element at p takes c. */
static bool element_match(const char *p, const char *stop, char c, const char **end)
{
	if (*p == '[')
		return class_match(p, stop, c, end);
	if (*p == '\\' && p + 1 < stop)
		p++;
	else if (*p == '?') {
		*end = p + 1;
		return true;
	}
	*end = p + 1;
	return *p == c;
}

/* Goes back to the last star only, which is enough: time is at most the product of both lengths. */
static bool part_match(const char *p, size_t pn, const char *t, size_t tn)
{
	const char *pe = p + pn, *te = t + tn, *star = NULL, *from = NULL, *end;

	while (t < te) {
		if (p < pe && *p == '*') {
			star = ++p;
			from = t;
		} else if (p < pe && element_match(p, pe, *t, &end)) {
			p = end;
			t++;
		} else if (star) {
			p = star;
			t = ++from;
		} else {
			return false;
		}
	}
	while (p < pe && *p == '*')
		p++;
	return p == pe;
}

/* ---- whole paths ----------------------------------------------------------------------------- */

static const char *next_part(const char *p)
{
	p += strcspn(p, "/");
	return p + (*p == '/');
}

static bool is_deep(const char *p)
{
	return !strncmp(p, "**", 2) && (p[2] == '/' || !p[2]);
}

bool path_match(const char *pattern, const char *path)
{
	const char *p = pattern, *t = path, *star = NULL, *from = NULL;

	while (*t) {
		if (is_deep(p)) {
			star = p = next_part(p);
			from = t;
			if (!*p)
				return true;
		} else if (*p && part_match(p, strcspn(p, "/"), t, strcspn(t, "/"))) {
			p = next_part(p);
			t = next_part(t);
		} else if (star) {
			p = star;
			t = from = next_part(from);
		} else {
			return false;
		}
	}
	while (is_deep(p) && *p)
		p = next_part(p);
	return !*p;
}

bool path_is_pattern(const char *text)
{
	return strpbrk(text, "*?[") != NULL;
}

char *path_clean(const char *path)
{
	auto_buf b = { 0 };

	while (*path) {
		size_t n = strcspn(path, "/");

		if (n == 2 && !strncmp(path, "..", 2)) {
			const char *slash;

			if (!b.len)
				return NULL;
			slash = memrchr(b.p, '/', b.len);
			b.len = slash ? (size_t)(slash - b.p) : 0;
		} else if (n && !(n == 1 && *path == '.')) {
			if (b.len)
				buf_add(&b, "/", 1);
			buf_add(&b, path, n);
		}
		path += n;
		path += *path == '/';
	}
	return mem_strdup(buf_str(&b));
}

/* ---- .dockerignore --------------------------------------------------------------------------- */

static void line_add(struct ignore *i, const char *p, size_t n)
{
	auto_free char *raw = NULL, *clean = NULL;
	auto_buf b = { 0 };
	bool not ;

	while (n && strchr(" \t\r", p[n - 1]))
		n--;
	while (n && (*p == ' ' || *p == '\t'))
		p++, n--;
	if (!n || *p == '#')
		return;
	not = *p == '!';
	raw = mem_strndup(p + not, n - not );
	clean = path_clean(raw + strspn(raw, " \t"));
	if (!clean || !*clean) /* above the context, or all of it ("!." and "/"): names nothing */
		return;
	buf_addf(&b, "%s%s", not ? "!" : "", clean);
	strv_add(&i->patterns, buf_str(&b));
	i->exceptions = i->exceptions || not ;
}

int ignore_parse(const char *text, struct ignore *ret, struct den_err *err)
{
	struct ignore i = { 0 };
	size_t lines = 0;

	while (*text) {
		size_t n = strcspn(text, "\n");

		if (++lines > PATTERNS_MAX) {
			ignore_free(&i);
			return den_fail(
				err, DEN_LIMIT, 0, "it has more than %d lines", PATTERNS_MAX);
		}
		line_add(&i, text, n);
		text += n;
		text += *text == '\n';
	}
	*ret = i;
	return 0;
}

/* Its own path, or that of a directory above it. */
static bool matches_above(const char *pattern, const char *path)
{
	auto_free char *cut = mem_strdup(path);

	for (;;) {
		char *slash;

		if (path_match(pattern, cut))
			return true;
		slash = strrchr(cut, '/');
		if (!slash)
			return false;
		*slash = '\0';
	}
}

bool ignore_has(const struct ignore *i, const char *path)
{
	bool out = false;

	for (char **p = i->patterns; p && *p; p++) {
		bool not = **p == '!';

		if (out == not &&matches_above(*p + not, path))
			out = !not ;
	}
	return out;
}

void ignore_free(struct ignore *i)
{
	strv_free(i->patterns);
	*i = (struct ignore){ 0 };
}
