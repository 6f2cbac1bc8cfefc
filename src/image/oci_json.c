#include "oci_json.h"

#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>

#include "json_in.h"
#include "mem.h"
#include "strv.h"

int oci_digest_parse(const char *text, struct oci_digest *ret, struct den_err *err)
{
	struct oci_digest d;

	if (!text)
		return den_fail(err, DEN_INVALID, 0, "a digest is missing");
	if (!strncmp(text, "sha512:", 7))
		return den_fail(
			err, DEN_UNSUPPORTED, 0, "digests of sha512 are not supported; sha256 is");
	if (strncmp(text, "sha256:", 7) || strlen(text) != 71 ||
		strspn(text + 7, "0123456789abcdef") != 64)
		return den_fail(err, DEN_INVALID, 0, "'%.80s' is not a digest", text);
	memcpy(d.s, text, sizeof(d.s));
	*ret = d;
	return 0;
}

/* Types of OCI, and those of docker that mean the same. */
static const struct {
	const char *text;
	enum oci_media media;
} medias[] = {
	{ OCI_MEDIA_INDEX, OCI_INDEX },
	{ "application/vnd.docker.distribution.manifest.list.v2+json", OCI_INDEX },
	{ OCI_MEDIA_MANIFEST, OCI_MANIFEST },
	{ "application/vnd.docker.distribution.manifest.v2+json", OCI_MANIFEST },
	{ OCI_MEDIA_CONFIG, OCI_CONFIG },
	{ "application/vnd.docker.container.image.v1+json", OCI_CONFIG },
	{ OCI_MEDIA_LAYER, OCI_LAYER },
	{ OCI_MEDIA_LAYER "+gzip", OCI_LAYER },
	{ OCI_MEDIA_LAYER "+zstd", OCI_LAYER },
	{ "application/vnd.docker.image.rootfs.diff.tar", OCI_LAYER },
	{ "application/vnd.docker.image.rootfs.diff.tar.gzip", OCI_LAYER },
	{ "application/vnd.docker.image.rootfs.diff.tar.zstd", OCI_LAYER },
	{ "application/vnd.oci.image.layer.nondistributable.v1.tar", OCI_FOREIGN },
	{ "application/vnd.oci.image.layer.nondistributable.v1.tar+gzip", OCI_FOREIGN },
	{ "application/vnd.oci.image.layer.nondistributable.v1.tar+zstd", OCI_FOREIGN },
	{ "application/vnd.docker.image.rootfs.foreign.diff.tar", OCI_FOREIGN },
	{ "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip", OCI_FOREIGN },
};

enum oci_media oci_media_of(const char *text)
{
	for (size_t i = 0; text && i < ARRAY_SIZE(medias); i++)
		if (!strcmp(medias[i].text, text))
			return medias[i].media;
	return OCI_UNKNOWN;
}

static char *dup_or_null(const char *s)
{
	return s ? mem_strdup(s) : NULL;
}

static void desc_free(struct oci_desc *d)
{
	free(d->media_text);
	free(d->ref);
	free(d->os);
	free(d->arch);
	*d = (struct oci_desc){ 0 };
}

/* *ret is zeroed before and freed by the caller, also on failure. */
static int desc_get(const json_t *j, struct oci_desc *ret, struct den_err *err)
{
	const char *media, *digest, *ref = NULL, *os = NULL, *arch = NULL;
	const json_t *notes, *platform;

	if (json_in_text(j, "mediaType", &media, err) < 0 ||
		json_in_text(j, "digest", &digest, err) < 0 ||
		oci_digest_parse(digest, &ret->digest, err) < 0 ||
		json_in_size(j, "size", &ret->size, err) < 0 ||
		json_in_object(j, "annotations", &notes, err) < 0 ||
		json_in_object(j, "platform", &platform, err) < 0)
		return -1;
	if (notes && json_in_text(notes, OCI_REF_NAME, &ref, err) < 0)
		return -1;
	if (platform && (json_in_text(platform, "os", &os, err) < 0 ||
				json_in_text(platform, "architecture", &arch, err) < 0))
		return -1;
	ret->media = oci_media_of(media);
	ret->media_text = dup_or_null(media);
	ret->ref = dup_or_null(ref);
	ret->os = dup_or_null(os);
	ret->arch = dup_or_null(arch);
	return 0;
}

static int descs_get(const json_t *list, size_t max, const char *what, struct oci_desc **ret,
	size_t *ret_n, struct den_err *err)
{
	size_t n = json_array_size(list);

	if (n > max)
		return den_fail(err, DEN_LIMIT, 0, "it has %zu %s; the limit is %zu", n, what, max);
	*ret = mem_zalloc((n + 1) * sizeof(**ret));
	*ret_n = n;
	for (size_t i = 0; i < n; i++)
		if (desc_get(json_array_get(list, i), &(*ret)[i], err) < 0)
			return den_wrap(err, "number %zu of its %s", i + 1, what);
	return 0;
}

/* Says itself what it is; and where it does, it must be that. */
static int kind_check(const json_t *j, enum oci_media media, const char *what, struct den_err *err)
{
	const char *text;
	const json_t *version = json_object_get(j, "schemaVersion");

	if (version && (!json_is_integer(version) || json_integer_value(version) != 2))
		return den_fail(err, DEN_UNSUPPORTED, 0, "%s is of another version than 2", what);
	if (json_in_text(j, "mediaType", &text, err) < 0)
		return -1;
	if (text && *text && oci_media_of(text) != media)
		return den_fail(err, DEN_INVALID, 0, "what should be %s has the media type '%.90s'",
			what, text);
	return 0;
}

int oci_index_parse(const char *text, size_t n, struct oci_index *ret, struct den_err *err)
{
	struct oci_index i = { 0 };
	auto_json j = NULL;
	const json_t *list;

	if (json_in(text, n, &j, err) < 0 || kind_check(j, OCI_INDEX, "the index", err) < 0 ||
		json_in_array(j, "manifests", &list, err) < 0)
		return den_wrap(err, "index");
	if (!list)
		return den_fail(err, DEN_INVALID, 0, "index: 'manifests' is missing");
	if (descs_get(list, OCI_INDEX_MAX, "manifests", &i.list, &i.n, err) < 0) {
		oci_index_free(&i);
		return den_wrap(err, "index");
	}
	*ret = i;
	return 0;
}

void oci_index_free(struct oci_index *i)
{
	for (size_t k = 0; k < i->n; k++)
		desc_free(&i->list[k]);
	free(i->list);
	*i = (struct oci_index){ 0 };
}

static int manifest_check(const struct oci_manifest *m, struct den_err *err)
{
	if (m->config.media != OCI_CONFIG)
		return den_fail(err, DEN_INVALID, 0,
			"it is no container image: its configuration is '%.80s'",
			m->config.media_text ? m->config.media_text : "of no type");
	if (!m->n_layers)
		return den_fail(err, DEN_INVALID, 0, "it has no layers");
	for (size_t i = 0; i < m->n_layers; i++) {
		const struct oci_desc *l = &m->layers[i];

		if (l->media == OCI_FOREIGN)
			return den_fail(err, DEN_UNSUPPORTED, 0,
				"layer %zu may not be distributed (a foreign layer), so it is not "
				"in the image",
				i + 1);
		if (l->media != OCI_LAYER)
			return den_fail(err, DEN_INVALID, 0,
				"layer %zu has the media type '%.80s', which is no layer", i + 1,
				l->media_text ? l->media_text : "");
	}
	return 0;
}

int oci_manifest_parse(const char *text, size_t n, struct oci_manifest *ret, struct den_err *err)
{
	struct oci_manifest m = { 0 };
	const json_t *config, *layers;
	auto_json j = NULL;

	if (json_in(text, n, &j, err) < 0 || kind_check(j, OCI_MANIFEST, "the manifest", err) < 0 ||
		json_in_object(j, "config", &config, err) < 0 ||
		json_in_array(j, "layers", &layers, err) < 0)
		return den_wrap(err, "manifest");
	if (!config || !layers)
		return den_fail(err, DEN_INVALID, 0, "manifest: '%s' is missing",
			config ? "layers" : "config");
	if (desc_get(config, &m.config, err) < 0 ||
		descs_get(layers, OCI_LAYERS_MAX, "layers", &m.layers, &m.n_layers, err) < 0 ||
		manifest_check(&m, err) < 0) {
		oci_manifest_free(&m);
		return den_wrap(err, "manifest");
	}
	*ret = m;
	return 0;
}

void oci_manifest_free(struct oci_manifest *m)
{
	desc_free(&m->config);
	for (size_t i = 0; i < m->n_layers; i++)
		desc_free(&m->layers[i]);
	free(m->layers);
	*m = (struct oci_manifest){ 0 };
}

static int defaults_get(const json_t *j, struct oci_config *c, struct den_err *err)
{
	const char *user = NULL, *workdir = NULL;

	if (json_in_text(j, "User", &user, err) < 0 ||
		json_in_text(j, "WorkingDir", &workdir, err) < 0 ||
		json_in_texts(j, "Env", &c->env, err) < 0 ||
		json_in_texts(j, "Entrypoint", &c->entrypoint, err) < 0 ||
		json_in_texts(j, "Cmd", &c->cmd, err) < 0)
		return -1;
	for (size_t i = 0; c->env && c->env[i]; i++)
		if (!strchr(c->env[i], '=') || c->env[i][0] == '=')
			return den_fail(err, DEN_INVALID, 0,
				"'Env' holds '%.60s', which is no NAME=value", c->env[i]);
	if (workdir && *workdir && *workdir != '/')
		return den_fail(err, DEN_INVALID, 0,
			"'WorkingDir' is '%.60s', which is not absolute", workdir);
	c->user = user && *user ? mem_strdup(user) : NULL;
	c->workdir = workdir && *workdir ? mem_strdup(workdir) : NULL;
	return 0;
}

static int diff_ids_get(const json_t *j, bool need, struct oci_config *c, struct den_err *err)
{
	const json_t *rootfs;
	struct oci_digest d;

	if (json_in_object(j, "rootfs", &rootfs, err) < 0)
		return -1;
	if (rootfs && json_in_texts(rootfs, "diff_ids", &c->diff_ids, err) < 0)
		return -1;
	if (need && !c->diff_ids)
		return den_fail(err, DEN_INVALID, 0, "'rootfs.diff_ids' is missing");
	if (strv_len(c->diff_ids) > OCI_LAYERS_MAX)
		return den_fail(err, DEN_LIMIT, 0, "it has %zu layers; the limit is %d",
			strv_len(c->diff_ids), OCI_LAYERS_MAX);
	for (size_t i = 0; c->diff_ids && c->diff_ids[i]; i++)
		if (oci_digest_parse(c->diff_ids[i], &d, err) < 0)
			return den_wrap(err, "'rootfs.diff_ids'");
	return 0;
}

static int config_get(const json_t *j, bool need_layers, struct oci_config *c, struct den_err *err)
{
	const char *os = NULL, *arch = NULL;
	const json_t *inner;

	if (json_in_text(j, "os", &os, err) < 0 ||
		json_in_text(j, "architecture", &arch, err) < 0 ||
		json_in_object(j, "config", &inner, err) < 0 ||
		diff_ids_get(j, need_layers, c, err) < 0 ||
		(inner && defaults_get(inner, c, err) < 0))
		return -1;
	c->os = dup_or_null(os);
	c->arch = dup_or_null(arch);
	return 0;
}

int oci_config_parse(
	const char *text, size_t n, bool need_layers, struct oci_config *ret, struct den_err *err)
{
	struct oci_config c = { 0 };
	auto_json j = NULL;

	if (json_in(text, n, &j, err) < 0 || config_get(j, need_layers, &c, err) < 0) {
		oci_config_free(&c);
		return den_wrap(err, "configuration of the image");
	}
	c.text = mem_strndup(text, n);
	*ret = c;
	return 0;
}

void oci_config_free(struct oci_config *c)
{
	free(c->os);
	free(c->arch);
	free(c->user);
	free(c->workdir);
	strv_free(c->env);
	strv_free(c->entrypoint);
	strv_free(c->cmd);
	strv_free(c->diff_ids);
	free(c->text);
	*c = (struct oci_config){ 0 };
}

static int docker_image_get(const json_t *j, struct docker_image *ret, struct den_err *err)
{
	const char *config;

	if (json_in_text(j, "Config", &config, err) < 0 ||
		json_in_texts(j, "RepoTags", &ret->tags, err) < 0 ||
		json_in_texts(j, "Layers", &ret->layers, err) < 0)
		return -1;
	if (!config || !*config)
		return den_fail(err, DEN_INVALID, 0, "'Config' is missing");
	if (!ret->layers)
		return den_fail(err, DEN_INVALID, 0, "it has no layers");
	if (strv_len(ret->layers) > OCI_LAYERS_MAX)
		return den_fail(err, DEN_LIMIT, 0, "it has %zu layers; the limit is %d",
			strv_len(ret->layers), OCI_LAYERS_MAX);
	ret->config = mem_strdup(config);
	return 0;
}

int docker_manifest_parse(
	const char *text, size_t n, struct docker_image **ret, size_t *ret_n, struct den_err *err)
{
	struct docker_image *d;
	auto_json j = NULL;
	size_t count;

	if (json_in(text, n, &j, err) < 0)
		return den_wrap(err, "manifest.json");
	count = json_array_size(j);
	if (!json_is_array(j) || !count || count > OCI_INDEX_MAX)
		return den_fail(err, DEN_INVALID, 0, "manifest.json is no list of images");
	d = mem_zalloc(count * sizeof(*d));
	for (size_t i = 0; i < count; i++) {
		if (docker_image_get(json_array_get(j, i), &d[i], err) < 0) {
			docker_images_free(d, count);
			return den_wrap(err, "manifest.json");
		}
	}
	*ret = d;
	*ret_n = count;
	return 0;
}

void docker_images_free(struct docker_image *d, size_t n)
{
	for (size_t i = 0; d && i < n; i++) {
		free(d[i].config);
		strv_free(d[i].tags);
		strv_free(d[i].layers);
	}
	free(d);
}

static const char *arch_of_machine(const char *machine)
{
	static const char *const names[][2] = { { "x86_64", "amd64" }, { "aarch64", "arm64" },
		{ "armv7l", "arm" }, { "armv6l", "arm" }, { "i686", "386" },
		{ "ppc64le", "ppc64le" }, { "s390x", "s390x" }, { "riscv64", "riscv64" },
		{ "loongarch64", "loong64" } };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (!strcmp(names[i][0], machine))
			return names[i][1];
	return NULL;
}

const char *oci_arch(void)
{
	static char own[32];
	struct utsname u;

	if (!own[0]) {
		const char *a = uname(&u) == 0 ? arch_of_machine(u.machine) : NULL;

		snprintf(own, sizeof(own), "%s", a ? a : "unknown");
	}
	return own;
}

int oci_platform_parse(const char *text, char ret[static 32], struct den_err *err)
{
	const char *slash = strchr(text, '/');
	const char *arch = text;
	size_t n;

	if (!strncmp(text, "linux/", 6))
		arch = text + 6;
	else if (slash && slash[1] != 'v')
		return den_fail(err, DEN_UNSUPPORTED, 0,
			"platform '%.60s': only linux/... can run here", text);
	n = strcspn(arch, "/");
	if (!n || n > 31 || strspn(arch, "abcdefghijklmnopqrstuvwxyz0123456789_") < n)
		return den_fail(err, DEN_INVALID, 0,
			"'%.60s' is no platform; write it like linux/arm64", text);
	snprintf(ret, 32, "%.*s", (int)n, arch);
	return 0;
}
