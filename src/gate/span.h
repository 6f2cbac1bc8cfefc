/* The addresses that a box sees: names get one each, from private ranges. */
#pragma once

#include "addr.h"
#include "boxlink.h"

/*
 * 198.18.0.0/15 is cut into 16 blocks of 8,192. Block 0 is the gate's own. The names of one port
 * class (policy.h) share a block, so that the kernel can refuse, by address and port alone, what the
 * class does not allow. Each v4 address has a twin in SPAN_V6 with the same last 32 bits.
 */
#define SPAN_BLOCK 8192U
#define SPAN_BLOCKS 16U
#define SPAN_V4 0xc6120000U /* 198.18.0.0 */
#define SPAN_GATE_V4 LINK_GATE_V4 /* resolver and proxy */
#define SPAN_GATE_TEXT "198.18.0.1"
#define SPAN_PROXY_PORT 3128

/* Which block is a port class's; where there are many, the last ones share one. */
static inline unsigned span_block(unsigned class)
{
	return class + 1 < SPAN_BLOCKS ? class + 1 : SPAN_BLOCKS - 1;
}

static inline struct net_addr span_v4(uint32_t v)
{
	return (struct net_addr){ .family = 4,
		.b = { (uint8_t)(v >> 24), (uint8_t)(v >> 16), (uint8_t)(v >> 8), (uint8_t)v } };
}

/* fdde:6e67:6174:6500::/96 and the v4 address */
static inline struct net_addr span_v6(uint32_t v)
{
	return (struct net_addr){ .family = 6,
		.b = { LINK_V6, (uint8_t)(v >> 24), (uint8_t)(v >> 16), (uint8_t)(v >> 8), (uint8_t)v } };
}

/* The number of an address in either range; -1: in neither. */
static inline int span_index(const struct net_addr *a)
{
	struct net_addr base = span_v6(0);
	const uint8_t *p = a->b;
	uint32_t v;

	if (a->family == 6) {
		for (int i = 0; i < 12; i++)
			if (a->b[i] != base.b[i])
				return -1;
		p += 12;
	}
	v = (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
	return v - SPAN_V4 < SPAN_BLOCKS * SPAN_BLOCK ? (int)(v - SPAN_V4) : -1;
}
