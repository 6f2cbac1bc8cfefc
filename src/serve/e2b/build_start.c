/*
 * A template with a start command is kept with that command running, as its last step: a box like a sandbox of it is
 * made, the command started, the ready command waited for, and the box baked under the name, beside the image that
 * has the files alone.
 */
#include "build.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "clock.h"
#include "log.h"
#include "mem.h"
#include "run.h"
#include "strv.h"

#define READY_MS (10 * 60 * 1000LL)
#define READY_NAP_MS 200
#define STEADY_MS 1000 /* a command without a ready command gets so long to come up */
#define BOX_MS (3600 * 1000LL) /* whatever happens to us, it goes then */
#define DISK_MAX (4ULL << 30) /* as boxes.c gives who has a quota */

static int names(struct build *b, char ***ret, struct den_err *err)
{
	for (char **tag = b->tags; *tag; tag++) {
		auto_free char *stored = NULL;

		if (e2b_template_stored(&b->who, b->name, *tag, &stored, err) < 0)
			return -1;
		strv_add(ret, stored);
	}
	return 0;
}

int build_unbake(struct build *b, struct den_err *err)
{
	auto_strv all = NULL;

	if (names(b, &all, err) < 0)
		return -1;
	for (char **n = all; n && *n; n++) {
		/* a snapshot of that name has no files that could stay */
		if (den_template_unbake(b->den, *n, err) < 0 && err->code != DEN_NOT_FOUND)
			return -1;
	}
	return 0;
}

static int box_make(struct build *b, const char *stored, struct den_box **ret, struct den_err *err)
{
	auto_free char *policy = NULL, *id = NULL;
	const char *env[] = { "E2B_SANDBOX=true", NULL, NULL };
	struct den_box_spec spec;
	char owner[64], label[64];
	const char *const labels[] = { label, NULL };

	if (e2b_default_spec(stored, &spec, &policy, err) < 0)
		return -1;
	if (asprintf(&id, "E2B_TEMPLATE_ID=%s", b->name) < 0)
		abort();
	env[1] = id;
	snprintf(owner, sizeof(owner), "%s/%s", b->who.org, b->who.key);
	snprintf(label, sizeof(label), "e2b.build=%s", b->id);
	spec.env = env;
	spec.owner = owner;
	spec.labels = labels;
	spec.quota = b->who.quota.disk;
	spec.disk = MIN(b->who.quota.disk / 2, DISK_MAX);
	spec.expires_ms = clock_wall_ms() + BOX_MS;
	spec.on_expire = "delete";
	spec.cpu_milli = b->cpus ? b->cpus * 1000 : spec.cpu_milli;
	spec.memory = b->memory_mb ? b->memory_mb << 20 : spec.memory;
	build_limit(b, &spec);
	return den_box_create(b->den, &spec, ret, err);
}

static int start_in(
	struct den_box *box, const char *start, const char *ready, struct den_err *err)
{
	const char *const run[] = { "/bin/bash", "-l", "-c", start, NULL };
	const char *const look[] = { "/bin/bash", "-l", "-c", ready, NULL };
	struct den_exec_opt opt = { .size = sizeof(opt), .argv = run, .tag = "den.start" };
	struct den_exec_opt ask = { .size = sizeof(ask), .argv = look, .timeout_ms = READY_MS };
	int64_t until = clock_mono_ns() + READY_MS * NS_PER_MS;
	struct den_exec_result res;
	auto_strv env = NULL;

	e2b_env(den_box_id(box), &env);
	opt.env = ask.env = (const char *const *)env;
	if (run_detached(box, &opt, err) < 0)
		return -1;
	if (!ready) {
		nanosleep(&(struct timespec){ .tv_sec = STEADY_MS / 1000 }, NULL);
		return 0;
	}
	while (clock_mono_ns() < until) {
		if (run_wait(box, &ask, NULL, NULL, &res, err) < 0)
			return -1;
		if (res.exited && res.status == 0)
			return 0;
		nanosleep(&(struct timespec){ .tv_nsec = READY_NAP_MS * NS_PER_MS }, NULL);
	}
	return den_fail(err, DEN_TIMEOUT, 0, "the ready command did not succeed a second time");
}

static int bake(struct build *b, char *const *all, const char *start, const char *ready,
	struct den_err *err)
{
	struct den_box *box;
	struct den_err ignored;
	int r;

	if (box_make(b, all[0], &box, err) < 0)
		return -1;
	r = start_in(box, start, ready, err);
	if (r == 0)
		r = den_template_bake_as(
			box, NULL, all[0], DEN_BAKE_REPLACE | DEN_BAKE_BESIDE, err);
	for (size_t i = 1; r == 0 && all[i]; i++)
		r = den_template_tag(b->den, all[0], all[i], err);
	(void)den_box_delete(box, true, &ignored);
	den_box_close(box);
	return r;
}

void build_bake(struct build *b, const char *start, const char *ready)
{
	auto_strv all = NULL;
	struct den_err err;

	if (names(b, &all, &err) == 0 && bake(b, all, start, ready, &err) == 0) {
		build_say(b, "info", "[finalize] kept with the start command running");
		return;
	}
	build_say(b, "warn",
		"[finalize] the start command will be started in each sandbox: its programs are "
		"not kept: %s",
		err.msg);
	log_line("warn", "e2b", "template %s has the files alone: %s", b->name, err.msg);
}
