/*
 * The server's database: serve.db in its own directory (SQLite, WAL, synchronous = FULL). What a call that
 * writes has returned from is on disk.
 *
 * There are two connections. One writes, under one mutex, so a transaction is never seen half by the other
 * threads; the other reads, so nobody waits for somebody else's fsync() to look up a key. A thread inside
 * db_begin() reads what it has written itself.
 *
 * Who has tables lists the steps that make them (append only) and calls db_migrate() at start. Steps that were
 * done are counted by part, so parts do not know each other.
 *
 * SQL is always a literal: statements are prepared once and found again by the literal's address. Values are
 * bound, one letter each in `types`, never printed into the text:
 *   s const char * (NULL: null)     i int64_t     b const void *, size_t
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"

/* Opens path and prepares it; once, before the first thread. */
int db_open(const char *path, struct den_err *err);
void db_close(void);

/* Runs those of the steps that this database has not seen. */
int db_migrate(const char *part, const char *const *steps, size_t n, struct den_err *err);

/* A statement that gives nothing back. *ret_changes, ret_row (last row id) may be NULL. */
int db_run(struct den_err *err, int64_t *ret_changes, const char *sql, const char *types, ...);

struct db_row;
const char *db_text(struct db_row *row, int column); /* NULL: null; valid during the call */
int64_t db_int(struct db_row *row, int column);
const void *db_blob(struct db_row *row, int column, size_t *ret_n);
bool db_null(struct db_row *row, int column);

/* Calls fn for each row, in the connection's lock: fn copies and leaves. It returns 0, or 1: that was enough.
 * Gives how many rows fn saw, or -1. */
typedef int (*db_row_fn)(struct db_row *row, void *user);
int64_t db_each(struct den_err *err, db_row_fn fn, void *user, const char *sql, const char *types, ...);

/* Several statements as one; db_end() commits, or rolls back when ok is false or it cannot. No nesting. */
int db_begin(struct den_err *err);
int db_end(bool ok, struct den_err *err);

/* Changes with every change of the database by anybody, another process too: for caches. */
int64_t db_version(void);
