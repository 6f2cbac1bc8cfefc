/* A checked SHA-256 digest. Only digest_parse() and digest_end() make one, so whoever holds one may
 * put it into a file's name or a URL. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "err.h"
#include "sha256.h"

struct digest {
	char hex[65];
};

/* "sha256:" and 64 lower-case hexadecimal digits, nothing else. */
int digest_parse(const char *text, struct digest *ret, struct den_err *err);
void digest_end(struct sha256 *sum, struct digest *ret);
void digest_of(const void *p, size_t n, struct digest *ret);
bool digest_same(const struct digest *a, const struct digest *b);
