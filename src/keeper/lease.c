/*
 * How long a box may stay: until a time of day (expires_ms), and as long as it is used (idle_ms).
 *
 * Both count while the box runs; what is paused or stopped costs little and is left alone, and is not let go on
 * when its time is up meanwhile: first it needs another lease. The deadline is a wall clock's, which may jump, so
 * it is compared with that clock every half minute at least. Idle is: no channel open to a program, no request
 * that does something (looking does not count, or whoever watches a box would keep it alive), no byte through its
 * gate, and less than 1 % of a processor used between two looks. A keeper that takes a box over begins to count anew, since somebody came.
 */
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "keeper.h"
#include "strv.h"

#define LOOK_MS 30000 /* at most so long between two looks at the clock */
#define LOOK_MIN_MS 20
#define CPU_SHARE 100 /* idle is less than one of so many parts of a processor */
#define CPU_SHARE_KERNEL 20 /* where it has a kernel of its own, whose clocks tick */

static uint64_t on_expire(const struct box_spec *s)
{
	return s->on_expire ? s->on_expire : LEASE_DELETE;
}

static uint64_t on_idle(const struct box_spec *s)
{
	return s->on_idle ? s->on_idle : LEASE_PAUSE;
}

int lease_settle(struct box_spec *s, struct den_err *err)
{
	s->on_expire = on_expire(s);
	s->on_idle = on_idle(s);
	if (s->expires_ms && (int64_t)s->expires_ms <= clock_wall_ms())
		return den_fail(err, DEN_INVALID, 0, "a box cannot expire in the past");
	return 0;
}

static bool expired(const struct box_spec *s)
{
	return s->expires_ms && (int64_t)s->expires_ms <= clock_wall_ms();
}

int lease_left(const struct keeper *k, struct den_err *err)
{
	return expired(&k->row.info.spec) ? den_fail(err, DEN_CONFLICT, 0,
		"the box's time is up; give it more first ('den lease BOX --ttl 1h')") : 0;
}

static bool is_due(const struct box_info *i)
{
	return i->state == BOX_RUNNING && expired(&i->spec);
}

bool lease_forfeit(const struct box_info *i)
{
	return is_due(i) && on_expire(&i->spec) == LEASE_DELETE;
}

int lease_possible(struct keeper *k, struct den_err *err)
{
	const struct box_spec *s = &k->row.info.spec;
	bool disk = (s->expires_ms && on_expire(s) == LEASE_PAUSE_DISK) || (s->idle_ms && on_idle(s) == LEASE_PAUSE_DISK);
	bool pause = (s->expires_ms && on_expire(s) == LEASE_PAUSE) || (s->idle_ms && on_idle(s) == LEASE_PAUSE);

	/* to let go of what is not held changes nothing, and needs all that holding it does */
	if (pause && k->row.info.state == BOX_RUNNING && k->ops->freeze(&k->wall, false, err) < 0)
		return den_wrap(err, "it could not be paused at the end; choose stop or delete");
	if (disk && memory_possible(k, err) < 0)
		return den_wrap(err, "it could not be paused to disk at the end; choose pause, stop or delete");
	return 0;
}

/* ---- what happens ---- */

static void set_reason(struct keeper *k, const char *why)
{
	free(k->row.info.reason);
	k->row.info.reason = mem_strdup(why);
}

static int hold(struct keeper *k, const char *why, struct den_err *err)
{
	set_reason(k, why);
	if (box_pause(k, true, err) == 0)
		return 0;
	free(k->row.info.reason);
	k->row.info.reason = NULL;
	return -1;
}

static int act(struct keeper *k, uint64_t action, const char *why, struct den_err *err)
{
	switch (action) {
	case LEASE_PAUSE_DISK:
		if (memory_pause(k, why, NULL, err) == 0)
			return 0;
		if (err->code == DEN_CONFLICT || !box_is_up(k))
			return -1;
		return hold(k, why, err); /* programs that cannot be saved do not thereby live on */
	case LEASE_PAUSE:
		return hold(k, why, err);
	case LEASE_STOP:
		set_reason(k, why);
		if (box_stop(k, EXEC_GRACE_MS, err) < 0)
			box_down(k, NULL);
		return 0;
	default:
		set_reason(k, why);
		return box_delete(k, err);
	}
}

/* ---- when ---- */

/* Less than a hundredth of a processor since the last look? Where it can't be measured it does not count. */
static bool used_cpu(struct keeper *k, int64_t now)
{
	struct klease *l = &k->lease;
	struct box_stats st = { 0 };
	struct den_err err;
	uint64_t used;
	bool busy;

	if (k->ops->stats(&k->wall, &st, &err) < 0 || !(st.has & 1))
		return false;
	used = st.cpu_usec - MIN(st.cpu_usec, l->cpu_usec);
	busy = l->cpu_ns && used >= (uint64_t)MAX(now - l->cpu_ns, 1) / 1000 /
		(k->ops->own_kernel ? CPU_SHARE_KERNEL : CPU_SHARE);
	l->cpu_usec = st.cpu_usec;
	l->cpu_ns = now;
	return busy;
}

bool lease_followed(const struct keeper *k)
{
	list_for_each(l, &k->chans)
		if (CONTAINER_OF(l, struct chan, link)->client)
			return true;
	return false;
}

void lease_busy(struct keeper *k)
{
	k->lease.active_ns = clock_mono_ns();
	k->row.info.active_ms = clock_wall_ms();
}

static void look_again(struct keeper *k)
{
	const struct box_spec *s = &k->row.info.spec;
	int64_t wait = LOOK_MS;

	if (s->expires_ms)
		wait = MIN(wait, (int64_t)s->expires_ms - clock_wall_ms());
	if (s->idle_ms) {
		/* four looks in the time: so that the last use is known well enough */
		int64_t idle = (int64_t)MIN(s->idle_ms, 1ULL << 40);
		int64_t left = idle - (clock_mono_ns() - k->lease.active_ns) / NS_PER_MS;

		wait = MIN(wait, MIN(left, idle / 4));
	}
	loop_timer_set(k->loop, &k->lease.timer, clock_mono_ns() + MAX(wait, LOOK_MIN_MS) * NS_PER_MS);
}

static void lease_cb(struct loop_timer *t)
{
	struct keeper *k = CONTAINER_OF(t, struct keeper, lease.timer);
	const struct box_spec *s = &k->row.info.spec;
	int64_t now = clock_mono_ns();
	struct den_err err;

	if (k->gone || k->row.info.state != BOX_RUNNING || k->stopping)
		return;
	if (k->working || k->merging) { /* what holds its files must not lose them */
		loop_timer_set(k->loop, t, now + WORKING_MS * NS_PER_MS);
		return;
	}
	if (expired(s)) {
		if (act(k, on_expire(s), "its time was up", &err) < 0 && !k->gone)
			loop_timer_set(k->loop, t, now + LOOK_MS * NS_PER_MS);
		keeper_leave_if_done(k);
		return;
	}
	if (s->idle_ms) {
		bool cpu = used_cpu(k, now);

		if (cpu || lease_followed(k))
			lease_busy(k);
		else if (now - k->lease.active_ns >= (int64_t)MIN(s->idle_ms, 1ULL << 40) * NS_PER_MS) {
			if (act(k, on_idle(s), "it was idle", &err) < 0 && !k->gone) {
				lease_busy(k); /* tried again after as long */
				look_again(k);
			}
			keeper_leave_if_done(k);
			return;
		}
	}
	look_again(k);
}

void lease_arm(struct keeper *k)
{
	const struct box_spec *s = &k->row.info.spec;

	loop_timer_clear(&k->lease.timer);
	k->lease.timer.cb = lease_cb;
	k->lease.cpu_ns = 0;
	if (k->row.info.state != BOX_RUNNING || (!s->expires_ms && !s->idle_ms))
		return;
	if (s->idle_ms)
		(void)used_cpu(k, clock_mono_ns());
	look_again(k);
}

int lease_overdue(struct keeper *k, struct den_err *err)
{
	struct den_err ignored;

	lease_busy(k);
	if (lease_forfeit(&k->row.info)) {
		(void)act(k, LEASE_DELETE, "its time was up", &ignored);
		return den_fail(err, DEN_NOT_FOUND, 0, "no box '%s'; its time was up", k->id.s);
	}
	if (is_due(&k->row.info))
		(void)act(k, on_expire(&k->row.info.spec), "its time was up", &ignored); /* or the timer tries again */
	lease_arm(k);
	return 0;
}

bool lease_counts(uint8_t type)
{
	switch (type) {
	case WM_HELLO:
	case WM_GUEST:
	case WM_INFO:
	case WM_STATS:
	case WM_PS:
	case WM_WAIT:
	case WM_LOG:
	case WM_JOURNAL:
	case WM_POLICY_GET:
	case WM_LABEL:
	case WM_CREDIT: /* of a channel, which counts by itself */
		return false;
	default:
		return true;
	}
}

/* ---- requests ---- */

/* What nobody was promised to find again needs no row yet (create.c). */
static int save(struct keeper *k, struct den_err *err)
{
	return k->late_row.when ? 0 : box_save(k, err);
}

static int lease_get(const struct wire_frame *f, struct box_spec *want, bool *extend, struct den_err *err)
{
	struct wire_reader rd = wire_reader(f->p, f->len);
	struct wire_value v;
	uint64_t flags = 0;
	int r;

	while ((r = wire_next(&rd, &v, err)) > 0) {
		if (v.tag == F_EXPIRES_MS)
			r = wire_u64(&v, INT64_MAX, &want->expires_ms, err);
		else if (v.tag == F_IDLE_MS)
			r = wire_u64(&v, UINT64_MAX - 1, &want->idle_ms, err);
		else if (v.tag == F_ON_EXPIRE)
			r = wire_u64(&v, LEASE_ACTIONS - 1, &want->on_expire, err);
		else if (v.tag == F_ON_IDLE)
			r = wire_u64(&v, LEASE_ACTIONS - 1, &want->on_idle, err);
		else if (v.tag == F_FLAGS)
			r = wire_u64(&v, 1, &flags, err);
		else
			r = wire_unexpected(&v, err);
		if (r < 0)
			return -1;
	}
	*extend = flags;
	return r;
}

int req_lease(struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err)
{
	struct keeper *k = c->k;
	struct box_spec *s = &k->row.info.spec, before = *s, want = *s; /* only numbers are used of them */
	bool extend;

	(void)out;
	if (lease_get(f, &want, &extend, err) < 0)
		return -1;
	/* never is later than any time */
	if (extend && (!s->expires_ms || (want.expires_ms && want.expires_ms < s->expires_ms)))
		want.expires_ms = s->expires_ms;
	if (want.expires_ms != s->expires_ms && expired(&want))
		return den_fail(err, DEN_INVALID, 0, "a box cannot expire in the past; 'den rm' deletes it");
	s->expires_ms = want.expires_ms;
	s->idle_ms = want.idle_ms;
	s->on_expire = on_expire(&want);
	s->on_idle = on_idle(&want);
	if (lease_possible(k, err) < 0 || save(k, err) < 0) {
		s->expires_ms = before.expires_ms;
		s->idle_ms = before.idle_ms;
		s->on_expire = before.on_expire;
		s->on_idle = before.on_idle;
		return -1;
	}
	lease_arm(k);
	return 0;
}

int req_label(struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err)
{
	struct box_spec *s = &c->k->row.info.spec;
	struct wire_reader rd = wire_reader(f->p, f->len);
	char **labels = NULL, **before = s->labels;
	struct wire_value v;
	int r;

	(void)out;
	while ((r = wire_next(&rd, &v, err)) > 0) {
		auto_free char *one = NULL;

		r = v.tag == F_LABEL ? wire_str(&v, SPEC_MAX_LABEL, &one, err) : wire_unexpected(&v, err);
		if (r < 0)
			break;
		if (strv_len(labels) <= SPEC_MAX_LABELS)
			strv_add(&labels, one);
	}
	if (r == 0)
		r = labels_check(labels, err);
	if (r == 0) {
		s->labels = labels;
		r = save(c->k, err);
	}
	strv_free(r == 0 ? before : labels);
	if (r < 0)
		s->labels = before;
	return r;
}
