/*
 * What a guest may ask for.
 *
 * A program that parses what strangers send (den serve) has no right to anything; a small one that has hands it
 * connections to keepers, and says WM_GUEST on each before it does. From then on only what is listed here is done for
 * that connection, and nothing takes that back. Whose box it is the server checks; here it is made sure that even
 * a server which was taken over reaches boxes and what belongs to them, and nothing of the host.
 *
 * A type that is not in the table is refused: who adds a request has to say here why it is safe.
 */
#include <stdlib.h>
#include <string.h>

#include "gate.h"
#include "keeper.h"
#include "policy.h"
#include "vault.h"
#include "volume.h"

/* 0: allowed */
typedef int (*guest_rule)(struct client *c, const struct wire_frame *f, struct den_err *err);

static int refuse(struct den_err *err, const char *what)
{
	return den_fail(err, DEN_DENIED, 0, "%s is not for guests: use the den program on the host", what);
}

/* ---- rules ---- */

/* What a policy may open: the world outside, never the host or what is near it. */
static int policy_ok(const char *json, struct den_err *err)
{
	auto_policy p = NULL;

	if (!json)
		return 0;
	if (policy_parse(json, strlen(json), &p, err) < 0)
		return -1;
	for (unsigned i = 0; i < p->n_rules; i++) {
		const struct policy_rule *r = &p->rules[i];

		if (r->deny)
			continue;
		if (r->kind == RULE_HOST)
			return refuse(err, "a policy that opens a port of the host");
		if (r->kind == RULE_CIDR && net_cidr_special(&r->cidr))
			return refuse(err, "a policy that opens addresses near the host");
	}
	for (unsigned i = 0; i < p->n_resolvers; i++)
		if (net_addr_special(&p->resolvers[i].addr))
			return refuse(err, "a policy with a resolver near the host");
	return 0;
}

/* Volumes alone: they lead to what boxes made. Not over what tells the box about itself. */
static int mounts_ok(const struct box_spec *s, struct den_err *err)
{
	static const char *const ours[] = { "/proc", "/sys", "/dev", "/run/den" };

	for (size_t i = 0; i < s->n_mounts; i++) {
		const char *at = s->mounts[i].box;
		size_t n = strlen(at);

		if (!volume_name(s->mounts[i].host))
			return refuse(err, "a box with directories of the host");
		if (strstr(at, "//") || strstr(at, "/./") || strstr(at, "/..") || (n >= 2 && !strcmp(at + n - 2, "/.")))
			return den_fail(err, DEN_INVALID, 0, "a volume cannot be at '%.100s'; give a plain absolute path", at);
		for (size_t k = 0; k < ARRAY_SIZE(ours); k++)
			if (!strncmp(at, ours[k], strlen(ours[k])) && (!at[strlen(ours[k])] || at[strlen(ours[k])] == '/'))
				return den_fail(err, DEN_INVALID, 0, "a volume cannot be at '%.100s'", at);
	}
	return 0;
}

int guest_spec(const struct box_spec *s, struct den_err *err)
{
	if (mounts_ok(s, err) < 0)
		return -1;
	if (s->publish)
		return refuse(err, "publishing ports on the host");
	if (s->net && strcmp(s->net, "none") && strcmp(s->net, "policy"))
		return refuse(err, "that network");
	return policy_ok(s->policy, err);
}

/* A box; of a fork, what it takes from the other box is looked at in box_create(). */
static int rule_create(struct client *c, const struct wire_frame *f, struct den_err *err)
{
	struct box_spec s = { 0 };
	int r;

	(void)c;
	if (box_spec_get(f->p, f->len, &s, err) < 0)
		return -1;
	r = guest_spec(&s, err);
	box_spec_free(&s);
	return r;
}

static int rule_policy(struct client *c, const struct wire_frame *f, struct den_err *err)
{
	auto_free char *json = NULL;

	(void)c;
	return field_str(f, F_POLICY, SPEC_MAX_POLICY, &json, err) < 0 ? -1 : policy_ok(json, err);
}

static int rule_port(struct client *c, const struct wire_frame *f, struct den_err *err)
{
	(void)c;
	return field_u64(f, F_PORT, 0) ? refuse(err, "publishing ports on the host") : 0;
}

/* Connected by the gate's tool, so that a guest need not, and may be without connect(). */
static int rule_dial(struct client *c, const struct wire_frame *f, struct den_err *err)
{
	(void)c;
	return field_u64(f, F_PORT, 0) ? 0 : refuse(err, "a socket that is connected to nothing");
}

static int rule_pool(struct client *c, const struct wire_frame *f, struct den_err *err)
{
	auto_free char *kind = NULL;

	(void)c;
	if (field_str(f, F_KIND, 32, &kind, err) < 0)
		return -1;
	return kind || field_u64(f, F_SIZE, 0) ? refuse(err, "making or growing the pool") : 0;
}

static int rule_vault(struct client *c, const struct wire_frame *f, struct den_err *err)
{
	static const char *const allowed[] = { "secret.set", "secret.rotate", "secret.list", "secret.remove", "ident.jwks",
		"ident.openid" };
	auto_free char *op = NULL;

	(void)c;
	if (vault_request_op(f, &op, err) < 0)
		return -1;
	for (size_t i = 0; i < ARRAY_SIZE(allowed); i++)
		if (!strcmp(op, allowed[i]))
			return 0;
	return refuse(err, "changing who tokens are from, or its keys,");
}

static int rule_never(struct client *c, const struct wire_frame *f, struct den_err *err)
{
	(void)c, (void)f;
	return refuse(err, "that");
}

/* ---- the table ---- */

static const struct {
	uint8_t type;
	guest_rule rule; /* NULL: always allowed */
	const char *why;
} rules[] = {
	{ WM_GUEST, NULL, "says what is so already" },
	{ WM_HELLO, NULL, "claims a throwaway box that it made" },
	{ WM_CREATE, rule_create, "a box is walled off; refused is what would open it to the host" },
	{ WM_READY, rule_create, "the same, for nobody yet" },
	{ WM_CLAIM, rule_create, "the same: it becomes what could have been made" },
	{ WM_READY_LIST, NULL, "only looks" },
	{ WM_LIST, NULL, "only looks; the server shows each its own" },
	{ WM_RESOLVE, NULL, "only looks" },
	{ WM_DISK_USE, NULL, "only looks" },
	{ WM_DOCTOR, NULL, "only looks" },
	{ WM_GC, rule_never, "walks over all of the state, and removes" },
	{ WM_START, NULL, "the box as it was made" },
	{ WM_STOP, NULL, "the box alone" },
	{ WM_WAIT, NULL, "only looks" },
	{ WM_PAUSE, NULL, "the box alone" },
	{ WM_RESUME, NULL, "the box alone" },
	{ WM_HIBERNATE, NULL, "the box alone" },
	{ WM_BAKE, NULL, "a template of a box, which boxes alone use" },
	{ WM_DELETE, NULL, "the box alone" },
	{ WM_INFO, NULL, "only looks" },
	{ WM_STATS, NULL, "only looks" },
	{ WM_PS, NULL, "only looks" },
	{ WM_LEASE, NULL, "the box alone" },
	{ WM_LABEL, NULL, "text that nobody here reads" },
	{ WM_EXEC, NULL, "runs behind the wall" },
	{ WM_ATTACH, NULL, "a program behind the wall" },
	{ WM_SIGNAL, NULL, "a program behind the wall" },
	{ WM_IN, NULL, "a program behind the wall" },
	{ WM_IN_EOF, NULL, "a program behind the wall" },
	{ WM_CREDIT, NULL, "a program behind the wall" },
	{ WM_RESIZE, NULL, "a program behind the wall" },
	{ WM_DETACH, NULL, "a program behind the wall" },
	{ WM_CHECKPOINT, NULL, "the box's own files" },
	{ WM_LOG, NULL, "only looks" },
	{ WM_TAG, NULL, "the box's own history" },
	{ WM_ROLLBACK, NULL, "the box's own files" },
	{ WM_PRUNE, NULL, "the box's own history" },
	{ WM_FORK_POINT, NULL, "names a checkpoint; what may be made of it is WM_CREATE's" },
	{ WM_LENT, NULL, "lets the box go on" },
	{ WM_EXPECT, NULL, "opens what WM_CREATE opens" },
	{ WM_DIFF, NULL, "read by a job that may do nothing else" },
	{ WM_MERGE, NULL, "read by a job, written by init behind the wall" },
	{ WM_MERGE_END, NULL, "the same" },
	{ WM_COMMIT, NULL, "a box's files become a template, which boxes alone use" },
	{ WM_TEMPLATES, NULL, "only looks" },
	{ WM_TEMPLATE_GET, NULL, "only looks" },
	{ WM_TEMPLATE_TAG, NULL, "a name among templates" },
	{ WM_TEMPLATE_REMOVE, NULL, "refuses what is in use" },
	{ WM_TEMPLATE_VERIFY, NULL, "only looks" },
	{ WM_TEMPLATE_TAR, NULL, "only looks: a template is what its boxes can read anyway" },
	{ WM_TEMPLATE_STACK, NULL, "a template of layers that are there" },
	{ WM_POOL, rule_pool, "looking is allowed; its size is the host's" },
	{ WM_POLICY_GET, NULL, "only looks" },
	{ WM_POLICY_SET, rule_policy, "the world outside; not the host's own ports and neighbours" },
	{ WM_POLICY_STORED, rule_policy, "the same, for what is kept by name" },
	{ WM_JOURNAL, NULL, "only looks" },
	{ WM_DIAL, rule_dial, "a connection to a port of the box" },
	{ WM_PORT, rule_port, "looking is allowed; the ports are the host's" },
	{ WM_VAULT, rule_vault, "secrets go in and never come out; the issuer and its keys are the host's" },
	{ WM_TOKEN, NULL, "says who the box is, for whom its policy grants it" },
};

int guest_check(struct client *c, const struct wire_frame *f, struct den_err *err)
{
	for (size_t i = 0; i < ARRAY_SIZE(rules); i++)
		if (rules[i].type == f->type)
			return rules[i].rule ? rules[i].rule(c, f, err) : 0;
	return refuse(err, "this request");
}
