/* The handlers of /v1, by file; routes.c has the table. */
#pragma once

#include "v1.h"

#define HANDLER(name) int name(struct req *r, struct den_err *err)

/* boxes.c, figures.c */
HANDLER(v1_boxes_list);
HANDLER(v1_boxes_create);
HANDLER(v1_box_get);
HANDLER(v1_box_patch);
HANDLER(v1_box_delete);
HANDLER(v1_box_start);
HANDLER(v1_box_stop);
HANDLER(v1_box_resume);
HANDLER(v1_box_lease);
HANDLER(v1_box_stats);
HANDLER(v1_box_ps);
/* memory.c */
HANDLER(v1_box_pause);
HANDLER(v1_box_hibernate);
HANDLER(v1_bake);
/* execs.c, exec_stream.c, terminal.c */
HANDLER(v1_execs_start);
HANDLER(v1_execs_list);
HANDLER(v1_exec_get);
HANDLER(v1_exec_stream);
HANDLER(v1_exec_stdin);
HANDLER(v1_exec_signal);
HANDLER(v1_exec_resize);
HANDLER(v1_terminal);
/* files.c, files_change.c */
HANDLER(v1_file_get);
HANDLER(v1_file_put);
HANDLER(v1_file_delete);
HANDLER(v1_file_stat);
HANDLER(v1_file_list);
HANDLER(v1_file_mkdir);
HANDLER(v1_file_move);
HANDLER(v1_file_chmod);
HANDLER(v1_file_chown);
HANDLER(v1_file_watch);
HANDLER(v1_tar_get);
HANDLER(v1_tar_put);
/* history.c, diff.c */
HANDLER(v1_checkpoints_list);
HANDLER(v1_checkpoint_make);
HANDLER(v1_tag_put);
HANDLER(v1_tag_delete);
HANDLER(v1_rollback);
HANDLER(v1_undo);
HANDLER(v1_fork);
HANDLER(v1_merge);
HANDLER(v1_prune);
HANDLER(v1_commit);
HANDLER(v1_diff);
/* net.c */
HANDLER(v1_policy_get);
HANDLER(v1_policy_put);
HANDLER(v1_policy_allow);
HANDLER(v1_journal);
HANDLER(v1_token);
HANDLER(v1_ports_list);
HANDLER(v1_port_put);
HANDLER(v1_port_delete);
HANDLER(v1_policies_list);
HANDLER(v1_policies_get);
HANDLER(v1_policies_put);
HANDLER(v1_policies_delete);
/* templates.c */
HANDLER(v1_templates_list);
HANDLER(v1_template_get);
HANDLER(v1_template_delete);
HANDLER(v1_template_tag);
/* admin.c */
HANDLER(v1_secrets_list);
HANDLER(v1_secret_put);
HANDLER(v1_secret_delete);
HANDLER(v1_keys_list);
HANDLER(v1_key_make);
HANDLER(v1_key_delete);
HANDLER(v1_usage);
HANDLER(v1_whoami);
HANDLER(v1_events);
HANDLER(v1_openapi);

/* templates.c: the stored name of a template that a client named: its organisation's own, else one that is
 * everybody's. free() */
int v1_template_find(struct req *r, const char *name, char **ret, struct den_err *err);
/* exec_stream.c: with "Upgrade: websocket" */
bool v1_wants_websocket(const struct req *r);
/* terminal.c: follows an exec that runs already */
int v1_terminal_attach(struct req *r, struct den_box *box, const char *ref, bool live, bool kill,
	struct den_err *err);
