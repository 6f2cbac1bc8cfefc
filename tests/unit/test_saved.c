/* What is kept of programs on disk: written, sealed, verified, refused, removed. */
#include "test.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fd.h"
#include "mem.h"
#include "saved.h"
#include "saved_manifest.h"
#include "saved_size.h"

static const struct box_id box = { "b-aaaaaaaaaaaaaaaaaa" }, other = { "b-bbbbbbbbbbbbbbbbbb" };

static struct store *open_state(void)
{
	struct store *s = NULL;
	struct den_err err;
	char path[300];

	snprintf(path, sizeof(path), "%s/state", test_dir());
	CHECK(store_open(path, true, &s, &err) == 0);
	return s;
}

static void put(int dir, const char *name, size_t n)
{
	auto_fd fd = openat(dir, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	auto_free char *bytes = mem_alloc(n + 1);

	for (size_t i = 0; i < n; i++)
		bytes[i] = (char)(i / 64);
	CHECK(fd_write_all(fd, bytes, n, NULL) == 0);
}

static void save_as(struct store *s, uint64_t n, bool passing)
{
	struct saved_about about = { .wall = (char *)"container",
		.runtime = (char *)"criu 4",
		.template = (char *)"host 1",
		.ids = 1,
		.generation = 3,
		.passing = passing };
	struct den_err err;
	uint64_t bytes = 0;
	auto_fd dir = -1;

	CHECK(saved_begin(s, &box, n, &dir, &err) == 0);
	put(dir, "pages-1.img", 300000);
	put(dir, "core-1.img", 2000);
	CHECK(saved_commit(s, &box, n, dir, &about, &bytes, &err) == 0 && bytes == 302000);
}

static void save(struct store *s, uint64_t n)
{
	save_as(s, n, false);
}

/* All that was saved is there, of its size, in a directory that a wall may read. */
static bool loads(struct store *s, const struct box_id *id, uint64_t n, struct den_err *err)
{
	auto_saved v = SAVED_NONE;
	struct stat st;

	if (saved_open(s, id, n, &v, err) < 0)
		return false;
	return v.n_files == 2 && v.bytes == 302000 && v.about.generation == 3 &&
	       !strcmp(v.about.runtime, "criu 4") && fstatat(v.dirfd, "pages-1.img", &st, 0) == 0 &&
	       st.st_size == 300000 && fstatat(v.dirfd, "core-1.img", &st, 0) == 0 &&
	       st.st_size == 2000;
}

static int flip(struct store *s, const char *path)
{
	auto_fd fd = openat(s->fd, path, O_RDWR | O_CLOEXEC);
	char c;

	if (fd < 0 || pread(fd, &c, 1, 100) != 1)
		return -1;
	c ^= 1;
	return pwrite(fd, &c, 1, 100) == 1 ? 0 : -1;
}

TEST(saved_is_loaded_as_it_was_written)
{
	struct store *s = open_state();
	struct den_err err;
	struct stat st;

	save(s, 4);
	CHECK(loads(s, &box, 4, &err));
	CHECK(!loads(s, &box, 5, &err) && err.code == DEN_NOT_FOUND);
	CHECK(saved_seal(s, &box, 4, false, &err) == 0 && loads(s, &box, 4, &err));
	/* packed: the large one alone, and it comes back for each load */
	CHECK(saved_seal(s, &box, 4, true, &err) == 0);
	CHECK(fstatat(s->fd, "memory/b-aaaaaaaaaaaaaaaaaa/4/pages-1.img", &st, 0) < 0);
	CHECK(fstatat(s->fd, "memory/b-aaaaaaaaaaaaaaaaaa/4/.pages", &st, 0) == 0 && st.st_size < 10000);
	CHECK(fstatat(s->fd, "memory/b-aaaaaaaaaaaaaaaaaa/4/core-1.img", &st, 0) == 0);
	CHECK(loads(s, &box, 4, &err) && loads(s, &box, 4, &err));
	/* under another box's number, also when the first is gone */
	CHECK(saved_share(s, &box, 4, &other, 0, &err) == 0);
	saved_remove(s, &box, 4);
	CHECK(!loads(s, &box, 4, &err) && loads(s, &other, 0, &err));
	store_close(s);
}

TEST(saved_that_changed_is_refused)
{
	struct store *s = open_state();
	struct den_err err;

	save(s, 1);
	CHECK(saved_seal(s, &box, 1, false, &err) == 0);
	CHECK(flip(s, "memory/b-aaaaaaaaaaaaaaaaaa/1/pages-1.img") == 0);
	CHECK(!loads(s, &box, 1, &err) && err.code == DEN_UNSUPPORTED &&
		strstr(err.msg, "damaged"));
	save(s, 2);
	CHECK(saved_seal(s, &box, 2, true, &err) == 0);
	CHECK(flip(s, "memory/b-aaaaaaaaaaaaaaaaaa/2/.pages") == 0);
	CHECK(!loads(s, &box, 2, &err) && strstr(err.msg, "damaged"));
	save(s, 3);
	CHECK(unlinkat(s->fd, "memory/b-aaaaaaaaaaaaaaaaaa/3/core-1.img", 0) == 0);
	CHECK(!loads(s, &box, 3, &err) && strstr(err.msg, "damaged"));
	store_close(s);
}

TEST(saved_for_a_moment_is_worth_nothing_after_the_next_start_of_the_host)
{
	struct store *s = open_state();
	auto_saved v = SAVED_NONE;
	struct den_err err;

	save_as(s, 1, true);
	CHECK(loads(s, &box, 1, &err));
	CHECK(saved_share(s, &box, 1, &other, 0, &err) == 0); /* what is made of it lasts */
	CHECK(saved_look(s, &other, 0, &v, &err) == 0 && !v.about.passing);
	saved_close(&v);
	v = (struct saved)SAVED_NONE;
	CHECK(saved_look(s, &box, 1, &v, &err) == 0 && v.about.passing);
	snprintf(v.boot, sizeof(v.boot), "another");
	CHECK(saved_manifest_write(v.lock, &v, &err) == 0);
	CHECK(!loads(s, &box, 1, &err) && err.code == DEN_UNSUPPORTED && strstr(err.msg, "moment"));
	CHECK(loads(s, &other, 0, &err));
	store_close(s);
}

TEST(saved_fits_where_it_was_made_and_nowhere_else)
{
	const struct saved_about then = { .wall = (char *)"container",
		.runtime = (char *)"criu 4",
		.template = (char *)"host 1",
		.kernel = (char *)"6.1.0",
		.machine = (char *)"x86_64",
		.cpu = (char *)"fpu sse avx",
		.ids = 1 };
	struct saved_about now = then, by = then;
	struct den_err err;

	CHECK(saved_fits(&then, &now, &err) == 0);
	now.kernel = (char *)"6.12.3";
	now.cpu = (char *)"avx512 avx fpu sse";
	now.runtime = NULL;
	CHECK(saved_fits(&then, &now, &err) == 0);
	now.cpu = (char *)"fpu sse avx2";
	CHECK(saved_fits(&then, &now, &err) < 0 && err.code == DEN_UNSUPPORTED &&
		strstr(err.msg, "'avx'"));
	now = then;
	now.kernel = (char *)"7.0.0";
	CHECK(saved_fits(&then, &now, &err) < 0 && strstr(err.msg, "Linux"));
	now = then;
	now.machine = (char *)"aarch64";
	CHECK(saved_fits(&then, &now, &err) < 0);
	now = then;
	now.wall = (char *)"gvisor";
	CHECK(saved_fits(&then, &now, &err) < 0 && strstr(err.msg, "wall"));
	now = then;
	now.runtime = (char *)"criu 3.19";
	CHECK(saved_fits(&then, &now, &err) < 0 && err.code == DEN_UNSUPPORTED && strstr(err.msg, "criu 3.19"));
	now.runtime = (char *)"criu 5"; /* a newer one reads what an older one wrote */
	CHECK(saved_fits(&then, &now, &err) == 0);
	by.runtime = (char *)"criu 4.10";
	now.runtime = (char *)"criu 4.9";
	CHECK(saved_fits(&by, &now, &err) < 0);
	now.runtime = (char *)"criu 4.10.1";
	CHECK(saved_fits(&by, &now, &err) == 0);
	by.runtime = (char *)"runsc 4";
	CHECK(saved_fits(&by, &now, &err) < 0);
	by.runtime = (char *)"unknown";
	CHECK(saved_fits(&by, &now, &err) == 0);
	now = then;
	now.template = (char *)"host 2";
	CHECK(saved_fits(&then, &now, &err) < 0 && strstr(err.msg, "template"));
	now = then;
	now.ids = 2;
	CHECK(saved_fits(&then, &now, &err) < 0);
}

TEST(saved_manifest_cut_or_changed_anywhere_is_refused)
{
	struct store *s = open_state();
	auto_free char *text = NULL;
	auto_fd fd = -1;
	struct den_err err;
	size_t n;

	save(s, 1);
	fd = openat(s->fd, "memory/b-aaaaaaaaaaaaaaaaaa/1/manifest", O_RDONLY | O_CLOEXEC);
	CHECK(fd >= 0 && fd_read_all(fd, 1 << 20, &text, &n, &err) == 0);
	for (size_t i = 0; i + 1 < n; i++) {
		auto_free char *cut = mem_strndup(text, i), *other_text = mem_strndup(text, n);
		auto_saved a = SAVED_NONE, b = SAVED_NONE;

		/* the last line's end is not needed */
		CHECK(saved_manifest_parse(cut, &a, &err) < 0);
		other_text[i] ^= 1;
		CHECK(saved_manifest_parse(other_text, &b, &err) < 0);
	}
	store_close(s);
}

TEST(saved_goes_while_it_is_not_read)
{
	struct saved v = SAVED_NONE;
	struct store *s = open_state();
	struct den_err err;
	int dir = -1;

	save(s, 1);
	save(s, 2);
	CHECK(saved_begin(s, &box, 3, &dir, &err) == 0); /* never finished */
	close(dir);
	CHECK(saved_open(s, &box, 1, &v, &err) == 0);
	saved_remove_but(
		s, &box, NULL, NULL); /* does not wait for the reader, who keeps what it has */
	CHECK(!loads(s, &box, 1, &err) && err.code == DEN_NOT_FOUND && !loads(s, &box, 2, &err));
	CHECK(faccessat(s->fd, "memory/b-aaaaaaaaaaaaaaaaaa/.3", F_OK, 0) < 0);
	CHECK(faccessat(v.dirfd, "pages-1.img", R_OK, 0) == 0);
	saved_close(&v); /* the last one takes it along; the box is not there, so all of it */
	CHECK(faccessat(s->fd, "memory/b-aaaaaaaaaaaaaaaaaa", F_OK, 0) < 0);
	store_close(s);
}

TEST(saved_disk_counts_blocks_and_what_is_shared_once)
{
	struct store *s = open_state();
	auto_saved_seen seen = { 0 };
	struct den_err err;
	uint64_t one, both;

	CHECK(saved_disk(s, &box, NULL) == 0);
	save_as(s, 1, false);
	one = saved_disk(s, &box, NULL);
	CHECK(one > 0);
	CHECK(saved_share(s, &box, 1, &other, 0, &err) == 0);
	CHECK(saved_disk(s, &other, NULL) > 0);
	both = saved_disk(s, &box, &seen) + saved_disk(s, &other, &seen);
	CHECK(both >= one && both < one + saved_disk(s, &other, NULL));
	saved_remove_but(s, &box, NULL, NULL);
	CHECK(saved_disk(s, &box, NULL) == 0);
	CHECK(saved_disk(s, &other, NULL) > 0);
	store_close(s);
}
