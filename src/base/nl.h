/* Netlink messages of our own (there is no static libmnl to link, and it is little). */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "err.h"

#define LOOPBACK_INDEX 1 /* of lo, in every network namespace */

/* A message, an attribute, attributes in an attribute: what _open and _nest return goes to their end. */
size_t nl_open(struct buf *b, uint16_t type, uint16_t flags, uint32_t seq);
void nl_close(struct buf *b, size_t at);
void nl_attr(struct buf *b, uint16_t type, const void *p, size_t n);
void nl_str(struct buf *b, uint16_t type, const char *s);
void nl_be32(struct buf *b, uint16_t type, uint32_t v);
size_t nl_nest(struct buf *b, uint16_t type);
void nl_nest_end(struct buf *b, size_t at);
/* Of nftables: one of the inet family, and what begins and ends a transaction. */
size_t nl_nft(struct buf *b, uint16_t type, uint16_t flags, uint32_t *seq);
void nl_nft_batch(struct buf *b, uint16_t type);

/* Sends, and reads answers until each of the n messages that asked for one has it. */
int nl_exchange(int proto, const struct buf *b, unsigned n, const char *what, struct den_err *err);
int nl_exchange_on(int fd, const struct buf *b, unsigned n, const char *what, struct den_err *err);

/* Every address becomes local: what nothing listens on is refused at once by the kernel. */
int nl_all_local(struct den_err *err);
