#include "cli.h"
#include "verbs.h"

static const struct option_def rm_options[] = {
	{ "force", 'f', OPT_FLAG, offsetof(struct args, force), NULL,
		"even if it is running: its processes are killed" },
	{ 0 },
};

static int rm_one(struct den_box *box, const char *ref, const struct args *a, struct den_err *err)
{
	(void)ref;
	return den_box_delete(box, a->force, err);
}

static int rm_boxes(const struct args *a)
{
	return cli_each_box(a, rm_one);
}

const struct verb verb_rm = {
	.name = "rm",
	.words = "BOX...",
	.summary = "delete a box and all its files",
	.help = "There is no way back. A running box is refused without --force.\n"
		"\n"
		"Examples:\n"
		"  den rm web                           a stopped box\n"
		"  den rm --force web                   a running one\n"
		"  den rm --force $(den ls --quiet)     all of them\n",
	.options = { rm_options },
	.min_words = 1,
	.max_words = -1,
	.complete = "b",
	.run = rm_boxes,
};
