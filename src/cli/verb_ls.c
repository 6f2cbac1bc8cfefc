#include "cli.h"
#include "mem.h"
#include "show.h"
#include "table.h"
#include "verbs.h"

static void list_json(struct json *j, const struct den_box_info *infos, size_t n)
{
	json_open(j, NULL, '[');
	for (size_t i = 0; i < n; i++)
		show_box_json(j, NULL, &infos[i]);
	json_close(j, ']');
}

static const char *note(const struct den_box_info *b)
{
	if (b->on_disk && b->hibernated)
		return "hibernated";
	if (b->on_disk)
		return b->reason ? "on disk: it was idle, or its time was up" : "on disk";
	return b->reason ? b->reason : b->ephemeral ? "ephemeral" : NULL;
}

static void list_table(struct buf *out, const struct den_box_info *infos, size_t n)
{
	static const char *const heads[] = { "ID", "NAME", "STATE", "TEMPLATE", ">AGE", "NOTE" };
	auto_table t = { .cols = ARRAY_SIZE(heads), .heads = heads };

	for (size_t i = 0; i < n; i++) {
		const struct den_box_info *b = &infos[i];

		table_cell(&t, b->id);
		table_cell(&t, b->name);
		table_cell(&t, b->state);
		table_cell(&t, b->template_name);
		table_age(&t, b->created_ms);
		table_cell(&t, note(b));
	}
	table_print(&t, out);
}

static int list(const struct args *a)
{
	struct den *d = NULL;
	struct den_box_info *infos = NULL;
	struct den_err err = { 0 };
	struct json j = { 0 };
	size_t n = 0;
	int status;

	if (cli_open(a, &d, &err) < 0)
		return cli_fail(a, &err, NULL);
	if (den_list(d, &infos, &n, &err) < 0) {
		status = cli_fail(a, &err, NULL);
		den_close(d);
		return status;
	}
	if (a->quiet)
		for (size_t i = 0; i < n; i++)
			buf_addf(&j.b, "%s\n", infos[i].id);
	else if (!a->json)
		list_table(&j.b, infos, n);
	else
		list_json(&j, infos, n);
	den_box_infos_free(infos, n);
	den_close(d);
	if (a->json && !a->quiet)
		return cli_print_json(a, &j);
	status = cli_print(a, &j.b);
	buf_free(&j.b);
	return status;
}

const struct verb verb_ls = {
	.name = "ls",
	.summary = "list the boxes",
	.help = "All of them, the oldest first. With --quiet only their ids, one a line.\n"
		"\n"
		"Examples:\n"
		"  den ls\n"
		"  den ls --quiet | wc -l\n"
		"  den ls --json | jq '.[] | select(.state == \"stopped\") | .id'\n",
	.complete = "-",
	.run = list,
};
