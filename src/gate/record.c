/* What the keeper is to write down. A box that asks for what it may not have a million times gets one
 * line, and one more with the number. */
#include <string.h>

#include "clock.h"
#include "gate.h"

#define AGAIN_NS (30 * NS_PER_SEC)

void record_where(struct buf *b, const struct where *w)
{
	char text[46];

	if (w->name)
		wire_put_str(b, F_HOST, w->name->s);
	if (w->addr && w->addr->family) {
		net_addr_format(w->addr, text);
		wire_put_str(b, F_ADDR, text);
	}
	if (w->port)
		wire_put_u64(b, F_PORT, w->port);
}

static void send_denial(struct gate *g, const struct where *w, const char *rule, const char *reason,
	uint64_t count)
{
	auto_buf b = { 0 };

	wire_put_u64(&b, F_KIND, RECORD_DENIAL);
	record_where(&b, w);
	if (rule && *rule)
		wire_put_str(&b, F_RULE, rule);
	wire_put_str(&b, F_REASON, reason);
	wire_put_u64(&b, F_COUNT, count);
	wire_put_u64(&b, F_GENERATION, g->cfg ? g->cfg->generation : 0);
	control_record(g, &b);
}

static void flush_denial(struct gate *g, struct denial *d)
{
	struct where w = { d->name.s[0] ? &d->name : NULL, &d->addr, d->port };

	if (d->again)
		send_denial(g, &w, NULL, d->reason, d->again);
	d->again = 0;
}

void record_denial(struct gate *g, const struct where *w, const char *rule, const char *reason)
{
	struct denial *oldest = &g->denials[0];
	int64_t now = clock_mono_ns();

	for (size_t i = 0; i < DENIALS; i++) {
		struct denial *d = &g->denials[i];

		if (d->told && d->port == w->port && d->reason == reason &&
			!strcmp(d->name.s, w->name ? w->name->s : "") &&
			(w->addr ? net_addr_equal(&d->addr, w->addr) : !d->addr.family)) {
			d->again++;
			return;
		}
		if (d->told < oldest->told)
			oldest = d;
	}
	flush_denial(g, oldest);
	*oldest = (struct denial){ .port = w->port, .reason = reason, .told = now };
	if (w->name)
		oldest->name = *w->name;
	if (w->addr)
		oldest->addr = *w->addr;
	send_denial(g, w, rule, reason, 1);
}

/* A limit on all that a box ever sends must not begin anew with another gate. */
void record_used(struct gate *g)
{
	auto_buf b = { 0 };

	if (!g->cfg || !g->cfg->policy->limits.bytes || g->bytes == g->bytes_told || !g->ctl_up)
		return;
	wire_put_u64(&b, F_KIND, RECORD_USED);
	wire_put_u64(&b, F_BYTES_OUT, g->bytes);
	control_record(g, &b);
	g->bytes_told = g->bytes;
}

void record_tick(struct gate *g)
{
	int64_t now = clock_mono_ns();

	record_used(g);
	for (size_t i = 0; i < DENIALS; i++) {
		struct denial *d = &g->denials[i];

		if (!d->told || now - d->told < AGAIN_NS)
			continue;
		flush_denial(g, d);
		*d = (struct denial){ 0 };
	}
}

static void send_secret(struct gate *g, enum gate_record kind, const struct where *w, const char *secret,
	const char *place)
{
	auto_buf b = { 0 };

	wire_put_u64(&b, F_KIND, kind);
	record_where(&b, w);
	wire_put_str(&b, F_NAME, secret);
	wire_put_str(&b, F_WHAT, place);
	wire_put_u64(&b, F_GENERATION, g->cfg ? g->cfg->generation : 0);
	control_record(g, &b);
}

void record_incident(struct gate *g, const struct where *w, const char *secret, const char *place)
{
	send_secret(g, RECORD_INCIDENT, w, secret, place);
}

void record_secret(struct gate *g, const struct where *w, const char *secret, const char *place)
{
	send_secret(g, RECORD_SECRET, w, secret, place);
}
