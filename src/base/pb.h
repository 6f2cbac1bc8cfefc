/*
 * Protocol buffers, as far as den speaks with CRIU: fields of variable-length numbers and of bytes. There is no
 * static library of it to link, and it is little.
 *
 * Reading never allocates and never trusts: a length that leaves the buffer, a number of more than ten bytes and a
 * field of number 0 are errors.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"

void pb_put_u64(struct buf *b, uint32_t field, uint64_t v);
void pb_put_bytes(struct buf *b, uint32_t field, const void *p, size_t n);
void pb_put_str(struct buf *b, uint32_t field, const char *s);

enum pb_wire { PB_VARINT = 0, PB_FIXED64 = 1, PB_BYTES = 2, PB_FIXED32 = 5 };

struct pb_reader {
	const uint8_t *p, *end;
};

struct pb_field {
	uint32_t number;
	enum pb_wire wire;
	uint64_t u;	   /* of a number */
	const uint8_t *p;  /* of bytes */
	size_t n;
	/* the whole of it, to be copied as it is */
	const uint8_t *raw;
	size_t raw_len;
};

static inline struct pb_reader pb_reader(const void *p, size_t n)
{
	return (struct pb_reader){ p, (const uint8_t *)p + n };
}
/* 1: *ret is the next field; 0: the end; -1: it is not well formed. */
int pb_next(struct pb_reader *r, struct pb_field *ret);
/* The last number of that field, or `otherwise`. */
uint64_t pb_find_u64(const void *p, size_t n, uint32_t field, uint64_t otherwise);
/* The last bytes of that field; false: there are none. */
bool pb_find_bytes(const void *p, size_t n, uint32_t field, struct pb_field *ret);
