#include "apt_sources.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "buf.h"
#include "fd.h"
#include "mem.h"
#include "strv.h"

#define FILE_MAX (1U << 20)
#define BLANK " \t"

static void source_add(struct apt_sources *s, const char *uri, const char *suite,
	const char *components, const char *signed_by)
{
	s->list = mem_realloc(s->list, (s->n + 1) * sizeof(*s->list));
	s->list[s->n++] = (struct apt_source){ .uri = mem_strdup(uri),
		.suite = mem_strdup(suite),
		.components = mem_strdup(components),
		.signed_by = signed_by ? mem_strdup(signed_by) : NULL };
}

void apt_sources_free(struct apt_sources *s)
{
	for (size_t i = 0; i < s->n; i++) {
		free(s->list[i].uri);
		free(s->list[i].suite);
		free(s->list[i].components);
		free(s->list[i].signed_by);
	}
	free(s->list);
	*s = (struct apt_sources){ 0 };
}

/* ---- one line each --------------------------------------------------------------------------- */

/* The value of signed-by in "[arch=amd64 signed-by=/a/b]"; the caller frees it. */
static char *option_signed_by(const char *p, const char *end)
{
	static const char key[] = "signed-by=";
	const char *at = memmem(p, (size_t)(end - p), key, strlen(key));
	size_t n;

	if (!at)
		return NULL;
	at += strlen(key);
	n = strcspn(at, " \t,]");
	return at[0] == '/' ? mem_strndup(at, MIN(n, (size_t)(end - at))) : NULL;
}

/* Cuts a word off the front. */
static char *word_cut(char **p)
{
	char *start = *p + strspn(*p, BLANK);
	size_t n = strcspn(start, BLANK);

	*p = start + n;
	if (**p)
		*(*p)++ = '\0';
	return start;
}

static void line_add(struct apt_sources *s, char *line)
{
	auto_free char *signed_by = NULL;
	char *p = line, *uri, *suite;

	line[strcspn(line, "#\r")] = '\0';
	if (strcmp(word_cut(&p), "deb"))
		return;
	p += strspn(p, BLANK);
	if (*p == '[') {
		char *end = strchr(p, ']');

		if (!end)
			return;
		signed_by = option_signed_by(p, end);
		p = end + 1;
	}
	uri = word_cut(&p);
	suite = word_cut(&p);
	p += strspn(p, BLANK);
	if (*uri && *suite)
		source_add(s, uri, suite, p, signed_by);
}

void apt_sources_add_list(struct apt_sources *s, const char *text)
{
	auto_free char *copy = mem_strdup(text);
	char *save = NULL;

	for (char *line = strtok_r(copy, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
		line_add(s, line);
}

/* ---- deb822 ---------------------------------------------------------------------------------- */

struct stanza {
	struct buf types, uris, suites, components, signed_by, enabled;
	struct buf *field; /* the one that a continued line belongs to */
};

static void stanza_end(struct stanza *z, struct apt_sources *s)
{
	struct buf *const all[] = { &z->types, &z->uris, &z->suites, &z->components, &z->signed_by,
		&z->enabled };
	const char *key = buf_str(&z->signed_by);
	bool on =
		strcasecmp(buf_str(&z->enabled), "no") && strcasecmp(buf_str(&z->enabled), "false");
	auto_free char *uris = mem_strdup(buf_str(&z->uris)),
		       *types = mem_strdup(buf_str(&z->types));
	char *u = uris, *t = types, *uri;
	bool deb = false;

	while (*t)
		deb = !strcmp(word_cut(&t), "deb") || deb;
	while (on && deb && *(uri = word_cut(&u))) {
		auto_free char *suites = mem_strdup(buf_str(&z->suites));
		char *p = suites, *suite;

		while (*(suite = word_cut(&p)))
			/* a key may stand in the file itself, where a path would */
			source_add(s, uri, suite, buf_str(&z->components),
				key[0] == '/' && !strpbrk(key, BLANK) ? key : NULL);
	}
	for (size_t i = 0; i < ARRAY_SIZE(all); i++)
		buf_free(all[i]);
	*z = (struct stanza){ 0 };
}

static void stanza_line(struct stanza *z, char *line)
{
	struct {
		const char *name;
		struct buf *field;
	} const fields[] = { { "Types", &z->types }, { "URIs", &z->uris }, { "Suites", &z->suites },
		{ "Components", &z->components }, { "Signed-By", &z->signed_by },
		{ "Enabled", &z->enabled } };
	bool more = line[0] == ' ' || line[0] == '\t';
	size_t n = strcspn(line, ":");
	char *value = more ? line : line[n] ? line + n + 1 : line + n;

	if (!more) {
		z->field = NULL;
		for (size_t i = 0; i < ARRAY_SIZE(fields); i++)
			if (strlen(fields[i].name) == n && !strncasecmp(fields[i].name, line, n))
				z->field = fields[i].field;
	}
	if (!z->field)
		return;
	value += strspn(value, BLANK);
	if (z->field->len)
		buf_addstr(z->field, " ");
	buf_addstr(z->field, value);
}

void apt_sources_add_deb822(struct apt_sources *s, const char *text)
{
	struct stanza z = { 0 };

	while (*text) {
		size_t n = strcspn(text, "\n"), len = n;
		auto_free char *line = NULL;

		while (len && strchr(" \t\r", text[len - 1]))
			len--;
		line = mem_strndup(text, len);
		if (!len)
			stanza_end(&z, s);
		else if (line[0] != '#')
			stanza_line(&z, line);
		text += n;
		text += *text == '\n';
	}
	stanza_end(&z, s);
}

/* ---- the machine's --------------------------------------------------------------------------- */

static void file_add(struct apt_sources *s, int dirfd, const char *name)
{
	size_t n = strlen(name);
	bool list = n > 5 && !strcmp(name + n - 5, ".list");
	bool deb822 = n > 8 && !strcmp(name + n - 8, ".sources");
	auto_free char *text = NULL;
	auto_fd fd = -1;

	if (!list && !deb822)
		return;
	fd = openat(dirfd, name, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0 || fd_read_all(fd, FILE_MAX, &text, NULL, NULL) < 0)
		return; /* apt complains about it better than we could */
	if (list)
		apt_sources_add_list(s, text);
	else
		apt_sources_add_deb822(s, text);
}

int apt_sources_load(const char *dir, struct apt_sources *ret, struct den_err *err)
{
	auto_fd top = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct apt_sources s = { 0 };
	struct dirent **names = NULL;
	int n;

	if (top < 0)
		return den_fail_sys(err, errno, "apt's settings in '%.80s'", dir);
	file_add(&s, top, "sources.list");
	n = scandirat(top, "sources.list.d", &names, NULL, alphasort);
	for (int i = 0; i < n; i++) {
		char path[300];

		snprintf(path, sizeof(path), "sources.list.d/%s", names[i]->d_name);
		file_add(&s, top, path);
		free(names[i]);
	}
	free(names);
	*ret = s;
	return 0;
}

/* ---- another suite --------------------------------------------------------------------------- */

/* What follows the machine's own suite in a name: "-updates" of "bookworm-updates". NULL: not of
 * it. */
static const char *suite_rest(const char *suite, const char *own)
{
	size_t n = strlen(own);

	if (strncmp(suite, own, n) || (suite[n] && !strchr("-/", suite[n])))
		return NULL;
	return suite + n;
}

char **apt_sources_lines(const struct apt_sources *s, const char *own, const char *suite)
{
	/* these have no suites of updates beside them */
	bool rolling = !strcmp(suite, "sid") || !strcmp(suite, "unstable") ||
		       !strcmp(suite, "experimental");
	char **lines = NULL;

	for (size_t i = 0; i < s->n; i++) {
		const struct apt_source *a = &s->list[i];
		const char *rest = suite_rest(a->suite, own);
		auto_buf b = { 0 };

		if (!rest || (rolling && *rest))
			continue;
		buf_addstr(&b, "deb ");
		if (a->signed_by)
			buf_addf(&b, "[signed-by=%s] ", a->signed_by);
		buf_addf(&b, "%s %s%s %s", a->uri, suite, rest, a->components);
		strv_add(&lines, buf_str(&b));
	}
	return lines;
}
