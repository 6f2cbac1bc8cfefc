/* What the verbs below fs share. */
#pragma once

#include "cli.h"

extern const struct option_def options_fs_user[];

/* The file options that were given. */
struct den_file_opt fs_opt(const struct args *a);
/* Where callbacks of the library print to: the status of a failed print, for after the call. */
struct fs_print {
	const struct args *args;
	int status;
};
/* What a callback gives after printing: 0, or -1 with *err set. */
int fs_printed(struct fs_print *p, int status, struct den_err *err);
/* After the call: the status of a failed print, else of err. */
int fs_failed(const struct fs_print *p, const struct den_err *err);
/* Does fn with each path from word number `from` on; as cli_each_box(). */
typedef int (*path_fn)(struct den_box *box, const char *path, const struct args *a,
	const struct den_file_opt *opt, struct den_err *err);
int fs_each_path(const struct args *a, int from, path_fn fn);
