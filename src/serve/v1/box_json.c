/* A box as /v1 shows it. */
#include <stdlib.h>
#include <string.h>

#include "auth.h"
#include "labels.h"
#include "mem.h"
#include "v1.h"

static json_t *limits_json(const struct den_box_info *i)
{
	json_t *o = json_object();

	json_object_set_new(o, "cpu_milli", v1_count(i->cpu_milli));
	json_object_set_new(o, "memory", v1_count(i->memory));
	json_object_set_new(o, "pids", v1_count(i->pids));
	json_object_set_new(o, "disk", v1_count(i->disk));
	json_object_set_new(o, "nofile", v1_count(i->nofile));
	json_object_set_new(o, "max_runtime_ms", v1_count(i->max_runtime_ms));
	return o;
}

/* "ORG/KEY"; a box that was made on the host itself is nobody's. */
static json_t *owner_json(const char *owner)
{
	const char *slash = owner ? strchr(owner, '/') : NULL;
	auto_free char *org = slash ? mem_strndup(owner, (size_t)(slash - owner)) : NULL;

	return slash ? json_pack("{ss ss}", "org", org, "key", slash + 1) : json_null();
}

/* "PORT=OUTSIDE" each */
static json_t *ports_json(const char *const *v)
{
	json_t *a = json_array();

	for (; v && *v; v++) {
		const char *eq = strchr(*v, '=');

		if (eq)
			json_array_append_new(
				a, json_pack("{si si}", "port", atoi(*v), "outside", atoi(eq + 1)));
	}
	return a;
}

static json_t *labels_json(const char *const *labels)
{
	json_t *o = v1_map(labels);

	json_object_del(o, LABEL_IDEMPOTENCY);
	return o;
}

json_t *v1_box_json(const struct req *r, const struct den_box_info *i)
{
	json_t *o = json_object();
	const char *name = i->name ? auth_name_seen(req_who(r), i->name, false) : NULL;
	const char *policy =
		i->policy_name ? auth_name_seen(req_who(r), i->policy_name, false) : NULL;
	const char *template =
		i->template_name ? auth_name_seen(req_who(r), i->template_name, true) : NULL;

	json_object_set_new(o, "id", v1_text(i->id));
	json_object_set_new(o, "name", v1_text(name ? name : i->name));
	json_object_set_new(o, "state", v1_text(i->state));
	json_object_set_new(o, "reason", v1_text(i->reason));
	json_object_set_new(o, "template", v1_text(template ? template : i->template_name));
	json_object_set_new(o, "wall", v1_text(i->wall));
	json_object_set_new(o, "hostname", v1_text(i->hostname));
	json_object_set_new(o, "user", v1_text(i->user));
	json_object_set_new(o, "workdir", v1_text(i->workdir));
	json_object_set_new(o, "created", v1_time(i->created_ms));
	json_object_set_new(o, "started", v1_time(i->started_ms));
	json_object_set_new(o, "stopped", v1_time(i->stopped_ms));
	json_object_set_new(o, "active", v1_time(i->active_ms));
	json_object_set_new(o, "on_disk", json_boolean(i->on_disk));
	json_object_set_new(o, "hibernated", json_boolean(i->hibernated));
	json_object_set_new(o, "restores", json_integer((json_int_t)i->restores));
	json_object_set_new(o, "images", json_integer((json_int_t)i->images));
	json_object_set_new(o, "turn", json_integer((json_int_t)i->turn));
	json_object_set_new(o, "limits", limits_json(i));
	json_object_set_new(o, "labels", labels_json(i->labels));
	json_object_set_new(o, "owner", owner_json(i->owner));
	json_object_set_new(o, "expires", v1_time(i->expires_ms));
	json_object_set_new(o, "on_expire", v1_text(i->on_expire));
	json_object_set_new(o, "idle_ms", v1_count(i->idle_ms));
	json_object_set_new(o, "on_idle", v1_text(i->on_idle));
	json_object_set_new(o, "history", v1_text(i->history));
	json_object_set_new(o, "reseed", json_boolean(i->reseed));
	json_object_set_new(o, "policy_name", v1_text(policy ? policy : i->policy_name));
	json_object_set_new(o, "generation", json_integer((json_int_t)i->generation));
	json_object_set_new(o, "ports", ports_json(i->publish));
	return o;
}

int v1_reply_box(struct req *r, int status, struct den_box *box, struct den_err *err)
{
	struct den_box_info *i;

	if (den_box_info(box, &i, err) < 0)
		return -1;
	req_reply_json(r, status, v1_box_json(r, i));
	den_box_infos_free(i, 1);
	return 0;
}
