/* What the gate asks of the kernel inside a box's network namespace: routes and redirections, as
 * netlink messages of our own (there is no static libmnl to link, and it is little). */
#pragma once

#include <stdint.h>

#include "addr.h"
#include "err.h"
#include "policy.h"

/* Every address becomes local: what nothing listens on is refused at once by the kernel. */
int netlink_all_local(struct den_err *err);
/* One more address of the loopback. */
int netlink_address(const struct net_addr *a, struct den_err *err);

/* What is to be redirected to the gate: TCP to a range of addresses and ports. */
struct redirect {
	struct net_cidr to;
	struct port_range ports;
};
/* Replaces all redirections in one transaction; v4 and v6 connections go to their ports. */
int netlink_redirect(const struct redirect *r, unsigned n, uint16_t port4, uint16_t port6,
	struct den_err *err);
