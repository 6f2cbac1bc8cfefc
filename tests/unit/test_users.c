/* users.h: passwd and group of a box, which may be anything. */
#include <fcntl.h>
#include <sys/stat.h>

#include "buf.h"
#include "fd.h"
#include "kit_fs.h"
#include "mem.h"
#include "test.h"
#include "users.h"

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
