/* /v1/boxes/{box}: policy, journal, token, ports. /v1/policies. */
#include <stdlib.h>
#include <string.h>

#include "auth.h"
#include "handlers.h"
#include "mem.h"
#include "parse.h"
#include "policies.h"
#include "ports.h"

#define ALLOW_TRIES 50 /* each failure is another's success */

/* ---- what a box may reach ---- */

static json_t *policy_json(struct req *r, const struct den_policy *p)
{
	const char *name = p->name ? auth_name_seen(req_who(r), p->name, false) : NULL;
	json_t *o = json_pack("{so sI}", "policy", policies_out(req_who(r), p->json), "generation",
		(json_int_t)p->generation);

	json_object_set_new(o, "name", v1_text(name ? name : p->name));
	return o;
}

int v1_policy_get(struct req *r, struct den_err *err)
{
	auto_box *box = NULL;
	struct den_policy *p;

	if (!QUERY(r, err) || v1_box(r, &box, err) < 0 || den_policy_get(box, &p, err) < 0)
		return -1;
	req_reply_json(r, 200, policy_json(r, p));
	den_policy_free(p);
	return 0;
}

struct policy_args {
	json_t *policy;
	const char *name;
	uint64_t expect;
};

static const struct field policy_fields[] = {
	{ "policy", FIELD_OBJECT, offsetof(struct policy_args, policy), FIELD_NULL },
	{ "name", FIELD_TEXT, offsetof(struct policy_args, name), FIELD_NULL, .min = 1, .max = 64 },
	{ "generation", FIELD_U64, offsetof(struct policy_args, expect), FIELD_NULL,
		.max = 1ULL << 52 },
};

static int policy_set(
	struct req *r, struct den_box *box, const struct policy_args *a, struct den_err *err)
{
	auto_free char *json = NULL, *name = NULL;
	uint64_t generation, ended;

	if ((a->policy && policies_in(req_who(r), a->policy, &json, err) < 0) ||
		(a->name && auth_name(req_who(r), a->name, &name, err) < 0) ||
		den_policy_set(box, json, name, a->expect, &generation, &ended, err) < 0)
		return -1;
	return req_reply_json(r, 200,
		json_pack("{sI sI}", "generation", (json_int_t)generation, "ended",
			(json_int_t)ended));
}

int v1_policy_put(struct req *r, struct den_err *err)
{
	auto_json *body = NULL;
	auto_box *box = NULL;
	struct policy_args a = { .expect = DEN_ANY_GENERATION };

	if (!QUERY(r, err) || req_json(r, &body, err) < 0 ||
		fields_get(body, policy_fields, ARRAY_SIZE(policy_fields), true, &a, err) < 0)
		return -1;
	if (!a.policy == !a.name)
		return den_fail(err, DEN_INVALID, 0,
			"give policy (an object) or name (of a stored one), not both");
	return v1_box(r, &box, err) < 0 ? -1 : policy_set(r, box, &a, err);
}

static int allow_once(struct req *r, struct den_box *box, const char *host, uint16_t port,
	uint64_t *generation, struct den_err *err)
{
	auto_json *policy = NULL;
	auto_free char *json = NULL;
	struct den_policy *p;
	uint64_t expect;

	if (den_policy_get(box, &p, err) < 0)
		return -1;
	policy = policies_out(req_who(r), p->json);
	expect = p->generation;
	den_policy_free(p);
	if (!policy)
		return den_fail(err, DEN_INTERNAL, 0, "the box's policy is no JSON");
	if (policies_allow(policy, host, port, err) < 0 ||
		policies_in(req_who(r), policy, &json, err) < 0)
		return -1;
	return den_policy_set(box, json, NULL, expect, generation, NULL, err);
}

int v1_policy_allow(struct req *r, struct den_err *err)
{
	struct args {
		const char *host;
		uint64_t port;
	} a = { 0 };
	static const struct field table[] = {
		{ "host", FIELD_TEXT, offsetof(struct args, host), FIELD_MUST, .min = 1,
			.max = 255 },
		{ "port", FIELD_U64, offsetof(struct args, port), FIELD_NULL, .min = 1,
			.max = 65535 },
	};
	auto_json *body = NULL;
	auto_box *box = NULL;
	uint64_t generation = 0;
	int res, tries = 0;

	if (!QUERY(r, err) || req_json(r, &body, err) < 0 ||
		fields_get(body, table, ARRAY_SIZE(table), true, &a, err) < 0 ||
		v1_box(r, &box, err) < 0)
		return -1;
	do
		res = allow_once(r, box, a.host, (uint16_t)a.port, &generation, err);
	while (res < 0 && err->code == DEN_CONFLICT && ++tries < ALLOW_TRIES);
	return res < 0 ? -1
		       : req_reply_json(
				 r, 200, json_pack("{sI}", "generation", (json_int_t)generation));
}

/* ---- journal, token ---- */

static int journal_line(const void *p, size_t n, void *user, struct den_err *err)
{
	json_t *j = json_loadb(p, n, JSON_ALLOW_NUL, NULL);

	return j ? v1_list_add(user, "entries", j, err) : 0; /* a line that a crash cut */
}

int v1_journal(struct req *r, struct den_err *err)
{
	struct v1_out out = { .r = r, .type = "application/json" };
	auto_box *box = NULL;
	uint64_t count;
	int res;

	if (!QUERY(r, err, "kind", "count", ) ||
		req_query_u64(r, "count", 100000, 100, &count, err) < 0 || v1_box(r, &box, err) < 0)
		return -1;
	res = den_journal(box, req_query(r, "kind"), MAX(count, 1ULL), journal_line, &out, err);
	if (res == 0)
		res = v1_list_end(&out, "entries", err);
	buf_free(&out.held);
	return res;
}

int v1_token(struct req *r, struct den_err *err)
{
	struct args {
		const char *audience, *alg;
	} a = { 0 };
	static const char *const algs[] = { "EdDSA", "ES256", NULL };
	static const struct field table[] = {
		{ "audience", FIELD_TEXT, offsetof(struct args, audience), FIELD_MUST, .min = 1,
			.max = 255 },
		{ "alg", FIELD_TEXT, offsetof(struct args, alg), FIELD_NULL, .words = algs },
	};
	auto_json *body = NULL;
	auto_box *box = NULL;
	auto_free char *token = NULL;

	if (!QUERY(r, err) || req_json(r, &body, err) < 0 ||
		fields_get(body, table, ARRAY_SIZE(table), true, &a, err) < 0 ||
		v1_box(r, &box, err) < 0 || den_token(box, a.audience, a.alg, &token, err) < 0)
		return -1;
	req_set(r, "Cache-Control", "no-store");
	return req_reply_json(r, 201, json_pack("{ss}", "token", token));
}

/* ---- ports ---- */

static json_t *port_json(const char *id, uint16_t port, bool public)
{
	auto_free char *url = ports_url(id, port);
	char token[41];

	auth_box_token(id, "traffic", token);
	return json_pack("{si sb ss? so}", "port", (int)port, "public", public, "url", url, "token",
		public ? json_null() : json_string(token));
}

int v1_ports_list(struct req *r, struct den_err *err)
{
	auto_box *box = NULL;
	auto_free struct port_setting *p = NULL;
	char token[41];
	size_t n;
	json_t *a;

	if (!QUERY(r, err) || v1_box(r, &box, err) < 0 ||
		ports_list(den_box_id(box), &p, &n, err) < 0)
		return -1;
	a = json_array();
	for (size_t i = 0; i < n; i++)
		json_array_append_new(a, port_json(den_box_id(box), p[i].port, p[i].public));
	auth_box_token(den_box_id(box), "traffic", token);
	return req_reply_json(r, 200, json_pack("{so ss}", "ports", a, "token", token));
}

static int port_get(struct req *r, uint16_t *ret, struct den_err *err)
{
	uint64_t port;

	if (parse_u64(req_arg(r, "port"), 1, 65535, &port, err) < 0)
		return den_wrap(err, "port");
	*ret = (uint16_t)port;
	return 0;
}

int v1_port_put(struct req *r, struct den_err *err)
{
	static const struct field table[] = { { "public", FIELD_BOOL, 0, FIELD_MUST } };
	auto_json *body = NULL;
	auto_box *box = NULL;
	bool public = false;
	uint16_t port = 0;

	if (!QUERY(r, err) || port_get(r, &port, err) < 0 || req_json(r, &body, err) < 0 ||
		fields_get(body, table, 1, true, &public, err) < 0 || v1_box(r, &box, err) < 0 ||
		ports_set_public(den_box_id(box), port, public, err) < 0)
		return -1;
	return req_reply_json(r, 200, port_json(den_box_id(box), port, public));
}

int v1_port_delete(struct req *r, struct den_err *err)
{
	auto_box *box = NULL;
	uint16_t port = 0;

	if (!QUERY(r, err) || port_get(r, &port, err) < 0 || v1_box(r, &box, err) < 0 ||
		ports_forget(den_box_id(box), port, err) < 0)
		return -1;
	return req_reply_empty(r, 204);
}

/* ---- stored policies ---- */

int v1_policies_list(struct req *r, struct den_err *err)
{
	char **names;
	size_t n = 0, at = 0, from, to;
	json_t *a, *o;
	int res;

	if (!QUERY(r, err, "limit", "cursor", ) || den_policy_list(req_den(r), &names, err) < 0)
		return -1;
	for (size_t i = 0; names && names[i]; i++)
		n += auth_name_seen(req_who(r), names[i], false) != NULL;
	a = json_array();
	o = json_pack("{so}", "policies", a);
	res = v1_page(r, o, n, &from, &to, err);
	for (size_t i = 0; res == 0 && names && names[i]; i++) {
		const char *seen = auth_name_seen(req_who(r), names[i], false);

		if (seen && at >= from && at < to)
			json_array_append_new(a, json_pack("{so}", "name", v1_text(seen)));
		at += seen != NULL;
	}
	den_strings_free(names);
	if (res == 0)
		return req_reply_json(r, 200, o);
	json_decref(o);
	return -1;
}

int v1_policies_get(struct req *r, struct den_err *err)
{
	auto_free char *name = NULL, *json = NULL;

	if (!QUERY(r, err) || auth_name(req_who(r), req_arg(r, "name"), &name, err) < 0 ||
		den_policy_load(req_den(r), name, &json, err) < 0)
		return -1;
	return req_reply_json(r, 200,
		json_pack("{ss so}", "name", req_arg(r, "name"), "policy",
			policies_out(req_who(r), json)));
}

int v1_policies_put(struct req *r, struct den_err *err)
{
	auto_free char *name = NULL, *json = NULL;
	auto_json *body = NULL;

	if (!QUERY(r, err) || auth_name(req_who(r), req_arg(r, "name"), &name, err) < 0 ||
		req_json(r, &body, err) < 0 || policies_in(req_who(r), body, &json, err) < 0 ||
		den_policy_save(req_den(r), name, json, err) < 0)
		return -1;
	return req_reply_empty(r, 204);
}

int v1_policies_delete(struct req *r, struct den_err *err)
{
	auto_free char *name = NULL;

	if (!QUERY(r, err) || auth_name(req_who(r), req_arg(r, "name"), &name, err) < 0 ||
		den_policy_remove(req_den(r), name, err) < 0)
		return -1;
	return req_reply_empty(r, 204);
}
