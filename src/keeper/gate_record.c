/* What the gate tells, written down: in the journal, and for the box in /run/den/denials. The gate is
 * believed no more than a box: lengths are bounded, texts are escaped, a flood is cut. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "clock.h"
#include "control.h"
#include "fd.h"
#include "gate.h"

#define SHOW_NS (50 * NS_PER_MS)
#define RECORDS_MAX 1000000ULL /* lines in a journal; then only incidents are added */
#define TAIL_MAX 100000ULL

struct record {
	uint64_t kind, port, generation, in, out, ms, count;
	char *host, *addr, *rule, *reason, *name, *what;
};

static const struct {
	uint16_t tag;
	bool text;
	size_t off;
} fields[] = {
	{ F_KIND, false, offsetof(struct record, kind) },
	{ F_PORT, false, offsetof(struct record, port) },
	{ F_GENERATION, false, offsetof(struct record, generation) },
	{ F_BYTES_IN, false, offsetof(struct record, in) },
	{ F_BYTES_OUT, false, offsetof(struct record, out) },
	{ F_DURATION_MS, false, offsetof(struct record, ms) },
	{ F_COUNT, false, offsetof(struct record, count) },
	{ F_HOST, true, offsetof(struct record, host) },
	{ F_ADDR, true, offsetof(struct record, addr) },
	{ F_RULE, true, offsetof(struct record, rule) },
	{ F_REASON, true, offsetof(struct record, reason) },
	{ F_NAME, true, offsetof(struct record, name) },
	{ F_WHAT, true, offsetof(struct record, what) },
};

static void record_free(struct record *r)
{
	free(r->host);
	free(r->addr);
	free(r->rule);
	free(r->reason);
	free(r->name);
	free(r->what);
}

static int record_get(const struct wire_frame *f, struct record *r)
{
	struct wire_reader rd = wire_reader(f->p, f->len);
	struct wire_value v;
	int rc;

	while ((rc = wire_next(&rd, &v, NULL)) > 0) {
		size_t i = 0;

		while (i < ARRAY_SIZE(fields) && fields[i].tag != v.tag)
			i++;
		if (i == ARRAY_SIZE(fields))
			return -1;
		if (fields[i].text) {
			char **at = (char **)(void *)((char *)r + fields[i].off);

			free(*at);
			*at = NULL;
			rc = wire_str(&v, 1024, at, NULL);
		} else {
			rc = wire_u64(&v, UINT64_MAX, (uint64_t *)(void *)((char *)r + fields[i].off), NULL);
		}
		if (rc < 0)
			return -1;
	}
	return rc;
}

/* ---- for the box ---- */

static void show_cb(struct loop_timer *t)
{
	struct kgate *g = CONTAINER_OF(t, struct kgate, show);
	auto_fd dir = openat(g->k->boxfd, GATE_RUN, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	auto_buf b = { 0 };
	struct den_err err;

	for (unsigned i = 0; i < g->n_denials; i++)
		buf_addf(&b, "%s\n", g->denials[i]);
	if (dir >= 0)
		(void)file_replace_at(dir, "denials", b.p ? b.p : "", b.len, 0644, &err);
}

static void show(struct kgate *g, const struct record *r)
{
	struct json j = { 0 };

	if (g->n_denials == DENIALS_SHOWN) {
		free(g->denials[0]);
		memmove(g->denials, g->denials + 1, sizeof(g->denials[0]) * (DENIALS_SHOWN - 1));
		g->n_denials--;
	}
	json_open(&j, NULL, '{');
	json_time(&j, "at", clock_wall_ms());
	if (r->host)
		json_str(&j, "host", r->host);
	if (r->addr)
		json_str(&j, "address", r->addr);
	if (r->port)
		json_u64(&j, "port", r->port);
	json_str(&j, "reason", r->reason);
	if (r->rule)
		json_str(&j, "rule", r->rule);
	json_u64(&j, "generation", r->generation);
	json_u64(&j, "count", r->count);
	json_close(&j, '}');
	g->denials[g->n_denials++] = mem_strdup(buf_str(&j.b));
	buf_free(&j.b);
	if (!g->show.when) {
		g->show.cb = show_cb;
		loop_timer_set(g->k->loop, &g->show, clock_mono_ns() + SHOW_NS);
	}
}

static void keep_used(struct kgate *g, uint64_t bytes)
{
	char text[24];
	struct den_err err;
	int n;

	if (bytes <= g->used)
		return;
	g->used = bytes;
	n = snprintf(text, sizeof(text), "%llu\n", (unsigned long long)bytes);
	(void)file_replace_at(g->k->boxfd, GATE_USED, text, (size_t)n, 0600, &err); /* or with the next one */
}

/* ---- the journal ---- */

static bool journal_ready(struct kgate *g)
{
	struct den_err err;

	return g->journal.fd >= 0 || journal_open(&g->journal, g->k->boxfd, GATE_JOURNAL, &err) == 0;
}

static void put(struct kgate *g, const struct record *r, const char *kind)
{
	struct den_err err;
	struct json j;

	if (!journal_ready(g) || (g->journal.n > RECORDS_MAX && r->kind != RECORD_INCIDENT))
		return;
	journal_begin(&g->journal, &j, kind);
	if (r->host)
		json_str(&j, "host", r->host);
	if (r->addr)
		json_str(&j, "address", r->addr);
	if (r->port)
		json_u64(&j, "port", r->port);
	if (r->kind == RECORD_CONNECTION) {
		json_u64(&j, "bytes_out", r->out);
		json_u64(&j, "bytes_in", r->in);
		json_u64(&j, "ms", r->ms);
	}
	if (r->name)
		json_str(&j, "secret", r->name);
	if (r->what)
		json_str(&j, "where", r->what);
	if (r->rule)
		json_str(&j, "rule", r->rule);
	if (r->reason)
		json_str(&j, "reason", r->reason);
	if (r->count)
		json_u64(&j, "count", r->count);
	json_u64(&j, "generation", r->generation);
	(void)journal_end(&g->journal, &j, &err);
}

void gate_record(struct kgate *g, const struct wire_frame *f)
{
	static const char *const kinds[RECORD_KINDS] = { [RECORD_CONNECTION] = "connection",
		[RECORD_DENIAL] = "denial", [RECORD_INCIDENT] = "incident", [RECORD_SECRET] = "secret",
		[RECORD_LOST] = "lost" };
	struct record r = { 0 };

	if (record_get(f, &r) < 0 || !r.kind || r.kind >= RECORD_KINDS) {
		/* not a record that we know */
	} else if (r.kind == RECORD_USED) {
		keep_used(g, r.out);
	} else {
		put(g, &r, kinds[r.kind]);
		if (r.kind == RECORD_DENIAL)
			show(g, &r);
	}
	record_free(&r);
}

void gate_note(struct kgate *g, const char *kind, const char *text)
{
	struct den_err err;
	struct json j;

	if (!journal_ready(g))
		return;
	journal_begin(&g->journal, &j, kind);
	json_str(&j, "text", text);
	json_u64(&j, "generation", g->k->row.info.generation);
	(void)journal_end(&g->journal, &j, &err);
}

static int send_line(const char *line, size_t n, void *user, struct den_err *err)
{
	struct client *c = user;
	auto_buf b = { 0 };

	(void)err;
	wire_put_bytes(&b, F_MSG, line, n);
	conn_send_buf(&c->conn, WM_RECORD, 0, &b);
	return 0;
}

int req_journal(struct client *c, const struct wire_frame *f, struct buf *out, struct den_err *err)
{
	auto_free char *kind = NULL;
	uint64_t count = field_u64(f, F_COUNT, 1000);

	(void)out;
	if (field_str(f, F_KIND, 32, &kind, err) < 0)
		return -1;
	if (kind && strspn(kind, "abcdefghijklmnopqrstuvwxyz-") != strlen(kind))
		return den_fail(err, DEN_INVALID, 0, "'%.32s' is no kind of record", kind);
	return journal_tail(c->k->boxfd, GATE_JOURNAL, kind, MIN(count, TAIL_MAX), send_line, c, err);
}
