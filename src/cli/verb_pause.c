#include <stdio.h>

#include "cli.h"
#include "saved.h"
#include "verbs.h"

static const struct option_def pause_options[] = {
	{ "disk", 0, OPT_FLAG, offsetof(struct args, to_disk), NULL,
		"write its programs to disk: no process and no memory of it is left" },
	{ 0 },
};

static int pause_one(
	struct den_box *box, const char *ref, const struct args *a, struct den_err *err)
{
	auto_den_saved saved = NULL;
	struct json j = { 0 };

	if (!a->to_disk)
		return den_box_pause(box, err);
	if (den_box_pause_disk(box, &saved, err) < 0)
		return -1;
	if (!a->json) {
		saved_tell(a, saved);
		return 0;
	}
	json_open(&j, NULL, '{');
	json_str(&j, "box", ref);
	json_u64(&j, "number", saved->number);
	saved_json(&j, saved);
	json_close(&j, '}');
	return cli_print_json(a, &j);
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
		"With --disk they are written to disk with all that they hold, and nothing of the\n"
		"box is left in memory. It comes back as it was by 'den resume', or when anything\n"
		"is asked of it: a command, a file, a connection to one of its ports.\n"
		"\n"
		"Examples:\n"
		"  den pause web && den stats --once web && den resume web\n"
		"  den pause --disk web                  until tomorrow, say\n"
		"  den exec web -- uptime                brings it back first\n",
	.options = { pause_options },
	.min_words = 1,
	.max_words = -1,
	.complete = "b",
	.run = pause_boxes,
};
