/* Base64 (RFC 4648) from memory to memory, so that a caller decides where secrets lie. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum b64_form {
	B64_STD, /* + and /, padded */
	B64_URL, /* - and _, not padded: JWTs */
};

#define B64_SIZE(n) (((n) + 2) / 3 * 4 + 1) /* room for n bytes as text, with a NUL */

/* Writes text and a NUL to out, which has B64_SIZE(n) bytes; gives its length. */
size_t b64_put(char *out, const void *p, size_t n, enum b64_form form);
/* Gives how many bytes were written to out (at most max), or -1: not base64, or too long. Strict:
 * one text for one value. */
ssize_t b64_get(void *out, size_t max, const char *text, size_t n, enum b64_form form);
