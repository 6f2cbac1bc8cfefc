/*
 * The pool, plain for everybody, btrfs as root: names and settings, what a full disk leaves behind, what
 * is swept, whether something changed.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <time.h>

#include "fd.h"
#include "kit_pool.h"
#include "mem.h"
#include "pool.h"
#include "test.h"

/* ---- a full disk ---- */

TEST(pool_plain_full_disk_leaves_nothing_half_done)
{
	auto_fd w = -1;

	private_mounts();
	state_make("state");
	CHECK(mount("small", state_path, "tmpfs", 0, "size=8m,mode=0700") == 0);
	fd_close(&state);
	state = open(state_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	use("plain");
	OK(pool_make(pool, BOX "/w1", &err));
	w = layer(BOX "/w1");
	CHECK(mkdirat(w, "u0", 0755) == 0);
	put(w, "u0/small", "small", 0644);
	put_large(w, "u0/x-large", 5 << 20);
	CHECK(pool_snapshot(pool, BOX "/w1", NULL, BOX "/c1", true, &err) < 0);
	CHECK(err.code == DEN_LIMIT && err.sys == ENOSPC);
	CHECK(count_in(pool->fd, BOX) == 1); /* w1 */
	CHECK(pool_snapshot(pool, BOX "/w1", NULL, "b-other/w1", false, &err) < 0 &&
		err.sys == ENOSPC);
	CHECK(count_names(pool->fd) == 1); /* BOX */
	CHECK(unlinkat(w, "u0/x-large", 0) == 0);
	OK(pool_snapshot(pool, BOX "/w1", NULL, BOX "/c1", true, &err));
}

TEST(pool_btrfs_full_image_is_a_limit_and_can_be_emptied)
{
	auto_fd w = -1, fd = -1;
	static char block[1 << 20];
	char name[32];
	int n = 0;

	use("btrfs");
	OK(pool_make(pool, BOX "/w1", &err));
	w = layer(BOX "/w1");
	fd = openat(w, "fill", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	while (write(fd, block, sizeof(block)) > 0 && n++ < 2000)
		;
	CHECK(errno == ENOSPC && n > 300);
	for (int i = 1; i < 400; i++) { /* it may succeed, but must not break anything */
		snprintf(name, sizeof(name), BOX "/c%d", i);
		if (pool_snapshot(pool, BOX "/w1", NULL, name, true, &err) < 0) {
			CHECK(err.code == DEN_LIMIT && !there(pool->fd, name));
			break;
		}
	}
	fd_close(&fd);
	fd_close(&w);
	OK(pool_remove(pool, BOX, &err));
	OK(pool_trim(pool, &err));
	OK(pool_make(pool, BOX "/w1", &err));
	w = layer(BOX "/w1");
	put_large(w, "again", 32 << 20);
	CHECK(syncfs(w) == 0);
	pool_close(pool);
}

/* ---- names, settings, sweeping ---- */

TEST(pool_refuses_names_that_could_leave_it)
{
	static const char *const bad[] = { "", ".", "..", "/a", "a/", "a//b", "../a", "a/../b",
		"a/..", "a/b/c/d" };
	char longer[300];

	use("plain");
	memset(longer, 'a', sizeof(longer) - 1);
	longer[sizeof(longer) - 1] = '\0';
	for (size_t i = 0; i < ARRAY_SIZE(bad) + 1; i++) {
		const char *name = i < ARRAY_SIZE(bad) ? bad[i] : longer;

		CHECK(pool_make(pool, name, &err) < 0 && err.code == DEN_INVALID);
		CHECK(pool_remove(pool, name, &err) < 0 && err.code == DEN_INVALID);
		CHECK(pool_snapshot(pool, name, NULL, "x/c1", true, &err) < 0 &&
			err.code == DEN_INVALID);
		CHECK(pool_snapshot(pool, "x/w1", NULL, name, true, &err) < 0);
	}
	CHECK(count_names(pool->fd) == 0);
	pool_close(pool);
}

TEST(pool_settings_are_kept_and_mistakes_refused)
{
	struct pool_options btrfs = { .kind = "btrfs" }, odd = { .kind = "zfs" }, none = { 0 };

	state_make("state");
	CHECK(!pool_exists(state));
	CHECK(pool_open(state, state_path, &odd, &pool, &err) < 0 && err.code == DEN_INVALID);
	CHECK(!pool_exists(state));
	use("plain");
	pool_close(pool);
	CHECK(pool_exists(state));
	CHECK(pool_open(state, state_path, &btrfs, &pool, &err) < 0 && err.code == DEN_CONFLICT);
	OK(pool_open(state, state_path, &none, &pool, &err));
	CHECK(pool->kind == POOL_PLAIN);
	pool_close(pool);
	put(state, "pool.conf", "kind=plain\nsiez=1G\n", 0600);
	CHECK(pool_open(state, state_path, NULL, &pool, &err) < 0 && err.code == DEN_INVALID);
	CHECK(strstr(err.msg, "siez"));
	put(state, "pool.conf", "size=1G\n", 0600);
	CHECK(pool_open(state, state_path, NULL, &pool, &err) < 0 && err.code == DEN_INVALID);
}

TEST(pool_btrfs_is_for_root_alone)
{
	struct pool_options opt = { .kind = "btrfs" };

	state_make("state");
	CHECK(fchown(state, 65534, 65534) == 0 || geteuid() != 0);
	if (geteuid() == 0)
		CHECK(setresuid(65534, 65534, 65534) == 0);
	CHECK(pool_open(state, state_path, &opt, &pool, &err) < 0 && err.code == DEN_UNSUPPORTED);
	CHECK(!pool_exists(state) && !there(state, "pool.img"));
	OK(pool_open(state, state_path, NULL, &pool, &err));
	CHECK(pool->kind == POOL_PLAIN && !pool->image);
	pool_close(pool);
}

static char swept[512];

static bool is_alive(const char *name, void *user)
{
	return !strcmp(name, BOX);
}

static void note_removed(const char *what, void *user)
{
	strcat(strcat(swept, what), " ");
}

static void sweeps(const char *kind)
{
	struct timespec old[2] = { { .tv_sec = 1000 }, { .tv_sec = 2000 } };
	auto_fd lock = -1, busy = -1;

	use(kind);
	OK(pool_make(pool, BOX "/w1", &err));
	OK(pool_make(pool, BOX "/.new.0123", &err));
	OK(pool_make(pool, "b-dead/w1", &err));
	OK(pool_make(pool, "b-dead/c1", &err));
	OK(pool_seal(pool, "b-dead/c1", &err));
	OK(pool_make(pool, "layers/abc", &err));
	OK(pool_make(pool, "layers/.new.busy", &err));
	OK(pool_make(pool, "layers/.unpack-young", &err));
	OK(pool_make(pool, "layers/.unpack-old", &err));
	OK(pool_make(pool, ".gone.44/w1", &err));
	CHECK(utimensat(pool->fd, "layers/.unpack-old", old, 0) == 0);
	busy = layer("layers/.new.busy");
	lock = flock(busy, LOCK_EX);
	CHECK(lock == 0);
	lock = -1;
	OK(pool_sweep(pool, is_alive, NULL, note_removed, &err));
	CHECK(there(pool->fd, BOX "/w1") && there(pool->fd, "layers/abc"));
	CHECK(there(pool->fd, "layers/.new.busy") && there(pool->fd, "layers/.unpack-young"));
	CHECK(!there(pool->fd, BOX "/.new.0123") && !there(pool->fd, "b-dead"));
	CHECK(!there(pool->fd, "layers/.unpack-old") && !there(pool->fd, ".gone.44"));
	CHECK(count_names(pool->fd) == 2 && count_in(pool->fd, BOX) == 1 &&
		count_in(pool->fd, "layers") == 3);
	CHECK(strstr(swept, "pool/b-dead ") && strstr(swept, "pool/layers/.unpack-old "));
	CHECK(!strstr(swept, "young"));
	close(busy);
	busy = -1;
	OK(pool_sweep(pool, is_alive, NULL, NULL, &err));
	CHECK(!there(pool->fd, "layers/.new.busy"));
	pool_close(pool);
}

TEST(pool_plain_sweep_takes_what_is_nobodys)
{
	sweeps("plain");
}

TEST(pool_btrfs_sweep_takes_what_is_nobodys)
{
	sweeps("btrfs");
}

/* ---- has it changed? ---- */

static uint64_t print_of(const char *name)
{
	uint64_t fp;
	int r = 0;

	for (int i = 0; i < 100 && (r == 0 || r == 2); i++) {
		pause_ms(5);
		r = pool_fingerprint(pool, name, 1000, &fp, NULL, &err);
	}
	CHECK(r == 1);
	return fp;
}

static void fingerprints(const char *kind)
{
	struct timespec old[2] = { { .tv_sec = 1000 }, { .tv_sec = 2000 } };
	uint64_t was, is, untouched = 77;
	auto_fd w = -1;
	int fine;

	use(kind);
	OK(pool_make(pool, BOX "/w1", &err));
	w = layer(BOX "/w1");
	CHECK(mkdirat(w, "u0", 0755) == 0 && mkdirat(w, "u0/a", 0755) == 0 &&
		mkdirat(w, "u0/b", 0755) == 0);
	put(w, "u0/a/f", "one", 0644);
	put(w, "u0/b/f", "two", 0644);
	fine = pool_fingerprint(pool, BOX "/w1", 1000, &untouched, NULL, &err);
	CHECK(fine == 1 || (fine == 2 && untouched == 77));
	for (int i = 0; fine == 1 && i < 200; i++) { /* then each change shows, however fast they come */
		was = untouched;
		put(w, "u0/a/f", i % 2 ? "one" : "ONE", 0644);
		CHECK(utimensat(w, "u0/a/f", old, 0) == 0);
		CHECK(pool_fingerprint(pool, BOX "/w1", 1000, &untouched, NULL, &err) == 1 &&
			untouched != was);
	}
	put(w, "u0/a/f", "one", 0644);
	was = print_of(BOX "/w1");
	CHECK(pool_fingerprint(pool, BOX "/w1", 5, &untouched, NULL, &err) == 1);
	CHECK(untouched == was);
	CHECK(pool_fingerprint(pool, BOX "/w1", 4, &is, NULL, &err) == 0);
	CHECK(holds(w, "u0/a/f", "one") && print_of(BOX "/w1") == was); /* reading is no change */
#define CHANGES(x)                                                                                 \
	do {                                                                                       \
		CHECK(x);                                                                          \
		is = print_of(BOX "/w1");                                                          \
		CHECK(is != was);                                                                  \
		was = is;                                                                          \
	} while (0)
	CHANGES(utimensat(w, "u0/a/f", old, 0) == 0);
	put(w, "u0/a/f", "ONE", 0644);
	CHANGES(utimensat(w, "u0/a/f", old, 0) == 0);
	CHANGES(fchmodat(w, "u0/a/f", 0600, 0) == 0);
	CHANGES(renameat2(w, "u0/a", w, "u0/b", RENAME_EXCHANGE) == 0);
	CHANGES(linkat(w, "u0/a/f", w, "u0/a/g", 0) == 0);
	CHANGES(unlinkat(w, "u0/a/g", 0) == 0);
	CHANGES(mknodat(w, "u0/wh", S_IFCHR, makedev(0, 0)) == 0);
	if (fsetxattr(openat(w, "u0/a", O_RDONLY | O_CLOEXEC), "user.overlay.opaque", "y", 1, 0) ==
		0)
		CHANGES(true);
	CHECK(pool_fingerprint(pool, BOX "/none", 10, &is, NULL, &err) < 0 && err.code == DEN_NOT_FOUND);
}

TEST(pool_plain_fingerprint_changes_with_any_change)
{
	fingerprints("plain");
}

TEST(pool_btrfs_fingerprint_changes_with_any_change)
{
	fingerprints("btrfs");
}

static int n_snaps;

/* A checkpoint, and whether it has something that the one named a has not. */
static int next_differs(const char *from, const char *a)
{
	char name[64];

	snprintf(name, sizeof(name), BOX "/c%d", ++n_snaps);
	OK(pool_snapshot(pool, from, NULL, name, true, &err));
	return a ? pool_differs(pool, a, name, &err) : -1;
}

static const char *last_snap(void)
{
	static char name[64];

	snprintf(name, sizeof(name), BOX "/c%d", n_snaps);
	return name;
}

static void differs_with(int files)
{
	auto_fd w = layer(BOX "/w1");
	char name[32];

	for (int i = 0; i < files; i++) {
		snprintf(name, sizeof(name), "f%d", i);
		put(w, name, "some text", 0644);
	}
	next_differs(BOX "/w1", NULL);
	CHECK(next_differs(BOX "/w1", last_snap()) == 0);
	CHECK(next_differs(BOX "/w1", last_snap()) == 0);
	put(w, "f1", "same size", 0644);
	CHECK(next_differs(BOX "/w1", last_snap()) == 1);
	CHECK(next_differs(BOX "/w1", last_snap()) == 0);
	CHECK(unlinkat(w, "f1", 0) == 0);
	CHECK(next_differs(BOX "/w1", last_snap()) == 1);
	CHECK(fchmodat(w, "f2", 0600, 0) == 0);
	CHECK(next_differs(BOX "/w1", last_snap()) == 1);
	CHECK(setxattr("/proc/self/fd", "user.x", "y", 1, 0) < 0);
	CHECK(fsetxattr(openat(w, "f3", O_RDONLY | O_CLOEXEC), "user.x", "y", 1, 0) == 0);
	CHECK(next_differs(BOX "/w1", last_snap()) == 1);
	CHECK(renameat(w, "f4", w, "f5") == 0);
	CHECK(next_differs(BOX "/w1", last_snap()) == 1);
	CHECK(next_differs(BOX "/w1", last_snap()) == 0);
}

TEST(pool_btrfs_tells_whether_checkpoints_differ)
{
	char first[64], second[64];
	auto_fd w2 = -1;

	use("btrfs");
	OK(pool_make(pool, BOX "/w1", &err));
	differs_with(10); /* one block is the whole tree */
	differs_with(3000);
	snprintf(first, sizeof(first), "%s", last_snap());
	put(layer(BOX "/w1"), "later", "x", 0644);
	CHECK(next_differs(BOX "/w1", first) == 1);
	snprintf(second, sizeof(second), "%s", last_snap());
	/* rolled back to the first and gone on from there */
	OK(pool_snapshot(pool, first, NULL, BOX "/w2", false, &err));
	CHECK(next_differs(BOX "/w2", first) == 0);
	CHECK(pool_differs(pool, second, last_snap(), &err) == 1); /* lacks what the second has */
	w2 = layer(BOX "/w2");
	put(w2, "f7", "x", 0644);
	CHECK(next_differs(BOX "/w2", first) == 1);
	OK(pool_make(pool, "b-other/w1", &err));
	OK(pool_snapshot(pool, "b-other/w1", NULL, "b-other/c1", true, &err));
	CHECK(pool_differs(pool, first, "b-other/c1", &err) == 1);
	CHECK(pool_differs(pool, "b-other/c1", first, &err) == 1);
	/* a layer that was written to after it was copied, then sealed */
	OK(pool_snapshot(pool, BOX "/w1", NULL, BOX "/w3", false, &err));
	put(layer(BOX "/w3"), "own", "x", 0644);
	OK(pool_seal(pool, BOX "/w3", &err));
	CHECK(next_differs(BOX "/w1", BOX "/w3") == 1);
	pool_close(pool);
}
