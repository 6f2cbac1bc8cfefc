/* Requests on channel 0: which there are, and those that are small. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "fd.h"
#include "gate.h"
#include "keeper.h"
#include "quota.h"

#define DISK_HAS 0x7f /* cpu, memory and pids, with their limits: of a box on disk they are 0 */

static int req_create(struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err)
{
	if (box_create(c->k, f->p, f->len, c, err) < 0)
		return -1;
	wire_put_str(out, F_ID, c->k->id.s);
	return 0;
}

static int req_hello(struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err)
{
	struct wire_reader rd = wire_reader(f->p, f->len);
	struct wire_value v;
	uint64_t flags = 0;

	(void)out;
	while (wire_next(&rd, &v, NULL) > 0)
		if (v.tag == F_FLAGS && wire_u64(&v, 1, &flags, err) < 0)
			return -1;
	if (flags && c->k->has_box && (c->k->row.info.spec.flags & BOX_EPHEMERAL)) {
		c->owner = true; /* it made the box and came back after our predecessor died */
		loop_timer_clear(&c->k->owner_gone);
	}
	return 0;
}

static int req_start(struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err)
{
	(void)f, (void)out;
	if (lease_left(c->k, err) < 0)
		return -1;
	if (c->k->row.info.on_disk)
		return box_wake(c->k, err);
	if (box_up(c->k, err) < 0)
		return -1;
	if (box_save(c->k, err) == 0) {
		feed_state(c->k, "box.started");
		return 0;
	}
	c->k->stopping = true; /* what failed did not happen */
	box_down(c->k, NULL);
	return -1;
}

uint64_t field_u64(const struct wire_frame *f, uint16_t tag, uint64_t otherwise)
{
	return wire_find_u64(f->p, f->len, tag, otherwise);
}

int field_str(const struct wire_frame *f, uint16_t tag, size_t max, char **ret, struct den_err *err)
{
	struct wire_reader rd = wire_reader(f->p, f->len);
	struct wire_value v;
	int r;

	while ((r = wire_next(&rd, &v, err)) > 0)
		if (v.tag == tag)
			return wire_str(&v, max, ret, err);
	return r;
}

/* Answered when the box is down (box.c). */
static int req_stop(struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err)
{
	(void)out;
	c->wait_down = true;
	if (box_stop(c->k, field_u64(f, F_GRACE_MS, EXEC_GRACE_MS), err) < 0) {
		c->wait_down = false;
		return -1;
	}
	return 1;
}

static int req_wait(struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err)
{
	(void)f, (void)out, (void)err;
	if (!box_is_up(c->k) && !c->k->row.info.on_disk)
		return 0;
	c->wait_down = true;
	return 1;
}

static int req_pause(struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err)
{
	return field_u64(f, F_FLAGS, 0) & SAVE_FULL ? memory_pause(c->k, NULL, out, err) : box_pause(c->k, true, err);
}

static int req_hibernate(struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err)
{
	(void)f, (void)out;
	return box_hibernate(c->k, err);
}

static int req_resume(struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err)
{
	(void)f, (void)out;
	if (lease_left(c->k, err) < 0)
		return -1;
	return c->k->row.info.on_disk ? box_wake(c->k, err) : box_pause(c->k, false, err);
}

static int req_delete(struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err)
{
	(void)out;
	if ((box_is_up(c->k) || c->k->row.info.on_disk == ON_DISK_FULL) && !(field_u64(f, F_FLAGS, 0) & 1))
		return den_fail(err, DEN_CONFLICT, 0,
			"the box is %s; stop it first ('den stop'), or use --force",
			box_state_str[c->k->row.info.state]);
	return box_delete(c->k, err);
}

static int req_info(struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err)
{
	auto_buf rec = { 0 };

	(void)f, (void)err;
	box_put_info(c->k, &rec);
	wire_put_bytes(out, F_RECORD, rec.p, rec.len);
	return 0;
}

static int req_stats(struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err)
{
	struct box_stats st = { 0 };

	(void)f;
	if (!box_is_up(c->k) && !c->k->row.info.on_disk)
		return den_fail(err, DEN_CONFLICT, 0, "the box is not running");
	if (c->k->row.info.on_disk) /* nothing of it runs, and nothing is in memory */
		st.has = DISK_HAS;
	else if (c->k->ops->stats(&c->k->wall, &st, err) < 0)
		return -1;
	else if (c->k->ops->own_kernel)
		inside_stats(c->k, &st);
	disk_stats(c->k, &st);
	box_stats_put(out, &st);
	return 0;
}

static int req_ps(struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err)
{
	(void)f, (void)err;
	ps_put(c->k, out);
	return 0;
}

static const struct {
	uint8_t type;
	bool needs_box;
	/* 0: answered OK with out; 1: answered later; -1: err */
	int (*run)(struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err);
} requests[] = {
	{ WM_CREATE, false, req_create },
	{ WM_EXPECT, false, req_expect },
	{ WM_HELLO, false, req_hello },
	{ WM_READY, false, req_ready },
	{ WM_CLAIM, true, req_claim },
	{ WM_READY_LIST, false, clerk_ready_list },
	{ WM_LIST, false, clerk_list },
	{ WM_RESOLVE, false, clerk_resolve },
	{ WM_GC, false, clerk_gc },
	{ WM_DOCTOR, false, clerk_doctor },
	{ WM_START, true, req_start },
	{ WM_STOP, true, req_stop },
	{ WM_WAIT, true, req_wait },
	{ WM_PAUSE, true, req_pause },
	{ WM_RESUME, true, req_resume },
	{ WM_HIBERNATE, true, req_hibernate },
	{ WM_DELETE, true, req_delete },
	{ WM_INFO, true, req_info },
	{ WM_STATS, true, req_stats },
	{ WM_LEASE, true, req_lease },
	{ WM_LABEL, true, req_label },
	{ WM_PS, true, req_ps },
	{ WM_CHECKPOINT, true, req_checkpoint },
	{ WM_LOG, true, req_log },
	{ WM_TAG, true, req_tag },
	{ WM_ROLLBACK, true, req_rollback },
	{ WM_PRUNE, true, req_prune },
	{ WM_FORK_POINT, true, req_fork_point },
	{ WM_LENT, true, req_lent },
	{ WM_DIFF, true, req_diff },
	{ WM_MERGE, true, req_merge },
	{ WM_MERGE_END, true, req_merge_end },
	{ WM_COMMIT, true, req_commit },
	{ WM_TEMPLATES, false, req_templates },
	{ WM_TEMPLATE_GET, false, req_template_get },
	{ WM_BAKE, false, req_bake },
	{ WM_DISK_USE, false, clerk_disk_use },
	{ WM_TEMPLATE_TAG, false, req_template_tag },
	{ WM_TEMPLATE_REMOVE, false, req_template_remove },
	{ WM_TEMPLATE_VERIFY, false, req_template_verify },
	{ WM_TEMPLATE_TAR, false, req_template_tar },
	{ WM_TEMPLATE_STACK, false, req_template_stack },
	{ WM_POOL, false, req_pool },
	{ WM_POLICY_GET, true, req_policy_get },
	{ WM_POLICY_SET, true, req_policy_set },
	{ WM_POLICY_STORED, false, req_policy_stored },
	{ WM_JOURNAL, true, req_journal },
	{ WM_DIAL, true, req_dial },
	{ WM_PORT, true, req_port },
	{ WM_VAULT, false, req_vault },
	{ WM_TOKEN, true, req_token },
};

static int run(size_t i, struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err)
{
	struct client *before = c->k->asking; /* work_do() lets others ask in between */
	int r;

	c->k->asking = c;
	r = requests[i].run(c, f, out, err);
	c->k->asking = before;
	return r;
}

static void request(struct client *c, const struct wire_frame *f)
{
	auto_buf out = { 0 };
	struct den_err err = { 0 };
	int stray;

	for (size_t i = 0; i < ARRAY_SIZE(requests); i++) {
		int r;

		if (requests[i].type != f->type)
			continue;
		if (requests[i].needs_box && (!c->k->has_box || c->k->gone))
			r = den_fail(&err, DEN_NOT_FOUND, 0, "the box is gone");
		else
			r = run(i, c, f, &out, &err);
		while (conn_take_fds(&c->conn, &stray, 1) == 0) /* not to be taken for the next request's */
			close(stray);
		if (r < 0)
			conn_fail(&c->conn, 0, &err);
		else if (r == 0)
			conn_send_buf(&c->conn, WM_OK, 0, &out);
		return;
	}
	den_fail(&err, DEN_INVALID, 0, "message %u is not a request", f->type);
	conn_fail(&c->conn, 0, &err);
}

/* What came along goes, too: the next request must not take it for its own. */
void client_refuse(struct client *c, const struct wire_frame *f, const struct den_err *why)
{
	int stray;

	while (conn_take_fds(&c->conn, &stray, 1) == 0)
		close(stray);
	conn_fail(&c->conn, f->chan, why);
}

void client_handle(struct client *c, const struct wire_frame *f)
{
	struct den_err err;

	box_settle(c->k);
	if (c->k->ready && ready_refuses(c, f))
		return;
	if (lease_counts(f->type))
		lease_busy(c->k);
	if (wake_needed(c->k, f) && (lease_left(c->k, &err) < 0 || box_wake(c->k, &err) < 0)) {
		client_refuse(c, f, &err);
		return;
	}
	switch (f->type) {
	case WM_EXEC:
		kexec_request(c, f);
		break;
	case WM_ATTACH:
		kexec_attach(c, f);
		break;
	case WM_SIGNAL:
		kexec_signal(c, f);
		break;
	case WM_IN:
	case WM_IN_EOF:
	case WM_CREDIT:
	case WM_RESIZE:
	case WM_DETACH:
		kexec_relay(c, f);
		break;
	default:
		request(c, f);
	}
	if (c->k->gone)
		keeper_leave_if_done(c->k);
}
