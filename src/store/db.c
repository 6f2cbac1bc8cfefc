#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "buf.h"
#include "db.h"
#include "mem.h"
#include "place.h"
#include "store.h"

/* The whole of a box is the blob, encoded as on the wire; columns are what is searched for. */
static const char schema_1[] = "CREATE TABLE IF NOT EXISTS boxes ("
			       " id TEXT PRIMARY KEY, name TEXT, state INTEGER NOT NULL,"
			       " created_ms INTEGER NOT NULL, slot INTEGER NOT NULL, version TEXT NOT NULL,"
			       " info BLOB NOT NULL) WITHOUT ROWID;";

/* work: pool/ID/wN that the box writes to, 0: it has no place in the pool. next: number of the next
 * checkpoint. pending: checkpoint to fall back to, since a merge is half done; -1: none. */
static const char schema_2[] =
	"ALTER TABLE boxes ADD COLUMN work INTEGER NOT NULL DEFAULT 0;"
	"ALTER TABLE boxes ADD COLUMN head INTEGER NOT NULL DEFAULT 0;"
	"ALTER TABLE boxes ADD COLUMN next INTEGER NOT NULL DEFAULT 1;"
	"ALTER TABLE boxes ADD COLUMN turn INTEGER NOT NULL DEFAULT 0;"
	"ALTER TABLE boxes ADD COLUMN pending INTEGER NOT NULL DEFAULT -1;"
	"CREATE TABLE checkpoints (box TEXT NOT NULL, number INTEGER NOT NULL, parent INTEGER NOT NULL,"
	" created_ms INTEGER NOT NULL, turn INTEGER NOT NULL, kind INTEGER NOT NULL, message BLOB, origin TEXT,"
	" size INTEGER NOT NULL, PRIMARY KEY (box, number)) WITHOUT ROWID;"
	"CREATE INDEX checkpoints_origin ON checkpoints (origin) WHERE origin IS NOT NULL;"
	"CREATE TABLE tags (box TEXT NOT NULL, tag TEXT NOT NULL, number INTEGER NOT NULL,"
	" PRIMARY KEY (box, tag)) WITHOUT ROWID;"
	"CREATE TABLE templates (name TEXT PRIMARY KEY, image TEXT NOT NULL, created_ms INTEGER NOT NULL)"
	" WITHOUT ROWID;";

/* Of boxes that are gone: which of their checkpoints others came through (ancestor.c). */
static const char schema_3[] =
	"CREATE TABLE past (box TEXT NOT NULL, number INTEGER NOT NULL, parent INTEGER NOT NULL,"
	" created_ms INTEGER NOT NULL, kind INTEGER NOT NULL, origin TEXT, PRIMARY KEY (box, number)) WITHOUT ROWID;"
	"CREATE INDEX past_origin ON past (origin) WHERE origin IS NOT NULL;";

/* images: bytes of the programs that were saved with it (saved.h); 0: none were. */
static const char schema_4[] = "ALTER TABLE checkpoints ADD COLUMN images INTEGER NOT NULL DEFAULT 0;";

#define SCHEMA_VERSION 4
#define BUSY_MS 20000
#define WAL_NAP_MS 5
#define LOG_MAX (256 << 10)
#define LOG_NEW_S 10

int db_fail(sqlite3 *db, const char *what, struct den_err *err)
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

/* Several may come here at once on first use: who gets the lock first does it. */
static int db_upgrade(sqlite3 *db, struct den_err *err)
{
	int r = SQLITE_BUSY;

	/* SQLite does not wait here by itself as it does elsewhere */
	for (int i = 0; r == SQLITE_BUSY && i < BUSY_MS / WAL_NAP_MS; i++) {
		r = sqlite3_exec(db, "PRAGMA journal_mode = WAL", NULL, NULL, NULL);
		if (r == SQLITE_BUSY)
			nanosleep(&(struct timespec){ .tv_nsec = WAL_NAP_MS * 1000000L }, NULL);
	}
	if (r != SQLITE_OK || sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL) != SQLITE_OK)
		return db_fail(db, "create", err);
	r = -1;
	switch (db_version(db)) {
	case 0:
		if (sqlite3_exec(db, schema_1, NULL, NULL, NULL) != SQLITE_OK)
			break;
		/* fall through */
	case 1:
		if (sqlite3_exec(db, schema_2, NULL, NULL, NULL) != SQLITE_OK ||
			sqlite3_exec(db, "PRAGMA user_version = 2", NULL, NULL, NULL) != SQLITE_OK)
			break;
		/* fall through */
	case 2:
		if (sqlite3_exec(db, schema_3, NULL, NULL, NULL) != SQLITE_OK ||
			sqlite3_exec(db, "PRAGMA user_version = 3", NULL, NULL, NULL) != SQLITE_OK)
			break;
		/* fall through */
	case 3:
		if (sqlite3_exec(db, schema_4, NULL, NULL, NULL) != SQLITE_OK ||
			sqlite3_exec(db, "PRAGMA user_version = 4", NULL, NULL, NULL) != SQLITE_OK)
			break;
		/* fall through */
	case SCHEMA_VERSION:
		r = sqlite3_exec(db, "COMMIT", NULL, NULL, NULL) == SQLITE_OK ? 0 : -1;
	}
	if (r < 0) {
		db_fail(db, "create", err);
		(void)sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
	}
	return r;
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
	return db_upgrade(db, err);
}

/*
 * SQLite syncs the directory at the first commit of whoever opened the log, as if it had just made that file. It
 * stays for good once it is there (NO_CKPT_ON_CLOSE, and checkpoints only truncate it), and the commit that made
 * the schema has synced its name. So one that is not new is not asked for again: it is half of what a commit costs.
 */
static int (*sqlite_open_dir)(const char *path, int *ret);
static bool log_is_old;

static int open_dir(const char *path, int *ret)
{
	return log_is_old ? SQLITE_CANTOPEN : sqlite_open_dir(path, ret); /* CANTOPEN: SQLite goes on without */
}

static void look_at_log(struct store *s)
{
	sqlite3_vfs *vfs = sqlite3_vfs_find(NULL);
	struct statx st;

	log_is_old = statx(s->fd, PLACE_DB "-wal", AT_SYMLINK_NOFOLLOW, STATX_BTIME, &st) == 0 &&
		     (st.stx_mask & STATX_BTIME) && time(NULL) - (time_t)st.stx_btime.tv_sec > LOG_NEW_S;
	if (sqlite_open_dir || !vfs || vfs->iVersion < 3)
		return;
	sqlite_open_dir = (int (*)(const char *, int *))vfs->xGetSystemCall(vfs, "openDirectory");
	if (sqlite_open_dir)
		vfs->xSetSystemCall(vfs, "openDirectory", (sqlite3_syscall_ptr)open_dir);
}

int db_open(struct store *s, sqlite3 **ret, struct den_err *err)
{
	auto_buf path = { 0 };
	sqlite3 *db = NULL;
	mode_t old = umask(077);
	int r;

	store_room(s, false);
	if (s->db && s->db_pid == getpid()) {
		*ret = s->db;
		s->db = NULL;
		umask(old);
		return 0;
	}
	look_at_log(s);
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
void db_close(struct store *s, sqlite3 *db)
{
	struct stat st;

	if (s->hold && !s->db && sqlite3_get_autocommit(db)) {
		s->db = db;
		s->db_pid = getpid();
		return;
	}
	if (fstatat(s->fd, PLACE_DB "-wal", &st, 0) == 0 && st.st_size > LOG_MAX)
		(void)sqlite3_wal_checkpoint_v2(db, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
	sqlite3_close(db);
}

void store_hold(struct store *s)
{
	s->hold = true;
}

void store_let_go(struct store *s)
{
	sqlite3 *db = s->db_pid == getpid() ? s->db : NULL;

	s->hold = false;
	s->db = NULL;
	if (db)
		db_close(s, db);
}

/*
 * Those who write stand in line. SQLite has one writer at a time, and others ask again after a while, which becomes
 * longer each time: of a hundred keepers most would sleep while nobody writes. A flock() wakes the next one at once.
 * It only orders: what SQLite needs it locks itself, so who cannot stand in line (a full disk), or has stood there
 * for too long (one before it is stopped), asks as it would without.
 */
static int line_fd = -1;

static void line_alarm(int sig)
{
	(void)sig; /* ends flock() */
}

static void line_enter(sqlite3 *db)
{
	struct itimerval limit = { .it_value = { .tv_sec = BUSY_MS / 1000 / 4 } }, none = { 0 };
	struct sigaction on = { .sa_handler = line_alarm }, old;
	auto_buf path = { 0 };

	buf_addf(&path, "%s-line", sqlite3_db_filename(db, "main"));
	line_fd = open(buf_str(&path), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (line_fd < 0 || flock(line_fd, LOCK_EX | LOCK_NB) == 0)
		return;
	sigaction(SIGALRM, &on, &old);
	setitimer(ITIMER_REAL, &limit, NULL);
	(void)flock(line_fd, LOCK_EX);
	setitimer(ITIMER_REAL, &none, NULL);
	sigaction(SIGALRM, &old, NULL);
}

static void line_leave(void)
{
	if (line_fd >= 0) {
		(void)flock(line_fd, LOCK_UN);
		close(line_fd);
	}
	line_fd = -1;
}

static int run_one(sqlite3 *db, const char *sql, db_bind bind, const void *arg, struct den_err *err)
{
	sqlite3_stmt *st = NULL;
	int r = 0;

	if (sqlite3_prepare_v2(db, sql, -1, &st, NULL) != SQLITE_OK || bind(st, arg) != SQLITE_OK ||
		sqlite3_step(st) != SQLITE_DONE)
		r = db_fail(db, "write", err);
	sqlite3_finalize(st);
	return r;
}

int db_run(sqlite3 *db, const char *sql, db_bind bind, const void *arg, struct den_err *err)
{
	bool alone = sqlite3_get_autocommit(db); /* else whoever began has stood in line */
	int r;

	if (alone)
		line_enter(db);
	r = run_one(db, sql, bind, arg, err);
	if (alone)
		line_leave();
	return r;
}

int db_begin(sqlite3 *db, struct den_err *err)
{
	line_enter(db);
	if (sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL) == SQLITE_OK)
		return 0;
	line_leave();
	return db_fail(db, "begin", err);
}

int db_end(sqlite3 *db, int r, struct den_err *err)
{
	if (r == 0 && sqlite3_exec(db, "COMMIT", NULL, NULL, NULL) != SQLITE_OK)
		r = db_fail(db, "commit", err);
	if (r < 0)
		(void)sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
	line_leave();
	return r;
}

static int db_write(struct store *s, const char *sql, db_bind bind, const void *arg, struct den_err *err)
{
	sqlite3 *db;
	int r;

	if (db_open(s, &db, err) < 0)
		return -1;
	r = db_run(db, sql, bind, arg, err);
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
	r |= sqlite3_bind_int64(st, 8, (sqlite3_int64)row->work);
	r |= sqlite3_bind_int64(st, 9, (sqlite3_int64)row->head);
	r |= sqlite3_bind_int64(st, 10, (sqlite3_int64)row->next);
	r |= sqlite3_bind_int64(st, 11, (sqlite3_int64)row->turn);
	r |= sqlite3_bind_int64(st, 12, row->pending);
	buf_free(&b);
	return r;
}

#define STORE_PUT_BOX                                                                                  \
	"INSERT OR REPLACE INTO boxes (id, name, state, created_ms, slot, version, info, work, head, next,"    \
	" turn, pending) VALUES (?,?,?,?,?,?,?,?,?,?,?,?)"

int db_put_box(sqlite3 *db, const struct box_row *row, struct den_err *err)
{
	return db_run(db, STORE_PUT_BOX, bind_row, row, err);
}

int store_put(struct store *s, const struct box_row *row, struct den_err *err)
{
	return db_write(s, STORE_PUT_BOX, bind_row, row, err);
}

static int bind_id(sqlite3_stmt *st, const void *arg)
{
	return sqlite3_bind_text(st, 1, ((const struct box_id *)arg)->s, -1, SQLITE_TRANSIENT);
}

int store_delete(struct store *s, const struct box_id *id, struct den_err *err)
{
	static const char *const all[] = { "DELETE FROM checkpoints WHERE box = ?",
		"DELETE FROM tags WHERE box = ?", "DELETE FROM boxes WHERE id = ?" };
	sqlite3 *db;
	int r = 0;

	if (db_open(s, &db, err) < 0)
		return -1;
	if (db_begin(db, err) < 0) {
		db_close(s, db);
		return -1;
	}
	r = past_keep(db, id, err);
	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(all); i++)
		r = db_run(db, all[i], bind_id, id, err);
	if (r == 0)
		r = past_thin(db, err);
	r = db_end(db, r, err);
	db_close(s, db);
	return r;
}

#define BOX_COLUMNS "info, version, slot, work, head, next, turn, pending"

static int read_row(sqlite3_stmt *st, struct box_row *ret, struct den_err *err)
{
	if (box_info_get(sqlite3_column_blob(st, 0), (size_t)sqlite3_column_bytes(st, 0), &ret->info, err) < 0)
		return den_wrap(err, "database: a box's row");
	ret->version = mem_strdup((const char *)sqlite3_column_text(st, 1));
	ret->slot = (uint64_t)sqlite3_column_int64(st, 2);
	ret->work = (uint64_t)sqlite3_column_int64(st, 3);
	ret->head = (uint64_t)sqlite3_column_int64(st, 4);
	ret->next = (uint64_t)sqlite3_column_int64(st, 5);
	ret->turn = (uint64_t)sqlite3_column_int64(st, 6);
	ret->pending = sqlite3_column_int64(st, 7);
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
	if (sqlite3_prepare_v2(db, "SELECT " BOX_COLUMNS " FROM boxes WHERE id = ?", -1, &st, NULL) !=
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
	if (sqlite3_prepare_v2(db, "SELECT " BOX_COLUMNS " FROM boxes ORDER BY created_ms, id", -1, &st,
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
