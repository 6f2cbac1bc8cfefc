/* The database, for the files of this folder. A connection lives for one transaction. */
#pragma once

#include <sqlite3.h>

#include "store.h"

typedef int (*db_bind)(sqlite3_stmt *st, const void *arg); /* SQLITE_OK, or what went wrong */

int db_open(struct store *s, sqlite3 **ret, struct den_err *err);
void db_close(struct store *s, sqlite3 *db);
int db_fail(sqlite3 *db, const char *what, struct den_err *err); /* always -1 */
int db_run(sqlite3 *db, const char *sql, db_bind bind, const void *arg, struct den_err *err);
int db_begin(sqlite3 *db, struct den_err *err);
int db_end(sqlite3 *db, int r, struct den_err *err); /* commits if r is 0, else undoes; r, or -1 */
int db_put_box(sqlite3 *db, const struct box_row *row, struct den_err *err);

/* ---- history.c */
struct ckpt;
int history_rows(sqlite3 *db, const char *id, struct ckpt **ret, size_t *n, struct den_err *err);

/* ---- ancestor.c */
/* Before the rows of a box go: what others need to know of its past stays, and what nobody needs any more
 * goes. In the caller's transaction. */
int past_keep(sqlite3 *db, const struct box_id *id, struct den_err *err);
int past_thin(sqlite3 *db, struct den_err *err);
