/*
 * The copier. Whatever it copies ends up readable for an agent, so each file must pass all of:
 *   1. the allow-list names it or a directory above it        (template_table.c)
 *   2. its name is on no list of names that are never copied  (never[])
 *   3. it is a regular file, a symbolic link or a directory, and the same after opening
 *   4. it belongs to root and everybody on the host may read it
 *   5. it is not larger than the rule says
 *   6. it holds no private key and no URL with a password in it
 * Links are copied as links and never followed, neither at the end nor on the way, so no name below
 * the source can lead to a file that was not meant. A file that fails is left out and counted:
 * a box without it is a smaller harm than a box with a secret in it.
 */
#include "template_make.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "fd.h"
#include "mem.h"

#define DEPTH_MAX 16
#define SECRET_NAMES_MAX 8
#define DIR_FLAGS (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

/* Names that are never copied, wherever they turn up. Most are unreadable for others anyway; this
 * is for the host where somebody was careless. */
/* clang-format off */
static const char *const never[] = {
	"shadow", "shadow-", "gshadow", "gshadow-", "opasswd",	 /* password hashes */
	"passwd-", "group-", "subuid", "subgid", "subuid-", "subgid-", ".pwd.lock",
	"auth.conf", "auth.conf.d", ".netrc", "*.password", "passwords.dat", /* passwords */
	"private", "*.keytab", "*.p12", "*.pfx", "ssh_host_*", "id_rsa*",
	"id_ed25519*", "id_ecdsa*", /* private keys */
	"machine-id", "hostname", "resolv.conf", "hosts",	 /* the host's identity */
	"ld.so.preload", /* the host's watchers, not the box's */
};
/* clang-format on */

static bool name_is_never(const char *name, const struct copy_rule *r)
{
	for (size_t i = 0; i < ARRAY_SIZE(never); i++)
		if (fnmatch(never[i], name, 0) == 0)
			return true;
	if (!(r->flags & COPY_PUBLIC_KEYS) && fnmatch("*.key", name, 0) == 0)
		return true;
	return r->not_ && strcmp(r->not_, name) == 0;
}

/* "://user:pass@" or "://token@": who writes a URL with something before an '@' means a secret. */
static bool url_has_userinfo(const char *p, const char *end)
{
	const char *start = p;

	for (; p < end; p++) {
		if (*p == '@')
			return p > start;
		if ((unsigned char)*p <= ' ' || strchr("/?#\"'<>()[]{}`|,;\\", *p))
			return false;
	}
	return false;
}

bool copy_holds_secret(const char *text, size_t n)
{
	static const char *const marks[] = { "PRIVATE KEY-----", "PRIVATE KEY BLOCK-----" };
	const char *end = text + n, *p = text;

	for (size_t i = 0; i < ARRAY_SIZE(marks); i++)
		if (memmem(text, n, marks[i], strlen(marks[i])))
			return true;
	while ((p = memmem(p, (size_t)(end - p), "://", 3))) {
		p += 3;
		if (url_has_userinfo(p, end))
			return true;
	}
	return false;
}

static int leave_out(struct make *m, const char *path, bool secret)
{
	m->left_out++;
	if (!secret)
		return 0;
	if (m->credentials++ < SECRET_NAMES_MAX) {
		buf_addstr(&m->secret_names, m->secret_names.len ? ", " : "");
		for (const char *p = path; *p; p++) /* it goes to a terminal */
			buf_add(&m->secret_names, *p > ' ' && *p < 127 ? p : "?", 1);
	}
	return 0;
}

static bool may_copy(const struct make *m, const struct stat *st, const struct copy_rule *r)
{
	if (st->st_uid != m->src_owner)
		return false;
	if (S_ISLNK(st->st_mode))
		return true;
	if (S_ISDIR(st->st_mode))
		return (st->st_mode & 0005) == 0005;
	return S_ISREG(st->st_mode) && (st->st_mode & 0004) && st->st_size >= 0 &&
	       (size_t)st->st_size <= (r->max ? r->max : COPY_MAX);
}

static unsigned rule_id(const struct copy_rule *r)
{
	return r->flags & COPY_TO_USER ? BOX_UID : 0;
}

static int copy_link(struct make *m, int from, const char *name, int to, const char *as,
	const char *path, const struct copy_rule *r, struct den_err *err)
{
	char target[PATH_MAX];
	ssize_t n = readlinkat(from, name, target, sizeof(target) - 1);

	if (n <= 0)
		return leave_out(m, path, false);
	target[n] = '\0';
	if (symlinkat(target, to, as) < 0) {
		if (errno == EEXIST) /* an earlier rule, or a generated file, has the say */
			return 0;
		return den_fail_sys(err, errno, "make link '%s'", path);
	}
	m->copied++;
	return make_own(m, to, as, path, rule_id(r), rule_id(r), S_IFLNK, err);
}

static int copy_file(struct make *m, int from, const char *name, int to, const char *as,
	const char *path, const struct copy_rule *r, struct den_err *err)
{
	auto_free char *text = NULL;
	struct timespec times[2];
	struct stat st;
	size_t n;
	auto_fd out = -1;
	/* Not blocking: should a FIFO be here now, it must not hang us. */
	auto_fd in = openat(from, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);

	if (in < 0 || fstat(in, &st) < 0 || !S_ISREG(st.st_mode) || !may_copy(m, &st, r))
		return leave_out(m, path, false);
	if (fd_read_all(in, r->max ? r->max : COPY_MAX, &text, &n, NULL) < 0)
		return leave_out(m, path, false);
	if (!(r->flags & COPY_OPAQUE) && copy_holds_secret(text, n))
		return leave_out(m, path, true);
	out = openat(to, as, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (out < 0) {
		if (errno == EEXIST)
			return 0;
		return den_fail_sys(err, errno, "create '%s'", path);
	}
	if (fd_write_all(out, text, n, err) < 0)
		return den_wrap(err, "copy '/%s'", path);
	if (make_own(m, to, as, path, rule_id(r), rule_id(r), st.st_mode & 0755, err) < 0)
		return -1;
	times[0] = times[1] = st.st_mtim; /* caches are compared with what they were made from */
	futimens(out, times);
	m->copied++;
	return 0;
}

static int copy_entry(struct make *m, int from, const char *name, int to, const char *as,
	const char *path, const struct copy_rule *r, int depth, struct den_err *err);

static int copy_dir(struct make *m, int from, const char *name, int to, const char *as,
	const char *path, const struct copy_rule *r, int depth, struct den_err *err)
{
	auto_fd in = openat(from, name, DIR_FLAGS);
	auto_fd out = -1;
	struct dirent *de;
	struct stat st;
	int ret = 0;
	DIR *d;

	if (depth > DEPTH_MAX || in < 0 || fstat(in, &st) < 0 || !may_copy(m, &st, r))
		return leave_out(m, path, false);
	if (mkdirat(to, as, 0700) == 0) {
		if (make_own(m, to, as, path, rule_id(r), rule_id(r), 0755, err) < 0)
			return -1;
	} else if (errno != EEXIST) {
		return den_fail_sys(err, errno, "make '%s'", path);
	}
	out = openat(to, as, DIR_FLAGS);
	if (out < 0)
		return den_fail_sys(err, errno, "open '%s'", path);
	d = fdopendir(in);
	if (!d)
		return den_fail_sys(err, errno, "list '/%s'", path);
	in = -1; /* d's now */
	while (ret == 0 && (de = readdir(d))) {
		char sub[PATH_MAX];

		if (!strcmp(de->d_name, ".") || !strcmp(de->d_name, ".."))
			continue;
		if ((size_t)snprintf(sub, sizeof(sub), "%s/%s", path, de->d_name) < sizeof(sub))
			ret = copy_entry(
				m, dirfd(d), de->d_name, out, de->d_name, sub, r, depth + 1, err);
	}
	closedir(d);
	return ret;
}

static int copy_entry(struct make *m, int from, const char *name, int to, const char *as,
	const char *path, const struct copy_rule *r, int depth, struct den_err *err)
{
	struct stat st;

	make_tell(m, "copying settings");
	/* Before opening: to open a device can itself do something. */
	if (name_is_never(name, r) || fstatat(from, name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
		!may_copy(m, &st, r))
		return leave_out(m, path, false);
	if (S_ISLNK(st.st_mode))
		return copy_link(m, from, name, to, as, path, r, err);
	if (S_ISDIR(st.st_mode))
		return copy_dir(m, from, name, to, as, path, r, depth, err);
	return copy_file(m, from, name, to, as, path, r, err);
}

/* Opens a directory below dirfd without following a link in any part of the path. */
static int open_dir_beneath(int dirfd, const char *path)
{
	int fd = openat(dirfd, ".", DIR_FLAGS);

	while (fd >= 0 && *path) {
		char part[NAME_MAX + 1];
		size_t n = strcspn(path, "/");
		int next;

		if (n > NAME_MAX) {
			close(fd);
			return -1;
		}
		memcpy(part, path, n);
		part[n] = '\0';
		next = openat(fd, part, DIR_FLAGS);
		close(fd);
		fd = next;
		path += n + (path[n] == '/');
	}
	return fd;
}

int copy_by_rule(struct make *m, const struct copy_rule *r, struct den_err *err)
{
	const char *slash = strrchr(r->from, '/'), *last = slash ? slash + 1 : r->from;
	auto_free char *dir = mem_strndup(r->from, slash ? (size_t)(slash - r->from) : 0);
	const char *to = r->to ? r->to : dir;
	bool pattern = strpbrk(last, "*?[") != NULL;
	auto_fd from = open_dir_beneath(m->src, dir);
	auto_fd out = -1;
	struct dirent *de;
	int ret = 0;
	DIR *d;

	/* Not on this host: no distribution has all of the list. */
	if (from < 0 || (!pattern && faccessat(from, last, F_OK, AT_SYMLINK_NOFOLLOW) < 0))
		return 0;
	if (make_dir(m, to, &out, err) < 0)
		return -1;
	d = fdopendir(from);
	if (!d)
		return den_fail_sys(err, errno, "list '/%s'", dir);
	from = -1;
	while (ret == 0 && (de = readdir(d))) {
		const char *as = r->as ? r->as : de->d_name;
		char path[PATH_MAX];

		if (!strcmp(de->d_name, ".") || !strcmp(de->d_name, "..") ||
			(pattern ? fnmatch(last, de->d_name, 0) : strcmp(last, de->d_name)))
			continue;
		if ((size_t)snprintf(path, sizeof(path), "%s/%s", to, as) < sizeof(path))
			ret = copy_entry(m, dirfd(d), de->d_name, out, as, path, r, 0, err);
	}
	closedir(d);
	return ret;
}
