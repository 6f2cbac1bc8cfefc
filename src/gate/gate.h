/*
 * The gate: the only way from a box to any network. One process a box, without rights or files; it
 * parses what the box and the world send.
 *
 *   box: connect() ── redirected in its own namespace ──> socks.c ─> flow.c ── relay.c ──> the world
 *   box: resolver  ──────────────────────────────────────> dnsd.c ─> resolve.c (c-ares)
 *
 * A name that the policy allows gets an address of its own (pins.c). A connection to such an address
 * is a connection to that name; whatever else the box can say about where it wants to go (SNI, Host)
 * must agree. See span.h for the addresses, control.h for the keeper, docs/decisions/0011-gate.md.
 */
#pragma once

#include "canary.h"
#include "conn.h"
#include "control.h"
#include "loop.h"
#include "policy.h"

struct mint;
struct ssl_ctx_st;
struct pins;
struct resolver;

struct gate_secret {
	char *name, *placeholder, *value;
	char **also; /* placeholders of boxes that its programs come from: they stand for the same; NULL: none */
};

/* One generation of what the keeper said. Flows hold it as long as they live. */
struct config {
	unsigned refs;
	uint64_t generation;
	struct policy *policy;
	char *ask, *resolv, *hosts;
	uint64_t used; /* bytes, by the gates before */
	struct gate_secret *secrets; /* in the order of policy->secrets */
	unsigned n_secrets;
	struct canary *canaries; /* NULL: no secrets */
	unsigned *canary_of, n_canaries; /* which of the secrets each is of */
	struct mint *mint;
	struct ssl_ctx_st *client; /* made when first needed */
};

/* A listening or bound socket in the box's namespace. */
struct gsock {
	struct list link;
	struct gate *g;
	struct loop_source src;
	uint32_t kind; /* enum plumb_kind */
	unsigned family;
	uint16_t port;
};

/* Denials that were told and come again are counted for a while. */
#define DENIALS 128
struct denial {
	struct net_name name;
	struct net_addr addr; /* family 0: by name */
	uint16_t port;
	const char *reason; /* static text */
	uint64_t again;
	int64_t told; /* ns */
};

/* The same of incidents; the first few are told one by one. */
#define INCIDENTS 32
struct incident {
	struct net_name name;
	struct net_addr addr;
	uint16_t port;
	char secret[64], place[96]; /* what is longer counts as the same */
	unsigned told_times;
	uint64_t again;
	int64_t told; /* ns; 0: free */
};

/* Lines that may be told now. What is over is counted, and told in one line for all. */
struct allowance {
	uint64_t used; /* of the burst */
	int64_t at;    /* ns */
	uint64_t over;
	int64_t over_told; /* ns */
};

struct gate {
	struct loop *loop;
	struct loop_source listen, init;
	struct conn ctl;
	bool ctl_up, ctl_open; /* connected; memory in use */
	struct loop_deferred ctl_free;
	uint64_t lost; /* records */
	struct config *cfg;
	int bundle_fd;
	struct list socks;
	struct pins *pins;
	struct resolver *resolver;
	struct list flows;
	unsigned n_flows;
	struct list throttled;
	int64_t tokens, tokens_at; /* of the rate limit: bytes, ns; gate_refill() */
	uint64_t bytes;		   /* both ways, of all gates that the box had */
	uint64_t bytes_told;	   /* what the keeper knows of them */
	bool busy;		   /* bytes went through, either way, since the keeper was told so */
	struct loop_timer tick, refill;
	struct list queries; /* dnsd */
	unsigned n_queries, dns_tokens;
	int64_t dns_tokens_at;
	struct list dns_conns, waiting_tokens, ports, idents, spare, udp_flows;
	unsigned n_dns_conns, n_idents, n_udp, n_spare;
	uint64_t next_token;
	bool asked_sockets;
	struct loop_source identity;
	struct denial denials[DENIALS];
	struct incident incidents[INCIDENTS];
	struct allowance denials_left, incidents_left;
};

/* config.c */
int config_parse(const char *json, size_t len, struct config **ret, struct den_err *err);
struct config *config_ref(struct config *c);
void config_unref(struct config *c);
struct ssl_ctx_st *config_client(struct gate *g, struct config *c, struct den_err *err);

/* guard.c: no way back. Before the first byte from a box. */
int guard_files(struct den_err *err);	/* no file system, no rights */
int guard_calls(struct den_err *err);	/* the seccomp filter */

/* control.c */
int control_listen(struct gate *g, struct den_err *err);
void control_send(struct gate *g, uint8_t type, const struct buf *b);
void control_record(struct gate *g, const struct buf *b);

/* record.c */
struct where {
	const struct net_name *name; /* NULL: by address */
	const struct net_addr *addr; /* NULL: none */
	uint16_t port;
};
/* reason: static text */
void record_denial(struct gate *g, const struct where *w, const char *rule, const char *reason);
void record_incident(struct gate *g, const struct where *w, const char *secret, const char *where);
void record_secret(struct gate *g, const struct where *w, const char *secret, const char *where);
void record_used(struct gate *g);
void record_tick(struct gate *g);
void record_where(struct buf *b, const struct where *w);

/* flow_limit.c: what the rate limit gives for the time since the last call; <= 0: wait. */
int64_t gate_refill(struct gate *g);

/* socks.c: takes over what the plumber made. All or nothing. */
int socks_take(struct gate *g, int fd, struct den_err *err);
void socks_pause(struct gate *g, bool on); /* too many connections: none are accepted for a moment */

/* dnsd.c */
void dnsd_datagram(struct gsock *s);
void dnsd_accept(struct gate *g, int fd);
void dnsd_tick(struct gate *g, int64_t now);
void dnsd_forget(struct gate *g, const struct gsock *s); /* it goes: answer nothing more on it */

/* udp.c */
void udp_datagram(struct gsock *s);
void udp_recheck(struct gate *g);
void udp_forget(struct gate *g, const struct gsock *s);
void udp_tick(struct gate *g, int64_t now);

/* ident.c */
int ident_take(struct gate *g, int listen_fd, struct den_err *err);
void ident_tick(struct gate *g, int64_t now);

/* inbound.c */
bool inbound_has(const struct gate *g, uint16_t port);
void inbound_port(struct gate *g, uint16_t port, int listen_fd);
void inbound_sockets(struct gate *g, int fd);
void inbound_tick(struct gate *g);

/* tokens, of whoever wants one */
struct token_wait {
	struct list link;
	uint64_t number;
	void (*done)(struct token_wait *w, const char *token, const char *reason);
};
void token_ask(struct gate *g, struct token_wait *w, const char *audience, const char *alg);
void token_forget(struct token_wait *w);
