/*
 * Going back to a checkpoint: what is present becomes a checkpoint itself, a new work is copied from the old
 * checkpoint, the row names it (that is the moment it happens), the old work goes. And what is put off until
 * whoever waits has been told.
 */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "clock.h"
#include "fault.h"
#include "fd.h"
#include "history.h"
#include "keeper.h"

#define SWEEP_MS 5

/* What becomes of a box that is rolled back: it stays down, is started, or comes back with its programs. */
enum after { AFTER_STAYS, AFTER_RUNS, AFTER_LOADED };

static void sweep_cb(struct loop_timer *t)
{
	struct keeper *k = CONTAINER_OF(t, struct keeper, sweep);

	k->sweep_due = true;
	work_run(k);
}

void box_sweep_later(struct keeper *k)
{
	k->sweep.cb = sweep_cb;
	loop_timer_set(k->loop, &k->sweep, clock_mono_ns() + SWEEP_MS * NS_PER_MS);
}

/* ---- after an answer ---- */

void box_settle(struct keeper *k)
{
	struct den_err ignored;

	if (k->gone || !k->has_box)
		return;
	if (k->base_due && home_make_base(k, &ignored) == 0) /* else it is tried again */
		k->base_due = false;
	if (k->print_due && home_open(k, &ignored) == 0)
		box_print_now(k);
	k->print_due = false;
}

static void settle_cb(struct loop_deferred *d)
{
	box_settle(CONTAINER_OF(d, struct keeper, settle));
}

void box_settle_later(struct keeper *k)
{
	k->settle.cb = settle_cb;
	loop_defer(k->loop, &k->settle);
}

/* What the row says of a box that was rolled back: the start that follows makes it true, or the next use does. */
static void say_after(struct box_info *i, uint64_t number, enum after after)
{
	if (after == AFTER_RUNS)
		i->state = BOX_RUNNING;
	i->on_disk = ON_DISK_NOT;
	if (after != AFTER_LOADED)
		return;
	i->state = BOX_PAUSED;
	i->on_disk = ON_DISK_FULL;
	i->images = number;
}

static void drop_next(struct keeper *k)
{
	struct den_err ignored;
	char name[64];

	home_name(k, 'w', k->row.work + 1, name);
	(void)home_discard(k, name, &ignored);
}

/* What it will write to, copied from the checkpoint; nothing else changes. */
static int make_next(struct keeper *k, uint64_t number, struct den_err *err)
{
	char from[64], to[64];
	int r;

	home_name(k, 'c', number, from);
	home_name(k, 'w', k->row.work + 1, to);
	drop_next(k); /* of a keeper that died in the middle */
	if (number == 0 && !k->row.info.spec.from &&
		faccessat(k->pool->fd, from, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
		r = home_make_empty(k, k->row.work + 1, err);
	else
		r = home_snapshot(k, from, NULL, to, false, err);
	return r < 0 ? den_wrap(err, "roll back to %llu", (unsigned long long)number) : 0;
}

/* After make_next(). */
static int switch_to(struct keeper *k, uint64_t number, enum after after, struct den_err *err)
{
	uint64_t on_disk = k->row.info.on_disk, images = k->row.info.images;
	enum box_state state = k->row.info.state;
	uint64_t old_work = k->row.work, old_head = k->row.head;
	int64_t old_pending = k->row.pending;
	struct den_err ignored;
	int r;

	if (after == AFTER_RUNS && box_announce(k, err) < 0)
		return den_wrap(err, "roll back to %llu", (unsigned long long)number);
	k->row.work = old_work + 1;
	k->row.head = number;
	k->row.pending = -1;
	say_after(&k->row.info, number, after);
	r = fault("switch", err) < 0 ? -1 : store_put(k->store, &k->row, err); /* the moment it happens */
	if (after != AFTER_LOADED || r < 0)
		k->row.info.state = state;
	if (r < 0) {
		k->row.info.on_disk = on_disk;
		k->row.info.images = images;
		k->row.work = old_work;
		k->row.head = old_head;
		k->row.pending = old_pending;
		drop_next(k);
		return -1;
	}
	(void)fault("restored", &ignored);
	memory_loaded(k); /* whatever ran for a moment did not write to this */
	home_close(k);
	k->print_known = false;
	/* what it wrote to before is taken apart when the box runs again and whoever waits has been told */
	box_sweep_later(k);
	return 0;
}

int box_restore_files(struct keeper *k, uint64_t number, struct den_err *err)
{
	return open_template(k, err) < 0 || home_pool(k, err) < 0 || make_next(k, number, err) < 0
		       ? -1
		       : switch_to(k, number, AFTER_LOADED, err);
}

/* What could not be started again is stopped, and its row says so. */
static void stays_down(struct keeper *k)
{
	struct den_err ignored;

	(void)box_save(k, &ignored);
	answer_waiting(k);
}

static bool is_full(struct keeper *k, uint64_t number)
{
	struct ckpt *all = NULL;
	const struct ckpt *c;
	struct den_err ignored;
	size_t n = 0;
	bool full;

	if (history_list(k->store, &k->id, &all, &n, &ignored) < 0)
		return false;
	c = history_find(all, n, number);
	full = c && c->images;
	ckpts_free(all, n);
	return full;
}

/*
 * All that takes room is done before anything ends: a box that cannot be rolled back goes on as it is, with its
 * programs. They are held meanwhile, so that the checkpoint of the present is what they leave.
 */
static int prepare(struct keeper *k, uint64_t number, bool keep_present, uint64_t *before, struct den_err *err)
{
	bool held = k->row.info.state == BOX_RUNNING && k->ops->freeze(&k->wall, true, err) == 0;
	bool saving = k->saving;
	char message[64];
	struct den_err ignored;
	int r;

	snprintf(message, sizeof(message), "before the rollback to %llu",
		(unsigned long long)number);
	k->saving |= held; /* who makes checkpoints need not hold it, and does not let it go */
	r = home_pool(k, err) < 0 ? -1 : make_next(k, number, err);
	if (r == 0 && keep_present && box_checkpoint_if_changed(k, CKPT_ROLLBACK, message, before, err) < 0) {
		drop_next(k);
		r = -1;
	}
	k->saving = saving;
	if (r < 0 && held && box_is_up(k))
		(void)k->ops->freeze(&k->wall, false, &ignored);
	return r;
}

/* It was to be rolled back, had ended for that, and the row could not be written. */
static void not_switched(struct keeper *k, bool was_up)
{
	struct den_err ignored;

	if (was_up && box_up(k, &ignored) == 0)
		(void)box_save(k, &ignored);
	else if (was_up)
		stays_down(k);
}

int box_rollback(struct keeper *k, uint64_t number, bool keep_present, bool programs,
	uint64_t *ret_before, struct den_err *err)
{
	bool was_up = box_is_up(k), on_disk = k->row.info.on_disk, full = programs && is_full(k, number);
	enum after after = full ? AFTER_LOADED : was_up || on_disk ? AFTER_RUNS : AFTER_STAYS;
	uint64_t before = k->row.head;

	if (need_history(k, err) < 0 || open_template(k, err) < 0)
		return -1;
	if (full && memory_check(k, &k->id, number, err) < 0)
		return den_wrap(err, "its programs cannot come back (--disk: its files alone)");
	if (prepare(k, number, keep_present, &before, err) < 0)
		return -1;
	k->keep_waiting = true; /* whoever waits for its end does not mean this */
	box_down(k, NULL);
	k->keep_waiting = false;
	if (switch_to(k, number, after, err) < 0) {
		not_switched(k, was_up);
		return -1;
	}
	if (on_disk) {
		kexec_box_down(k);
		if (after == AFTER_RUNS)
			k->row.info.state = BOX_STOPPED;
	}
	*ret_before = before;
	feed_number(k, "rollback", "number", number, NULL, NULL);
	if (after == AFTER_LOADED && box_wake(k, err) < 0)
		return den_wrap(err, "rolled back, but its programs did not come back");
	if (after == AFTER_RUNS && box_up(k, err) < 0) {
		stays_down(k);
		return den_wrap(err, "rolled back, but not started again");
	}
	/* the present is what head is, but for what a start makes: that is no change of anybody's */
	k->print_due = true;
	if (k->pool->kind == POOL_PLAIN)
		box_settle(k);
	else
		box_settle_later(k);
	return 0;
}
