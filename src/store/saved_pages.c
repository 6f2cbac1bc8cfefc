/*
 * Files out of recipes and packs.
 *
 * The recipe is turned round: what it wants is sorted by where that is in the packs, so each frame is read and
 * decompressed once, whatever the order of pages in the files, and each page is compared with its hash in the index.
 */
#include "saved_pages.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include "fd.h"
#include "mem.h"
#include "sha256.h"

#define RECIPE_MAX (1U << 30)
#define INDEX_MAX (1U << 30)

static int damaged(struct den_err *err, const char *name)
{
	return den_fail(err, DEN_UNSUPPORTED, 0,
		"what was saved of the programs is damaged: '%.60s' is not what it was", name);
}

static int read_at(int fd, void *p, size_t n, uint64_t at)
{
	for (size_t have = 0; have < n;) {
		ssize_t r = pread(fd, (char *)p + have, n - have, (off_t)(at + have));

		if (r < 0 && errno == EINTR)
			continue;
		if (r <= 0)
			return -1;
		have += (size_t)r;
	}
	return 0;
}

int saved_recipe_read(int dirfd, const char *hash, struct saved_recipe *ret, struct den_err *err)
{
	auto_fd fd = openat(dirfd, SAVED_RECIPE, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	auto_free char *text = NULL;
	struct sha256 h;
	char hex[65];
	size_t n;

	if (fd < 0)
		return damaged(err, SAVED_RECIPE);
	if (fd_read_all(fd, RECIPE_MAX, &text, &n, err) < 0)
		return -1;
	sha256_init(&h);
	sha256_add(&h, text, n);
	sha256_hex(&h, hex);
	return strcmp(hex, hash) ? damaged(err, SAVED_RECIPE)
				 : saved_recipe_parse(text, n, ret, err);
}

/* ---- packs ---- */

static int read_index(int fd, const uint8_t id[static SAVED_ID], const char *name,
	struct saved_pack *ret, struct den_err *err)
{
	auto_free uint8_t *index = NULL;
	uint8_t tail[SAVED_TAIL], sum[32];
	uint64_t size, len;
	struct sha256 h;
	struct stat st;

	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size < SAVED_TAIL)
		return damaged(err, name);
	size = (uint64_t)st.st_size - SAVED_TAIL;
	if (read_at(fd, tail, sizeof(tail), size) < 0 || saved_tail_parse(tail, &len) < 0 ||
		len > size || len > INDEX_MAX)
		return damaged(err, name);
	index = malloc(len + 1);
	if (!index)
		return den_fail_sys(err, ENOMEM, "read '%.60s'", name);
	if (read_at(fd, index, len, size - len) < 0)
		return damaged(err, name);
	sha256_init(&h);
	sha256_add(&h, index, len);
	sha256_end(&h, sum);
	if (memcmp(sum, id, SAVED_ID))
		return damaged(err, name);
	return saved_index_parse(index, len, size - len, ret, err);
}

int saved_pack_open(
	int dirfd, const uint8_t id[static SAVED_ID], struct saved_pack *ret, struct den_err *err)
{
	char name[SAVED_PACK_NAME];
	auto_fd fd = -1;

	saved_pack_name(id, name);
	fd = openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return damaged(err, name);
	if (read_index(fd, id, name, ret, err) < 0)
		return -1;
	memcpy(ret->id, id, SAVED_ID);
	ret->fd = fd_take(&fd);
	return 0;
}

/* ---- what is wanted, by place in the packs ---- */

struct piece {
	uint32_t pack, page; /* all of it in one frame */
	uint32_t file, at, n;
};

struct job {
	const struct saved_recipe *r;
	const char *const *names;
	struct saved_pack packs[SAVED_PACKS_MAX];
	uint32_t n_packs;
	struct piece *pieces;
	size_t n, cap;
	ZSTD_DCtx *z;
	uint8_t *packed, *plain; /* a frame */
	int to_dir, fd; /* fd: of `file`, the last that was written to; -1 */
	uint32_t file;
};

static int add_piece(struct job *j, struct piece p, struct den_err *err)
{
	if (j->n == j->cap) {
		size_t cap = j->cap ? j->cap * 2 : 1024;
		struct piece *more = reallocarray(j->pieces, cap, sizeof(*more));

		if (!more)
			return den_fail_sys(err, ENOMEM, "read what was saved of the programs");
		j->pieces = more;
		j->cap = cap;
	}
	j->pieces[j->n++] = p;
	return 0;
}

static int add_run(
	struct job *j, uint32_t file, const struct saved_run *run, uint32_t at, struct den_err *err)
{
	uint32_t page = run->first, left = run->pages;

	if (run->pages > j->packs[run->pack - 1].n_pages ||
		run->first > j->packs[run->pack - 1].n_pages - run->pages)
		return damaged(err, j->names[file]);
	while (left) {
		uint32_t n = MIN(left, SAVED_FRAME - page % SAVED_FRAME);

		if (add_piece(j, (struct piece){ run->pack - 1, page, file, at, n }, err) < 0)
			return -1;
		page += n;
		at += n;
		left -= n;
	}
	return 0;
}

static int by_place(const void *pa, const void *pb)
{
	const struct piece *a = pa, *b = pb;

	if (a->pack != b->pack)
		return a->pack < b->pack ? -1 : 1;
	if (a->page / SAVED_FRAME != b->page / SAVED_FRAME)
		return a->page < b->page ? -1 : 1;
	if (a->file != b->file)
		return a->file < b->file ? -1 : 1;
	return a->at < b->at ? -1 : a->at > b->at;
}

static int gather(struct job *j, int dirfd, struct den_err *err)
{
	for (uint32_t i = 0; i < j->r->n_packs; i++, j->n_packs++)
		if (saved_pack_open(dirfd, j->r->packs[i], &j->packs[i], err) < 0)
			return -1;
	for (uint32_t f = 0; f < j->r->n_files; f++) {
		const struct saved_recipe_file *file = &j->r->files[f];
		uint32_t at = 0;

		for (uint32_t i = 0; i < file->n_runs; at += file->runs[i++].pages)
			if (file->runs[i].pack && add_run(j, f, &file->runs[i], at, err) < 0)
				return -1;
	}
	qsort(j->pieces, j->n, sizeof(*j->pieces), by_place);
	return 0;
}

/* ---- writing ---- */

static int make_files(struct job *j, struct den_err *err)
{
	for (uint32_t i = 0; i < j->r->n_files; i++) {
		auto_fd fd = openat(
			j->to_dir, j->names[i], O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

		/* what is not written is a hole, and reads as zeros */
		if (fd < 0 || ftruncate(fd, (off_t)j->r->files[i].size) < 0)
			return den_fail_sys(err, errno, "make '%.60s'", j->names[i]);
	}
	return 0;
}

static int put(struct job *j, const struct piece *p, const uint8_t *bytes, struct den_err *err)
{
	uint64_t at = (uint64_t)p->at * SAVED_PAGE, size = j->r->files[p->file].size;
	size_t n = (size_t)MIN((uint64_t)p->n * SAVED_PAGE, size - at);

	if (j->fd < 0 || j->file != p->file) {
		fd_close(&j->fd);
		j->fd = openat(j->to_dir, j->names[p->file], O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
		j->file = p->file;
	}
	for (size_t done = 0; done < n;) {
		ssize_t w =
			j->fd < 0 ? -1 : pwrite(j->fd, bytes + done, n - done, (off_t)(at + done));

		if (w < 0 && j->fd >= 0 && errno == EINTR)
			continue;
		if (w <= 0)
			return den_fail_sys(
				err, w < 0 ? errno : EIO, "write '%.60s'", j->names[p->file]);
		done += (size_t)w;
	}
	return 0;
}

/* Into j->plain. */
static int read_frame(struct job *j, const struct piece *p, struct den_err *err)
{
	const struct saved_pack *pack = &j->packs[p->pack];
	uint32_t frame = p->page / SAVED_FRAME;
	uint32_t pages = MIN(SAVED_FRAME, pack->n_pages - frame * SAVED_FRAME);
	uint64_t from = frame ? pack->ends[frame - 1] : 0;
	size_t len = (size_t)(pack->ends[frame] - from);

	if (read_at(pack->fd, j->packed, len, from) < 0 ||
		ZSTD_decompressDCtx(j->z, j->plain, SAVED_FRAME_BYTES, j->packed, len) !=
			(size_t)pages * SAVED_PAGE)
		return damaged(err, j->names[p->file]);
	return 0;
}

/* The pieces from p on that are of one frame; returns how many. */
static size_t frame_pieces(const struct job *j, size_t from)
{
	const struct piece *p = &j->pieces[from];
	size_t i = from + 1;

	while (i < j->n && j->pieces[i].pack == p->pack &&
		j->pieces[i].page / SAVED_FRAME == p->page / SAVED_FRAME)
		i++;
	return i - from;
}

static int do_frame(struct job *j, const struct piece *p, size_t n, struct den_err *err)
{
	uint64_t compared = 0;

	static_assert(SAVED_FRAME <= 64, "one bit a page");
	if (read_frame(j, p, err) < 0)
		return -1;
	for (size_t i = 0; i < n; i++, p++) {
		uint32_t in = p->page % SAVED_FRAME;

		for (uint32_t k = in; k < in + p->n; k++) {
			uint8_t sum[SAVED_SUM];

			if (compared >> k & 1)
				continue;
			saved_page_sum(j->plain + (size_t)k * SAVED_PAGE, sum);
			if (memcmp(sum, j->packs[p->pack].sums[p->page - in + k], SAVED_SUM))
				return damaged(err, j->names[p->file]);
			compared |= 1ULL << k;
		}
		if (j->to_dir >= 0 && put(j, p, j->plain + (size_t)in * SAVED_PAGE, err) < 0)
			return -1;
	}
	return 0;
}

static void job_free(struct job *j)
{
	for (uint32_t i = 0; i < SAVED_PACKS_MAX; i++)
		saved_pack_close(&j->packs[i]);
	free(j->pieces);
	ZSTD_freeDCtx(j->z);
	free(j->packed);
	free(j->plain);
	fd_close(&j->fd);
}

int saved_pages_read(int dirfd, const struct saved_recipe *r, const char *const names[], int to_dir,
	struct den_err *err)
{
	struct job j = { .r = r, .names = names, .to_dir = to_dir, .fd = -1 };
	int ret;

	for (uint32_t i = 0; i < SAVED_PACKS_MAX; i++)
		j.packs[i] = (struct saved_pack)SAVED_PACK_NONE;
	j.z = ZSTD_createDCtx();
	j.packed = mem_alloc(2 * SAVED_FRAME_BYTES);
	j.plain = mem_alloc(SAVED_FRAME_BYTES);
	ret = gather(&j, dirfd, err);
	if (ret == 0 && to_dir >= 0)
		ret = make_files(&j, err);
	for (size_t i = 0, n; ret == 0 && i < j.n; i += n) {
		n = frame_pieces(&j, i);
		ret = do_frame(&j, &j.pieces[i], n, err);
	}
	job_free(&j);
	return ret;
}
