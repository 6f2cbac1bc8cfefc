/*
 * Which checkpoint broke it? Binary search over the line of checkpoints between one where a command
 * works and one where it does not, each tried in a fork of its own. Signals are held back from
 * before a fork is made until it is deleted, so its deletion is waited for; should we be killed, it goes
 * by itself.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>

#include "box_args.h"
#include "cli.h"
#include "fd.h"
#include "mem.h"
#include "outcome.h"
#include "points.h"
#include "strv.h"
#include "verbs.h"

#define STATUS_SKIP 125 /* as in git bisect run */

static const struct option_def bisect_options[] = {
	{ "from", 0, OPT_TEXT, offsetof(struct args, from), "CHECKPOINT",
		"one where it works (default: base)" },
	{ "to", 0, OPT_TEXT, offsetof(struct args, to), "CHECKPOINT",
		"a later one where it does not (default: head)" },
	{ "timeout", 0, OPT_DURATION, offsetof(struct args, timeout), "TIME",
		"a command that takes longer does not work" },
	{ 0 },
};

enum verdict { UNKNOWN, GOOD, BAD, SKIP };

struct bisect {
	const struct args *args;
	struct den_box *box;
	struct points points;
	struct step {
		const struct den_checkpoint *at;
		enum verdict verdict;
	} *line; /* from the good end to the bad one */
	size_t n, good, bad; /* indices of the nearest known */
	unsigned steps;
	struct den_exec_opt opt;
	char **env;
	int sigfd, signal; /* signal: not 0: one came, leave */
};

/* ---- one try ---- */

struct trial {
	const struct args *args;
	bool ended, failed;
	struct den_exec_result result;
	struct den_err err;
};

/* What it prints is not our result: it goes beside the progress. */
static void on_output(struct den_exec *e, int stream, const void *data, size_t n, void *user)
{
	struct trial *t = user;

	(void)e;
	(void)stream;
	if (!t->args->quiet)
		(void)fd_write_all(STDERR_FILENO, data, n, NULL);
}

static void on_ended(struct den_exec *e, const struct den_exec_result *result,
	const struct den_err *err, void *user)
{
	struct trial *t = user;

	(void)e;
	t->ended = true;
	t->failed = err;
	if (err)
		t->err = *err;
	else
		t->result = *result;
}

static const struct den_exec_ops ops = { .output = on_output, .ended = on_ended };

static bool interrupted(struct bisect *b)
{
	struct signalfd_siginfo si;

	if (!b->signal && read(b->sigfd, &si, sizeof(si)) == sizeof(si))
		b->signal = (int)si.ssi_signo;
	return b->signal;
}

static int wait_for(struct bisect *b, struct den_box *fork, struct trial *t, struct den_err *err)
{
	while (!t->ended && !interrupted(b)) {
		struct pollfd p[2] = { { den_poll_fd(fork), POLLIN, 0 }, { b->sigfd, POLLIN, 0 } };

		if (poll(p, 2, -1) < 0 && errno != EINTR)
			return den_fail_sys(err, errno, "poll");
		if (p[0].revents && den_dispatch(fork, 0, err) < 0)
			return -1;
	}
	return 0;
}

/* Gives the status as a shell would; -1: there is none. */
static int run_in(struct bisect *b, struct den_box *fork, struct den_err *err)
{
	struct trial t = { .args = b->args };
	struct den_exec *e = NULL;
	int r = den_exec_start(fork, &b->opt, &ops, &t, &e, err);

	if (r == 0)
		r = wait_for(b, fork, &t, err);
	den_exec_unref(e);
	if (r < 0 || b->signal)
		return -1;
	if (!t.failed)
		return result_status(&t.result);
	if (failure_status(&t.err) == EXIT_OWN) {
		*err = t.err;
		return -1;
	}
	cli_note(b->args, "%s", t.err.msg);
	return failure_status(&t.err);
}

static int try_at(struct bisect *b, size_t i, struct den_err *err)
{
	struct step *s = &b->line[i];
	struct den_box *fork = NULL;
	struct den_err left = { 0 };
	auto_buf brief = { 0 };
	char ref[24];
	int status;

	snprintf(ref, sizeof(ref), "%llu", (unsigned long long)s->at->number);
	if (den_box_try(b->box, ref, &fork, err) < 0)
		return den_wrap(err, "fork of checkpoint %s", ref);
	status = run_in(b, fork, err);
	if (den_box_delete(fork, true, &left) < 0 && left.code != DEN_NOT_FOUND)
		cli_warn("the fork %s could not be deleted: %s", den_box_id(fork), left.msg);
	den_box_close(fork);
	if (status < 0)
		return -1;
	b->steps++;
	s->verdict = status == 0 ? GOOD : status == STATUS_SKIP ? SKIP : BAD;
	point_brief(&brief, s->at);
	cli_note(b->args, "checkpoint %s: %s [%d]", buf_str(&brief),
		s->verdict == GOOD   ? "good"
		: s->verdict == SKIP ? "skipped"
				     : "bad",
		status);
	return 0;
}

/* ---- the search ---- */

static int make_line(struct bisect *b, struct den_err *err)
{
	const struct den_checkpoint *from, *to;

	from = points_find(&b->points, b->args->from ? b->args->from : "base", err);
	to = from ? points_find(&b->points, b->args->to, err) : NULL;
	if (!to)
		return -1;
	b->line = mem_zalloc((b->points.n + 1) * sizeof(*b->line));
	for (const struct den_checkpoint *c = to; c && b->n < b->points.n;
		c = c == from ? NULL : points_number(&b->points, c->parent))
		b->line[b->n++].at = c;
	if (b->line[b->n - 1].at != from)
		return den_fail(err, DEN_INVALID, 0,
			"checkpoint %llu is not on the way to %llu; 'den log' shows it",
			(unsigned long long)from->number, (unsigned long long)to->number);
	if (b->n < 2)
		return den_fail(err, DEN_INVALID, 0,
			"there is nothing between checkpoint %llu and itself",
			(unsigned long long)from->number);
	for (size_t i = 0; i < b->n / 2; i++) {
		struct step other = b->line[i];

		b->line[i] = b->line[b->n - 1 - i];
		b->line[b->n - 1 - i] = other;
	}
	b->bad = b->n - 1;
	return 0;
}

static int check_ends(struct bisect *b, struct den_err *err)
{
	if (try_at(b, b->bad, err) < 0)
		return -1;
	if (b->line[b->bad].verdict != BAD)
		return den_fail(err, DEN_INVALID, 0,
			"the command %s at checkpoint %llu, where it should not work",
			b->line[b->bad].verdict == GOOD ? "works" : "cannot tell",
			(unsigned long long)b->line[b->bad].at->number);
	if (try_at(b, b->good, err) < 0)
		return -1;
	if (b->line[b->good].verdict != GOOD)
		return den_fail(err, DEN_INVALID, 0,
			"the command %s at checkpoint %llu, where it should work",
			b->line[b->good].verdict == BAD ? "does not work" : "cannot tell",
			(unsigned long long)b->line[b->good].at->number);
	return 0;
}

/* The untried one nearest to the middle; 0: none is left between. */
static size_t next_try(const struct bisect *b)
{
	size_t middle = b->good + (b->bad - b->good) / 2, found = 0;

	for (size_t i = b->good + 1; i < b->bad; i++) {
		size_t far = i > middle ? i - middle : middle - i;
		size_t found_far = found > middle ? found - middle : middle - found;

		if (b->line[i].verdict == UNKNOWN && (!found || far < found_far))
			found = i;
	}
	return found;
}

static int search(struct bisect *b, struct den_err *err)
{
	size_t i;

	if (check_ends(b, err) < 0)
		return -1;
	while ((i = next_try(b))) {
		cli_note(b->args, "%zu checkpoint%s between %llu and %llu left",
			b->bad - b->good - 1, b->bad - b->good == 2 ? "" : "s",
			(unsigned long long)b->line[b->good].at->number,
			(unsigned long long)b->line[b->bad].at->number);
		if (try_at(b, i, err) < 0)
			return -1;
		if (b->line[i].verdict == GOOD)
			b->good = i;
		else if (b->line[i].verdict == BAD)
			b->bad = i;
	}
	return 0;
}

/* ---- the answer ---- */

static int print_json(struct bisect *b, bool found)
{
	struct json j = { 0 };

	json_open(&j, NULL, '{');
	if (found)
		point_json(&j, "first_bad", b->line[b->bad].at);
	else
		json_nothing(&j, "first_bad");
	point_json(&j, "last_good", b->line[b->good].at);
	json_open(&j, "suspects", '[');
	for (size_t i = b->good + 1; i <= b->bad; i++)
		json_u64(&j, NULL, b->line[i].at->number);
	json_close(&j, ']');
	json_u64(&j, "tries", b->steps);
	json_close(&j, '}');
	return cli_print_json(b->args, &j);
}

static int print_found(struct bisect *b, const char *box)
{
	unsigned long long number = b->line[b->bad].at->number;
	auto_buf out = { 0 };
	int status;

	if (b->args->quiet) {
		buf_addf(&out, "%llu\n", number);
		return cli_print(b->args, &out);
	}
	buf_addstr(&out, "the first bad checkpoint is ");
	point_brief(&out, b->line[b->bad].at);
	buf_addstr(&out, "\n");
	status = cli_print(b->args, &out);
	cli_note(b->args,
		"what it changed: den show %s@%llu; back to before it: den rollback %s %llu", box,
		number, box, (unsigned long long)b->line[b->good].at->number);
	return status;
}

static int answer(struct bisect *b)
{
	bool found = b->bad == b->good + 1;
	struct den_err err = { 0 };
	auto_buf list = { 0 };

	if (b->args->json) {
		int status = print_json(b, found);

		if (status || found)
			return status;
	}
	if (found)
		return print_found(b, b->args->words[0]);
	for (size_t i = b->good + 1; i <= b->bad; i++)
		buf_addf(&list, " %llu", (unsigned long long)b->line[i].at->number);
	den_fail(&err, DEN_NOT_FOUND, 0,
		"the command could not tell for some; the first bad one is one of%.120s",
		buf_str(&list));
	return cli_fail(b->args, &err, NULL);
}

static void hold_signals(struct bisect *b, sigset_t *old)
{
	static const int held[] = { SIGINT, SIGQUIT, SIGTERM, SIGHUP };
	sigset_t set;

	sigemptyset(&set);
	for (size_t i = 0; i < ARRAY_SIZE(held); i++) {
		struct sigaction sa;

		if (sigaction(held[i], NULL, &sa) == 0 && sa.sa_handler != SIG_IGN)
			sigaddset(&set, held[i]);
	}
	sigprocmask(SIG_BLOCK, &set, old);
	b->sigfd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
}

static int bisect_run(struct bisect *b, struct den_err *err)
{
	const struct args *a = b->args;
	sigset_t old;
	int r;

	b->opt = (struct den_exec_opt){ .size = sizeof(b->opt),
		.argv = (const char *const *)(a->words + 1),
		.env = (const char *const *)b->env,
		.cwd = a->workdir,
		.user = a->user,
		.timeout_ms = a->timeout,
		.flags = DEN_EXEC_KILL_ON_CLOSE };
	if (points_read(b->box, &b->points, err) < 0 || make_line(b, err) < 0)
		return -1;
	hold_signals(b, &old);
	r = search(b, err);
	fd_close(&b->sigfd);
	sigprocmask(SIG_SETMASK, &old, NULL);
	return r;
}

static int bisect(const struct args *a)
{
	auto_session s = { 0 };
	struct bisect b = { .args = a, .sigfd = -1 };
	struct den_err err = { 0 };
	int status;

	if (env_make(a, &b.env, &err) < 0)
		return cli_fail(a, &err, "see 'den bisect --help'");
	status = session_open(&s, a, a->words[0]);
	b.box = s.box;
	if (!status && bisect_run(&b, &err) < 0)
		status = b.signal ? EXIT_SIGNAL + b.signal : history_fail(a, &err);
	else if (!status)
		status = answer(&b);
	points_free(&b.points);
	free(b.line);
	strv_free(b.env);
	return status;
}

const struct verb verb_bisect = {
	.name = "bisect",
	.words = "BOX [--] COMMAND [ARG]...",
	.summary = "find the checkpoint that broke something",
	.help = "Runs the command in forks of the box, each as the box was at a checkpoint, and\n"
		"names the first where it does not work: status 0 is good, 125 cannot tell, all\n"
		"else is bad. Ten tries are enough for a thousand checkpoints. The box itself is\n"
		"left alone, and no fork stays. What the command prints goes to standard error.\n"
		"\n"
		"Examples:\n"
		"  den bisect web make -C /srv/app test\n"
		"  den bisect --from good --to 40 web -- sh -c 'curl --version | grep -q HTTP2'\n"
		"  den bisect --timeout 1m --quiet web ./check    prints the number alone\n",
	.options = { options_env, bisect_options },
	.min_words = 2,
	.max_words = -1,
	.command = 2,
	.complete = "b-",
	.run = bisect,
};
