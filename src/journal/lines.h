/* Inside the journal: a file of lines, as it is now. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"

struct lines {
	const char *p; /* NULL: nothing there */
	size_t n;      /* whole lines */
	size_t mapped;
};

/* A file that is not there has no lines. */
int lines_map(int dirfd, const char *name, struct lines *ret, struct den_err *err);
void lines_unmap(struct lines *l);
/* The line at `at`, without its end; false: there is none. The next one is at at + *len + 1. */
bool lines_at(const struct lines *l, size_t at, const char **line, size_t *len);
/* Goes back from the end until it has seen *count lines of the kind, and takes off *count what it saw. */
size_t lines_back(const struct lines *l, const char *kind, uint64_t *count);
bool line_is(const char *line, size_t n, const char *kind); /* NULL: any */
uint64_t line_number(const char *line, size_t n);
/* NAME with an ending, in a buffer of the caller's. */
#define JOURNAL_NAME_MAX 64
const char *journal_file(char out[static JOURNAL_NAME_MAX], const char *name, const char *end);
