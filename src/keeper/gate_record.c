/* What the gate tells, written down: in the journal, and for the box in /run/den/denials. The gate is
 * believed no more than a box: lengths are bounded, texts are escaped, a flood is cut. Each kind of line
 * has a share of the journal by the hour; what is over is counted and told once a minute, so that no kind
 * drives out another. */
#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "clock.h"
#include "control.h"
#include "fd.h"
#include "gate.h"

#define SHOW_NS (50 * NS_PER_MS)
#define OVER_NS (60 * NS_PER_SEC)
#define HOUR_NS (3600 * NS_PER_SEC)
#define TAIL_MAX 100000ULL
#define NOTE_MAX 8192	     /* bytes of a text that is too long for a line, six times as many at worst */
#define NOTE_LINE (60U << 10)

/* Less than 64 MiB a box. What the box can only make few of outlives what it can make many of. */
static const char *const kept[] = { "incident", "policy", NULL };
static const struct journal_limits limits = { .file = 24U << 20, .kept = 8U << 20, .kinds = kept };

static const struct {
	const char *kind;
	uint64_t hour; /* bytes; 0: not written down */
} kinds[RECORD_KINDS] = {
	[0] = { "gate", 256U << 10 },
	[RECORD_CONNECTION] = { "connection", 4U << 20 },
	[RECORD_DENIAL] = { "denial", 1U << 20 },
	[RECORD_INCIDENT] = { "incident", 256U << 10 },
	[RECORD_SECRET] = { "secret", 4U << 20 },
	[RECORD_LOST] = { "lost", 64U << 10 },
};
static_assert(RECORD_KINDS <= SHARES, "a kind has no share");

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

	return g->journal.fd >= 0 || journal_open(&g->journal, g->k->boxfd, GATE_JOURNAL, &limits, &err) == 0;
}

/* Is there room for a line of this kind? One line too many does no harm. */
static bool share_left(struct kgate *g, uint64_t kind)
{
	struct share *s = &g->shares[kind];
	int64_t now = clock_mono_ns(), past = now - s->at;
	uint64_t back = past >= HOUR_NS ? kinds[kind].hour :
					  kinds[kind].hour * (uint64_t)(past / NS_PER_SEC) / 3600;

	if (back) {
		s->used -= MIN(s->used, back);
		s->at = now;
	}
	return s->used < kinds[kind].hour;
}

static void tell_over(struct kgate *g, uint64_t kind)
{
	struct share *s = &g->shares[kind], over = *s;
	struct den_err err;
	struct json j;

	journal_begin(&g->journal, &j, kinds[kind].kind);
	if (kind == RECORD_CONNECTION) {
		json_u64(&j, "bytes_out", over.out);
		json_u64(&j, "bytes_in", over.in);
	}
	json_str(&j, kind ? "reason" : "text", "others, too many to tell");
	json_u64(&j, "count", over.over);
	json_u64(&j, "generation", g->k->row.info.generation);
	if (journal_end(&g->journal, &j, &err) == 0)
		s->over = s->in = s->out = 0;
}

static void over_cb(struct loop_timer *t)
{
	struct kgate *g = CONTAINER_OF(t, struct kgate, over);

	for (uint64_t kind = 0; kind < RECORD_KINDS; kind++)
		if (g->shares[kind].over && journal_ready(g))
			tell_over(g, kind);
}

void gate_record_end(struct kgate *g)
{
	loop_timer_clear(&g->over);
	over_cb(&g->over);
}

static void count_over(struct kgate *g, uint64_t kind, uint64_t count, uint64_t in, uint64_t out)
{
	struct share *s = &g->shares[kind];

	s->over += MAX(count, 1U);
	s->in += in;
	s->out += out;
	if (!g->over.when) {
		g->over.cb = over_cb;
		loop_timer_set(g->k->loop, &g->over, clock_mono_ns() + OVER_NS);
	}
}

/* A server hears of it as it is written down, but for the hash. */
static void tell(struct kgate *g, const struct json *j, uint64_t kind)
{
	static const char *const told[RECORD_KINDS] = { [RECORD_CONNECTION] = "net.connection",
		[RECORD_DENIAL] = "net.denied", [RECORD_INCIDENT] = "net.incident" };
	auto_buf b = { 0 };

	if (!told[kind] || !feed_wanted(g->k))
		return;
	buf_add(&b, j->b.p, j->b.len);
	buf_addstr(&b, "}");
	feed_text(g->k, told[kind], buf_str(&b));
}

/* What can't be written is one of the others. */
static void line_end(struct kgate *g, struct json *j, const struct record *r)
{
	size_t n = j->b.len + 80; /* and the hash */
	struct den_err err;

	tell(g, j, r->kind);
	if (journal_end(&g->journal, j, &err) < 0)
		count_over(g, r->kind, r->count, r->in, r->out);
	else
		g->shares[r->kind].used += n;
}

static void put(struct kgate *g, const struct record *r)
{
	struct json j;

	if (!share_left(g, r->kind) || !journal_ready(g)) {
		count_over(g, r->kind, r->count, r->in, r->out);
		return;
	}
	journal_begin(&g->journal, &j, kinds[r->kind].kind);
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
	line_end(g, &j, r);
}

void gate_record(struct kgate *g, const struct wire_frame *f)
{
	struct record r = { 0 };

	if (record_get(f, &r) < 0 || !r.kind || r.kind >= RECORD_KINDS) {
		/* not a record that we know */
	} else if (r.kind == RECORD_USED) {
		keep_used(g, r.out);
	} else if (r.kind == RECORD_BUSY) {
		lease_busy(g->k);
	} else {
		put(g, &r);
		if (r.kind == RECORD_DENIAL)
			show(g, &r);
	}
	record_free(&r);
}

/* All of it if a line can hold it, else its beginning: a line that says less is better than none. */
static void put_text(struct json *j, const char *text)
{
	struct json before = *j;

	json_str(j, "text", text);
	if (j->b.len <= NOTE_LINE)
		return;
	j->b.len = before.b.len;
	j->comma = before.comma;
	json_bytes(j, "text", text, NOTE_MAX);
	json_u64(j, "length", strlen(text));
}

void gate_note(struct kgate *g, const char *kind, const char *text)
{
	bool ours = strcmp(kind, kinds[0].kind) != 0; /* somebody's wish, not what a box can bring about */
	struct record r = { 0 };
	struct json j;

	if ((!ours && !share_left(g, 0)) || !journal_ready(g)) {
		count_over(g, 0, 1, 0, 0);
		return;
	}
	journal_begin(&g->journal, &j, kind);
	put_text(&j, text);
	json_u64(&j, "generation", g->k->row.info.generation);
	line_end(g, &j, &r);
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
