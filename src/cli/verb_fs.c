#include "cli.h"
#include "verbs.h"

static const struct verb *const fs_verbs[] = {
	&verb_fs_ls,
	&verb_fs_stat,
	&verb_fs_cat,
	&verb_fs_write,
	&verb_fs_mkdir,
	&verb_fs_mv,
	&verb_fs_rm,
	&verb_fs_chmod,
	&verb_fs_chown,
	&verb_fs_watch,
	NULL,
};

const struct verb verb_fs = {
	.name = "fs",
	.words = "BOX PATH...",
	.summary = "look at and change files of a box",
	.help = "Paths are those of the box: absolute, or from the home of --user (root).\n"
		"Nothing runs in the box for it, so it works without a shell or cat in there.\n"
		"'den cp' copies trees.\n"
		"\n"
		"Examples:\n"
		"  den fs ls web /srv\n"
		"  den fs cat web /etc/os-release\n"
		"  echo hello | den fs write web /tmp/greeting\n"
		"  den fs watch --recursive web /srv\n",
	.subs = fs_verbs,
};
