#include "cli.h"
#include "parse.h"
#include "points.h"
#include "verbs.h"

static int undo(const struct args *a)
{
	auto_session s = { 0 };
	struct den_err err = { 0 };
	uint64_t before, turns = 1;
	int status;

	if (a->n_words > 1 && parse_u64(a->words[1], 1, 1000000, &turns, &err) < 0) {
		den_wrap(&err, "how many");
		return cli_fail(a, &err, "to go to a checkpoint: den rollback BOX CHECKPOINT");
	}
	status = session_open(&s, a, a->words[0]);
	if (status)
		return status;
	if (den_undo(s.box, (unsigned)turns, &before, &err) < 0)
		return history_fail(a, &err);
	return rollback_tell(a, s.box, before);
}

const struct verb verb_undo = {
	.name = "undo",
	.words = "BOX [N]",
	.summary = "take back the last change of a box's files, or the last N",
	.help = "As 'den rollback' to the checkpoint before it: programs in the box are stopped,\n"
		"and it can be undone itself. What changed nothing does not count.\n"
		"\n"
		"Examples:\n"
		"  den exec web rm -rf /srv     a mistake\n"
		"  den undo web                 it never happened\n"
		"  den undo web 3               nor did the three things before it\n",
	.min_words = 1,
	.max_words = 2,
	.complete = "b-",
	.run = undo,
};
