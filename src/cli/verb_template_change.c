/* den template create, tag, rm, verify */
#include <string.h>

#include "box_args.h"
#include "build.h"
#include "cli.h"
#include "mem.h"
#include "strv.h"
#include "template.h"
#include "verbs.h"

static const struct option_def create_options[] = {
	{ "from", 0, OPT_TEXT, offsetof(struct args, from), "BOX[@REF]",
		"the box, as it is now or was at a checkpoint" },
	{ 0 },
};

/* What a box made from it gets: what this one was made with, or the options say otherwise. */
static int create_commit(const struct args *a, struct template_job *job, struct den_box *box,
	const char *ref, char **ret_id, struct den_err *err)
{
	struct den_box_info *info = NULL;
	auto_template below = NULL;
	auto_strv env = NULL;
	auto_strv more = NULL;
	struct den_template_opt opt = { .size = sizeof(opt), .name = a->words[0] };
	auto_buf detail = { 0 };
	int r;

	if (env_make(a, &more, err) < 0 || den_box_info(box, &info, err) < 0)
		return -1;
	/* its start command comes from its own template, where there is one */
	if (info->template_name &&
		den_template_get(job->work.den, info->template_name, &below, NULL) == 0) {
		opt.entrypoint = below->entrypoint;
		opt.cmd = below->cmd;
		opt.config = below->config;
		env = strv_copy(below->env);
	}
	for (const char *const *e = info->env; e && *e; e++)
		strv_env_put(&env, *e);
	for (char **e = more; e && *e; e++)
		strv_env_put(&env, *e);
	if (a->n_words > 1) {
		opt.entrypoint = NULL;
		opt.cmd = (const char *const *)(a->words + 1);
	}
	opt.env = (const char *const *)env;
	opt.user = a->user ? a->user : info->user;
	opt.workdir = a->workdir ? a->workdir : info->workdir;
	buf_addf(&detail, "made from box %s%s%s", info->name ? info->name : info->id,
		ref ? "@" : "", ref ? ref : "");
	opt.detail = buf_str(&detail);
	r = den_template_commit(box, ref, &opt, ret_id, err);
	den_box_infos_free(info, 1);
	return r;
}

static int template_create(const struct args *a)
{
	auto_free char *from = NULL, *id = NULL;
	struct den_box *box = NULL;
	struct template_job job;
	struct den_err err = { 0 };
	char *at;
	int r, status;

	if (!a->from) {
		den_fail(&err, DEN_INVALID, 0, "which box? --from BOX is missing");
		return cli_fail(a, &err, "see 'den template create --help'");
	}
	status = template_job_begin(&job, a);
	if (status)
		return status;
	from = mem_strdup(a->from);
	at = strchr(from, '@');
	if (at)
		*at++ = '\0';
	r = den_box_open(job.work.den, from, &box, &err);
	if (r == 0)
		r = create_commit(a, &job, box, at, &id, &err);
	den_box_close(box);
	return template_job_end(&job, r, a->words[0], id, &err, NULL);
}

const struct verb verb_template_create = {
	.name = "create",
	.words = "NAME [--] [COMMAND [ARG]...]",
	.summary = "make a template from a box; prints its id",
	.help = "The box goes on running. User, working directory and environment are those the\n"
		"box was made with, unless the options say otherwise; COMMAND is what 'den run'\n"
		"starts when it is given none. Host directories that are mounted in the box are\n"
		"not part of it. NAME may exist: it then means the new one.\n"
		"\n"
		"Examples:\n"
		"  den template create tools --from web               as it is now\n"
		"  den template create tools --from web@12            as it was at checkpoint 12\n"
		"  den template create app --from web --workdir /srv -- ./server\n",
	.options = { create_options, options_env },
	.min_words = 1,
	.max_words = -1,
	.command = 2,
	.complete = "-",
	.run = template_create,
};

static int template_tag(const struct args *a)
{
	struct den *d = NULL;
	struct den_err err = { 0 };
	int r = cli_open(a, &d, &err);

	if (r == 0)
		r = den_template_tag(d, a->words[0], a->words[1], &err);
	den_close(d);
	return r < 0 ? cli_fail(a, &err,
			       err.code == DEN_NOT_FOUND ? "'den template ls' lists them" : NULL)
		     : 0;
}

const struct verb verb_template_tag = {
	.name = "tag",
	.words = "TEMPLATE NAME",
	.summary = "give a template another name",
	.help = "Both names mean it then. A NAME that meant another template means this one from\n"
		"now on; boxes of the other do not notice.\n"
		"\n"
		"Examples:\n"
		"  den template tag app:2 app:stable\n"
		"  den template tag 3f1c5d0a9b7e base\n",
	.min_words = 2,
	.max_words = 2,
	.complete = "t-",
	.run = template_tag,
};

static const struct option_def rm_options[] = {
	{ "force", 'f', OPT_FLAG, offsetof(struct args, force), NULL,
		"also the last name of one that boxes stand on; they keep it" },
	{ "cache", 0, OPT_FLAG, offsetof(struct args, cache), NULL, "all cached steps of builds" },
	{ 0 },
};

static int remove_one(struct den *d, const char *name, const struct args *a, struct den_err *err)
{
	return den_template_remove(d, name, a->force, err);
}

static int remove_cache(const struct args *a)
{
	struct den *d = NULL;
	struct den_template *list = NULL;
	struct den_err err = { 0 };
	size_t n = 0;
	int r = cli_open(a, &d, &err);

	if (r == 0)
		r = den_templates(d, &list, &n, &err);
	for (size_t i = 0; r == 0 && i < n; i++)
		if (list[i].name && !strncmp(list[i].name, BUILD_CACHE, strlen(BUILD_CACHE)))
			r = den_template_remove(d, list[i].name, true, &err);
	den_templates_free(list, n);
	den_close(d);
	return r < 0 ? cli_fail(a, &err, NULL) : 0;
}

static int template_rm(const struct args *a)
{
	struct den_err err = { 0 };
	int first, status;

	if (!a->n_words && !a->cache) {
		den_fail(&err, DEN_INVALID, 0, "too few arguments; it takes: NAME... or --cache");
		return cli_fail(a, &err, "see 'den template rm --help'");
	}
	first = a->cache ? remove_cache(a) : 0;
	status = cli_each_word(a, remove_one, NULL);
	return first ? first : status;
}

const struct verb verb_template_rm = {
	.name = "rm",
	.words = "NAME...",
	.summary = "take a name away; what has none left is deleted",
	.help = "What a box stands on stays as long as the box does.\n"
		"\n"
		"Examples:\n"
		"  den template rm app:1\n"
		"  den template rm --cache             what builds keep to be faster\n",
	.options = { rm_options },
	.max_words = -1,
	.complete = "t",
	.run = template_rm,
};

static int verify_one(struct den *d, const char *ref, const struct args *a, struct den_err *err)
{
	if (den_template_verify(d, ref, err) < 0)
		return den_wrap(err, "%.80s", ref);
	cli_note(a, "%s is what it was made as", ref);
	return 0;
}

static int template_verify(const struct args *a)
{
	return cli_each_word(a, verify_one, NULL);
}

const struct verb verb_template_verify = {
	.name = "verify",
	.words = "TEMPLATE...",
	.summary = "read all of a template and compare it with its digests",
	.help = "Leaves with 4 when something was changed on disk, and tells which layer.\n"
		"\n"
		"Examples:\n"
		"  den template verify debian:bookworm\n"
		"  den template verify $(den template ls --quiet | grep -v '^host$')\n",
	.min_words = 1,
	.max_words = -1,
	.complete = "t",
	.run = template_verify,
};

/* ---- bake ---- */

static const struct option_def bake_options[] = {
	{ "from", 0, OPT_TEXT, offsetof(struct args, from), "BOX[@REF]",
		"the box, as it is now or was at a full checkpoint" },
	{ "full", 0, OPT_FLAG, offsetof(struct args, full), NULL, "with the programs that run in it" },
	{ 0 },
};

static int template_bake(const struct args *a)
{
	auto_free char *from = a->from ? mem_strdup(a->from) : NULL;
	struct den_box *box = NULL;
	struct den_err err = { 0 };
	struct den *d = NULL;
	char *at = from ? strchr(from, '@') : NULL;
	int r;

	if (!from || !a->full) {
		den_fail(&err, DEN_INVALID, 0, !from ? "which box? --from BOX is missing" :
			"--full is missing; without programs a template is made by 'den template create'");
		return cli_fail(a, &err, "see 'den template bake --help'");
	}
	if (at)
		*at++ = '\0';
	if (cli_open(a, &d, &err) < 0)
		return cli_fail(a, &err, NULL);
	r = den_box_open(d, from, &box, &err);
	if (r == 0)
		r = den_template_bake(box, at, a->words[0], &err);
	den_box_close(box);
	r = r < 0 ? cli_fail(a, &err, NULL) : 0;
	den_close(d);
	return r;
}

const struct verb verb_template_bake = {
	.name = "bake",
	.words = "NAME",
	.summary = "make a template whose boxes begin with programs running",
	.help = "Boxes of it begin with the memory of the box's programs as it is now, or was at\n"
		"a full checkpoint: an interpreter, a browser or a language server that is warm\n"
		"already. Each is a box of its own, as a full fork is. 'den template rm' removes\n"
		"it.\n"
		"\n"
		"Examples:\n"
		"  den template bake warm --from web --full\n"
		"  den create --template warm\n",
	.options = { bake_options },
	.min_words = 1,
	.max_words = 1,
	.run = template_bake,
};
