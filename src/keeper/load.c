/*
 * Programs come back from disk.
 *
 * Loading: `loading` is in the box's directory from before the first process is there until the row says that it
 * runs. Who finds it beside a row that says on disk takes what is there apart, and the files back to the checkpoint:
 * the programs may have run for a moment. So does who could not go through with it; where even that fails, the mark
 * stays, and the next one who wants the programs does it first.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "clock.h"
#include "fault.h"
#include "fd.h"
#include "gate.h"
#include "memory.h"
#include "place.h"
#include "saved_manifest.h"
#include "strv.h"

#define LOADING "loading"
#define HOOK "etc/den/restored"

static int mark_loading(struct keeper *k, struct den_err *err)
{
	return file_replace_at(k->boxfd, LOADING, "", 0, 0600, err);
}

void memory_loaded(struct keeper *k)
{
	unlinkat(k->boxfd, LOADING, 0);
}

/* Counts up each time: whoever keeps random numbers or names of its own in memory can look. */
static int write_generation(struct keeper *k, struct den_err *err)
{
	auto_fd dir = openat(k->boxfd, GATE_RUN, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	char text[32];

	snprintf(text, sizeof(text), "%llu\n", (unsigned long long)k->row.info.restores);
	return dir < 0 ? den_fail_sys(err, errno, "open '%s'", GATE_RUN)
		       : file_replace_at(dir, "generation", text, strlen(text), 0644, err);
}

static int load_images(struct keeper *k, const struct saved *v, int *wake, struct den_err *err)
{
	auto_plan plan = { 0 };
	auto_fd dir = -1;
	int r;

	if (plan_make(k, &plan, err) < 0 || (dir = memory_dir(v->dirfd, err)) < 0 ||
		write_generation(k, err) < 0 || wake_listen(k, wake, err) < 0 ||
		place_listen(k->boxfd, PLACE_INIT_SOCK, &plan.p.listen_fd, err) < 0)
		return -1;
	store_proc_clear(k->boxfd);
	if (mark_loading(k, err) < 0)
		return -1;
	r = fault("load", err) < 0 ? -1 : k->ops->load(&plan.p, dir, &k->wall, err);
	fd_close(&plan.p.listen_fd);
	if (!k->row_written || (r < 0 && !store_proc_was(k->boxfd)))
		memory_loaded(k); /* without a row it is gone if this fails; and what never ran changed nothing */
	if (r < 0)
		store_proc_clear(k->boxfd);
	return r;
}

/* Is there such a file in the box? Behind another wall it cannot be seen from here: then it is tried. */
static bool has_hook(struct keeper *k)
{
	struct open_how how = { .flags = O_PATH | O_CLOEXEC,
		.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS };
	auto_fd root = -1, fd = -1;
	char path[64];

	if (strcmp(k->ops->name, "container"))
		return true;
	snprintf(path, sizeof(path), "/proc/%d/root", (int)k->wall.pid);
	root = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	fd = root < 0 ? -1 : (int)syscall(SYS_openat2, root, HOOK, &how, sizeof(how));
	return fd >= 0;
}

/* Who has to know that there may be another like it: what the box itself says in /etc/den/restored. */
static void run_hook(struct keeper *k)
{
	struct exec_spec s = { .flags = EXEC_DETACH | EXEC_FORGET, .user = mem_strdup("root") };
	struct den_err err;
	char text[48];

	if (has_hook(k)) {
		snprintf(text, sizeof(text), "DEN_GENERATION=%llu",
			(unsigned long long)k->row.info.restores);
		strv_add(&s.env, text);
		strv_add(&s.argv, "/bin/sh");
		strv_add(&s.argv, "-c");
		strv_add(&s.argv, "[ ! -x /" HOOK " ] || exec /" HOOK);
		if (kexec_begin(k, &s, &err) < 0)
			gate_note(k->gate, "restored", err.msg);
	}
	exec_spec_free(&s);
}

/* What was loaded ends, or was about to: what becomes of the box is the caller's. */
static void load_down(struct keeper *k)
{
	k->keep_waiting = true;
	box_down(k, NULL);
	k->keep_waiting = false;
}

/* After a loss of power its files need not be what they were when it was paused, but those of the checkpoint are. */
static int files_of_boot(struct keeper *k, const struct saved *v, uint64_t number, struct den_err *err)
{
	char boot[37];

	saved_boot(boot);
	return boot[0] && !strcmp(boot, v->boot) ? 0 : box_restore_files(k, number, err);
}

/* Its programs come back; k->row says what box it is. On failure nothing runs, and memory_settle() is due. */
int memory_load(struct keeper *k, const struct box_id *of, uint64_t number, struct den_err *err)
{
	auto_saved v = SAVED_NONE;
	auto_fd wake = -1;

	if (open_template(k, err) < 0 || k->ops->memory(err) < 0)
		return -1;
	if (saved_open(k->store, of, number, &v, err) < 0)
		return -1;
	if (memory_fits(k, &v, err) < 0)
		return -1;
	if (k->row_written && files_of_boot(k, &v, number, err) < 0)
		return -1;
	if (v.bytes > MEMORY_TELL_BYTES)
		tell_progress("bringing the box's programs back", k);
	k->row.info.restores++;
	if (load_images(k, &v, &wake, err) < 0) {
		k->row.info.restores--;
		return -1;
	}
	k->stopping = false;
	k->row.info.state = BOX_RUNNING;
	k->row.info.on_disk = ON_DISK_NOT;
	set_detail(k);
	if (watch_init(k, err) < 0 || fault("loaded", err) < 0 || init_wake(k, &wake, true, err) < 0 ||
		fault("met", err) < 0 || gate_up(k, err) < 0 || fault("gate", err) < 0) {
		load_down(k);
		return -1;
	}
	run_hook(k);
	lease_busy(k);
	lease_arm(k);
	return 0;
}

/* Where programs were started anew, the template says with what. */
static void start_again(struct keeper *k)
{
	struct exec_spec s = { .flags = EXEC_DETACH };
	struct den_err err;

	for (size_t i = 0; k->defaults.entrypoint && k->defaults.entrypoint[i]; i++)
		strv_add(&s.argv, k->defaults.entrypoint[i]);
	for (size_t i = 0; k->defaults.cmd && k->defaults.cmd[i]; i++)
		strv_add(&s.argv, k->defaults.cmd[i]);
	if (s.argv && kexec_begin(k, &s, &err) < 0)
		gate_note(k->gate, "start", err.msg);
	exec_spec_free(&s);
}

static int wake_files(struct keeper *k, struct den_err *err)
{
	int r;

	k->row.info.on_disk = ON_DISK_NOT;
	k->row.info.state = BOX_STOPPED;
	k->keep_waiting = true; /* if it fails, nothing of that is to be written */
	r = box_up(k, err);
	k->keep_waiting = false;
	if (r == 0)
		start_again(k);
	return r;
}

/* The row of a box that runs; that is the moment it happens. */
static int wake_row(struct keeper *k, const struct box_info *was, struct den_err *err)
{
	struct box_info *i = &k->row.info;

	i->stopped_ms = 0;
	free(i->reason);
	i->reason = NULL;
	if (was->on_disk == ON_DISK_FULL) /* the time that it may run is not the time that it was away */
		i->started_ms = was->started_ms + MAX(clock_wall_ms() - was->stopped_ms, 0);
	if (fault("row", err) < 0 || box_save(k, err) < 0)
		return -1;
	(void)fault("saved", err);
	memory_loaded(k);
	return 0;
}

/* It did not come back, and is what it was before, on disk. */
static void wake_undo(struct keeper *k, const struct box_info *was)
{
	struct box_info *i = &k->row.info;
	struct den_err ignored;

	load_down(k);
	free(i->reason);
	i->reason = was->reason;
	i->state = BOX_PAUSED;
	i->on_disk = was->on_disk;
	i->stopped_ms = was->stopped_ms;
	i->started_ms = was->started_ms;
	(void)memory_settle(k, &ignored); /* else the next one does */
}

int box_wake(struct keeper *k, struct den_err *err)
{
	struct box_info *i = &k->row.info, was;
	uint64_t how = i->on_disk;
	int r = memory_settle(k, err);

	was = *i;
	was.reason = i->reason ? mem_strdup(i->reason) : NULL;
	if (r == 0)
		r = how == ON_DISK_FULL ? memory_load(k, &k->id, i->images, err) : wake_files(k, err);
	if (r == 0)
		r = wake_row(k, &was, err);
	if (r < 0) {
		struct den_err why = *err;

		wake_undo(k, &was);
		if (i->on_disk)
			waker_hold(k);
		*err = why;
		if (err->code == DEN_CONFLICT) /* that would mean that it runs */
			err->code = DEN_INTERNAL;
		return den_wrap(err,
			how == ON_DISK_FULL && err->code != DEN_LIMIT
				? "resume ('den rollback --disk' starts it without its programs)"
				: "resume");
	}
	free(was.reason);
	k->print_due = k->row.work;
	box_settle_later(k);
	feed_state(k, "box.resumed");
	return 0;
}

bool wake_needed(const struct keeper *k, const struct wire_frame *f)
{
	if (!k->has_box || k->gone || !k->row.info.on_disk)
		return false;
	switch (f->type) {
	case WM_EXEC:
	case WM_ATTACH:
	case WM_SIGNAL:
	case WM_IN:
	case WM_IN_EOF:
	case WM_RESIZE:
	case WM_DIAL:
	case WM_MERGE:
		return true;
	case WM_PORT:
		return wire_find_u64(f->p, f->len, F_PORT, 0);
	default:
		return false;
	}
}

/* ---- files alone ---- */

int box_hibernate(struct keeper *k, struct den_err *err)
{
	struct box_info *i = &k->row.info;
	struct den_err ignored;

	if (i->on_disk == ON_DISK_FILES)
		return den_fail(err, DEN_CONFLICT, 0, "the box is hibernated already");
	if (i->spec.flags & BOX_EPHEMERAL)
		return den_fail(err, DEN_UNSUPPORTED, 0, "a throwaway box cannot be kept");
	if (!box_is_up(k) && !i->on_disk)
		return den_fail(
			err, DEN_CONFLICT, 0, "the box is not running; 'den start' starts it");
	if (box_is_up(k)) {
		bool written = k->row_written;

		if (i->state == BOX_PAUSED)
			(void)k->ops->freeze(&k->wall, false, &ignored);
		k->row_written = false; /* STOPPED need not be written: what follows says more */
		k->stopping = true;
		k->keep_waiting = true;
		box_down(k, NULL);
		fd_close(&k->old_mntns);
		k->keep_waiting = k->stopping = false;
		k->row_written = written;
		home_close(k);
	} else {
		kexec_box_down(k);
	}
	i->state = BOX_PAUSED;
	i->on_disk = ON_DISK_FILES;
	i->stopped_ms = clock_wall_ms();
	if (box_save(k, err) < 0) {
		i->state = BOX_STOPPED;
		i->on_disk = ON_DISK_NOT;
		return -1;
	}
	waker_hold(k);
	feed_state(k, "box.paused");
	return 0;
}

/* ---- what a keeper that died left ---- */

bool memory_half(const struct keeper *k)
{
	return (!k->row_written || k->row.info.on_disk == ON_DISK_FULL) &&
	       faccessat(k->boxfd, LOADING, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

int memory_settle(struct keeper *k, struct den_err *err)
{
	if (!k->row_written || !memory_half(k))
		return 0;
	if (fault("settle", err) < 0 || box_restore_files(k, k->row.info.images, err) < 0)
		return den_wrap(err, "take back a resume that was interrupted");
	return 0;
}

/* Some of its processes may be there, and may have run for a moment: they go, and so does what they wrote. */
int memory_undo(struct keeper *k, struct den_err *err)
{
	struct plan p = { .id = &k->id, .tag = k->store->tag, .spec = &k->row.info.spec };
	struct box_proc proc;
	struct den_err ignored;
	int pidfd = -1;

	if (!store_proc_get(k->boxfd, &proc, &pidfd))
		proc.pid = 0;
	if (k->ops->adopt(&p, proc.pid, pidfd, &k->wall, err) < 0)
		return -1;
	k->ops->stop(&k->wall, false);
	k->ops->clean(&k->wall);
	store_proc_clear(k->boxfd);
	/* where there is no room for that, it must still be possible to delete the box: the mark stays */
	(void)memory_settle(k, &ignored);
	return 0;
}
