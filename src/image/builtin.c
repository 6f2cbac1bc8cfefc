#include "builtin.h"

#include <stdio.h>
#include <string.h>

#include "builtin_parts.h"
#include "json_in.h"
#include "mem.h"
#include "oci_json.h"
#include "parse.h"
#include "sha256.h"
#include "strv.h"

#define WORKDIR "/home/user"

/* A recipe stands after the one that it stands on. */
static const struct recipe recipes[] = {
	{ "base", NULL, "this machine's own system, with the account that E2B's clients expect",
		"host", "base.sh", NULL, NULL, NULL },
	{ "code-interpreter-v1", "code-interpreter",
		"base, and a server that runs Python, JavaScript and bash by cells", "base",
		"code-interpreter.sh", "exec /usr/local/lib/den/interpreter/server.py",
		"bash -c 'exec 3<>/dev/tcp/127.0.0.1/49999'", "49999" },
};

static const char *const state_names[] = { "missing", "built", "old", "other" };
static_assert(ARRAY_SIZE(state_names) == BUILTIN_OTHER + 1, "a state has no name");

const char *builtin_state_str(enum builtin_state s)
{
	return state_names[s];
}

static const struct recipe *recipe_find(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(recipes); i++)
		if (!strcmp(recipes[i].name, name) ||
			(recipes[i].alias && !strcmp(recipes[i].alias, name)))
			return &recipes[i];
	return NULL;
}

static int recipe_get(const char *name, const struct recipe **ret, struct den_err *err)
{
	const char *names[ARRAY_SIZE(recipes)], *near;

	*ret = recipe_find(name);
	if (*ret)
		return 0;
	for (size_t i = 0; i < ARRAY_SIZE(recipes); i++)
		names[i] = recipes[i].name;
	near = parse_nearest(name, names, ARRAY_SIZE(names));
	return den_fail(err, DEN_NOT_FOUND, 0, "there is no builtin template '%.60s'%s%s%s", name,
		near ? "; did you mean '" : "; 'den template builtin' lists them", near ? near : "",
		near ? "'?" : "");
}

/* ---- what is there --------------------------------------------------------------------------- */

/* A template that was made by a recipe: what its labels say. */
struct found {
	char *id, *ground; /* ground: what it is made of, for key_make() */
	char *key, *packages, *with; /* key NULL: it is not of ours */
};

static void found_free(struct found *f)
{
	char *const all[] = { f->id, f->ground, f->key, f->packages, f->with };

	for (size_t i = 0; i < ARRAY_SIZE(all); i++)
		free(all[i]);
}
#define auto_found __attribute__((cleanup(found_free))) struct found

static char *label_of(const json_t *labels, const char *name)
{
	const char *v = json_string_value(json_object_get(labels, name));

	return v ? mem_strdup(v) : NULL;
}

/* f->id NULL: there is none of that name. */
static int find(struct den *d, const char *name, struct found *f, struct den_err *err)
{
	auto_template t = NULL;
	auto_json config = NULL;
	const json_t *labels;

	if (den_template_get(d, name, &t, err) < 0)
		return err->code == DEN_NOT_FOUND ? 0 : -1;
	f->id = mem_strdup(t->id);
	f->ground = mem_strdup(strcmp(t->id, "host") || !t->parent ? t->id : t->parent);
	if (!t->config || json_in(t->config, strlen(t->config), &config, NULL) < 0)
		return 0;
	labels = json_object_get(json_object_get(config, "config"), "Labels");
	f->key = label_of(labels, BUILTIN_LABEL);
	f->packages = label_of(labels, BUILTIN_LABEL_PACKAGES);
	f->with = label_of(labels, BUILTIN_LABEL_WITH);
	return 0;
}

/* What goes into a template: the recipe and its files, what it stands on, what was asked for. */
static void key_make(const struct recipe *r, const char *ground, const char *packages,
	const char *with, char ret[static 65])
{
	const char *const texts[] = { "den builtin 1", r->name, ground, packages, with, r->start,
		r->ready };
	struct sha256 s;

	sha256_init(&s);
	sha256_add(&s, den_builtin_tar, (size_t)(den_builtin_tar_end - den_builtin_tar));
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		sha256_add(&s, texts[i] ? texts[i] : "", texts[i] ? strlen(texts[i]) + 1 : 1);
	sha256_hex(&s, ret);
}

static int state_find(struct den *d, const struct recipe *r, struct found *f,
	enum builtin_state *ret, struct den_err *err)
{
	auto_found base = { 0 };
	enum builtin_state below = BUILTIN_BUILT;
	char key[65];

	if (find(d, r->name, f, err) < 0)
		return -1;
	*ret = !f->id ? BUILTIN_MISSING : !f->key ? BUILTIN_OTHER : BUILTIN_BUILT;
	if (*ret != BUILTIN_BUILT)
		return 0;
	if (recipe_find(r->base)) {
		if (state_find(d, recipe_find(r->base), &base, &below, err) < 0)
			return -1;
	} else if (find(d, r->base, &base, err) < 0) {
		return -1;
	}
	key_make(r, base.ground, f->packages, f->with, key);
	/* one that stands on somebody else's "base" is what its owner wanted */
	if (strcmp(key, f->key) || below == BUILTIN_OLD)
		*ret = BUILTIN_OLD;
	return 0;
}

int builtin_list(struct den *d, struct builtin_info **ret, size_t *n, struct den_err *err)
{
	struct builtin_info *list =
		mem_zalloc(sizeof(recipes) / sizeof(recipes[0]) * sizeof(*list));

	for (size_t i = 0; i < ARRAY_SIZE(recipes); i++) {
		auto_found f = { 0 };

		list[i] = (struct builtin_info){ .name = recipes[i].name,
			.alias = recipes[i].alias,
			.summary = recipes[i].summary };
		if (state_find(d, &recipes[i], &f, &list[i].state, err) < 0) {
			builtin_infos_free(list, i + 1);
			return -1;
		}
		list[i].id = mem_take(&f.id);
	}
	*ret = list;
	*n = ARRAY_SIZE(recipes);
	return 0;
}

void builtin_infos_free(struct builtin_info *list, size_t n)
{
	for (size_t i = 0; i < n; i++)
		free(list[i].id);
	free(list);
}

/* ---- making ---------------------------------------------------------------------------------- */

/* "A,B" as a vector; each must be a name that neither a shell nor apt-get takes for anything else. */
static int list_split(const char *what, const char *text, char ***ret, struct den_err *err)
{
	static const char chars[] = "abcdefghijklmnopqrstuvwxyz0123456789+-.:=~_"
				    "ABCDEFGHIJKLMNOPQRSTUVWXYZ";

	while (text && *text) {
		size_t n = strcspn(text, ",");

		if (!n || n > 128 || strspn(text, chars) != n || text[0] == '-')
			return den_fail(err, DEN_INVALID, 0,
				"--%s: '%.40s' is no list of names; write it like A,B", what, text);
		strv_addn(ret, text, n);
		text += n + (text[n] == ',');
	}
	return 0;
}

static int config_make(const struct recipe *r, const char *user, const char *key,
	const char *packages, const char *with, char **ret, struct den_err *err)
{
	auto_json root = json_pack("{s:s, s:s, s:{s:s, s:s, s:{s:s}}}", "architecture", oci_arch(),
		"os", "linux", "config", "User", user, "WorkingDir", WORKDIR, "Labels",
		BUILTIN_LABEL, key);
	json_t *labels = json_object_get(json_object_get(root, "config"), "Labels");
	const struct {
		const char *name, *value;
	} more[] = { { BUILTIN_LABEL_PACKAGES, packages }, { BUILTIN_LABEL_WITH, with },
		{ BUILTIN_LABEL_START, r->start }, { BUILTIN_LABEL_READY, r->ready },
		{ BUILTIN_LABEL_PORT, r->port } };

	for (size_t i = 0; i < ARRAY_SIZE(more); i++)
		if (more[i].value && *more[i].value)
			json_object_set_new(labels, more[i].name, json_string(more[i].value));
	*ret = json_dumps(root, JSON_COMPACT | JSON_SORT_KEYS);
	return *ret ? 0 : den_fail(err, DEN_INTERNAL, 0, "the configuration cannot be written");
}

/* The box may get a way out for a while (recipe_run()), so it is not one of work_box(). */
static int make_in_box(const struct work *w, const struct recipe *r, const struct found *base,
	const char *packages, const char *with, struct builtin_made *ret, struct den_err *err)
{
	const struct den_box_spec spec = { .size = sizeof(spec),
		.template_name = base->id,
		.user = "root",
		.workdir = "/",
		.ephemeral = true, /* should we be killed, it goes by itself */
		.history = "manual" };
	struct den_template_opt opt = {
		.size = sizeof(opt), .name = r->name, .detail = r->summary, .workdir = WORKDIR
	};
	auto_free char *config = NULL;
	auto_strv names = NULL;
	auto_strv words = NULL;
	auto_den_box box = NULL;
	bool root;
	char key[65];

	key_make(r, base->ground, packages, with, key);
	if (list_split("packages", packages, &names, err) < 0 ||
		list_split("with", with, &words, err) < 0 || interrupt_check(err) < 0 ||
		den_box_create(w->den, &spec, &box, err) < 0 ||
		recipe_run(w, r, box, words, names, &ret->warnings, &root, err) < 0)
		return -1;
	opt.user = root ? "root" : "user";
	if (config_make(r, opt.user, key, packages, with, &config, err) < 0)
		return -1;
	opt.config = config;
	return den_template_commit(box, NULL, &opt, &ret->id, err);
}

/* A template of somebody else's keeps its name. */
static int alias_put(
	const struct work *w, const struct recipe *r, struct builtin_made *m, struct den_err *err)
{
	auto_found f = { 0 };

	if (!r->alias)
		return 0;
	if (find(w->den, r->alias, &f, err) < 0)
		return -1;
	if (f.id && !f.key) {
		strv_add(&m->warnings, "its other name means a template of yours, and stays so");
		return 0;
	}
	return f.id && !strcmp(f.id, m->id) ? 0 : den_template_tag(w->den, m->id, r->alias, err);
}

/* What a recipe stands on, which is made or made anew if need be. */
static int base_make(
	const struct work *w, const struct recipe *r, struct found *ret, struct den_err *err)
{
	const struct builtin_opt opt = { 0 };
	struct builtin_made below = { 0 };
	auto_found f = { 0 };

	if (find(w->den, r->base, &f, err) < 0)
		return -1;
	/* a "base" of somebody else's is taken as it is: he wanted it so */
	if (recipe_find(r->base) && (!f.id || f.key)) {
		if (builtin_make(w, r->base, &opt, &below, err) < 0)
			return -1;
		builtin_made_free(&below);
	}
	if (find(w->den, r->base, ret, err) < 0)
		return -1;
	return ret->id ? 0 : den_fail(err, DEN_NOT_FOUND, 0, "there is no template '%s'", r->base);
}

static int make(const struct work *w, const struct recipe *r, const struct builtin_opt *opt,
	struct builtin_made *ret, struct den_err *err)
{
	auto_found f = { 0 }, base = { 0 };
	enum builtin_state state;
	const char *packages, *with;
	char key[65];

	if (state_find(w->den, r, &f, &state, err) < 0)
		return -1;
	if (state == BUILTIN_OTHER && !opt->force)
		return den_fail(err, DEN_CONFLICT, 0,
			"the template '%s' was made by somebody else; --force puts the builtin one "
			"in its "
			"place",
			r->name);
	packages = opt->packages ? opt->packages : f.packages;
	with = opt->with ? opt->with : f.with;
	if (base_make(w, r, &base, err) < 0)
		return den_wrap(err, "%s", r->base);
	key_make(r, base.ground, packages, with, key);
	if (!opt->force && f.key && !strcmp(key, f.key)) {
		ret->id = mem_take(&f.id);
		return 0;
	}
	work_note(w, "making %s", r->name);
	ret->made = true;
	return make_in_box(w, r, &base, packages, with, ret, err);
}

int builtin_make(const struct work *w, const char *name, const struct builtin_opt *opt,
	struct builtin_made *ret, struct den_err *err)
{
	struct builtin_made m = { 0 };
	const struct recipe *r;

	if (recipe_get(name, &r, err) < 0)
		return -1;
	m.name = r->name;
	if (make(w, r, opt, &m, err) < 0 || alias_put(w, r, &m, err) < 0) {
		builtin_made_free(&m);
		return -1;
	}
	*ret = m;
	return 0;
}

void builtin_made_free(struct builtin_made *m)
{
	free(m->id);
	strv_free(m->warnings);
}
