/* What a copy of a layer has, and what it shares. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/xattr.h>
#include <time.h>

#include "fd.h"
#include "kit_pool.h"
#include "pool.h"
#include "test.h"
#include "walk.h"

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

/* ---- where the state is on btrfs already ---- */

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
