/* A box's life: making it, its deadline, pausing, waking, ending. */
#include "e2b_parts.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "boxes.h"
#include "clock.h"
#include "json_fields.h"
#include "log.h"
#include "mem.h"
#include "parse.h"
#include "strv.h"
#include "volumes.h"

#define GRACE_MS 2000 /* of a box that is stopped */
#define LABELS_MAX 48 /* of metadata; a box has at most 64 in all */
#define LABEL_BYTES 4000
#define TIMEOUT_DEFAULT 300 /* seconds; of the old call 15 */
#define TIMEOUT_DEFAULT_OLD 15

/* What a box may use when its template does not say. Its history is "on": each turn that changed something leaves
 * a checkpoint, and a turn that changed nothing costs a look at the box's changes. */
static const struct {
	uint64_t cpu_milli, memory;
} limits_default = { 2000, 2ULL << 30 };

/* ---- making one ---- */

struct create {
	const char *template_id;
	uint64_t timeout;
	char **metadata, **env;
	bool auto_pause, auto_pause_memory, internet, internet_given;
	json_t *network, *auto_resume, *volumes, *iam, *mcp;
	bool resume; /* auto_resume.enabled */
};

static void create_free(struct create *c)
{
	strv_free(c->metadata);
	strv_free(c->env);
}

static const struct field create_fields[] = {
	{ "templateID", FIELD_TEXT, offsetof(struct create, template_id), FIELD_NULL, .max = 255 },
	{ "metadata", FIELD_MAP, offsetof(struct create, metadata), FIELD_NULL, .max = LABELS_MAX },
	{ "envVars", FIELD_MAP, offsetof(struct create, env), FIELD_NULL, .max = 1000 },
	{ "autoPause", FIELD_BOOL, offsetof(struct create, auto_pause), FIELD_NULL },
	{ "autoPauseMemory", FIELD_BOOL, offsetof(struct create, auto_pause_memory), FIELD_NULL },
	{ "allow_internet_access", FIELD_BOOL, offsetof(struct create, internet), FIELD_NULL,
		.given = FIELD_GIVEN(struct create, internet_given) },
	{ "network", FIELD_OBJECT, offsetof(struct create, network), FIELD_NULL },
	{ "autoResume", FIELD_OBJECT, offsetof(struct create, auto_resume), FIELD_NULL },
	{ "volumeMounts", FIELD_ARRAY, offsetof(struct create, volumes), FIELD_NULL },
	{ "iam", FIELD_OBJECT, offsetof(struct create, iam), FIELD_NULL },
};

/* "timeout" and its like: seconds. DEN_INVALID in E2B's words */
static int seconds(const json_t *body, const char *name, uint64_t otherwise, uint64_t *ret,
	struct den_err *err)
{
	const json_t *j = json_object_get(body, name);

	*ret = otherwise;
	if (!j || json_is_null(j))
		return 0;
	if (!json_is_integer(j))
		return den_fail(err, DEN_INVALID, 0, "%s is a whole number of seconds", name);
	if (json_integer_value(j) <= 0)
		return den_fail(err, DEN_INVALID, 0, "Timeout must be greater than 0");
	if (json_integer_value(j) > E2B_TIMEOUT_MAX)
		return den_fail(err, DEN_INVALID, 0, "Timeout cannot be greater than %d seconds",
			E2B_TIMEOUT_MAX);
	*ret = (uint64_t)json_integer_value(j);
	return 0;
}

static int create_read(const json_t *body, uint64_t timeout, struct create *c, struct den_err *err)
{
	c->auto_pause_memory = true;
	if (fields_get(body, create_fields, ARRAY_SIZE(create_fields), false, c, err) < 0 ||
		seconds(body, "timeout", timeout, &c->timeout, err) < 0)
		return -1;
	if (c->auto_resume)
		c->resume = json_is_true(json_object_get(c->auto_resume, "enabled"));
	if (!c->auto_pause_memory && !c->auto_pause)
		return den_fail(
			err, DEN_INVALID, 0, "autoPauseMemory: false needs autoPause: true");
	if (!c->auto_pause_memory && c->resume)
		return den_fail(err, DEN_INVALID, 0,
			"autoResume cannot be used with autoPauseMemory: false");
	for (char **m = c->metadata; m && *m; m++)
		if (strlen(*m) > LABEL_BYTES)
			return den_fail(err, DEN_INVALID, 0,
				"metadata: '%.40s' is longer than %d bytes", *m, LABEL_BYTES);
	return 0;
}

static void label_add(char ***labels, const char *name, const char *value)
{
	auto_free char *text = NULL;

	if (asprintf(&text, "%s=%s", name, value) < 0)
		abort();
	strv_add(labels, text);
}

static char **create_labels(
	const struct create *c, const struct e2b_template *t, const struct e2b_net *net)
{
	char **labels = NULL, seconds_text[24];
	const char *const internet[] = { "0", "1" };

	snprintf(seconds_text, sizeof(seconds_text), "%llu", (unsigned long long)c->timeout);
	label_add(&labels, "den.dialect", "e2b");
	label_add(&labels, "den.traffic", net->private_ports ? "private" : "public");
	label_add(&labels, "e2b.template", t->id);
	label_add(&labels, "e2b.timeout", seconds_text);
	if (c->resume)
		label_add(&labels, "e2b.resume", "1");
	if (net->asked)
		label_add(&labels, "e2b.network", net->asked);
	if (net->internet >= 0)
		label_add(&labels, "e2b.internet", internet[net->internet]);
	if (c->iam) {
		auto_free char *text = json_dumps(c->iam, JSON_COMPACT);

		label_add(&labels, "e2b.iam", text ? text : "{}");
	}
	if (json_array_size(c->volumes)) {
		auto_free char *text = json_dumps(c->volumes, JSON_COMPACT);

		label_add(&labels, "e2b.volumes", text ? text : "[]");
	}
	for (char **m = c->metadata; m && *m; m++) {
		auto_free char *text = NULL;

		if (asprintf(&text, "e2b.m.%s", *m) < 0)
			abort();
		strv_add(&labels, text);
	}
	return labels;
}

static char **create_env(const struct create *c, const struct e2b_template *t)
{
	char **env = strv_copy((const char *const *)c->env);
	auto_free char *id = NULL;

	if (asprintf(&id, "E2B_TEMPLATE_ID=%s", t->id) < 0)
		abort();
	strv_env_put(&env, "E2B_SANDBOX=true");
	strv_env_put(&env, id);
	return env;
}

/* One call to den. A host that cannot put programs on disk, or cannot enforce limits, says so once; then we do
 * without: programs are held in memory instead, and what limits there are is the host's. */
static int box_make(
	struct req *r, struct den_box_spec *spec, struct den_box **ret, struct den_err *err)
{
	static atomic_bool no_disk, no_limits;
	bool disk = *spec->on_expire == 'p', limits = spec->cpu_milli || spec->memory; /* "pause-disk" */
	bool lost_disk = false, lost_limits = false;
	struct den_err why = { 0 };

	if (disk && no_disk) {
		spec->on_expire = "pause";
		disk = false;
	}
	if (no_limits) {
		spec->cpu_milli = spec->memory = 0;
		limits = false;
	}
	while (boxes_create(r, spec, ret, err) < 0) {
		if (err->code != DEN_UNSUPPORTED || (!disk && !limits))
			return -1;
		why = *err;
		if (disk) {
			spec->on_expire = "pause";
			disk = false;
			lost_disk = true;
		} else {
			spec->cpu_milli = spec->memory = 0;
			limits = false;
			lost_limits = true;
		}
	}
	/* Only what a box was made without is the host's lack. What fails all the same is something about this box, and
	 * must not take limits from those of others. */
	if (lost_limits)
		no_limits = true;
	else if (lost_disk && !atomic_exchange(&no_disk, true))
		log_line("warn", "e2b", "sandboxes that are paused stay in memory: %s", why.msg);
	return 0;
}

int e2b_default_spec(const char *stored, struct den_box_spec *ret, char **policy, struct den_err *err)
{
	struct who nobody = { 0 };
	auto_net net = { 0 };

	if (e2b_net_read(&nobody, NULL, NULL, -1, &net, err) < 0)
		return -1;
	*policy = mem_take(&net.policy);
	*ret = (struct den_box_spec){ .size = sizeof(*ret), .template_name = stored, .policy = *policy,
		.cpu_milli = limits_default.cpu_milli, .memory = limits_default.memory };
	return 0;
}

static int template_of(struct req *r, const json_t *body, const struct create *c, struct e2b_template *t,
	struct den_err *err)
{
	if (e2b_template_find(r, c->template_id, t, err) == 0)
		return 0;
	if (err->code == DEN_NOT_FOUND && json_is_object(json_object_get(body, "mcp")))
		return den_fail(err, DEN_UNSUPPORTED, 0,
			"mcp: this server has no template '%.60s', and no MCP gateway to make one of; start MCP servers with "
			"commands.run(), or build a template of that name that has a program 'mcp-gateway'",
			c->template_id ? c->template_id : "mcp-gateway");
	return -1;
}

/* With its programs, or the same without: those cannot be had with volumes, or with a limit that they had none of. */
static int create_box(struct req *r, const struct e2b_template *t, struct den_box_spec *spec, bool *programs,
	struct den_box **ret, struct den_err *err)
{
	struct den_box_spec files = *spec;
	bool may = !spec->n_mounts && (!req_who(r)->quota.disk || t->disk);

	*programs = t->baked && (may || !t->files);
	files.template_name = t->files;
	files.cpu_milli = t->cpu_milli ? t->cpu_milli : limits_default.cpu_milli;
	files.memory = t->memory ? t->memory : limits_default.memory;
	if (t->baked && !*programs)
		return box_make(r, &files, ret, err);
	if (box_make(r, spec, ret, err) == 0)
		return 0;
	if (!*programs || !t->files || err->code != DEN_UNSUPPORTED)
		return -1;
	log_line("warn", "e2b", "%s begins without its programs: %s", t->id, err->msg);
	*programs = false;
	return box_make(r, &files, ret, err);
}

static int create(struct req *r, uint64_t timeout, struct den_err *err)
{
	__attribute__((cleanup(create_free))) struct create c = { 0 };
	auto_template t = { 0 };
	auto_net net = { 0 };
	struct volume_mounts volumes;
	auto_strv labels = NULL;
	auto_strv env = NULL;
	auto_json *body = NULL;
	auto_box *box = NULL;
	bool programs;

	if (req_json(r, &body, err) < 0 || create_read(body, timeout, &c, err) < 0 ||
		template_of(r, body, &c, &t, err) < 0 ||
		e2b_net_read(req_who(r), c.network, c.iam, c.internet_given ? c.internet : -1, &net,
			err) < 0 ||
		volumes_mounts(req_who(r), c.volumes, &volumes, err) < 0)
		return -1;
	labels = create_labels(&c, &t, &net);
	env = create_env(&c, &t);
	if (create_box(r, &t,
		    &(struct den_box_spec){ .size = sizeof(struct den_box_spec),
			    .template_name = t.stored,
			    .env = (const char *const *)env,
			    .labels = (const char *const *)labels,
			    .policy = net.policy,
			    .mounts = volumes.mounts,
			    .n_mounts = volumes.n,
			    .cpu_milli = t.baked ? 0 : t.cpu_milli ? t.cpu_milli : limits_default.cpu_milli,
			    .memory = t.baked ? 0 : t.memory ? t.memory : limits_default.memory,
			    .expires_ms = clock_wall_ms() + (int64_t)c.timeout * 1000,
			    .on_expire = !c.auto_pause	       ? "delete"
					 : c.auto_pause_memory ? "pause-disk"
							       : "stop" },
		    &programs, &box, err) < 0)
		return -1;
	if (!programs)
		e2b_start(r, box, &t);
	return req_reply_json(r, 201, e2b_sandbox_json(den_box_id(box), t.id, net.private_ports));
}

int e2b_create(struct req *r, struct den_err *err)
{
	return create(r, TIMEOUT_DEFAULT, err);
}

int e2b_create_old(struct req *r, struct den_err *err)
{
	return create(r, TIMEOUT_DEFAULT_OLD, err);
}

/* ---- waking ---- */

static uint64_t timeout_of(const struct den_box_info *i)
{
	const char *text = e2b_label(i, "e2b.timeout");
	uint64_t n;

	return text && parse_u64(text, 1, E2B_TIMEOUT_MAX, &n, NULL) == 0 ? n : TIMEOUT_DEFAULT;
}

static int awaken(struct den_box *box, const struct den_box_info *i, uint64_t timeout_s, bool fresh,
	struct den_err *err)
{
	struct den_lease lease = { .size = sizeof(lease),
		.idle_ms = DEN_IDLE_KEEP,
		.extend = true,
		.expires_ms = clock_wall_ms() + (int64_t)timeout_s * 1000 };
	int r = 0;

	/* the deadline first: one that has passed would be due at once */
	if (den_box_lease(box, &lease, err) < 0)
		return -1;
	if (e2b_running(i))
		return 0;
	if (!e2b_stopped(i) && fresh && den_box_stop(box, GRACE_MS, err) < 0)
		return -1;
	r = e2b_stopped(i) || fresh ? den_box_start(box, err) : den_box_resume(box, err);
	if (r < 0 && err->code == DEN_CONFLICT) { /* somebody else was quicker */
		struct den_box_info *now;

		if (den_box_info(box, &now, err) < 0)
			return -1;
		r = e2b_running(now) ? 0
				     : den_fail(err, DEN_CONFLICT, 0,
					       "the sandbox is changing its state; try again");
		den_box_infos_free(now, 1);
	}
	if (r == 0)
		boxes_set_state(i->id, "running");
	return r;
}

static int reconnect(struct req *r, bool always_created, struct den_err *err)
{
	auto_json *body = NULL;
	auto_box *box = NULL;
	struct den_box_info *i;
	uint64_t timeout;
	bool fresh, was_running;
	int status;

	if (req_json(r, &body, err) < 0 ||
		seconds(body, "timeout", TIMEOUT_DEFAULT, &timeout, err) < 0 ||
		e2b_open(r, &box, err) < 0 || den_box_info(box, &i, err) < 0)
		return -1;
	fresh = json_is_false(json_object_get(body, "memory"));
	was_running = e2b_running(i);
	status = awaken(box, i, timeout, fresh, err);
	if (status == 0) {
		if (!was_running && (e2b_stopped(i) || fresh))
			e2b_start_command(r, box, i);
		status = req_reply_json(
			r, was_running && !always_created ? 200 : 201, e2b_sandbox_of(i));
	}
	den_box_infos_free(i, 1);
	return status;
}

int e2b_connect(struct req *r, struct den_err *err)
{
	return reconnect(r, false, err);
}

/* Clients of before /connect. */
int e2b_resume(struct req *r, struct den_err *err)
{
	return reconnect(r, true, err);
}

int e2b_wake(struct req *r, const char *box_id, struct den_err *err)
{
	const char *state = boxes_state(box_id);
	auto_box *box = NULL;
	struct den_box_info *i;
	int status;

	if (!state)
		return e2b_no_box(box_id, err);
	if (!strcmp(state, "running"))
		return 0;
	if (boxes_open_any(r, box_id, &box, err) < 0 || den_box_info(box, &i, err) < 0)
		return -1;
	if (e2b_running(i))
		status = 0;
	else if (!e2b_label(i, "e2b.resume") ||
		 e2b_stopped(i)) /* without memory: only when asked to */
		status = den_fail(
			err, DEN_CONFLICT, 0, "The sandbox is paused; connect to it to resume it");
	else
		status = awaken(box, i, timeout_of(i), false, err);
	den_box_infos_free(i, 1);
	return status;
}

/* ---- deadline, pause, end ---- */

static int set_deadline(struct req *r, uint64_t timeout_s, bool extend, struct den_err *err)
{
	auto_box *box = NULL;

	if (e2b_open(r, &box, err) < 0)
		return -1;
	if (den_box_lease(box,
		    &(struct den_lease){ .size = sizeof(struct den_lease),
			    .idle_ms = DEN_IDLE_KEEP,
			    .extend = extend,
			    .expires_ms = clock_wall_ms() + (int64_t)timeout_s * 1000 },
		    err) < 0)
		return -1;
	return req_reply_empty(r, 204);
}

int e2b_timeout(struct req *r, struct den_err *err)
{
	auto_json *body = NULL;
	uint64_t timeout;

	if (req_json(r, &body, err) < 0)
		return -1;
	if (!json_object_get(body, "timeout"))
		return den_fail(err, DEN_INVALID, 0, "timeout is missing: seconds from now");
	return seconds(body, "timeout", 0, &timeout, err) < 0
		       ? -1
		       : set_deadline(r, timeout, false, err);
}

int e2b_refreshes(struct req *r, struct den_err *err)
{
	auto_json *body = NULL;
	uint64_t duration;

	if (req_json(r, &body, err) < 0 ||
		seconds(body, "duration", TIMEOUT_DEFAULT_OLD, &duration, err) < 0)
		return -1;
	return set_deadline(r, duration, true, err);
}

/* On disk with its programs, where that can be done here; else they are held in memory. What could not be kept is in
 * the log: the call has no place for it. */
static int put_away(struct den_box *box, struct den_err *err)
{
	auto_saved *saved = NULL;

	if (den_box_pause_disk(box, &saved, err) < 0)
		return err->code == DEN_UNSUPPORTED ? den_box_pause(box, err) : -1;
	for (const char *const *l = saved->lost; l && *l; l++)
		log_line("info", "e2b", "pause of %s: %s", den_box_id(box), *l);
	return 0;
}

int e2b_pause(struct req *r, struct den_err *err)
{
	auto_json *body = NULL;
	auto_box *box = NULL;
	struct den_box_info *i;
	bool paused, disk_only;
	int status;

	if (req_json(r, &body, err) < 0 || e2b_open(r, &box, err) < 0 ||
		den_box_info(box, &i, err) < 0)
		return -1;
	paused = !e2b_running(i);
	den_box_infos_free(i, 1);
	if (paused)
		return e2b_error(r, 409, "Sandbox \"%.40s\" is already paused", req_arg(r, "id"));
	disk_only = json_is_false(json_object_get(body, "memory"));
	status = disk_only ? den_box_stop(box, GRACE_MS, err) : put_away(box, err);
	if (status < 0)
		return -1;
	boxes_set_state(den_box_id(box), disk_only ? "stopped" : "paused");
	boxes_kick(den_box_id(box));
	return req_reply_empty(r, 204);
}

int e2b_kill(struct req *r, struct den_err *err)
{
	auto_box *box = NULL;

	if (e2b_open(r, &box, err) < 0)
		return -1;
	if (boxes_delete(r, box, err) < 0)
		return err->code == DEN_NOT_FOUND ? e2b_no_box(req_arg(r, "id"), err) : -1;
	return req_reply_empty(r, 204);
}

int e2b_info(struct req *r, struct den_err *err)
{
	auto_box *box = NULL;
	struct den_box_info *i;
	json_t *j;

	if (e2b_open(r, &box, err) < 0 || den_box_info(box, &i, err) < 0)
		return -1;
	j = e2b_detail_json(i);
	den_box_infos_free(i, 1);
	if (!auth_scope(req_who(r), "boxes")) /* a key that may look does not get one that may do */
		json_object_del(j, "envdAccessToken");
	return req_reply_json(r, 200, j);
}
