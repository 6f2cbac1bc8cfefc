#include <errno.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "buf.h"
#include "mem.h"
#include "place.h"
#include "store.h"

/* The whole of a box is the blob, encoded as on the wire; columns are what is searched for. */
static const char schema[] = "BEGIN IMMEDIATE;"
			     "CREATE TABLE IF NOT EXISTS boxes ("
			     " id TEXT PRIMARY KEY, name TEXT, state INTEGER NOT NULL,"
			     " created_ms INTEGER NOT NULL, slot INTEGER NOT NULL, version TEXT NOT NULL,"
			     " info BLOB NOT NULL) WITHOUT ROWID;"
			     "PRAGMA user_version = 1;"
			     "COMMIT;";

#define SCHEMA_VERSION 1
#define BUSY_MS 20000
#define LOG_MAX (256 << 10)

static int db_fail(sqlite3 *db, const char *what, struct den_err *err)
{
	int code = db ? sqlite3_extended_errcode(db) : SQLITE_NOMEM;
	int full = (code & 0xff) == SQLITE_FULL;

	return den_fail(err, full ? DEN_LIMIT : DEN_INTERNAL, full ? ENOSPC : 0, "database: %s: %s", what,
		db ? sqlite3_errmsg(db) : "out of memory");
}

static int db_version(sqlite3 *db)
{
	sqlite3_stmt *st = NULL;
	int v = -1;

	if (sqlite3_prepare_v2(db, "PRAGMA user_version", -1, &st, NULL) == SQLITE_OK &&
		sqlite3_step(st) == SQLITE_ROW)
		v = sqlite3_column_int(st, 0);
	sqlite3_finalize(st);
	return v;
}

static int db_prepare(sqlite3 *db, struct den_err *err)
{
	int off = 0, version;

	sqlite3_busy_timeout(db, BUSY_MS);
	/* The last one to close would else write the log back each time, with several syncs. */
	sqlite3_db_config(db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, &off);
	sqlite3_wal_autocheckpoint(db, 0); /* db_close() does it */
	if (sqlite3_exec(db, "PRAGMA synchronous = FULL", NULL, NULL, NULL) != SQLITE_OK)
		return db_fail(db, "set up", err);
	version = db_version(db);
	if (version == SCHEMA_VERSION)
		return 0;
	if (version > SCHEMA_VERSION)
		return den_fail(err, DEN_UNSUPPORTED, 0,
			"the state was written by a newer den (schema %d, this one knows %d)", version,
			SCHEMA_VERSION);
	/* Several may come here at once on first use: each step does no harm twice. */
	if (sqlite3_exec(db, "PRAGMA journal_mode = WAL", NULL, NULL, NULL) != SQLITE_OK ||
		sqlite3_exec(db, schema, NULL, NULL, NULL) != SQLITE_OK)
		return db_fail(db, "create", err);
	return 0;
}

static int db_open(struct store *s, sqlite3 **ret, struct den_err *err)
{
	auto_buf path = { 0 };
	sqlite3 *db = NULL;
	mode_t old = umask(077);
	int r;

	buf_addf(&path, "%s/" PLACE_DB, s->path);
	r = sqlite3_open_v2(buf_str(&path), &db,
		SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, NULL);
	if (r == SQLITE_OK)
		r = db_prepare(db, err) < 0 ? -1 : 0;
	else
		db_fail(db, "open", err);
	umask(old);
	if (r != 0) {
		sqlite3_close(db);
		return -1;
	}
	*ret = db;
	return 0;
}

/* Whoever opens it alone reads the whole log to find its end, so it is kept short; but not emptied at
 * every close, since that waits for the disk twice more. */
static void db_close(struct store *s, sqlite3 *db)
{
	struct stat st;

	if (fstatat(s->fd, PLACE_DB "-wal", &st, 0) == 0 && st.st_size > LOG_MAX)
		(void)sqlite3_wal_checkpoint_v2(db, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
	sqlite3_close(db);
}

static int db_write(struct store *s, const char *sql, int (*bind)(sqlite3_stmt *st, const void *arg),
	const void *arg, struct den_err *err)
{
	sqlite3_stmt *st = NULL;
	sqlite3 *db;
	int r = 0;

	if (db_open(s, &db, err) < 0)
		return -1;
	if (sqlite3_prepare_v2(db, sql, -1, &st, NULL) != SQLITE_OK || bind(st, arg) != SQLITE_OK ||
		sqlite3_step(st) != SQLITE_DONE)
		r = db_fail(db, "write", err);
	sqlite3_finalize(st);
	db_close(s, db);
	return r;
}

static int bind_row(sqlite3_stmt *st, const void *arg)
{
	const struct box_row *row = arg;
	struct buf b = { 0 };
	int r;

	box_info_put(&b, &row->info);
	r = sqlite3_bind_text(st, 1, row->info.spec.id, -1, SQLITE_TRANSIENT);
	if (row->info.spec.name)
		r |= sqlite3_bind_text(st, 2, row->info.spec.name, -1, SQLITE_TRANSIENT);
	r |= sqlite3_bind_int(st, 3, (int)row->info.state);
	r |= sqlite3_bind_int64(st, 4, row->info.created_ms);
	r |= sqlite3_bind_int64(st, 5, (sqlite3_int64)row->slot);
	r |= sqlite3_bind_text(st, 6, row->version ? row->version : "", -1, SQLITE_TRANSIENT);
	r |= sqlite3_bind_blob(st, 7, b.p, (int)b.len, SQLITE_TRANSIENT);
	buf_free(&b);
	return r;
}

int store_put(struct store *s, const struct box_row *row, struct den_err *err)
{
	return db_write(s, "INSERT OR REPLACE INTO boxes VALUES (?,?,?,?,?,?,?)", bind_row, row, err);
}

static int bind_id(sqlite3_stmt *st, const void *arg)
{
	return sqlite3_bind_text(st, 1, ((const struct box_id *)arg)->s, -1, SQLITE_TRANSIENT);
}

int store_delete(struct store *s, const struct box_id *id, struct den_err *err)
{
	return db_write(s, "DELETE FROM boxes WHERE id = ?", bind_id, id, err);
}

static int read_row(sqlite3_stmt *st, struct box_row *ret, struct den_err *err)
{
	if (box_info_get(sqlite3_column_blob(st, 0), (size_t)sqlite3_column_bytes(st, 0), &ret->info, err) < 0)
		return den_wrap(err, "database: a box's row");
	ret->version = mem_strdup((const char *)sqlite3_column_text(st, 1));
	ret->slot = (uint64_t)sqlite3_column_int64(st, 2);
	return 0;
}

void box_row_free(struct box_row *r)
{
	box_info_free(&r->info);
	free(r->version);
	*r = (struct box_row){ 0 };
}

int store_get(struct store *s, const struct box_id *id, struct box_row *ret, struct den_err *err)
{
	struct box_row row = { 0 };
	sqlite3_stmt *st = NULL;
	sqlite3 *db;
	int r = -1;

	if (db_open(s, &db, err) < 0)
		return -1;
	if (sqlite3_prepare_v2(db, "SELECT info, version, slot FROM boxes WHERE id = ?", -1, &st, NULL) !=
		SQLITE_OK || bind_id(st, id) != SQLITE_OK)
		db_fail(db, "read", err);
	else if (sqlite3_step(st) == SQLITE_ROW)
		r = read_row(st, &row, err);
	else
		den_fail(err, DEN_NOT_FOUND, 0, "no box '%s'; 'den ls' lists them", id->s);
	sqlite3_finalize(st);
	db_close(s, db);
	if (r == 0)
		*ret = row;
	return r;
}

int store_each(struct store *s, int (*fn)(const struct box_row *row, void *user, struct den_err *err),
	void *user, struct den_err *err)
{
	sqlite3_stmt *st = NULL;
	sqlite3 *db;
	int r = 0, step;

	if (db_open(s, &db, err) < 0)
		return -1;
	if (sqlite3_prepare_v2(db, "SELECT info, version, slot FROM boxes ORDER BY created_ms, id", -1, &st,
		    NULL) != SQLITE_OK)
		r = db_fail(db, "read", err);
	while (r == 0 && (step = sqlite3_step(st)) != SQLITE_DONE) {
		struct box_row row = { 0 };

		if (step != SQLITE_ROW)
			r = db_fail(db, "read", err);
		else if (read_row(st, &row, err) < 0)
			r = -1;
		else
			r = fn(&row, user, err);
		box_row_free(&row);
	}
	sqlite3_finalize(st);
	db_close(s, db);
	return r;
}
