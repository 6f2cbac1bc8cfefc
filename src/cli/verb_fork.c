#include <stdio.h>
#include <string.h>

#include "box_args.h"
#include "cli.h"
#include "mem.h"
#include "net_args.h"
#include "points.h"
#include "saved.h"
#include "show.h"
#include "verbs.h"

#define COUNT_MAX 10000

static const struct option_def fork_options[] = {
	{ "name", 'n', OPT_TEXT, offsetof(struct args, name), "NAME",
		"name the new box; several are NAME-1, NAME-2 and so on" },
	{ "count", 'c', OPT_COUNT, offsetof(struct args, count), "N",
		"make N of them (default: 1)" },
	{ "full", 0, OPT_FLAG, offsetof(struct args, full), NULL,
		"with the programs that run, or ran at that full checkpoint" },
	{ 0 },
};

static int print_fork(const struct args *a, struct den_box *box)
{
	struct den_box_info *info = NULL;
	struct den_err err = { 0 };
	struct json j = { 0 };
	auto_buf out = { 0 };

	if (!a->json) {
		buf_addf(&out, "%s\n", den_box_id(box));
		return cli_print(a, &out);
	}
	if (den_box_info(box, &info, &err) < 0)
		return cli_fail(a, &err, NULL);
	show_box_json(&j, NULL, info);
	den_box_infos_free(info, 1);
	return cli_print_json(a, &j);
}

/* The checkpoint that a fork began as: all that follow begin as the same, whatever runs now. */
static int same_point(struct den_box *fork, char **ref, struct den_err *err)
{
	auto_points p = { 0 };
	const char *origin, *at;

	if (points_read(fork, &p, err) < 0)
		return -1;
	origin = points_origin(&p);
	at = origin ? strrchr(origin, '@') : NULL;
	free(*ref);
	*ref = mem_strdup(at ? at + 1 : "base");
	return 0;
}

/* What the options say is added to what the origin had. Nothing runs in the fork yet; without its policy it
 * is not what was asked for, so it goes again. */
static int fork_policy(struct den_box *made, const struct args *a, struct den_err *err)
{
	auto_net_args n = { 0 };
	struct den_policy *had = NULL;
	int r = -1;

	if (a->net && !strcmp(a->net, "none") && !net_args_given(a))
		n.policy = mem_strdup("{\"version\":1}");
	else if (!net_args_given(a))
		return 0;
	if (den_policy_get(made, &had, err) == 0 && net_args_make(a, had->json, &n, err) == 0)
		r = den_policy_set(made, n.policy, n.name, DEN_ANY_GENERATION, NULL, NULL, err);
	den_policy_free(had);
	if (r < 0)
		den_box_delete(made, true, NULL);
	return r;
}

/* All are copies of the same instant. */
static int fork_instant(struct den_box *box, struct spot *at, const struct args *a, struct den_err *err)
{
	auto_den_saved saved = NULL;
	char ref[24];

	if (at->ref && *at->ref && strcmp(at->ref, "now"))
		return 0;
	if (den_box_fork_point(box, &saved, err) < 0)
		return -1;
	saved_tell(a, saved);
	snprintf(ref, sizeof(ref), "%llu", (unsigned long long)saved->number);
	free(at->ref);
	at->ref = mem_strdup(ref);
	return 0;
}

/* Its programs run from the first moment, so it is made with its policy. */
static int fork_full(struct den_box *box, const struct spot *at, const struct args *a, struct den_box_spec *over,
	struct den_err *err)
{
	auto_net_args n = { 0 };
	auto_den_saved saved = NULL;
	struct den_policy *had = NULL;
	struct den_box *made = NULL;
	int r = 0;

	if (a->net && !strcmp(a->net, "none") && !net_args_given(a))
		n.policy = mem_strdup("{\"version\":1}");
	else if (net_args_given(a))
		r = den_policy_get(box, &had, err) < 0 || net_args_make(a, had->json, &n, err) < 0 ? -1 : 0;
	den_policy_free(had);
	over->policy = n.policy;
	over->policy_name = n.name;
	if (r < 0 || den_box_fork_full(box, at->ref, over, &made, &saved, err) < 0)
		return -1;
	saved_tell(a, saved);
	r = print_fork(a, made);
	den_box_close(made);
	return r;
}

static int fork_one(struct den_box *box, struct spot *at, const struct args *a, uint64_t i,
	uint64_t count, struct den_err *err)
{
	struct den_box_spec over = { .size = sizeof(over) };
	struct den_box *made = NULL;
	auto_buf name = { 0 };
	int status, r = 0;

	if (a->name)
		buf_addstr(&name, a->name);
	if (a->name && args_given(a, "count"))
		buf_addf(&name, "-%llu", (unsigned long long)i + 1);
	over.name = name.len ? buf_str(&name) : NULL;
	if (box_args_lease(a, &over, err) < 0)
		return -1;
	if (a->full)
		return fork_full(box, at, a, &over, err);
	if (den_box_fork_as(box, at->ref, &over, &made, err) < 0)
		return -1;
	if (fork_policy(made, a, err) < 0) {
		den_box_close(made);
		return -1;
	}
	status = print_fork(a, made);
	if (i == 0 && count > 1)
		r = same_point(made, &at->ref, err);
	den_box_close(made);
	return r < 0 ? -1 : status;
}

static int fork_box(const struct args *a)
{
	auto_spot at = { 0 };
	auto_session s = { 0 };
	auto_net_args checked = { 0 };
	struct den_err err = { 0 };
	uint64_t count = a->count ? a->count : 1;
	int status;

	if (count > COUNT_MAX) {
		den_fail(&err, DEN_INVALID, 0, "--count: at most %d", COUNT_MAX);
		return cli_fail(a, &err, NULL);
	}
	if (net_args_make(a, NULL, &checked, &err) < 0)
		return cli_fail(a, &err, "see 'den fork --help'");
	status = spot_open(a, a->words[0], &at, &s);
	if (status)
		return status;
	if (a->full && count > 1 && fork_instant(s.box, &at, a, &err) < 0)
		return history_fail(a, &err);
	for (uint64_t i = 0; i < count && !status; i++) {
		status = fork_one(s.box, &at, a, i, count, &err);
		if (status >= 0)
			continue;
		if (count > 1)
			den_wrap(&err, "fork %llu of %llu", (unsigned long long)i + 1,
				(unsigned long long)count);
		status = history_fail(a, &err);
		if (i)
			cli_note(a, "the %llu before it stay; their ids are on standard output",
				(unsigned long long)i);
	}
	return status;
}

const struct verb verb_fork = {
	.name = "fork",
	.words = "BOX[@CHECKPOINT]",
	.summary = "make a new box that begins as another is or was; prints its id",
	.help = "Its files are those of the box now, or at the checkpoint; from then on both go\n"
		"their own way. It is told apart by id, host name and machine-id, and starts\n"
		"without the other's programs, or with --full with them as they are: the other's\n"
		"are held for a moment and go on, with their connections. It has the other's labels, unless --label names\n"
		"its own, and no deadline but what --ttl and --idle say. It may reach what the other may, and what the\n"
		"options add. 'den merge' brings back what it changed.\n"
		"With --json one object for each, one a line.\n"
		"\n"
		"Examples:\n"
		"  den fork --name try web              as web is now\n"
		"  den fork web@good                    as it was at the checkpoint \"good\"\n"
		"  den fork --count 5 --name try web    try-1 to try-5, all the same\n"
		"  den fork --full --count 10 web       ten copies with everything that runs\n"
		"  den merge try-3 && den rm --force try-1 try-2 try-3 try-4 try-5\n",
	.options = { fork_options, options_lease, options_label, options_net },
	.min_words = 1,
	.max_words = 1,
	.complete = "b",
	.run = fork_box,
};
