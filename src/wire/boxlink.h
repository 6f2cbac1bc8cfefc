/*
 * The link of a box that has a kernel of its own (wall/gvisor/link.c): two ends of a cable, one held by that kernel, one
 * in the namespace where the gate listens. What is the same in every box, so that programs find it after they were
 * loaded, in another box, too.
 */
#pragma once

#include <stdint.h>

#define LINK_BOX "eth0"
#define LINK_GATE "gate0"
#define LINK_INDEX 100 /* of both interfaces, each in its namespace: some kernels put devices of their own first */
#define LINK_MTU 65520

/* The same last 32 bits in LINK_V6. */
#define LINK_GATE_V4 0xc6120001U /* 198.18.0.1: resolver and proxy */
#define LINK_BOX_V4 0xc6120002U
#define LINK_V6 0xfd, 0xde, 0x6e, 0x67, 0x61, 0x74, 0x65, 0, 0, 0, 0, 0

/*
 * Where init lets connections in to what listens on the box's loopback (init/inward.c): the first bytes say to which
 * port. It is on the box's end of the link, so only who is at the other end gets there, and the box itself.
 */
#define LINK_DOOR_PORT 1
#define LINK_TELL 1 /* one byte comes back: 0, or errno */
struct link_knock {
	uint8_t port[2]; /* high byte first */
	uint8_t flags;
};
