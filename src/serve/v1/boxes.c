/* /v1/boxes: life, lease, figures. */
#include "boxes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "auth.h"
#include "clock.h"
#include "handlers.h"
#include "idempotency.h"
#include "labels.h"
#include "mem.h"
#include "policies.h"
#include "strv.h"
#include "suggest.h"


/* ---- lists ---- */

static bool wanted(const struct req *r, const struct den_box_info *i)
{
	const char *state = req_query(r, "state"), *label = req_query(r, "label"),
		   *name = req_query(r, "name");
	const char *seen = i->name ? auth_name_seen(req_who(r), i->name, false) : NULL;

	if (state && strcmp(state, i->state))
		return false;
	if (name && (!i->name || (strcmp(name, i->name) && (!seen || strcmp(name, seen)))))
		return false;
	if (!label)
		return true;
	for (const char *const *l = i->labels; l && *l; l++)
		if (!strcmp(*l, label))
			return true;
	return false;
}

/* Pages begin behind a box, by time and id: boxes that come and go between two pages shift nothing. */
static bool behind(const struct den_box_info *i, int64_t ms, const char *id)
{
	return i->created_ms > ms || (i->created_ms == ms && strcmp(i->id, id) > 0);
}

static int cursor_parse(const char *text, int64_t *ms, char id[static 32], struct den_err *err)
{
	long long v;

	*ms = INT64_MIN;
	id[0] = '\0';
	if (text && sscanf(text, "%lld.%31s", &v, id) != 2)
		return den_fail(err, DEN_INVALID, 0,
			"cursor is not one that this server gave (next_cursor)");
	if (text)
		*ms = v;
	return 0;
}

static int by_time(const void *a, const void *b)
{
	const struct den_box_info *x = a, *y = b;

	return behind(x, y->created_ms, y->id) ? 1 : behind(y, x->created_ms, x->id) ? -1 : 0;
}

static json_t *boxes_page(struct req *r, const struct den_box_info *infos, size_t n, uint64_t limit,
	int64_t ms, const char *id)
{
	json_t *a = json_array(), *next = json_null();
	const struct den_box_info *last = NULL;

	for (size_t k = 0; k < n; k++) {
		if (!behind(&infos[k], ms, id) || !wanted(r, &infos[k]))
			continue;
		if (json_array_size(a) == limit) {
			char cursor[64];

			snprintf(cursor, sizeof(cursor), "%lld.%s", (long long)last->created_ms,
				last->id);
			next = json_string(cursor);
			break;
		}
		last = &infos[k];
		json_array_append_new(a, v1_box_json(r, last));
	}
	return json_pack("{so so}", "boxes", a, "next_cursor", next);
}

int v1_boxes_list(struct req *r, struct den_err *err)
{
	struct den_box_info *infos;
	uint64_t limit;
	int64_t ms;
	char id[32];
	size_t n;

	if (!QUERY(r, err, "limit", "cursor", "state", "label", "name", ) ||
		req_query_u64(r, "limit", 1000, 100, &limit, err) < 0 ||
		cursor_parse(req_query(r, "cursor"), &ms, id, err) < 0)
		return -1;
	if (!limit)
		return den_fail(err, DEN_INVALID, 0, "limit is from 1 to 1000");
	if (boxes_list(r, &infos, &n, err) < 0)
		return -1;
	qsort(infos, n, sizeof(*infos), by_time);
	req_reply_json(r, 200, boxes_page(r, infos, n, limit, ms, id));
	den_box_infos_free(infos, n);
	return 0;
}

/* ---- create ---- */

struct create {
	const char *name, *template, *wall, *user, *workdir, *history, *policy_name, *net,
		*hostname, *expires, *on_expire, *on_idle;
	char **env, **labels;
	json_t *limits, *policy;
	uint64_t ttl_ms, idle_ms;
	bool ttl_given, reseed;
};

const char *const v1_words_expire[] = { "delete", "pause", "pause-disk", "stop", NULL };
static const char *const words_history[] = { "on", "manual", "off", NULL };
static const char *const words_net[] = { "none", NULL };

static const struct field create_fields[] = {
	{ "name", FIELD_TEXT, offsetof(struct create, name), FIELD_NULL, .min = 1, .max = 64 },
	{ "template", FIELD_TEXT, offsetof(struct create, template), FIELD_NULL, .min = 1,
		.max = 256 },
	{ "wall", FIELD_TEXT, offsetof(struct create, wall), FIELD_NULL, .min = 1, .max = 32 },
	{ "user", FIELD_TEXT, offsetof(struct create, user), FIELD_NULL, .min = 1, .max = 256 },
	{ "workdir", FIELD_TEXT, offsetof(struct create, workdir), FIELD_NULL, .min = 1,
		.max = 4095 },
	{ "hostname", FIELD_TEXT, offsetof(struct create, hostname), FIELD_NULL, .min = 1,
		.max = 64 },
	{ "env", FIELD_MAP, offsetof(struct create, env), FIELD_NULL, .max = 1000 },
	{ "labels", FIELD_MAP, offsetof(struct create, labels), FIELD_NULL, .max = 60 },
	{ "limits", FIELD_OBJECT, offsetof(struct create, limits), FIELD_NULL },
	{ "expires", FIELD_TEXT, offsetof(struct create, expires), FIELD_NULL, .min = 1,
		.max = 40 },
	{ "ttl_ms", FIELD_U64, offsetof(struct create, ttl_ms), FIELD_NULL, .min = 1,
		.max = V1_FOREVER, .given = FIELD_GIVEN(struct create, ttl_given) },
	{ "on_expire", FIELD_TEXT, offsetof(struct create, on_expire), FIELD_NULL,
		.words = v1_words_expire },
	{ "idle_ms", FIELD_U64, offsetof(struct create, idle_ms), FIELD_NULL, .max = V1_FOREVER },
	{ "on_idle", FIELD_TEXT, offsetof(struct create, on_idle), FIELD_NULL,
		.words = v1_words_expire },
	{ "history", FIELD_TEXT, offsetof(struct create, history), FIELD_NULL,
		.words = words_history },
	{ "reseed", FIELD_BOOL, offsetof(struct create, reseed) },
	{ "policy", FIELD_OBJECT, offsetof(struct create, policy), FIELD_NULL },
	{ "policy_name", FIELD_TEXT, offsetof(struct create, policy_name), FIELD_NULL, .min = 1,
		.max = 64 },
	{ "net", FIELD_TEXT, offsetof(struct create, net), FIELD_NULL, .words = words_net },
};

static const struct field limit_fields[] = {
	{ "cpu_milli", FIELD_U64, offsetof(struct den_box_spec, cpu_milli), FIELD_NULL,
		.max = 1ULL << 32 },
	{ "memory", FIELD_U64, offsetof(struct den_box_spec, memory), FIELD_NULL,
		.max = 1ULL << 52 },
	{ "pids", FIELD_U64, offsetof(struct den_box_spec, pids), FIELD_NULL, .max = 1ULL << 22 },
	{ "disk", FIELD_U64, offsetof(struct den_box_spec, disk), FIELD_NULL, .max = 1ULL << 52 },
	{ "nofile", FIELD_U64, offsetof(struct den_box_spec, nofile), FIELD_NULL,
		.max = 1ULL << 30 },
	{ "max_runtime_ms", FIELD_U64, offsetof(struct den_box_spec, max_runtime_ms), FIELD_NULL,
		.max = V1_FOREVER },
};

static int contradictions(const struct create *c, struct den_err *err)
{
	if (!!c->policy + !!c->policy_name + !!c->net > 1)
		return den_fail(err, DEN_INVALID, 0,
			"policy, policy_name and net contradict each other: give one of them");
	if (c->expires && c->ttl_given)
		return den_fail(err, DEN_INVALID, 0,
			"expires and ttl_ms are the same thing: give one of them");
	return 0;
}

/* What has to live until the box is made. */
struct made {
	char *policy, *policy_name, *template, *name;
};

static void made_free(struct made *m)
{
	free(m->policy);
	free(m->policy_name);
	free(m->template);
	free(m->name);
}

static int spec_make(struct req *r, struct create *c, struct made *m, struct den_box_spec *s,
	struct den_err *err)
{
	const struct who *w = req_who(r);

	if (contradictions(c, err) < 0 || v1_labels_check(c->labels, err) < 0 ||
		fields_get(c->limits, limit_fields, ARRAY_SIZE(limit_fields), true, s, err) < 0)
		return -1;
	if (c->expires && v1_time_parse(c->expires, &s->expires_ms, err) < 0)
		return den_wrap(err, "expires");
	if (c->ttl_given)
		s->expires_ms = clock_wall_ms() + (int64_t)c->ttl_ms;
	if ((c->policy && policies_in(w, c->policy, &m->policy, err) < 0) ||
		(c->policy_name && auth_name(w, c->policy_name, &m->policy_name, err) < 0) ||
		(c->name && auth_name(w, c->name, &m->name, err) < 0) ||
		(c->template && v1_template_find(r, c->template, &m->template, err) < 0))
		return -1;
	s->name = m->name;
	s->template_name = m->template;
	s->wall = c->wall;
	s->net = c->net;
	s->hostname = c->hostname ? c->hostname : c->name; /* not the stored one */
	s->user = c->user;
	s->workdir = c->workdir;
	s->env = (const char *const *)c->env;
	s->labels = (const char *const *)c->labels;
	s->on_expire = c->on_expire;
	s->idle_ms = c->idle_ms;
	s->on_idle = c->on_idle;
	s->history = c->history;
	s->reseed = c->reseed;
	s->policy = m->policy;
	s->policy_name = m->policy_name;
	return 0;
}

static void no_template(struct req *r, const char *name, struct den_err *err)
{
	auto_free char *near = suggest_template(r, name);

	if (near)
		(void)den_fail(err, DEN_NOT_FOUND, 0,
			"no template '%.80s'; did you mean '%.80s'? 'den template ls' lists them", name, near);
}

int v1_boxes_create(struct req *r, struct den_err *err)
{
	auto_json *body = NULL;
	auto_box *box = NULL;
	auto_idem idem = { 0 };
	struct den_box_spec s = { .size = sizeof(s) };
	struct create c = { 0 };
	struct made m = { 0 };
	int res, again = 0;

	if (!QUERY(r, err) || req_json(r, &body, err) < 0 ||
		fields_get(body, create_fields, ARRAY_SIZE(create_fields), true, &c, err) < 0)
		return -1;
	res = spec_make(r, &c, &m, &s, err);
	if (res == 0)
		again = res = v1_idem_begin(r, body, &idem, &box, err);
	if (res == 0) {
		v1_idem_label(&idem, &c.labels);
		s.labels = (const char *const *)c.labels;
		res = boxes_create(r, &s, &box, err);
		if (res < 0 && err->code == DEN_NOT_FOUND && c.template)
			no_template(r, c.template, err);
	}
	if (res == 0)
		res = v1_idem_done(&idem, den_box_id(box), err);
	strv_free(c.env);
	strv_free(c.labels);
	made_free(&m);
	if (res < 0)
		return -1;
	if (again)
		req_set(r, "Idempotency-Replayed", "true");
	return v1_reply_box(r, 201, box, err);
}

/* ---- one ---- */

int v1_box_get(struct req *r, struct den_err *err)
{
	auto_box *box = NULL;

	if (!QUERY(r, err) || v1_box(r, &box, err) < 0)
		return -1;
	return v1_reply_box(r, 200, box, err);
}

struct lease_args {
	const char *expires, *on_expire, *on_idle;
	uint64_t ttl_ms, idle_ms;
	bool expires_given, ttl_given, idle_given, extend;
};

/* "expires": null and "idle_ms": null end it; what is absent stays. */
static const struct field lease_fields[] = {
	{ "expires", FIELD_TEXT, offsetof(struct lease_args, expires), FIELD_NULL, .min = 1,
		.max = 40, .given = FIELD_GIVEN(struct lease_args, expires_given) },
	{ "ttl_ms", FIELD_U64, offsetof(struct lease_args, ttl_ms), 0, .min = 1, .max = V1_FOREVER,
		.given = FIELD_GIVEN(struct lease_args, ttl_given) },
	{ "on_expire", FIELD_TEXT, offsetof(struct lease_args, on_expire), 0,
		.words = v1_words_expire },
	{ "idle_ms", FIELD_U64, offsetof(struct lease_args, idle_ms), FIELD_NULL, .max = V1_FOREVER,
		.given = FIELD_GIVEN(struct lease_args, idle_given) },
	{ "on_idle", FIELD_TEXT, offsetof(struct lease_args, on_idle), 0, .words = v1_words_expire },
	{ "extend", FIELD_BOOL, offsetof(struct lease_args, extend) },
};

static int lease_set(struct den_box *box, const json_t *body, struct den_err *err)
{
	struct lease_args a = { 0 };
	struct den_lease l = {
		.size = sizeof(l), .expires_ms = DEN_LEASE_KEEP, .idle_ms = DEN_IDLE_KEEP
	};

	if (fields_get(body, lease_fields, ARRAY_SIZE(lease_fields), true, &a, err) < 0)
		return -1;
	if (a.expires && a.ttl_given)
		return den_fail(err, DEN_INVALID, 0,
			"expires and ttl_ms are the same thing: give one of them");
	if (json_is_null(json_object_get(body, "expires")))
		l.expires_ms = 0;
	if (a.expires && v1_time_parse(a.expires, &l.expires_ms, err) < 0)
		return den_wrap(err, "expires");
	if (a.ttl_given)
		l.expires_ms = clock_wall_ms() + (int64_t)a.ttl_ms;
	if (json_is_null(json_object_get(body, "idle_ms")))
		l.idle_ms = 0;
	else if (a.idle_given)
		l.idle_ms = a.idle_ms;
	l.on_expire = a.on_expire;
	l.on_idle = a.on_idle;
	l.extend = a.extend;
	return den_box_lease(box, &l, err);
}

static int labels_set(struct den_box *box, const json_t *labels, struct den_err *err)
{
	static const struct field table[] = { { "labels", FIELD_MAP, 0, FIELD_MUST, .max = 60 } };
	json_t *wrapped = json_pack("{sO}", "labels", labels);
	struct den_box_info *i;
	char **v = NULL;
	int r = fields_get(wrapped, table, 1, true, &v, err);

	json_decref(wrapped);
	if (r < 0)
		return -1;
	r = v1_labels_check(v, err);
	if (r == 0)
		r = den_box_info(box, &i, err);
	if (r == 0) {
		v1_labels_keep(&v, i->labels);
		den_box_infos_free(i, 1);
		r = den_box_label(box, (const char *const *)v, err);
	}
	strv_free(v);
	return r;
}

int v1_box_patch(struct req *r, struct den_err *err)
{
	static const char *const known[] = { "labels", "expires", "ttl_ms", "on_expire", "idle_ms",
		"on_idle", "extend", NULL };
	auto_json *body = NULL, *rest = NULL;
	auto_box *box = NULL;
	const json_t *labels;

	if (!QUERY(r, err) || req_json(r, &body, err) < 0 || fields_known(body, known, err) < 0 ||
		v1_box(r, &box, err) < 0)
		return -1;
	labels = json_object_get(body, "labels");
	rest = json_copy(body);
	json_object_del(rest, "labels");
	if (labels && !json_is_object(labels))
		return den_fail(err, DEN_INVALID, 0, "labels is an object of texts");
	if (json_object_size(rest) && lease_set(box, rest, err) < 0)
		return -1;
	if (labels && labels_set(box, labels, err) < 0)
		return -1;
	return v1_reply_box(r, 200, box, err);
}

int v1_box_lease(struct req *r, struct den_err *err)
{
	auto_json *body = NULL;
	auto_box *box = NULL;

	if (!QUERY(r, err) || req_json(r, &body, err) < 0 || v1_box(r, &box, err) < 0 ||
		lease_set(box, body, err) < 0)
		return -1;
	return v1_reply_box(r, 200, box, err);
}

int v1_box_delete(struct req *r, struct den_err *err)
{
	auto_box *box = NULL;

	if (!QUERY(r, err) || v1_box(r, &box, err) < 0 || boxes_delete(r, box, err) < 0)
		return -1;
	return req_reply_empty(r, 204);
}

/* ---- start, stop, resume ---- */

static int run(struct req *r, int (*fn)(struct den_box *box, struct den_err *err), struct den_err *err)
{
	auto_box *box = NULL;

	if (!QUERY(r, err) || v1_no_body(r, err) < 0 || v1_box(r, &box, err) < 0 ||
		fn(box, err) < 0)
		return -1;
	boxes_set_state(den_box_id(box), "running");
	return v1_reply_box(r, 200, box, err);
}

int v1_box_start(struct req *r, struct den_err *err)
{
	return run(r, den_box_start, err);
}

int v1_box_resume(struct req *r, struct den_err *err)
{
	return run(r, den_box_resume, err);
}

int v1_box_stop(struct req *r, struct den_err *err)
{
	static const struct field table[] = { { "grace_ms", FIELD_U64, 0, .max = 600000 } };
	auto_json *body = NULL;
	auto_box *box = NULL;
	uint64_t grace_ms = 5000;

	if (!QUERY(r, err) || req_json(r, &body, err) < 0 ||
		fields_get(body, table, 1, true, &grace_ms, err) < 0 || v1_box(r, &box, err) < 0 ||
		den_box_stop(box, grace_ms, err) < 0)
		return -1;
	boxes_set_state(den_box_id(box), "stopped");
	boxes_kick(den_box_id(box));
	return v1_reply_box(r, 200, box, err);
}
