/*
 * Merging: texts by line against what `git merge-file` makes of them, trees by a table of cases and at
 * random by what must hold of every merge.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>

#include "clock.h"
#include "fd.h"
#include "kit_tree.h"
#include "mem.h"
#include "merge.h"
#include "test.h"

/* ---- texts ----------------------------------------------------------------------------------- */

TEST(merge_text_by_line)
{
	static const struct {
		const char *base, *ours, *theirs, *want;
		int conflicts;
	} cases[] = {
		{ "1\n2\n3\n", "1\n2\n3\n", "1\ntwo\n3\n", "1\ntwo\n3\n", 0 },
		{ "1\n2\n3\n", "one\n2\n3\n", "1\n2\nthree\n", "one\n2\nthree\n", 0 },
		{ "1\n2\n3\n", "1\nzwei\n3\n", "1\nzwei\n3\n", "1\nzwei\n3\n", 0 },
		{ "1\n2\n3\n", "1\nzwei\n3\n", "1\ndeux\n3\n",
			"1\n<<<<<<< ours\nzwei\n=======\ndeux\n>>>>>>> theirs\n3\n", 1 },
		/* side by side is too near */
		{ "1\n2\n3\n4\n", "1\nb\n3\n4\n", "1\n2\nc\n4\n",
			"1\n<<<<<<< ours\nb\n3\n=======\n2\nc\n>>>>>>> theirs\n4\n", 1 },
		{ "", "a\n", "b\n", "<<<<<<< ours\na\n=======\nb\n>>>>>>> theirs\n", 1 },
		{ "", "a\n", "a\n", "a\n", 0 },
		{ "1\n2\n3\n4\n5\n", "", "1\n2\n3\n4\n5\n", "", 0 },
		/* line ends stay as they are; a missing one, too */
		{ "1\r\n2\r\n3\r\n", "one\r\n2\r\n3\r\n", "1\r\n2\r\n3\r\n4\r\n",
			"one\r\n2\r\n3\r\n4\r\n", 0 },
		{ "1\r\n2\r\n", "a\r\n2\r\n", "b\r\n2\r\n",
			"<<<<<<< ours\r\na\r\n=======\r\nb\r\n>>>>>>> theirs\r\n2\r\n", 1 },
		{ "1\n2\n3", "one\n2\n3", "1\n2\n3", "one\n2\n3", 0 },
		{ "1\n2\n3", "one\n2\n3", "1\n2\n3\n", "one\n2\n3\n", 0 },
		{ "1\n2", "1\nb", "1\nc", "1\n<<<<<<< ours\nb\n=======\nc\n>>>>>>> theirs\n", 1 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		auto_buf got = { 0 };
		int r = merge_text(cases[i].base, strlen(cases[i].base), cases[i].ours, strlen(cases[i].ours),
			cases[i].theirs, strlen(cases[i].theirs), &got, NULL);

		if (r != cases[i].conflicts || strcmp(buf_str(&got), cases[i].want) != 0)
			fprintf(stderr, "  case %zu: %d\n%s", i, r, buf_str(&got));
		CHECK(r == cases[i].conflicts && !strcmp(buf_str(&got), cases[i].want));
	}
	CHECK(merge_text("a\0b", 3, "", 0, "", 0, &(struct buf){ 0 }, NULL) == -1);
}

static void edit(unsigned *seed, const struct buf *from, unsigned unique, struct buf *out)
{
	const char *p = from->p, *end = p + from->len;

	out->len = 0;
	while (p < end) {
		const char *nl = memchr(p, '\n', (size_t)(end - p));
		size_t n = nl ? (size_t)(nl + 1 - p) : (size_t)(end - p);
		unsigned what = kit_rand(seed, 24);

		if (what == 0 || what == 1)
			buf_addf(out, "%u%s\n", kit_rand(seed, unique), what ? "" : "\r");
		if (what > 3)
			buf_add(out, p, n);
		p += n;
	}
	if (out->len && kit_rand(seed, 10) == 0)
		out->len--;
}

static int git_merge(int dir, const struct buf *t, struct buf *out)
{
	static const char *const names[] = { "base", "ours", "theirs" };
	char command[PATH_MAX];
	auto_free char *text = NULL;
	size_t len;
	int status, fd;

	for (int i = 0; i < 3; i++) {
		fd = openat(dir, names[i], O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
		CHECK(fd >= 0 && write(fd, t[i].p, t[i].len) == (ssize_t)t[i].len);
		close(fd);
	}
	snprintf(command, sizeof(command), "cd %s && git merge-file -p -L ours -L base -L theirs "
		"ours base theirs >out", test_dir());
	status = system(command);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) < 128);
	fd = openat(dir, "out", O_RDONLY | O_CLOEXEC);
	CHECK(fd >= 0 && fd_read_all(fd, 1 << 20, &text, &len, NULL) == 0);
	close(fd);
	buf_add(out, text, len);
	return WEXITSTATUS(status) ? 1 : 0;
}

/* Lines that are nearly all different: there is one sensible answer, and it must be git's. */
TEST(merge_text_does_what_git_does)
{
	int dir = open(test_dir(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	unsigned clean = 0, conflicts = 0, exact = 0;

	if (system("git --version >/dev/null 2>&1") != 0)
		SKIP("git is not here");
	for (unsigned round = 1; round <= 300; round++) {
		struct buf t[3] = { 0 };
		auto_buf want = { 0 }, got = { 0 };
		unsigned seed = round, lines = kit_rand(&seed, 40);
		int r, git;

		for (unsigned i = 0; i < lines; i++)
			buf_addf(&t[0], "line %u\n", kit_rand(&seed, 100000));
		buf_reserve(&t[0], 1);
		edit(&seed, &t[0], 100000, &t[1]);
		edit(&seed, &t[0], 100000, &t[2]);
		if (kit_rand(&seed, 6) == 0) { /* agree in part */
			t[2].len = 0;
			buf_add(&t[2], t[1].p, t[1].len);
			buf_addstr(&t[2], "more\n");
		}
		git = git_merge(dir, t, &want);
		r = merge_text(buf_str(&t[0]), t[0].len, buf_str(&t[1]), t[1].len, buf_str(&t[2]), t[2].len,
			&got, NULL);
		if (r != git || (!r && strcmp(buf_str(&want), buf_str(&got)) != 0)) {
			fprintf(stderr, "  seed %u: %d, git %d\n--- base\n%s--- ours\n%s--- theirs\n%s"
					"--- git\n%s--- got\n%s", round, r, git, buf_str(&t[0]), buf_str(&t[1]),
				buf_str(&t[2]), buf_str(&want), buf_str(&got));
			CHECK(!"as git");
		}
		exact += r && !strcmp(buf_str(&want), buf_str(&got));
		conflicts += (unsigned)r;
		clean += !r;
		for (int i = 0; i < 3; i++)
			buf_free(&t[i]);
	}
	fprintf(stderr, "  %u clean, %u conflicts (%u of them written as git does)\n", clean, conflicts, exact);
	CHECK(clean > 30 && conflicts > 30);
	close(dir);
}

/* Lines that repeat: git may choose otherwise what moved where, but this holds of any answer. */
TEST(merge_text_keeps_what_one_side_did)
{
	for (unsigned round = 1; round <= 2000; round++) {
		auto_buf base = { 0 }, ours = { 0 }, got = { 0 }, back = { 0 };
		unsigned seed = round, lines = kit_rand(&seed, 30), alphabet = 1 + kit_rand(&seed, 6);

		for (unsigned i = 0; i < lines; i++)
			buf_addf(&base, "%u\n", kit_rand(&seed, alphabet));
		buf_reserve(&base, 1);
		edit(&seed, &base, alphabet, &ours);
		buf_str(&base), buf_str(&ours);
		CHECK(merge_text(base.p, base.len, ours.p, ours.len, base.p, base.len, &got, NULL) == 0);
		CHECK(got.len == ours.len && !memcmp(got.p ?: "", ours.p, ours.len));
		CHECK(merge_text(base.p, base.len, base.p, base.len, ours.p, ours.len, &back, NULL) == 0);
		CHECK(back.len == ours.len && !memcmp(back.p ?: "", ours.p, ours.len));
		got.len = 0;
		CHECK(merge_text(base.p, base.len, ours.p, ours.len, ours.p, ours.len, &got, NULL) == 0);
		CHECK(got.len == ours.len && !memcmp(got.p ?: "", ours.p, ours.len));
	}
}

/* ---- trees: a table -------------------------------------------------------------------------- */

/* Four layers: the template's, and each side's above it. */
struct trio {
	int low;
	int layers[3][2];
	struct view_tree trees[3];
	struct view views[3];
};
enum { BASE, OURS, THEIRS };

static void trio_make(struct trio *t, unsigned number)
{
	t->low = kit_dir("low%u", number);
	for (int s = 0; s < 3; s++) {
		t->layers[s][0] = kit_dir("side%d.%u", s, number);
		t->layers[s][1] = t->low;
		t->trees[s] = (struct view_tree){ "/", t->layers[s], 2 };
		t->views[s] = (struct view){ .trees = &t->trees[s], .n_trees = 1 };
	}
}

static void trio_close(struct trio *t)
{
	close(t->low);
	for (int s = 0; s < 3; s++)
		close(t->layers[s][0]);
}

/*
 * "f PATH MODE TEXT": a file; "d PATH MODE": a directory; "l PATH TARGET": a link; "w PATH": a
 * whiteout; "o PATH": opaque; "x PATH VALUE": user.x; "u PATH UID"; "p PATH": a fifo. One a line.
 */
static void tree_make(int root, const char *spec)
{
	char line[256], path[128], arg[64], text[64];

	for (const char *p = spec; p && *p; p = strchr(p, '\n') ? strchr(p, '\n') + 1 : NULL) {
		int fd;

		snprintf(line, sizeof(line), "%.*s", (int)strcspn(p, "\n"), p);
		*arg = *text = '\0';
		CHECK(sscanf(line + 2, "%127s %63s %63[^\n]", path, arg, text) >= 1);
		for (char *c = text; *c; c++)
			*c = *c == '|' ? '\n' : *c;
		switch (*line) {
		case 'f':
			kit_put(root, path, (mode_t)strtoul(arg, NULL, 8), text);
			break;
		case 'd':
			kit_mkdir(root, path, (mode_t)strtoul(arg, NULL, 8));
			break;
		case 'l':
			kit_link(root, path, arg);
			break;
		case 'w':
			kit_whiteout(root, path);
			break;
		case 'o':
			kit_opaque(root, path, "y");
			break;
		case 'p':
			CHECK(mkfifoat(root, path, 0600) == 0);
			break;
		case 'u':
			CHECK(fchownat(root, path, (uid_t)atoi(arg), (gid_t)-1, AT_SYMLINK_NOFOLLOW) == 0);
			break;
		default:
			fd = openat(root, path, O_RDONLY | O_CLOEXEC);
			CHECK(fd >= 0 && fsetxattr(fd, "user.x", arg, strlen(arg), 0) == 0);
			close(fd);
		}
	}
}

struct outcome {
	struct buf tar, conflicts;
	struct merge_result result;
};

static int note_conflict(const struct merge_conflict *c, void *user, struct den_err *err)
{
	struct outcome *o = user;

	buf_addf(&o->conflicts, "%s: %s\n", c->path, c->why);
	return 0;
}

static int tar_sink(const void *p, size_t n, void *user, struct den_err *err)
{
	buf_add(&((struct outcome *)user)->tar, p, n);
	return 0;
}

static void run_merge(struct trio *t, const struct merge_rule *rules, size_t n_rules, struct outcome *o)
{
	struct den_err err = { 0 };
	struct merge_result dry;

	*o = (struct outcome){ 0 };
	if (merge_views(&t->views[BASE], &t->views[OURS], &t->views[THEIRS], rules, n_rules, note_conflict,
		    NULL, o, &dry, &err) < 0) {
		fprintf(stderr, "  %s\n", err.msg);
		CHECK(!"merge");
	}
	o->conflicts.len = 0;
	CHECK(merge_views(&t->views[BASE], &t->views[OURS], &t->views[THEIRS], rules, n_rules, note_conflict,
		      tar_sink, o, &o->result, &err) == 0);
	CHECK(!memcmp(&dry, &o->result, sizeof(dry)));
}

static void outcome_free(struct outcome *o)
{
	buf_free(&o->tar);
	buf_free(&o->conflicts);
}

/* What a merge does not say is the same is not told: result "taken agreed merged kept". */
static const struct tree_case {
	const char *name, *low, *base, *ours, *theirs;
	const char *tar, *conflicts, *counts;
	enum merge_choice rule;
} tree_cases[] = {
	{ "nothing", "f a 644 x", "", "", "", "", "", "0 0 0 0" },
	{ "taken", "f a 644 x", "", "", "f a 644 y\nf d/n 644 n", "f a\nd d\nf d/n\n", "", "3 0 0 0" },
	{ "kept", "f a 644 x", "", "f a 644 y\nf d/n 644 n", "", "", "", "0 0 0 2" },
	{ "a parent that did not change is not told", "d d 755", "", "", "f d/n 644 n", "f d/n\n", "",
		"1 0 0 0" },
	{ "added the same", "", "", "f a 644 x", "f a 644 x", "", "", "0 1 0 0" },
	{ "added differently", "", "", "f a 644 x", "f a 644 y", "",
		"a: added on both sides, differently\n", "0 0 0 0" },
	{ "added with another mode", "", "", "f a 644 x", "f a 600 x", "",
		"a: added on both sides, differently\n", "0 0 0 0" },
	{ "changed here, removed there", "f a 644 x", "", "f a 644 y", "w a", "",
		"a: changed here, removed there\n", "0 0 0 0" },
	{ "removed here, changed there", "f a 644 x", "", "w a", "f a 644 y", "",
		"a: removed here, changed there\n", "0 0 0 0" },
	{ "... ours", "f a 644 x", "", "w a", "f a 644 y", "", "", "0 0 0 1", MERGE_OURS },
	{ "... theirs", "f a 644 x", "", "w a", "f a 644 y", "f a\n", "", "1 0 0 0", MERGE_THEIRS },
	{ "removed on both sides", "f a 644 x", "", "w a", "w a", "", "", "0 1 0 0" },
	{ "removed there", "f a 644 x", "", "", "w a", "f .wh.a\n", "", "1 0 0 0" },
	{ "what the base had made, removed", "", "f a 644 x", "f a 644 x", "", "f .wh.a\n", "", "1 0 0 0" },
	{ "mode here, content there", "f a 644 x", "", "f a 600 x", "f a 644 y", "f a\n", "", "1 0 0 0" },
	{ "mode on both sides, the same", "f a 644 x", "", "f a 600 x", "f a 600 x", "", "", "0 1 0 0" },
	{ "mode on both sides", "f a 644 x", "", "f a 600 x", "f a 755 x", "",
		"a: both sides changed its mode\n", "0 0 0 0" },
	{ "theirs is part of ours", "f a 644 x", "", "f a 600 y", "f a 600 x", "", "", "0 1 0 0" },
	{ "by line", "f a 644 1|2|3|", "", "f a 644 one|2|3|", "f a 644 1|2|three|", "f a\n", "", "0 0 1 0" },
	{ "the same lines", "f a 644 1|2|3|", "", "f a 644 one|2|3|", "f a 644 uno|2|3|", "",
		"a: both sides changed the same lines\n", "0 0 0 0" },
	{ "type there", "f a 644 x", "", "", "l a target", "l a\n", "", "1 0 0 0" },
	{ "type there, content here", "f a 644 x", "", "f a 644 y", "l a target", "",
		"a: made something else of on one side, changed on the other\n", "0 0 0 0" },
	{ "type on both sides, the same", "f a 644 x", "", "l a target", "l a target", "", "", "0 1 0 0" },
	{ "link here, link there", "l a 1", "", "l a 2", "l a 3", "",
		"a: both sides changed where it points\n", "0 0 0 0" },
	{ "link there", "l a 1", "", "", "l a 2", "l a\n", "", "1 0 0 0" },
	{ "directory removed there", "f d/a 644 x\nf d/e/b 644 y", "", "", "w d", "f .wh.d\n", "", "1 0 0 0" },
	{ "directory removed there, file added in it here", "f d/a 644 x", "", "f d/n 644 n", "w d", "",
		"d: changed here, removed there\n", "0 0 0 0" },
	{ "directory removed here, file added in it there", "f d/a 644 x", "", "w d", "f d/n 644 n", "",
		"d: removed here, changed there\n", "0 0 0 0" },
	{ "... theirs brings all of it back", "f d/a 644 x", "", "w d", "f d/n 644 n", "d d\nf d/a\nf d/n\n",
		"", "3 0 0 0", MERGE_THEIRS },
	{ "directory removed here, nothing there", "f d/a 644 x", "", "w d", "", "", "", "0 0 0 1" },
	{ "directory here, file there", "", "", "f a/x 644 x", "f a 644 x", "",
		"a: added on both sides, differently\n", "0 0 0 0" },
	{ "... theirs", "", "", "f a/x 644 x", "f a 644 x", "f a\n", "", "1 0 0 0", MERGE_THEIRS },
	{ "file here, directory there", "", "", "f a 644 x", "f a/x 644 x", "d a\nf a/x\n", "", "2 0 0 0",
		MERGE_THEIRS },
	{ "directory made a file there", "f d/a 644 x", "", "", "f d 644 file", "f d\n", "", "1 0 0 0" },
	{ "file made a directory there", "f d 644 x", "", "", "f d/a 644 file", "d d\nf d/a\n", "", "2 0 0 0" },
	{ "directory made on both sides", "", "", "f d/a 644 x", "f d/b 644 x", "f d/b\n", "", "1 1 0 1" },
	{ "directory replaced there", "f d/a 644 x\nf d/b 644 y", "", "", "f d/b 644 y\nf d/n 644 n\no d",
		"f d/.wh.a\nf d/n\n", "", "2 0 0 0" },
	{ "directory replaced there, added to here", "f d/a 644 x", "", "f d/m 644 m", "f d/n 644 n\no d",
		"f d/.wh.a\nf d/n\n", "", "2 0 0 1" },
	{ "directory replaced on both sides", "f d/a 644 x", "", "f d/m 644 m\no d", "f d/n 644 n\no d",
		"f d/n\n", "", "1 1 0 1" },
	{ "directory's mode there", "d d 755", "", "f d/n 644 n", "d d 700", "d d\n", "", "1 0 0 1" },
	{ "directory's mode on both sides", "d d 755", "", "d d 711", "d d 700", "",
		"d: both sides changed its mode\n", "0 0 0 0" },
	{ "owner here, mode there", "f a 644 x", "", "f a 644 x\nu a 7", "f a 600 x", "f a\n", "", "1 0 0 0" },
	{ "owner on both sides", "f a 644 x", "", "f a 644 x\nu a 7", "f a 644 x\nu a 8", "",
		"a: both sides changed its owner\n", "0 0 0 0" },
	{ "attribute there, content here", "f a 644 x", "", "f a 644 y", "f a 644 x\nx a 1", "f a\n", "",
		"1 0 0 0" },
	{ "attribute on both sides", "f a 644 x", "", "f a 644 x\nx a 2", "f a 644 x\nx a 1", "",
		"a: both sides changed its attributes\n", "0 0 0 0" },
	{ "fifo there", "", "", "", "p a", "p a\n", "", "1 0 0 0" },
	/* a name that would be taken for a removal of "passwd" */
	{ "a mark planted there", "f passwd 644 x", "", "", "f .wh.passwd 644 x", "",
		".wh.passwd: a layer cannot say it of its name, which is too long or begins with '.wh.'\n",
		"0 0 0 0" },
	{ "... theirs does not help", "f passwd 644 x", "", "", "f .wh.passwd 644 x", "",
		".wh.passwd: a layer cannot say it of its name, which is too long or begins with '.wh.'\n",
		"0 0 0 0", MERGE_THEIRS },
	{ "den's own", "", "", "", "f dev/x 644 x\nf run/x 644 x\nf devx 644 x", "f devx\n", "", "1 0 0 0" },
};

TEST(merge_trees_by_the_table)
{
	if (geteuid() != 0)
		SKIP("owners need root");
	for (unsigned i = 0; i < ARRAY_SIZE(tree_cases); i++) {
		const struct tree_case *c = &tree_cases[i];
		struct merge_rule rule = { .choice = c->rule };
		auto_buf list = { 0 };
		struct outcome o;
		struct trio t;
		char counts[64];

		trio_make(&t, i);
		tree_make(t.low, c->low);
		tree_make(t.layers[BASE][0], c->base);
		tree_make(t.layers[OURS][0], c->ours);
		tree_make(t.layers[THEIRS][0], c->theirs);
		run_merge(&t, &rule, c->rule != MERGE_ASK, &o);
		kit_list(&o.tar, &list);
		snprintf(counts, sizeof(counts), "%d %d %d %d", (int)o.result.taken, (int)o.result.agreed,
			(int)o.result.merged, (int)o.result.kept);
		if (strcmp(buf_str(&list), c->tar) != 0 || strcmp(buf_str(&o.conflicts), c->conflicts) != 0 ||
			strcmp(counts, c->counts) != 0) {
			fprintf(stderr, "  '%s': counts %s, tar:\n%sconflicts:\n%s", c->name, counts,
				buf_str(&list), buf_str(&o.conflicts));
			CHECK(!"as the table says");
		}
		CHECK(o.result.conflicts == (*c->conflicts ? 1 : 0));
		outcome_free(&o);
		trio_close(&t);
	}
}

TEST(merge_puts_the_parts_together)
{
	struct kit_tree got;
	struct outcome o;
	struct trio t;

	if (geteuid() != 0)
		SKIP("owners need root");
	trio_make(&t, 0);
	tree_make(t.low, "f a 644 1|2|3|\nd d 755");
	tree_make(t.layers[OURS][0], "f a 600 one|2|3|\nd d 755\nu d 7\nx d ours");
	tree_make(t.layers[THEIRS][0], "f a 644 1|2|three|\nx a there\nu a 9\nd d 700");
	run_merge(&t, NULL, 0, &o);
	CHECK(!o.result.conflicts && o.result.merged == 1 && o.result.taken == 1);
	kit_apply(t.layers[OURS][0], &o.tar);
	kit_read(t.layers[OURS][0], &got);
	CHECK(got.n == 2);
	CHECK(!strcmp(got.list[0].path, "a") && got.list[0].mode == 0600 && got.list[0].uid == 9);
	CHECK(!strcmp(got.list[0].xattrs, "user.x=there ") && !strcmp(got.list[0].data, "one\n2\nthree\n"));
	CHECK(!strcmp(got.list[1].path, "d") && got.list[1].mode == 0700 && got.list[1].uid == 7);
	CHECK(!strcmp(got.list[1].xattrs, "user.x=ours "));
	kit_free(&got);
	outcome_free(&o);
	trio_close(&t);
}

TEST(merge_rules_the_last_that_fits_decides)
{
	const struct merge_rule rules[] = { { NULL, MERGE_OURS }, { "d", MERGE_THEIRS },
		{ "d/e/ask", MERGE_ASK }, { "d/e/keep", MERGE_OURS } };
	auto_buf list = { 0 };
	struct outcome o;
	struct trio t;

	trio_make(&t, 0);
	tree_make(t.layers[OURS][0], "f a 644 1\nf d/b 644 1\nf d/e/ask 644 1\nf d/e/keep 644 1\nf dd 644 1");
	tree_make(t.layers[THEIRS][0], "f a 644 2\nf d/b 644 2\nf d/e/ask 644 2\nf d/e/keep 644 2\nf dd 644 2");
	run_merge(&t, rules, ARRAY_SIZE(rules), &o);
	kit_list(&o.tar, &list);
	CHECK(!strcmp(buf_str(&list), "f d/b\n"));
	CHECK(o.result.conflicts == 1 && o.result.kept == 3 && o.result.taken == 1);
	CHECK(!strncmp(buf_str(&o.conflicts), "d/e/ask: ", 9));
	outcome_free(&o);
	trio_close(&t);
}

/* ---- trees: at random ------------------------------------------------------------------------ */

static char *side_path(int side, unsigned number)
{
	struct buf b = { 0 };

	buf_addf(&b, "%s/side%d.%u", test_dir(), side, number);
	return (char *)buf_str(&b);
}

/* Side `to` gets what `from` has. */
static void side_copy(unsigned number, int from, int to)
{
	auto_free char *a = side_path(from, number), *b = side_path(to, number);
	int fd = open(test_dir(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	CHECK(tree_remove_at(fd, strrchr(b, '/') + 1, NULL) == 0);
	kit_copy(a, b);
	close(fd);
}

static const struct kit_node *find(const struct kit_tree *t, const char *path)
{
	for (size_t i = 0; i < t->n; i++)
		if (!strcmp(t->list[i].path, path))
			return &t->list[i];
	return NULL;
}

/* Of one path: is it, by itself, the same on both sides? Sockets are as good as not there. */
static bool same(const struct kit_node *a, const struct kit_node *b)
{
	struct kit_tree ta = { .list = (struct kit_node *)a, .n = a && a->type != 's' };
	struct kit_tree tb = { .list = (struct kit_node *)b, .n = b && b->type != 's' };
	auto_buf differ = { 0 };

	kit_compare(&ta, &tb, true, &differ);
	return !differ.len;
}

static void merge_and_read(struct trio *t, unsigned number, enum merge_choice choice, struct outcome *o,
	struct kit_tree *ret)
{
	struct merge_rule rule = { .choice = choice };
	auto_free char *ours = side_path(OURS, number);
	char to[PATH_MAX];
	int fd = open(test_dir(), O_RDONLY | O_DIRECTORY | O_CLOEXEC), copy;

	run_merge(t, &rule, choice != MERGE_ASK, o);
	CHECK(tree_remove_at(fd, "merged", NULL) == 0);
	snprintf(to, sizeof(to), "%s/merged", test_dir());
	kit_copy(ours, to);
	copy = openat(fd, "merged", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	kit_apply(copy, &o->tar);
	kit_read(copy, ret);
	close(copy);
	close(fd);
}

/*
 * Whoever decides conflicts, of each path holds: changed on neither side, it stays; changed by theirs
 * alone, it is theirs; by ours alone, ours. What is inside a directory that was decided as a whole
 * follows the directory, so paths below a conflict are left out.
 */
static void check_paths(const struct kit_tree *side, const struct kit_tree *merged, const char *conflicts,
	unsigned seed)
{
	for (int s = 0; s < 3; s++)
		for (size_t i = 0; i < side[s].n; i++) {
			const char *path = side[s].list[i].path;
			const struct kit_node *b = find(&side[BASE], path), *o = find(&side[OURS], path);
			const struct kit_node *t = find(&side[THEIRS], path), *m = find(merged, path);
			bool ok = true, below = false;

			for (const char *c = conflicts; *c; c = strstr(c, "\1\n") + 2) {
				size_t n = (size_t)(strchr(c, '\1') - c);

				below = below || (!strncmp(c, path, n) && (!path[n] || path[n] == '/'));
			}
			if (below)
				continue;
			if (same(b, t))
				ok = same(m, o);
			else if (same(b, o))
				ok = same(m, t);
			else if (same(o, t))
				ok = same(m, o);
			if (!ok)
				fprintf(stderr, "  seed %u: '%s': base %d ours %d theirs %d merged %d\n", seed,
					path, b != NULL, o != NULL, t != NULL, m != NULL);
			CHECK(ok);
		}
}

static int note_path(const struct merge_conflict *c, void *user, struct den_err *err)
{
	buf_addf(user, "%s\1\n", c->path);
	return 0;
}

static void check_random(unsigned number, unsigned *seed)
{
	struct kit_tree side[3], merged;
	auto_buf conflicts = { 0 };
	struct outcome o;
	struct trio t;

	trio_make(&t, number);
	for (int i = 0; i < 80; i++)
		kit_scramble(t.layers[BASE][0], seed);
	for (int s = OURS; s <= THEIRS; s++)
		side_copy(number, BASE, s);
	trio_close(&t);
	trio_make(&t, number);
	for (unsigned s = OURS; s <= THEIRS; s++)
		for (unsigned i = kit_rand(seed, 25); i; i--)
			kit_scramble(t.layers[s][0], seed);
	for (int s = 0; s < 3; s++)
		kit_read(t.layers[s][0], &side[s]);
	CHECK(merge_views(&t.views[BASE], &t.views[OURS], &t.views[THEIRS], NULL, 0, note_path, NULL, &conflicts,
		      NULL, NULL) == 0);
	for (int choice = MERGE_OURS; choice <= MERGE_THEIRS; choice++) {
		merge_and_read(&t, number, (enum merge_choice)choice, &o, &merged);
		if (!strstr(buf_str(&conflicts), "LLLL")) /* a name that no rule helps with */
			CHECK(!o.result.conflicts);
		check_paths(side, &merged, buf_str(&conflicts), number);
		kit_free(&merged);
		outcome_free(&o);
	}
	for (int s = 0; s < 3; s++)
		kit_free(&side[s]);
	trio_close(&t);
}

TEST(merge_of_random_trees_loses_nothing)
{
	unsigned first = getenv("SEED") ? (unsigned)atoi(getenv("SEED")) : 1;

	if (geteuid() != 0)
		SKIP("owners need root");
	for (unsigned i = first; i < first + 60; i++) {
		unsigned seed = i;

		check_random(i, &seed);
	}
}

TEST(merge_of_one_side_alone_is_that_side)
{
	if (geteuid() != 0)
		SKIP("owners need root");
	for (unsigned i = 1; i <= 20; i++) {
		struct kit_tree merged, want;
		auto_buf got = { 0 };
		unsigned seed = i;
		struct outcome o;
		struct trio t;

		trio_make(&t, i);
		for (int k = 0; k < 60; k++)
			kit_scramble(t.layers[BASE][0], &seed);
		side_copy(i, BASE, THEIRS);
		side_copy(i, BASE, OURS);
		trio_close(&t);
		trio_make(&t, i);
		for (int k = 0; k < 30; k++)
			kit_scramble(t.layers[THEIRS][0], &seed);
		merge_and_read(&t, i, MERGE_ASK, &o, &merged);
		if (!o.result.conflicts) { /* else a name that is too long to be removed */
			kit_read(t.layers[THEIRS][0], &want);
			kit_compare(&want, &merged, false, &got);
			if (got.len)
				fprintf(stderr, "  seed %u:\n%s", i, buf_str(&got));
			CHECK(!got.len && !o.result.kept && !o.result.agreed && !o.result.merged);
			kit_free(&want);
		} else {
			CHECK(strstr(buf_str(&o.conflicts), "LLLL"));
		}
		kit_free(&merged);
		outcome_free(&o);
		trio_close(&t);
	}
}
