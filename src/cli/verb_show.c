#include <stdio.h>

#include "cli.h"
#include "points.h"
#include "show.h"
#include "verbs.h"

static void point_lines(struct buf *out, const struct den_checkpoint *c)
{
	buf_addf(out, "%-13s%llu%s\n", "number", (unsigned long long)c->number,
		c->head ? " (head)" : "");
	if (c->parent >= 0)
		buf_addf(out, "%-13s%lld\n", "parent", (long long)c->parent);
	buf_addf(out, "%-13s%llu\n", "turn", (unsigned long long)c->turn);
	show_line(out, "kind", c->kind);
	show_line_time(out, "made", c->created_ms);
	show_line(out, "tags", c->tags);
	show_line(out, "origin", c->origin);
	show_line_size(out, "size", c->size);
	show_line(out, "message", c->message);
}

static int on_change_text(const struct den_change *c, void *user, struct den_err *err)
{
	(void)err;
	change_line(user, c);
	return 0;
}

static int on_change_json(const struct den_change *c, void *user, struct den_err *err)
{
	(void)err;
	change_json(user, NULL, c);
	return 0;
}

static int changes(struct den_box *box, const struct den_checkpoint *c, den_change_fn fn,
	void *user, struct den_err *err)
{
	char from[24], to[24];

	if (c->parent < 0)
		return 0;
	snprintf(from, sizeof(from), "%lld", (long long)c->parent);
	snprintf(to, sizeof(to), "%llu", (unsigned long long)c->number);
	return den_diff(box, from, to, fn, user, err);
}

/* The checkpoint's object with one member more. */
static int show_json(const struct args *a, struct den_box *box, const struct den_checkpoint *c)
{
	struct den_err err = { 0 };
	struct json j = { 0 };

	json_open(&j, NULL, '{');
	point_json(&j, "checkpoint", c);
	json_open(&j, "changes", '[');
	if (changes(box, c, on_change_json, &j, &err) < 0) {
		buf_free(&j.b);
		return cli_fail(a, &err, NULL);
	}
	json_close(&j, ']');
	json_close(&j, '}');
	return cli_print_json(a, &j);
}

static int show(const struct args *a)
{
	auto_spot at = { 0 };
	auto_session s = { 0 };
	auto_points p = { 0 };
	auto_buf out = { 0 }, lines = { 0 };
	const struct den_checkpoint *c;
	struct den_err err = { 0 };
	int status = spot_open(a, a->words[0], &at, &s);

	if (status)
		return status;
	if (points_read(s.box, &p, &err) < 0)
		return history_fail(a, &err);
	c = points_find(&p, at.ref, &err);
	if (!c)
		return cli_fail(a, &err, NULL);
	if (a->json)
		return show_json(a, s.box, c);
	if (changes(s.box, c, on_change_text, &lines, &err) < 0)
		return cli_fail(a, &err, NULL);
	point_lines(&out, c);
	if (lines.len)
		buf_addstr(&out, "\n");
	buf_add(&out, lines.p, lines.len);
	return cli_print(a, &out);
}

const struct verb verb_show = {
	.name = "show",
	.words = "BOX[@CHECKPOINT]",
	.summary = "tell about a checkpoint, and what it changed",
	.help = "What it changed is told against the checkpoint before it, as 'den diff' does.\n"
		"Without a checkpoint it is head, the newest on the way to the present.\n"
		"\n"
		"Examples:\n"
		"  den show web              the last thing that changed something\n"
		"  den show web@7            by number; a tag, ~2 or base do as well\n"
		"  den diff --text web 6 7   the same change, line by line\n",
	.min_words = 1,
	.max_words = 1,
	.complete = "b",
	.run = show,
};
