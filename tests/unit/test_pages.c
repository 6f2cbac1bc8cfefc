/* The memory that den saves itself: the table of what is where, and those who copy it. */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "crew.h"
#include "fd.h"
#include "mem.h"
#include "pages.h"
#include "pages_fds.h"
#include "test.h"

static const struct piece some[] = {
	{ .pid = 3, .file = 0, .start = 0x10000, .pages = 4, .at = 0 },
	{ .pid = 3, .file = 1, .start = 0x40000, .pages = PIECE_PAGES, .at = 0x8000 },
	{ .pid = 9, .file = 0, .start = 0x10000, .pages = 1, .at = 0x4000 },
};

static int dir_open(void)
{
	int fd = open(test_dir(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	CHECK(fd >= 0);
	return fd;
}

TEST(pages_table_says_what_it_was_told)
{
	auto_fd dir = dir_open();
	auto_free struct piece *v = NULL;
	struct den_err err;
	size_t n = 9;

	CHECK(pages_table_read(dir, &v, &n, &err) == 0 && !v && n == 0); /* there is none */
	CHECK(pages_table_write(dir, some, ARRAY_SIZE(some), &err) == 0);
	CHECK(pages_table_read(dir, &v, &n, &err) == 0 && n == ARRAY_SIZE(some));
	CHECK(!memcmp(v, some, sizeof(some)));
}

/* Does the table with this piece as its second one read well? */
static bool reads_with(int dir, struct piece p)
{
	struct piece all[] = { some[0], p, some[2] }, *v = NULL;
	struct den_err err;
	size_t n = 0;
	int r;

	CHECK(pages_table_write(dir, all, ARRAY_SIZE(all), &err) == 0);
	r = pages_table_read(dir, &v, &n, &err);
	CHECK(r == 0 || (!v && err.code == DEN_UNSUPPORTED && strstr(err.msg, "damaged")));
	free(v);
	return r == 0;
}

TEST(pages_table_that_makes_no_sense_is_refused)
{
	auto_fd dir = dir_open();

	CHECK(reads_with(dir, (struct piece){ 1, 15, 0x1000, PIECE_PAGES, 0x7000 }));
	CHECK(!reads_with(dir, (struct piece){ 0, 0, 0x1000, 1, 0 }));
	CHECK(!reads_with(dir, (struct piece){ 1, PAGES_FILES_MAX, 0x1000, 1, 0 }));
	CHECK(!reads_with(dir, (struct piece){ 1, 0, 0x1001, 1, 0 }));
	CHECK(!reads_with(dir, (struct piece){ 1, 0, 0x1000, 0, 0 }));
	CHECK(!reads_with(dir, (struct piece){ 1, 0, 0x1000, PIECE_PAGES + 1, 0 }));
	CHECK(!reads_with(dir, (struct piece){ 1, 0, 0x1000, UINT64_MAX, 0 }));
	CHECK(!reads_with(dir, (struct piece){ 1, 0, 0x1000, 1, 0x10 }));
	CHECK(!reads_with(dir, (struct piece){ 1, 0, UINT64_MAX - 0xfff, 1, 0 }));
	CHECK(!reads_with(dir, (struct piece){ 1, 0, 0x1000, 1, UINT64_MAX - 0xfff }));
}

TEST(pages_table_that_is_cut_or_changed_is_refused)
{
	auto_fd dir = dir_open(), fd = -1;
	struct piece *v;
	struct den_err err;
	struct stat st;
	uint64_t count;
	size_t n;

	CHECK(pages_table_write(dir, some, ARRAY_SIZE(some), &err) == 0);
	fd = openat(dir, PAGES_FILE, O_RDWR | O_CLOEXEC);
	CHECK(fd >= 0 && fstat(fd, &st) == 0);
	for (off_t size = st.st_size - 1; size >= 0; size--) {
		CHECK(ftruncate(fd, size) == 0);
		CHECK(pages_table_read(dir, &v, &n, &err) < 0 && !v);
	}
	for (count = 0; count < 6; count++) {
		CHECK(pages_table_write(dir, some, ARRAY_SIZE(some), &err) == 0);
		CHECK(pwrite(fd, &count, sizeof(count), 8) == sizeof(count));
		CHECK((pages_table_read(dir, &v, &n, &err) == 0) == (count == ARRAY_SIZE(some)));
		free(v);
	}
	count = UINT64_MAX / sizeof(struct piece) + 1; /* times the size of a piece it is small */
	CHECK(pwrite(fd, &count, sizeof(count), 8) == sizeof(count));
	CHECK(pages_table_read(dir, &v, &n, &err) < 0 && !v);
}

static uint64_t sum(const struct piece *v, size_t n)
{
	uint64_t pages = 0;

	for (size_t i = 0; i < n; i++)
		pages += v[i].pages;
	return pages;
}

TEST(pages_that_criu_keeps_are_left_out)
{
	struct piece v[] = { some[2], some[0], some[1] };
	struct hide_page kept[] = { { 3, 0x11000 }, { 9, 0x10000 }, { 3, 0x11000 }, { 3, 0x40000 }, { 3, 0x13f000 - 0x10000 },
		{ 3, 0x39000 }, { 4, 0x10000 }, { 3, 0x40000 + (PIECE_PAGES - 1) * PAGE } };
	auto_free struct piece *out = NULL;
	size_t n;

	out = pages_leave_out(v, ARRAY_SIZE(v), kept, ARRAY_SIZE(kept), &n);
	/* of the first: its second page; of the second: first and last; the third altogether; 0x12f000 is in the second */
	CHECK(n == 4 && sum(out, n) == 4 - 1 + PIECE_PAGES - 3);
	CHECK(out[0].start == 0x10000 && out[0].pages == 1 && out[0].at == 0);
	CHECK(out[1].start == 0x12000 && out[1].pages == 2 && out[1].at == 0x2000);
	CHECK(out[2].start == 0x41000 && out[2].at == 0x9000 && out[2].file == 1);
	CHECK(out[3].start == 0x130000 && out[3].at == 0x8000 + 0xf0000);
}

TEST(pages_are_divided_into_parts_that_are_all_of_it)
{
	struct piece v[1000];
	auto_free size_t *begin = NULL;
	size_t n;

	for (size_t i = 0; i < ARRAY_SIZE(v); i++)
		v[i] = (struct piece){ .pages = i < 500 ? 1 : PIECE_PAGES };
	begin = pages_parts(v, ARRAY_SIZE(v), &n);
	CHECK(n >= 125 && n < 135 && begin[0] == 0 && begin[n] == ARRAY_SIZE(v));
	for (size_t i = 0; i < n; i++)
		CHECK(begin[i] < begin[i + 1]);
}

struct tally {
	_Atomic unsigned done[64];
	int fail_at;
};

static int count_part(void *user, size_t part, int who)
{
	struct tally *t = user;

	CHECK(who >= 0 && who < CREW_MAX);
	t->done[part]++;
	return (int)part == t->fail_at ? ENOSPC : 0;
}

static int sleep_part(void *user, size_t part, int who)
{
	(void)user;
	(void)part;
	(void)who;
	sleep(100);
	return 0;
}

static bool never(void *user)
{
	(void)user;
	return false;
}

static bool always(void *user)
{
	(void)user;
	return true;
}

TEST(crew_does_each_part_once_and_tells_what_failed)
{
	struct tally *t = mmap(NULL, sizeof(*t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct den_err err;
	struct crew c;

	CHECK(t != MAP_FAILED);
	t->fail_at = -1;
	CHECK(crew_start(&c, 64, CREW_MAX, true, count_part, t, &err) == 0);
	CHECK(crew_wait(&c, "count", &err) == 0);
	for (int i = 0; i < 64; i++)
		CHECK(t->done[i] == 1);
	t->fail_at = 40;
	CHECK(crew_start(&c, 64, 1, false, count_part, t, &err) == 0);
	CHECK(crew_wait(&c, "count", &err) < 0 && err.sys == ENOSPC && strstr(err.msg, "count"));
	t->fail_at = -1;
	CHECK(crew_start(&c, 64, CREW_MAX, true, count_part, t, &err) == 0);
	CHECK(crew_await(&c, never, NULL) && crew_wait(&c, "count", &err) == 0);
	CHECK(crew_start(&c, 2, CREW_MAX, true, sleep_part, t, &err) == 0);
	CHECK(!crew_await(&c, always, NULL));
	crew_end(&c);
	CHECK(waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD);
	munmap(t, sizeof(*t));
}
