#include <stdio.h>
#include <string.h>

#include "cli.h"
#include "clock.h"
#include "execs.h"
#include "fd.h"
#include "mem.h"
#include "outcome.h"
#include "verbs.h"

#define IDLE_NS (250 * NS_PER_MS) /* what was kept comes in one go */
#define LINE_MAX_BYTES 65536

static const struct option_def logs_options[] = {
	{ "follow", 'f', OPT_FLAG, offsetof(struct args, follow), NULL, "go on until it ends" },
	{ 0 },
};

struct logs;
struct log {
	struct logs *all;
	struct den_exec *exec;
	struct buf label; /* before every line; empty: none */
	struct buf line[2]; /* a line that is not complete, of each stream */
	uint64_t got, want; /* bytes; want: produced when we came */
	bool ended;
};

struct logs {
	const struct args *args;
	struct log *log;
	size_t n;
	int64_t last_ns; /* when something came */
	int status; /* not 0: leave with it */
};

static void put(struct logs *l, int stream, const void *data, size_t n)
{
	if (l->status)
		return;
	if (stream == 1)
		l->status = cli_write(l->args, data, n);
	else if (fd_write_all(STDERR_FILENO, data, n, NULL) < 0)
		l->status = EXIT_SIGNAL + 13;
}

static void put_line(struct log *g, int stream)
{
	struct buf *line = &g->line[stream - 1];
	auto_buf out = { 0 };

	buf_add(&out, g->label.p, g->label.len);
	buf_add(&out, line->p, line->len);
	buf_addstr(&out, "\n");
	line->len = 0;
	put(g->all, stream, out.p, out.len);
}

static void on_output(struct den_exec *e, int stream, const void *data, size_t n, void *user)
{
	struct log *g = user;
	const char *p = data;

	(void)e;
	g->got += n;
	g->all->last_ns = clock_mono_ns();
	if (!g->label.len) {
		put(g->all, stream, data, n);
		return;
	}
	while (n) {
		const char *end = memchr(p, '\n', n);
		struct buf *line = &g->line[stream - 1];
		size_t len = MIN(end ? (size_t)(end - p) : n, LINE_MAX_BYTES - line->len);

		buf_add(line, p, len);
		p += len;
		n -= len;
		if (line->len < LINE_MAX_BYTES && !(end && p == end))
			continue;
		if (end && p == end) {
			p++;
			n--;
		}
		put_line(g, stream);
	}
}

static void on_ended(struct den_exec *e, const struct den_exec_result *result,
	const struct den_err *err, void *user)
{
	struct log *g = user;

	(void)e;
	g->ended = true;
	g->all->last_ns = clock_mono_ns();
	for (int stream = 1; stream <= 2; stream++)
		if (g->line[stream - 1].len)
			put_line(g, stream);
	if (err) {
		int status = cli_fail(g->all->args, err, NULL);

		g->all->status = g->all->status ? g->all->status : status;
	} else if (result && result->lost_bytes) {
		cli_note(g->all->args, "note: %llu bytes before this were no longer kept",
			(unsigned long long)result->lost_bytes);
	}
}

static const struct den_exec_ops ops = { .output = on_output, .ended = on_ended };

static bool complete_now(const struct logs *l)
{
	bool all = true, ended = true;

	for (size_t i = 0; i < l->n; i++) {
		const struct log *g = &l->log[i];

		ended = ended && g->ended;
		all = all && (g->ended || (g->want && g->got >= g->want));
	}
	return ended || (all && !l->args->follow);
}

/* Nothing says where the past of a running program ends and its present begins, but what was kept
 * is sent at once: when all that was produced came, or nothing more does, that was it. */
static int pump(struct logs *l, struct den_box *box, struct den_err *err)
{
	l->last_ns = clock_mono_ns();
	while (!l->status && !complete_now(l)) {
		int64_t left = l->last_ns + IDLE_NS - clock_mono_ns();

		if (!l->args->follow && left <= 0)
			break;
		if (den_dispatch(box, l->args->follow ? -1 : (int)(left / NS_PER_MS) + 1, err) < 0)
			return -1;
	}
	return 0;
}

static int attach_one(struct logs *l, struct den_box *box, const char *ref, const char *label,
	uint64_t want, struct den_err *err)
{
	struct log *g = &l->log[l->n];

	g->all = l;
	g->want = want;
	if (label) {
		text_printable(&g->label, label, strlen(label));
		buf_addstr(&g->label, " | ");
	}
	l->n++;
	return den_exec_attach(box, ref, &ops, g, &g->exec, err);
}

static int attach_all(struct logs *l, struct den_box *box, struct den_err *err)
{
	struct den_ps *ps = NULL;
	int r = 0;

	if (den_box_ps(box, &ps, err) < 0)
		return -1;
	l->log = mem_zalloc((ps->n_execs + 1) * sizeof(*l->log));
	for (size_t i = 0; i < ps->n_execs && r == 0; i++) {
		const struct den_exec_info *e = &ps->execs[i];
		char pid[16];

		snprintf(pid, sizeof(pid), "%d", (int)e->pid);
		r = attach_one(l, box, pid, e->tag && e->tag[0] ? e->tag : pid,
			e->result.out_bytes + e->result.err_bytes, err);
	}
	den_ps_free(ps);
	return r;
}

static int logs(const struct args *a)
{
	auto_session s = { 0 };
	struct logs l = { .args = a };
	struct den_err err = { 0 };
	struct exec_brief brief;
	int r, status = session_open(&s, a, a->words[0]);

	if (status)
		return status;
	if (a->n_words == 1) {
		r = attach_all(&l, s.box, &err);
	} else {
		l.log = mem_zalloc(sizeof(*l.log));
		r = exec_find(s.box, a->words[1], &brief, &err);
		if (r == 0)
			r = attach_one(&l, s.box, a->words[1], NULL,
				brief.out_bytes + brief.err_bytes, &err);
	}
	if (r == 0)
		r = pump(&l, s.box, &err);
	for (size_t i = 0; i < l.n; i++) {
		struct log *g = &l.log[i];

		/* a running program's last line may still lack its end */
		for (int stream = 1; stream <= 2; stream++)
			if (g->line[stream - 1].len)
				put_line(g, stream);
		den_exec_unref(g->exec);
		buf_free(&g->label);
		buf_free(&g->line[0]);
		buf_free(&g->line[1]);
	}
	free(l.log);
	if (r < 0)
		return cli_fail(a, &err, NULL);
	return l.status;
}

const struct verb verb_logs = {
	.name = "logs",
	.words = "BOX [PID|TAG]",
	.summary = "print what programs in a box printed",
	.help = "Of one program as it printed it, stdout to stdout and stderr to stderr; of\n"
		"all of them with their tag or pid before each line. The last 1 MiB of each\n"
		"stream is kept, or what --keep of 'den exec' said.\n"
		"\n"
		"Examples:\n"
		"  den logs web api            so far\n"
		"  den logs --follow web api   and from then on\n"
		"  den logs web                of everything\n",
	.options = { logs_options },
	.min_words = 1,
	.max_words = 2,
	.complete = "be",
	.run = logs,
};
