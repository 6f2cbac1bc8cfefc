/*
 * Does to boxes what it is told, through libden, and says how long each took: no program is started
 * for it but what den itself starts.
 *
 *   history <COMMANDS >SAMPLES       (DEN_STATE and DEN_EXE say where)
 *
 * A command is a line of words separated by tabs. Its samples ("label <tab> nanoseconds") are followed
 * by "ok", or by "error: why". Boxes are known by name; who is first mentioned is opened.
 *
 *   create BOX HISTORY             not timed
 *   exec BOX COMMAND               sh -c; not timed
 *   detach BOX                     a program that stays, so that the box is not idle
 *   checkpoint BOX LABEL
 *   rollback BOX REF LABEL         until the box runs again
 *   fork BOX NEW LABEL             until it runs; and, as "LABEL, first program ended", until it ran true
 *   delete BOX LABEL               of a running box
 *   turn BOX COMMAND LABEL         exec until it ended, and until the next request is answered
 */
#include <den.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BOXES_MAX 512
#define WORDS_MAX 5

static struct {
	char *name;
	struct den_box *box;
} boxes[BOXES_MAX];
static struct den *den;

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static void tell(const char *label, const char *more, int64_t since)
{
	printf("%s%s\t%lld\n", label, more, (long long)(now_ns() - since));
}

/* ---- handles ---- */

static int refuse(const char *why, struct den_err *err)
{
	err->code = DEN_INVALID;
	snprintf(err->msg, sizeof(err->msg), "%s", why);
	return -1;
}

static int keep(const char *name, struct den_box *box, struct den_err *err)
{
	for (size_t i = 0; i < BOXES_MAX; i++)
		if (!boxes[i].name) {
			boxes[i].name = strdup(name);
			boxes[i].box = box;
			return 0;
		}
	den_box_close(box);
	return refuse("too many boxes", err);
}

static void forget(const char *name)
{
	for (size_t i = 0; i < BOXES_MAX; i++)
		if (boxes[i].name && !strcmp(boxes[i].name, name)) {
			den_box_close(boxes[i].box);
			free(boxes[i].name);
			boxes[i].name = NULL;
		}
}

static int find(const char *name, struct den_box **ret, struct den_err *err)
{
	for (size_t i = 0; i < BOXES_MAX; i++)
		if (boxes[i].name && !strcmp(boxes[i].name, name)) {
			*ret = boxes[i].box;
			return 0;
		}
	return den_box_open(den, name, ret, err) < 0 ? -1 : keep(name, *ret, err);
}

/* ---- commands ---- */

static int run(struct den_box *box, const char *const *argv, unsigned flags, struct den_err *err)
{
	static const struct den_exec_ops ops = { 0 };
	struct den_exec_opt opt = { .size = sizeof(opt), .argv = argv, .flags = flags };
	struct den_exec_result result = { 0 };
	struct den_exec *e;
	int r;

	if (den_exec_start(box, &opt, &ops, NULL, &e, err) < 0)
		return -1;
	r = den_exec_wait(e, &result, err);
	den_exec_unref(e);
	if (r == 0 && !(flags & DEN_EXEC_DETACH) && (!result.exited || result.status))
		return refuse("the command failed", err);
	return r;
}

static int shell(struct den_box *box, const char *command, struct den_err *err)
{
	const char *argv[] = { "sh", "-c", command, NULL };

	return run(box, argv, 0, err);
}

static int do_create(struct den_box *box, char **w, struct den_err *err)
{
	struct den_box_spec spec = { .size = sizeof(spec), .name = w[1], .history = w[2] };

	return den_box_create(den, &spec, &box, err) < 0 ? -1 : keep(w[1], box, err);
}

static int do_exec(struct den_box *box, char **w, struct den_err *err)
{
	return shell(box, w[2], err);
}

static int do_detach(struct den_box *box, char **w, struct den_err *err)
{
	const char *argv[] = { "sleep", "100000", NULL };

	(void)w;
	return run(box, argv, DEN_EXEC_DETACH, err);
}

static int do_checkpoint(struct den_box *box, char **w, struct den_err *err)
{
	int64_t since = now_ns();

	if (den_checkpoint(box, "bench", NULL, err) < 0)
		return -1;
	tell(w[2], "", since);
	return 0;
}

static int do_rollback(struct den_box *box, char **w, struct den_err *err)
{
	int64_t since = now_ns();

	if (den_rollback(box, w[2], NULL, err) < 0)
		return -1;
	tell(w[3], "", since);
	return 0;
}

static int do_fork(struct den_box *box, char **w, struct den_err *err)
{
	const char *argv[] = { "true", NULL };
	int64_t since = now_ns();
	struct den_box *made;

	if (den_box_fork(box, NULL, w[2], &made, err) < 0)
		return -1;
	tell(w[3], "", since);
	if (keep(w[2], made, err) < 0 || run(made, argv, 0, err) < 0)
		return -1;
	tell(w[3], ", first program ended", since);
	return 0;
}

static int do_delete(struct den_box *box, char **w, struct den_err *err)
{
	int64_t since = now_ns();

	if (den_box_delete(box, true, err) < 0)
		return -1;
	tell(w[2], "", since);
	forget(w[1]);
	return 0;
}

/* What a turn leaves behind is done after its answer: whoever asks next waits for it. */
static int do_turn(struct den_box *box, char **w, struct den_err *err)
{
	struct den_box_info *info;
	int64_t since = now_ns();

	if (shell(box, w[2], err) < 0)
		return -1;
	tell(w[3], ", ended", since);
	if (den_box_info(box, &info, err) < 0)
		return -1;
	tell(w[3], ", next answer", since);
	den_box_infos_free(info, 1);
	return 0;
}

static const struct {
	const char *name;
	int words;
	bool opens; /* the box is there already */
	int (*run)(struct den_box *box, char **words, struct den_err *err);
} commands[] = {
	{ "create", 3, false, do_create },
	{ "exec", 3, true, do_exec },
	{ "detach", 2, true, do_detach },
	{ "checkpoint", 3, true, do_checkpoint },
	{ "rollback", 4, true, do_rollback },
	{ "fork", 4, true, do_fork },
	{ "delete", 3, true, do_delete },
	{ "turn", 4, true, do_turn },
};

static int obey(char *line, struct den_err *err)
{
	char *words[WORDS_MAX], *rest = line;
	struct den_box *box = NULL;
	int n = 0;

	while (rest && n < WORDS_MAX)
		words[n++] = strsep(&rest, "\t");
	for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++) {
		if (strcmp(commands[i].name, words[0]) || commands[i].words != n)
			continue;
		if (commands[i].opens && find(words[1], &box, err) < 0)
			return -1;
		return commands[i].run(box, words, err);
	}
	return refuse("no such command", err);
}

int main(void)
{
	struct den_err err = { 0 };
	char *line = NULL;
	size_t cap = 0;

	if (den_open(NULL, &den, &err) < 0) {
		fprintf(stderr, "history: %s\n", err.msg);
		return 1;
	}
	while (getline(&line, &cap, stdin) >= 0) {
		line[strcspn(line, "\n")] = '\0';
		if (obey(line, &err) < 0)
			printf("error: %s\n", err.msg);
		else
			puts("ok");
		fflush(stdout);
	}
	free(line);
	for (size_t i = 0; i < BOXES_MAX; i++)
		if (boxes[i].name)
			forget(boxes[i].name);
	den_close(den);
	return 0;
}
