/* How long a box stays, and the notes on it. */
#include "box_args.h"
#include "cli.h"
#include "show.h"
#include "verbs.h"

static const struct option_def lease_options[] = {
	{ "extend", 0, OPT_FLAG, offsetof(struct args, extend), NULL, "never make it shorter than it is" },
	{ 0 },
};

static int print_lease(const struct args *a, struct den_box *box, struct den_err *err)
{
	struct den_box_info *info = NULL;
	struct json j = { 0 };
	auto_buf out = { 0 };
	int status;

	if (den_box_info(box, &info, err) < 0)
		return -1;
	if (a->json) {
		json_open(&j, NULL, '{');
		json_str(&j, "id", info->id);
		show_lease_json(&j, info);
		json_close(&j, '}');
		status = cli_print_json(a, &j);
	} else {
		show_lease(&out, info);
		if (!out.len)
			buf_addstr(&out, "no end\n");
		status = cli_print(a, &out);
	}
	den_box_infos_free(info, 1);
	return status;
}

static int lease_one(struct den_box *box, const char *ref, const struct args *a, struct den_err *err)
{
	bool change = a->ttl || a->idle || a->idle_pause || a->on_expire || a->on_idle;
	struct den_lease l;

	(void)ref;
	if (a->extend && !a->ttl)
		return den_fail(err, DEN_INVALID, 0, "--extend says how --ttl is meant; give that, too");
	if (change && (lease_args_make(a, &l, err) < 0 || den_box_lease(box, &l, err) < 0))
		return -1;
	return change && !a->json ? 0 : print_lease(a, box, err);
}

static int lease(const struct args *a)
{
	return cli_each_box(a, lease_one);
}

const struct verb verb_lease = {
	.name = "lease",
	.words = "BOX...",
	.summary = "say how long a box may run, or tell it",
	.help = "Both times count while the box runs; a paused or stopped one is left alone. When\n"
		"its time is up it is deleted, paused or stopped; to start or resume it after\n"
		"that, give it more time first. Idle is a box in which no program is followed, of\n"
		"which nothing is asked but how it is, through whose gate nothing goes, and which\n"
		"uses less than 1 % of a processor.\n"
		"\n"
		"Examples:\n"
		"  den lease web                          what it has\n"
		"  den lease --ttl 1h web                 an hour from now\n"
		"  den lease --ttl 1h --extend web        the same, unless it has more already\n"
		"  den lease --ttl never --idle 15m web   as long as it is used\n",
	.options = { options_lease, lease_options },
	.min_words = 1,
	.max_words = -1,
	.complete = "b",
	.run = lease,
};

/* ---- labels ---- */

static const struct option_def label_options[] = {
	{ "clear", 0, OPT_FLAG, offsetof(struct args, clear), NULL, "take all labels away" },
	{ 0 },
};

static int print_labels(const struct args *a, struct den_box *box)
{
	struct den_box_info *info = NULL;
	struct den_err err = { 0 };
	struct json j = { 0 };
	auto_buf out = { 0 };
	int status;

	if (den_box_info(box, &info, &err) < 0)
		return cli_fail(a, &err, NULL);
	if (a->json) {
		show_strings_json(&j, NULL, info->labels);
		status = cli_print_json(a, &j);
	} else {
		for (size_t i = 0; info->labels && info->labels[i]; i++)
			show_line(&out, "label", info->labels[i]);
		status = cli_print(a, &out);
	}
	den_box_infos_free(info, 1);
	return status;
}

static int label(const struct args *a)
{
	auto_session s = { 0 };
	struct den_err err = { 0 };
	int status;

	if (a->clear && a->n_words > 1) {
		den_fail(&err, DEN_INVALID, 0, "--clear and labels contradict each other; give one of them");
		return cli_fail(a, &err, NULL);
	}
	status = session_open(&s, a, a->words[0]);
	if (status)
		return status;
	if (!a->clear && a->n_words == 1)
		return print_labels(a, s.box);
	if (den_box_label(s.box, (const char *const *)a->words + 1, &err) < 0)
		return cli_fail(a, &err, NULL);
	return a->json ? print_labels(a, s.box) : 0;
}

const struct verb verb_label = {
	.name = "label",
	.words = "BOX [K=V]...",
	.summary = "give a box labels instead of those it has, or print them",
	.help = "Labels are notes for whoever looks for a box; den itself does not read them.\n"
		"\n"
		"Examples:\n"
		"  den label web job=7 team=blue\n"
		"  den ls --json | jq -r '.[] | select(.labels | index(\"job=7\")) | .id'\n",
	.options = { label_options },
	.min_words = 1,
	.max_words = -1,
	.complete = "b-",
	.run = label,
};
