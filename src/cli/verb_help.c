#include "cli.h"
#include "verbs.h"

static int help(const struct args *a)
{
	const struct verb *v, *sub;
	struct den_err err;

	if (!a->n_words)
		return help_all(a, true);
	v = verb_find(verbs, a->words[0]);
	if (!v) {
		den_fail(&err, DEN_INVALID, 0, "there is no verb '%.60s'", a->words[0]);
		return cli_fail(a, &err, "'den help' lists them");
	}
	if (a->n_words == 1)
		return help_verb(a, NULL, v);
	sub = v->subs ? verb_find(v->subs, a->words[1]) : NULL;
	if (!sub) {
		den_fail(
			&err, DEN_INVALID, 0, "'den %s' has no verb '%.60s'", v->name, a->words[1]);
		return cli_fail(a, &err, NULL);
	}
	return help_verb(a, v, sub);
}

const struct verb verb_help = {
	.name = "help",
	.words = "[VERB]",
	.summary = "explain a verb, with examples",
	.help = "Examples:\n"
		"  den help run\n"
		"  den help fs ls\n",
	.max_words = 2,
	.complete = "v",
	.run = help,
};
