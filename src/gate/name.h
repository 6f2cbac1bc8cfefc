/* A checked DNS name: whoever holds one may compare it, put it into a query, a certificate or a log. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "err.h"

#define NET_NAME_MAX 253
#define NET_NAME_HOST "host.den" /* inside a box: the host's loopback, by rules like host:8080 */

/* Lower case; letters, digits, '-', '_' and dots; labels of 1 to 63, at most 253 in all, no dot at the
 * end; never an address in any spelling that some resolver takes for one (0x7f.1, 2130706433). */
struct net_name {
	char s[NET_NAME_MAX + 1];
};

/**
 * net_name_parse() - a name that a person or a box wrote
 * @text: need not end with a NUL; case is folded, one dot at the end is dropped
 * @err:  may be NULL, for the hot path
 */
int net_name_parse(const char *text, size_t len, struct net_name *ret, struct den_err *err);
/* Is n below suffix? ("a.b.c" is below "c" and "b.c", and not below itself) */
bool net_name_below(const struct net_name *n, const struct net_name *suffix);
/* A name that means the machine that asks, or is den's own: localhost, *.localhost, den, *.den. No
 * wildcard covers one. */
bool net_name_local(const struct net_name *n);
