/*
 * E2B's control plane: its table, its words for a failure, ids.
 *
 * Clients look at the `code` in the body of a failure as often as at the status, so both are always there.
 * What they send and this server does not know is ignored, as theirs does.
 */
#include "e2b_parts.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "advice.h"
#include "boxes.h"
#include "db.h"
#include "json_fields.h"
#include "mem.h"
#include "route.h"
#include "strv.h"

#define SMALL (64U << 10)
#define LARGE (1U << 20)

static const struct route routes[] = {
	{ "POST", "/v2/sandboxes", e2b_create, AUTH_KEY, LARGE, "boxes" },
	{ "POST", "/sandboxes", e2b_create_old, AUTH_KEY, LARGE, "boxes" },
	{ "GET", "/v2/sandboxes", e2b_list, AUTH_KEY, 0, "read" },
	{ "GET", "/sandboxes", e2b_list_old, AUTH_KEY, 0, "read" },
	{ "GET", "/sandboxes/metrics", e2b_metrics_all, AUTH_KEY, 0, "read" },
	{ "GET", "/sandboxes/{id}", e2b_info, AUTH_KEY, 0, "read" },
	{ "DELETE", "/sandboxes/{id}", e2b_kill, AUTH_KEY, SMALL, "boxes" },
	{ "POST", "/v2/sandboxes/{id}/connect", e2b_connect, AUTH_KEY, SMALL, "boxes" },
	{ "POST", "/sandboxes/{id}/connect", e2b_connect, AUTH_KEY, SMALL, "boxes" },
	{ "POST", "/sandboxes/{id}/resume", e2b_resume, AUTH_KEY, SMALL, "boxes" },
	{ "POST", "/sandboxes/{id}/timeout", e2b_timeout, AUTH_KEY, SMALL, "boxes" },
	{ "POST", "/sandboxes/{id}/refreshes", e2b_refreshes, AUTH_KEY, SMALL, "boxes" },
	{ "POST", "/sandboxes/{id}/pause", e2b_pause, AUTH_KEY, SMALL, "boxes" },
	{ "GET", "/sandboxes/{id}/metrics", e2b_metrics, AUTH_KEY, 0, "read" },
	{ "GET", "/sandboxes/{id}/logs", e2b_logs, AUTH_KEY, 0, "read" },
	{ "GET", "/v2/sandboxes/{id}/logs", e2b_logs, AUTH_KEY, 0, "read" },
	{ "POST", "/sandboxes/{id}/snapshots", e2b_snapshot, AUTH_KEY, SMALL, "templates" },
	{ "GET", "/snapshots", e2b_snapshots, AUTH_KEY, 0, "read" },
	{ "POST", "/sandboxes/{id}/fork", e2b_fork, AUTH_KEY, SMALL, "boxes" },
	{ "PUT", "/sandboxes/{id}/network", e2b_network, AUTH_KEY, LARGE, "boxes" },
	{ "GET", "/teams", e2b_teams, AUTH_KEY, 0, "read" },

	{ "POST", "/v3/templates", e2b_build_new, AUTH_KEY, SMALL, "templates" },
	{ "POST", "/v2/templates", e2b_build_new, AUTH_KEY, SMALL, "templates" },
	{ "GET", "/templates/{id}/files/{hash}", e2b_upload_link, AUTH_KEY, 0, "templates" },
	/* what the link above leads to: the token in it is the key */
	{ "PUT", "/templates/uploads/{org}/{hash}/{token}", e2b_upload, AUTH_NONE, SIZE_MAX, NULL },
	{ "POST", "/v2/templates/{id}/builds/{build}", e2b_build_start, AUTH_KEY, LARGE,
		"templates" },
	{ "GET", "/templates/{id}/builds/{build}/status", e2b_build_status, AUTH_KEY, 0, "read" },
	{ "GET", "/templates/{id}/builds/{build}/logs", e2b_build_logs, AUTH_KEY, 0, "read" },
	{ "GET", "/templates/aliases/{alias}", e2b_template_alias, AUTH_KEY, 0, "read" },
	{ "POST", "/templates/tags", e2b_tags_set, AUTH_KEY, SMALL, "templates" },
	{ "DELETE", "/templates/tags", e2b_tags_remove, AUTH_KEY, SMALL, "templates" },
	{ "GET", "/templates/{id}/tags", e2b_template_tags, AUTH_KEY, 0, "read" },
	{ "GET", "/templates", e2b_template_list, AUTH_KEY, 0, "read" },
	{ "GET", "/v2/templates", e2b_template_list, AUTH_KEY, 0, "read" },
	{ "GET", "/templates/{id}", e2b_template_show, AUTH_KEY, 0, "read" },
	{ "DELETE", "/templates/{id}", e2b_template_delete, AUTH_KEY, SMALL, "templates" },

	{ "GET", "/secrets", e2b_secrets, AUTH_KEY, 0, "secrets" },
	{ "POST", "/secrets", e2b_secret_new, AUTH_KEY, LARGE, "secrets" },
	{ "GET", "/secrets/{id}", e2b_secret_show, AUTH_KEY, 0, "secrets" },
	{ "POST", "/secrets/{id}", e2b_secret_change, AUTH_KEY, LARGE, "secrets" },
	{ "DELETE", "/secrets/{id}", e2b_secret_delete, AUTH_KEY, SMALL, "secrets" },

	{ "GET", "/volumes", e2b_volume_list, AUTH_KEY, 0, "read" },
	{ "POST", "/volumes", e2b_volume_new, AUTH_KEY, SMALL, "boxes" },
	{ "GET", "/volumes/{id}", e2b_volume_show, AUTH_KEY, 0, "boxes" }, /* tells the token */
	{ "DELETE", "/volumes/{id}", e2b_volume_delete, AUTH_KEY, SMALL, "boxes" },
	/* the volume's token is the key */
	{ "GET", "/volumecontent/{id}/dir", e2b_content_list, AUTH_NONE, 0, NULL },
	{ "POST", "/volumecontent/{id}/dir", e2b_content_mkdir, AUTH_NONE, SMALL, NULL },
	{ "GET", "/volumecontent/{id}/path", e2b_content_stat, AUTH_NONE, 0, NULL },
	{ "PATCH", "/volumecontent/{id}/path", e2b_content_change, AUTH_NONE, SMALL, NULL },
	{ "DELETE", "/volumecontent/{id}/path", e2b_content_remove, AUTH_NONE, SMALL, NULL },
	{ "GET", "/volumecontent/{id}/file", e2b_content_read, AUTH_NONE, 0, NULL },
	{ "PUT", "/volumecontent/{id}/file", e2b_content_write, AUTH_NONE, SIZE_MAX, NULL },
};

/* ---- words ---- */

int e2b_error(struct req *r, int status, const char *fmt, ...)
{
	auto_buf said = { 0 };
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	advice_text(ADVICE_E2B, text, NULL, &said);
	return req_reply_json(r, status,
		json_pack("{s:i, s:o}", "code", status, "message", json_text(buf_str(&said))));
}

static void words(struct req *r, const struct den_err *err)
{
	int status = req_fail_status(r, err);

	(void)e2b_error(r, status, "%s", err->msg);
}

static const char *key(const struct req *r)
{
	const char *bearer = req_header(r, "Authorization"), *k = req_header(r, "X-API-KEY");

	if (!k && bearer && !strncasecmp(bearer, "Bearer ", 7))
		k = bearer + 7;
	return k;
}

const struct dialect dialect_e2b = {
	.name = "e2b",
	.routes = routes,
	.n = ARRAY_SIZE(routes),
	.fail = words,
	.key = key,
	.cors = true,
};

/* ---- ids ---- */

bool e2b_id_box(const char *sandbox, char ret[static E2B_ID_SIZE])
{
	return boxes_id(sandbox, ret);
}

void e2b_id_sandbox(const char *box, char ret[static E2B_ID_SIZE])
{
	snprintf(ret, E2B_ID_SIZE, "i%.18s", box + 2);
}

void e2b_env(const char *box_id, char ***env)
{
	char id[E2B_ID_SIZE], text[64];

	e2b_id_sandbox(box_id, id);
	snprintf(text, sizeof(text), "E2B_SANDBOX_ID=%s", id);
	strv_env_put(env, text);
}

const char *e2b_label(const struct den_box_info *info, const char *name)
{
	size_t n = strlen(name);

	for (const char *const *l = info->labels; l && *l; l++)
		if (!strncmp(*l, name, n) && (*l)[n] == '=')
			return *l + n + 1;
	return NULL;
}

int e2b_no_box(const char *id, struct den_err *err)
{
	return den_fail(err, DEN_NOT_FOUND, 0,
		"Sandbox \"%.40s\" doesn't exist or you don't have access to it", id);
}

int e2b_open(struct req *r, struct den_box **ret, struct den_err *err)
{
	const char *id = req_arg(r, "id");
	char box[E2B_ID_SIZE];

	if (!e2b_id_box(id, box))
		return e2b_no_box(id, err);
	if (boxes_open(r, box, ret, err) < 0)
		return err->code == DEN_NOT_FOUND ? e2b_no_box(id, err) : -1;
	return 0;
}

/* ---- what is kept ---- */

static const char *const steps[] = {
	"CREATE TABLE e2b_builds (id TEXT PRIMARY KEY, org TEXT NOT NULL, name TEXT NOT NULL, tags "
	"TEXT NOT NULL,"
	" state TEXT NOT NULL, reason TEXT, step TEXT, cpu INTEGER NOT NULL, memory INTEGER NOT "
	"NULL, image TEXT,"
	" created_ms INTEGER NOT NULL, ended_ms INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID",
	"CREATE INDEX e2b_builds_name ON e2b_builds (org, name, created_ms)",
	"CREATE TABLE e2b_lines (build TEXT NOT NULL, n INTEGER NOT NULL, time_ms INTEGER NOT "
	"NULL, level TEXT NOT NULL,"
	" step TEXT, text TEXT NOT NULL, PRIMARY KEY (build, n)) WITHOUT ROWID",
	"CREATE TABLE e2b_snapshots (stored TEXT PRIMARY KEY, org TEXT NOT NULL, id TEXT NOT NULL, "
	"box TEXT NOT NULL,"
	" named INTEGER NOT NULL, created_ms INTEGER NOT NULL) WITHOUT ROWID",
	"CREATE TABLE e2b_secrets (stored TEXT PRIMARY KEY, version INTEGER NOT NULL, metadata "
	"TEXT NOT NULL)"
	" WITHOUT ROWID",
	"CREATE TABLE e2b_volumes (id TEXT PRIMARY KEY, org TEXT NOT NULL, name TEXT NOT NULL, "
	"created_ms INTEGER NOT NULL,"
	" UNIQUE (org, name)) WITHOUT ROWID",
};

static int start(struct den_err *err)
{
	if (db_migrate("e2b", steps, ARRAY_SIZE(steps), err) < 0 || e2b_builds_sweep(err) < 0)
		return -1;
	/* its thread went with the server that ran it, its box with the thread */
	return db_run(err, NULL,
		"UPDATE e2b_builds SET state = 'error', reason = 'the server was restarted; build "
		"again'"
		" WHERE state IN ('building', 'queued')",
		"");
}

const struct serve_part e2b_part = { .name = "e2b", .start = start };
