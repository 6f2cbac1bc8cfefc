/* The pool in a file: twenty at once, growing, blocks given back, power cuts. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/loop.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "clock.h"
#include "fd.h"
#include "kit_pool.h"
#include "mem.h"
#include "pool.h"
#include "test.h"

/* How many loop devices have this file behind them. */
static int loops_of(const struct stat *img)
{
	int n = 0;

	for (int i = 0; i < 256; i++) {
		struct loop_info64 info;
		char path[32];
		auto_fd fd = -1;

		snprintf(path, sizeof(path), "/sys/block/loop%d/loop", i);
		if (access(path, F_OK) < 0)
			continue;
		snprintf(path, sizeof(path), "/dev/loop%d", i);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd >= 0 && ioctl(fd, LOOP_GET_STATUS64, &info) == 0 &&
			info.lo_inode == img->st_ino && info.lo_device == img->st_dev)
			n++;
	}
	return n;
}

static void check_gone(const struct stat *img)
{
	int n = 1;

	for (int i = 0; i < 250 && n; i++) {
		n = loops_of(img);
		if (n)
			pause_ms(20);
	}
	CHECK(n == 0);
}

struct opened {
	int ok;
	dev_t dev;
};

static void opener(int number, int report, int go)
{
	struct pool_options opt = { .size = SIZE };
	struct opened o = { 0 };
	char name[64];
	struct stat st;
	char c;

	if (pool_open(state, state_path, &opt, &pool, &err) == 0) {
		snprintf(name, sizeof(name), "b-%d/w1", number);
		o.ok = pool_make(pool, name, &err) == 0 && fstat(pool->fd, &st) == 0 && pool->image;
		o.dev = st.st_dev;
	}
	if (!o.ok)
		fprintf(stderr, "  %s\n", err.msg);
	CHECK(write(report, &o, sizeof(o)) == sizeof(o));
	CHECK(read(go, &c, 1) == 0); /* stays until all are told */
	_exit(0); /* without pool_close(): the kernel cleans up */
}

static void need_btrfs(void)
{
	state_make("state");
	use("btrfs"); /* or skip */
	pool_close(pool);
	fd_close(&state);
	state_make("state2");
}

TEST(pool_twenty_may_open_it_first_at_once)
{
	int report[2], go[2], status;
	struct opened o;
	dev_t dev = 0;
	struct stat img;
	auto_free char *mounts = NULL;
	auto_fd fd = -1;

	need_btrfs();
	CHECK(pipe2(report, O_CLOEXEC) == 0 && pipe2(go, O_CLOEXEC) == 0);
	for (int i = 0; i < 20; i++)
		if (fork() == 0) {
			close(go[1]);
			opener(i, report[1], go[0]);
		}
	for (int i = 0; i < 20; i++) {
		CHECK(read(report[0], &o, sizeof(o)) == sizeof(o) && o.ok);
		CHECK(i == 0 || o.dev == dev);
		dev = o.dev;
	}
	CHECK(fstatat(state, "pool.img", &img, 0) == 0);
	CHECK(loops_of(&img) == 1);
	CHECK(count_in(state, "pool") == 0); /* not mounted here */
	fd = open("/proc/self/mounts", O_RDONLY | O_CLOEXEC);
	OK(fd_read_all(fd, 8 << 20, &mounts, NULL, &err));
	CHECK(!strstr(mounts, state_path));
	close(go[1]);
	while (wait(&status) > 0)
		CHECK(status == 0);
	check_gone(&img);
	OK(pool_open(state, state_path, NULL, &pool, &err)); /* and all that they made is there */
	CHECK(count_names(pool->fd) == 20);
	pool_close(pool);
	check_gone(&img);
}

/* Each opens while another, perhaps the last, leaves. */
TEST(pool_opening_and_leaving_at_once_always_works)
{
	struct stat img;
	int status, most = 0, left = 4;

	need_btrfs();
	for (int i = 0; i < 4; i++)
		if (fork() == 0) {
			for (int k = 0; k < 12; k++) {
				struct pool_options opt = { .size = SIZE };
				char name[64];

				snprintf(name, sizeof(name), "b-%d/w%d", i, k);
				OK(pool_open(state, state_path, &opt, &pool, &err));
				OK(pool_make(pool, name, &err));
				/* while it is open there is one, and never a second */
				CHECK(fstatat(state, "pool.img", &img, 0) == 0 && loops_of(&img) == 1);
				pool_close(pool);
				pause_ms((i + k) % 3 * 4);
			}
			_exit(0);
		}
	while (left) {
		pid_t pid = waitpid(-1, &status, WNOHANG);

		if (pid > 0) {
			CHECK(status == 0);
			left--;
		} else if (fstatat(state, "pool.img", &img, 0) == 0) {
			most = MAX(most, loops_of(&img));
			pause_ms(7);
		}
	}
	CHECK(most <= 1); /* of those who had it open each saw exactly one */
	check_gone(&img);
	OK(pool_open(state, state_path, NULL, &pool, &err));
	CHECK(count_names(pool->fd) == 4 && count_in(pool->fd, "b-3") == 12);
	pool_close(pool);
	check_gone(&img);
}

TEST(pool_image_opens_fast_when_another_has_it)
{
	int64_t best = INT64_MAX;
	int report[2], status;

	use("btrfs");
	CHECK(pipe2(report, O_CLOEXEC) == 0);
	for (int i = 0; i < 8; i++)
		if (fork() == 0) {
			struct pool *again;
			int64_t t;

			/* as one who has not got the mount: our parent's is not ours */
			CHECK(umount2(pool->path, MNT_DETACH) == 0 || i > 0);
			t = clock_mono_ns();
			OK(pool_open(state, state_path, NULL, &again, &err));
			t = clock_mono_ns() - t;
			CHECK(again->mounter == getpid());
			CHECK(write(report[1], &t, sizeof(t)) == sizeof(t));
			_exit(0);
		} else {
			int64_t t;

			CHECK(wait(&status) > 0 && status == 0);
			CHECK(read(report[0], &t, sizeof(t)) == sizeof(t));
			best = MIN(best, t);
		}
	printf("# opened in %lld us\n", (long long)(best / 1000));
	CHECK(best < 10 * NS_PER_MS);
	pool_close(pool);
}

TEST(pool_image_gives_freed_blocks_back)
{
	struct pool_info empty, full, after;
	auto_fd w = -1;

	use("btrfs");
	OK(pool_info(pool, state, &empty, &err));
	/* room for its own trees, of which it takes a tenth, and nothing else */
	CHECK(empty.image && empty.size == SIZE && empty.image_blocks < SIZE / 6);
	OK(pool_make(pool, BOX "/w1", &err));
	w = layer(BOX "/w1");
	put_large(w, "data", 96 << 20);
	OK(pool_snapshot(pool, BOX "/w1", NULL, BOX "/c1", true, &err));
	OK(pool_info(pool, state, &full, &err));
	CHECK(full.image_blocks > empty.image_blocks + (90 << 20) && full.used > 90 << 20);
	fd_close(&w);
	OK(pool_remove(pool, BOX, &err));
	OK(pool_trim(pool, &err));
	OK(pool_info(pool, state, &after, &err));
	printf("# image: %llu, %llu, %llu KiB\n", (unsigned long long)empty.image_blocks >> 10,
		(unsigned long long)full.image_blocks >> 10,
		(unsigned long long)after.image_blocks >> 10);
	CHECK(after.image_blocks < empty.image_blocks + (8 << 20));
	pool_close(pool);
}

TEST(pool_image_grows_and_stays_so)
{
	struct pool_info info;

	use("btrfs");
	CHECK(pool_grow(pool, state, SIZE / 2, &err) < 0 && err.code == DEN_INVALID);
	OK(pool_grow(pool, state, SIZE * 2, &err));
	OK(pool_info(pool, state, &info, &err));
	CHECK(info.size == SIZE * 2);
	pool_close(pool);
	OK(pool_open(state, state_path, &(struct pool_options){ .size = SIZE * 2 }, &pool, &err));
	OK(pool_info(pool, state, &info, &err));
	CHECK(info.size == SIZE * 2);
	pool_close(pool);
	CHECK(pool_open(state, state_path, &(struct pool_options){ .size = SIZE }, &pool, &err) <
			0 &&
		err.code == DEN_CONFLICT);
}

TEST(pool_btrfs_what_was_acknowledged_survives_a_power_cut)
{
	char command[PATH_MAX * 3], first[PATH_MAX];
	auto_fd w = -1, c = -1;
	struct stat img;

	use("btrfs");
	snprintf(first, sizeof(first), "%s", state_path);
	CHECK(fstatat(state, "pool.img", &img, 0) == 0);
	OK(pool_make(pool, BOX "/w1", &err));
	w = layer(BOX "/w1");
	put(w, "f", "written", 0644);
	put_large(w, "large", 3 << 20);
	OK(pool_snapshot(pool, BOX "/w1", NULL, BOX "/c1", true, &err));
	OK(pool_make(pool, "b-other/w1", &err));
	OK(pool_rename(pool, "b-other/w1", "layers/abc", &err));
	snprintf(command, sizeof(command), "%s/cut", test_dir());
	CHECK(mkdir(command, 0700) == 0);
	snprintf(command, sizeof(command), "cp --sparse=always %s/pool.img %s/pool.conf %s/cut/",
		first, first, test_dir());
	CHECK(system(command) == 0);
	fd_close(&w);
	pool_close(pool);
	check_gone(&img);
	fd_close(&state);
	CHECK(unlink((snprintf(command, sizeof(command), "%s/pool.img", first), command)) == 0);
	snprintf(state_path, sizeof(state_path), "%s/cut", test_dir());
	state = open(state_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (pool_open(state, state_path, NULL, &pool, &err) < 0 && err.sys == EEXIST)
		SKIP("this kernel remembers the original's later state");
	CHECK(pool != NULL);
	c = layer(BOX "/c1");
	CHECK(holds(c, "f", "written"));
	CHECK(fstatat(c, "large", &img, 0) == 0 && img.st_size == 3 << 20);
	CHECK(there(pool->fd, BOX "/w1") && there(pool->fd, "layers/abc") &&
		!there(pool->fd, "b-other/w1"));
	CHECK(fstatat(state, "pool.img", &img, 0) == 0);
	fd_close(&c);
	pool_close(pool);
	check_gone(&img);
}

TEST(pool_btrfs_takes_up_what_a_crash_left_of_the_making)
{
	struct stat img;

	use("btrfs");
	OK(pool_make(pool, BOX "/w1", &err));
	pool_close(pool);
	CHECK(fstatat(state, "pool.img", &img, 0) == 0);
	CHECK(unlinkat(state, "pool.conf", 0) == 0); /* killed before it was written */
	put(state, "pool.img.new", "half an image", 0600);
	OK(pool_open(state, state_path, NULL, &pool, &err));
	CHECK(pool->kind == POOL_BTRFS && pool->image && there(pool->fd, BOX "/w1"));
	pool_close(pool);
	CHECK(unlinkat(state, "pool.img", 0) == 0);
	check_gone(&img);
	CHECK(pool_open(state, state_path, NULL, &pool, &err) < 0 && err.code == DEN_NOT_FOUND);
	CHECK(strstr(err.msg, "pool.img"));
}
