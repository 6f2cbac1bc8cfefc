/* Is it alive, is it ready, what has it done: for probes and Prometheus. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>
#include <unistd.h>

#include "clock.h"
#include "http_int.h"

#define DIALECTS 8

/* 1 ms to 60 s; what takes longer is a stream, or the last bucket. */
static const unsigned bounds_ms[] = { 1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000,
	30000, 60000 };
#define BOUNDS ARRAY_SIZE(bounds_ms)

static struct {
	_Atomic(const char *) name;
	atomic_uint_fast64_t by_class[6]; /* 1xx..5xx; [0]: broken off before a status */
	atomic_uint_fast64_t bucket[BOUNDS + 1], sum_us;
} per[DIALECTS];
static atomic_uint_fast64_t bytes_in, bytes_out;
static atomic_int streams;
static int64_t started_ms;
static int statm = -1;

void http_prepare(void)
{
	if (statm < 0)
		statm = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
}

void metrics_start(void)
{
	started_ms = clock_wall_ms();
	http_prepare(); /* where main() has not */
}

void metrics_stream(int change)
{
	streams += change;
}

static size_t slot_of(const char *name)
{
	for (size_t i = 0; i < DIALECTS - 1; i++) {
		const char *empty = NULL;

		if (atomic_compare_exchange_strong(&per[i].name, &empty, name) ||
			!strcmp(empty, name))
			return i;
	}
	return DIALECTS - 1;
}

void metrics_done(const struct req *r, int64_t ns)
{
	size_t i = slot_of(r->dialect ? r->dialect->name : "none"), b = 0;
	int class = r->status / 100;

	per[i].by_class[class >= 1 && class <= 5 ? class : 0]++;
	bytes_in += r->up_total + r->up.len + r->drained;
	bytes_out += r->down_total;
	if (r->answer == ANSWER_STREAM || r->answer == ANSWER_UPGRADE)
		return; /* how long a stream is open says nothing about the server */
	while (b < BOUNDS && ns > (int64_t)bounds_ms[b] * NS_PER_MS)
		b++;
	per[i].bucket[b]++;
	per[i].sum_us += (uint64_t)(ns / 1000);
}

static void put_head(struct buf *b, const char *name, const char *kind, const char *help)
{
	buf_addf(b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind);
}

static void put_gauge(
	struct buf *b, const char *name, const char *kind, const char *help, unsigned long long v)
{
	put_head(b, name, kind, help);
	buf_addf(b, "%s %llu\n", name, v);
}

static void put_requests(struct buf *b)
{
	put_head(b, "den_requests_total", "counter",
		"Requests that ended, by dialect and class of status");
	for (size_t i = 0; i < DIALECTS; i++)
		for (int c = 0; per[i].name && c < 6; c++)
			if (per[i].by_class[c])
				buf_addf(b,
					"den_requests_total{dialect=\"%s\",status=\"%s\"} %llu\n",
					per[i].name,
					(const char *[]){
						"none", "1xx", "2xx", "3xx", "4xx", "5xx" }[c],
					(unsigned long long)per[i].by_class[c]);
	put_head(b, "den_request_seconds", "histogram",
		"From the first line to the end of the answer; no streams");
	for (size_t i = 0; i < DIALECTS; i++) {
		unsigned long long sum = 0;

		if (!per[i].name)
			continue;
		for (size_t k = 0; k < BOUNDS; k++) {
			sum += per[i].bucket[k];
			buf_addf(b, "den_request_seconds_bucket{dialect=\"%s\",le=\"%g\"} %llu\n",
				per[i].name, bounds_ms[k] / 1000.0, sum);
		}
		sum += per[i].bucket[BOUNDS];
		buf_addf(b, "den_request_seconds_bucket{dialect=\"%s\",le=\"+Inf\"} %llu\n",
			per[i].name, sum);
		buf_addf(b, "den_request_seconds_sum{dialect=\"%s\"} %g\n", per[i].name,
			(double)per[i].sum_us / 1e6);
		buf_addf(b, "den_request_seconds_count{dialect=\"%s\"} %llu\n", per[i].name, sum);
	}
}

static void put_memory(struct buf *b)
{
	unsigned long long pages, page = (unsigned long long)sysconf(_SC_PAGESIZE);
	struct rusage use = { 0 };
	char text[128] = "";

	if (statm >= 0 && pread(statm, text, sizeof(text) - 1, 0) > 0 &&
		sscanf(text, "%*u %llu", &pages) == 1)
		put_gauge(b, "process_resident_memory_bytes", "gauge", "Resident memory",
			pages * page);
	getrusage(RUSAGE_SELF, &use);
	put_gauge(b, "process_max_resident_memory_bytes", "gauge", "The most that it was",
		(unsigned long long)use.ru_maxrss * 1024);
}

static void put_process(struct buf *b)
{
	unsigned threads, busy;

	pool_count(&threads, &busy);
	put_gauge(b, "den_requests_in_flight", "gauge",
		"Requests whose answer is not out yet, streams too", (unsigned long long)http_open);
	put_gauge(b, "den_streams", "gauge",
		"Answers that are streamed now, and upgraded connections",
		(unsigned long long)streams);
	put_gauge(b, "den_workers", "gauge", "Threads for handlers", threads);
	put_gauge(b, "den_workers_busy", "gauge", "Threads that run one", busy);
	put_gauge(b, "den_connections", "gauge", "Open connections", conns_count());
	put_gauge(b, "den_bytes_in_total", "counter", "Bytes of bodies received", bytes_in);
	put_gauge(b, "den_bytes_out_total", "counter", "Bytes of bodies sent", bytes_out);
	put_memory(b);
	put_gauge(b, "process_start_time_seconds", "gauge", "Unix time of the start",
		(unsigned long long)started_ms / 1000);
}

/* Counts are for the machine itself; others show a key of an administrator. Who comes through a proxy on this
 * machine is not the machine. */
static int metrics_allowed(struct req *r, struct den_err *err)
{
	const char *peer = req_peer(r);
	struct who who;

	if ((!strcmp(peer, "unix") || !strncmp(peer, "127.", 4) || !strcmp(peer, "::1")) &&
		!req_header(r, "X-Forwarded-For") && !req_header(r, "Forwarded") &&
		!req_header(r, "X-Real-IP"))
		return 0;
	if (r->dialect->key(r) && auth_check(r, r->dialect->key(r), &who, err) < 0) {
		req_set_fail_status(r, 401);
		return -1;
	}
	if (!r->dialect->key(r) || (!who.admin && !auth_scope(&who, "admin")))
		return den_fail(err, DEN_DENIED, 0,
			"from elsewhere, metrics need a key with the scope 'admin'");
	req_set_who(r, &who);
	return 0;
}

static int get_metrics(struct req *r, struct den_err *err)
{
	auto_buf b = { 0 };

	if (metrics_allowed(r, err) < 0)
		return -1;
	put_requests(&b);
	put_process(&b);
	if (http_opt.gauges)
		http_opt.gauges(&b);
	return req_reply(r, 200, "text/plain; version=0.0.4; charset=utf-8", b.p, b.len);
}

static int get_health(struct req *r, struct den_err *err)
{
	return req_reply(r, 200, "text/plain", "ok\n", 3);
}

static int get_ready(struct req *r, struct den_err *err)
{
	const char *why = http_stopping	   ? "the server is ending"
			  : http_opt.ready ? http_opt.ready()
					   : NULL;
	auto_buf b = { 0 };

	buf_addf(&b, "%s\n", why ? why : "ready");
	return req_reply(r, why ? 503 : 200, "text/plain", b.p, b.len);
}

static const char *base_key(const struct req *r)
{
	const char *h = req_header(r, "Authorization");

	if (h && !strncasecmp(h, "Bearer ", 7))
		return h + 7;
	return req_header(r, "X-API-Key");
}

static const struct route routes[] = {
	{ "GET", "/healthz", get_health, AUTH_NONE, 0 },
	{ "GET", "/readyz", get_ready, AUTH_NONE, 0 },
	{ "GET", "/metrics", get_metrics, AUTH_NONE, 0 },
};

const struct dialect dialect_base = {
	.name = "base",
	.routes = routes,
	.n = ARRAY_SIZE(routes),
	.fail = fail_plain,
	.key = base_key,
};
