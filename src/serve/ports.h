/*
 * Ports of boxes, reached through this server: http://PORT-ID.DOMAIN/, or by the headers E2b-Sandbox-Id and
 * E2b-Sandbox-Port. HTTP is taken apart and put together again, so that what the box answers cannot be
 * mistaken for an answer of this server; after an upgrade bytes pass as they are.
 *
 * Who may: a port that was made public, anybody. Else whoever shows the box's token for traffic, in the
 * header e2b-traffic-access-token, the query den-token=, or the cookie den-token. A box with the label
 * "den.traffic=public" (E2B's are, unless asked otherwise) has all ports public that were not set otherwise.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"

struct req;

int ports_start(struct den_err *err); /* its table */

struct port_setting {
	uint16_t port;
	bool public;
};
/* What was set, by port; others are as the box's labels say. free() *ret */
int ports_list(const char *box_id, struct port_setting **ret, size_t *n, struct den_err *err);
int ports_set_public(const char *box_id, uint16_t port, bool public, struct den_err *err);
int ports_forget(const char *box_id, uint16_t port /* 0: all */, struct den_err *err);
/* May anybody use it? */
bool ports_public(const char *box_id, uint16_t port);
/* "http://PORT-ID.DOMAIN/", as others reach it. free() it */
char *ports_url(const char *box_id, uint16_t port);
