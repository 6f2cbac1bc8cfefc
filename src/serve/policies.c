#include "policies.h"

#include <stdio.h>
#include <string.h>

#include "mem.h"

/* The secret's name as stored. The variable keeps the name that the organisation gave it. */
static int secret_in(const struct who *w, json_t *secret, struct den_err *err)
{
	const char *name = json_string_value(json_object_get(secret, "name"));
	auto_free char *stored = NULL, *own = NULL;
	size_t i;
	json_t *in, *place;
	bool signs = false;

	if (!name)
		return 0; /* the keeper says what is wrong */
	/* who says to which host it goes can have it */
	if (!auth_scope(w, "secrets"))
		return den_fail(err, DEN_DENIED, 0,
			"policy: secrets: a key that grants secrets needs the scope 'secrets'");
	if (w->admin && !strncmp(name, "o.", 2))
		return 0; /* another organisation's, as policies_out() showed it */
	own = mem_strdup(name);
	if (auth_name(w, own, &stored, err) < 0)
		return den_wrap(err, "policy: secrets");
	in = json_object_get(secret, "in");
	json_array_foreach(in, i, place) signs =
		signs || (json_is_string(place) && !strcmp(json_string_value(place), "sigv4"));
	if (strcmp(own, stored) && !json_object_get(secret, "env") && !signs)
		json_object_set_new(secret, "env", json_string(own));
	json_object_set_new(secret, "name", json_string(stored));
	return 0;
}

static int identity_in(const struct who *w, json_t *identity, struct den_err *err)
{
	const char *org = json_string_value(json_object_get(identity, "org"));

	if (!json_is_object(identity) || w->admin)
		return 0;
	if (org && strcmp(org, w->org))
		return den_fail(err, DEN_DENIED, 0,
			"policy: identity.org: tokens of this key's boxes say '%s'; leave it out",
			w->org);
	json_object_set_new(identity, "org", json_string(w->org));
	return 0;
}

int policies_in(const struct who *w, const json_t *policy, char **ret, struct den_err *err)
{
	json_t *mine = json_deep_copy(policy), *secret;
	auto_free char *text = NULL;
	size_t i;
	int r = 0;

	json_array_foreach(json_object_get(mine, "secrets"), i,
		secret) if (r == 0 && json_is_object(secret)) r = secret_in(w, secret, err);
	if (r == 0 && json_object_get(mine, "identity"))
		r = identity_in(w, json_object_get(mine, "identity"), err);
	text = r == 0 ? json_dumps(mine, JSON_COMPACT) : NULL;
	json_decref(mine);
	if (r < 0)
		return -1;
	if (!text)
		return den_fail(err, DEN_INVALID, 0, "a policy is a JSON object");
	*ret = mem_take(&text);
	return 0;
}

json_t *policies_out(const struct who *w, const char *stored)
{
	json_t *p = stored ? json_loads(stored, 0, NULL) : json_pack("{si}", "version", 1), *secret;
	size_t i;

	json_array_foreach(json_object_get(p, "secrets"), i, secret)
	{
		const char *name = json_string_value(json_object_get(secret, "name"));
		const char *seen = name ? auth_name_seen(w, name, false) : NULL;

		if (seen && seen != name)
			json_object_set_new(secret, "name", json_string(seen));
	}
	return p;
}

static json_t *list_of(json_t *policy, const char *key)
{
	json_t *a = json_object_get(policy, key);

	if (!json_is_array(a)) {
		a = json_array();
		json_object_set_new(policy, key, a);
	}
	return a;
}

int policies_allow(json_t *policy, const char *host, uint16_t port, struct den_err *err)
{
	char rule[330], denied[330];
	json_t *allow = list_of(policy, "allow"), *v;
	size_t i;

	snprintf(denied, sizeof(denied), strchr(host, ':') ? "[%s]" : "%s", host);
	if (port)
		snprintf(rule, sizeof(rule), "%.300s:%u", denied, port);
	else
		snprintf(rule, sizeof(rule), "%s", denied);
	if (!*host || strpbrk(host, " /\t\r\n"))
		return den_fail(err, DEN_INVALID, 0,
			"host is a name like example.com, *.example.com, or an address");
	json_array_foreach(json_object_get(policy, "deny"), i, v)
	{
		const char *s = json_string_value(v);

		if (s && (!strcmp(s, rule) || !strcmp(s, denied))) {
			json_array_remove(json_object_get(policy, "deny"), i);
			break;
		}
	}
	json_array_foreach(
		allow, i, v) if (json_is_string(v) && !strcmp(json_string_value(v), rule)) return 0;
	json_array_append_new(allow, json_string(rule));
	return 0;
}
