/* The configuration of a template that a build starts from, and of the one that it makes. */
#include <string.h>

#include "build_parts.h"
#include "json_in.h"
#include "mem.h"
#include "oci_json.h"
#include "strv.h"

static void labels_load(const json_t *config, struct state *s)
{
	const json_t *labels = json_object_get(config, "Labels"),
		     *ports = json_object_get(config, "ExposedPorts");
	void *i;

	for (i = json_object_iter((json_t *)labels); i;
		i = json_object_iter_next((json_t *)labels, i)) {
		const char *v = json_string_value(json_object_iter_value(i));
		auto_free char *pair = NULL;

		if (v && asprintf(&pair, "%s=%s", json_object_iter_key(i), v) >= 0)
			strv_env_put(&s->labels, pair);
	}
	for (i = json_object_iter((json_t *)ports); i;
		i = json_object_iter_next((json_t *)ports, i))
		strv_add(&s->ports, json_object_iter_key(i));
}

int config_load(const struct den_template *t, struct state *s, struct den_err *err)
{
	auto_json j = NULL;

	s->user = t->user ? mem_strdup(t->user) : NULL;
	s->workdir = t->workdir ? mem_strdup(t->workdir) : NULL;
	s->env = strv_copy(t->env);
	s->entrypoint = strv_copy(t->entrypoint);
	s->cmd = strv_copy(t->cmd);
	if (!t->config)
		return 0;
	if (json_in(t->config, strlen(t->config), &j, err) < 0)
		return den_wrap(err, "configuration of the template");
	labels_load(json_object_get(j, "config"), s);
	return 0;
}

static json_t *texts_json(char *const *v)
{
	json_t *a = json_array();

	for (; v && *v; v++)
		json_array_append_new(a, json_string(*v));
	return a;
}

/* A NULL value is one that is no UTF-8, which JSON cannot hold. */
static int put(json_t *obj, const char *key, json_t *value, struct den_err *err)
{
	if (value && json_object_set_new(obj, key, value) == 0)
		return 0;
	return den_fail(err, DEN_INVALID, 0, "'%.60s' is no UTF-8", key);
}

static int pairs_put(json_t *obj, const char *key, char *const *pairs, struct den_err *err)
{
	json_t *o = json_object();
	int r = 0;

	for (; r == 0 && *pairs; pairs++) {
		size_t n = strcspn(*pairs, "=");
		auto_free char *name = mem_strndup(*pairs, n);

		r = put(o, name, (*pairs)[n] ? json_string(*pairs + n + 1) : json_object(), err);
	}
	if (r < 0) {
		json_decref(o);
		return -1;
	}
	return put(obj, key, o, err);
}

int config_text(const struct state *s, char **ret, struct den_err *err)
{
	auto_json root = json_pack("{s:s,s:s}", "architecture", oci_arch(), "os", "linux");
	json_t *c = json_object();

	json_object_set_new(root, "config", c);
	if ((s->env && put(c, "Env", texts_json(s->env), err) < 0) ||
		(s->user && put(c, "User", json_string(s->user), err) < 0) ||
		(s->workdir && put(c, "WorkingDir", json_string(s->workdir), err) < 0) ||
		(s->entrypoint && put(c, "Entrypoint", texts_json(s->entrypoint), err) < 0) ||
		(s->cmd && put(c, "Cmd", texts_json(s->cmd), err) < 0) ||
		(s->stop_signal && put(c, "StopSignal", json_string(s->stop_signal), err) < 0) ||
		(s->labels && pairs_put(c, "Labels", s->labels, err) < 0) ||
		(s->ports && pairs_put(c, "ExposedPorts", s->ports, err) < 0))
		return den_wrap(err, "configuration");
	*ret = json_dumps(root, JSON_COMPACT | JSON_SORT_KEYS);
	return *ret ? 0
		    : den_fail(err, DEN_INTERNAL, 0, "the configuration cannot be written as JSON");
}
