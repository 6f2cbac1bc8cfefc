#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "points.h"
#include "verbs.h"

#define LINE_MAX_BYTES 65536
#define EXIT_DIFFERENT 1

static const struct option_def diff_options[] = {
	{ "text", 0, OPT_FLAG, offsetof(struct args, text), NULL, "line by line, as diff -u",
		"tar name-only json" },
	{ "tar", 0, OPT_FLAG, offsetof(struct args, tar), NULL,
		"the changes themselves, as an archive on standard output",
		"name-only json exit-code" },
	{ "name-only", 0, OPT_FLAG, offsetof(struct args, name_only), NULL, "paths alone", "json" },
	{ "exit-code", 0, OPT_FLAG, offsetof(struct args, exit_code), NULL,
		"leave with 1 when there are changes; with --quiet print nothing" },
	{ 0 },
};

struct diff {
	const struct args *args;
	struct buf line; /* what has no end yet, on a terminal */
	bool changed, safe;
	int status; /* of a failed print */
};

static int printed(struct diff *d, int status, struct den_err *err)
{
	d->status = status;
	return status ? den_fail(err, DEN_INTERNAL, EPIPE, "standard output") : 0;
}

static int on_change(const struct den_change *c, void *user, struct den_err *err)
{
	struct diff *d = user;
	struct json j = { 0 };
	auto_buf out = { 0 };

	d->changed = true;
	if (d->args->quiet && d->args->exit_code)
		return 0;
	if (d->args->json) {
		change_json(&j, NULL, c);
		return printed(d, cli_print_json(d->args, &j), err);
	}
	if (d->args->name_only) {
		text_printable(&out, c->path, strlen(c->path));
		buf_addstr(&out, "\n");
	} else {
		change_line(&out, c);
	}
	return printed(d, cli_print(d->args, &out), err);
}

/* A line of a file that a box made, for a terminal. */
static int put_line(struct diff *d, struct den_err *err)
{
	auto_buf out = { 0 };
	const char *p = d->line.p, *end = p + d->line.len;

	while (p < end) {
		size_t n = 0;

		while (p + n < end && p[n] != '\n' && p[n] != '\t')
			n++;
		text_printable(&out, p, n);
		p += n;
		if (p < end)
			buf_add(&out, p++, 1);
	}
	d->line.len = 0;
	return printed(d, cli_print(d->args, &out), err);
}

static int on_data(const void *data, size_t n, void *user, struct den_err *err)
{
	struct diff *d = user;
	const char *p = data;

	d->changed = d->changed || n;
	if (d->args->quiet && d->args->exit_code)
		return 0;
	if (!d->safe)
		return printed(d, cli_write(d->args, data, n), err);
	while (n) {
		const char *end = memchr(p, '\n', n);
		size_t len = end ? (size_t)(end - p) + 1 : n;

		buf_add(&d->line, p, len);
		p += len;
		n -= len;
		if ((end || d->line.len > LINE_MAX_BYTES) && put_line(d, err) < 0)
			return -1;
	}
	return 0;
}

static int diff(const struct args *a)
{
	auto_session s = { 0 };
	struct diff d = { .args = a, .safe = a->text && isatty(STDOUT_FILENO) };
	struct den_err err = { 0 };
	const char *from = a->n_words > 1 ? a->words[1] : NULL,
		   *to = a->n_words > 2 ? a->words[2] : NULL;
	int r, status;

	if (a->tar && isatty(STDOUT_FILENO)) {
		den_fail(&err, DEN_INVALID, 0, "an archive is not for a terminal");
		return cli_fail(a, &err, "send it somewhere: den diff --tar BOX >changes.tar");
	}
	status = session_open(&s, a, a->words[0]);
	if (status)
		return status;
	if (a->tar)
		r = den_diff_tar(s.box, from, to, on_data, &d, &err);
	else if (a->text)
		r = den_diff_text(s.box, from, to, on_data, &d, &err);
	else
		r = den_diff(s.box, from, to, on_change, &d, &err);
	if (r == 0 && d.line.len)
		r = put_line(&d, &err);
	buf_free(&d.line);
	if (d.status)
		return d.status;
	if (r < 0)
		return history_fail(a, &err);
	return a->exit_code && d.changed ? EXIT_DIFFERENT : 0;
}

const struct verb verb_diff = {
	.name = "diff",
	.words = "BOX [FROM [TO]]",
	.summary = "tell what changed in a box's files",
	.help = "From its beginning to now, or between two checkpoints (see 'den log'):\n"
		"  A  added      D  removed, with all that was below\n"
		"  M  changed    m  only what is said: mode, owner, xattr\n"
		"With --json one object a line. With --tar an archive (a layer: a file "
		"\".wh.NAME\"\n"
		"stands for NAME removed) that tar can unpack elsewhere.\n"
		"\n"
		"Examples:\n"
		"  den diff web                     all that was ever changed\n"
		"  den diff web head                since the last checkpoint\n"
		"  den diff web 3 7                 between two of them\n"
		"  den diff --text web ~1           the last change, line by line\n"
		"  den diff --tar web good >changes.tar\n"
		"  den diff --exit-code --quiet web good && echo nothing changed\n",
	.options = { diff_options },
	.min_words = 1,
	.max_words = 3,
	.complete = "br",
	.run = diff,
};
