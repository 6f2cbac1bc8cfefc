/*
 * The plumber: a short-lived process that enters a box's user and network namespaces, lays routes and
 * redirections, makes the sockets that only that namespace can have, and hands them over. It is the
 * only part of den-gate with any right, and it sees nothing that a box sent.
 *
 *   den-gate plumb   0: the policy (JSON)   3: socket to send on   4: pidfd of the box's init
 *   den-gate dial N  3: socket to send on   4: pidfd                 N unconnected TCP sockets
 *                                                                        of each family
 *   den-gate dial 1 PORT  likewise   one of each family, on its way to that port of the box
 */
#pragma once

#include "sock_msg.h"

int plumb_main(void);
int dial_main(const char *count, const char *port /* NULL */);
/* den-gate probe: can this kernel do what the plumber asks of it? Says on descriptor 1 what is missing. */
int probe_main(void);
