#pragma once

#include <stddef.h>

#include "buf.h"

void base64_put(struct buf *b, const void *p, size_t n);
/* Standard alphabet, padding optional. -1: not base64; *ret is then partly filled. */
int base64_get(const char *text, struct buf *ret);
