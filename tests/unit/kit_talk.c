#include "kit_talk.h"

#include <string.h>

#include "encode.h"
#include "test.h"

static void on_used(void *user, const char *secret, const char *where)
{
	struct talk *t = user;

	CHECK(strcmp(secret, "KEY") == 0);
	t->n_used++;
	snprintf(t->used, sizeof(t->used), "%s", where);
}

static void on_incident(void *user, unsigned canary, const char *where)
{
	struct talk *t = user;

	t->n_incidents++;
	t->last_canary = canary;
	snprintf(t->incident, sizeof(t->incident), "%s", where);
}

static void on_denied(void *user, const char *what)
{
	struct talk *t = user;

	t->n_denied++;
	snprintf(t->denied, sizeof(t->denied), "%s", what);
}

static time_t on_now(void *user)
{
	struct talk *t = user;

	return NOW + t->now;
}

void talk_to(
	struct talk *t, struct net_name name, const struct exchange_secret *s, const char *audience)
{
	static const char *const canaries[] = { PH, OTHER };
	struct exchange_options o = { .name = &name,
		.port = 443,
		.secrets = s,
		.n_secrets = s ? 1 : 0,
		.token_audience = audience,
		.token_header = "Authorization",
		.rule = "api.example.com:443",
		.generation = 7,
		.how_to_ask = "den policy set BOX --allow NAME",
		.user = t,
		.used = on_used,
		.incident = on_incident,
		.denied = on_denied,
		.now = on_now };

	*t = (struct talk){ 0 };
	o.canaries = t->c = canary_new(canaries, 2);
	t->x = exchange_new(&o);
}

void talk_with(struct talk *t, const struct exchange_secret *s, const char *audience)
{
	talk_to(t, (struct net_name){ "api.example.com" }, s, audience);
}

void talk_begin(struct talk *t, unsigned in, const char *place)
{
	char *places[] = { (char *)place, NULL };
	struct exchange_secret s = { "KEY", PH, VALUE, in };

	s.headers = in & EXCHANGE_IN_HEADER ? places : NULL;
	s.queries = in & EXCHANGE_IN_QUERY && place ? places : NULL;
	talk_with(t, in ? &s : NULL, NULL);
}

void talk_end(struct talk *t)
{
	exchange_free(t->x);
	canary_free(t->c);
	buf_free(&t->up);
	buf_free(&t->box);
}

int say(struct talk *t, const char *text)
{
	return t->r = exchange_from_box(t->x, text, strlen(text), &t->up, &t->box, &t->why);
}

int answer(struct talk *t, const char *text)
{
	return t->r = exchange_from_up(t->x, text, strlen(text), false, &t->box, &t->up, &t->why);
}

bool has(struct buf *b, const char *text)
{
	return memmem(buf_str(b), b->len, text, strlen(text)) != NULL;
}

bool is(struct buf *b, const char *text)
{
	bool same = b->len == strlen(text) && memcmp(buf_str(b), text, b->len) == 0;

	if (!same)
		fprintf(stderr, "--- got\n%s\n--- not\n%s\n", buf_str(b), text);
	return same;
}

bool refused(struct talk *t, const char *status)
{
	bool ok = t->r < 0 && t->up.len == 0 && t->box.len > 12 &&
		  strncmp(t->box.p + 9, status, 3) == 0 && has(&t->box, "Connection: close\r\n") &&
		  has(&t->box, "den: ") && has(&t->box, "policy generation: 7\n") &&
		  has(&t->box, "how to ask: den policy set");

	if (!ok)
		fprintf(stderr, "  %d, up '%s', box '%s'\n", t->r, buf_str(&t->up),
			buf_str(&t->box));
	return ok;
}

void basic_of(struct buf *out, const char *text)
{
	encode_base64(out, text, strlen(text));
}
