/* read, write */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "fd.h"
#include "fs_ops.h"
#include "mem.h"
#include "parse.h"
#include "strv.h"

/* A fifo would hang us, a device would do what devices do. */
static int must_be_regular(const struct stat *st, const char *path, struct den_err *err)
{
	if (S_ISREG(st->st_mode))
		return 0;
	if (S_ISDIR(st->st_mode))
		return den_fail(err, DEN_INVALID, EISDIR, "'%s'", path);
	return den_fail(err, DEN_INVALID, 0, "'%s' is not a regular file", path);
}

/* Opens after looking, and looks again: the name may mean something else by then. */
static int open_regular(const char *path, int flags, struct den_err *err)
{
	auto_fd fd = -1;
	struct stat st;

	if (stat(path, &st) < 0)
		return den_fail_sys(err, errno, "'%s'", path);
	if (must_be_regular(&st, path, err) < 0)
		return -1;
	fd = open(path, flags | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		return den_fail_sys(err, errno, "'%s'", path);
	if (must_be_regular(&st, path, err) < 0)
		return -1;
	return fd_take(&fd);
}

/* Copies up to max bytes, or to the end. */
static int copy(int from, int to, uint64_t max, struct den_err *err)
{
	auto_free char *chunk = mem_alloc(FS_CHUNK);

	while (max) {
		size_t n;

		if (fs_read_some(from, chunk, (size_t)MIN(max, (uint64_t)FS_CHUNK), &n, err) < 0)
			return -1;
		if (!n)
			return 0;
		if (fd_write_all(to, chunk, n, err) < 0)
			return -1;
		max -= n;
	}
	return 0;
}

int fs_read(char *const *arg, struct den_err *err)
{
	uint64_t offset = 0, length = UINT64_MAX;
	auto_fd fd = -1;

	if (*arg[1] && parse_u64(arg[1], 0, INT64_MAX, &offset, err) < 0)
		return den_wrap(err, "offset");
	if (*arg[2] && parse_u64(arg[2], 0, UINT64_MAX, &length, err) < 0)
		return den_wrap(err, "length");
	fd = open_regular(arg[0], O_RDONLY, err);
	if (fd < 0)
		return den_wrap(err, "read");
	if (offset && lseek(fd, (off_t)offset, SEEK_SET) < 0)
		return den_fail_sys(err, errno, "read '%s' from %s", arg[0], arg[1]);
	if (copy(fd, 1, length, err) < 0)
		return den_wrap(err, "'%s'", arg[0]);
	return 0;
}

/* ---- write ----------------------------------------------------------------------------------- */

static int sync_file(int fd, const char *path, struct den_err *err)
{
	if (fsync(fd) < 0 && errno != EINVAL)
		return den_fail_sys(err, errno, "write '%s' to disk", path);
	return 0;
}

/* Makes a new file. *made_behind_link: path is a link whose target was missing. */
static int create(const char *path, mode_t mode, bool *made_behind_link, struct den_err *err)
{
	int flags = O_WRONLY | O_CREAT | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
	int fd = open(path, flags | O_EXCL, mode);

	if (fd < 0 && errno == EEXIST) {
		fd = open(path, flags, mode);
		*made_behind_link = true;
	}
	if (fd < 0)
		return den_fail_sys(err, errno, "'%s'", path);
	return fd;
}

/* What a write sets besides the bytes. */
struct meta {
	const char *mode_text; /* "": what the file has */
	mode_t mode;
	const char *prefix; /* of extended attributes; "": they are left alone */
	char *const *xattrs;
};

static int meta_xattrs(const struct meta *m, int fd, struct den_err *err)
{
	return *m->prefix ? fs_xattr_replace(fd, m->prefix, m->xattrs, err) : 0;
}

static int write_in_place(const char *path, const struct meta *m, struct den_err *err)
{
	bool behind_link = false, made = false;
	auto_fd fd = open_regular(path, O_WRONLY, err), dir = -1;
	char base[256];
	struct stat st;

	if (fd < 0 && err->sys == ENOENT) {
		fd = create(path, m->mode, &behind_link, err);
		made = true;
	}
	if (fd < 0)
		return -1;
	if (fstat(fd, &st) < 0 || must_be_regular(&st, path, err) < 0)
		return den_fail(err, DEN_INVALID, 0, "'%s' is not a regular file", path);
	if (ftruncate(fd, 0) < 0 || (*m->mode_text && fchmod(fd, m->mode) < 0))
		return den_fail_sys(err, errno, "'%s'", path);
	if (meta_xattrs(m, fd, err) < 0)
		return den_wrap(err, "'%s'", path);
	if (copy(0, fd, UINT64_MAX, err) < 0)
		return den_wrap(err, "'%s'", path);
	if (behind_link && syncfs(fd) < 0)
		return den_fail_sys(err, errno, "write '%s' to disk", path);
	if (sync_file(fd, path, err) < 0)
		return -1;
	if (!made || behind_link)
		return 0;
	return fs_split(path, &dir, base, err) < 0 ? -1 : fs_sync_dir(dir, err);
}

/* The path with a last link followed, so that the link stays and its target is replaced. */
static int follow(const char *path, char out[static PATH_MAX], struct den_err *err)
{
	if (strlen(path) >= PATH_MAX)
		return den_fail(err, DEN_INVALID, ENAMETOOLONG, "'%.60s'", path);
	memcpy(out, path, strlen(path) + 1);
	for (int i = 0; i < 40; i++) {
		char target[PATH_MAX], whole[2 * PATH_MAX];
		ssize_t n = readlink(out, target, sizeof(target) - 1);
		const char *slash = strrchr(out, '/');

		if (n <= 0)
			return 0; /* no link; what else is wrong shows when it is opened */
		target[n] = '\0';
		if (target[0] == '/' || !slash)
			n = snprintf(whole, sizeof(whole), "%s", target);
		else
			n = snprintf(
				whole, sizeof(whole), "%.*s/%s", (int)(slash - out), out, target);
		if (n >= PATH_MAX)
			return den_fail(err, DEN_INVALID, ENAMETOOLONG, "'%.60s'", path);
		memcpy(out, whole, (size_t)n + 1);
	}
	return den_fail(err, DEN_INVALID, ELOOP, "'%s'", path);
}

/* The new file, until it takes its place. */
struct temp {
	int fd, dir;
	char name[40]; /* empty: it has none yet, and goes by itself if we are killed */
};

/*
 * overlayfs before Linux 6.3 or so has no files without a name. A write that is told to end (its
 * sender went, a timeout) takes its named file along. SIGKILL from inside the box, which comes
 * without a word before it, is the one end that leaves it.
 */
static volatile sig_atomic_t temp_named; /* the two below are set */
static int temp_dir;
static char temp_left[40];

static void temp_on_signal(int sig)
{
	if (temp_named)
		unlinkat(temp_dir, temp_left, 0);
	signal(sig, SIG_DFL);
	raise(sig); /* blocked while we are here: comes when we return */
}

static void temp_watch(const struct temp *t)
{
	static const int ends[] = { SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGPIPE, SIGXCPU, SIGXFSZ };
	struct sigaction sa = { .sa_handler = temp_on_signal };

	temp_dir = t->dir;
	memcpy(temp_left, t->name, sizeof(temp_left));
	temp_named = 1;
	sigfillset(&sa.sa_mask);
	for (size_t i = 0; i < ARRAY_SIZE(ends); i++)
		sigaction(ends[i], &sa, NULL);
}

static void temp_free(struct temp *t)
{
	if (t->fd >= 0 && t->name[0])
		unlinkat(t->dir, t->name, 0);
	temp_named = 0;
	fd_close(&t->fd);
	fd_close(&t->dir);
}
#define auto_temp __attribute__((cleanup(temp_free))) struct temp

static void temp_name(struct temp *t, int i)
{
	snprintf(t->name, sizeof(t->name), ".den-%d-%d.tmp", (int)getpid(), i);
}

static int temp_open(struct temp *t, const char *path, struct den_err *err)
{
	/* Without /proc it could not be given a name afterwards. */
	if (access("/proc/self/fd", X_OK) == 0)
		t->fd = openat(t->dir, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
	for (int i = 0; t->fd < 0 && i < 100; i++) {
		temp_name(t, i);
		temp_watch(t); /* before it is there; the name has our pid, so nobody else's goes */
		t->fd = openat(t->dir, t->name,
			O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
		if (t->fd < 0 && errno != EEXIST)
			break;
	}
	if (t->fd < 0)
		return den_fail_sys(err, errno, "'%s'", path);
	return 0;
}

/* Gives it its name. A file without one can be linked to a free name only, so one that replaces
 * another gets a passing name first. */
static int temp_publish(struct temp *t, const char *base, const char *path, struct den_err *err)
{
	char self[32];
	int r = -1;

	snprintf(self, sizeof(self), "/proc/self/fd/%d", t->fd);
	if (!t->name[0]) {
		if (linkat(AT_FDCWD, self, t->dir, base, AT_SYMLINK_FOLLOW) == 0)
			return 0;
		for (int i = 0; r < 0 && errno == EEXIST && i < 100; i++) {
			temp_name(t, i);
			r = linkat(AT_FDCWD, self, t->dir, t->name, AT_SYMLINK_FOLLOW);
		}
		if (r < 0) {
			int sys = errno;

			t->name[0] = '\0'; /* that name is not ours */
			return den_fail_sys(err, sys, "'%s'", path);
		}
		temp_watch(t);
	}
	if (renameat(t->dir, t->name, t->dir, base) < 0)
		return den_fail_sys(err, errno, "replace '%s'", path);
	t->name[0] = '\0';
	temp_named = 0;
	return 0;
}

/* What replaces a file has the extended attributes of it that the write does not name. */
static void keep_xattrs(int dir, const char *base, int to)
{
	auto_fd old = openat(dir, base, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	auto_strv all = old < 0 ? NULL : fs_xattr_read(old, FSOP_XATTR_PREFIX);

	for (size_t i = 0; all && all[i]; i++) {
		char *value = strchr(all[i], '=');

		*value++ = '\0';
		(void)!fsetxattr(to, all[i], value, strlen(value), 0);
	}
}

static int write_atomic(const char *path, const struct meta *m, struct den_err *err)
{
	auto_temp t = { .fd = -1, .dir = -1 };
	char base[256], real[PATH_MAX];
	struct stat st;
	bool there;

	if (follow(path, real, err) < 0 || fs_split(real, &t.dir, base, err) < 0)
		return -1;
	there = fstatat(t.dir, base, &st, AT_SYMLINK_NOFOLLOW) == 0;
	if (there && must_be_regular(&st, path, err) < 0)
		return -1;
	if (temp_open(&t, path, err) < 0)
		return -1;
	if (copy(0, t.fd, UINT64_MAX, err) < 0)
		return den_wrap(err, "'%s'", path);
	/* Written in place it would keep its owner, so it does here, where that is allowed. */
	if (there && (st.st_uid != geteuid() || st.st_gid != getegid()))
		(void)!fchown(t.fd, st.st_uid, st.st_gid);
	if (there)
		keep_xattrs(t.dir, base, t.fd);
	if (meta_xattrs(m, t.fd, err) < 0)
		return den_wrap(err, "'%s'", path);
	if (fchmod(t.fd, there && !*m->mode_text ? st.st_mode & 07777 : m->mode) < 0)
		return den_fail_sys(err, errno, "'%s'", path);
	if (sync_file(t.fd, path, err) < 0 || temp_publish(&t, base, path, err) < 0)
		return -1;
	return fs_sync_dir(t.dir, err);
}

int fs_write(char *const *arg, struct den_err *err)
{
	struct meta m = { .mode_text = arg[1], .prefix = arg[3], .xattrs = arg + 4 };
	int r;

	if (fs_mode(arg[1], 0644, &m.mode, err) < 0)
		return -1;
	if (*m.prefix && fs_xattr_check(m.prefix, m.xattrs, err) < 0)
		return den_wrap(err, "write");
	if (fs_flag(arg[2], 'p') && fs_mkdir_parents(arg[0], err) < 0)
		return den_wrap(err, "write");
	r = fs_flag(arg[2], 'a') ? write_atomic(arg[0], &m, err) : write_in_place(arg[0], &m, err);
	return r < 0 ? den_wrap(err, "write") : 0;
}
