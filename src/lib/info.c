/* Answers that are lists: what boxes, processes and the machine are like. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib.h"
#include "mem.h"
#include "strv.h"

#define BUSY_MS 2000 /* a keeper that answers no question for so long saves or loads programs */

/* ---- box info ---- */

static void info_fill(struct den_box_info *p, const struct box_info *i, struct den_mount *mounts)
{
	static const char *const history[] = { "on", "on", "manual", "off" }; /* enum box_history */
	/* a row from before there were leases has none */
	uint64_t on_expire = i->spec.on_expire ? i->spec.on_expire : LEASE_DELETE;
	uint64_t on_idle = i->spec.on_idle ? i->spec.on_idle : LEASE_PAUSE;
	const struct box_spec *s = &i->spec;

	for (size_t k = 0; k < s->n_mounts; k++)
		mounts[k] =
			(struct den_mount){ s->mounts[k].host, s->mounts[k].box, s->mounts[k].ro };
	*p = (struct den_box_info){
		.id = s->id,
		.name = s->name,
		.template_name = s->template_name,
		.wall = s->wall,
		.net = s->net,
		.hostname = s->hostname,
		.user = s->user,
		.workdir = s->cwd,
		.state = box_state_str[i->state],
		.reason = i->reason,
		.detail = i->detail,
		.boot_id = i->boot_id,
		.env = (const char *const *)s->env,
		.mounts = mounts,
		.n_mounts = s->n_mounts,
		.cpu_milli = s->cpu_milli,
		.memory = s->memory,
		.pids = s->pids,
		.disk = s->disk,
		.nofile = s->nofile,
		.max_runtime_ms = s->max_runtime_ms,
		.ephemeral = s->flags & BOX_EPHEMERAL,
		.reseed = s->flags & BOX_RESEED,
		.created_ms = i->created_ms,
		.started_ms = i->started_ms,
		.stopped_ms = i->stopped_ms,
		.init_pid = (pid_t)i->init_pid,
		.keeper_pid = (pid_t)i->keeper_pid,
		.history = history[s->history],
		.policy = s->policy,
		.policy_name = s->policy_name,
		.generation = i->generation,
		.publish = (const char *const *)s->publish,
		.owner = s->owner,
		.labels = (const char *const *)s->labels,
		.expires_ms = (int64_t)s->expires_ms,
		.on_expire = lease_action_str[on_expire],
		.idle_ms = s->idle_ms,
		.on_idle = lease_action_str[on_idle],
		.active_ms = i->active_ms,
		.turn = i->turn,
		.on_disk = i->on_disk,
		.hibernated = i->on_disk == ON_DISK_FILES,
		.restores = i->restores,
		.images = i->image_bytes,
	};
}

/*
 * One allocation holds the public array, so that the caller indexes it plainly, and behind it the
 * private one; den_box_infos_free() finds it by the same arithmetic.
 */
int infos_read(
	const struct buf *b, struct den_box_info **ret, size_t *ret_n, struct den_err *err)
{
	struct wire_reader rd = wire_reader(b->p, b->len);
	struct wire_value v;
	struct den_box_info *pub;
	struct box_info *own;
	size_t n = 0, got = 0;

	while (wire_next(&rd, &v, NULL) > 0)
		n += v.tag == F_RECORD;
	pub = mem_zalloc(n * (sizeof(*pub) + sizeof(*own)) + 1);
	own = (struct box_info *)(void *)(pub + n);
	rd = wire_reader(b->p, b->len);
	while (wire_next(&rd, &v, NULL) > 0) {
		struct den_mount *mounts;

		if (v.tag != F_RECORD)
			continue;
		if (box_info_get(v.p, v.len, &own[got], err) < 0) {
			den_box_infos_free(pub, n);
			return -1;
		}
		mounts = mem_zalloc(sizeof(*mounts) * own[got].spec.n_mounts);
		info_fill(&pub[got], &own[got], mounts);
		got++;
	}
	*ret = pub;
	*ret_n = n;
	return 0;
}

void den_box_infos_free(struct den_box_info *infos, size_t n)
{
	struct box_info *own = (struct box_info *)(void *)(infos + n);

	for (size_t i = 0; infos && i < n; i++) {
		free((void *)infos[i].mounts);
		box_info_free(&own[i]);
	}
	free(infos);
}

/* What is written of a box, whose keeper need not be asked for it. */
static int info_written(struct den_box *box, struct buf *out, struct den_err *err)
{
	auto_buf all = { 0 };
	struct wire_reader rd;
	struct wire_value v;

	if (clerk_ask(box->d, WM_LIST, NULL, WM_LIST, &all, err) < 0)
		return -1;
	rd = wire_reader(all.p, all.len);
	while (wire_next(&rd, &v, NULL) > 0) {
		struct box_info i = { 0 };
		bool found;

		if (v.tag != F_RECORD || box_info_get(v.p, v.len, &i, NULL) < 0)
			continue;
		found = i.spec.id && !strcmp(i.spec.id, box->id.s);
		box_info_free(&i);
		if (found) {
			wire_put_bytes(out, F_RECORD, v.p, v.len);
			return 0;
		}
	}
	return den_fail(err, DEN_NOT_FOUND, 0, "no box '%s'; 'den ls' lists them", box->id.s);
}

/* A keeper that saves or loads programs hears nobody. Whoever only looks need not wait for that. */
static int info_soon(struct den_box *box, struct buf *out, struct den_err *err)
{
	struct den_err unheard;

	err = err ? err : &unheard;
	if (box->owner || box->forks || box->d->dial || !list_empty(&box->execs)) /* its connection is needed */
		return box_ask(box, WM_INFO, NULL, 0, out, err);
	if (box_ask_soon(box, WM_INFO, BUSY_MS, out, err) == 0)
		return 0;
	if (err->sys == ETIMEDOUT)
		return info_written(box, out, err);
	return err->sys == EPIPE ? box_ask(box, WM_INFO, NULL, 0, out, err) : -1;
}

int den_box_info(struct den_box *box, struct den_box_info **ret, struct den_err *err)
{
	auto_buf out = { 0 };
	size_t n;

	if (info_soon(box, &out, err) < 0 || infos_read(&out, ret, &n, err) < 0)
		return -1;
	if (n == 1)
		return 0;
	den_box_infos_free(*ret, n);
	return den_fail(err, DEN_INTERNAL, 0, "no box in the answer");
}

static struct den_box *clerk_start(struct den *d, struct den_err *err)
{
	struct den_box *box = box_new(d, err);
	int fd;

	if (!box)
		return NULL;
	if (clerk_spawn(d, &fd, &box->keeper, err) == 0 && box_take_conn(box, fd, err) == 0)
		return box;
	den_box_close(box);
	return NULL;
}

int clerk_ask(struct den *d, uint8_t type, const struct buf *req, uint8_t more, struct buf *out,
	struct den_err *err)
{
	struct den_box *box = clerk_start(d, err);
	int r;

	if (!box)
		return -1;
	r = box_ask(box, type, req, more, out, err);
	den_box_close(box);
	return r;
}

int clerk_ask_stream(struct den *d, uint8_t type, const struct buf *req, struct den_box **ret_clerk,
	int *ret_stream, struct den_err *err)
{
	struct den_box *box = clerk_start(d, err);

	if (!box)
		return -1;
	if (box_ask_stream(box, type, req, NULL, ret_stream, err) < 0) {
		den_box_close(box);
		return -1;
	}
	*ret_clerk = box;
	return 0;
}

int den_list(struct den *d, struct den_box_info **ret, size_t *n, struct den_err *err)
{
	struct den_err unheard;
	auto_buf out = { 0 };

	err = err ? err : &unheard;
	if (!d->dial && den_need_state(d, false, err) < 0) {
		if (err->code != DEN_NOT_FOUND)
			return -1;
		*ret = mem_zalloc(1); /* no state yet: no boxes */
		*n = 0;
		return 0;
	}
	if (clerk_ask(d, WM_LIST, NULL, WM_LIST, &out, err) < 0)
		return -1;
	return infos_read(&out, ret, n, err);
}

int den_disk_use(struct den *d, const char *owner, struct den_disk_use *ret, struct den_err *err)
{
	auto_buf req = { 0 }, out = { 0 };

	wire_put_str(&req, F_OWNER, owner);
	if (clerk_ask(d, WM_DISK_USE, &req, 0, &out, err) < 0)
		return -1;
	*ret = (struct den_disk_use){ .boxes = wire_find_u64(out.p, out.len, F_DISK, 0),
		.images = wire_find_u64(out.p, out.len, F_IMAGE_BYTES, 0),
		.templates = wire_find_u64(out.p, out.len, F_FILE_BYTES, 0) };
	return 0;
}

int den_box_stats(struct den_box *box, struct den_stats *ret, struct den_err *err)
{
	auto_buf out = { 0 };
	struct box_stats s;

	if (box_ask(box, WM_STATS, NULL, 0, &out, err) < 0 ||
		box_stats_get(out.p, out.len, &s, err) < 0)
		return -1;
	*ret = (struct den_stats){ .has = s.has,
		.cpu_usec = s.cpu_usec,
		.throttled_usec = s.throttled_usec,
		.memory = s.mem,
		.memory_peak = s.mem_peak,
		.memory_limit = s.mem_limit,
		.pids = s.pids,
		.pids_max = s.pids_max,
		.disk = s.disk,
		.disk_limit = s.disk_limit,
		.io_read = s.io_read,
		.io_write = s.io_write,
		.oom_kills = s.oom_kills };
	return 0;
}

/* ---- ps ---- */

struct ps_own {
	struct den_ps pub;
	struct exec_info *execs;
	pid_t *host; /* of each process, and of its parent */
	pid_t *host_parent;
};

static int ps_exec(struct ps_own *o, const struct wire_value *v, struct den_err *err)
{
	size_t n = o->pub.n_execs;
	struct exec_info *i;

	o->execs = mem_realloc(o->execs, (n + 1) * sizeof(*o->execs));
	i = &o->execs[n];
	if (exec_info_get(v->p, v->len, i, err) < 0)
		return -1;
	o->pub.execs = mem_realloc(o->pub.execs, (n + 1) * sizeof(*o->pub.execs));
	o->pub.execs[n] = (struct den_exec_info){
		.pid = (pid_t)i->pid,
		.number = (uint32_t)i->exec,
		.argv = (const char *const *)i->argv,
		.tag = i->tag,
		.user = i->user,
		.cwd = i->cwd,
		.running = !i->ended_ms,
		.tty = i->flags & EXEC_TTY,
		.started_ms = i->started_ms,
		.ended_ms = i->ended_ms,
		.result = { .exited = i->result.exited,
			.status = (int)i->result.status,
			.reason = exec_reason_name(i->result.reason),
			.oom_kills = i->result.oom_kills,
			.out_bytes = i->result.off_out,
			.err_bytes = i->result.off_err },
	};
	o->pub.n_execs++;
	return 0;
}

static int ps_process(struct ps_own *o, const struct wire_value *rec, struct den_err *err)
{
	struct wire_reader rd = wire_reader(rec->p, rec->len);
	struct den_process p = { 0 };
	auto_free char *command = NULL;
	size_t n = o->pub.n_processes;
	uint64_t u = 0, host = 0, parent = 0;
	struct wire_value v;

	while (wire_next(&rd, &v, err) > 0) {
		if (v.tag == F_COMM) {
			if (wire_str(&v, 4096, &command, err) < 0)
				return -1;
			continue;
		}
		if (wire_u64(&v, UINT64_MAX, &u, err) < 0)
			return -1;
		if (v.tag == F_PID)
			p.pid = (pid_t)u;
		else if (v.tag == F_PPID)
			parent = u;
		else if (v.tag == F_INIT_PID)
			host = u;
		else if (v.tag == F_UID)
			p.uid = (uint32_t)u;
		else if (v.tag == F_STATE)
			p.state = (char)u;
		else if (v.tag == F_CPU_USEC)
			p.cpu_usec = u;
		else if (v.tag == F_MEM_BYTES)
			p.memory = u;
	}
	p.command = mem_take(&command) ?: mem_strdup("");
	o->pub.processes = mem_realloc(o->pub.processes, (n + 1) * sizeof(p));
	o->host = mem_realloc(o->host, (n + 1) * sizeof(pid_t));
	o->host_parent = mem_realloc(o->host_parent, (n + 1) * sizeof(pid_t));
	o->pub.processes[n] = p;
	o->host[n] = (pid_t)host;
	o->host_parent[n] = (pid_t)parent;
	o->pub.n_processes++;
	return 0;
}

int den_box_ps(struct den_box *box, struct den_ps **ret, struct den_err *err)
{
	struct ps_own *o = mem_new(struct ps_own);
	auto_buf out = { 0 };
	struct wire_reader rd;
	struct wire_value v;
	int r = box_ask(box, WM_PS, NULL, 0, &out, err);

	rd = wire_reader(out.p, out.len);
	while (r == 0 && wire_next(&rd, &v, NULL) > 0) {
		if (v.tag == F_RECORD)
			r = ps_exec(o, &v, err);
		else if (v.tag == F_RECORD2)
			r = ps_process(o, &v, err);
	}
	if (r < 0) {
		den_ps_free(&o->pub);
		return -1;
	}
	for (size_t i = 0; i < o->pub.n_processes; i++) /* parents as the box numbers them */
		for (size_t k = 0; k < o->pub.n_processes; k++)
			if (o->host[k] == o->host_parent[i])
				o->pub.processes[i].ppid = o->pub.processes[k].pid;
	*ret = &o->pub;
	return 0;
}

void den_ps_free(struct den_ps *ps)
{
	struct ps_own *o = ps ? CONTAINER_OF(ps, struct ps_own, pub) : NULL;

	if (!o)
		return;
	for (size_t i = 0; i < ps->n_execs; i++)
		exec_info_free(&o->execs[i]);
	for (size_t i = 0; i < ps->n_processes; i++)
		free((char *)ps->processes[i].command);
	free(o->execs);
	free(o->host);
	free(o->host_parent);
	free(ps->execs);
	free(ps->processes);
	free(o);
}

/* ---- findings ---- */

static int findings_read(
	const struct buf *b, struct den_finding **ret, size_t *ret_n, struct den_err *err)
{
	struct wire_reader rd = wire_reader(b->p, b->len);
	struct den_finding *f = mem_zalloc(1);
	struct wire_value rec, v;
	size_t n = 0;

	while (wire_next(&rd, &rec, NULL) > 0) {
		struct wire_reader in = wire_reader(rec.p, rec.len);
		char *topic = NULL, *level = NULL, *text = NULL;

		while (wire_next(&in, &v, NULL) > 0) {
			char **to = v.tag == F_NAME ? &topic : v.tag == F_STATE ? &level : &text;

			if (wire_str(&v, 4096, to, err) < 0)
				break;
		}
		f = mem_realloc(f, (n + 1) * sizeof(*f));
		f[n++] = (struct den_finding){ topic ?: mem_strdup(""), level ?: mem_strdup(""),
			text ?: mem_strdup("") };
	}
	*ret = f;
	*ret_n = n;
	return 0;
}

void den_findings_free(struct den_finding *f, size_t n)
{
	for (size_t i = 0; f && i < n; i++) {
		free((char *)f[i].topic);
		free((char *)f[i].level);
		free((char *)f[i].text);
	}
	free(f);
}

int den_doctor(struct den *d, struct den_finding **ret, size_t *n, struct den_err *err)
{
	auto_buf out = { 0 };

	if (clerk_ask(d, WM_DOCTOR, NULL, 0, &out, err) < 0)
		return -1;
	return findings_read(&out, ret, n, err);
}

int den_gc(struct den *d, struct den_finding **ret, size_t *n, struct den_err *err)
{
	auto_buf out = { 0 };

	if (clerk_ask(d, WM_GC, NULL, 0, &out, err) < 0)
		return -1;
	return findings_read(&out, ret, n, err);
}
