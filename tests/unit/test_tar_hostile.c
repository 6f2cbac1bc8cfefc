/* tar.h, tree.h: archives that mean harm; old kernels, mounts, and trees that hinder their removal. */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "buf.h"
#include "fd.h"
#include "kit_tar.h"
#include "mem.h"
#include "tar.h"
#include "test.h"
#include "tree.h"
#include "walk.h"

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
