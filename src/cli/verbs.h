#pragma once

struct verb;

extern const struct verb verb_attach, verb_cp, verb_create, verb_doctor, verb_exec, verb_fs,
	verb_gc, verb_help, verb_inspect, verb_kill, verb_logs, verb_ls, verb_lease, verb_label, verb_pause, verb_ps,
	verb_resume, verb_hibernate, verb_rm, verb_run, verb_start, verb_stats, verb_stop, verb_version, verb_wait;

/* history */
extern const struct verb verb_bisect, verb_checkpoint, verb_diff, verb_fork, verb_log, verb_merge,
	verb_pool, verb_prune, verb_rollback, verb_show, verb_tag, verb_undo;

/* secrets and identity */
extern const struct verb verb_ident, verb_secret, verb_token;

/* the server */
extern const struct verb verb_key, verb_serve;

/* the network */
extern const struct verb verb_denials, verb_forward, verb_incidents, verb_journal, verb_port;
extern const struct verb verb_policy, verb_policy_ls, verb_policy_schema, verb_policy_show;

/* below fs */
extern const struct verb verb_fs_cat, verb_fs_chmod, verb_fs_chown, verb_fs_ls, verb_fs_mkdir,
	verb_fs_mv, verb_fs_rm, verb_fs_stat, verb_fs_watch, verb_fs_write;

/* below template */
extern const struct verb verb_template, verb_template_build, verb_template_builtin, verb_template_bake, verb_template_create, verb_template_debian,
	verb_template_export, verb_template_import, verb_template_inspect, verb_template_ls,
	verb_template_pull, verb_template_push, verb_template_rm, verb_template_tag, verb_template_verify;
