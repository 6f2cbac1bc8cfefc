#include "wire.h"

#include <endian.h>
#include <string.h>

#include "mem.h"

static void put16(char *p, uint16_t v)
{
	v = htole16(v);
	memcpy(p, &v, 2);
}

static void put32(char *p, uint32_t v)
{
	v = htole32(v);
	memcpy(p, &v, 4);
}

static uint32_t get32(const char *p)
{
	uint32_t v;

	memcpy(&v, p, 4);
	return le32toh(v);
}

static bool is_data(uint8_t type)
{
	return type == WM_OUT || type == WM_ERR || type == WM_IN;
}

void wire_frame_put(struct buf *b, uint8_t type, uint32_t chan, const void *p, uint32_t len)
{
	char h[WIRE_HEADER];

	h[0] = 'd';
	h[1] = WIRE_VERSION;
	h[2] = (char)type;
	h[3] = 0;
	put32(h + 4, len);
	put32(h + 8, chan);
	buf_reserve(b, sizeof(h) + len);
	buf_add(b, h, sizeof(h));
	buf_add(b, p, len);
}

int wire_frame_get(
	const char *p, size_t n, struct wire_frame *ret, size_t *used, struct den_err *err)
{
	uint8_t type;
	uint32_t len;

	if (n < WIRE_HEADER)
		return 0;
	type = (uint8_t)p[2];
	len = get32(p + 4);
	if (p[0] != 'd' || p[3] != 0)
		return den_fail(err, DEN_INVALID, 0, "not a den frame");
	if (p[1] != WIRE_VERSION)
		return den_fail(err, DEN_UNSUPPORTED, 0,
			"the other side speaks protocol %d, this one %d; restart the box with one "
			"version",
			p[1], WIRE_VERSION);
	if (type == 0 || type >= WM_TYPES)
		return den_fail(err, DEN_INVALID, 0, "unknown frame type %u", type);
	if (len > (is_data(type) ? WIRE_MAX_DATA : WIRE_MAX_PAYLOAD))
		return den_fail(err, DEN_INVALID, 0, "frame of %u bytes is too long", len);
	if (n - WIRE_HEADER < len)
		return 0;
	*ret = (struct wire_frame){ type, get32(p + 8), p + WIRE_HEADER, len };
	*used = WIRE_HEADER + len;
	return 1;
}

void wire_put_bytes(struct buf *b, enum wire_field tag, const void *p, size_t n)
{
	char h[6];

	put16(h, (uint16_t)tag);
	put32(h + 2, (uint32_t)n);
	buf_add(b, h, sizeof(h));
	buf_add(b, p, n);
}

void wire_put_str(struct buf *b, enum wire_field tag, const char *s)
{
	if (s)
		wire_put_bytes(b, tag, s, strlen(s));
}

void wire_put_u64(struct buf *b, enum wire_field tag, uint64_t v)
{
	v = htole64(v);
	wire_put_bytes(b, tag, &v, sizeof(v));
}

void wire_put_err(struct buf *b, const struct den_err *e)
{
	wire_put_u64(b, F_CODE, e->code);
	wire_put_u64(b, F_SYS, (uint64_t)e->sys);
	wire_put_str(b, F_MSG, e->msg);
}

int wire_next(struct wire_reader *r, struct wire_value *v, struct den_err *err)
{
	uint16_t tag;
	uint32_t len;

	if (r->p == r->end)
		return 0;
	if (r->end - r->p < 6)
		return den_fail(err, DEN_INVALID, 0, "message ends inside a field");
	memcpy(&tag, r->p, 2);
	tag = le16toh(tag);
	len = get32(r->p + 2);
	if (tag == 0 || tag >= WIRE_FIELDS)
		return den_fail(err, DEN_INVALID, 0, "unknown field %u", tag);
	if (len > (size_t)(r->end - r->p) - 6)
		return den_fail(err, DEN_INVALID, 0, "field %u is longer than its message", tag);
	*v = (struct wire_value){ tag, len, r->p + 6 };
	r->p += 6 + len;
	return 1;
}

int wire_u64(const struct wire_value *v, uint64_t max, uint64_t *ret, struct den_err *err)
{
	uint64_t n;

	if (v->len != sizeof(n))
		return den_fail(err, DEN_INVALID, 0, "field %u is not a number", v->tag);
	memcpy(&n, v->p, sizeof(n));
	n = le64toh(n);
	if (n > max)
		return den_fail(err, DEN_INVALID, 0, "field %u is out of range", v->tag);
	*ret = n;
	return 0;
}

int wire_str(const struct wire_value *v, size_t max, char **ret, struct den_err *err)
{
	if (v->len > max)
		return den_fail(
			err, DEN_INVALID, 0, "field %u is longer than %zu bytes", v->tag, max);
	if (memchr(v->p, '\0', v->len))
		return den_fail(err, DEN_INVALID, 0, "field %u contains a NUL byte", v->tag);
	free(*ret);
	*ret = mem_strndup(v->p, v->len);
	return 0;
}

int wire_get_err(const char *p, size_t n, struct den_err *ret)
{
	struct wire_reader r = wire_reader(p, n);
	struct wire_value v;
	uint64_t code = DEN_INTERNAL, sys = 0;

	*ret = (struct den_err){
		.code = DEN_INTERNAL, .msg = "unreadable error from the other side"
	};
	while (wire_next(&r, &v, NULL) > 0) {
		if (v.tag == F_CODE)
			(void)wire_u64(&v, ERR_CODES - 1, &code, NULL);
		else if (v.tag == F_SYS)
			(void)wire_u64(&v, 4095, &sys, NULL);
		else if (v.tag == F_MSG && v.len < sizeof(ret->msg)) {
			memcpy(ret->msg, v.p, v.len);
			ret->msg[v.len] = '\0';
		}
	}
	ret->code = code == DEN_OK ? DEN_INTERNAL : (enum den_code)code;
	ret->sys = (int)sys;
	return -1;
}

int wire_unexpected(const struct wire_value *v, struct den_err *err)
{
	return den_fail(err, DEN_INVALID, 0, "field %u does not belong in this message", v->tag);
}

uint64_t wire_find_u64(const void *p, size_t n, uint16_t tag, uint64_t otherwise)
{
	struct wire_reader rd = wire_reader(p, n);
	struct wire_value v;

	while (wire_next(&rd, &v, NULL) > 0)
		if (v.tag == tag)
			(void)wire_u64(&v, UINT64_MAX, &otherwise, NULL);
	return otherwise;
}
