/*
 * A box's journal: one JSON object a line, appended, each with the hash of the line before it, so that
 * nothing can be taken out of the middle unseen.
 *
 *   {"n":1,"at":"2026-01-02T03:04:05.678Z","kind":"denial",...,"prev":"sha256 of line 0"}
 *
 * It never stops and never grows without bound: NAME is what is written now, NAME.1 is the file before it.
 * When the next one begins, what NAME.1 held is gone, except lines of the kinds that are kept, which go to
 * NAME.kept as they are. The first line of the new file is of kind "rotated" and says how many went.
 *
 * Invariants: (1) `n` counts from 1 without gaps, over NAME.1 and NAME. (2) `prev` of line 1 is 64 zeros,
 * that of the first line of NAME is the hash of the last line of NAME.1. (3) a last line without a line end
 * was never there: whoever opens the file next cuts it off. (4) `n` grows in NAME.kept, with gaps.
 */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "err.h"
#include "json.h"

struct journal_limits {
	uint64_t file; /* bytes, after which another file is begun */
	uint64_t kept; /* bytes of NAME.kept; of these, too, the oldest go */
	const char *const *kinds; /* that are kept; NULL-terminated */
};

struct journal {
	int fd; /* -1: not open */
	int dirfd; /* the caller's; stays open as long as the journal */
	const char *name;
	const struct journal_limits *limits;
	uint64_t n, size;
	char prev[65];
};

/* @name and @limits must outlive it. */
int journal_open(struct journal *j, int dirfd, const char *name, const struct journal_limits *limits,
	struct den_err *err);
void journal_close(struct journal *j);
/* Begins a line; the caller adds fields, then ends it. */
void journal_begin(struct journal *j, struct json *line, const char *kind);
int journal_end(struct journal *j, struct json *line, struct den_err *err);
/* The last `count` lines of this kind (NULL: any) of all files, oldest first. A line is valid during the
 * call. */
int journal_tail(int dirfd, const char *name, const char *kind, uint64_t count,
	int (*fn)(const char *line, size_t len, void *user, struct den_err *err), void *user,
	struct den_err *err);
