/* Templates and the pool. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib.h"
#include "mem.h"
#include "strv.h"

/* What a struct den_template points into. */
struct texts {
	char *name, *id, *parent, *detail, *config, *user, *workdir, *files;
	char **env, **entrypoint, **cmd, **layers, **diff_ids;
};

static int template_field(
	const struct wire_value *v, struct den_template *t, struct texts *x, struct den_err *err)
{
	struct {
		uint16_t tag;
		char **str;
		char ***strv;
	} const rows[] = { { F_NAME, &x->name, NULL }, { F_ID, &x->id, NULL },
		{ F_ORIGIN, &x->parent, NULL }, { F_DETAIL, &x->detail, NULL }, { F_BESIDE, &x->files, NULL },
		{ F_CONFIG, &x->config, NULL }, { F_USER, &x->user, NULL },
		{ F_CWD, &x->workdir, NULL }, { F_ENV, NULL, &x->env },
		{ F_ENTRYPOINT, NULL, &x->entrypoint }, { F_ARGV, NULL, &x->cmd },
		{ F_LAYER, NULL, &x->layers }, { F_DIFF_ID, NULL, &x->diff_ids } };
	uint64_t u;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		if (rows[i].tag != v->tag)
			continue;
		if (rows[i].str)
			return wire_str(v, WIRE_MAX_PAYLOAD, rows[i].str, err);
		strv_addn(rows[i].strv, v->p, v->len);
		return 0;
	}
	if (wire_u64(v, UINT64_MAX, &u, err) < 0)
		return -1;
	if (v->tag == F_SIZE)
		t->bytes = u;
	else if (v->tag == F_CREATED_MS)
		t->created_ms = (int64_t)u;
	else if (v->tag == F_FULL)
		t->baked = u;
	else if (v->tag == F_CPU_MILLI)
		t->cpu_milli = u;
	else if (v->tag == F_MEMORY)
		t->memory = u;
	else if (v->tag == F_DISK)
		t->disk = u;
	else
		return wire_unexpected(v, err);
	return 0;
}

static int template_read(
	const char *p, size_t n, struct den_template *t, struct texts *x, struct den_err *err)
{
	struct wire_reader rd = wire_reader(p, n);
	struct wire_value v;
	int r;

	while ((r = wire_next(&rd, &v, err)) > 0)
		if (template_field(&v, t, x, err) < 0)
			return -1;
	t->name = x->name;
	t->id = x->id;
	t->parent = x->parent;
	t->detail = x->detail;
	t->files = x->files;
	t->config = x->config;
	t->user = x->user;
	t->workdir = x->workdir;
	t->env = (const char *const *)x->env;
	t->entrypoint = (const char *const *)x->entrypoint;
	t->cmd = (const char *const *)x->cmd;
	t->layers = (const char *const *)x->layers;
	t->diff_ids = (const char *const *)x->diff_ids;
	return r;
}

void den_templates_free(struct den_template *t, size_t n)
{
	struct texts *x = (struct texts *)(void *)(t + n);

	for (size_t i = 0; t && i < n; i++) {
		char *const strs[] = { x[i].name, x[i].id, x[i].parent, x[i].detail, x[i].config,
			x[i].user, x[i].workdir, x[i].files };
		char **const strvs[] = { x[i].env, x[i].entrypoint, x[i].cmd, x[i].layers,
			x[i].diff_ids };

		for (size_t k = 0; k < ARRAY_SIZE(strs); k++)
			free(strs[k]);
		for (size_t k = 0; k < ARRAY_SIZE(strvs); k++)
			strv_free(strvs[k]);
	}
	free(t);
}

/* As with box infos: the private part lies behind the public array. */
static int templates_read(
	const struct buf *b, struct den_template **ret, size_t *ret_n, struct den_err *err)
{
	struct wire_reader rd = wire_reader(b->p, b->len);
	struct wire_value v;
	struct den_template *t;
	struct texts *x;
	size_t n = 0, got = 0;

	while (wire_next(&rd, &v, NULL) > 0)
		n += v.tag == F_RECORD;
	t = mem_zalloc(n * (sizeof(*t) + sizeof(*x)) + 1);
	x = (struct texts *)(void *)(t + n);
	rd = wire_reader(b->p, b->len);
	while (wire_next(&rd, &v, NULL) > 0) {
		if (v.tag != F_RECORD)
			continue;
		if (template_read(v.p, v.len, &t[got], &x[got], err) < 0) {
			den_templates_free(t, n);
			return -1;
		}
		got++;
	}
	*ret = t;
	*ret_n = n;
	return 0;
}

int den_templates(struct den *d, struct den_template **ret, size_t *n, struct den_err *err)
{
	auto_buf out = { 0 };

	return clerk_ask(d, WM_TEMPLATES, NULL, WM_RECORD, &out, err) < 0
		       ? -1
		       : templates_read(&out, ret, n, err);
}

int den_template_get(struct den *d, const char *ref, struct den_template **ret, struct den_err *err)
{
	auto_buf req = { 0 }, out = { 0 };
	size_t n;

	wire_put_str(&req, F_REF, ref);
	if (clerk_ask(d, WM_TEMPLATE_GET, &req, WM_RECORD, &out, err) < 0 ||
		templates_read(&out, ret, &n, err) < 0)
		return -1;
	if (n == 1)
		return 0;
	den_templates_free(*ret, n);
	return den_fail(err, DEN_INTERNAL, 0, "no template in the answer");
}

int den_template_tag(struct den *d, const char *ref, const char *name, struct den_err *err)
{
	auto_buf req = { 0 };

	wire_put_str(&req, F_REF, ref);
	wire_put_str(&req, F_NAME, name);
	return clerk_ask(d, WM_TEMPLATE_TAG, &req, 0, NULL, err);
}

int den_template_remove(struct den *d, const char *name, bool force, struct den_err *err)
{
	auto_buf req = { 0 };

	wire_put_str(&req, F_NAME, name);
	wire_put_u64(&req, F_FLAGS, force);
	return clerk_ask(d, WM_TEMPLATE_REMOVE, &req, 0, NULL, err);
}

static int nowhere(const void *p, size_t n, void *user, struct den_err *err)
{
	(void)p, (void)n, (void)user, (void)err;
	return 0;
}

static int ask_and_drain(struct den *d, uint8_t type, const struct buf *req, den_sink sink,
	void *user, struct den_err *err)
{
	auto_stream s = { .fd = -1 };
	struct den_box *clerk;
	int r;

	if (clerk_ask_stream(d, type, req, &clerk, &s.fd, err) < 0)
		return -1;
	r = stream_to_sink(&s, sink, user, err);
	stream_close(&s); /* a job that still writes ends by that, and the clerk after it */
	den_box_close(clerk);
	return r;
}

int den_template_verify(struct den *d, const char *ref, struct den_err *err)
{
	auto_buf req = { 0 };

	wire_put_str(&req, F_REF, ref);
	return ask_and_drain(d, WM_TEMPLATE_VERIFY, &req, nowhere, NULL, err);
}

int den_template_tar(
	struct den *d, const char *ref, int layer, den_sink sink, void *user, struct den_err *err)
{
	auto_buf req = { 0 };

	wire_put_str(&req, F_REF, ref);
	if (layer >= 0)
		wire_put_u64(&req, F_COUNT, (uint64_t)layer + 1);
	return ask_and_drain(d, WM_TEMPLATE_TAR, &req, sink, user, err);
}

/* ---- making ---- */

static void put_strv(struct buf *b, uint16_t tag, const char *const *v)
{
	for (size_t i = 0; v && v[i]; i++)
		wire_put_str(b, tag, v[i]);
}

static int opt_put(struct buf *b, const struct den_template_opt *o, struct den_err *err)
{
	if (o->size != sizeof(*o))
		return den_fail(err, DEN_INVALID, 0, "den_template_opt.size is not set");
	wire_put_str(b, F_NAME, o->name);
	wire_put_str(b, F_CONFIG, o->config);
	wire_put_str(b, F_DETAIL, o->detail);
	wire_put_str(b, F_USER, o->user);
	wire_put_str(b, F_CWD, o->workdir);
	put_strv(b, F_ENV, o->env);
	put_strv(b, F_ENTRYPOINT, o->entrypoint);
	put_strv(b, F_ARGV, o->cmd);
	wire_put_u64(b, F_FLAGS, (o->unpacked ? COMMIT_UNPACKED : 0U) | (o->beside ? COMMIT_BESIDE : 0U));
	wire_put_str(b, F_TEMPLATE, o->base);
	if (b->len > WIRE_MAX_PAYLOAD - (16 << 10))
		return den_fail(
			err, DEN_INVALID, E2BIG, "the template's configuration is too long");
	return 0;
}

static int id_of(const char *p, size_t n, char **ret, struct den_err *err)
{
	struct wire_reader rd = wire_reader(p, n);
	struct wire_value v;

	while (wire_next(&rd, &v, NULL) > 0)
		if (v.tag == F_ID)
			return wire_str(&v, 64, ret, err);
	return den_fail(err, DEN_INTERNAL, 0, "no id in the answer");
}

int den_template_commit(struct den_box *box, const char *ref, const struct den_template_opt *opt,
	char **ret_id, struct den_err *err)
{
	auto_stream s = { .fd = -1 };
	auto_buf req = { 0 };
	auto_free char *id = NULL;
	struct wire_frame f;
	int r;

	if (opt_put(&req, opt, err) < 0)
		return -1;
	wire_put_str(&req, F_REF, ref);
	wire_put_str(&req, F_DIFF_ID, opt->diff_id);
	if (box_ask_stream(box, WM_COMMIT, &req, NULL, &s.fd, err) < 0)
		return -1;
	while ((r = stream_next(&s, &f, err)) > 0)
		if (f.type == WM_RECORD && !id && id_of(f.p, f.len, &id, err) < 0)
			return -1;
	if (r < 0)
		return -1;
	if (!id)
		return den_fail(err, DEN_INTERNAL, 0, "no id in the answer");
	if (ret_id)
		*ret_id = mem_take(&id);
	return 0;
}

int den_template_stack(struct den *d, const char *const *diff_ids,
	const struct den_template_opt *opt, char **ret_id, struct den_err *err)
{
	auto_buf req = { 0 }, out = { 0 };
	auto_free char *id = NULL;

	if (opt_put(&req, opt, err) < 0)
		return -1;
	put_strv(&req, F_DIFF_ID, diff_ids);
	if (clerk_ask(d, WM_TEMPLATE_STACK, &req, 0, &out, err) < 0 ||
		id_of(out.p, out.len, &id, err) < 0)
		return -1;
	if (ret_id)
		*ret_id = mem_take(&id);
	return 0;
}

/* ---- the pool ---- */

static const char *pool_text(const struct den_pool_info *p)
{
	if (!p->exists)
		return "none yet; it is made with the first box that has a history";
	if (!strcmp(p->kind, "btrfs"))
		return p->image ? "btrfs in a file: checkpoint, fork and rollback are one snapshot "
				  "each, whatever was written"
				: "btrfs: checkpoint, fork and rollback are one snapshot each, "
				  "whatever was written";
	return p->reflink ? "plain, with reflinks: a checkpoint costs time by the number of files, "
			    "and little space"
			  : "plain: a checkpoint copies every file that changed since the last, "
			    "and links the others";
}

int den_pool(struct den *d, const char *kind, uint64_t bytes, struct den_pool_info *ret,
	struct den_err *err)
{
	auto_buf req = { 0 }, out = { 0 };
	struct den_pool_info p = { .size = sizeof(p), .kind = "" };
	struct wire_reader rd;
	struct wire_value v;
	uint64_t u;

	wire_put_str(&req, F_KIND, kind);
	wire_put_u64(&req, F_SIZE, bytes);
	if (clerk_ask(d, WM_POOL, &req, 0, &out, err) < 0)
		return -1;
	rd = wire_reader(out.p, out.len);
	while (wire_next(&rd, &v, NULL) > 0) {
		if (v.tag == F_KIND) {
			p.kind = v.len == 5 && !memcmp(v.p, "btrfs", 5) ? "btrfs" : "plain";
			continue;
		}
		if (wire_u64(&v, UINT64_MAX, &u, err) < 0)
			return -1;
		switch (v.tag) {
		case F_FLAGS:
			p.exists = u & 1, p.image = u & 2, p.reflink = u & 4;
			break;
		case F_SIZE: p.bytes = u; break;
		case F_DISK_BYTES: p.used = u; break;
		case F_DISK_LIMIT: p.avail = u; break;
		case F_IO_WRITE: p.image_bytes = u; break;
		case F_IO_READ: p.host_avail = u; break;
		default: break;
		}
	}
	p.text = pool_text(&p);
	*ret = p;
	return 0;
}
