/*
 * What the files of E2B's control plane share.
 *
 * A template's id is the name by which it is asked for: "base", "my-app", "my-app:v2" ("my-app" and
 * "my-app:default" are the same). In den it has the organisation's name for it (auth_name()), with the tag
 * behind; what the dialect cannot read from there (builds, snapshots' origins, versions of secrets) is in
 * serve.db.
 */
#pragma once

#include "auth.h"
#include "e2b.h"
#include "serve.h"

extern const struct serve_part e2b_part; /* tables; builds that a restart cut off */

#define E2B_TIMEOUT_MAX 2592000 /* seconds, 30 days */

/* ---- e2b.c ---- */
/* The box that "{id}" names; a box that is not there is told in E2B's words. */
int e2b_open(struct req *r, struct den_box **ret, struct den_err *err);
int e2b_no_box(const char *id, struct den_err *err); /* always -1 */

/* ---- control_json.c ---- */
/* How a box is told about: what it is needs no more than this. */
json_t *e2b_sandbox_json(const char *box_id, const char *template_id, bool private_ports);
json_t *e2b_sandbox_of(const struct den_box_info *info);
json_t *e2b_detail_json(const struct den_box_info *info);
json_t *e2b_listed_json(const struct den_box_info *info);
void e2b_set_time(json_t *o, const char *key, int64_t wall_ms);
uint64_t e2b_cpus(uint64_t cpu_milli); /* 0: of the host */
uint64_t e2b_memory_mb(uint64_t memory); /* likewise */
uint64_t e2b_disk_mb(uint64_t disk); /* likewise */
static inline bool e2b_stopped(const struct den_box_info *i)
{
	return i->state[0] == 's';
}
static inline bool e2b_running(const struct den_box_info *i)
{
	return i->state[0] == 'r';
}

/* ---- start.c ---- */
struct e2b_template;
/* Starts what runs in each box of the template, and waits until it is up, for a while. A failure is told in the log
 * alone: the box is there. */
void e2b_start(struct req *r, struct den_box *box, const struct e2b_template *t);
/* A box that begins without its programs (stopped before, or a fork) gets that of its template; a failure is
 * told in the log alone. r has a key. */
void e2b_start_command(struct req *r, struct den_box *box, const struct den_box_info *i);
/* ---- control.c ---- */
/* What a create that says nothing but the template asks for (env, labels and times left out). free() *policy */
int e2b_default_spec(const char *stored, struct den_box_spec *ret, char **policy, struct den_err *err);
int e2b_create(struct req *r, struct den_err *err);
int e2b_create_old(struct req *r, struct den_err *err);
int e2b_connect(struct req *r, struct den_err *err);
int e2b_resume(struct req *r, struct den_err *err);
int e2b_kill(struct req *r, struct den_err *err);
int e2b_info(struct req *r, struct den_err *err);
int e2b_timeout(struct req *r, struct den_err *err);
int e2b_refreshes(struct req *r, struct den_err *err);
int e2b_pause(struct req *r, struct den_err *err);

/* ---- list.c ---- */
int e2b_list(struct req *r, struct den_err *err);
int e2b_list_old(struct req *r, struct den_err *err);
int e2b_metrics(struct req *r, struct den_err *err);
int e2b_metrics_all(struct req *r, struct den_err *err);
int e2b_logs(struct req *r, struct den_err *err);
int e2b_teams(struct req *r, struct den_err *err);

/* ---- snapshots.c ---- */
int e2b_snapshot(struct req *r, struct den_err *err);
int e2b_snapshots(struct req *r, struct den_err *err);
int e2b_fork(struct req *r, struct den_err *err);
int snapshots_forget(const char *stored, struct den_err *err);

/* ---- network.c ---- */
struct e2b_net {
	char *policy; /* den's, JSON; NULL: nothing gets out */
	char *asked; /* the request, for who asks later; NULL: nothing was said */
	bool private_ports;
	int internet; /* allow_internet_access: -1 not said, 0, 1 */
};
/* network, iam: NULL: not said. DEN_INVALID: den's policy cannot say it. e2b_net_free() */
int e2b_net_read(const struct who *who, const json_t *network, const json_t *iam, int internet,
	struct e2b_net *ret, struct den_err *err);
void e2b_net_free(struct e2b_net *n);
#define auto_net __attribute__((cleanup(e2b_net_free))) struct e2b_net
int e2b_network(struct req *r, struct den_err *err);

/* ---- names.c: templates by the names that clients use ---- */
struct e2b_template {
	char *stored; /* den's name */
	char *id; /* as clients know it */
	char *start, *ready, *user; /* command that runs in each box of it, and one that succeeds when it is up; NULL: none */
	uint64_t cpu_milli, memory; /* 0: not said */
	bool baked; /* its boxes begin with programs running, and with the limits that those had */
	uint64_t disk; /* of those */
	char *files; /* baked: the same without programs, as den knows it; NULL: there is none */
};
bool e2b_template_baked(const struct den_template *t);
/* Its name as who knows it; NULL: it is none of his. Files of "default" are everybody's. Programs are not: they have in
 * memory what their box was given, and its policy, with its secrets and its identity. */
const char *e2b_template_seen(const struct who *who, const struct den_template *t);
void e2b_template_free(struct e2b_template *t);
#define auto_template __attribute__((cleanup(e2b_template_free))) struct e2b_template
/* DEN_NOT_FOUND in E2B's words. What is found is remembered for a while. */
int e2b_template_find(struct req *r, const char *id, struct e2b_template *ret, struct den_err *err);
void e2b_template_changed(void); /* forget what is remembered */
/* "name" and tag of "name", "name:tag", "team/name:tag" as den stores them. tag "default": none behind.
 * free() *ret; DEN_INVALID: no name */
int e2b_template_stored(
	const struct who *who, const char *id, const char *tag, char **ret, struct den_err *err);
/* The two parts of an id; tag "default" when there is none. free() both */
int e2b_template_split(const char *id, char **ret_name, char **ret_tag, struct den_err *err);

/* May this name be given, or taken away? Those that every organisation builds on are an admin's to change. */
int e2b_template_writable(const struct who *who, const char *stored, struct den_err *err);
/* False: den would take it for the digest of an image, which may be another organisation's. */
bool e2b_template_readable(const struct who *who, const char *name);

/* ---- templates.c ---- */
int e2b_template_delete(struct req *r, struct den_err *err);
int e2b_template_list(struct req *r, struct den_err *err);
int e2b_template_show(struct req *r, struct den_err *err);
int e2b_template_alias(struct req *r, struct den_err *err);
int e2b_template_tags(struct req *r, struct den_err *err);
int e2b_tags_set(struct req *r, struct den_err *err);
int e2b_tags_remove(struct req *r, struct den_err *err);

/* ---- build_api.c, build.c, build_steps.c ---- */
int e2b_build_new(struct req *r, struct den_err *err);
int e2b_builds_sweep(struct den_err *err);
int e2b_build_start(struct req *r, struct den_err *err);
int e2b_build_status(struct req *r, struct den_err *err);
int e2b_build_logs(struct req *r, struct den_err *err);

/* ---- uploads.c ---- */
int e2b_upload_link(struct req *r, struct den_err *err);
int e2b_upload(struct req *r, struct den_err *err);
/* Where what was uploaded under this hash is. DEN_NOT_FOUND: nothing was. */
int e2b_upload_open(const char *org, const char *hash, int *ret, struct den_err *err);

/* ---- secrets.c ---- */
int e2b_secrets(struct req *r, struct den_err *err);
int e2b_secret_new(struct req *r, struct den_err *err);
int e2b_secret_show(struct req *r, struct den_err *err);
int e2b_secret_change(struct req *r, struct den_err *err);
int e2b_secret_delete(struct req *r, struct den_err *err);

/* ---- volumes.c ---- */
int e2b_volume_new(struct req *r, struct den_err *err);
int e2b_volume_list(struct req *r, struct den_err *err);
int e2b_volume_show(struct req *r, struct den_err *err);
int e2b_volume_delete(struct req *r, struct den_err *err);
/* ---- volume_files.c ---- */
int e2b_content_list(struct req *r, struct den_err *err);
int e2b_content_mkdir(struct req *r, struct den_err *err);
int e2b_content_stat(struct req *r, struct den_err *err);
int e2b_content_change(struct req *r, struct den_err *err);
int e2b_content_remove(struct req *r, struct den_err *err);
int e2b_content_read(struct req *r, struct den_err *err);
int e2b_content_write(struct req *r, struct den_err *err);
