/* Within policy*.c. */
#pragma once

#include "policy.h"

/* Appends a copy of r with text; from may be NULL and must stay (a preset's name, a secret's). */
struct policy_rule *policy_rule_append(
	struct policy *p, const struct policy_rule *r, const char *text, const char *from);
/* Everything that follows from what was read: rules of presets and grants, contradictions, the index. */
int policy_finish(struct policy *p, struct den_err *err);
/* The index of names, and the classes of ports. */
void policy_index(struct policy *p);
/* A header's name, as RFC 9110 has it, in lower case; one that decides about framing is refused. */
int policy_header_parse(const char *text, char **ret, struct den_err *err);
/* The value of "trust" (json_t; NULL: none) becomes one text; *ret stays as it is where there is none. */
int policy_trust_read(const void *value, char **ret, struct den_err *err);
bool policy_secret_name_ok(const char *text);
bool policy_env_name_ok(const char *text);
