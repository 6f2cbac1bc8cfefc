/*
 * History: the rows of checkpoints. Their content is in the pool (pool.h): pool/ID/cN.
 *
 * Invariants
 *  1. A row's content is in the pool, and was on disk before the row: no row without content. The
 *     one exception is number 0 of a box that was not forked: it is the template, and has neither.
 *  2. A cN without a row was never acknowledged: swept.
 *  3. boxes.work names the one wN that is the present; any other is a leftover of a rollback.
 *  4. Which checkpoint the present descends from changes in the same transaction as the work it
 *     names.
 */
#pragma once

#include "store.h"

enum ckpt_kind {
	CKPT_BASE,
	CKPT_TURN,
	CKPT_MANUAL,
	CKPT_ROLLBACK,
	CKPT_MERGE,
	CKPT_FORK,
	CKPT_PAUSE, /* of a box that went to disk */
	CKPT_KINDS
};
extern const char *const ckpt_kind_str[CKPT_KINDS];

struct ckpt {
	uint64_t number;
	int64_t parent; /* -1: none */
	int64_t created_ms;
	uint64_t turn, size;
	uint64_t images; /* bytes of the programs saved with it (saved.h); 0: it is of files alone */
	enum ckpt_kind kind;
	char *message; /* NULL: none */
	char *origin;  /* "ID@N": forked from, or merged with; NULL: none */
	char *tags;    /* separated by spaces; "" */
	bool used;     /* a fork began there, or it was merged: their common ancestor */
};
void ckpt_free(struct ckpt *c);
void ckpts_free(struct ckpt *c, size_t n);

/* Adds c and writes the box's row (head, next, work), together. */
int history_add(
	struct store *s, const struct box_row *row, const struct ckpt *c, struct den_err *err);
/* Oldest first. */
int history_list(struct store *s, const struct box_id *id, struct ckpt **ret, size_t *n,
	struct den_err *err);
/* Those numbers, at once; children of a removed one become children of its parent. */
int history_remove(struct store *s, const struct box_id *id, const uint64_t *numbers, size_t n,
	struct den_err *err);
int history_tag(struct store *s, const struct box_id *id, const char *tag, uint64_t number,
	struct den_err *err);
/* What was saved of its programs is about to go. */
int history_forget_images(struct store *s, const struct box_id *id, uint64_t number, struct den_err *err);
int history_untag(struct store *s, const struct box_id *id, const char *tag, struct den_err *err);

/*
 * A reference: number, tag, "head", "~N", "base" (0). DEN_NOT_FOUND tells what there is.
 */
int history_resolve(const struct ckpt *all, size_t n, const struct box_row *row, const char *ref,
	uint64_t *ret, struct den_err *err);
const struct ckpt *history_find(const struct ckpt *all, size_t n, uint64_t number);

/* The newest point that both came through, as "ID@N" of a checkpoint that exists now (a fork's
 * number 0 has the content of what it was forked from). DEN_NOT_FOUND: none is left. */
int history_ancestor(struct store *s, const struct box_id *a, uint64_t a_head,
	const struct box_id *b, uint64_t b_head, struct box_id *ret_box, uint64_t *ret_number,
	struct den_err *err);

/* Which to remove: numbers in *ret (free it). now_ms, and keep_ms as in den_prune(). */
void history_thin(const struct ckpt *all, size_t n, const struct box_row *row, int64_t now_ms,
	uint64_t keep_ms, bool all_of_them, uint64_t **ret, size_t *ret_n);
