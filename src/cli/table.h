/* Text in columns. Cells are made printable: they may hold what a box made. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"

struct table {
	size_t cols;
	const char *const *heads; /* one a column; one that starts with '>' is aligned right */
	char **cells;
	size_t n, cap;
};
void table_cell(struct table *t, const char *text); /* NULL: "-" */
void table_cellf(struct table *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void table_size(struct table *t, uint64_t bytes);
/* "3m", "2h", "5d": how long ago. */
void table_age(struct table *t, int64_t since_ms);
/* Adds the text to out; the last column is not padded. */
void table_print(const struct table *t, struct buf *out);
void table_free(struct table *t);
#define auto_table __attribute__((cleanup(table_free))) struct table

/* 1500 becomes "1.5s", 90000 "1m30s": as short as says it. */
void format_duration(uint64_t ms, char out[static 32]);
/* Adds text in lines of at most `wide` columns, of which the first begins at column `indent`
 * already and the others are indented so far; then a newline. */
void text_wrapped(struct buf *out, const char *text, size_t indent, size_t wide);
