/* tar.h, walk.h, tree.h: round trips with the system's tar, and archives that mean harm. */
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>

#include "buf.h"
#include "fd.h"
#include "mem.h"
#include "tar.h"
#include "tree.h"
#include "walk.h"

/* ---- helpers --------------------------------------------------------------------------------- */

static int dir_at(int at, const char *name)
{
	int fd;

	mkdirat(at, name, 0755);
	fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	CHECK(fd >= 0);
	return fd;
}

static int scratch(void)
{
	int fd = open(test_dir(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	CHECK(fd >= 0);
	return fd;
}

static void file_at(int at, const char *name, const void *p, size_t n, mode_t mode)
{
	auto_fd fd = openat(at, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	struct den_err err;

	CHECK(fd >= 0);
	CHECK(fd_write_all(fd, p, n, &err) == 0 && fchmod(fd, mode) == 0);
}

static bool holds(int at, const char *name, const char *text)
{
	char got[256];
	auto_fd fd = openat(at, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, got, sizeof(got));

	return n == (ssize_t)strlen(text) && !memcmp(got, text, (size_t)n);
}

static bool missing(int at, const char *name)
{
	return faccessat(at, name, F_OK, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT;
}

static struct stat stat_at(int at, const char *name)
{
	struct stat st;

	CHECK(fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) == 0);
	return st;
}

static int to_buf(const void *p, size_t n, void *user, struct den_err *err)
{
	(void)err;
	buf_add(user, p, n);
	return 0;
}

struct source {
	const char *p;
	size_t left, piece;
};

static ssize_t from_source(void *buf, size_t cap, void *user, struct den_err *err)
{
	struct source *s = user;
	size_t n = MIN(MIN(cap, s->left), s->piece);

	(void)err;
	memcpy(buf, s->p, n);
	s->p += n;
	s->left -= n;
	return (ssize_t)n;
}

static int unpack_pieces(int at, const struct buf *b, size_t piece, const struct tree_unpack_opt *opt,
	struct tree_stats *stats, struct den_err *err)
{
	struct source s = { b->p, b->len, piece };

	*err = (struct den_err){ 0 };
	return tree_unpack(at, opt, from_source, &s, stats, err);
}

static int unpack(int at, const struct buf *b, const struct tree_unpack_opt *opt, struct den_err *err)
{
	return unpack_pieces(at, b, SIZE_MAX, opt, NULL, err);
}

/* As the host does with what a box sent. */
static const struct tree_unpack_opt host = { .mode_clear = 07022, .keep_dirs = true };
static const struct tree_unpack_opt inside = { .owner = true, .special = true,
	.xattrs = TREE_XATTR_USER };

static void run(const char *const *argv)
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		execvp(argv[0], (char *const *)argv);
		_exit(127);
	}
	CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}
#define RUN(...) run((const char *const[]){ __VA_ARGS__, NULL })

static void put(struct buf *b, enum tar_type type, const char *name, const char *target,
	const char *data, uint32_t mode)
{
	struct tar_entry e = { .type = type, .name = name, .target = target, .mode = mode,
		.size = data ? strlen(data) : 0, .uid = geteuid(), .gid = getegid(), .mtime_sec = 1000 };
	struct den_err err;

	CHECK(tar_put_entry(b, &e, &err) == 0);
	if (data) {
		buf_addstr(b, data);
		tar_put_pad(b, e.size);
	}
}

/* A header as no honest writer makes it. */
static void put_raw(struct buf *b, const char *name, char type, const char *link, const char *size,
	size_t size_len)
{
	char h[512] = { 0 };
	unsigned sum = 0;

	memcpy(h, name, strnlen(name, 100));
	memcpy(h + 100, "0004755", 8);
	memcpy(h + 108, "0000000", 8);
	memcpy(h + 116, "0000000", 8);
	memcpy(h + 124, size, size_len);
	memcpy(h + 136, "00000001750", 12);
	h[156] = type;
	memcpy(h + 157, link, strnlen(link, 100));
	memcpy(h + 257, "ustar\00000", 8);
	memset(h + 148, ' ', 8);
	for (int i = 0; i < 512; i++)
		sum += (unsigned char)h[i];
	snprintf(h + 148, 8, "%06o", sum);
	buf_add(b, h, 512);
}
#define RAW(b, name, type, link, size) put_raw(b, name, type, link, size, sizeof(size) - 1)

static void put_meta(struct buf *b, char type, const void *p, size_t n)
{
	char size[12];

	snprintf(size, sizeof(size), "%011zo", n);
	put_raw(b, "meta", type, "", size, 12);
	buf_add(b, p, n);
	tar_put_pad(b, n);
}

static int take_entry(const struct tar_entry *e, void *user, struct den_err *err)
{
	(void)err;
	buf_addf(user, "%s:%llu:%u;", e->name, (unsigned long long)e->size, e->uid);
	return 0;
}

static int take_data(const void *p, size_t n, void *user, struct den_err *err)
{
	(void)p, (void)n, (void)user, (void)err;
	return 0;
}

static int take_end(void *user, struct den_err *err)
{
	(void)user, (void)err;
	return 0;
}

/* Reads an archive; what was in it goes to *ret as text. */
static int parse(const struct buf *b, struct buf *ret, struct den_err *err)
{
	static const struct tar_ops ops = { take_entry, take_data, take_end };
	struct tar_reader *r = tar_reader_new(&ops, ret);
	int res;

	*err = (struct den_err){ 0 };
	res = tar_reader_feed(r, b->p, b->len, err);
	if (res == 0)
		res = tar_reader_finish(r, err);
	tar_reader_free(r);
	return res;
}

/* ---- round trips ----------------------------------------------------------------------------- */

static char long_name[210], deep_name[2100];

/* A tree with one of everything. */
static int tree_make(int at, const char *name)
{
	int d = dir_at(at, name);
	struct timespec times[2] = { { 1600000000, 0 }, { 1600000000, 123456789 } };
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), sub;

	memset(long_name, 'n', sizeof(long_name) - 1);
	file_at(d, "file", "hello\n", 6, 0640);
	file_at(d, "empty", "", 0, 0444);
	file_at(d, "suid", "#!", 2, 04755);
	file_at(d, "new\nline \x1b[31m \xff", "x", 1, 0600);
	file_at(d, long_name, "long", 4, 0644);
	CHECK(linkat(d, "file", d, "hard", 0) == 0);
	CHECK(symlinkat("file", d, "soft") == 0);
	CHECK(symlinkat("/nowhere/at/all", d, "dangling") == 0);
	memset(deep_name, 'z', 1500);
	CHECK(symlinkat(deep_name, d, "longlink") == 0);
	CHECK(mkfifoat(d, "fifo", 0600) == 0);
	snprintf(un.sun_path, sizeof(un.sun_path), "%s/%s/sock", test_dir(), name);
	CHECK(bind(s, (struct sockaddr *)&un, sizeof(un)) == 0);
	close(s);
	sub = dir_at(d, "sub");
	file_at(sub, "big", NULL, 0, 0644);
	{
		auto_fd f = openat(sub, "big", O_WRONLY | O_CLOEXEC);
		char block[1000];

		for (int i = 0; i < 300; i++) {
			memset(block, i, sizeof(block));
			CHECK(write(f, block, sizeof(block)) == sizeof(block));
		}
	}
	CHECK(utimensat(d, "file", times, 0) == 0);
	CHECK(utimensat(d, "soft", times, AT_SYMLINK_NOFOLLOW) == 0);
	CHECK(fchmod(sub, 0555) == 0 && futimens(sub, times) == 0);
	close(sub);
	return d;
}

static void same(int a, int b, const char *name)
{
	struct stat x = stat_at(a, name), y = stat_at(b, name);

	CHECK(x.st_mode == y.st_mode && x.st_uid == y.st_uid && x.st_gid == y.st_gid);
	CHECK(x.st_mtim.tv_sec == y.st_mtim.tv_sec && x.st_mtim.tv_nsec == y.st_mtim.tv_nsec);
	if (S_ISREG(x.st_mode)) {
		auto_fd f = openat(a, name, O_RDONLY | O_CLOEXEC), g = openat(b, name, O_RDONLY | O_CLOEXEC);
		auto_free char *p = NULL, *q = NULL;
		struct den_err err;

		CHECK(x.st_size == y.st_size);
		CHECK(fd_read_all(f, 1 << 20, &p, NULL, &err) == 0);
		CHECK(fd_read_all(g, 1 << 20, &q, NULL, &err) == 0);
		CHECK(!memcmp(p, q, (size_t)x.st_size));
	}
	if (S_ISLNK(x.st_mode)) {
		char p[4096] = "", q[4096] = "";

		CHECK(readlinkat(a, name, p, sizeof(p) - 1) >= 0);
		CHECK(readlinkat(b, name, q, sizeof(q) - 1) >= 0);
		CHECK(!strcmp(p, q));
	}
}

static void same_tree(int a, int b)
{
	static const char *const names[] = { "file", "empty", "suid", "new\nline \x1b[31m \xff", "hard",
		"soft", "dangling", "longlink", "fifo", "sub", "sub/big" };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		same(a, b, names[i]);
	same(a, b, long_name);
	CHECK(stat_at(b, "file").st_ino == stat_at(b, "hard").st_ino);
	CHECK(missing(b, "sock"));
}

TEST(a_tree_comes_back_as_it_was)
{
	auto_fd top = scratch(), from = tree_make(top, "from"), to = dir_at(top, "to"), back = -1;
	struct tree_pack_opt opt = { .top = "t", .xattrs = TREE_XATTR_USER };
	struct tree_stats packed, unpacked;
	auto_buf b = { 0 };
	struct den_err err;

	CHECK(tree_pack(top, "from", &opt, to_buf, &b, &packed, &err) == 0);
	CHECK(packed.skipped == 1 && packed.entries == 13 && packed.bytes == 300013);
	/* pieces of any length give the same */
	CHECK(unpack_pieces(to, &b, 7, &inside, &unpacked, &err) == 0);
	CHECK(unpacked.entries == packed.entries && unpacked.bytes == packed.bytes);
	back = openat(to, "t", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	same_tree(from, back);
	same(from, back, ".");
}

TEST(packing_twice_gives_the_same_bytes)
{
	auto_fd top = scratch(), from = tree_make(top, "from");
	struct tree_pack_opt opt = { .owner = true, .uid = 7, .gid = 8 };
	auto_buf a = { 0 }, b = { 0 }, list = { 0 };
	struct den_err err;

	(void)from;
	CHECK(tree_pack(top, "from", &opt, to_buf, &a, NULL, &err) == 0);
	CHECK(tree_pack(top, "from", &opt, to_buf, &b, NULL, &err) == 0);
	CHECK(a.len == b.len && !memcmp(a.p, b.p, a.len));
	CHECK(parse(&a, &list, &err) == 0);
	/* contents only: no entry for the top; sorted; the owner asked for */
	CHECK(!strncmp(buf_str(&list), "dangling:0:7;empty:0:7;fifo:0:7;file:6:7;hard:0:7;", 50));
}

TEST(a_pulled_archive_is_the_pushed_one)
{
	auto_fd top = scratch(), from = tree_make(top, "from");
	struct tree_pack_opt opt = { .top = "t" };
	struct tree_packer *p;
	auto_buf pushed = { 0 }, pulled = { 0 };
	struct den_err err;
	char piece[333];
	ssize_t n;

	(void)from;
	CHECK(tree_pack(top, "from", &opt, to_buf, &pushed, NULL, &err) == 0);
	CHECK(tree_packer_new(top, "from", &opt, &p, &err) == 0);
	while ((n = tree_packer_read(p, piece, sizeof(piece), &err)) > 0)
		buf_add(&pulled, piece, (size_t)n);
	CHECK(n == 0 && tree_packer_stats(p)->skipped == 1);
	tree_packer_free(p);
	CHECK(pushed.len == pulled.len && !memcmp(pushed.p, pulled.p, pushed.len));
}

TEST(gnu_tar_reads_what_we_write)
{
	auto_fd top = scratch(), from = tree_make(top, "from"), to = dir_at(top, "to"), back = -1;
	struct tree_pack_opt opt = { .top = "t" };
	char file[300], dir[300];
	auto_buf b = { 0 };
	struct den_err err;

	CHECK(tree_pack(top, "from", &opt, to_buf, &b, NULL, &err) == 0);
	file_at(top, "a.tar", b.p, b.len, 0644);
	snprintf(file, sizeof(file), "%s/a.tar", test_dir());
	snprintf(dir, sizeof(dir), "%s/to", test_dir());
	RUN("tar", "-C", dir, "-xpf", file);
	back = openat(to, "t", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	same_tree(from, back);
}

TEST(we_read_what_gnu_tar_writes)
{
	static const char *const formats[] = { "pax", "gnu", "posix" };
	auto_fd top = scratch(), from = tree_make(top, "from");

	unlinkat(from, "sock", 0);
	for (size_t i = 0; i < ARRAY_SIZE(formats); i++) {
		auto_fd to = dir_at(top, formats[i]), back = -1, in = -1;
		char file[300], format[40];
		auto_buf b = { 0 };
		struct den_err err;
		struct stat st;

		snprintf(file, sizeof(file), "%s/b.tar", test_dir());
		snprintf(format, sizeof(format), "--format=%s", formats[i]);
		RUN("tar", "-C", test_dir(), format, "-cf", file, "from");
		in = open(file, O_RDONLY | O_CLOEXEC);
		CHECK(fd_read_all(in, 4 << 20, &b.p, &b.len, &err) == 0);
		CHECK(unpack(to, &b, &inside, &err) == 0);
		back = openat(to, "from", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		CHECK(back >= 0);
		if (strcmp(formats[i], "gnu")) {
			same_tree(from, back);
		} else { /* no parts of seconds there */
			CHECK(holds(back, "file", "hello\n") && holds(back, long_name, "long"));
			CHECK(fstatat(back, "file", &st, 0) == 0 && st.st_mtim.tv_sec == 1600000000);
			CHECK(readlinkat(back, "longlink", file, sizeof(file)) == sizeof(file));
		}
	}
}

TEST(we_read_v7_and_ustar_archives)
{
	static const char *const formats[] = { "v7", "ustar" };
	auto_fd top = scratch(), d = dir_at(top, "d");

	file_at(d, "f", "text", 4, 0644);
	CHECK(symlinkat("f", d, "l") == 0);
	for (size_t i = 0; i < ARRAY_SIZE(formats); i++) {
		auto_fd to = dir_at(top, formats[i]), in = -1;
		char file[300], format[40];
		auto_buf b = { 0 };
		struct den_err err;

		snprintf(file, sizeof(file), "%s/c.tar", test_dir());
		snprintf(format, sizeof(format), "--format=%s", formats[i]);
		RUN("tar", "-C", test_dir(), format, "-cf", file, "d");
		in = open(file, O_RDONLY | O_CLOEXEC);
		CHECK(fd_read_all(in, 1 << 20, &b.p, &b.len, &err) == 0);
		CHECK(unpack(to, &b, &host, &err) == 0);
		CHECK(holds(to, "d/f", "text") && S_ISLNK(stat_at(to, "d/l").st_mode));
	}
}

TEST(odd_times_large_numbers_and_attributes_survive)
{
	static const struct tar_xattr x[] = { { "user.a=b%c", "v\n=\0w", 5 }, { "user.none", "", 0 } };
	struct tar_entry e = { .type = TAR_FILE, .name = "f", .uid = 3000000000U, .gid = 4294967294U,
		.size = 1ULL << 40, .mtime_sec = -2, .mtime_nsec = 750000000, .xattrs = x, .n_xattrs = 2 };
	auto_buf b = { 0 };
	struct den_err err;

	CHECK(tar_put_entry(&b, &e, &err) == 0);
	CHECK(memmem(b.p, b.len, "22 mtime=-1.250000000\n", 22) != NULL);
	CHECK(memmem(b.p, b.len, "22 size=1099511627776\n", 22) != NULL);
	CHECK(memmem(b.p, b.len, "37 SCHILY.xattr.user.a%3Db%25c=v\n=\0w\n", 37) != NULL);
	e.n_xattrs = TAR_XATTR_MAX + 1;
	CHECK(tar_put_entry(&b, &e, &err) < 0 && err.code == DEN_LIMIT);
}

static int check_entry(const struct tar_entry *e, void *user, struct den_err *err)
{
	(void)err;
	CHECK(e->uid == 3000000000U && e->gid == 4294967294U && e->size == 1ULL << 40);
	CHECK(e->mtime_sec == -2 && e->mtime_nsec == 750000000);
	CHECK(e->n_xattrs == 1 && !strcmp(e->xattrs[0].name, "user.a=b%c"));
	CHECK(e->xattrs[0].len == 5 && !memcmp(e->xattrs[0].value, "v\n=\0w", 5));
	++*(int *)user;
	return 0;
}

TEST(what_was_written_is_what_is_read)
{
	static const struct tar_ops ops = { check_entry, take_data, take_end };
	static const struct tar_xattr x = { "user.a=b%c", "v\n=\0w", 5 };
	struct tar_entry e = { .type = TAR_FILE, .name = "f", .uid = 3000000000U, .gid = 4294967294U,
		.size = 1ULL << 40, .mtime_sec = -2, .mtime_nsec = 750000000, .xattrs = &x, .n_xattrs = 1 };
	struct tar_reader *r;
	auto_buf b = { 0 };
	struct den_err err;
	int seen = 0;

	CHECK(tar_put_entry(&b, &e, &err) == 0);
	r = tar_reader_new(&ops, &seen);
	for (size_t i = 0; i < b.len; i++)
		CHECK(tar_reader_feed(r, b.p + i, 1, &err) == 0);
	CHECK(seen == 1 && !tar_reader_ended(r));
	tar_reader_free(r);
}

TEST(user_attributes_are_kept_and_others_are_not)
{
	auto_fd top = scratch(), from = dir_at(top, "from"), to = dir_at(top, "to"), f = -1;
	struct tree_pack_opt opt = { .xattrs = TREE_XATTR_USER };
	struct tar_xattr evil = { "security.capability", "\1\0\0\2\0\0\0\0", 8 };
	struct tar_entry e = { .type = TAR_FILE, .name = "evil", .mode = 0755, .xattrs = &evil,
		.n_xattrs = 1, .uid = geteuid(), .gid = getegid() };
	auto_buf b = { 0 }, c = { 0 };
	struct den_err err;
	char got[16];

	file_at(from, "f", "", 0, 0644);
	f = openat(from, "f", O_RDONLY | O_CLOEXEC);
	if (fsetxattr(f, "user.den", "yes", 3, 0) < 0)
		SKIP("this file system has no user attributes");
	CHECK(tree_pack(top, "from", &opt, to_buf, &b, NULL, &err) == 0);
	CHECK(unpack(to, &b, &inside, &err) == 0);
	fd_close(&f);
	f = openat(to, "f", O_RDONLY | O_CLOEXEC);
	CHECK(fgetxattr(f, "user.den", got, sizeof(got)) == 3);
	CHECK(tar_put_entry(&c, &e, &err) == 0);
	tar_put_end(&c);
	CHECK(unpack(to, &c, &inside, &err) == 0);
	fd_close(&f);
	f = openat(to, "evil", O_RDONLY | O_CLOEXEC);
	CHECK(f >= 0 && fgetxattr(f, "security.capability", got, sizeof(got)) < 0);
}

/* ---- archives that mean harm ----------------------------------------------------------------- */

/* Unpacks below "in"; "out" beside it must stay as it is. */
struct cage {
	int top, in, out;
};

static struct cage cage_make(void)
{
	struct cage c = { .top = scratch() };

	c.in = dir_at(c.top, "in");
	c.out = dir_at(c.top, "out");
	file_at(c.out, "precious", "safe", 4, 0644);
	return c;
}

static void cage_check(struct cage *c)
{
	struct walk_entry e;
	struct walk *w;
	struct den_err err;
	int n = 0, r;

	CHECK(holds(c->out, "precious", "safe"));
	CHECK(stat_at(c->out, "precious").st_mode == (S_IFREG | 0644));
	CHECK(stat_at(c->out, "precious").st_nlink == 1);
	CHECK(walk_new(dup(c->top), 2, 0, &w, &err) == 0);
	while ((r = walk_next(w, &e, &err)) > 0)
		n += strncmp(e.path, "in", 2) != 0;
	CHECK(r == 0 && n == 2); /* out, out/precious */
	walk_free(w);
	close(c->top), close(c->in), close(c->out);
}

TEST(names_that_leave_are_refused)
{
	static const char *const bad[] = { "/etc/x", "../out/x", "a/../../out/x", "..", "a/..", "/", "//x",
		"./../out/x" };

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		for (int type = TAR_FILE; type <= TAR_FIFO; type++) {
			struct cage c = cage_make();
			auto_buf b = { 0 };
			struct den_err err;

			put(&b, type, bad[i], type == TAR_SYMLINK || type == TAR_HARDLINK ? "t" : NULL,
				type == TAR_FILE ? "evil" : NULL, 0777);
			tar_put_end(&b);
			CHECK(unpack(c.in, &b, &inside, &err) < 0 && err.code == DEN_DENIED);
			cage_check(&c);
		}
	}
}

TEST(nothing_is_written_through_a_link_of_the_archive)
{
	static const char *const targets[] = { "../out", "/", ".", "sub" };

	for (size_t i = 0; i < ARRAY_SIZE(targets); i++) {
		struct cage c = cage_make();
		auto_buf b = { 0 }, d = { 0 };
		struct den_err err;

		put(&b, TAR_DIR, "sub", NULL, NULL, 0755);
		put(&b, TAR_SYMLINK, "l", targets[i], NULL, 0777);
		put(&b, TAR_FILE, "l/precious", NULL, "evil", 0666);
		tar_put_end(&b);
		CHECK(unpack(c.in, &b, &host, &err) < 0 && err.code == DEN_DENIED);
		/* and a directory does not take the link's place, nor set its target's mode */
		put(&d, TAR_DIR, "l", NULL, NULL, 0777);
		put(&d, TAR_FILE, "l/precious", NULL, "evil", 0666);
		tar_put_end(&d);
		CHECK(unpack(c.in, &d, &inside, &err) < 0 && err.code == DEN_CONFLICT);
		CHECK(S_ISLNK(stat_at(c.in, "l").st_mode));
		CHECK((stat_at(c.out, ".").st_mode & 07777) == 0755);
		cage_check(&c);
		unlinkat(scratch(), "in/l", 0);
	}
}

TEST(a_link_that_was_there_before_is_replaced_not_followed)
{
	struct cage c = cage_make();
	auto_buf b = { 0 };
	struct den_err err;

	CHECK(symlinkat("../out/precious", c.in, "soft") == 0);
	CHECK(linkat(c.out, "precious", c.in, "hard", 0) == 0);
	put(&b, TAR_FILE, "soft", NULL, "new", 0600);
	put(&b, TAR_FILE, "hard", NULL, "new", 0600);
	tar_put_end(&b);
	CHECK(unpack(c.in, &b, &host, &err) == 0);
	CHECK(holds(c.in, "soft", "new") && holds(c.in, "hard", "new"));
	cage_check(&c);
}

TEST(hard_links_to_the_outside_are_refused)
{
	static const char *const bad[] = { "../out/precious", "/etc/passwd", "l/precious", "missing", ".",
		"d" };

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct cage c = cage_make();
		auto_buf b = { 0 };
		struct den_err err;

		put(&b, TAR_DIR, "d", NULL, NULL, 0755);
		put(&b, TAR_SYMLINK, "l", "../out", NULL, 0777);
		put(&b, TAR_HARDLINK, "h", bad[i], NULL, 0666);
		put(&b, TAR_FILE, "h", NULL, "evil", 0666);
		tar_put_end(&b);
		CHECK(unpack(c.in, &b, &host, &err) < 0);
		CHECK(err.code == DEN_DENIED || err.code == DEN_INVALID);
		CHECK(missing(c.in, "h"));
		cage_check(&c);
		unlinkat(scratch(), "in/l", 0);
	}
}

TEST(a_hard_link_to_a_link_is_that_link)
{
	struct cage c = cage_make();
	auto_buf b = { 0 };
	struct den_err err;

	put(&b, TAR_SYMLINK, "l", "../out/precious", NULL, 0777);
	put(&b, TAR_HARDLINK, "h", "l", NULL, 0777);
	put(&b, TAR_FILE, "h", NULL, "evil", 0666);
	tar_put_end(&b);
	CHECK(unpack(c.in, &b, &inside, &err) == 0);
	CHECK(holds(c.in, "h", "evil"));
	cage_check(&c);
}

TEST(a_hard_link_to_itself_loses_nothing)
{
	auto_fd top = scratch();
	auto_buf b = { 0 };
	struct den_err err;

	file_at(top, "f", "kept", 4, 0644);
	put(&b, TAR_HARDLINK, "f", "./f", NULL, 0644);
	tar_put_end(&b);
	CHECK(unpack(top, &b, &host, &err) == 0);
	CHECK(holds(top, "f", "kept"));
}

TEST(devices_are_never_made_and_set_id_bits_go)
{
	struct tree_unpack_opt box = inside;
	auto_fd top = scratch();
	auto_buf b = { 0 };
	struct den_err err;
	struct tree_stats stats;

	RAW(&b, "char", '3', "", "00000000000");
	RAW(&b, "block", '4', "", "00000000000");
	RAW(&b, "suid", '0', "", "00000000000");
	RAW(&b, "dir/", '5', "", "00000000000");
	RAW(&b, "fifo", '6', "", "00000000000");
	tar_put_end(&b);
	CHECK(unpack_pieces(top, &b, 100, &host, &stats, &err) == 0);
	CHECK(stats.skipped == 3);
	CHECK(missing(top, "char") && missing(top, "block") && missing(top, "fifo"));
	CHECK(stat_at(top, "suid").st_mode == (S_IFREG | 0755));
	CHECK(stat_at(top, "dir").st_mode == (S_IFDIR | 0755));
	CHECK(stat_at(top, "suid").st_uid == geteuid());
	/* in the box they stay: it is the box's own business */
	box.owner = geteuid() == 0;
	CHECK(unpack_pieces(top, &b, 100, &box, &stats, &err) == 0);
	CHECK(stats.skipped == 2 && stat_at(top, "suid").st_mode == (S_IFREG | 04755));
}

TEST(a_full_directory_is_not_replaced_and_an_empty_one_is)
{
	auto_fd top = scratch(), full = dir_at(top, "full"), empty = dir_at(top, "empty");
	auto_buf a = { 0 }, b = { 0 };
	struct den_err err;

	(void)empty;
	file_at(full, "f", "x", 1, 0644);
	put(&a, TAR_FILE, "empty", NULL, "now a file", 0644);
	tar_put_end(&a);
	CHECK(unpack(top, &a, &host, &err) == 0 && holds(top, "empty", "now a file"));
	put(&b, TAR_SYMLINK, "full", "/etc", NULL, 0644);
	tar_put_end(&b);
	CHECK(unpack(top, &b, &host, &err) < 0 && err.code == DEN_CONFLICT);
	CHECK(holds(top, "full/f", "x"));
}

TEST(directories_get_their_modes_and_times_last)
{
	auto_fd top = scratch();
	struct tar_entry e = { .type = TAR_DIR, .name = "d", .mode = 0500, .mtime_sec = 777,
		.uid = geteuid(), .gid = getegid() };
	auto_buf b = { 0 };
	struct den_err err;

	CHECK(tar_put_entry(&b, &e, &err) == 0);
	put(&b, TAR_FILE, "d/late", NULL, "x", 0644);
	put(&b, TAR_FILE, "unnamed/parents/f", NULL, "x", 0644);
	tar_put_end(&b);
	CHECK(unpack(top, &b, &host, &err) == 0);
	CHECK(stat_at(top, "d").st_mode == (S_IFDIR | 0500) && stat_at(top, "d").st_mtim.tv_sec == 777);
	CHECK(stat_at(top, "unnamed/parents").st_mode == (S_IFDIR | 0755));
	/* on the host, what was there before keeps its own */
	CHECK(fchmodat(top, "d", 0711, 0) == 0);
	CHECK(unpack(top, &b, &host, &err) == 0);
	CHECK(stat_at(top, "d").st_mode == (S_IFDIR | 0711));
	CHECK(unpack(top, &b, &inside, &err) == 0);
	CHECK(stat_at(top, "d").st_mode == (S_IFDIR | 0500));
}

TEST(a_directory_replaced_by_a_link_keeps_its_settings_to_itself)
{
	struct cage c = cage_make();
	auto_buf b = { 0 };
	struct den_err err;

	put(&b, TAR_DIR, "d", NULL, NULL, 0777);
	put(&b, TAR_SYMLINK, "d", "../out", NULL, 0777);
	tar_put_end(&b);
	CHECK(unpack(c.in, &b, &inside, &err) == 0);
	CHECK((stat_at(c.out, ".").st_mode & 07777) == 0755);
	cage_check(&c);
}

TEST(the_target_itself_stays_as_it_is)
{
	auto_fd top = scratch();
	auto_buf b = { 0 }, f = { 0 };
	struct den_err err;
	mode_t before = stat_at(top, ".").st_mode;

	put(&b, TAR_DIR, ".", NULL, NULL, 0);
	put(&b, TAR_FILE, "./x", NULL, "x", 0644);
	tar_put_end(&b);
	CHECK(unpack(top, &b, &inside, &err) == 0);
	CHECK(holds(top, "x", "x") && stat_at(top, ".").st_mode == before);
	put(&f, TAR_FILE, "./.", NULL, "x", 0644);
	tar_put_end(&f);
	CHECK(unpack(top, &f, &inside, &err) < 0 && err.code == DEN_INVALID);
}

/* A directory so many levels deep, named by one pax header. */
static void deep_put(struct buf *b, int levels)
{
	auto_buf name = { 0 }, record = { 0 };

	for (int i = 1; i < levels; i++)
		buf_addstr(&name, "d/");
	buf_addstr(&name, "d");
	buf_addf(&record, "%zu path=%s\n", name.len + 7 + (name.len > 9987 ? 5 : 4), buf_str(&name));
	put_meta(b, 'x', record.p, record.len);
	RAW(b, "short", '5', "", "00000000000");
	tar_put_end(b);
}

TEST(four_thousand_levels_work_and_five_thousand_are_refused)
{
	auto_fd top = scratch(), in = dir_at(top, "in"), out = dir_at(top, "back");
	struct tree_pack_opt opt = { 0 };
	auto_buf ok = { 0 }, bad = { 0 }, again = { 0 };
	struct den_err err;
	struct tree_stats stats;

	deep_put(&bad, 5000);
	CHECK(unpack(in, &bad, &host, &err) < 0 && err.code == DEN_LIMIT);
	deep_put(&ok, 4000);
	CHECK(unpack(in, &ok, &host, &err) == 0);
	CHECK(tree_pack(top, "in", &opt, to_buf, &again, &stats, &err) == 0 && stats.entries == 4000);
	CHECK(unpack(out, &again, &host, &err) == 0);
	CHECK(tree_remove_at(top, "in", &err) == 0 && missing(top, "in"));
	CHECK(tree_remove_at(top, "back", &err) == 0 && missing(top, "back"));
}

TEST(a_tree_too_deep_for_an_archive_is_an_error_not_a_crash)
{
	auto_fd top = scratch();
	struct tree_pack_opt opt = { 0 };
	auto_buf b = { 0 };
	struct den_err err;
	int at = dir_at(top, "deep");

	for (int i = 0; i < 4200; i++) {
		int next = dir_at(at, "d");

		close(at);
		at = next;
	}
	close(at);
	CHECK(tree_pack(top, "deep", &opt, to_buf, &b, NULL, &err) < 0 && err.code == DEN_LIMIT);
	CHECK(tree_remove_at(top, "deep", &err) == 0);
}

TEST(malformed_archives_are_refused_with_a_reason)
{
	static const struct {
		const char *what, *size;
		size_t len;
		const char *says;
	} sizes[] = {
		{ "negative", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 12, "size" },
		{ "2^80", "\x80\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00", 12, "size" },
		{ "2^63", "\x80\x00\x00\x00\x80\x00\x00\x00\x00\x00\x00\x00", 12, "size" },
		{ "INT64_MAX", "\x80\x00\x00\x00\x7f\xff\xff\xff\xff\xff\xff\xff", 12, "size" },
		{ "no number", "12x45678901", 12, "size" },
		{ "minus", "-0000000001", 12, "size" },
	};
	auto_buf list = { 0 };
	struct den_err err;

	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		auto_buf b = { 0 };

		put_raw(&b, "f", '0', "", sizes[i].size, sizes[i].len);
		tar_put_end(&b);
		CHECK(parse(&b, &list, &err) < 0 && err.code == DEN_INVALID);
		CHECK(strstr(err.msg, sizes[i].says));
	}
	CHECK(list.len == 0);
}

TEST(a_wrong_checksum_is_refused)
{
	auto_buf b = { 0 }, list = { 0 };
	struct den_err err;

	put(&b, TAR_FILE, "f", NULL, "x", 0644);
	tar_put_end(&b);
	for (size_t i = 0; i < 512; i += 37) {
		b.p[i] ^= 0x11;
		CHECK(parse(&b, &list, &err) < 0 && err.code == DEN_INVALID);
		b.p[i] ^= 0x11;
	}
	CHECK(list.len == 0 && parse(&b, &list, &err) == 0 && list.len > 0);
}

TEST(an_archive_cut_anywhere_is_not_complete)
{
	auto_buf b = { 0 };
	struct den_err err;

	put(&b, TAR_FILE, "dir/file", NULL, "content", 0644);
	tar_put_end(&b);
	for (size_t n = 0; n < b.len - 512; n += 61) { /* one block of zeros is enough */
		struct buf cut = { b.p, n, 0 };
		auto_fd top = scratch();

		CHECK(unpack(top, &cut, &host, &err) < 0 && err.code == DEN_INVALID);
		/* a file is whole or not there */
		CHECK(n < 512 + 7 ? missing(top, "dir/file") : holds(top, "dir/file", "content"));
		unlinkat(top, "dir/file", 0);
	}
}

TEST(extended_headers_are_bounded_and_checked)
{
	static const char *const bad[] = { "9 path=\n", "99 path=x\n", "0 path=x\n", "path=x\n", "11 path=xx",
		"9 pathxx\n", "6 =xx\n", "-9 path=x\n", "18446744073709551626 path=x\n", "x", " ",
		"12 size=-20\n", "29 size=99999999999999999999\n", "18 uid=4294967295\n", "11 mtime=x\n",
		"21 GNU.sparse.map=0,\n" };
	auto_buf list = { 0 };
	struct den_err err;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		auto_buf b = { 0 };

		put_meta(&b, 'x', bad[i], strlen(bad[i]));
		RAW(&b, "f", '0', "", "00000000000");
		tar_put_end(&b);
		CHECK(parse(&b, &list, &err) < 0);
		CHECK(err.code == DEN_INVALID || err.code == DEN_UNSUPPORTED);
	}
	for (const char *t = "xgLK"; *t; t++) { /* four gigabytes of header: refused before they come */
		auto_buf b = { 0 };

		RAW(&b, "meta", *t, "", "40000000000");
		CHECK(parse(&b, &list, &err) < 0 && err.code == DEN_LIMIT);
	}
	CHECK(list.len == 0);
}

TEST(sparse_files_and_unknown_entries_are_refused)
{
	auto_fd top = scratch(), f = -1, in = -1;
	auto_buf list = { 0 }, unknown = { 0 };
	struct den_err err;
	char file[300];

	f = openat(top, "sparse", O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
	CHECK(ftruncate(f, 10 << 20) == 0 && pwrite(f, "x", 1, 5 << 20) == 1);
	for (int i = 0; i < 2; i++) {
		auto_buf b = { 0 };

		snprintf(file, sizeof(file), "%s/s.tar", test_dir());
		RUN("tar", "-C", test_dir(), "-S", i ? "--format=gnu" : "--format=pax", "-cf", file, "sparse");
		fd_close(&in);
		in = open(file, O_RDONLY | O_CLOEXEC);
		CHECK(fd_read_all(in, 1 << 20, &b.p, &b.len, &err) == 0);
		CHECK(parse(&b, &list, &err) < 0 && err.code == DEN_UNSUPPORTED);
		CHECK(strstr(err.msg, "sparse"));
	}
	RAW(&unknown, "f", 'M', "", "00000000000");
	CHECK(parse(&unknown, &list, &err) < 0 && err.code == DEN_UNSUPPORTED);
	CHECK(list.len == 0);
}

TEST(what_extended_headers_say_counts)
{
	auto_buf b = { 0 }, list = { 0 };
	struct den_err err;

	put_meta(&b, 'g', "9 uid=42\n16 comment=xyz1\n", 25);
	put_meta(&b, 'x', "10 size=3\n17 path=real/name\n", 28);
	RAW(&b, "fake", '0', "", "77777777777");
	buf_add(&b, "abc", 3);
	tar_put_pad(&b, 3);
	put_meta(&b, 'x', "8 uid=7\n", 8);
	RAW(&b, "second", '0', "", "00000000000");
	put_meta(&b, 'L', "gnu-name\0\0", 10);
	RAW(&b, "x", '0', "", "\x80\0\0\0\0\0\0\0\0\0\0\0");
	tar_put_end(&b);
	CHECK(parse(&b, &list, &err) < 0); /* "17 path=real/name" is one too many */
	b.len = list.len = 0;
	put_meta(&b, 'g', "9 uid=42\n16 comment=xyz1\n", 25);
	put_meta(&b, 'x', "10 size=3\n18 path=real/name\n", 28);
	RAW(&b, "fake", '0', "", "77777777777");
	buf_add(&b, "abc", 3);
	tar_put_pad(&b, 3);
	put_meta(&b, 'x', "8 uid=7\n", 8);
	RAW(&b, "second", '0', "", "00000000000");
	put_meta(&b, 'L', "gnu-name\0\0", 10);
	RAW(&b, "x", '0', "", "\x80\0\0\0\0\0\0\0\0\0\0\0");
	tar_put_end(&b);
	CHECK(parse(&b, &list, &err) == 0);
	CHECK(!strcmp(buf_str(&list), "real/name:3:42;second:0:7;gnu-name:0:42;"));
}

TEST(limits_on_an_archive_hold)
{
	struct tree_unpack_opt opt = { .max_bytes = 10, .max_entries = 2 };
	auto_fd top = scratch();
	auto_buf a = { 0 }, b = { 0 };
	struct den_err err;

	put(&a, TAR_FILE, "a", NULL, "123456", 0644);
	put(&a, TAR_FILE, "b", NULL, "12345", 0644);
	tar_put_end(&a);
	CHECK(unpack(top, &a, &opt, &err) < 0 && err.code == DEN_LIMIT && missing(top, "b"));
	put(&b, TAR_DIR, "x", NULL, NULL, 0755);
	put(&b, TAR_DIR, "y", NULL, NULL, 0755);
	put(&b, TAR_DIR, "z", NULL, NULL, 0755);
	tar_put_end(&b);
	CHECK(unpack(top, &b, &opt, &err) < 0 && err.code == DEN_LIMIT && missing(top, "z"));
}

TEST(the_top_name_can_be_changed_on_the_way)
{
	struct tree_unpack_opt opt = host;
	auto_fd top = scratch();
	auto_buf b = { 0 };
	struct den_err err;

	opt.top = "mine";
	put(&b, TAR_DIR, "theirs", NULL, NULL, 0755);
	put(&b, TAR_FILE, "./theirs/f", NULL, "x", 0644);
	put(&b, TAR_HARDLINK, "theirs/h", "theirs/f", NULL, 0644);
	tar_put_end(&b);
	CHECK(unpack(top, &b, &opt, &err) == 0);
	CHECK(holds(top, "mine/f", "x") && holds(top, "mine/h", "x") && missing(top, "theirs"));
}

TEST(messages_show_no_escape_sequences)
{
	auto_fd top = scratch();
	auto_buf b = { 0 };
	struct den_err err;

	put(&b, TAR_FILE, "/\x1b[2Jevil\n\xff", NULL, "", 0644);
	tar_put_end(&b);
	CHECK(unpack(top, &b, &host, &err) < 0);
	for (const char *p = err.msg; *p; p++)
		CHECK(*p >= ' ' && *p <= '~');
	CHECK(strstr(err.msg, "/?[2Jevil??"));
}

/* ---- the unprivileged side ------------------------------------------------------------------- */

TEST(an_ordinary_user_unpacks_closed_directories_and_removes_them)
{
	auto_fd top = scratch(), in = dir_at(top, "in");
	auto_buf b = { 0 };
	struct den_err err;

	if (geteuid() == 0) {
		CHECK(fchown(in, 65534, 65534) == 0);
		CHECK(setregid(65534, 65534) == 0 && setreuid(65534, 65534) == 0);
	}
	put(&b, TAR_DIR, "d", NULL, NULL, 0);
	put(&b, TAR_DIR, "d/e", NULL, NULL, 0500);
	put(&b, TAR_FILE, "d/e/f", NULL, "x", 0);
	tar_put_end(&b);
	CHECK(unpack(in, &b, &host, &err) == 0);
	CHECK(stat_at(in, "d").st_mode == S_IFDIR);
	CHECK(tree_remove_at(in, "d", &err) == 0 && missing(in, "d"));
}

/* ---- old kernels, and mounts ----------------------------------------------------------------- */

static void forbid_openat2(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat2, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { ARRAY_SIZE(code), code };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_SECCOMP, 2, &prog) < 0)
		SKIP("no seccomp here");
	CHECK(syscall(SYS_openat2, -1, "", NULL, 0) < 0 && errno == ENOSYS);
}

TEST(without_openat2_nothing_leaves_either)
{
	forbid_openat2();
	test_names_that_leave_are_refused();
	test_nothing_is_written_through_a_link_of_the_archive();
	unlinkat(scratch(), "in/sub", AT_REMOVEDIR);
	test_hard_links_to_the_outside_are_refused();
}

TEST(removing_a_tree_does_not_empty_what_is_mounted_in_it)
{
	auto_fd top = -1, tree = -1, keep = -1, m = -1;
	char from[300], to[300];
	struct den_err err;

	/* first, since an open directory stays in the namespace where it was opened */
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		SKIP("may not mount here");
	top = scratch();
	tree = dir_at(top, "tree");
	keep = dir_at(top, "keep");
	m = dir_at(tree, "mnt");
	file_at(keep, "f", "kept", 4, 0644);
	snprintf(from, sizeof(from), "%s/keep", test_dir());
	snprintf(to, sizeof(to), "%s/tree/mnt", test_dir());
	CHECK(mount(from, to, NULL, MS_BIND, NULL) == 0);
	CHECK(tree_remove_at(top, "tree", &err) < 0 && err.code == DEN_CONFLICT);
	CHECK(strstr(err.msg, "mount point") && holds(keep, "f", "kept"));
	CHECK(tree_remove_at(top, "tree/mnt", &err) < 0 && err.code == DEN_CONFLICT);
	CHECK(strstr(err.msg, "mount point") && holds(keep, "f", "kept"));
	CHECK(umount(to) == 0);
	CHECK(tree_remove_at(AT_FDCWD, strcat(from, "/../tree/"), &err) == 0 && missing(top, "tree"));
	CHECK(holds(keep, "f", "kept"));
}

TEST(names_planted_by_the_box_do_not_stop_a_removal)
{
	auto_fd top = scratch(), tree = dir_at(top, "tree");
	struct den_err err;
	int at = dup(tree);

	for (int i = 0; i < 20; i++) { /* where deep directories would be moved to */
		char name[32];

		snprintf(name, sizeof(name), ".deep.%d", i);
		if (i % 2)
			file_at(tree, name, "", 0, 0644);
		else
			close(dir_at(tree, name));
	}
	for (int i = 0; i < 300; i++) {
		int next = dir_at(at, "d");

		close(at);
		at = next;
	}
	close(at);
	CHECK(tree_remove_at(top, "tree", &err) == 0 && missing(top, "tree"));
}

TEST(without_openat2_deep_trees_come_and_go)
{
	forbid_openat2();
	test_names_planted_by_the_box_do_not_stop_a_removal();
	test_directories_get_their_modes_and_times_last();
}
