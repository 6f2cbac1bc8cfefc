/* den policy set, save, rm, and the verb itself */
#include <string.h>

#include "cli.h"
#include "mem.h"
#include "net_args.h"
#include "policy.h"
#include "strv.h"
#include "verbs.h"

#define SET_TRIES 50 /* each failure is another's success */

/* ---- set ------------------------------------------------------------------------------------- */

static const struct option_def set_options[] = {
	{ "drop", 0, OPT_LIST, offsetof(struct args, drop), "RULE",
		"take a rule away that it has; may be repeated" },
	{ "clear", 0, OPT_FLAG, offsetof(struct args, clear), NULL,
		"begin from nothing, not from what it has" },
	{ "file", 'f', OPT_TEXT, offsetof(struct args, file), "FILE",
		"begin from the policy in FILE (- is standard input)", "clear policy" },
	{ 0 },
};

/* The words after the box are rules that allow. */
static struct args with_rules(const struct args *a)
{
	struct args own = *a;

	own.allow = strv_copy((const char *const *)a->allow);
	for (int i = 1; i < a->n_words; i++)
		strv_add(&own.allow, a->words[i]);
	return own;
}

/* *expect: the generation of what was read and changed, if it was. */
static int set_make(struct den_box *box, const struct args *a, struct net_args *ret, uint64_t *expect,
	struct den_err *err)
{
	auto_free char *base = NULL;
	struct den_policy *had = NULL;
	struct args own;
	int r;

	if (a->net && !strcmp(a->net, "none") && a->n_words == 1 && !net_args_given(a)) {
		ret->policy = mem_strdup("{\"version\":1}");
		return 0;
	}
	if (!net_args_given(a) && a->n_words == 1 && !a->file && !a->clear)
		return den_fail(err, DEN_INVALID, 0,
			"what shall change? A rule, like example.com:443, or an option: --allow, "
			"--drop, --file");
	if (a->file) {
		if (net_policy_read(a->file, &base, err) < 0)
			return den_wrap(err, "--file");
	} else if (!a->clear) {
		if (den_policy_get(box, &had, err) < 0)
			return -1;
		base = had->json ? mem_strdup(had->json) : NULL;
		*expect = had->generation;
		den_policy_free(had);
	}
	own = with_rules(a);
	r = net_args_make(&own, base, ret, err);
	strv_free(own.allow);
	if (r < 0)
		return -1;
	if (!ret->policy && !ret->name)
		ret->policy = mem_strdup(base ? base : "{\"version\":1}");
	return 0;
}

/* Others may change it in the same moment: then what is asked for is added to what they made of it. */
static int set_once(struct den_box *box, const struct args *a, uint64_t *generation, uint64_t *ended,
	struct den_err *err)
{
	auto_net_args n = { 0 };
	uint64_t expect = DEN_ANY_GENERATION;

	return set_make(box, a, &n, &expect, err) < 0 ||
			den_policy_set(box, n.policy, n.name, expect, generation, ended, err) < 0 ? -1 : 0;
}

static int policy_set(const struct args *a)
{
	auto_session s = { 0 };
	auto_buf out = { 0 };
	struct den_err err = { 0 };
	struct json j = { 0 };
	uint64_t generation = 0, ended = 0;
	int status = session_open(&s, a, a->words[0]), tries = 0, r;

	if (status)
		return status;
	do
		r = set_once(s.box, a, &generation, &ended, &err);
	while (r < 0 && err.code == DEN_CONFLICT && ++tries < SET_TRIES);
	if (r < 0)
		return cli_fail(a, &err, NULL);
	if (a->json) {
		json_open(&j, NULL, '{');
		json_u64(&j, "generation", generation);
		json_u64(&j, "ended", ended);
		json_close(&j, '}');
		return cli_print_json(a, &j);
	}
	if (a->quiet)
		return 0;
	buf_addf(&out, "generation %llu", (unsigned long long)generation);
	if (ended)
		buf_addf(&out, ", %llu connection%s ended", (unsigned long long)ended,
			ended == 1 ? "" : "s");
	buf_addstr(&out, "\n");
	return cli_print(a, &out);
}

static const struct verb verb_policy_set = {
	.name = "set",
	.words = "BOX [RULE]...",
	.summary = "change what a box may reach, also while it runs",
	.help = "Rules and options are added to what the box has; limits take the place of old\n"
		"ones. --clear begins from nothing, --file from a file, --policy NAME makes the\n"
		"box follow a stored policy. When the command is done the new policy is in force:\n"
		"connections that it does not allow are ended.\n"
		"\n"
		"Examples:\n"
		"  den policy set web example.com '*.example.org:443'  allow two more\n"
		"  den policy set web --drop example.com               no longer\n"
		"  den policy set web --deny '*.ads.example'           never, whatever else is "
		"said\n"
		"  den policy set web --clear --preset registries      this and nothing else\n"
		"  den policy show web >p; den policy set web --file p with an editor between\n"
		"  den policy set web --net none                       nothing at all\n",
	.options = { options_net, set_options },
	.min_words = 1,
	.max_words = -1,
	.complete = "b-",
	.run = policy_set,
};

/* ---- save, rm -------------------------------------------------------------------------------- */

static int name_check(const char *name, struct den_err *err)
{
	if (policy_preset_find(name))
		return den_fail(err, DEN_INVALID, 0, "'%s' is a preset; choose another name", name);
	if (net_policy_is_file(name))
		return den_fail(err, DEN_INVALID, 0,
			"'%.60s' would be taken for a file; choose a name without / and .json",
			name);
	return 0;
}

static int policy_save(const struct args *a)
{
	auto_session s = { 0 };
	auto_free char *json = NULL;
	struct den_err err = { 0 };

	if (name_check(a->words[0], &err) < 0 || net_policy_read(a->words[1], &json, &err) < 0 ||
		cli_open(a, &s.den, &err) < 0 ||
		den_policy_save(s.den, a->words[0], json, &err) < 0)
		return cli_fail(a, &err, NULL);
	return 0;
}

static const struct verb verb_policy_save = {
	.name = "save",
	.words = "NAME FILE",
	.summary = "keep a policy under a name, for many boxes",
	.help = "FILE is JSON, - is standard input. It is checked first. A name that is there\n"
		"already gets the new policy, and so do the boxes that follow it.\n"
		"\n"
		"Examples:\n"
		"  den policy save ci ./ci.json && den run --policy ci make test\n"
		"  den policy show web | den policy save like-web -\n",
	.min_words = 2,
	.max_words = 2,
	.complete = "-f",
	.run = policy_save,
};

static int policy_rm(const struct args *a)
{
	auto_session s = { 0 };
	struct den_err err = { 0 };
	int first = 0;

	if (cli_open(a, &s.den, &err) < 0)
		return cli_fail(a, &err, NULL);
	for (int i = 0; i < a->n_words; i++) {
		int status = 0;

		if (policy_preset_find(a->words[i])) {
			den_fail(&err, DEN_INVALID, 0, "'%s' is a preset and stays", a->words[i]);
			status = cli_fail(a, &err, NULL);
		} else if (den_policy_remove(s.den, a->words[i], &err) < 0) {
			status = cli_fail(a, &err, NULL);
		}
		first = first ? first : status;
	}
	return first;
}

static const struct verb verb_policy_rm = {
	.name = "rm",
	.words = "NAME...",
	.summary = "forget stored policies",
	.help = "One that a box follows stays; give the box another first.\n"
		"\n"
		"Examples:\n"
		"  den policy rm ci\n",
	.min_words = 1,
	.max_words = -1,
	.complete = "-",
	.run = policy_rm,
};

/* ---- the verb -------------------------------------------------------------------------------- */

static const struct verb *const policy_verbs[] = {
	&verb_policy_show,
	&verb_policy_set,
	&verb_policy_ls,
	&verb_policy_save,
	&verb_policy_rm,
	&verb_policy_schema,
	NULL,
};

const struct verb verb_policy = {
	.name = "policy",
	.words = "...",
	.summary = "show and change what boxes may reach",
	.help = "A box reaches nothing that its policy does not allow. It is given with the\n"
		"options of 'den run' and 'den create' or a file, and can be changed at any time.\n"
		"\n"
		"Examples:\n"
		"  den policy show web             what the box may reach\n"
		"  den policy show registries      what a preset allows\n"
		"  den policy set web example.com  allow one more name\n"
		"  den policy save ci ./ci.json    keep one for many boxes\n"
		"  den policy schema               JSON Schema of policies, for editors\n",
	.subs = policy_verbs,
};
