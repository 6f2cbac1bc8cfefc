/*
 * Templates: asking about them, and making them from boxes.
 *
 * A template's new layer is a snapshot of a checkpoint, with overlayfs's working directories taken
 * away; of a box that an image was unpacked in ("empty"), /layer of it. Both become pool/layers/HEX by
 * their digest. It is done by a job, since reading everything takes its time.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "change.h"
#include "clock.h"
#include "fd.h"
#include "job.h"
#include "strv.h"

/* ---- telling ---- */

static void put_strv(struct buf *b, uint16_t tag, char *const *v)
{
	for (size_t i = 0; v && v[i]; i++)
		wire_put_str(b, tag, v[i]);
}

static void put_image(struct buf *b, const char *name, const struct image *img)
{
	wire_put_str(b, F_NAME, name);
	wire_put_str(b, F_ID, img->id);
	wire_put_str(b, F_ORIGIN, img->parent);
	wire_put_str(b, F_DETAIL, img->damage ? img->damage : img->detail);
	wire_put_str(b, F_CONFIG, img->config);
	wire_put_str(b, F_USER, img->defaults.user);
	wire_put_str(b, F_CWD, img->defaults.workdir);
	put_strv(b, F_ENV, img->defaults.env);
	put_strv(b, F_ENTRYPOINT, img->defaults.entrypoint);
	put_strv(b, F_ARGV, img->defaults.cmd);
	for (size_t i = 0; i < img->n_layers; i++) {
		wire_put_str(b, F_LAYER, img->layers[i].hex);
		wire_put_str(b, F_DIFF_ID, img->layers[i].diff_id ? img->layers[i].diff_id : "-");
	}
	wire_put_u64(b, F_SIZE, img->size);
	wire_put_u64(b, F_CREATED_MS, (uint64_t)img->created_ms);
}

static void send_template(struct client *c, const struct buf *fields)
{
	auto_buf b = { 0 };

	wire_put_bytes(&b, F_RECORD, fields->p, fields->len);
	conn_send_buf(&c->conn, WM_RECORD, 0, &b);
}

static int list_image(const char *name, const struct image *img, void *user, struct den_err *err)
{
	auto_buf rec = { 0 };
	struct image brief = *img;
	struct client *c = user;
	struct box_id seed;

	(void)err;
	if (name && bake_find(c->k->store, name, &seed))
		return 0; /* told as what it is beside of */
	brief.config = NULL; /* large, and not for a list */
	put_image(&rec, name, &brief);
	send_template(user, &rec);
	return 0;
}

static void put_host(struct buf *b)
{
	auto_buf parent = { 0 };
	char state[17];

	wire_put_str(b, F_NAME, "host");
	wire_put_str(b, F_ID, "host");
	template_host_state(state);
	buf_addf(&parent, "host-%s", state);
	wire_put_str(b, F_ORIGIN, buf_str(&parent));
	wire_put_str(b, F_DETAIL, "the host's own system directories, read-only below; made when first used\n");
}

/* The same without programs, if there is an image of that name. */
static void put_beside(struct store *s, struct buf *b, const char *name)
{
	struct image img = { 0 };
	struct den_err ignored;
	char id[65];

	if (image_find(s, name, id, &ignored) < 0 || image_get(s, id, &img, &ignored) < 0)
		return;
	wire_put_str(b, F_BESIDE, img.id);
	wire_put_str(b, F_CONFIG, img.config);
	put_strv(b, F_ENTRYPOINT, img.defaults.entrypoint);
	put_strv(b, F_ARGV, img.defaults.cmd);
	image_free(&img);
}

/* One with programs is told by the box that keeps them. */
static int put_baked(struct store *s, struct buf *b, const char *name, struct den_err *err)
{
	struct box_row row = { 0 };
	struct box_id seed;
	auto_buf detail = { 0 };

	if (!bake_find(s, name, &seed) || store_get(s, &seed, &row, err) < 0)
		return den_fail(err, DEN_NOT_FOUND, 0, "no template '%s'", name);
	buf_addf(&detail, "with the programs of %s running, above the template %s\n", row.info.spec.from,
		row.info.spec.template_name);
	wire_put_str(b, F_NAME, name);
	wire_put_str(b, F_ID, seed.s);
	wire_put_str(b, F_ORIGIN, row.info.spec.template_name);
	wire_put_str(b, F_DETAIL, buf_str(&detail));
	wire_put_str(b, F_USER, row.info.spec.user);
	wire_put_str(b, F_CWD, row.info.spec.cwd);
	put_strv(b, F_ENV, row.info.spec.env);
	wire_put_u64(b, F_CREATED_MS, (uint64_t)row.info.created_ms);
	wire_put_u64(b, F_FULL, 1);
	wire_put_u64(b, F_CPU_MILLI, row.info.spec.cpu_milli);
	wire_put_u64(b, F_MEMORY, row.info.spec.memory);
	wire_put_u64(b, F_DISK, row.info.spec.disk);
	put_beside(s, b, name);
	box_row_free(&row);
	return 0;
}

static void list_baked(struct client *c)
{
	char **names = bake_names(c->k->store);
	struct den_err ignored;

	for (size_t i = 0; names && names[i]; i++) {
		auto_buf rec = { 0 };

		if (put_baked(c->k->store, &rec, names[i], &ignored) == 0)
			send_template(c, &rec);
	}
	strv_free(names);
}

int req_templates(struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err)
{
	auto_buf host = { 0 };

	(void)f, (void)out;
	put_host(&host);
	send_template(c, &host);
	list_baked(c);
	return image_each(c->k->store, list_image, c, err);
}

static int ref_image(struct client *c, const struct wire_frame *f, struct image *ret, struct den_err *err)
{
	auto_free char *ref = NULL;
	char id[65];

	if (field_str(f, F_REF, 255, &ref, err) < 0)
		return -1;
	if (!ref)
		return den_fail(err, DEN_INVALID, 0, "which template?");
	if (!strcmp(ref, "host") || !strcmp(ref, "empty"))
		return den_fail(err, DEN_UNSUPPORTED, 0, "'%s' is not an image; make one from a box of it", ref);
	return image_find(c->k->store, ref, id, err) < 0 ? -1 : image_get(c->k->store, id, ret, err);
}

int req_template_get(struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err)
{
	auto_free char *ref = NULL;
	struct image img = { 0 };
	auto_buf rec = { 0 };
	struct box_id seed;

	(void)out;
	if (field_str(f, F_REF, 255, &ref, err) < 0)
		return -1;
	if (ref && !strcmp(ref, "host")) {
		put_host(&rec);
	} else if (ref && bake_find(c->k->store, ref, &seed)) {
		if (put_baked(c->k->store, &rec, ref, err) < 0)
			return -1;
	} else {
		if (ref_image(c, f, &img, err) < 0)
			return -1;
		put_image(&rec, ref, &img);
		image_free(&img);
	}
	send_template(c, &rec);
	return 0;
}

/* The image that has the name, or the one beside it. */
static int tag_image(struct client *c, const struct wire_frame *f, const char *name, struct den_err *err)
{
	struct image img = { 0 };
	auto_fd lock = -1;
	int r;

	if (image_lock(c->k->store, false, &lock, err) < 0 || ref_image(c, f, &img, err) < 0)
		return -1;
	r = image_tag(c->k->store, img.id, name, true, err);
	image_free(&img);
	return r;
}

/* Of one with programs both get the name: those, and the files beside them. */
int req_template_tag(struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err)
{
	auto_free char *name = NULL, *ref = NULL;
	struct store *s = c->k->store;
	struct box_id seed;
	char old[65];
	bool baked;
	int r;

	(void)out;
	if (field_str(f, F_NAME, 255, &name, err) < 0 || image_name_check(name ? name : "", err) < 0 ||
		field_str(f, F_REF, 255, &ref, err) < 0)
		return -1;
	baked = ref && bake_find(s, ref, &seed);
	if (baked && !strcmp(ref, name))
		return 0;
	if (bake_find(s, name, &seed)) /* nobody loses programs by a slip */
		return den_fail(err, DEN_CONFLICT, 0, "'%s' is a template with programs; 'den template rm %s' removes it", name,
			name);
	r = tag_image(c, f, name, err);
	if (r < 0 && (!baked || err->code != DEN_NOT_FOUND))
		return -1;
	if (!baked)
		return 0;
	if (bake_tag(c->k, ref, name, err) < 0)
		return -1;
	if (r < 0 && image_find(s, name, old, err) == 0) /* files of another template */
		return image_untag(s, name, true, err);
	return 0;
}

int req_template_remove(struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err)
{
	auto_free char *name = NULL;
	struct keeper *k = c->k;
	struct box_id seed;
	char id[65];

	(void)out;
	if (field_str(f, F_NAME, 255, &name, err) < 0)
		return -1;
	if (!name || !strcmp(name, "host") || !strcmp(name, "empty"))
		return den_fail(err, DEN_INVALID, 0, "'%s' is always there", name ? name : "");
	if (bake_find(k->store, name, &seed)) {
		/* the image beside it goes first: alone, the name would still be a template */
		if (!(field_u64(f, F_FLAGS, 0) & 2) && image_find(k->store, name, id, err) == 0 &&
			image_untag(k->store, name, true, err) < 0)
			return -1;
		return bake_remove(k, name, err);
	}
	if (field_u64(f, F_FLAGS, 0) & 2)
		return den_fail(err, DEN_NOT_FOUND, 0, "template '%s' has no programs", name);
	if (image_untag(k->store, name, field_u64(f, F_FLAGS, 0) & 1, err) < 0)
		return -1;
	if (!pool_exists(k->store->fd) || home_pool(k, err) < 0)
		return 0;
	(void)image_sweep(k->store, k->pool, NULL, NULL, err); /* space comes back now, or with den gc */
	return 0;
}

/* ---- verify and tar ---- */

struct reading {
	struct keeper *k;
	struct image img;
	struct template tmpl;
	struct view v, below;
	int *layer_fd;
	uint64_t layer; /* one more than its index; 0: all of it */
};

/* The layers of the image as trees, topmost first, leaving out the `skip` topmost of "/". */
static int stack_open(const struct template *t, size_t skip, bool own, struct view *ret, struct den_err *err)
{
	struct view v = { .own = wall_ids(NULL) == IDS_SINGLE,
		.trees = mem_zalloc(sizeof(*v.trees) * (t->n_trees + 1)) };

	for (size_t i = 0; i < t->n_trees; i++) {
		size_t n = strv_len(t->trees[i].lowers);
		struct view_tree *tree = &v.trees[v.n_trees++];

		tree->at = t->trees[i].at;
		tree->layers = mem_alloc(sizeof(int) * (n + 1));
		for (size_t l = i ? 0 : skip; l < n; l++) {
			int fd = open(t->trees[i].lowers[l], O_RDONLY | O_DIRECTORY | O_CLOEXEC);

			if (fd < 0)
				return den_fail_sys(err, errno, "layer '%s'", t->trees[i].lowers[l]);
			tree->layers[tree->n_layers++] = fd;
		}
		tree->n_own = own && tree->n_layers ? 1 : 0;
	}
	*ret = v;
	return 0;
}

static int tar_prepare(void *arg, struct den_err *err)
{
	struct reading *r = arg;
	size_t top;

	if (!r->layer)
		return stack_open(&r->tmpl, 0, false, &r->v, err);
	if (r->layer > r->img.n_layers || r->img.parent || r->tmpl.n_trees != 1)
		return den_fail(err, DEN_INVALID, 0, "the template has no such layer of its own");
	top = r->img.n_layers - (size_t)r->layer;
	return stack_open(&r->tmpl, top, true, &r->v, err) < 0 ||
			stack_open(&r->tmpl, top + 1, false, &r->below, err) < 0 ?
		-1 : 0;
}

static int tar_run(void *arg, const struct job_out *out, struct den_err *err)
{
	struct reading *r = arg;

	return r->layer ? changes_tar(&r->below, &r->v, job_data, (void *)out, err) :
			  view_tar(&r->v, job_data, (void *)out, err);
}

static int verify_prepare(void *arg, struct den_err *err)
{
	struct reading *r = arg;

	r->layer_fd = mem_alloc(sizeof(int) * (r->img.n_layers + 1));
	for (size_t i = 0; i < r->img.n_layers; i++) {
		char name[96];

		snprintf(name, sizeof(name), "layers/%s", r->img.layers[i].hex);
		r->layer_fd[i] = openat(r->k->pool->fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (r->layer_fd[i] < 0)
			return den_fail_sys(err, errno, "layer %.12s", r->img.layers[i].hex);
	}
	return 0;
}

static int verify_run(void *arg, const struct job_out *out, struct den_err *err)
{
	struct reading *r = arg;

	(void)out;
	for (size_t i = 0; i < r->img.n_layers; i++) {
		char hex[65];

		if (i && !strcmp(r->img.layers[i].hex, r->img.layers[i - 1].hex))
			continue;
		if (layer_digest(r->layer_fd[i], hex, NULL, err) < 0)
			return den_wrap(err, "layer %.12s", r->img.layers[i].hex);
		if (strcmp(hex, r->img.layers[i].hex))
			return den_fail(err, DEN_CONFLICT, 0,
				"layer %.12s is not what it was made as: its digest is %.12s now", r->img.layers[i].hex, hex);
	}
	return 0;
}

static int read_start(struct client *c, const struct wire_frame *f, struct job_spec *spec, struct reading *r,
	struct den_err *err)
{
	auto_fd stream = -1;
	int res;

	if (job_stream(c, &stream, err) < 0 || home_pool(c->k, err) < 0 || ref_image(c, f, &r->img, err) < 0)
		return -1;
	res = image_open(c->k->store, c->k->pool, r->img.id, &r->tmpl, NULL, err);
	if (res == 0)
		res = job_start(c->k, spec, stream, NULL, NULL, err);
	template_free(&r->tmpl);
	image_free(&r->img);
	return res;
}

int req_template_tar(struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err)
{
	struct reading r = { .k = c->k, .layer = field_u64(f, F_COUNT, 0) };
	struct job_spec spec = { tar_prepare, tar_run, &r, false, false };

	(void)out;
	return read_start(c, f, &spec, &r, err);
}

int req_template_verify(struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err)
{
	struct reading r = { .k = c->k };
	struct job_spec spec = { verify_prepare, verify_run, &r, false, false };

	(void)out;
	return read_start(c, f, &spec, &r, err);
}

/* ---- making ---- */

struct making {
	struct keeper *k;
	struct image img; /* what is below, then all of it */
	char *name;	  /* NULL: none */
	char *base, *diff_id;
	char **stack; /* diff ids */
	uint64_t number, unpacked;
	int lock;
};

static void making_free(struct making *m)
{
	image_free(&m->img);
	free(m->name);
	free(m->base);
	free(m->diff_id);
	strv_free(m->stack);
	fd_close(&m->lock);
}

static int making_field(struct making *m, const struct wire_value *v, struct den_err *err)
{
	struct image_defaults *d = &m->img.defaults;
	char ***strv = v->tag == F_ENV ? &d->env : v->tag == F_ENTRYPOINT ? &d->entrypoint :
		v->tag == F_ARGV ? &d->cmd : v->tag == F_DIFF_ID ? &m->stack : NULL;
	auto_free char *text = NULL;
	uint64_t flags;

	if (strv) {
		if (wire_str(v, 128 << 10, &text, err) < 0)
			return -1;
		strv_add(strv, text);
		return 0;
	}
	switch (v->tag) {
	case F_NAME:
		return wire_str(v, IMAGE_NAME_MAX, &m->name, err);
	case F_USER:
		return wire_str(v, 255, &d->user, err);
	case F_CWD:
		return wire_str(v, 4095, &d->workdir, err);
	case F_CONFIG:
		return wire_str(v, WIRE_MAX_PAYLOAD, &m->img.config, err);
	case F_DETAIL:
		return wire_str(v, 4096, &m->img.detail, err);
	case F_TEMPLATE:
		return wire_str(v, 255, &m->base, err);
	case F_FLAGS:
		if (wire_u64(v, COMMIT_UNPACKED | COMMIT_BESIDE, &flags, err) < 0)
			return -1;
		m->unpacked = flags & COMMIT_UNPACKED;
		m->img.beside = flags & COMMIT_BESIDE;
		return 0;
	case F_REF:
		return 0;
	default:
		return wire_unexpected(v, err);
	}
}

static int making_get(const struct wire_frame *f, struct making *m, struct den_err *err)
{
	struct wire_reader rd = wire_reader(f->p, f->len);
	struct wire_value v;
	int r;

	while ((r = wire_next(&rd, &v, err)) > 0)
		if (making_field(m, &v, err) < 0)
			return -1;
	if (r == 0 && m->name)
		r = image_name_check(m->name, err);
	if (r == 0)
		r = image_lock(m->k->store, false, &m->lock, err);
	return r;
}

static void layer_add(struct image *img, const char *hex, const char *sub, const char *at, const char *diff_id)
{
	struct image_layer *l;

	img->layers = mem_realloc(img->layers, (img->n_layers + 1) * sizeof(*img->layers));
	l = &img->layers[img->n_layers++];
	*l = (struct image_layer){ .sub = mem_strdup(sub), .at = mem_strdup(at),
		.diff_id = diff_id ? mem_strdup(diff_id) : NULL };
	snprintf(l->hex, sizeof(l->hex), "%s", hex);
}

/* Puts the layers of another image at the bottom of this one. */
static int stand_on(struct making *m, const char *ref, struct den_err *err)
{
	struct image below = { 0 };
	char id[65];

	if (image_find(m->k->store, ref, id, err) < 0 || image_get(m->k->store, id, &below, err) < 0)
		return -1;
	for (size_t i = 0; i < below.n_layers; i++)
		layer_add(&m->img, below.layers[i].hex, below.layers[i].sub, below.layers[i].at, below.layers[i].diff_id);
	m->img.size += below.size;
	if (below.parent)
		m->img.parent = mem_strdup(below.parent);
	image_free(&below);
	return 0;
}

/* What the box's own template adds to the new one. */
static int stand_on_box(struct making *m, struct den_err *err)
{
	const char *name = m->k->row.info.spec.template_name;
	auto_buf parent = { 0 };

	if (m->unpacked)
		return m->base ? stand_on(m, m->base, err) : 0;
	if (!strcmp(name, "empty"))
		return 0;
	if (strcmp(name, "host"))
		return stand_on(m, m->k->row.version, err);
	buf_addf(&parent, "host-%s", m->k->row.version);
	m->img.parent = mem_strdup(buf_str(&parent));
	return 0;
}

/* Keeps of the top directory uN, without overlayfs's working directories; of an unpacked image only
 * u0/layer, turned from the archive's form into overlayfs's. */
static int keep_only(int fd, const char *prefix, struct den_err *err)
{
	int copy = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;
	DIR *d = copy < 0 ? NULL : fdopendir(copy);
	struct dirent *de;

	if (!d) {
		fd_close(&copy);
		return den_fail_sys(err, errno, "list a layer");
	}
	while (r == 0 && (de = readdir(d)))
		if (strcmp(de->d_name, ".") && strcmp(de->d_name, "..") && strncmp(de->d_name, prefix, strlen(prefix)))
			r = tree_remove_at(fd, de->d_name, err);
	closedir(d);
	return r;
}

static int trim(int fd, bool unpacked, struct den_err *err)
{
	auto_fd u0 = -1, layer = -1;

	if (faccessat(fd, "disk.img", F_OK, AT_SYMLINK_NOFOLLOW) == 0)
		return den_fail(err, DEN_UNSUPPORTED, 0,
			"a box with --disk cannot become a template; fork it without, or copy its files to another");
	if (keep_only(fd, "u", err) < 0)
		return -1;
	if (!unpacked)
		return 0;
	u0 = openat(fd, "u0", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (u0 < 0 || keep_only(u0, "layer", err) < 0)
		return u0 < 0 ? den_fail_sys(err, errno, "open the unpacked layer") : -1;
	layer = openat(u0, "layer", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (layer < 0)
		return den_fail_sys(err, errno, "open the unpacked layer");
	return layer_convert(layer, err);
}

/* Gives the finished tree its name by its digest. */
static int layer_publish(struct making *m, const char *tmp, int fd, char hex[static 65], struct den_err *err)
{
	uint64_t bytes = 0;
	char name[96];

	if (layer_digest(fd, hex, &bytes, err) < 0)
		return -1;
	m->img.size += bytes;
	(void)flock(fd, LOCK_UN); /* for pool_remove(), which would leave it to a sweep */
	snprintf(name, sizeof(name), "layers/%s", hex);
	if (faccessat(m->k->pool->fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
		return pool_remove(m->k->pool, tmp, err); /* there is one just like it */
	if (pool_seal(m->k->pool, tmp, err) < 0)
		return -1;
	if (pool_rename(m->k->pool, tmp, name, err) < 0)
		return err->sys == EEXIST || err->sys == ENOTEMPTY ? pool_remove(m->k->pool, tmp, err) : -1;
	return 0;
}

static int commit_layer(struct making *m, const char *tmp, struct den_err *err)
{
	struct keeper *k = m->k;
	auto_fd fd = openat(k->pool->fd, tmp, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	char hex[65];

	if (fd < 0)
		return den_fail_sys(err, errno, "open the new layer");
	(void)flock(fd, LOCK_EX | LOCK_NB); /* no sweep takes it for a dead one's, however long it takes */
	if (trim(fd, m->unpacked, err) < 0 || layer_publish(m, tmp, fd, hex, err) < 0)
		return -1;
	/* the same once more changes nothing, and overlayfs would not mount it */
	if (!m->unpacked && m->img.n_layers && !strcmp(m->img.layers[m->img.n_layers - 1].hex, hex))
		return 0;
	for (size_t t = 0; t < k->tmpl.n_trees; t++) {
		char sub[32];

		snprintf(sub, sizeof(sub), m->unpacked ? "u%zu/layer" : "u%zu", t);
		layer_add(&m->img, hex, sub, k->tmpl.trees[t].at, t ? NULL : m->diff_id);
	}
	return 0;
}

static int commit_run(void *arg, const struct job_out *out, struct den_err *err)
{
	struct making *m = arg;
	struct keeper *k = m->k;
	char from[64], tmp[64];
	auto_buf rec = { 0 };

	home_name(k, 'c', m->number, from);
	snprintf(tmp, sizeof(tmp), "layers/.tmp-%d-%s", (int)getpid(), k->id.s);
	if (faccessat(k->pool->fd, from, F_OK, AT_SYMLINK_NOFOLLOW) == 0) {
		if (pool_snapshot(k->pool, from, NULL, tmp, false, err) < 0)
			return -1;
		if (commit_layer(m, tmp, err) < 0) {
			struct den_err ignored;

			(void)pool_remove(k->pool, tmp, &ignored);
			return -1;
		}
	} else if (m->number || m->unpacked) {
		return den_fail(err, DEN_NOT_FOUND, 0, "checkpoint %llu is gone", (unsigned long long)m->number);
	}
	if (image_put(k->store, &m->img, m->name, err) < 0)
		return -1;
	wire_put_str(&rec, F_ID, m->img.id);
	return job_record(out, &rec, err);
}

int req_commit(struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err)
{
	struct keeper *k = c->k;
	struct making m = { .k = k, .lock = -1, .img.created_ms = clock_wall_ms() };
	struct job_spec spec = { NULL, commit_run, &m, true, false };
	auto_free char *ref = NULL;
	auto_fd stream = -1;
	int r = -1;

	(void)out;
	if (job_stream(c, &stream, err) == 0 && making_get(f, &m, err) == 0 && field_str(f, F_REF, 64, &ref, err) == 0 &&
		open_template(k, err) == 0 && box_point(k, ref, &m.number, err) == 0 && stand_on_box(&m, err) == 0) {
		if (m.stack && m.stack[0])
			m.diff_id = mem_strdup(m.stack[0]);
		r = job_start(k, &spec, stream, NULL, NULL, err); /* it holds the lock as long as it runs */
	}
	making_free(&m);
	return r;
}

int req_template_stack(struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err)
{
	struct keeper *k = c->k;
	struct making m = { .k = k, .lock = -1, .img.created_ms = clock_wall_ms() };
	int r = making_get(f, &m, err);

	if (r == 0 && m.base)
		r = stand_on(&m, m.base, err);
	for (size_t i = 0; r == 0 && m.stack && m.stack[i]; i++) {
		struct image_layer l = { 0 };

		if (image_layer_by_diff(k->store, m.stack[i], &l) <= 0) {
			r = den_fail(err, DEN_NOT_FOUND, 0, "no layer %.80s here yet", m.stack[i]);
			break;
		}
		layer_add(&m.img, l.hex, l.sub, l.at, l.diff_id);
		image_layer_free(&l);
	}
	if (r == 0)
		r = image_put(k->store, &m.img, m.name, err);
	if (r == 0)
		wire_put_str(out, F_ID, m.img.id);
	making_free(&m);
	return r;
}

/* ---- the pool ---- */

int req_pool(struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err)
{
	struct keeper *k = c->k;
	auto_free char *kind = NULL;
	struct pool_options opt = { .size = field_u64(f, F_SIZE, 0) };
	struct pool_info info = { 0 };

	if (field_str(f, F_KIND, 16, &kind, err) < 0)
		return -1;
	opt.kind = kind;
	if (!kind && !opt.size && !pool_exists(k->store->fd))
		return 0; /* nothing there, nothing asked for */
	if (kind && *kind && !pool_exists(k->store->fd)) {
		if (pool_open(k->store->fd, k->store->path, &opt, &k->pool, err) < 0)
			return -1;
	} else if (home_pool(k, err) < 0) {
		return -1;
	} else if (kind && *kind && strcmp(kind, k->pool->kind == POOL_BTRFS ? "btrfs" : "plain")) {
		return den_fail(err, DEN_CONFLICT, 0, "the pool is %s already, with what is in it; use another state directory",
			k->pool->kind == POOL_BTRFS ? "btrfs" : "plain");
	}
	if (pool_info(k->pool, k->store->fd, &info, err) < 0)
		return -1;
	if (opt.size > info.size && info.image &&
		(pool_grow(k->pool, k->store->fd, opt.size, err) < 0 || pool_info(k->pool, k->store->fd, &info, err) < 0))
		return -1;
	wire_put_str(out, F_KIND, info.kind == POOL_BTRFS ? "btrfs" : "plain");
	wire_put_u64(out, F_FLAGS, 1 | (info.image ? 2 : 0) | (info.reflink ? 4 : 0));
	wire_put_u64(out, F_SIZE, info.size);
	wire_put_u64(out, F_DISK_BYTES, info.used);
	wire_put_u64(out, F_DISK_LIMIT, info.avail);
	wire_put_u64(out, F_IO_WRITE, info.image_blocks);
	wire_put_u64(out, F_IO_READ, info.host_avail);
	return 0;
}
