#include "cli.h"
#include "verbs.h"

static int start_one(
	struct den_box *box, const char *ref, const struct args *a, struct den_err *err)
{
	(void)ref;
	(void)a;
	return den_box_start(box, err);
}

static int start(const struct args *a)
{
	return cli_each_box(a, start_one);
}

const struct verb verb_start = {
	.name = "start",
	.words = "BOX...",
	.summary = "start a box that was stopped",
	.help = "Its files are as they were; no process is. A crash or a restart of this\n"
		"machine leaves boxes stopped, too.\n"
		"\n"
		"Examples:\n"
		"  den start web\n"
		"  den start $(den ls --quiet)    all of them\n",
	.min_words = 1,
	.max_words = -1,
	.complete = "b",
	.run = start,
};
