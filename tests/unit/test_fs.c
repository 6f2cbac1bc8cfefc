/* init's built-in file operations, each in a process of its own as init runs them; users.h. */
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "buf.h"
#include "fd.h"
#include "fs_run.h"
#include "fsop.h"
#include "mem.h"
#include "users.h"

/* ---- helpers --------------------------------------------------------------------------------- */

static char paths[8][300];

/* A path in the test's directory; eight may be in use at once. */
static char *in(const char *name)
{
	static unsigned next;
	char *p = paths[next++ % ARRAY_SIZE(paths)];

	snprintf(p, sizeof(paths[0]), "%s/%s", test_dir(), name);
	return p;
}

static void file_make(const char *path, const char *text, mode_t mode)
{
	auto_fd fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	CHECK(fchmod(fd, mode) == 0);
}

static bool holds(const char *path, const char *text)
{
	auto_fd fd = open(path, O_RDONLY | O_CLOEXEC);
	auto_free char *got = NULL;
	struct den_err err;

	return fd >= 0 && fd_read_all(fd, 1 << 20, &got, NULL, &err) == 0 && !strcmp(got, text);
}

static mode_t mode_of(const char *path)
{
	struct stat st;

	CHECK(lstat(path, &st) == 0);
	return st.st_mode;
}

static bool missing(const char *path)
{
	struct stat st;

	return lstat(path, &st) < 0 && errno == ENOENT;
}

static int names_in(const char *path)
{
	struct stat st;
	char cmd[400];
	FILE *f;
	int n = 0, c;

	CHECK(stat(path, &st) == 0);
	snprintf(cmd, sizeof(cmd), "ls -A '%s'", path);
	f = popen(cmd, "r");
	while ((c = fgetc(f)) != EOF)
		n += c == '\n';
	pclose(f);
	return n;
}

/* Starts an operation with these streams; its error comes through *report. */
static pid_t fs_start(int in_fd, int out_fd, int *report, char *const *argv)
{
	int p[2];
	pid_t pid;

	CHECK(pipe2(p, O_CLOEXEC) == 0);
	fflush(NULL);
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		struct den_err err = { 0 };
		int r;

		dup2(in_fd, 0);
		dup2(out_fd, 1);
		dup2(p[1], 3);
		fd_close_from(4); /* among them the other ends of its pipes */
		r = fs_run(argv, &err);
		CHECK(r == 0 || err.code != DEN_OK);
		if (write(3, &err, sizeof(err)) != sizeof(err))
			_exit(99);
		exit(r == 0 ? 0 : 1); /* with exit handlers, so that leak checking runs */
	}
	close(p[1]);
	*report = p[0];
	return pid;
}

static int fs_end(pid_t pid, int report, struct den_err *err)
{
	int status;

	CHECK(read(report, err, sizeof(*err)) == sizeof(*err));
	close(report);
	CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
	CHECK(WEXITSTATUS(status) <= 1);
	return WEXITSTATUS(status) ? -1 : 0;
}

struct result {
	int r;
	struct den_err err;
	struct buf out;
};
static struct result last; /* of the last operation */

static int fs_with(const void *input, size_t n, char *const *argv)
{
	auto_fd in_fd = memfd_create("in", MFD_CLOEXEC), out_fd = memfd_create("out", MFD_CLOEXEC);
	pid_t pid;
	int report;

	CHECK(write(in_fd, input, n) == (ssize_t)n && lseek(in_fd, 0, SEEK_SET) == 0);
	pid = fs_start(in_fd, out_fd, &report, argv);
	last.r = fs_end(pid, report, &last.err);
	buf_free(&last.out);
	lseek(out_fd, 0, SEEK_SET);
	CHECK(fd_read_all(out_fd, 64 << 20, &last.out.p, &last.out.len, &last.err) == 0);
	return last.r;
}
#define ARGV(...) ((char *const[]){ __VA_ARGS__, NULL })
#define FS(...) fs_with("", 0, ARGV(__VA_ARGS__))
#define FS_IN(text, ...) fs_with(text, strlen(text), ARGV(__VA_ARGS__))

static bool failed_with(int r, enum den_code code)
{
	return r < 0 && last.err.code == code;
}

/* What the last operation listed, as "path path ". */
static const char *listed(void)
{
	static struct buf text;
	size_t at = 0, used;
	struct fs_entry e;
	struct den_err err;

	text.len = 0;
	while (at < last.out.len) {
		CHECK(fs_entry_get(last.out.p + at, last.out.len - at, &e, &used, &err) == 1);
		buf_addf(&text, "%s ", e.path);
		fs_entry_free(&e);
		at += used;
	}
	return buf_str(&text);
}

static struct fs_entry entry(void)
{
	struct fs_entry e;
	struct den_err err;
	size_t used;

	CHECK(fs_entry_get(last.out.p, last.out.len, &e, &used, &err) == 1 && used == last.out.len);
	return e;
}

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
	CHECK(geteuid() != 0 || (e.user && !strcmp(e.user, "root") && !strcmp(e.group, "root")));
	fs_entry_free(&e);
	CHECK(FS("stat", in("l"), "l") == 0);
	e = entry();
	CHECK(e.type == FS_LINK && !strcmp(e.target, "f"));
	fs_entry_free(&e);
	CHECK(FS("stat", "/dev/null", "") == 0);
	e = entry();
	CHECK(e.type == FS_CHAR);
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

/* ---- watch ----------------------------------------------------------------------------------- */

struct watcher {
	pid_t pid;
	int stdin_fd, out, report;
	struct buf got, text; /* text: "event:path " of all so far */
};

/* Reads records until the text holds what is wanted, at most five seconds. */
static bool watcher_sees(struct watcher *w, const char *want)
{
	for (;;) {
		struct pollfd p = { .fd = w->out, .events = POLLIN };
		struct fs_entry e;
		struct den_err err;
		char chunk[4096];
		size_t used;
		ssize_t n;

		while (fs_entry_get(w->got.p, w->got.len, &e, &used, &err) == 1) {
			buf_addf(&w->text, "%s:%s ", fs_event_str[e.event], e.path);
			fs_entry_free(&e);
			buf_consume(&w->got, used);
		}
		if (strstr(buf_str(&w->text), want))
			return true;
		if (poll(&p, 1, 5000) != 1)
			break;
		n = read(w->out, chunk, sizeof(chunk));
		if (n <= 0)
			break;
		buf_add(&w->got, chunk, (size_t)n);
	}
	fprintf(stderr, "  wanted '%s', saw '%s'\n", want, buf_str(&w->text));
	return false;
}

static int times_seen(struct watcher *w, const char *what)
{
	int n = 0;

	for (const char *p = buf_str(&w->text); (p = strstr(p, what)); p++)
		n++;
	return n;
}

static void watcher_start(struct watcher *w, char *path, char *flags)
{
	int i[2], o[2];

	*w = (struct watcher){ 0 };
	CHECK(pipe2(i, O_CLOEXEC) == 0 && pipe2(o, O_CLOEXEC) == 0);
	w->pid = fs_start(i[0], o[1], &w->report, ARGV("watch", path, flags));
	close(i[0]), close(o[1]);
	w->stdin_fd = i[1];
	w->out = o[0];
	CHECK(watcher_sees(w, ": ")); /* the empty record: from now on nothing is missed */
	CHECK(w->text.len == 2);
}

static void watcher_end(struct watcher *w)
{
	struct den_err err;

	close(w->stdin_fd);
	CHECK(fs_end(w->pid, w->report, &err) == 0);
	close(w->out);
	buf_free(&w->got);
	buf_free(&w->text);
}

TEST(a_watch_tells_each_kind_of_change)
{
	struct watcher w;

	mkdir(in("d"), 0755);
	file_make(in("d/old"), "", 0644);
	watcher_start(&w, in("d"), "");
	file_make(in("d/f"), "x", 0600);
	CHECK(watcher_sees(&w, "create:f "));
	CHECK(watcher_sees(&w, "write:f "));
	chmod(in("d/f"), 0640);
	CHECK(watcher_sees(&w, "chmod:f "));
	rename(in("d/f"), in("d/g"));
	CHECK(watcher_sees(&w, "rename:f create:g "));
	unlink(in("d/g"));
	CHECK(watcher_sees(&w, "remove:g "));
	mkdir(in("d/sub"), 0755);
	CHECK(watcher_sees(&w, "create:sub "));
	file_make(in("d/sub/x"), "", 0644); /* not recursive: not told */
	unlink(in("d/old"));
	CHECK(watcher_sees(&w, "remove:old "));
	CHECK(!strstr(buf_str(&w.text), "sub/x"));
	watcher_end(&w);
}

TEST(a_recursive_watch_misses_nothing_in_new_directories)
{
	struct watcher w;

	mkdir(in("d"), 0755), mkdir(in("d/a"), 0755), mkdir(in("d/a/b"), 0755);
	mkdir(in("away"), 0755), mkdir(in("away/x"), 0755);
	file_make(in("away/x/f"), "", 0644);
	watcher_start(&w, in("d"), "r");
	file_make(in("d/a/b/f"), "x", 0644);
	CHECK(watcher_sees(&w, "create:a/b/f "));
	for (int i = 0; i < 50; i++) { /* faster than watches can be added */
		char name[64];

		snprintf(name, sizeof(name), "d/n%d", i);
		mkdir(in(name), 0755);
		snprintf(name, sizeof(name), "d/n%d/m", i);
		mkdir(in(name), 0755);
		snprintf(name, sizeof(name), "d/n%d/m/f", i);
		file_make(in(name), "", 0644);
	}
	for (int i = 0; i < 50; i++) {
		char want[64];

		snprintf(want, sizeof(want), "create:n%d/m/f ", i);
		CHECK(watcher_sees(&w, want));
		CHECK(times_seen(&w, want) == 1);
	}
	CHECK(rename(in("away/x"), in("d/x")) == 0); /* comes with what is in it */
	CHECK(watcher_sees(&w, "create:x create:x/f "));
	CHECK(rename(in("d/x"), in("d/a/y")) == 0); /* and is known by its new name */
	CHECK(watcher_sees(&w, "rename:x create:a/y create:a/y/f "));
	unlink(in("d/a/y/f"));
	CHECK(watcher_sees(&w, "remove:a/y/f "));
	CHECK(rename(in("d/a/y"), in("away/y")) == 0);
	CHECK(watcher_sees(&w, "rename:a/y "));
	file_make(in("away/y/g"), "", 0644); /* no longer of interest */
	file_make(in("d/end"), "", 0644);
	CHECK(watcher_sees(&w, "create:end "));
	CHECK(!strstr(buf_str(&w.text), "y/g"));
	watcher_end(&w);
}

TEST(a_watch_ends_when_what_it_watches_is_gone)
{
	struct watcher w;
	struct den_err err;

	mkdir(in("d"), 0755);
	watcher_start(&w, in("d"), "r");
	CHECK(rmdir(in("d")) == 0);
	CHECK(watcher_sees(&w, "remove: "));
	CHECK(fs_end(w.pid, w.report, &err) == 0); /* stdin is still open */
	close(w.stdin_fd), close(w.out);
	buf_free(&w.got);
	buf_free(&w.text);
	CHECK(failed_with(FS("watch", in("none"), "r"), DEN_NOT_FOUND));
}

TEST(a_single_file_can_be_watched)
{
	struct watcher w;

	file_make(in("f"), "", 0644);
	watcher_start(&w, in("f"), "");
	file_make(in("f"), "x", 0644);
	CHECK(watcher_sees(&w, "write: "));
	unlink(in("f"));
	CHECK(watcher_sees(&w, "remove: "));
	watcher_end(&w);
}

/* ---- users ----------------------------------------------------------------------------------- */

static int etc_make(const char *passwd, const char *group)
{
	int etc;

	mkdir(in("etc"), 0755);
	file_make(in("etc/passwd"), passwd, 0644);
	file_make(in("etc/group"), group, 0644);
	etc = open(in("etc"), O_PATH | O_DIRECTORY | O_CLOEXEC);
	CHECK(etc >= 0);
	return etc;
}

TEST(users_are_found_by_name_and_number)
{
	auto_fd etc = etc_make("root:x:0:0:root:/root:/bin/bash\nann:x:1000:1001:,,,:/home/ann:/bin/zsh\n"
			       "noshell:x:5:5::/:\nlast:x:7:7::/l:/s",
		"root:x:0:\nann:x:1001:\nwheel:x:10:bob,ann\ndocker:x:11:ann\nother:x:12:annie,xann\n"
		"again:x:10:ann\nprimary:x:1001:ann\n");
	struct user u;
	struct den_err err;

	CHECK(user_lookup_at(etc, "ann", &u, &err) == 0);
	CHECK(u.uid == 1000 && u.gid == 1001 && !strcmp(u.name, "ann") && !strcmp(u.home, "/home/ann"));
	CHECK(!strcmp(u.shell, "/bin/zsh") && u.n_groups == 2 && u.groups[0] == 10 && u.groups[1] == 11);
	CHECK(user_lookup_at(etc, "1000", &u, &err) == 0 && !strcmp(u.name, "ann") && u.n_groups == 2);
	CHECK(user_lookup_at(etc, "ann:wheel", &u, &err) == 0 && u.gid == 10 && u.n_groups == 0);
	CHECK(user_lookup_at(etc, "1000:55", &u, &err) == 0 && u.uid == 1000 && u.gid == 55);
	CHECK(user_lookup_at(etc, "4242", &u, &err) == 0);
	CHECK(u.uid == 4242 && u.gid == 4242 && !u.name[0] && !strcmp(u.home, "/") && !u.n_groups);
	CHECK(user_lookup_at(etc, "noshell", &u, &err) == 0 && !strcmp(u.shell, "/bin/sh"));
	CHECK(user_lookup_at(etc, "last", &u, &err) == 0 && !strcmp(u.shell, "/s"));
}

TEST(users_that_are_not_there_are_an_error_and_leave_the_result_alone)
{
	static const char *const absent[] = { "bob", "roo", "root2", "-1", "4294967295", "99999999999",
		"0x0", "ann " };
	static const char *const bad[] = { "", ":", "root:", ":root", "root:root:root" };
	auto_fd etc = etc_make("root:x:0:0:root:/root:/bin/bash\n", "root:x:0:\n");
	struct user u = { .uid = 77 };
	struct den_err err;

	for (size_t i = 0; i < ARRAY_SIZE(absent); i++)
		CHECK(user_lookup_at(etc, absent[i], &u, &err) < 0 && err.code == DEN_NOT_FOUND);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		CHECK(user_lookup_at(etc, bad[i], &u, &err) < 0 && err.code == DEN_INVALID);
	CHECK(user_lookup_at(etc, "root:nogroup", &u, &err) < 0 && err.code == DEN_NOT_FOUND);
	CHECK(u.uid == 77);
	CHECK(user_lookup_at(etc, "bob", &u, &err) < 0 && !strcmp(err.msg, "no user 'bob' in the box"));
}

TEST(hostile_passwd_lines_are_passed_over)
{
	auto_buf passwd = { 0 }, group = { 0 };
	auto_fd etc = -1;
	struct user u;
	struct den_err err;

	buf_addstr(&passwd, "1000:x:0:0::/:/bin/sh\n"); /* a name that looks like a number */
	buf_addstr(&passwd, "eve:x:-1:0::/:/x\neve:x:4294967295:0::/:/x\neve:x:4294967296:0::/:/x\n"
			    "eve:x::0::/:/x\neve:x:0\neve\n:::::::\n\n::\neve:x:1e3:0::/:/x\n");
	buf_addstr(&passwd, "long:x:1:1:");
	for (int i = 0; i < 70000; i++)
		buf_addstr(&passwd, "x");
	buf_addstr(&passwd, ":/:/bin/sh\n");
	for (int i = 0; i < 64; i++)
		buf_addstr(&passwd, "n");
	buf_addstr(&passwd, ":x:3:3::/:/bin/sh\n");
	buf_addstr(&passwd, "home:x:4:4::relative/../..:also-relative\n");
	buf_addstr(&passwd, "ok:x:9:9::/ok:/bin/sh\n");
	for (int i = 0; i < 200; i++)
		buf_addf(&group, "g%d:x:%d:ok\n", i, 100 + i);
	etc = etc_make(buf_str(&passwd), buf_str(&group));
	CHECK(user_lookup_at(etc, "1000", &u, &err) == 0 && u.uid == 1000);
	CHECK(user_lookup_at(etc, "eve", &u, &err) < 0 && user_lookup_at(etc, "long", &u, &err) < 0);
	CHECK(user_lookup_at(etc, "3", &u, &err) == 0 && !u.name[0]);
	CHECK(user_lookup_at(etc, "home", &u, &err) == 0 && !strcmp(u.home, "/"));
	CHECK(!strcmp(u.shell, "/bin/sh"));
	CHECK(user_lookup_at(etc, "ok", &u, &err) == 0 && u.n_groups == USER_GROUPS);
}

TEST(passwd_files_that_are_no_files_do_not_hang_us)
{
	auto_fd etc = etc_make("root:x:0:0::/root:/bin/sh\n", "");
	struct user u;
	struct den_err err;
	struct user_names *n;

	unlink(in("etc/passwd")), unlink(in("etc/group"));
	CHECK(user_lookup_at(etc, "root", &u, &err) == 0 && u.uid == 0 && !strcmp(u.home, "/"));
	CHECK(user_lookup_at(etc, "ann", &u, &err) < 0 && err.code == DEN_NOT_FOUND);
	CHECK(mkfifo(in("etc/passwd"), 0644) == 0 && symlink("/dev/zero", in("etc/group")) == 0);
	CHECK(user_lookup_at(etc, "12:34", &u, &err) == 0 && u.uid == 12 && u.gid == 34);
	n = user_names_new(etc);
	CHECK(!user_names_user(n, 0) && !user_names_group(n, 0));
	user_names_free(n);
	unlink(in("etc/passwd"));
	file_make(in("etc/passwd"), "root:x:0:0::/root:/bin/sh\n", 0644);
	CHECK(truncate(in("etc/passwd"), 1LL << 40) == 0); /* a terabyte of zeros */
	CHECK(user_lookup_at(etc, "5", &u, &err) == 0 && u.uid == 5);
	CHECK(user_lookup_at(-1, "5", &u, &err) == 0); /* no /etc at all */
}

TEST(names_of_many_numbers_are_right)
{
	auto_buf passwd = { 0 };
	auto_fd etc = -1;
	struct user_names *n;

	for (int i = 0; i < 300; i += 2)
		buf_addf(&passwd, "u%d:x:%d:0::/:/bin/sh\n", i, i);
	etc = etc_make(buf_str(&passwd), "g7:x:7:\n");
	n = user_names_new(etc);
	for (int round = 0; round < 2; round++)
		for (unsigned i = 0; i < 300; i++) {
			const char *name = user_names_user(n, i);
			char want[16];

			snprintf(want, sizeof(want), "u%u", i);
			CHECK(i % 2 ? !name : name && !strcmp(name, want));
		}
	CHECK(!strcmp(user_names_group(n, 7), "g7") && !user_names_group(n, 8));
	user_names_free(n);
}
