/* Routes of the dialect; which box a request is for, and whether its caller may. */
#include "envd.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "auth.h"
#include "boxes.h"
#include "clock.h"
#include "mem.h"
#include "parse.h"
#include "pick.h"
#include "route.h"
#include "signed.h"

#define DENIED "unauthorized access, please provide a valid access token or method signing if supported"
#define CPU_SAMPLE_MS 100

/* ---- which box ---- */

static bool token_fits(const char *id, void *user)
{
	char token[41];

	auth_box_token(id, "envd", token);
	return auth_same(token, user);
}

struct signed_query {
	const char *path, *op, *user, *expires, *signature;
};

static bool signature_fits(const char *id, void *user)
{
	const struct signed_query *q = user;
	char token[41], want[SIGNED_SIZE];

	auth_box_token(id, "envd", token);
	signed_make(q->path, q->op, q->user, token, q->expires, want);
	return auth_same(want, q->signature);
}

static void signed_read(const struct req *r, const char *op, struct signed_query *q)
{
	*q = (struct signed_query){
		.path = req_query(r, "path") ?: "",
		.op = op,
		.user = req_query(r, "username") ?: "",
		.expires = req_query(r, "signature_expiration"),
		.signature = req_query(r, "signature"),
	};
}

/* The one whose token or signature it is, when the request does not say. false: none's */
static bool id_by_proof(struct req *r, const char *op, char ret[static E2B_ID_SIZE])
{
	const char *token = req_header(r, "X-Access-Token");
	struct signed_query q;
	struct den_err ignored;
	char id[32];

	signed_read(r, op, &q);
	if (token && *token) {
		if (boxes_find(token_fits, (void *)token, id, &ignored) < 0)
			return false;
	} else if (!op || !q.signature || boxes_find(signature_fits, &q, id, &ignored) < 0) {
		return false;
	}
	return e2b_id_box(id, ret);
}

/* ---- may he ---- */

static int check_signature(struct req *r, const char *id, const char *op)
{
	struct signed_query q;
	uint64_t until;

	signed_read(r, op, &q);
	if (!q.signature)
		return e2b_error(r, 401, "missing signature query parameter"), 1;
	if (!signature_fits(id, &q))
		return e2b_error(r, 401, "invalid signature"), 1;
	if (q.expires && (parse_u64(q.expires, 0, INT64_MAX / 1000, &until, NULL) < 0 ||
				 (int64_t)until * 1000 < clock_wall_ms()))
		return e2b_error(r, 401, "signature is already expired"), 1;
	return 0;
}

/* 0: he may; 1: he may not, and was told */
static int check_proof(struct req *r, const char *id, const char *op)
{
	const char *token = req_header(r, "X-Access-Token");

	if (token && token_fits(id, (void *)token))
		return 0;
	if (token && op)
		return e2b_error(r, 401, "access token present in header but does not match"), 1;
	if (op)
		return check_signature(r, id, op);
	return e2b_error(r, 401, DENIED), 1;
}

/* sandbox: as the client wrote it, any bytes */
static int say_gone_of(struct req *r, const char *sandbox)
{
	struct json j = { 0 };

	json_open(&j, NULL, '{');
	json_bytes(&j, "sandboxId", sandbox, strnlen(sandbox, 64));
	json_str(&j, "message", "The sandbox was not found");
	json_u64(&j, "code", 502);
	json_close(&j, '}');
	req_reply(r, 502, "application/json", j.b.p, j.b.len);
	buf_free(&j.b);
	return 0;
}

static int say_gone(struct req *r, const char *id)
{
	char shown[E2B_ID_SIZE];

	e2b_id_sandbox(id, shown);
	return say_gone_of(r, shown);
}

bool envd_gone(struct req *r, const struct envd *e)
{
	const char *state = boxes_state(e->id);

	if (state && !strcmp(state, "running"))
		return false;
	if (!req_begun(r))
		say_gone(r, e->id);
	else
		req_cut(r);
	return true;
}

/* 0, 1 or -1 as envd_enter(); without token where it is not asked for */
static int find(struct req *r, const char *op, bool proof, struct envd *ret, struct den_err *err)
{
	const char *header = req_header(r, "E2b-Sandbox-Id");
	char id[E2B_ID_SIZE];
	uint16_t port;

	if (!pick_box(r, id, &port)) {
		if (header)
			return say_gone_of(r, header), 1;
		if (!id_by_proof(r, op, id))
			return e2b_error(r, 401, op && req_query(r, "signature") ? "invalid signature" : DENIED), 1;
	}
	memcpy(ret->id, id, sizeof(id));
	if (proof && check_proof(r, id, op))
		return 1;
	/* who has shown nothing is told how it is, but wakes nobody */
	if (!proof && !token_fits(id, (void *)req_header(r, "X-Access-Token")))
		return envd_gone(r, ret);
	if (e2b_wake(r, id, err) < 0) {
		if (err->code == DEN_NOT_FOUND || err->code == DEN_CONFLICT)
			return say_gone(r, id), 1;
		return -1;
	}
	return 0;
}

int envd_enter(struct req *r, const char *op, struct envd *ret, struct den_err *err)
{
	int got = find(r, op, true, ret, err);

	if (got)
		return got;
	req_watch_box(r, ret->id);
	if (boxes_open_any(r, ret->id, &ret->box, err) == 0)
		return 0;
	if (err->code == DEN_NOT_FOUND)
		return say_gone(r, ret->id), 1;
	return -1;
}

void envd_leave(struct envd *e)
{
	den_box_close(e->box);
	e->box = NULL;
}

/* ---- small calls ---- */

static int health(struct req *r, struct den_err *err)
{
	struct envd e = { 0 };
	int got = find(r, NULL, false, &e, err);

	if (got)
		return got < 0 ? -1 : 0;
	if (envd_gone(r, &e))
		return 0;
	return req_reply_empty(r, 204);
}

static int envs(struct req *r, struct den_err *err)
{
	auto_envd e = { 0 };
	struct den_box_info *info;
	struct json j = { 0 };
	int got = envd_enter(r, NULL, &e, err);

	if (got)
		return got < 0 ? -1 : 0;
	if (den_box_info(e.box, &info, err) < 0)
		return envd_gone(r, &e) ? 0 : -1;
	json_open(&j, NULL, '{');
	for (size_t i = 0; info->env && info->env[i]; i++) {
		const char *eq = strchr(info->env[i], '=');

		if (eq)
			json_member(&j, info->env[i], (size_t)(eq - info->env[i]), eq + 1);
	}
	json_close(&j, '}');
	den_box_infos_free(info, 1);
	return rpc_reply(r, &j);
}

static int metrics_take(struct req *r, struct envd *e, struct den_stats *st, uint64_t *cpu_used, struct den_err *err)
{
	struct den_stats before;
	int64_t t = clock_mono_ns(), passed;

	if (den_box_stats(e->box, &before, err) < 0)
		return -1;
	req_wait(r, -1, CPU_SAMPLE_MS);
	if (den_box_stats(e->box, st, err) < 0)
		return -1;
	passed = (clock_mono_ns() - t) / 1000;
	*cpu_used = passed > 0 ? (st->cpu_usec - before.cpu_usec) * 10000 / (uint64_t)passed : 0; /* % of one, x 100 */
	return 0;
}

static int metrics(struct req *r, struct den_err *err)
{
	auto_envd e = { 0 };
	struct den_box_info *info;
	struct den_stats st;
	uint64_t used, cpus, total;
	int got = envd_enter(r, NULL, &e, err);

	if (got)
		return got < 0 ? -1 : 0;
	if (den_box_info(e.box, &info, err) < 0)
		return envd_gone(r, &e) ? 0 : -1;
	cpus = info->cpu_milli ? (info->cpu_milli + 999) / 1000 : (uint64_t)sysconf(_SC_NPROCESSORS_ONLN);
	total = info->memory ? info->memory : (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
	den_box_infos_free(info, 1);
	if (metrics_take(r, &e, &st, &used, err) < 0)
		return envd_gone(r, &e) ? 0 : -1;
	return req_reply_json(r, 200,
		json_pack("{sI sI sf sI sI sI sI sI sI sI}", "ts", (json_int_t)(clock_wall_ms() / 1000), "cpu_count",
			(json_int_t)cpus, "cpu_used_pct", (double)used / 100 / (double)cpus, "mem_used",
			(json_int_t)st.memory, "mem_total", (json_int_t)total, "mem_cache", (json_int_t)0,
			"mem_used_mib", (json_int_t)(st.memory >> 20), "mem_total_mib", (json_int_t)(total >> 20),
			"disk_used", (json_int_t)st.disk, "disk_total", (json_int_t)st.disk_limit));
}

/* ---- the table ---- */

#define PROCESS "/process.Process/"
#define FILESYSTEM "/filesystem.Filesystem/"
#define CALL_MAX (CONNECT_MAX + CONNECT_HEAD)

static const struct route routes[] = {
	{ "GET", "/health", health, AUTH_NONE, 0, NULL },
	{ "GET", "/envs", envs, AUTH_BOX, 0, NULL },
	{ "GET", "/metrics", metrics, AUTH_BOX, 0, NULL },
	{ "POST", PROCESS "List", process_list, AUTH_BOX, CALL_MAX, NULL },
	{ "POST", PROCESS "Start", process_start, AUTH_BOX, CALL_MAX, NULL },
	{ "POST", PROCESS "Connect", process_connect, AUTH_BOX, CALL_MAX, NULL },
	{ "POST", PROCESS "SendInput", process_input, AUTH_BOX, CALL_MAX, NULL },
	{ "POST", PROCESS "CloseStdin", process_close_stdin, AUTH_BOX, CALL_MAX, NULL },
	{ "POST", PROCESS "SendSignal", process_signal, AUTH_BOX, CALL_MAX, NULL },
	{ "POST", PROCESS "Update", process_update, AUTH_BOX, CALL_MAX, NULL },
	{ "POST", PROCESS "StreamInput", process_stream_input, AUTH_BOX, CALL_MAX, NULL },
	{ "POST", FILESYSTEM "Stat", filesystem_stat, AUTH_BOX, CALL_MAX, NULL },
	{ "POST", FILESYSTEM "MakeDir", filesystem_mkdir, AUTH_BOX, CALL_MAX, NULL },
	{ "POST", FILESYSTEM "Move", filesystem_move, AUTH_BOX, CALL_MAX, NULL },
	{ "POST", FILESYSTEM "ListDir", filesystem_list, AUTH_BOX, CALL_MAX, NULL },
	{ "POST", FILESYSTEM "Remove", filesystem_remove, AUTH_BOX, CALL_MAX, NULL },
	{ "POST", FILESYSTEM "WatchDir", watch_dir, AUTH_BOX, CALL_MAX, NULL },
	{ "POST", FILESYSTEM "CreateWatcher", watcher_create, AUTH_BOX, CALL_MAX, NULL },
	{ "POST", FILESYSTEM "GetWatcherEvents", watcher_events, AUTH_BOX, CALL_MAX, NULL },
	{ "POST", FILESYSTEM "RemoveWatcher", watcher_remove, AUTH_BOX, CALL_MAX, NULL },
	{ "GET", "/files", files_get, AUTH_BOX, 0, NULL },
	{ "POST", "/files", files_post, AUTH_BOX, SIZE_MAX, NULL },
	{ "POST", "/files/compose", files_compose, AUTH_BOX, 1 << 20, NULL },
};

static bool is_rpc(const struct req *r)
{
	const char *path = req_path(r);

	return !strncmp(path, PROCESS, sizeof(PROCESS) - 1) || !strncmp(path, FILESYSTEM, sizeof(FILESYSTEM) - 1);
}

static void fail(struct req *r, const struct den_err *err)
{
	if (is_rpc(r))
		rpc_refuse(r, connect_code_of(err), "%s", err->msg);
	else
		e2b_error(r, req_fail_status(r, err), "%s", err->msg);
}

const struct dialect dialect_envd = {
	.name = "envd",
	.routes = routes,
	.n = ARRAY_SIZE(routes),
	.fail = fail,
	.cors = true,
};
