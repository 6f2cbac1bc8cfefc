/*
 * The bulk of a box's memory, which den saves and loads itself beside CRIU.
 *
 * CRIU takes the pages of one process after the other, through pipes, on one processor, while nothing of the box runs;
 * and loads them as slowly. So where a process has much private memory (no file, not executable, no other process may
 * share it), CRIU is told that there is none (criu_shim.c), and a few processes of den's copy it at the same time. At load
 * they fill it in when CRIU has laid all mappings and nothing has run. Everything else is CRIU's, and all of it where
 * the kernel does not tell quickly which pages there are (before Linux 6.7).
 *
 * In the images: `den-pages` says which page is where in `den-pages-0`, `den-pages-1` ...
 */
#pragma once

#include "cgroup.h"
#include "err.h"

struct pages;
/* Nothing of the box runs, CRIU has not looked yet. memfd: for CRIU_FD_HIDE, with room for a struct hide. *ret is NULL if
 * there is nothing to do. lend: it may be lent instead of being copied, if it is worth it. */
int pages_begin(struct cgroup *cg, int dirfd, int memfd, bool lend, struct pages **ret, struct den_err *err);
/* CRIU has looked: the memory is not copied but lent (lent.h), so the box must be held. */
bool pages_lent(const struct pages *p);
/* All is copied when this returns, unless gone() says that nobody wants it any more. */
int pages_copied(struct pages *p, bool (*gone)(void *user), void *user, struct den_err *err);
/* CRIU is done, the box may run: writes what is where. */
int pages_end(struct pages *p, struct den_err *err);
void pages_free(struct pages *p);

/* The processes are there, and do not run. box: pidfd of one in the box's user namespace; memory of others is not written.
 * needed: there must be some. */
int pages_load(struct cgroup *cg, int box, int dirfd, bool needed, struct den_err *err);

/* ---- what is in den-pages ---- */

#define PAGES_FILE "den-pages"
#define PAGES_FILES_MAX 16
#define PIECE_PAGES 256

struct piece {
	uint32_t pid, file;	   /* pid: as the box has it */
	uint64_t start, pages, at; /* at: in the file, in bytes */
};
int pages_table_write(int dirfd, const struct piece *v, size_t n, struct den_err *err);
/* *ret is to be freed, NULL: there is none. Pieces are in the range of addresses and files; a file's size is checked by
 * whoever opens it. */
int pages_table_read(int dirfd, struct piece **ret, size_t *ret_n, struct den_err *err);
/* Consecutive pieces that are one part of the work: the indices where they begin, and the end. To be freed. */
size_t *pages_parts(const struct piece *v, size_t n, size_t *ret_n);
/* What CRIU kept after all is not ours: all but those pages. Sorts what it is given; to be freed. */
struct hide_page;
struct piece *pages_leave_out(struct piece *all, size_t n, struct hide_page *kept, size_t n_kept, size_t *ret_n);
