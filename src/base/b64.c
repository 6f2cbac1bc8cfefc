#include "b64.h"

static const char alphabets[2][65] = {
	[B64_STD] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/",
	[B64_URL] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_",
};

size_t b64_put(char *out, const void *p, size_t n, enum b64_form form)
{
	const uint8_t *in = p;
	char *o = out;

	for (size_t i = 0; i < n; i += 3) {
		size_t have = n - i < 3 ? n - i : 3;
		uint32_t v = (uint32_t)in[i] << 16;

		if (have > 1)
			v |= (uint32_t)in[i + 1] << 8;
		if (have > 2)
			v |= in[i + 2];
		for (size_t j = 0; j <= have; j++)
			*o++ = alphabets[form][v >> (18 - 6 * j) & 63];
		for (size_t j = have; form == B64_STD && j < 3; j++)
			*o++ = '=';
	}
	*o = '\0';
	return (size_t)(o - out);
}

/* By comparing, not by a table in memory: which part of a cache was used tells about a secret. */
static int digit(char c, enum b64_form form)
{
	char c62 = form == B64_STD ? '+' : '-', c63 = form == B64_STD ? '/' : '_';

	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	return c == c62 ? 62 : c == c63 ? 63 : -1;
}

ssize_t b64_get(void *out, size_t max, const char *text, size_t n, enum b64_form form)
{
	uint8_t *o = out;
	size_t done = 0;
	unsigned bits = 0;
	uint32_t v = 0;

	if (form == B64_STD) {
		if (n % 4)
			return -1;
		for (int i = 0; i < 2 && n && text[n - 1] == '='; i++)
			n--;
	}
	if (n % 4 == 1)
		return -1;
	for (size_t i = 0; i < n; i++) {
		int d = digit(text[i], form);

		if (d < 0)
			return -1;
		v = (v << 6 | (uint32_t)d) & 0xffff;
		bits += 6;
		if (bits < 8)
			continue;
		bits -= 8;
		if (done == max)
			return -1;
		o[done++] = (uint8_t)(v >> bits);
	}
	return v & ((1U << bits) - 1) ? -1 : (ssize_t)done; /* bits that nobody wrote are zero */
}
