#include "cli.h"
#include "verbs.h"

static int hibernate_one(
	struct den_box *box, const char *ref, const struct args *a, struct den_err *err)
{
	(void)ref;
	(void)a;
	return den_box_hibernate(box, err);
}

static int hibernate(const struct args *a)
{
	return cli_each_box(a, hibernate_one);
}

const struct verb verb_hibernate = {
	.name = "hibernate",
	.words = "BOX...",
	.summary = "end a box's programs and keep its files; any use starts it again",
	.help = "Unlike 'den pause --disk' it keeps no programs, and works everywhere. When the\n"
		"box is used again, or by 'den resume', it is started anew, and so is what its\n"
		"template says is to be started.\n"
		"\n"
		"Examples:\n"
		"  den hibernate web\n"
		"  den exec web -- uptime      starts it first\n",
	.min_words = 1,
	.max_words = -1,
	.complete = "b",
	.run = hibernate,
};
