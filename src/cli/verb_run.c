#include "box_args.h"
#include "cli.h"
#include "stream.h"
#include "strv.h"
#include "verbs.h"

static const struct option_def run_options[] = {
	{ "rm", 0, OPT_BOOL, offsetof(struct args, rm), "BOOL",
		"delete the box afterwards (default: true)" },
	{ 0 },
};

/* The environment of options is the box's; the exec adds TERM alone, and only with a terminal. */
static int run_in(struct den_box *box, const struct args *a, char **argv, char *const *box_env)
{
	static struct stream s; /* 64 KiB: not on the stack */
	struct den_exec_opt opt;
	struct den_exec *e = NULL;
	struct den_err err = { 0 };
	auto_strv env = NULL;
	int status;

	exec_args_make(a, argv, &env, &opt);
	if (strv_env_get(box_env, "TERM"))
		opt.env = NULL;
	stream_init(&s, box,
		STREAM_OWN | (opt.flags & DEN_EXEC_TTY ? STREAM_TTY : 0) |
			(opt.flags & DEN_EXEC_STDIN ? STREAM_STDIN : 0));
	if (den_exec_start(box, &opt, &stream_ops, &s, &e, &err) < 0)
		return cli_fail(a, &err, NULL);
	stream_run(&s, e);
	status = stream_status(&s, a);
	den_exec_unref(e);
	return status;
}

static void finish(struct den_box *box, const struct args *a)
{
	struct den_err err = { 0 };

	if (!a->rm)
		cli_note(a, "kept box %s", a->name ? a->name : den_box_id(box));
	else if (den_box_delete(box, true, &err) < 0 && err.code != DEN_NOT_FOUND)
		cli_warn("the box could not be deleted: %s", err.msg);
}

/* Without a command, what the template says; where it says nothing, a shell. */
static char **start_command(struct den *d, const struct args *a)
{
	struct den_template *t = NULL;
	char **argv = NULL;

	if (a->n_words)
		return strv_copy((const char *const *)a->words);
	if (!a->template_name || den_template_get(d, a->template_name, &t, NULL) < 0)
		return NULL;
	argv = strv_copy(t->entrypoint);
	for (const char *const *c = t->cmd; c && *c; c++)
		strv_add(&argv, *c);
	den_templates_free(t, 1);
	return argv;
}

static int run(const struct args *a)
{
	auto_session s = { 0 };
	auto_box_args b = { 0 };
	auto_strv argv = NULL;
	struct den_err err = { 0 };
	int status;

	if (box_args_make(a, &b, &err) < 0)
		return cli_fail(a, &err, "see 'den run --help'");
	b.spec.ephemeral = a->rm;
	if (cli_open(a, &s.den, &err) < 0 || den_box_create(s.den, &b.spec, &s.box, &err) < 0)
		return cli_fail(a, &err,
			err.code == DEN_UNSUPPORTED ? "'den doctor' tells what this machine lacks"
						    : NULL);
	argv = start_command(s.den, a);
	status = run_in(s.box, a, argv, b.env);
	finish(s.box, a);
	return status;
}

const struct verb verb_run = {
	.name = "run",
	.words = "[--] [COMMAND [ARG]...]",
	.summary = "run a command in a new box, then delete the box",
	.help = "The box has this machine's programs (/usr) and settings, none of its data, and\n"
		"no network but what --allow and its like open. Of your files it sees what\n"
		"--mount names.\n"
		"What the command changes is gone afterwards; what it prints, reads and\n"
		"leaves with is passed on as if it ran here. Nothing of den's environment\n"
		"goes in but TERM, and what --env names. Without a command it is what the\n"
		"template starts, or a login shell.\n"
		"\n"
		"Examples:\n"
		"  den run rm -rf /usr/bin                      of the box; yours stays\n"
		"  den run --mount .:/src:ro --workdir /src ls  it sees this, read-only\n"
		"  den run --mount .:/src --workdir /src make   it can change this\n"
		"  den run --memory 512M --timeout 30s nproc    with limits\n"
		"  den run --allow example.com curl -s https://example.com  one name\n"
		"  den run --preset registries npm view left-pad  where packages come from\n"
		"  den run --rm=false --name try sh -c 'date >/now'  keep the box, as \"try\"\n"
		"  den run                                      a shell, to look around\n",
	.options = { options_box, options_lease, options_label, options_net, options_env, options_exec, run_options },
	.max_words = -1,
	.command = 1,
	.program = true,
	.complete = "-",
	.run = run,
};
