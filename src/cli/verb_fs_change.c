/* den fs mkdir, mv, rm, chmod, chown */
#include "cli.h"
#include "fs.h"
#include "verbs.h"

static const struct option_def mkdir_options[] = {
	{ "parents", 'p', OPT_FLAG, offsetof(struct args, parents), NULL,
		"make missing directories above; one that is there is fine" },
	{ "mode", 0, OPT_TEXT, offsetof(struct args, mode), "OCTAL",
		"permissions (default: 0755)" },
	{ 0 },
};

static int mkdir_one(struct den_box *box, const char *path, const struct args *a,
	const struct den_file_opt *opt, struct den_err *err)
{
	(void)a;
	return den_file_mkdir(box, path, opt, err);
}

static int fs_mkdir(const struct args *a)
{
	return fs_each_path(a, 1, mkdir_one);
}

const struct verb verb_fs_mkdir = {
	.name = "mkdir",
	.words = "BOX DIR...",
	.summary = "make directories",
	.help = "Examples:\n"
		"  den fs mkdir --parents --user app web /srv/app/logs\n",
	.options = { options_fs_user, mkdir_options },
	.min_words = 2,
	.max_words = -1,
	.complete = "b-",
	.run = fs_mkdir,
};

static const struct option_def mv_options[] = {
	{ "no-replace", 0, OPT_FLAG, offsetof(struct args, no_replace), NULL,
		"refuse when TO is there already" },
	{ 0 },
};

static int fs_mv(const struct args *a)
{
	auto_session s = { 0 };
	struct den_file_opt opt = fs_opt(a);
	struct den_err err = { 0 };
	int status = session_open(&s, a, a->words[0]);

	if (status)
		return status;
	if (den_file_move(s.box, a->words[1], a->words[2], &opt, &err) < 0)
		return cli_fail(a, &err, NULL);
	return 0;
}

const struct verb verb_fs_mv = {
	.name = "mv",
	.words = "BOX FROM TO",
	.summary = "rename a file or directory",
	.help = "TO is the new name, never a directory to move into.\n"
		"\n"
		"Examples:\n"
		"  den fs mv web /srv/app.new /srv/app\n",
	.options = { options_fs_user, mv_options },
	.min_words = 3,
	.max_words = 3,
	.complete = "b-",
	.run = fs_mv,
};

static const struct option_def rm_options[] = {
	{ "recursive", 'r', OPT_FLAG, offsetof(struct args, recursive), NULL,
		"directories with all that is in them" },
	{ "force", 'f', OPT_FLAG, offsetof(struct args, force), NULL, "what is not there is fine" },
	{ 0 },
};

static int rm_one(struct den_box *box, const char *path, const struct args *a,
	const struct den_file_opt *opt, struct den_err *err)
{
	(void)a;
	return den_file_remove(box, path, opt, err);
}

static int fs_rm(const struct args *a)
{
	return fs_each_path(a, 1, rm_one);
}

const struct verb verb_fs_rm = {
	.name = "rm",
	.words = "BOX PATH...",
	.summary = "remove files and directories",
	.help = "Examples:\n"
		"  den fs rm web /tmp/greeting\n"
		"  den fs rm --recursive --force web /srv/old\n",
	.options = { options_fs_user, rm_options },
	.min_words = 2,
	.max_words = -1,
	.complete = "b-",
	.run = fs_rm,
};

static const struct option_def owner_options[] = {
	{ "recursive", 'r', OPT_FLAG, offsetof(struct args, recursive), NULL,
		"directories with all that is in them" },
	{ "no-follow", 0, OPT_FLAG, offsetof(struct args, no_follow), NULL,
		"a link itself, not what it points to" },
	{ 0 },
};
static const struct option_def recursive_options[] = {
	{ "recursive", 'r', OPT_FLAG, offsetof(struct args, recursive), NULL,
		"directories with all that is in them" },
	{ 0 },
};

static int chmod_one(struct den_box *box, const char *path, const struct args *a,
	const struct den_file_opt *opt, struct den_err *err)
{
	return den_file_chmod(box, path, a->words[1], opt, err);
}

static int fs_chmod(const struct args *a)
{
	return fs_each_path(a, 2, chmod_one);
}

const struct verb verb_fs_chmod = {
	.name = "chmod",
	.words = "BOX OCTAL PATH...",
	.summary = "change permissions",
	.help = "Examples:\n"
		"  den fs chmod web 0755 /opt/app/run\n",
	.options = { options_fs_user, recursive_options },
	.min_words = 3,
	.max_words = -1,
	.complete = "b-",
	.run = fs_chmod,
};

static int chown_one(struct den_box *box, const char *path, const struct args *a,
	const struct den_file_opt *opt, struct den_err *err)
{
	return den_file_chown(box, path, a->words[1], opt, err);
}

static int fs_chown(const struct args *a)
{
	return fs_each_path(a, 2, chown_one);
}

const struct verb verb_fs_chown = {
	.name = "chown",
	.words = "BOX USER[:GROUP] PATH...",
	.summary = "change owners",
	.help = "Names are those of the box; numbers work, too.\n"
		"\n"
		"Examples:\n"
		"  den fs chown --recursive web app:app /srv/app\n",
	.options = { options_fs_user, owner_options },
	.min_words = 3,
	.max_words = -1,
	.complete = "b-",
	.run = fs_chown,
};
