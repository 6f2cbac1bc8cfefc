#include <string.h>

#include "cli.h"
#include "verbs.h"

static void removed_json(struct json *j, const struct den_finding *f, size_t n)
{
	json_open(j, NULL, '{');
	json_open(j, "removed", '[');
	for (size_t i = 0; i < n; i++) {
		json_open(j, NULL, '{');
		json_str(j, "topic", f[i].topic);
		json_str(j, "text", f[i].text);
		json_close(j, '}');
	}
	json_close(j, ']');
	json_close(j, '}');
}

static void removed_text(struct buf *out, const struct den_finding *f, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		text_printable(out, f[i].topic, strlen(f[i].topic));
		buf_addstr(out, ": ");
		text_printable(out, f[i].text, strlen(f[i].text));
		buf_addstr(out, "\n");
	}
}

static int gc(const struct args *a)
{
	struct den *d = NULL;
	struct den_finding *f = NULL;
	struct den_err err = { 0 };
	struct json j = { 0 };
	size_t n = 0;
	int status;

	if (cli_open(a, &d, &err) < 0)
		return cli_fail(a, &err, NULL);
	if (den_gc(d, &f, &n, &err) < 0) {
		den_close(d);
		return cli_fail(a, &err, NULL);
	}
	if (a->json) {
		removed_json(&j, f, n);
		status = cli_print_json(a, &j);
	} else {
		removed_text(&j.b, f, n);
		status = cli_print(a, &j.b);
		buf_free(&j.b);
		if (!n && !status)
			cli_note(a, "nothing to remove");
	}
	den_findings_free(f, n);
	den_close(d);
	return status;
}

const struct verb verb_gc = {
	.name = "gc",
	.summary = "remove what crashes left behind; prints what it removed",
	.help = "Mounts, control groups, half-made and half-deleted boxes that nobody owns.\n"
		"Boxes, running or stopped, stay. It is safe at any time, and den does the\n"
		"same by itself when it starts a box.\n"
		"\n"
		"Examples:\n"
		"  den gc\n"
		"  den gc --json\n",
	.complete = "-",
	.run = gc,
};
