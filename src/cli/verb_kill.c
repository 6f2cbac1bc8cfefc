#include <signal.h>

#include "cli.h"
#include "verbs.h"

static const struct option_def kill_options[] = {
	{ "signal", 's', OPT_SIGNAL, offsetof(struct args, signal), "SIGNAL",
		"TERM (default), KILL, 9, ..." },
	{ "group", 0, OPT_FLAG, offsetof(struct args, group), NULL, "to its whole process group",
		"tree" },
	{ "tree", 0, OPT_FLAG, offsetof(struct args, tree), NULL,
		"to all that it started, daemons too" },
	{ 0 },
};

static int kill_exec(const struct args *a)
{
	auto_session s = { 0 };
	struct den_err err = { 0 };
	enum den_scope scope = a->tree	  ? DEN_SCOPE_TREE
			       : a->group ? DEN_SCOPE_GROUP
					  : DEN_SCOPE_PROCESS;
	int status = session_open(&s, a, a->words[0]);

	if (status)
		return status;
	if (den_kill(s.box, a->words[1], a->signal ? a->signal : SIGTERM, scope, &err) < 0)
		return cli_fail(a, &err, NULL);
	return 0;
}

const struct verb verb_kill = {
	.name = "kill",
	.words = "BOX PID|TAG",
	.summary = "send a signal to a program that den started in a box",
	.help = "Examples:\n"
		"  den kill web api                       TERM to the program tagged \"api\"\n"
		"  den kill --signal KILL --tree web 17   end 17 and all that it started\n",
	.options = { kill_options },
	.min_words = 2,
	.max_words = 2,
	.complete = "be",
	.run = kill_exec,
};
