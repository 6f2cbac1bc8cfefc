/* The steps of a template: RUN, COPY, ENV, WORKDIR, USER. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "build.h"
#include "mem.h"
#include "run.h"
#include "strv.h"

#define RUN_MS (3600 * 1000ULL)

static const char *arg(const json_t *args, size_t i)
{
	const char *s = json_string_value(json_array_get(args, i));

	return s ? s : "";
}

int build_shell(struct build *b, const char *command, const char *user, const char *cwd,
	struct den_err *err)
{
	const char *const argv[] = { "/bin/bash", "-l", "-c", command, NULL };
	struct den_exec_opt opt = { .size = sizeof(opt),
		.argv = argv,
		.user = user,
		.cwd = cwd,
		.env = (const char *const *)b->env,
		.timeout_ms = RUN_MS };
	struct den_exec_result res;

	if (run_wait(b->box, &opt, build_output, b, &res, err) < 0)
		return -1;
	build_output_end(b);
	if (res.exited && res.status == 0)
		return 0;
	return den_fail(err, DEN_CONFLICT, 0, "failed to run command '%.120s': exit status %d%s%s",
		command, res.exited ? res.status : 128 + res.status,
		res.reason[0] ? ", limit: " : "", res.reason);
}

static int step_run(struct build *b, const json_t *step, struct den_err *err)
{
	const json_t *args = json_object_get(step, "args");
	const char *user = arg(args, 1);

	if (!*arg(args, 0))
		return den_fail(err, DEN_INVALID, 0, "RUN needs a command");
	return build_shell(b, arg(args, 0), *user ? user : b->user, b->workdir, err);
}

static int step_env(struct build *b, const json_t *step, struct den_err *err)
{
	const json_t *args = json_object_get(step, "args");

	if (json_array_size(args) % 2)
		return den_fail(err, DEN_INVALID, 0, "ENV needs names and values in turn");
	for (size_t i = 0; i < json_array_size(args); i += 2) {
		auto_free char *text = NULL;

		if (!*arg(args, i) || strchr(arg(args, i), '='))
			return den_fail(err, DEN_INVALID, 0,
				"ENV: '%.60s' is no name of a variable", arg(args, i));
		if (asprintf(&text, "%s=%s", arg(args, i), arg(args, i + 1)) < 0)
			abort();
		strv_env_put(&b->env, text);
	}
	return 0;
}

static int step_workdir(struct build *b, const json_t *step, struct den_err *err)
{
	const char *dir = arg(json_object_get(step, "args"), 0);
	const struct den_file_opt opt = { .size = sizeof(opt), .user = "root", .parents = true };
	auto_free char *path = NULL;
	int r;

	if (!*dir)
		return den_fail(err, DEN_INVALID, 0, "WORKDIR needs a directory");
	if (asprintf(&path, dir[0] == '/' ? "%.0s%s" : "%s/%s", b->workdir, dir) < 0)
		abort();
	r = den_file_mkdir(b->box, path, &opt, err);
	if (r == 0)
		r = den_file_chown(b->box, path, b->user, NULL, err);
	else if (err->code == DEN_CONFLICT) /* it is there */
		r = 0;
	if (r < 0)
		return -1;
	free(b->workdir);
	b->workdir = mem_take(&path);
	return 0;
}

static int step_user(struct build *b, const json_t *step, struct den_err *err)
{
	const char *user = arg(json_object_get(step, "args"), 0);

	if (!*user)
		return den_fail(err, DEN_INVALID, 0, "USER needs a name");
	free(b->user);
	b->user = mem_strdup(user);
	return 0;
}

static const struct {
	const char *type;
	int (*run)(struct build *b, const json_t *step, struct den_err *err);
} kinds[] = {
	{ "RUN", step_run },
	{ "COPY", build_copy },
	{ "ENV", step_env },
	{ "WORKDIR", step_workdir },
	{ "USER", step_user },
};

static int step_one(struct build *b, const json_t *step, size_t i, size_t n, struct den_err *err)
{
	const char *type = json_string_value(json_object_get(step, "type"));
	const json_t *args = json_object_get(step, "args");

	for (size_t k = 0; type && k < ARRAY_SIZE(kinds); k++)
		if (!strcmp(kinds[k].type, type)) {
			build_say(b, "info", "[builder %zu/%zu] %s %.300s %.300s", i + 1, n, type,
				arg(args, 0), strcmp(type, "COPY") ? "" : arg(args, 1));
			build_flush(b);
			return kinds[k].run(b, step, err);
		}
	return den_fail(err, DEN_INVALID, 0,
		"step '%.40s' is not known: RUN, COPY, ENV, WORKDIR or USER", type ? type : "");
}

int build_steps(struct build *b, struct den_err *err)
{
	const json_t *steps = json_object_get(b->body, "steps");
	json_t *step;
	size_t i;

	json_array_foreach (steps, i, step) {
		snprintf(b->step, sizeof(b->step), "%zu", i + 1);
		if (step_one(b, step, i, json_array_size(steps), err) < 0)
			return -1;
	}
	return 0;
}
