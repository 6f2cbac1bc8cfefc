/*
 * SHA-256, layers and images: known answers, hostile trees, damaged folders, and everything at once.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <sched.h>
#include <stdbool.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <sys/xattr.h>

#include "buf.h"
#include "clock.h"
#include "fd.h"
#include "image.h"
#include "mem.h"
#include "sha256.h"
#include "strv.h"
#include "test.h"
#include "wire.h"

#define OPAQUE "user.overlay.opaque"

/* ---- SHA-256 ---- */

static void hex_of(const void *p, size_t n, size_t step, char hex[static 65])
{
	struct sha256 s;

	sha256_init(&s);
	for (size_t at = 0; at < n; at += step)
		sha256_add(&s, (const char *)p + at, MIN(step, n - at));
	sha256_hex(&s, hex);
}

TEST(sha256_gives_the_answers_of_the_standard)
{
	static const struct {
		const char *text, *hex;
	} known[] = {
		{ "", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" },
		{ "abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" },
		{ "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
			"248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1" },
		{ "abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnopqrs"
		  "mnopqrstnopqrstu",
			"cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1" },
	};
	auto_free char *million = mem_alloc(1000000);
	char hex[65];

	for (size_t i = 0; i < ARRAY_SIZE(known); i++) {
		hex_of(known[i].text, strlen(known[i].text), 1000, hex);
		CHECK(!strcmp(hex, known[i].hex));
	}
	memset(million, 'a', 1000000);
	hex_of(million, 1000000, 1000000, hex);
	CHECK(!strcmp(hex, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"));
}

TEST(sha256_does_not_care_how_the_bytes_come)
{
	uint8_t data[1000];
	char whole[65], parts[65];

	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i * 37 + i / 256);
	for (size_t n = 0; n < sizeof(data); n += 1 + n / 40) {
		hex_of(data, n, sizeof(data), whole);
		for (size_t step = 1; step < 140; step += 7) {
			hex_of(data, n, step, parts);
			CHECK(!strcmp(whole, parts));
		}
	}
}

TEST(sha256_is_the_same_with_and_without_the_processor_s_help)
{
	struct sha256 s;
	uint32_t h[8];
	uint8_t data[64 * 9];

	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i * 131 ^ i >> 3);
	for (size_t n = 0; n <= 9; n++) {
		sha256_init(&s);
		memcpy(h, s.h, sizeof(h));
		sha256_add(&s, data, n * 64);
		sha256_blocks_portable(h, data, n);
		CHECK(!memcmp(h, s.h, sizeof(h)));
	}
}

/* ---- trees ---- */

static int dir_make(const char *name)
{
	char path[PATH_MAX];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", test_dir(), name);
	CHECK(mkdir(path, 0755) == 0);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	CHECK(fd >= 0);
	return fd;
}

static void put(int dirfd, const char *path, const char *text)
{
	int fd = openat(dirfd, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	close(fd);
}

static void sub(int dirfd, const char *path)
{
	CHECK(mkdirat(dirfd, path, 0755) == 0);
}

static bool there(int dirfd, const char *path)
{
	return faccessat(dirfd, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static bool whiteout(int dirfd, const char *path)
{
	struct stat st;

	return fstatat(dirfd, path, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISCHR(st.st_mode) && st.st_rdev == 0;
}

static struct buf *at(int dirfd, const char *path)
{
	static struct buf b;

	b.len = 0;
	buf_addf(&b, "/proc/self/fd/%d/%s", dirfd, path);
	buf_str(&b);
	return &b;
}

static void mark(int dirfd, const char *path, const char *name, const char *value)
{
	if (lsetxattr(at(dirfd, path)->p, name, value, strlen(value), 0) < 0 && errno == ENOTSUP)
		SKIP("this file system has no user attributes");
	CHECK(lgetxattr(at(dirfd, path)->p, name, NULL, 0) == (ssize_t)strlen(value));
}

static bool marked(int dirfd, const char *path, const char *name)
{
	return lgetxattr(at(dirfd, path)->p, name, NULL, 0) >= 0;
}

/* Fails the test, and says why, if a call did. */
static void well(int r, const struct den_err *err)
{
	if (r < 0)
		fprintf(stderr, "%s\n", err->msg);
	CHECK(r >= 0);
}

static void digest(int fd, char hex[static 65])
{
	struct den_err err;

	well(layer_digest(fd, hex, NULL, &err), &err);
}

/* Has the digest changed since it was asked last? */
static bool changed(int fd)
{
	static char last[65];
	char now[65];
	bool r;

	digest(fd, now);
	r = strcmp(now, last) != 0;
	memcpy(last, now, sizeof(last));
	return r;
}

static void sample(int fd)
{
	sub(fd, "d");
	sub(fd, "d/e");
	put(fd, "d/f", "content");
	put(fd, "g", "");
	CHECK(symlinkat("d/f", fd, "l") == 0);
	CHECK(mkfifoat(fd, "p", 0644) == 0);
}

TEST(layer_digest_tells_every_kind_of_change)
{
	int fd = dir_make("t");

	sample(fd);
	CHECK(changed(fd) && !changed(fd));
	put(fd, "d/f", "Content");
	CHECK(changed(fd));
	put(fd, "d/f", "Content.");
	CHECK(changed(fd));
	put(fd, "d/e/new", "");
	CHECK(changed(fd));
	CHECK(renameat(fd, "d/e/new", fd, "d/e/neu") == 0 && changed(fd));
	CHECK(renameat(fd, "d/e/neu", fd, "d/e/ee") == 0 && changed(fd));
	CHECK(renameat(fd, "d/e/ee", fd, "d/ee") == 0 && changed(fd)); /* told in the same order, but out of e */
	CHECK(unlinkat(fd, "d/ee", 0) == 0 && changed(fd));
	CHECK(fchmodat(fd, "d/f", 0600, 0) == 0 && changed(fd));
	CHECK(fchmodat(fd, "d/f", 04755, 0) == 0 && changed(fd));
	CHECK(fchmodat(fd, "d", 0700, 0) == 0 && changed(fd));
	CHECK(fchmod(fd, 0711) == 0 && changed(fd)); /* the top itself */
	CHECK(unlinkat(fd, "l", 0) == 0 && symlinkat("d/g", fd, "l") == 0 && changed(fd));
	CHECK(unlinkat(fd, "p", 0) == 0 && changed(fd));
	put(fd, "p", ""); /* the name is back, as another type */
	CHECK(changed(fd));
	CHECK(unlinkat(fd, "p", 0) == 0 && mknodat(fd, "p", S_IFSOCK | 0644, 0) == 0 && changed(fd));
	sub(fd, "d/z");
	CHECK(changed(fd));
	CHECK(unlinkat(fd, "d/z", AT_REMOVEDIR) == 0 && changed(fd));
	if (geteuid() == 0) {
		CHECK(fchownat(fd, "g", 7, 0, 0) == 0 && changed(fd));
		CHECK(fchownat(fd, "g", 7, 9, 0) == 0 && changed(fd));
		CHECK(fchownat(fd, "l", 7, 9, AT_SYMLINK_NOFOLLOW) == 0 && changed(fd));
	}
}

TEST(layer_digest_counts_attributes_whiteouts_and_opaque_marks_but_not_overlayfs_s_notes)
{
	int fd = dir_make("t");

	sample(fd);
	CHECK(changed(fd));
	mark(fd, "g", "user.a", "1");
	CHECK(changed(fd));
	mark(fd, "g", "user.a", "2");
	CHECK(changed(fd));
	mark(fd, "g", "user.b", "");
	CHECK(changed(fd));
	mark(fd, "d", OPAQUE, "y");
	CHECK(changed(fd));
	CHECK(lremovexattr(at(fd, "d")->p, OPAQUE) == 0 && changed(fd));
	mark(fd, ".", OPAQUE, "y");
	CHECK(changed(fd));
	mark(fd, "d", "user.overlay.origin", "x");
	mark(fd, "d", "user.overlay.impure", "y");
	mark(fd, ".", "user.overlay.uuid", "0123456789abcdef");
	CHECK(!changed(fd));
	mark(fd, "d", "user.overlay.overlay.opaque", "y"); /* escaped: content */
	CHECK(changed(fd));
	if (mknodat(fd, "w", S_IFCHR, makedev(0, 0)) < 0)
		SKIP("no whiteouts here");
	CHECK(changed(fd));
	if (geteuid() == 0) {
		CHECK(fchownat(fd, "w", 1, 1, 0) == 0 && fchmodat(fd, "w", 0600, 0) == 0 && !changed(fd));
		CHECK(unlinkat(fd, "w", 0) == 0 && mknodat(fd, "w", S_IFCHR | 0600, makedev(1, 3)) == 0);
		CHECK(changed(fd));
		CHECK(unlinkat(fd, "w", 0) == 0 && mknodat(fd, "w", S_IFCHR | 0600, makedev(1, 5)) == 0);
		CHECK(changed(fd));
	}
}

TEST(layer_digest_does_not_care_for_times_inodes_links_or_order)
{
	int a = dir_make("a"), b = dir_make("b");
	struct timespec old[2] = { { 1000, 0 }, { 1000, 5 } };
	char x[65], y[65];

	sample(a);
	CHECK(mkfifoat(b, "p", 0644) == 0); /* the same, made in another order */
	put(b, "g", "");
	CHECK(symlinkat("d/f", b, "l") == 0);
	sub(b, "d");
	put(b, "d/f", "content");
	sub(b, "d/e");
	CHECK(utimensat(b, "d/f", old, 0) == 0 && utimensat(b, "d", old, 0) == 0);
	mark(a, "g", "user.x", "1");
	mark(a, "g", "user.y", "2");
	mark(b, "g", "user.y", "2");
	mark(b, "g", "user.x", "1");
	digest(a, x);
	digest(b, y);
	CHECK(!strcmp(x, y));
	put(a, "h", "same");
	put(a, "i", "same");
	put(b, "h", "same");
	CHECK(linkat(b, "h", b, "i", 0) == 0);
	digest(a, x);
	digest(b, y);
	CHECK(!strcmp(x, y));
}

TEST(layer_digest_passes_holes_quickly_and_reads_them_as_zeros)
{
	static const char zeros[300000];
	int a = dir_make("a"), b = dir_make("b"), f, g;
	char x[65], y[65];
	uint64_t bytes;
	int64_t start;

	f = openat(a, "f", O_RDWR | O_CREAT, 0644);
	g = openat(b, "f", O_RDWR | O_CREAT, 0644);
	CHECK(pwrite(f, "x", 1, 200001) == 1 && ftruncate(f, sizeof(zeros)) == 0);
	CHECK(pwrite(g, zeros, sizeof(zeros), 0) == sizeof(zeros) && pwrite(g, "x", 1, 200001) == 1);
	digest(a, x);
	digest(b, y);
	CHECK(!strcmp(x, y));
	CHECK(pwrite(g, "x", 1, 200002) == 1 && pwrite(g, zeros, 1, 200001) == 1); /* the place counts */
	digest(b, y);
	CHECK(strcmp(x, y));
	CHECK(pwrite(g, "x", 1, 200001 - 65536) == 1 && pwrite(g, zeros, 1, 200002) == 1);
	digest(b, y);
	CHECK(strcmp(x, y));
	CHECK(ftruncate(f, (off_t)1 << 43) == 0);
	start = clock_mono_ns();
	CHECK(layer_digest(a, x, &bytes, NULL) == 0);
	CHECK(clock_mono_ns() - start < 5 * NS_PER_SEC && bytes <= 65536);
	CHECK(ftruncate(f, ((off_t)1 << 43) + 1) == 0); /* so does the size */
	digest(a, y);
	CHECK(strcmp(x, y));
}

TEST(layer_digest_reads_a_file_of_many_names_once)
{
	int fd = dir_make("t"), f = openat(fd, "f", O_RDWR | O_CREAT, 0644);
	char name[32], hex[65], text[65536];
	uint64_t bytes;

	memset(text, 'x', sizeof(text));
	CHECK(write(f, text, sizeof(text)) == sizeof(text));
	for (int i = 0; i < 50; i++) {
		snprintf(name, sizeof(name), "l%d", i);
		CHECK(linkat(fd, "f", fd, name, 0) == 0);
	}
	CHECK(layer_digest(fd, hex, &bytes, NULL) == 0 && bytes == sizeof(text));
}

/* Directories nested deeper than any path may be long, with `last` in the deepest. */
static void deep(int top, int depth, const char *last)
{
	int fd = dup(top);

	for (int i = 0; i < depth; i++) {
		int next;

		sub(fd, "dddddddd");
		next = openat(fd, "dddddddd", O_RDONLY | O_DIRECTORY);
		CHECK(next >= 0);
		close(fd);
		fd = next;
	}
	put(fd, last, "deep");
	close(fd);
}

static int deepest(int top, int depth)
{
	int fd = dup(top);

	for (int i = 0; i < depth; i++) {
		int next = openat(fd, "dddddddd", O_RDONLY | O_DIRECTORY);

		CHECK(next >= 0);
		close(fd);
		fd = next;
	}
	return fd;
}

TEST(layers_may_be_nested_deeper_than_a_path_with_few_descriptors)
{
	struct rlimit many, few;
	int fd = dir_make("t"), low;
	struct den_err err;
	char x[65], y[65];

	deep(fd, 1500, ".wh.gone");
	CHECK(getrlimit(RLIMIT_NOFILE, &many) == 0);
	few = (struct rlimit){ 64, many.rlim_max };
	CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
	digest(fd, x);
	well(layer_convert(fd, &err), &err);
	low = deepest(fd, 1500);
	CHECK(whiteout(low, "gone") && !there(low, ".wh.gone"));
	digest(fd, y);
	CHECK(strcmp(x, y));
	CHECK(setrlimit(RLIMIT_NOFILE, &many) == 0);
	well(tree_remove_at(fd, "dddddddd", &err), &err);
}

TEST(layers_with_fifos_sockets_and_links_to_outside_are_safe)
{
	int out = dir_make("out"), fd = dir_make("t");
	char hex[65], path[PATH_MAX];

	put(out, "secret", "s");
	put(out, ".wh.secret", "");
	mark(out, "secret", "user.overlay.origin", "keep");
	snprintf(path, sizeof(path), "%s/out", test_dir());
	CHECK(symlinkat(path, fd, "dir") == 0);
	snprintf(path, sizeof(path), "%s/out/secret", test_dir());
	CHECK(symlinkat(path, fd, "file") == 0 && symlinkat("/", fd, "root") == 0);
	CHECK(mkfifoat(fd, "fifo", 0644) == 0 && mknodat(fd, "sock", S_IFSOCK | 0644, 0) == 0);
	CHECK(symlinkat("secret", out, ".wh.x") == 0);
	alarm(20); /* a fifo that is opened waits for ever */
	CHECK(layer_convert(fd, NULL) == 0);
	digest(fd, hex);
	CHECK(there(out, ".wh.secret") && there(out, "secret"));
	CHECK(marked(out, "secret", "user.overlay.origin"));
}

/* ---- conversion ---- */

TEST(layer_convert_makes_whiteouts_and_opaque_marks_of_markers)
{
	struct timespec old[2] = { { 1000, 0 }, { 1000, 7 } };
	struct stat st;
	int fd = dir_make("t");

	sub(fd, "d");
	sub(fd, "o");
	put(fd, ".wh.etc", "");
	put(fd, "d/.wh.f g\n", "not empty");
	put(fd, "o/.wh..wh..opq", "");
	put(fd, "o/kept", "k");
	CHECK(utimensat(fd, "d", old, 0) == 0 && utimensat(fd, "o", old, 0) == 0);
	if (mknodat(fd, "probe", S_IFCHR, makedev(0, 0)) < 0)
		SKIP("no whiteouts here");
	CHECK(layer_convert(fd, NULL) == 0);
	CHECK(!there(fd, "probe")); /* the unpacking box's own */
	CHECK(whiteout(fd, "etc") && !there(fd, ".wh.etc"));
	CHECK(whiteout(fd, "d/f g\n") && !there(fd, "d/.wh.f g\n"));
	CHECK(marked(fd, "o", OPAQUE) && !there(fd, "o/.wh..wh..opq") && there(fd, "o/kept"));
	CHECK(!marked(fd, "d", OPAQUE) && !marked(fd, ".", OPAQUE));
	CHECK(fstatat(fd, "d", &st, 0) == 0 && st.st_mtim.tv_sec == 1000 && st.st_mtim.tv_nsec == 7);
	CHECK(fstatat(fd, "o", &st, 0) == 0 && st.st_mtim.tv_sec == 1000);
}

TEST(layer_convert_takes_away_what_overlayfs_wrote_for_itself)
{
	static const char *const names[] = { OPAQUE, "user.overlay.origin", "user.overlay.impure",
		"user.overlay.redirect", "user.overlay.metacopy", "user.overlay.nlink", "user.overlay.uuid",
		"user.overlay.whiteout", "user.overlay.something-new" };
	static const char *const where[] = { ".", "d", "d/e", "d/f", "g" };
	int fd = dir_make("t");

	sample(fd);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		for (size_t j = 0; j < ARRAY_SIZE(where); j++)
			mark(fd, where[j], names[i], "y");
	mark(fd, "g", "user.mine", "1");
	mark(fd, "d", "user.overlay.overlay.opaque", "y");
	put(fd, "d/e/.wh..wh..opq", "");
	CHECK(layer_convert(fd, NULL) == 0);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		for (size_t j = 0; j < ARRAY_SIZE(where); j++)
			CHECK(marked(fd, where[j], names[i]) == (i == 0 && j == 2));
	CHECK(marked(fd, "g", "user.mine") && marked(fd, "d", "user.overlay.overlay.opaque"));
}

TEST(layer_convert_lets_what_is_in_the_layer_win_over_its_whiteout)
{
	int fd = dir_make("t");

	put(fd, "a", "here");
	put(fd, ".wh.a", "");
	sub(fd, "d");
	put(fd, "d/x", "");
	put(fd, ".wh.d", "");
	CHECK(symlinkat("nowhere", fd, "l") == 0);
	put(fd, ".wh.l", "");
	if (mknodat(fd, "w", S_IFCHR, makedev(0, 0)) < 0)
		SKIP("no whiteouts here");
	put(fd, ".wh.w", ""); /* both from the unpacking box and from the archive */
	CHECK(layer_convert(fd, NULL) == 0);
	CHECK(there(fd, "a") && !whiteout(fd, "a") && !there(fd, ".wh.a"));
	CHECK(there(fd, "d/x") && marked(fd, "d", OPAQUE)); /* the lower d is hidden all the same */
	CHECK(there(fd, "l") && !whiteout(fd, "l") && whiteout(fd, "w"));
}

static unsigned entries(int dirfd, const char *prefix)
{
	int fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY);
	DIR *d = fdopendir(fd);
	struct dirent *de;
	unsigned n = 0;

	while ((de = readdir(d)))
		n += !strncmp(de->d_name, prefix, strlen(prefix));
	closedir(d);
	return n;
}

TEST(layer_convert_makes_what_overlayfs_understands)
{
	int low = dir_make("low"), up = dir_make("up"), m = dir_make("m");
	char opt[3 * PATH_MAX], path[PATH_MAX];

	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		SKIP("may not mount");
	sub(low, "opaque");
	sub(low, "fresh");
	sub(low, "merged");
	put(low, "opaque/lower", "");
	put(low, "fresh/lower", "");
	put(low, "merged/lower", "");
	put(low, "merged/gone", "");
	put(low, "gone", "");
	sub(up, "opaque");
	sub(up, "fresh");
	sub(up, "merged");
	mark(up, "merged", OPAQUE, "y"); /* the unpacking box's, since the directory was new there */
	put(up, "opaque/upper", "");
	put(up, "opaque/.wh..wh..opq", "");
	put(up, "fresh/upper", "");
	put(up, ".wh.fresh", "");
	put(up, "merged/upper", "");
	put(up, "merged/.wh.gone", "");
	put(up, ".wh.gone", "");
	CHECK(layer_convert(up, NULL) == 0);
	snprintf(opt, sizeof(opt), "userxattr,lowerdir=%s/up:%s/low", test_dir(), test_dir());
	snprintf(path, sizeof(path), "%s/m", test_dir());
	if (mount("overlay", path, "overlay", 0, opt) < 0)
		SKIP("no overlayfs with userxattr");
	close(m);
	m = open(path, O_RDONLY | O_DIRECTORY);
	CHECK(there(m, "opaque/upper") && !there(m, "opaque/lower"));
	CHECK(there(m, "fresh/upper") && !there(m, "fresh/lower"));
	CHECK(there(m, "merged/upper") && there(m, "merged/lower") && !there(m, "merged/gone"));
	CHECK(!there(m, "gone") && entries(m, "") == 5); /* with . and .. */
	close(m);
	umount2(path, MNT_DETACH);
}

TEST(layer_convert_refuses_whiteouts_of_nothing_and_odd_ones)
{
	static const char *const bad[] = { ".wh.", ".wh..", ".wh...", "d/.wh...", "d/.wh." };
	struct den_err err;
	int fd = dir_make("t");

	sub(fd, "d");
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		put(fd, bad[i], "");
		CHECK(layer_convert(fd, &err) < 0 && err.code == DEN_INVALID && there(fd, bad[i]));
		CHECK(unlinkat(fd, bad[i], 0) == 0);
	}
	sub(fd, ".wh.a");
	put(fd, ".wh.a/b", "");
	CHECK(layer_convert(fd, &err) < 0 && err.code == DEN_INVALID);
	CHECK(unlinkat(fd, ".wh.a/b", 0) == 0 && unlinkat(fd, ".wh.a", AT_REMOVEDIR) == 0);
	CHECK(symlinkat("x", fd, ".wh.a") == 0);
	CHECK(layer_convert(fd, &err) < 0 && err.code == DEN_INVALID && unlinkat(fd, ".wh.a", 0) == 0);
	CHECK(mkfifoat(fd, ".wh..wh..opq", 0600) == 0);
	CHECK(layer_convert(fd, &err) < 0 && err.code == DEN_INVALID && !marked(fd, ".", OPAQUE));
	CHECK(unlinkat(fd, ".wh..wh..opq", 0) == 0);
	sub(fd, ".wh..wh.plnk"); /* of aufs: dropped with what is in it */
	put(fd, ".wh..wh.plnk/x", "");
	put(fd, ".wh..wh.aufs", "");
	CHECK(layer_convert(fd, &err) == 0 && !there(fd, ".wh..wh.plnk") && !there(fd, ".wh..wh.aufs"));
}

/* ---- names ---- */

TEST(image_names_are_those_of_repositories)
{
	static const char *const good[] = { "a", "debian", "debian:12", "debian:Bookworm-Slim_1.0", "a.b-c_d",
		"library/debian", "localhost:5000/a/b:1", "registry.example/team/app", "a:5000", "a:5000/b", "0",
		"hosts", "my/host", "host/a", "emptyy", "abcdef123456:x", "abcdef12345" };
	static const char *const bad[] = { "", ":", "a:", ":a", "/a", "a/", "a//b", "A", "a/B", "../a", "a/../b",
		"a..b", "a:b:c", "a:b/c", "a/b:5000/c", "a:/b", "a:123456/b", "a b", "a\n", "a\tb", "a\033[0m", "-a",
		".a", "_a", "a/-b", "a:-b", "a:.b", "a:x/y", "a@sha256", "a\\b", "\303\244", "host", "empty",
		"host:1", "empty:latest", "abcdef123456", "a:5000/b:c:d", "a:5000x/b",
		"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef" };
	char longest[IMAGE_NAME_MAX + 2];
	struct den_err err;

	for (size_t i = 0; i < ARRAY_SIZE(good); i++)
		well(image_name_check(good[i], &err), &err);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		err.code = DEN_OK;
		if (image_name_check(bad[i], &err) == 0)
			fprintf(stderr, "accepted '%s'\n", bad[i]);
		CHECK(err.code == DEN_INVALID);
	}
	memset(longest, 'z', sizeof(longest) - 1);
	longest[IMAGE_NAME_MAX + 1] = '\0';
	CHECK(image_name_check(longest, &err) < 0);
	longest[IMAGE_NAME_MAX] = '\0';
	CHECK(image_name_check(longest, &err) == 0);
}

/* ---- images ---- */

static struct store *store;
static struct pool *pool;
static int templates;

static void state_open(void)
{
	struct pool_options plain = { .kind = "plain" };
	char path[PATH_MAX], id[65];
	struct den_err err;

	snprintf(path, sizeof(path), "%s/state", test_dir());
	well(store_open(path, true, &store, &err), &err);
	well(pool_open(store->fd, store->path, &plain, &pool, &err), &err);
	templates = openat(store->fd, "templates", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	CHECK(templates >= 0);
	/* The database is made here, alone: what happens when several make it is the database's test. */
	CHECK(image_find(store, "none", id, &err) < 0 && err.code == DEN_NOT_FOUND);
}

static void state_close(void)
{
	close(templates);
	pool_close(pool);
	store_close(store);
}

/* A layer with one file, in the pool; its digest. */
static void layer_make(const char *content, char hex[static 65])
{
	struct den_err err;
	char name[96];
	int fd;

	well(pool_make(pool, "layers/.new-test", &err), &err);
	fd = openat(pool->fd, "layers/.new-test", O_RDONLY | O_DIRECTORY);
	CHECK(fd >= 0);
	sub(fd, "u0");
	put(fd, "u0/file", content);
	digest(fd, hex);
	close(fd);
	snprintf(name, sizeof(name), "layers/%s", hex);
	well(pool_rename(pool, "layers/.new-test", name, &err), &err);
}

static bool layer_there(const char *hex)
{
	char name[96];

	snprintf(name, sizeof(name), "layers/%s", hex);
	return there(pool->fd, name);
}

static void layer_add(struct image *img, const char *hex, const char *at_, const char *diff)
{
	img->layers = mem_realloc(img->layers, (img->n_layers + 1) * sizeof(*img->layers));
	img->layers[img->n_layers] = (struct image_layer){ .sub = mem_strdup("u0"), .at = mem_strdup(at_) };
	memcpy(img->layers[img->n_layers].hex, hex, 65);
	img->layers[img->n_layers++].diff_id = diff ? mem_strdup(diff) : NULL;
}

#define DIFF "sha256:00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

static void image_fill(struct image *img, const char *hex)
{
	*img = (struct image){ .config = mem_strdup("{\"a\":1}"), .detail = mem_strdup("for people\n"),
		.size = 12345, .created_ms = 1700000000123 };
	layer_add(img, hex, "/", DIFF);
	img->defaults.user = mem_strdup("1000:1000");
	img->defaults.workdir = mem_strdup("/srv");
	strv_add(&img->defaults.env, "PATH=/bin");
	strv_add(&img->defaults.env, "EMPTY=");
	strv_add(&img->defaults.entrypoint, "/bin/sh");
	strv_add(&img->defaults.cmd, "-c");
	strv_add(&img->defaults.cmd, "");
}

static void image_make(const char *content, const char *name, char id[static 65], char hex[static 65])
{
	struct image img;
	struct den_err err;

	layer_make(content, hex);
	image_fill(&img, hex);
	well(image_put(store, &img, name, &err), &err);
	memcpy(id, img.id, 65);
	image_free(&img);
}

static void box_put(const char *id, const char *version)
{
	struct box_row row = { .version = (char *)version, .info.created_ms = 1 };
	struct den_err err;

	row.info.spec.id = (char *)id;
	CHECK(store_put(store, &row, &err) == 0);
}

TEST(image_comes_back_as_it_was_put)
{
	struct image img, back = { 0 };
	char hex[65], id[65];
	struct den_err err;

	state_open();
	layer_make("one", hex);
	image_fill(&img, hex);
	CHECK(image_put(store, &img, "team/app:1", &err) == 0);
	CHECK(strlen(img.id) == 64 && image_find(store, "team/app:1", id, &err) == 0 && !strcmp(id, img.id));
	CHECK(image_get(store, id, &back, &err) == 0);
	CHECK(!strcmp(back.id, id) && !back.parent && back.n_layers == 1 && !back.damage);
	CHECK(!strcmp(back.layers[0].hex, hex) && !strcmp(back.layers[0].sub, "u0"));
	CHECK(!strcmp(back.layers[0].at, "/") && !strcmp(back.layers[0].diff_id, DIFF));
	CHECK(!strcmp(back.config, img.config) && !strcmp(back.detail, img.detail));
	CHECK(back.size == 12345 && back.created_ms == 1700000000123);
	CHECK(!strcmp(back.defaults.user, "1000:1000") && !strcmp(back.defaults.workdir, "/srv"));
	CHECK(strv_len(back.defaults.env) == 2 && !strcmp(back.defaults.env[1], "EMPTY="));
	CHECK(strv_len(back.defaults.entrypoint) == 1 && !strcmp(back.defaults.entrypoint[0], "/bin/sh"));
	CHECK(strv_len(back.defaults.cmd) == 2 && !strcmp(back.defaults.cmd[1], ""));
	image_free(&back);
	image_free(&img);
	state_close();
}

TEST(image_id_is_that_of_its_parts_and_of_nothing_else)
{
	struct image img, other;
	char hex[65], hex2[65], id[65];

	state_open();
	layer_make("one", hex);
	layer_make("two", hex2);
	image_fill(&img, hex);
	CHECK(image_put(store, &img, NULL, NULL) == 0);
	memcpy(id, img.id, 65);
#define SAME_WITH(change, same)                                            \
	do {                                                               \
		image_fill(&other, hex);                                   \
		change;                                                    \
		CHECK(image_put(store, &other, NULL, NULL) == 0);          \
		CHECK((strcmp(other.id, id) == 0) == (same));              \
		image_free(&other);                                        \
	} while (0)
	SAME_WITH(other.size = 1, true);
	SAME_WITH(other.created_ms = 0, true);
	SAME_WITH(other.detail[0] = 'F', true);
	SAME_WITH(other.config[5] = '2', false);
	SAME_WITH(free(mem_take(&other.config)), false);
	SAME_WITH(other.defaults.user[0] = '2', false);
	SAME_WITH(strv_add(&other.defaults.cmd, "x"), false);
	SAME_WITH(other.parent = mem_strdup("host-0123456789abcdef"), false);
	SAME_WITH(layer_add(&other, hex2, "/", NULL), false);
	SAME_WITH(other.layers[0].diff_id[7] = 'f', false);
	/* The same words, as command and as entry point. */
	SAME_WITH(strv_add(&other.defaults.entrypoint, "-c"), false);
	image_free(&img);
	state_close();
}

TEST(image_put_refuses_what_it_could_not_read_back)
{
	struct image img;
	struct den_err err;
	char hex[65];

	state_open();
	layer_make("one", hex);
#define REFUSED(change)                                                          \
	do {                                                                     \
		image_fill(&img, hex);                                           \
		change;                                                          \
		memset(&err, 0, sizeof(err));                                    \
		CHECK(image_put(store, &img, NULL, &err) < 0);                   \
		CHECK(err.code == DEN_INVALID || err.code == DEN_LIMIT);         \
		CHECK(img.id[0] == '\0');                                        \
		image_free(&img);                                                \
	} while (0)
	REFUSED(img.layers[0].hex[0] = 'X');
	REFUSED(img.layers[0].hex[63] = '\0');
	REFUSED(img.layers[0].sub[0] = '/');
	REFUSED((free(img.layers[0].sub), img.layers[0].sub = mem_strdup("u0/../..")));
	REFUSED((free(img.layers[0].sub), img.layers[0].sub = mem_strdup("u0\tx")));
	REFUSED((free(img.layers[0].at), img.layers[0].at = mem_strdup("/usr"))); /* stands on nothing */
	REFUSED((free(img.layers[0].at), img.layers[0].at = mem_strdup("usr")));
	REFUSED(img.layers[0].diff_id[0] = 'S');
	REFUSED(img.parent = mem_strdup("host-../../x"));
	REFUSED(strv_add(&img.defaults.env, "NOVALUE"));
	REFUSED(strv_add(&img.defaults.env, "=x"));
	REFUSED(for (int i = 0; i < IMAGE_LAYERS_MAX; i++) layer_add(&img, hex, "/", NULL));
	REFUSED(image_layer_free(&img.layers[--img.n_layers]));
	CHECK(entries(templates, "i-") == 0 && entries(templates, ".tmp") == 0);
	state_close();
}

TEST(image_is_found_by_name_id_and_prefix)
{
	char a[65], b[65], id[65], hex[65], prefix[65];
	struct den_err err;

	state_open();
	image_make("one", "a", a, hex);
	image_make("two", "b:1", b, hex);
	CHECK(image_find(store, a, id, &err) == 0 && !strcmp(id, a));
	snprintf(prefix, sizeof(prefix), "%.12s", b);
	CHECK(image_find(store, prefix, id, &err) == 0 && !strcmp(id, b));
	prefix[11] = '\0'; /* too short to be meant */
	CHECK(image_find(store, prefix, id, &err) < 0 && err.code == DEN_NOT_FOUND);
	CHECK(image_find(store, "b", id, &err) < 0 && err.code == DEN_NOT_FOUND);
	CHECK(image_find(store, "000000000000", id, &err) < 0 && err.code == DEN_NOT_FOUND);
	CHECK(image_find(store, "../../etc\n", id, &err) < 0 && err.code == DEN_NOT_FOUND);
	CHECK(!strchr(err.msg, '\n'));
	/* Two that begin alike. */
	snprintf(prefix, sizeof(prefix), "%s", b);
	prefix[63] = b[63] == '0' ? '1' : '0';
	{
		char name[80];

		snprintf(name, sizeof(name), "i-%s", prefix);
		CHECK(mkdirat(templates, name, 0700) == 0);
	}
	prefix[20] = '\0';
	CHECK(image_find(store, prefix, id, &err) < 0 && err.code == DEN_INVALID);
	CHECK(image_find(store, b, id, &err) == 0);
	CHECK(image_get(store, "nonsense", NULL, &err) < 0 && err.code == DEN_INVALID);
	state_close();
}

static int collect(const char *name, const struct image *img, void *user, struct den_err *err)
{
	(void)err;
	buf_addf(user, "%s=%.6s%s;", name, img->id, img->damage ? "!" : "");
	return 0;
}

static int stop_at_once(const char *name, const struct image *img, void *user, struct den_err *err)
{
	(void)name, (void)img;
	++*(int *)user;
	return den_fail(err, DEN_TIMEOUT, 0, "enough");
}

TEST(image_names_are_given_moved_taken_away_and_listed)
{
	char a[65], b[65], id[65], hex[65], want[256];
	auto_buf got = { 0 };
	struct den_err err;
	int calls = 0;

	state_open();
	CHECK(image_each(store, collect, &got, &err) == 0 && got.len == 0);
	image_make("one", "z", a, hex);
	image_make("two", "m:1", b, hex);
	CHECK(image_tag(store, a, "a", &err) == 0);
	CHECK(image_tag(store, a, "host", &err) < 0 && err.code == DEN_INVALID);
	CHECK(image_tag(store, "0000000000000000000000000000000000000000000000000000000000000000", "q", &err) < 0);
	CHECK(err.code == DEN_NOT_FOUND);
	CHECK(image_each(store, collect, &got, &err) == 0);
	snprintf(want, sizeof(want), "a=%.6s;m:1=%.6s;z=%.6s;", a, b, a);
	CHECK(!strcmp(buf_str(&got), want));
	CHECK(image_each(store, stop_at_once, &calls, &err) < 0 && calls == 1 && err.code == DEN_TIMEOUT);
	CHECK(image_tag(store, b, "z", &err) == 0 && image_find(store, "z", id, &err) == 0 && !strcmp(id, b));
	CHECK(image_untag(store, "z", false, &err) == 0);
	CHECK(image_find(store, "z", id, &err) < 0 && err.code == DEN_NOT_FOUND);
	CHECK(image_untag(store, "z", false, &err) < 0 && err.code == DEN_NOT_FOUND);
	CHECK(image_find(store, "m:1", id, &err) == 0 && !strcmp(id, b));
	state_close();
}

TEST(image_keeps_its_last_name_while_a_box_stands_on_it)
{
	char a[65], hex[65];
	struct den_err err;

	state_open();
	image_make("one", "a", a, hex);
	CHECK(image_tag(store, a, "b", &err) == 0);
	box_put("b-0123456789abcdef", a);
	CHECK(image_untag(store, "a", false, &err) == 0);
	CHECK(image_untag(store, "b", false, &err) < 0 && err.code == DEN_CONFLICT);
	CHECK(strstr(err.msg, "b-0123456789abcdef"));
	CHECK(image_find(store, "b", a, &err) == 0);
	CHECK(image_untag(store, "b", true, &err) == 0);
	CHECK(image_sweep(store, pool, NULL, NULL, &err) == 0); /* the box still needs it */
	CHECK(image_find(store, a, a, &err) == 0 && layer_there(hex));
	state_close();
}

static void count(const char *what, void *user)
{
	(void)what;
	++*(int *)user;
}

/* As if it was put long ago. */
static void age(int dirfd, const char *prefix, const char *id)
{
	struct timespec old[2] = { { 1000, 0 }, { 1000, 0 } };
	char name[96];

	snprintf(name, sizeof(name), "%s%s", prefix, id);
	CHECK(utimensat(dirfd, name, old, 0) == 0);
}

TEST(image_sweep_takes_what_nobody_needs_and_nothing_else)
{
	char a[65], b[65], c[65], n[65], hex_a[65], hex_b[65], hex_c[65], hex_n[65], loose[65], id[65];
	struct den_err err;
	struct image img;
	int removed = 0;

	state_open();
	image_make("named", "named", a, hex_a);
	image_make("box", "box", b, hex_b);
	image_make("gone", "gone", c, hex_c);
	image_make("new", NULL, n, hex_n);
	layer_make("loose", loose);
	image_fill(&img, hex_a); /* shares a layer with one that stays */
	layer_add(&img, hex_c, "/", NULL);
	CHECK(image_put(store, &img, "shares", &err) == 0);
	box_put("b-0123456789abcdef", b);
	CHECK(image_untag(store, "box", true, &err) == 0 && image_untag(store, "shares", false, &err) == 0);
	CHECK(image_sweep(store, pool, count, &removed, &err) == 0);
	CHECK(removed == 1 && !layer_there("x")); /* the image "shares" alone: its layers are others' too */
	CHECK(image_find(store, img.id, id, &err) < 0 && layer_there(hex_a) && layer_there(hex_c));
	CHECK(image_untag(store, "gone", false, &err) == 0);
	CHECK(image_sweep(store, pool, count, &removed, &err) == 0 && removed == 3);
	CHECK(image_find(store, c, id, &err) < 0 && !layer_there(hex_c));
	CHECK(image_find(store, a, id, &err) == 0 && layer_there(hex_a));
	CHECK(image_find(store, b, id, &err) == 0 && layer_there(hex_b));
	CHECK(image_find(store, n, id, &err) == 0 && layer_there(hex_n)); /* no name, but young */
	CHECK(layer_there(loose));
	age(templates, "i-", n);
	CHECK(image_sweep(store, pool, count, &removed, &err) == 0 && removed == 5);
	CHECK(image_find(store, n, id, &err) < 0 && !layer_there(hex_n));
	CHECK(image_sweep(store, NULL, count, &removed, &err) == 0 && removed == 5);
	{
		struct box_id box = { "b-0123456789abcdef" };

		CHECK(store_delete(store, &box, &err) == 0);
	}
	CHECK(image_sweep(store, pool, count, &removed, &err) == 0 && removed == 7 && !layer_there(hex_b));
	CHECK(entries(templates, ".tmp") == 0 && entries(templates, "i-") == 1);
	image_free(&img);
	state_close();
}

TEST(image_put_again_makes_it_young_again)
{
	char a[65], id[65], hex[65];
	struct den_err err;
	struct image img;

	state_open();
	image_make("one", "a", a, hex);
	CHECK(image_untag(store, "a", false, &err) == 0);
	image_fill(&img, hex);
	CHECK(image_put(store, &img, NULL, &err) == 0 && !strcmp(img.id, a));
	CHECK(image_sweep(store, pool, NULL, NULL, &err) == 0 && image_find(store, a, id, &err) == 0);
	image_free(&img);
	state_close();
}

TEST(image_whose_name_moved_away_is_swept)
{
	char a[65], b[65], id[65], hex_a[65], hex_b[65];
	struct den_err err;

	state_open();
	image_make("one", "latest", a, hex_a);
	image_make("two", "latest", b, hex_b);
	CHECK(image_find(store, "latest", id, &err) == 0 && !strcmp(id, b));
	CHECK(image_sweep(store, pool, NULL, NULL, &err) == 0);
	CHECK(image_find(store, a, id, &err) < 0 && !layer_there(hex_a) && layer_there(hex_b));
	state_close();
}

/* ---- damage ---- */

static void part(const char *id, const char *name, const char *data, size_t n)
{
	char path[160];
	int fd;

	snprintf(path, sizeof(path), "i-%s/%s", id, name);
	fd = openat(templates, path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	CHECK(fd >= 0 && write(fd, data, n) == (ssize_t)n);
	close(fd);
}

static char *part_get(const char *id, const char *name, size_t *n)
{
	struct den_err err;
	char path[160], *text = NULL;
	auto_fd fd = -1;

	snprintf(path, sizeof(path), "i-%s/%s", id, name);
	fd = openat(templates, path, O_RDONLY);
	CHECK(fd >= 0 && fd_read_all(fd, 1 << 20, &text, n, &err) == 0);
	return text;
}

static void is_damaged(const char *id)
{
	struct template t = { 0 };
	struct image img = { 0 };
	struct den_err err = { 0 };

	CHECK(image_get(store, id, &img, &err) < 0);
	if (err.code != DEN_INTERNAL || !strstr(err.msg, "damaged"))
		fprintf(stderr, "%d %s\n", err.code, err.msg);
	CHECK(err.code == DEN_INTERNAL && strstr(err.msg, "damaged") && strstr(err.msg, "make it again"));
	CHECK(!img.layers && !img.detail);
	CHECK(image_open(store, pool, id, &t, NULL, &err) < 0 && !t.trees);
}

TEST(image_that_was_tampered_with_is_refused)
{
	static const char *const names[] = { "layers", "defaults", "config", "meta", "detail" };
	char id[65], hex[65], path[160];

	state_open();
	image_make("one", "a", id, hex);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		size_t n;
		auto_free char *was = part_get(id, names[i], &n);
		struct image img = { 0 };

		if (i < 3) { /* of the others nothing depends on single bytes */
			for (size_t at_ = 0; at_ < n; at_ += 1 + n / 16) {
				was[at_] ^= 1;
				part(id, names[i], was, n);
				is_damaged(id);
				was[at_] ^= 1;
			}
			part(id, names[i], was, n - 1);
			is_damaged(id);
		}
		if (i != 1) { /* a text with a NUL */
			part(id, names[i], "\0", 1);
			is_damaged(id);
		}
		snprintf(path, sizeof(path), "i-%s/%s", id, names[i]);
		CHECK(unlinkat(templates, path, 0) == 0);
		is_damaged(id);
		CHECK(symlinkat("/etc/passwd", templates, path) == 0);
		is_damaged(id);
		CHECK(unlinkat(templates, path, 0) == 0 && mkfifoat(templates, path, 0600) == 0);
		is_damaged(id);
		CHECK(unlinkat(templates, path, 0) == 0);
		part(id, names[i], was, n);
		CHECK(image_get(store, id, &img, NULL) == 0);
		image_free(&img);
	}
	part(id, "meta", "created x\nsize 1\n", 17);
	is_damaged(id);
	part(id, "meta", "created 1\nsize 99999999999999999999\n", 36);
	is_damaged(id);
	part(id, "meta", "created 1\ncolour red\n", 21);
	is_damaged(id);
	state_close();
}

/* A whole folder whose id is right, but with parts that nobody would write: what is decoded is checked
 * by itself, not only by the digest. */
static void forge(const char *layers, const void *defaults, size_t n, char id[static 65])
{
	struct sha256 s;
	auto_buf b = { 0 };
	char name[80];

	buf_addf(&b, "den image 1\nparent -\nlayers %zu\n", strlen(layers));
	buf_addstr(&b, layers);
	buf_addf(&b, "config -\ndefaults %zu\n", n);
	buf_add(&b, defaults, n);
	sha256_init(&s);
	sha256_add(&s, b.p, b.len);
	sha256_hex(&s, id);
	snprintf(name, sizeof(name), "i-%s", id);
	CHECK(mkdirat(templates, name, 0700) == 0);
	part(id, "layers", layers, strlen(layers));
	part(id, "defaults", defaults, n);
	part(id, "meta", "created 1\nsize 1\n", 17);
	part(id, "detail", "", 0);
}

#define HEX64 "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

TEST(image_with_a_right_digest_is_still_checked)
{
	static const char *const layers[] = { "x\n", HEX64 "\n", HEX64 "\tu0\t/\n", HEX64 "\tu0\t/\t-\tmore\n",
		HEX64 "\t../x\t/\t-\n", HEX64 "\t/x\t/\t-\n", HEX64 "\tu0\t/usr\t-\n", HEX64 "\tu0\t/\tmd5:1\n",
		HEX64 "\tu0\t/\t-\n\n" HEX64 "\tu0\t/\t-\n", "", HEX64 "\t\t/\t-\n" };
	struct image img = { 0 };
	auto_buf b = { 0 };
	char id[65];

	state_open();
	forge(HEX64 "\tu0\t/\t-\n", "", 0, id);
	CHECK(image_get(store, id, &img, NULL) == 0);
	image_free(&img);
	for (size_t i = 0; i < ARRAY_SIZE(layers); i++) {
		forge(layers[i], "", 0, id);
		is_damaged(id);
	}
#define FORGED(what)                                             \
	do {                                                     \
		b.len = 0;                                       \
		what;                                            \
		forge(HEX64 "\tu0\t/\t-\n", b.p, b.len, id);     \
		is_damaged(id);                                  \
	} while (0)
	FORGED(wire_put_str(&b, F_NAME, "x"));				 /* another message's */
	FORGED(wire_put_str(&b, (enum wire_field)(WIRE_FIELDS + 7), "x")); /* nobody's */
	FORGED((wire_put_str(&b, F_USER, "a"), wire_put_str(&b, F_USER, "b")));
	FORGED(wire_put_bytes(&b, F_CWD, "a\0b", 3));
	FORGED(wire_put_bytes(&b, F_ARGV, "a\0b", 3));
	FORGED(wire_put_str(&b, F_ENV, "NAME"));
	FORGED((wire_put_str(&b, F_USER, "abcdef"), b.len -= 2));
	FORGED(buf_add(&b, "abc", 3));
	state_close();
}

TEST(image_that_is_damaged_is_listed_repaired_and_keeps_all_layers)
{
	char a[65], b[65], hex_a[65], hex_b[65], loose[65], want[64];
	auto_buf got = { 0 };
	struct den_err err;
	struct image img;
	int removed = 0;

	state_open();
	image_make("one", "a", a, hex_a);
	image_make("two", "b", b, hex_b);
	layer_make("loose", loose);
	part(a, "layers", "", 0);
	CHECK(image_each(store, collect, &got, &err) == 0);
	snprintf(want, sizeof(want), "a=%.6s!;b=%.6s;", a, b);
	CHECK(!strcmp(buf_str(&got), want));
	CHECK(image_untag(store, "b", false, &err) == 0);
	CHECK(image_sweep(store, pool, count, &removed, &err) < 0 && strstr(err.msg, "layers are kept"));
	CHECK(removed == 1 && layer_there(hex_a) && layer_there(hex_b));
	image_fill(&img, hex_a);
	CHECK(image_put(store, &img, NULL, &err) == 0 && !strcmp(img.id, a));
	image_free(&img);
	CHECK(image_get(store, a, &img, &err) == 0 && img.n_layers == 1);
	CHECK(entries(templates, ".tmp") == 0);
	image_free(&img);
	part(a, "layers", "", 0); /* and a damaged one can be removed */
	CHECK(image_untag(store, "a", false, &err) == 0);
	CHECK(image_sweep(store, pool, count, &removed, &err) == 0 && entries(templates, "i-") == 0);
	state_close();
}

/* ---- opening ---- */

TEST(image_opens_as_a_template_with_its_topmost_layer_first)
{
	struct image_defaults d = { 0 };
	struct template t = { 0 };
	struct image img;
	char low[65], mid[65], top[65], want[PATH_MAX];
	struct den_err err;

	state_open();
	layer_make("low", low);
	layer_make("mid", mid);
	layer_make("top", top);
	image_fill(&img, low);
	layer_add(&img, mid, "/", NULL);
	layer_add(&img, top, "/", NULL);
	CHECK(image_put(store, &img, NULL, &err) == 0);
	CHECK(image_open(store, pool, img.id, &t, &d, &err) == 0);
	CHECK(t.n_trees == 1 && !strcmp(t.trees[0].at, "/") && strv_len(t.trees[0].lowers) == 3);
	snprintf(want, sizeof(want), "%s/layers/%s/u0", pool->path, top);
	CHECK(!strcmp(t.trees[0].lowers[0], want) && access(want, F_OK) == 0);
	CHECK(strstr(t.trees[0].lowers[1], mid) && strstr(t.trees[0].lowers[2], low));
	CHECK(!strcmp(t.version, img.id) && !strcmp(t.detail, "for people\n") && !t.owners_path);
	CHECK(!strcmp(d.workdir, "/srv") && strv_len(d.cmd) == 2);
	image_defaults_free(&d);
	template_free(&t);
	/* A root that is opaque hides what is below: overlayfs would not see to it. */
	snprintf(want, sizeof(want), "layers/%s/u0", mid);
	mark(pool->fd, want, OPAQUE, "y");
	CHECK(image_open(store, pool, img.id, &t, NULL, &err) == 0);
	CHECK(strv_len(t.trees[0].lowers) == 2 && strstr(t.trees[0].lowers[1], mid));
	template_free(&t);
	/* A layer that is not there, or not what it was. */
	snprintf(want, sizeof(want), "layers/%s/u0/file", low);
	CHECK(unlinkat(pool->fd, want, 0) == 0);
	snprintf(want, sizeof(want), "layers/%s/u0", low);
	CHECK(unlinkat(pool->fd, want, AT_REMOVEDIR) == 0);
	CHECK(image_open(store, pool, img.id, &t, NULL, &err) < 0 && err.code == DEN_INTERNAL);
	CHECK(strstr(err.msg, "layer "));
	CHECK(symlinkat("/", pool->fd, want) == 0);
	CHECK(image_open(store, pool, img.id, &t, NULL, &err) < 0);
	image_free(&img);
	state_close();
}

TEST(image_on_the_host_s_system_puts_layers_above_its_trees)
{
	struct template t = { 0 };
	struct image img;
	char usr[65], root[65], want[PATH_MAX];
	struct den_err err;
	int fd;

	state_open();
	CHECK(mkdirat(templates, "host-0123456789abcdef", 0700) == 0);
	fd = openat(templates, "host-0123456789abcdef", O_RDONLY | O_DIRECTORY);
	put(fd, "trees", "/\troot\n/usr\tskel/usr\t/usr\n");
	put(fd, "detail", "host\n");
	put(fd, "owners", "0 0 0755 etc\n");
	layer_make("usr", usr);
	layer_make("root", root);
	image_fill(&img, root);
	layer_add(&img, usr, "/usr", NULL);
	img.parent = mem_strdup("host-0123456789abcdef");
	CHECK(image_put(store, &img, "dev", &err) == 0);
	CHECK(image_open(store, pool, img.id, &t, NULL, &err) == 0 && t.n_trees == 2);
	CHECK(strv_len(t.trees[0].lowers) == 2 && strstr(t.trees[0].lowers[0], root));
	snprintf(want, sizeof(want), "%s/templates/host-0123456789abcdef/root", store->path);
	CHECK(!strcmp(t.trees[0].lowers[1], want));
	CHECK(strv_len(t.trees[1].lowers) == 3 && strstr(t.trees[1].lowers[0], usr));
	CHECK(!strcmp(t.trees[1].lowers[2], "/usr") && !t.owners_path);
	template_free(&t);
	CHECK(image_needs_host(store, "0123456789abcdef") && !image_needs_host(store, "0123456789abcdee"));
	put(fd, "trees", "/\troot\n");
	CHECK(image_open(store, pool, img.id, &t, NULL, &err) < 0 && strstr(err.msg, "'/usr'"));
	CHECK(unlinkat(fd, "trees", 0) == 0);
	CHECK(image_open(store, pool, img.id, &t, NULL, &err) < 0 && strstr(err.msg, "stands on"));
	close(fd);
	image_free(&img);
	state_close();
}

TEST(image_layers_are_found_by_the_tar_they_came_from)
{
	struct image_layer l = { 0 };
	char id[65], hex[65];

	state_open();
	CHECK(image_layer_by_diff(store, DIFF, &l) == 0);
	image_make("one", NULL, id, hex);
	CHECK(image_layer_by_diff(store, DIFF, &l) == 1);
	CHECK(!strcmp(l.hex, hex) && !strcmp(l.sub, "u0") && !strcmp(l.diff_id, DIFF));
	image_layer_free(&l);
	CHECK(image_layer_by_diff(store, "sha256:" HEX64, &l) == 0 && image_layer_by_diff(store, "-", &l) == 0);
	part(id, "config", "x", 1); /* what a damaged image says is not believed */
	CHECK(image_layer_by_diff(store, DIFF, &l) == 0);
	state_close();
}

/* ---- at once ---- */

static void wait_well(pid_t pid)
{
	int status;

	CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST(images_put_by_several_at_once_are_one)
{
	char hex[65], id[65], name[32];
	struct den_err err = { 0 };
	pid_t pids[4];
	int go[2];

	state_open();
	layer_make("one", hex);
	CHECK(pipe(go) == 0);
	for (int i = 0; i < 4; i++) {
		pids[i] = fork();
		if (pids[i] == 0) {
			struct image img;
			char c;

			close(go[1]);
			(void)!read(go[0], &c, 1); /* all begin when the pipe is closed */
			for (int n = 0; n < 10; n++) {
				image_fill(&img, hex);
				img.config[5] = (char)('0' + n); /* ten images, each by all */
				snprintf(name, sizeof(name), "n%d:%d", n, i);
				if (image_put(store, &img, name, &err) < 0) {
					fprintf(stderr, "%s\n", err.msg);
					_exit(1);
				}
				image_free(&img);
			}
			_exit(0);
		}
	}
	close(go[0]);
	close(go[1]);
	for (int i = 0; i < 4; i++)
		wait_well(pids[i]);
	CHECK(entries(templates, "i-") == 10 && entries(templates, ".tmp") == 0);
	for (int n = 0; n < 10; n++) {
		char first[65];

		snprintf(name, sizeof(name), "n%d:0", n);
		CHECK(image_find(store, name, first, &err) == 0);
		snprintf(name, sizeof(name), "n%d:3", n);
		CHECK(image_find(store, name, id, &err) == 0 && !strcmp(first, id));
	}
	state_close();
}

/* One makes boxes by the rules, one takes the image's name away and sweeps: a box never stands on
 * nothing. */
TEST(image_is_not_swept_under_a_box_that_is_being_made)
{
	char id[65], hex[65], found[65];
	struct den_err err = { 0 };
	unsigned made = 0, missed = 0;
	pid_t pid;

	state_open();
	layer_make("one", hex);
	pid = fork();
	if (pid == 0) {
		for (int n = 0; n < 40; n++) {
			if (image_untag(store, "a", true, &err) < 0 && err.code != DEN_NOT_FOUND)
				_exit(1);
			if (image_sweep(store, NULL, NULL, NULL, &err) < 0)
				_exit(2);
		}
		_exit(0);
	}
	for (int n = 0; n < 40; n++) {
		struct template t = { 0 };
		struct box_id box;
		struct image img;
		int lock;

		image_fill(&img, hex);
		CHECK(image_put(store, &img, "a", &err) == 0);
		memcpy(id, img.id, 65);
		image_free(&img);
		sched_yield();
		CHECK(image_lock(store, false, &lock, &err) == 0);
		if (image_open(store, pool, id, &t, NULL, &err) == 0) {
			snprintf(box.s, sizeof(box.s), "b-%016d", n);
			box_put(box.s, id);
			close(lock);
			template_free(&t);
			sched_yield();
			CHECK(image_find(store, id, found, &err) == 0);
			CHECK(store_delete(store, &box, &err) == 0);
			made++;
		} else {
			CHECK(err.code == DEN_NOT_FOUND);
			close(lock);
			missed++;
		}
	}
	wait_well(pid);
	CHECK(made > 0 && made + missed == 40);
	state_close();
}

TEST(image_lock_is_shared_by_makers_and_stops_who_sweeps)
{
	int a, b, fd;

	state_open();
	CHECK(image_lock(store, false, &a, NULL) == 0 && image_lock(store, false, &b, NULL) == 0);
	fd = openat(templates, ".lock", O_RDWR);
	CHECK(fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK);
	close(a);
	close(b);
	CHECK(flock(fd, LOCK_EX | LOCK_NB) == 0 && flock(fd, LOCK_UN) == 0);
	CHECK(image_lock(store, true, &a, NULL) == 0);
	CHECK(flock(fd, LOCK_SH | LOCK_NB) < 0);
	close(a);
	close(fd);
	state_close();
}
