/*
 * The template "host": the copier against a hostile stand-in for the host's tree, and the real
 * thing built from this host, as root and as an ordinary user.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <grp.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <time.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "clock.h"
#include "fd.h"
#include "mem.h"
#include "strv.h"
#include "template.h"
#include "template_make.h"
#include "test.h"

#define HASH "$6$salt$notforyou"

static int dir_open(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	CHECK(fd >= 0);
	return fd;
}

static void put(int root, const char *path, mode_t mode, const char *text)
{
	char dir[PATH_MAX];
	int fd;

	for (const char *p = path; (p = strchr(p, '/')); p++) {
		snprintf(dir, sizeof(dir), "%.*s", (int)(p - path), path);
		CHECK(mkdirat(root, dir, 0755) == 0 || errno == EEXIST);
		CHECK(fchmodat(root, dir, 0755, 0) == 0);
	}
	fd = openat(root, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	CHECK(fchmod(fd, mode) == 0);
	close(fd);
}

static bool there(int root, const char *path)
{
	return faccessat(root, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static char *slurp(int root, const char *path)
{
	int fd = openat(root, path, O_RDONLY | O_CLOEXEC);
	struct den_err err;
	char *text = NULL;

	CHECK(fd >= 0 && fd_read_all(fd, 8 << 20, &text, NULL, &err) == 0);
	close(fd);
	return text;
}

static void subdir(const char *name, char out[PATH_MAX])
{
	snprintf(out, PATH_MAX, "%s/%s", test_dir(), name);
	CHECK(mkdir(out, 0755) == 0);
}

/* A stand-in for "/", and a tree to build into. */
static struct make m;
static int src, dst;

static void stand_in(bool idmap, bool id_range)
{
	char path[PATH_MAX];

	subdir("src", path);
	src = dir_open(path);
	subdir("dst", path);
	dst = dir_open(path);
	CHECK(mkdirat(src, "usr", 0755) == 0);
	make_init(&m, src, dst, idmap, id_range);
	m.src_owner = geteuid();
}

static const char *grep_for; /* what no file of the tree may hold */
static int grep_hits;

static int grep_one(const char *path, const struct stat *st, int type, struct FTW *f)
{
	auto_free char *text = NULL;
	size_t n;
	auto_fd fd = -1;

	if (type != FTW_F || !S_ISREG(st->st_mode))
		return 0;
	fd = open(path, O_RDONLY | O_NOFOLLOW);
	CHECK(fd >= 0 && fd_read_all(fd, 64 << 20, &text, &n, NULL) == 0);
	if (memmem(text, n, grep_for, strlen(grep_for))) {
		fprintf(stderr, "  found in %s\n", path);
		grep_hits++;
	}
	return 0;
}

static int grep_tree(const char *path, const char *text)
{
	grep_for = text;
	grep_hits = 0;
	CHECK(nftw(path, grep_one, 32, FTW_PHYS) == 0);
	return grep_hits;
}

TEST(template_copies_nothing_a_hostile_etc_offers)
{
	char big[(1 << 20) + 2], dstpath[PATH_MAX];
	struct den_err err;

	stand_in(false, false);
	snprintf(dstpath, sizeof(dstpath), "%s/dst", test_dir());
	put(src, "etc/shadow", 0644, HASH); /* careless: world-readable */
	put(src, "etc/profile", 0644, "good\n");
	put(src, "etc/profile.d/good.sh", 0644, "good\n");
	CHECK(symlinkat("/etc/shadow", src, "etc/profile.d/link.sh") == 0);
	CHECK(symlinkat("../shadow", src, "etc/inputrc") == 0);
	put(src, "etc/profile.d/unreadable.sh", 0640, HASH);
	put(src, "etc/profile.d/proxy.sh", 0644, "export http_proxy=http://me:" HASH "@proxy:1\n");
	put(src, "etc/profile.d/dir.sh/private/x", 0644, HASH);
	put(src, "etc/security/opasswd", 0644, HASH);
	CHECK(mkfifoat(src, "etc/profile.d/fifo.sh", 0666) == 0);
	memset(big, 'x', sizeof(big) - 1);
	big[sizeof(big) - 1] = '\0';
	put(src, "etc/profile.d/huge.sh", 0644, big);
	put(src, "etc/apt/sources.list.d/a.list", 0644, "deb https://me:" HASH "@host/ x main\n");
	put(src, "etc/apt/sources.list.d/b.list", 0644, "deb https://" HASH "@host/ x main\n");
	put(src, "etc/apt/sources.list.d/c.list", 0644, "deb https://host/me@x/ x main\n");
	put(src, "etc/apt/auth.conf", 0644, HASH);
	put(src, "etc/apt/auth.conf.d/x.conf", 0644, HASH);
	put(src, "etc/apt/keyrings/repo.key", 0644, "public\n");
	put(src, "etc/ssl/private/server.key", 0644, HASH);
	put(src, "etc/ssl/certs/oops.pem", 0644, "-----BEGIN PRIVATE KEY-----\n" HASH);
	put(src, "etc/ssl/certs/oops.key", 0644, HASH);
	put(src, "etc/ssl/certs/good.pem", 0644, "-----BEGIN CERTIFICATE-----\n");
	put(src, "etc/maven/settings.xml", 0644, HASH);
	put(src, "etc/maven/m2.conf", 0644, "good\n");
	put(src, "etc/gitconfig", 0644, HASH);
	put(src, "etc/machine-id", 0644, HASH);
	put(src, "etc/ssh/ssh_host_rsa_key", 0644, HASH);
	put(src, "etc/default/useradd", 0600, HASH);
	put(src, "var/lib/dpkg/status", 0644, "Package: x\n");
	put(src, "closed/x", 0644, HASH);
	CHECK(symlinkat("../closed", src, "etc/skel") == 0); /* a link on the way, not at the end */
	CHECK(symlinkat("../../closed", src, "etc/ssl/openssl.cnf") == 0);
	put(src, "etc/pam.d/su", 0644, "good\n");
	CHECK(fchmodat(src, "etc/pam.d", 0700, 0) == 0);
	put(src, "etc/localtime", 04777, "good\n");

	CHECK(accounts_make(&m, &err) == 0 && table_make(&m, &err) == 0);
	CHECK(grep_tree(dstpath, HASH) == 0);
	/* Links come as links, to where the box has nothing, or something of its own. */
	CHECK(there(dst, "etc/profile.d/link.sh") && there(dst, "etc/inputrc"));
	CHECK(!there(dst, "etc/profile.d/fifo.sh") && !there(dst, "etc/profile.d/huge.sh"));
	CHECK(!there(dst, "home/user/x") && !there(dst, "etc/pam.d/su"));
	CHECK(!there(dst, "etc/profile.d/dir.sh/private") && !there(dst, "etc/machine-id"));
	/* And what is good came, so that the checks above mean something. */
	CHECK(there(dst, "etc/profile") && there(dst, "etc/profile.d/good.sh"));
	CHECK(there(dst, "etc/apt/sources.list.d/c.list") &&
		there(dst, "etc/apt/keyrings/repo.key"));
	CHECK(there(dst, "etc/ssl/certs/good.pem") && there(dst, "etc/maven/m2.conf"));
	CHECK(there(dst, "var/lib/dpkg/status"));
	CHECK(m.credentials == 4 && strstr(buf_str(&m.secret_names), "etc/profile.d/proxy.sh"));
	struct stat st;
	CHECK(fstatat(dst, "etc/localtime", &st, 0) == 0 && (st.st_mode & 07777) == 0755);
	make_free(&m);
}

TEST(template_copies_no_file_that_is_not_roots)
{
	struct den_err err;

	if (geteuid() != 0)
		SKIP("needs root to make files of others");
	stand_in(true, false);
	put(src, "etc/profile", 0644, "x\n");
	CHECK(fchownat(src, "etc/profile", 1234, 0, 0) == 0);
	put(src, "etc/profile.d/x.sh", 0644, "x\n");
	CHECK(fchownat(src, "etc/profile.d", 1234, 0, 0) == 0);
	put(src, "etc/shells", 0644, "x\n");
	CHECK(accounts_make(&m, &err) == 0 && table_make(&m, &err) == 0);
	CHECK(!there(dst, "etc/profile") && !there(dst, "etc/profile.d") &&
		there(dst, "etc/shells"));
	make_free(&m);
}

TEST(template_knows_a_secret_when_it_sees_one)
{
	static const char *const bad[] = { "http://u:p@h", "x\nhttps://token@h/", "://a@",
		"a://b/ c://d:e@f", "-----BEGIN OPENSSH PRIVATE KEY-----",
		"-----BEGIN PGP PRIVATE KEY BLOCK-----", "socks5://u:p%20@h" };
	static const char *const good[] = { "", "://", "http://h/u@x", "mail me@h", "http://h u@x",
		"http://@h", "http://\"u@h", "PRIVATE KEY", "x://" };

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		CHECK(copy_holds_secret(bad[i], strlen(bad[i])));
	for (size_t i = 0; i < ARRAY_SIZE(good); i++)
		CHECK(!copy_holds_secret(good[i], strlen(good[i])));
}

TEST(template_keeps_system_accounts_and_no_person_and_no_password)
{
	auto_free char *passwd = NULL, *group = NULL, *shadow = NULL, *gshadow = NULL;
	char *save, *line;
	struct den_err err;

	stand_in(false, true);
	put(src, "etc/passwd", 0644,
		"root:" HASH ":0:0:the boss:/root:/bin/zsh\n"
		"toor:x:0:0::/root:/bin/sh\n"
		"_apt:x:42:65534::/nonexistent:/usr/sbin/nologin\n"
		"user:x:77:77::/x:/bin/sh\n"
		"alice:x:1000:1000:Alice:/home/alice:/bin/bash\n"
		"bob:x:1001:1001:Bob:/home/bob:/bin/bash\n"
		"_apt:x:43:65534::/twice:/bin/sh\n"
		"ev/il:x:50:50::/:/bin/sh\n"
		"short:x:51\n"
		"long:x:52:52::/:/bin/sh:more\n"
		"num:x:5x:5::/:/bin/sh\n"
		"+::::::\n"
		"esc:x:53:53:\033[31m:/:/bin/sh\n"
		"nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin"); /* no newline */
	put(src, "etc/group", 0644,
		"root:x:0:\nshadow:x:42:alice\nadm:" HASH ":4:alice,_apt,bob\nalice:x:1000:\n"
		"docker:x:27:alice\nuser:x:88:\n");
	CHECK(accounts_make(&m, &err) == 0);
	passwd = slurp(dst, "etc/passwd");
	group = slurp(dst, "etc/group");
	shadow = slurp(dst, "etc/shadow");
	gshadow = slurp(dst, "etc/gshadow");
	CHECK(strcmp(passwd, "root:x:0:0:root:/root:/bin/sh\n"
			     "_apt:x:42:65534::/nonexistent:/usr/sbin/nologin\n"
			     "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
			     "user:x:1000:1000::/home/user:/bin/sh\n") == 0);
	CHECK(strcmp(group, "root:x:0:\nshadow:x:42:\nadm:x:4:_apt\ndocker:x:27:\n"
			    "sudo:x:999:user\nuser:x:1000:\n") == 0);
	CHECK(strstr(gshadow, "sudo:*::user\n") && !strstr(gshadow, "$6$"));
	for (line = strtok_r(shadow, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
		CHECK(strstr(line, ":*:::::::"));
	CHECK(strstr(buf_str(&m.owners), "0 42 640 etc/shadow\n"));
	make_free(&m);
}

TEST(template_believes_no_account_file_that_is_a_link)
{
	auto_free char *passwd = NULL;
	struct den_err err;

	stand_in(false, false);
	put(src, "secret", 0644, "daemon:x:1:1::/:/bin/sh\n");
	CHECK(mkdirat(src, "etc", 0755) == 0 && symlinkat("../secret", src, "etc/passwd") == 0);
	CHECK(accounts_make(&m, &err) == 0);
	passwd = slurp(dst, "etc/passwd");
	CHECK(!strstr(passwd, "daemon") && strstr(passwd, "user:x:1000:"));
	make_free(&m);
}

static bool is_hidden(int dirfd, const char *path)
{
	struct stat st;

	return fstatat(dirfd, path, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	       ((S_ISCHR(st.st_mode) && st.st_rdev == 0) ||
		       (S_ISREG(st.st_mode) && st.st_size == 0));
}

static void usr_stand_in(void)
{
	put(src, "usr/bin/ls", 0755, "ls\n");
	put(src, "usr/bin/su", 04755, "su\n");
	put(src, "usr/bin/sudo", 04111, "sudo\n");
	put(src, "usr/lib/pw", 0600, HASH);
	put(src, "usr/lib/group", 0640, HASH);
	put(src, "usr/lib/deep/er/closed/x", 0644, HASH);
	CHECK(fchmodat(src, "usr/lib/deep/er/closed", 0750, 0) == 0);
	CHECK(mkfifoat(src, "usr/lib/fifo", 0666) == 0);
	CHECK(symlinkat("/etc/shadow", src, "usr/lib/link") == 0);
	put(src, "usr/local/etc/npmrc", 0644, HASH);
	put(src, "usr/local/bin/x", 0755, "x\n");
	put(src, "usr/sbin/invoke-rc.d", 0755, "x\n");
	put(src, "usr/sbin/policy-rc.d", 0755, "exit 0\n");
	CHECK(fchmodat(src, "usr/local/bin", 02775, 0) == 0);
}

TEST(template_hides_what_others_on_the_host_may_not_read)
{
	static const char *const hidden[] = { "usr/lib/pw", "usr/lib/group", "usr/lib/fifo",
		"usr/lib/deep/er/closed", "usr/local/etc" };
	struct den_err err;
	auto_free char *policy = NULL;
	bool local;

	if (geteuid() != 0)
		SKIP("needs root for id-mapped mounts");
	stand_in(true, false);
	usr_stand_in();
	if (skel_make(&m, "usr", dst, "usr", &local, &err) < 0 && err.sys == EPERM)
		SKIP("mounts are forbidden here");
	for (size_t i = 0; i < ARRAY_SIZE(hidden); i++)
		CHECK(is_hidden(dst, hidden[i]));
	CHECK(m.hidden == ARRAY_SIZE(hidden) && !local);
	/* Nothing else is in the layer. */
	CHECK(!there(dst, "usr/bin") && !there(dst, "usr/local/bin") &&
		!there(dst, "usr/lib/link"));
	policy = slurp(dst, "usr/sbin/policy-rc.d");
	CHECK(strstr(policy, "exit 101"));
	make_free(&m);
}

TEST(template_layer_without_idmap_has_every_directory_and_the_setuid_programs)
{
	const struct timespec then[2] = { { 1000000000, 1 }, { 1000000000, 1 } };
	struct den_err err;
	struct stat a, b;
	bool local;

	stand_in(false, true);
	usr_stand_in();
	CHECK(utimensat(src, "usr/lib/deep", then, 0) == 0);
	CHECK(fchownat(src, "usr/bin/su", (uid_t)-1, getegid(), 0) == 0);
	CHECK(fchmodat(src, "usr/bin/su", 04755, 0) == 0);
	CHECK(skel_make(&m, "usr", dst, "usr", &local, &err) == 0);
	CHECK(fstatat(src, "usr/local/bin", &a, 0) == 0 &&
		fstatat(dst, "usr/local/bin", &b, 0) == 0);
	CHECK(a.st_mode == b.st_mode && a.st_mtim.tv_sec == b.st_mtim.tv_sec);
	CHECK(fstatat(src, "usr/lib/deep", &a, 0) == 0 && fstatat(dst, "usr/lib/deep", &b, 0) == 0);
	CHECK(a.st_mtim.tv_nsec == b.st_mtim.tv_nsec);
	CHECK(fstatat(dst, "usr/bin/su", &b, 0) == 0 && (b.st_mode & 07777) == 04755);
	CHECK(!there(dst, "usr/bin/ls") && is_hidden(dst, "usr/lib/pw"));
	make_free(&m);
}

/* ---- The real thing, from this host. */

static void state_open(char path[PATH_MAX], int *fd)
{
	subdir("state", path);
	*fd = dir_open(path);
}

static bool nobody_uses(const char *name, const char *version, void *user)
{
	return user && strcmp(version, user) == 0;
}

/* Files of the tree that are made, not copied: the host's of the same name say nothing of them. */
static bool is_generated(const char *rel)
{
	static const char *const made[] = { "etc/passwd", "etc/group", "etc/shadow", "etc/gshadow",
		"etc/sudoers", "etc/sudoers.d/den", "etc/nsswitch.conf", "etc/environment",
		"etc/fstab", "etc/subuid", "etc/subgid", "etc/dpkg/dpkg.cfg.d/den",
		"etc/apt/apt.conf.d/99den", "etc/apt/apt.conf.d/98den", "etc/apt/den-own" };

	for (size_t i = 0; i < ARRAY_SIZE(made); i++)
		if (strcmp(made[i], rel) == 0)
			return true;
	return false;
}

static size_t root_len;
static unsigned compared;

/* Whatever the copier did, the result must obey its rules, looked at from the outside. */
static int check_one(const char *path, const struct stat *st, int type, struct FTW *f)
{
	static const char *const bad[] = { "shadow-", "gshadow-", "passwd-", "opasswd", "auth.conf",
		"machine-id", "hostname", "resolv.conf", "hosts" };
	const char *rel = path + root_len, *name = path + f->base;
	struct stat host;

	CHECK(type == FTW_SL || type == FTW_D || (type == FTW_F && S_ISREG(st->st_mode)));
	if (type != FTW_F)
		return 0;
	CHECK(!(st->st_mode & 06000) && st->st_size <= 64 << 20);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		CHECK(strcmp(bad[i], name) != 0);
	if (!strncmp(rel, "/home/", 6) || !strncmp(rel, "/root/", 6) || is_generated(rel + 1))
		return 0;
	CHECK(lstat(rel, &host) == 0 && S_ISREG(host.st_mode));
	CHECK(host.st_uid == 0 && (host.st_mode & 0004) && host.st_size == st->st_size);
	compared++;
	return 0;
}

static void check_root(const char *root, bool idmap)
{
	static const char *const absent[] = { "etc/ssh", "etc/gitconfig", "etc/apt/auth.conf.d",
		"etc/ssl/private/ssl-cert-snakeoil.key", "etc/krb5.keytab" };
	auto_free char *shadow = NULL;
	int fd = dir_open(root);
	struct stat st;

	root_len = strlen(root);
	CHECK(nftw(root, check_one, 32, FTW_PHYS) == 0 && compared > 20);
	shadow = slurp(fd, "etc/shadow");
	CHECK(!strchr(shadow, '$') && strstr(shadow, "\nuser:*:"));
	for (size_t i = 0; i < ARRAY_SIZE(absent); i++)
		CHECK(!there(fd, absent[i]));
	CHECK(fstatat(fd, "tmp", &st, 0) == 0 && (st.st_mode & 07777) == 01777);
	CHECK(fstatat(fd, "root", &st, 0) == 0 && (st.st_mode & 07777) == 0700);
	CHECK(fstatat(fd, "etc/sudoers.d/den", &st, 0) == 0 && (st.st_mode & 07777) == 0440);
	CHECK(fstatat(fd, "home/user", &st, 0) == 0 && st.st_uid == (idmap ? BOX_UID : geteuid()));
	CHECK(there(fd, "usr") && there(fd, "proc") && there(fd, "etc/ld.so.cache"));
	close(fd);
}

/* A second open builds nothing, and takes no time worth speaking of. */
static void check_hot(int fd, const char *path, bool idmap, const char *version)
{
	int64_t best = INT64_MAX;

	for (int i = 0; i < 50; i++) {
		int64_t t = clock_mono_ns();
		struct template again;
		struct den_err err;

		CHECK(template_open(fd, path, "host", idmap, false, NULL, NULL, &again, &err) == 0);
		best = MIN(best, clock_mono_ns() - t);
		CHECK(strcmp(again.version, version) == 0);
		template_free(&again);
	}
	printf("  hot path %lld us\n", (long long)best / 1000);
	CHECK(best < NS_PER_MS / 2);
}

static unsigned entries(int statefd)
{
	int fd = openat(statefd, "templates", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fdopendir(fd);
	unsigned n = 0;

	CHECK(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n - 2;
}

TEST(template_host_is_built_once_and_obeys_the_rules)
{
	bool idmap = geteuid() == 0;
	char path[PATH_MAX], old[PATH_MAX + 64];
	static char kept[] = "00000000000000aa";
	struct template t, same;
	struct den_err err;
	unsigned removed;
	int64_t began;
	int fd;

	state_open(path, &fd);
	CHECK(template_open(fd, path, "nix", idmap, false, NULL, NULL, &t, &err) < 0);
	CHECK(err.code == DEN_NOT_FOUND && strstr(err.msg, "host"));
	began = clock_mono_ns();
	if (template_open(fd, path, "host", idmap, false, NULL, NULL, &t, &err) < 0) {
		if (idmap && err.sys == EPERM)
			SKIP("mounts are forbidden here");
		fprintf(stderr, "  %s\n", err.msg);
		CHECK(!"template_open");
	}
	printf("  built in %lld ms\n%s", (long long)(clock_mono_ns() - began) / NS_PER_MS,
		t.detail);
	CHECK(t.n_trees >= 2 && !strcmp(t.trees[0].at, "/") && !strcmp(t.trees[1].at, "/usr"));
	CHECK(strv_len(t.trees[0].lowers) == 1 && strv_len(t.trees[1].lowers) == 2);
	CHECK(!strcmp(t.trees[1].lowers[1], "/usr"));
	CHECK(idmap ? !t.owners_path : t.owners_path != NULL);
	check_root(t.trees[0].lowers[0], idmap);
	check_hot(fd, path, idmap, t.version);
	CHECK(entries(fd) == 2); /* it and .lock */

	/* Sweeping takes leftovers and unused versions, and leaves the current and the used one. */
	snprintf(old, sizeof(old), "%s/templates/host-%s", path, kept);
	CHECK(mkdir(old, 0700) == 0);
	snprintf(old, sizeof(old), "%s/templates/host-00000000000000bb", path);
	CHECK(mkdir(old, 0700) == 0);
	snprintf(old, sizeof(old), "%s/templates/.tmp-host-00000000000000cc", path);
	CHECK(mkdir(old, 0700) == 0);
	CHECK(template_sweep(fd, nobody_uses, kept, &removed, &err) == 0 && removed == 2);
	CHECK(entries(fd) == 3);
	CHECK(template_open_version(fd, path, "host", t.version, &same, &err) == 0);
	CHECK(template_open_version(fd, path, "host", "../../../../etc", &same, &err) < 0);
	CHECK(template_open_version(fd, path, "host", "00000000000000bb", &same, &err) < 0 &&
		err.code == DEN_NOT_FOUND);
	template_free(&same);
	template_free(&t);
	close(fd);
}

static int run_as(uid_t uid, void (*fn)(const char *), const char *arg)
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		if (uid != geteuid())
			CHECK(setgroups(0, NULL) == 0 && setresgid(uid, uid, uid) == 0 &&
				setresuid(uid, uid, uid) == 0 &&
				prctl(PR_SET_DUMPABLE, 1) == 0); /* else /proc/self is root's */
		fn(arg);
		fflush(NULL);
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void map_self(void)
{
	char map[64];
	struct den_err err;
	uid_t uid = geteuid();
	gid_t gid = getegid();

	if (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0)
		SKIP("user namespaces are forbidden here");
	CHECK(file_write_at(AT_FDCWD, "/proc/self/setgroups", "deny", &err) == 0);
	snprintf(map, sizeof(map), "0 %u 1", uid);
	CHECK(file_write_at(AT_FDCWD, "/proc/self/uid_map", map, &err) == 0);
	snprintf(map, sizeof(map), "0 %u 1", gid);
	CHECK(file_write_at(AT_FDCWD, "/proc/self/gid_map", map, &err) == 0);
}

/* The promises and the limits of a box without id-mapped mounts, as the decision lists them. */
static void check_overlay(const struct template_tree *t, const char *path)
{
	char opt[PATH_MAX * 4], dir[PATH_MAX];
	int fd, mnt;

	map_self();
	fd = dir_open(path);
	CHECK(mkdirat(fd, "up", 0755) == 0 && mkdirat(fd, "work", 0755) == 0 &&
		mkdirat(fd, "mnt", 0755) == 0);
	snprintf(opt, sizeof(opt), "lowerdir=%s:%s,upperdir=%s/up,workdir=%s/work,userxattr",
		t->lowers[0], t->lowers[1], path, path);
	snprintf(dir, sizeof(dir), "%s/mnt", path);
	if (mount("overlay", dir, "overlay", 0, opt) < 0)
		SKIP("no overlay in a user namespace here");
	mnt = dir_open(dir);
	put(mnt, "bin/den-new", 0755, "x\n");
	CHECK(renameat(mnt, "bin/den-new", mnt, "bin/den-new2") == 0);
	CHECK(renameat(mnt, "bin/den-new2", mnt, "bin/env") == 0); /* replaces the host's */
	CHECK(unlinkat(mnt, "bin/id", 0) == 0 && !there(mnt, "bin/id"));
	CHECK(mkdirat(mnt, "share/den-new", 0755) == 0);
	CHECK(openat(mnt, "bin/cat", O_WRONLY) < 0);
	CHECK(linkat(mnt, "bin/cat", mnt, "bin/cat2", 0) < 0);
	CHECK(renameat(mnt, "bin/cat", mnt, "bin/cat2") < 0 && errno == EOVERFLOW);
	CHECK(fchmodat(mnt, "bin/cat", 0700, 0) < 0);
}

static void build_as_user(const char *path)
{
	auto_free char *owners = NULL;
	int64_t began = clock_mono_ns();
	struct template t;
	struct den_err err;
	struct stat st;
	int fd = dir_open(path), skel;

	if (template_open(fd, path, "host", false, true, NULL, NULL, &t, &err) < 0) {
		fprintf(stderr, "  %s\n", err.msg);
		CHECK(!"template_open");
	}
	printf("  built in %lld ms\n%s", (long long)(clock_mono_ns() - began) / NS_PER_MS,
		t.detail);
	check_root(t.trees[0].lowers[0], false);
	skel = dir_open(t.trees[1].lowers[0]);
	CHECK(fstatat(skel, "bin", &st, 0) == 0 && st.st_uid == geteuid());
	if (stat("/usr/bin/su", &st) == 0 && (st.st_mode & 04005) == 04005)
		CHECK(fstatat(skel, "bin/su", &st, 0) == 0 && (st.st_mode & 04000));
	CHECK(fstatat(fd, "templates", &st, 0) == 0 && (st.st_mode & 0077) == 0);
	owners = slurp(AT_FDCWD, t.owners_path);
	CHECK(strstr(owners, "1000 1000 755 home/user\n"));
	check_overlay(&t.trees[1], path);
	template_free(&t);
}

TEST(template_host_without_root_gives_a_usr_that_can_be_changed)
{
	uid_t uid = geteuid() == 0 ? 1000 : geteuid();
	char path[PATH_MAX];
	int fd, status;

	state_open(path, &fd);
	CHECK(uid == geteuid() || chown(path, uid, uid) == 0);
	status = run_as(uid, build_as_user, path);
	if (status)
		_exit(status); /* failed or skipped, with its reason said */
}

static void build_plain(const char *path)
{
	struct template t;
	struct den_err err;
	int fd = dir_open(path);

	if (template_open(fd, path, "host", false, false, NULL, NULL, &t, &err) < 0)
		_exit(1);
	template_free(&t);
	_exit(0);
}

TEST(template_builders_survive_a_kill_and_each_other)
{
	struct timespec nap = { 0, 1000000 };
	struct template t;
	struct den_err err;
	char path[PATH_MAX];
	unsigned removed;
	pid_t a, b;
	int fd, sa, sb;

	state_open(path, &fd);
	a = fork();
	if (a == 0)
		build_plain(path);
	/* When the walk of /usr has begun it is in the middle. */
	for (int i = 0; i < 10000; i++) {
		auto_fd dir = openat(fd, "templates", O_RDONLY | O_DIRECTORY);
		bool begun = false;
		struct dirent *de;
		DIR *d = dir < 0 ? NULL : fdopendir(fd_take(&dir));

		while (d && (de = readdir(d)))
			begun |= !strncmp(de->d_name, ".tmp-", 5);
		if (d)
			closedir(d);
		if (begun)
			break;
		nanosleep(&nap, NULL);
	}
	/* A builder at work is left in peace. */
	CHECK(template_sweep(fd, nobody_uses, NULL, &removed, &err) == 0 && removed == 0);
	CHECK(kill(a, SIGKILL) == 0 && waitpid(a, &sa, 0) == a && WIFSIGNALED(sa));
	CHECK(entries(fd) == 2); /* .lock and the leftover */
	CHECK(template_sweep(fd, nobody_uses, NULL, &removed, &err) == 0 && removed == 1);
	CHECK(entries(fd) == 1);

	a = fork();
	if (a == 0)
		build_plain(path);
	b = fork();
	if (b == 0)
		build_plain(path);
	CHECK(waitpid(a, &sa, 0) == a && waitpid(b, &sb, 0) == b && sa == 0 && sb == 0);
	CHECK(entries(fd) == 2);
	CHECK(template_open(fd, path, "host", false, false, NULL, NULL, &t, &err) == 0);
	CHECK(t.n_trees >= 2);
	template_free(&t);
}
