#include "spec.h"

#include <string.h>

#include "mem.h"
#include "strv.h"
#include "volume.h"

#define MAX_TEXT 4096
#define MAX_PATH 4095
#define MAX_ARG (128U << 10) /* what the kernel takes as one argument */

const char *const box_state_str[] = { "creating", "running", "paused", "stopped", "deleting" };
static_assert(ARRAY_SIZE(box_state_str) == BOX_STATES, "a state has no name");

const char *const exec_reason_str[] = { "", "timeout", "cpu", "memory", "pids", "disk", "output",
	"stop" };
static_assert(ARRAY_SIZE(exec_reason_str) == EXEC_REASONS, "a reason has no name");

/* ---- tables: one row a field ---- */

enum kind { K_U64, K_STR, K_STRV };
struct row {
	uint16_t tag;
	uint8_t kind;
	uint16_t off;
	uint32_t max; /* longest string; for K_U64 0 means any number */
};

static void rows_put(struct buf *b, const struct row *rows, size_t n, const void *obj)
{
	for (size_t i = 0; i < n; i++) {
		const char *at = (const char *)obj + rows[i].off;

		if (rows[i].kind == K_U64) {
			uint64_t v = *(const uint64_t *)(const void *)at;

			if (v)
				wire_put_u64(b, rows[i].tag, v);
		} else if (rows[i].kind == K_STR) {
			wire_put_str(b, rows[i].tag, *(char *const *)(const void *)at);
		} else {
			char *const *v = *(char **const *)(const void *)at;

			for (size_t k = 0; v && v[k]; k++)
				wire_put_str(b, rows[i].tag, v[k]);
		}
	}
}

/* 1: taken; 0: no such row; -1: bad value */
static int rows_get(const struct row *rows, size_t n, const struct wire_value *v, void *obj,
	struct den_err *err)
{
	for (size_t i = 0; i < n; i++) {
		char *at = (char *)obj + rows[i].off;

		if (rows[i].tag != v->tag)
			continue;
		if (rows[i].kind == K_U64)
			return wire_u64(v, rows[i].max ? rows[i].max : UINT64_MAX,
				       (uint64_t *)(void *)at, err) < 0 ? -1 : 1;
		if (rows[i].kind == K_STR)
			return wire_str(v, rows[i].max, (char **)(void *)at, err) < 0 ? -1 : 1;
		if (v->len > rows[i].max || memchr(v->p, '\0', v->len))
			return den_fail(
				err, DEN_INVALID, 0, "field %u is too long or has a NUL", v->tag);
		strv_addn((char ***)(void *)at, v->p, v->len);
		return 1;
	}
	return 0;
}

#define U64(tag, type, member, max) { tag, K_U64, offsetof(struct type, member), max }
#define STR(tag, type, member, max) { tag, K_STR, offsetof(struct type, member), max }
#define STRV(tag, type, member, max) { tag, K_STRV, offsetof(struct type, member), max }

/* ---- box spec ---- */

static const struct row box_rows[] = {
	STR(F_ID, box_spec, id, 20),
	STR(F_NAME, box_spec, name, 63),
	STR(F_TEMPLATE, box_spec, template_name, 255),
	STR(F_WALL, box_spec, wall, 32),
	STR(F_NET, box_spec, net, 64),
	STR(F_HOSTNAME, box_spec, hostname, 64),
	STR(F_USER, box_spec, user, 255),
	STR(F_CWD, box_spec, cwd, MAX_PATH),
	STRV(F_ENV, box_spec, env, MAX_ARG),
	U64(F_CPU_MILLI, box_spec, cpu_milli, 4096000),
	U64(F_MEMORY, box_spec, memory, 0),
	U64(F_PIDS, box_spec, pids, 1 << 22),
	U64(F_DISK, box_spec, disk, 0),
	U64(F_NOFILE, box_spec, nofile, 1 << 30),
	U64(F_MAX_RUNTIME_MS, box_spec, max_runtime_ms, 0),
	U64(F_FLAGS, box_spec, flags, BOX_KEEP_FLAGS),
	STR(F_FROM, box_spec, from, 64),
	U64(F_HISTORY, box_spec, history, HISTORY_OFF),
	STR(F_POLICY, box_spec, policy, SPEC_MAX_POLICY),
	STR(F_POLICY_NAME, box_spec, policy_name, 63),
	STRV(F_PUBLISH, box_spec, publish, 16),
	STR(F_OWNER, box_spec, owner, SPEC_MAX_OWNER),
	STRV(F_LABEL, box_spec, labels, SPEC_MAX_LABEL),
	U64(F_EXPIRES_MS, box_spec, expires_ms, 0),
	U64(F_ON_EXPIRE, box_spec, on_expire, LEASE_ACTIONS - 1),
	U64(F_IDLE_MS, box_spec, idle_ms, 0),
	U64(F_ON_IDLE, box_spec, on_idle, LEASE_ACTIONS - 1),
	U64(F_QUOTA, box_spec, quota, 0),
};

const char *const lease_action_str[] = { "", "delete", "pause", "stop", "pause-disk" };
static_assert(ARRAY_SIZE(lease_action_str) == LEASE_ACTIONS, "an action has no name");

int lease_action_parse(const char *text, uint64_t *ret, struct den_err *err)
{
	if (!text) {
		*ret = LEASE_DEFAULT;
		return 0;
	}
	for (uint64_t i = 1; i < LEASE_ACTIONS; i++)
		if (!strcmp(text, lease_action_str[i])) {
			*ret = i;
			return 0;
		}
	return den_fail(err, DEN_INVALID, 0, "'%.30s' cannot be done with a box then: delete, pause, pause-disk or stop", text);
}

int labels_check(char *const *labels, struct den_err *err)
{
	size_t n = strv_len(labels);

	if (n > SPEC_MAX_LABELS)
		return den_fail(err, DEN_LIMIT, 0, "more than %d labels", SPEC_MAX_LABELS);
	for (size_t i = 0; i < n; i++) {
		size_t key = strcspn(labels[i], "=");

		if (!key || !labels[i][key])
			return den_fail(err, DEN_INVALID, 0, "label '%.60s' is not KEY=VALUE", labels[i]);
		for (size_t k = 0; k < i; k++)
			if (!strncmp(labels[k], labels[i], key + 1))
				return den_fail(err, DEN_INVALID, 0, "label '%.*s' is given twice",
					(int)MIN(key, (size_t)60), labels[i]);
	}
	return 0;
}

void box_spec_put(struct buf *b, const struct box_spec *s)
{
	rows_put(b, box_rows, ARRAY_SIZE(box_rows), s);
	for (size_t i = 0; i < s->n_mounts; i++) { /* host opens a mount, the others belong to it */
		wire_put_str(b, F_MOUNT_HOST, s->mounts[i].host);
		wire_put_str(b, F_MOUNT_BOX, s->mounts[i].box);
		wire_put_u64(b, F_MOUNT_RO, s->mounts[i].ro);
	}
}

/* 1: taken, 0: not a mount field, -1: bad */
static int mount_get(const struct wire_value *v, struct box_spec *s, struct den_err *err)
{
	struct box_mount *m = s->n_mounts ? &s->mounts[s->n_mounts - 1] : NULL;
	uint64_t u;

	if (v->tag != F_MOUNT_HOST && v->tag != F_MOUNT_BOX && v->tag != F_MOUNT_RO)
		return 0;
	if (v->tag == F_MOUNT_HOST) {
		if (s->n_mounts == SPEC_MAX_MOUNTS)
			return den_fail(err, DEN_LIMIT, 0, "more than %d mounts", SPEC_MAX_MOUNTS);
		s->mounts = mem_realloc(s->mounts, (s->n_mounts + 1) * sizeof(*s->mounts));
		m = &s->mounts[s->n_mounts++];
		*m = (struct box_mount){ 0 };
		return wire_str(v, MAX_PATH, &m->host, err) < 0 ? -1 : 1;
	}
	if (!m)
		return den_fail(err, DEN_INVALID, 0, "a mount without a host path");
	if (v->tag == F_MOUNT_BOX)
		return wire_str(v, MAX_PATH, &m->box, err) < 0 ? -1 : 1;
	if (wire_u64(v, 1, &u, err) < 0)
		return -1;
	m->ro = u;
	return 1;
}

static int box_spec_field(const struct wire_value *v, struct box_spec *s, struct den_err *err)
{
	int r = rows_get(box_rows, ARRAY_SIZE(box_rows), v, s, err);

	return r ? r : mount_get(v, s, err);
}

/* Each mount needs both paths, whatever order a peer sent them in; labels have keys. */
static int box_spec_check(const struct box_spec *s, struct den_err *err)
{
	for (size_t i = 0; i < s->n_mounts; i++)
		if (!s->mounts[i].host || !s->mounts[i].box || s->mounts[i].box[0] != '/' ||
			(s->mounts[i].host[0] != '/' && !volume_name(s->mounts[i].host)))
			return den_fail(err, DEN_INVALID, 0, "a mount needs two absolute paths");
	if (s->expires_ms > INT64_MAX)
		return den_fail(err, DEN_INVALID, 0, "a box cannot expire at that time");
	return labels_check(s->labels, err);
}

int box_spec_get(const char *p, size_t n, struct box_spec *ret, struct den_err *err)
{
	struct wire_reader rd = wire_reader(p, n);
	struct box_spec s = { 0 };
	struct wire_value v;
	int r;

	while ((r = wire_next(&rd, &v, err)) > 0) {
		r = box_spec_field(&v, &s, err);
		if (r == 0)
			r = wire_unexpected(&v, err);
		if (r < 0)
			break;
	}
	if (r < 0 || box_spec_check(&s, err) < 0) {
		box_spec_free(&s);
		return -1;
	}
	*ret = s;
	return 0;
}

void box_spec_free(struct box_spec *s)
{
	free(s->id);
	free(s->name);
	free(s->template_name);
	free(s->wall);
	free(s->net);
	free(s->hostname);
	free(s->user);
	free(s->cwd);
	free(s->from);
	free(s->policy);
	free(s->policy_name);
	strv_free(s->publish);
	strv_free(s->env);
	free(s->owner);
	strv_free(s->labels);
	for (size_t i = 0; i < s->n_mounts; i++) {
		free(s->mounts[i].host);
		free(s->mounts[i].box);
	}
	free(s->mounts);
	*s = (struct box_spec){ 0 };
}

/* ---- box info ---- */

static const struct row info_rows[] = {
	U64(F_CREATED_MS, box_info, created_ms, 0),
	U64(F_STARTED_MS, box_info, started_ms, 0),
	U64(F_STOPPED_MS, box_info, stopped_ms, 0),
	U64(F_INIT_PID, box_info, init_pid, 1 << 30),
	U64(F_KEEPER_PID, box_info, keeper_pid, 1 << 30),
	STR(F_REASON, box_info, reason, MAX_TEXT),
	STR(F_DETAIL, box_info, detail, MAX_TEXT),
	STR(F_BOOT_ID, box_info, boot_id, 64),
	U64(F_GENERATION, box_info, generation, 0),
	U64(F_ACTIVE_MS, box_info, active_ms, 0),
	U64(F_TURN, box_info, turn, 0),
	U64(F_ON_DISK, box_info, on_disk, 0),
	U64(F_IMAGES, box_info, images, 0),
	U64(F_RESTORES, box_info, restores, 0),
	U64(F_IMAGE_BYTES, box_info, image_bytes, 0),
	U64(F_FILE_BYTES, box_info, file_bytes, 0),
	STRV(F_MARK, box_info, marks, 64),
};

void box_info_put(struct buf *b, const struct box_info *i)
{
	box_spec_put(b, &i->spec);
	wire_put_u64(b, F_STATE, i->state);
	rows_put(b, info_rows, ARRAY_SIZE(info_rows), i);
}

int box_info_get(const char *p, size_t n, struct box_info *ret, struct den_err *err)
{
	struct wire_reader rd = wire_reader(p, n);
	struct box_info s = { 0 };
	struct wire_value v;
	uint64_t u;
	int r;

	while ((r = wire_next(&rd, &v, err)) > 0) {
		if (v.tag == F_STATE) {
			r = wire_u64(&v, BOX_STATES - 1, &u, err);
			s.state = r < 0 ? 0 : (enum box_state)u;
		} else {
			r = rows_get(info_rows, ARRAY_SIZE(info_rows), &v, &s, err);
			if (r == 0)
				r = box_spec_field(&v, &s.spec, err);
			if (r == 0)
				r = wire_unexpected(&v, err);
		}
		if (r < 0)
			break;
	}
	if (r < 0 || box_spec_check(&s.spec, err) < 0) {
		box_info_free(&s);
		return -1;
	}
	*ret = s;
	return 0;
}

void box_info_free(struct box_info *i)
{
	box_spec_free(&i->spec);
	free(i->reason);
	free(i->detail);
	free(i->boot_id);
	strv_free(i->marks);
	*i = (struct box_info){ 0 };
}

/* ---- exec spec ---- */

static const struct row exec_rows[] = {
	STRV(F_ARGV, exec_spec, argv, MAX_ARG),
	STRV(F_ENV, exec_spec, env, MAX_ARG),
	STR(F_CWD, exec_spec, cwd, MAX_PATH),
	STR(F_USER, exec_spec, user, 255),
	STR(F_TAG, exec_spec, tag, 255),
	U64(F_FLAGS, exec_spec, flags, 0xffff),
	U64(F_ROWS, exec_spec, rows, 65535),
	U64(F_COLS, exec_spec, cols, 65535),
	U64(F_TIMEOUT_MS, exec_spec, timeout_ms, 0),
	U64(F_CPU_MS, exec_spec, cpu_ms, 0),
	U64(F_GRACE_MS, exec_spec, grace_ms, 0),
	U64(F_MAX_OUTPUT, exec_spec, max_output, 0),
	U64(F_KEEP, exec_spec, keep, EXEC_KEEP_MAX),
	U64(F_CREDIT, exec_spec, credit, WIRE_WINDOW),
	U64(F_EXEC, exec_spec, exec, UINT32_MAX),
	U64(F_NOFILE, exec_spec, nofile, 1 << 30),
	U64(F_NONCE, exec_spec, nonce, 0),
};

void exec_spec_put(struct buf *b, const struct exec_spec *s)
{
	rows_put(b, exec_rows, ARRAY_SIZE(exec_rows), s);
}

int exec_spec_get(const char *p, size_t n, struct exec_spec *ret, struct den_err *err)
{
	struct wire_reader rd = wire_reader(p, n);
	struct exec_spec s = { 0 };
	struct wire_value v;
	int r;

	while ((r = wire_next(&rd, &v, err)) > 0) {
		r = rows_get(exec_rows, ARRAY_SIZE(exec_rows), &v, &s, err);
		if (r == 0)
			r = wire_unexpected(&v, err);
		if (r < 0)
			break;
	}
	if (r == 0 && !s.argv)
		r = den_fail(err, DEN_INVALID, 0, "nothing to run");
	if (r < 0) {
		exec_spec_free(&s);
		return -1;
	}
	*ret = s;
	return 0;
}

void exec_spec_free(struct exec_spec *s)
{
	strv_free(s->argv);
	strv_free(s->env);
	free(s->cwd);
	free(s->user);
	free(s->tag);
	*s = (struct exec_spec){ 0 };
}

/* ---- exec result and info ---- */

static const struct row result_rows[] = {
	U64(F_STATUS, exec_result, status, 255),
	U64(F_OOM_KILLS, exec_result, oom_kills, 0),
	U64(F_OFF_OUT, exec_result, off_out, 0),
	U64(F_OFF_ERR, exec_result, off_err, 0),
};

void exec_result_put(struct buf *b, const struct exec_result *r)
{
	wire_put_u64(b, F_EXITED, r->exited);
	if (r->reason)
		wire_put_u64(b, F_REASON, r->reason);
	rows_put(b, result_rows, ARRAY_SIZE(result_rows), r);
}

static int result_field(const struct wire_value *v, struct exec_result *s, struct den_err *err)
{
	uint64_t u;

	if (v->tag == F_EXITED) {
		if (wire_u64(v, 1, &u, err) < 0)
			return -1;
		s->exited = u;
		return 1;
	}
	if (v->tag == F_REASON) {
		if (wire_u64(v, EXEC_REASONS - 1, &u, err) < 0)
			return -1;
		s->reason = (enum exec_reason)u;
		return 1;
	}
	return rows_get(result_rows, ARRAY_SIZE(result_rows), v, s, err);
}

int exec_result_get(const char *p, size_t n, struct exec_result *ret, struct den_err *err)
{
	struct wire_reader rd = wire_reader(p, n);
	struct exec_result s = { 0 };
	struct wire_value v;
	int r;

	while ((r = wire_next(&rd, &v, err)) > 0) {
		r = result_field(&v, &s, err);
		if (r == 0)
			r = wire_unexpected(&v, err);
		if (r < 0)
			return -1;
	}
	if (r < 0)
		return -1;
	*ret = s;
	return 0;
}

static const struct row einfo_rows[] = {
	U64(F_EXEC, exec_info, exec, UINT32_MAX),
	U64(F_PID, exec_info, pid, 1 << 30),
	STRV(F_ARGV, exec_info, argv, MAX_ARG),
	STR(F_TAG, exec_info, tag, 255),
	STR(F_USER, exec_info, user, 255),
	STR(F_CWD, exec_info, cwd, MAX_PATH),
	U64(F_FLAGS, exec_info, flags, 0xffff),
	U64(F_STARTED_MS, exec_info, started_ms, 0),
	U64(F_ENDED_MS, exec_info, ended_ms, 0),
	U64(F_TIMEOUT_MS, exec_info, timeout_ms, 0),
	U64(F_CPU_MS, exec_info, cpu_ms, 0),
	U64(F_GRACE_MS, exec_info, grace_ms, 0),
	U64(F_NONCE, exec_info, nonce, 0),
};

void exec_info_put(struct buf *b, const struct exec_info *i)
{
	rows_put(b, einfo_rows, ARRAY_SIZE(einfo_rows), i);
	exec_result_put(b, &i->result);
}

int exec_info_get(const char *p, size_t n, struct exec_info *ret, struct den_err *err)
{
	struct wire_reader rd = wire_reader(p, n);
	struct exec_info s = { 0 };
	struct wire_value v;
	int r;

	while ((r = wire_next(&rd, &v, err)) > 0) {
		r = rows_get(einfo_rows, ARRAY_SIZE(einfo_rows), &v, &s, err);
		if (r == 0)
			r = result_field(&v, &s.result, err);
		if (r == 0)
			r = wire_unexpected(&v, err);
		if (r < 0)
			break;
	}
	if (r < 0) {
		exec_info_free(&s);
		return -1;
	}
	*ret = s;
	return 0;
}

void exec_info_free(struct exec_info *i)
{
	strv_free(i->argv);
	free(i->tag);
	free(i->user);
	free(i->cwd);
	*i = (struct exec_info){ 0 };
}

/* ---- stats ---- */

static const struct row stats_rows[] = {
	U64(F_CPU_USEC, box_stats, cpu_usec, 0),
	U64(F_CPU_THROTTLED_USEC, box_stats, throttled_usec, 0),
	U64(F_MEM_BYTES, box_stats, mem, 0),
	U64(F_MEM_PEAK, box_stats, mem_peak, 0),
	U64(F_MEM_LIMIT, box_stats, mem_limit, 0),
	U64(F_PIDS_NOW, box_stats, pids, 0),
	U64(F_PIDS_MAX, box_stats, pids_max, 0),
	U64(F_DISK_BYTES, box_stats, disk, 0),
	U64(F_DISK_LIMIT, box_stats, disk_limit, 0),
	U64(F_IO_READ, box_stats, io_read, 0),
	U64(F_IO_WRITE, box_stats, io_write, 0),
	U64(F_OOM_KILLS, box_stats, oom_kills, 0),
	U64(F_FLAGS, box_stats, has, 0),
};

void box_stats_put(struct buf *b, const struct box_stats *s)
{
	rows_put(b, stats_rows, ARRAY_SIZE(stats_rows), s);
}

int box_stats_get(const char *p, size_t n, struct box_stats *ret, struct den_err *err)
{
	struct wire_reader rd = wire_reader(p, n);
	struct box_stats s = { 0 };
	struct wire_value v;
	int r;

	while ((r = wire_next(&rd, &v, err)) > 0) {
		r = rows_get(stats_rows, ARRAY_SIZE(stats_rows), &v, &s, err);
		if (r == 0)
			r = wire_unexpected(&v, err);
		if (r < 0)
			return -1;
	}
	if (r < 0)
		return -1;
	*ret = s;
	return 0;
}
