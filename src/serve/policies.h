/*
 * Network policies as an organisation writes them, and as they are stored: names of secrets are the organisation's own
 * (auth_name()), and tokens say its name and no other. Everything else about a policy is the keeper's to check; it
 * refuses to whoever comes through this server what would open the machine or its network.
 */
#pragma once

#include <jansson.h>

#include "auth.h"

/* A policy of a stranger's, checked, for den_policy_set(), den_policy_save(), den_box_spec.policy. free() *ret */
int policies_in(const struct who *w, const json_t *policy, char **ret, struct den_err *err);
/* The stored text as its organisation sees it; NULL: it is no JSON. */
json_t *policies_out(const struct who *w, const char *stored);
/* Adds "HOST:PORT" (port 0: the usual ones) to the rules that allow; the deny of exactly that rule goes. In and out as
 * in policies_in(), of what policies_out() gave (NULL: an empty one). */
int policies_allow(json_t *policy, const char *host, uint16_t port, struct den_err *err);
