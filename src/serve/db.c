#include "db.h"

#include <errno.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "mem.h"

#define BUSY_MS 20000
#define WAL_NAP_MS 5
#define STATEMENTS 192

/* A connection and what was prepared on it. */
struct conn_db {
	sqlite3 *db;
	pthread_mutex_t lock;
	struct {
		const char *sql; /* by address: they are literals */
		sqlite3_stmt *st;
	} kept[STATEMENTS];
	size_t n_kept;
};

static struct conn_db writer = { .lock = PTHREAD_MUTEX_INITIALIZER };
static struct conn_db reader = { .lock = PTHREAD_MUTEX_INITIALIZER };
static _Thread_local bool in_transaction; /* this thread has the writer */

static const char parts_table[] =
	"CREATE TABLE IF NOT EXISTS parts (part TEXT PRIMARY KEY, steps INTEGER NOT NULL) WITHOUT ROWID";

static int fail(const struct conn_db *c, const char *what, struct den_err *err)
{
	int code = c->db ? sqlite3_extended_errcode(c->db) : SQLITE_NOMEM;
	bool full = (code & 0xff) == SQLITE_FULL;

	if ((code & 0xff) == SQLITE_CONSTRAINT)
		return den_fail(err, DEN_CONFLICT, EEXIST, "database: %s", sqlite3_errmsg(c->db));
	return den_fail(err, full ? DEN_LIMIT : DEN_INTERNAL, full ? ENOSPC : 0, "serve.db: %s: %s", what,
		c->db ? sqlite3_errmsg(c->db) : "out of memory");
}

static struct conn_db *conn_take(bool write)
{
	struct conn_db *c = write || in_transaction ? &writer : &reader;

	if (!in_transaction)
		pthread_mutex_lock(&c->lock);
	return c;
}

static void conn_give(struct conn_db *c)
{
	if (!in_transaction)
		pthread_mutex_unlock(&c->lock);
}

/* ---- statements ---- */

static int prepare(struct conn_db *c, const char *sql, sqlite3_stmt **ret, struct den_err *err)
{
	sqlite3_stmt *st = NULL;

	for (size_t i = 0; i < c->n_kept; i++)
		if (c->kept[i].sql == sql) {
			*ret = c->kept[i].st;
			return 0;
		}
	if (c->n_kept == STATEMENTS)
		return den_fail(err, DEN_INTERNAL, 0, "serve.db: more than %d statements", STATEMENTS);
	if (sqlite3_prepare_v3(c->db, sql, -1, SQLITE_PREPARE_PERSISTENT, &st, NULL) != SQLITE_OK)
		return fail(c, "prepare", err);
	c->kept[c->n_kept].sql = sql;
	c->kept[c->n_kept++].st = st;
	*ret = st;
	return 0;
}

static int bind_all(struct conn_db *c, sqlite3_stmt *st, const char *types, va_list ap, struct den_err *err)
{
	int r = SQLITE_OK;

	if ((int)strlen(types) != sqlite3_bind_parameter_count(st))
		return den_fail(err, DEN_INTERNAL, 0, "serve.db: '%s' does not fit %s", types, sqlite3_sql(st));
	for (int i = 1; *types && r == SQLITE_OK; types++, i++) {
		if (*types == 's') {
			const char *s = va_arg(ap, const char *);

			r = s ? sqlite3_bind_text(st, i, s, -1, SQLITE_TRANSIENT) : sqlite3_bind_null(st, i);
		} else if (*types == 'i') {
			r = sqlite3_bind_int64(st, i, va_arg(ap, int64_t));
		} else {
			const void *p = va_arg(ap, const void *);
			size_t n = va_arg(ap, size_t);

			r = sqlite3_bind_blob64(st, i, p, n, SQLITE_TRANSIENT);
		}
	}
	return r == SQLITE_OK ? 0 : fail(c, "bind", err);
}

static void unbind(sqlite3_stmt *st)
{
	sqlite3_reset(st);
	sqlite3_clear_bindings(st);
}

int db_run(struct den_err *err, int64_t *ret_changes, const char *sql, const char *types, ...)
{
	struct conn_db *c = conn_take(true);
	sqlite3_stmt *st;
	va_list ap;
	int r = -1;

	va_start(ap, types);
	if (prepare(c, sql, &st, err) == 0) {
		if (bind_all(c, st, types, ap, err) == 0) {
			r = sqlite3_step(st);
			r = r == SQLITE_DONE || r == SQLITE_ROW ? 0 : fail(c, "write", err);
		}
		if (r == 0 && ret_changes)
			*ret_changes = sqlite3_changes(c->db);
		unbind(st);
	}
	va_end(ap);
	conn_give(c);
	return r;
}

int64_t db_each(struct den_err *err, db_row_fn fn, void *user, const char *sql, const char *types, ...)
{
	struct conn_db *c = conn_take(false);
	sqlite3_stmt *st;
	int64_t seen = 0;
	bool ok = false;
	va_list ap;
	int r;

	va_start(ap, types);
	if (prepare(c, sql, &st, err) == 0) {
		if (bind_all(c, st, types, ap, err) == 0) {
			while ((r = sqlite3_step(st)) == SQLITE_ROW && ++seen && fn((struct db_row *)st, user) == 0)
				;
			ok = r == SQLITE_ROW || r == SQLITE_DONE || fail(c, "read", err) == 0;
		}
		unbind(st);
	}
	va_end(ap);
	conn_give(c);
	return ok ? seen : -1;
}

const char *db_text(struct db_row *row, int column)
{
	return (const char *)sqlite3_column_text((sqlite3_stmt *)row, column);
}

int64_t db_int(struct db_row *row, int column)
{
	return sqlite3_column_int64((sqlite3_stmt *)row, column);
}

const void *db_blob(struct db_row *row, int column, size_t *ret_n)
{
	const void *p = sqlite3_column_blob((sqlite3_stmt *)row, column);

	*ret_n = (size_t)sqlite3_column_bytes((sqlite3_stmt *)row, column);
	return p;
}

bool db_null(struct db_row *row, int column)
{
	return sqlite3_column_type((sqlite3_stmt *)row, column) == SQLITE_NULL;
}

/* ---- transactions ---- */

int db_begin(struct den_err *err)
{
	struct conn_db *c = conn_take(true);

	if (sqlite3_exec(c->db, "BEGIN IMMEDIATE", NULL, NULL, NULL) != SQLITE_OK) {
		fail(c, "begin", err);
		conn_give(c);
		return -1;
	}
	in_transaction = true;
	return 0;
}

int db_end(bool ok, struct den_err *err)
{
	int r = 0;

	if (ok && sqlite3_exec(writer.db, "COMMIT", NULL, NULL, NULL) != SQLITE_OK)
		r = fail(&writer, "commit", err);
	if (!ok || r < 0)
		(void)sqlite3_exec(writer.db, "ROLLBACK", NULL, NULL, NULL);
	in_transaction = false;
	pthread_mutex_unlock(&writer.lock);
	return r;
}

int64_t db_version(void)
{
	struct conn_db *c;
	sqlite3_stmt *st;
	int64_t v = -1;

	if (in_transaction)
		return -1; /* nothing that was cached fits what only this thread sees */
	c = conn_take(false);
	if (prepare(c, "PRAGMA data_version", &st, NULL) == 0) {
		if (sqlite3_step(st) == SQLITE_ROW)
			v = sqlite3_column_int64(st, 0);
		sqlite3_reset(st);
	}
	conn_give(c);
	return v;
}

/* ---- opening ---- */

static int conn_open(struct conn_db *c, const char *path, struct den_err *err)
{
	if (sqlite3_open_v2(path, &c->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX,
		NULL) != SQLITE_OK)
		return fail(c, "open", err);
	sqlite3_busy_timeout(c->db, BUSY_MS);
	sqlite3_extended_result_codes(c->db, 1);
	sqlite3_db_config(c->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
	if (sqlite3_exec(c->db, "PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; PRAGMA temp_store = MEMORY",
		NULL, NULL, NULL) != SQLITE_OK)
		return fail(c, "set up", err);
	return 0;
}

/* SQLite does not wait here by itself as it does elsewhere. */
static int use_wal(struct den_err *err)
{
	int r = SQLITE_BUSY;

	for (int i = 0; r == SQLITE_BUSY && i < BUSY_MS / WAL_NAP_MS; i++) {
		r = sqlite3_exec(writer.db, "PRAGMA journal_mode = WAL", NULL, NULL, NULL);
		if (r == SQLITE_BUSY)
			nanosleep(&(struct timespec){ .tv_nsec = WAL_NAP_MS * 1000000L }, NULL);
	}
	return r == SQLITE_OK ? 0 : fail(&writer, "journal", err);
}

int db_open(const char *path, struct den_err *err)
{
	if (conn_open(&writer, path, err) < 0 || use_wal(err) < 0 || conn_open(&reader, path, err) < 0)
		return -1;
	return db_run(err, NULL, parts_table, "");
}

static void conn_close(struct conn_db *c)
{
	for (size_t i = 0; i < c->n_kept; i++)
		sqlite3_finalize(c->kept[i].st);
	c->n_kept = 0;
	sqlite3_close_v2(c->db);
	c->db = NULL;
}

void db_close(void)
{
	conn_close(&reader);
	conn_close(&writer);
}

static int first_int(struct db_row *row, void *user)
{
	*(int64_t *)user = db_int(row, 0);
	return 1;
}

static int migrate(const char *part, const char *const *steps, size_t n, struct den_err *err)
{
	int64_t done = 0;

	if (db_each(err, first_int, &done, "SELECT steps FROM parts WHERE part = ?", "s", part) < 0)
		return -1;
	if (done > (int64_t)n)
		return den_fail(err, DEN_UNSUPPORTED, 0,
			"serve.db was written by a newer den (%s: %lld, this one knows %zu)", part, (long long)done, n);
	for (size_t i = (size_t)done; i < n; i++)
		if (sqlite3_exec(writer.db, steps[i], NULL, NULL, NULL) != SQLITE_OK)
			return fail(&writer, part, err);
	return done == (int64_t)n ? 0
				  : db_run(err, NULL,
					    "INSERT INTO parts VALUES (?, ?) ON CONFLICT (part) DO UPDATE SET steps = "
					    "excluded.steps",
					    "si", part, (int64_t)n);
}

int db_migrate(const char *part, const char *const *steps, size_t n, struct den_err *err)
{
	if (db_begin(err) < 0)
		return -1;
	if (migrate(part, steps, n, err) < 0) {
		(void)db_end(false, NULL);
		return -1;
	}
	return db_end(true, err);
}
