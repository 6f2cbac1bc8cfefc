/* Pages that checkpoints of one box share: made, read back, removed in any order, damaged, not hard-linkable. */
#include "test.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zstd.h>

#include "fd.h"
#include "mem.h"
#include "saved.h"
#include "saved_manifest.h"
#include "saved_pages.h"
#include "sha256.h"

#define PAGES 1000U
#define TAIL 777U /* the last page is not a whole one */
#define BYTES ((size_t)PAGES * SAVED_PAGE + TAIL)
#define DIR_OF "memory/b-aaaaaaaaaaaaaaaaaa/"

static const struct box_id box = { "b-aaaaaaaaaaaaaaaaaa" }, other = { "b-bbbbbbbbbbbbbbbbbb" };

/* What a checkpoint has: `version` of each page; 0 is a page of zeros. */
struct memory {
	uint32_t version[PAGES + 1];
};

static void fill(uint8_t *page, uint32_t version, uint32_t number)
{
	uint64_t x = ((uint64_t)version << 32 | number) * 0x9e3779b97f4a7c15ULL + 1;

	memset(page, 0, SAVED_PAGE);
	for (size_t i = 0; version && i < SAVED_PAGE / 2; i++) { /* half of it is noise */
		x ^= x << 13, x ^= x >> 7, x ^= x << 17;
		page[i] = (uint8_t)x;
	}
}

static uint8_t *bytes_of(const struct memory *m)
{
	uint8_t *all = mem_alloc((size_t)(PAGES + 1) * SAVED_PAGE);

	for (uint32_t i = 0; i <= PAGES; i++)
		fill(all + (size_t)i * SAVED_PAGE, m->version[i], i);
	return all;
}

static struct store *open_state(void)
{
	struct store *s = NULL;
	struct den_err err;
	char path[300];

	snprintf(path, sizeof(path), "%s/state", test_dir());
	CHECK(store_open(path, true, &s, &err) == 0);
	CHECK(mkdirat(s->fd, "boxes/b-aaaaaaaaaaaaaaaaaa", 0700) == 0);
	return s;
}

static void put(int dir, const char *name, const void *p, size_t n)
{
	auto_fd fd = openat(dir, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	CHECK(fd >= 0 && fd_write_all(fd, p, n, NULL) == 0);
}

static void save(struct store *s, uint64_t n, const struct memory *m, bool seal)
{
	struct saved_about about = { .wall = (char *)"container",
		.runtime = (char *)"criu 4",
		.template = (char *)"host 1" };
	auto_free uint8_t *all = bytes_of(m);
	struct den_err err;
	uint64_t bytes;
	auto_fd dir = -1;

	CHECK(saved_begin(s, &box, n, &dir, &err) == 0);
	put(dir, "pages-1.img", all, BYTES);
	put(dir, "pages-2.img", all, 20 * SAVED_PAGE); /* has them all in the other one */
	put(dir, "core-1.img", all, 100);
	CHECK(saved_commit(s, &box, n, dir, &about, &bytes, &err) == 0);
	CHECK(!seal || saved_seal(s, &box, n, true, &err) == 0);
}

static bool is_there(int dir, const char *name, const uint8_t *p, size_t n)
{
	auto_fd fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
	auto_free char *have = NULL;
	size_t len = 0;

	return fd >= 0 && fd_read_all(fd, BYTES + 1, &have, &len, NULL) == 0 && len == n &&
	       !memcmp(have, p, n);
}

static bool loads_of(struct store *s, const struct box_id *id, uint64_t n, const struct memory *m,
	struct den_err *err)
{
	auto_free uint8_t *all = bytes_of(m);
	auto_saved v = SAVED_NONE;

	return saved_open(s, id, n, &v, err) == 0 && is_there(v.dirfd, "pages-1.img", all, BYTES) &&
	       is_there(v.dirfd, "pages-2.img", all, 20 * SAVED_PAGE) &&
	       is_there(v.dirfd, "core-1.img", all, 100);
}

static bool loads(struct store *s, uint64_t n, const struct memory *m)
{
	struct den_err err;

	return loads_of(s, &box, n, m, &err);
}

/* How many files N has whose names begin so, and the size of those that nobody else has. */
static unsigned count(struct store *s, uint64_t n, const char *prefix, uint64_t *own)
{
	char path[96];
	struct dirent *de;
	unsigned found = 0;
	int fd;
	DIR *d;

	snprintf(path, sizeof(path), DIR_OF "%llu", (unsigned long long)n);
	fd = openat(s->fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	d = fd >= 0 ? fdopendir(fd) : NULL;
	if (own)
		*own = 0;
	while (d && (de = readdir(d))) {
		struct stat st;

		if (strncmp(de->d_name, prefix, strlen(prefix)) ||
			fstatat(dirfd(d), de->d_name, &st, 0) < 0)
			continue;
		found++;
		if (own && st.st_nlink == 1)
			*own += (uint64_t)st.st_size;
	}
	if (d)
		closedir(d);
	return found;
}

static void first(struct memory *m)
{
	for (uint32_t i = 0; i <= PAGES; i++)
		m->version[i] = i % 10 ? 1 : 0;
}

TEST(saved_pages_are_shared_between_checkpoints_and_go_in_any_order)
{
	static const int orders[][4] = { { 0, 1, 2, 3 }, { 3, 2, 1, 0 }, { 1, 3, 0, 2 } };
	struct store *s = open_state();

	for (size_t o = 0; o < ARRAY_SIZE(orders); o++) {
		struct memory m[4];
		uint64_t own;

		first(&m[0]);
		save(s, 0, &m[0], true);
		for (uint32_t i = 1; i < 4; i++) {
			m[i] = m[i - 1];
			for (uint32_t j = 0; j < 10; j++)
				m[i].version[(i * 331 + j * 97) % (PAGES + 1)] = i + 1;
			save(s, i, &m[i], true);
			/* a pack of its own with ten pages, and links to those before */
			CHECK(count(s, i, ".pack-", &own) == i + 1 && own < 40000 && own > 10000);
			CHECK(count(s, i, "pages-", NULL) == 0 && count(s, i, ".", NULL) == i + 4);
		}
		for (uint32_t i = 0; i < 4; i++) {
			for (uint32_t j = i; j < 4; j++)
				CHECK(loads(s, (uint64_t)orders[o][j], &m[orders[o][j]]));
			saved_remove(s, &box, (uint64_t)orders[o][i]);
			CHECK(!loads(s, (uint64_t)orders[o][i], &m[orders[o][i]]));
		}
		CHECK(unlinkat(s->fd, DIR_OF, AT_REMOVEDIR) == 0); /* nothing stays */
	}
	store_close(s);
}

TEST(saved_pages_go_along_to_another_box)
{
	struct store *s = open_state();
	struct memory a, b;
	struct den_err err;

	first(&a);
	b = a;
	b.version[5] = 7;
	save(s, 1, &a, true);
	save(s, 2, &b, true);
	CHECK(saved_share(s, &box, 2, &other, 0, &err) == 0);
	saved_remove_but(s, &box, NULL, NULL);
	CHECK(faccessat(s->fd, DIR_OF, F_OK, 0) < 0 && loads_of(s, &other, 0, &b, &err));
	store_close(s);
}

TEST(saved_pages_in_another_order_are_shared_too)
{
	struct store *s = open_state();
	auto_free uint8_t *all = NULL, *turned = mem_alloc(BYTES);
	struct saved_about about = {
		.wall = (char *)"w", .runtime = (char *)"r", .template = (char *)"t"
	};
	auto_saved v = SAVED_NONE;
	struct memory m;
	struct den_err err;
	uint64_t own, bytes;
	auto_fd dir = -1;

	first(&m);
	all = bytes_of(&m);
	save(s, 1, &m, true);
	for (uint32_t i = 0; i < PAGES; i++)
		memcpy(turned + (size_t)i * SAVED_PAGE, all + (size_t)(i * 7 % PAGES) * SAVED_PAGE,
			SAVED_PAGE);
	memcpy(turned + (size_t)PAGES * SAVED_PAGE, all + (size_t)PAGES * SAVED_PAGE, TAIL);
	CHECK(saved_begin(s, &box, 2, &dir, &err) == 0);
	put(dir, "pages.img", turned, BYTES);
	CHECK(saved_commit(s, &box, 2, dir, &about, &bytes, &err) == 0);
	CHECK(saved_seal(s, &box, 2, true, &err) == 0);
	CHECK(count(s, 2, ".pack-", &own) == 1 && own == 0);
	CHECK(saved_open(s, &box, 2, &v, &err) == 0 &&
		is_there(v.dirfd, "pages.img", turned, BYTES));
	saved_close(&v);
	store_close(s);
}

/* However often something changes: the number of packs is bounded, so is what they hold that nobody needs. */
TEST(saved_packs_of_one_checkpoint_stay_few)
{
	struct store *s = open_state();
	struct memory m;

	first(&m);
	for (uint32_t i = 0; i < 60; i++) {
		uint64_t own;

		for (uint32_t j = 0; i && j < 40; j++)
			m.version[(i * 53 + j * 25) % (PAGES + 1)] = i + 1;
		save(s, i, &m, true);
		CHECK(count(s, i, ".pack-", &own) <= SAVED_PACKS_MAX && loads(s, i, &m));
		/* 41 pages and now and then those of packs that are not worth it; never all that often */
		CHECK(!i || own < 600 * 2200);
		if (i >= 3)
			saved_remove(s, &box, i - 3);
	}
	store_close(s);
}

TEST(saved_packs_of_which_little_is_wanted_are_left_alone)
{
	struct store *s = open_state();
	struct memory a, b;
	uint64_t own;

	first(&a);
	b = a;
	for (uint32_t i = 0; i < 800; i++) /* a fifth is as it was: less than is worth it */
		b.version[i] = 9;
	save(s, 1, &a, true);
	save(s, 2, &b, true);
	CHECK(count(s, 2, ".pack-", &own) == 1 && own > 0);
	for (uint32_t i = 400; i < 800; i++) /* most is, but of the first frames one page each */
		b.version[i] = 1;
	b.version[64] = b.version[128] = 1;
	save(s, 3, &b, true);
	CHECK(count(s, 3, ".pack-", NULL) <= 3 && loads(s, 2, &b) == false && loads(s, 3, &b));
	store_close(s);
}

/* Damages a byte in each part of a file in turn: none of the checkpoints may load anything else than what was saved. */
static void hurt(struct store *s, const char *path, const struct memory *m, uint64_t n, bool must)
{
	auto_fd fd = openat(s->fd, path, O_RDWR | O_CLOEXEC);
	struct stat st;

	CHECK(fd >= 0 && fstat(fd, &st) == 0);
	for (off_t at = 0; at < st.st_size; at += 1 + st.st_size / 37) {
		struct den_err err;
		uint8_t c, bad;

		CHECK(pread(fd, &c, 1, at) == 1);
		bad = c ^ 0x10;
		CHECK(pwrite(fd, &bad, 1, at) == 1);
		if (loads_of(s, &box, n, m, &err))
			CHECK(!must);
		else
			CHECK(err.code == DEN_UNSUPPORTED && strstr(err.msg, "damaged"));
		CHECK(pwrite(fd, &c, 1, at) == 1);
	}
	CHECK(loads(s, n, m));
}

TEST(saved_pages_that_are_damaged_are_refused_by_all_that_have_them)
{
	struct store *s = open_state();
	struct memory a, b;
	struct dirent *de;
	char path[300];
	int fd;
	DIR *d;

	for (uint32_t i = 0; i <= PAGES; i++)
		a.version[i] = 1;
	b = a;
	b.version[3] = 2;
	save(s, 1, &a, true);
	save(s, 2, &b, true);
	hurt(s, DIR_OF "1/.pages", &a, 1, true);
	fd = openat(s->fd, DIR_OF "2", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	d = fdopendir(fd);
	while ((de = readdir(d))) {
		struct stat st;

		if (strncmp(de->d_name, ".pack-", 6))
			continue;
		snprintf(path, sizeof(path), DIR_OF "2/%s", de->d_name);
		CHECK(fstatat(s->fd, path, &st, 0) == 0);
		/* page 3 of the first pack is wanted by 1 alone: bytes of it need not hurt 2 */
		hurt(s, path, &b, 2, st.st_nlink == 1);
		if (st.st_nlink == 2)
			hurt(s, path, &a, 1, true);
	}
	closedir(d);
	store_close(s);
}

/* One that is damaged is not referred to: whoever comes later is whole. */
TEST(saved_pages_that_are_damaged_are_not_shared)
{
	struct store *s = open_state();
	struct memory a, b;
	struct dirent *de;
	char path[300];
	int fd;
	DIR *d;

	first(&a);
	b = a;
	b.version[5] = 3;
	save(s, 1, &a, true);
	fd = openat(s->fd, DIR_OF "1", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	d = fdopendir(fd);
	while ((de = readdir(d)))
		if (!strncmp(de->d_name, ".pack-", 6)) {
			auto_fd pack = -1;

			snprintf(path, sizeof(path), DIR_OF "1/%s", de->d_name);
			pack = openat(s->fd, path, O_WRONLY | O_CLOEXEC);
			CHECK(pwrite(pack, "hurt", 4, 5000) == 4);
		}
	closedir(d);
	CHECK(!loads(s, 1, &a));
	save(s, 2, &b, true);
	CHECK(loads(s, 2, &b) && count(s, 2, ".pack-", NULL) == 1);
	store_close(s);
}

/* As it was written by den before: whole files, format 1. */
TEST(saved_files_that_were_compressed_as_wholes_are_read)
{
	struct store *s = open_state();
	auto_saved v = SAVED_NONE;
	auto_free uint8_t *all = NULL;
	auto_free char *packed = mem_alloc(ZSTD_compressBound(BYTES));
	struct memory m;
	struct den_err err;
	auto_fd dir = -1;
	size_t n;

	first(&m);
	all = bytes_of(&m);
	save(s, 1, &m, false);
	CHECK(saved_seal(s, &box, 1, false, &err) == 0 && saved_look(s, &box, 1, &v, &err) == 0);
	dir = openat(s->fd, DIR_OF "1", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	n = ZSTD_compress(packed, ZSTD_compressBound(BYTES), all, BYTES, 1);
	put(dir, "pages-1.img.zst", packed, n);
	CHECK(unlinkat(dir, "pages-1.img", 0) == 0);
	for (size_t i = 0; i < v.n_files; i++)
		if (!strcmp(v.files[i].name, "pages-1.img"))
			v.files[i].how = SAVED_WHOLE;
	CHECK(saved_manifest_write(dir, &v, &err) == 0);
	CHECK(loads(s, 1, &m));
	/* it stays so, and others do not mind */
	CHECK(saved_seal(s, &box, 1, false, &err) == 0 && loads(s, 1, &m));
	save(s, 2, &m, true);
	CHECK(loads(s, 2, &m) && loads(s, 1, &m));
	store_close(s);
}

TEST(saved_that_is_killed_while_it_is_sealed_is_whole_before_and_after)
{
	struct store *s = open_state();
	struct memory m, next;
	struct den_err err;

	first(&m);
	next = m;
	next.version[1] = 2;
	save(s, 1, &m, true);
	for (useconds_t us = 0; us < 40000; us += 1500) {
		pid_t pid;

		save(s, 2, &next, false);
		pid = fork();
		if (pid == 0) {
			(void)saved_seal(s, &box, 2, true, &err);
			_exit(0);
		}
		usleep(us);
		kill(pid, SIGKILL);
		CHECK(waitpid(pid, NULL, 0) == pid);
		CHECK(loads(s, 1, &m) && loads(s, 2, &next));
		/* and can be sealed again; nothing stays that is not needed */
		CHECK(saved_seal(s, &box, 2, true, &err) == 0 && loads(s, 2, &next));
		CHECK(count(s, 2, ".pack-", NULL) == 2 && count(s, 2, ".", NULL) == 5 &&
			count(s, 2, "", NULL) == 7);
		saved_remove(s, &box, 2);
	}
	store_close(s);
}

TEST(saved_that_nobody_sealed_is_sealed_with_the_next)
{
	static const struct timespec old[2] = { { .tv_sec = 1000 }, { .tv_sec = 1000 } };
	struct store *s = open_state();
	struct memory m;

	first(&m);
	save(s, 1, &m, false);
	save(s, 2, &m, false);
	CHECK(utimensat(s->fd, DIR_OF "1/manifest", old, 0) == 0);
	save(s, 3, &m, true);
	CHECK(count(s, 1, ".pages", NULL) ==
		1); /* it is a minute old: who was to do it is not there */
	CHECK(count(s, 2, ".pages", NULL) == 0);
	CHECK(loads(s, 1, &m) && loads(s, 2, &m) && loads(s, 3, &m));
	store_close(s);
}

static void example(struct buf *recipe, struct buf *index)
{
	uint8_t ids[2][SAVED_ID] = { { 1 }, { 2 } }, sums[70][SAVED_SUM] = { { 3 } };
	struct saved_run runs[] = { { 2, 1, 5 }, { 1, 0, 0 }, { 1, 2, 0 } },
			 more[] = { { 1, 2, 7 } };
	struct saved_recipe_file files[] = { { 4 * SAVED_PAGE - 5, runs, 3 }, { 10, more, 1 } };
	struct saved_recipe r = { ids, 2, files, 2 };
	uint64_t ends[] = { 1000, 1100 };
	struct saved_pack p = {
		.sums = sums, .ends = ends, .n_pages = 70, .n_frames = 2, .fd = -1
	};

	saved_recipe_put(&r, recipe);
	saved_index_put(&p, index);
}

TEST(saved_recipe_and_index_that_are_not_well_formed_are_refused)
{
	auto_buf recipe = { 0 }, index = { 0 };
	struct den_err err;
	size_t n;

	example(&recipe, &index);
	n = index.len - SAVED_TAIL;
	for (size_t cut = 0; cut <= recipe.len; cut++) {
		auto_recipe r = { 0 };

		CHECK((saved_recipe_parse(recipe.p, cut, &r, &err) == 0) == (cut == recipe.len));
	}
	for (size_t cut = 0; cut <= n; cut++) {
		struct saved_pack p = SAVED_PACK_NONE;

		CHECK((saved_index_parse(index.p, cut, 1100, &p, &err) == 0) == (cut == n));
		saved_pack_close(&p);
	}
	/* of each byte: a wild value must be refused or harmless, which the sanitizers say */
	for (size_t i = 0; i < recipe.len; i++) {
		char was = recipe.p[i];
		auto_recipe r = { 0 };

		recipe.p[i] = (char)0xff;
		if (saved_recipe_parse(recipe.p, recipe.len, &r, &err) == 0)
			CHECK((i >= 16 && i < 80) || r.files[0].n_runs == 3);
		recipe.p[i] = was;
	}
	for (size_t i = 0; i < 16; i++) {
		struct saved_pack p = SAVED_PACK_NONE;
		char was = index.p[i];

		index.p[i] ^= 0x41;
		CHECK(saved_index_parse(index.p, n, 1100, &p, &err) < 0);
		index.p[i] = was;
	}
	{
		struct saved_pack p = SAVED_PACK_NONE;

		CHECK(saved_index_parse(index.p, n, 1101, &p, &err) <
			0); /* frames are not all of it */
	}
}

/* The manifest's word for it, whatever the recipe wants: pages that a pack does not have. */
TEST(saved_recipe_that_wants_what_a_pack_does_not_have_is_refused)
{
	struct store *s = open_state();
	auto_saved v = SAVED_NONE;
	auto_recipe r = { 0 };
	auto_buf text = { 0 };
	struct memory m;
	struct den_err err;
	struct sha256 h;
	auto_fd dir = -1;

	for (uint32_t i = 0; i <= PAGES; i++)
		m.version[i] = 1;
	save(s, 1, &m, true);
	CHECK(saved_look(s, &box, 1, &v, &err) == 0);
	dir = openat(s->fd, DIR_OF "1", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	CHECK(saved_recipe_read(dir, v.recipe, &r, &err) == 0);
	r.files[0].runs[0].first += 5; /* beyond the end by as much */
	saved_recipe_put(&r, &text);
	CHECK(unlinkat(dir, ".pages", 0) == 0);
	put(dir, ".pages", text.p, text.len);
	sha256_init(&h);
	sha256_add(&h, text.p, text.len);
	sha256_hex(&h, v.recipe);
	CHECK(saved_manifest_write(dir, &v, &err) == 0);
	CHECK(!loads_of(s, &box, 1, &m, &err) && err.code == DEN_UNSUPPORTED &&
		strstr(err.msg, "damaged"));
	store_close(s);
}

/* Of what cannot be changed no link can be made, as on a file system without them. */
static bool fix(struct store *s, uint64_t n, bool on)
{
	char path[96];
	struct dirent *de;
	bool done = true;
	int fd;
	DIR *d;

	snprintf(path, sizeof(path), DIR_OF "%llu", (unsigned long long)n);
	fd = openat(s->fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	d = fdopendir(fd);
	while ((de = readdir(d))) {
		auto_fd file = openat(dirfd(d), de->d_name, O_RDONLY | O_CLOEXEC);
		int flags = 0;

		if (!strcmp(de->d_name, ".") || !strcmp(de->d_name, "..") ||
			!strcmp(de->d_name, "manifest"))
			continue;
		done &= ioctl(file, FS_IOC_GETFLAGS, &flags) == 0;
		flags = on ? flags | FS_IMMUTABLE_FL : flags & ~FS_IMMUTABLE_FL;
		done &= ioctl(file, FS_IOC_SETFLAGS, &flags) == 0;
	}
	closedir(d);
	return done;
}

TEST(saved_pages_stand_alone_where_there_are_no_links)
{
	struct store *s = open_state();
	struct memory a, b;
	struct den_err err;
	bool right;

	first(&a);
	b = a;
	b.version[7] = 2;
	save(s, 1, &a, true);
	if (!fix(s, 1, true)) {
		(void)fix(s, 1, false);
		SKIP("files cannot be made immutable here (root, and a file system that can)");
	}
	save(s, 2, &b, true);
	right = count(s, 2, ".pack-", NULL) == 1 && loads(s, 2, &b) && loads(s, 1, &a) &&
		saved_share(s, &box, 1, &other, 0, &err) == 0 && loads_of(s, &other, 0, &a, &err);
	CHECK(fix(s, 1, false) && right); /* else the test's directory could not be removed */
	saved_remove(s, &box, 1);
	CHECK(loads(s, 2, &b) && loads_of(s, &other, 0, &a, &err));
	store_close(s);
}

TEST(saved_that_is_being_read_is_packed_when_that_is_over)
{
	struct store *s = open_state();
	auto_saved v = SAVED_NONE;
	struct memory m;
	struct den_err err;
	pid_t pid;

	first(&m);
	save(s, 1, &m, false);
	CHECK(saved_open(s, &box, 1, &v, &err) == 0);
	pid = fork();
	if (pid == 0) {
		fd_close(&v.dirfd); /* they hold the reader's lock as well */
		fd_close(&v.lock);
		_exit(saved_seal(s, &box, 1, true, &err) < 0);
	}
	for (int i = 0; i < 200 && !count(s, 1, ".pages", NULL); i++)
		usleep(20000);
	CHECK(count(s, 1, "pages-", NULL) == 2); /* the reader's files are there */
	saved_close(&v);
	CHECK(waitpid(pid, NULL, 0) == pid && count(s, 1, "pages-", NULL) == 0 && loads(s, 1, &m));
	store_close(s);
}
