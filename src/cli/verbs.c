/* All verbs, by hand, in the order in which help lists them. */
#include "verbs.h"

#include <string.h>

#include "cli.h"

const struct verb *const verbs[] = {
	&verb_run,
	&verb_create,
	&verb_exec,
	&verb_attach,
	&verb_ps,
	&verb_kill,
	&verb_logs,
	&verb_cp,
	&verb_fs,
	&verb_log,
	&verb_show,
	&verb_diff,
	&verb_undo,
	&verb_rollback,
	&verb_checkpoint,
	&verb_tag,
	&verb_fork,
	&verb_merge,
	&verb_bisect,
	&verb_prune,
	&verb_template,
	&verb_policy,
	&verb_denials,
	&verb_incidents,
	&verb_journal,
	&verb_port,
	&verb_forward,
	&verb_secret,
	&verb_token,
	&verb_ident,
	&verb_ls,
	&verb_inspect,
	&verb_stats,
	&verb_stop,
	&verb_start,
	&verb_pause,
	&verb_resume,
	&verb_hibernate,
	&verb_wait,
	&verb_lease,
	&verb_label,
	&verb_rm,
	&verb_serve,
	&verb_key,
	&verb_pool,
	&verb_doctor,
	&verb_gc,
	&verb_version,
	&verb_help,
	NULL,
};

const struct verb *verb_find(const struct verb *const *list, const char *name)
{
	for (; *list; list++)
		if (!strcmp((*list)->name, name))
			return *list;
	return NULL;
}
