/* A box handle: making, opening and ending boxes. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "fd.h"
#include "lib.h"
#include "mem.h"
#include "place.h"

/* Of a new box, where nobody says which: a fork has its box's. */
static const char *usual_wall(const char *from)
{
	const char *w = getenv("DEN_WALL");

	return !from && w && w[0] ? w : NULL;
}

int spec_from(const struct den_box_spec *in, const char *from, bool full, struct buf *out, struct den_err *err)
{
	struct box_mount mounts[SPEC_MAX_MOUNTS];
	struct box_spec s = {
		.name = (char *)in->name,
		.template_name = (char *)in->template_name,
		.wall = (char *)(in->wall ? in->wall : usual_wall(from)),
		.net = (char *)in->net,
		.hostname = (char *)in->hostname,
		.user = (char *)in->user,
		.cwd = (char *)in->workdir,
		.env = (char **)in->env,
		.mounts = mounts,
		.n_mounts = in->n_mounts,
		.cpu_milli = in->cpu_milli,
		.memory = in->memory,
		.pids = in->pids,
		.disk = in->disk,
		.nofile = in->nofile,
		.max_runtime_ms = in->max_runtime_ms,
		.flags = (in->ephemeral ? BOX_EPHEMERAL : 0U) | (full ? BOX_FULL : 0U) |
			 (in->reseed ? BOX_RESEED : 0U),
		.policy = (char *)in->policy,
		.policy_name = (char *)in->policy_name,
		.publish = (char **)in->publish,
	};
	static const char *const history[] = { "on", "manual", "off" };

	s.owner = (char *)in->owner;
	s.quota = in->quota;
	s.labels = (char **)in->labels;
	s.expires_ms = (uint64_t)in->expires_ms;
	s.idle_ms = in->idle_ms;
	s.from = (char *)from;
	if (in->size != sizeof(*in))
		return den_fail(err, DEN_INVALID, 0, "den_box_spec.size is not set");
	if (in->n_mounts > SPEC_MAX_MOUNTS)
		return den_fail(err, DEN_INVALID, 0, "more than %d mounts", SPEC_MAX_MOUNTS);
	for (size_t i = 0; i < in->n_mounts; i++)
		mounts[i] = (struct box_mount){ (char *)in->mounts[i].host,
			(char *)in->mounts[i].box, in->mounts[i].ro };
	for (uint64_t i = 0; in->history && i < ARRAY_SIZE(history); i++)
		if (!strcmp(in->history, history[i]))
			s.history = i + 1;
	if (in->history && !s.history)
		return den_fail(err, DEN_INVALID, 0,
			"history is 'on', 'manual' or 'off', not '%.30s'", in->history);
	if (in->expires_ms < 0)
		return den_fail(err, DEN_INVALID, 0, "a box cannot expire before 1970");
	if (lease_action_parse(in->on_expire, &s.on_expire, err) < 0 || lease_action_parse(in->on_idle, &s.on_idle, err) < 0)
		return -1;
	box_spec_put(out, &s);
	if (out->len > WIRE_MAX_PAYLOAD)
		return den_fail(err, DEN_INVALID, E2BIG, "the box's description is too long");
	return 0;
}

int read_id(const struct buf *b, struct box_id *ret, struct den_err *err)
{
	struct wire_reader rd = wire_reader(b->p, b->len);
	struct wire_value v;
	auto_free char *text = NULL;

	while (wire_next(&rd, &v, err) > 0)
		if (v.tag == F_ID && wire_str(&v, 20, &text, err) < 0)
			return -1;
	return text ? box_id_parse(text, ret, err)
		    : den_fail(err, DEN_INTERNAL, 0, "no id in the answer");
}

int box_expect(struct den *d, struct den_box **ret, struct den_err *err)
{
	struct den_box *box = box_new(d, err);
	int fd;

	if (!box)
		return -1;
	if (clerk_spawn(d, &fd, &box->keeper, err) < 0 || box_take_conn(box, fd, err) < 0) {
		den_box_close(box);
		return -1;
	}
	*ret = box;
	return 0;
}

static int create_in(struct den_box *box, const struct buf *req, struct den_err *err)
{
	auto_buf out = { 0 };

	return box_ask(box, WM_CREATE, req, 0, &out, err) < 0 ? -1 : read_id(&out, &box->id, err);
}

static int create(struct den *d, const struct buf *req, struct den_box **ret, struct den_err *err)
{
	struct den_box *box;

	if (box_expect(d, &box, err) < 0)
		return -1;
	if (create_in(box, req, err) < 0) {
		den_box_close(box);
		return -1;
	}
	*ret = box;
	return 0;
}

int den_box_create(
	struct den *d, const struct den_box_spec *spec, struct den_box **ret, struct den_err *err)
{
	auto_buf req = { 0 };

	if (spec_from(spec, NULL, false, &req, err) < 0)
		return -1;
	if (ready_claim(d, &req, ret))
		return 0;
	if (create(d, &req, ret, err) < 0)
		return -1;
	(*ret)->owner = spec->ephemeral;
	return 0;
}

int box_fork_in(struct den_box *box, const char *from, bool full, const struct den_box_spec *over, struct den_err *err)
{
	static const struct den_box_spec nothing = { .size = sizeof(nothing) };
	auto_buf req = { 0 };

	if (spec_from(over ? over : &nothing, from, full, &req, err) < 0 || create_in(box, &req, err) < 0)
		return -1;
	box->owner = over && over->ephemeral;
	return 0;
}

int box_create_from(struct den *d, const char *from, bool full, const struct den_box_spec *over, struct den_box **ret,
	struct den_err *err)
{
	struct den_box *box;

	if (box_expect(d, &box, err) < 0)
		return -1;
	if (box_fork_in(box, from, full, over, err) < 0) {
		den_box_close(box);
		return -1;
	}
	*ret = box;
	return 0;
}

/* Where no file may be looked at, a clerk looks up names. An id needs nobody. */
static int resolve_asked(struct den *d, const char *ref, struct box_id *ret, struct den_err *err)
{
	auto_buf req = { 0 }, out = { 0 };

	if (box_id_looks(ref))
		return box_id_parse(ref, ret, err);
	wire_put_str(&req, F_REF, ref);
	return clerk_ask(d, WM_RESOLVE, &req, 0, &out, err) < 0 ? -1 : read_id(&out, ret, err);
}

int den_box_open(struct den *d, const char *ref, struct den_box **ret, struct den_err *err)
{
	struct den_err unheard;
	struct den_box *box;
	struct box_id id;

	err = err ? err : &unheard;
	if (!d->dial && den_need_state(d, false, err) < 0) {
		if (err->code == DEN_NOT_FOUND)
			den_fail(err, DEN_NOT_FOUND, 0,
				"no box '%.80s'; there are none yet ('den create')", ref);
		return -1;
	}
	if ((d->dial ? resolve_asked(d, ref, &id, err) : place_resolve(d->fd, ref, &id, err)) < 0)
		return -1;
	box = box_new(d, err);
	if (!box)
		return -1;
	box->id = id;
	if (box_connect(box, err) < 0) {
		den_box_close(box);
		return -1;
	}
	*ret = box;
	return 0;
}

/* The caller still holds them; den_exec_unref() frees them. */
static void forget_execs(struct list *execs)
{
	while (!list_empty(execs)) {
		struct den_exec *e = CONTAINER_OF(execs->next, struct den_exec, link);

		list_remove(&e->link);
		e->box = NULL;
	}
}

void den_box_close(struct den_box *box)
{
	struct den_err ignored;

	if (!box)
		return;
	if (box->owner && box->connected && !box->deleted && !box->reply)
		(void)den_box_delete(box, true, &ignored);
	forget_execs(&box->execs);
	forget_execs(&box->done);
	if (box->connected)
		conn_close(&box->conn);
	buf_free(&box->conn.rx);
	keeper_reap(&box->keeper, !box->id.s[0]); /* a clerk leaves at once */
	loop_free(box->loop);
	free(box);
}

const char *den_box_id(const struct den_box *box)
{
	return box->id.s;
}

int den_box_start(struct den_box *box, struct den_err *err)
{
	return box_ask(box, WM_START, NULL, 0, NULL, err);
}

int den_box_stop(struct den_box *box, uint64_t grace_ms, struct den_err *err)
{
	auto_buf b = { 0 };

	wire_put_u64(&b, F_GRACE_MS, grace_ms);
	return box_ask(box, WM_STOP, &b, 0, NULL, err);
}

int den_box_pause(struct den_box *box, struct den_err *err)
{
	return box_ask(box, WM_PAUSE, NULL, 0, NULL, err);
}

int den_box_resume(struct den_box *box, struct den_err *err)
{
	return box_ask(box, WM_RESUME, NULL, 0, NULL, err);
}

int den_box_delete(struct den_box *box, bool force, struct den_err *err)
{
	auto_buf b = { 0 };

	wire_put_u64(&b, F_FLAGS, force);
	if (box_ask(box, WM_DELETE, &b, 0, NULL, err) < 0)
		return -1;
	box->deleted = true;
	return 0;
}

int den_box_wait(struct den_box *box, struct den_err *err)
{
	return box_ask(box, WM_WAIT, NULL, 0, NULL, err);
}

int den_box_lease(struct den_box *box, const struct den_lease *l, struct den_err *err)
{
	auto_buf b = { 0 };
	uint64_t action;

	if (l->size != sizeof(*l))
		return den_fail(err, DEN_INVALID, 0, "den_lease.size is not set");
	if (l->expires_ms < 0 && l->expires_ms != DEN_LEASE_KEEP)
		return den_fail(err, DEN_INVALID, 0, "a box cannot expire before 1970");
	if (l->expires_ms != DEN_LEASE_KEEP)
		wire_put_u64(&b, F_EXPIRES_MS, (uint64_t)l->expires_ms);
	if (l->idle_ms != DEN_IDLE_KEEP)
		wire_put_u64(&b, F_IDLE_MS, l->idle_ms);
	if (lease_action_parse(l->on_expire, &action, err) < 0)
		return -1;
	if (action)
		wire_put_u64(&b, F_ON_EXPIRE, action);
	if (lease_action_parse(l->on_idle, &action, err) < 0)
		return -1;
	if (action)
		wire_put_u64(&b, F_ON_IDLE, action);
	wire_put_u64(&b, F_FLAGS, l->extend);
	return box_ask(box, WM_LEASE, &b, 0, NULL, err);
}

int den_box_label(struct den_box *box, const char *const *labels, struct den_err *err)
{
	auto_buf b = { 0 };

	for (size_t i = 0; labels && labels[i]; i++)
		wire_put_str(&b, F_LABEL, labels[i]);
	if (b.len > WIRE_MAX_PAYLOAD)
		return den_fail(err, DEN_INVALID, E2BIG, "the labels are too long");
	return box_ask(box, WM_LABEL, &b, 0, NULL, err);
}
