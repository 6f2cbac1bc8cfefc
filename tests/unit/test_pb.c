/* Protocol buffers, and what den changes in CRIU's images. */
#include <fcntl.h>

#include "fd.h"
#include "images.h"
#include "mem.h"
#include "pb.h"
#include "test.h"

TEST(pb_what_is_written_is_read)
{
	static const uint64_t numbers[] = { 0, 1, 127, 128, 16383, 16384, UINT32_MAX, INT64_MAX, UINT64_MAX };
	auto_buf b = { 0 };
	struct pb_reader r;
	struct pb_field f;

	for (size_t i = 0; i < ARRAY_SIZE(numbers); i++)
		pb_put_u64(&b, (uint32_t)i + 1, numbers[i]);
	pb_put_str(&b, 536870911, "text");
	pb_put_bytes(&b, 20, "", 0);
	r = pb_reader(b.p, b.len);
	for (size_t i = 0; i < ARRAY_SIZE(numbers); i++) {
		CHECK(pb_next(&r, &f) == 1 && f.number == i + 1 && f.wire == PB_VARINT && f.u == numbers[i]);
		CHECK(f.raw_len >= 2);
	}
	CHECK(pb_next(&r, &f) == 1 && f.number == 536870911 && f.n == 4 && !memcmp(f.p, "text", 4));
	CHECK(pb_next(&r, &f) == 1 && f.number == 20 && f.n == 0);
	CHECK(pb_next(&r, &f) == 0);
	CHECK(pb_find_u64(b.p, b.len, 5, 0) == 16383 && pb_find_u64(b.p, b.len, 99, 7) == 7);
	CHECK(pb_find_bytes(b.p, b.len, 20, &f) && !pb_find_bytes(b.p, b.len, 1, &f));
}

TEST(pb_refuses_what_is_not_well_formed)
{
	static const struct {
		const char *p;
		size_t n;
	} bad[] = {
		{ "\x08", 1 },						    /* no value */
		{ "\x0a\x05" "abcd", 6 },				    /* longer than there is */
		{ "\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11 },	    /* much longer */
		{ "\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", 11 },	    /* more than 64 bits */
		{ "\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 12 }, /* more than ten bytes */
		{ "\x00\x01", 2 },					    /* field 0 */
		{ "\x0b", 1 },						    /* a group */
		{ "\x0d\x01\x02\x03", 4 },				    /* half of four bytes */
		{ "\x09\x01\x02\x03\x04\x05\x06\x07", 8 },		    /* half of eight */
	};

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct pb_reader r = pb_reader(bad[i].p, bad[i].n);
		struct pb_field f;

		CHECK(pb_next(&r, &f) == -1);
	}
}

static void put_image(int dir, const char *name, uint32_t magic1, uint32_t magic2, const struct buf *m, int broken)
{
	auto_buf b = { 0 };
	uint32_t len = (uint32_t)m->len + (broken ? 1000 : 0);
	struct den_err err;

	if (magic1)
		buf_add(&b, &magic1, 4);
	buf_add(&b, &magic2, 4);
	buf_add(&b, &len, 4);
	buf_add(&b, m->p, m->len);
	CHECK(file_replace_at(dir, name, b.p, b.len, 0600, &err) == 0);
}

static int images_dir(int broken)
{
	int dir = open(test_dir(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	auto_buf ids = { 0 }, inv = { 0 }, own = { 0 };

	for (uint32_t i = 1; i <= 12; i++) {
		pb_put_u64(&ids, i, 100 + i);
		pb_put_u64(&own, i, 200 + i);
	}
	pb_put_u64(&inv, 1, 2);
	pb_put_bytes(&inv, 3, own.p, own.len);
	pb_put_u64(&inv, 8, 77);
	put_image(dir, "inventory.img", 0, 0x58313116U, &inv, broken);
	put_image(dir, "ids-1.img", 0x54564319U, 0x54432030U, &ids, 0);
	return dir;
}

TEST(images_say_that_all_but_the_pid_namespace_are_there)
{
	auto_fd dir = images_dir(0), fd = -1;
	auto_free char *text = NULL;
	struct den_err err;
	struct pb_field ids;
	size_t n;

	CHECK(images_adopt(dir, false, &err) == 0);
	fd = openat(dir, "inventory.img", O_RDONLY | O_CLOEXEC);
	CHECK(fd_read_all(fd, 1 << 20, &text, &n, &err) == 0 && n > 8);
	CHECK(pb_find_u64(text + 8, n - 8, 1, 0) == 2 && pb_find_u64(text + 8, n - 8, 8, 0) == 77);
	CHECK(pb_find_bytes(text + 8, n - 8, 3, &ids));
	for (uint32_t i = 6; i <= 12; i++)
		CHECK(pb_find_u64(ids.p, ids.n, i, 0) == 100 + i);
	CHECK(pb_find_u64(ids.p, ids.n, 5, 105) != 105);
	for (uint32_t i = 1; i <= 4; i++)
		CHECK(pb_find_u64(ids.p, ids.n, i, 100 + i) != 100 + i);
	CHECK(images_adopt(dir, true, &err) == 0);
}

TEST(images_that_are_damaged_are_refused)
{
	auto_fd dir = images_dir(1);
	struct image_fds none = { 0 };
	struct image_notes notes = { 0 };
	struct den_err err = { 0 };

	CHECK(images_adopt(dir, false, &err) < 0 && err.code == DEN_INVALID);
	CHECK(images_mend(dir, &none, &err) < 0 && err.code == DEN_NOT_FOUND);
	CHECK(images_notes_read(dir, &notes, &err) < 0);
	CHECK(file_replace_at(dir, "den-notes", "3 a b 0 0\n", 10, 0600, &err) == 0);
	CHECK(images_notes_read(dir, &notes, &err) < 0 && err.code == DEN_INVALID);
	CHECK(file_replace_at(dir, "den-notes", "1 a ../b 0 0\n", 13, 0600, &err) == 0);
	CHECK(images_notes_read(dir, &notes, &err) < 0 && err.code == DEN_INVALID);
}

TEST(images_of_timers_and_semaphores_are_put_right)
{
	auto_fd dir = images_dir(0), fd = -1;
	auto_buf timer = { 0 }, event = { 0 }, file = { 0 }, info = { 0 };
	auto_free char *text = NULL;
	struct image_fd one = { 1, 5, 0 };
	struct image_fds sems = { &one, 1 };
	struct pb_field f;
	struct den_err err;
	size_t n;

	/* due, with an interval, set to a moment; and beside it, to keep the test short, in the same message */
	pb_put_u64(&timer, 6, 1);
	pb_put_u64(&timer, 7, 0);
	pb_put_u64(&timer, 8, 0);
	pb_put_u64(&timer, 10, 30000000);
	pb_put_u64(&event, 4, 3);
	pb_put_u64(&file, 1, 6);
	pb_put_u64(&file, 2, 9);
	pb_put_bytes(&file, 8, event.p, event.len);
	pb_put_bytes(&file, 12, timer.p, timer.len);
	put_image(dir, "files.img", 0x54564319U, 0x56303138U, &file, 0);
	pb_put_u64(&info, 1, 9);
	pb_put_u64(&info, 4, 5);
	put_image(dir, "fdinfo-102.img", 0x54564319U, 0x56213732U, &info, 0);
	CHECK(images_mend(dir, &sems, &err) == 0);
	CHECK(one.id == 9);
	fd = openat(dir, "files.img", O_RDONLY | O_CLOEXEC);
	CHECK(fd_read_all(fd, 1 << 20, &text, &n, &err) == 0 && n > 12);
	CHECK(pb_find_bytes(text + 12, n - 12, 8, &f) && pb_find_u64(f.p, f.n, 4, 0) == 0x80000003U);
	CHECK(pb_find_bytes(text + 12, n - 12, 12, &f));
	CHECK(pb_find_u64(f.p, f.n, 8, 0) == 1 && pb_find_u64(f.p, f.n, 6, 9) == 0 && pb_find_u64(f.p, f.n, 10, 0) == 30000000);
}
