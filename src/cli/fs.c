#include "fs.h"

#include <errno.h>

const struct option_def options_fs_user[] = {
	{ "user", 'u', OPT_TEXT, offsetof(struct args, user), "USER",
		"with this user's rights and ownership (default: root)" },
	{ 0 },
};

struct den_file_opt fs_opt(const struct args *a)
{
	return (struct den_file_opt){
		.size = sizeof(struct den_file_opt),
		.user = a->user,
		.mode = a->mode,
		.atomic = a->atomic,
		.parents = a->parents,
		.recursive = a->recursive,
		.missing_ok = a->force,
		.no_follow = a->no_follow,
		.no_replace = a->no_replace,
		.offset = a->offset,
		.length = a->length,
	};
}

int fs_printed(struct fs_print *p, int status, struct den_err *err)
{
	if (!status)
		return 0;
	p->status = status;
	return den_fail(err, DEN_INTERNAL, EPIPE, "standard output");
}

int fs_failed(const struct fs_print *p, const struct den_err *err)
{
	return p->status ? p->status : cli_fail(p->args, err, NULL);
}

int fs_each_path(const struct args *a, int from, path_fn fn)
{
	auto_session s = { 0 };
	struct den_file_opt opt = fs_opt(a);
	int first = session_open(&s, a, a->words[0]);

	if (first)
		return first;
	for (int i = from; i < a->n_words; i++) {
		struct den_err err = { 0 };

		if (fn(s.box, a->words[i], a, &opt, &err) < 0) {
			int status = cli_fail(a, &err, NULL);

			first = first ? first : status;
		}
	}
	return first;
}
