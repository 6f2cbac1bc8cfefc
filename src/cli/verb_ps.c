#include <stdio.h>

#include "cli.h"
#include "mem.h"
#include "outcome.h"
#include "parse.h"
#include "show.h"
#include "table.h"
#include "verbs.h"

static void ps_json(struct json *j, const struct den_ps *ps)
{
	json_open(j, NULL, '{');
	json_open(j, "execs", '[');
	for (size_t i = 0; i < ps->n_execs; i++)
		show_exec_json(j, &ps->execs[i]);
	json_close(j, ']');
	json_open(j, "processes", '[');
	for (size_t i = 0; i < ps->n_processes; i++) {
		const struct den_process *p = &ps->processes[i];

		json_open(j, NULL, '{');
		json_i64(j, "pid", p->pid);
		json_i64(j, "ppid", p->ppid);
		json_u64(j, "uid", p->uid);
		json_bytes(j, "state", &p->state, 1);
		json_u64(j, "cpu_usec", p->cpu_usec);
		json_u64(j, "memory", p->memory);
		json_str(j, "command", p->command);
		json_close(j, '}');
	}
	json_close(j, ']');
	json_close(j, '}');
}

static void exec_state(struct table *t, const struct den_exec_info *e)
{
	const struct den_exec_result *r = &e->result;
	const char *signal = r->exited ? NULL : signal_name(r->status);

	if (e->running)
		table_cell(t, "running");
	else if (r->reason && r->reason[0])
		table_cellf(t, "limit: %s", r->reason);
	else if (r->exited)
		table_cellf(t, "exit %d", r->status);
	else if (signal)
		table_cellf(t, "SIG%s", signal);
	else
		table_cellf(t, "signal %d", r->status);
}

static void execs_table(struct buf *out, const struct den_ps *ps)
{
	static const char *const heads[] = { ">PID", "TAG", "STATE", ">AGE", "TTY", "USER",
		"COMMAND" };
	auto_table t = { .cols = ARRAY_SIZE(heads), .heads = heads };

	for (size_t i = 0; i < ps->n_execs; i++) {
		const struct den_exec_info *e = &ps->execs[i];
		auto_buf command = { 0 };

		show_argv(&command, e->argv);
		table_cellf(&t, "%d", (int)e->pid);
		table_cell(&t, e->tag);
		exec_state(&t, e);
		table_age(&t, e->started_ms);
		table_cell(&t, e->tty ? "yes" : "no");
		table_cell(&t, e->user);
		table_cell(&t, buf_str(&command));
	}
	table_print(&t, out);
}

static void processes_table(struct buf *out, const struct den_ps *ps)
{
	static const char *const heads[] = { ">PID", ">PPID", ">UID", "S", ">CPU", ">MEMORY",
		"COMMAND" };
	auto_table t = { .cols = ARRAY_SIZE(heads), .heads = heads };

	for (size_t i = 0; i < ps->n_processes; i++) {
		const struct den_process *p = &ps->processes[i];

		table_cellf(&t, "%d", (int)p->pid);
		table_cellf(&t, "%d", (int)p->ppid);
		table_cellf(&t, "%u", p->uid);
		table_cellf(&t, "%c", p->state ? p->state : '?');
		table_cellf(&t, "%llu.%02llus", (unsigned long long)p->cpu_usec / 1000000,
			(unsigned long long)p->cpu_usec % 1000000 / 10000);
		table_size(&t, p->memory);
		table_cell(&t, p->command);
	}
	table_print(&t, out);
}

static int ps_box(const struct args *a)
{
	auto_session s = { 0 };
	auto_buf out = { 0 };
	struct den_ps *ps = NULL;
	struct den_err err = { 0 };
	struct json j = { 0 };
	int status = session_open(&s, a, a->words[0]);

	if (status)
		return status;
	if (den_box_ps(s.box, &ps, &err) < 0)
		return cli_fail(a, &err, NULL);
	if (a->json) {
		ps_json(&j, ps);
		den_ps_free(ps);
		return cli_print_json(a, &j);
	}
	if (ps->n_execs) {
		buf_addstr(&out, "Started by den:\n");
		execs_table(&out, ps);
		buf_addstr(&out, "\n");
	}
	buf_addstr(&out, "Processes:\n");
	processes_table(&out, ps);
	den_ps_free(ps);
	return cli_print(a, &out);
}

const struct verb verb_ps = {
	.name = "ps",
	.words = "BOX",
	.summary = "list what den started in a box, and all its processes",
	.help = "Pids are those inside the box. What ended is listed as long as its output is\n"
		"kept.\n"
		"\n"
		"Examples:\n"
		"  den ps web\n"
		"  den ps --json web | jq '.execs[] | select(.running) | .tag'\n",
	.min_words = 1,
	.max_words = 1,
	.complete = "b",
	.run = ps_box,
};
