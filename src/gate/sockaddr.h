/* An address and a port as the kernel wants them. */
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include "addr.h"

/* *ret has room for either family; gives its length. */
static inline socklen_t sockaddr_put(const struct net_addr *a, uint16_t port, struct sockaddr_in6 *ret)
{
	struct sockaddr_in *v4 = (struct sockaddr_in *)(void *)ret;

	memset(ret, 0, sizeof(*ret));
	if (a->family == 4) {
		v4->sin_family = AF_INET;
		v4->sin_port = htons(port);
		memcpy(&v4->sin_addr, a->b, 4);
		return sizeof(*v4);
	}
	ret->sin6_family = AF_INET6;
	ret->sin6_port = htons(port);
	memcpy(&ret->sin6_addr, a->b, 16);
	return sizeof(*ret);
}
