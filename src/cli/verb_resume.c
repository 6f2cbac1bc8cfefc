#include "cli.h"
#include "verbs.h"

static int resume_one(
	struct den_box *box, const char *ref, const struct args *a, struct den_err *err)
{
	(void)ref;
	(void)a;
	return den_box_resume(box, err);
}

static int resume(const struct args *a)
{
	return cli_each_box(a, resume_one);
}

const struct verb verb_resume = {
	.name = "resume",
	.words = "BOX...",
	.summary = "let a paused box go on",
	.help = "Examples:\n"
		"  den resume web\n",
	.min_words = 1,
	.max_words = -1,
	.complete = "b",
	.run = resume,
};
