#include "dockerfile.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "buf.h"
#include "json_in.h"
#include "mem.h"
#include "parse.h"
#include "strv.h"

/* What each instruction takes. Flags that mean nothing here are taken; those that mean something we
 * do not do are refused by name, so that nobody is surprised. */
static const struct kind {
	const char *name;
	bool json; /* may be written as a JSON list */
	bool heredoc;
	const char *flags; /* taken, separated by spaces */
	const char *refused;
} kinds[] = {
	[DF_FROM] = { "FROM", .flags = "platform" },
	[DF_RUN] = { "RUN", .json = true, .heredoc = true, .flags = "network",
		.refused = "mount security" },
	[DF_COPY] = { "COPY", .json = true, .heredoc = true, .flags = "from chown chmod link",
		.refused = "parents exclude" },
	[DF_ADD] = { "ADD", .json = true, .heredoc = true, .flags = "chown chmod link",
		.refused = "checksum keep-git-dir exclude" },
	[DF_ENV] = { "ENV" },
	[DF_WORKDIR] = { "WORKDIR" },
	[DF_USER] = { "USER" },
	[DF_ENTRYPOINT] = { "ENTRYPOINT", .json = true },
	[DF_CMD] = { "CMD", .json = true },
	[DF_ARG] = { "ARG" },
	[DF_LABEL] = { "LABEL" },
	[DF_EXPOSE] = { "EXPOSE" },
	[DF_SHELL] = { "SHELL", .json = true },
	[DF_STOPSIGNAL] = { "STOPSIGNAL" },
	[DF_VOLUME] = { "VOLUME", .json = true },
	[DF_HEALTHCHECK] = { "HEALTHCHECK" },
	[DF_ONBUILD] = { "ONBUILD" },
	[DF_MAINTAINER] = { "MAINTAINER" },
};
static_assert(ARRAY_SIZE(kinds) == DF_KINDS, "an instruction has no row");

struct lines {
	const char *p, *end;
	unsigned number; /* of the line that was read last */
};

const char *df_kind_str(enum df_kind kind)
{
	return kinds[kind].name;
}

const char *df_flag(const struct df_step *s, const char *name)
{
	size_t n = strlen(name);

	for (char **f = s->flags; f && *f; f++)
		if (!strncmp(*f, name, n) && (!(*f)[n] || (*f)[n] == '='))
			return (*f)[n] ? *f + n + 1 : "";
	return NULL;
}

static void step_free(struct df_step *s)
{
	strv_free(s->flags);
	strv_free(s->list);
	free(s->text);
	for (size_t i = 0; i < s->n_docs; i++) {
		free(s->docs[i].word);
		free(s->docs[i].name);
		free(s->docs[i].text);
	}
	free(s->docs);
}

void dockerfile_free(struct dockerfile *d)
{
	for (size_t i = 0; i < d->n; i++)
		step_free(&d->steps[i]);
	free(d->steps);
	*d = (struct dockerfile){ 0 };
}

/* ---- lines ----------------------------------------------------------------------------------- */

static bool line_next(struct lines *l, const char **ret, size_t *ret_len)
{
	const char *nl;
	size_t n;

	if (l->p >= l->end)
		return false;
	nl = memchr(l->p, '\n', (size_t)(l->end - l->p));
	n = (size_t)((nl ? nl : l->end) - l->p);
	*ret = l->p;
	*ret_len = n && l->p[n - 1] == '\r' ? n - 1 : n;
	l->p += n + (nl != NULL);
	l->number++;
	return true;
}

static size_t blank_len(const char *p, size_t n)
{
	size_t i = 0;

	while (i < n && (p[i] == ' ' || p[i] == '\t'))
		i++;
	return i;
}

/* How long the line is without the escape that continues it; SIZE_MAX: it is not continued. */
static size_t continued(const char *p, size_t n, char escape)
{
	while (n && (p[n - 1] == ' ' || p[n - 1] == '\t'))
		n--;
	if (!n || p[n - 1] != escape || (n > 1 && p[n - 2] == escape))
		return SIZE_MAX;
	return n - 1;
}

/* "# escape=`", which counts only before anything else. False: an ordinary comment. */
static bool directive(
	const char *p, size_t n, char *escape, unsigned line, int *status, struct den_err *err)
{
	char text[64], name[32] = "", value[32] = "";

	if (n >= sizeof(text))
		return n > 9 && memmem(p, n, "syntax", 6) != NULL;
	snprintf(text, sizeof(text), "%.*s", (int)n, p);
	if (sscanf(text, "# %31[a-zA-Z] = %31s", name, value) != 2 &&
		sscanf(text, "#%31[a-zA-Z] = %31s", name, value) != 2)
		return false;
	if (!strcasecmp(name, "escape")) {
		if (strcmp(value, "\\") && strcmp(value, "`"))
			*status = den_fail(err, DEN_INVALID, 0,
				"line %u: escape is \\ or `, not '%.20s'", line, value);
		*escape = value[0];
		return true;
	}
	return !strcasecmp(name, "syntax") || !strcasecmp(name, "check");
}

/* A line and those that continue it; comments and empty lines in between are left out. */
static void line_join(struct lines *l, const char *p, size_t n, char escape, struct buf *out)
{
	for (;;) {
		size_t cut = continued(p, n, escape), skip;

		buf_add(out, p, cut == SIZE_MAX ? n : cut);
		if (cut == SIZE_MAX)
			return;
		do {
			if (!line_next(l, &p, &n))
				return;
			skip = blank_len(p, n);
		} while (skip == n || p[skip] == '#');
	}
}

/* ---- one step -------------------------------------------------------------------------------- */

static int kind_find(const char *word, size_t n, enum df_kind *ret, struct den_err *err)
{
	const char *names[DF_KINDS], *near;
	char upper[32];

	for (int i = 0; i < DF_KINDS; i++) {
		names[i] = kinds[i].name;
		if (strlen(names[i]) == n && !strncasecmp(names[i], word, n)) {
			*ret = (enum df_kind)i;
			return 0;
		}
	}
	snprintf(upper, sizeof(upper), "%.*s", (int)MIN(n, 31U), word);
	for (char *p = upper; *p; p++)
		*p = *p >= 'a' && *p <= 'z' ? (char)(*p - 32) : *p;
	near = parse_nearest(upper, names, DF_KINDS);
	return den_fail(err, DEN_INVALID, 0, "there is no instruction '%.*s'%s%s%s",
		(int)MIN(n, 40U), word, near ? "; did you mean " : "", near ? near : "",
		near ? "?" : "");
}

static bool in_list(const char *list, const char *name, size_t n)
{
	for (const char *p = list; p && *p; p += strcspn(p, " "), p += *p == ' ')
		if (strcspn(p, " ") == n && !strncmp(p, name, n))
			return true;
	return false;
}

static int flag_check(const struct kind *k, const char *flag, struct den_err *err)
{
	const char *names[8], *near;
	size_t n = strcspn(flag, "=");
	char lists[64], name[40], *save = NULL;
	int count = 0;

	if (in_list(k->flags, flag, n))
		return 0;
	if (in_list(k->refused, flag, n))
		return den_fail(err, DEN_UNSUPPORTED, 0, "%s --%.*s is not supported", k->name,
			(int)n, flag);
	snprintf(lists, sizeof(lists), "%s", k->flags ? k->flags : "");
	for (char *p = strtok_r(lists, " ", &save); p && count < 8; p = strtok_r(NULL, " ", &save))
		names[count++] = p;
	snprintf(name, sizeof(name), "%.*s", (int)MIN(n, 39U), flag);
	near = parse_nearest(name, names, count);
	return den_fail(err, DEN_INVALID, 0, "%s has no flag --%s%s%s%s", k->name, name,
		near ? "; did you mean --" : "", near ? near : "", near ? "?" : "");
}

/* Takes the flags off the front of *p. */
static int flags_take(const struct kind *k, const char **p, char ***ret, struct den_err *err)
{
	if (!k->flags)
		return 0;
	for (;;) {
		size_t n;

		*p += strspn(*p, " \t");
		if (strncmp(*p, "--", 2))
			return 0;
		n = strcspn(*p, " \t");
		if (n == 2) {
			*p += n;
			return 0;
		}
		strv_addn(ret, *p + 2, n - 2);
		if (flag_check(k, (*ret)[strv_len(*ret) - 1], err) < 0)
			return -1;
		*p += n;
	}
}

/* A text that looks like a list but is none is a shell command, as test expressions are. */
static void list_take(const char *text, char ***ret)
{
	auto_json j = NULL;
	auto_strv v = NULL;

	if (text[0] != '[' || json_in(text, strlen(text), &j, NULL) < 0 || !json_is_array(j))
		return;
	for (size_t i = 0; i < json_array_size(j); i++) {
		const char *s = json_string_value(json_array_get(j, i));

		if (!s)
			return;
		strv_add(&v, s);
	}
	*ret = mem_take(&v);
}

/* ---- heredocs -------------------------------------------------------------------------------- */

/* "<<EOF", "3<<-'EOF'": the name, and how it is meant. */
static bool heredoc_word(const char *word, struct df_heredoc *ret, bool *strip)
{
	const char *p = word + strspn(word, "0123456789");
	size_t n;
	char quote;

	if (strncmp(p, "<<", 2))
		return false;
	p += 2;
	*strip = *p == '-';
	p += *strip;
	n = strlen(p);
	quote = *p == '"' || *p == '\'' ? *p : '\0';
	if (quote && (n < 3 || p[n - 1] != quote))
		return false;
	p += quote != '\0';
	n -= quote ? 2 : 0;
	if (!n || memchr(p, '<', n) || memchr(p, '"', n) || memchr(p, '\'', n))
		return false;
	*ret = (struct df_heredoc){
		.word = mem_strdup(word), .name = mem_strndup(p, n), .expand = !quote
	};
	return true;
}

static int heredoc_read(struct lines *l, struct df_heredoc *d, bool strip, struct den_err *err)
{
	auto_buf b = { 0 };
	unsigned first = l->number;
	const char *p;
	size_t n;

	while (line_next(l, &p, &n)) {
		size_t tabs = 0;

		while (strip && tabs < n && p[tabs] == '\t')
			tabs++;
		if (n - tabs == strlen(d->name) && !strncmp(p + tabs, d->name, n - tabs)) {
			d->text = mem_strdup(buf_str(&b));
			return 0;
		}
		buf_add(&b, p + tabs, n - tabs);
		buf_add(&b, "\n", 1);
	}
	return den_fail(err, DEN_INVALID, 0,
		"the text after <<%.40s (line %u) has no line '%.40s' at its end", d->name, first,
		d->name);
}

static int heredocs_take(struct lines *l, struct df_step *s, char escape, struct den_err *err)
{
	auto_strv words = NULL;

	/* what is no list of words to us may be fine for the shell */
	if (!strstr(s->text, "<<") || df_words(s->text, escape, &words, NULL) < 0)
		return 0;
	for (char **w = words; w && *w; w++) {
		struct df_heredoc d;
		bool strip;

		if (!heredoc_word(*w, &d, &strip))
			continue;
		s->docs = mem_realloc(s->docs, (s->n_docs + 1) * sizeof(*s->docs));
		s->docs[s->n_docs++] = d;
		if (heredoc_read(l, &s->docs[s->n_docs - 1], strip, err) < 0)
			return -1;
	}
	return 0;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static int step_parse(
	struct lines *l, const char *text, char escape, struct df_step *s, struct den_err *err)
{
	size_t n = strcspn(text, " \t"), len;
	const struct kind *k;
	const char *p = text + n;

	if (kind_find(text, n, &s->kind, err) < 0)
		return -1;
	k = &kinds[s->kind];
	if (flags_take(k, &p, &s->flags, err) < 0)
		return -1;
	p += strspn(p, " \t");
	len = strlen(p);
	while (len && (p[len - 1] == ' ' || p[len - 1] == '\t'))
		len--;
	if (!len)
		return den_fail(err, DEN_INVALID, 0, "%s: nothing follows it", k->name);
	s->text = mem_strndup(p, len);
	if (k->json)
		list_take(s->text, &s->list);
	if (s->kind == DF_SHELL && !s->list)
		return den_fail(err, DEN_INVALID, 0,
			"SHELL takes a list, like SHELL [\"/bin/bash\", \"-c\"]");
	return k->heredoc && !s->list ? heredocs_take(l, s, escape, err) : 0;
}

/* Only ARG may stand before the first FROM. */
static int order_check(const struct dockerfile *d, struct den_err *err)
{
	for (size_t i = 0; i < d->n; i++) {
		if (d->steps[i].kind == DF_FROM)
			return 0;
		if (d->steps[i].kind != DF_ARG)
			return den_fail(err, DEN_INVALID, 0,
				"line %u: %s stands before FROM, which says what to start from",
				d->steps[i].line, kinds[d->steps[i].kind].name);
	}
	return den_fail(
		err, DEN_INVALID, 0, "there is no FROM in it, which says what to start from");
}

static int steps_parse(struct lines *l, struct dockerfile *d, struct den_err *err)
{
	bool directives = true;
	const char *p;
	size_t n;

	while (line_next(l, &p, &n)) {
		size_t skip = blank_len(p, n);
		unsigned line = l->number;
		auto_buf b = { 0 };
		int status = 0;

		if (skip < n && p[skip] == '#') {
			directives = directives &&
				     directive(p + skip, n - skip, &d->escape, line, &status, err);
			if (status < 0)
				return -1;
			continue;
		}
		directives = false;
		if (skip == n)
			continue;
		line_join(l, p + skip, n - skip, d->escape, &b);
		d->steps = mem_realloc(d->steps, (d->n + 1) * sizeof(*d->steps));
		d->steps[d->n] = (struct df_step){ .line = line };
		if (step_parse(l, buf_str(&b), d->escape, &d->steps[d->n++], err) < 0)
			return den_wrap(err, "line %u", line);
	}
	return order_check(d, err);
}

int dockerfile_parse(const char *text, size_t n, struct dockerfile *ret, struct den_err *err)
{
	struct lines l = { .p = text, .end = text + n };
	struct dockerfile d = { .escape = '\\' };

	if (n > DOCKERFILE_MAX)
		return den_fail(
			err, DEN_LIMIT, 0, "it has %zu bytes; the limit is %u", n, DOCKERFILE_MAX);
	if (n && memchr(text, '\0', n))
		return den_fail(err, DEN_INVALID, 0, "it is no text");
	if (n >= 3 && !memcmp(text, "\xef\xbb\xbf", 3))
		l.p += 3; /* the mark that some editors write */
	if (steps_parse(&l, &d, err) < 0) {
		dockerfile_free(&d);
		return -1;
	}
	*ret = d;
	return 0;
}
