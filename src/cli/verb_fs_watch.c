#include <string.h>

#include "cli.h"
#include "fs.h"
#include "verbs.h"

static const struct option_def watch_options[] = {
	{ "recursive", 'r', OPT_FLAG, offsetof(struct args, recursive), NULL,
		"directories below it, too" },
	{ 0 },
};

/* The first entry is empty: from then on nothing is missed. */
static int print_event(const struct den_entry *e, void *user, struct den_err *err)
{
	struct fs_print *p = user;
	bool ready = !e->event || !e->event[0];
	const char *path = e->path ? e->path : "";
	struct json j = { 0 };
	auto_buf out = { 0 };

	if (p->args->json) {
		json_open(&j, NULL, '{');
		json_str(&j, "event", ready ? "ready" : e->event);
		json_str(&j, "path", path);
		json_str(&j, "type", e->type && e->type[0] ? e->type : NULL);
		json_close(&j, '}');
		return fs_printed(p, cli_print_json(p->args, &j), err);
	}
	if (ready) {
		cli_note(p->args, "watching; Ctrl-C ends it");
		return 0;
	}
	buf_addf(&out, "%-7s ", e->event);
	text_printable(&out, path, strlen(path));
	buf_addstr(&out, "\n");
	return fs_printed(p, cli_print(p->args, &out), err);
}

static int fs_watch(const struct args *a)
{
	auto_session s = { 0 };
	struct fs_print p = { .args = a };
	struct den_file_opt opt = fs_opt(a);
	struct den_err err = { 0 };
	int status = session_open(&s, a, a->words[0]);

	if (status)
		return status;
	if (den_file_watch(s.box, a->words[1], &opt, print_event, &p, &err) < 0)
		return fs_failed(&p, &err);
	return 0;
}

const struct verb verb_fs_watch = {
	.name = "watch",
	.words = "BOX DIR",
	.summary = "tell what changes in a directory, as it does",
	.help = "One line a change: create, write, remove, rename, chmod, and the path below\n"
		"DIR; \"lost\" says that there were too many to tell. With --json one object a\n"
		"line, of which the first is \"ready\": from then on nothing is missed.\n"
		"\n"
		"Examples:\n"
		"  den fs watch --recursive web /srv\n"
		"  den fs watch --json web /srv | jq -r 'select(.event == \"create\").path'\n",
	.options = { options_fs_user, watch_options },
	.min_words = 2,
	.max_words = 2,
	.complete = "b-",
	.run = fs_watch,
};
