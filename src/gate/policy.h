/*
 * What a box may reach: the policy, from JSON (docs/policy.schema.json) to answers.
 *
 * Nothing is allowed that no rule allows. The order of rules has no meaning:
 *   - A deny that matches wins over every allow, grant and preset.
 *   - A name is matched by its exact rule, by "*.SUFFIX" of every name above it (not by that of its own),
 *     and by the "*" of preset `open`. All that match add up; of their texts and `raw`, the most specific
 *     one's counts: exact, then the longest suffix, then "*".
 *   - A grant (a secret, an added token) allows its host and port by itself, TLS ended at the gate, also
 *     where a wildcard says raw. One that a deny covers wholly, or that an exact raw rule contradicts, is
 *     an error of the policy.
 *   - Addresses are matched by CIDR rules alone. A range covers what is special (net_addr_special()) only
 *     if it lies wholly in space of that same kind: 10.1.0.0/16 opens private addresses, 0.0.0.0/0 none.
 *   - `open` reaches public addresses without a name too, and any port raw, unless a deny names a name:
 *     then only by name and checked, or the deny would be easy to go around.
 *   - "host:PORT" is a port of the host's loopback, and the name host.den inside. No wildcard covers it.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "addr.h"
#include "buf.h"
#include "err.h"
#include "name.h"

enum {
	POLICY_JSON_MAX = 256 << 10, /* bytes */
	POLICY_RULES_MAX = 4096,     /* allow and deny together, presets apart */
	POLICY_SECRETS_MAX = 64,
	POLICY_ADDS_MAX = 64,
	POLICY_TEXTS_MAX = 64, /* scopes, audiences; places of a secret */
	POLICY_RESOLVERS_MAX = 8,
	POLICY_TRUST_MAX = 64 << 10, /* bytes of certificates */
	POLICY_PORTS_MAX = 16,	/* ranges in a set */
	POLICY_CLASSES_MAX = 64, /* distinct sets of ports */
	POLICY_CONNECTIONS_MAX = 65536,
};

struct port_range {
	uint16_t lo, hi;
};
/* Sorted, merged, never touching. */
struct port_set {
	unsigned n;
	struct port_range r[POLICY_PORTS_MAX];
};
bool port_set_has(const struct port_set *s, uint16_t port);
/* Where a result would need more than POLICY_PORTS_MAX ranges, those with the smallest gap between them
 * become one: a set may be too large by that, never too small. */
void port_set_add(struct port_set *s, uint16_t lo, uint16_t hi);
void port_set_remove(struct port_set *s, uint16_t lo, uint16_t hi);
bool port_set_equal(const struct port_set *a, const struct port_set *b);

enum policy_kind {
	RULE_NAME,   /* one name */
	RULE_SUFFIX, /* all names below one */
	RULE_ANY,    /* all names (preset open) */
	RULE_CIDR,
	RULE_HOST, /* the host's loopback */
};
struct policy_rule {
	enum policy_kind kind;
	bool deny;
	bool raw;	/* bytes go through unseen: no SNI or Host is asked for */
	bool grant;	/* a secret's or a token's: TLS is ended here */
	bool tcp, udp;	/* CIDR: both in a deny that does not say; names: tcp */
	struct net_name name; /* NAME, SUFFIX (without "*.") */
	struct net_cidr cidr; /* CIDR */
	struct port_set ports;
	const char *text; /* canonical; with where it comes from: "x.org:443 (secret KEY)" */
	const char *from; /* NULL: the policy's own lists; else the preset's or secret's name, "identity" */
	int next;	  /* the next rule of the same name; -1: none */
};

enum policy_place {
	PLACE_HEADER = 1 << 0, /* in policy_secret.headers */
	PLACE_BEARER = 1 << 1, /* Authorization: Bearer */
	PLACE_BASIC = 1 << 2,  /* user or password in Authorization: Basic */
	PLACE_QUERY = 1 << 3,  /* in policy_secret.queries; with none there, any parameter */
	PLACE_BODY = 1 << 4,
	PLACE_SIGV4 = 1 << 5,
};
struct policy_secret {
	char *name; /* of the secret: a letter or _, then also digits . - */
	char *env;  /* variable that has the placeholder inside */
	bool suffix; /* host is below which all names are granted; sigv4 only */
	struct net_name host;
	uint16_t port;
	unsigned places; /* enum policy_place */
	char **headers;	 /* lower case; NULL: none */
	char **queries;
	char *access_key, *region, *service; /* sigv4; region, service NULL: as the request is signed */
};

/* A token that the gate adds by itself. */
struct policy_add {
	struct net_name host;
	uint16_t port;
	char *audience, *header; /* header: lower case */
};

struct policy_resolver {
	struct net_addr addr;
	uint16_t port;
};

struct policy {
	struct policy_rule *rules; /* those of lists first, then presets', then grants' */
	unsigned n_rules;
	char **presets; /* names, as given; NULL: none */
	struct {
		uint64_t rate;	      /* bytes a second, both ways together; 0: no limit */
		uint64_t bytes;	      /* in all */
		uint64_t connections; /* at once */
	} limits;
	struct policy_secret *secrets;
	unsigned n_secrets;
	struct {
		char *org, *task; /* NULL: not said */
		char **scopes, **audiences;
		struct policy_add *adds;
		unsigned n_adds;
	} identity;
	struct policy_resolver resolvers[POLICY_RESOLVERS_MAX];
	unsigned n_resolvers; /* 0: the host's own */
	char *trust; /* certificates (PEM) that are trusted besides the host's; NULL: none */
	bool proxy_env;
	bool any_addr; /* public addresses may be reached without a name (preset open) */

	/* policy_match.c's own */
	int *slots; /* hash of names -> first rule of that name, -1 */
	unsigned mask;
	int any_rule, host_rules; /* the first of each kind; -1 */
	struct port_set classes[POLICY_CLASSES_MAX];
	unsigned n_classes;
};

/**
 * policy_parse() - a policy from JSON
 * @ret: end it with policy_free()
 *
 * Unknown keys are refused, the nearest known one is named. An error is DEN_INVALID and names its place:
 * "policy: limits.rate: ...". In a process that loses its file system, call json_object_seed(0) before.
 */
int policy_parse(const char *json, size_t len, struct policy **ret, struct den_err *err);
void policy_free(struct policy *p); /* NULL is allowed */
static inline void policy_freep(struct policy **p)
{
	policy_free(*p);
}
#define auto_policy __attribute__((cleanup(policy_freep))) struct policy *
/* Canonical JSON, on one line: presets stay names, what is the default is left out. */
void policy_print(const struct policy *p, struct buf *out);
/* Does anything get out at all? If not, no gate is needed. */
bool policy_opens_anything(const struct policy *p);

struct verdict {
	bool allow;
	bool raw;	    /* see policy_rule.raw; never with terminate */
	bool terminate;	    /* there is a grant for this name and port: TLS is ended here */
	bool host_loopback; /* the name is host.den: connect to 127.0.0.1 (or ::1) outside */
	const char *rule;   /* text of the rule that decided, "": none matched; as long as the policy */
	const struct policy_rule *by; /* NULL: none */
};
/* Is any port of this name allowed? (the resolver's question) ret may be NULL. */
bool policy_name_known(const struct policy *p, const struct net_name *n, struct verdict *ret);
struct verdict policy_check_name(const struct policy *p, const struct net_name *n, uint16_t port);
/* A connection to an address, without a name. */
struct verdict policy_check_addr(
	const struct policy *p, const struct net_addr *a, uint16_t port, bool udp);
/* May what a name resolved to be connected to? why (may be NULL): the kind of address, or the text of the
 * deny rule. Not for host.den. */
bool policy_answer_ok(
	const struct policy *p, const struct net_addr *a, uint16_t port, const char **why);
/* The next grant for this name and port after the i-th (start with -1); -1: no more. */
int policy_next_secret(const struct policy *p, const struct net_name *n, uint16_t port, int i);
int policy_next_add(const struct policy *p, const struct net_name *n, uint16_t port, int i);
bool policy_audience_granted(const struct policy *p, const char *audience);

/* Allowed ports of a name without the denied ones. It may be larger than what policy_check_name() allows
 * where the set is full (see port_set_add()), never smaller. */
void policy_name_ports(const struct policy *p, const struct net_name *n, struct port_set *ret);
/**
 * policy_port_classes() - each distinct set of ports that some name can have
 * @max: room in ret, POLICY_CLASSES_MAX or more
 *
 * In the same order for the same policy. Where there are more than POLICY_CLASSES_MAX, one with the union.
 */
unsigned policy_port_classes(const struct policy *p, struct port_set *ret, unsigned max);
#define POLICY_NO_CLASS (~0U)
/* Which of them is this name's; POLICY_NO_CLASS: no port is allowed. */
unsigned policy_class_of(const struct policy *p, const struct net_name *n);

/* ---- parts, for the command line and for tests ------------------------------------------------- */

struct policy_preset {
	const char *name, *summary;
	const char *const *rules; /* texts, NULL-terminated */
};
extern const struct policy_preset policy_presets[]; /* ends with a NULL name */
const struct policy_preset *policy_preset_find(const char *name);

/**
 * policy_rule_parse() - the text of one rule
 * @preset: "*" is allowed
 * @canonical: gets the text in its one spelling; may be NULL
 */
int policy_rule_parse(const char *text, bool deny, bool preset, struct policy_rule *ret,
	struct buf *canonical, struct den_err *err);
/* The keys that an object of the policy may have ("": the whole, "limits", "secrets", "identity", "add"),
 * NULL-terminated; NULL: no such object. */
const char *const *policy_keys(const char *object);
/* docs/policy.schema.json */
extern const char policy_schema[];
