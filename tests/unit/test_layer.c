/* Layers: what their digests tell, how markers of archives become overlayfs's, hostile trees. */
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdbool.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

#include "clock.h"
#include "fd.h"
#include "image.h"
#include "kit_layer.h"
#include "mem.h"
#include "test.h"

/* ---- digests ---- */

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
