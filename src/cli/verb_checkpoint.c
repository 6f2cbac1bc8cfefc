#include <stdio.h>

#include "cli.h"
#include "points.h"
#include "saved.h"
#include "verbs.h"

static const struct option_def checkpoint_options[] = {
	{ "message", 'm', OPT_TEXT, offsetof(struct args, message), "TEXT",
		"what it is, for den log" },
	{ "tag", 0, OPT_TEXT, offsetof(struct args, tag), "NAME",
		"name it; a checkpoint with a name is never thinned out" },
	{ "full", 0, OPT_FLAG, offsetof(struct args, full), NULL, "with the programs that run, which go on after a moment" },
	{ 0 },
};

static int checkpoint(const struct args *a)
{
	auto_session s = { 0 };
	auto_buf out = { 0 };
	struct den_err err = { 0 };
	struct json j = { 0 };
	char ref[24];
	uint64_t number = 0;
	auto_den_saved saved = NULL;
	int status = session_open(&s, a, a->words[0]);

	if (status)
		return status;
	if (a->full ? den_checkpoint_full(s.box, a->message, &saved, &err) < 0 :
		      den_checkpoint(s.box, a->message, &number, &err) < 0)
		return history_fail(a, &err);
	if (saved)
		number = saved->number;
	snprintf(ref, sizeof(ref), "%llu", (unsigned long long)number);
	if (a->tag && den_tag(s.box, ref, a->tag, false, &err) < 0) {
		den_wrap(&err, "checkpoint %s is made, but has no tag", ref);
		return cli_fail(a, &err, NULL);
	}
	if (!a->json) {
		saved_tell(a, saved);
		buf_addf(&out, "%s\n", ref);
		return cli_print(a, &out);
	}
	json_open(&j, NULL, '{');
	json_u64(&j, "number", number);
	json_str(&j, "tag", a->tag);
	json_bool(&j, "full", a->full);
	saved_json(&j, saved);
	json_close(&j, '}');
	return cli_print_json(a, &j);
}

const struct verb verb_checkpoint = {
	.name = "checkpoint",
	.words = "BOX",
	.summary = "keep a box's files as they are now; prints a number",
	.help = "All of the file system at one instant, while programs run. It is on disk when\n"
		"the number is printed. A box makes checkpoints by itself after each command or\n"
		"file operation that changed something, unless it has --history manual.\n"
		"With --full the programs are in it, too: 'den rollback' brings them back as they\n"
		"were, 'den fork --full' makes copies of them. They are held for a moment. What\n"
		"cannot be kept, like a connection to the outside, is told.\n"
		"\n"
		"Examples:\n"
		"  den checkpoint --full web              with everything that runs\n"
		"  den checkpoint web                     prints, for example, 12\n"
		"  den checkpoint -m 'tests pass' web     with a word for 'den log'\n"
		"  den checkpoint --tag good web          known as \"good\", and never thinned "
		"out\n"
		"  den rollback web good                  back to it\n",
	.options = { checkpoint_options },
	.min_words = 1,
	.max_words = 1,
	.complete = "b",
	.run = checkpoint,
};
