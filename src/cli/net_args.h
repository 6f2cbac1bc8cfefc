/* Options that say what a box may reach become a policy. */
#pragma once

#include <jansson.h>

#include "den.h"
#include "options.h"

/* What the options asked for. */
struct net_args {
	char *policy; /* canonical JSON; NULL: nothing was asked for */
	char *name; /* of a stored policy instead; NULL: none */
};
void net_args_free(struct net_args *n);
#define auto_net_args __attribute__((cleanup(net_args_free))) struct net_args

/**
 * net_args_make() - all options of options_net
 * @base: a policy that they are added to (JSON; NULL: none). It is not the box's while --clear says so,
 *	  or --policy gives another
 *
 * Everything is checked here, so that nothing is started for a policy that cannot be.
 */
int net_args_make(
	const struct args *a, const char *base, struct net_args *ret, struct den_err *err);
/* Is any of them given? */
bool net_args_given(const struct args *a);

/* The policy in a file ("-": standard input), checked, in canonical form. */
int net_policy_read(const char *path, char **ret, struct den_err *err);
/* Does the value of --policy name a file? */
bool net_policy_is_file(const char *text);
/* NAME@HOST[:PORT]:WHERE[,WHERE...][,env=VAR] becomes an object of the policy's "secrets". */
int net_secret_parse(const char *text, json_t **ret, struct den_err *err);
