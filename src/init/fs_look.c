/* stat, list */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "fd.h"
#include "fs_ops.h"
#include "mem.h"
#include "parse.h"
#include "strv.h"
#include "tar.h"
#include "walk.h"

#define FLUSH_AT (48U << 10)
#define PATH_LEN_MAX (4096U * 2) /* what a record's reader takes */

int fs_out_flush(struct fs_out *o, struct den_err *err)
{
	int r = fd_write_all(1, o->buf.p, o->buf.len, err);

	o->buf.len = 0;
	return r;
}

int fs_out_entry(struct fs_out *o, const struct fs_entry *e, struct den_err *err)
{
	fs_entry_put(&o->buf, e);
	return o->buf.len < FLUSH_AT ? 0 : fs_out_flush(o, err);
}

void fs_out_free(struct fs_out *o)
{
	buf_free(&o->buf);
	user_names_free(o->names);
}
#define auto_out __attribute__((cleanup(fs_out_free))) struct fs_out

static enum fs_type type_of(mode_t mode)
{
	switch (mode & S_IFMT) {
	case S_IFREG:
		return FS_FILE;
	case S_IFDIR:
		return FS_DIR;
	case S_IFLNK:
		return FS_LINK;
	case S_IFIFO:
		return FS_FIFO;
	case S_IFSOCK:
		return FS_SOCKET;
	case S_IFCHR:
		return FS_CHAR;
	case S_IFBLK:
		return FS_BLOCK;
	default:
		return FS_UNKNOWN;
	}
}

/* A file's time may be any number. */
static int64_t ns_of(const struct timespec *t)
{
	int64_t ns;

	if (__builtin_mul_overflow(t->tv_sec, NS_PER_SEC, &ns) ||
		__builtin_add_overflow(ns, t->tv_nsec, &ns))
		return t->tv_sec < 0 ? INT64_MIN : INT64_MAX;
	return ns;
}

/* What to tell of an entry besides what stat() says. */
struct look {
	bool follow;	    /* of a link: what it leads to, if that is there */
	const char *prefix; /* of extended attributes; "": none */
};

/* Where a link leads in the end, opened, and its path in the box; -1: nowhere. */
static int open_real(int at, const char *name, char real[static PATH_MAX])
{
	auto_fd fd = openat(at, name, O_PATH | O_CLOEXEC);
	char self[32];
	ssize_t n;

	if (fd < 0)
		return -1;
	snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
	n = readlink(self, real, PATH_MAX - 1);
	real[n > 0 ? n : 0] = '\0';
	return fd_take(&fd);
}

/* at: where name is found; st: of it, a link itself */
static int out_stat(struct fs_out *o, const char *path, int at, const char *name,
	const struct stat *st, const struct look *look, struct den_err *err)
{
	bool link = S_ISLNK(st->st_mode);
	char target[PATH_MAX], real[PATH_MAX];
	auto_fd there = link ? open_real(at, name, real) : -1;
	auto_strv xattrs = NULL;
	mode_t link_mode = st->st_mode & 07777;
	struct stat led;
	struct fs_entry e;

	if (there >= 0 && look->follow && fstat(there, &led) == 0)
		st = &led;
	if (*look->prefix && !S_ISLNK(st->st_mode)) {
		auto_fd fd = there >= 0 ? -1 : openat(at, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);

		xattrs = there < 0 && fd < 0 ? NULL : fs_xattr_read(there >= 0 ? there : fd, look->prefix);
	}
	e = (struct fs_entry){
		.path = (char *)path,
		.type = type_of(st->st_mode),
		.mode = st->st_mode & 07777,
		.uid = st->st_uid,
		.gid = st->st_gid,
		.size = (uint64_t)MAX(st->st_size, 0),
		.ino = st->st_ino,
		.nlink = st->st_nlink,
		.mtime_ns = ns_of(&st->st_mtim),
		.real = there >= 0 && real[0] == '/' ? real : NULL,
		.link = link && st == &led,
		.link_mode = link_mode,
		.xattrs = xattrs,
	};
	if (e.type == FS_LINK) {
		ssize_t n = readlinkat(at, name, target, sizeof(target) - 1);

		if (n >= 0) {
			target[n] = '\0';
			e.target = target;
		}
	}
	if (e.type != FS_UNKNOWN) {
		e.user = (char *)user_names_user(o->names, st->st_uid);
		e.group = (char *)user_names_group(o->names, st->st_gid);
	}
	return fs_out_entry(o, &e, err);
}

static struct user_names *names_open(void)
{
	auto_fd etc = open("/etc", O_PATH | O_DIRECTORY | O_CLOEXEC);

	return user_names_new(etc);
}

int fs_stat(char *const *arg, struct den_err *err)
{
	auto_out o = { .names = names_open() };
	struct look look = { .follow = !fs_flag(arg[1], 'l'), .prefix = arg[2] };
	struct stat st;

	if (*look.prefix && fs_xattr_check(look.prefix, NULL, err) < 0)
		return den_wrap(err, "stat");
	if (strlen(arg[0]) > PATH_LEN_MAX)
		return den_fail(err, DEN_INVALID, ENAMETOOLONG, "stat '%.60s'", arg[0]);
	if (fstatat(AT_FDCWD, arg[0], &st, look.follow ? 0 : AT_SYMLINK_NOFOLLOW) < 0 ||
		fstatat(AT_FDCWD, arg[0], &st, AT_SYMLINK_NOFOLLOW) < 0)
		return den_fail_sys(err, errno, "stat '%s'", arg[0]);
	if (out_stat(&o, arg[0], AT_FDCWD, arg[0], &st, &look, err) < 0)
		return -1;
	return fs_out_flush(&o, err);
}

int fs_list(char *const *arg, struct den_err *err)
{
	auto_out o = { .names = names_open() };
	struct look look = { .follow = fs_flag(arg[2], 'f'), .prefix = arg[3] };
	struct walk_entry e;
	struct walk *w;
	uint64_t depth = 1;
	int fd, r;

	if (*arg[1] && parse_u64(arg[1], 1, UINT32_MAX, &depth, err) < 0)
		return den_wrap(err, "depth");
	if (*look.prefix && fs_xattr_check(look.prefix, NULL, err) < 0)
		return den_wrap(err, "list");
	fd = open(arg[0], O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return den_fail(err, errno == ENOTDIR ? DEN_INVALID : den_code_of_errno(errno),
			errno, "list '%s'", arg[0]);
	if (walk_new(fd, (unsigned)depth, WALK_SKIP_DENIED, &w, err) < 0)
		return den_wrap(err, "list '%s'", arg[0]);
	while ((r = walk_next(w, &e, err)) > 0) {
		if (strlen(e.path) > PATH_LEN_MAX)
			r = den_fail(err, DEN_LIMIT, ENAMETOOLONG, "'%s'; list fewer levels",
				tar_show(e.path).s);
		else
			r = out_stat(&o, e.path, e.dirfd, e.name, &e.st, &look, err);
		if (r < 0)
			break;
	}
	walk_free(w);
	if (r < 0)
		return den_wrap(err, "list '%s'", arg[0]);
	return fs_out_flush(&o, err);
}
