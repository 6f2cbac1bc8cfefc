/* Recipes and indexes of packs as bytes, and back: nothing that is read is believed. */
#include "saved_pages.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fd.h"
#include "mem.h"
#include "sha256.h"

#define RECIPE_MAGIC "denpage1"
#define INDEX_MAGIC "denpack1"
#define TAIL_MAGIC "denpackE"
#define MAGIC 8
#define RUN_BYTES 12
#define FILES_MAX 65536U

/* ---- bytes ---- */

struct reader {
	const uint8_t *p;
	size_t left;
	bool short_of; /* something was asked for that is not there */
};

static const uint8_t *take(struct reader *r, size_t n)
{
	const uint8_t *p = r->p;

	if (r->short_of || n > r->left) {
		r->short_of = true;
		return NULL;
	}
	r->p += n;
	r->left -= n;
	return p;
}

static uint64_t take_number(struct reader *r, size_t bytes)
{
	const uint8_t *p = take(r, bytes);
	uint64_t v = 0;

	for (size_t i = 0; p && i < bytes; i++)
		v |= (uint64_t)p[i] << (8 * i);
	return v;
}

static bool take_magic(struct reader *r, const char *magic)
{
	const uint8_t *p = take(r, MAGIC);

	return p && !memcmp(p, magic, MAGIC);
}

static void put_number(struct buf *out, uint64_t v, size_t bytes)
{
	uint8_t b[8];

	for (size_t i = 0; i < bytes; i++)
		b[i] = (uint8_t)(v >> (8 * i));
	buf_add(out, b, bytes);
}

static int damaged(struct den_err *err, const char *what)
{
	return den_fail(
		err, DEN_UNSUPPORTED, 0, "what was saved of the programs is damaged: %s", what);
}

/* The caller has checked that the bytes which this is for are there: it is no larger than some times what was read. */
static void *array(size_t n, size_t size)
{
	return calloc(n ? n : 1, size);
}

static int no_memory(struct den_err *err)
{
	return den_fail_sys(err, ENOMEM, "read what was saved of the programs");
}

/* ---- recipe ---- */

void saved_recipe_free(struct saved_recipe *r)
{
	for (uint32_t i = 0; r->files && i < r->n_files; i++)
		free(r->files[i].runs);
	free(r->files);
	free(r->packs);
	*r = (struct saved_recipe){ 0 };
}

void saved_recipe_put(const struct saved_recipe *r, struct buf *out)
{
	buf_add(out, RECIPE_MAGIC, MAGIC);
	put_number(out, r->n_packs, 4);
	put_number(out, r->n_files, 4);
	for (uint32_t i = 0; i < r->n_packs; i++)
		buf_add(out, r->packs[i], SAVED_ID);
	for (uint32_t i = 0; i < r->n_files; i++) {
		const struct saved_recipe_file *f = &r->files[i];

		put_number(out, f->size, 8);
		put_number(out, f->n_runs, 4);
		put_number(out, 0, 4);
		for (uint32_t j = 0; j < f->n_runs; j++) {
			put_number(out, f->runs[j].pages, 4);
			put_number(out, f->runs[j].pack, 4);
			put_number(out, f->runs[j].first, 4);
		}
	}
}

static int parse_file(
	struct reader *in, uint32_t n_packs, struct saved_recipe_file *f, struct den_err *err)
{
	uint64_t sum = 0;

	f->size = take_number(in, 8);
	f->n_runs = (uint32_t)take_number(in, 4);
	if (take_number(in, 4) || in->short_of || f->n_runs > in->left / RUN_BYTES ||
		f->size > (uint64_t)UINT32_MAX * SAVED_PAGE)
		return damaged(err, "its list of pages");
	f->runs = array(f->n_runs, sizeof(*f->runs));
	if (!f->runs)
		return no_memory(err);
	for (uint32_t i = 0; i < f->n_runs; i++) {
		struct saved_run *run = &f->runs[i];

		run->pages = (uint32_t)take_number(in, 4);
		run->pack = (uint32_t)take_number(in, 4);
		run->first = (uint32_t)take_number(in, 4);
		if (!run->pages || run->pack > n_packs || (!run->pack && run->first) ||
			run->first > UINT32_MAX - run->pages)
			return damaged(err, "its list of pages");
		sum += run->pages;
	}
	return sum == saved_pages_of(f->size) ? 0 : damaged(err, "its list of pages is not whole");
}

int saved_recipe_parse(const void *p, size_t n, struct saved_recipe *ret, struct den_err *err)
{
	struct reader in = { p, n, false };
	auto_recipe r = { 0 };
	uint32_t packs, files;
	const uint8_t *ids;

	if (!take_magic(&in, RECIPE_MAGIC))
		return damaged(err, "its list of pages");
	packs = (uint32_t)take_number(&in, 4);
	files = (uint32_t)take_number(&in, 4);
	if (in.short_of || packs > SAVED_PACKS_MAX || files > FILES_MAX)
		return damaged(err, "its list of pages");
	ids = take(&in, (size_t)packs * SAVED_ID);
	if (!ids)
		return damaged(err, "its list of pages");
	r.packs = array(packs, SAVED_ID);
	r.files = array(files, sizeof(*r.files));
	if (!r.packs || !r.files)
		return no_memory(err);
	memcpy(r.packs, ids, (size_t)packs * SAVED_ID);
	r.n_packs = packs;
	r.n_files = files;
	for (uint32_t i = 0; i < files; i++)
		if (parse_file(&in, packs, &r.files[i], err) < 0)
			return -1;
	if (in.left)
		return damaged(err, "its list of pages has more than it says");
	*ret = r;
	r = (struct saved_recipe){ 0 };
	return 0;
}

/* ---- index of a pack ---- */

void saved_pack_close(struct saved_pack *p)
{
	free(p->sums);
	free(p->ends);
	fd_close(&p->fd);
	*p = (struct saved_pack)SAVED_PACK_NONE;
}

void saved_index_put(const struct saved_pack *p, struct buf *out)
{
	size_t from = out->len;

	buf_add(out, INDEX_MAGIC, MAGIC);
	put_number(out, p->n_pages, 4);
	put_number(out, SAVED_FRAME, 4);
	buf_add(out, p->sums, (size_t)p->n_pages * SAVED_SUM);
	for (uint32_t i = 0; i < p->n_frames; i++)
		put_number(out, p->ends[i] - (i ? p->ends[i - 1] : 0), 4);
	put_number(out, out->len - from, 8);
	buf_add(out, TAIL_MAGIC, MAGIC);
}

int saved_tail_parse(const uint8_t tail[static SAVED_TAIL], uint64_t *ret_len)
{
	struct reader in = { tail, SAVED_TAIL, false };

	*ret_len = take_number(&in, 8);
	return take_magic(&in, TAIL_MAGIC) ? 0 : -1;
}

int saved_index_parse(
	const void *p, size_t n, uint64_t size, struct saved_pack *ret, struct den_err *err)
{
	struct reader in = { p, n, false };
	struct saved_pack v = SAVED_PACK_NONE;
	const uint8_t *sums;
	uint64_t at = 0;
	bool right = true;

	if (!take_magic(&in, INDEX_MAGIC))
		return damaged(err, "an index of pages");
	v.n_pages = (uint32_t)take_number(&in, 4);
	if (take_number(&in, 4) != SAVED_FRAME || in.short_of || !v.n_pages)
		return damaged(err, "an index of pages");
	v.n_frames = (v.n_pages - 1) / SAVED_FRAME + 1;
	sums = take(&in, (size_t)v.n_pages * SAVED_SUM);
	if (!sums || in.left != (size_t)v.n_frames * 4)
		return damaged(err, "an index of pages");
	v.sums = array(v.n_pages, SAVED_SUM);
	v.ends = array(v.n_frames, sizeof(*v.ends));
	if (!v.sums || !v.ends) {
		saved_pack_close(&v);
		return no_memory(err);
	}
	memcpy(v.sums, sums, (size_t)v.n_pages * SAVED_SUM);
	for (uint32_t i = 0; i < v.n_frames; i++) {
		uint64_t len = take_number(&in, 4);

		right &= len > 0 && len <= 2 * SAVED_FRAME_BYTES;
		at += len;
		v.ends[i] = at;
	}
	if (!right || at != size) {
		saved_pack_close(&v);
		return damaged(err, "an index of pages");
	}
	*ret = v;
	return 0;
}

void saved_pack_name(const uint8_t id[static SAVED_ID], char ret[static SAVED_PACK_NAME])
{
	static const char digits[] = "0123456789abcdef";
	char *to = ret + 6;

	memcpy(ret, ".pack-", 6);
	for (size_t i = 0; i < SAVED_ID; i++) {
		*to++ = digits[id[i] >> 4];
		*to++ = digits[id[i] & 15];
	}
	*to = '\0';
}

/* ---- pages ---- */

void saved_page_sum(const void *page, uint8_t ret[static SAVED_SUM])
{
	struct sha256 h;
	uint8_t all[32];

	sha256_init(&h);
	sha256_add(&h, page, SAVED_PAGE);
	sha256_end(&h, all);
	memcpy(ret, all, SAVED_SUM);
}

bool saved_page_is_zero(const void *page)
{
	const uint8_t *p = page;

	return !p[0] && !memcmp(p, p + 1, SAVED_PAGE - 1);
}
