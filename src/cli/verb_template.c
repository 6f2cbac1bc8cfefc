#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "clock.h"
#include "fd.h"
#include "parse.h"
#include "template.h"
#include "verbs.h"

#define SHOW_AFTER_NS NS_PER_SEC
#define SHOW_EVERY_NS (200 * NS_PER_MS)

static int (*plain_keeper)(const char *state, const char *id);

/* A keeper that is forked from here takes signals as usual. */
static int forked_keeper(const char *state, const char *id)
{
	interrupt_forget();
	return plain_keeper(state, id);
}

static void progress_clear(struct template_job *j)
{
	if (j->shown)
		(void)!write(STDERR_FILENO, "\r\033[K", 4);
	j->shown = false;
}

static void on_note(const char *text, void *user)
{
	struct template_job *j = user;

	progress_clear(j);
	cli_note(j->args, "%s", text);
}

static void on_progress(const char *what, uint64_t bytes, void *user)
{
	struct template_job *j = user;
	int64_t now;
	char size[16], line[128];

	if (!j->tty)
		return;
	now = clock_mono_ns();
	if (now - j->start_ns < SHOW_AFTER_NS || now - j->shown_ns < SHOW_EVERY_NS)
		return;
	j->shown_ns = now;
	j->shown = true;
	format_size(bytes, size);
	snprintf(line, sizeof(line), "\r%.64s: %s \033[K", what, size);
	(void)!write(STDERR_FILENO, line, strlen(line));
}

/* What a program of a build prints is talk: stdout is for the result. */
static void on_output(const void *data, size_t n, void *user)
{
	progress_clear(user);
	(void)fd_write_all(STDERR_FILENO, data, n, NULL);
}

int template_job_begin(struct template_job *j, const struct args *a)
{
	struct den_err err = { 0 };

	*j = (struct template_job){ .args = a,
		.start_ns = clock_mono_ns(),
		.tty = isatty(STDERR_FILENO) && !a->quiet && !a->json };
	j->work = (struct work){ .note = on_note,
		.progress = on_progress,
		.output = on_output,
		.user = j,
		.quiet = a->quiet };
	if (cli_keeper && cli_keeper != forked_keeper) {
		plain_keeper = cli_keeper;
		cli_keeper = forked_keeper;
	}
	if (interrupt_begin(&err) < 0 || cli_open(a, &j->work.den, &err) < 0) {
		interrupt_end();
		return cli_fail(a, &err, NULL);
	}
	return 0;
}

static int print_made(const struct args *a, const char *name, const char *id)
{
	struct json j = { 0 };
	auto_buf out = { 0 };

	if (!a->json) {
		buf_addf(&out, "%s\n", id);
		return cli_print(a, &out);
	}
	json_open(&j, NULL, '{');
	json_str(&j, "name", name);
	json_str(&j, "id", id);
	json_close(&j, '}');
	return cli_print_json(a, &j);
}

int template_job_end(struct template_job *j, int r, const char *name, const char *id,
	const struct den_err *err, const char *hint)
{
	int status = 0, sig = interrupt_signal();

	progress_clear(j);
	if (r < 0) {
		status = cli_fail(j->args, err, sig ? NULL : hint);
		status = sig ? EXIT_SIGNAL + sig : status;
	} else if (id) {
		status = print_made(j->args, name, id);
	}
	den_close(j->work.den);
	interrupt_end();
	return status;
}

static const struct verb *const template_verbs[] = {
	&verb_template_ls,
	&verb_template_inspect,
	&verb_template_create,
	&verb_template_bake,
	&verb_template_build,
	&verb_template_builtin,
	&verb_template_debian,
	&verb_template_import,
	&verb_template_export,
	&verb_template_pull,
	&verb_template_push,
	&verb_template_tag,
	&verb_template_rm,
	&verb_template_verify,
	NULL,
};

const struct verb verb_template = {
	.name = "template",
	.words = "...",
	.summary = "make, list, import and export what boxes start from",
	.help = "A template is a file system that never changes, with defaults: user, working\n"
		"directory, environment, start command. 'host', this machine's own system, is\n"
		"always there. A template is named by its name, its id, or the first 12 or more\n"
		"characters of its id.\n"
		"\n"
		"Examples:\n"
		"  den template debian bookworm --packages git,python3   a Debian\n"
		"  den template create mine --from web                   from a box, as it is now\n"
		"  den template build -t app .                           from ./Dockerfile\n"
		"  den template import image.tar                         what docker save wrote\n"
		"  den template pull registry.example/team/app:1         from a registry\n"
		"  den run --template app                                a box of it\n",
	.subs = template_verbs,
};
