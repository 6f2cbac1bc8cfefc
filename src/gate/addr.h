/* Network addresses, and which of them are not the public Internet. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct net_addr {
	uint8_t family; /* 4 or 6; an IPv4-mapped IPv6 address becomes 4 where it comes in */
	uint8_t b[16];	/* network order; with family 4 the first four count, the others are 0 */
};

/* 4 or 16 bytes in network order. */
struct net_addr net_addr_v4(const uint8_t b[static 4]);
struct net_addr net_addr_v6(const uint8_t b[static 16]);
/* Strictly a dotted quad, or IPv6 without brackets and zone; 0, or -1. */
int net_addr_parse(const char *text, struct net_addr *ret);
void net_addr_format(const struct net_addr *a, char out[static 46]);
bool net_addr_equal(const struct net_addr *a, const struct net_addr *b);

/**
 * net_addr_special() - why an address is not the public Internet
 *
 * NULL: it is. Else a word for people: "loopback" "private" "shared" "link-local" "metadata" "multicast"
 * "benchmark" "broadcast" "unspecified" "reserved" "6to4" "Teredo". An IPv4 address that
 * is carried inside an IPv6 one (NAT64, ISATAP) is judged itself.
 */
const char *net_addr_special(const struct net_addr *a);

struct net_cidr {
	struct net_addr a; /* bits behind the prefix are 0 */
	uint8_t bits;	   /* at most 32 or 128 */
};

bool net_cidr_has(const struct net_cidr *c, const struct net_addr *a);
/* Is all of b in a? */
bool net_cidr_covers(const struct net_cidr *a, const struct net_cidr *b);
/* Clears the bits behind the prefix; true when there were any. */
bool net_cidr_mask(struct net_cidr *c);
/* What it is, in the words of net_addr_special(), if its first and its last address are the same; NULL:
 * they are not, or are public. */
const char *net_cidr_special(const struct net_cidr *c);
