#include "pb.h"

#include <string.h>

static void put_varint(struct buf *b, uint64_t v)
{
	uint8_t out[10];
	size_t n = 0;

	do
		out[n++] = (uint8_t)((v & 0x7f) | (v > 0x7f ? 0x80 : 0));
	while (v >>= 7);
	buf_add(b, out, n);
}

void pb_put_u64(struct buf *b, uint32_t field, uint64_t v)
{
	put_varint(b, (uint64_t)field << 3 | PB_VARINT);
	put_varint(b, v);
}

void pb_put_bytes(struct buf *b, uint32_t field, const void *p, size_t n)
{
	put_varint(b, (uint64_t)field << 3 | PB_BYTES);
	put_varint(b, n);
	buf_add(b, p, n);
}

void pb_put_str(struct buf *b, uint32_t field, const char *s)
{
	pb_put_bytes(b, field, s, strlen(s));
}

static int get_varint(struct pb_reader *r, uint64_t *ret)
{
	uint64_t v = 0;

	for (int shift = 0; shift < 70; shift += 7) {
		uint8_t c;

		if (r->p == r->end)
			return -1;
		c = *r->p++;
		if (shift == 63 && c > 1) /* more than 64 bits */
			return -1;
		v |= (uint64_t)(c & 0x7f) << shift;
		if (!(c & 0x80)) {
			*ret = v;
			return 0;
		}
	}
	return -1;
}

static int get_fixed(struct pb_reader *r, int size, uint64_t *ret)
{
	if (r->end - r->p < size)
		return -1;
	*ret = 0;
	for (int i = 0; i < size; i++)
		*ret |= (uint64_t)*r->p++ << (8 * i);
	return 0;
}

int pb_next(struct pb_reader *r, struct pb_field *ret)
{
	struct pb_field f = { .raw = r->p };
	uint64_t key;

	if (r->p == r->end)
		return 0;
	if (get_varint(r, &key) < 0 || key >> 3 == 0 || key >> 3 > UINT32_MAX >> 3)
		return -1;
	f.number = (uint32_t)(key >> 3);
	f.wire = (enum pb_wire)(key & 7);
	switch (f.wire) {
	case PB_VARINT:
		if (get_varint(r, &f.u) < 0)
			return -1;
		break;
	case PB_FIXED64:
		if (get_fixed(r, 8, &f.u) < 0)
			return -1;
		break;
	case PB_FIXED32:
		if (get_fixed(r, 4, &f.u) < 0)
			return -1;
		break;
	case PB_BYTES:
		if (get_varint(r, &f.u) < 0 || f.u > (uint64_t)(r->end - r->p))
			return -1;
		f.p = r->p;
		f.n = (size_t)f.u;
		r->p += f.n;
		break;
	default: /* groups, which nobody uses */
		return -1;
	}
	f.raw_len = (size_t)(r->p - f.raw);
	*ret = f;
	return 1;
}

uint64_t pb_find_u64(const void *p, size_t n, uint32_t field, uint64_t otherwise)
{
	struct pb_reader r = pb_reader(p, n);
	struct pb_field f;

	while (pb_next(&r, &f) > 0)
		if (f.number == field && f.wire != PB_BYTES)
			otherwise = f.u;
	return otherwise;
}

bool pb_find_bytes(const void *p, size_t n, uint32_t field, struct pb_field *ret)
{
	struct pb_reader r = pb_reader(p, n);
	struct pb_field f;
	bool found = false;

	while (pb_next(&r, &f) > 0) {
		if (f.number == field && f.wire == PB_BYTES) {
			*ret = f;
			found = true;
		}
	}
	return found;
}
