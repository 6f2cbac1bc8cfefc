#include "oci.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "archive.h"
#include "buf.h"
#include "decompress.h"
#include "fd.h"
#include "mem.h"
#include "sha256.h"
#include "spool.h"
#include "strv.h"

#define NESTING_MAX 4 /* an index may point to an index */
#define CHUNK (64U << 10)

enum kind { KIND_LAYOUT, KIND_ARCHIVE, KIND_DOCKER, KIND_ROOT };
static const char *const kind_str[] = { "OCI layout", "OCI archive", "docker archive",
	"root file system" };

struct oci {
	struct archive *files;
	enum kind kind;
};

const char *oci_kind(const struct oci *o)
{
	return kind_str[o->kind];
}

/* ---- opening --------------------------------------------------------------------------------- */

static int kind_find(struct archive *a, enum kind *ret, struct den_err *err)
{
	bool layout = archive_has(a, "index.json") && archive_has(a, "oci-layout");

	if (archive_is_dir(a)) {
		if (!layout)
			return den_fail(err, DEN_INVALID, 0,
				"the directory is no OCI layout (oci-layout and index.json are "
				"missing); a root "
				"file system is imported by: tar -C DIR -c . | den template import "
				"--name NAME -");
		*ret = KIND_LAYOUT;
	} else if (archive_is_root(a)) {
		*ret = KIND_ROOT;
	} else if (layout) {
		/* newer docker writes both; this one has digests of everything */
		*ret = KIND_ARCHIVE;
	} else {
		*ret = archive_has(a, "manifest.json") ? KIND_DOCKER : KIND_ROOT;
	}
	return 0;
}

static int oci_of(struct archive *a, struct oci **ret, struct den_err *err)
{
	enum kind kind;

	if (kind_find(a, &kind, err) < 0) {
		archive_close(a);
		return -1;
	}
	*ret = mem_new(struct oci);
	**ret = (struct oci){ .files = a, .kind = kind };
	return 0;
}

int oci_open_fd(int fd, uint64_t max, struct oci **ret, struct den_err *err)
{
	struct archive *a;

	if (archive_open_tar(fd, max, &a, err) < 0)
		return -1;
	return oci_of(a, ret, err);
}

int oci_open(const char *path, uint64_t max, struct oci **ret, struct den_err *err)
{
	bool in = !strcmp(path, "-");
	struct archive *a;
	struct stat st;
	int fd;

	if (in && isatty(STDIN_FILENO))
		return den_fail(err, DEN_INVALID, 0, "'-' reads an archive, not a terminal");
	fd = in ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3) : open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0) {
		den_fail_sys(err, errno, "'%.100s'", path);
		fd_close(&fd);
		return -1;
	}
	if (!S_ISDIR(st.st_mode)) {
		if (oci_open_fd(fd, max, ret, err) < 0)
			return den_wrap(err, "'%.100s'", in ? "standard input" : path);
		return 0;
	}
	if (archive_open_dir(fd, &a, err) < 0 || oci_of(a, ret, err) < 0)
		return den_wrap(err, "'%.100s'", path);
	return 0;
}

void oci_close(struct oci *o)
{
	if (!o)
		return;
	archive_close(o->files);
	free(o);
}

/* ---- choosing an image ----------------------------------------------------------------------- */

static void digest_of(struct sha256 *s, struct oci_digest *ret)
{
	char hex[65];

	sha256_hex(s, hex);
	snprintf(ret->s, sizeof(ret->s), "sha256:%s", hex);
}

static void blob_name(const struct oci_digest *d, char out[static 80])
{
	snprintf(out, 80, "blobs/sha256/%s", oci_digest_hex(d));
}

static int digest_check(const struct oci_digest *is, const struct oci_digest *want,
	const char *what, struct den_err *err)
{
	if (!strcmp(is->s, want->s))
		return 0;
	return den_fail(err, DEN_CONFLICT, 0,
		"%s is not what it should be: its digest is %.23s..., not %.23s...", what, is->s,
		want->s);
}

/* A small blob, checked. */
static int blob_text(struct oci *o, const struct oci_desc *d, const char *what, char **ret,
	size_t *ret_len, struct den_err *err)
{
	auto_free char *text = NULL;
	struct oci_digest is;
	struct sha256 s;
	char name[80];
	size_t n;

	blob_name(&d->digest, name);
	if (archive_text(o->files, name, &text, &n, err) < 0)
		return den_wrap(err, "%s", what);
	if (n != d->size)
		return den_fail(err, DEN_CONFLICT, 0, "%s has %zu bytes, not %llu as it should",
			what, n, (unsigned long long)d->size);
	sha256_init(&s);
	sha256_add(&s, text, n);
	digest_of(&s, &is);
	if (digest_check(&is, &d->digest, what, err) < 0)
		return -1;
	*ret = mem_take(&text);
	*ret_len = n;
	return 0;
}

/* "registry/a/b:tag" is also called by what stands before the tag, and by the tag alone. */
static bool ref_fits(const char *have, const char *want)
{
	const char *colon = have ? strrchr(have, ':') : NULL;

	if (!have || !strcmp(have, want))
		return have != NULL;
	if (!colon || strchr(colon, '/'))
		return false;
	return !strcmp(colon + 1, want) ||
	       (strlen(want) == (size_t)(colon - have) && !strncmp(have, want, strlen(want)));
}

static bool platform_fits(const struct oci_desc *d, const char *arch)
{
	return (!d->os || !strcmp(d->os, "linux")) && (!d->arch || !strcmp(d->arch, arch));
}

static int choose_fail(const struct oci_index *i, const struct oci_choice *c, const char *arch,
	struct den_err *err)
{
	auto_buf names = { 0 };

	for (size_t k = 0; k < i->n && names.len < 120; k++) {
		const struct oci_desc *d = &i->list[k];

		buf_addstr(&names, names.len ? ", " : "");
		if (d->ref)
			buf_addstr(&names, d->ref);
		else
			buf_addf(&names, "%s/%s", d->os ? d->os : "?", d->arch ? d->arch : "?");
	}
	if (c->ref)
		return den_fail(err, DEN_NOT_FOUND, 0,
			"there is no '%.60s' for linux/%s in it; there is: %.140s", c->ref, arch,
			names.len ? buf_str(&names) : "nothing");
	return den_fail(err, DEN_NOT_FOUND, 0,
		"there is no image for linux/%s in it; there is: %.140s", arch,
		names.len ? buf_str(&names) : "nothing");
}

static bool same_ref(const struct oci_desc *a, const struct oci_desc *b)
{
	return a->ref && b->ref ? !strcmp(a->ref, b->ref) : a->ref == b->ref;
}

static int index_choose(const struct oci_index *i, const struct oci_choice *c,
	const struct oci_desc **ret, struct den_err *err)
{
	const char *arch = c->arch ? c->arch : oci_arch();
	const struct oci_desc *found = NULL;
	bool several = false;

	for (size_t k = 0; k < i->n; k++) {
		const struct oci_desc *d = &i->list[k];

		if (!platform_fits(d, arch) || (c->ref && !ref_fits(d->ref, c->ref)))
			continue;
		several = several || (found && !same_ref(found, d));
		/* one that says its platform goes before one that says nothing */
		if (!found || (d->arch && !found->arch))
			found = d;
	}
	if (!found)
		return choose_fail(i, c, arch, err);
	if (several && !c->ref)
		return den_fail(err, DEN_INVALID, 0,
			"there are several images in it; choose one with --ref%s%.60s",
			found->ref ? ", like --ref " : "", found->ref ? found->ref : "");
	*ret = found;
	return 0;
}

static char *dup_ref(const char *s)
{
	return s && *s ? mem_strdup(s) : NULL;
}

/* From the index down to a manifest. */
static int manifest_find(struct oci *o, const struct oci_choice *choice, struct oci_manifest *ret,
	char **ref, struct den_err *err)
{
	struct oci_choice c = *choice;
	auto_free char *text = NULL;
	size_t n;

	if (archive_text(o->files, "index.json", &text, &n, err) < 0)
		return -1;
	for (int depth = 0; depth < NESTING_MAX; depth++) {
		struct oci_index index = { 0 };
		const struct oci_desc *d = NULL;
		enum oci_media media = OCI_UNKNOWN;
		char *next = NULL;
		int r;

		if (oci_index_parse(text, n, &index, err) < 0)
			return -1;
		r = index_choose(&index, &c, &d, err);
		if (r == 0) {
			if (d->ref && !*ref)
				*ref = dup_ref(d->ref);
			media = d->media;
			if (media != OCI_INDEX && media != OCI_MANIFEST)
				r = den_fail(err, DEN_INVALID, 0,
					"the index points to '%.90s', which is no image",
					d->media_text ? d->media_text : "");
			else
				r = blob_text(o, d,
					media == OCI_INDEX ? "an index" : "the manifest", &next, &n,
					err);
		}
		oci_index_free(&index);
		if (r < 0)
			return -1;
		free(text);
		text = next;
		c.ref = NULL; /* below, names are of other things */
		if (media == OCI_MANIFEST)
			return oci_manifest_parse(text, n, ret, err);
	}
	return den_fail(err, DEN_LIMIT, 0, "its indexes are nested deeper than %d", NESTING_MAX);
}

static int arch_check(
	const struct oci_config *c, const struct oci_choice *choice, struct den_err *err)
{
	const char *arch = choice->arch ? choice->arch : oci_arch();

	if (c->os && *c->os && strcmp(c->os, "linux"))
		return den_fail(
			err, DEN_UNSUPPORTED, 0, "the image is for %.30s, not for linux", c->os);
	if (c->arch && *c->arch && strcmp(c->arch, arch))
		return den_fail(err, DEN_UNSUPPORTED, 0,
			"the image is for %.30s, this machine is %s (--platform linux/%.30s takes "
			"it all the same)",
			c->arch, arch, c->arch);
	return 0;
}

/* ---- loading --------------------------------------------------------------------------------- */

static int layers_new(struct oci_image *i, size_t n, struct den_err *err)
{
	if (strv_len(i->config.diff_ids) != n)
		return den_fail(err, DEN_INVALID, 0,
			"it has %zu layers, but its configuration tells of %zu", n,
			strv_len(i->config.diff_ids));
	i->layers = mem_zalloc((n + 1) * sizeof(*i->layers));
	i->n_layers = n;
	for (size_t k = 0; k < n; k++)
		if (oci_digest_parse(i->config.diff_ids[k], &i->layers[k].diff_id, err) < 0)
			return -1;
	return 0;
}

static int load_layout(
	struct oci *o, const struct oci_choice *choice, struct oci_image *ret, struct den_err *err)
{
	struct oci_manifest m = { 0 };
	auto_free char *text = NULL;
	size_t n;
	int r = -1;

	if (manifest_find(o, choice, &m, &ret->ref, err) < 0)
		return -1;
	if (blob_text(o, &m.config, "the configuration", &text, &n, err) == 0 &&
		oci_config_parse(text, n, true, &ret->config, err) == 0 &&
		arch_check(&ret->config, choice, err) == 0 &&
		layers_new(ret, m.n_layers, err) == 0) {
		for (size_t i = 0; i < m.n_layers; i++) {
			char name[80];

			blob_name(&m.layers[i].digest, name);
			ret->layers[i].file = mem_strdup(name);
			ret->layers[i].digest = m.layers[i].digest;
			ret->layers[i].size = m.layers[i].size;
		}
		r = 0;
	}
	oci_manifest_free(&m);
	return r;
}

static const struct docker_image *docker_choose(const struct docker_image *list, size_t n,
	const struct oci_choice *c, const char **tag, struct den_err *err)
{
	for (size_t i = 0; c->ref && i < n; i++)
		for (char **t = list[i].tags; t && *t; t++)
			if (ref_fits(*t, c->ref)) {
				*tag = *t;
				return &list[i];
			}
	if (c->ref)
		den_fail(err, DEN_NOT_FOUND, 0, "there is no '%.60s' in it", c->ref);
	else if (n > 1)
		den_fail(err, DEN_INVALID, 0,
			"there are %zu images in it; choose one with --ref, like --ref '%.60s'", n,
			list[0].tags && list[0].tags[0] ? list[0].tags[0] : "NAME");
	if (c->ref || n > 1)
		return NULL;
	*tag = list[0].tags ? list[0].tags[0] : NULL;
	return &list[0];
}

/* A file whose name says its digest has to have it. */
static void digest_of_name(const char *file, struct oci_digest *ret)
{
	char text[80];

	ret->s[0] = '\0';
	if (strncmp(file, "blobs/sha256/", 13))
		return;
	snprintf(text, sizeof(text), "sha256:%s", file + 13);
	(void)oci_digest_parse(text, ret, NULL);
}

static int docker_config(
	struct oci *o, const struct docker_image *d, struct oci_image *ret, struct den_err *err)
{
	auto_free char *text = NULL;
	struct oci_digest want, is;
	struct sha256 s;
	size_t n;

	if (archive_text(o->files, d->config, &text, &n, err) < 0)
		return den_wrap(err, "the configuration");
	digest_of_name(d->config, &want);
	sha256_init(&s);
	sha256_add(&s, text, n);
	digest_of(&s, &is);
	if (want.s[0] && digest_check(&is, &want, "the configuration", err) < 0)
		return -1;
	return oci_config_parse(text, n, true, &ret->config, err);
}

static int load_docker(
	struct oci *o, const struct oci_choice *choice, struct oci_image *ret, struct den_err *err)
{
	const struct docker_image *d;
	struct docker_image *list;
	auto_free char *text = NULL;
	const char *tag = NULL;
	size_t n, len;
	int r = -1;

	if (archive_text(o->files, "manifest.json", &text, &len, err) < 0 ||
		docker_manifest_parse(text, len, &list, &n, err) < 0)
		return -1;
	d = docker_choose(list, n, choice, &tag, err);
	if (d && docker_config(o, d, ret, err) == 0 && arch_check(&ret->config, choice, err) == 0 &&
		layers_new(ret, strv_len(d->layers), err) == 0) {
		for (size_t i = 0; i < ret->n_layers; i++) {
			struct archive_file f;

			ret->layers[i].file = mem_strdup(d->layers[i]);
			digest_of_name(d->layers[i], &ret->layers[i].digest);
			if (ret->layers[i].digest.s[0] &&
				archive_file(o->files, d->layers[i], &f, NULL) == 0)
				ret->layers[i].size = f.size;
		}
		ret->ref = dup_ref(tag);
		r = 0;
	}
	docker_images_free(list, n);
	return r;
}

static int load_root(
	struct oci *o, const struct oci_choice *choice, struct oci_image *ret, struct den_err *err)
{
	(void)o;
	if (choice->ref)
		return den_fail(err, DEN_INVALID, 0,
			"--ref chooses among images, and this is one root file system");
	ret->layers = mem_zalloc(sizeof(*ret->layers));
	ret->n_layers = 1;
	return 0;
}

/* Also of a layer that will not be read because it is here already: an image that lacks one is
 * broken. */
static int layers_check(struct oci *o, const struct oci_image *i, struct den_err *err)
{
	for (size_t k = 0; k < i->n_layers; k++) {
		const struct oci_layer *l = &i->layers[k];
		struct archive_file f;

		if (!l->file)
			continue;
		if (archive_file(o->files, l->file, &f, err) < 0)
			return den_wrap(err, "layer %zu", k + 1);
		if (f.own)
			close(f.fd);
		if (l->digest.s[0] && f.size != l->size)
			return den_fail(err, DEN_CONFLICT, 0,
				"layer %zu has %llu bytes, not %llu as it should", k + 1,
				(unsigned long long)f.size, (unsigned long long)l->size);
	}
	return 0;
}

int oci_image_load(
	struct oci *o, const struct oci_choice *choice, struct oci_image *ret, struct den_err *err)
{
	int (*const load[])(
		struct oci *, const struct oci_choice *, struct oci_image *, struct den_err *) = {
		[KIND_LAYOUT] = load_layout,
		[KIND_ARCHIVE] = load_layout,
		[KIND_DOCKER] = load_docker,
		[KIND_ROOT] = load_root,
	};
	struct oci_image i = { 0 };

	if (load[o->kind](o, choice, &i, err) < 0 || layers_check(o, &i, err) < 0) {
		oci_image_free(&i);
		return den_wrap(err, "%s", kind_str[o->kind]);
	}
	*ret = i;
	return 0;
}

void oci_image_free(struct oci_image *i)
{
	oci_config_free(&i->config);
	for (size_t k = 0; k < i->n_layers; k++)
		free(i->layers[k].file);
	free(i->layers);
	free(i->ref);
	*i = (struct oci_image){ 0 };
}

/* ---- a layer --------------------------------------------------------------------------------- */

struct oci_reader {
	const struct oci_layer *layer;
	struct archive_file file;
	struct stretch left;
	struct sha256 packed, plain;
	struct decompress *unpack;
	bool ended;
};

static ssize_t packed_read(void *buf, size_t cap, void *user, struct den_err *err)
{
	struct oci_reader *r = user;
	ssize_t n = stretch_read(buf, cap, &r->left, err);

	if (n > 0)
		sha256_add(&r->packed, buf, (size_t)n);
	return n;
}

int oci_layer_open(struct oci *o, const struct oci_layer *l, uint64_t max, struct oci_reader **ret,
	struct den_err *err)
{
	struct oci_reader *r = mem_new(struct oci_reader);

	r->layer = l;
	r->file.fd = -1;
	if ((l->file ? archive_file(o->files, l->file, &r->file, err)
		     : archive_whole(o->files, &r->file, err)) < 0) {
		free(r);
		return -1;
	}
	r->left = (struct stretch){ r->file.fd, r->file.at, r->file.size };
	sha256_init(&r->packed);
	sha256_init(&r->plain);
	if (l->digest.s[0] && r->file.size != l->size)
		den_fail(err, DEN_CONFLICT, 0, "a layer has %llu bytes, not %llu as it should",
			(unsigned long long)r->file.size, (unsigned long long)l->size);
	else if (decompress_new(packed_read, r, max, &r->unpack, err) == 0) {
		*ret = r;
		return 0;
	}
	oci_layer_close(r);
	return -1;
}

ssize_t oci_layer_read(void *buf, size_t cap, void *user, struct den_err *err)
{
	struct oci_reader *r = user;
	ssize_t n = decompress_read(buf, cap, r->unpack, err);

	if (n > 0)
		sha256_add(&r->plain, buf, (size_t)n);
	r->ended = n == 0;
	return n;
}

/* A damaged blob may show as odd gzip first: its digest tells better what is wrong. */
static int damage_check(struct oci_reader *r, char *rest, struct den_err *err)
{
	struct den_err why = { 0 };
	struct oci_digest packed;
	ssize_t n;

	if (!r->layer->digest.s[0])
		return -1;
	while ((n = packed_read(rest, CHUNK, r, &why)) > 0)
		;
	digest_of(&r->packed, &packed);
	if (n == 0 && digest_check(&packed, &r->layer->digest, "the layer", &why) < 0)
		*err = why;
	return -1;
}

int oci_layer_end(struct oci_reader *r, struct oci_digest *ret, struct den_err *err)
{
	auto_free char *rest = mem_alloc(CHUNK);
	struct oci_digest packed, plain;

	while (!r->ended)
		if (oci_layer_read(rest, CHUNK, r, err) < 0)
			return damage_check(r, rest, err);
	digest_of(&r->packed, &packed);
	digest_of(&r->plain, &plain);
	if (r->layer->digest.s[0] && digest_check(&packed, &r->layer->digest, "the layer", err) < 0)
		return -1;
	if (r->layer->diff_id.s[0] &&
		digest_check(&plain, &r->layer->diff_id, "the unpacked layer", err) < 0)
		return -1;
	*ret = plain;
	return 0;
}

void oci_layer_close(struct oci_reader *r)
{
	if (!r)
		return;
	decompress_free(r->unpack);
	if (r->file.own)
		fd_close(&r->file.fd);
	free(r);
}
