/* The life of a box. The states and who makes each move are drawn in wire/spec.h. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "fd.h"
#include "gate.h"
#include "keeper.h"
#include "saved_size.h"
#include "place.h"
#include "saved.h"

bool box_is_up(const struct keeper *k)
{
	return k->row.info.state == BOX_RUNNING || (k->row.info.state == BOX_PAUSED && !k->row.info.on_disk);
}

int box_save(struct keeper *k, struct den_err *err)
{
	if (store_put(k->store, &k->row, err) < 0)
		return -1;
	k->row_written = true;
	loop_timer_clear(&k->late_row);
	return 0;
}

void box_put_info(struct keeper *k, struct buf *b)
{
	k->row.info.keeper_pid = (uint64_t)getpid();
	k->row.info.init_pid = box_is_up(k) ? (uint64_t)k->wall.pid : 0;
	k->row.info.turn = k->row.turn;
	if (lease_followed(k))
		lease_busy(k);
	k->row.info.image_bytes = saved_disk(k->store, &k->id, NULL);
	box_info_put(b, &k->row.info);
	k->row.info.image_bytes = 0;
}

/* ---- down, pause, delete ---- */

void answer_waiting(struct keeper *k)
{
	if (k->keep_waiting)
		return;
	list_for_each(l, &k->clients) {
		struct client *c = CONTAINER_OF(l, struct client, link);

		if (!c->wait_down)
			continue;
		c->wait_down = false;
		conn_ok(&c->conn, 0);
	}
}

void box_off(struct keeper *k, bool later, bool execs_end)
{
	loop_remove(k->loop, &k->init_pid);
	loop_timer_clear(&k->kill);
	loop_timer_clear(&k->late);
	k->park_late = false;
	loop_timer_clear(&k->runtime);
	loop_timer_clear(&k->lease.timer);
	k->ops->stop(&k->wall, later);
	if (k->keep_waiting) {
		fd_close(&k->old_mntns);
		k->old_mntns = fd_take(&k->wall.mntns);
	}
	if (execs_end)
		kexec_box_down(k);
	gate_down(k);
	k->init_up = false;
	conn_close(&k->init);
	k->ops->clean(&k->wall);
	store_proc_clear(k->boxfd);
	unlinkat(k->boxfd, PLACE_INIT_SOCK, 0);
}

/* The only writer of STOPPED. init is dead or dies here, and all else with it. */
void box_down(struct keeper *k, const char *reason)
{
	struct den_err err;
	bool later;

	if (!box_is_up(k))
		return;
	/* Of a box that stays, acknowledged changes are on disk when its file systems are unmounted. Of one
	 * that is rolled back they are with the checkpoint of them, and unmounting can wait. */
	later = k->keep_waiting ? k->pool && k->pool->kind == POOL_BTRFS && !k->row.info.spec.disk :
				  k->gone || (k->row.info.spec.flags & BOX_EPHEMERAL);
	box_off(k, later, true);
	k->row.info.state = BOX_STOPPED;
	k->row.info.stopped_ms = clock_wall_ms();
	if (reason && !k->row.info.reason)
		k->row.info.reason = mem_strdup(reason);
	if (k->keep_waiting) /* a rollback: it comes up again in a moment, and its row says that it runs */
		return;
	if (k->row_written && !(k->row.info.spec.flags & BOX_EPHEMERAL))
		(void)box_save(k, &err);
	if (!k->gone)
		feed_state(k, "box.stopped");
	answer_waiting(k);
	if (k->row.info.spec.flags & BOX_EPHEMERAL && k->working)
		k->delete_due = true;
	else if (k->row.info.spec.flags & BOX_EPHEMERAL || k->ready)
		(void)box_delete(k, &err); /* does nothing when it is what called us */
	keeper_leave_if_done(k);
}

/* What was saved is of no use any more, but as a checkpoint. */
static int stop_on_disk(struct keeper *k, struct den_err *err)
{
	struct box_info *i = &k->row.info;
	struct box_info was;

	(void)memory_settle(k, err); /* else what ran for a moment has written what it wrote */
	was = *i;
	i->on_disk = ON_DISK_NOT;
	i->state = BOX_STOPPED;
	i->stopped_ms = clock_wall_ms();
	if (box_save(k, err) < 0) {
		i->on_disk = was.on_disk;
		i->state = was.state;
		i->stopped_ms = was.stopped_ms;
		return -1;
	}
	waker_drop(k);
	kexec_box_down(k);
	feed_state(k, "box.stopped");
	answer_waiting(k);
	return 0;
}

int box_stop(struct keeper *k, uint64_t grace_ms, struct den_err *err)
{
	if (k->row.info.on_disk)
		return stop_on_disk(k, err);
	if (k->row.info.state == BOX_PAUSED && k->ops->freeze(&k->wall, false, err) < 0)
		return -1;
	if (!box_is_up(k))
		return den_fail(err, DEN_CONFLICT, 0, "the box is not running");
	k->row.info.state = BOX_RUNNING;
	k->stopping = true;
	if (!grace_ms || !k->init_up) {
		box_down(k, NULL);
		return 0;
	}
	conn_send(&k->init, WM_STOP, 0, NULL, 0);
	loop_timer_set(k->loop, &k->kill, clock_mono_ns() + (int64_t)MIN(grace_ms, 3600000ULL) * NS_PER_MS);
	return 0;
}

int box_pause(struct keeper *k, bool on, struct den_err *err)
{
	enum box_state want = on ? BOX_PAUSED : BOX_RUNNING;

	if (k->row.info.on_disk)
		return den_fail(err, DEN_CONFLICT, 0, "the box is paused already, and on disk");
	if (!box_is_up(k))
		return den_fail(err, DEN_CONFLICT, 0, "the box is not running; 'den start' starts it");
	if (k->row.info.state == want)
		return den_fail(err, DEN_CONFLICT, 0, "the box is %s already", on ? "paused" : "running");
	if (k->ops->freeze(&k->wall, on, err) < 0)
		return -1;
	k->row.info.state = want;
	if (!on) {
		free(k->row.info.reason);
		k->row.info.reason = NULL;
		lease_busy(k);
	}
	lease_arm(k);
	if (box_save(k, err) < 0)
		return -1;
	feed_state(k, on ? "box.paused" : "box.resumed");
	return 0;
}

struct emptying {
	struct store *s;
	const struct box_id *mine;
};

static int empty_trash(void *arg, struct den_err *err)
{
	struct emptying *e = arg;

	return store_trash_empty(e->s, e->mine, err);
}

int box_empty_trash(struct store *s, const struct box_id *mine, struct den_err *err)
{
	struct emptying e = { s, mine };

	return wall_as_box_root(empty_trash, &e, err);
}

/* Nobody waits for blocks to be freed, but where there are hardly any left: then room is what the box was
 * deleted for, and it has to be there when that is told. */
static void free_now(struct keeper *k)
{
	struct den_err ignored;

	if (!k->row.work || home_pool(k, &ignored) < 0 || !pool_is_tight(k->pool))
		return;
	k->ops->release(&k->wall); /* what is mounted is not freed */
	fd_close(&k->old_mntns);
	home_remove(k);
	pool_reclaim(k->pool);
}

/*
 * A box that was up goes with its directory: a row that says that it runs and has none is hidden by who lists, and
 * removed by gc. One that was down would be taken for one that is still there, so its row says DELETING first. Each
 * write of a row waits for the disk.
 */
static int delete_row(struct keeper *k, bool was_up, struct den_err *err)
{
	if (k->row_written && !was_up) {
		k->row.info.state = BOX_DELETING;
		if (store_put(k->store, &k->row, err) < 0)
			return -1;
	}
	if (k->listen.fd >= 0) {
		loop_remove(k->loop, &k->listen);
		fd_close(&k->listen.fd);
	}
	home_close(k);
	fd_close(&k->boxfd);
	if (store_box_trash(k->store, &k->id, err) < 0)
		return -1;
	saved_remove_but(k->store, &k->id, NULL, NULL);
	k->in_trash = true; /* emptied when all clients have been told, see keeper_main() */
	if (k->row.slot != UINT64_MAX)
		store_release_slot(k->store, k->row.slot, &k->id);
	return k->row_written ? store_delete(k->store, &k->id, err) : 0;
}

int box_delete(struct keeper *k, struct den_err *err)
{
	bool named = k->row.info.spec.name, up = box_is_up(k);
	int r;

	if (k->gone)
		return 0;
	k->gone = true; /* before box_down(), which would delete a throwaway box itself */
	loop_timer_clear(&k->late_row);
	loop_timer_clear(&k->owner_gone);
	if (up) {
		bool written = k->row_written;

		k->row_written = false; /* no need to write STOPPED first */
		box_down(k, NULL);
		k->row_written = written;
	}
	store_hold(k->store); /* opened once */
	r = delete_row(k, up, err);
	store_let_go(k->store);
	if (r < 0)
		return -1;
	if (named)
		store_release_name(k->store, k->row.info.spec.name, &k->id);
	waker_drop(k);
	feed_state(k, "box.deleted");
	free_now(k);
	return 0; /* the lock goes with the process */
}
