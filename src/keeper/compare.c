/*
 * Diff and merge.
 *
 * A merge is worked out by a job, and applied by the client, through init like any file operation:
 *   MERGE      the keeper makes a checkpoint of the present and writes down that a merge is pending;
 *              the job tells conflicts, or sends the result as a layer
 *   (client)   unpacks the layer in the box
 *   MERGE_END  a checkpoint is made, and the pending mark goes in the same transaction
 * Whoever finds the mark without a merge under way (the client went, a keeper died) rolls back: nothing
 * half-applied stays.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "change.h"
#include "fd.h"
#include "job.h"
#include "merge.h"
#include "strv.h"

/* ---- views of checkpoints ---- */

struct point {
	char box[32];
	uint64_t number;
};

/* Opens pool/BOX/cN/uT and the template's layers for each tree. A missing cN is the template alone. */
static int view_open(struct keeper *k, const struct point *at, struct view *ret, struct den_err *err)
{
	struct view v = { .own = wall_ids(NULL) == IDS_SINGLE };
	auto_fd top = -1;
	char name[64];
	int hold;

	snprintf(name, sizeof(name), "%s/c%llu", at->box, (unsigned long long)at->number);
	top = pool_hold(k->pool, name, &hold, err); /* what it holds stays open until the job ends */
	if (top < 0 && (err->sys != ENOENT || at->number || !home_begins_bare(k, at->box)))
		return den_wrap(err, "checkpoint %s@%llu", at->box, (unsigned long long)at->number);
	if (top >= 0)
		(void)fcntl(top, F_DUPFD_CLOEXEC, 3);
	if (top >= 0 && wall_open_disk(&top, err) < 0)
		return den_wrap(err, "checkpoint %s@%llu", at->box, (unsigned long long)at->number);
	v.trees = mem_alloc(sizeof(*v.trees) * (k->tmpl.n_trees + 1));
	for (size_t t = 0; t < k->tmpl.n_trees; t++) {
		size_t n = strv_len(k->tmpl.trees[t].lowers);
		struct view_tree *tree = &v.trees[v.n_trees++];

		*tree = (struct view_tree){ .at = k->tmpl.trees[t].at, .layers = mem_alloc(sizeof(int) * (n + 1)) };
		snprintf(name, sizeof(name), "u%zu", t);
		tree->layers[0] = top < 0 ? -1 : openat(top, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (top >= 0 && tree->layers[0] < 0)
			return den_fail_sys(err, errno, "open layer '%s'", name);
		tree->n_layers = top >= 0;
		for (size_t i = 0; i < n; i++) {
			int fd = open(k->tmpl.trees[t].lowers[i], O_RDONLY | O_DIRECTORY | O_CLOEXEC);

			if (fd < 0)
				return den_fail_sys(err, errno, "open '%s'", k->tmpl.trees[t].lowers[i]);
			tree->layers[tree->n_layers++] = fd;
		}
		tree->n_own = top >= 0;
	}
	*ret = v;
	return 0;
}

/* ---- diff ---- */

struct diff {
	struct keeper *k;
	struct point a, b;
	struct view va, vb;
	uint64_t form;
	const struct job_out *out;
};

static int diff_prepare(void *arg, struct den_err *err)
{
	struct diff *d = arg;

	return view_open(d->k, &d->a, &d->va, err) < 0 || view_open(d->k, &d->b, &d->vb, err) < 0 ? -1 : 0;
}

static int diff_record(const struct change *c, void *user, struct den_err *err)
{
	static const char *const kinds[] = { "added", "removed", "modified", "meta" };
	struct diff *d = user;
	const struct view_node *n = c->kind == CHANGE_REMOVED ? &c->a : &c->b;
	auto_buf rec = { 0 };
	char type[2] = { c->kind == CHANGE_REMOVED ? c->type_a : c->type_b, 0 };

	wire_put_str(&rec, F_PATH, c->path);
	wire_put_str(&rec, F_KIND, kinds[c->kind]);
	wire_put_str(&rec, F_TYPE, type);
	wire_put_u64(&rec, F_WHAT, c->what);
	wire_put_u64(&rec, F_MODE, n->st.st_mode & 07777);
	wire_put_u64(&rec, F_SIZE, (uint64_t)n->st.st_size);
	return job_record(d->out, &rec, err);
}

static int diff_run(void *arg, const struct job_out *out, struct den_err *err)
{
	struct diff *d = arg;

	d->out = out;
	if (d->form == DIFF_TEXT)
		return changes_text(&d->va, &d->vb, job_data, (void *)out, err);
	if (d->form == DIFF_TAR)
		return changes_tar(&d->va, &d->vb, job_data, (void *)out, err);
	return changes_each(&d->va, &d->vb, diff_record, d, err);
}

static int point_of(struct keeper *k, const char *ref, struct point *ret, struct den_err *err)
{
	if (box_point(k, ref, &ret->number, err) < 0)
		return -1;
	snprintf(ret->box, sizeof(ret->box), "%s", k->id.s);
	return 0;
}

int req_diff(struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err)
{
	auto_free char *a = NULL, *b = NULL;
	struct keeper *k = c->k;
	struct diff d = { .k = k, .form = field_u64(f, F_FLAGS, 0) };
	struct job_spec spec = { diff_prepare, diff_run, &d, false, false };
	auto_fd stream = -1;

	(void)out;
	if (job_stream(c, &stream, err) < 0 || field_str(f, F_REF, 64, &a, err) < 0 ||
		field_str(f, F_REF2, 64, &b, err) < 0)
		return -1;
	if (d.form > DIFF_TAR)
		return den_fail(err, DEN_INVALID, 0, "no such form of a diff");
	if (open_template(k, err) < 0 || point_of(k, a && *a ? a : "base", &d.a, err) < 0 ||
		point_of(k, b, &d.b, err) < 0)
		return -1;
	return job_start(k, &spec, stream, NULL, NULL, err);
}

/* ---- merge ---- */

struct merging {
	struct keeper *k;
	struct point base, ours, theirs;
	struct view vb, vo, vt;
	struct merge_rule *rules;
	size_t n_rules;
	char **paths; /* what the rules point into */
	const struct job_out *out;
};

static int merge_prepare(void *arg, struct den_err *err)
{
	struct merging *m = arg;

	return view_open(m->k, &m->base, &m->vb, err) < 0 || view_open(m->k, &m->ours, &m->vo, err) < 0 ||
			view_open(m->k, &m->theirs, &m->vt, err) < 0 ?
		-1 : 0;
}

static int merge_conflict(const struct merge_conflict *c, void *user, struct den_err *err)
{
	struct merging *m = user;
	auto_buf rec = { 0 };

	wire_put_str(&rec, F_PATH, c->path);
	wire_put_str(&rec, F_REASON, c->why);
	return job_record(m->out, &rec, err);
}

static int merge_sink(const void *p, size_t n, void *user, struct den_err *err)
{
	struct merging *m = user;

	return job_data(p, n, (void *)m->out, err);
}

static int merge_counts(const struct job_out *out, const struct merge_result *r, struct den_err *err)
{
	auto_buf rec = { 0 };

	wire_put_u64(&rec, F_COUNT, r->taken);
	wire_put_u64(&rec, F_COUNT, r->agreed);
	wire_put_u64(&rec, F_COUNT, r->merged);
	wire_put_u64(&rec, F_COUNT, r->kept);
	wire_put_u64(&rec, F_COUNT, r->conflicts);
	wire_put_u64(&rec, F_COUNT, r->lost);
	return job_record(out, &rec, err);
}

static int merge_run(void *arg, const struct job_out *out, struct den_err *err)
{
	struct merging *m = arg;
	struct merge_result r = { 0 };

	m->out = out;
	if (merge_views(&m->vb, &m->vo, &m->vt, m->rules, m->n_rules, merge_conflict, NULL, m, &r, err) < 0)
		return -1;
	if (merge_counts(out, &r, err) < 0)
		return -1;
	if (r.conflicts)
		return den_fail(err, DEN_CONFLICT, 0, "%llu paths conflict; nothing was changed",
			(unsigned long long)r.conflicts);
	if (!r.taken && !r.merged)
		return 0;
	if (merge_views(&m->vb, &m->vo, &m->vt, m->rules, m->n_rules, merge_conflict, merge_sink, m, &r, err) < 0)
		return -1;
	return r.lost ? merge_counts(out, &r, err) : 0; /* that is known only now */
}

static int merge_rules(const struct wire_frame *f, struct merging *m, struct den_err *err)
{
	struct wire_reader rd = wire_reader(f->p, f->len);
	struct wire_value v;
	uint64_t choice;
	int r;

	while ((r = wire_next(&rd, &v, err)) > 0) {
		if (v.tag == F_RULE) {
			auto_free char *text = NULL;
			const char *path;

			if (m->n_rules == 1000 || wire_str(&v, 4096, &text, err) < 0)
				return den_fail(err, DEN_INVALID, 0, "too many or too long rules");
			strv_add(&m->paths, text);
			path = m->paths[m->n_rules];
			m->rules = mem_realloc(m->rules, (m->n_rules + 1) * sizeof(*m->rules));
			m->rules[m->n_rules++] = (struct merge_rule){ path[strspn(path, "/")] ? path + strspn(path, "/") : NULL, MERGE_ASK };
		} else if (v.tag == F_CHOICE && m->n_rules) {
			if (wire_u64(&v, 1, &choice, err) < 0)
				return -1;
			m->rules[m->n_rules - 1].choice = choice ? MERGE_THEIRS : MERGE_OURS;
		}
	}
	return r;
}

/* "ID@N", checked. */
static int point_parse(const char *text, struct point *ret, struct box_id *id, struct den_err *err)
{
	const char *at = text ? strchr(text, '@') : NULL;
	size_t n = at ? (size_t)(at - text) : 0;

	if (!at || n >= sizeof(ret->box) || !at[1] || strspn(at + 1, "0123456789") != strlen(at + 1) ||
		strlen(at + 1) > 18)
		return den_fail(err, DEN_INVALID, 0, "'%.60s' is no checkpoint", text ? text : "");
	memcpy(ret->box, text, n);
	ret->box[n] = '\0';
	ret->number = strtoull(at + 1, NULL, 10);
	return box_id_parse(ret->box, id, err);
}

static int merge_points(struct keeper *k, const char *from, struct merging *m, struct den_err *err)
{
	struct box_row other = { 0 };
	struct box_id fork, base;
	int r;

	if (point_parse(from, &m->theirs, &fork, err) < 0 || store_get(k->store, &fork, &other, err) < 0)
		return -1;
	r = strcmp(other.version, k->row.version) ?
		den_fail(err, DEN_CONFLICT, 0, "the two boxes stand on different templates") : 0;
	box_row_free(&other);
	if (r < 0 || box_point(k, NULL, &m->ours.number, err) < 0)
		return -1;
	snprintf(m->ours.box, sizeof(m->ours.box), "%s", k->id.s);
	if (history_ancestor(k->store, &k->id, m->ours.number, &fork, m->theirs.number, &base, &m->base.number,
		    err) < 0)
		return -1;
	snprintf(m->base.box, sizeof(m->base.box), "%s", base.s);
	return 0;
}

/* A box that was stopped, and ran for the merge alone, stops again however that went. */
static void back_down(struct keeper *k)
{
	if (!k->merge_was_down || !box_is_up(k))
		return;
	k->stopping = true;
	box_down(k, NULL);
}

static int merge_begin(struct keeper *k, struct merging *m, const char *from, struct client *c, int stream,
	struct den_err *err)
{
	struct job_spec spec = { merge_prepare, merge_run, m, false, false };
	struct den_err ignored;

	k->merge_was_down = !box_is_up(k);
	if (k->merge_was_down && (box_up(k, err) < 0 || box_save(k, err) < 0)) {
		back_down(k);
		return -1;
	}
	k->row.pending = (int64_t)m->ours.number;
	if (store_put(k->store, &k->row, err) < 0 || job_start(k, &spec, stream, NULL, NULL, err) < 0) {
		k->row.pending = -1;
		(void)store_put(k->store, &k->row, &ignored);
		back_down(k);
		return -1;
	}
	k->merging = true;
	c->merging = true;
	free(k->merge_from);
	k->merge_from = mem_strdup(from);
	return 0;
}

int req_merge(struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err)
{
	struct keeper *k = c->k;
	struct merging m = { .k = k };
	auto_free char *from = NULL;
	auto_fd stream = -1;
	int r;

	(void)out;
	if (job_stream(c, &stream, err) < 0 || field_str(f, F_FROM, 64, &from, err) < 0)
		return -1;
	if (k->merging)
		return den_fail(err, DEN_CONFLICT, 0, "another merge into this box is under way");
	if (k->row.info.state == BOX_PAUSED)
		return den_fail(err, DEN_CONFLICT, 0, "the box is paused; 'den resume' lets it go on");
	r = open_template(k, err) < 0 || merge_rules(f, &m, err) < 0 || merge_points(k, from, &m, err) < 0 ||
			pool_has_room(k->pool, err) < 0 || /* what is merged needs a checkpoint in the end */
			merge_begin(k, &m, from, c, stream, err) < 0 ?
		-1 : 0;
	strv_free(m.paths);
	free(m.rules);
	return r;
}

/* What was written besides the merge meanwhile can be had from a checkpoint. The mark stays until the row
 * names the work without it: if this keeper dies before, the next one goes on here. */
static int merge_give_up(struct keeper *k, bool touched, struct den_err *err)
{
	uint64_t fallback = (uint64_t)k->row.pending, before;

	if (touched) {
		int r = box_checkpoint_if_changed(k, CKPT_ROLLBACK, "a merge that was given up", &before, err);

		/* what cannot be kept is not thrown away: the mark stays, the next keeper tries again */
		if (r)
			return r < 0 ? -1 : box_rollback(k, fallback, false, false, &before, err);
	}
	k->row.pending = -1;
	return store_put(k->store, &k->row, err);
}

static int merge_done(struct keeper *k, enum merge_end how, uint64_t *ret, struct den_err *err)
{
	auto_buf message = { 0 };

	k->merging = false;
	if (how != MERGE_END_DONE)
		return merge_give_up(k, how != MERGE_END_UNTOUCHED, err);
	buf_addf(&message, "merge of %s", k->merge_from);
	/* the mark goes in the same transaction */
	return box_checkpoint(k, CKPT_MERGE, buf_str(&message), k->merge_from, ret, err);
}

void merge_lost(struct keeper *k)
{
	struct den_err err;
	uint64_t number;

	if (!k->merging || k->gone)
		return;
	(void)merge_done(k, MERGE_END_BROKEN, &number, &err);
	back_down(k);
}

void merge_client_gone(struct client *c)
{
	struct keeper *k = c->k;

	if (!c->merging || !k->merging)
		return;
	c->merging = false;
	if (k->working || k->pool->kind == POOL_PLAIN) {
		k->merge_lost = true;
		work_due(k);
	} else {
		merge_lost(k);
	}
}

int req_merge_end(struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err)
{
	struct keeper *k = c->k;
	uint64_t how = field_u64(f, F_FLAGS, 0), number = 0;
	int r;

	if (!c->merging || !k->merging)
		return den_fail(err, DEN_CONFLICT, 0, "no merge is under way");
	if (how == MERGE_END_DONE && k->row.pending < 0)
		return den_fail(err, DEN_CONFLICT, 0, "the box was rolled back while it was being merged into");
	c->merging = false;
	r = merge_done(k, (enum merge_end)how, &number, err);
	back_down(k);
	if (r == 0 && how == MERGE_END_DONE)
		wire_put_u64(out, F_NUMBER, number);
	return r;
}
