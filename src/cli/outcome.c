/* How an exec ended, for people and for $?. */
#include <errno.h>
#include <string.h>

#include "cli.h"
#include "outcome.h"
#include "parse.h"
#include "stream.h"
#include "table.h"

int result_status(const struct den_exec_result *r)
{
	return r->exited ? r->status & 0xff : EXIT_SIGNAL + r->status;
}

int failure_status(const struct den_err *err)
{
	if (err->code == DEN_NOT_FOUND && err->sys)
		return EXIT_NO_PROGRAM;
	if (err->code == DEN_DENIED && err->sys)
		return EXIT_NOT_RUNNABLE;
	return EXIT_OWN;
}

static void note_size(const char *what, uint64_t bytes, const char *reason)
{
	char text[16];

	if (!bytes) {
		cli_warn("killed: %s limit reached [%s]", what, reason);
		return;
	}
	format_size(bytes, text);
	cli_warn("killed: %s limit (%s) reached [%s]", what, text, reason);
}

static void note_time(const char *what, uint64_t ms, const char *reason)
{
	char text[32];

	if (!ms) {
		cli_warn("killed: %s limit reached [%s]", what, reason);
		return;
	}
	format_duration(ms, text);
	cli_warn("killed: %s limit (%s) reached [%s]", what, text, reason);
}

/* Limits of the box are not in our arguments when another den made it: it is asked. */
static void note_box_limit(struct den_box *box, const char *reason)
{
	struct den_box_info *info = NULL;
	bool have = den_box_info(box, &info, NULL) == 0;

	if (!strcmp(reason, "memory"))
		note_size("memory", have ? info->memory : 0, reason);
	else if (!strcmp(reason, "disk"))
		note_size("disk", have ? info->disk : 0, reason);
	else if (!strcmp(reason, "pids"))
		cli_warn("limit of processes (%llu) reached [pids]",
			have ? (unsigned long long)info->pids : 0);
	else if (have && info->reason)
		cli_warn("killed: the box was stopped: %s [stop]", info->reason);
	else
		cli_warn("killed: the box was stopped [stop]");
	if (have)
		den_box_infos_free(info, 1);
}

void outcome_note(const struct args *a, struct den_box *box, const struct den_exec_result *r)
{
	const char *reason = r->reason ? r->reason : "";

	if (!strcmp(reason, "timeout"))
		note_time("time", a->timeout, reason);
	else if (!strcmp(reason, "cpu"))
		note_time("CPU time", a->cpu_time, reason);
	else if (!strcmp(reason, "output"))
		note_size("output", a->max_output, reason);
	else if (reason[0])
		note_box_limit(box, reason);
	else if (r->oom_kills)
		cli_note(a,
			"note: the kernel killed %llu process%s of the box for memory meanwhile",
			(unsigned long long)r->oom_kills, r->oom_kills == 1 ? "" : "es");
}

int stream_status(struct stream *s, const struct args *a)
{
	if (s->detached)
		return 0;
	if (s->lost) {
		(void)cli_fail(a, &s->err, NULL);
		return s->started ? EXIT_OWN : failure_status(&s->err);
	}
	if (s->leave || s->broken)
		return s->leave ? s->leave : s->broken;
	outcome_note(a, s->box, &s->result);
	if (s->result.lost_bytes)
		cli_note(a, "note: %llu bytes of earlier output were no longer kept",
			(unsigned long long)s->result.lost_bytes);
	return result_status(&s->result);
}
