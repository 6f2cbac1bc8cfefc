/*
 * den <verb>: finds the verb, parses for it, runs it.
 *
 * Reading order: options.h (the command line), cli.h (what a verb is), verbs.c (all of them),
 * verb_run.c (one of them), stream.c (a program's streams, signals and terminal).
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "complete.h"
#include "mem.h"
#include "parse.h"
#include "verbs.h"

/* A descriptor that the library opens must not become our stdin or stdout. */
static void fill_standard_fds(void)
{
	for (int fd = 0; fd <= 2; fd++)
		if (fcntl(fd, F_GETFD) < 0 && errno == EBADF)
			(void)!open("/dev/null", O_RDWR);
}

int verb_parse(const struct verb *v, int argc, char **argv, struct args *a, struct den_err *err)
{
	const struct option_def *tables[OPTION_TABLES + 2] = { 0 };
	size_t n = 0;

	while (n < OPTION_TABLES && v->options[n]) {
		tables[n] = v->options[n];
		n++;
	}
	tables[n] = options_global;
	a->program = v->program;
	if (options_parse(tables, v->command - 1, argc, argv, a, err) < 0)
		return -1;
	if (a->help || a->version)
		return 0;
	if (a->n_words < v->min_words)
		return den_fail(err, DEN_INVALID, 0, "too few arguments; it takes: %s", v->words);
	if (v->max_words >= 0 && a->n_words > v->max_words)
		return den_fail(err, DEN_INVALID, 0, "'%.60s' is too much; it takes: %s",
			a->words[v->max_words], v->words ? v->words : "options only");
	return 0;
}

/* "den exec", or "den fs ls" for a verb below another. */
static int run_verb(
	const struct verb *parent, const struct verb *v, int argc, char **argv, struct args *a)
{
	struct den_err err = { 0 };
	char hint[64];

	snprintf(hint, sizeof(hint), "see 'den %s%s%s --help'", parent ? parent->name : "",
		parent ? " " : "", v->name);
	if (verb_parse(v, argc, argv, a, &err) < 0) {
		/* it may stand behind the mistake */
		for (int i = 0; i < argc && strcmp(argv[i], "--"); i++)
			a->json = a->json || !strcmp(argv[i], "--json");
		den_wrap(&err, "%s%s%s", parent ? parent->name : "", parent ? " " : "", v->name);
		return cli_fail(a, &err, hint);
	}
	if (a->help)
		return help_verb(a, parent, v);
	if (a->version)
		return verb_version.run(a);
	return v->run(a);
}

static int unknown_verb(
	const struct args *a, const struct verb *const *list, const char *parent, const char *word)
{
	const char *names[64], *near;
	struct den_err err;
	char hint[96];
	int n = 0;

	for (; list[n] && n < 64; n++)
		names[n] = list[n]->name;
	near = parse_nearest(word, names, n);
	den_fail(&err, DEN_INVALID, 0, "there is no verb '%.60s'", word);
	if (near)
		snprintf(hint, sizeof(hint), "did you mean 'den %s%s'?", parent, near);
	else
		snprintf(hint, sizeof(hint), "'den help%s%s' lists them", *parent ? " " : "",
			parent);
	return cli_fail(a, &err, hint);
}

static int run_below(const struct verb *v, int argc, char **argv, struct args *a)
{
	const struct verb *sub;
	const struct option_def *tables[] = { options_global, NULL };
	struct den_err err = { 0 };
	char parent[16], hint[64];
	int at;

	if (options_parse(tables, 0, argc, argv, a, &err) < 0)
		return cli_fail(a, &err, "see 'den help'");
	if (a->help)
		return help_verb(a, NULL, v);
	if (!a->n_words) {
		den_fail(&err, DEN_INVALID, 0, "%s: a verb is missing", v->name);
		snprintf(hint, sizeof(hint), "'den help %s' lists them", v->name);
		return cli_fail(a, &err, hint);
	}
	at = argc - a->n_words;
	sub = verb_find(v->subs, argv[at]);
	snprintf(parent, sizeof(parent), "%s ", v->name);
	if (!sub)
		return unknown_verb(a, v->subs, parent, argv[at]);
	return run_verb(v, sub, argc - at - 1, argv + at + 1, a);
}

static int dispatch(int argc, char **argv, struct args *a)
{
	const struct option_def *tables[] = { options_global, NULL };
	const struct verb *v;
	struct den_err err = { 0 };
	int at;

	if (options_parse(tables, 0, argc, argv, a, &err) < 0)
		return cli_fail(a, &err, "options of a verb stand after it; see 'den help'");
	if (a->help)
		return help_all(a, true);
	if (a->version)
		return verb_version.run(a);
	if (!a->n_words) {
		(void)help_all(a, false);
		return cli_exit_code(DEN_INVALID);
	}
	at = argc - a->n_words;
	if (!strcmp(argv[at], "__complete"))
		return complete(argc - at - 1, argv + at + 1, a);
	v = verb_find(verbs, argv[at]);
	if (!v)
		return unknown_verb(a, verbs, "", argv[at]);
	if (v->subs)
		return run_below(v, argc - at - 1, argv + at + 1, a);
	return run_verb(NULL, v, argc - at - 1, argv + at + 1, a);
}

int cli_main(int argc, char **argv)
{
	struct args a;
	int status;

	fill_standard_fds();
	/* A closed pipe is an error of write() and, for programs in a box, 141. */
	signal(SIGPIPE, SIG_IGN);
	args_init(&a);
	status = dispatch(argc > 0 ? argc - 1 : 0, argv + (argc > 0), &a);
	args_free(&a);
	return status;
}
