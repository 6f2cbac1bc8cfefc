/*
 * The pool: where the changes of boxes, their checkpoints and the layers of templates are.
 *
 *   STATE/pool.conf        "kind=btrfs|plain", "size=BYTES" (0: no image): chosen once, on first use or
 *                          by `den pool`; written last, so with it everything else is there
 *   STATE/pool.lock        flock()ed while the pool is made or mounted; holds the number of the loop
 *                          device it had last
 *   STATE/pool.img         kind btrfs on another file system: a sparse file with a btrfs in it
 *   STATE/pool/            the pool's directory. With pool.img it is a mount point that only the mount
 *                          namespaces of keepers see: the host's mount table stays as it was, and the
 *                          last keeper or box to go unmounts it and frees the loop device (autoclear)
 *   STATE/pool/ID/wN       what a box has changed: writable; a subvolume or a directory
 *   STATE/pool/ID/cN       its N-th checkpoint: read-only, never changed
 *   STATE/pool/layers/HEX  layers of templates
 *
 * Invariants
 *  1. A checkpoint is whole or not there: it gets its final name when its content is on disk.
 *  2. What is in pool/ID while boxes/ID is gone is nobody's, and swept.
 *  3. Names that start with '.' are half-made or half-removed: swept, unless somebody holds a flock()
 *     on them. Whoever works in one for long must hold it (POOL_YOUNG_S is the time to get there).
 *  4. An image is behind one loop device at most: it is looked for and set up under pool.lock.
 *
 * On the plain pool a layer made by pool_snapshot() has a file ".index" beside u0 w0 ...: which inode
 * in which state each of its files was copied from. It is what makes sharing safe (pool_index.c).
 *
 * On btrfs a checkpoint is one snapshot, the same cost whatever was written. The plain pool copies:
 * by reflink where the file system has it; a file that did not change since the checkpoint before
 * is a hard link to that one's copy, which nobody ever writes to.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "err.h"

enum pool_kind { POOL_BTRFS, POOL_PLAIN };

struct pool {
	enum pool_kind kind;
	bool image;   /* pool.img, mounted by this process */
	bool reflink; /* plain: the file system shares extents */
	int fd;	      /* STATE/pool */
	char *path;   /* the same, absolute. A descriptor of the state directory from before
			 pool_open() does not lead into a mounted image: only these two do */
	int statefd;
	pid_t mounter; /* the process that mounted it, and unmounts it in pool_close(); 0: none */
	const struct pool_ops *ops;
};

struct pool_options {
	const char *kind; /* "btrfs", "plain", NULL or "": the best that works */
	uint64_t size;	  /* of the image; 0: four fifths of what is free now */
};
#define POOL_IMAGE_MIN (256ULL << 20) /* less is refused when asked for */
/* less than this to be had: plain, unless btrfs is asked for */
#define POOL_IMAGE_AUTO (1ULL << 30)
#define POOL_YOUNG_S 10

/**
 * pool_open() - the pool of a state directory, made on first use
 * @statefd, @state_path: the state directory
 * @opt: NULL: as configured, or the best; else DEN_CONFLICT if it exists and differs
 *
 * Where it is an image, the calling process gets a mount namespace of its own (slave to the host's),
 * so it must be single-threaded. Several processes may call at once. Without root, or where mkfs.btrfs
 * or the kernel's btrfs is missing, the pool is plain. A process that sees it mounted already (a child
 * of one that opened it) uses that.
 */
int pool_open(int statefd, const char *state_path, const struct pool_options *opt,
	struct pool **ret, struct den_err *err);
void pool_close(struct pool *p); /* NULL is allowed */

/* Names below are relative to the pool: "ID/w1", "layers/HEX". Parents are made when missing. */

/* Opens a layer and holds it and the directory it is in: as long as *ret_hold is open (-1: no
 * directory above it), a pool_remove() of either takes its name away and leaves the freeing to a
 * sweep. */
int pool_hold(struct pool *p, const char *name, int *ret_hold, struct den_err *err);

/* An empty layer to write to: it is on disk when this returns; what is written to it is not, before
 * the next snapshot, seal or fsync(). DEN_CONFLICT when it is there already. */
int pool_make(struct pool *p, const char *name, struct den_err *err);
/**
 * pool_snapshot() - copy a layer, atomically on btrfs
 * @like: plain: an earlier read-only copy of the same layer, or the one that it was copied from, whose
 *        unchanged files are shared; may be NULL, or not there
 * @readonly: a checkpoint; else a layer to write to (nothing in it is shared by hard link then)
 *
 * On disk when it returns. On a plain pool nobody may write to @from meanwhile. It copies everything:
 * owners, modes, times (so that ctime order is kept by mtime), xattrs, hard links inside, holes,
 * whiteouts (character device 0:0), sockets and fifos. On failure nothing stays. DEN_LIMIT: disk full.
 */
int pool_snapshot(struct pool *p, const char *from, const char *like, const char *to, bool readonly,
	struct den_err *err);
/* Moves within the pool: @to must not exist. Durable when it returns. */
int pool_rename(struct pool *p, const char *from, const char *to, struct den_err *err);
/* A writable layer becomes read-only (btrfs: the subvolume's flag; plain: by agreement), and what
 * is in it is on disk. */
int pool_seal(struct pool *p, const char *name, struct den_err *err);
/* Removes a layer or a directory of layers ("ID"); no error when it is not there. Out of sight at
 * once, even when freeing takes longer. */
int pool_remove(struct pool *p, const char *name, struct den_err *err);

/*
 * Has a layer changed? A fingerprint of names, inodes and change times of everything in it.
 * 1: *ret set, and *ret_bytes (may be NULL) to what it takes on disk; 0: more than max entries; 2:
 * something changed so short ago (POOL_RACY_MS, on a kernel whose clock for files ticks slowly)
 * that a later change could look the same; -1: err.
 */
#define POOL_RACY_MS 20
int pool_fingerprint(struct pool *p, const char *name, unsigned max, uint64_t *ret,
	uint64_t *ret_bytes, struct den_err *err);
/* btrfs: is anything in snapshot b newer than in snapshot a, taken earlier of the same layer or of
 * one that came from a? 1, 0; on a plain pool (or if it cannot be told) 1. */
int pool_differs(struct pool *p, const char *a, const char *b, struct den_err *err);

struct pool_info {
	enum pool_kind kind;
	bool image, reflink;
	uint64_t size, used, avail; /* bytes, as the pool's file system tells */
	uint64_t image_blocks;	    /* bytes that the image takes on the host */
	uint64_t host_avail;	    /* bytes free on the file system of the state directory */
};
int pool_info(struct pool *p, int statefd, struct pool_info *ret, struct den_err *err);
/* Grows the image (never shrinks). */
int pool_grow(struct pool *p, int statefd, uint64_t size, struct den_err *err);
/* Gives blocks freed inside the image back to the host, waiting a few seconds at most for what was
 * removed just now; then boxes can write to them. Without it they go back too, within minutes, while the
 * pool stays mounted. */
int pool_trim(struct pool *p, struct den_err *err);
/* Sees to it that no more is free in an image than the host has room for: beyond that, writing is
 * ENOSPC; what is there can be read, and removed. Gives the ms until it should be asked again. */
int pool_room(struct pool *p);
/* Is there so little left that who removes something should see to it that it can be used at once? */
bool pool_is_tight(struct pool *p);
/* What was removed from an image is room that boxes can write to when this returns; takes as long as
 * pool_trim() if there is such, else nothing. */
void pool_reclaim(struct pool *p);
/* DEN_LIMIT: so close to the end that no layer is made any more, even after pool_reclaim(). For who will
 * need one later. */
int pool_has_room(struct pool *p, struct den_err *err);
/* Does a pool exist? Does not touch it. */
bool pool_exists(int statefd);
/* Removes what crashes left: half-made names everywhere, and "ID" folders for which alive() is
 * false. Goes on after a failure and tells the first. */
int pool_sweep(struct pool *p, bool (*alive)(const char *name, void *user), void *user,
	void (*removed)(const char *what, void *user), struct den_err *err);
