#include "box_args.h"
#include "cli.h"
#include "outcome.h"
#include "stream.h"
#include "strv.h"
#include "verbs.h"

static const struct option_def exec_options[] = {
	{ "detach", 'd', OPT_FLAG, offsetof(struct args, detach), NULL,
		"start it, print its pid, do not wait" },
	{ 0 },
};

struct detached {
	pid_t pid;
	bool failed;
	struct den_err err;
};

static void on_started(struct den_exec *e, pid_t pid, void *user)
{
	(void)e;
	((struct detached *)user)->pid = pid;
}

static void on_ended(struct den_exec *e, const struct den_exec_result *result,
	const struct den_err *err, void *user)
{
	struct detached *d = user;

	(void)e;
	(void)result;
	if (!err)
		return;
	d->failed = true;
	d->err = *err;
}

static const struct den_exec_ops detach_ops = { .started = on_started, .ended = on_ended };

static int exec_detached(struct den_box *box, const struct den_exec_opt *opt, const struct args *a)
{
	struct detached d = { 0 };
	struct den_exec *e = NULL;
	struct json j = { 0 };
	int r;

	r = den_exec_start(box, opt, &detach_ops, &d, &e, &d.err);
	while (r == 0 && !d.pid && !d.failed)
		r = den_dispatch(box, -1, &d.err);
	den_exec_unref(e);
	if (r < 0 || d.failed) {
		(void)cli_fail(a, &d.err, NULL);
		return failure_status(&d.err);
	}
	if (!a->json) {
		buf_addf(&j.b, "%d", (int)d.pid);
		return cli_print_json(a, &j);
	}
	json_open(&j, NULL, '{');
	json_i64(&j, "pid", d.pid);
	json_str(&j, "tag", a->tag);
	json_close(&j, '}');
	return cli_print_json(a, &j);
}

static int exec_attached(struct den_box *box, const struct den_exec_opt *opt, const struct args *a)
{
	static struct stream s;
	struct den_exec *e = NULL;
	struct den_err err = { 0 };
	int status;

	stream_init(&s, box,
		STREAM_OWN | (opt->flags & DEN_EXEC_TTY ? STREAM_TTY : 0) |
			(opt->flags & DEN_EXEC_STDIN ? STREAM_STDIN : 0));
	if (den_exec_start(box, opt, &stream_ops, &s, &e, &err) < 0)
		return cli_fail(a, &err, NULL);
	stream_run(&s, e);
	status = stream_status(&s, a);
	den_exec_unref(e);
	return status;
}

static int exec(const struct args *a)
{
	auto_session s = { 0 };
	auto_strv env = NULL;
	struct den_exec_opt opt;
	struct den_err err = { 0 };
	int status;

	if (env_make(a, &env, &err) < 0)
		return cli_fail(a, &err, "see 'den exec --help'");
	exec_args_make(a, a->words + 1, &env, &opt);
	opt.cwd = a->workdir;
	opt.user = a->user;
	status = session_open(&s, a, a->words[0]);
	if (status)
		return status;
	return a->detach ? exec_detached(s.box, &opt, a) : exec_attached(s.box, &opt, a);
}

const struct verb verb_exec = {
	.name = "exec",
	.words = "BOX [--] [COMMAND [ARG]...]",
	.summary = "run a command in a running box",
	.help = "Streams, signals, terminal and exit status are passed on as if it ran here;\n"
		"if den goes, the command goes with it. With --detach it stays: its output is\n"
		"kept in the box for 'den logs' and 'den attach'. Without a command it is a\n"
		"login shell.\n"
		"\n"
		"Examples:\n"
		"  den exec web ls -l /srv                       -l is for ls\n"
		"  den exec --user app --env DEBUG=1 web ./run   as another user\n"
		"  den exec web tar c /etc | tar t               output is a plain stream\n"
		"  den exec --detach --tag api web ./server      leave it running, named \"api\"\n"
		"  den exec --timeout 10s web ./test             TERM after 10 s, then KILL\n",
	.options = { options_env, options_exec, exec_options },
	.min_words = 1,
	.max_words = -1,
	.command = 2,
	.program = true,
	.complete = "b-",
	.run = exec,
};
