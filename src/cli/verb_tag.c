#include <stdio.h>
#include <string.h>

#include "cli.h"
#include "mem.h"
#include "points.h"
#include "table.h"
#include "verbs.h"

static const struct option_def tag_options[] = {
	{ "delete", 'd', OPT_FLAG, offsetof(struct args, remove), NULL,
		"take the tag away; the checkpoint stays" },
	{ 0 },
};

static void tag_row(const struct args *a, const struct den_checkpoint *c, const char *tag,
	struct json *j, struct table *t)
{
	auto_buf text = { 0 };

	if (a->json) {
		json_open(j, NULL, '{');
		json_str(j, "tag", tag);
		json_u64(j, "number", c->number);
		json_close(j, '}');
	} else if (a->quiet) {
		buf_addf(&j->b, "%s\n", tag);
	} else {
		point_text(&text, c, 60);
		table_cell(t, tag);
		table_cellf(t, "%llu", (unsigned long long)c->number);
		table_age(t, c->created_ms);
		table_cell(t, buf_str(&text));
	}
}

static int list_tags(const struct args *a, struct den_box *box)
{
	static const char *const heads[] = { "TAG", ">N", ">AGE", "WHAT" };
	auto_table t = { .cols = ARRAY_SIZE(heads), .heads = heads };
	auto_points p = { 0 };
	struct den_err err = { 0 };
	struct json j = { 0 };
	int status;

	if (points_read(box, &p, &err) < 0)
		return history_fail(a, &err);
	if (a->json)
		json_open(&j, NULL, '[');
	for (size_t i = 0; i < p.n; i++) {
		for (const char *tag = p.v[i].tags ? p.v[i].tags : ""; *tag;) {
			size_t n = strcspn(tag, " ");
			auto_free char *one = mem_strndup(tag, n);

			tag_row(a, &p.v[i], one, &j, &t);
			tag += n + (tag[n] == ' ');
		}
	}
	if (a->json) {
		json_close(&j, ']');
		return cli_print_json(a, &j);
	}
	if (!a->quiet)
		table_print(&t, &j.b);
	status = cli_print(a, &j.b);
	buf_free(&j.b);
	return status;
}

static int tag(const struct args *a)
{
	auto_spot at = { 0 };
	auto_session s = { 0 };
	struct den_err err = { 0 };
	int status;

	if (a->remove && a->n_words < 2) {
		den_fail(&err, DEN_INVALID, 0, "which tag? den tag --delete BOX NAME");
		return cli_fail(a, &err, NULL);
	}
	status = spot_open(a, a->words[0], &at, &s);
	if (status)
		return status;
	if (at.ref && (a->remove || a->n_words < 2)) {
		den_fail(&err, DEN_INVALID, 0, "'%.60s': %s", a->words[0],
			a->remove
				? "a tag is taken away by its name alone: den tag --delete BOX NAME"
				: "what shall it be called? den tag BOX@CHECKPOINT NAME");
		return cli_fail(a, &err, NULL);
	}
	if (a->n_words < 2)
		return list_tags(a, s.box);
	if (den_tag(s.box, at.ref, a->words[1], a->remove, &err) < 0)
		return history_fail(a, &err);
	return 0;
}

const struct verb verb_tag = {
	.name = "tag",
	.words = "BOX[@CHECKPOINT] [NAME]",
	.summary = "name a checkpoint, which keeps it; or list the names",
	.help = "Without a checkpoint it is head. A name that another checkpoint has moves. One\n"
		"with a name is never thinned out, not even by 'den prune --all'.\n"
		"\n"
		"Examples:\n"
		"  den tag web good             the newest checkpoint\n"
		"  den tag web@7 before-update  an older one\n"
		"  den rollback web good        its use\n"
		"  den tag web                  all of them\n"
		"  den tag --delete web good\n",
	.options = { tag_options },
	.min_words = 1,
	.max_words = 2,
	.complete = "br",
	.run = tag,
};
