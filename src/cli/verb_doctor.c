#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli.h"
#include "mem.h"
#include "table.h"
#include "verbs.h"

/* One wall is enough; of everything else nothing may be missing. */
static bool can_run(const struct den_finding *f, size_t n)
{
	size_t walls = 0, missing = 0;

	for (size_t i = 0; i < n; i++) {
		bool wall = !strncmp(f[i].topic, "wall ", 5), gone = !strcmp(f[i].level, "missing");

		walls += wall;
		missing += wall && gone;
		if (gone && !wall)
			return false;
	}
	return !walls || missing < walls;
}

static void findings_json(struct json *j, const struct den_finding *f, size_t n)
{
	json_open(j, NULL, '{');
	json_bool(j, "ok", can_run(f, n));
	json_open(j, "findings", '[');
	for (size_t i = 0; i < n; i++) {
		json_open(j, NULL, '{');
		json_str(j, "topic", f[i].topic);
		json_str(j, "level", f[i].level);
		json_str(j, "text", f[i].text);
		json_close(j, '}');
	}
	json_close(j, ']');
	json_close(j, '}');
}

static void findings_text(
	const struct args *a, struct buf *out, const struct den_finding *f, size_t n)
{
	struct winsize w = { 0 };
	size_t topic = 0, wide = 100;

	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col >= 40)
		wide = w.ws_col;
	for (size_t i = 0; i < n; i++)
		topic = MAX(topic, strlen(f[i].topic));
	for (size_t i = 0; i < n; i++) {
		const char *color = f[i].level[0] == 'o'   ? "32"
				    : f[i].level[0] == 'l' ? "33"
							   : "31";

		if (cli_color(a))
			buf_addf(out, "\033[%sm%-7s\033[0m  ", color, f[i].level);
		else
			buf_addf(out, "%-7s  ", f[i].level);
		buf_addf(out, "%-*s  ", (int)topic, f[i].topic);
		text_wrapped(out, f[i].text, 7 + 2 + topic + 2, wide);
	}
}

static int doctor(const struct args *a)
{
	struct den *d = NULL;
	struct den_finding *f = NULL;
	struct den_err err = { 0 };
	struct json j = { 0 };
	size_t n = 0;
	bool ok;
	int status;

	if (cli_open(a, &d, &err) < 0)
		return cli_fail(a, &err, NULL);
	if (den_doctor(d, &f, &n, &err) < 0) {
		den_close(d);
		return cli_fail(a, &err, NULL);
	}
	ok = can_run(f, n);
	if (a->json) {
		findings_json(&j, f, n);
		status = cli_print_json(a, &j);
	} else {
		findings_text(a, &j.b, f, n);
		buf_addstr(&j.b, ok ? "This machine can run boxes.\n"
				    : "This machine cannot run boxes yet.\n");
		status = cli_print(a, &j.b);
		buf_free(&j.b);
	}
	den_findings_free(f, n);
	den_close(d);
	return status ? status : ok ? 0 : cli_exit_code(DEN_UNSUPPORTED);
}

const struct verb verb_doctor = {
	.name = "doctor",
	.summary = "tell what this machine can do for den, and what it lacks",
	.help = "ok       is there\n"
		"limited  works, at a cost that the text tells\n"
		"missing  is not there; boxes need one wall, and all of the rest\n"
		"\n"
		"Leaves with 0 when boxes can run, with 8 when not.\n"
		"\n"
		"Examples:\n"
		"  den doctor\n"
		"  den doctor --json | jq '.findings[] | select(.level != \"ok\")'\n",
	.complete = "-",
	.run = doctor,
};
