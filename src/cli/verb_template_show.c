/* den template ls, den template inspect */
#include <string.h>

#include "build.h"
#include "cli.h"
#include "json_text.h"
#include "mem.h"
#include "show.h"
#include "table.h"
#include "verbs.h"

static void brief_json(struct json *j, const struct den_template *t)
{
	json_str(j, "name", t->name);
	json_str(j, "id", t->id);
	json_str(j, "parent", t->parent);
	json_str(j, "detail", t->detail);
	json_u64(j, "bytes", t->bytes);
	json_time(j, "created", t->created_ms);
	json_str(j, "user", t->user);
	json_str(j, "workdir", t->workdir);
	show_strings_json(j, "env", t->env);
	show_strings_json(j, "entrypoint", t->entrypoint);
	show_strings_json(j, "cmd", t->cmd);
	show_strings_json(j, "layers", t->layers);
	show_strings_json(j, "diff_ids", t->diff_ids);
}

/* The part of the detail that fits in a line. */
static void detail_cell(struct table *t, const char *detail)
{
	auto_buf b = { 0 };

	if (detail)
		buf_add(&b, detail, strcspn(detail, "\n"));
	table_cell(t, buf_str(&b));
}

static void list_table(struct buf *out, const struct den_template *list, size_t n, bool all)
{
	static const char *const heads[] = { "NAME", "ID", ">SIZE", ">AGE", "DETAIL" };
	auto_table t = { .cols = ARRAY_SIZE(heads), .heads = heads };

	for (size_t i = 0; i < n; i++) {
		const struct den_template *e = &list[i];

		if (!all && e->name && !strncmp(e->name, BUILD_CACHE, strlen(BUILD_CACHE)))
			continue;
		table_cell(&t, e->name);
		table_cellf(&t, "%.12s", e->id ? e->id : "-");
		if (e->bytes)
			table_size(&t, e->bytes);
		else
			table_cell(&t, NULL);
		if (e->created_ms)
			table_age(&t, e->created_ms);
		else
			table_cell(&t, NULL);
		detail_cell(&t, e->detail);
	}
	table_print(&t, out);
}

static int list_print(const struct args *a, const struct den_template *list, size_t n)
{
	struct json j = { 0 };
	auto_buf out = { 0 };

	if (a->json && !a->quiet)
		json_open(&j, NULL, '[');
	for (size_t i = 0; i < n && (a->json || a->quiet); i++) {
		if (!a->all && list[i].name &&
			!strncmp(list[i].name, BUILD_CACHE, strlen(BUILD_CACHE)))
			continue;
		if (a->quiet) {
			buf_addf(&out, "%s\n", list[i].name ? list[i].name : list[i].id);
			continue;
		}
		json_open(&j, NULL, '{');
		brief_json(&j, &list[i]);
		json_close(&j, '}');
	}
	if (a->json && !a->quiet) {
		json_close(&j, ']');
		return cli_print_json(a, &j);
	}
	if (!a->quiet)
		list_table(&out, list, n, a->all);
	return cli_print(a, &out);
}

static int template_ls(const struct args *a)
{
	struct den *d = NULL;
	struct den_template *list = NULL;
	struct den_err err = { 0 };
	size_t n = 0;
	int status;

	if (cli_open(a, &d, &err) < 0)
		return cli_fail(a, &err, NULL);
	if (den_templates(d, &list, &n, &err) < 0) {
		status = cli_fail(a, &err, NULL);
	} else {
		status = list_print(a, list, n);
		den_templates_free(list, n);
	}
	den_close(d);
	return status;
}

static const struct option_def ls_options[] = {
	{ "all", 0, OPT_FLAG, offsetof(struct args, all), NULL, "also the cached steps of builds" },
	{ 0 },
};

const struct verb verb_template_ls = {
	.name = "ls",
	.summary = "list the templates",
	.help = "With --quiet only their names, one a line.\n"
		"\n"
		"Examples:\n"
		"  den template ls\n"
		"  den template ls --json | jq -r '.[] | select(.bytes > 1e9).name'\n",
	.options = { ls_options },
	.complete = "-",
	.run = template_ls,
};

static void command_line(struct buf *out, const char *key, const char *const *argv)
{
	auto_buf text = { 0 };

	if (!argv || !*argv)
		return;
	show_argv(&text, argv);
	show_line(out, key, buf_str(&text));
}

static void template_text(struct buf *out, const struct den_template *t)
{
	show_line(out, "name", t->name);
	show_line(out, "id", t->id);
	show_line(out, "stands on", t->parent);
	for (const char *p = t->detail ? t->detail : ""; *p;
		p += strcspn(p, "\n"), p += *p == '\n') {
		auto_free char *part = mem_strndup(p, strcspn(p, "\n"));

		show_line(out, "detail", part);
	}
	show_line_size(out, "size", t->bytes);
	show_line_time(out, "created", t->created_ms);
	show_line(out, "user", t->user);
	show_line(out, "workdir", t->workdir);
	for (const char *const *e = t->env; e && *e; e++)
		show_line(out, "env", *e);
	command_line(out, "entrypoint", t->entrypoint);
	command_line(out, "cmd", t->cmd);
	for (const char *const *l = t->layers; l && *l; l++)
		show_line(out, "layer", *l);
}

/* The configuration goes in as it is, if it is JSON at all. */
static void template_json(struct json *j, const struct den_template *t)
{
	auto_free char *config = NULL;

	json_open(j, NULL, '{');
	brief_json(j, t);
	if (t->config && json_compact(t->config, &config, NULL) == 0)
		buf_addf(&j->b, ",\"config\":%s", config);
	else
		json_nothing(j, "config");
	json_close(j, '}');
}

static int inspect_one(struct den *d, const char *ref, const struct args *a, struct den_err *err)
{
	struct den_template *t = NULL;
	struct json j = { 0 };
	auto_buf out = { 0 };

	if (den_template_get(d, ref, &t, err) < 0)
		return -1;
	if (a->json)
		template_json(&j, t);
	else
		template_text(&out, t);
	den_templates_free(t, 1);
	return a->json ? cli_print_json(a, &j) : cli_print(a, &out);
}

static int template_inspect(const struct args *a)
{
	return cli_each_word(a, inspect_one, "'den template ls' lists them");
}

const struct verb verb_template_inspect = {
	.name = "inspect",
	.words = "TEMPLATE...",
	.summary = "tell everything about a template",
	.help = "With --json one object for each, one a line, with the image's configuration.\n"
		"\n"
		"Examples:\n"
		"  den template inspect debian:bookworm\n"
		"  den template inspect --json app | jq .config.config.Labels\n",
	.min_words = 1,
	.max_words = -1,
	.complete = "t",
	.run = template_inspect,
};
