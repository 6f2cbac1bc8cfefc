/* What runs in each box of a template: its start command. */
#include <string.h>

#include "clock.h"
#include "e2b_parts.h"
#include "log.h"
#include "run.h"
#include "strv.h"

#define READY_MS 20000	  /* a client's own patience is a minute */
#define READY_AGAIN_MS 50

/* Who asked for a box of a template that serves something wants it to be served. The port of the code interpreter is
 * waited for where it is asked for (proxy.c): most of its boxes are made some time before. A ready command that only
 * lets time pass (the SDK's waitForTimeout()) was meant for the build. */
static bool waited_for(const struct e2b_template *t)
{
	return t->ready && strncmp(t->ready, "sleep ", 6) && strncmp(t->stored, "code-interpreter", 16);
}

static void ready_wait(struct req *r, struct den_box *box, const struct e2b_template *t, const char *const *env)
{
	const char *const argv[] = { "/bin/bash", "-l", "-c", t->ready, NULL };
	struct den_exec_opt opt = { .size = sizeof(opt), .argv = argv, .user = t->user, .env = env, .timeout_ms = READY_MS };
	int64_t until = clock_mono_ns() + READY_MS * NS_PER_MS;
	struct den_exec_result res;
	struct den_err err;

	do {
		if (run_wait(box, &opt, NULL, NULL, &res, &err) < 0) {
			log_line("warn", "e2b", "ready command of %s in %s: %s", t->id, den_box_id(box), err.msg);
			return;
		}
		if (res.exited && res.status == 0)
			return;
	} while (clock_mono_ns() < until && !(req_wait(r, -1, READY_AGAIN_MS) & (REQ_GONE | REQ_STOP)));
	log_line("warn", "e2b", "%s in %s is not ready after %d s", t->id, den_box_id(box), READY_MS / 1000);
}

void e2b_start(struct req *r, struct den_box *box, const struct e2b_template *t)
{
	const char *const argv[] = { "/bin/bash", "-l", "-c", t->start, NULL };
	struct den_exec_opt opt = { .size = sizeof(opt), .argv = argv, .tag = "den.start", .user = t->user };
	auto_strv env = NULL;
	struct den_err err;

	if (!t->start)
		return;
	e2b_env(den_box_id(box), &env);
	opt.env = (const char *const *)env;
	if (run_detached(box, &opt, &err) < 0)
		log_line("warn", "e2b", "start command of %s in %s: %s", t->id, den_box_id(box), err.msg);
	else if (waited_for(t))
		ready_wait(r, box, t, opt.env);
}

void e2b_start_command(struct req *r, struct den_box *box, const struct den_box_info *i)
{
	const char *id = e2b_label(i, "e2b.template");
	auto_template t = { 0 };
	struct den_err err;

	if (id && e2b_template_find(r, id, &t, &err) == 0)
		e2b_start(r, box, &t);
}
