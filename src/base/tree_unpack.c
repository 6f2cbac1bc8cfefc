/* The unpacking half of tree.h. The archive is hostile: see the rules there. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>

#include "fd.h"
#include "mem.h"
#include "tar.h"
#include "tree.h"

#define LATER_MAX 65536U /* directories whose mode and time wait for the end; when there */
#define LATER_BYTES_MAX (16U << 20) /* are more, those before get theirs early */
#define SYNC_MAX 16

/* What is set once all else is done, so that nothing changes it again. */
struct meta {
	mode_t mode;
	uid_t uid;
	gid_t gid;
	struct timespec mtime;
};

struct later {
	char *path;
	size_t len, order;
	dev_t dev;
	ino_t ino;
	struct meta meta;
};

struct tree_unpacker {
	int root;
	struct tree_unpack_opt opt;
	char *top;
	struct tar_reader *reader;
	/* The parent of the last entry: most have the same as the one before. */
	int parent;
	char *parent_path;
	/* The file whose data comes, in parent. */
	int fd;
	bool fd_hole; /* fd_write_sparse() */
	char fd_name[256];
	struct meta fd_meta;
	char fd_caps[64]; /* its security.capability, which writing and a new owner would clear */
	size_t fd_caps_len;
	struct later *later;
	size_t n_later, cap_later, later_bytes;
	struct {
		dev_t dev;
		int fd;
	} sync[SYNC_MAX]; /* a descriptor on each file system that was written to */
	size_t n_sync;
	struct tree_stats stats;
};

/* ---- names ----------------------------------------------------------------------------------- */

/* The name without "." and doubled slashes, the first part replaced by top; empty: the target
 * directory itself. out holds TAR_NAME_MAX + the length of top. */
static int name_clean(
	const struct tree_unpacker *u, const char *name, char *out, struct den_err *err)
{
	size_t len = 0;
	bool first = true;

	if (name[0] == '/')
		return den_fail(err, DEN_DENIED, 0, "'%s': the name is absolute", tar_show(name).s);
	for (const char *p = name; *p;) {
		size_t n = strcspn(p, "/");

		if (n == 2 && p[0] == '.' && p[1] == '.')
			return den_fail(err, DEN_DENIED, 0, "'%s': the name leaves its directory",
				tar_show(name).s);
		if (n > 255)
			return den_fail(err, DEN_INVALID, ENAMETOOLONG, "'%s'", tar_show(name).s);
		if (n && !(n == 1 && p[0] == '.')) {
			const char *part = first && u->top ? u->top : p;
			size_t part_len = first && u->top ? strlen(u->top) : n;

			if (len)
				out[len++] = '/';
			memcpy(out + len, part, part_len);
			len += part_len;
			first = false;
		}
		p += n;
		p += *p == '/';
	}
	out[len] = '\0';
	return 0;
}

/* ---- parents --------------------------------------------------------------------------------- */

static int dir_open_at(int dirfd, const char *name)
{
	return openat(dirfd, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* Why a part of a path could not be entered. */
static int part_fail(int dirfd, const char *part, const char *path, int sys, struct den_err *err)
{
	struct stat st;

	if ((sys == ENOTDIR || sys == ELOOP) &&
		fstatat(dirfd, part, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(st.st_mode))
		return den_fail(err, DEN_DENIED, sys, "'%s': leads through the link '%s'",
			tar_show(path).s, tar_show(part).s);
	if (sys == ENOTDIR)
		return den_fail(err, DEN_CONFLICT, sys, "'%s': '%s' is in the way",
			tar_show(path).s, tar_show(part).s);
	return den_fail_sys(err, sys, "'%s'", tar_show(path).s);
}

/* Part by part, so it needs no new kernel and finds out which part is to blame. Parents that are
 * missing are made, as not every archive names them. */
static int dir_open_parts(const struct tree_unpacker *u, int from, const char *path, bool make,
	struct den_err *err)
{
	auto_fd dir = dir_open_at(from, ".");
	char part[256];

	if (dir < 0)
		return den_fail_sys(err, errno, "open target directory");
	for (const char *p = path; *p;) {
		size_t n = strcspn(p, "/");
		int sub;

		memcpy(part, p, n); /* name_clean(): at most 255 */
		part[n] = '\0';
		sub = dir_open_at(dir, part);
		if (sub < 0 && errno == ENOENT && make) {
			if (mkdirat(dir, part, 0755 & ~u->opt.mode_clear) < 0 && errno != EEXIST)
				return part_fail(dir, part, path, errno, err);
			sub = dir_open_at(dir, part);
		}
		if (sub < 0)
			return part_fail(dir, part, path, errno, err);
		close(dir);
		dir = sub;
		p += n;
		p += *p == '/';
	}
	return fd_take(&dir);
}

/* In strides that the kernel takes: a path here may be longer than PATH_MAX. */
static int dir_open(const struct tree_unpacker *u, int from, const char *path, bool make,
	struct den_err *err)
{
	struct open_how how = { .flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS };
	auto_fd dir = -1;
	char stride[4096];

	while (*path) {
		size_t n = strlen(path);
		int next;

		if (n >= sizeof(stride))
			for (n = sizeof(stride) - 1;
				path[n] != '/';) /* a part has at most 255 bytes */
				n--;
		memcpy(stride, path, n);
		stride[n] = '\0';
		next = (int)syscall(SYS_openat2, dir < 0 ? from : dir, stride, &how, sizeof(how));
		if (next < 0)
			break;
		fd_close(&dir);
		dir = next;
		path += n + (path[n] == '/');
	}
	return *path || dir < 0 ? dir_open_parts(u, dir < 0 ? from : dir, path, make, err)
				: fd_take(&dir);
}

/* Remembers the file system for sync. */
static int sync_note(struct tree_unpacker *u, struct den_err *err)
{
	struct stat st;
	int fd;

	if (!u->opt.sync)
		return 0;
	if (fstat(u->parent, &st) < 0)
		return den_fail_sys(err, errno, "open target directory");
	for (size_t i = 0; i < u->n_sync; i++)
		if (u->sync[i].dev == st.st_dev)
			return 0;
	fd = openat(u->parent, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return errno == EACCES ? 0 : den_fail_sys(err, errno, "open target directory");
	if (u->n_sync == SYNC_MAX) { /* makes room; if written to again, it comes back */
		syncfs(u->sync[0].fd);
		close(u->sync[0].fd);
		memmove(u->sync, u->sync + 1, sizeof(u->sync[0]) * --u->n_sync);
	}
	u->sync[u->n_sync].dev = st.st_dev;
	u->sync[u->n_sync++].fd = fd;
	return 0;
}

static void parent_forget(struct tree_unpacker *u)
{
	fd_close(&u->parent);
	free(u->parent_path);
	u->parent_path = NULL;
}

/* Opens the parent of path into u->parent; *base is the last part. */
static int parent_open(struct tree_unpacker *u, char *path, const char **base, struct den_err *err)
{
	char *slash = strrchr(path, '/');
	const char *dir = slash ? path : "";

	*base = slash ? slash + 1 : path;
	if (slash)
		*slash = '\0';
	if (!u->parent_path || strcmp(u->parent_path, dir)) {
		size_t n = u->parent_path ? strlen(u->parent_path) : 0;
		bool below = n && !strncmp(dir, u->parent_path, n) && dir[n] == '/';
		/* Most archives go down level by level: no need to start from the top each time. */
		int fd = dir_open(
			u, below ? u->parent : u->root, below ? dir + n + 1 : dir, true, err);

		if (fd < 0)
			return -1;
		parent_forget(u);
		u->parent = fd;
		u->parent_path = mem_strdup(dir);
		if (sync_note(u, err) < 0)
			return -1;
	}
	if (slash)
		*slash = '/';
	return 0;
}

/* ---- what is there already ------------------------------------------------------------------- */

/* Makes the name free. A directory goes only when it is empty. */
static int name_free(
	struct tree_unpacker *u, const char *base, const char *path, struct den_err *err)
{
	struct stat st;

	if (fstatat(u->parent, base, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : den_fail_sys(err, errno, "'%s'", tar_show(path).s);
	if (unlinkat(u->parent, base, S_ISDIR(st.st_mode) ? AT_REMOVEDIR : 0) == 0 ||
		errno == ENOENT)
		return 0;
	if (u->opt.layer && S_ISDIR(st.st_mode))
		return tree_remove_at(u->parent, base, err);
	if (errno == ENOTEMPTY || errno == EEXIST)
		return den_fail(err, DEN_CONFLICT, errno, "'%s': a directory is in the way",
			tar_show(path).s);
	return den_fail_sys(err, errno, "replace '%s'", tar_show(path).s);
}

/* ---- owners, modes, times -------------------------------------------------------------------- */

static struct meta meta_of(const struct tree_unpacker *u, const struct tar_entry *e)
{
	return (struct meta){ .mode = e->mode & 07777 & ~u->opt.mode_clear,
		.uid = e->uid,
		.gid = e->gid,
		.mtime = { .tv_sec = e->mtime_sec, .tv_nsec = e->mtime_nsec } };
}

static int owner_fail(const char *path, struct den_err *err)
{
	/* An id that does not exist here, as in a box of one id: whoever unpacks keeps it, as is
	 * usual. */
	if (errno == EINVAL)
		return 0;
	return den_fail_sys(err, errno, "set owner of '%s'", tar_show(path).s);
}

/* Owner before mode: a change of owner clears the set-id bits. */
static int meta_set(const struct tree_unpacker *u, int fd, const struct meta *m, const char *path,
	struct den_err *err)
{
	struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, m->mtime };

	if (u->opt.owner && fchown(fd, m->uid, m->gid) < 0 && owner_fail(path, err) < 0)
		return -1;
	if (fchmod(fd, m->mode) < 0)
		return den_fail_sys(err, errno, "set mode of '%s'", tar_show(path).s);
	/* a time that the file system cannot hold */
	if (futimens(fd, times) < 0 && errno != EINVAL)
		return den_fail_sys(err, errno, "set time of '%s'", tar_show(path).s);
	return 0;
}

static int meta_set_at(struct tree_unpacker *u, const char *base, const struct meta *m,
	const char *path, bool link, struct den_err *err)
{
	struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, m->mtime };

	if (u->opt.owner && fchownat(u->parent, base, m->uid, m->gid, AT_SYMLINK_NOFOLLOW) < 0 &&
		owner_fail(path, err) < 0)
		return -1;
	if (!link && fchmodat(u->parent, base, m->mode, AT_SYMLINK_NOFOLLOW) < 0)
		return den_fail_sys(err, errno, "set mode of '%s'", tar_show(path).s);
	if (utimensat(u->parent, base, times, AT_SYMLINK_NOFOLLOW) < 0 && errno != EINVAL)
		return den_fail_sys(err, errno, "set time of '%s'", tar_show(path).s);
	return 0;
}

static bool xattr_wanted(const struct tree_unpacker *u, const char *name)
{
	switch (u->opt.xattrs) {
	case TREE_XATTR_USER:
		return !strncmp(name, "user.", 5);
	case TREE_XATTR_KEPT:
		return tree_xattr_is_kept(name);
	default:
		return u->opt.xattrs == TREE_XATTR_ALL;
	}
}

static bool entry_has_xattr(const struct tar_entry *e, const char *name)
{
	for (size_t i = 0; i < e->n_xattrs; i++)
		if (!strcmp(e->xattrs[i].name, name))
			return true;
	return false;
}

/* What is there and not in the entry: of a directory from before, or come down from a default list
 * of the directory above. */
static void xattrs_drop(struct tree_unpacker *u, int fd, const struct tar_entry *e)
{
	char names[8192];
	ssize_t n = u->opt.layer ? flistxattr(fd, names, sizeof(names)) : 0;

	if (n < 0 && errno != EOPNOTSUPP)
		u->stats.lost_xattrs++;
	for (const char *name = names; n > 0 && name < names + n; name += strlen(name) + 1)
		if (xattr_wanted(u, name) && tree_xattr_is_kept(name) &&
			!entry_has_xattr(e, name) && fremovexattr(fd, name) < 0 && errno != ENODATA)
			u->stats.lost_xattrs++;
}

static void xattrs_set(struct tree_unpacker *u, int fd, const struct tar_entry *e)
{
	if (u->opt.xattrs)
		xattrs_drop(u, fd, e);
	for (size_t i = 0; u->opt.xattrs && i < e->n_xattrs; i++) {
		const struct tar_xattr *x = &e->xattrs[i];

		if (!xattr_wanted(u, x->name))
			continue;
		if (!strcmp(x->name, "security.capability") && x->len <= sizeof(u->fd_caps)) {
			memcpy(u->fd_caps, x->value, x->len);
			u->fd_caps_len = x->len;
			continue;
		}
		if (fsetxattr(fd, x->name, x->value, x->len, 0) < 0)
			u->stats.lost_xattrs++;
	}
}

/* ---- directories wait for the end ------------------------------------------------------------ */

static int by_depth(const void *va, const void *vb)
{
	const struct later *a = va, *b = vb;
	int r;

	if (a->len != b->len) /* what lies deeper has the longer path: it goes first */
		return a->len < b->len ? 1 : -1;
	r = strcmp(a->path, b->path);
	return r ? r : a->order < b->order ? -1 : 1;
}

static int later_apply(struct tree_unpacker *u, const struct later *l, struct den_err *err)
{
	const char *slash = strrchr(l->path, '/');
	auto_free char *dir = mem_strndup(l->path, slash ? (size_t)(slash - l->path) : 0);
	auto_fd parent = -1, fd = -1;
	struct den_err why = { 0 };
	struct stat st;

	parent = dir_open(u, u->root, dir, false, &why);
	if (parent >= 0)
		fd = openat(parent, slash ? slash + 1 : l->path,
			O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0) {
		int sys = parent < 0 ? why.sys : errno;

		/* Otherwise the archive put something else in its place. */
		return sys == EACCES ? den_fail_sys(err, sys, "'%s'", tar_show(l->path).s) : 0;
	}
	if (fstat(fd, &st) < 0 || st.st_dev != l->dev || st.st_ino != l->ino)
		return 0;
	return meta_set(u, fd, &l->meta, l->path, err);
}

static int later_flush(struct tree_unpacker *u, struct den_err *err)
{
	int r = 0;

	if (u->n_later)
		qsort(u->later, u->n_later, sizeof(*u->later), by_depth);
	for (size_t i = 0; i < u->n_later; i++) {
		bool again = i + 1 < u->n_later && !strcmp(u->later[i].path, u->later[i + 1].path);

		if (r == 0 && !again) /* named twice: the last one counts */
			r = later_apply(u, &u->later[i], err);
		free(u->later[i].path);
	}
	u->n_later = u->later_bytes = 0;
	return r;
}

static int later_add(struct tree_unpacker *u, const char *path, const struct stat *st,
	const struct tar_entry *e, struct den_err *err)
{
	struct later *l;

	if ((u->n_later == LATER_MAX || u->later_bytes > LATER_BYTES_MAX) &&
		later_flush(u, err) < 0)
		return -1;
	if (u->n_later == u->cap_later) {
		u->cap_later = u->cap_later ? u->cap_later * 2 : 64;
		u->later = mem_realloc(u->later, u->cap_later * sizeof(*u->later));
	}
	l = &u->later[u->n_later];
	*l = (struct later){ .path = mem_strdup(path), .len = strlen(path), .order = u->n_later,
		.dev = st->st_dev, .ino = st->st_ino, .meta = meta_of(u, e) };
	u->n_later++;
	u->later_bytes += l->len;
	return 0;
}

/* ---- one function a type --------------------------------------------------------------------- */

static int make_dir(struct tree_unpacker *u, const char *base, const char *path,
	const struct tar_entry *e, struct den_err *err)
{
	bool made = mkdirat(u->parent, base, 0700) == 0;
	auto_fd fd = -1;
	struct stat st;

	/* a layer's entry takes the place of whatever is there */
	if (!made && errno == EEXIST && u->opt.layer &&
		fstatat(u->parent, base, &st, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISDIR(st.st_mode) &&
		unlinkat(u->parent, base, 0) == 0)
		made = mkdirat(u->parent, base, 0700) == 0;
	if (!made && errno != EEXIST)
		return den_fail_sys(err, errno, "make '%s'", tar_show(path).s);
	/* A link to a directory stays: to replace it would break more than to refuse. */
	if (fstatat(u->parent, base, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return den_fail_sys(err, errno, "'%s'", tar_show(path).s);
	if (!S_ISDIR(st.st_mode))
		return den_fail(err, DEN_CONFLICT, EEXIST,
			"'%s': a directory would have to replace what is not one",
			tar_show(path).s);
	if (!made && u->opt.keep_dirs)
		return 0;
	if (u->opt.xattrs && (e->n_xattrs || u->opt.layer)) {
		fd = openat(u->parent, base,
			O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
		if (fd >= 0)
			xattrs_set(u, fd, e);
		else
			u->stats.lost_xattrs += e->n_xattrs;
	}
	return later_add(u, path, &st, e, err);
}

static int make_file(struct tree_unpacker *u, const char *base, const char *path,
	const struct tar_entry *e, struct den_err *err)
{
	int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;

	u->fd = openat(u->parent, base, flags, 0600);
	if (u->fd < 0 && errno == EEXIST) {
		if (name_free(u, base, path, err) < 0)
			return -1;
		u->fd = openat(u->parent, base, flags, 0600);
	}
	if (u->fd < 0)
		return den_fail_sys(err, errno, "create '%s'", tar_show(path).s);
	memcpy(u->fd_name, base, strlen(base) + 1); /* name_clean(): at most 255 */
	u->fd_hole = false;
	u->fd_meta = meta_of(u, e);
	u->fd_caps_len = 0;
	xattrs_set(u, u->fd, e);
	return 0;
}

static int make_link(struct tree_unpacker *u, const char *base, const char *path,
	const struct tar_entry *e, struct den_err *err)
{
	struct meta m = meta_of(u, e);

	if (name_free(u, base, path, err) < 0)
		return -1;
	if (symlinkat(e->target, u->parent, base) < 0)
		return den_fail_sys(err, errno, "make link '%s'", tar_show(path).s);
	return meta_set_at(u, base, &m, path, true, err);
}

/* It shares owner, mode and time with its target, so they are not set: that would change a file
 * that was there before. */
static int make_hardlink(struct tree_unpacker *u, const char *base, const char *path,
	const struct tar_entry *e, struct den_err *err)
{
	auto_free char *target = mem_alloc(TAR_NAME_MAX + 256 + 1);
	auto_fd dir = -1;
	struct stat st, there;
	char *slash;
	const char *name;

	if (name_clean(u, e->target, target, err) < 0)
		return den_wrap(err, "hard link '%s'", tar_show(path).s);
	slash = strrchr(target, '/');
	name = slash ? slash + 1 : target;
	if (slash)
		*slash = '\0';
	dir = dir_open(u, u->root, slash ? target : "", false, err);
	if (dir < 0)
		return den_wrap(err, "hard link '%s'", tar_show(path).s);
	if (!*name || fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return den_fail(err, DEN_INVALID, 0, "'%s': hard link to '%s', which is not there",
			tar_show(path).s, tar_show(e->target).s);
	if (S_ISDIR(st.st_mode))
		return den_fail(
			err, DEN_INVALID, 0, "'%s': hard link to a directory", tar_show(path).s);
	if (fstatat(u->parent, base, &there, AT_SYMLINK_NOFOLLOW) == 0 &&
		there.st_dev == st.st_dev && there.st_ino == st.st_ino)
		return 0; /* freeing the name could lose the file */
	if (name_free(u, base, path, err) < 0)
		return -1;
	if (linkat(dir, name, u->parent, base, 0) < 0)
		return den_fail_sys(err, errno, "make hard link '%s'", tar_show(path).s);
	return 0;
}

static int make_fifo(struct tree_unpacker *u, const char *base, const char *path,
	const struct tar_entry *e, struct den_err *err)
{
	struct meta m = meta_of(u, e);

	if (!u->opt.special) {
		u->stats.skipped++;
		return 0;
	}
	if (name_free(u, base, path, err) < 0)
		return -1;
	if (mkfifoat(u->parent, base, 0600) < 0)
		return den_fail_sys(err, errno, "make fifo '%s'", tar_show(path).s);
	return meta_set_at(u, base, &m, path, false, err);
}

static int make_nothing(struct tree_unpacker *u, const char *base, const char *path,
	const struct tar_entry *e, struct den_err *err)
{
	u->stats.skipped++;
	return 0;
}

static int (*const make[])(struct tree_unpacker *u, const char *base, const char *path,
	const struct tar_entry *e, struct den_err *err) = {
	[TAR_FILE] = make_file,	      [TAR_DIR] = make_dir,   [TAR_SYMLINK] = make_link,
	[TAR_HARDLINK] = make_hardlink, [TAR_FIFO] = make_fifo, [TAR_CHAR_DEV] = make_nothing,
	[TAR_BLOCK_DEV] = make_nothing,
};

/* ---- layers ---------------------------------------------------------------------------------- */

#define WHITEOUT ".wh."

/* Everything in the parent goes. */
static int parent_empty(struct tree_unpacker *u, struct den_err *err)
{
	int fd = openat(u->parent, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *de;

	if (!d) {
		den_fail_sys(err, errno, "empty a directory");
		fd_close(&fd);
		return -1;
	}
	while (r == 0 && (de = readdir(d)))
		if (strcmp(de->d_name, ".") && strcmp(de->d_name, ".."))
			r = tree_remove_at(fd, de->d_name, err);
	closedir(d);
	return r;
}

static int whiteout(
	struct tree_unpacker *u, const char *name, const struct tar_entry *e, struct den_err *err)
{
	u->fd = -1;
	if (e->type != TAR_FILE || e->size)
		return den_fail(err, DEN_INVALID, 0, "'%s' is no whiteout", tar_show(e->name).s);
	if (!strcmp(name, WHITEOUT ".opq"))
		return parent_empty(u, err);
	if (!*name || !strcmp(name, ".") || !strcmp(name, "..") ||
		!strncmp(name, WHITEOUT, strlen(WHITEOUT)))
		return den_fail(err, DEN_INVALID, 0, "'%s' is no whiteout", tar_show(e->name).s);
	return tree_remove_at(u->parent, name, err);
}

/* ---- the stream ------------------------------------------------------------------------------ */

static int on_entry(const struct tar_entry *e, void *user, struct den_err *err)
{
	struct tree_unpacker *u = user;
	auto_free char *path = mem_alloc(TAR_NAME_MAX + 256 + 1);
	const char *base;

	if (u->opt.max_entries && u->stats.entries >= u->opt.max_entries)
		return den_fail(err, DEN_LIMIT, 0, "more than %llu entries",
			(unsigned long long)u->opt.max_entries);
	if (u->opt.max_bytes && e->size > u->opt.max_bytes - u->stats.bytes)
		return den_fail(err, DEN_LIMIT, 0, "more than %llu bytes",
			(unsigned long long)u->opt.max_bytes);
	if (name_clean(u, e->name, path, err) < 0)
		return -1;
	u->stats.entries++;
	u->stats.bytes += e->size;
	if (!*path) /* "./": the target directory is the caller's and stays as it is */
		return e->type == TAR_DIR
			       ? 0
			       : den_fail(err, DEN_INVALID, 0, "'%s': not the name of a file",
					 tar_show(e->name).s);
	if (parent_open(u, path, &base, err) < 0)
		return -1;
	if (u->opt.layer && !strncmp(base, WHITEOUT, strlen(WHITEOUT)))
		return whiteout(u, base + strlen(WHITEOUT), e, err);
	return make[e->type](u, base, path, e, err);
}

static int on_data(const void *p, size_t n, void *user, struct den_err *err)
{
	struct tree_unpacker *u = user;

	if (fd_write_sparse(u->fd, p, n, &u->fd_hole, err) < 0)
		return den_wrap(err, "'%s'", tar_show(u->fd_name).s);
	return 0;
}

static int on_end(void *user, struct den_err *err)
{
	struct tree_unpacker *u = user;

	if (u->fd < 0)
		return 0;
	if (u->fd_hole && fd_end_sparse(u->fd, err) < 0)
		return den_wrap(err, "'%s'", tar_show(u->fd_name).s);
	if (meta_set(u, u->fd, &u->fd_meta, u->fd_name, err) < 0)
		return -1;
	if (u->fd_caps_len &&
		fsetxattr(u->fd, "security.capability", u->fd_caps, u->fd_caps_len, 0) < 0)
		u->stats.lost_xattrs++;
	fd_close(&u->fd);
	return 0;
}

struct tree_unpacker *tree_unpacker_new(int dirfd, const struct tree_unpack_opt *opt)
{
	static const struct tar_ops ops = { on_entry, on_data, on_end };
	struct tree_unpacker *u = mem_new(struct tree_unpacker);

	u->root = dirfd;
	u->opt = *opt;
	u->top = opt->top && *opt->top ? mem_strndup(opt->top, 255) : NULL;
	u->reader = tar_reader_new(&ops, u);
	u->parent = u->fd = -1;
	return u;
}

int tree_unpacker_feed(struct tree_unpacker *u, const void *p, size_t n, struct den_err *err)
{
	if (tar_reader_feed(u->reader, p, n, err) < 0)
		return den_wrap(err, "unpack");
	return 0;
}

int tree_unpacker_finish(struct tree_unpacker *u, struct den_err *err)
{
	if (tar_reader_finish(u->reader, err) < 0 || later_flush(u, err) < 0)
		return den_wrap(err, "unpack");
	for (size_t i = 0; i < u->n_sync; i++)
		if (syncfs(u->sync[i].fd) < 0)
			return den_fail_sys(err, errno, "unpack: write to disk");
	return 0;
}

const struct tree_stats *tree_unpacker_stats(const struct tree_unpacker *u)
{
	return &u->stats;
}

void tree_unpacker_free(struct tree_unpacker *u)
{
	if (!u)
		return;
	if (u->fd >= 0)
		unlinkat(u->parent, u->fd_name, 0);
	fd_close(&u->fd);
	parent_forget(u);
	for (size_t i = 0; i < u->n_later; i++)
		free(u->later[i].path);
	free(u->later);
	for (size_t i = 0; i < u->n_sync; i++)
		close(u->sync[i].fd);
	tar_reader_free(u->reader);
	free(u->top);
	free(u);
}

int tree_unpack(int dirfd, const struct tree_unpack_opt *opt, tree_source source, void *user,
	struct tree_stats *stats, struct den_err *err)
{
	const size_t cap = 128U << 10;
	auto_free char *chunk = mem_alloc(cap);
	struct tree_unpacker *u = tree_unpacker_new(dirfd, opt);
	ssize_t n;
	int r = 0;

	while (r == 0 && (n = source(chunk, cap, user, err)) != 0)
		r = n < 0 ? -1 : tree_unpacker_feed(u, chunk, (size_t)n, err);
	if (r == 0)
		r = tree_unpacker_finish(u, err);
	if (r == 0 && stats)
		*stats = u->stats;
	tree_unpacker_free(u);
	return r;
}
