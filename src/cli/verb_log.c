/*
 * The tree of checkpoints, newest first, one line each. The line of the present is the leftmost;
 * others stand right of it and end where they left it:
 *
 *     * 5
 *     * 4
 *   *-' 3  (head)
 *   *   2
 */
#include <string.h>

#include "cli.h"
#include "mem.h"
#include "points.h"
#include "table.h"
#include "verbs.h"

#define WHAT_WIDE 72

static const struct option_def log_options[] = {
	{ "number", 'n', OPT_COUNT, offsetof(struct args, limit), "N", "only the newest N" },
	{ 0 },
};

struct graph {
	struct column {
		int64_t next; /* the checkpoint that it leads to; -1: free */
		bool drawn; /* something of it stands above */
	} *col;
	size_t n;
};

/* The column that leads to the checkpoint, else a free one. The first is the present's alone. */
static size_t graph_column(struct graph *g, int64_t number)
{
	size_t i;

	for (i = 0; i < g->n; i++)
		if (g->col[i].next == number)
			return i;
	for (i = 1; i < g->n; i++)
		if (g->col[i].next < 0)
			return i;
	g->col = mem_realloc(g->col, (g->n + 1) * sizeof(*g->col));
	g->col[g->n] = (struct column){ -1, false };
	return g->n++;
}

static void graph_row(struct graph *g, const struct den_checkpoint *c, struct buf *out)
{
	int64_t number = (int64_t)c->number;
	size_t at = graph_column(g, number), last = at;

	for (size_t i = at; i < g->n; i++)
		last = g->col[i].next == number ? i : last;
	for (size_t i = 0; i < g->n; i++) {
		struct column *col = &g->col[i];
		bool across = i >= at && i < last;

		if (i == at)
			buf_addstr(out, "*");
		else if (col->next == number)
			buf_addstr(out, "'");
		else if (col->next >= 0 && col->drawn)
			buf_addstr(out, "|");
		else
			buf_addstr(out, across ? "-" : " ");
		buf_addstr(out, across ? "-" : " ");
		if (i != at && col->next == number)
			*col = (struct column){ -1, false };
	}
	g->col[at] = (struct column){ c->parent, true };
	while (out->len && out->p[out->len - 1] == ' ')
		out->len--;
}

static void what_cell(struct table *t, const struct den_checkpoint *c)
{
	auto_buf b = { 0 };
	const char *before = "(";

	if (c->head) {
		buf_addf(&b, "%shead", before);
		before = ", ";
	}
	for (const char *tag = c->tags ? c->tags : ""; *tag;) {
		size_t n = strcspn(tag, " ");

		buf_addf(&b, "%s%.*s", before, (int)n, tag);
		before = ", ";
		tag += n + (tag[n] == ' ');
	}
	buf_addstr(&b, b.len ? ") " : "");
	point_text(&b, c, WHAT_WIDE);
	table_cell(t, buf_str(&b));
}

static void log_table(struct buf *out, const struct points *p, size_t limit)
{
	static const char *const heads[] = { "", ">N", ">AGE", ">TURN", "KIND", "WHAT" };
	static const char *const heads_size[] = { "", ">N", ">AGE", ">TURN", "KIND", ">SIZE",
		"WHAT" };
	const struct den_checkpoint *head = points_head(p);
	struct graph g = { mem_zalloc(sizeof(*g.col)), 1 };
	auto_table t = { .cols = ARRAY_SIZE(heads), .heads = heads };

	for (size_t i = 0; i < p->n; i++)
		if (p->v[i].size)
			t = (struct table){ .cols = ARRAY_SIZE(heads_size), .heads = heads_size };
	g.col[0].next = head ? (int64_t)head->number : -1;
	for (size_t i = p->n; i-- > 0 && p->n - i <= limit;) {
		const struct den_checkpoint *c = &p->v[i];
		auto_buf row = { 0 };

		graph_row(&g, c, &row);
		table_cell(&t, buf_str(&row));
		table_cellf(&t, "%llu", (unsigned long long)c->number);
		table_age(&t, c->created_ms);
		table_cellf(&t, "%llu", (unsigned long long)c->turn);
		table_cell(&t, c->kind);
		if (t.heads == heads_size && c->size)
			table_size(&t, c->size);
		else if (t.heads == heads_size)
			table_cell(&t, NULL);
		what_cell(&t, c);
	}
	free(g.col);
	table_print(&t, out);
}

static int show_log(const struct args *a)
{
	auto_session s = { 0 };
	auto_points p = { 0 };
	auto_buf out = { 0 };
	struct den_err err = { 0 };
	struct json j = { 0 };
	size_t limit = a->limit ? a->limit : SIZE_MAX;
	int status = session_open(&s, a, a->words[0]);

	if (status)
		return status;
	if (points_read(s.box, &p, &err) < 0)
		return history_fail(a, &err);
	if (a->json) {
		json_open(&j, NULL, '[');
		for (size_t i = p.n; i-- > 0 && p.n - i <= limit;)
			point_json(&j, NULL, &p.v[i]);
		json_close(&j, ']');
		return cli_print_json(a, &j);
	}
	if (a->quiet)
		for (size_t i = p.n; i-- > 0 && p.n - i <= limit;)
			buf_addf(&out, "%llu\n", (unsigned long long)p.v[i].number);
	else
		log_table(&out, &p, limit);
	return cli_print(a, &out);
}

const struct verb verb_log = {
	.name = "log",
	.words = "BOX",
	.summary = "show a box's history",
	.help = "The tree of its checkpoints, the newest first; the present's line stands\n"
		"leftmost, and \"head\" is the checkpoint that the present began as. A turn is a\n"
		"command or file operation. With --quiet only the numbers.\n"
		"\n"
		"Other verbs take a checkpoint by its number, its tag, as \"head\", as \"~2\" "
		"(two\n"
		"before head), or as \"base\" (the beginning).\n"
		"\n"
		"Examples:\n"
		"  den log web\n"
		"  den log -n 10 web\n"
		"  den show web@7                        one of them, with what it changed\n"
		"  den log --json web | jq '.[] | select(.kind == \"manual\") | .number'\n",
	.options = { log_options },
	.min_words = 1,
	.max_words = 1,
	.complete = "b",
	.run = show_log,
};
