/* What the gate asks of the kernel inside a box's network namespace: routes and redirections. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "addr.h"
#include "err.h"
#include "policy.h"

/* One more address of the loopback. */
int netlink_address(const struct net_addr *a, struct den_err *err);

/* What is to be redirected to the gate: TCP to a range of addresses and ports. */
struct redirect {
	struct net_cidr to;
	struct port_range ports;
};
/* Replaces all redirections in one transaction; v4 and v6 connections go to their ports: those that begin in this
 * namespace, or (link) those that come in by the box's link. */
int netlink_redirect(const struct redirect *r, unsigned n, uint16_t port4, uint16_t port6, bool link,
	struct den_err *err);
