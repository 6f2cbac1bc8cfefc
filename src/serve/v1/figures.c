/* What a box uses now: stats, ps. */
#include "handlers.h"
#include "mem.h"

int v1_box_stats(struct req *r, struct den_err *err)
{
	auto_box *box = NULL;
	struct den_stats s;
	json_t *o;

	if (!QUERY(r, err) || v1_box(r, &box, err) < 0 || den_box_stats(box, &s, err) < 0)
		return -1;
	const struct {
		uint64_t bit;
		const char *key;
		uint64_t v;
	} rows[] = {
		{ DEN_STAT_CPU, "cpu_usec", s.cpu_usec },
		{ DEN_STAT_THROTTLED, "throttled_usec", s.throttled_usec },
		{ DEN_STAT_MEMORY, "memory", s.memory },
		{ DEN_STAT_MEMORY_PEAK, "memory_peak", s.memory_peak },
		{ DEN_STAT_MEMORY_LIMIT, "memory_limit", s.memory_limit },
		{ DEN_STAT_PIDS, "pids", s.pids },
		{ DEN_STAT_PIDS_MAX, "pids_max", s.pids_max },
		{ DEN_STAT_DISK, "disk", s.disk },
		{ DEN_STAT_DISK_LIMIT, "disk_limit", s.disk_limit },
		{ DEN_STAT_IO_READ, "io_read", s.io_read },
		{ DEN_STAT_IO_WRITE, "io_write", s.io_write },
		{ DEN_STAT_OOM_KILLS, "oom_kills", s.oom_kills },
	};
	o = json_object();
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		json_object_set_new(o, rows[i].key,
			s.has & rows[i].bit
				? json_integer((json_int_t)MIN(rows[i].v, (uint64_t)INT64_MAX))
				: json_null());
	return req_reply_json(r, 200, o);
}

int v1_box_ps(struct req *r, struct den_err *err)
{
	auto_box *box = NULL;
	struct den_ps *ps;
	json_t *a;

	if (!QUERY(r, err) || v1_box(r, &box, err) < 0 || den_box_ps(box, &ps, err) < 0)
		return -1;
	a = json_array();
	for (size_t i = 0; i < ps->n_processes; i++) {
		const struct den_process *p = &ps->processes[i];
		json_t *o = json_pack("{si si sI so sI sI}", "pid", (int)p->pid, "ppid",
			(int)p->ppid, "uid", (json_int_t)p->uid, "state", v1_textn(&p->state, 1),
			"cpu_usec", (json_int_t)p->cpu_usec, "memory", (json_int_t)p->memory);

		v1_put(o, "command", p->command);
		json_array_append_new(a, o);
	}
	den_ps_free(ps);
	return req_reply_json(r, 200, json_pack("{so}", "processes", a));
}
