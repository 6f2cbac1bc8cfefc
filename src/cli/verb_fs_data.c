/* den fs cat, den fs write */
#include <errno.h>
#include <unistd.h>

#include "cli.h"
#include "fs.h"
#include "verbs.h"

static int sink(const void *data, size_t n, void *user, struct den_err *err)
{
	struct fs_print *p = user;

	return fs_printed(p, cli_write(p->args, data, n), err);
}

static const struct option_def cat_options[] = {
	{ "offset", 0, OPT_NUMBER, offsetof(struct args, offset), "BYTES", "start there" },
	{ "length", 0, OPT_COUNT, offsetof(struct args, length), "BYTES",
		"at most so many (default: to the end)" },
	{ 0 },
};

static int fs_cat(const struct args *a)
{
	auto_session s = { 0 };
	struct fs_print p = { .args = a };
	struct den_file_opt opt = fs_opt(a);
	int first = session_open(&s, a, a->words[0]);

	if (first)
		return first;
	for (int i = 1; i < a->n_words; i++) {
		struct den_err err = { 0 };

		if (den_file_read(s.box, a->words[i], &opt, sink, &p, &err) < 0) {
			int status = fs_failed(&p, &err);

			if (p.status) /* nobody reads any more */
				return status;
			first = first ? first : status;
		}
	}
	return first;
}

const struct verb verb_fs_cat = {
	.name = "cat",
	.words = "BOX FILE...",
	.summary = "print files",
	.help = "Examples:\n"
		"  den fs cat web /etc/os-release\n"
		"  den fs cat --offset 1000 --length 200 web /var/log/app.log\n",
	.options = { options_fs_user, cat_options },
	.min_words = 2,
	.max_words = -1,
	.complete = "b-",
	.run = fs_cat,
};

static const struct option_def write_options[] = {
	{ "atomic", 0, OPT_FLAG, offsetof(struct args, atomic), NULL,
		"nobody sees a part: the old file stays until the end" },
	{ "mode", 0, OPT_TEXT, offsetof(struct args, mode), "OCTAL",
		"permissions of a new file (default: 0644)" },
	{ "parents", 'p', OPT_FLAG, offsetof(struct args, parents), NULL,
		"make missing directories above" },
	{ 0 },
};

static ssize_t source(void *buf, size_t cap, void *user, struct den_err *err)
{
	ssize_t n;

	(void)user;
	do
		n = read(STDIN_FILENO, buf, cap);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return den_fail_sys(err, errno, "read from standard input");
	return n;
}

static int fs_write(const struct args *a)
{
	auto_session s = { 0 };
	struct den_file_opt opt = fs_opt(a);
	struct den_err err = { 0 };
	int status = session_open(&s, a, a->words[0]);

	if (status)
		return status;
	if (den_file_write(s.box, a->words[1], &opt, source, NULL, &err) < 0)
		return cli_fail(a, &err, NULL);
	return 0;
}

const struct verb verb_fs_write = {
	.name = "write",
	.words = "BOX FILE",
	.summary = "write standard input to a file",
	.help = "An existing file is replaced. When den leaves with 0 it is on disk.\n"
		"\n"
		"Examples:\n"
		"  echo hello | den fs write web /tmp/greeting\n"
		"  den fs write --atomic --parents --mode 0755 web /opt/app/run < run.sh\n",
	.options = { options_fs_user, write_options },
	.min_words = 2,
	.max_words = 2,
	.complete = "b-",
	.run = fs_write,
};
