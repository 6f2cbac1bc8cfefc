/*
 * A box's journal: one JSON object a line, appended, each with the hash of the line before it, so that
 * nothing can be taken out of the middle unseen.
 *
 *   {"n":1,"at":"2026-01-02T03:04:05.678Z","kind":"denial",...,"prev":"sha256 of line 0"}
 *
 * Invariants: (1) `n` counts from 1 without gaps. (2) `prev` of line 1 is 64 zeros. (3) a last line without
 * a line end was never there: whoever opens the file next cuts it off.
 */
#pragma once

#include <stdint.h>

#include "err.h"
#include "json.h"

struct journal {
	int fd; /* -1: not open */
	uint64_t n;
	char prev[65];
};

int journal_open(struct journal *j, int dirfd, const char *name, struct den_err *err);
void journal_close(struct journal *j);
/* Begins a line; the caller adds fields, then ends it. */
void journal_begin(struct journal *j, struct json *line, const char *kind);
int journal_end(struct journal *j, struct json *line, struct den_err *err);
/* The last `count` lines of this kind (NULL: any), oldest first. A line is valid during the call. */
int journal_tail(int dirfd, const char *name, const char *kind, uint64_t count,
	int (*fn)(const char *line, size_t len, void *user, struct den_err *err), void *user,
	struct den_err *err);
