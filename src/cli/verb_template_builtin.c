/* den template builtin */
#include <string.h>

#include "buf.h"
#include "builtin.h"
#include "cli.h"
#include "mem.h"
#include "show.h"
#include "table.h"
#include "template.h"
#include "verbs.h"

static void list_json(struct json *j, const struct builtin_info *list, size_t n)
{
	json_open(j, NULL, '[');
	for (size_t i = 0; i < n; i++) {
		json_open(j, NULL, '{');
		json_str(j, "name", list[i].name);
		json_str(j, "alias", list[i].alias);
		json_str(j, "state", builtin_state_str(list[i].state));
		json_str(j, "id", list[i].id);
		json_str(j, "summary", list[i].summary);
		json_close(j, '}');
	}
	json_close(j, ']');
}

static void list_table(struct buf *out, const struct builtin_info *list, size_t n)
{
	static const char *const heads[] = { "NAME", "STATE", "ID", "WHAT" };
	auto_table t = { .cols = ARRAY_SIZE(heads), .heads = heads };

	for (size_t i = 0; i < n; i++) {
		table_cell(&t, list[i].name);
		table_cell(&t, builtin_state_str(list[i].state));
		table_cellf(&t, "%.12s", list[i].id ? list[i].id : "-");
		table_cell(&t, list[i].summary);
	}
	table_print(&t, out);
}

static int list_print(const struct args *a, const struct builtin_info *list, size_t n)
{
	struct json j = { 0 };
	auto_buf out = { 0 };

	if (a->json) {
		list_json(&j, list, n);
		return cli_print_json(a, &j);
	}
	if (!a->quiet)
		list_table(&out, list, n);
	for (size_t i = 0; i < n && a->quiet; i++)
		buf_addf(&out, "%s\n", list[i].name);
	return cli_print(a, &out);
}

static int list_all(const struct args *a)
{
	struct builtin_info *list;
	struct den_err err = { 0 };
	struct den *d = NULL;
	size_t n = 0;
	int status;

	if (a->full || a->with || a->packages || a->force) {
		den_fail(&err, DEN_INVALID, 0, "which one? NAME is missing");
		return cli_fail(a, &err, "'den template builtin' lists them");
	}
	if (cli_open(a, &d, &err) < 0)
		return cli_fail(a, &err, NULL);
	if (builtin_list(d, &list, &n, &err) < 0) {
		status = cli_fail(a, &err, NULL);
	} else {
		status = list_print(a, list, n);
		builtin_infos_free(list, n);
	}
	den_close(d);
	return status;
}

static int made_print(const struct args *a, const struct builtin_made *m)
{
	struct json j = { 0 };
	auto_buf out = { 0 };

	if (!a->json) {
		for (char **w = m->warnings; w && *w; w++)
			cli_note(a, "warning: %s", *w);
		cli_note(a, "%s is %s", m->name, m->made ? "made" : "up to date");
		buf_addf(&out, "%s\n", m->id);
		return cli_print(a, &out);
	}
	json_open(&j, NULL, '{');
	json_str(&j, "name", m->name);
	json_str(&j, "id", m->id);
	json_bool(&j, "made", m->made);
	show_strings_json(&j, "warnings", (const char *const *)m->warnings);
	json_close(&j, '}');
	return cli_print_json(a, &j);
}

static int template_builtin(const struct args *a)
{
	struct builtin_opt opt = { .packages = a->packages, .with = a->with, .force = a->force };
	struct builtin_made made = { 0 };
	auto_buf with = { 0 };
	struct template_job job;
	struct den_err err = { 0 };
	int r, status;

	if (!a->n_words)
		return list_all(a);
	if (a->full) {
		buf_addf(&with, "full%s%s", a->with ? "," : "", a->with ? a->with : "");
		opt.with = buf_str(&with);
	}
	status = template_job_begin(&job, a);
	if (status)
		return status;
	r = builtin_make(&job.work, a->words[0], &opt, &made, &err);
	status = template_job_end(&job, r, NULL, NULL, &err, NULL);
	if (r == 0)
		status = made_print(a, &made);
	builtin_made_free(&made);
	return status;
}

static const struct option_def builtin_options[] = {
	{ "packages", 'p', OPT_TEXT, offsetof(struct args, packages), "A,B",
		"install these with apt-get, too" },
	{ "with", 0, OPT_TEXT, offsetof(struct args, with), "A,B",
		"code-interpreter: also r, javascript, typescript" },
	{ "full", 0, OPT_FLAG, offsetof(struct args, full), NULL,
		"code-interpreter: also scipy, sklearn, seaborn and others" },
	{ "force", 'f', OPT_FLAG, offsetof(struct args, force), NULL,
		"also when it is up to date, or the name is another template's" },
	{ 0 },
};

const struct verb verb_template_builtin = {
	.name = "builtin",
	.words = "[NAME]",
	.summary = "make a template that den knows how to make, or list those; prints its id",
	.help = "'base' is this machine's own system with an account 'user', as E2B's clients\n"
		"expect it. 'code-interpreter-v1' is base with a server on port 49999 that runs\n"
		"Python, JavaScript and bash by cells, in E2B's dialect. Nothing is done when it "
		"is\n"
		"up to date.\n"
		"\n"
		"Packages that this machine has need not be installed: boxes use its own. For "
		"others\n"
		"the box that makes the template may reach package mirrors for a while. The next\n"
		"time, --packages and --with are what they were unless they are given.\n"
		"\n"
		"Examples:\n"
		"  den template builtin                          which there are, and are built\n"
		"  den template builtin base --packages git,curl\n"
		"  den template builtin code-interpreter --with r\n",
	.options = { builtin_options },
	.max_words = 1,
	.complete = "-",
	.run = template_builtin,
};
