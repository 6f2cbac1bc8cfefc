/*
 * Programs go to disk: full checkpoints, and boxes that are paused there. load.c brings them back.
 *
 * Saving: init is parked (wake.c), the wall saves into STATE/memory/ID/.N and calls back while nothing runs: then
 * the files are copied, so both are of one instant. With `stay` init is woken at once; the rest goes on beside the
 * running box. Images are on disk, then the row of the checkpoint is, then it is acknowledged.
 *
 * Pausing to disk is the same with a row that says so (state PAUSED, on_disk): in one transaction with that of the
 * checkpoint, and that is the moment it happens. Until then the wall holds the processes; a keeper that dies
 * before, or between that and the end of them, leaves a box that the next one lets go on.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "fault.h"
#include "fd.h"
#include "gate.h"
#include "keeper.h"
#include "memory.h"
#include "place.h"
#include "quota.h"
#include "saved.h"
#include "strv.h"

#define DESCRIPTORS 64
#define ROOM_BYTES (4 << 20) /* where there is so much, it was not room that was missing */

int memory_possible(struct keeper *k, struct den_err *err)
{
	if (need_history(k, err) < 0 || k->ops->memory(err) < 0)
		return -1;
	if (k->row.info.spec.flags & BOX_EPHEMERAL)
		return den_fail(err, DEN_UNSUPPORTED, 0, "a throwaway box cannot be kept");
	return 0;
}

/* ---- what images are of ---- */

void memory_about(struct keeper *k, struct saved_about *a)
{
	auto_buf t = { 0 };

	buf_addf(&t, "%s %s", k->row.info.spec.template_name, k->row.version ? k->row.version : "");
	*a = (struct saved_about){ .wall = mem_strdup(k->row.info.spec.wall),
		.template = mem_strdup(buf_str(&t)),
		.ids = wall_ids(NULL),
		.generation = k->row.info.generation };
}

int memory_fits(struct keeper *k, const struct saved *v, struct den_err *err)
{
	struct saved_about now;
	int r;

	memory_about(k, &now);
	now.runtime = k->ops->runtime ? k->ops->runtime() : NULL;
	r = saved_fits(&v->about, &now, err);
	saved_about_free(&now);
	return r;
}

int memory_check(struct keeper *k, const struct box_id *of, uint64_t number, struct den_err *err)
{
	auto_saved v = SAVED_NONE;

	return k->ops->memory(err) < 0 || saved_look(k->store, of, number, &v, err) < 0 ? -1 : memory_fits(k, &v, err);
}

/* ---- saving ---- */

/* A keeper with a pool in an image has mounts of its own, and what it opened before is of the host's: a wall that
 * mounts the directory needs it as it is seen here. */
int memory_dir(int dirfd, struct den_err *err)
{
	char link[64], path[4096];
	ssize_t n;
	int fd;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", dirfd);
	n = readlink(link, path, sizeof(path) - 1);
	if (n < 0)
		return den_fail_sys(err, errno, "what was saved");
	path[n] = '\0';
	fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 ? den_fail_sys(err, errno, "open '%s'", path) : fd;
}

struct save {
	struct keeper *k;
	uint64_t number, print;
	bool known, copied;
	bool passing; /* see saved.h */
	struct wall_saving w;
	uint64_t bytes;
	int dir; /* of the images; -1: not made */
};

static bool is_gone(void *user)
{
	const struct client *c = ((struct save *)user)->k->asking;

	return c && client_went(c);
}

static int is_wanted(struct save *s, struct den_err *err)
{
	return is_gone(s) ? den_fail(err, DEN_CONFLICT, ECANCELED, "nobody waits for it any more") : 0;
}

static int on_frozen(void *user, struct den_err *err)
{
	struct save *s = user;
	int r;

	if (fault("frozen", err) < 0 || is_wanted(s, err) < 0)
		return -1;
	s->k->saving = true;
	r = box_snapshot(s->k, s->number, &s->print, &s->known, err);
	s->k->saving = false;
	s->copied = r == 0;
	return r;
}

static void save_undo(struct save *s)
{
	struct den_err ignored;
	char name[64];

	if (s->dir >= 0 && box_is_up(s->k) && s->k->ops->unsaved)
		s->k->ops->unsaved(&s->k->wall, s->dir);
	home_name(s->k, 'c', s->number, name);
	if (s->copied)
		(void)home_discard(s->k, name, &ignored);
	saved_abandon(s->k->store, &s->k->id, s->number);
}

/* What is held goes on; where that cannot be, the box is down, and says why. */
static int let_run(struct keeper *k, struct den_err *err)
{
	struct den_err why, ignored;
	int fd = -1;

	(void)k->ops->freeze(&k->wall, false, &ignored);
	if (wake_listen(k, &fd, &why) == 0 && init_wake(k, &fd, false, &why) == 0)
		return 0;
	box_down(k, why.msg);
	*err = why;
	return den_wrap(err, "the box could not go on after its programs were saved");
}

/* Who saves is another program, and all that is heard of what went wrong is what it says, with names that the box chose.
 * So it is asked, too, while what was written is still there: is there no room in fact? */
static void room_told(int dir, struct den_err *err)
{
	auto_fd fd = -1;
	int sys;

	if (!strcasestr(err->msg, strerror(ENOSPC)) && !strcasestr(err->msg, strerror(EDQUOT)))
		return;
	fd = openat(dir, "room", O_RDWR | O_CREAT | O_CLOEXEC, 0600); /* all of the directory goes in a moment */
	sys = fd < 0 ? errno : posix_fallocate(fd, 0, ROOM_BYTES);
	if (sys == ENOSPC || sys == EDQUOT)
		den_fail_sys(err, sys, "no room for what the programs have in memory");
}

static int save_images(struct save *s, bool stay, struct den_err *err)
{
	struct keeper *k = s->k;
	struct saved_about about;
	auto_plan plan = { 0 };
	auto_fd here = -1;
	struct den_err why;
	int r;

	if (plan_make(k, &plan, err) < 0 || saved_begin(k->store, &k->id, s->number, &s->dir, err) < 0)
		return -1;
	here = memory_dir(s->dir, err);
	if (here < 0)
		return -1;
	s->w.dirfd = here;
	s->w.stay = stay;
	s->w.frozen = on_frozen;
	s->w.gone = is_gone;
	s->w.user = s;
	if (init_park(k, err) < 0)
		return -1;
	r = k->ops->save(&k->wall, &plan.p, &s->w, err);
	if (r < 0)
		room_told(s->dir, err);
	if (r == 0 && !s->copied)
		r = den_fail(err, DEN_INTERNAL, 0, "the wall did not say when nothing ran");
	if (r < 0 || (stay && !s->w.lent)) {
		why = r < 0 ? *err : (struct den_err){ 0 };
		if (let_run(k, err) < 0)
			return -1;
		if (r < 0) {
			*err = why;
			return -1;
		}
	}
	memory_about(k, &about);
	about.runtime = s->w.runtime ? mem_strdup(s->w.runtime) : NULL;
	about.passing = s->passing;
	r = is_wanted(s, err) < 0 ? -1 : saved_commit(k->store, &k->id, s->number, s->dir, &about, &s->bytes, err);
	saved_about_free(&about);
	return r < 0 || quota_room(k, 0, err) < 0 ? -1 : is_wanted(s, err);
}

static void tell_large(struct keeper *k)
{
	struct box_stats st = { 0 };
	struct den_err ignored;
	char text[80];

	if (k->ops->stats(&k->wall, &st, &ignored) < 0 || st.mem < MEMORY_TELL_BYTES)
		return;
	snprintf(text, sizeof(text), "saving programs, about %llu MB of memory",
		(unsigned long long)(st.mem >> 20));
	tell_progress(text, k);
}

/* What is parked must be woken again: that must not fail for want of a descriptor. */
static int have_descriptors(struct den_err *err)
{
	int fds[DESCRIPTORS], n = 0, r = 0;

	while (r == 0 && n < DESCRIPTORS) {
		fds[n] = open("/dev/null", O_RDONLY | O_CLOEXEC);
		if (fds[n] >= 0)
			n++;
		else
			r = den_fail_sys(err, errno, "saving needs %d descriptors", DESCRIPTORS);
	}
	while (n)
		close(fds[--n]);
	return r;
}

static int can_save(struct keeper *k, struct den_err *err)
{
	if (memory_possible(k, err) < 0 || have_descriptors(err) < 0)
		return -1;
	if (!box_is_up(k))
		return den_fail(
			err, DEN_CONFLICT, 0, "the box is not running; 'den start' starts it");
	if (k->merging)
		return den_fail(err, DEN_CONFLICT, 0, "a merge into this box is under way");
	if (k->stopping || (k->init_up && !k->init_known && !k->fresh))
		return den_fail(err, DEN_CONFLICT, EAGAIN,
			"the box is just starting or stopping; try again");
	/* init has to run to be parked */
	if (home_open(k, err) < 0 || (k->row.info.state == BOX_PAUSED && k->ops->freeze(&k->wall, false, err) < 0))
		return -1;
	if (!k->init_known && k->fresh)
		k->init_known = true;
	return 0;
}

static void save_answer(const struct save *s, struct buf *out)
{
	if (!out)
		return;
	wire_put_u64(out, F_NUMBER, s->number);
	wire_put_u64(out, F_SIZE, s->bytes);
	wire_put_u64(out, F_FROZEN_US, (uint64_t)MAX(s->w.frozen_ns, 0) / 1000);
	for (size_t i = 0; s->w.lost && s->w.lost[i]; i++)
		wire_put_str(out, F_UNSAVED, s->w.lost[i]);
}

static void save_free(struct save *s)
{
	strv_free(s->w.lost);
	free(s->w.runtime);
	fd_close(&s->dir);
}

/* What is lent goes on when that is over. Its images are worth nothing then: the checkpoint is one of files. */
static int loan(struct save *s, struct client *borrower, bool made, struct den_err *err)
{
	struct den_err ignored;
	int r = made ? memory_lend(borrower, s->number, s->dir, err) : -1;

	if (let_run(s->k, made && r == 0 ? err : &ignored) < 0 && made && r == 0)
		r = -1;
	s->w.frozen_ns += clock_mono_ns() - s->w.held_ns;
	if (made)
		saved_remove(s->k->store, &s->k->id, s->number);
	return r;
}

/* borrower: makes one fork of it, and needs no images besides. */
static int save_stay(struct keeper *k, const char *message, bool passing, struct client *borrower, struct save *s,
	struct den_err *err)
{
	bool held = k->row.info.state == BOX_PAUSED, recorded;
	struct den_err ignored;
	int r;

	if (can_save(k, err) < 0)
		return -1;
	if (quota_room(k, quota_estimate(k), err) < 0) {
		if (held)
			(void)k->ops->freeze(&k->wall, true, &ignored);
		return -1;
	}
	*s = (struct save){ .k = k, .number = k->row.next, .passing = passing, .dir = -1 };
	s->w.lend = borrower && k->pool && k->pool->kind == POOL_BTRFS; /* else the fork's files take as long as there are */
	tell_large(k);
	r = save_images(s, true, err);
	if (r == 0)
		r = box_record(k, s->number, CKPT_MANUAL, message, NULL, s->w.lent ? 0 : s->bytes, err);
	recorded = r == 0;
	if (s->w.lent && loan(s, borrower, recorded, err) < 0)
		r = -1;
	if (!recorded)
		save_undo(s);
	else
		box_print_set(k, s->print, s->known);
	if (held && box_is_up(k))
		(void)k->ops->freeze(&k->wall, true, &ignored);
	return r;
}

int memory_checkpoint(struct keeper *k, const char *message, struct buf *out, struct den_err *err)
{
	struct save s = { .dir = -1 };
	int r;

	if (k->row.info.on_disk == ON_DISK_FULL) { /* what would be saved is */
		auto_saved v = SAVED_NONE;

		if (saved_look(k->store, &k->id, k->row.info.images, &v, err) < 0)
			return den_wrap(err, "full checkpoint");
		wire_put_u64(out, F_NUMBER, k->row.info.images);
		wire_put_u64(out, F_SIZE, v.bytes);
		return 0;
	}
	r = save_stay(k, message, false, NULL, &s, err);
	if (r == 0) {
		save_answer(&s, out);
		memory_drop_passing(k);
		memory_seal_later(k, s.number, true);
	}
	save_free(&s);
	return r < 0 ? den_wrap(err, "full checkpoint") : 0;
}

int memory_point(struct client *c, const char *ref, bool lend, struct buf *out, struct den_err *err)
{
	struct keeper *k = c->k;
	struct save s = { .dir = -1 };
	uint64_t number;
	int r;

	if (ref && *ref && strcmp(ref, "now")) {
		if (box_resolve(k, ref, &number, err) < 0 ||
			memory_check(k, &k->id, number, err) < 0)
			return -1;
		memory_forks_of(c, number, false);
		wire_put_u64(out, F_NUMBER, number);
		return 0;
	}
	if (k->row.info.on_disk == ON_DISK_FULL) {
		memory_forks_of(c, k->row.info.images, false);
		wire_put_u64(out, F_NUMBER, k->row.info.images);
		return 0;
	}
	r = save_stay(k, FOR_FORK, true, lend ? c : NULL, &s, err);
	if (r == 0) {
		if (!s.w.lent)
			memory_forks_of(c, s.number, true);
		save_answer(&s, out);
		memory_drop_passing(k);
	}
	save_free(&s);
	return r < 0 ? den_wrap(err, "fork") : 0;
}

/* ---- pausing ---- */

/* The transaction that makes it so. */
static int pause_row(
	struct keeper *k, const struct save *s, const char *reason, struct den_err *err)
{
	struct box_info *i = &k->row.info;
	enum box_state state = i->state;
	char *old = i->reason;

	i->state = BOX_PAUSED;
	i->on_disk = ON_DISK_FULL;
	i->images = s->number;
	i->stopped_ms = clock_wall_ms();
	i->reason = reason ? mem_strdup(reason) : NULL;
	if (box_record(k, s->number, CKPT_PAUSE, "paused", NULL, s->bytes, err) == 0) {
		free(old);
		return 0;
	}
	free(i->reason);
	i->reason = old;
	i->state = state;
	i->on_disk = ON_DISK_NOT;
	i->stopped_ms = 0;
	return -1;
}

static void execs_still(struct keeper *k)
{
	list_for_each (l, &k->execs) {
		struct kexec *x = CONTAINER_OF(l, struct kexec, link);

		loop_timer_clear(&x->timeout);
		loop_timer_clear(&x->cpu);
		loop_timer_clear(&x->grace);
		loop_timer_clear(&x->last);
		loop_timer_clear(&x->orphan);
	}
}

int memory_pause(struct keeper *k, const char *reason, struct buf *out, struct den_err *err)
{
	struct save s = { .k = k, .number = k->row.next, .dir = -1 };
	bool held = k->row.info.state == BOX_PAUSED;
	struct den_err ignored;
	int r;

	if (k->row.info.on_disk)
		return den_fail(err, DEN_CONFLICT, 0, "the box is paused already, and on disk");
	if (can_save(k, err) < 0)
		return den_wrap(err, "pause to disk");
	if (quota_room(k, quota_estimate(k), err) < 0) {
		if (k->row.info.state == BOX_PAUSED)
			(void)k->ops->freeze(&k->wall, true, &ignored);
		return den_wrap(err, "pause to disk");
	}
	k->row.info.state = BOX_RUNNING;
	tell_large(k);
	store_hold(k->store);
	r = save_images(&s, false, err);
	if (r == 0 && (r = fault("pause", err)) == 0)
		r = pause_row(k, &s, reason, err);
	if (r == 0)
		(void)fault("paused", err);
	store_let_go(k->store);
	if (r < 0) {
		struct den_err why = *err;

		if (box_is_up(k) && !k->init_up)
			(void)let_run(k, &ignored);
		if (held && box_is_up(k) && k->ops->freeze(&k->wall, true, &ignored) == 0)
			k->row.info.state = BOX_PAUSED;
		save_undo(&s);
		save_free(&s);
		*err = why;
		return den_wrap(err, "pause to disk");
	}
	execs_still(k);
	box_off(k, false, false);
	box_print_set(k, s.print, s.known);
	home_close(k);
	save_answer(&s, out);
	save_free(&s);
	memory_drop_passing(k);
	memory_seal_later(k, s.number, false);
	waker_hold(k);
	feed_state(k, "box.paused");
	return 0;
}
