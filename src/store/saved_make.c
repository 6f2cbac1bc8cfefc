/*
 * Recipes and packs out of files.
 *
 * First all pages are hashed, and looked for in the packs that were offered; then it is decided which of those are
 * worth it; then what is in none of them goes into a pack of its own.
 *
 * What is worth it, so that what nobody needs any more goes some day:
 *  - a frame, if half of its pages are wanted: the whole of it has to be decompressed for them
 *  - a pack, if a quarter of its pages are (in such frames): as long as somebody refers to it, all of it stays
 *  - of those the SAVED_PACKS_MAX - 1 of which most is wanted
 * Pages of the others are written again. So nothing grows without end: a checkpoint keeps at most four times its own
 * pages on disk, and decompresses at most twice as much as it needs.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zstd.h>

#include "fd.h"
#include "mem.h"
#include "saved_pages.h"
#include "sha256.h"

#define OFFERED_MAX 32U
#define OFFERED_PAGES (4U << 20) /* 16 GB of memory: indexes and table of that are 128 MB */
#define OWN OFFERED_MAX /* of a place: in the pack that is being made */
#define PART (256U * SAVED_PAGE)
#define LEVEL 1 /* pages of memory: more costs much and gives little */
#define MAKING ".making"

struct offer {
	struct saved_pack pack;
	uint8_t *wanted; /* of each page */
	uint8_t *frame_in; /* of each frame: is it referred to? */
	uint32_t used; /* pages, in such frames */
	uint32_t number; /* in the recipe; 0: not referred to */
};

struct place {
	uint32_t whose, page; /* whose: an offer + 1, OWN + 1, or 0: nothing here */
};

struct saved_maker {
	int dirfd;
	const char *const *names;
	const uint64_t *sizes;
	uint32_t n_files;
	uint64_t n_pages; /* of all files */
	uint8_t (*sums)
		[SAVED_SUM]; /* of all pages, file after file; nothing but zeros: of a page of zeros */
	struct offer offers[OFFERED_MAX];
	uint32_t n_offers;
	uint64_t offered; /* pages */
	struct place *table; /* by sum */
	size_t mask;
	/* the pack that is being made */
	struct saved_pack own;
	uint32_t own_cap;
	uint8_t *frame, *packed;
	uint32_t in_frame;
	ZSTD_CCtx *z;
	struct saved_recipe recipe;
};

struct saved_maker *saved_maker_new(
	int dirfd, const char *const names[], const uint64_t sizes[], uint32_t n)
{
	struct saved_maker *m = mem_new(struct saved_maker);

	m->dirfd = dirfd;
	m->names = names;
	m->sizes = sizes;
	m->n_files = n;
	m->own.fd = -1;
	for (uint32_t i = 0; i < n; i++)
		m->n_pages += saved_pages_of(sizes[i]);
	return m;
}

void saved_maker_free(struct saved_maker *m)
{
	if (!m)
		return;
	for (uint32_t i = 0; i < m->n_offers; i++) {
		saved_pack_close(&m->offers[i].pack);
		free(m->offers[i].wanted);
		free(m->offers[i].frame_in);
	}
	saved_pack_close(&m->own);
	saved_recipe_free(&m->recipe);
	ZSTD_freeCCtx(m->z);
	free(m->sums);
	free(m->table);
	free(m->frame);
	free(m->packed);
	free(m);
}

/* ---- what is offered ---- */

static bool is_offered(const struct saved_maker *m, const uint8_t id[static SAVED_ID])
{
	for (uint32_t i = 0; i < m->n_offers; i++)
		if (!memcmp(m->offers[i].pack.id, id, SAVED_ID))
			return true;
	return false;
}

static void offer_pack(struct saved_maker *m, int from_dir, const uint8_t id[static SAVED_ID])
{
	struct offer *o = &m->offers[m->n_offers];
	char name[SAVED_PACK_NAME];
	struct den_err ignored;

	if (m->n_offers == OFFERED_MAX || is_offered(m, id))
		return;
	/* the link first: from now on nobody can take it away. Where there are no links, nothing is shared */
	saved_pack_name(id, name);
	if (linkat(from_dir, name, m->dirfd, name, 0) < 0 && errno != EEXIST)
		return;
	*o = (struct offer){ .pack = SAVED_PACK_NONE };
	if (saved_pack_open(m->dirfd, id, &o->pack, &ignored) < 0)
		return;
	o->wanted = calloc(o->pack.n_pages, 1);
	o->frame_in = calloc(o->pack.n_frames, 1);
	if (!o->wanted || !o->frame_in || o->pack.n_pages > OFFERED_PAGES - m->offered) {
		saved_pack_close(&o->pack);
		free(o->wanted);
		free(o->frame_in);
		return;
	}
	m->offered += o->pack.n_pages;
	m->n_offers++;
}

void saved_maker_offer(struct saved_maker *m, int from_dir, const struct saved_recipe *r)
{
	for (uint32_t i = 0; i < r->n_packs; i++)
		offer_pack(m, from_dir, r->packs[i]);
}

/* ---- the table ---- */

static const uint8_t *sum_of(const struct saved_maker *m, const struct place *p)
{
	return p->whose == OWN + 1 ? m->own.sums[p->page]
				   : m->offers[p->whose - 1].pack.sums[p->page];
}

/* Where it is, or would be. */
static struct place *find(const struct saved_maker *m, const uint8_t sum[static SAVED_SUM])
{
	uint64_t key;
	size_t i;

	memcpy(&key, sum, sizeof(key));
	for (i = (size_t)key & m->mask; m->table[i].whose; i = (i + 1) & m->mask)
		if (!memcmp(sum_of(m, &m->table[i]), sum, SAVED_SUM))
			break;
	return &m->table[i];
}

static int make_table(struct saved_maker *m, bool share, struct den_err *err)
{
	uint64_t n = m->n_pages + (share ? m->offered : 0);
	size_t size = 1024;

	while (size < n + n / 2)
		size *= 2;
	free(m->table);
	m->table = calloc(size, sizeof(*m->table));
	m->mask = size - 1;
	if (!m->table)
		return den_fail_sys(err, ENOMEM, "compare pages");
	for (uint32_t i = 0; share && i < m->n_offers; i++)
		for (uint32_t p = 0; p < m->offers[i].pack.n_pages; p++) {
			struct place *at = find(m, m->offers[i].pack.sums[p]);

			if (!at->whose) /* the first that was offered is the newest */
				*at = (struct place){ i + 1, p };
		}
	return 0;
}

/* ---- hashing ---- */

static bool is_zero_sum(const uint8_t sum[static SAVED_SUM])
{
	static const uint8_t none[SAVED_SUM];

	return !memcmp(sum, none, SAVED_SUM);
}

/* Up to n bytes from there; what is beyond the file's end reads as zeros. */
static int read_pages(int fd, const char *name, uint8_t *to, size_t n, uint64_t at, uint64_t size,
	struct den_err *err)
{
	size_t want = (size_t)MIN((uint64_t)n, size - at), have = 0;

	while (have < want) {
		ssize_t r = pread(fd, to + have, want - have, (off_t)(at + have));

		if (r < 0 && errno == EINTR)
			continue;
		if (r <= 0)
			return den_fail_sys(err, r < 0 ? errno : EIO, "read '%.60s'", name);
		have += (size_t)r;
	}
	memset(to + want, 0, n - want);
	return 0;
}

static int open_file(const struct saved_maker *m, uint32_t i, struct den_err *err)
{
	int fd = openat(m->dirfd, m->names[i], O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

	return fd < 0 ? den_fail_sys(err, errno, "open '%.60s'", m->names[i]) : fd;
}

static int hash_file(
	struct saved_maker *m, uint32_t file, uint8_t *part, uint64_t *number, struct den_err *err)
{
	auto_fd fd = open_file(m, file, err);
	uint64_t size = m->sizes[file];

	if (fd < 0)
		return -1;
	for (uint64_t at = 0; at < size; at += PART) {
		size_t n = (size_t)MIN(
			(uint64_t)PART, (uint64_t)saved_pages_of(size) * SAVED_PAGE - at);

		if (read_pages(fd, m->names[file], part, n, at, size, err) < 0)
			return -1;
		for (size_t i = 0; i < n; i += SAVED_PAGE, (*number)++)
			if (!saved_page_is_zero(part + i)) /* else it is zeros already */
				saved_page_sum(part + i, m->sums[*number]);
	}
	return 0;
}

static int hash_all(struct saved_maker *m, struct den_err *err)
{
	auto_free uint8_t *part = mem_alloc(PART);
	uint64_t number = 0;

	if (m->sums)
		return 0;
	m->sums = calloc(m->n_pages ? m->n_pages : 1, SAVED_SUM);
	if (!m->sums)
		return den_fail_sys(err, ENOMEM, "compare pages");
	for (uint32_t i = 0; i < m->n_files; i++)
		if (hash_file(m, i, part, &number, err) < 0)
			return -1;
	return 0;
}

/* ---- what is worth it ---- */

static void weigh(struct offer *o)
{
	o->used = 0;
	o->number = 0;
	for (uint32_t f = 0; f < o->pack.n_frames; f++) {
		uint32_t from = f * SAVED_FRAME, n = MIN(SAVED_FRAME, o->pack.n_pages - from),
			 used = 0;

		for (uint32_t i = 0; i < n; i++)
			used += o->wanted[from + i];
		o->frame_in[f] = used * 2 >= n;
		o->used += o->frame_in[f] ? used : 0;
	}
	if ((uint64_t)o->used * 4 < o->pack.n_pages)
		o->used = 0;
}

static void choose(struct saved_maker *m, bool share)
{
	struct offer *best;

	for (uint64_t i = 0; share && i < m->n_pages; i++) {
		struct place *at = is_zero_sum(m->sums[i]) ? NULL : find(m, m->sums[i]);

		if (at && at->whose)
			m->offers[at->whose - 1].wanted[at->page] = 1;
	}
	for (uint32_t i = 0; i < m->n_offers; i++)
		weigh(&m->offers[i]);
	m->recipe.packs = mem_zalloc((size_t)SAVED_PACKS_MAX * SAVED_ID);
	do {
		best = NULL;
		for (uint32_t i = 0; i < m->n_offers; i++)
			if (!m->offers[i].number && m->offers[i].used &&
				(!best || m->offers[i].used > best->used))
				best = &m->offers[i];
		if (best) {
			memcpy(m->recipe.packs[m->recipe.n_packs], best->pack.id, SAVED_ID);
			best->number = ++m->recipe.n_packs;
		}
	} while (best && m->recipe.n_packs < SAVED_PACKS_MAX - 1);
}

/* ---- the pack of its own ---- */

static int own_begin(struct saved_maker *m, struct den_err *err)
{
	unlinkat(m->dirfd, MAKING, 0);
	m->own.fd = openat(m->dirfd, MAKING, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (m->own.fd < 0)
		return den_fail_sys(err, errno, "make '" MAKING "'");
	m->frame = mem_alloc(SAVED_FRAME_BYTES);
	m->packed = mem_alloc(ZSTD_compressBound(SAVED_FRAME_BYTES));
	m->z = ZSTD_createCCtx();
	return 0;
}

static int own_frame(struct saved_maker *m, struct den_err *err)
{
	size_t n = ZSTD_compressCCtx(m->z, m->packed, ZSTD_compressBound(SAVED_FRAME_BYTES),
		m->frame, (size_t)m->in_frame * SAVED_PAGE, LEVEL);

	if (ZSTD_isError(n))
		return den_fail(err, DEN_INTERNAL, 0, "compress: %s", ZSTD_getErrorName(n));
	m->own.ends =
		mem_realloc(m->own.ends, ((size_t)m->own.n_frames + 1) * sizeof(*m->own.ends));
	m->own.ends[m->own.n_frames] = n + (m->own.n_frames ? m->own.ends[m->own.n_frames - 1] : 0);
	m->own.n_frames++;
	m->in_frame = 0;
	return fd_write_all(m->own.fd, m->packed, n, err);
}

/* The page's number in it, in *ret. */
static int own_add(struct saved_maker *m, int fd, uint32_t file, uint32_t page,
	const uint8_t sum[static SAVED_SUM], uint32_t *ret, struct den_err *err)
{
	if (m->own.fd < 0 && own_begin(m, err) < 0)
		return -1;
	if (read_pages(fd, m->names[file], m->frame + (size_t)m->in_frame * SAVED_PAGE, SAVED_PAGE,
		    (uint64_t)page * SAVED_PAGE, m->sizes[file], err) < 0)
		return -1;
	if (m->own.n_pages == m->own_cap) {
		m->own_cap = m->own_cap ? m->own_cap * 2 : 1024;
		m->own.sums = mem_realloc(m->own.sums, (size_t)m->own_cap * SAVED_SUM);
	}
	memcpy(m->own.sums[m->own.n_pages], sum, SAVED_SUM);
	*ret = m->own.n_pages++;
	return ++m->in_frame == SAVED_FRAME ? own_frame(m, err) : 0;
}

static int own_end(struct saved_maker *m, struct den_err *err)
{
	char name[SAVED_PACK_NAME];
	auto_buf index = { 0 };
	struct sha256 h;

	if (m->own.fd < 0)
		return 0;
	if (m->in_frame && own_frame(m, err) < 0)
		return -1;
	saved_index_put(&m->own, &index);
	sha256_init(&h);
	sha256_add(&h, index.p, index.len - SAVED_TAIL);
	sha256_end(&h, m->own.id);
	saved_pack_name(m->own.id, name);
	if (fd_write_all(m->own.fd, index.p, index.len, err) < 0)
		return -1;
	if (fsync(m->own.fd) < 0 || renameat(m->dirfd, MAKING, m->dirfd, name) < 0)
		return den_fail_sys(err, errno, "write '%.60s'", name);
	memcpy(m->recipe.packs[m->recipe.n_packs++], m->own.id, SAVED_ID);
	return 0;
}

/* ---- the recipe ---- */

static void add_page(struct saved_recipe_file *f, uint32_t *cap, uint32_t pack, uint32_t page)
{
	struct saved_run *last = f->n_runs ? &f->runs[f->n_runs - 1] : NULL;

	if (last && last->pack == pack && (!pack || last->first + last->pages == page)) {
		last->pages++;
		return;
	}
	if (f->n_runs == *cap) {
		*cap = *cap ? *cap * 2 : 64;
		f->runs = mem_realloc(f->runs, *cap * sizeof(*f->runs));
	}
	f->runs[f->n_runs++] = (struct saved_run){ 1, pack, page };
}

static int make_file(struct saved_maker *m, uint32_t file, uint64_t *number, struct den_err *err)
{
	struct saved_recipe_file *f = &m->recipe.files[file];
	auto_fd fd = open_file(m, file, err);
	uint32_t cap = 0;

	f->size = m->sizes[file];
	for (uint32_t page = 0; fd >= 0 && page < saved_pages_of(f->size); page++, (*number)++) {
		const uint8_t *sum = m->sums[*number];
		struct place *at;
		uint32_t pack;

		if (is_zero_sum(sum)) {
			add_page(f, &cap, 0, 0);
			continue;
		}
		at = find(m, sum);
		if (!at->whose || (at->whose != OWN + 1 &&
					  (!m->offers[at->whose - 1].number ||
						  !m->offers[at->whose - 1]
							   .frame_in[at->page / SAVED_FRAME]))) {
			uint32_t mine;

			if (own_add(m, fd, file, page, sum, &mine, err) < 0)
				return -1;
			*at = (struct place){ OWN + 1, mine };
		}
		pack = at->whose == OWN + 1 ? m->recipe.n_packs + 1
					    : m->offers[at->whose - 1].number;
		add_page(f, &cap, pack, at->page);
	}
	return fd < 0 ? -1 : 0;
}

static int write_recipe(struct saved_maker *m, char ret[static 65], struct den_err *err)
{
	auto_buf text = { 0 };
	auto_fd fd = -1;
	struct sha256 h;

	saved_recipe_put(&m->recipe, &text);
	sha256_init(&h);
	sha256_add(&h, text.p, text.len);
	sha256_hex(&h, ret);
	unlinkat(m->dirfd, SAVED_RECIPE, 0);
	fd = openat(m->dirfd, SAVED_RECIPE, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return den_fail_sys(err, errno, "make '" SAVED_RECIPE "'");
	if (fd_write_all(fd, text.p, text.len, err) < 0)
		return -1;
	/* the directory, too: links to packs are as much a part of it */
	if (fsync(fd) < 0 || fsync(m->dirfd) < 0)
		return den_fail_sys(err, errno, "write '" SAVED_RECIPE "'");
	return 0;
}

/* As it was before saved_maker_run(); hashes and offers stay. */
static void begin_anew(struct saved_maker *m)
{
	saved_recipe_free(&m->recipe);
	saved_pack_close(&m->own);
	m->own_cap = m->in_frame = 0;
	free(m->frame);
	free(m->packed);
	ZSTD_freeCCtx(m->z);
	m->frame = m->packed = NULL;
	m->z = NULL;
	for (uint32_t i = 0; i < m->n_offers; i++) {
		memset(m->offers[i].wanted, 0, m->offers[i].pack.n_pages);
		m->offers[i].number = 0;
	}
}

int saved_maker_run(struct saved_maker *m, bool share, char ret[static 65], struct den_err *err)
{
	uint64_t number = 0;

	begin_anew(m);
	if (hash_all(m, err) < 0 || make_table(m, share, err) < 0)
		return -1;
	choose(m, share);
	m->recipe.files = mem_zalloc(MAX(m->n_files, 1U) * sizeof(*m->recipe.files));
	m->recipe.n_files = m->n_files;
	for (uint32_t i = 0; i < m->n_files; i++)
		if (make_file(m, i, &number, err) < 0)
			return -1;
	if (own_end(m, err) < 0 || write_recipe(m, ret, err) < 0)
		return -1;
	/* the files that this stands for are about to go: it is read back, and every page compared, first */
	return saved_pages_read(m->dirfd, &m->recipe, m->names, -1, err);
}
