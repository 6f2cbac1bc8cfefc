/* A box and an upstream that talk through an exchange, and what came out. */
#pragma once

#include <stdbool.h>
#include <time.h>

#include "buf.h"
#include "exchange.h"

#define PH "den-ph-Qm7xA0fK3vLp9ZtR" /* of the granted secret */
#define VALUE "sk-ant-REAL+value/99&x==" /* needs encoding in a query */
#define OTHER "den-ph-other-secret-0000" /* a canary, granted nowhere */

#define HOST "Host: api.example.com\r\n"
#define IDENTITY "Accept-Encoding: identity\r\n"
#define UPGRADE "Connection: Upgrade\r\nUpgrade: websocket\r\n"
#define NOW 1440938160 /* 2015-08-30 12:36:00, for exchanges of these talks */

struct talk {
	struct exchange *x;
	struct canary *c;
	struct buf up, box;
	const char *why;
	time_t now; /* so much after NOW */
	int r;
	unsigned n_used, n_incidents, n_denied, last_canary;
	char used[64], incident[64], denied[128];
};

/* s NULL: a plain connection without secrets. */
void talk_to(struct talk *t, struct net_name name, const struct exchange_secret *s,
	const char *audience);
void talk_with(struct talk *t, const struct exchange_secret *s, const char *audience);
/* One secret, PH for VALUE; in 0: none. place is the header or the parameter. */
void talk_begin(struct talk *t, unsigned in, const char *place);
void talk_end(struct talk *t);
int say(struct talk *t, const char *text); /* the box */
int answer(struct talk *t, const char *text); /* upstream */
bool has(struct buf *b, const char *text);
bool is(struct buf *b, const char *text);
/* Nothing went upstream, and the box was told why. */
bool refused(struct talk *t, const char *status);
/* Appends text in base64. */
void basic_of(struct buf *out, const char *text);
