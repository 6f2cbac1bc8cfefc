/* History: checkpoints, rollback, forks, comparing, merging. */
#include <stdlib.h>
#include <string.h>

#include "lib.h"
#include "mem.h"

int den_checkpoint(struct den_box *box, const char *message, uint64_t *ret_number, struct den_err *err)
{
	auto_buf req = { 0 }, out = { 0 };

	wire_put_str(&req, F_MSG, message);
	if (box_ask(box, WM_CHECKPOINT, &req, 0, &out, err) < 0)
		return -1;
	if (ret_number)
		*ret_number = wire_find_u64(out.p, out.len, F_NUMBER, 0);
	return 0;
}

/* ---- log ---- */

static int checkpoint_read(const char *p, size_t n, struct den_checkpoint *c, struct den_err *err)
{
	struct wire_reader rd = wire_reader(p, n);
	struct wire_value v;
	int r;

	c->parent = -1;
	while ((r = wire_next(&rd, &v, err)) > 0) {
		uint64_t u = 0;
		char *s = NULL;
		bool text = v.tag == F_KIND || v.tag == F_MSG || v.tag == F_ORIGIN || v.tag == F_TAG;

		if ((text ? wire_str(&v, 65536, &s, err) : wire_u64(&v, UINT64_MAX, &u, err)) < 0)
			return -1;
		switch (v.tag) {
		case F_NUMBER: c->number = u; break;
		case F_PARENT: c->parent = (int64_t)u - 1; break;
		case F_CREATED_MS: c->created_ms = (int64_t)u; break;
		case F_TURN: c->turn = u; break;
		case F_SIZE: c->size = u; break;
		case F_HEAD: c->head = u; break;
		case F_FULL: c->full = u; break;
		case F_IMAGES: c->memory = u; break;
		case F_IMAGES_DISK: c->memory_disk = u; break;
		case F_IMAGES_SHARED: c->memory_shared = u; break;
		case F_KIND: c->kind = s; break;
		case F_MSG: c->message = s; break;
		case F_ORIGIN: c->origin = s; break;
		case F_TAG: c->tags = s; break;
		default:
			return wire_unexpected(&v, err);
		}
	}
	return r;
}

void den_checkpoints_free(struct den_checkpoint *c, size_t n)
{
	for (size_t i = 0; c && i < n; i++) {
		free((void *)c[i].kind);
		free((void *)c[i].message);
		free((void *)c[i].origin);
		free((void *)c[i].tags);
	}
	free(c);
}

int den_log(struct den_box *box, struct den_checkpoint **ret, size_t *ret_n, struct den_err *err)
{
	auto_buf out = { 0 };
	struct den_checkpoint *all = NULL;
	struct wire_reader rd;
	struct wire_value v;
	size_t n = 0;

	if (box_ask(box, WM_LOG, NULL, WM_RECORD, &out, err) < 0)
		return -1;
	rd = wire_reader(out.p, out.len);
	while (wire_next(&rd, &v, NULL) > 0) {
		if (v.tag != F_RECORD)
			continue;
		all = mem_realloc(all, (n + 1) * sizeof(*all));
		all[n] = (struct den_checkpoint){ 0 };
		if (checkpoint_read(v.p, v.len, &all[n++], err) < 0) {
			den_checkpoints_free(all, n);
			return -1;
		}
	}
	*ret = all ? all : mem_zalloc(1);
	*ret_n = n;
	return 0;
}

int den_tag(struct den_box *box, const char *ref, const char *tag, bool remove, struct den_err *err)
{
	auto_buf req = { 0 };

	wire_put_str(&req, F_REF, ref);
	wire_put_str(&req, F_TAG, tag);
	wire_put_u64(&req, F_FLAGS, remove);
	return box_ask(box, WM_TAG, &req, 0, NULL, err);
}

/* ---- back and beside ---- */

static int go_back(struct den_box *box, const struct buf *req, uint64_t *ret_before, struct den_err *err)
{
	auto_buf out = { 0 };

	if (box_ask(box, WM_ROLLBACK, req, 0, &out, err) < 0)
		return -1;
	if (ret_before)
		*ret_before = wire_find_u64(out.p, out.len, F_NUMBER, 0);
	return 0;
}

int den_rollback(struct den_box *box, const char *ref, uint64_t *ret_before, struct den_err *err)
{
	auto_buf req = { 0 };

	wire_put_str(&req, F_REF, ref);
	return go_back(box, &req, ret_before, err);
}

int den_undo(struct den_box *box, unsigned turns, uint64_t *ret_before, struct den_err *err)
{
	auto_buf req = { 0 };

	if (!turns)
		return den_fail(err, DEN_INVALID, 0, "undo how many turns?");
	wire_put_u64(&req, F_COUNT, turns);
	return go_back(box, &req, ret_before, err);
}

int den_prune(struct den_box *box, uint64_t keep_ms, bool all, uint64_t *ret_removed, struct den_err *err)
{
	auto_buf req = { 0 }, out = { 0 };

	wire_put_u64(&req, F_TIMEOUT_MS, keep_ms);
	wire_put_u64(&req, F_FLAGS, all);
	if (box_ask(box, WM_PRUNE, &req, 0, &out, err) < 0)
		return -1;
	if (ret_removed)
		*ret_removed = wire_find_u64(out.p, out.len, F_COUNT, 0);
	return 0;
}

static int fork_point(struct den_box *box, const char *ref, char **ret, struct den_err *err)
{
	auto_buf req = { 0 }, out = { 0 };
	struct wire_reader rd;
	struct wire_value v;

	wire_put_str(&req, F_REF, ref);
	if (box_ask(box, WM_FORK_POINT, &req, 0, &out, err) < 0)
		return -1;
	rd = wire_reader(out.p, out.len);
	while (wire_next(&rd, &v, NULL) > 0)
		if (v.tag == F_FROM)
			return wire_str(&v, 64, ret, err);
	return den_fail(err, DEN_INTERNAL, 0, "no checkpoint in the answer");
}

int den_box_fork(struct den_box *box, const char *ref, const char *name, struct den_box **ret, struct den_err *err)
{
	auto_free char *from = NULL;

	if (fork_point(box, ref, &from, err) < 0)
		return -1;
	return box_create_from(box->d, from, false, &(struct den_box_spec){ .size = sizeof(struct den_box_spec), .name = name },
		ret, err);
}

int box_fork_check(const struct den_box_spec *over, struct den_err *err)
{
	if (over && (over->template_name || over->wall || over->net || over->hostname || over->user || over->workdir ||
			    over->env || over->n_mounts || over->cpu_milli || over->memory || over->pids || over->disk ||
			    over->nofile || over->max_runtime_ms || over->history || over->publish || over->reseed))
		return den_fail(err, DEN_INVALID, 0,
			"a fork has its limits, template and all but name, owner, labels, lease and policy from its box");
	return 0;
}

int den_box_fork_as(struct den_box *box, const char *ref, const struct den_box_spec *over, struct den_box **ret,
	struct den_err *err)
{
	auto_free char *from = NULL;

	if (box_fork_check(over, err) < 0 || fork_point(box, ref, &from, err) < 0)
		return -1;
	return box_create_from(box->d, from, false, over, ret, err);
}

int den_box_try(struct den_box *box, const char *ref, struct den_box **ret, struct den_err *err)
{
	auto_free char *from = NULL;

	if (fork_point(box, ref, &from, err) < 0)
		return -1;
	return box_create_from(box->d, from, false,
		&(struct den_box_spec){ .size = sizeof(struct den_box_spec), .ephemeral = true }, ret, err);
}

/* ---- diff ---- */

static int diff_ask(struct den_box *box, const char *a, const char *b, enum diff_form form, struct stream *s,
	struct den_err *err)
{
	auto_buf req = { 0 };

	wire_put_str(&req, F_REF, a);
	wire_put_str(&req, F_REF2, b);
	wire_put_u64(&req, F_FLAGS, form);
	return box_ask_stream(box, WM_DIFF, &req, NULL, &s->fd, err);
}

static int change_out(const struct wire_frame *f, den_change_fn fn, void *user, struct den_err *err)
{
	struct wire_reader rd = wire_reader(f->p, f->len);
	auto_free char *path = NULL, *kind = NULL, *type = NULL, *full = NULL;
	struct den_change c = { 0 };
	struct wire_value v;
	uint64_t u;
	int r;

	while ((r = wire_next(&rd, &v, err)) > 0) {
		if (v.tag == F_PATH)
			r = wire_str(&v, 65536, &path, err);
		else if (v.tag == F_KIND)
			r = wire_str(&v, 16, &kind, err);
		else if (v.tag == F_TYPE)
			r = wire_str(&v, 1, &type, err);
		else if ((r = wire_u64(&v, UINT64_MAX, &u, err)) == 0 && v.tag == F_WHAT)
			c.what = (unsigned)u;
		else if (r == 0 && v.tag == F_MODE)
			c.mode = (uint32_t)u;
		else if (r == 0 && v.tag == F_SIZE)
			c.size = u;
		if (r < 0)
			return -1;
	}
	if (r < 0 || !path || !kind)
		return den_fail(err, DEN_INTERNAL, 0, "a change without a path");
	full = mem_alloc(strlen(path) + 2);
	full[0] = '/';
	memcpy(full + 1, path, strlen(path) + 1);
	c.path = full;
	c.kind = kind;
	c.type = type ? type[0] : '?';
	return fn(&c, user, err);
}

int den_diff(struct den_box *box, const char *a, const char *b, den_change_fn fn, void *user, struct den_err *err)
{
	auto_stream s = { .fd = -1 };
	struct wire_frame f;
	int r;

	if (diff_ask(box, a, b, DIFF_RECORDS, &s, err) < 0)
		return -1;
	while ((r = stream_next(&s, &f, err)) > 0)
		if (f.type == WM_RECORD && change_out(&f, fn, user, err) < 0)
			return -1;
	return r;
}

int den_diff_text(struct den_box *box, const char *a, const char *b, den_sink sink, void *user, struct den_err *err)
{
	auto_stream s = { .fd = -1 };

	return diff_ask(box, a, b, DIFF_TEXT, &s, err) < 0 ? -1 : stream_to_sink(&s, sink, user, err);
}

int den_diff_tar(struct den_box *box, const char *a, const char *b, den_sink sink, void *user, struct den_err *err)
{
	auto_stream s = { .fd = -1 };

	return diff_ask(box, a, b, DIFF_TAR, &s, err) < 0 ? -1 : stream_to_sink(&s, sink, user, err);
}

/* ---- merge ---- */

struct merge {
	struct stream stream;
	struct wire_frame frame; /* the part being handed out */
	size_t used;
	struct den_merge_result result;
	int (*conflict)(const char *path, const char *why, void *user, struct den_err *err);
	void *user;
};

/* A conflict, or the counts. */
static int merge_record(struct merge *m, const struct wire_frame *f, struct den_err *err)
{
	uint64_t *const counts[] = { &m->result.taken, &m->result.agreed, &m->result.merged, &m->result.kept,
		&m->result.conflicts, &m->result.lost };
	struct wire_reader rd = wire_reader(f->p, f->len);
	auto_free char *path = NULL, *why = NULL;
	struct wire_value v;
	size_t n = 0;
	int r;

	while ((r = wire_next(&rd, &v, err)) > 0) {
		if (v.tag == F_PATH)
			r = wire_str(&v, 65536, &path, err);
		else if (v.tag == F_REASON)
			r = wire_str(&v, 4096, &why, err);
		else if (v.tag == F_COUNT && n < ARRAY_SIZE(counts))
			r = wire_u64(&v, UINT64_MAX, counts[n++], err);
		if (r < 0)
			return -1;
	}
	if (r == 0 && path && m->conflict)
		r = m->conflict(path, why ? why : "", m->user, err);
	return r;
}

/* The next bytes of the layer. */
static ssize_t merge_source(void *buf, size_t cap, void *user, struct den_err *err)
{
	struct merge *m = user;
	size_t n;

	while (m->used == m->frame.len) {
		int r = stream_next(&m->stream, &m->frame, err);

		m->used = 0;
		if (r <= 0)
			return r;
		if (m->frame.type != WM_OUT) {
			if (merge_record(m, &m->frame, err) < 0)
				return -1;
			m->frame.len = 0;
		}
	}
	n = MIN(cap, (size_t)(m->frame.len - m->used));
	memcpy(buf, m->frame.p + m->used, n);
	m->used += n;
	return (ssize_t)n;
}

/* Up to the first byte of the layer. 1: there is one; 0: nothing to apply */
static int merge_listen(struct merge *m, struct den_err *err)
{
	int r;

	while ((r = stream_next(&m->stream, &m->frame, err)) > 0) {
		if (m->frame.type == WM_OUT)
			return 1;
		if (merge_record(m, &m->frame, err) < 0)
			return -1;
	}
	m->frame.len = 0;
	return r;
}

static int merge_end(struct den_box *box, enum merge_end how, struct merge *m, struct den_err *err)
{
	auto_buf req = { 0 }, out = { 0 };

	wire_put_u64(&req, F_FLAGS, how);
	if (box_ask(box, WM_MERGE_END, &req, 0, &out, err) < 0)
		return -1;
	if (how == MERGE_END_DONE)
		m->result.checkpoint = (int64_t)wire_find_u64(out.p, out.len, F_NUMBER, 0);
	return 0;
}

static int merge_ask(struct den_box *box, const char *from, const struct den_merge_rule *rules, size_t n_rules,
	struct merge *m, struct den_err *err)
{
	auto_buf req = { 0 };

	wire_put_str(&req, F_FROM, from);
	for (size_t i = 0; i < n_rules; i++) {
		wire_put_str(&req, F_RULE, rules[i].path ? rules[i].path : "");
		wire_put_u64(&req, F_CHOICE, rules[i].theirs);
	}
	return box_ask_stream(box, WM_MERGE, &req, NULL, &m->stream.fd, err);
}

int den_merge(struct den_box *box, const char *fork, const struct den_merge_rule *rules, size_t n_rules,
	int (*conflict)(const char *path, const char *why, void *user, struct den_err *err), void *user,
	struct den_merge_result *ret, struct den_err *err)
{
	struct merge m = { .stream.fd = -1, .result.checkpoint = -1, .conflict = conflict, .user = user };
	auto_free char *from = NULL;
	struct den_box *other;
	struct den_err unheard;
	int r;

	err = err ? err : &unheard;
	if (den_box_open(box->d, fork, &other, err) < 0)
		return -1;
	r = strcmp(den_box_id(other), box->id.s) ? fork_point(other, NULL, &from, err) :
						    den_fail(err, DEN_INVALID, 0, "a box cannot be merged into itself");
	den_box_close(other);
	if (r < 0 || merge_ask(box, from, rules, n_rules, &m, err) < 0)
		return -1;
	r = merge_listen(&m, err);
	if (r > 0) {
		uint64_t lost = 0;

		r = files_apply_layer(box, merge_source, &m, &lost, err);
		m.result.lost += lost;
		if (r == 0)
			r = merge_end(box, MERGE_END_DONE, &m, err);
		else
			(void)merge_end(box, MERGE_END_BROKEN, &m, &unheard);
	} else {
		(void)merge_end(box, MERGE_END_UNTOUCHED, &m, &unheard);
	}
	stream_close(&m.stream);
	if (ret)
		*ret = m.result;
	return r;
}
