/* Sockets of a box's network namespace on their way to who uses them: one message each, with the
 * descriptor. gate/plumb.h makes them. */
#pragma once

#include <stdint.h>

enum plumb_kind {
	PLUMB_END,	/* comes last, without a socket */
	PLUMB_TCP,	/* listens where connections are redirected to */
	PLUMB_DNS_UDP,
	PLUMB_DNS_TCP,
	PLUMB_PROXY,
	PLUMB_UDP,	/* bound to a port that a rule opened */
	PLUMB_OUT,	/* a TCP socket that is not connected */
	PLUMB_DIALED,	/* one that connects to a port of the box; .port: errno if it could not */
	PLUMB_KINDS,
};

/* In place of a family: an IPv4 socket for the door of a box that is at the other end of a link (boxlink.h), where one
 * says which port is meant. */
#define PLUMB_DOOR 1

struct plumb_sock {
	uint32_t kind, family, port;
};
