#include "import.h"

#include <stdio.h>
#include <string.h>

#include "buf.h"
#include "mem.h"
#include "oci.h"
#include "sha256.h"
#include "strv.h"

/* One layer on its way into a box. */
struct unpack {
	const struct work *w;
	den_source source;
	void *user;
	const char *what;
	uint64_t bytes;
};

static ssize_t unpack_read(void *buf, size_t cap, void *user, struct den_err *err)
{
	struct unpack *u = user;
	ssize_t n;

	if (interrupt_check(err) < 0)
		return -1;
	n = u->source(buf, cap, u->user, err);
	if (n > 0) {
		u->bytes += (uint64_t)n;
		work_progress(u->w, u->what, u->bytes);
	}
	return n;
}

/* A box whose /layer holds what the archive says. */
static int unpack_box(const struct work *w, const char *what, den_source source, void *user,
	struct den_box **ret, struct den_err *err)
{
	const struct den_file_opt opt = { .size = sizeof(opt) };
	struct unpack u = { .w = w, .source = source, .user = user, .what = what };
	auto_den_box box = NULL;

	if (work_box(w, "empty", &box, err) < 0 || den_file_mkdir(box, "/layer", &opt, err) < 0)
		return -1;
	if (den_tar_in(box, "/layer", &opt, unpack_read, &u, err) < 0)
		return -1;
	*ret = box;
	box = NULL;
	return 0;
}

/* The template of the layers so far, and this one. */
static int layer_add(const struct work *w, struct oci *o, const struct oci_layer *l,
	const char *what, uint64_t max, struct den_template_opt *opt, char **ret_id,
	struct den_err *err)
{
	const char *diff_ids[] = { l->diff_id.s, NULL };
	auto_den_box box = NULL;
	struct oci_reader *r = NULL;
	struct oci_digest diff_id;
	int status;

	if (l->diff_id.s[0]) {
		if (den_template_stack(w->den, diff_ids, opt, ret_id, err) == 0)
			return 0;
		if (err->code != DEN_NOT_FOUND)
			return -1;
	}
	if (oci_layer_open(o, l, max, &r, err) < 0)
		return -1;
	status = unpack_box(w, what, oci_layer_read, r, &box, err);
	/* a damaged archive may show as odd tar first: the digest tells better what is wrong */
	if (status < 0 && err->code == DEN_INVALID) {
		struct den_err why = { 0 };

		if (oci_layer_end(r, &diff_id, &why) < 0 && why.code == DEN_CONFLICT)
			*err = why;
	}
	if (status == 0)
		status = oci_layer_end(r, &diff_id, err);
	oci_layer_close(r);
	if (status < 0)
		return -1;
	opt->unpacked = true;
	opt->diff_id = diff_id.s;
	return den_template_commit(box, NULL, opt, ret_id, err);
}

static int layers_add(const struct work *w, struct oci *o, const struct oci_image *i,
	const char *name, const char *detail, uint64_t max, char **ret_id, struct den_err *err)
{
	auto_free char *below = NULL;

	for (size_t k = 0; k < i->n_layers; k++) {
		bool last = k + 1 == i->n_layers;
		struct den_template_opt opt = { .size = sizeof(opt), .base = below };
		char *id = NULL;
		char what[48];

		if (last) {
			opt.name = name;
			opt.config = i->config.text;
			opt.detail = detail;
			opt.user = i->config.user;
			opt.workdir = i->config.workdir;
			opt.env = (const char *const *)i->config.env;
			opt.entrypoint = (const char *const *)i->config.entrypoint;
			opt.cmd = (const char *const *)i->config.cmd;
		}
		snprintf(what, sizeof(what), "layer %zu of %zu", k + 1, i->n_layers);
		if (interrupt_check(err) < 0 ||
			layer_add(w, o, &i->layers[k], what, max, &opt, &id, err) < 0)
			return den_wrap(err, "%s", what);
		free(below);
		below = id;
	}
	*ret_id = mem_take(&below);
	return 0;
}

/* "dir/rootfs.tar.gz" is "rootfs". */
static char *name_of_path(const char *path)
{
	static const char *const ends[] = { ".gz", ".tgz", ".xz", ".zst", ".tar" };
	const char *slash = strrchr(path, '/');
	char *name = mem_strdup(slash ? slash + 1 : path);

	for (size_t i = 0; i < ARRAY_SIZE(ends); i++) {
		size_t n = strlen(name), m = strlen(ends[i]);

		if (n > m && !strcmp(name + n - m, ends[i]))
			name[n - m] = '\0';
	}
	return name;
}

/* docker.io/library/debian:12@sha256:... is called what people call it. */
static char *name_of_ref(const char *ref)
{
	return mem_strndup(ref, strcspn(ref, "@"));
}

static int name_choose(const char *path, const struct import_opt *opt, const struct oci_image *i,
	char **ret, struct den_err *err)
{
	/* "latest" alone is a tag, and a poor name */
	bool named = i->ref && strcmp(i->ref, "latest");

	if (opt->name)
		*ret = mem_strdup(opt->name);
	else if (named)
		*ret = name_of_ref(i->ref);
	else if (strcmp(path, "-") && path[strspn(path, "./")])
		*ret = name_of_path(path);
	else
		return den_fail(
			err, DEN_INVALID, 0, "the image says no name; give it one with --name");
	return 0;
}

int import_path(const struct work *w, const char *path, const struct import_opt *opt, char **ret_id,
	char **ret_name, struct den_err *err)
{
	struct oci_choice choice = { .ref = opt->ref };
	auto_free char *name = NULL;
	struct oci_image image = { 0 };
	uint64_t max = opt->max ? opt->max : IMPORT_MAX;
	struct oci *o;
	char arch[32], detail[160];
	int r;

	if (opt->platform && oci_platform_parse(opt->platform, arch, err) < 0)
		return -1;
	choice.arch = opt->platform ? arch : NULL;
	if (oci_open(path, max, &o, err) < 0)
		return -1;
	r = oci_image_load(o, &choice, &image, err);
	if (r == 0)
		r = name_choose(path, opt, &image, &name, err);
	if (r == 0) {
		snprintf(detail, sizeof(detail), "imported from %s %.100s", oci_kind(o),
			strcmp(path, "-") ? path : "on standard input");
		r = layers_add(
			w, o, &image, name, opt->detail ? opt->detail : detail, max, ret_id, err);
	}
	oci_image_free(&image);
	oci_close(o);
	if (r == 0)
		*ret_name = mem_take(&name);
	return r;
}

struct hashed {
	den_source source;
	void *user;
	struct sha256 sum;
};

static ssize_t hashed_read(void *buf, size_t cap, void *user, struct den_err *err)
{
	struct hashed *h = user;
	ssize_t n = h->source(buf, cap, h->user, err);

	if (n > 0)
		sha256_add(&h->sum, buf, (size_t)n);
	return n;
}

int import_root(const struct work *w, den_source source, void *user, const struct import_opt *opt,
	char **ret_id, struct den_err *err)
{
	struct hashed h = { .source = source, .user = user };
	auto_den_box box = NULL;
	char hex[65], diff_id[80];
	struct den_template_opt t = { .size = sizeof(t),
		.name = opt->name,
		.unpacked = true,
		.detail = opt->detail,
		.diff_id = diff_id };

	sha256_init(&h.sum);
	if (unpack_box(w, "root file system", hashed_read, &h, &box, err) < 0)
		return -1;
	sha256_hex(&h.sum, hex);
	snprintf(diff_id, sizeof(diff_id), "sha256:%s", hex);
	return den_template_commit(box, NULL, &t, ret_id, err);
}
