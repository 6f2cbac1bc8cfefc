/*
 * Views and changes: overlayfs's rules on layers made by hand, and at random against real overlay
 * mounts that are read the plain way; diffs against what git makes of them.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>

#include "change.h"
#include "clock.h"
#include "fd.h"
#include "kit_tree.h"
#include "mem.h"
#include "strv.h"
#include "test.h"
#include "text_diff.h"
#include "tree.h"
#include "view.h"

/* ---- the rules, by hand ---------------------------------------------------------------------- */

static struct view one_tree(struct view_tree *t, int *layers, size_t n)
{
	*t = (struct view_tree){ .at = "/", .layers = layers, .n_layers = n };
	return (struct view){ .trees = t, .n_trees = 1 };
}

/* The names in a directory, separated by spaces; NULL: it is none. */
static const char *names_in(const struct view *v, const char *path)
{
	static char text[4096];
	struct view_dir *d;
	struct den_err err;
	auto_strv names = NULL;

	if (view_dir_open(v, path, &d, &err) < 0) {
		CHECK(err.code == DEN_NOT_FOUND);
		return NULL;
	}
	CHECK(view_dir_names(d, &names, &err) == 0);
	view_dir_close(d);
	*text = '\0';
	for (char **n = names; *n; n++)
		snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%s", n == names ? "" : " ", *n);
	return text;
}

static char *read_in(const struct view *v, const char *dir, const char *name)
{
	struct view_dir *d;
	struct den_err err;
	char *text = NULL;
	int fd;

	CHECK(view_dir_open(v, dir, &d, &err) == 0);
	if (view_dir_open_file(d, name, &fd, &err) == 0) {
		CHECK(fd_read_all(fd, 1 << 20, &text, NULL, &err) == 0);
		close(fd);
	}
	view_dir_close(d);
	return text;
}

TEST(view_follows_the_rules_of_overlayfs)
{
	int layers[3] = { kit_dir("up"), kit_dir("mid"), kit_dir("low") };
	auto_free char *text = NULL;
	struct view_tree t;
	struct view v = one_tree(&t, layers, 3);

	kit_put(layers[2], "gone", 0644, "low");
	kit_whiteout(layers[0], "gone");
	kit_put(layers[2], "back", 0644, "low"); /* removed, then made again */
	kit_whiteout(layers[1], "back");
	kit_put(layers[0], "back", 0644, "up");
	kit_put(layers[2], "opaque/low", 0644, "");
	kit_put(layers[1], "opaque/mid", 0644, "");
	kit_put(layers[0], "opaque/up", 0644, "");
	kit_opaque(layers[0], "opaque", "y");
	kit_put(layers[2], "half/low", 0644, "");
	kit_put(layers[1], "half/mid", 0644, "");
	kit_put(layers[0], "half/up", 0644, "");
	kit_opaque(layers[1], "half", "y");
	kit_put(layers[2], "x/low", 0644, "");
	kit_put(layers[0], "x/up", 0644, "");
	kit_opaque(layers[0], "x", "x"); /* hides nothing */
	kit_put(layers[2], "file-over-dir/low", 0644, "");
	kit_put(layers[0], "file-over-dir", 0644, "file");
	kit_put(layers[2], "sandwich/low", 0644, ""); /* a file between two directories */
	kit_put(layers[1], "sandwich", 0644, "");
	kit_put(layers[0], "sandwich/up", 0644, "");
	kit_put(layers[2], "cut/low", 0644, ""); /* a whiteout between them */
	kit_whiteout(layers[1], "cut");
	kit_put(layers[0], "cut/up", 0644, "");
	kit_link(layers[2], "link", "/etc/passwd");
	kit_put(layers[2], "merged/a", 0644, "low");
	kit_put(layers[1], "merged/b", 0644, "mid");
	kit_put(layers[0], "merged/a", 0644, "up");

	CHECK(!strcmp(names_in(&v, ""), "back cut file-over-dir half link merged opaque sandwich x"));
	CHECK(!strcmp(names_in(&v, "opaque"), "up"));
	CHECK(!strcmp(names_in(&v, "half"), "mid up"));
	CHECK(!strcmp(names_in(&v, "x"), "low up"));
	CHECK(!strcmp(names_in(&v, "sandwich"), "up"));
	CHECK(!strcmp(names_in(&v, "cut"), "up"));
	CHECK(!strcmp(names_in(&v, "merged"), "a b"));
	CHECK(!names_in(&v, "file-over-dir") && !names_in(&v, "gone") && !names_in(&v, "nothing"));
	CHECK(!names_in(&v, "link")); /* never followed */
	text = read_in(&v, "merged", "a");
	CHECK(text && !strcmp(text, "up"));
	CHECK(!read_in(&v, "", "link") && !read_in(&v, "", "gone"));
}

TEST(view_goes_from_tree_to_tree)
{
	int root[2] = { kit_dir("u0"), kit_dir("t0") }, usr[2] = { kit_dir("u1"), kit_dir("t1") };
	int local[1] = { kit_dir("u2") };
	struct view_tree t[] = { { "/", root, 2 }, { "/usr", usr, 2 }, { "/usr/local", local, 1 } };
	struct view v = { .trees = t, .n_trees = 3, .own = true };
	struct view_dir *d, *c;
	struct view_node n;
	auto_strv own = NULL;

	kit_put(root[1], "etc/hosts", 0644, "");
	kit_put(root[0], "usr/planted", 0644, ""); /* below the mount point: nobody sees it */
	kit_put(usr[1], "bin/sh", 0755, "");
	kit_put(usr[1], "local/hidden", 0644, "");
	kit_put(usr[0], "bin/new", 0755, "");
	kit_whiteout(usr[0], "bin/sh");
	kit_put(local[0], "here", 0644, "");
	CHECK(!strcmp(names_in(&v, ""), "etc usr"));
	CHECK(!strcmp(names_in(&v, "usr"), "bin local"));
	CHECK(!strcmp(names_in(&v, "usr/bin"), "new"));
	CHECK(!strcmp(names_in(&v, "usr/local"), "here"));
	CHECK(view_dir_open(&v, "usr/bin", &d, NULL) == 0);
	CHECK(view_dir_look(d, "new", &n, NULL) == 0 && n.there && n.layer == 0 && n.st.st_uid == 0);
	CHECK(view_dir_look(d, "sh", &n, NULL) == 0 && !n.there);
	CHECK(view_dir_own_names(d, 1, &own, NULL) == 0 && strv_len(own) == 2); /* the whiteout, too */
	view_dir_close(d);
	/* What a box puts at a mount point does not move it. */
	CHECK(tree_remove_at(root[0], "usr", NULL) == 0);
	kit_link(root[0], "usr", "/etc");
	CHECK(!strcmp(names_in(&v, "usr/local"), "here"));
	CHECK(view_dir_open(&v, "", &d, NULL) == 0 && view_dir_child(d, "usr", &c, NULL) == 0);
	view_dir_close(c);
	view_dir_close(d);
	CHECK(view_dir_open(&v, "usr/../etc", &d, NULL) < 0);
}

TEST(changes_tell_a_touched_file_from_a_changed_one)
{
	int a[2] = { kit_dir("a"), kit_dir("low") }, b[2] = { kit_dir("b"), a[1] };
	struct view_tree ta, tb;
	struct view va = one_tree(&ta, a, 2), vb = one_tree(&tb, b, 2);
	auto_buf got = { 0 };

	kit_put(a[1], "same", 0644, "text");
	kit_put(a[1], "mode", 0644, "text");
	kit_put(a[1], "dir/x", 0644, "text");
	kit_put(a[1], "dev/x", 0644, "den's own");
	kit_put(b[0], "same", 0644, "text"); /* copied up, with other times */
	kit_put(b[0], "mode", 0600, "text");
	kit_put(b[0], "dir/x", 0644, "tex7");
	kit_put(b[0], "dev/y", 0644, "den's own");
	kit_mkdir(b[0], "new", 0755);
	kit_changes(&va, &vb, &got);
	CHECK(!strcmp(buf_str(&got), "modified 1 dir/x\nmeta 2 mode\nadded 0 new\n"));
	got.len = 0;
	kit_changes(&vb, &vb, &got);
	CHECK(got.len == 0);
}

/* A sparse file may claim any size; only what is written counts. */
TEST(changes_of_sparse_giants_take_no_time)
{
	int a[1] = { kit_dir("a") }, b[1] = { kit_dir("b") };
	struct view_tree ta, tb;
	struct view va = one_tree(&ta, a, 1), vb = one_tree(&tb, b, 1);
	auto_buf got = { 0 };
	int64_t start = clock_mono_ns();

	for (int i = 0; i < 2; i++) {
		int fd = openat(i ? b[0] : a[0], "giant", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);

		CHECK(fd >= 0 && ftruncate(fd, (off_t)8 << 40) == 0);
		CHECK(pwrite(fd, "x", 1, (off_t)4 << 40) == 1);
		close(fd);
	}
	kit_changes(&va, &vb, &got);
	CHECK(got.len == 0);
	int fd = openat(b[0], "giant", O_WRONLY | O_CLOEXEC);
	CHECK(fd >= 0 && pwrite(fd, "y", 1, (off_t)7 << 40) == 1);
	close(fd);
	kit_changes(&va, &vb, &got);
	CHECK(!strcmp(buf_str(&got), "modified 1 giant\n"));
	CHECK(clock_mono_ns() - start < 5000000000LL);
}

/* ---- deep and wide --------------------------------------------------------------------------- */

/* A chain of directories "d", with a file in each. */
static void chain(int root, unsigned depth, const char *text)
{
	int fd = openat(root, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	for (unsigned i = 0; i < depth; i++) {
		int next;

		CHECK(mkdirat(fd, "d", 0755) == 0);
		next = openat(fd, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		CHECK(next >= 0);
		close(fd);
		fd = next;
		kit_put(fd, "f", 0644, text);
	}
	close(fd);
}

static unsigned lines_of(struct buf *b)
{
	unsigned n = 0;

	for (const char *p = buf_str(b); (p = strchr(p, '\n')); p++)
		n++;
	return n;
}

TEST(changes_a_thousand_directories_deep_need_few_descriptors)
{
	int a[3] = { kit_dir("a"), kit_dir("low"), kit_dir("low2") }, b[3] = { kit_dir("b"), a[1], a[2] };
	struct rlimit few = { 300, 300 };
	struct view_tree ta, tb;
	struct view va = one_tree(&ta, a, 3), vb = one_tree(&tb, b, 3);
	auto_buf got = { 0 }, tar = { 0 }, list = { 0 };
	struct den_err err;

	chain(a[0], 1500, "a");
	chain(a[1], 1500, "low");
	chain(a[2], 1500, "low2");
	chain(b[0], 1500, "b");
	CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
	kit_changes(&va, &vb, &got);
	CHECK(lines_of(&got) == 1500);
	CHECK(changes_tar(&va, &vb, kit_sink, &tar, &err) == 0);
	kit_list(&tar, &list);
	CHECK(lines_of(&list) == 3000);
	for (int i = 0; i < 3; i++) /* deeper than the test's own cleaning can go */
		CHECK(tree_remove_at(a[i], "d", NULL) == 0);
	chain(a[0], 4200, "a");
	CHECK(tree_remove_at(b[0], "d", NULL) == 0);
	CHECK(changes_tar(&va, &vb, kit_sink, &tar, &err) == 0); /* removed: one mark, not looked at */
	CHECK(changes_tar(&vb, &va, kit_sink, &tar, &err) < 0 && err.code == DEN_LIMIT);
	CHECK(tree_remove_at(a[0], "d", NULL) == 0);
}

TEST(changes_of_many_names_come_sorted)
{
	int a[1] = { kit_dir("a") }, b[1] = { kit_dir("b") };
	struct view_tree ta, tb;
	struct view va = one_tree(&ta, a, 1), vb = one_tree(&tb, b, 1);
	auto_buf got = { 0 };
	char name[32], *save, *before = NULL;

	for (unsigned i = 0; i < 20000; i++) {
		snprintf(name, sizeof(name), "%u", i * 7919U % 20000);
		CHECK(symlinkat("x", b[0], name) == 0);
	}
	kit_changes(&va, &vb, &got);
	CHECK(lines_of(&got) == 20000);
	for (char *l = strtok_r((char *)buf_str(&got), "\n", &save); l; l = strtok_r(NULL, "\n", &save)) {
		CHECK(!before || strcmp(before, l) < 0);
		before = l;
	}
}

/* ---- layers ---------------------------------------------------------------------------------- */

TEST(changes_tar_is_a_layer)
{
	int a[2] = { kit_dir("a"), kit_dir("low") }, b[2] = { kit_dir("b"), a[1] };
	struct view_tree ta, tb;
	struct view va = one_tree(&ta, a, 2), vb = one_tree(&tb, b, 2);
	auto_buf tar = { 0 }, list = { 0 };
	struct den_err err;

	kit_put(a[1], "etc/keep", 0644, "");
	kit_put(a[1], "etc/drop/x", 0644, "");
	kit_put(a[1], "replaced/old", 0644, "");
	kit_put(a[1], "dir-to-file/x", 0644, "");
	kit_put(a[1], "file-to-dir", 0644, "");
	kit_whiteout(b[0], "etc/drop");
	kit_put(b[0], "replaced/new", 0644, "");
	kit_opaque(b[0], "replaced", "y");
	kit_put(b[0], "dir-to-file", 0644, "");
	kit_put(b[0], "file-to-dir/x", 0644, "");
	kit_put(b[0], "one", 0644, "content");
	CHECK(linkat(b[0], "one", b[0], "two", 0) == 0);
	CHECK(changes_tar(&va, &vb, kit_sink, &tar, &err) == 0);
	kit_list(&tar, &list);
	CHECK(!strcmp(buf_str(&list), "f dir-to-file\n"
				      "d etc\nf etc/.wh.drop\n"
				      "d file-to-dir\nf file-to-dir/x\n"
				      "f one\n"
				      "d replaced\nf replaced/.wh..wh..opq\nf replaced/new\n"
				      "h two\n"));
	/* A name that would be taken for a mark is refused, not written. */
	kit_put(b[0], "etc/.wh.keep", 0644, "");
	CHECK(changes_tar(&va, &vb, kit_sink, &tar, &err) < 0 && err.code == DEN_UNSUPPORTED);
	CHECK(strstr(err.msg, "etc/.wh.keep"));
}

/* ---- against the real thing ------------------------------------------------------------------ */

#define ROUNDS 60

static void must_mount(const char *lowers, const char *upper, const char *work, const char *at)
{
	char opts[PATH_MAX];
	int n = snprintf(opts, sizeof(opts), "userxattr,lowerdir=%s", lowers);

	if (upper)
		snprintf(opts + n, sizeof(opts) - (size_t)n, ",upperdir=%s,workdir=%s", upper, work);
	CHECK(mount("overlay", at, "overlay", 0, opts) == 0);
}

/* Mounts "/" and "/usr" of box `name` at `at`; without a work directory it is only looked at. */
static int box_mount(const char *name, const char *at, bool writable)
{
	const char *d = test_dir();
	char lower[PATH_MAX], up[PATH_MAX], work[PATH_MAX], to[PATH_MAX];

	for (int t = 0; t < 2; t++) {
		snprintf(up, sizeof(up), "%s/%s.u%d", d, name, t);
		snprintf(work, sizeof(work), "%s/%s.w%d", d, name, t);
		snprintf(lower, sizeof(lower), "%s%s%s/low%d:%s/lower%d", writable ? "" : up,
			writable ? "" : ":", d, t, d, t);
		snprintf(to, sizeof(to), "%s/%s%s", d, at, t ? "/usr" : "");
		must_mount(lower, writable ? up : NULL, work, to);
	}
	snprintf(to, sizeof(to), "%s/%s", d, at);
	return open(to, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static void box_umount(int fd, const char *at)
{
	char path[PATH_MAX];

	close(fd);
	snprintf(path, sizeof(path), "%s/%s/usr", test_dir(), at);
	CHECK(umount(path) == 0);
	snprintf(path, sizeof(path), "%s/%s", test_dir(), at);
	CHECK(umount(path) == 0);
}

static void scramble(int root, unsigned *seed, unsigned n)
{
	int usr = openat(root, "usr", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	while (n--)
		kit_scramble(usr >= 0 && kit_rand(seed, 3) == 0 ? usr : root, seed);
	fd_close(&usr);
}

static void checkpoint(const char *from, const char *to)
{
	char a[PATH_MAX], b[PATH_MAX];

	for (int t = 0; t < 2; t++) {
		snprintf(a, sizeof(a), "%s/%s.u%d", test_dir(), from, t);
		snprintf(b, sizeof(b), "%s/%s.u%d", test_dir(), to, t);
		kit_copy(a, b);
	}
}

struct box_view {
	struct view view;
	struct view_tree trees[2];
	int layers[2][3];
};

static void box_view(struct box_view *v, const char *name)
{
	for (int t = 0; t < 2; t++) {
		v->layers[t][0] = kit_dir("%s.u%d", name, t);
		v->layers[t][1] = kit_dir("low%d", t);
		v->layers[t][2] = kit_dir("lower%d", t);
		v->trees[t] = (struct view_tree){ t ? "/usr" : "/", v->layers[t], 3 };
	}
	v->view = (struct view){ .trees = v->trees, .n_trees = 2 };
}

static void must_equal(const char *what, unsigned seed, struct buf *want, struct buf *got)
{
	if (!strcmp(buf_str(want), buf_str(got)))
		return;
	fprintf(stderr, "  seed %u: %s\n  wanted:\n%s  got:\n%s", seed, what, buf_str(want), buf_str(got));
	CHECK(!"as the model says");
}

/* What a layer makes of a copy of a, compared with b. */
static void check_layer(const char *what, unsigned seed, const struct buf *tar, const char *copy,
	const struct kit_tree *b)
{
	auto_buf none = { 0 }, got = { 0 };
	struct kit_tree applied;
	int fd = kit_dir("%s", copy);

	kit_apply(fd, tar);
	kit_read(fd, &applied);
	kit_compare(b, &applied, false, &got);
	must_equal(what, seed, &none, &got);
	kit_free(&applied);
	close(fd);
	fd = open(test_dir(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	CHECK(tree_remove_at(fd, copy, NULL) == 0);
	close(fd);
}

static void check_round(unsigned seed)
{
	auto_buf want = { 0 }, got = { 0 }, tar = { 0 };
	struct kit_tree a, b;
	struct box_view va, vb;
	char from[PATH_MAX], to[PATH_MAX];
	struct den_err err = { 0 };
	int fd_a = box_mount("old", "ma", false), fd_b = box_mount("new", "mb", false);

	kit_read(fd_a, &a);
	kit_read(fd_b, &b);
	box_view(&va, "old");
	box_view(&vb, "new");
	kit_compare(&a, &b, true, &want);
	kit_changes(&va.view, &vb.view, &got);
	must_equal("changes", seed, &want, &got);
	want.len = got.len = 0;
	kit_compare(&b, &a, true, &want);
	kit_changes(&vb.view, &va.view, &got);
	must_equal("changes back", seed, &want, &got);

	CHECK(changes_tar(&va.view, &vb.view, kit_sink, &tar, &err) == 0);
	snprintf(from, sizeof(from), "%s/ma", test_dir());
	snprintf(to, sizeof(to), "%s/copy", test_dir());
	kit_copy(from, to);
	check_layer("layer", seed, &tar, "copy", &b);
	tar.len = 0;
	CHECK(changes_tar(&vb.view, &va.view, kit_sink, &tar, &err) == 0);
	snprintf(from, sizeof(from), "%s/mb", test_dir());
	kit_copy(from, to);
	check_layer("layer back", seed, &tar, "copy", &a);
	tar.len = 0;
	CHECK(view_tar(&vb.view, kit_sink, &tar, &err) == 0);
	close(kit_dir("copy"));
	check_layer("whole", seed, &tar, "copy", &b);

	for (int t = 0; t < 2; t++)
		for (int i = 0; i < 3; i++) {
			close(va.layers[t][i]);
			close(vb.layers[t][i]);
		}
	kit_free(&a);
	kit_free(&b);
	box_umount(fd_a, "ma");
	box_umount(fd_b, "mb");
}

static void private_mounts(void)
{
	if (geteuid() != 0)
		SKIP("mounting overlays needs root");
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		SKIP("no mount namespace of its own");
}

static void remove_all(const char *name)
{
	int fd = open(test_dir(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	static const char *const kinds[] = { "%s.u0", "%s.u1", "%s.w0", "%s.w1" };
	char path[64];

	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		snprintf(path, sizeof(path), kinds[i], name);
		CHECK(tree_remove_at(fd, path, NULL) == 0);
	}
	close(fd);
}

TEST(changes_are_what_real_overlays_show)
{
	unsigned first = getenv("SEED") ? (unsigned)atoi(getenv("SEED")) : 1;
	int fd;

	private_mounts();
	close(kit_dir("ma"));
	close(kit_dir("mb"));
	for (unsigned round = first; round < first + ROUNDS; round++) {
		unsigned seed = round;

		for (int t = 0; t < 2; t++) {
			static const char *const names[] = { "low%d", "lower%d", "new.u%d", "new.w%d" };

			for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
				char name[32];

				snprintf(name, sizeof(name), names[i], t);
				fd = open(test_dir(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
				CHECK(tree_remove_at(fd, name, NULL) == 0);
				close(fd);
				fd = kit_dir("%s", name);
				if (i < 2)
					scramble(fd, &seed, 60);
				if (i == 1 && t == 0) {
					(void)!unlinkat(fd, "usr", 0);
					kit_mkdir(fd, "usr", 0755);
				}
				close(fd);
			}
		}
		fd = box_mount("new", "ma", true);
		scramble(fd, &seed, kit_rand(&seed, 60));
		box_umount(fd, "ma");
		checkpoint("new", "old");
		fd = box_mount("new", "ma", true);
		scramble(fd, &seed, kit_rand(&seed, 60));
		box_umount(fd, "ma");
		check_round(round);
		remove_all("old");
	}
}

/* ---- texts ----------------------------------------------------------------------------------- */

static void random_text(unsigned *seed, unsigned lines, unsigned alphabet, struct buf *out)
{
	out->len = 0;
	for (unsigned i = 0; i < lines; i++)
		buf_addf(out, "%u\n", kit_rand(seed, alphabet));
	if (out->len && kit_rand(seed, 8) == 0)
		out->len--;
}

/* Lines in the longest common subsequence, the slow way. */
static size_t lcs(const struct text_lines *a, const struct text_lines *b)
{
	auto_free size_t *row = mem_zalloc((b->n + 1) * sizeof(*row));

	for (size_t i = 0; i < a->n; i++) {
		size_t diagonal = 0;

		for (size_t j = 0; j < b->n; j++) {
			size_t up = row[j + 1];

			row[j + 1] = a->id[i] == b->id[j] ? diagonal + 1 : MAX(up, row[j]);
			diagonal = up;
		}
	}
	return row[b->n];
}

TEST(text_diff_is_right_and_shortest)
{
	unsigned seed = 7;
	auto_buf x = { 0 }, y = { 0 };

	for (int round = 0; round < 3000; round++) {
		unsigned alphabet = 1 + kit_rand(&seed, 12);
		struct text_lines a, b;
		struct text_hunk *h;
		size_t n, i = 0, j = 0, same = 0;

		random_text(&seed, kit_rand(&seed, 30), alphabet, &x);
		random_text(&seed, kit_rand(&seed, 30), alphabet, &y);
		text_split(buf_str(&x), x.len, &a);
		text_split(buf_str(&y), y.len, &b);
		text_number((struct text_lines *[]){ &a, &b }, 2);
		n = text_diff(&a, &b, &h);
		for (size_t k = 0; k <= n; k++) {
			size_t to = k < n ? h[k].a : a.n;

			CHECK(k == 0 || k == n || to > i); /* hunks do not touch */
			for (; i < to; i++, j++, same++)
				CHECK(j < b.n && a.id[i] == b.id[j]);
			if (k < n) {
				CHECK(j == h[k].b && h[k].n_a + h[k].n_b > 0);
				i += h[k].n_a;
				j += h[k].n_b;
			}
		}
		CHECK(i == a.n && j == b.n);
		CHECK(same == lcs(&a, &b));
		text_lines_free(&a);
		text_lines_free(&b);
		free(h);
	}
}

/* Which of equal lines changed is arbitrary: what can be one change is one. */
TEST(text_diff_puts_together_what_belongs_together)
{
	static const struct {
		const char *a, *b;
		size_t hunks;
	} cases[] = { { "A\nA\ny\n", "B\nA\ny\n", 1 }, { "y\nA\nA\n", "y\nA\nB\n", 1 },
		{ "x\nA\nA\nA\ny\n", "x\nA\nA\nB\nC\ny\n", 1 }, { "x\nA\nA\nA\ny\n", "x\nB\nC\nA\nA\ny\n", 1 },
		{ "1\n2\n1\n2\n3\n", "1\n2\n3\n", 1 }, { "1\n2\n3\n", "1\n2\n1\n2\n3\n", 1 } };

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		for (int back = 0; back < 2; back++) {
			const char *x = back ? cases[i].b : cases[i].a, *y = back ? cases[i].a : cases[i].b;
			struct text_lines a, b;
			struct text_hunk *h;

			text_split(x, strlen(x), &a);
			text_split(y, strlen(y), &b);
			text_number((struct text_lines *[]){ &a, &b }, 2);
			CHECK(text_diff(&a, &b, &h) == cases[i].hunks);
			text_lines_free(&a);
			text_lines_free(&b);
			free(h);
		}
}

/* Processor time: what others do on the machine does not count. */
static int64_t used_ns(void)
{
	struct timespec t;

	CHECK(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t) == 0);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

TEST(text_diff_of_hostile_texts_is_bounded)
{
	unsigned seed = 3;
	auto_buf x = { 0 }, y = { 0 };

	for (unsigned alphabet = 2; alphabet <= 200000; alphabet *= 10) {
		int64_t start = used_ns();
		struct text_lines a, b;
		struct text_hunk *h;

		random_text(&seed, 100000, alphabet, &x);
		random_text(&seed, 100000, alphabet, &y);
		text_split(x.p, x.len, &a);
		text_split(y.p, y.len, &b);
		text_number((struct text_lines *[]){ &a, &b }, 2);
		CHECK(text_diff(&a, &b, &h) > 0);
		CHECK(used_ns() - start < 20000000000LL);
		text_lines_free(&a);
		text_lines_free(&b);
		free(h);
	}
}

TEST(changes_text_reads_like_git)
{
	int a[1] = { kit_dir("a") }, b[1] = { kit_dir("b") };
	struct view_tree ta, tb;
	struct view va = one_tree(&ta, a, 1), vb = one_tree(&tb, b, 1);
	auto_buf got = { 0 };
	struct den_err err;

	kit_put(a[0], "text", 0644, "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n12");
	kit_put(b[0], "text", 0755, "1\n2\n3\n4\nfive\n6\n7\n8\n9\n10\n11\n12\n");
	kit_put(b[0], "e f\n", 0644, "");
	kit_put(a[0], "gone", 0600, "x\n");
	kit_link(a[0], "link", "old");
	kit_link(b[0], "link", "new");
	kit_put(a[0], "bin", 0644, "a");
	CHECK(ftruncate(openat(a[0], "bin", O_WRONLY), 7000) == 0);
	kit_put(b[0], "bin", 0644, "b");
	CHECK(changes_text(&va, &vb, kit_sink, &got, &err) == 0);
	CHECK(!strcmp(buf_str(&got),
		"diff --git a/bin b/bin\nBinary files a/bin and b/bin differ\n"
		"diff --git \"a/e f\\n\" \"b/e f\\n\"\nnew file mode 100644\n"
		"diff --git a/gone b/gone\ndeleted file mode 100600\n--- a/gone\n+++ /dev/null\n"
		"@@ -1 +0,0 @@\n-x\n"
		"diff --git a/link b/link\n--- a/link\n+++ b/link\n"
		"@@ -1 +1 @@\n-old\n\\ No newline at end of file\n+new\n\\ No newline at end of file\n"
		"diff --git a/text b/text\nold mode 100644\nnew mode 100755\n--- a/text\n+++ b/text\n"
		"@@ -2,11 +2,11 @@\n 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8\n 9\n 10\n 11\n-12\n"
		"\\ No newline at end of file\n+12\n"));
}

static void random_texts(int root, unsigned *seed)
{
	static const char *const names[] = { "a", "b", "c d", "d/e", "d/\303\244", "d/q\"\\", "f/g" };
	auto_buf text = { 0 };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		unsigned what = kit_rand(seed, 6);

		random_text(seed, kit_rand(seed, 40), 6, &text);
		if (what == 0)
			continue;
		if (what == 1) {
			kit_link(root, names[i], kit_rand(seed, 2) ? "here" : "there");
			continue;
		}
		kit_put(root, names[i], kit_rand(seed, 3) ? 0644 : 0755, buf_str(&text));
	}
}

TEST(changes_text_is_what_git_applies)
{
	int fd = open(test_dir(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	char command[PATH_MAX + 128];

	if (system("git --version >/dev/null 2>&1") != 0)
		SKIP("git is not here");
	umask(022);
	for (unsigned round = 1; round <= 40; round++) {
		int a[1] = { kit_dir("a") }, b[1] = { kit_dir("b") }, status;
		struct view_tree ta, tb;
		struct view va = one_tree(&ta, a, 1), vb = one_tree(&tb, b, 1);
		struct kit_tree ka, kb;
		auto_buf patch = { 0 }, none = { 0 }, got = { 0 };
		unsigned seed = round;

		random_texts(a[0], &seed);
		random_texts(b[0], &seed);
		kit_mkdir(a[0], "d", 0755), kit_mkdir(b[0], "d", 0755); /* git knows no directories */
		kit_mkdir(a[0], "f", 0755), kit_mkdir(b[0], "f", 0755);
		CHECK(changes_text(&va, &vb, kit_sink, &patch, NULL) == 0);
		kit_put(fd, "patch", 0644, buf_str(&patch));
		snprintf(command, sizeof(command), "cd %s/a && GIT_CEILING_DIRECTORIES=/ git apply "
			"--whitespace=nowarn ../patch", test_dir());
		status = patch.len ? system(command) : 0;
		if (status != 0)
			fprintf(stderr, "  seed %u:\n%s", round, buf_str(&patch));
		CHECK(status == 0);
		kit_mkdir(a[0], "d", 0755), kit_mkdir(a[0], "f", 0755);
		kit_read(a[0], &ka);
		kit_read(b[0], &kb);
		kit_compare(&kb, &ka, true, &got);
		must_equal("patched", round, &none, &got);
		kit_free(&ka);
		kit_free(&kb);
		close(a[0]);
		close(b[0]);
		CHECK(tree_remove_at(fd, "a", NULL) == 0 && tree_remove_at(fd, "b", NULL) == 0);
	}
	close(fd);
}
