/*
 * Who holds the ports that boxes on disk have published on the host.
 *
 * A box on disk has no process, so nobody listens there. Where a server runs on the state, its waker does
 * (serve/waker.c): a process for all of them, at STATE/waker.sock. Keepers tell it, one message a connection:
 *
 *   WAKER_HOLD  the box went to disk; these are its ports. No answer
 *   WAKER_TAKE  the box comes back: the sockets, if it holds any, come with the answer, with who waits in their queues.
 *               So a port is never free for others, and a connection that woke the box is the box's to accept
 *   WAKER_DROP  the box is gone. No answer
 *
 * Without a waker the keeper binds the ports itself, as ever.
 */
#pragma once

#include <stdint.h>

#define WAKER_SOCK "waker.sock"
#define WAKER_LOCK "waker.lock"
#define WAKER_PORTS 64

enum waker_op { WAKER_HOLD = 1, WAKER_TAKE, WAKER_DROP };
struct waker_message {
	uint32_t op, n;
	char id[24];
	struct {
		uint16_t in, out; /* of the box; of the host's loopback */
	} ports[WAKER_PORTS];
};
