/* A growable byte buffer, also used to build text. Failure to grow aborts, so whoever lets a
 * stranger add to one checks the length first. */
#pragma once

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

struct buf {
	char *p;
	size_t len, cap;
};

void buf_reserve(struct buf *b, size_t more);
void buf_add(struct buf *b, const void *p, size_t n);
void buf_addstr(struct buf *b, const char *s);
void buf_addf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Drops n bytes from the front. */
void buf_consume(struct buf *b, size_t n);
/* NUL-terminated view; valid until the next change. */
const char *buf_str(struct buf *b);
void buf_free(struct buf *b);
#define auto_buf __attribute__((cleanup(buf_free))) struct buf
