/* The small shell language of Dockerfiles: quotes, escapes, variables. */
#include "dockerfile.h"

#include <string.h>

#include "buf.h"
#include "mem.h"
#include "strv.h"

#define NESTING_MAX 16

static bool is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

int df_words(const char *text, char escape, char ***ret, struct den_err *err)
{
	auto_strv v = NULL;

	while (*text) {
		const char *start;
		char quote = '\0';

		while (is_blank(*text))
			text++;
		start = text;
		for (; *text && (quote || !is_blank(*text)); text++) {
			if (*text == escape && quote != '\'' && text[1])
				text++;
			else if (quote && *text == quote)
				quote = '\0';
			else if (!quote && (*text == '"' || *text == '\''))
				quote = *text;
		}
		if (quote)
			return den_fail(err, DEN_INVALID, 0, "a quote (%c) is not closed", quote);
		if (text > start)
			strv_addn(&v, start, (size_t)(text - start));
	}
	*ret = mem_take(&v);
	return 0;
}

static void pair_add(char ***names, char ***values, const char *name, size_t n, const char *value)
{
	strv_addn(names, name, n);
	strv_add(values, value);
}

int df_pairs(const char *text, char escape, bool lone, char ***ret_names, char ***ret_values,
	struct den_err *err)
{
	auto_strv words = NULL;
	auto_strv names = NULL;
	auto_strv values = NULL;

	if (df_words(text, escape, &words, err) < 0)
		return -1;
	if (!words)
		return den_fail(err, DEN_INVALID, 0, "a name is missing");
	if (!lone && !strchr(words[0], '=')) {
		const char *rest = text + strspn(text, " \t");
		size_t n = strcspn(rest, " \t");

		if (!words[1])
			return den_fail(err, DEN_INVALID, 0,
				"'%.60s' has no value; write %.60s=VALUE", words[0], words[0]);
		pair_add(&names, &values, rest, n, rest + n + strspn(rest + n, " \t"));
	} else {
		for (char **w = words; *w; w++) {
			size_t n = strcspn(*w, "=");

			if (!(*w)[n] && !lone)
				return den_fail(err, DEN_INVALID, 0,
					"'%.60s' has no value; write %.60s=VALUE", *w, *w);
			if (!n)
				return den_fail(err, DEN_INVALID, 0,
					"'%.60s' has no name before the =", *w);
			pair_add(&names, &values, *w, n, (*w)[n] ? *w + n + 1 : DF_NO_VALUE);
		}
	}
	*ret_names = mem_take(&names);
	*ret_values = mem_take(&values);
	return 0;
}

/* ---- expanding ------------------------------------------------------------------------------- */

struct expand {
	const char *p;
	char escape;
	df_lookup lookup;
	void *user;
	unsigned depth;
};

static int expand_until(struct expand *x, char stop, struct buf *out, struct den_err *err);

static int out_check(const struct buf *out, struct den_err *err)
{
	if (out->len > DOCKERFILE_MAX)
		return den_fail(err, DEN_LIMIT, 0, "a value grows beyond %u bytes", DOCKERFILE_MAX);
	return 0;
}

static size_t name_len(const char *p)
{
	size_t n = 0;

	if (*p >= '0' && *p <= '9')
		return 0;
	while (p[n] == '_' || (p[n] >= '0' && p[n] <= '9') || (p[n] >= 'a' && p[n] <= 'z') ||
		(p[n] >= 'A' && p[n] <= 'Z'))
		n++;
	return n;
}

/* After "${NAME": the operator, and the word up to the brace. */
static int brace(struct expand *x, const char *name, struct buf *out, struct den_err *err)
{
	const char *value = x->lookup(name, x->user);
	bool colon = x->p[0] == ':' && strchr("-+?", x->p[1]) && x->p[1];
	char op = colon ? x->p[1] : x->p[0];
	bool set = value && (!colon || *value);
	auto_buf word = { 0 };

	if (op == '}') {
		x->p++;
		buf_addstr(out, value ? value : "");
		return out_check(out, err);
	}
	if (op != '-' && op != '+' && op != '?')
		return den_fail(err, op ? DEN_UNSUPPORTED : DEN_INVALID, 0,
			op ? "${%.40s%.2s...} is not understood; ${X}, ${X:-y} and ${X:+y} are"
			   : "${%.40s%.2s is not closed",
			name, x->p);
	x->p += colon ? 2 : 1;
	if (expand_until(x, '}', &word, err) < 0)
		return -1;
	if (op == '?' && !set)
		return den_fail(err, DEN_INVALID, 0, "%.60s: %.120s", name,
			word.len ? buf_str(&word) : "is not set");
	if (op == '+')
		buf_addstr(out, set ? buf_str(&word) : "");
	else
		buf_addstr(out, set ? value : buf_str(&word));
	return out_check(out, err);
}

/* At "$". */
static int variable(struct expand *x, struct buf *out, struct den_err *err)
{
	bool braced = x->p[1] == '{';
	const char *start = x->p + (braced ? 2 : 1);
	size_t n = name_len(start);
	auto_free char *name = mem_strndup(start, n);
	const char *value;

	if (!n && !braced) {
		buf_add(out, x->p++, 1); /* a lone dollar is one */
		return 0;
	}
	if (!n)
		return den_fail(err, DEN_INVALID, 0, "'${%.20s' names no variable", start);
	x->p = start + n;
	if (braced)
		return brace(x, name, out, err);
	value = x->lookup(name, x->user);
	buf_addstr(out, value ? value : "");
	return out_check(out, err);
}

static int double_quoted(struct expand *x, struct buf *out, struct den_err *err)
{
	for (x->p++; *x->p && *x->p != '"';) {
		if (*x->p == '$') {
			if (variable(x, out, err) < 0)
				return -1;
			continue;
		}
		/* an escape means something only before what means something */
		if (*x->p == x->escape && x->p[1] &&
			(strchr("\"$", x->p[1]) || x->p[1] == x->escape))
			x->p++;
		buf_add(out, x->p++, 1);
	}
	if (!*x->p)
		return den_fail(err, DEN_INVALID, 0, "a quote (\") is not closed");
	x->p++;
	return 0;
}

static int single_quoted(struct expand *x, struct buf *out, struct den_err *err)
{
	const char *end = strchr(x->p + 1, '\'');

	if (!end)
		return den_fail(err, DEN_INVALID, 0, "a quote (') is not closed");
	buf_add(out, x->p + 1, (size_t)(end - x->p - 1));
	x->p = end + 1;
	return 0;
}

static int expand_until(struct expand *x, char stop, struct buf *out, struct den_err *err)
{
	int r = 0;

	if (++x->depth > NESTING_MAX)
		return den_fail(
			err, DEN_LIMIT, 0, "variables are nested deeper than %d", NESTING_MAX);
	while (r == 0 && *x->p && *x->p != stop) {
		if (*x->p == '\'') {
			r = single_quoted(x, out, err);
		} else if (*x->p == '"') {
			r = double_quoted(x, out, err);
		} else if (*x->p == '$') {
			r = variable(x, out, err);
		} else {
			if (*x->p == x->escape && x->p[1])
				x->p++;
			buf_add(out, x->p++, 1);
		}
	}
	x->depth--;
	if (r == 0 && stop && *x->p != stop)
		return den_fail(err, DEN_INVALID, 0, "'${' is not closed");
	if (r == 0 && stop)
		x->p++;
	return r;
}

int df_expand(const char *text, char escape, df_lookup lookup, void *user, char **ret,
	struct den_err *err)
{
	struct expand x = { .p = text, .escape = escape, .lookup = lookup, .user = user };
	auto_buf out = { 0 };

	if (expand_until(&x, '\0', &out, err) < 0)
		return -1;
	*ret = mem_strdup(buf_str(&out));
	return 0;
}
