/* tar.h, walk.h, tree.h: round trips, also with the system's tar. */
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/xattr.h>

#include "buf.h"
#include "fd.h"
#include "kit_tar.h"
#include "mem.h"
#include "tar.h"
#include "test.h"
#include "tree.h"

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
