/*
 * One connection of the box: who it is for, is it that, and then bytes both ways.
 *
 *   accept ─> (whom?) ─┬─> RESOLVING ─> CONNECTING ─> READY        the way out, flow.c
 *                      └─> WAIT ─> RAW | HTTP | TLS                 what the box says first, flow_check.c
 *   both ─> relay.c (splice)        RAW
 *           pump.c (looked at)      HTTP; TLS that ends here; RAW in clear where there are canaries
 *   any  ─> flow_deny()  says why to the box where the protocol can, then LINGER
 *        ─> flow_end()   the only way a flow goes; told to the keeper
 *
 * Both branches run at once. Nothing from the box goes out before it was looked at (RAW: by rule).
 */
#pragma once

#include "gate.h"
#include "resolve.h"

enum flow_check { CHECK_WAIT, CHECK_RAW, CHECK_SCAN, CHECK_HTTP, CHECK_TLS, CHECK_LINGER };
enum flow_up { UP_NONE, UP_RESOLVING, UP_CONNECTING, UP_READY };

/* One direction of a relay. */
struct relay_dir {
	int pipe[2]; /* -1: none; there is one while bytes are in it */
	size_t held;
	bool eof, shut, broken;
	bool wants_in, wants_out; /* to go on: more to read, room to write */
};

struct pump;

struct flow {
	struct list link, throttle;
	struct gate *g;
	struct config *cfg;
	struct loop_source box, up;
	uint32_t box_ready, up_ready; /* events that came and were not looked at */
	size_t peeked;		      /* bytes of the box that were there at the last look */
	bool named, proxy, inbound;
	bool knock; /* inbound: what is connected is not the port yet */
	struct net_name name;
	struct net_addr addr; /* whom it goes to, once that is known */
	uint16_t port;
	unsigned pin;
	struct verdict v;
	enum flow_check check;
	enum flow_up ups;
	struct lookup lookup;
	struct net_addr tries[RESOLVE_ADDRS];
	unsigned n_tries, tried;
	int64_t began, deadline; /* ns; deadline 0: none */
	uint64_t bytes_out, bytes_in;
	struct relay_dir dir[2]; /* 0: out of the box, 1: into it */
	struct pump *pump;
	const char *dead; /* why there is no way out, for a box that has not spoken yet */
	bool throttled, ended;
	bool tuned; /* keepalive is set on up */
	bool starting; /* in flow_up_start() */
	struct loop_timer again;
	struct loop_deferred later;
};

void flow_accept(struct gate *g, int fd, unsigned family);
void flow_accept_proxy(struct gate *g, int fd);
/* A connection from outside, to a port of the box: up is a socket of its namespace, being connected; or (door) to where
 * one has to say which port it is. */
void flow_inbound(struct gate *g, int outside, int inside, uint16_t port, bool door);
void flow_tick(struct gate *g, int64_t now);
/* Does what can be done after events, and says what to wait for. */
void flow_go(struct flow *f);
void flow_resume(struct flow *f); /* without an event */
void flow_end(struct flow *f, const char *reason, bool reset);
/* reason: static text, for the keeper; the box is told with `tell` (NULL: nothing it would understand). */
void flow_deny(struct flow *f, const char *reason, const void *tell, size_t n);
/* All is said: waits until the box has read it. */
void flow_linger(struct flow *f);
struct where flow_where(const struct flow *f);
/* Waits for these events; none: only to hear, once, that it is broken. */
void flow_watch(struct flow *f, struct loop_source *s, uint32_t events);
/* Its turn comes again, when others had theirs. */
void flow_again(struct flow *f);
/* Must it be HTTP or TLS, by its port or because a secret is at stake? */
bool flow_strict(const struct flow *f);
void flow_up_start(struct flow *f);

/* flow_limit.c */
/* n more bytes went; false: the flow is over (the box may move no more). */
bool flow_count(struct flow *f, size_t n, bool out);
/* The rate limit says wait. */
bool flow_throttle(struct flow *f);
void flow_unthrottle(struct flow *f);
/* How many bytes may go before that, at most max. */
size_t flow_allowance(const struct flow *f, size_t max);

/* flow_change.c */
/* After a change of policy: ends what is no longer allowed. Returns how many. */
unsigned flow_recheck(struct gate *g);

/* flow_check.c */
void flow_look(struct flow *f);
void flow_look_proxy(struct flow *f);
/* An answer in HTTP that says why and how to ask. */
void flow_teach(struct flow *f, const char *what, struct buf *out);

/* relay.c */
void relay_go(struct flow *f, bool out, bool in);
void relay_free(struct flow *f);

/* pump.c */
int pump_new(struct flow *f, struct den_err *err);
void pump_go(struct flow *f);
/* An answer for the box that says so, in place of the one that will not come. */
void pump_unreachable(struct flow *f, const char *reason);
void pump_free(struct flow *f);
bool pump_idle(const struct flow *f); /* no request is under way */
void pump_up_broken(struct flow *f);  /* nothing more can be written there, what came can be read */
