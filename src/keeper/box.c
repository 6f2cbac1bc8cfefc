/* The life of a box. The states and who makes each move are drawn in wire/spec.h. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "blob.h"
#include "clock.h"
#include "fd.h"
#include "gate.h"
#include "keeper.h"
#include "place.h"

bool box_is_up(const struct keeper *k)
{
	return k->row.info.state == BOX_RUNNING || k->row.info.state == BOX_PAUSED;
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
	box_info_put(b, &k->row.info);
}

static int random_hex(char *out, size_t bytes, struct den_err *err)
{
	uint8_t r[16];

	if (getrandom(r, bytes, 0) != (ssize_t)bytes)
		return den_fail_sys(err, errno, "getrandom");
	for (size_t i = 0; i < bytes; i++)
		snprintf(out + 2 * i, 3, "%02x", r[i]);
	return 0;
}

static int new_boot_id(struct keeper *k, struct den_err *err)
{
	char h[33], id[37];

	if (random_hex(h, 16, err) < 0)
		return -1;
	snprintf(id, sizeof(id), "%.8s-%.4s-4%.3s-a%.3s-%.12s", h, h + 8, h + 13, h + 17, h + 20);
	free(k->row.info.boot_id);
	k->row.info.boot_id = mem_strdup(id);
	return 0;
}

/* ---- up ---- */

/* Whoever is connected waits for it, or will want to know. */
static void tell_progress(const char *text, void *user)
{
	struct keeper *k = user;
	auto_buf b = { 0 };

	wire_put_str(&b, F_MSG, text);
	list_for_each(l, &k->clients)
		conn_send_buf(&CONTAINER_OF(l, struct client, link)->conn, WM_PROGRESS, 0, &b);
}

/* Nothing at all, to unpack an image into. */
static int open_empty(struct keeper *k)
{
	k->tmpl = (struct template){ .name = mem_strdup("empty"), .version = mem_strdup("empty"),
		.detail = mem_strdup("/: empty\n"), .trees = mem_alloc(sizeof(*k->tmpl.trees)), .n_trees = 1 };
	k->tmpl.trees[0] = (struct template_tree){ .at = mem_strdup("/"), .lowers = mem_new(char *) };
	return 0;
}

static int open_image(struct keeper *k, struct den_err *err)
{
	char id[65];

	if (home_pool(k, err) < 0)
		return den_wrap(err, "pool");
	if (k->row.version && k->row.version[0])
		snprintf(id, sizeof(id), "%s", k->row.version);
	else if (image_lock(k->store, false, &k->image_lock, err) < 0 ||
		image_find(k->store, k->row.info.spec.template_name, id, err) < 0)
		return -1;
	return image_open(k->store, k->pool, id, &k->tmpl, &k->defaults, err);
}

int open_template(struct keeper *k, struct den_err *err)
{
	enum plan_ids ids = wall_ids(NULL);

	if (k->tmpl.trees)
		return 0;
	if (!strcmp(k->row.info.spec.template_name, "empty"))
		return open_empty(k);
	if (strcmp(k->row.info.spec.template_name, "host"))
		return open_image(k, err);
	if (k->row.version && k->row.version[0])
		return template_open_version(k->store->fd, k->store->path, k->row.info.spec.template_name,
			k->row.version, &k->tmpl, err);
	return template_open(k->store->fd, k->store->path, k->row.info.spec.template_name, ids == IDS_MAPPED,
		ids != IDS_SINGLE, tell_progress, k, &k->tmpl, err);
}

static int on_cloned(pid_t pid, void *user, struct den_err *err)
{
	struct keeper *k = user;
	struct box_proc p = { .pid = pid };

	if (proc_start_time(pid, &p.start) < 0)
		return den_fail(err, DEN_INTERNAL, 0, "the box died at birth");
	return store_proc_put(k->boxfd, &p, err);
}

/* Of the box, for its life: from its id, whose 90 bits are random. */
static void machine_id(const struct box_id *id, char out[static 33])
{
	uint64_t h[2] = { 0xcbf29ce484222325ULL, 0x84222325cbf29ce4ULL };

	for (const char *p = id->s; *p; p++)
		for (int i = 0; i < 2; i++)
			h[i] = (h[i] ^ (uint64_t)(unsigned char)*p) * (0x100000001b3ULL + 2 * (uint64_t)i);
	snprintf(out, 33, "%016llx%016llx", (unsigned long long)h[0], (unsigned long long)h[1]);
}

static int make_plan(struct keeper *k, struct plan *p, struct plan_tree *trees, char **init_path,
	char **run_path, char **volumes, struct den_err *err)
{
	uint32_t base = STORE_ID_BASE + (uint32_t)k->row.slot * 65536U;

	if (store_init_path(k->store, den_init_blob, (size_t)(den_init_blob_end - den_init_blob), den_init_hash,
		    init_path, err) < 0 || home_open(k, err) < 0 || gate_prepare(k, err) < 0 ||
		volumes_prepare(k, volumes, err) < 0)
		return -1;
	if (asprintf(run_path, "%s/" PLACE_BOXES "/%s/" GATE_RUN, k->store->path, k->id.s) < 0)
		return den_fail(err, DEN_INTERNAL, ENOMEM, "path");
	for (size_t i = 0; i < k->tmpl.n_trees; i++)
		trees[i] = (struct plan_tree){ k->tmpl.trees[i].at,
			(const char *const *)k->tmpl.trees[i].lowers };
	*p = (struct plan){
		.id = &k->id, .tag = k->store->tag, .spec = &k->row.info.spec, .trees = trees,
		.n_trees = k->tmpl.n_trees, .fsfd = k->fsfd, .fs_path = k->fs_path,
		.init_path = *init_path, .listen_fd = -1,
		.ids = wall_ids(NULL), .id_base = base, .owners = k->tmpl.owners_path,
		.run_path = *run_path, .volumes = *volumes, .trust = k->gate->trusts,
		.host_net = !strcmp(k->row.info.spec.net, "host-test"), .cloned = on_cloned, .user = k,
	};
	snprintf(p->boot_id, sizeof(p->boot_id), "%s", k->row.info.boot_id);
	machine_id(&k->id, p->machine_id);
	return 0;
}

static void init_frame(struct conn *c, const struct wire_frame *f)
{
	kexec_from_init(CONTAINER_OF(c, struct keeper, init), f);
}

static void init_closed(struct conn *c, const struct den_err *why)
{
	struct keeper *k = CONTAINER_OF(c, struct keeper, init);

	(void)why;
	k->init_up = false;
	/* Its process ends in a moment and is what counts (init_pid_cb); if it does not, it broke the
	 * protocol, and a box without a voice is no box. */
	if (k->wall.pidfd >= 0)
		loop_timer_set(k->loop, &k->kill, clock_mono_ns() + 2 * NS_PER_SEC);
}

static int meet_init(struct keeper *k, struct den_err *err)
{
	auto_buf b = { 0 };
	int fd;

	if (place_connect(k->boxfd, PLACE_INIT_SOCK, &fd, err) < 0)
		return den_wrap(err, "reach init");
	k->init = (struct conn){ .on_frame = init_frame, .on_close = init_closed };
	if (conn_open(&k->init, k->loop, fd, err) < 0)
		return -1;
	k->init_up = true;
	wire_put_u64(&b, F_PROTO, WIRE_VERSION);
	conn_send_buf(&k->init, WM_HELLO, 0, &b);
	return 0;
}

static void init_pid_cb(struct loop_source *s, uint32_t events)
{
	struct keeper *k = CONTAINER_OF(s, struct keeper, init_pid);

	(void)events;
	box_down(k, k->stopping ? NULL : "its init process was killed");
}

static void runtime_cb(struct loop_timer *t)
{
	struct keeper *k = CONTAINER_OF(t, struct keeper, runtime);
	struct den_err err;

	if (k->working) { /* what holds its files must not lose them */
		loop_timer_set(k->loop, t, clock_mono_ns() + WORKING_MS * NS_PER_MS);
		return;
	}
	free(k->row.info.reason);
	k->row.info.reason = mem_strdup("max-runtime reached");
	if (box_stop(k, EXEC_GRACE_MS, &err) < 0)
		box_down(k, NULL);
}

static void kill_cb(struct loop_timer *t)
{
	struct keeper *k = CONTAINER_OF(t, struct keeper, kill);

	if (k->working)
		loop_timer_set(k->loop, t, clock_mono_ns() + WORKING_MS * NS_PER_MS);
	else
		box_down(k, k->stopping ? NULL : "its init process stopped answering");
}

/* Watches a live init: timers and what tells of its end. */
static int watch_init(struct keeper *k, struct den_err *err)
{
	k->init_pid = (struct loop_source){ .fd = k->wall.pidfd, .events = EPOLLIN, .cb = init_pid_cb };
	if (loop_add(k->loop, &k->init_pid, err) < 0)
		return -1;
	k->runtime.cb = runtime_cb;
	k->kill.cb = kill_cb;
	if (k->row.info.spec.max_runtime_ms) {
		int64_t left = k->row.info.started_ms +
			(int64_t)MIN(k->row.info.spec.max_runtime_ms, 1ULL << 43) - clock_wall_ms();

		loop_timer_set(k->loop, &k->runtime, clock_mono_ns() + MAX(left, 1) * NS_PER_MS);
	}
	return meet_init(k, err);
}

static void set_detail(struct keeper *k)
{
	static const char *const ids[] = { "65,536 ids of its own, layers id-mapped",
		"65,536 ids from /etc/subuid", "one id: root in the box is you, and nobody else is there" };
	auto_buf b = { 0 };

	buf_addf(&b, "%s", k->tmpl.detail ? k->tmpl.detail : "");
	if (b.len && b.p[b.len - 1] != '\n')
		buf_addstr(&b, "\n");
	buf_addf(&b, "ids: %s\n", ids[wall_ids(NULL)]);
	if (k->wall.note)
		buf_addf(&b, "no cgroup: %s\n", k->wall.note);
	if (b.len > 4000)
		b.len = 4000;
	free(k->row.info.detail);
	k->row.info.detail = mem_strdup(buf_str(&b));
}

/* What its row says of a start, before it: so that it is written once. */
int box_announce(struct keeper *k, struct den_err *err)
{
	if (new_boot_id(k, err) < 0)
		return -1;
	k->row.info.started_ms = clock_wall_ms();
	k->row.info.stopped_ms = 0;
	free(k->row.info.reason);
	k->row.info.reason = NULL;
	k->announced = true;
	return 0;
}

int box_up(struct keeper *k, struct den_err *err)
{
	auto_free struct plan_tree *trees = NULL;
	auto_free char *init_path = NULL, *run_path = NULL, *volumes = NULL;
	struct plan p;
	int r;

	if (box_is_up(k))
		return den_fail(err, DEN_CONFLICT, 0, "the box is running already");
	if (open_template(k, err) < 0 || (!k->announced && box_announce(k, err) < 0))
		return -1;
	k->announced = false;
	trees = mem_alloc(sizeof(*trees) * (k->tmpl.n_trees + 1));
	if (make_plan(k, &p, trees, &init_path, &run_path, &volumes, err) < 0)
		return -1;
	if (place_listen(k->boxfd, PLACE_INIT_SOCK, &p.listen_fd, err) < 0)
		return -1;
	r = k->ops->start(&p, &k->wall, err);
	fd_close(&p.listen_fd);
	if (r < 0) {
		store_proc_clear(k->boxfd);
		return -1;
	}
	k->stopping = false;
	k->fresh = true;
	k->init_known = false;
	k->hello_records = 0;
	k->row.info.state = BOX_RUNNING;
	set_detail(k);
	/* before anybody can ask it to run something: a program never sees a network that is half there */
	if (watch_init(k, err) < 0 || gate_up(k, err) < 0) {
		struct den_err why = *err;

		box_down(k, why.msg);
		return -1;
	}
	lease_busy(k);
	lease_arm(k);
	return 0;
}

/* ---- open ---- */

int listen_for_clients(struct keeper *k, struct den_err *err)
{
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

/* A keeper before us died: take over what still runs, or settle what does not. */
static int adopt(struct keeper *k, struct den_err *err)
{
	struct box_proc proc;
	struct plan p = { .id = &k->id, .tag = k->store->tag, .spec = &k->row.info.spec };
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
	if (!box_is_up(k)) /* died between starting init and writing that down */
		k->row.info.state = BOX_RUNNING;
	if (watch_init(k, err) < 0)
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
static void await_init(struct keeper *k)
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
	return box_rollback(k, (uint64_t)k->row.pending, true, &before, err) < 0 ?
		den_wrap(err, "undo a merge that was interrupted") : 0;
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
	if (adopt(k, err) < 0)
		return -1;
	if (k->row.work && home_pool(k, err) == 0 && home_make_base(k, err) == 0)
		box_sweep_later(k);
	box_print_load(k);
	if (k->row.pending >= 0)
		(void)finish_merge(k, err); /* else it could not even be deleted, to make room; the mark stays */
	await_init(k);
	return lease_overdue(k, err) < 0 ? -1 : listen_for_clients(k, err);
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

/* The only writer of STOPPED. init is dead or dies here, and all else with it. */
void box_down(struct keeper *k, const char *reason)
{
	struct den_err err;
	bool later;

	if (!box_is_up(k))
		return;
	loop_remove(k->loop, &k->init_pid);
	loop_timer_clear(&k->kill);
	loop_timer_clear(&k->runtime);
	loop_timer_clear(&k->lease.timer);
	/* Of a box that stays, acknowledged changes are on disk when its file systems are unmounted. Of one
	 * that is rolled back they are with the checkpoint of them, and unmounting can wait. */
	later = k->keep_waiting ? k->pool && k->pool->kind == POOL_BTRFS && !k->row.info.spec.disk :
				  k->gone || (k->row.info.spec.flags & BOX_EPHEMERAL);
	k->ops->stop(&k->wall, later);
	if (k->keep_waiting) {
		fd_close(&k->old_mntns);
		k->old_mntns = fd_take(&k->wall.mntns);
	}
	kexec_box_down(k);
	gate_down(k);
	k->init_up = false;
	conn_close(&k->init);
	k->ops->clean(&k->wall);
	store_proc_clear(k->boxfd);
	unlinkat(k->boxfd, PLACE_INIT_SOCK, 0);
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
	else if (k->row.info.spec.flags & BOX_EPHEMERAL)
		(void)box_delete(k, &err); /* does nothing when it is what called us */
	keeper_leave_if_done(k);
}

int box_stop(struct keeper *k, uint64_t grace_ms, struct den_err *err)
{
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

int box_delete(struct keeper *k, struct den_err *err)
{
	bool named = k->row.info.spec.name;

	if (k->gone)
		return 0;
	k->gone = true; /* before box_down(), which would delete a throwaway box itself */
	loop_timer_clear(&k->late_row);
	loop_timer_clear(&k->owner_gone);
	if (box_is_up(k)) {
		bool written = k->row_written;

		k->row_written = false; /* no need to write STOPPED first: DELETING says more */
		box_down(k, NULL);
		k->row_written = written;
	}
	if (k->row_written) {
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
	k->in_trash = true; /* emptied when all clients have been told, see keeper_main() */
	if (k->row.slot != UINT64_MAX)
		store_release_slot(k->store, k->row.slot, &k->id);
	if (k->row_written && store_delete(k->store, &k->id, err) < 0)
		return -1;
	if (named)
		store_release_name(k->store, k->row.info.spec.name, &k->id);
	feed_state(k, "box.deleted");
	free_now(k);
	return 0; /* the lock goes with the process */
}
