#include "cli.h"
#include "verbs.h"

static int pause_one(
	struct den_box *box, const char *ref, const struct args *a, struct den_err *err)
{
	(void)ref;
	(void)a;
	return den_box_pause(box, err);
}

static int pause_boxes(const struct args *a)
{
	return cli_each_box(a, pause_one);
}

const struct verb verb_pause = {
	.name = "pause",
	.words = "BOX...",
	.summary = "freeze all processes of a box where they are",
	.help = "They use no CPU until 'den resume', and do not notice.\n"
		"\n"
		"Examples:\n"
		"  den pause web && den stats --once web && den resume web\n",
	.min_words = 1,
	.max_words = -1,
	.complete = "b",
	.run = pause_boxes,
};
