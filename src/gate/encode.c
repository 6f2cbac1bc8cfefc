#include "encode.h"

#include <stdint.h>
#include <string.h>

const char encode_base64_alphabet[65] =
	"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const char encode_base64url_alphabet[65] =
	"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

void encode_base64(struct buf *out, const void *p, size_t n)
{
	const uint8_t *b = p;

	buf_reserve(out, (n + 2) / 3 * 4);
	for (size_t i = 0; i < n; i += 3) {
		size_t left = n - i;
		uint32_t v = (uint32_t)b[i] << 16 | (left > 1 ? (uint32_t)b[i + 1] << 8 : 0) |
			     (left > 2 ? b[i + 2] : 0);
		char four[4];

		for (unsigned k = 0; k < 4; k++)
			four[k] = k <= left ? encode_base64_alphabet[v >> (18 - 6 * k) & 63] : '=';
		buf_add(out, four, 4);
	}
}

void encode_base64_inside(
	struct buf *out, const char *p, size_t n, unsigned skip, const char *alphabet)
{
	size_t from = (8 * skip + 5) / 6, to = 8 * (skip + n) / 6;

	for (size_t d = from; d < to; d++) {
		size_t bit = 6 * d - 8 * skip;
		unsigned two = (unsigned)(uint8_t)p[bit / 8] << 8;

		if (bit / 8 + 1 < n)
			two |= (uint8_t)p[bit / 8 + 1];
		buf_add(out, &alphabet[two >> (10 - bit % 8) & 63], 1);
	}
}

static int base64_digit(char c)
{
	const char *at = c ? strchr(encode_base64_alphabet, c) : NULL;

	return at ? (int)(at - encode_base64_alphabet) : -1;
}

int decode_base64(struct buf *out, const char *p, size_t n)
{
	size_t was = out->len, digits = n;
	uint32_t v = 0;

	while (digits && n - digits < 2 && p[digits - 1] == '=')
		digits--;
	if (digits % 4 == 1 || (digits != n && n % 4 != 0))
		return -1;
	for (size_t i = 0; i < digits; i++) {
		int d = base64_digit(p[i]);

		if (d < 0) {
			out->len = was;
			return -1;
		}
		v = v << 6 | (uint32_t)d;
		if (i % 4)
			buf_add(out, &(uint8_t){ (uint8_t)(v >> (6 - 2 * (i % 4))) }, 1);
	}
	return 0;
}

void encode_hex(struct buf *out, const void *p, size_t n)
{
	static const char digits[] = "0123456789abcdef";
	const uint8_t *b = p;

	buf_reserve(out, 2 * n);
	for (size_t i = 0; i < n; i++)
		buf_add(out, (char[]){ digits[b[i] >> 4], digits[b[i] & 15] }, 2);
}

int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

static bool stays(char c, const char *keep)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       (c && (strchr("-._~", c) || strchr(keep, c)));
}

void encode_percent(struct buf *out, const char *p, size_t n, const char *keep)
{
	static const char digits[] = "0123456789ABCDEF";

	for (size_t i = 0; i < n; i++) {
		uint8_t b = (uint8_t)p[i];

		if (stays(p[i], keep))
			buf_add(out, &p[i], 1);
		else
			buf_add(out, (char[]){ '%', digits[b >> 4], digits[b & 15] }, 3);
	}
}

void decode_percent(struct buf *out, const char *p, size_t n, bool plus)
{
	for (size_t i = 0; i < n; i++) {
		char c = p[i];

		if (c == '%' && n - i > 2 && hex_digit(p[i + 1]) >= 0 && hex_digit(p[i + 2]) >= 0) {
			c = (char)(hex_digit(p[i + 1]) << 4 | hex_digit(p[i + 2]));
			i += 2;
		} else if (c == '+' && plus) {
			c = ' ';
		}
		buf_add(out, &c, 1);
	}
}
