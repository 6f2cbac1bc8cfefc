#include "complete.h"

#include <stdio.h>
#include <string.h>

#include "cli.h"
#include "mem.h"
#include "points.h"

struct completion {
	struct buf out;
	const char *typed;
	/* "--name=" of "--name=val", "box@" of "box@ref": stands before what is offered */
	char *lead;
	const struct args *args;
};

static void offer(struct completion *c, const char *prefix, const char *text, const char *what)
{
	auto_buf line = { 0 };

	buf_addf(&line, "%s%s%s", c->lead ? c->lead : "", prefix, text);
	if (strncmp(buf_str(&line), c->typed, strlen(c->typed)))
		return;
	buf_addf(&line, "\t%s\n", what);
	buf_add(&c->out, line.p, line.len);
}

static void offer_verbs(struct completion *c, const struct verb *const *list)
{
	for (; *list; list++)
		offer(c, "", (*list)->name, (*list)->summary);
}

static void offer_boxes(struct completion *c, const char *suffix)
{
	struct den *d = NULL;
	struct den_box_info *infos = NULL;
	size_t n = 0;

	if (cli_open(c->args, &d, NULL) < 0)
		return;
	if (den_list(d, &infos, &n, NULL) == 0) {
		for (size_t i = 0; i < n; i++) {
			auto_buf text = { 0 };

			buf_addf(
				&text, "%s%s", infos[i].name ? infos[i].name : infos[i].id, suffix);
			offer(c, "", buf_str(&text), infos[i].state);
		}
		den_box_infos_free(infos, n);
	}
	den_close(d);
}

/* What runs in the box: tags where there are, else pids. Candidates a box made are plain words, or
 * left out. */
static void offer_execs(struct completion *c, const char *ref)
{
	auto_session s = { 0 };
	struct den_ps *ps = NULL;

	if (!ref || cli_open(c->args, &s.den, NULL) < 0 ||
		den_box_open(s.den, ref, &s.box, NULL) < 0 || den_box_ps(s.box, &ps, NULL) < 0)
		return;
	for (size_t i = 0; i < ps->n_execs; i++) {
		const struct den_exec_info *e = &ps->execs[i];
		const char *state = e->running ? "running" : "ended";
		char pid[16];

		snprintf(pid, sizeof(pid), "%d", (int)e->pid);
		if (e->tag && !strpbrk(e->tag, " \t\n'\"\\$`;&|<>()"))
			offer(c, "", e->tag, state);
		else
			offer(c, "", pid, state);
	}
	den_ps_free(ps);
}

/* Tags where there are, else numbers. */
static void offer_points(struct completion *c, const char *ref)
{
	auto_session s = { 0 };
	auto_points p = { 0 };

	if (!ref || cli_open(c->args, &s.den, NULL) < 0 ||
		den_box_open(s.den, ref, &s.box, NULL) < 0 || points_read(s.box, &p, NULL) < 0)
		return;
	for (size_t i = p.n; i-- > 0;) {
		auto_buf text = { 0 }, what = { 0 };

		buf_addf(&text, "%llu", (unsigned long long)p.v[i].number);
		if (p.v[i].tags && p.v[i].tags[0]) {
			text.len = 0;
			buf_add(&text, p.v[i].tags, strcspn(p.v[i].tags, " "));
		}
		point_brief(&what, &p.v[i]);
		offer(c, "", buf_str(&text), buf_str(&what));
	}
}

/* A box, or where a checkpoint of it may be named ("BOX[@REF]") and is being named, that. */
static void offer_spots(struct completion *c, const char *words)
{
	const char *at = strrchr(c->typed, '@');
	auto_free char *box = at ? mem_strndup(c->typed, (size_t)(at - c->typed)) : NULL;
	const char *ref = box;

	if (!at || !words || !strstr(words, "BOX[@")) {
		offer_boxes(c, "");
		return;
	}
	if (c->lead && !strncmp(ref, c->lead, strlen(c->lead)))
		ref += strlen(c->lead);
	free(c->lead);
	c->lead = mem_strndup(c->typed, (size_t)(at - c->typed) + 1);
	offer_points(c, ref);
}

static void offer_templates(struct completion *c)
{
	struct den *d = NULL;
	struct den_template *list = NULL;
	size_t n = 0;

	if (cli_open(c->args, &d, NULL) < 0)
		return;
	if (den_templates(d, &list, &n, NULL) == 0) {
		/* steps of builds are no names that people use */
		for (size_t i = 0; i < n; i++)
			if (list[i].name && strncmp(list[i].name, "cache/", 6))
				offer(c, "", list[i].name, "template");
		den_templates_free(list, n);
	}
	den_close(d);
}

static const struct option_def *find_option(
	const struct option_def *const *tables, const char *word)
{
	for (; *tables; tables++)
		for (const struct option_def *d = *tables; d->name; d++)
			if ((word[1] == '-' && !strcmp(d->name, word + 2)) ||
				(word[1] != '-' && d->letter && d->letter == word[1] && !word[2]))
				return d;
	return NULL;
}

static bool takes_value(const struct option_def *d)
{
	return d && d->kind != OPT_FLAG && d->kind != OPT_BOOL;
}

/* The option whose value is being typed behind its '='; NULL: none. */
static const struct option_def *find_attached(
	struct completion *c, const struct option_def *const *tables)
{
	size_t n = strcspn(c->typed, "=");
	auto_free char *word = mem_strndup(c->typed, n);
	const struct option_def *d;

	if (strncmp(c->typed, "--", 2) || !c->typed[n])
		return NULL;
	d = find_option(tables, word);
	if (takes_value(d))
		c->lead = mem_strndup(c->typed, n + 1);
	return c->lead ? d : NULL;
}

/* "on|off" */
static void offer_choices(struct completion *c, const char *list)
{
	while (*list) {
		size_t n = strcspn(list, "|");
		auto_free char *one = mem_strndup(list, n);

		offer(c, "", one, "");
		list += n + (list[n] == '|');
	}
}

/* first: the verb's first word, which is the box where it takes one. */
static void offer_value(struct completion *c, const struct option_def *d, const char *first)
{
	if (!strcmp(d->arg, "DIR") || !strcmp(d->arg, "FILE") || !strcmp(d->name, "mount") ||
		!strcmp(d->name, "policy"))
		buf_addstr(&c->out, ":file\n");
	else if (!strcmp(d->name, "wall")) {
		offer(c, "", "container", "namespaces, cgroup and seccomp");
		offer(c, "", "gvisor", "a kernel of its own: runsc");
	} else if (!strncmp(d->arg, "BOX", 3))
		offer_spots(c, d->arg);
	else if (!strcmp(d->arg, "CHECKPOINT"))
		offer_points(c, first);
	else if (!strcmp(d->name, "template"))
		offer_templates(c);
	else if (strchr(d->arg, '|') && !strchr(d->arg, '='))
		offer_choices(c, d->arg);
	else if (!strcmp(d->name, "signal"))
		for (size_t i = 0; i < 8; i++)
			offer(c, "",
				(const char *const[]){ "TERM", "KILL", "INT", "HUP", "QUIT", "STOP",
					"CONT", "USR1" }[i],
				"signal");
}

static void offer_word(struct completion *c, const struct verb *v, size_t number, const char *first)
{
	size_t n = strlen(v->complete);

	if (v->max_words >= 0 && number >= (size_t)v->max_words)
		return;
	switch (v->complete[MIN(number, n - 1)]) {
	case 'b':
		offer_spots(c, v->words);
		break;
	case 'e':
		offer_execs(c, first);
		break;
	case 'r':
		offer_points(c, first);
		break;
	case 't':
		offer_templates(c);
		break;
	case 'p':
		offer_boxes(c, ":");
		buf_addstr(&c->out, ":file\n");
		break;
	case 'f':
		buf_addstr(&c->out, ":file\n");
		break;
	case 'v':
		offer_verbs(c, verbs);
		break;
	case 'w':
		offer(c, "", "warm", "build boxes before somebody asks for them");
		break;
	default:
		if (v->command)
			buf_addstr(&c->out, ":file\n");
	}
}

/* The words before the one being typed say what it can be. */
static void complete_verb(struct completion *c, const struct verb *v, int argc, char **argv)
{
	const struct option_def *tables[OPTION_TABLES + 2] = { 0 };
	const struct option_def *waiting = NULL, *attached;
	const char *first = NULL;
	size_t n = 0, words = 0;
	bool ended = false;

	for (; n < OPTION_TABLES && v->options[n]; n++)
		tables[n] = v->options[n];
	tables[n] = options_global;
	for (int i = 0; i < argc - 1; i++) {
		bool option = !waiting && !ended && argv[i][0] == '-' && argv[i][1];

		if (option && !strcmp(argv[i], "--")) {
			ended = true;
			continue;
		}
		if (option) {
			const struct option_def *d = find_option(tables, argv[i]);

			waiting = takes_value(d) ? d : NULL;
			continue;
		}
		if (!waiting) {
			first = words++ ? first : argv[i];
			if (v->command && words >= (size_t)v->command) {
				buf_addstr(&c->out, ":file\n"); /* the command's own business */
				return;
			}
		}
		waiting = NULL;
	}
	attached = waiting || ended ? NULL : find_attached(c, tables);
	if (waiting || attached) {
		offer_value(c, waiting ? waiting : attached, first);
	} else if (c->typed[0] == '-' && !ended) {
		for (size_t i = 0; tables[i]; i++)
			for (const struct option_def *d = tables[i]; d->name; d++)
				offer(c, "--", d->name, d->help);
	} else {
		offer_word(c, v, words, first);
	}
}

/* --state, wherever it stands, says which boxes there are; what follows "--" is a program's. */
static const char *state_given(int argc, char **argv, const char *otherwise)
{
	for (int i = 0; i < argc && strcmp(argv[i], "--"); i++) {
		if (!strncmp(argv[i], "--state=", 8))
			otherwise = argv[i] + 8;
		else if (!strcmp(argv[i], "--state") && i + 1 < argc)
			otherwise = argv[++i];
	}
	return otherwise;
}

int complete(int argc, char **argv, const struct args *a)
{
	struct completion c = { .args = a, .typed = argc ? argv[argc - 1] : "" };
	const struct verb *v = NULL;
	const struct verb *const *list = verbs;
	struct args own = *a;
	int at = 0, status;

	c.args = &own;
	own.state = state_given(argc - 1, argv, a->state);
	for (; at < argc - 1; at++) {
		if (!strcmp(argv[at], "--state")) {
			at++;
			continue;
		}
		if (argv[at][0] == '-')
			continue;
		v = verb_find(list, argv[at]);
		if (!v || !v->subs) {
			at++;
			break;
		}
		list = v->subs;
		v = NULL;
	}
	if (v)
		complete_verb(&c, v, argc - at, argv + at);
	else if (c.typed[0] == '-')
		for (const struct option_def *d = options_global; d->name; d++)
			offer(&c, "--", d->name, d->help);
	else if (at >= argc - 1)
		offer_verbs(&c, list);
	status = cli_print(a, &c.out);
	buf_free(&c.out);
	free(c.lead);
	return status;
}
