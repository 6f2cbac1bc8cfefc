/* /v1/templates */
#include <string.h>

#include "auth.h"
#include "e2b_parts.h"
#include "events.h"
#include "handlers.h"
#include "mem.h"
#include "parse.h"

static json_t *template_json(struct req *r, const struct den_template *t)
{
	const char *seen = t->name ? auth_name_seen(req_who(r), t->name, true) : NULL;
	json_t *o = json_object();

	json_object_set_new(o, "name", v1_text(seen ? seen : t->name));
	json_object_set_new(o, "id", v1_text(t->id));
	json_object_set_new(o, "parent", v1_text(t->parent));
	json_object_set_new(o, "detail", v1_text(t->detail));
	json_object_set_new(o, "user", v1_text(t->user));
	json_object_set_new(o, "workdir", v1_text(t->workdir));
	json_object_set_new(o, "env", v1_map(t->env));
	json_object_set_new(o, "entrypoint", v1_strings(t->entrypoint));
	json_object_set_new(o, "cmd", v1_strings(t->cmd));
	json_object_set_new(o, "layers", v1_strings(t->layers));
	json_object_set_new(o, "bytes", json_integer((json_int_t)t->bytes));
	json_object_set_new(o, "created", v1_time(t->created_ms));
	return o;
}

static bool seen_by(struct req *r, const struct den_template *t)
{
	return e2b_template_seen(req_who(r), t) != NULL;
}

/* Of a name that is not the organisation's own: *ret is what it is for it. Of one with programs that is the files, if it
 * has any beside them. One that is not there at all is refused where it is used. */
static int find_shared(struct req *r, const char *name, char **ret, struct den_err *err)
{
	struct den_template *t;

	if (den_template_get(req_den(r), name, &t, err) < 0) {
		if (err->code != DEN_NOT_FOUND)
			return -1;
		*ret = mem_strdup(name);
		return 0;
	}
	*ret = seen_by(r, t) ? mem_strdup(name) : t->files ? mem_strdup(t->files) : NULL;
	den_templates_free(t, 1);
	return *ret ? 0 : den_fail(err, DEN_NOT_FOUND, 0, "no template '%.100s'; 'den template ls' lists them", name);
}

int v1_template_find(struct req *r, const char *name, char **ret, struct den_err *err)
{
	auto_free char *own = NULL;
	struct den_template *t;

	if (auth_name(req_who(r), name, &own, err) < 0)
		return den_wrap(err, "template");
	if (!e2b_template_readable(req_who(r), name)) /* a digest may be of another organisation's */
		return den_fail(err, DEN_NOT_FOUND, 0, "no template '%.100s': templates are known by names", name);
	if (!strcmp(own, name)) { /* "default" has plain names */
		*ret = mem_take(&own);
		return 0;
	}
	if (den_template_get(req_den(r), own, &t, err) == 0) {
		den_templates_free(t, 1);
		*ret = mem_take(&own);
		return 0;
	}
	return err->code == DEN_NOT_FOUND ? find_shared(r, name, ret, err) : -1;
}

int v1_templates_list(struct req *r, struct den_err *err)
{
	struct den_template *t;
	size_t n, from, to, at = 0;
	json_t *a, *o;
	int res;

	if (!QUERY(r, err, "limit", "cursor", ) || den_templates(req_den(r), &t, &n, err) < 0)
		return -1;
	for (size_t i = 0; i < n; i++)
		at += seen_by(r, &t[i]);
	a = json_array();
	o = json_pack("{so}", "templates", a);
	res = v1_page(r, o, at, &from, &to, err);
	at = 0;
	for (size_t i = 0; i < n && res == 0; i++) {
		if (!seen_by(r, &t[i]))
			continue;
		if (at >= from && at < to)
			json_array_append_new(a, template_json(r, &t[i]));
		at++;
	}
	den_templates_free(t, n);
	if (res == 0)
		return req_reply_json(r, 200, o);
	json_decref(o);
	return -1;
}

int v1_template_get(struct req *r, struct den_err *err)
{
	auto_free char *name = NULL;
	struct den_template *t;

	if (!QUERY(r, err) || v1_template_find(r, req_arg(r, "name"), &name, err) < 0 ||
		den_template_get(req_den(r), name, &t, err) < 0)
		return -1;
	req_reply_json(r, 200, template_json(r, t));
	den_templates_free(t, 1);
	return 0;
}

int v1_template_delete(struct req *r, struct den_err *err)
{
	auto_free char *name = NULL;
	bool force = false;

	if (!QUERY(r, err, "force", ) || !v1_flag(r, "force", &force, err) ||
		auth_name(req_who(r), req_arg(r, "name"), &name, err) < 0 ||
		e2b_template_writable(req_who(r), name, err) < 0 ||
		den_template_remove(req_den(r), name, force, err) < 0)
		return -1;
	events_post("template.removed", req_who(r)->org, NULL,
		json_pack("{ss}", "name", req_arg(r, "name")));
	return req_reply_empty(r, 204);
}

int v1_template_tag(struct req *r, struct den_err *err)
{
	static const struct field table[] = { { "name", FIELD_TEXT, 0, FIELD_MUST, .min = 1,
		.max = 128 } };
	auto_json *body = NULL;
	auto_free char *from = NULL, *to = NULL;
	const char *name = NULL;

	if (!QUERY(r, err) || req_json(r, &body, err) < 0 ||
		fields_get(body, table, 1, true, &name, err) < 0 ||
		v1_template_find(r, req_arg(r, "name"), &from, err) < 0 ||
		auth_name(req_who(r), name, &to, err) < 0 ||
		e2b_template_writable(req_who(r), to, err) < 0 ||
		den_template_tag(req_den(r), from, to, err) < 0)
		return -1;
	events_post("template.made", req_who(r)->org, NULL,
		json_pack("{ss ss}", "name", name, "from", req_arg(r, "name")));
	return req_reply_json(r, 201, json_pack("{ss}", "name", name));
}
