/*
 * Large files of saved programs, page by page, so that checkpoints of one box share what they have in common.
 *
 *   N/.pages        the recipe: of which pages of which packs each file is made
 *   N/.pack-HASH    a pack: pages in frames of zstd, an index at its end. HASH is that of the index, which has a hash of
 *                   each page. Checkpoints that use it have hard links to it: the last one that goes takes it along
 *
 * Everything is told by the manifest in the end: it has the hash of the recipe, the recipe names packs by the hashes
 * of their indexes, those have the hashes of pages. So whatever is read is compared, in whatever order.
 *
 * All numbers are little endian. The recipe:
 *   "denpage1"  u32 packs  u32 files  packs * hash[32]
 *   of each file:  u64 size  u32 runs  u32 0  runs * { u32 pages  u32 pack  u32 first }     pack 0: pages of zeros
 * A pack:
 *   frames, each of SAVED_FRAME pages, the last one of what is left
 *   index:  "denpack1"  u32 pages  u32 SAVED_FRAME  pages * hash[16]  frames * u32 length
 *   u64 length of the index  "denpackE"
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "err.h"

#define SAVED_RECIPE ".pages"
#define SAVED_PAGE 4096U
#define SAVED_FRAME                                                                                \
	64U /* pages: large enough to compress well, small enough to be read for a part of it */
#define SAVED_FRAME_BYTES (SAVED_FRAME * SAVED_PAGE)
#define SAVED_PACKS_MAX 16U /* that one checkpoint refers to */
#define SAVED_ID 32 /* of a pack */
#define SAVED_SUM 16 /* of a page: the first half of SHA-256 */
#define SAVED_PACK_NAME (6 + 2 * SAVED_ID + 1)
#define SAVED_TAIL 16 /* after the index */

struct saved_run {
	uint32_t pages, pack, first; /* pack 0: zeros; else the pack-1 th of the recipe */
};

struct saved_recipe_file {
	uint64_t size;
	struct saved_run *runs;
	uint32_t n_runs;
};

struct saved_recipe {
	uint8_t (*packs)[SAVED_ID];
	uint32_t n_packs;
	struct saved_recipe_file *files;
	uint32_t n_files;
};
void saved_recipe_free(struct saved_recipe *r);
#define auto_recipe __attribute__((cleanup(saved_recipe_free))) struct saved_recipe
void saved_recipe_put(const struct saved_recipe *r, struct buf *out);
/* Checked: all is there, each file has its pages, no run is empty or of a pack that is not named. */
int saved_recipe_parse(const void *p, size_t n, struct saved_recipe *ret, struct den_err *err);

struct saved_pack {
	uint8_t id[SAVED_ID];
	uint8_t (*sums)[SAVED_SUM]; /* of pages */
	uint64_t *ends; /* of frames, in the file */
	uint32_t n_pages, n_frames;
	int fd;
};
#define SAVED_PACK_NONE                                                                            \
	{                                                                                          \
		.fd = -1                                                                           \
	}
void saved_pack_close(struct saved_pack *p);
void saved_index_put(const struct saved_pack *p, struct buf *out); /* with what comes after it */
int saved_tail_parse(const uint8_t tail[static SAVED_TAIL], uint64_t *ret_len);
/* size: of the frames, all before the index. Fills all but id and fd. */
int saved_index_parse(
	const void *p, size_t n, uint64_t size, struct saved_pack *ret, struct den_err *err);
/* Its index is read and is that of its name; pages are compared as they are read. */
int saved_pack_open(
	int dirfd, const uint8_t id[static SAVED_ID], struct saved_pack *ret, struct den_err *err);
void saved_pack_name(const uint8_t id[static SAVED_ID], char ret[static SAVED_PACK_NAME]);

static inline uint32_t saved_pages_of(uint64_t size) /* of what saved_recipe_parse() has let pass */
{
	return (uint32_t)((size + SAVED_PAGE - 1) / SAVED_PAGE);
}
void saved_page_sum(const void *page, uint8_t ret[static SAVED_SUM]);
bool saved_page_is_zero(const void *page);

/* saved_pages.c: the recipe of a directory, if its hash is this one. */
int saved_recipe_read(int dirfd, const char *hash, struct saved_recipe *ret, struct den_err *err);
/* Makes the files in to_dir; -1: reads and compares all, and makes nothing. names: as many as it has
 * files. Each frame is read once. */
int saved_pages_read(int dirfd, const struct saved_recipe *r, const char *const names[], int to_dir,
	struct den_err *err);

/* saved_make.c */
struct saved_maker;
struct saved_maker *saved_maker_new(
	int dirfd, const char *const names[], const uint64_t sizes[], uint32_t n);
void saved_maker_free(struct saved_maker *m);
/* Pages of the recipe in from_dir can be referred to. What cannot be had is left out. */
void saved_maker_offer(struct saved_maker *m, int from_dir, const struct saved_recipe *r);
/* Writes pack and recipe, on disk; ret: hash of the recipe. share: refer to what was offered, as far as that is wise. */
int saved_maker_run(struct saved_maker *m, bool share, char ret[static 65], struct den_err *err);
