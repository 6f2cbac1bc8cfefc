#include <stddef.h>

#include "cli.h"
#include "points.h"
#include "verbs.h"

static const struct option_def rollback_options[] = {
	{ "disk", 0, OPT_FLAG, offsetof(struct args, to_disk), NULL, "its files alone, also of a full checkpoint" },
	{ 0 },
};

static int rollback(const struct args *a)
{
	auto_session s = { 0 };
	struct den_err err = { 0 };
	uint64_t before;
	int status = session_open(&s, a, a->words[0]);

	if (status)
		return status;
	if ((a->to_disk ? den_rollback_disk : den_rollback)(s.box, a->words[1], &before, &err) < 0)
		return history_fail(a, &err);
	return rollback_tell(a, s.box, before);
}

const struct verb verb_rollback = {
	.name = "rollback",
	.words = "BOX CHECKPOINT",
	.summary = "bring a box's files back to a checkpoint",
	.help = "All of its files, whatever happened to them since. Programs in the box are\n"
		"stopped first; those of a full checkpoint come back as they were then, else the\n"
		"box is started again if it ran. Its id, name and limits\n"
		"stay. What was there before becomes a checkpoint itself, so a rollback can be\n"
		"undone; its number is told, with --quiet alone.\n"
		"\n"
		"Examples:\n"
		"  den rollback web 7         by number; 'den log' shows them\n"
		"  den rollback web good      by tag\n"
		"  den rollback web base      as it was made\n"
		"  den undo web               only the last change\n",
	.options = { rollback_options },
	.min_words = 2,
	.max_words = 2,
	.complete = "br",
	.run = rollback,
};
