#include "export.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "fd.h"
#include "json_in.h"
#include "layout.h"
#include "mem.h"
#include "pack.h"
#include "sha256.h"
#include "strv.h"

struct exporting {
	const struct work *w;
	const struct export_opt *opt;
	const struct den_template *t;
	struct layout *to;
	const char *ref; /* the name inside */
	struct packed *layers; /* without their bytes: those are written */
	size_t n;
	/* while one is written */
	struct packer *packer;
	char what[48];
	uint64_t bytes;
};

int export_pack_parse(const char *text, enum export_pack *ret, struct den_err *err)
{
	if (!strcmp(text, "gzip"))
		*ret = EXPORT_GZIP;
	else if (!strcmp(text, "zstd"))
		*ret = EXPORT_ZSTD;
	else if (!strcmp(text, "none"))
		*ret = EXPORT_PLAIN;
	else
		return den_fail(
			err, DEN_INVALID, 0, "'%.40s' is neither gzip, zstd nor none", text);
	return 0;
}

/* ---- layers ---------------------------------------------------------------------------------- */

static int layer_sink(const void *data, size_t n, void *user, struct den_err *err)
{
	struct exporting *x = user;

	if (interrupt_check(err) < 0)
		return -1;
	x->bytes += n;
	work_progress(x->w, x->what, x->bytes);
	return packer_add(data, n, x->packer, err);
}

static int layer_write(struct exporting *x, int number, struct packed *ret, struct den_err *err)
{
	struct packed p = { .fd = -1 };
	char name[80];
	int r;

	x->bytes = 0;
	snprintf(x->what, sizeof(x->what), "layer %zu of %zu",
		(size_t)(number < 0 ? 0 : number) + 1, x->n);
	if (packer_new(x->opt->docker ? EXPORT_PLAIN : x->opt->pack, &x->packer, err) < 0)
		return -1;
	r = den_template_tar(x->w->den, x->t->id, number, layer_sink, x, err);
	if (r == 0)
		r = packer_end(x->packer, &p, err);
	packer_free(x->packer);
	if (r == 0) {
		snprintf(name, sizeof(name), x->opt->docker ? "%s.tar" : "blobs/sha256/%s",
			oci_digest_hex(&p.digest));
		for (size_t i = 0; i < (size_t)(ret - x->layers);
			i++) /* the same one twice: once is enough */
			if (!strcmp(x->layers[i].digest.s, p.digest.s))
				name[0] = '\0';
		if (name[0])
			r = layout_put_fd(x->to, name, p.fd, p.size, err);
	}
	packed_free(&p);
	p.fd = -1;
	*ret = p;
	return r;
}

static int layers_write(struct exporting *x, struct den_err *err)
{
	/* on the host's own system it stands no more: all of it goes into one layer */
	bool flat = x->t->parent || !x->t->layers || !x->t->layers[0];

	x->n = flat ? 1 : strv_len((char *const *)x->t->layers);
	x->layers = mem_zalloc(x->n * sizeof(*x->layers));
	for (size_t i = 0; i < x->n; i++)
		if (layer_write(x, flat ? -1 : (int)i, &x->layers[i], err) < 0)
			return den_wrap(err, "layer %zu of %zu", i + 1, x->n);
	return 0;
}

/* ---- the configuration ----------------------------------------------------------------------- */

static void set_new(json_t *obj, const char *key, json_t *value)
{
	json_object_set_new(obj, key, value);
}

/* Text that a user wrote may be no UTF-8, which JSON cannot hold: what is wrong in it becomes
 * '?'. */
static json_t *text_json(const char *s)
{
	json_t *j = json_string(s);
	char *fixed;

	if (j)
		return j;
	fixed = mem_strdup(s);
	for (char *p = fixed; *p; p++)
		if (*p & 0x80)
			*p = '?';
	j = json_string(fixed);
	free(fixed);
	return j;
}

static void set_texts(json_t *obj, const char *key, const char *const *v)
{
	json_t *a;

	if (!v || !v[0])
		return;
	a = json_array();
	for (; *v; v++)
		json_array_append_new(a, text_json(*v));
	set_new(obj, key, a);
}

static void set_defaults(json_t *root, const struct den_template *t)
{
	json_t *c = json_object_get(root, "config");

	if (!json_is_object(c)) {
		c = json_object();
		set_new(root, "config", c);
	}
	if (t->user)
		set_new(c, "User", text_json(t->user));
	if (t->workdir)
		set_new(c, "WorkingDir", text_json(t->workdir));
	set_texts(c, "Env", t->env);
	set_texts(c, "Entrypoint", t->entrypoint);
	set_texts(c, "Cmd", t->cmd);
}

/* Lines that say what made each layer; kept where they fit. */
static void set_history(json_t *root, size_t n, const char *created)
{
	json_t *old = json_object_get(root, "history"), *list;
	size_t full = 0;

	for (size_t i = 0; i < json_array_size(old); i++)
		full += !json_is_true(json_object_get(json_array_get(old, i), "empty_layer"));
	if (full == n)
		return;
	list = json_array();
	for (size_t i = 0; i < n; i++)
		json_array_append_new(
			list, json_pack("{s:s,s:s}", "created", created, "created_by", "den"));
	set_new(root, "history", list);
}

static int config_make(const struct exporting *x, char **ret, struct den_err *err)
{
	auto_json root = NULL;
	json_t *ids = json_array();
	char created[32];

	if (!x->t->config || json_in(x->t->config, strlen(x->t->config), &root, NULL) < 0 ||
		!json_is_object(root)) {
		json_decref(root);
		root = json_object();
	}
	for (size_t i = 0; i < x->n; i++)
		json_array_append_new(ids, json_string(x->layers[i].diff_id.s));
	set_new(root, "rootfs", json_pack("{s:s,s:o}", "type", "layers", "diff_ids", ids));
	if (!json_object_get(root, "architecture"))
		set_new(root, "architecture", json_string(oci_arch()));
	if (!json_object_get(root, "os"))
		set_new(root, "os", json_string("linux"));
	if (!json_is_string(json_object_get(root, "created"))) {
		work_time(x->t->created_ms, created);
		set_new(root, "created", json_string(created));
	}
	set_history(root, x->n, json_string_value(json_object_get(root, "created")));
	set_defaults(root, x->t);
	*ret = json_dumps(root, JSON_COMPACT | JSON_SORT_KEYS);
	return *ret ? 0
		    : den_fail(err, DEN_INTERNAL, 0, "the configuration cannot be written as JSON");
}

/* ---- OCI ------------------------------------------------------------------------------------- */

static void digest_of(const char *text, struct oci_digest *ret)
{
	struct sha256 s;
	char hex[65];

	sha256_init(&s);
	sha256_add(&s, text, strlen(text));
	sha256_hex(&s, hex);
	snprintf(ret->s, sizeof(ret->s), "sha256:%s", hex);
}

/* Writes a small blob and makes its descriptor. */
static int blob_put(
	struct exporting *x, const char *media, const char *text, json_t **ret, struct den_err *err)
{
	struct oci_digest d;
	char name[80];

	digest_of(text, &d);
	snprintf(name, sizeof(name), "blobs/sha256/%s", oci_digest_hex(&d));
	if (layout_put(x->to, name, text, strlen(text), err) < 0)
		return -1;
	*ret = json_pack("{s:s,s:s,s:I}", "mediaType", media, "digest", d.s, "size",
		(json_int_t)strlen(text));
	return 0;
}

static json_t *layer_descs(const struct exporting *x)
{
	static const char *const media[] = { [EXPORT_GZIP] = OCI_MEDIA_LAYER "+gzip",
		[EXPORT_ZSTD] = OCI_MEDIA_LAYER "+zstd",
		[EXPORT_PLAIN] = OCI_MEDIA_LAYER };
	json_t *list = json_array();

	for (size_t i = 0; i < x->n; i++)
		json_array_append_new(list,
			json_pack("{s:s,s:s,s:I}", "mediaType", media[x->opt->pack], "digest",
				x->layers[i].digest.s, "size", (json_int_t)x->layers[i].size));
	return list;
}

/* What a layout held before stays, but for an image of the same name. */
static int index_make(struct exporting *x, json_t *desc, char **ret, struct den_err *err)
{
	auto_free char *old = NULL;
	auto_json index = NULL;
	json_t *list;
	size_t n = 0;

	if (layout_index(x->to, &old, &n, err) < 0 || (old && json_in(old, n, &index, err) < 0)) {
		json_decref(desc);
		return den_wrap(err, "the layout that is there");
	}
	if (!index)
		index = json_pack("{s:i,s:s}", "schemaVersion", 2, "mediaType", OCI_MEDIA_INDEX);
	list = json_object_get(index, "manifests");
	if (!json_is_array(list)) {
		list = json_array();
		set_new(index, "manifests", list);
	}
	for (size_t i = json_array_size(list); i-- > 0;) {
		const json_t *notes = json_object_get(json_array_get(list, i), "annotations");
		const char *ref = json_string_value(json_object_get(notes, OCI_REF_NAME));

		if (ref && !strcmp(ref, x->ref))
			json_array_remove(list, i);
	}
	json_array_append_new(list, desc);
	*ret = json_dumps(index, JSON_COMPACT | JSON_SORT_KEYS);
	return *ret ? 0 : den_fail(err, DEN_INTERNAL, 0, "index.json cannot be written");
}

static int oci_write(struct exporting *x, const char *config, struct den_err *err)
{
	static const char marker[] = "{\"imageLayoutVersion\":\"1.0.0\"}";
	auto_free char *manifest = NULL, *index = NULL;
	json_t *config_desc, *desc;
	auto_json m = NULL;

	if (blob_put(x, OCI_MEDIA_CONFIG, config, &config_desc, err) < 0)
		return -1;
	m = json_pack("{s:i,s:s,s:o,s:o}", "schemaVersion", 2, "mediaType", OCI_MEDIA_MANIFEST,
		"config", config_desc, "layers", layer_descs(x));
	manifest = json_dumps(m, JSON_COMPACT | JSON_SORT_KEYS);
	if (!manifest)
		return den_fail(err, DEN_INTERNAL, 0, "the manifest cannot be written");
	if (blob_put(x, OCI_MEDIA_MANIFEST, manifest, &desc, err) < 0)
		return -1;
	set_new(desc, "annotations", json_pack("{s:o}", OCI_REF_NAME, text_json(x->ref)));
	set_new(desc, "platform",
		json_pack("{s:s,s:s}", "architecture", oci_arch(), "os", "linux"));
	if (index_make(x, desc, &index, err) < 0)
		return -1;
	/* the index last: before it, a layout does not have the image */
	if (layout_put(x->to, "oci-layout", marker, strlen(marker), err) < 0)
		return -1;
	return layout_put(x->to, "index.json", index, strlen(index), err);
}

/* ---- docker ---------------------------------------------------------------------------------- */

static int docker_write(struct exporting *x, const char *config, struct den_err *err)
{
	const char *last = strrchr(x->ref, '/');
	bool tagged = strchr(last ? last : x->ref, ':');
	auto_free char *text = NULL, *tag = NULL;
	json_t *layers = json_array();
	auto_json m = NULL;
	struct oci_digest d;
	char name[80];

	digest_of(config, &d);
	snprintf(name, sizeof(name), "%s.json", oci_digest_hex(&d));
	if (asprintf(&tag, "%s%s", x->ref, tagged ? "" : ":latest") < 0)
		tag = NULL;
	for (size_t i = 0; i < x->n; i++) {
		char file[80];

		snprintf(file, sizeof(file), "%s.tar", oci_digest_hex(&x->layers[i].digest));
		json_array_append_new(layers, json_string(file));
	}
	m = json_pack("[{s:s,s:[o],s:o}]", "Config", name, "RepoTags",
		text_json(tag ? tag : x->ref), "Layers", layers);
	text = json_dumps(m, JSON_COMPACT | JSON_SORT_KEYS);
	if (!text)
		return den_fail(err, DEN_INTERNAL, 0, "manifest.json cannot be written");
	if (layout_put(x->to, name, config, strlen(config), err) < 0)
		return -1;
	return layout_put(x->to, "manifest.json", text, strlen(text), err);
}

/* ---- all of it ------------------------------------------------------------------------------- */

static int export_to(struct exporting *x, struct den_err *err)
{
	auto_free char *config = NULL;

	if (layers_write(x, err) < 0 || config_make(x, &config, err) < 0)
		return -1;
	if ((x->opt->docker ? docker_write : oci_write)(x, config, err) < 0)
		return -1;
	return layout_finish(x->to, err);
}

int export_template(const struct work *w, const char *template_ref, const char *dest,
	const struct export_opt *opt, struct den_err *err)
{
	struct exporting x = { .w = w, .opt = opt };
	auto_template t = NULL;
	int r;

	if (den_template_get(w->den, template_ref, &t, err) < 0)
		return -1;
	x.t = t;
	x.ref = opt->ref ? opt->ref : t->name ? t->name : template_ref;
	if (layout_open(dest, opt->docker, &x.to, err) < 0)
		return -1;
	r = export_to(&x, err);
	layout_free(x.to);
	free(x.layers);
	return r;
}
