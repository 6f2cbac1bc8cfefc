/*
 * What was saved of running programs: the images of full checkpoints.
 *
 *   STATE/memory/ID/          flock()ed by who seals: one after another, so that each can refer to those before
 *   STATE/memory/ID/N/        images of checkpoint N of box ID, and `manifest`; flock()ed by who reads (shared)
 *                             or takes apart (exclusive)
 *   STATE/memory/ID/.N        in the making: removed by who makes it again
 *   STATE/memory/ID/.N.PID    compressed ones, unpacked for one load: swept when that process is gone
 *   STATE/memory/ID/.N.gone   removed while somebody read it: swept when nobody does
 *
 * Invariants
 *  1. N is there with all its bytes on disk before the checkpoint's row says that it is full; a passing one (below) with
 *     all its bytes in the kernel's hands.
 *  2. A directory without such a row was never acknowledged, or its checkpoint is gone: swept.
 *  3. The manifest names every file that belongs to it, with its size; once it is sealed with the hash of its
 *     content too, or with that of a recipe (saved_pages.h). What it does not name is not looked at.
 *  4. Files do not change. Compressing makes others beside them, and then another manifest.
 *  5. Whatever N needs is in N: packs that it shares with others are hard links. So it can go in any order.
 *
 * What is loaded is what was saved: a file whose inode, size and times are those of the manifest, since the
 * machine was started, is the one that was written; of any other the hash is compared. Where the machine stopped
 * before there was a hash, size is all that can be compared: the bytes had been on disk (1), and if that disk changed
 * them since, nobody would notice. The next saved_seal() of the box gives such ones their hashes.
 */
#pragma once

#include "store.h"

#define SAVED_DIR "memory"
#define SAVED_VERSION 2 /* 1: without pages; such ones are still written as 1 */
#define SAVED_FILES_MAX 65536

/* What images were made of and by, and what must be so where they are loaded. */
struct saved_about {
	char *wall; /* "container" */
	char *runtime; /* "criu 4.2"; NULL when it is asked whether they fit: not known */
	char *template; /* name and version */
	char *kernel, *machine, *cpu; /* of this host, if NULL in saved_commit() */
	uint64_t ids; /* enum plan_ids */
	uint64_t generation; /* of the policy */
	/* Of use for a moment, as those of a fork: nobody waits until they are on disk, and after the host's next start they
	 * are worth nothing. */
	bool passing;
};
void saved_about_free(struct saved_about *a);

enum saved_how {
	SAVED_PLAIN,
	SAVED_WHOLE, /* as NAME.zst: of format 1, read only */
	SAVED_PAGES, /* in the recipe */
};

struct saved_file {
	char *name;
	uint64_t size;
	char hash[65]; /* "": not sealed so far, or in the recipe */
	enum saved_how how;
	uint64_t ino, ctime_ns; /* of the file that is there */
};

struct saved {
	struct saved_about about;
	struct saved_file *files;
	size_t n_files;
	uint64_t bytes; /* of all, unpacked */
	char boot[37]; /* of the host, when inode and times were noted */
	char recipe[65]; /* its hash; "": none */
	int dirfd; /* with everything unpacked; -1 */
	int lock; /* of the directory; -1 */
	char *unpacked; /* "memory/ID/.N.PID": removed by saved_close(); NULL */
	struct store *s;
	struct box_id id;
	bool held; /* lock is locked */
};
#define SAVED_NONE                                                                                 \
	{                                                                                          \
		.dirfd = -1, .lock = -1                                                            \
	}
void saved_close(struct saved *v);
#define auto_saved __attribute__((cleanup(saved_close))) struct saved

/* An empty directory for N; what a crash left there is gone. */
int saved_begin(
	struct store *s, const struct box_id *id, uint64_t n, int *ret_dirfd, struct den_err *err);
/* It is all there: on disk when this returns, if it is not a passing one. */
int saved_commit(struct store *s, const struct box_id *id, uint64_t n, int dirfd,
	const struct saved_about *about, uint64_t *ret_bytes, struct den_err *err);
void saved_abandon(struct store *s, const struct box_id *id, uint64_t n);
/* The manifest alone. DEN_NOT_FOUND: nothing was saved under that number. */
int saved_look(struct store *s, const struct box_id *id, uint64_t n, struct saved *ret,
	struct den_err *err);
/* Verified, unpacked, and kept from being removed until saved_close(). */
int saved_open(struct store *s, const struct box_id *id, uint64_t n, struct saved *ret,
	struct den_err *err);
/* Can they be loaded here? `now` says what would load them. -1: err says why not. */
int saved_fits(const struct saved_about *then, const struct saved_about *now, struct den_err *err);
/* Hashes, and compresses; what other checkpoints of the box have already is shared with them. Takes long; the caller
 * has answered. One that is being read is packed when that is over, if it is within seconds; else it stays as it is. */
int saved_seal(
	struct store *s, const struct box_id *id, uint64_t n, bool pack, struct den_err *err);
/* The same images under another box's number, sharing the bytes. */
int saved_share(struct store *s, const struct box_id *from, uint64_t n, const struct box_id *to,
	uint64_t to_n, struct den_err *err);
/* Bytes on disk: of files that it alone has, and of those that others have links to. */
void saved_usage(
	struct store *s, const struct box_id *id, uint64_t n, uint64_t *ret_own, uint64_t *ret_shared);
/* None of these waits: what is being read goes when that ends, or with the next sweep. */
void saved_remove(struct store *s, const struct box_id *id, uint64_t n);
/* Those for which keep() says no; without keep also what is in the making. */
void saved_remove_but(
	struct store *s, const struct box_id *id, bool (*keep)(uint64_t n, void *user), void *user);
/* What boxes that are not there left, and what was being read when it was removed. */
int saved_sweep(struct store *s, bool (*alive)(const struct box_id *id, void *user), void *user,
	void (*removed)(const char *what, void *user2), void *user2, struct den_err *err);
/* Flags of this processor, as the kernel tells them; free() it. */
char *saved_cpu(void);
