#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "table.h"

#define OPTION_WIDE 25

static void option_lines(struct buf *out, const struct option_def *d)
{
	for (; d->name; d++) {
		char left[80], letter[8] = "    ";

		if (d->letter)
			snprintf(letter, sizeof(letter), "-%c, ", d->letter);
		snprintf(left, sizeof(left), "%s--%s%s%s%s", letter, d->name,
			d->kind == OPT_BOOL ? "[="
			: d->arg	    ? " "
					    : "",
			d->arg ? d->arg : "", d->kind == OPT_BOOL ? "]" : "");
		buf_addf(out, "  %-*s  ", OPTION_WIDE, left);
		if (strlen(left) > OPTION_WIDE)
			buf_addf(out, "\n%*s", OPTION_WIDE + 4, "");
		text_wrapped(out, d->help, OPTION_WIDE + 4, 80);
	}
}

static void verb_lines(struct buf *out, const struct verb *const *list)
{
	for (; *list; list++)
		buf_addf(out, "  %-10s %s\n", (*list)->name, (*list)->summary);
}

int help_all(const struct args *a, bool asked)
{
	auto_buf out = { 0 };

	buf_addstr(&out, "den gives a program a computer of its own.\n\n"
			 "Usage: den VERB [OPTION]... [ARGUMENT]...\n\nVerbs:\n");
	verb_lines(&out, verbs);
	buf_addstr(&out, "\nOptions of every verb:\n");
	option_lines(&out, options_global);
	buf_addstr(&out,
		"\nExamples:\n"
		"  den run python3 -c 'print(6*7)'       try something; nothing of it stays\n"
		"  den create --name web --memory 2G     a box that stays\n"
		"  den exec web uname -a                 run something in it\n"
		"  den cp ./app web:/srv/                copy files in\n"
		"  den rm --force web                    delete it\n"
		"\n'den help VERB' explains one, with examples. 'man den' has it all.\n");
	/* asked for, it is data; after a mistake, it is a message */
	if (asked)
		return cli_print(a, &out);
	(void)!write(STDERR_FILENO, out.p, out.len);
	return 0;
}

int help_verb(const struct args *a, const struct verb *parent, const struct verb *v)
{
	auto_buf out = { 0 };

	buf_addf(&out, "den %s%s%s: %s.\n\nUsage: den %s%s%s%s%s%s\n\n", parent ? parent->name : "",
		parent ? " " : "", v->name, v->summary, parent ? parent->name : "",
		parent ? " " : "", v->name, v->subs ? " VERB" : " [OPTION]...", v->words ? " " : "",
		v->words ? v->words : "");
	buf_addstr(&out, v->help);
	if (v->subs) {
		buf_addstr(&out, "\nVerbs:\n");
		verb_lines(&out, v->subs);
	}
	if (v->options[0])
		buf_addstr(&out, "\nOptions:\n");
	for (size_t i = 0; i < OPTION_TABLES && v->options[i]; i++)
		option_lines(&out, v->options[i]);
	buf_addstr(&out, "\nOptions of every verb:\n");
	option_lines(&out, options_global);
	return cli_print(a, &out);
}
