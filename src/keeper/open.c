/* A keeper takes a box over: what still runs is adopted, what is half done is finished or undone. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "fd.h"
#include "gate.h"
#include "keeper.h"
#include "place.h"

#define HELLO_MS 5000

int listen_for_clients(struct keeper *k, struct den_err *err)
{
	if (k->listen.fd >= 0)
		return 0;
	if (place_listen(k->boxfd, PLACE_KEEPER_SOCK, &k->listen.fd, err) < 0)
		return -1;
	return loop_add(k->loop, &k->listen, err);
}

static void owner_gone_cb(struct loop_timer *t)
{
	struct keeper *k = CONTAINER_OF(t, struct keeper, owner_gone);
	struct den_err err;

	if (k->working)
		k->delete_due = true;
	else
		(void)box_delete(k, &err);
}

/* Who died may have asked it to park a moment before: then it hangs up on us instead of saying hello. A frozen one says
 * nothing, and is not waited for. */
static bool stays_reached(struct keeper *k)
{
	struct pollfd ended = { .fd = k->wall.pidfd, .events = POLLIN };

	init_attend(k, &k->init_known, k->row.info.state == BOX_PAUSED ? 0 : HELLO_MS);
	if (k->init_up || poll(&ended, 1, 0) > 0) /* whoever watches it is about to hear of that */
		return true;
	loop_timer_clear(&k->kill); /* this once, its silence is no offence */
	return false;
}

/* It may be parked, and held: then it was being saved, and is let go. */
static int reach_init(struct keeper *k, struct den_err *err)
{
	struct den_err ignored;
	auto_fd fd = -1;

	if (!k->wall.parked) {
		if (meet_init(k, err) == 0) {
			if (stays_reached(k))
				return 0;
		} else if (err->sys != ECONNREFUSED && err->sys != ENOENT) {
			return -1;
		}
	}
	k->wall.parked = false;
	(void)k->ops->freeze(&k->wall, false, &ignored);
	if (wake_listen(k, &fd, err) < 0 || init_wake(k, &fd, false, err) < 0)
		return -1;
	memory_unsaved(k);
	if (k->row.info.state == BOX_PAUSED)
		(void)k->ops->freeze(&k->wall, true, &ignored);
	return 0;
}

/* A keeper before us died: take over what still runs, or settle what does not. */
static int adopt(struct keeper *k, struct den_err *err)
{
	struct box_proc proc;
	struct plan p = { .id = &k->id, .tag = k->store->tag, .spec = &k->row.info.spec };
	bool woken = false;
	int pidfd;

	if (!store_proc_get(k->boxfd, &proc, &pidfd)) {
		if (k->ops->adopt(&p, 0, -1, &k->wall, err) == 0)
			k->ops->clean(&k->wall);
		if (!box_is_up(k))
			return 0;
		k->row.info.state = BOX_STOPPED;
		k->row.info.stopped_ms = clock_wall_ms();
		free(k->row.info.reason);
		k->row.info.reason = mem_strdup("its processes were gone when a keeper came to look");
		feed_state(k, "box.stopped");
		return box_save(k, err);
	}
	if (k->ops->adopt(&p, proc.pid, pidfd, &k->wall, err) < 0)
		return -1;
	if (!box_is_up(k)) { /* died between starting or waking init and writing that down, or before it was ended */
		k->row.info.state = BOX_RUNNING;
		k->row.info.on_disk = ON_DISK_NOT;
		woken = true;
	}
	if (watch_init(k, err) < 0 || reach_init(k, err) < 0 || (woken && k->row_written && box_save(k, err) < 0))
		return -1;
	gate_adopt(k);
	if (k->row.info.spec.flags & BOX_EPHEMERAL) { /* its owner says so in a moment, or is gone too */
		k->owner_gone.cb = owner_gone_cb;
		loop_timer_set(k->loop, &k->owner_gone, clock_mono_ns() + OWNER_GONE_MS * NS_PER_MS);
	}
	return 0;
}

/* A throwaway box whose keeper died before it had a row: what is missing is not needed to end it. */
static int row_missing(struct keeper *k, struct den_err *err)
{
	struct box_proc proc;
	int pidfd;

	if (!store_proc_get(k->boxfd, &proc, &pidfd))
		return -1; /* err says not found */
	close(pidfd);
	k->row.slot = UINT64_MAX;
	k->row.pending = -1;
	k->row.info.spec.history = HISTORY_OFF;
	k->row.info.spec.id = mem_strdup(k->id.s);
	k->row.info.spec.wall = mem_strdup("container");
	k->row.info.spec.user = mem_strdup("root");
	k->row.info.spec.flags = BOX_EPHEMERAL;
	k->row.info.spec.template_name = mem_strdup("host");
	k->row.info.spec.net = mem_strdup("none");
	k->row.info.state = BOX_RUNNING;
	(void)err;
	return 0;
}

/* Before clients are heard, what their requests refer to must be known. A frozen init cannot say. */
void await_init(struct keeper *k)
{
	struct den_err err;
	int64_t until = clock_mono_ns() + 5 * NS_PER_SEC;

	while (k->init_up && !k->init_known && k->row.info.state != BOX_PAUSED && clock_mono_ns() < until)
		if (loop_step(k->loop, 100, &err) < 0)
			break;
}

/* A keeper died in the middle of a merge: what it had written of it goes. */
static int finish_merge(struct keeper *k, struct den_err *err)
{
	uint64_t before;

	/* kept first: others may have worked on since the mark was left */
	return box_rollback(k, (uint64_t)k->row.pending, true, false, &before, err) < 0 ?
		den_wrap(err, "undo a merge that was interrupted") : 0;
}

static int take_over(struct keeper *k, struct den_err *err)
{
	if (!memory_half(k)) {
		memory_loaded(k);
		return adopt(k, err);
	}
	if (memory_undo(k, err) < 0)
		return -1;
	if (k->row_written)
		return 0;
	(void)box_delete(k, err); /* a fork that was not acknowledged */
	return den_fail(err, DEN_NOT_FOUND, 0, "no box '%s'; it was being made", k->id.s);
}

int box_open(struct keeper *k, const struct box_id *id, struct den_err *err)
{
	k->id = *id;
	if (place_box(k->store->fd, id, &k->boxfd, err) < 0)
		return -1;
	if (store_box_lock(k->boxfd, &k->lock, err) < 0)
		return -1;
	if (!store_box_is(k->store, id, k->boxfd)) /* moved to the trash before we had the lock */
		return den_fail(err, DEN_NOT_FOUND, 0, "no box '%s'; it was just deleted", id->s);
	if (store_get(k->store, id, &k->row, err) < 0) {
		if (err->code != DEN_NOT_FOUND || row_missing(k, err) < 0)
			return -1;
	} else {
		k->row_written = true;
	}
	k->has_box = true;
	k->ops = wall_find(k->row.info.spec.wall, err);
	if (!k->ops)
		return -1;
	if (k->row.info.state == BOX_DELETING || k->row.info.state == BOX_CREATING) {
		(void)box_delete(k, err);
		return den_fail(err, DEN_NOT_FOUND, 0, "no box '%s'; it was being deleted", id->s);
	}
	if (take_over(k, err) < 0)
		return -1;
	if (k->row.work && home_pool(k, err) == 0 && home_make_base(k, err) == 0)
		box_sweep_later(k);
	box_print_load(k);
	if (k->row.pending >= 0)
		(void)finish_merge(k, err); /* else it could not even be deleted, to make room; the mark stays */
	await_init(k);
	return lease_overdue(k, err) < 0 ? -1 : listen_for_clients(k, err);
}
