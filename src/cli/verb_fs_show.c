/* den fs ls, den fs stat */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "cli.h"
#include "fs.h"
#include "parse.h"
#include "show.h"
#include "verbs.h"

static char type_letter(const char *type)
{
	static const struct {
		const char *type;
		char letter;
	} letters[] = { { "file", '-' }, { "directory", 'd' }, { "symlink", 'l' }, { "fifo", 'p' },
		{ "socket", 's' }, { "char", 'c' }, { "block", 'b' } };

	for (size_t i = 0; type && i < sizeof(letters) / sizeof(letters[0]); i++)
		if (!strcmp(letters[i].type, type))
			return letters[i].letter;
	return '?';
}

/* "-rwsr-xr-x", as ls writes it. */
static void mode_text(const struct den_entry *e, char out[static 11])
{
	static const char bits[] = "rwxrwxrwx";

	out[0] = type_letter(e->type);
	for (int i = 0; i < 9; i++)
		out[i + 1] = e->mode & (0400U >> i) ? bits[i] : '-';
	if (e->mode & 04000)
		out[3] = out[3] == 'x' ? 's' : 'S';
	if (e->mode & 02000)
		out[6] = out[6] == 'x' ? 's' : 'S';
	if (e->mode & 01000)
		out[9] = out[9] == 'x' ? 't' : 'T';
	out[10] = '\0';
}

/* A name of the box, or the number when it has none, in a column. */
static void owner_text(struct buf *out, const char *name, uint32_t id)
{
	auto_buf b = { 0 };

	if (name && name[0])
		text_printable(&b, name, strlen(name));
	else
		buf_addf(&b, "%u", id);
	buf_addf(out, "%-8s ", buf_str(&b));
}

static void entry_line(struct buf *out, const struct den_entry *e)
{
	char mode[11], size[16], time[32];

	mode_text(e, mode);
	format_size(e->size, size);
	format_time(e->mtime_ns / 1000000, time);
	buf_addf(out, "%s ", mode);
	owner_text(out, e->user, e->uid);
	owner_text(out, e->group, e->gid);
	buf_addf(out, "%10s %s ", size, time);
	text_printable(out, e->path, strlen(e->path));
	if (e->target) {
		buf_addstr(out, " -> ");
		text_printable(out, e->target, strlen(e->target));
	}
	buf_addstr(out, "\n");
}

static int print_entry(const struct den_entry *e, void *user, struct den_err *err)
{
	struct fs_print *p = user;
	struct json j = { 0 };
	auto_buf out = { 0 };

	if (p->args->json) {
		json_open(&j, NULL, '{');
		show_entry_json(&j, e);
		json_close(&j, '}');
		return fs_printed(p, cli_print_json(p->args, &j), err);
	}
	if (p->args->quiet) {
		text_printable(&out, e->path, strlen(e->path));
		buf_addstr(&out, "\n");
	} else {
		entry_line(&out, e);
	}
	return fs_printed(p, cli_print(p->args, &out), err);
}

static const struct option_def ls_options[] = {
	{ "depth", 0, OPT_COUNT, offsetof(struct args, depth), "N",
		"so many levels down (default: 1)", "recursive" },
	{ "recursive", 'r', OPT_FLAG, offsetof(struct args, recursive), NULL, "all levels" },
	{ 0 },
};

static int fs_ls(const struct args *a)
{
	auto_session s = { 0 };
	struct fs_print p = { .args = a };
	struct den_file_opt opt = fs_opt(a);
	struct den_err err = { 0 };
	uint64_t depth = a->recursive ? 100000 : a->depth ? a->depth : 1;
	int status = session_open(&s, a, a->words[0]);

	if (status)
		return status;
	if (den_file_list(s.box, a->n_words > 1 ? a->words[1] : ".",
		    depth > 100000 ? 100000 : (unsigned)depth, &opt, print_entry, &p, &err) < 0)
		return fs_failed(&p, &err);
	return 0;
}

const struct verb verb_fs_ls = {
	.name = "ls",
	.words = "BOX [DIR]",
	.summary = "list a directory",
	.help = "Sorted, with everything, links not followed. With --quiet only names, with\n"
		"--json one object a line.\n"
		"\n"
		"Examples:\n"
		"  den fs ls web /srv\n"
		"  den fs ls --depth 3 --quiet web /srv\n"
		"  den fs ls --recursive --json web / | jq 'select(.size > 100000000).path'\n",
	.options = { options_fs_user, ls_options },
	.min_words = 1,
	.max_words = 2,
	.complete = "b-",
	.run = fs_ls,
};

static const struct option_def stat_options[] = {
	{ "no-follow", 0, OPT_FLAG, offsetof(struct args, no_follow), NULL,
		"a link itself, not what it points to" },
	{ 0 },
};

static int stat_one(struct den_box *box, const char *path, const struct args *a,
	const struct den_file_opt *opt, struct den_err *err)
{
	struct fs_print p = { .args = a };

	return den_file_stat(box, path, opt, print_entry, &p, err);
}

static int fs_stat(const struct args *a)
{
	return fs_each_path(a, 1, stat_one);
}

const struct verb verb_fs_stat = {
	.name = "stat",
	.words = "BOX PATH...",
	.summary = "tell about a file: type, mode, owner, size, time",
	.help = "Examples:\n"
		"  den fs stat web /etc/passwd\n"
		"  den fs stat --json web /srv/app | jq -r .mode\n",
	.options = { options_fs_user, stat_options },
	.min_words = 2,
	.max_words = -1,
	.complete = "b-",
	.run = fs_stat,
};
