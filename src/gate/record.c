/* What the keeper is to write down. A box that asks for what it may not have a million times gets one
 * line, and one more with the number; one that asks for a million things gets some lines a second, and
 * one with the number of the others: no box can make its journal so long that nothing else is in it. */
#include <stdio.h>
#include <string.h>

#include "clock.h"
#include "gate.h"

#define AGAIN_NS (30 * NS_PER_SEC)
#define OVER_NS (5 * NS_PER_SEC)
#define DENIAL_BURST 200U
#define DENIAL_RATE 20U	   /* a second */
#define INCIDENT_BURST 100U
#define INCIDENT_RATE 2U
#define INCIDENT_ALIKE 8U  /* lines, before they are counted */

/* May another line be told? If not it is one of the others. */
static bool allowance_take(struct allowance *a, uint64_t burst, uint64_t rate, int64_t now)
{
	uint64_t back = (uint64_t)(now - a->at) * rate / NS_PER_SEC;

	if (!a->at || back >= a->used) {
		a->used = 0;
		a->at = now;
	} else if (back) {
		a->used -= back;
		a->at = now;
	}
	if (a->used >= burst) {
		a->over++;
		return false;
	}
	a->used++;
	return true;
}

/* How many others are to be told of now. */
static uint64_t allowance_over(struct allowance *a, int64_t now)
{
	uint64_t over = a->over;

	if (!over || now - a->over_told < OVER_NS)
		return 0;
	a->over = 0;
	a->over_told = now;
	return over;
}

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
	if (!allowance_take(&g->denials_left, DENIAL_BURST, DENIAL_RATE, now))
		return; /* and those that were told stay known */
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

/* A box through whose gate something goes is not idle. */
static void record_busy(struct gate *g)
{
	auto_buf b = { 0 };

	if (!g->busy || !g->ctl_up)
		return;
	wire_put_u64(&b, F_KIND, RECORD_BUSY);
	control_record(g, &b);
	g->busy = false;
}

static void send_secret(struct gate *g, enum gate_record kind, const struct where *w, const char *secret,
	const char *place, uint64_t count)
{
	auto_buf b = { 0 };

	wire_put_u64(&b, F_KIND, kind);
	record_where(&b, w);
	wire_put_str(&b, F_NAME, secret);
	wire_put_str(&b, F_WHAT, place);
	if (count)
		wire_put_u64(&b, F_COUNT, count);
	wire_put_u64(&b, F_GENERATION, g->cfg ? g->cfg->generation : 0);
	control_record(g, &b);
}

static void flush_incident(struct gate *g, struct incident *i)
{
	struct where w = { i->name.s[0] ? &i->name : NULL, &i->addr, i->port };

	if (i->again)
		send_secret(g, RECORD_INCIDENT, &w, i->secret, i->place, i->again);
	i->again = 0;
}

static struct incident incident_of(const struct where *w, const char *secret, const char *place, int64_t now)
{
	struct incident i = { .port = w->port, .told = now };

	if (w->name)
		i.name = *w->name;
	if (w->addr)
		i.addr = *w->addr;
	snprintf(i.secret, sizeof(i.secret), "%s", secret);
	snprintf(i.place, sizeof(i.place), "%s", place);
	return i;
}

static bool incident_alike(const struct incident *a, const struct incident *b)
{
	return a->told && a->port == b->port && !strcmp(a->secret, b->secret) && !strcmp(a->place, b->place) &&
		!strcmp(a->name.s, b->name.s) && a->addr.family == b->addr.family &&
		(!a->addr.family || net_addr_equal(&a->addr, &b->addr));
}

void record_incident(struct gate *g, const struct where *w, const char *secret, const char *place)
{
	struct incident *at = &g->incidents[0];
	int64_t now = clock_mono_ns();
	struct incident new = incident_of(w, secret, place, now);

	for (size_t i = 0; i < INCIDENTS; i++) {
		if (incident_alike(&g->incidents[i], &new)) {
			at = &g->incidents[i];
			break;
		}
		if (g->incidents[i].told < at->told)
			at = &g->incidents[i];
	}
	if (incident_alike(at, &new) && at->told_times >= INCIDENT_ALIKE) {
		at->again++;
		return;
	}
	if (!allowance_take(&g->incidents_left, INCIDENT_BURST, INCIDENT_RATE, now))
		return;
	if (!incident_alike(at, &new)) {
		flush_incident(g, at);
		*at = new;
	}
	at->told_times++;
	send_secret(g, RECORD_INCIDENT, w, secret, place, 0);
}

void record_secret(struct gate *g, const struct where *w, const char *secret, const char *place)
{
	send_secret(g, RECORD_SECRET, w, secret, place, 0);
}

static void tell_others(struct gate *g, int64_t now)
{
	struct where none = { 0 };
	uint64_t n;

	if ((n = allowance_over(&g->denials_left, now)) > 0)
		send_denial(g, &none, NULL, "other denials, too many to tell", n);
	if ((n = allowance_over(&g->incidents_left, now)) > 0)
		send_secret(g, RECORD_INCIDENT, &none, "any", "other places, too many to tell", n);
}

void record_tick(struct gate *g)
{
	int64_t now = clock_mono_ns();

	record_used(g);
	record_busy(g);
	tell_others(g, now);
	for (size_t i = 0; i < DENIALS; i++) {
		struct denial *d = &g->denials[i];

		if (!d->told || now - d->told < AGAIN_NS)
			continue;
		flush_denial(g, d);
		*d = (struct denial){ 0 };
	}
	for (size_t i = 0; i < INCIDENTS; i++) {
		struct incident *c = &g->incidents[i];

		if (!c->told || now - c->told < AGAIN_NS)
			continue;
		flush_incident(g, c);
		*c = (struct incident){ 0 };
	}
}
