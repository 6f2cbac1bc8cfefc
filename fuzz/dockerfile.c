/* Dockerfiles: parsed, and each text of theirs split and expanded; then the input as .dockerignore, as
 * patterns and as apt sources. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "apt_sources.h"
#include "dockerfile.h"
#include "ignore.h"
#include "mem.h"
#include "strv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check(bool ok)
{
	if (!ok)
		abort();
}

static const char *lookup(const char *name, void *user)
{
	check(*name && !strpbrk(name, "${}"));
	return name[0] == 'A' ? user : NULL;
}

static void texts(const struct dockerfile *d, const char *text)
{
	struct den_err err = { 0 };
	auto_strv words = NULL;
	auto_strv names = NULL;
	auto_strv values = NULL;
	char *out = NULL;

	if (df_words(text, d->escape, &words, &err) == 0)
		for (char **w = words; w && *w; w++)
			check(**w);
	if (df_pairs(text, d->escape, false, &names, &values, &err) == 0)
		check(names && strv_len(names) == strv_len(values));
	if (df_expand(text, d->escape, lookup, (void *)"value $X", &out, &err) == 0)
		check(out != NULL);
	else
		check(err.msg[0]);
	free(out);
}

static void steps(const char *text, size_t n)
{
	struct den_err err = { 0 };
	struct dockerfile d;
	unsigned line = 0;

	if (dockerfile_parse(text, n, &d, &err) < 0) {
		check(err.msg[0]);
		return;
	}
	check(d.n && (d.escape == '\\' || d.escape == '`'));
	for (size_t i = 0; i < d.n; i++) {
		check(d.steps[i].line > line && d.steps[i].text[0]);
		line = d.steps[i].line;
		(void)df_flag(&d.steps[i], "from");
		texts(&d, d.steps[i].text);
		for (size_t k = 0; k < d.steps[i].n_docs; k++)
			check(d.steps[i].docs[k].name[0] && d.steps[i].docs[k].text);
	}
	dockerfile_free(&d);
}

static void paths(const char *text)
{
	const char *nl = strchr(text, '\n');
	auto_free char *pattern = mem_strndup(text, nl ? (size_t)(nl - text) : strlen(text));
	auto_free char *clean = path_clean(pattern);
	struct apt_sources s = { 0 };
	struct ignore g;

	if (strlen(pattern) < 300 && strlen(text) < 2000)
		(void)path_match(pattern, nl ? nl + 1 : "x/y");
	if (clean)
		check(clean[0] != '/' && strcmp(clean, "..") && strncmp(clean, "../", 3) &&
			!strstr(clean, "/../"));
	if (strlen(text) < 4000 && ignore_parse(text, &g, NULL) == 0) {
		(void)ignore_has(&g, "a/b/c");
		ignore_free(&g);
	}
	apt_sources_add_list(&s, text);
	apt_sources_add_deb822(&s, text);
	strv_free(apt_sources_lines(&s, "bookworm", "sid"));
	apt_sources_free(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	char *text = mem_alloc(n + 1);

	if (n)
		memcpy(text, data, n);
	text[n] = '\0';
	steps(text, n);
	paths(text);
	free(text);
	return 0;
}
