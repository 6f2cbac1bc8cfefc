#include "base64.h"

#include <string.h>

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void base64_put(struct buf *b, const void *data, size_t n)
{
	const unsigned char *p = data;

	for (size_t i = 0; i < n; i += 3) {
		size_t have = n - i < 3 ? n - i : 3;
		uint32_t v = (uint32_t)p[i] << 16;
		char out[4] = { 0, 0, '=', '=' };

		if (have > 1)
			v |= (uint32_t)p[i + 1] << 8;
		if (have > 2)
			v |= p[i + 2];
		for (size_t j = 0; j <= have; j++)
			out[j] = alphabet[v >> (18 - 6 * j) & 63];
		buf_add(b, out, 4);
	}
}

int base64_get(const char *text, struct buf *ret)
{
	uint32_t v = 0;
	unsigned bits = 0;

	for (; *text && *text != '='; text++) {
		const char *at = strchr(alphabet, *text);

		if (!at)
			return -1;
		v = v << 6 | (uint32_t)(at - alphabet);
		bits += 6;
		if (bits >= 8) {
			unsigned char c;

			bits -= 8;
			c = (unsigned char)(v >> bits);
			buf_add(ret, &c, 1);
		}
	}
	return text[strspn(text, "=")] || bits == 6 ? -1 : 0;
}
