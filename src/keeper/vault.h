/* The keeper's side of den-vault (src/vault/): it is started for each request, and nothing of it
 * stays. */
#pragma once

#include <jansson.h>

#include "keeper.h"

/* One request. *ret: what it answered, json_decref() it. The state directory is absolute. What
 * the values of secrets become in memory is the caller's concern: vault_wipe() them. */
int vault_call(const char *state, json_t *request, json_t **ret, struct den_err *err);
/* What a client's request to the vault wants done. free() it. */
int vault_request_op(const struct wire_frame *f, char **ret, struct den_err *err);
/* Overwrites every text in it, then lets go of it. NULL is allowed. */
void vault_wipe(json_t *j);

/* Values of secrets by name: {"NAME": base64}. End it with vault_wipe(). */
int vault_secrets(const char *state, const char *const *names, json_t **ret, struct den_err *err);
/* What stands for a secret in a box; salt tells grants of one secret apart. salt, prefix may be
 * NULL. */
int vault_placeholder(const char *state, const char *box, const char *name, const char *salt,
	const char *prefix, char **ret, struct den_err *err);
/* The box's own authority, PEM; the same each time. Wipe the key. */
int vault_box_ca(const char *state, const char *box, int64_t created_ms, char **ret_cert,
	char **ret_key, struct den_err *err);

/* What the policy of a box says about its identity. */
struct token_grant {
	const char *issuer; /* NULL: what the vault has */
	const char *org, *task; /* NULL: not said */
	const char *const *scopes; /* NULL-terminated; NULL: none */
	const char *const *audiences; /* likewise; no other gets a token */
	uint64_t generation;
	unsigned ttl_s; /* 0: 10 minutes */
};
int token_make(struct keeper *k, const struct token_grant *g, const char *audience, const char *alg,
	char **ret, struct den_err *err);
