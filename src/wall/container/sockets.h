/* The network of a box that is saved: what is connected, and keeping it still. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "err.h"

struct sockets {
	unsigned connected; /* TCP connections of the box's processes */
	unsigned outside;   /* of these: the other end is not in the box */
	bool routes;	    /* there are addresses other than the loopback's */
};
/* As the namespace of pid has them; first, n: the ids of the box on the host. */
int sockets_look(pid_t pid, uint32_t first, uint32_t n, struct sockets *ret, struct den_err *err);

/* Nothing arrives any more, until it is ended: packets under way are sent again by TCP. *ret is the way to end it. */
int sockets_hold(int box, int *ret, struct den_err *err);
/* It arrives again; closing fd takes 10 ms, and is for later. */
int sockets_go(int fd, struct den_err *err);
