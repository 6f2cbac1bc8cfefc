#include "cli.h"
#include "verbs.h"

static const struct option_def stop_options[] = {
	{ "grace", 0, OPT_GRACE, offsetof(struct args, grace), "TIME",
		"time between TERM and KILL (default: 5s; 0: KILL at once)" },
	{ 0 },
};

static int stop_one(struct den_box *box, const char *ref, const struct args *a, struct den_err *err)
{
	(void)ref;
	return den_box_stop(box, args_given(a, "grace") ? a->grace : 5000, err);
}

static int stop(const struct args *a)
{
	return cli_each_box(a, stop_one);
}

const struct verb verb_stop = {
	.name = "stop",
	.words = "BOX...",
	.summary = "end all processes of a box; its files stay",
	.help = "Every process gets TERM and, if it is still there after the grace time,\n"
		"KILL. 'den start' starts the box again with the files as they were.\n"
		"\n"
		"Examples:\n"
		"  den stop web              politely\n"
		"  den stop --grace 0 a b    two boxes, at once\n",
	.options = { stop_options },
	.min_words = 1,
	.max_words = -1,
	.complete = "b",
	.run = stop,
};
