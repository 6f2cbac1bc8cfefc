/*
 * Ready boxes: built before somebody asks for them (docs/decisions/0015-ready.md).
 *
 * One is a box in all but two things: it has no row, so it is nobody's and a crash leaves nothing that was
 * promised; and there is a mark of it, STATE/ready/SHAPE/ID. Nothing but init has run in it.
 *
 *   made     WM_READY      built, listening, then marked
 *   taken    unlink()      of the mark, by a client (or a launcher on its behalf): one of many wins
 *   claimed  WM_CLAIM      by whoever comes first; checked again here, row written, and it is a box like others
 *   away     by itself     its mark is gone and nobody is there who could claim it; or it no longer is what would
 *                          be made now: template, program or shared folders are others
 *
 * What a client says of its fitting is believed of nobody: the claim's whole spec is settled as of a create, and
 * its shape compared.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clock.h"
#include "fd.h"
#include "gate.h"
#include "keeper.h"
#include "place.h"
#include "shape.h"
#include "strv.h"

#define LOOK_MS 5000 /* so often it is looked whether its mark is there ... */
#define LOOKS_FIT 12 /* ... and every so many times, whether it still is what would be made */
#define COMING_MS 500 /* between taking the mark and connecting there is nothing to wait for */
#define OWN_MARK "ready" /* in boxes/ID; the mark is another link to it */
#define MARK_MAX (1U << 20)

struct kready {
	struct keeper *k;
	struct shape shape;
	uint64_t print; /* of what it stands on: layers and shared folders */
	struct loop_timer look;
	unsigned looks;
};

static void mark_path(const struct keeper *k, char out[static 128])
{
	snprintf(out, 128, PLACE_READY "/%s/%s", k->ready->shape.hex, k->id.s);
}

/* ---- is it still what would be made now? ---- */

static void print_add(uint64_t *h, const char *path)
{
	struct stat st = { 0 };

	(void)stat(path, &st);
	*h = (*h ^ (uint64_t)st.st_ino) * 0x100000001b3ULL;
	*h = (*h ^ (uint64_t)st.st_dev) * 0x100000001b3ULL;
}

/* Which folders these are: one that was removed and made again has the same name and is another. */
static uint64_t ground_print(const struct keeper *k)
{
	const struct box_spec *s = &k->row.info.spec;
	uint64_t h = 0xcbf29ce484222325ULL;

	for (size_t t = 0; t < k->tmpl.n_trees; t++)
		for (char **p = k->tmpl.trees[t].lowers; *p; p++)
			print_add(&h, *p);
	for (size_t i = 0; i < s->n_mounts; i++)
		if (s->mounts[i].host[0] == '/')
			print_add(&h, s->mounts[i].host);
	return h;
}

/* After an upgrade the program that we are is gone from its place. */
static bool program_is_gone(void)
{
	static const char gone[] = " (deleted)";
	char path[4096];
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);

	return n > (ssize_t)sizeof(gone) &&
	       !memcmp(path + n - (sizeof(gone) - 1), gone, sizeof(gone) - 1);
}

/* The template's name leads to what this box stands on. With the lock, until the row names it. */
static int template_same(struct keeper *k, struct den_err *err)
{
	const char *name = k->row.info.spec.template_name;
	enum plan_ids ids = wall_ids(NULL);
	struct template t = { 0 };
	char id[65];
	bool same;

	if (!strcmp(name, "empty"))
		return 0;
	if (bake_find(k->store, name, &(struct box_id){ { 0 } }))
		return den_fail(
			err, DEN_CONFLICT, 0, "the template '%.60s' has programs now", name);
	if (!strcmp(name, "host")) {
		if (template_open(k->store->fd, k->store->path, name, ids == IDS_MAPPED,
			    ids != IDS_SINGLE, NULL, NULL, &t, err) < 0)
			return -1;
		same = !strcmp(t.version, k->row.version);
		template_free(&t);
	} else {
		if ((k->image_lock < 0 && image_lock(k->store, false, &k->image_lock, err) < 0) ||
			image_find(k->store, name, id, err) < 0)
			return -1;
		same = !strcmp(id, k->row.version);
	}
	return same ? 0
		    : den_fail(err, DEN_CONFLICT, 0, "the template '%.60s' is another now", name);
}

static int still_fits(struct keeper *k, struct den_err *err)
{
	if (program_is_gone())
		return den_fail(err, DEN_CONFLICT, 0, "another den is installed now");
	if (template_same(k, err) < 0)
		return -1;
	return ground_print(k) == k->ready->print
		       ? 0
		       : den_fail(err, DEN_CONFLICT, 0, "what it stands on was made anew");
}

/* ---- the mark ---- */

static bool mark_there(const struct keeper *k)
{
	char path[128];

	mark_path(k, path);
	return faccessat(k->store->fd, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/* From here on it can be taken. Its text is whole before it has its place. */
static int mark_put(struct keeper *k, struct den_err *err)
{
	char path[128];

	if (mkdirat(k->store->fd, PLACE_READY, 0700) < 0 && errno != EEXIST)
		return den_fail_sys(err, errno, "make '%s'", PLACE_READY);
	for (int i = 0; i < 10;
		i++) { /* who takes the last of a shape away may take its folder, too */
		snprintf(path, sizeof(path), PLACE_READY "/%s", k->ready->shape.hex);
		if (mkdirat(k->store->fd, path, 0700) < 0 && errno != EEXIST)
			return den_fail_sys(err, errno, "make '%s'", path);
		mark_path(k, path);
		if (linkat(k->boxfd, OWN_MARK, k->store->fd, path, 0) == 0)
			return 0;
		if (errno != ENOENT)
			break;
	}
	return den_fail_sys(err, errno, "mark a ready box");
}

static int mark_write(struct keeper *k, struct den_err *err)
{
	auto_buf b = { 0 };

	box_info_put(&b, &k->row.info);
	return file_replace_at(k->boxfd, OWN_MARK, b.p, b.len, 0600, err);
}

/* true: it was there, and nobody else has it now */
static bool mark_take(struct keeper *k)
{
	char path[128];

	mark_path(k, path);
	return unlinkat(k->store->fd, path, 0) == 0;
}

static void ready_end(struct keeper *k)
{
	loop_timer_clear(&k->ready->look);
	free(k->ready);
	k->ready = NULL;
}

static void throw_away(struct keeper *k)
{
	struct den_err ignored;

	fd_close(&k->image_lock); /* taking it apart may take its time, and who removes a template waits for this */
	loop_timer_clear(&k->ready->look);
	(void)mark_take(k);
	(void)box_delete(k, &ignored);
	keeper_leave_if_done(k);
}

static void look_cb(struct loop_timer *t)
{
	struct kready *r = CONTAINER_OF(t, struct kready, look);
	struct keeper *k = r->k;
	struct den_err why;
	bool fits;

	loop_timer_set(k->loop, t, clock_mono_ns() + LOOK_MS * NS_PER_MS);
	if (!list_empty(&k->clients) || k->gone || k->working)
		return; /* whoever is there may be claiming it */
	if (!mark_there(k)) {
		throw_away(k); /* taken by one who did not come */
		return;
	}
	if (++r->looks % LOOKS_FIT)
		return;
	store_hold(k->store);
	fits = still_fits(k, &why) == 0;
	store_let_go(k->store);
	fd_close(&k->image_lock);
	if (!fits && mark_take(k))
		throw_away(k);
}

/* It may have taken the box and not wanted it after all. Or another has just taken it, and is about to come. */
void ready_client_gone(struct keeper *k)
{
	if (list_empty(&k->clients) && !mark_there(k))
		loop_timer_set(k->loop, &k->ready->look, clock_mono_ns() + COMING_MS * NS_PER_MS);
}

bool ready_refuses(struct client *c, const struct wire_frame *f)
{
	struct den_err err;

	switch (f->type) {
	case WM_HELLO:
	case WM_CLAIM:
		return false;
	case WM_DELETE:
		(void)mark_take(c->k);
		return false;
	default:
		den_fail(&err, DEN_NOT_FOUND, 0, "no box '%s'; 'den ls' lists them", c->k->id.s);
		conn_fail(&c->conn, f->chan, &err);
		return true;
	}
}

/* ---- making one ---- */

/* What is not of the shape comes with the claim. */
static void only_shape(struct box_spec *s)
{
	char **text[] = { &s->name, &s->user, &s->cwd, &s->owner };

	for (size_t i = 0; i < ARRAY_SIZE(text); i++) {
		free(*text[i]);
		*text[i] = NULL;
	}
	strv_free(s->env);
	strv_free(s->labels);
	s->env = s->labels = NULL;
	s->quota = s->nofile = s->max_runtime_ms = s->expires_ms = s->idle_ms = s->on_expire = s->on_idle = 0;
}

/* Certificates say when and for whom they were made: a box with any is not one like others. */
static int gate_fits(struct keeper *k, const struct box_spec *s, struct den_err *err)
{
	auto_free char *stored = NULL;
	auto_policy p = NULL;
	const char *text = s->policy;

	if (s->policy_name) {
		if (policy_stored_get(k->store, s->policy_name, &stored, err) < 0)
			return -1;
		text = stored;
	}
	if (!text)
		return 0;
	if (policy_parse(text, strlen(text), &p, err) < 0)
		return -1;
	if (p->n_secrets || p->identity.n_adds || p->trust)
		return den_fail(err, DEN_UNSUPPORTED, 0,
			"a box whose policy grants secrets or tokens, or trusts an authority, "
			"is made when it is asked for");
	return 0;
}

static int make(struct keeper *k, const struct wire_frame *f, bool guest, struct den_err *err)
{
	struct box_spec *s = &k->row.info.spec;

	if (box_spec_get(f->p, f->len, s, err) < 0 || (guest && guest_spec(s, err) < 0))
		return -1;
	k->row.slot = UINT64_MAX;
	k->row.pending = -1;
	if (!shape_of(s, &k->ready->shape, NULL))
		return den_fail(err, DEN_UNSUPPORTED, 0,
			"no box can be ready for that: forks, throwaway boxes and published ports "
			"are made when asked for");
	only_shape(s);
	if (create_settle(k, s, err) < 0 || gate_fits(k, s, err) < 0)
		return -1;
	if (bake_find(k->store, s->template_name, &(struct box_id){ { 0 } }))
		return den_fail(err, DEN_UNSUPPORTED, 0,
			"'%.60s' has programs that run: its boxes are made when they are asked for",
			s->template_name);
	k->row.info.generation = s->policy || s->policy_name;
	k->ops = wall_find(s->wall, err);
	if (!k->ops || box_id_make(&k->id, err) < 0)
		return -1;
	s->id = mem_strdup(k->id.s);
	k->row.info.created_ms = clock_wall_ms();
	k->has_box = true;
	if (create_build(k, err) < 0 || listen_for_clients(k, err) < 0)
		return -1;
	k->ready->print = ground_print(k);
	box_settle(k);
	return mark_write(k, err) < 0 ? -1 : mark_put(k, err);
}

int req_ready(struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err)
{
	struct keeper *k = c->k;
	int r;

	if (k->has_box)
		return den_fail(err, DEN_CONFLICT, 0, "this keeper has a box already");
	k->ready = mem_new(struct kready);
	k->ready->k = k;
	k->ready->look.cb = look_cb;
	store_hold(k->store);
	r = make(k, f, c->guest, err);
	store_let_go(k->store);
	fd_close(&k->image_lock);
	if (r < 0) {
		struct den_err why = *err;

		if (k->has_box)
			create_undo(k);
		*err = why;
		k->gone = true;
		return -1;
	}
	loop_timer_set(k->loop, &k->ready->look, clock_mono_ns() + LOOK_MS * NS_PER_MS);
	wire_put_str(out, F_ID, k->id.s);
	return 0;
}

/* ---- claiming it ---- */

static bool same_text(const char *a, const char *b)
{
	return (!a && !b) || (a && b && !strcmp(a, b));
}

/* Before anything is changed: a claim that does not fit leaves the box as it was. */
static int claim_check(struct keeper *k, bool guest, struct box_spec *want, struct den_err *err)
{
	struct shape shape;

	if (guest && guest_spec(want, err) < 0)
		return -1;
	if (!shape_of(want, &shape, NULL) || strcmp(shape.hex, k->ready->shape.hex))
		return den_fail(err, DEN_CONFLICT, 0, "the ready box is of another shape");
	return create_settle(k, want, err) < 0 ? -1 : gate_fits(k, want, err);
}

/* The gate has the policy that the box was made with, and tells the box's name to whoever is refused. */
static int claim_gate(struct keeper *k, const struct box_spec *was, struct den_err *err)
{
	const struct box_spec *s = &k->row.info.spec;
	uint64_t ended;

	if (!s->policy_name && !s->name && same_text(s->policy, was->policy))
		return 0;
	k->gate->strict = true;
	return gate_load(k->gate, err) < 0 ? -1 : gate_change(k, &ended, err);
}

/* From here on there is no way back: it becomes this box, or goes. */
static int become(struct keeper *k, struct client *c, struct box_spec *want, struct den_err *err)
{
	struct box_spec was = k->row.info.spec;
	struct box_info *i = &k->row.info;
	int r;

	i->spec = *want;
	*want = (struct box_spec){ 0 };
	i->spec.id = mem_strdup(k->id.s);
	i->generation = i->spec.policy || i->spec.policy_name;
	i->created_ms = i->started_ms = clock_wall_ms();
	create_defaults(k);
	r = claim_gate(k, &was, err);
	box_spec_free(&was);
	if (r < 0 || lease_possible(k, err) < 0 || create_row(k, err) < 0)
		return -1;
	c->owner = false;
	return 0;
}

static int claim(struct keeper *k, struct client *c, struct box_spec *want, struct den_err *err)
{
	auto_free char *name = NULL;

	if (claim_check(k, c->guest, want, err) < 0)
		return -1;
	if (still_fits(k, err) < 0) {
		throw_away(k);
		err->code =
			DEN_NOT_FOUND; /* another may fit: it is the box's fault, not the claim's */
		return -1;
	}
	if (want->name && store_claim_name(k->store, want->name, &k->id, err) < 0)
		return -1;
	(void)mark_take(k); /* who claims has; else nobody else gets it any more */
	name = want->name ? mem_strdup(want->name) : NULL;
	if (become(k, c, want, err) == 0)
		return 0;
	if (name)
		store_release_name(k->store, name, &k->id);
	throw_away(k);
	return -1;
}

int req_claim(struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err)
{
	struct keeper *k = c->k;
	struct box_spec want = { 0 };
	int r;

	if (!k->ready)
		return den_fail(err, DEN_CONFLICT, 0, "the box is somebody's already");
	if (box_spec_get(f->p, f->len, &want, err) < 0)
		return -1;
	store_hold(k->store);
	r = claim(k, c, &want, err);
	store_let_go(k->store);
	fd_close(&k->image_lock);
	box_spec_free(&want);
	if (r < 0) {
		struct den_err why = *err, ignored;

		if (!k->gone && !mark_there(k) &&
			mark_put(k, &ignored) < 0) /* it fits others as before */
			throw_away(k);
		*err = why;
		return -1;
	}
	ready_end(k);
	unlinkat(k->boxfd, OWN_MARK, 0);
	lease_busy(k);
	lease_arm(k);
	box_arm_runtime(k);
	feed_state(k, "box.created");
	feed_state(k, "box.started");
	wire_put_str(out, F_ID, k->id.s);
	return 0;
}

/* ---- the clerk ---- */

typedef void (*each_mark)(struct store *s, int dir, const char *shape, const char *id, void *user);

static void marks_each(struct store *s, each_mark fn, void *user)
{
	int top = openat(s->fd, PLACE_READY, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = top < 0 ? NULL : fdopendir(top);
	struct dirent *shape, *one;

	while (d && (shape = readdir(d))) {
		int fd = shape->d_name[0] == '.'
				 ? -1
				 : openat(top, shape->d_name,
					   O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		DIR *below = fd < 0 ? NULL : fdopendir(fd);

		while (below && (one = readdir(below)))
			if (box_id_parse(one->d_name, &(struct box_id){ { 0 } }, NULL) == 0)
				fn(s, fd, shape->d_name, one->d_name, user);
		if (below)
			closedir(below);
	}
	if (d)
		closedir(d);
}

static bool box_kept(struct store *s, const char *text)
{
	auto_fd boxfd = -1, lock = -1;
	struct box_id id;

	if (box_id_parse(text, &id, NULL) < 0 || place_box(s->fd, &id, &boxfd, NULL) < 0)
		return false;
	lock = openat(boxfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return lock >= 0 && flock(lock, LOCK_SH | LOCK_NB) < 0 && errno == EWOULDBLOCK;
}

struct list_out {
	struct buf *out;
	struct conn *to;
};

static void list_mark(struct store *s, int dir, const char *shape, const char *id, void *user)
{
	struct list_out *o = user;
	auto_free char *text = NULL;
	auto_fd fd = openat(dir, id, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	struct den_err err;
	size_t n;

	(void)shape;
	if (fd < 0 || !box_kept(s, id) || fd_read_all(fd, MARK_MAX, &text, &n, &err) < 0)
		return;
	if (o->out->len + n > WIRE_MAX_PAYLOAD / 2) {
		conn_send_buf(o->to, WM_READY_LIST, 0, o->out);
		o->out->len = 0;
	}
	wire_put_bytes(o->out, F_RECORD, text, n);
}

int clerk_ready_list(
	struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err)
{
	struct list_out o = { out, &c->conn };

	(void)f, (void)err;
	marks_each(c->k->store, list_mark, &o);
	return 0;
}

struct sweep {
	void (*removed)(const char *what, void *user);
	void *user;
};

static void sweep_mark(struct store *s, int dir, const char *shape, const char *id, void *user)
{
	struct sweep *w = user;
	char text[128];

	if (box_kept(s, id) || unlinkat(dir, id, 0) < 0)
		return;
	snprintf(text, sizeof(text), PLACE_READY "/%.12s/%s", shape, id);
	w->removed(text, w->user);
}

void ready_sweep(struct store *s, void (*removed)(const char *what, void *user), void *user)
{
	struct sweep w = { removed, user };
	int top = openat(s->fd, PLACE_READY, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = top < 0 ? NULL : fdopendir(top);
	struct dirent *de;

	marks_each(s, sweep_mark, &w);
	while (d && (de = readdir(d)))
		if (de->d_name[0] != '.')
			(void)unlinkat(top, de->d_name, AT_REMOVEDIR); /* those that are empty */
	if (d)
		closedir(d);
}
