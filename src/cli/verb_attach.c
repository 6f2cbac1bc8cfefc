#include <stdio.h>
#include <string.h>

#include "box_args.h"
#include "cli.h"
#include "execs.h"
#include "stream.h"
#include "verbs.h"

static const struct option_def attach_options[] = {
	{ "no-stdin", 0, OPT_FLAG, offsetof(struct args, no_stdin), NULL, "only watch" },
	{ 0 },
};

static int attach(const struct args *a)
{
	static struct stream s;
	auto_session ses = { 0 };
	struct den_exec *e = NULL;
	struct den_err err = { 0 };
	struct exec_brief brief;
	unsigned flags = 0;
	int status = session_open(&ses, a, a->words[0]);

	if (status)
		return status;
	if (exec_find(ses.box, a->words[1], &brief, &err) < 0)
		return cli_fail(a, &err, NULL);
	if (brief.tty)
		flags |= STREAM_TTY | STREAM_KEYS;
	if (brief.running && args_stdin(a))
		flags |= STREAM_STDIN;
	stream_init(&s, ses.box, flags);
	if (den_exec_attach(ses.box, a->words[1], &stream_ops, &s, &e, &err) < 0)
		return cli_fail(a, &err, NULL);
	if (brief.tty && brief.running) {
		uint16_t rows, cols;

		tty_size(&rows, &cols);
		(void)den_exec_resize(e, rows, cols, NULL);
	}
	stream_run(&s, e);
	if (s.detached)
		cli_note(a, "left %s; it goes on", a->words[1]);
	status = stream_status(&s, a);
	den_exec_unref(e);
	return status;
}

const struct verb verb_attach = {
	.name = "attach",
	.words = "BOX PID|TAG",
	.summary = "follow a program that runs in a box, from what it printed so far",
	.help = "What was kept of its output comes first. den leaves with the program's exit\n"
		"status. To leave earlier and let it go on: Ctrl-P Ctrl-Q if it has a\n"
		"terminal, else Ctrl-C.\n"
		"\n"
		"Examples:\n"
		"  den exec --detach --tty --tag sh web     a shell, started before\n"
		"  den attach web sh                        type to it\n"
		"  den attach --no-stdin web 17             only watch process 17\n",
	.options = { attach_options },
	.min_words = 2,
	.max_words = 2,
	.program = true,
	.complete = "be",
	.run = attach,
};
