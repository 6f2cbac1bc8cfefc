/*
 * The state directory: what is on disk after a crash is what was acknowledged.
 *
 * Invariants
 *  1. A box that was acknowledged has a row in the database, committed and synced before.
 *  2. A directory boxes/ID without a row is a box that was never acknowledged, or a throwaway one
 *     in its first moments: with its lock free it is nobody's, and swept.
 *  3. A row in state DELETING is finished by whoever finds it with the lock free. A row
 *     whose boxes/ID is gone is a box that was deleted, but for the last step.
 *  4. names/NAME and ids/N are claims: symbolic links to an id, made before the row and removed
 *     after it. A claim whose boxes/ID is gone is free.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "err.h"
#include "id.h"
#include "spec.h"

struct store {
	int fd;
	char *path;
	char tag[9]; /* names this state directory in places shared by all: cgroups */
	void *db;    /* a connection kept between store_hold() and store_let_go() */
	int db_pid;
	bool hold;
};

int store_open(const char *path, bool create, struct store **ret, struct den_err *err);
void store_close(struct store *s);
/* STATE/reserve holds a few megabytes. On a full disk it gives them up, a piece at a time, for rows
 * and small files: so that boxes can be stopped and deleted, which is what makes room. */
void store_room(const struct store *s, bool refill);

/* ---- rows: db.c. Each call is one transaction, opened and closed: a keeper that waits holds
 * none. */

/* Several follow each other: opened and closed once. No process that uses the database may be
 * forked meanwhile: who forks one says store_let_go() first. */
void store_hold(struct store *s);
void store_let_go(struct store *s);

struct box_row {
	struct box_info info;
	char *version; /* of the template */
	uint64_t slot; /* id range */
	uint64_t work; /* pool/ID/wN is what it writes to; 0: boxes/ID, it has no history */
	uint64_t head; /* checkpoint that the present descends from */
	uint64_t next; /* number of the next checkpoint */
	uint64_t turn; /* turns so far, when something was last written */
	int64_t pending; /* a merge is half done: roll back to this checkpoint; -1: none */
};
/* Inserts or replaces; durable when it returns. */
int store_put(struct store *s, const struct box_row *row, struct den_err *err);
int store_get(struct store *s, const struct box_id *id, struct box_row *ret, struct den_err *err);
int store_delete(struct store *s, const struct box_id *id, struct den_err *err);
/* Oldest first. fn returns -1 to stop. */
int store_each(struct store *s,
	int (*fn)(const struct box_row *row, void *user, struct den_err *err), void *user,
	struct den_err *err);
void box_row_free(struct box_row *r);

/* ---- claims and directories: store.c */

int store_claim_name(
	struct store *s, const char *name, const struct box_id *id, struct den_err *err);
void store_release_name(struct store *s, const char *name, const struct box_id *id);
/* A range of user ids that no other box has: its number. */
int store_claim_slot(struct store *s, const struct box_id *id, uint64_t *ret, struct den_err *err);
void store_release_slot(struct store *s, uint64_t slot, const struct box_id *id);
#define STORE_SLOTS 16384U	      /* ranges: as many boxes at once */
#define STORE_ID_BASE 0x40000000U     /* first id of the first range */

/* boxes/ID, locked, with uN (the box's changes to the N-th tree) and wN (overlayfs's own). */
int store_box_make(struct store *s, const struct box_id *id, size_t n_trees, int *ret_dir,
	int *ret_lock, struct den_err *err);
/* Is this directory still the box's? */
bool store_box_is(struct store *s, const struct box_id *id, int boxfd);
/* DEN_CONFLICT: another keeper has it. */
int store_box_lock(int boxfd, int *ret_lock, struct den_err *err);
/* Deleting is a rename: from then on there is no such box. Freeing what it held takes longer and is
 * done after whoever waits has been told; what a crash leaves of it is swept. */
int store_box_trash(struct store *s, const struct box_id *id, struct den_err *err);
/* Frees what is in the trash and nobody's: whoever deletes holds the lock, except of `mine`. */
int store_trash_empty(struct store *s, const struct box_id *mine, struct den_err *err);

/* The process that runs as the box's init, so that a later keeper finds it. */
struct box_proc {
	pid_t pid;
	uint64_t start; /* in clock ticks since boot: with it a pid means one process for ever */
};
int store_proc_put(int boxfd, const struct box_proc *p, struct den_err *err);
/* 1: alive, *ret and *ret_pidfd set; 0: none. */
int store_proc_get(int boxfd, struct box_proc *ret, int *ret_pidfd);
bool store_proc_was(int boxfd); /* noted, and not cleared; it need not be there any more */
void store_proc_clear(int boxfd);

/* den-init on disk, written when missing; absolute path. */
int store_init_path(struct store *s, const void *blob, size_t len, const char *hash, char **ret,
	struct den_err *err);

/* Claims whose box is gone, and programs of versions other than init_hash. */
int store_sweep(struct store *s, const char *init_hash,
	void (*removed)(const char *what, void *user), void *user, struct den_err *err);
#define STORE_YOUNG_S 10 /* what is younger may be in the making */
