/*
 * The pool, plain for everybody, btrfs as root: what a copy has, what it shares, what a crash, a full
 * disk and twenty at once leave behind.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/loop.h>
#include <sched.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>

#include "clock.h"
#include "fd.h"
#include "mem.h"
#include "pool.h"
#include "test.h"
#include "walk.h"

#define BOX "b-aaaaaaaaaaaaaaaaaa"
#define SIZE (512ULL << 20)

static struct den_err err;
static int state = -1;
static char state_path[PATH_MAX];
static struct pool *pool;

#define OK(x)                                                                                      \
	do {                                                                                       \
		if ((x) < 0) {                                                                     \
			fprintf(stderr, "  %s\n", err.msg);                                        \
			CHECK(!#x);                                                                \
		}                                                                                  \
	} while (0)

static void state_make(const char *name)
{
	snprintf(state_path, sizeof(state_path), "%s/%s", test_dir(), name);
	CHECK(mkdir(state_path, 0700) == 0);
	state = open(state_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	CHECK(state >= 0);
}

static void use(const char *kind)
{
	struct pool_options opt = { .kind = kind, .size = !strcmp(kind, "btrfs") ? SIZE : 0 };

	if (state < 0)
		state_make("state");
	if (!strcmp(kind, "btrfs") && geteuid() != 0)
		SKIP("a btrfs pool needs root");
	if (pool_open(state, state_path, &opt, &pool, &err) < 0) {
		if (err.code == DEN_UNSUPPORTED)
			SKIP(err.msg);
		fprintf(stderr, "  %s\n", err.msg);
		CHECK(!"open");
	}
	CHECK(pool->kind == (strcmp(kind, "plain") ? POOL_BTRFS : POOL_PLAIN));
}

static void pause_ms(int ms)
{
	nanosleep(&(struct timespec){ .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L }, NULL);
}

static int layer(const char *name)
{
	int fd = openat(pool->fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	CHECK(fd >= 0);
	return fd;
}

static void put(int dir, const char *name, const char *text, mode_t mode)
{
	auto_fd fd = openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	CHECK(fchmod(fd, mode) == 0);
}

static bool holds(int dir, const char *name, const char *text)
{
	auto_fd fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
	char got[256];
	ssize_t n = fd < 0 ? -1 : read(fd, got, sizeof(got));

	return n == (ssize_t)strlen(text) && !memcmp(got, text, (size_t)n);
}

static ino_t ino_of(int dir, const char *name)
{
	struct stat st;

	CHECK(fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0);
	return st.st_ino;
}

static bool there(int dir, const char *name)
{
	return faccessat(dir, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/* ---- a layer with one of everything ---- */

static bool have_xattrs;

static void put_special(int u)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	CHECK(mkfifoat(u, "fifo", 0640) == 0);
	CHECK(mknodat(u, "whiteout", S_IFCHR, makedev(0, 0)) == 0);
	CHECK(linkat(u, "whiteout", u, "whiteout2", 0) == 0); /* as overlayfs shares them */
	CHECK(symlinkat("/nowhere/at all", u, "link") == 0);
	snprintf(sa.sun_path, sizeof(sa.sun_path), "/proc/self/fd/%d/socket", u);
	CHECK(s >= 0 && bind(s, (struct sockaddr *)&sa, sizeof(sa)) == 0);
	close(s);
}

/* Deeper than a path can be long. */
static void put_deep(int u)
{
	int dir = fcntl(u, F_DUPFD_CLOEXEC, 3);
	char name[200];

	memset(name, 'n', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	for (int i = 0; i < 40; i++) {
		int next;

		CHECK(mkdirat(dir, name, 0755) == 0);
		next = openat(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		CHECK(next >= 0);
		close(dir);
		dir = next;
	}
	put(dir, "bottom", "deep", 0600);
	CHECK(linkat(dir, "bottom", dir, "bottom2", 0) == 0);
	close(dir);
}

static void put_everything(const char *name)
{
	auto_fd top = layer(name), u = -1, fd = -1;
	struct timespec old[2] = { { .tv_sec = 1000 }, { .tv_sec = 2000, .tv_nsec = 123456789 } };

	CHECK(mkdirat(top, "u0", 0755) == 0 && mkdirat(top, "w0", 0700) == 0);
	u = openat(top, "u0", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	put(u, "plain", "hello", 0644);
	put(u, "setuid", "x", 04755);
	put(u, "empty", "", 0400);
	put(u, "one", "linked", 0600);
	CHECK(linkat(u, "one", u, "two", 0) == 0);
	CHECK(mkdirat(u, "closed", 0700) == 0 && mkdirat(u, "sticky", 0700) == 0);
	put(u, "closed/in", "inside", 0600);
	CHECK(linkat(u, "one", u, "closed/three", 0) == 0);
	CHECK(fchmodat(u, "sticky", 03777, 0) == 0);
	fd = openat(u, "sparse", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	CHECK(fd >= 0 && pwrite(fd, "begin", 5, 0) == 5 && pwrite(fd, "end", 3, 9 << 20) == 3);
	CHECK(ftruncate(fd, 16 << 20) == 0);
	have_xattrs = fsetxattr(fd, "user.some", "val\0ue", 6, 0) == 0;
	if (have_xattrs)
		CHECK(fsetxattr(openat(u, "sticky", O_RDONLY | O_CLOEXEC), "user.overlay.opaque",
			      "y", 1, 0) == 0);
	put_special(u);
	put_deep(u);
	if (geteuid() == 0) {
		CHECK(fchownat(u, "plain", 1000, 65535, 0) == 0 &&
			fchownat(u, "link", 7, 8, AT_SYMLINK_NOFOLLOW) == 0);
		CHECK(fchownat(u, "setuid", 5, 5, 0) == 0 && fchmodat(u, "setuid", 06755, 0) == 0);
		CHECK(fchmodat(u, "closed", 0000, 0) == 0);
	} else {
		CHECK(fchmodat(u, "closed", 0500, 0) == 0);
	}
	CHECK(utimensat(u, "plain", old, 0) == 0 &&
		utimensat(u, "link", old, AT_SYMLINK_NOFOLLOW) == 0);
	CHECK(utimensat(u, "closed", old, 0) == 0);
}

static bool same_xattrs(const struct walk_entry *a, const struct walk_entry *b)
{
	char pa[320], pb[320], la[4096], va[4096], vb[4096];
	ssize_t n, m;

	snprintf(pa, sizeof(pa), "/proc/self/fd/%d/%s", a->dirfd, a->name);
	snprintf(pb, sizeof(pb), "/proc/self/fd/%d/%s", b->dirfd, b->name);
	n = llistxattr(pa, la, sizeof(la));
	if (n != llistxattr(pb, va, sizeof(va)))
		return false;
	for (char *p = la; n > 0 && p < la + n; p += strlen(p) + 1) {
		m = lgetxattr(pa, p, va, sizeof(va));
		if (m < 0 || m != lgetxattr(pb, p, vb, sizeof(vb)) || memcmp(va, vb, (size_t)m))
			return false;
	}
	return true;
}

static bool same_content(const struct walk_entry *a, const struct walk_entry *b)
{
	auto_fd fa = openat(a->dirfd, a->name, O_RDONLY | O_CLOEXEC);
	auto_fd fb = openat(b->dirfd, b->name, O_RDONLY | O_CLOEXEC);
	static char ba[1 << 16], bb[1 << 16];
	ssize_t n;

	CHECK(fa >= 0 && fb >= 0);
	while ((n = read(fa, ba, sizeof(ba))) > 0)
		if (read(fb, bb, sizeof(bb)) != n || memcmp(ba, bb, (size_t)n))
			return false;
	return n == 0 && read(fb, bb, 1) == 0;
}

static bool same_target(const struct walk_entry *a, const struct walk_entry *b)
{
	char ta[PATH_MAX], tb[PATH_MAX];
	ssize_t n = readlinkat(a->dirfd, a->name, ta, sizeof(ta));

	return n > 0 && readlinkat(b->dirfd, b->name, tb, sizeof(tb)) == n &&
	       !memcmp(ta, tb, (size_t)n);
}

static const char *difference(const struct walk_entry *a, const struct walk_entry *b)
{
	if (strcmp(a->path, b->path))
		return "name";
	if (a->st.st_mode != b->st.st_mode)
		return "mode";
	if (a->st.st_uid != b->st.st_uid || a->st.st_gid != b->st.st_gid)
		return "owner";
	if (a->st.st_mtim.tv_sec != b->st.st_mtim.tv_sec ||
		a->st.st_mtim.tv_nsec != b->st.st_mtim.tv_nsec)
		return "time";
	if (a->st.st_rdev != b->st.st_rdev ||
		(!S_ISDIR(a->st.st_mode) && a->st.st_size != b->st.st_size))
		return "size";
	if (!same_xattrs(a, b))
		return "xattrs";
	if (S_ISREG(a->st.st_mode) && !same_content(a, b))
		return "content";
	if (S_ISREG(a->st.st_mode) && b->st.st_blocks > a->st.st_blocks + 64)
		return "holes";
	if (S_ISLNK(a->st.st_mode) && !same_target(a, b))
		return "target";
	return NULL;
}

static int next_but_index(struct walk *w, struct walk_entry *e)
{
	int r = walk_next(w, e, &err);

	if (r == WALK_ENTRY && e->depth == 1 && !strcmp(e->name, ".index"))
		r = walk_next(w, e, &err);
	return r;
}

static void check_same(const char *a, const char *b)
{
	struct walk *wa, *wb;
	struct walk_entry ea, eb;
	int n = 0, ra, rb;

	OK(walk_new(layer(a), 0, 0, &wa, &err));
	OK(walk_new(layer(b), 0, 0, &wb, &err));
	for (;; n++) {
		const char *what;

		ra = next_but_index(wa, &ea);
		rb = next_but_index(wb, &eb);
		CHECK(ra >= 0 && ra == rb);
		if (ra == WALK_END)
			break;
		what = difference(&ea, &eb);
		if (what) {
			fprintf(stderr, "  %.60s and %.60s: %s\n", ea.path, eb.path, what);
			CHECK(!"same");
		}
	}
	CHECK(n > 50);
	walk_free(wa);
	walk_free(wb);
}

static void check_links_inside(const char *name)
{
	auto_fd fd = layer(name);

	CHECK(ino_of(fd, "u0/one") == ino_of(fd, "u0/two"));
	CHECK(ino_of(fd, "u0/whiteout") == ino_of(fd, "u0/whiteout2"));
	if (geteuid() == 0 || !there(fd, "u0/closed"))
		CHECK(ino_of(fd, "u0/one") == ino_of(fd, "u0/closed/three"));
}

static void copies_everything(const char *kind)
{
	use(kind);
	OK(pool_make(pool, BOX "/w1", &err));
	CHECK(pool_make(pool, BOX "/w1", &err) < 0 && err.code == DEN_CONFLICT);
	put_everything(BOX "/w1");
	OK(pool_snapshot(pool, BOX "/w1", NULL, BOX "/c1", true, &err));
	check_same(BOX "/w1", BOX "/c1");
	check_links_inside(BOX "/c1");
	OK(pool_snapshot(pool, BOX "/c1", NULL, BOX "/w2", false, &err));
	check_same(BOX "/w1", BOX "/w2");
	check_links_inside(BOX "/w2");
	CHECK(pool_snapshot(pool, BOX "/w1", NULL, BOX "/c1", true, &err) < 0 &&
		err.code == DEN_CONFLICT);
	CHECK(pool_snapshot(pool, BOX "/w9", NULL, BOX "/c9", true, &err) < 0 &&
		err.code == DEN_NOT_FOUND);
	CHECK(!there(pool->fd, BOX "/c9"));
	{
		auto_fd w2 = layer(BOX "/w2"), c1 = layer(BOX "/c1");

		put(w2, "u0/plain", "written", 0644);
		CHECK(holds(c1, "u0/plain", "hello")); /* what is written to a fork stays there */
		if (pool->kind == POOL_BTRFS)
			CHECK(openat(c1, "u0/new", O_WRONLY | O_CREAT, 0600) < 0 && errno == EROFS);
	}
	OK(pool_rename(pool, BOX "/w2", BOX "/w3", &err));
	CHECK(there(pool->fd, BOX "/w3/u0") && !there(pool->fd, BOX "/w2"));
	CHECK(pool_rename(pool, BOX "/w3", BOX "/c1", &err) < 0 && err.code == DEN_CONFLICT);
	OK(pool_seal(pool, BOX "/w3", &err));
	OK(pool_rename(pool, BOX "/w3", "layers/abc", &err));
	CHECK(there(pool->fd, "layers/abc/u0/one") && !there(pool->fd, BOX "/w3"));
	OK(pool_remove(pool, BOX, &err));
	CHECK(!there(pool->fd, BOX) && there(pool->fd, "layers/abc"));
	OK(pool_remove(pool, BOX, &err));
	OK(pool_remove(pool, BOX "/w1", &err));
	OK(pool_remove(pool, "layers/abc", &err));
	pool_close(pool);
}

TEST(pool_plain_copies_everything_a_layer_has)
{
	copies_everything("plain");
	if (!have_xattrs)
		SKIP("no user xattrs on this file system; all else was checked");
}

TEST(pool_btrfs_copies_everything_a_layer_has)
{
	copies_everything("btrfs");
	CHECK(have_xattrs);
}

/* ---- sharing ---- */

TEST(pool_plain_shares_what_did_not_change_and_nothing_else)
{
	struct timespec old[2] = { { .tv_sec = 1000 }, { .tv_sec = 2000 } };
	auto_fd w = -1, c1 = -1, c2 = -1;

	use("plain");
	OK(pool_make(pool, BOX "/w1", &err));
	w = layer(BOX "/w1");
	CHECK(mkdirat(w, "u0", 0755) == 0 && mkdirat(w, "u0/a", 0755) == 0 &&
		mkdirat(w, "u0/b", 0755) == 0);
	put(w, "u0/same", "same", 0644);
	put(w, "u0/sly", "before", 0644);
	put(w, "u0/mode", "mode", 0644);
	put(w, "u0/a/f", "from a", 0644);
	put(w, "u0/b/f", "from b", 0644);
	CHECK(symlinkat("x", w, "u0/link") == 0);
	CHECK(utimensat(w, "u0/sly", old, 0) == 0);
	CHECK(utimensat(w, "u0/a/f", old, 0) == 0 && utimensat(w, "u0/b/f", old, 0) == 0);
	pause_ms(30);
	OK(pool_snapshot(pool, BOX "/w1", NULL, BOX "/c1", true, &err));
	put(w, "u0/sly", "AFTER!", 0644); /* the same size, the same mtime */
	CHECK(utimensat(w, "u0/sly", old, 0) == 0);
	CHECK(fchmodat(w, "u0/mode", 0600, 0) == 0);
	CHECK(renameat2(w, "u0/a", w, "u0/b", RENAME_EXCHANGE) == 0);
	OK(pool_snapshot(pool, BOX "/w1", BOX "/c1", BOX "/c2", true, &err));
	c1 = layer(BOX "/c1");
	c2 = layer(BOX "/c2");
	CHECK(holds(c2, "u0/sly", "AFTER!") && holds(c1, "u0/sly", "before"));
	CHECK(holds(c2, "u0/a/f", "from b") && holds(c2, "u0/b/f", "from a"));
	CHECK(holds(c1, "u0/a/f", "from a"));
	CHECK(ino_of(c2, "u0/mode") != ino_of(c1, "u0/mode"));
	if (!there(c1, ".index"))
		SKIP("no sharing on this file system");
	CHECK(ino_of(c2, "u0/same") == ino_of(c1, "u0/same") &&
		ino_of(c2, "u0/same") != ino_of(w, "u0/same"));
	CHECK(ino_of(c2, "u0/link") == ino_of(c1, "u0/link"));
	CHECK(ino_of(c2, "u0/a/f") == ino_of(c1, "u0/b/f")); /* found under its other name */
}

TEST(pool_plain_sees_what_was_written_through_mapped_memory)
{
	auto_fd w = -1, fd = -1, c = -1;
	char *map;

	use("plain");
	OK(pool_make(pool, BOX "/w1", &err));
	w = layer(BOX "/w1");
	put(w, "f", "0", 0644);
	fd = openat(w, "f", O_RDWR | O_CLOEXEC);
	map = mmap(NULL, 1, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(map != MAP_FAILED);
	*map = '1';
	pause_ms(30);
	OK(pool_snapshot(pool, BOX "/w1", NULL, BOX "/c1", true, &err));
	*map = '2'; /* the page was writable before: only write-back makes this a change */
	OK(pool_snapshot(pool, BOX "/w1", BOX "/c1", BOX "/c2", true, &err));
	c = layer(BOX "/c1");
	CHECK(holds(c, "f", "1"));
	fd_close(&c);
	c = layer(BOX "/c2");
	CHECK(holds(c, "f", "2"));
}

TEST(pool_plain_shares_again_after_a_rollback)
{
	auto_fd w = -1, c1 = -1, c2 = -1;
	char name[32];

	use("plain");
	OK(pool_make(pool, BOX "/w1", &err));
	w = layer(BOX "/w1");
	for (int i = 0; i < 200; i++) {
		snprintf(name, sizeof(name), "f%03d", i);
		put(w, name, name, 0644);
	}
	pause_ms(30);
	OK(pool_snapshot(pool, BOX "/w1", NULL, BOX "/c1", true, &err));
	OK(pool_snapshot(pool, BOX "/c1", NULL, BOX "/w2", false, &err));
	c1 = layer(BOX "/c1");
	fd_close(&w);
	w = layer(BOX "/w2");
	CHECK(ino_of(w, "f000") != ino_of(c1, "f000"));
	put(w, "f001", "other", 0644);
	OK(pool_snapshot(pool, BOX "/w2", BOX "/c1", BOX "/c2", true, &err));
	c2 = layer(BOX "/c2");
	CHECK(holds(c2, "f001", "other") && holds(c1, "f001", "f001") && holds(c2, "f199", "f199"));
	if (!there(c1, ".index"))
		SKIP("no sharing on this file system");
	CHECK(ino_of(c2, "f000") == ino_of(c1, "f000") && ino_of(c2, "f001") != ino_of(c1, "f001"));
	/* a layer of its own made of a checkpoint */
	OK(pool_snapshot(pool, BOX "/c2", BOX "/c2", "layers/x", true, &err));
	CHECK(ino_of(pool->fd, "layers/x/f001") == ino_of(c2, "f001"));
}

TEST(pool_plain_does_not_believe_a_broken_index)
{
	auto_fd w = -1, c1 = -1, c2 = -1, fd = -1;
	struct stat st;

	use("plain");
	OK(pool_make(pool, BOX "/w1", &err));
	w = layer(BOX "/w1");
	put(w, "f", "text", 0644);
	pause_ms(30);
	OK(pool_snapshot(pool, BOX "/w1", NULL, BOX "/c1", true, &err));
	c1 = layer(BOX "/c1");
	fd = openat(c1, ".index", O_RDWR | O_CLOEXEC);
	if (fd < 0)
		SKIP("no sharing on this file system");
	CHECK(fstat(fd, &st) == 0 && st.st_size > 20);
	for (off_t cut = st.st_size - 1; cut >= 0; cut -= 5) {
		CHECK(ftruncate(fd, cut) == 0);
		OK(pool_snapshot(pool, BOX "/w1", BOX "/c1", BOX "/c2", true, &err));
		c2 = layer(BOX "/c2");
		CHECK(holds(c2, "f", "text") && ino_of(c2, "f") != ino_of(c1, "f"));
		fd_close(&c2);
		OK(pool_remove(pool, BOX "/c2", &err));
	}
}

/* ---- a full disk ---- */

static void private_mounts(void)
{
	uid_t uid = geteuid();
	gid_t gid = getegid();
	char map[64];

	if (uid != 0) {
		if (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0)
			SKIP("no user namespaces");
		snprintf(map, sizeof(map), "0 %u 1", uid);
		if (file_write_at(AT_FDCWD, "/proc/self/uid_map", map, &err) < 0 ||
			file_write_at(AT_FDCWD, "/proc/self/setgroups", "deny", &err) < 0)
			SKIP("no user namespaces");
		snprintf(map, sizeof(map), "0 %u 1", gid);
		OK(file_write_at(AT_FDCWD, "/proc/self/gid_map", map, &err));
		return;
	}
	if (unshare(CLONE_NEWNS) < 0)
		SKIP("no mount namespaces");
	CHECK(mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) == 0);
}

static int count_names(int dir)
{
	DIR *d = fdopendir(openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	int n = 0;

	CHECK(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n - 2;
}

static int count_in(int dir, const char *name)
{
	auto_fd fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	CHECK(fd >= 0);
	return count_names(fd);
}

static void put_large(int dir, const char *name, size_t n)
{
	auto_fd fd = openat(dir, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	auto_free char *text = mem_alloc(n);

	for (size_t i = 0; i < n; i++)
		text[i] = (char)(i * 2654435761U >> 13);
	OK(fd_write_all(fd, text, n, &err));
}

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

/* ---- the image ---- */

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
	CHECK(empty.image && empty.size == SIZE && empty.image_blocks < 8 << 20);
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

/* A state directory inside a pool: one that is on btrfs already. */
static struct pool *below;

static void state_on_btrfs(void)
{
	use("btrfs");
	below = pool;
	CHECK(mkdirat(below->fd, "state", 0700) == 0);
	close(state);
	snprintf(state_path, sizeof(state_path), "%s/state", below->path);
	state = open(state_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	CHECK(state >= 0);
}

TEST(pool_btrfs_needs_no_image_where_the_state_is_btrfs)
{
	struct pool_info info;

	state_on_btrfs();
	OK(pool_open(state, state_path, NULL, &pool, &err));
	CHECK(pool->kind == POOL_BTRFS && !pool->image && !there(state, "pool.img"));
	OK(pool_info(pool, state, &info, &err));
	CHECK(!info.image && info.image_blocks == 0);
	CHECK(pool_grow(pool, state, SIZE * 4, &err) < 0 && err.code == DEN_UNSUPPORTED);
	pool_close(pool);
	copies_everything("btrfs"); /* and all of it works */
	pool_close(below);
}

TEST(pool_plain_shares_extents_where_it_can)
{
	struct pool_info empty, full;
	auto_fd w = -1;

	state_on_btrfs();
	use("plain");
	CHECK(pool->reflink);
	OK(pool_make(pool, BOX "/w1", &err));
	w = layer(BOX "/w1");
	put_large(w, "data", 64 << 20);
	CHECK(syncfs(w) == 0);
	OK(pool_info(pool, state, &empty, &err));
	for (int i = 1; i < 6; i++) {
		char name[64];

		snprintf(name, sizeof(name), BOX "/w%d", i + 1);
		OK(pool_snapshot(pool, BOX "/w1", NULL, name, false, &err));
	}
	OK(pool_info(pool, state, &full, &err));
	CHECK(full.used < empty.used + (8 << 20));
	CHECK(ino_of(pool->fd, BOX "/w1/data") != ino_of(pool->fd, BOX "/w2/data"));
	OK(pool_remove(pool, BOX, &err));
	pool_close(pool);
	copies_everything("plain");
	pool_close(below);
}

/* What the image has on disk at the moment a call returns is what a power cut leaves. */
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
