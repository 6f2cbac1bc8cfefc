/* Templates by the names that E2B's clients use. */
#include "e2b_parts.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "mem.h"
#include "parse.h"
#include "suggest.h"

#define CACHE 64
#define CACHE_MS 10000 /* somebody may have changed it from the command line */

void e2b_template_free(struct e2b_template *t)
{
	free(t->stored);
	free(t->id);
	free(t->start);
	free(t->ready);
	free(t->user);
	free(t->files);
}

/* ---- names ---- */

/* den also finds images by the beginning of their digest: those may be anybody's. */
static bool could_be_digest(const char *name, size_t n)
{
	return n >= 12 && strspn(name, "0123456789abcdef") >= n;
}

int e2b_template_split(const char *id, char **ret_name, char **ret_tag, struct den_err *err)
{
	const char *slash = strrchr(id, '/'), *name = slash ? slash + 1 : id,
		   *colon = strchr(name, ':');
	size_t n = colon ? (size_t)(colon - name) : strlen(name);

	if (!n || n > 128 || (colon && (!colon[1] || strchr(colon + 1, ':'))))
		return den_fail(err, DEN_INVALID, 0,
			"'%.100s' is no name of a template; it is like my-app or my-app:v1", id);
	if (could_be_digest(name, n))
		return den_fail(err, DEN_INVALID, 0,
			"'%.100s' could be the digest of an image; templates are known by names",
			id);
	*ret_name = mem_strndup(name, n);
	*ret_tag = mem_strdup(colon ? colon + 1 : "default");
	return 0;
}

int e2b_template_stored(
	const struct who *who, const char *id, const char *tag, char **ret, struct den_err *err)
{
	auto_free char *name = NULL, *own_tag = NULL, *stored = NULL;

	if (e2b_template_split(id, &name, &own_tag, err) < 0 ||
		auth_name(who, name, &stored, err) < 0)
		return -1;
	if (!tag)
		tag = own_tag;
	if (!strcmp(tag, "default"))
		*ret = mem_take(&stored);
	else if (asprintf(ret, "%s:%s", stored, tag) < 0)
		abort();
	return 0;
}

int e2b_template_writable(const struct who *who, const char *stored, struct den_err *err)
{
	static const char *const shared[] = { "base", "code-interpreter", "code-interpreter-v1" };
	size_t n = strcspn(stored, ":");

	if (who->admin)
		return 0;
	if (could_be_digest(stored, n)) /* names an image, perhaps another's */
		return den_fail(err, DEN_NOT_FOUND, 0, "no template '%.100s'", stored);
	/* images as build.c pulled them, for everybody who begins with one */
	if (!strncmp(stored, "pulled/", 7))
		return den_fail(err, DEN_DENIED, 0,
			"templates whose names begin with 'pulled/' are everybody's: it takes a key with the "
			"scope 'admin' to change them; choose another name");
	for (size_t i = 0; i < ARRAY_SIZE(shared); i++)
		if (strlen(shared[i]) == n && !strncmp(stored, shared[i], n))
			return den_fail(err, DEN_DENIED, 0,
				"template '%s' is everybody's: it takes a key with the scope "
				"'admin' to "
				"change it; choose another name",
				shared[i]);
	return 0;
}

bool e2b_template_readable(const struct who *who, const char *name)
{
	return who->admin || !could_be_digest(name, strcspn(name, ":"));
}

/* ---- what is remembered ---- */

static struct {
	pthread_mutex_t lock;
	struct {
		char *key; /* "ORG NAME" */
		int64_t until_ms;
		struct e2b_template t;
	} slots[CACHE];
	unsigned next, generation;
} cache = { .lock = PTHREAD_MUTEX_INITIALIZER };

static char *copy(const char *s)
{
	return s ? mem_strdup(s) : NULL;
}

static struct e2b_template template_copy(const struct e2b_template *t)
{
	return (struct e2b_template){ .stored = copy(t->stored),
		.id = copy(t->id),
		.start = copy(t->start),
		.ready = copy(t->ready),
		.user = copy(t->user),
		.baked = t->baked,
		.disk = t->disk,
		.files = copy(t->files),
		.cpu_milli = t->cpu_milli,
		.memory = t->memory };
}

static bool cache_get(const char *key, struct e2b_template *ret, unsigned *ret_generation)
{
	int64_t now = clock_mono_ns() / NS_PER_MS;
	bool found = false;

	pthread_mutex_lock(&cache.lock);
	for (size_t i = 0; i < CACHE && !found; i++)
		if (cache.slots[i].key && !strcmp(cache.slots[i].key, key) &&
			cache.slots[i].until_ms > now) {
			*ret = template_copy(&cache.slots[i].t);
			found = true;
		}
	*ret_generation = cache.generation;
	pthread_mutex_unlock(&cache.lock);
	return found;
}

static void cache_put(const char *key, const struct e2b_template *t, unsigned generation)
{
	unsigned i;

	pthread_mutex_lock(&cache.lock);
	if (generation == cache.generation) { /* else it was changed while we looked */
		i = cache.next++ % CACHE;
		free(cache.slots[i].key);
		e2b_template_free(&cache.slots[i].t);
		cache.slots[i].key = mem_strdup(key);
		cache.slots[i].t = template_copy(t);
		cache.slots[i].until_ms = clock_mono_ns() / NS_PER_MS + CACHE_MS;
	}
	pthread_mutex_unlock(&cache.lock);
}

void e2b_template_changed(void)
{
	pthread_mutex_lock(&cache.lock);
	cache.generation++;
	for (size_t i = 0; i < CACHE; i++)
		cache.slots[i].until_ms = 0;
	pthread_mutex_unlock(&cache.lock);
}

/* ---- finding ---- */

static void config_read(const struct den_template *d, struct e2b_template *t)
{
	auto_json *config = d->config ? json_loads(d->config, 0, NULL) : NULL;
	const json_t *labels = json_object_get(json_object_get(config, "config"), "Labels");
	const char *start = json_string_value(json_object_get(labels, "den.start")),
		   *ready = json_string_value(json_object_get(labels, "den.ready")),
		   *user = json_string_value(json_object_get(labels, "den.start.user")),
		   *cpu = json_string_value(json_object_get(labels, "den.cpu")),
		   *memory = json_string_value(json_object_get(labels, "den.memory"));

	t->start = copy(start && *start ? start : NULL);
	t->ready = copy(ready && *ready ? ready : NULL);
	t->user = copy(user);
	if (cpu && parse_u64(cpu, 10, 1024000, &t->cpu_milli, NULL) < 0)
		t->cpu_milli = 0;
	if (memory && parse_u64(memory, 4 << 20, 1ULL << 44, &t->memory, NULL) < 0)
		t->memory = 0;
}

bool e2b_template_baked(const struct den_template *t)
{
	return t->baked;
}

const char *e2b_template_seen(const struct who *who, const struct den_template *t)
{
	return t->name ? auth_name_seen(who, t->name, !e2b_template_baked(t) || who->admin) : NULL;
}

static int template_load(
	struct req *r, const char *stored, struct e2b_template *t, struct den_err *err)
{
	struct den_template *d;

	if (den_template_get(req_den(r), stored, &d, err) < 0)
		return -1;
	config_read(d, t);
	t->baked = e2b_template_baked(d);
	t->disk = d->disk;
	t->files = copy(d->files);
	den_templates_free(d, 1);
	t->stored = mem_strdup(stored);
	return 0;
}

static int no_template(struct req *r, const char *id, const char *name, struct den_err *err)
{
	auto_free char *near = NULL;

	if (!strcmp(name, "base") || !strncmp(name, "code-interpreter", 16))
		return den_fail(err, DEN_NOT_FOUND, 0,
			"template '%.100s' not found; it is made when the server first starts: try again in a few "
			"seconds, or look at its log", id);
	near = suggest_template(r, id);
	return den_fail(err, DEN_NOT_FOUND, 0, "template '%.100s' not found%s%.80s%s", id,
		near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

/* The organisation's own comes first, then the ones that everybody has. */
static int template_look(struct req *r, const char *id, struct e2b_template *t, struct den_err *err)
{
	static const struct who everybody = { .org = "default" };
	auto_free char *own = NULL, *shared = NULL;
	const char *name = id;

	if (!strcmp(id, "base") || !strcmp(id, "base:default"))
		name = serve.e2b_template ? serve.e2b_template : "base";
	if (e2b_template_stored(req_who(r), name, NULL, &own, err) < 0 ||
		e2b_template_stored(&everybody, name, NULL, &shared, err) < 0)
		return den_fail(err, DEN_NOT_FOUND, 0, "template '%.100s' not found", id);
	if (template_load(r, own, t, err) == 0)
		return 0;
	if (err->code == DEN_NOT_FOUND && strcmp(own, shared) && template_load(r, shared, t, err) == 0) {
		if (!t->baked || req_who(r)->admin)
			return 0;
		if (t->files) { /* what everybody has of it */
			t->baked = false;
			free(t->stored);
			t->stored = mem_take(&t->files);
			return 0;
		}
		return no_template(r, id, name, err); /* e2b_template_seen() says why */
	}
	return err->code == DEN_NOT_FOUND || err->code == DEN_INVALID ? no_template(r, id, name, err) : -1;
}

int e2b_template_find(struct req *r, const char *id, struct e2b_template *ret, struct den_err *err)
{
	auto_free char *key = NULL;
	auto_template t = { 0 };
	unsigned generation;

	if (!id || !*id)
		id = "base";
	/* an admin finds more under the same name */
	if (asprintf(&key, "%s%s %s", req_who(r)->admin ? "!" : "", req_who(r)->org, id) < 0)
		abort();
	if (cache_get(key, ret, &generation))
		return 0;
	if (template_look(r, id, &t, err) < 0)
		return -1;
	t.id = mem_strdup(id);
	cache_put(key, &t, generation);
	*ret = t;
	t = (struct e2b_template){ 0 };
	return 0;
}
