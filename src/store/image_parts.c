/* What an image is made of, as bytes: checked, encoded, decoded, and its id. */
#include "image_parts.h"

#include <stdio.h>
#include <string.h>

#include "mem.h"
#include "sha256.h"
#include "spec.h"
#include "strv.h"
#include "tar.h"
#include "wire.h"

#define USER_MAX 255
#define PATH_MAX_TEXT 4095
#define ARG_MAX_TEXT (128U << 10)
#define SUB_MAX 200

void image_defaults_free(struct image_defaults *d)
{
	free(d->user);
	free(d->workdir);
	strv_free(d->env);
	strv_free(d->entrypoint);
	strv_free(d->cmd);
	*d = (struct image_defaults){ 0 };
}

void image_layer_free(struct image_layer *l)
{
	free(l->sub);
	free(l->at);
	free(l->diff_id);
	*l = (struct image_layer){ 0 };
}

void image_free(struct image *i)
{
	for (size_t n = 0; n < i->n_layers; n++)
		image_layer_free(&i->layers[n]);
	free(i->layers);
	free(i->parent);
	free(i->config);
	free(i->detail);
	free(i->damage);
	image_defaults_free(&i->defaults);
	*i = (struct image){ 0 };
}

/* ---- what may be in one ---- */

static bool is_hex(const char *s, size_t n)
{
	return strspn(s, "0123456789abcdef") == n && s[n] == '\0';
}

bool hex_is_digest(const char *s)
{
	return is_hex(s, 64);
}

bool image_parent_is_sane(const char *s)
{
	return !strncmp(s, HOST_PREFIX, strlen(HOST_PREFIX)) && is_hex(s + strlen(HOST_PREFIX), 16);
}

/* "a/b": goes into paths and into lines of a file, so it has nothing special in it. */
static bool path_is_plain(const char *s)
{
	size_t n = strlen(s);

	if (n == 0 || n > SUB_MAX ||
		strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/") !=
			n)
		return false;
	for (const char *p = s; p; p = strchr(p, '/')) {
		size_t len;

		p += *p == '/' && p > s;
		len = strcspn(p, "/");
		if (len == 0 || (p[0] == '.' && (len == 1 || (len == 2 && p[1] == '.'))))
			return false;
	}
	return true;
}

static int layer_check(const struct image *img, const struct image_layer *l, struct den_err *err)
{
	bool root = l->at && !strcmp(l->at, "/");

	if (!hex_is_digest(l->hex))
		return den_fail(err, DEN_INVALID, 0, "a layer's digest is not one");
	if (!l->sub || !path_is_plain(l->sub))
		return den_fail(err, DEN_INVALID, 0, "a layer's directory is not a plain path");
	if (!root && (!l->at || l->at[0] != '/' || !path_is_plain(l->at + 1)))
		return den_fail(err, DEN_INVALID, 0, "a layer's tree is not a plain path");
	if (!root && !img->parent)
		return den_fail(err, DEN_INVALID, 0,
			"a layer belongs to '%s', which has nothing below it", l->at);
	if (l->diff_id && (strncmp(l->diff_id, "sha256:", 7) || !hex_is_digest(l->diff_id + 7)))
		return den_fail(err, DEN_INVALID, 0, "'%s' is no digest of a layer",
			tar_show(l->diff_id).s);
	return 0;
}

int image_check(const struct image *img, struct den_err *err)
{
	if (img->parent && !image_parent_is_sane(img->parent))
		return den_fail(err, DEN_INVALID, 0, "'%s' is no template to stand on",
			tar_show(img->parent).s);
	if (!img->parent && !img->n_layers)
		return den_fail(err, DEN_INVALID, 0, "a template needs a layer");
	if (img->n_layers > IMAGE_LAYERS_MAX)
		return den_fail(err, DEN_LIMIT, 0, "%zu layers are too many; %d can be stacked",
			img->n_layers, IMAGE_LAYERS_MAX);
	if (img->config && strlen(img->config) > IMAGE_CONFIG_MAX)
		return den_fail(err, DEN_LIMIT, 0, "the configuration has more than %u MiB",
			IMAGE_CONFIG_MAX >> 20);
	if (img->detail && strlen(img->detail) > IMAGE_DETAIL_MAX)
		return den_fail(err, DEN_LIMIT, 0, "the description has more than %u KiB",
			IMAGE_DETAIL_MAX >> 10);
	for (size_t i = 0; i < img->n_layers; i++)
		if (layer_check(img, &img->layers[i], err) < 0)
			return -1;
	return 0;
}

/* ---- defaults ---- */

static void strv_put(struct buf *b, enum wire_field tag, char *const *v)
{
	for (; v && *v; v++)
		wire_put_str(b, tag, *v);
}

void image_defaults_put(struct buf *b, const struct image_defaults *d)
{
	wire_put_str(b, F_USER, d->user);
	wire_put_str(b, F_CWD, d->workdir);
	strv_put(b, F_ENV, d->env);
	strv_put(b, F_ENTRYPOINT, d->entrypoint);
	strv_put(b, F_ARGV, d->cmd);
}

static int strv_get(const struct wire_value *v, char ***ret, struct den_err *err)
{
	if (v->len > ARG_MAX_TEXT || memchr(v->p, '\0', v->len))
		return den_fail(err, DEN_INVALID, 0, "field %u is too long or has a NUL", v->tag);
	if (v->tag == F_ENV && (v->len == 0 || v->p[0] == '=' || !memchr(v->p, '=', v->len)))
		return den_fail(
			err, DEN_INVALID, 0, "a variable of the environment is not NAME=value");
	strv_addn(ret, v->p, v->len);
	return 0;
}

static int string_get(const struct wire_value *v, size_t max, char **ret, struct den_err *err)
{
	if (*ret)
		return den_fail(err, DEN_INVALID, 0, "field %u is there twice", v->tag);
	return wire_str(v, max, ret, err);
}

static int default_get(const struct wire_value *v, struct image_defaults *d, struct den_err *err)
{
	switch (v->tag) {
	case F_USER:
		return string_get(v, USER_MAX, &d->user, err);
	case F_CWD:
		return string_get(v, PATH_MAX_TEXT, &d->workdir, err);
	case F_ENV:
		return strv_get(v, &d->env, err);
	case F_ENTRYPOINT:
		return strv_get(v, &d->entrypoint, err);
	case F_ARGV:
		return strv_get(v, &d->cmd, err);
	default:
		return wire_unexpected(v, err);
	}
}

/* Also what image_put() checks its own encoding with: nothing is written that could not be read. */
int image_defaults_get(const void *p, size_t n, struct image_defaults *ret, struct den_err *err)
{
	struct wire_reader r = wire_reader(p, n);
	struct wire_value v;
	unsigned count = 0;
	int more;

	while ((more = wire_next(&r, &v, err)) > 0) {
		if (++count > SPEC_MAX_ARGS)
			return den_fail(err, DEN_LIMIT, 0, "more than %d defaults", SPEC_MAX_ARGS);
		if (default_get(&v, ret, err) < 0)
			return -1;
	}
	return more;
}

int image_defaults_check(const struct buf *b, struct den_err *err)
{
	struct image_defaults d = { 0 };
	int r;

	if (b->len > WIRE_MAX_PAYLOAD)
		return den_fail(err, DEN_LIMIT, 0, "environment and commands have more than %u KiB",
			WIRE_MAX_PAYLOAD >> 10);
	r = image_defaults_get(b->p, b->len, &d, err);
	image_defaults_free(&d);
	return r < 0 ? den_wrap(err, "defaults") : 0;
}

/* ---- layers and id ---- */

void image_layers_put(struct buf *b, const struct image *img)
{
	for (size_t i = 0; i < img->n_layers; i++) {
		const struct image_layer *l = &img->layers[i];

		buf_addf(b, "%s\t%s\t%s\t%s\n", l->hex, l->sub, l->at,
			l->diff_id ? l->diff_id : "-");
	}
}

static int layer_get(char *line, struct image *img, struct den_err *err)
{
	const char *hex = strsep(&line, "\t"), *sub = strsep(&line, "\t"),
		   *at = strsep(&line, "\t");
	const char *diff = strsep(&line, "\t");
	struct image_layer l = { 0 };

	if (!diff || line || !hex_is_digest(hex))
		return den_fail(
			err, DEN_INVALID, 0, "not a layer: '%s'", tar_show(hex ? hex : "").s);
	if (img->n_layers == IMAGE_LAYERS_MAX)
		return den_fail(err, DEN_LIMIT, 0, "more than %d layers", IMAGE_LAYERS_MAX);
	memcpy(l.hex, hex, sizeof(l.hex));
	l.sub = mem_strdup(sub);
	l.at = mem_strdup(at);
	l.diff_id = strcmp(diff, "-") ? mem_strdup(diff) : NULL;
	img->layers = mem_realloc(img->layers, (img->n_layers + 1) * sizeof(*img->layers));
	img->layers[img->n_layers++] = l;
	return 0;
}

int image_layers_get(char *text, struct image *img, struct den_err *err)
{
	char *line;

	while ((line = strsep(&text, "\n")))
		if (line[0] ? layer_get(line, img, err) < 0 : text != NULL)
			return line[0] ? -1 : den_fail(err, DEN_INVALID, 0, "an empty line");
	return 0;
}

static void part_add(struct sha256 *s, const char *name, const void *p, size_t n)
{
	char head[64];
	int len = p ? snprintf(head, sizeof(head), "%s %zu\n", name, n) :
		snprintf(head, sizeof(head), "%s -\n", name);

	sha256_add(s, head, (size_t)len);
	if (p)
		sha256_add(s, p, n);
}

void image_parts_id(const struct image_parts *p, char ret[static 65])
{
	struct sha256 s;

	sha256_init(&s);
	sha256_add(&s, "den image 1\n", 12);
	part_add(&s, "parent", p->parent, p->parent ? strlen(p->parent) : 0);
	part_add(&s, "layers", p->layers ? p->layers : "", p->layers_len);
	part_add(&s, "config", p->config, p->config ? strlen(p->config) : 0);
	part_add(&s, "defaults", p->defaults ? p->defaults : "", p->defaults_len);
	sha256_hex(&s, ret);
}
