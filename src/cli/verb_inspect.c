#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "cli.h"
#include "mem.h"
#include "parse.h"
#include "show.h"
#include "table.h"
#include "verbs.h"

/* Text of several lines. */
static void lines(struct buf *out, const char *key, const char *text)
{
	while (text && *text) {
		size_t n = strcspn(text, "\n");
		auto_free char *one = mem_strndup(text, n);

		show_line(out, key, one);
		key = "";
		text += n + (text[n] == '\n');
	}
}

static void linef(struct buf *out, const char *key, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
static void linef(struct buf *out, const char *key, const char *fmt, ...)
{
	struct buf b = { 0 };
	char text[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	buf_addstr(&b, text);
	show_line(out, key, buf_str(&b));
	buf_free(&b);
}

static void limits_text(struct buf *out, const struct den_box_info *i)
{
	char text[32];

	if (i->cpu_milli)
		linef(out, "cpus", "%llu.%03llu", (unsigned long long)i->cpu_milli / 1000,
			(unsigned long long)i->cpu_milli % 1000);
	show_line_size(out, "memory", i->memory);
	if (i->pids)
		linef(out, "pids", "%llu", (unsigned long long)i->pids);
	show_line_size(out, "disk", i->disk);
	if (i->nofile)
		linef(out, "nofile", "%llu", (unsigned long long)i->nofile);
	if (i->max_runtime_ms) {
		format_duration(i->max_runtime_ms, text);
		show_line(out, "max-runtime", text);
	}
}

static void net_text(struct buf *out, const struct den_box_info *i)
{
	auto_buf b = { 0 };

	if (i->policy || i->policy_name)
		buf_addf(&b, "policy%s%s, generation %llu", i->policy_name ? " " : "",
			i->policy_name ? i->policy_name : "", (unsigned long long)i->generation);
	show_line(out, "net", b.len ? buf_str(&b) : i->net);
	for (size_t p = 0; i->publish && i->publish[p]; p++)
		show_line(out, "port", i->publish[p]);
}

static void box_text(struct buf *out, const struct den_box_info *i)
{
	show_line(out, "id", i->id);
	show_line(out, "name", i->name);
	show_line(out, "state", i->hibernated ? "paused (hibernated)" : i->on_disk ? "paused (on disk)" : i->state);
	show_line(out, "reason", i->reason);
	show_line(out, "template", i->template_name);
	show_line(out, "wall", i->wall);
	net_text(out, i);
	show_line(out, "hostname", i->hostname);
	show_line(out, "user", i->user);
	show_line(out, "workdir", i->workdir);
	lines(out, "made of", i->detail);
	limits_text(out, i);
	show_line(out, "owner", i->owner);
	for (size_t n = 0; i->labels && i->labels[n]; n++)
		show_line(out, "label", i->labels[n]);
	show_lease(out, i);
	if (i->images) {
		char size[24];

		format_size(i->images, size);
		show_line(out, "saved", size);
	}
	for (size_t m = 0; m < i->n_mounts; m++) {
		auto_buf b = { 0 };

		buf_addf(&b, "%s -> %s%s", i->mounts[m].host, i->mounts[m].box,
			i->mounts[m].ro ? " (read-only)" : "");
		show_line(out, "mount", buf_str(&b));
	}
	for (const char *const *e = i->env; e && *e; e++)
		show_line(out, "env", *e);
	show_line(out, "ephemeral", i->ephemeral ? "yes" : NULL);
	show_line(out, "reseed", i->reseed ? "yes" : NULL);
	show_line(out, "history", i->history);
	show_line_time(out, "created", i->created_ms);
	show_line_time(out, "started", i->started_ms);
	show_line_time(out, "stopped", i->stopped_ms);
	if (i->init_pid)
		linef(out, "init pid", "%d", (int)i->init_pid);
	if (i->keeper_pid)
		linef(out, "keeper pid", "%d", (int)i->keeper_pid);
}

static int inspect_one(
	struct den_box *box, const char *ref, const struct args *a, struct den_err *err)
{
	struct den_box_info *info = NULL;
	struct json j = { 0 };
	auto_buf out = { 0 };
	int status;

	if (den_box_info(box, &info, err) < 0)
		return -1;
	if (a->json) {
		show_box_json(&j, NULL, info);
		status = cli_print_json(a, &j);
	} else {
		box_text(&out, info);
		if (a->n_words > 1 && ref != a->words[a->n_words - 1])
			buf_addstr(&out, "\n");
		status = cli_print(a, &out);
	}
	den_box_infos_free(info, 1);
	return status;
}

static int inspect(const struct args *a)
{
	return cli_each_box(a, inspect_one);
}

const struct verb verb_inspect = {
	.name = "inspect",
	.words = "BOX...",
	.summary = "tell everything about a box",
	.help = "With --json one object for each box, one a line.\n"
		"\n"
		"Examples:\n"
		"  den inspect web\n"
		"  den inspect --json web | jq .limits\n",
	.min_words = 1,
	.max_words = -1,
	.complete = "b",
	.run = inspect,
};
