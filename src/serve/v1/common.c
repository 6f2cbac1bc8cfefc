/* What all handlers of /v1 share: values, paths, answers. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "auth.h"
#include "b64.h"
#include "boxes.h"
#include "json.h"
#include "mem.h"
#include "parse.h"
#include "v1.h"

#define HOLD (32U << 10)

/* ---- what came ---- */

int v1_no_body(struct req *r, struct den_err *err)
{
	auto_json *j = NULL;

	if (req_json(r, &j, err) < 0)
		return -1;
	return fields_known(j, (const char *const[]){ NULL }, err);
}

bool v1_flag(const struct req *r, const char *name, bool *ret, struct den_err *err)
{
	const char *v = req_query(r, name);

	if (!v)
		return true;
	if (!strcmp(v, "1") || !strcmp(v, "true") || !strcmp(v, "0") || !strcmp(v, "false")) {
		*ret = *v == '1' || *v == 't';
		return true;
	}
	(void)den_fail(err, DEN_INVALID, 0, "query parameter %s is 1 or 0, not '%.40s'", name, v);
	return false;
}

static int path_b64(const char *name, const char *text, char **ret, struct den_err *err)
{
	size_t len = strlen(text);
	auto_free char *out = mem_zalloc(len + 1);
	ssize_t n = b64_get(out, len, text, len, B64_STD);

	if (n < 0)
		n = b64_get(out, len, text, len, B64_URL);
	if (n <= 0 || memchr(out, 0, (size_t)n))
		return den_fail(err, DEN_INVALID, 0, "%s_b64 is not the base64 of a path", name);
	out[n] = '\0';
	*ret = mem_take(&out);
	return 0;
}

static int path_of(const char *name, const char *text, const char *b64, bool must, char **ret,
	struct den_err *err)
{
	if (text && b64)
		return den_fail(err, DEN_INVALID, 0,
			"%s and %s_b64 are the same thing: give one of them", name, name);
	if (b64)
		return path_b64(name, b64, ret, err);
	if (text && *text) {
		*ret = mem_strdup(text);
		return 0;
	}
	if (must || text)
		return den_fail(err, DEN_INVALID, 0,
			"%s is missing: give %s (or %s_b64, base64 of its bytes)", name, name,
			name);
	*ret = NULL;
	return 0;
}

int v1_query_path(struct req *r, const char *name, bool must, char **ret, struct den_err *err)
{
	char other[32];

	snprintf(other, sizeof(other), "%s_b64", name);
	return path_of(name, req_query(r, name), req_query(r, other), must, ret, err);
}

int v1_path_member(const json_t *o, const char *name, char **ret, struct den_err *err)
{
	char other[32];
	const json_t *a, *b;

	snprintf(other, sizeof(other), "%s_b64", name);
	a = json_object_get(o, name);
	b = json_object_get(o, other);
	if ((a && !json_is_string(a)) || (b && !json_is_string(b)))
		return den_fail(err, DEN_INVALID, 0, "%s is a text",
			a && !json_is_string(a) ? name : other);
	return path_of(name, json_string_value(a), json_string_value(b), true, ret, err);
}

static int two_digits(const char *s, int min, int max)
{
	int v = isdigit((unsigned char)s[0]) && isdigit((unsigned char)s[1])
			? (s[0] - '0') * 10 + s[1] - '0'
			: -1;

	return v < min || v > max ? -1 : v;
}

/* YYYY-MM-DDTHH:MM:SS[.fff](Z|+HH:MM|-HH:MM) */
static bool rfc3339(const char *s, int64_t *ret)
{
	struct tm t = { 0 };
	int64_t ms = 0, unit = 100;
	int zh, zm, sign;

	if (strlen(s) < 20 || s[4] != '-' || s[7] != '-' || !strchr("Tt ", s[10]) || s[13] != ':' ||
		s[16] != ':' || two_digits(s, 19, 99) < 0 || two_digits(s + 2, 0, 99) < 0)
		return false;
	t.tm_year = two_digits(s, 19, 99) * 100 + two_digits(s + 2, 0, 99) - 1900;
	t.tm_mon = two_digits(s + 5, 1, 12) - 1;
	t.tm_mday = two_digits(s + 8, 1, 31);
	t.tm_hour = two_digits(s + 11, 0, 23);
	t.tm_min = two_digits(s + 14, 0, 59);
	t.tm_sec = two_digits(s + 17, 0, 60);
	if (t.tm_mon < 0 || t.tm_mday < 0 || t.tm_hour < 0 || t.tm_min < 0 || t.tm_sec < 0)
		return false;
	s += 19;
	if (*s == '.')
		for (s++; isdigit((unsigned char)*s); s++, unit /= 10)
			ms += (*s - '0') * unit;
	ms += (int64_t)timegm(&t) * 1000;
	if ((*s == 'Z' || *s == 'z') && !s[1]) {
		*ret = ms;
		return true;
	}
	if ((*s != '+' && *s != '-') || strlen(s) != 6 || s[3] != ':')
		return false;
	sign = *s == '-' ? 1 : -1;
	zh = two_digits(s + 1, 0, 23);
	zm = two_digits(s + 4, 0, 59);
	*ret = ms + sign * (zh * 60 + zm) * 60000LL;
	return zh >= 0 && zm >= 0;
}

int v1_time_parse(const char *text, int64_t *ret_ms, struct den_err *err)
{
	uint64_t ms;

	if (rfc3339(text, ret_ms))
		return 0;
	if (parse_u64(text, 0, 1ULL << 52, &ms, NULL) == 0) {
		*ret_ms = (int64_t)ms;
		return 0;
	}
	return den_fail(err, DEN_INVALID, 0,
		"'%.40s' is no time: write it like 2026-01-02T03:04:05Z, or as milliseconds since "
		"1970",
		text);
}

/* ---- values ---- */

bool v1_is_utf8(const char *s, size_t n)
{
	json_t *j = json_stringn(s, n);
	bool ok = j != NULL;

	json_decref(j);
	return ok;
}

json_t *v1_textn(const char *s, size_t n)
{
	json_t *t = json_stringn(s, n);

	if (!t) { /* base/json.h replaces what is no UTF-8 */
		struct json j = { 0 };

		json_bytes(&j, NULL, s, n);
		t = json_loadb(j.b.p, j.b.len, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
		buf_free(&j.b);
	}
	return t;
}

json_t *v1_text(const char *s)
{
	return s ? v1_textn(s, strlen(s)) : json_null();
}

json_t *v1_base64(const void *p, size_t n)
{
	auto_free char *text = mem_alloc(B64_SIZE(n));

	return json_stringn_nocheck(text, b64_put(text, p, n, B64_STD));
}

void v1_put(json_t *o, const char *key, const char *s)
{
	char other[48];

	json_object_set_new(o, key, v1_text(s));
	if (!s || v1_is_utf8(s, strlen(s)))
		return;
	snprintf(other, sizeof(other), "%s_b64", key);
	json_object_set_new(o, other, v1_base64(s, strlen(s)));
}

json_t *v1_time(int64_t ms)
{
	char t[32];

	if (ms <= 0)
		return json_null();
	format_time(ms, t);
	return json_string(t);
}

json_t *v1_count(uint64_t v)
{
	return v ? json_integer((json_int_t)MIN(v, (uint64_t)INT64_MAX)) : json_null();
}

json_t *v1_strings(const char *const *v)
{
	json_t *a = json_array();

	for (; v && *v; v++)
		json_array_append_new(a, v1_text(*v));
	return a;
}

json_t *v1_map(const char *const *v)
{
	json_t *o = json_object();

	for (; v && *v; v++) {
		const char *eq = strchr(*v, '=');
		auto_free char *key = eq ? mem_strndup(*v, (size_t)(eq - *v)) : NULL;

		if (key && v1_is_utf8(key, strlen(key)))
			json_object_set_new(o, key, v1_text(eq + 1));
	}
	return o;
}

json_t *v1_result(const struct den_exec_result *res)
{
	return json_pack("{sb si ss sI sI sI sI}", "exited", res->exited, "status", res->status,
		"reason", res->reason ? res->reason : "", "out_bytes", (json_int_t)res->out_bytes,
		"err_bytes", (json_int_t)res->err_bytes, "lost_bytes", (json_int_t)res->lost_bytes,
		"oom_kills", (json_int_t)res->oom_kills);
}

/* ---- the box of the path ---- */

int v1_open(struct req *r, const char *ref, struct den_box **ret, struct den_err *err)
{
	auto_free char *stored = NULL;
	char id[32];

	if (boxes_id(ref, id))
		return boxes_open(r, id, ret, err);
	if (req_who(r)->admin &&
		!strncmp(ref, "o.", 2)) /* another organisation's, as lists show it */
		return boxes_open(r, ref, ret, err);
	if (auth_name(req_who(r), ref, &stored, err) < 0)
		return den_wrap(err, "box");
	if (boxes_open(r, stored, ret, err) == 0)
		return 0;
	return err->code == DEN_NOT_FOUND ? den_fail(err, DEN_NOT_FOUND, 0,
						    "no box '%.80s': GET /v1/boxes lists them", ref)
					  : -1;
}

int v1_box(struct req *r, struct den_box **ret, struct den_err *err)
{
	return v1_open(r, req_arg(r, "box"), ret, err);
}

/* ---- answers of unknown length ---- */

int v1_out_add(struct v1_out *o, const void *p, size_t n, struct den_err *err)
{
	if (!o->begun && o->held.len + n <= HOLD) {
		buf_add(&o->held, p, n);
		return 0;
	}
	if (!o->begun) {
		if (req_begin(o->r, 200, o->type, -1, err) < 0)
			return -1;
		o->begun = true;
	}
	/* small pieces go together */
	if (o->held.len && (n < HOLD / 4 && o->held.len + n < HOLD)) {
		buf_add(&o->held, p, n);
		return 0;
	}
	if (o->held.len && req_write(o->r, o->held.p, o->held.len, err) < 0)
		return -1;
	buf_consume(&o->held, o->held.len);
	if (n < HOLD / 4) {
		buf_add(&o->held, p, n);
		return 0;
	}
	return req_write(o->r, p, n, err);
}

int v1_out_sink(const void *p, size_t n, void *user, struct den_err *err)
{
	return v1_out_add(user, p, n, err);
}

int v1_out_end(struct v1_out *o, struct den_err *err)
{
	int r = 0;

	if (!o->begun)
		r = req_reply(o->r, 200, o->type, o->held.p ? o->held.p : "", o->held.len);
	else if (o->held.len)
		r = req_write(o->r, o->held.p, o->held.len, err);
	buf_free(&o->held);
	if (r == 0 && o->begun)
		req_end(o->r);
	return r;
}

int v1_list_add(struct v1_out *o, const char *key, json_t *take, struct den_err *err)
{
	auto_json *j = take;
	auto_free char *text = json_dumps(j, JSON_COMPACT | JSON_ENCODE_ANY);
	auto_buf b = { 0 };

	if (!text)
		return den_fail(err, DEN_INTERNAL, 0, "an element of the answer is no JSON");
	if (!o->begun && !o->held.len)
		buf_addf(&b, "{\"%s\":[", key);
	else
		buf_addstr(&b, ",");
	buf_addstr(&b, text);
	return v1_out_add(o, b.p, b.len, err);
}

int v1_list_end(struct v1_out *o, const char *key, struct den_err *err)
{
	auto_buf b = { 0 };

	if (!o->begun && !o->held.len)
		buf_addf(&b, "{\"%s\":[", key);
	buf_addstr(&b, "]}\n");
	if (v1_out_add(o, b.p, b.len, err) < 0)
		return -1;
	return v1_out_end(o, err);
}

/* ---- lists by pages ---- */

int v1_page(struct req *r, json_t *o, size_t n, size_t *from, size_t *to, struct den_err *err)
{
	uint64_t limit, at;

	if (req_query_u64(r, "limit", 1000, 100, &limit, err) < 0 ||
		req_query_u64(r, "cursor", 1ULL << 40, 0, &at, err) < 0)
		return -1;
	if (!limit)
		return den_fail(err, DEN_INVALID, 0, "limit is from 1 to 1000");
	*from = MIN((size_t)at, n);
	*to = MIN(*from + (size_t)limit, n);
	if (*to < n) {
		char cursor[24];

		snprintf(cursor, sizeof(cursor), "%zu", *to);
		json_object_set_new(o, "next_cursor", json_string(cursor));
	} else {
		json_object_set_new(o, "next_cursor", json_null());
	}
	return 0;
}

/* ---- server-sent events ---- */

int sse_begin(struct req *r, struct den_err *err)
{
	req_set(r, "Cache-Control", "no-store");
	req_set(r, "X-Accel-Buffering", "no"); /* proxies that would hold back events */
	return req_begin(r, 200, "text/event-stream", -1, err);
}

int sse_send(struct req *r, const char *id, const char *event, json_t *data, struct den_err *err)
{
	auto_json *j = data;
	auto_free char *text = json_dumps(j, JSON_COMPACT);
	auto_buf b = { 0 };

	if (id)
		buf_addf(&b, "id: %s\n", id);
	buf_addf(&b, "event: %s\ndata: %s\n\n", event,
		text ? text : "{}"); /* one line: control characters are escaped */
	return req_write(r, b.p, b.len, err);
}

int sse_keepalive(struct req *r, struct den_err *err)
{
	static const char comment[] = ": keepalive\n\n";

	return req_write(r, comment, sizeof(comment) - 1, err);
}
