/* /v1: secrets, keys, whoami. */
#include <stdlib.h>
#include <string.h>

#include "auth.h"
#include "b64.h"
#include "events.h"
#include "handlers.h"
#include "keys.h"
#include "mem.h"
#include "strv.h"

/* ---- secrets: no call gives a value back ---- */

int v1_secrets_list(struct req *r, struct den_err *err)
{
	struct den_secret *s;
	size_t n, from, to, at = 0, mine = 0;
	json_t *a, *o;
	int res;

	if (!QUERY(r, err, "limit", "cursor", ) || den_secret_list(req_den(r), &s, &n, err) < 0)
		return -1;
	for (size_t i = 0; i < n; i++)
		mine += auth_name_seen(req_who(r), s[i].name, false) != NULL;
	a = json_array();
	o = json_pack("{so}", "secrets", a);
	res = v1_page(r, o, mine, &from, &to, err);
	for (size_t i = 0; i < n && res == 0; i++) {
		const char *seen = auth_name_seen(req_who(r), s[i].name, false);

		if (seen && at >= from && at < to)
			json_array_append_new(a, json_pack("{so so so so}", "name", v1_text(seen),
							 "created", v1_time(s[i].created_ms),
							 "changed", v1_time(s[i].changed_ms),
							 "damaged", v1_text(s[i].damaged)));
		at += seen != NULL;
	}
	den_secrets_free(s, n);
	if (res == 0)
		return req_reply_json(r, 200, o);
	json_decref(o);
	return -1;
}

int v1_secret_put(struct req *r, struct den_err *err)
{
	struct args {
		const char *value, *value_b64;
	} a = { 0 };
	static const struct field table[] = {
		{ "value", FIELD_TEXT, offsetof(struct args, value), 0, .min = 1,
			.max = 64U << 10 },
		{ "value_b64", FIELD_TEXT, offsetof(struct args, value_b64), 0, .min = 1,
			.max = 88U << 10 },
	};
	auto_json *body = NULL;
	auto_free char *name = NULL, *bytes = NULL;
	ssize_t n;
	int res;

	if (!QUERY(r, err) || auth_name(req_who(r), req_arg(r, "name"), &name, err) < 0 ||
		req_json(r, &body, err) < 0 ||
		fields_get(body, table, ARRAY_SIZE(table), true, &a, err) < 0)
		return -1;
	if (!a.value == !a.value_b64)
		return den_fail(
			err, DEN_INVALID, 0, "give value, or value_b64 (base64 of its bytes)");
	n = (ssize_t)strlen(a.value ? a.value : a.value_b64);
	bytes = mem_zalloc((size_t)n + 1);
	if (a.value)
		memcpy(bytes, a.value, (size_t)n);
	else
		n = b64_get(bytes, (size_t)n, a.value_b64, (size_t)n, B64_STD);
	res = n < 0 ? den_fail(err, DEN_INVALID, 0, "value_b64 is not base64")
		    : den_secret_set(req_den(r), name, bytes, (size_t)n, err);
	explicit_bzero(bytes, strlen(a.value ? a.value : a.value_b64));
	explicit_bzero(
		(char *)(a.value ? a.value : a.value_b64), strlen(a.value ? a.value : a.value_b64));
	return res < 0 ? -1 : req_reply_empty(r, 204);
}

int v1_secret_delete(struct req *r, struct den_err *err)
{
	auto_free char *name = NULL;

	if (!QUERY(r, err) || auth_name(req_who(r), req_arg(r, "name"), &name, err) < 0 ||
		den_secret_remove(req_den(r), name, err) < 0)
		return -1;
	return req_reply_empty(r, 204);
}

/* ---- who ---- */

static void scope_add(const char *name, void *user)
{
	json_array_append_new(user, json_string(name));
}

static json_t *who_json(const struct who *w)
{
	json_t *scopes = json_array(), *quota;

	key_scope_each(w->scopes, scope_add, scopes);
	quota = json_pack("{so so so so so}", "boxes", v1_count(w->quota.boxes), "cpu_milli",
		v1_count(w->quota.cpu_milli), "memory", v1_count(w->quota.memory), "disk",
		v1_count(w->quota.disk), "rate", v1_count(w->quota.rate));
	return json_pack("{ss so sb so so}", "org", w->org, "name",
		v1_text(w->name[0] ? w->name : NULL), "admin", w->admin, "scopes", scopes, "quota",
		quota);
}

int v1_whoami(struct req *r, struct den_err *err)
{
	json_t *o;

	if (!QUERY(r, err))
		return -1;
	o = who_json(req_who(r));
	json_object_set_new(o, "key", json_string(req_who(r)->key));
	return req_reply_json(r, 200, o);
}

/* ---- keys ---- */

static json_t *key_json(const struct key_info *k)
{
	json_t *o = who_json(&k->who);

	json_object_set_new(o, "id", json_string(k->who.key));
	json_object_set_new(o, "created", v1_time(k->created_ms));
	json_object_set_new(o, "revoked", v1_time(k->revoked_ms));
	return o;
}

int v1_keys_list(struct req *r, struct den_err *err)
{
	auto_free struct key_info *k = NULL;
	size_t n, from, to;
	json_t *a, *o;

	if (!QUERY(r, err, "org", "limit", "cursor", ) ||
		keys_list(req_query(r, "org"), &k, &n, err) < 0)
		return -1;
	a = json_array();
	o = json_pack("{so}", "keys", a);
	if (v1_page(r, o, n, &from, &to, err) < 0) {
		json_decref(o);
		return -1;
	}
	for (size_t i = from; i < to; i++)
		json_array_append_new(a, key_json(&k[i]));
	return req_reply_json(r, 200, o);
}

struct key_args {
	const char *org, *name;
	char **scopes;
	json_t *quota;
};

static const struct field key_fields[] = {
	{ "org", FIELD_TEXT, offsetof(struct key_args, org), FIELD_NULL, .min = 1, .max = 32 },
	{ "name", FIELD_TEXT, offsetof(struct key_args, name), FIELD_NULL, .min = 1, .max = 64 },
	{ "scopes", FIELD_TEXTS, offsetof(struct key_args, scopes), FIELD_NULL, .max = 16 },
	{ "quota", FIELD_OBJECT, offsetof(struct key_args, quota), FIELD_NULL },
};

static const struct field quota_fields[] = {
	{ "boxes", FIELD_U64, offsetof(struct quota, boxes), FIELD_NULL, .max = 1ULL << 52 },
	{ "cpu_milli", FIELD_U64, offsetof(struct quota, cpu_milli), FIELD_NULL,
		.max = 1ULL << 52 },
	{ "memory", FIELD_U64, offsetof(struct quota, memory), FIELD_NULL, .max = 1ULL << 52 },
	{ "disk", FIELD_U64, offsetof(struct quota, disk), FIELD_NULL, .max = 1ULL << 52 },
	{ "rate", FIELD_U64, offsetof(struct quota, rate), FIELD_NULL, .max = 1ULL << 32 },
};

static int key_make(struct req *r, const struct key_args *a, struct den_err *err)
{
	struct quota q = { 0 };
	struct key_info k;
	char text[KEY_TEXT];
	uint32_t scopes = 0;
	json_t *o;

	if (fields_get(a->quota, quota_fields, ARRAY_SIZE(quota_fields), true, &q, err) < 0)
		return den_wrap(err, "quota");
	for (char **s = a->scopes; s && *s; s++) {
		uint32_t bit = key_scope_parse(*s);

		if (!bit)
			return den_fail(err, DEN_INVALID, 0,
				"scopes: '%.40s' is none: boxes, read, secrets, templates, admin",
				*s);
		scopes |= bit;
	}
	if (keys_create(a->org, a->name, scopes, &q, text, &k, err) < 0)
		return -1;
	events_post("key.created", k.who.org, NULL, json_pack("{ss}", "id", k.who.key));
	o = key_json(&k);
	json_object_set_new(o, "key", json_string(text)); /* told once */
	req_set(r, "Cache-Control", "no-store");
	return req_reply_json(r, 201, o);
}

int v1_key_make(struct req *r, struct den_err *err)
{
	auto_json *body = NULL;
	struct key_args a = { 0 };
	int res;

	if (!QUERY(r, err) || req_json(r, &body, err) < 0 ||
		fields_get(body, key_fields, ARRAY_SIZE(key_fields), true, &a, err) < 0)
		return -1;
	res = key_make(r, &a, err);
	strv_free(a.scopes);
	return res;
}

int v1_key_delete(struct req *r, struct den_err *err)
{
	if (!QUERY(r, err) || keys_revoke(NULL, req_arg(r, "id"), err) < 0)
		return -1;
	events_post("key.revoked", NULL, NULL, json_pack("{ss}", "id", req_arg(r, "id")));
	return req_reply_empty(r, 204);
}
