/* How a box looks to E2B's clients. */
#include "e2b_parts.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/sysinfo.h>

#include "json.h"
#include "mem.h"

#define FOREVER_MS                                                                                 \
	253402300799000LL /* the end of 9999: a box without a deadline still has to have one here */

void e2b_set_time(json_t *o, const char *key, int64_t wall_ms)
{
	char text[32];

	format_time(wall_ms, text);
	json_object_set_new(o, key, json_string(text));
}

uint64_t e2b_cpus(uint64_t cpu_milli)
{
	cpu_set_t set;

	if (cpu_milli)
		return MAX(1, (cpu_milli + 999) / 1000);
	return sched_getaffinity(0, sizeof(set), &set) == 0 ? (uint64_t)CPU_COUNT(&set) : 1;
}

uint64_t e2b_memory_mb(uint64_t memory)
{
	struct sysinfo s;

	if (memory)
		return memory >> 20;
	return sysinfo(&s) == 0 ? (uint64_t)s.totalram * s.mem_unit >> 20 : 0;
}

uint64_t e2b_disk_mb(uint64_t disk)
{
	struct statvfs s;

	if (disk)
		return disk >> 20;
	return statvfs(serve.own, &s) == 0 ? (uint64_t)s.f_blocks * s.f_frsize >> 20 : 0;
}

json_t *e2b_sandbox_json(const char *box_id, const char *template_id, bool private_ports)
{
	char id[E2B_ID_SIZE], envd[41], traffic[41];

	e2b_id_sandbox(box_id, id);
	auth_box_token(box_id, "envd", envd);
	auth_box_token(box_id, "traffic", traffic);
	return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s?}", "templateID", template_id,
		"sandboxID", id, "clientID", E2B_CLIENT_ID, "envdVersion", E2B_ENVD_VERSION,
		"envdAccessToken", envd, "domain", serve.domain, "trafficAccessToken",
		private_ports ? traffic : NULL);
}

static const char *template_of(const struct den_box_info *i)
{
	const char *t = e2b_label(i, "e2b.template");

	return t ? t : i->template_name ? i->template_name : "";
}

json_t *e2b_sandbox_of(const struct den_box_info *i)
{
	const char *traffic = e2b_label(i, "den.traffic");

	return e2b_sandbox_json(i->id, template_of(i), traffic && !strcmp(traffic, "private"));
}

static json_t *metadata(const struct den_box_info *i)
{
	static const char prefix[] = "e2b.m.";
	json_t *o = json_object();

	for (const char *const *l = i->labels; l && *l; l++) {
		const char *name = *l + strlen(prefix), *eq;
		auto_free char *key = NULL;

		if (strncmp(*l, prefix, strlen(prefix)) || !(eq = strchr(name, '=')))
			continue;
		key = mem_strndup(name, (size_t)(eq - name));
		json_object_set_new(o, key, json_string(eq + 1));
	}
	return o;
}

static json_t *mounts(const struct den_box_info *i)
{
	const char *text = e2b_label(i, "e2b.volumes");
	json_t *j = text ? json_loads(text, 0, NULL) : NULL;

	return j ? j : json_array();
}

json_t *e2b_listed_json(const struct den_box_info *i)
{
	char id[E2B_ID_SIZE];
	json_t *o;

	e2b_id_sandbox(i->id, id);
	o = json_pack("{s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:o, s:s, s:o}", "templateID",
		template_of(i), "sandboxID", id, "clientID", E2B_CLIENT_ID, "envdVersion",
		E2B_ENVD_VERSION, "cpuCount", (json_int_t)e2b_cpus(i->cpu_milli), "memoryMB",
		(json_int_t)e2b_memory_mb(i->memory), "diskSizeMB",
		(json_int_t)e2b_disk_mb(i->disk), "metadata", metadata(i), "state",
		e2b_running(i) ? "running" : "paused", "volumeMounts", mounts(i));
	if (i->name)
		json_object_set_new(o, "alias", json_string(i->name));
	e2b_set_time(o, "startedAt", i->created_ms);
	e2b_set_time(o, "endAt", i->expires_ms ? i->expires_ms : FOREVER_MS);
	return o;
}

json_t *e2b_detail_json(const struct den_box_info *i)
{
	const char *internet = e2b_label(i, "e2b.internet"), *net = e2b_label(i, "e2b.network");
	bool pause = i->on_expire && strcmp(i->on_expire, "delete"),
	     resume = e2b_label(i, "e2b.resume");
	json_t *o = e2b_listed_json(i), *network = net ? json_loads(net, 0, NULL) : NULL;
	char token[41];

	auth_box_token(i->id, "envd", token);
	json_object_set_new(o, "envdAccessToken", json_string(token));
	json_object_set_new(o, "domain", json_string(serve.domain));
	json_object_set_new(o, "lifecycle",
		json_pack(
			"{s:s, s:b}", "onTimeout", pause ? "pause" : "kill", "autoResume", resume));
	json_object_set_new(o, "allowInternetAccess",
		internet ? json_boolean(internet[0] == '1') : json_null());
	if (network)
		json_object_set_new(o, "network", network);
	return o;
}
