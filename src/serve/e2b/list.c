/* Lists of boxes, what they use, and the few other things that clients may ask of a whole team. */
#include "e2b_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "boxes.h"
#include "clock.h"
#include "mem.h"
#include "meter.h"
#include "parse.h"
#include "strv.h"

#define LIMIT_MAX 100

/* ---- filters ---- */

struct filter {
	bool running, paused;
	int64_t started_after;
	const char *template_id;
	char **metadata; /* "K=V" */
	bool oldest_first;
	uint64_t limit;
	int64_t token_ms; /* the last of the page before; 0: this is the first */
	char token_id[E2B_ID_SIZE];
};

static int hex(char c)
{
	return c >= '0' && c <= '9'		    ? c - '0'
	       : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
						    : -1;
}

static char *decode(const char *s, size_t n, bool plus)
{
	char *out = mem_alloc(n + 1);
	size_t k = 0;

	for (size_t i = 0; i < n; i++)
		if (s[i] == '%' && i + 2 < n && hex(s[i + 1]) >= 0 && hex(s[i + 2]) >= 0) {
			out[k++] = (char)(hex(s[i + 1]) << 4 | hex(s[i + 2]));
			i += 2;
		} else {
			out[k++] = plus && s[i] == '+' ? ' ' : s[i];
		}
	out[k] = '\0';
	return out;
}

/* A query string within the query, whose keys and values are encoded once more each. */
static void metadata_read(const char *text, char ***ret)
{
	for (size_t n; *text; text += n + (text[n] == '&')) {
		auto_free char *pair = NULL, *once = NULL;
		const char *eq;

		n = strcspn(text, "&");
		if (!n)
			continue;
		once = decode(text, n, true);
		pair = decode(once, strlen(once), false);
		eq = strchr(pair, '=');
		if (eq)
			strv_add(ret, pair);
	}
}

/* 2026-01-31T10:11:12(.345)Z; offsets are not sent by any client */
static int time_read(const char *text, int64_t *ret, struct den_err *err)
{
	struct tm tm = { 0 };
	const char *end = strptime(text, "%Y-%m-%dT%H:%M:%S", &tm);
	int64_t ms = 0;

	if (end && *end == '.')
		for (int64_t unit = 100; *++end >= '0' && *end <= '9'; unit /= 10)
			ms += (*end - '0') * unit;
	if (!end || strcmp(end, "Z"))
		return den_fail(
			err, DEN_INVALID, 0, "startedAfter is a time like 2026-01-31T10:11:12Z");
	*ret = (int64_t)timegm(&tm) * 1000 + ms;
	return 0;
}

static int states_read(const char *text, struct filter *f, struct den_err *err)
{
	f->running = f->paused = !text || !*text;
	for (size_t n; text && *text; text += n + (text[n] == ',')) {
		n = strcspn(text, ",");
		if (n == 7 && !strncmp(text, "running", n))
			f->running = true;
		else if (n == 6 && !strncmp(text, "paused", n))
			f->paused = true;
		else
			return den_fail(err, DEN_INVALID, 0,
				"state is running, paused, or both with a comma between");
	}
	return 0;
}

static int token_read(const char *text, struct filter *f, struct den_err *err)
{
	char id[E2B_ID_SIZE];
	long long ms;

	if (!text || !*text)
		return 0;
	if (sscanf(text, "%lld_%20s", &ms, id) != 2 || ms <= 0 || !e2b_id_box(id, f->token_id))
		return den_fail(err, DEN_INVALID, 0,
			"nextToken is what the page before gave as x-next-token");
	f->token_ms = ms;
	return 0;
}

static int filter_read(struct req *r, struct filter *f, struct den_err *err)
{
	const char *after = req_query(r, "startedAfter"), *order = req_query(r, "order"),
		   *meta = req_query(r, "metadata");

	if (states_read(req_query(r, "state"), f, err) < 0 ||
		token_read(req_query(r, "nextToken"), f, err) < 0 ||
		(after && time_read(after, &f->started_after, err) < 0) ||
		req_query_u64(r, "limit", LIMIT_MAX, LIMIT_MAX, &f->limit, err) < 0)
		return -1;
	if (order && strcmp(order, "asc") && strcmp(order, "desc"))
		return den_fail(err, DEN_INVALID, 0, "order is asc or desc");
	f->oldest_first = order && !strcmp(order, "asc");
	f->template_id = req_query(r, "template");
	f->limit = f->limit ? f->limit : LIMIT_MAX;
	if (meta)
		metadata_read(meta, &f->metadata);
	return 0;
}

static bool has_metadata(const struct den_box_info *i, const char *pair)
{
	for (const char *const *l = i->labels; l && *l; l++)
		if (!strncmp(*l, "e2b.m.", 6) && !strcmp(*l + 6, pair))
			return true;
	return false;
}

/* <0: a comes before b on the pages */
static int order(
	const struct filter *f, int64_t a_ms, const char *a_id, int64_t b_ms, const char *b_id)
{
	int c = a_ms < b_ms ? -1 : a_ms > b_ms ? 1 : strcmp(a_id, b_id);

	return f->oldest_first ? c : -c;
}

static bool matches(const struct filter *f, const struct den_box_info *i)
{
	const char *t = e2b_label(i, "e2b.template");

	if (!strcmp(i->state, "creating") || !strcmp(i->state, "deleting") ||
		e2b_label(i, "e2b.build"))
		return false;
	if (!(e2b_running(i) ? f->running : f->paused) ||
		(f->started_after && i->created_ms <= f->started_after))
		return false;
	if (f->template_id && strcmp(f->template_id, t			? t
						     : i->template_name ? i->template_name
									: ""))
		return false;
	for (char **m = f->metadata; m && *m; m++)
		if (!has_metadata(i, *m))
			return false;
	return !f->token_ms || order(f, f->token_ms, f->token_id, i->created_ms, i->id) < 0;
}

static int compare(const void *a, const void *b, void *user)
{
	const struct den_box_info *x = *(const struct den_box_info *const *)a,
				  *y = *(const struct den_box_info *const *)b;

	return order(user, x->created_ms, x->id, y->created_ms, y->id);
}

/* ---- lists ---- */

static int list(struct req *r, struct filter *f, struct den_err *err)
{
	struct den_box_info *infos;
	const struct den_box_info **some;
	json_t *out = json_array();
	size_t n, k = 0;
	unsigned running = 0;
	char text[64];

	if (boxes_list(r, &infos, &n, err) < 0) {
		json_decref(out);
		return -1;
	}
	some = mem_alloc((n + 1) * sizeof(*some));
	for (size_t i = 0; i < n; i++) {
		running += e2b_running(&infos[i]);
		if (matches(f, &infos[i]))
			some[k++] = &infos[i];
	}
	qsort_r(some, k, sizeof(*some), compare, f);
	for (size_t i = 0; i < k && i < f->limit; i++)
		json_array_append_new(out, e2b_listed_json(some[i]));
	if (k > f->limit) {
		const struct den_box_info *last = some[f->limit - 1];

		snprintf(text, sizeof(text), "%lld_%s", (long long)last->created_ms, last->id);
		req_set(r, "x-next-token", text);
	}
	snprintf(text, sizeof(text), "%u", running);
	req_set(r, "X-Total-Running", text);
	free(some);
	den_box_infos_free(infos, n);
	return req_reply_json(r, 200, out);
}

int e2b_list(struct req *r, struct den_err *err)
{
	struct filter f = { 0 };
	int status = filter_read(r, &f, err);

	if (status == 0)
		status = list(r, &f, err);
	strv_free(f.metadata);
	return status;
}

/* The list of before there were pages, and before there was pausing. */
int e2b_list_old(struct req *r, struct den_err *err)
{
	struct filter f = { .running = true, .limit = UINT64_MAX };
	const char *meta = req_query(r, "metadata");
	int status;

	if (meta)
		metadata_read(meta, &f.metadata);
	status = list(r, &f, err);
	strv_free(f.metadata);
	return status;
}

/* ---- what they use ---- */

static json_t *metric(const struct meter_sample *s)
{
	uint64_t cpus = e2b_cpus(s->cpu_milli);
	json_t *o = json_pack("{s:I, s:f, s:I, s:I, s:I, s:I, s:I, s:I}", "timestampUnix",
		(json_int_t)(s->time_ms / 1000), "cpuUsedPct",
		(double)s->cpu_permille / 10 / (double)cpus, "cpuCount", (json_int_t)cpus,
		"memUsed", (json_int_t)s->memory, "memTotal",
		(json_int_t)(s->memory_limit ? s->memory_limit : e2b_memory_mb(0) << 20),
		"memCache", (json_int_t)0, "diskUsed", (json_int_t)s->disk, "diskTotal",
		(json_int_t)(s->disk_limit ? s->disk_limit : e2b_disk_mb(0) << 20));

	e2b_set_time(o, "timestamp", s->time_ms);
	return o;
}

/* The meter looks every few seconds: a box that is younger than that is looked at now. */
static int sample_now(struct den_box *box, struct meter_sample *ret, struct den_err *err)
{
	struct den_stats s;

	if (den_box_stats(box, &s, err) < 0)
		return -1;
	*ret = (struct meter_sample){ .time_ms = clock_wall_ms(),
		.cpu_usec = s.cpu_usec,
		.memory = s.memory,
		.memory_limit = s.memory_limit,
		.disk = s.disk,
		.disk_limit = s.disk_limit };
	return 0;
}

int e2b_metrics(struct req *r, struct den_err *err)
{
	struct meter_sample *s = NULL;
	auto_free void *room = NULL;
	uint64_t start, end;
	auto_box *box = NULL;
	json_t *out;
	size_t n = 0;

	if (req_query_u64(r, "start", INT64_MAX / 1000, 0, &start, err) < 0 ||
		req_query_u64(r, "end", INT64_MAX / 1000, INT64_MAX / 1000, &end, err) < 0 ||
		e2b_open(r, &box, err) < 0)
		return -1;
	s = room = mem_alloc(METER_KEEP * sizeof(*s));
	meter_last(den_box_id(box), s, METER_KEEP, &n);
	if (!n && sample_now(box, s, err) == 0) /* a paused one without samples has none */
		n = 1;
	out = json_array();
	for (size_t i = 0; i < n; i++)
		if (s[i].time_ms / 1000 >= (int64_t)start && s[i].time_ms / 1000 <= (int64_t)end)
			json_array_append_new(out, metric(&s[i]));
	return req_reply_json(r, 200, out);
}

/* The newest of several: {"sandboxes": {ID: metric}} */
int e2b_metrics_all(struct req *r, struct den_err *err)
{
	const char *ids = req_query(r, "sandbox_ids");
	json_t *o = json_object();
	struct den_box_info *infos;
	size_t n;

	if (boxes_list(r, &infos, &n, err) < 0) {
		json_decref(o);
		return -1;
	}
	for (size_t i = 0; i < n; i++) {
		struct meter_sample s[METER_KEEP];
		char id[E2B_ID_SIZE];
		size_t k = 0;

		e2b_id_sandbox(infos[i].id, id);
		if (ids && !strstr(ids, id))
			continue;
		meter_last(infos[i].id, s, METER_KEEP, &k);
		if (k)
			json_object_set_new(o, id, metric(&s[k - 1]));
	}
	den_box_infos_free(infos, n);
	return req_reply_json(r, 200, json_pack("{s:o}", "sandboxes", o));
}

/* ---- the rest ---- */

int e2b_logs(struct req *r, struct den_err *err)
{
	auto_box *box = NULL;

	if (e2b_open(r, &box, err) < 0)
		return -1;
	return e2b_error(r, 501,
		"a sandbox keeps no log of its agent: nothing runs in it but what it was told to "
		"run; "
		"/v1/boxes/ID/journal has what happened");
}

int e2b_teams(struct req *r, struct den_err *err)
{
	const struct who *w = req_who(r);

	(void)err;
	return req_reply_json(r, 200,
		json_pack("[{s:s, s:s, s:s, s:b}]", "teamID", w->org, "name", w->org, "apiKey", "",
			"isDefault", 1));
}
