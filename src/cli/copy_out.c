/* Out of a box, onto the host: whatever the box sends is hostile. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

#include "copy.h"
#include "fd.h"
#include "mem.h"
#include "tree.h"

/* Where it goes on the host. */
struct target {
	int dirfd; /* the directory it goes into */
	char *name; /* the name it gets there; NULL: the directory itself takes what is in it */
	int fd; /* instead: a device or pipe that is there and takes bytes */
};

static void target_free(struct target *t)
{
	fd_close(&t->dirfd);
	fd_close(&t->fd);
	free(t->name);
}

struct out_sink {
	struct copy *copy;
	struct tree_unpacker *unpacker;
	int fd;
	bool hole; /* fd_write_sparse() */
};

static mode_t umask_now(void)
{
	mode_t m = umask(077);

	umask(m);
	return m;
}

static int open_dir(const char *path, int *ret, struct den_err *err)
{
	*ret = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (*ret < 0)
		return den_fail_sys(err, errno, "'%.80s'", path);
	return 0;
}

/* A name in the directory that it is in. */
static int target_named(struct target *t, const char *path, struct den_err *err)
{
	auto_free char *dir = NULL;

	if (path_split(path, &dir, &t->name, err) < 0)
		return -1;
	return open_dir(dir, &t->dirfd, err);
}

static int target_find(struct target *t, const struct place *from, bool is_dir,
	const struct place *to, struct den_err *err)
{
	auto_free char *unused = NULL, *real = NULL;
	struct stat st;

	if (stat(to->path, &st) < 0) {
		if (errno != ENOENT)
			return den_fail_sys(err, errno, "'%.80s'", to->path);
		if (to->slash && !is_dir)
			return den_fail(
				err, DEN_NOT_FOUND, 0, "there is no directory '%.80s'", to->path);
		return target_named(t, to->path, err);
	}
	if (S_ISDIR(st.st_mode)) {
		if (!(is_dir && from->contents) &&
			path_split(from->path, &unused, &t->name, err) < 0)
			return -1;
		return open_dir(to->path, &t->dirfd, err);
	}
	if (is_dir || to->slash)
		return den_fail(err, DEN_CONFLICT, 0, "'%.80s' is no directory", to->path);
	/* /dev/stdout must not be replaced, but written to, also when it is a file */
	if (!S_ISREG(st.st_mode) || !strncmp(to->path, "/dev/", 5) ||
		!strncmp(to->path, "/proc/", 6)) {
		t->fd = open(to->path, O_WRONLY | O_APPEND | O_CLOEXEC);
		return t->fd < 0 ? den_fail_sys(err, errno, "'%.80s'", to->path) : 0;
	}
	real = realpath(to->path, NULL); /* the user's own link: the file it points to is meant */
	if (!real)
		return den_fail_sys(err, errno, "'%.80s'", to->path);
	return target_named(t, real, err);
}

static int write_fd(const void *data, size_t n, void *user, struct den_err *err)
{
	struct out_sink *s = user;

	if (fd_write_all(s->fd, data, n, err) < 0) {
		if (err->sys == EPIPE)
			s->copy->status = EXIT_SIGNAL + 13;
		return -1;
	}
	copy_progress(s->copy, n);
	return 0;
}

static int write_file(const void *data, size_t n, void *user, struct den_err *err)
{
	struct out_sink *s = user;

	copy_progress(s->copy, n);
	return fd_write_sparse(s->fd, data, n, &s->hole, err);
}

static int feed(const void *data, size_t n, void *user, struct den_err *err)
{
	struct out_sink *s = user;

	copy_progress(s->copy, n);
	return tree_unpacker_feed(s->unpacker, data, n, err);
}

/* Opens a file that has no name yet, so that a killed den leaves nothing behind; where the file
 * system cannot, one with a name of its own: then *named is set. */
static int open_temp(int dirfd, const char *temp, bool *named)
{
	int fd = openat(dirfd, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);

	*named = fd < 0;
	if (fd < 0)
		fd = openat(dirfd, temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	return fd;
}

/* Mode and time as in the box, then under its name, in place of what was there. */
static int place_file(int fd, const char *temp, bool *named, const struct box_file *f,
	const struct target *t, struct den_err *err)
{
	struct timespec times[2] = { { .tv_nsec = UTIME_OMIT },
		{ f->mtime_ns / 1000000000, f->mtime_ns % 1000000000 } };
	char path[32];

	if (fchmod(fd, f->mode & 0777 & ~umask_now()) < 0)
		return den_fail_sys(err, errno, "'%.80s'", t->name);
	if (f->mtime_ns > 0) /* a time that this file system cannot hold is no reason to fail */
		(void)!futimens(fd, times);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (!*named && linkat(AT_FDCWD, path, t->dirfd, temp, AT_SYMLINK_FOLLOW) < 0)
		return den_fail_sys(err, errno, "'%.80s'", t->name);
	*named = true;
	if (renameat(t->dirfd, temp, t->dirfd, t->name) < 0)
		return den_fail_sys(err, errno, "'%.80s'", t->name);
	return 0;
}

/* Nobody sees a part of it. */
static int receive_file(struct copy *c, const char *path, const struct box_file *f,
	const struct target *t, struct den_err *err)
{
	struct out_sink s = { .copy = c, .fd = t->fd };
	char temp[32];
	uint64_t random = 0;
	bool named;
	auto_fd fd = -1;

	if (t->fd >= 0)
		return den_file_read(c->box, path, &c->opt, write_fd, &s, err);
	if (getrandom(&random, sizeof(random), 0) < 0)
		return den_fail_sys(err, errno, "random number");
	snprintf(temp, sizeof(temp), ".den-%016llx", (unsigned long long)random);
	fd = open_temp(t->dirfd, temp, &named);
	if (fd < 0)
		return den_fail_sys(err, errno, "'%.80s'", t->name);
	s.fd = fd;
	if (den_file_read(c->box, path, &c->opt, write_file, &s, err) == 0 &&
		(!s.hole || fd_end_sparse(fd, err) == 0) &&
		place_file(fd, temp, &named, f, t, err) == 0)
		return 0;
	if (named)
		unlinkat(t->dirfd, temp, 0);
	return -1;
}

/* The directory is ours, made under the name that the user chose; the box fills it, and only it. */
static int receive_tree(struct copy *c, const char *path, const struct box_file *f,
	struct target *t, struct den_err *err)
{
	struct tree_unpack_opt opt = {
		.keep_dirs = true,
		.mode_clear = 07000 | umask_now(),
		.xattrs = TREE_XATTR_USER,
	};
	struct out_sink s = { .copy = c };
	struct den_file_opt file = c->opt;
	bool made = false;
	int r;

	if (t->name) {
		int fd;

		made = mkdirat(t->dirfd, t->name, 0700) == 0;
		if (!made && errno != EEXIST)
			return den_fail_sys(err, errno, "'%.80s'", t->name);
		fd = openat(t->dirfd, t->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (fd < 0)
			return den_fail_sys(err, errno, "'%.80s'", t->name);
		fd_close(&t->dirfd);
		t->dirfd = fd;
	}
	file.contents = true;
	s.unpacker = tree_unpacker_new(t->dirfd, &opt);
	r = den_tar_out(c->box, path, &file, feed, &s, err);
	if (r == 0)
		r = tree_unpacker_finish(s.unpacker, err);
	c->skipped = tree_unpacker_stats(s.unpacker)->skipped;
	c->bytes = tree_unpacker_stats(s.unpacker)->bytes;
	tree_unpacker_free(s.unpacker);
	if (made && fchmod(t->dirfd, f->mode & 0777 & ~umask_now()) < 0 && r == 0)
		return den_fail_sys(err, errno, "'%.80s'", t->name);
	return r;
}

static int send_stream(struct copy *c, const struct place *from, struct den_err *err)
{
	struct out_sink s = { .copy = c, .fd = STDOUT_FILENO };
	struct den_file_opt file = c->opt;

	if (isatty(STDOUT_FILENO))
		return den_fail(err, DEN_INVALID, 0,
			"'-' writes a tar stream, which a terminal cannot show");
	file.contents = from->contents;
	return den_tar_out(c->box, from->path, &file, write_fd, &s, err);
}

int copy_out(struct copy *c, const struct place *from, const struct place *to, struct den_err *err)
{
	struct target t = { .dirfd = -1, .fd = -1 };
	struct box_file f;
	bool is_dir;
	int r;

	if (to->stream)
		return send_stream(c, from, err);
	if (box_file_stat(c, from->path, &f, err) < 0)
		return -1;
	if (!f.type[0])
		return -1; /* the failed stat said what is missing */
	is_dir = !strcmp(f.type, "directory");
	if (!is_dir && strcmp(f.type, "file"))
		return den_fail(err, DEN_INVALID, 0,
			"'%.80s' is a %s; only files and directories are copied", from->path,
			f.type);
	if (!is_dir && from->slash)
		return den_fail(
			err, DEN_CONFLICT, 0, "'%.80s' in the box is no directory", from->path);
	r = target_find(&t, from, is_dir, to, err);
	if (r == 0)
		r = is_dir ? receive_tree(c, from->path, &f, &t, err)
			   : receive_file(c, from->path, &f, &t, err);
	target_free(&t);
	return r;
}
