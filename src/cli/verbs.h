#pragma once

struct verb;

extern const struct verb verb_attach, verb_cp, verb_create, verb_doctor, verb_exec, verb_fs,
	verb_gc, verb_help, verb_inspect, verb_kill, verb_logs, verb_ls, verb_pause, verb_ps,
	verb_resume, verb_rm, verb_run, verb_start, verb_stats, verb_stop, verb_version, verb_wait;

/* below fs */
extern const struct verb verb_fs_cat, verb_fs_chmod, verb_fs_chown, verb_fs_ls, verb_fs_mkdir,
	verb_fs_mv, verb_fs_rm, verb_fs_stat, verb_fs_watch, verb_fs_write;
