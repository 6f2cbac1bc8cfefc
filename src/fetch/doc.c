#include "doc.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "doc_json.h"
#include "mem.h"

static const char *const config_types[] = {
	"application/vnd.oci.image.config.v1+json",
	"application/vnd.docker.container.image.v1+json",
};
static const char *const layer_types[] = {
	"application/vnd.oci.image.layer.v1.tar",
	"application/vnd.oci.image.layer.v1.tar+gzip",
	"application/vnd.oci.image.layer.v1.tar+zstd",
	"application/vnd.docker.image.rootfs.diff.tar",
	"application/vnd.docker.image.rootfs.diff.tar.gzip",
};
static const char *const manifest_types[] = { MEDIA_OCI_MANIFEST, MEDIA_DOCKER_MANIFEST };
static const char *const index_types[] = { MEDIA_OCI_INDEX, MEDIA_DOCKER_LIST };
static const char *const old_types[] = {
	"application/vnd.docker.distribution.manifest.v1+json",
	"application/vnd.docker.distribution.manifest.v1+prettyjws",
};

static const char *type_find(const char *const *list, size_t n, const char *type)
{
	for (size_t i = 0; i < n; i++)
		if (!strcmp(list[i], type))
			return list[i];
	return NULL;
}
#define TYPE_FIND(list, type) type_find(list, ARRAY_SIZE(list), type)

/* jansson builds everything before it lets go, so what it would build is counted first. */
static int shape_check(const char *text, size_t n, struct den_err *err)
{
	size_t depth = 0, values = 0;
	bool quoted = false;

	if (n > DOC_MAX)
		return den_fail(err, DEN_LIMIT, 0, "it has more than %u bytes", DOC_MAX);
	for (size_t i = 0; i < n; i++) {
		char c = text[i];

		if (quoted) {
			if (c == '\\')
				i++;
			quoted = c != '"';
			continue;
		}
		quoted = c == '"';
		if (c == '{' || c == '[') {
			values++;
			if (++depth > DOC_DEPTH)
				return den_fail(err, DEN_LIMIT, 0, "it is nested deeper than %d",
					DOC_DEPTH);
		} else if (c == '}' || c == ']') {
			depth -= depth > 0;
		} else if (c == ',') {
			values++;
		}
	}
	if (values > DOC_VALUES)
		return den_fail(err, DEN_LIMIT, 0, "it has more than %d values", DOC_VALUES);
	return 0;
}

int doc_load(const char *text, size_t n, json_t **ret, struct den_err *err)
{
	json_error_t why;
	auto_json *j = NULL;

	if (shape_check(text, n, err) < 0)
		return -1;
	j = json_loadb(text, n, JSON_REJECT_DUPLICATES, &why);
	if (!j)
		return den_fail(
			err, DEN_INVALID, 0, "it is not JSON: line %d: %.80s", why.line, why.text);
	if (!json_is_object(j))
		return den_fail(err, DEN_INVALID, 0, "it is not a JSON object");
	*ret = mem_take(&j);
	return 0;
}

const char *doc_string(const json_t *object, const char *key)
{
	return json_string_value(json_object_get(object, key));
}

/* A string member into a small array: "" when it is not there, an error when it does not fit or
 * could steer a terminal. */
static int string_copy(
	const json_t *object, const char *key, char *ret, size_t cap, struct den_err *err)
{
	const json_t *v = json_object_get(object, key);
	const char *s = v ? json_string_value(v) : "";

	if (!s)
		return den_fail(err, DEN_INVALID, 0, "'%s' is not a text", key);
	if (strlen(s) >= cap)
		return den_fail(err, DEN_INVALID, 0, "'%s' is longer than %zu bytes", key, cap - 1);
	for (const char *p = s; *p; p++)
		if (!isgraph((unsigned char)*p))
			return den_fail(err, DEN_INVALID, 0,
				"'%s' has a character that does not belong there", key);
	memcpy(ret, s, strlen(s) + 1);
	return 0;
}

static int descriptor_get(const json_t *j, struct descriptor *ret, struct den_err *err)
{
	const char *digest = doc_string(j, "digest");
	const json_t *size = json_object_get(j, "size");

	if (!json_is_object(j) || !digest || !json_is_integer(size))
		return den_fail(err, DEN_INVALID, 0, "it has no digest or no size");
	if (digest_parse(digest, &ret->digest, err) < 0)
		return -1;
	if (json_integer_value(size) < 0 || (uint64_t)json_integer_value(size) > DOC_BLOB_MAX)
		return den_fail(err, DEN_LIMIT, 0,
			"%" JSON_INTEGER_FORMAT " is no size that can be",
			json_integer_value(size));
	ret->size = (uint64_t)json_integer_value(size);
	return string_copy(j, "mediaType", ret->media, sizeof(ret->media), err);
}

static int image_get(const json_t *j, struct doc *d, struct den_err *err)
{
	const json_t *layers = json_object_get(j, "layers");
	size_t n = json_array_size(layers);

	if (descriptor_get(json_object_get(j, "config"), &d->config, err) < 0)
		return den_wrap(err, "config");
	if (!TYPE_FIND(config_types, d->config.media))
		return den_fail(err, DEN_UNSUPPORTED, 0,
			"it is not an image of a file system: its configuration is of the type "
			"'%s'",
			d->config.media);
	if (d->config.size > DOC_MAX)
		return den_fail(
			err, DEN_LIMIT, 0, "its configuration has more than %u bytes", DOC_MAX);
	if (!json_is_array(layers) || n > DOC_LAYERS)
		return den_fail(err, n ? DEN_LIMIT : DEN_INVALID, 0,
			"it has no list of at most %d layers", DOC_LAYERS);
	d->layers = mem_zalloc(n * sizeof(*d->layers));
	for (; d->n_layers < n; d->n_layers++) {
		struct descriptor *l = &d->layers[d->n_layers];

		if (descriptor_get(json_array_get(layers, d->n_layers), l, err) < 0)
			return den_wrap(err, "layer %zu", d->n_layers + 1);
		if (!TYPE_FIND(layer_types, l->media))
			return den_fail(err, DEN_UNSUPPORTED, 0,
				"layer %zu is of the type '%s', which is unknown", d->n_layers + 1,
				l->media);
	}
	return 0;
}

static int index_get(const json_t *j, struct doc *d, struct den_err *err)
{
	const json_t *list = json_object_get(j, "manifests");
	size_t n = json_array_size(list);

	if (!json_is_array(list) || n > DOC_LAYERS)
		return den_fail(err, n ? DEN_LIMIT : DEN_INVALID, 0,
			"it has no list of at most %d images", DOC_LAYERS);
	d->entries = mem_zalloc(n * sizeof(*d->entries));
	for (; d->n_entries < n; d->n_entries++) {
		struct index_entry *e = &d->entries[d->n_entries];
		const json_t *one = json_array_get(list, d->n_entries);
		const json_t *p = json_object_get(one, "platform");

		if (descriptor_get(one, &e->d, err) < 0 ||
			string_copy(p, "os", e->platform.os, sizeof(e->platform.os), err) < 0 ||
			string_copy(p, "architecture", e->platform.arch, sizeof(e->platform.arch),
				err) < 0 ||
			string_copy(p, "variant", e->platform.variant, sizeof(e->platform.variant),
				err) < 0)
			return den_wrap(err, "image %zu of the index", d->n_entries + 1);
	}
	return 0;
}

/* Which of the MEDIA_* a document is. What the text says of itself and what was said of it must
 * agree, and a text that could be read both ways is refused: else two programs see two images under
 * one digest. */
static int kind_find(const json_t *j, const char *said, const char **ret, struct den_err *err)
{
	const char *own = doc_string(j, "mediaType");
	bool list = json_object_get(j, "manifests");
	bool image = json_object_get(j, "config") || json_object_get(j, "layers");
	const char *type;

	if ((said && TYPE_FIND(old_types, said)) || (own && TYPE_FIND(old_types, own)) ||
		json_integer_value(json_object_get(j, "schemaVersion")) == 1)
		return den_fail(err, DEN_UNSUPPORTED, 0,
			"it is in the old format 'schema 1', which has no "
			"digests to check; push it again with a newer tool");
	if (said && !TYPE_FIND(manifest_types, said) && !TYPE_FIND(index_types, said)) {
		if (!strncmp(said, "application/vnd.", 16))
			return den_fail(err, DEN_UNSUPPORTED, 0,
				"it is of the type '%.100s', which is unknown", said);
		said = NULL;
	}
	if (own && said && strcmp(own, said))
		return den_fail(err, DEN_INVALID, 0,
			"it calls itself '%.70s' and was announced as '%.70s'", own, said);
	if (list && image)
		return den_fail(err, DEN_INVALID, 0, "it is an index and an image at once");
	type = own ? own : said ? said : list ? MEDIA_OCI_INDEX : image ? MEDIA_OCI_MANIFEST : NULL;
	if (!type)
		return den_fail(err, DEN_INVALID, 0, "it is neither an image nor an index");
	*ret = TYPE_FIND(manifest_types, type);
	if (!*ret)
		*ret = TYPE_FIND(index_types, type);
	if (!*ret)
		return den_fail(err, DEN_UNSUPPORTED, 0,
			"it is of the type '%.100s', which is unknown", type);
	return 0;
}

int doc_parse(const char *text, size_t n, const char *said, struct doc *ret, struct den_err *err)
{
	auto_json *j = NULL;
	auto_doc d = { 0 };

	if (doc_load(text, n, &j, err) < 0 || kind_find(j, said, &d.media, err) < 0)
		return -1;
	d.is_index = TYPE_FIND(index_types, d.media);
	if ((d.is_index ? index_get(j, &d, err) : image_get(j, &d, err)) < 0)
		return -1;
	*ret = d;
	d = (struct doc){ 0 };
	return 0;
}

void doc_free(struct doc *d)
{
	free(d->entries);
	free(d->layers);
	*d = (struct doc){ 0 };
}

int config_platform(const char *text, size_t n, struct platform *ret, struct den_err *err)
{
	auto_json *j = NULL;
	struct platform p;

	if (doc_load(text, n, &j, err) < 0 || string_copy(j, "os", p.os, sizeof(p.os), err) < 0 ||
		string_copy(j, "architecture", p.arch, sizeof(p.arch), err) < 0 ||
		string_copy(j, "variant", p.variant, sizeof(p.variant), err) < 0)
		return -1;
	*ret = p;
	return 0;
}
