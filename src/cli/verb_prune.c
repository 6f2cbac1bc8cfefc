#include "cli.h"
#include "verbs.h"

static const struct option_def prune_options[] = {
	{ "keep", 0, OPT_DURATION, offsetof(struct args, keep_time), "TIME",
		"keep all that are younger, and none that are older", "all" },
	{ "all", 0, OPT_FLAG, offsetof(struct args, all), NULL,
		"keep none but those that always stay" },
	{ 0 },
};

static int prune_one(
	struct den_box *box, const char *ref, const struct args *a, struct den_err *err)
{
	struct json j = { 0 };
	auto_buf out = { 0 };
	uint64_t removed;

	if (den_prune(box, a->keep_time, a->all, &removed, err) < 0)
		return -1;
	if (a->json) {
		json_open(&j, NULL, '{');
		json_str(&j, "box", den_box_id(box));
		json_u64(&j, "removed", removed);
		json_close(&j, '}');
		(void)cli_print_json(a, &j);
	} else if (!a->quiet) {
		buf_addf(&out, "%s: %llu checkpoint%s removed\n", ref, (unsigned long long)removed,
			removed == 1 ? "" : "s");
		(void)cli_print(a, &out);
	}
	return 0;
}

static int prune(const struct args *a)
{
	return cli_each_box(a, prune_one);
}

const struct verb verb_prune = {
	.name = "prune",
	.words = "BOX...",
	.summary = "remove old checkpoints, and free what they took",
	.help = "By the policy that also works by itself: all of the last hour stay, then one an\n"
		"hour for a day, then one a day. Those with a tag, head and the beginning always\n"
		"stay. What is removed cannot be rolled back to any more.\n"
		"\n"
		"Examples:\n"
		"  den prune web               by the policy\n"
		"  den prune --keep 10m web    only what is younger than ten minutes stays\n"
		"  den prune --all web         as little as can be\n"
		"  den tag web@7 good          keep one for good\n",
	.options = { prune_options },
	.min_words = 1,
	.max_words = -1,
	.complete = "b",
	.run = prune,
};
