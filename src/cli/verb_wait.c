#include "cli.h"
#include "verbs.h"

static int wait_one(struct den_box *box, const char *ref, const struct args *a, struct den_err *err)
{
	struct den_box_info *info = NULL;

	if (den_box_wait(box, err) < 0)
		return -1;
	/* a box that was deleted meanwhile has ended, too */
	if (den_box_info(box, &info, NULL) < 0)
		return 0;
	if (info->reason)
		cli_note(a, "%s stopped: %s", ref, info->reason);
	den_box_infos_free(info, 1);
	return 0;
}

static int wait_boxes(const struct args *a)
{
	return cli_each_box(a, wait_one);
}

const struct verb verb_wait = {
	.name = "wait",
	.words = "BOX...",
	.summary = "wait until a box runs no more",
	.help = "Examples:\n"
		"  den wait web && den rm web\n"
		"  timeout 60 den wait web       no longer than a minute\n",
	.min_words = 1,
	.max_words = -1,
	.complete = "b",
	.run = wait_boxes,
};
