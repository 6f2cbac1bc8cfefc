/* The table of /v1, and how it words a failure. docs/api/openapi.yaml says the same at length; a test compares. */
#include <stdio.h>
#include <string.h>

#include "advice.h"
#include "auth.h"
#include "handlers.h"
#include "idempotency.h"
#include "mem.h"
#include "route.h"
#include "serve.h"

#define BODY (256U << 10)
#define BIG (24U << 20) /* stdin in JSON */
#define B "/v1/boxes/{box}"

static const struct route routes[] = {
	{ "GET", "/v1/boxes", v1_boxes_list, AUTH_KEY, 0, "read" },
	{ "POST", "/v1/boxes", v1_boxes_create, AUTH_KEY, BODY, "boxes" },
	{ "GET", B, v1_box_get, AUTH_KEY, 0, "read" },
	{ "PATCH", B, v1_box_patch, AUTH_KEY, BODY, "boxes" },
	{ "DELETE", B, v1_box_delete, AUTH_KEY, 0, "boxes" },
	{ "POST", B "/start", v1_box_start, AUTH_KEY, BODY, "boxes" },
	{ "POST", B "/stop", v1_box_stop, AUTH_KEY, BODY, "boxes" },
	{ "POST", B "/pause", v1_box_pause, AUTH_KEY, BODY, "boxes" },
	{ "POST", B "/hibernate", v1_box_hibernate, AUTH_KEY, BODY, "boxes" },
	{ "POST", B "/resume", v1_box_resume, AUTH_KEY, BODY, "boxes" },
	{ "POST", B "/lease", v1_box_lease, AUTH_KEY, BODY, "boxes" },
	{ "GET", B "/stats", v1_box_stats, AUTH_KEY, 0, "read" },
	{ "GET", B "/ps", v1_box_ps, AUTH_KEY, 0, "read" },

	{ "GET", B "/execs", v1_execs_list, AUTH_KEY, 0, "read" },
	{ "POST", B "/execs", v1_execs_start, AUTH_KEY, BIG, "boxes" },
	{ "GET", B "/execs/{pid}", v1_exec_get, AUTH_KEY, 0, "read" },
	{ "GET", B "/execs/{pid}/stream", v1_exec_stream, AUTH_KEY, 0,
		"boxes" }, /* a WebSocket can write */
	{ "POST", B "/execs/{pid}/stdin", v1_exec_stdin, AUTH_KEY, SIZE_MAX, "boxes" },
	{ "POST", B "/execs/{pid}/signal", v1_exec_signal, AUTH_KEY, BODY, "boxes" },
	{ "POST", B "/execs/{pid}/resize", v1_exec_resize, AUTH_KEY, BODY, "boxes" },
	{ "GET", B "/terminal", v1_terminal, AUTH_KEY, 0, "boxes" },

	{ "GET", B "/files", v1_file_get, AUTH_KEY, 0, "read" },
	{ "PUT", B "/files", v1_file_put, AUTH_KEY, SIZE_MAX, "boxes" },
	{ "DELETE", B "/files", v1_file_delete, AUTH_KEY, 0, "boxes" },
	{ "GET", B "/files/stat", v1_file_stat, AUTH_KEY, 0, "read" },
	{ "GET", B "/files/list", v1_file_list, AUTH_KEY, 0, "read" },
	{ "GET", B "/files/watch", v1_file_watch, AUTH_KEY, 0, "read" },
	{ "POST", B "/files/mkdir", v1_file_mkdir, AUTH_KEY, BODY, "boxes" },
	{ "POST", B "/files/move", v1_file_move, AUTH_KEY, BODY, "boxes" },
	{ "POST", B "/files/chmod", v1_file_chmod, AUTH_KEY, BODY, "boxes" },
	{ "POST", B "/files/chown", v1_file_chown, AUTH_KEY, BODY, "boxes" },
	{ "GET", B "/tar", v1_tar_get, AUTH_KEY, 0, "read" },
	{ "PUT", B "/tar", v1_tar_put, AUTH_KEY, SIZE_MAX, "boxes" },

	{ "GET", B "/checkpoints", v1_checkpoints_list, AUTH_KEY, 0, "read" },
	{ "POST", B "/checkpoints", v1_checkpoint_make, AUTH_KEY, BODY, "boxes" },
	{ "PUT", B "/tags/{tag}", v1_tag_put, AUTH_KEY, BODY, "boxes" },
	{ "DELETE", B "/tags/{tag}", v1_tag_delete, AUTH_KEY, 0, "boxes" },
	{ "POST", B "/rollback", v1_rollback, AUTH_KEY, BODY, "boxes" },
	{ "POST", B "/undo", v1_undo, AUTH_KEY, BODY, "boxes" },
	{ "POST", B "/fork", v1_fork, AUTH_KEY, BODY, "boxes" },
	{ "POST", B "/merge", v1_merge, AUTH_KEY, BODY, "boxes" },
	{ "POST", B "/prune", v1_prune, AUTH_KEY, BODY, "boxes" },
	{ "POST", B "/commit", v1_commit, AUTH_KEY, BODY, "templates" },
	{ "POST", B "/bake", v1_bake, AUTH_KEY, BODY, "templates" },
	{ "GET", B "/diff", v1_diff, AUTH_KEY, 0, "read" },

	{ "GET", B "/policy", v1_policy_get, AUTH_KEY, 0, "read" },
	{ "PUT", B "/policy", v1_policy_put, AUTH_KEY, 512U << 10, "boxes" },
	{ "POST", B "/policy/allow", v1_policy_allow, AUTH_KEY, BODY, "boxes" },
	{ "GET", B "/journal", v1_journal, AUTH_KEY, 0, "read" },
	{ "POST", B "/token", v1_token, AUTH_KEY, BODY, "boxes" },
	{ "GET", B "/ports", v1_ports_list, AUTH_KEY, 0, "boxes" }, /* tells the token */
	{ "PUT", B "/ports/{port}", v1_port_put, AUTH_KEY, BODY, "boxes" },
	{ "DELETE", B "/ports/{port}", v1_port_delete, AUTH_KEY, 0, "boxes" },

	{ "GET", "/v1/templates", v1_templates_list, AUTH_KEY, 0, "read" },
	{ "GET", "/v1/templates/{name}", v1_template_get, AUTH_KEY, 0, "read" },
	{ "DELETE", "/v1/templates/{name}", v1_template_delete, AUTH_KEY, 0, "templates" },
	{ "POST", "/v1/templates/{name}/tags", v1_template_tag, AUTH_KEY, BODY, "templates" },
	{ "GET", "/v1/policies", v1_policies_list, AUTH_KEY, 0, "read" },
	{ "GET", "/v1/policies/{name}", v1_policies_get, AUTH_KEY, 0, "read" },
	{ "PUT", "/v1/policies/{name}", v1_policies_put, AUTH_KEY, 512U << 10, "boxes" },
	{ "DELETE", "/v1/policies/{name}", v1_policies_delete, AUTH_KEY, 0, "boxes" },
	{ "GET", "/v1/secrets", v1_secrets_list, AUTH_KEY, 0, "secrets" },
	{ "PUT", "/v1/secrets/{name}", v1_secret_put, AUTH_KEY, BODY, "secrets" },
	{ "DELETE", "/v1/secrets/{name}", v1_secret_delete, AUTH_KEY, 0, "secrets" },
	{ "GET", "/v1/keys", v1_keys_list, AUTH_ADMIN, 0, NULL },
	{ "POST", "/v1/keys", v1_key_make, AUTH_ADMIN, BODY, NULL },
	{ "DELETE", "/v1/keys/{id}", v1_key_delete, AUTH_ADMIN, 0, NULL },
	{ "GET", "/v1/usage", v1_usage, AUTH_KEY, 0, "read" },
	{ "GET", "/v1/events", v1_events, AUTH_KEY, 0, "read" },
	{ "GET", "/v1/whoami", v1_whoami, AUTH_KEY, 0, NULL },
	{ "GET", "/v1/openapi.yaml", v1_openapi, AUTH_NONE, 0, NULL },
};

/* What to do next, where the message does not say. */
static const char *const next_steps[] = {
	[DEN_INVALID] = "correct the request; /v1/openapi.yaml describes it",
	[DEN_NOT_FOUND] = "check the name or id; the list that it would be in shows what there is",
	[DEN_CONFLICT] = "look at the state that it is in now, then try again",
	[DEN_DENIED] = "use a key that may do this; GET /v1/whoami tells what yours may",
	[DEN_LIMIT] = "free something or raise the limit, then try again",
	[DEN_TIMEOUT] = "try again",
	[DEN_UNSUPPORTED] = "this server cannot do it; the message says what is missing",
	[DEN_INTERNAL] = "try again; if it stays, look into the server's log",
};

json_t *v1_error(const struct req *r, const struct den_err *err)
{
	auto_buf said = { 0 };
	const char *next =
		(unsigned)err->code < ARRAY_SIZE(next_steps) ? next_steps[err->code] : NULL;

	advice_text(ADVICE_V1, err->msg, req_arg(r, "box"), &said);
	return json_pack("{ss so ss}", "code", den_code_str(err->code), "message",
		v1_text(buf_str(&said)), "next", next ? next : "try again");
}

static void fail(struct req *r, const struct den_err *err)
{
	req_reply_json(r, req_fail_status(r, err), json_pack("{so}", "error", v1_error(r, err)));
}

extern const struct serve_part v1_part; /* parts.c lists it */
const struct serve_part v1_part = { "v1", v1_idem_start, NULL };

const struct dialect dialect_v1 = {
	.name = "v1",
	.routes = routes,
	.n = ARRAY_SIZE(routes),
	.fail = fail,
	.key = auth_sent,
};
