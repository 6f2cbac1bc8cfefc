/* Names resolved outside, with c-ares; answers are remembered as long as they say (5 s to 5 min). */
#pragma once

#include "addr.h"
#include "gate.h"
#include "name.h"

#define RESOLVE_ADDRS 16

struct resolver;
/* One who waits. Embedded in its owner. */
struct lookup {
	struct list link; /* while waiting */
	bool waiting;
	/* n 0: there is no address; failed: nobody could say. May free the lookup's owner. */
	void (*done)(struct lookup *l, const struct net_addr *addrs, unsigned n, bool failed);
};

int resolver_new(struct gate *g, struct resolver **ret, struct den_err *err);
/* The servers and the hosts file of a new configuration. */
int resolver_servers(struct resolver *r, const struct config *c, struct den_err *err);
/* done is called from here when the answer is known already. */
void resolver_ask(struct resolver *r, const struct net_name *n, struct lookup *l);
/* The answer is known, or was asked for: no question leaves. */
bool resolver_knows(struct resolver *r, const struct net_name *n);
void lookup_cancel(struct lookup *l);
