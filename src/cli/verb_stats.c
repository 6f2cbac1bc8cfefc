#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli.h"
#include "clock.h"
#include "mem.h"
#include "parse.h"
#include "show.h"
#include "table.h"
#include "verbs.h"

static const struct option_def stats_options[] = {
	{ "once", 0, OPT_FLAG, offsetof(struct args, once), NULL,
		"print one sample and leave (default without a terminal)", "interval" },
	{ "interval", 0, OPT_DURATION, offsetof(struct args, interval), "TIME",
		"time between samples (default: 2s)" },
	{ 0 },
};

struct sample {
	struct den_box *box;
	char *label;
	struct den_stats now, before;
	int64_t now_ns, before_ns;
	bool ok, had; /* had: there is one before, so a rate can be told */
};

static void used_of(struct table *t, uint64_t used, bool limited, uint64_t limit)
{
	char a[16], b[16];

	format_size(used, a);
	format_size(limit, b);
	if (limited && limit && limit < UINT64_MAX >> 1)
		table_cellf(t, "%s / %s", a, b);
	else
		table_cell(t, a);
}

static void cpu_cells(struct table *t, const struct sample *s)
{
	if (!(s->now.has & DEN_STAT_CPU)) {
		table_cell(t, NULL);
		table_cell(t, NULL);
		return;
	}
	if (s->had && s->now_ns > s->before_ns)
		table_cellf(t, "%.1f%%",
			(double)(s->now.cpu_usec - s->before.cpu_usec) * 1000.0 * 100.0 /
				(double)(s->now_ns - s->before_ns));
	else
		table_cell(t, NULL);
	table_cellf(t, "%.2fs", (double)s->now.cpu_usec / 1e6);
}

static void sample_row(struct table *t, const struct sample *s)
{
	const struct den_stats *n = &s->now;

	table_cell(t, s->label);
	if (!s->ok) {
		for (size_t i = 1; i < t->cols; i++)
			table_cell(t, NULL);
		return;
	}
	cpu_cells(t, s);
	if (n->has & DEN_STAT_MEMORY)
		used_of(t, n->memory, n->has & DEN_STAT_MEMORY_LIMIT, n->memory_limit);
	else
		table_cell(t, NULL);
	if (!(n->has & DEN_STAT_PIDS))
		table_cell(t, NULL);
	else if (n->has & DEN_STAT_PIDS_MAX && n->pids_max)
		table_cellf(t, "%llu / %llu", (unsigned long long)n->pids,
			(unsigned long long)n->pids_max);
	else
		table_cellf(t, "%llu", (unsigned long long)n->pids);
	if (n->has & DEN_STAT_DISK)
		used_of(t, n->disk, n->has & DEN_STAT_DISK_LIMIT, n->disk_limit);
	else
		table_cell(t, NULL);
	if (n->has & DEN_STAT_IO_READ)
		table_size(t, n->io_read);
	else
		table_cell(t, NULL);
	if (n->has & DEN_STAT_IO_WRITE)
		table_size(t, n->io_write);
	else
		table_cell(t, NULL);
	if (n->has & DEN_STAT_OOM_KILLS)
		table_cellf(t, "%llu", (unsigned long long)n->oom_kills);
	else
		table_cell(t, NULL);
}

static int print_table(const struct args *a, const struct sample *s, size_t n, bool live)
{
	static const char *const heads[] = { "BOX", ">CPU", ">CPU TIME", ">MEMORY", ">PIDS",
		">DISK", ">READ", ">WRITTEN", ">OOM KILLS" };
	auto_table t = { .cols = ARRAY_SIZE(heads), .heads = heads };
	auto_buf out = { 0 };

	for (size_t i = 0; i < n; i++)
		sample_row(&t, &s[i]);
	if (live)
		buf_addstr(&out, "\033[H\033[J"); /* from the top left, over what was there */
	table_print(&t, &out);
	return cli_print(a, &out);
}

static int print_lines(const struct args *a, const struct sample *s, size_t n)
{
	int status = 0;

	for (size_t i = 0; i < n && !status; i++) {
		struct json j = { 0 };

		if (!s[i].ok)
			continue;
		json_open(&j, NULL, '{');
		json_str(&j, "box", den_box_id(s[i].box));
		json_i64(&j, "time_ms", clock_wall_ms());
		show_stats_json(&j, &s[i].now);
		json_close(&j, '}');
		status = cli_print_json(a, &j);
	}
	return status;
}

/* Gives how many could be measured; the first failure's status goes to *status. */
static size_t measure(const struct args *a, struct sample *s, size_t n, int *status)
{
	size_t good = 0;

	for (size_t i = 0; i < n; i++) {
		struct den_err err = { 0 };
		bool was = s[i].ok;

		s[i].before = s[i].now;
		s[i].before_ns = s[i].now_ns;
		s[i].had = was;
		s[i].ok = den_box_stats(s[i].box, &s[i].now, &err) == 0;
		s[i].now_ns = clock_mono_ns();
		good += s[i].ok;
		if (!s[i].ok && (was || !*status)) {
			int r = cli_fail(a, &err, NULL);

			*status = *status ? *status : r;
		}
	}
	return good;
}

/* The boxes that the words name, or all that run. */
static size_t open_boxes(const struct args *a, struct den *d, struct sample **ret, int *status)
{
	struct den_box_info *infos = NULL;
	struct den_err err = { 0 };
	struct sample *s;
	size_t n = (size_t)a->n_words, total = 0, got = 0;

	if (!n && den_list(d, &infos, &total, &err) < 0) {
		*status = cli_fail(a, &err, NULL);
		return 0;
	}
	s = mem_zalloc((MAX(n, total) + 1) * sizeof(*s));
	for (size_t i = 0; i < MAX(n, total); i++) {
		const char *ref = n ? a->words[i] : infos[i].id;

		if (!n && strcmp(infos[i].state, "running") && strcmp(infos[i].state, "paused"))
			continue;
		if (den_box_open(d, ref, &s[got].box, &err) < 0) {
			int r = cli_fail(a, &err, NULL);

			*status = *status ? *status : r;
			continue;
		}
		s[got++].label = mem_strdup(!n && infos[i].name ? infos[i].name : ref);
	}
	den_box_infos_free(infos, total);
	*ret = s;
	return got;
}

static int stats(const struct args *a)
{
	struct den *d = NULL;
	struct den_err err = { 0 };
	struct sample *s = NULL;
	bool live = isatty(STDOUT_FILENO) && !a->json;
	bool once = a->once || (!isatty(STDOUT_FILENO) && !a->interval);
	uint64_t ms = a->interval ? a->interval : 2000;
	struct timespec pause = { (time_t)(ms / 1000), (long)(ms % 1000) * 1000000 };
	int status = 0, printed = 0;
	size_t n;

	if (cli_open(a, &d, &err) < 0)
		return cli_fail(a, &err, NULL);
	n = open_boxes(a, d, &s, &status);
	while (n && !printed) {
		if (!measure(a, s, n, &status) && status)
			break;
		printed = a->json ? print_lines(a, s, n) : print_table(a, s, n, live && !once);
		if (once)
			break;
		clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
	}
	for (size_t i = 0; i < n; i++) {
		den_box_close(s[i].box);
		free(s[i].label);
	}
	free(s);
	den_close(d);
	return printed ? printed : status;
}

const struct verb verb_stats = {
	.name = "stats",
	.words = "[BOX]...",
	.summary = "show what boxes use, measured from outside",
	.help = "Without BOX, all that run. On a terminal it refreshes until Ctrl-C; else it\n"
		"prints once, unless --interval is given. With --json one object a sample and\n"
		"box, one a line; null is what this machine cannot measure.\n"
		"\n"
		"Examples:\n"
		"  den stats\n"
		"  den stats --once --json web | jq .memory\n"
		"  den stats --interval 10s --json web >> usage.jsonl\n",
	.options = { stats_options },
	.max_words = -1,
	.complete = "b",
	.run = stats,
};
