/* init's built-in file operations. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "buf.h"
#include "fd.h"
#include "fsop.h"
#include "kit_fs.h"
#include "mem.h"
#include "test.h"

/* ---- the table ------------------------------------------------------------------------------- */

TEST(unknown_operations_flags_and_counts_are_refused)
{
	CHECK(failed_with(FS("format", "/"), DEN_UNSUPPORTED));
	CHECK(failed_with(FS("stat"), DEN_INVALID));
	CHECK(failed_with(FS("stat", "/", "", "x"), DEN_INVALID));
	CHECK(failed_with(FS("remove", "/tmp/x", "rx"), DEN_INVALID) && strstr(last.err.msg, "rf"));
	CHECK(failed_with(FS("stat", ""), DEN_INVALID));
	CHECK(failed_with(FS("chmod", "/tmp", "", "r"), DEN_INVALID));
	CHECK(failed_with(FS("chmod", "/tmp", "888"), DEN_INVALID));
	CHECK(failed_with(FS("mkdir", "/tmp/x", "77777777777", ""), DEN_INVALID));
}

/* ---- read and write -------------------------------------------------------------------------- */

TEST(a_part_of_a_file_is_read)
{
	file_make(in("f"), "0123456789", 0644);
	CHECK(FS("read", in("f"), "", "") == 0 && !strcmp(buf_str(&last.out), "0123456789"));
	CHECK(FS("read", in("f"), "3", "4") == 0 && !strcmp(buf_str(&last.out), "3456"));
	CHECK(FS("read", in("f"), "8", "99") == 0 && !strcmp(buf_str(&last.out), "89"));
	CHECK(FS("read", in("f"), "100", "") == 0 && last.out.len == 0);
	CHECK(FS("read", in("f"), "0", "0") == 0 && last.out.len == 0);
	CHECK(failed_with(FS("read", in("f"), "-1", ""), DEN_INVALID));
	CHECK(failed_with(FS("read", in("none"), "", ""), DEN_NOT_FOUND) && last.err.sys == ENOENT);
}

TEST(only_regular_files_are_read_and_written)
{
	CHECK(mkfifo(in("fifo"), 0600) == 0 && mkdir(in("dir"), 0755) == 0);
	CHECK(failed_with(FS("read", in("fifo"), "", ""), DEN_INVALID));
	CHECK(strstr(last.err.msg, "not a regular file"));
	CHECK(failed_with(FS("read", in("dir"), "", ""), DEN_INVALID) && last.err.sys == EISDIR);
	CHECK(failed_with(FS("read", "/dev/zero", "", ""), DEN_INVALID));
	CHECK(failed_with(FS_IN("x", "write", in("fifo"), "", ""), DEN_INVALID));
	CHECK(failed_with(FS_IN("x", "write", in("fifo"), "", "a"), DEN_INVALID));
	CHECK(failed_with(FS_IN("x", "write", in("dir"), "", ""), DEN_INVALID));
	CHECK(failed_with(FS_IN("x", "write", in("dir"), "", "a"), DEN_INVALID));
	CHECK(failed_with(FS_IN("x", "write", "/dev/null", "", "a"), DEN_INVALID));
	CHECK(S_ISFIFO(mode_of(in("fifo"))));
}

TEST(a_written_file_has_its_bytes_and_mode)
{
	static const char *const flags[] = { "", "a" };

	for (size_t i = 0; i < ARRAY_SIZE(flags); i++) {
		char *f = (char *)flags[i];

		umask(077); /* must not matter */
		unlink(in("f"));
		CHECK(FS_IN("one", "write", in("f"), "", f) == 0 && holds(in("f"), "one"));
		CHECK(mode_of(in("f")) == (S_IFREG | 0644));
		CHECK(FS_IN("longer", "write", in("f"), "0750", f) == 0 && holds(in("f"), "longer"));
		CHECK(mode_of(in("f")) == (S_IFREG | 0750));
		CHECK(FS_IN("s", "write", in("f"), "", f) == 0 && holds(in("f"), "s"));
		CHECK(mode_of(in("f")) == (S_IFREG | 0750)); /* kept */
		CHECK(FS_IN("", "write", in("f"), "", f) == 0 && holds(in("f"), ""));
		CHECK(names_in(test_dir()) == 1); /* nothing else is left */
	}
}

TEST(large_files_go_through_whole)
{
	size_t n = 5 << 20;
	auto_free char *data = mem_alloc(n);

	for (size_t i = 0; i < n; i++)
		data[i] = (char)(i * 2654435761U >> 13);
	CHECK(fs_with(data, n, ARGV("write", in("big"), "", "a")) == 0);
	CHECK(FS("read", in("big"), "", "") == 0 && last.out.len == n && !memcmp(last.out.p, data, n));
}

TEST(parents_are_made_when_asked_for)
{
	CHECK(failed_with(FS_IN("x", "write", in("a/b/f"), "", ""), DEN_NOT_FOUND));
	CHECK(missing(in("a")));
	CHECK(FS_IN("x", "write", in("a/./b//f"), "", "p") == 0 && holds(in("a/b/f"), "x"));
	CHECK(FS_IN("x", "write", in("c/f"), "", "pa") == 0 && holds(in("c/f"), "x"));
	CHECK(failed_with(FS_IN("x", "write", in("c/f/g"), "", "p"), DEN_CONFLICT));
}

TEST(writing_follows_links_and_keeps_them)
{
	file_make(in("target"), "old", 0600);
	CHECK(symlink("target", in("link")) == 0 && symlink("link", in("link2")) == 0);
	CHECK(FS_IN("new", "write", in("link"), "", "") == 0 && holds(in("target"), "new"));
	CHECK(FS_IN("newer", "write", in("link2"), "", "a") == 0 && holds(in("target"), "newer"));
	CHECK(S_ISLNK(mode_of(in("link"))) && S_ISLNK(mode_of(in("link2"))));
	CHECK(mode_of(in("target")) == (S_IFREG | 0600));
	CHECK(symlink("not-yet", in("dangling")) == 0);
	CHECK(FS_IN("x", "write", in("dangling"), "", "") == 0 && holds(in("not-yet"), "x"));
	CHECK(unlink(in("not-yet")) == 0);
	CHECK(FS_IN("x", "write", in("dangling"), "", "a") == 0 && holds(in("not-yet"), "x"));
	CHECK(symlink("loop", in("loop")) == 0);
	CHECK(failed_with(FS_IN("x", "write", in("loop"), "", "a"), DEN_INVALID));
}

TEST(an_atomic_write_that_is_killed_leaves_the_old_file)
{
	int p[2], report, status;
	auto_fd out = open("/dev/null", O_WRONLY | O_CLOEXEC);
	pid_t pid;

	file_make(in("f"), "old", 0644);
	CHECK(pipe2(p, O_CLOEXEC) == 0);
	pid = fs_start(p[0], out, &report, ARGV("write", in("f"), "", "a"));
	CHECK(write(p[1], "half", 4) == 4);
	usleep(50000);
	CHECK(holds(in("f"), "old"));
	CHECK(kill(pid, SIGKILL) == 0 && waitpid(pid, &status, 0) == pid);
	CHECK(holds(in("f"), "old"));
	close(p[0]), close(p[1]), close(report);
}

/* ---- stat and list --------------------------------------------------------------------------- */

TEST(stat_tells_what_is_there)
{
	struct timespec times[2] = { { 5, 0 }, { 1234, 567 } };
	struct fs_entry e;

	file_make(in("f"), "12345", 04751);
	CHECK(utimensat(AT_FDCWD, in("f"), times, 0) == 0 && symlink("f", in("l")) == 0);
	CHECK(FS("stat", in("l"), "") == 0);
	e = entry();
	CHECK(e.type == FS_FILE && e.size == 5 && e.mode == 04751 && e.nlink == 1 && !e.target);
	CHECK(e.mtime_ns == 1234000000567 && !strcmp(e.path, in("l")));
	CHECK(e.link && e.real && !strcmp(strrchr(e.real, '/'), "/f") && e.real[0] == '/');
	CHECK(geteuid() != 0 || (e.user && !strcmp(e.user, "root") && !strcmp(e.group, "root")));
	fs_entry_free(&e);
	CHECK(FS("stat", in("l"), "l") == 0);
	e = entry();
	CHECK(e.type == FS_LINK && !e.link && !strcmp(e.target, "f") && e.real);
	fs_entry_free(&e);
	CHECK(FS("stat", "/dev/null", "") == 0);
	e = entry();
	CHECK(e.type == FS_CHAR && !e.link && !e.real);
	fs_entry_free(&e);
	CHECK(failed_with(FS("stat", in("f/x"), ""), DEN_NOT_FOUND));
}

TEST(a_listing_is_sorted_and_as_deep_as_asked_for)
{
	mkdir(in("d"), 0755), mkdir(in("d/b"), 0755), mkdir(in("d/b/deep"), 0755);
	file_make(in("d/a"), "", 0644), file_make(in("d/c"), "", 0644), file_make(in("d/b/x"), "", 0644);
	file_make(in("d/b-"), "", 0644), file_make(in("d/b/deep/y"), "", 0644);
	CHECK(symlink("/", in("d/link")) == 0 && symlink("d", in("l")) == 0);
	CHECK(FS("list", in("d"), "1") == 0 && !strcmp(listed(), "a b b- c link "));
	CHECK(FS("list", in("d"), "") == 0 && !strcmp(listed(), "a b b- c link "));
	CHECK(FS("list", in("d"), "2") == 0 && !strcmp(listed(), "a b b/deep b/x b- c link "));
	CHECK(FS("list", in("l"), "9") == 0 && !strcmp(listed(), "a b b/deep b/deep/y b/x b- c link "));
	CHECK(failed_with(FS("list", in("d/a"), "1"), DEN_INVALID));
	CHECK(failed_with(FS("list", in("none"), "1"), DEN_NOT_FOUND));
	CHECK(failed_with(FS("list", in("d"), "0"), DEN_INVALID));
}

TEST(a_hundred_levels_and_ten_thousand_names_are_listed)
{
	auto_fd top = open(test_dir(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	size_t at = 0, used, n = 0;
	struct fs_entry e;
	struct den_err err;
	int dir = dup(top);

	for (int i = 0; i < 100; i++) { /* more than the walk keeps open */
		int next;

		CHECK(mkdirat(dir, "d", 0755) == 0 && mkdirat(dir, "e", 0755) == 0);
		next = openat(dir, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		close(dir);
		dir = next;
	}
	for (int i = 0; i < 10000; i++) {
		char name[32];

		snprintf(name, sizeof(name), "n%d", i);
		CHECK(mknodat(dir, name, S_IFREG | 0644, 0) == 0);
	}
	close(dir);
	CHECK(FS("list", (char *)test_dir(), "4000000000") == 0);
	for (; at < last.out.len; at += used, n++) {
		CHECK(fs_entry_get(last.out.p + at, last.out.len - at, &e, &used, &err) == 1);
		fs_entry_free(&e);
	}
	CHECK(n == 10200);
}

/* ---- changes --------------------------------------------------------------------------------- */

TEST(directories_are_made_once_or_as_needed)
{
	CHECK(FS("mkdir", in("d"), "", "") == 0 && mode_of(in("d")) == (S_IFDIR | 0755));
	CHECK(failed_with(FS("mkdir", in("d"), "", ""), DEN_CONFLICT));
	CHECK(FS("mkdir", in("d"), "", "p") == 0);
	CHECK(failed_with(FS("mkdir", in("x/y"), "", ""), DEN_NOT_FOUND));
	CHECK(FS("mkdir", in("x/y/z/"), "2770", "p") == 0);
	CHECK(mode_of(in("x/y/z")) == (S_IFDIR | 02770) && mode_of(in("x/y")) == (S_IFDIR | 0755));
	file_make(in("f"), "", 0644);
	CHECK(failed_with(FS("mkdir", in("f"), "", "p"), DEN_CONFLICT));
	CHECK(failed_with(FS("mkdir", in("f/g"), "", "p"), DEN_CONFLICT));
	CHECK(FS("mkdir", "/", "", "p") == 0);
}

TEST(a_move_replaces_unless_it_must_not)
{
	file_make(in("a"), "a", 0644), file_make(in("b"), "b", 0644);
	CHECK(failed_with(FS("move", in("a"), in("b"), "n"), DEN_CONFLICT));
	CHECK(holds(in("a"), "a") && holds(in("b"), "b"));
	CHECK(FS("move", in("a"), in("b"), "") == 0 && holds(in("b"), "a") && missing(in("a")));
	CHECK(failed_with(FS("move", in("b"), in("x/y/c"), ""), DEN_NOT_FOUND));
	CHECK(FS("move", in("b"), in("x/y/c"), "pn") == 0 && holds(in("x/y/c"), "a"));
	CHECK(failed_with(FS("move", in("x"), in("x/y/z"), ""), DEN_INVALID));
	CHECK(failed_with(FS("move", in("none"), in("c"), ""), DEN_NOT_FOUND));
	CHECK(failed_with(FS("move", in("x"), "/..", ""), DEN_INVALID));
}

TEST(a_move_to_another_file_system_moves_everything)
{
	char other[] = "/dev/shm/den-unit.XXXXXX", to[300], f[320];
	struct stat a, b, st;
	struct den_err err;

	if (!mkdtemp(other))
		SKIP("no /dev/shm");
	CHECK(stat(other, &a) == 0 && stat(test_dir(), &b) == 0);
	if (a.st_dev == b.st_dev) {
		rmdir(other);
		SKIP("/dev/shm is no file system of its own");
	}
	snprintf(to, sizeof(to), "%s/moved", other);
	mkdir(in("d"), 0750), mkdir(in("d/sub"), 0500);
	file_make(in("d/f"), "text", 0640);
	CHECK(link(in("d/f"), in("d/g")) == 0 && symlink("f", in("d/l")) == 0);
	CHECK(mkfifo(in("d/p"), 0600) == 0);
	CHECK(FS("move", in("d"), to, "n") == 0 && missing(in("d")));
	snprintf(f, sizeof(f), "%s/f", to);
	CHECK(holds(f, "text") && stat(f, &st) == 0 && st.st_nlink == 2 && (st.st_mode & 07777) == 0640);
	CHECK(mode_of(to) == (S_IFDIR | 0750) && names_in(to) == 5 && names_in(other) == 1);
	/* what must not be replaced is not */
	file_make(in("f"), "mine", 0644);
	CHECK(failed_with(FS("move", in("f"), f, "n"), DEN_CONFLICT));
	CHECK(holds(in("f"), "mine") && holds(f, "text"));
	mkdir(in("e"), 0755);
	CHECK(failed_with(FS("move", in("e"), to, ""), DEN_CONFLICT) && names_in(to) == 5);
	CHECK(!missing(in("e")) && names_in(other) == 1);
	CHECK(tree_remove_at(AT_FDCWD, other, &err) == 0);
}

TEST(remove_asks_before_it_takes_a_full_directory)
{
	mkdir(in("d"), 0755), mkdir(in("empty"), 0755), mkdir(in("keep"), 0755);
	file_make(in("d/f"), "", 0644), file_make(in("keep/f"), "k", 0644);
	CHECK(symlink(in("keep"), in("d/link")) == 0 && symlink("keep", in("link")) == 0);
	CHECK(failed_with(FS("remove", in("d"), ""), DEN_CONFLICT) && strstr(last.err.msg, "recursive"));
	CHECK(FS("remove", in("empty"), "") == 0 && missing(in("empty")));
	CHECK(FS("remove", in("d"), "r") == 0 && missing(in("d")));
	CHECK(FS("remove", in("link/"), "r") == 0 && missing(in("link")));
	CHECK(holds(in("keep/f"), "k"));
	CHECK(failed_with(FS("remove", in("d"), "r"), DEN_NOT_FOUND));
	CHECK(FS("remove", in("d"), "rf") == 0 && FS("remove", in("d/e"), "f") == 0);
	CHECK(failed_with(FS("remove", "/", "rf"), DEN_INVALID));
	CHECK(failed_with(FS("remove", in("."), "rf"), DEN_INVALID));
	CHECK(failed_with(FS("remove", in("keep/.."), "rf"), DEN_INVALID));
}

TEST(chmod_follows_the_path_and_no_link_below)
{
	mkdir(in("d"), 0755), mkdir(in("d/sub"), 0755);
	file_make(in("d/sub/f"), "", 0644), file_make(in("out"), "", 0600);
	CHECK(symlink(in("out"), in("d/link")) == 0 && symlink("d", in("l")) == 0);
	CHECK(FS("chmod", in("d/sub/f"), "600", "") == 0 && mode_of(in("d/sub/f")) == (S_IFREG | 0600));
	CHECK(FS("chmod", in("l"), "0700", "r") == 0);
	CHECK(mode_of(in("d")) == (S_IFDIR | 0700) && mode_of(in("d/sub")) == (S_IFDIR | 0700));
	CHECK(mode_of(in("d/sub/f")) == (S_IFREG | 0700) && mode_of(in("out")) == (S_IFREG | 0600));
	CHECK(FS("chmod", in("d/link"), "0640", "") == 0 && mode_of(in("out")) == (S_IFREG | 0640));
	CHECK(failed_with(FS("chmod", in("none"), "700", "r"), DEN_NOT_FOUND));
}

TEST(an_ordinary_user_can_close_a_tree_and_open_it_again)
{
	if (geteuid() == 0) {
		CHECK(chown(test_dir(), 65534, 65534) == 0);
		CHECK(setregid(65534, 65534) == 0 && setreuid(65534, 65534) == 0);
	}
	mkdir(in("d"), 0755), mkdir(in("d/sub"), 0755);
	file_make(in("d/sub/f"), "", 0644);
	CHECK(FS("chmod", in("d"), "0", "r") == 0 && mode_of(in("d")) == S_IFDIR);
	CHECK(failed_with(FS("list", in("d"), "1"), DEN_DENIED));
	CHECK(FS("list", (char *)test_dir(), "5") == 0 && !strcmp(listed(), "d "));
	CHECK(FS("chmod", in("d"), "700", "r") == 0 && mode_of(in("d/sub/f")) == (S_IFREG | 0700));
}

TEST(chown_takes_names_and_numbers)
{
	struct stat st;

	if (geteuid() != 0)
		SKIP("only root gives files away");
	mkdir(in("d"), 0755), file_make(in("d/f"), "", 0644), file_make(in("out"), "", 0644);
	CHECK(symlink(in("out"), in("d/l")) == 0);
	CHECK(FS("chown", in("d"), "12:34", "r") == 0);
	CHECK(stat(in("d"), &st) == 0 && st.st_uid == 12 && st.st_gid == 34);
	CHECK(stat(in("d/f"), &st) == 0 && st.st_uid == 12 && st.st_gid == 34);
	CHECK(lstat(in("d/l"), &st) == 0 && st.st_uid == 12);
	CHECK(stat(in("out"), &st) == 0 && st.st_uid == 0);
	CHECK(FS("chown", in("d/f"), "56", "") == 0);
	CHECK(stat(in("d/f"), &st) == 0 && st.st_uid == 56 && st.st_gid == 34); /* the group stays */
	CHECK(FS("chown", in("d/f"), ":root", "") == 0);
	CHECK(stat(in("d/f"), &st) == 0 && st.st_uid == 56 && st.st_gid == 0);
	CHECK(FS("chown", in("d/l"), "root", "l") == 0);
	CHECK(lstat(in("d/l"), &st) == 0 && st.st_uid == 0);
	CHECK(failed_with(FS("chown", in("d"), "no-such-user", ""), DEN_NOT_FOUND));
	CHECK(strstr(last.err.msg, "no user 'no-such-user' in the box"));
	CHECK(failed_with(FS("chown", in("d"), "root:no-such", ""), DEN_NOT_FOUND));
}

/* ---- tar ------------------------------------------------------------------------------------- */

TEST(a_tree_goes_out_and_comes_in)
{
	auto_buf tar = { 0 };

	mkdir(in("d"), 0750), mkdir(in("d/sub"), 0755), mkdir(in("to"), 0755);
	file_make(in("d/sub/f"), "text", 0604);
	CHECK(symlink("d", in("link")) == 0);
	CHECK(FS("tarout", in("d/"), "") == 0);
	buf_add(&tar, last.out.p, last.out.len);
	CHECK(fs_with(tar.p, tar.len, ARGV("tarin", in("to"), "")) == 0);
	CHECK(holds(in("to/d/sub/f"), "text") && mode_of(in("to/d")) == (S_IFDIR | 0750));
	CHECK(FS("tarout", in("link"), "c") == 0); /* contents: the link is followed */
	CHECK(failed_with(fs_with(last.out.p, last.out.len, ARGV("tarin", in("new/er"), "")),
		DEN_NOT_FOUND));
	CHECK(FS("tarout", in("link"), "c") == 0);
	tar.len = 0;
	buf_add(&tar, last.out.p, last.out.len);
	CHECK(fs_with(tar.p, tar.len, ARGV("tarin", in("new/er"), "p")) == 0);
	CHECK(holds(in("new/er/sub/f"), "text"));
	CHECK(FS("tarout", in("link"), "") == 0); /* and else packed as what it is */
	tar.len = 0;
	buf_add(&tar, last.out.p, last.out.len);
	CHECK(fs_with(tar.p, tar.len, ARGV("tarin", in("to"), "")) == 0);
	CHECK(S_ISLNK(mode_of(in("to/link"))));
	CHECK(FS("tarout", in("d/sub/f"), "") == 0);
	CHECK(failed_with(FS("tarout", in("none"), ""), DEN_NOT_FOUND));
	CHECK(failed_with(FS_IN("not a tar", "tarin", in("to"), ""), DEN_INVALID));
	CHECK(failed_with(FS("tarin", in("d/sub/f"), ""), DEN_INVALID));
}
