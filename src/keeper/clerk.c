/* Questions about the whole state: which boxes there are, and what crashes left behind. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "blob.h"
#include "clock.h"
#include "fd.h"
#include "keeper.h"
#include "place.h"
#include "saved.h"
#include "saved_size.h"
#include "strv.h"

/* ---- list ---- */

struct list_out {
	struct store *s;
	struct buf *out;
	struct conn *to;
};

/* Does a keeper hold it? */
static bool has_keeper(int boxfd)
{
	auto_fd fd = openat(boxfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) < 0 && errno == EWOULDBLOCK;
}

static int list_one(const struct box_row *row, void *user, struct den_err *err)
{
	struct list_out *o = user;
	struct box_info info = row->info; /* borrowed: only the state is changed */
	auto_buf rec = { 0 };
	auto_fd boxfd = -1, pidfd = -1;
	struct box_proc proc;
	struct box_id id;

	if (box_id_parse(info.spec.id, &id, err) < 0)
		return -1;
	if (info.state == BOX_DELETING && place_box(o->s->fd, &id, &boxfd, NULL) < 0)
		return 0; /* its last step is gc's */
	if (info.spec.flags & BOX_SEED)
		return 0; /* a template, not a box */
	if (!info.on_disk && (info.state == BOX_RUNNING || info.state == BOX_PAUSED)) {
		if (place_box(o->s->fd, &id, &boxfd, NULL) < 0)
			return 0; /* goes in this very moment */
		if (store_proc_get(boxfd, &proc, &pidfd))
			info.init_pid = (uint64_t)proc.pid;
		else if (!info.on_disk && !has_keeper(boxfd))
			info.state = BOX_STOPPED;
	}
	info.keeper_pid = 0;
	info.turn = row->turn;
	info.image_bytes = saved_disk(o->s, &id, NULL);
	box_info_put(&rec, &info);
	if (o->out->len + rec.len > WIRE_MAX_PAYLOAD / 2) { /* longer than a frame: in several */
		conn_send_buf(o->to, WM_LIST, 0, o->out);
		o->out->len = 0;
	}
	wire_put_bytes(o->out, F_RECORD, rec.p, rec.len);
	return 0;
}

int clerk_list(struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err)
{
	struct list_out o = { c->k->store, out, &c->conn };

	(void)f;
	return store_each(c->k->store, list_one, &o, err);
}

int clerk_resolve(struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err)
{
	auto_free char *ref = NULL;
	struct box_id id;

	if (field_str(f, F_REF, 255, &ref, err) < 0 || place_resolve(c->k->store->fd, ref ? ref : "", &id, err) < 0)
		return -1;
	wire_put_str(out, F_ID, id.s);
	return 0;
}

/* ---- gc ---- */

struct gc {
	struct store *s;
	void (*removed)(const char *what, void *user);
	void *user;
	char **orphans; /* ids of rows without a directory */
};

static bool is_young(int boxfd)
{
	struct stat st;

	return fstat(boxfd, &st) == 0 && time(NULL) - st.st_mtime <= STORE_YOUNG_S;
}

/* A box that nobody keeps, with the lock in hand: ended for good, as box_delete() would. */
static int remove_box(struct gc *g, const struct box_id *id, int boxfd, const struct box_row *row,
	struct den_err *err)
{
	const struct wall_ops *ops = wall_find("container", err);
	struct plan p = { .id = id, .tag = g->s->tag, .spec = &(struct box_spec){ 0 } };
	struct wall_box w = { .pidfd = -1 };
	struct box_proc proc = { 0 };
	int pidfd = -1;

	(void)store_proc_get(boxfd, &proc, &pidfd);
	if (ops && ops->adopt(&p, proc.pid, pidfd, &w, err) == 0) {
		ops->stop(&w, false);
		ops->clean(&w);
	}
	if (store_box_trash(g->s, id, err) < 0)
		return -1;
	if (row) {
		if (row->slot != UINT64_MAX && geteuid() == 0)
			store_release_slot(g->s, row->slot, id);
		if (row->info.spec.name)
			store_release_name(g->s, row->info.spec.name, id);
		if (store_delete(g->s, id, err) < 0)
			return -1;
	}
	g->removed(id->s, g->user);
	return 0;
}

/* A stopped box that a dead keeper left marked as running. */
static int settle_box(struct gc *g, const struct box_id *id, struct box_row *row, struct den_err *err)
{
	const struct wall_ops *ops = wall_find(row->info.spec.wall, err);
	struct plan p = { .id = id, .tag = g->s->tag, .spec = &row->info.spec };
	struct wall_box w = { .pidfd = -1 };

	if (ops && ops->adopt(&p, 0, -1, &w, err) == 0)
		ops->clean(&w);
	row->info.state = BOX_STOPPED;
	row->info.stopped_ms = clock_wall_ms();
	free(row->info.reason);
	row->info.reason = mem_strdup("its processes were gone when gc came to look");
	return store_put(g->s, row, err);
}

static int gc_box(struct gc *g, const struct box_id *id, struct den_err *err)
{
	struct box_row row = { 0 };
	struct box_proc proc;
	auto_fd boxfd = -1, lock = -1, pidfd = -1;
	bool alive, has_row;
	int r = 0;

	if (place_box(g->s->fd, id, &boxfd, NULL) < 0 || store_box_lock(boxfd, &lock, NULL) < 0)
		return 0; /* gone, or kept */
	has_row = store_get(g->s, id, &row, err) == 0;
	if (!has_row && err->code != DEN_NOT_FOUND)
		return -1;
	alive = store_proc_get(boxfd, &proc, &pidfd);
	if (!has_row) {
		if (!is_young(boxfd))
			r = remove_box(g, id, boxfd, NULL, err);
	} else if (row.info.state == BOX_DELETING || row.info.state == BOX_CREATING ||
		(row.info.spec.flags & BOX_EPHEMERAL && !is_young(boxfd))) {
		r = remove_box(g, id, boxfd, &row, err);
	} else if ((row.info.spec.flags & BOX_SEED) && !is_young(boxfd) && !bake_named(g->s, id)) {
		r = remove_box(g, id, boxfd, &row, err);
	} else if (alive && lease_forfeit(&row.info)) { /* its keeper was killed before that */
		r = remove_box(g, id, boxfd, &row, err);
	} else if (!alive && !row.info.on_disk && (row.info.state == BOX_RUNNING || row.info.state == BOX_PAUSED)) {
		r = settle_box(g, id, &row, err);
	}
	box_row_free(&row);
	return r;
}

static bool box_alive(const struct box_id *id, void *user)
{
	struct gc *g = user;
	auto_fd boxfd = -1;

	return place_box(g->s->fd, id, &boxfd, NULL) == 0;
}

static void tell_removed(const char *what, void *user)
{
	struct gc *g = user;

	g->removed(what, g->user);
}

struct used {
	const char *version;
	bool found;
};

static int row_uses(const struct box_row *row, void *user, struct den_err *err)
{
	struct used *u = user;

	(void)err;
	if (row->version && !strcmp(row->version, u->version))
		u->found = true;
	return 0;
}

static bool template_in_use(const char *name, const char *version, void *user)
{
	struct gc *g = user;
	struct used u = { version, false };
	struct den_err err;

	(void)name;
	/* when in doubt it is in use */
	return image_needs_host(g->s, version) || store_each(g->s, row_uses, &u, &err) < 0 || u.found;
}

/* A row whose directory is gone: the last step of a delete was not reached. */
static int row_orphan(const struct box_row *row, void *user, struct den_err *err)
{
	struct gc *g = user;
	struct box_id id;

	if (box_id_parse(row->info.spec.id, &id, err) < 0 || box_alive(&id, g))
		return 0;
	if (row->info.spec.name)
		store_release_name(g->s, row->info.spec.name, &id);
	if (row->slot != UINT64_MAX && geteuid() == 0)
		store_release_slot(g->s, row->slot, &id);
	strv_add(&g->orphans, id.s);
	return 0;
}

static int gc_orphan_rows(struct gc *g, struct den_err *err)
{
	int r = store_each(g->s, row_orphan, g, err);

	for (size_t i = 0; r == 0 && g->orphans && g->orphans[i]; i++) {
		struct box_id id;

		r = box_id_parse(g->orphans[i], &id, err);
		if (r == 0)
			r = store_delete(g->s, &id, err);
		if (r == 0)
			g->removed(id.s, g->user);
	}
	strv_free(g->orphans);
	g->orphans = NULL;
	return r;
}

static bool pool_alive(const char *name, void *user)
{
	struct box_id id;

	return box_id_parse(name, &id, NULL) == 0 && box_alive(&id, user);
}

/* While a template is being made nothing can be told to be of no use: it is looked at the next time. */
static int gc_images(struct gc *g, struct pool *p, struct den_err *err)
{
	int r = image_sweep(g->s, p, g->removed, g->user, err);

	return r < 0 && err->code == DEN_CONFLICT ? 0 : r;
}

struct pool_gc {
	struct gc *g;
	struct pool *pool;
};

static int pool_gc(void *arg, struct den_err *err)
{
	struct pool_gc *p = arg;

	if (pool_sweep(p->pool, pool_alive, p->g, tell_removed, err) < 0)
		return -1;
	return gc_images(p->g, p->pool, err);
}

static int gc_pool(struct gc *g, struct den_err *err)
{
	struct pool_gc p = { .g = g };
	int r;

	if (!pool_exists(g->s->fd))
		return gc_images(g, NULL, err);
	if (pool_open(g->s->fd, g->s->path, NULL, &p.pool, err) < 0)
		return den_wrap(err, "pool");
	r = wall_as_box_root(pool_gc, &p, err);
	if (r == 0)
		(void)pool_trim(p.pool, NULL);
	pool_close(p.pool);
	return r;
}

int clerk_sweep(struct store *s, void (*removed)(const char *what, void *user), void *user, struct den_err *err)
{
	struct gc g = { .s = s, .removed = removed, .user = user };
	int fd = openat(s->fd, PLACE_BOXES, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	const struct wall_ops *ops;
	struct dirent *de;
	int r = 0;

	if (!d) {
		fd_close(&fd);
		return den_fail_sys(err, errno, "open boxes");
	}
	while (r == 0 && (de = readdir(d))) {
		struct box_id id;

		if (box_id_parse(de->d_name, &id, NULL) == 0)
			r = gc_box(&g, &id, err);
	}
	closedir(d);
	ready_sweep(s, removed, user);
	if (r == 0)
		r = box_empty_trash(s, NULL, err);
	if (r == 0)
		r = gc_orphan_rows(&g, err);
	if (r == 0)
		r = saved_sweep(s, box_alive, &g, tell_removed, &g, err);
	if (r == 0)
		r = store_sweep(s, den_init_hash, removed, user, err);
	ops = wall_find("container", err);
	if (r == 0 && ops)
		r = ops->sweep(s->tag, box_alive, &g, tell_removed, err);
	if (r == 0)
		r = gc_pool(&g, err);
	if (r == 0) {
		unsigned n = 0;
		char text[64];

		r = template_sweep(s->fd, template_in_use, &g, &n, err);
		snprintf(text, sizeof(text), "%u old template versions", n);
		if (n)
			removed(text, user);
	}
	return r;
}

static void gc_record(const char *what, void *user)
{
	struct buf *out = user;
	auto_buf rec = { 0 };

	wire_put_str(&rec, F_NAME, "removed");
	wire_put_str(&rec, F_STATE, "");
	wire_put_str(&rec, F_DETAIL, what);
	if (out->len + rec.len < WIRE_MAX_PAYLOAD - 64)
		wire_put_bytes(out, F_RECORD, rec.p, rec.len);
}

int clerk_gc(struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err)
{
	(void)f;
	return clerk_sweep(c->k->store, gc_record, out, err);
}
