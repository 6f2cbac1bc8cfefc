/*
 * The pool: what is the same for all kinds. Choosing one, names, and the order of things.
 *
 *   no pool.conf -> made       pool_create(), under pool.lock: kind chosen, image made and mounted once,
 *                              then pool.conf is written
 *   pool.conf    -> open       pool_attach(); an image under pool.lock, others without
 *
 * A crash before pool.conf leaves a whole image or "pool.img.new": the one is taken, the other made anew.
 */
#include "pool.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "fd.h"
#include "mem.h"
#include "parse.h"
#include "pool_kinds.h"

#define IMAGE_MAX (8ULL << 40) /* ext4 has files of 16 TiB at most */
#define HOST_RESERVE (32ULL << 20)
#define NAME_PARTS 3

struct conf {
	enum pool_kind kind;
	uint64_t size; /* of the image; 0: none */
};

static const char *const kind_str[] = { [POOL_BTRFS] = "btrfs", [POOL_PLAIN] = "plain" };

/* ---- settings ---- */

static int kind_parse(const char *text, enum pool_kind *ret, struct den_err *err)
{
	for (size_t i = 0; i < ARRAY_SIZE(kind_str); i++)
		if (!strcmp(text, kind_str[i])) {
			*ret = (enum pool_kind)i;
			return 0;
		}
	return den_fail(err, DEN_INVALID, 0, "'%.40s' is no kind of pool: btrfs or plain", text);
}

static int conf_line(char *line, struct conf *c, bool *have_kind, struct den_err *err)
{
	char *value = strchr(line, '=');

	if (!*line || *line == '#')
		return 0;
	if (value)
		*value++ = '\0';
	if (value && !strcmp(line, "kind")) {
		*have_kind = true;
		return kind_parse(value, &c->kind, err);
	}
	if (value && !strcmp(line, "size"))
		return strcmp(value, "0") ? parse_size(value, &c->size, err) : 0;
	return den_fail(err, DEN_INVALID, 0, "'%.40s': only kind=... and size=... are known", line);
}

/* 1: *ret set; 0: there is none. */
static int conf_read(int statefd, struct conf *ret, struct den_err *err)
{
	struct conf c = { 0 };
	char text[512], *rest = text, *line;
	bool have_kind = false;

	if (faccessat(statefd, POOL_CONF, F_OK, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT)
		return 0;
	if (file_read_at(statefd, POOL_CONF, text, sizeof(text), err) < 0)
		return -1;
	while ((line = strsep(&rest, "\n")))
		if (conf_line(line, &c, &have_kind, err) < 0)
			return den_wrap(err, POOL_CONF);
	if (!have_kind)
		return den_fail(err, DEN_INVALID, 0, POOL_CONF ": kind=... is missing");
	*ret = c;
	return 1;
}

static int conf_write(int statefd, const struct conf *c, struct den_err *err)
{
	char text[64];
	int n = snprintf(text, sizeof(text), "kind=%s\nsize=%llu\n", kind_str[c->kind],
		(unsigned long long)c->size);
	auto_fd fd = openat(statefd, POOL_CONF ".new",
		O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);

	if (fd < 0)
		return den_fail_sys(err, errno, "create '" POOL_CONF "'");
	if (fd_write_all(fd, text, (size_t)n, err) < 0)
		return den_wrap(err, POOL_CONF);
	if (fsync(fd) < 0 || renameat(statefd, POOL_CONF ".new", statefd, POOL_CONF) < 0 ||
		fsync(statefd) < 0)
		return den_fail_sys(err, errno, "write '" POOL_CONF "'");
	return 0;
}

static int conf_agrees(const struct conf *c, const struct pool_options *opt, struct den_err *err)
{
	enum pool_kind want = c->kind;

	if (opt && opt->kind && *opt->kind) {
		if (kind_parse(opt->kind, &want, err) < 0)
			return -1;
		if (want != c->kind)
			return den_fail(
				err, DEN_CONFLICT, 0, "the pool is %s already", kind_str[c->kind]);
	}
	if (opt && opt->size && c->size && opt->size != c->size)
		return den_fail(err, DEN_CONFLICT, 0,
			"the pool's image has %llu bytes already; it can be grown",
			(unsigned long long)c->size);
	return 0;
}

/* ---- making and opening ---- */

/* Extents are shared by btrfs, by most xfs and by few others; asked with two files that have no
 * name. */
static bool probe_reflink(int dirfd)
{
	auto_fd a = -1, b = -1;
	struct statfs fs;

	if (fstatfs(dirfd, &fs) < 0 || fs.f_type == EXT4_SUPER_MAGIC || fs.f_type == TMPFS_MAGIC)
		return false;
	a = openat(dirfd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	b = openat(dirfd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	return a >= 0 && b >= 0 && ioctl(a, FICLONE, b) == 0;
}

static int attach_dir(struct pool *p, struct den_err *err)
{
	if (mkdirat(p->statefd, POOL_DIR, 0700) < 0 && errno != EEXIST)
		return den_fail_sys(err, errno, "make '%s'", p->path);
	p->fd = openat(p->statefd, POOL_DIR, POOL_OPEN_DIR);
	if (p->fd < 0)
		return den_fail_sys(err, errno, "open '%s'", p->path);
	return 0;
}

static int pool_attach(
	struct pool *p, const char *state_path, const struct conf *c, int lock, struct den_err *err)
{
	p->kind = c->kind;
	p->image = c->size != 0;
	p->ops = p->kind == POOL_BTRFS ? &pool_btrfs : &pool_plain;
	if (p->image)
		return pool_image_mount(p, state_path, lock, err);
	if (attach_dir(p, err) < 0)
		return -1;
	if (p->kind == POOL_BTRFS && !pool_is_btrfs(p->fd))
		return den_fail(err, DEN_CONFLICT, 0,
			"'" POOL_CONF "' says btrfs, but '%.150s' is on another file system",
			p->path);
	p->reflink = p->kind == POOL_PLAIN && probe_reflink(p->fd);
	return 0;
}

/* The size that an image gets: what is asked for, else four fifths of what is free. */
static int image_size(int statefd, uint64_t asked, bool must, uint64_t *ret, struct den_err *err)
{
	struct statvfs fs;
	uint64_t size = asked;

	if (asked && (asked < POOL_IMAGE_MIN || asked > IMAGE_MAX))
		return den_fail(err, DEN_INVALID, 0, "the pool's image may have 256 MiB to 8 TiB");
	if (!asked) {
		if (fstatvfs(statefd, &fs) < 0)
			return den_fail_sys(err, errno, "ask for free space");
		size = (uint64_t)fs.f_bavail * fs.f_frsize / 5 * 4;
		if (size < (must ? POOL_IMAGE_MIN : POOL_IMAGE_AUTO))
			return den_fail(err, DEN_UNSUPPORTED, 0,
				"too little space is free for a btrfs image");
		size = MIN(size, IMAGE_MAX);
	}
	*ret = size & ~((1ULL << 20) - 1);
	return 0;
}

/* Subvolumes right in the state directory, or an image with them; mounted or opened already on
 * success. */
static int create_btrfs(struct pool *p, const char *state_path, const struct pool_options *opt,
	bool must, int lock, struct conf *ret, struct den_err *err)
{
	struct conf c = { .kind = POOL_BTRFS };
	struct stat st;
	bool found;

	if (geteuid() != 0)
		return den_fail(err, DEN_UNSUPPORTED, 0, "a btrfs pool needs root");
	found = fstatat(p->statefd, POOL_IMAGE, &st, AT_SYMLINK_NOFOLLOW) == 0;
	if (!found && pool_is_btrfs(p->statefd)) {
		if (pool_btrfs_probe(p->statefd, err) < 0 ||
			pool_attach(p, state_path, &c, lock, err) < 0)
			return -1;
		*ret = c;
		return 0;
	}
	if (pool_image_probe(err) < 0)
		return -1;
	/* whole, since it has its name: a crash came before pool.conf */
	if (found)
		c.size = (uint64_t)st.st_size;
	else if (image_size(p->statefd, opt ? opt->size : 0, must, &c.size, err) < 0 ||
		 pool_image_make(p->statefd, c.size, err) < 0)
		return -1;
	if (pool_attach(p, state_path, &c, lock, err) < 0) {
		if (!found)
			unlinkat(p->statefd, POOL_IMAGE, 0);
		return -1;
	}
	if (!found)
		pool_btrfs_prepare(p->fd);
	(void)pool_room_keep(p);
	*ret = c;
	return 0;
}

static int pool_create(struct pool *p, const char *state_path, const struct pool_options *opt,
	int lock, struct den_err *err)
{
	bool must = opt && opt->kind && *opt->kind;
	enum pool_kind want = POOL_BTRFS;
	struct conf c = { .kind = POOL_PLAIN };
	struct den_err why; /* not btrfs */

	if (must && kind_parse(opt->kind, &want, err) < 0)
		return -1;
	if (want == POOL_BTRFS) {
		if (create_btrfs(p, state_path, opt, must, lock, &c, &why) == 0)
			return conf_write(p->statefd, &c, err);
		if (faccessat(p->statefd, POOL_IMAGE, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
			den_wrap(&why, "there is a '" POOL_IMAGE "' that cannot be used");
		/* What will not be there tomorrow either; a busy device or a full disk is no
		 * reason. */
		else if (!must && (why.code == DEN_UNSUPPORTED || why.code == DEN_DENIED))
			want = POOL_PLAIN;
		if (want == POOL_BTRFS) {
			if (err)
				*err = why;
			return -1;
		}
	}
	if (pool_attach(p, state_path, &c, lock, err) < 0)
		return -1;
	return conf_write(p->statefd, &c, err);
}

static int lock_take(int statefd, struct den_err *err)
{
	auto_fd fd = openat(statefd, POOL_LOCK, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);

	if (fd < 0)
		return den_fail_sys(err, errno, "open '" POOL_LOCK "'");
	while (flock(fd, LOCK_EX) < 0)
		if (errno != EINTR)
			return den_fail_sys(err, errno, "lock '" POOL_LOCK "'");
	return fd_take(&fd);
}

static int open_locked(
	struct pool *p, const char *state_path, const struct pool_options *opt, struct den_err *err)
{
	struct conf c;
	int r = conf_read(p->statefd, &c, err);
	auto_fd lock = -1;

	if (r < 0)
		return -1;
	if (!r || c.size) {
		lock = lock_take(p->statefd, err);
		if (lock < 0)
			return -1;
	}
	if (!r) { /* another may have made it while we waited */
		r = conf_read(p->statefd, &c, err);
		if (r < 0)
			return -1;
	}
	if (!r)
		return pool_create(p, state_path, opt, lock, err);
	if (conf_agrees(&c, opt, err) < 0)
		return -1;
	return pool_attach(p, state_path, &c, lock, err);
}

int pool_open(int statefd, const char *state_path, const struct pool_options *opt,
	struct pool **ret, struct den_err *err)
{
	struct pool *p = mem_new(struct pool);
	auto_buf path = { 0 };

	buf_addf(&path, "%s/" POOL_DIR, state_path);
	p->fd = -1;
	p->path = mem_strdup(buf_str(&path));
	p->statefd = fcntl(statefd, F_DUPFD_CLOEXEC, 3);
	if (p->statefd < 0) {
		den_fail_sys(err, errno, "state directory");
	} else if (open_locked(p, state_path, opt, err) == 0) {
		(void)pool_room(p);
		*ret = p;
		return 0;
	}
	pool_close(p);
	return den_wrap(err, "pool");
}

void pool_close(struct pool *p)
{
	if (!p)
		return;
	fd_close(&p->fd);
	fd_close(&p->statefd);
	/* A forked child has the namespace in common with its parent, who still needs the mount. */
	if (p->mounter && p->mounter == getpid())
		umount2(p->path, MNT_DETACH | UMOUNT_NOFOLLOW);
	free(p->path);
	free(p);
}

bool pool_exists(int statefd)
{
	return faccessat(statefd, POOL_CONF, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/* ---- names ---- */

int pool_temp_name(const char *prefix, char out[static 32], struct den_err *err)
{
	uint64_t r;

	if (getrandom(&r, sizeof(r), 0) != sizeof(r))
		return den_fail_sys(err, errno, "getrandom");
	snprintf(out, 32, "%s%016llx", prefix, (unsigned long long)r);
	return 0;
}

int pool_rename_new(int from_dir, const char *from, int to_dir, const char *to)
{
	if (renameat2(from_dir, from, to_dir, to, RENAME_NOREPLACE) == 0)
		return 0;
	if (errno != EINVAL)
		return -1;
	if (faccessat(to_dir, to, F_OK, AT_SYMLINK_NOFOLLOW) == 0) {
		errno = EEXIST;
		return -1;
	}
	return renameat(from_dir, from, to_dir, to);
}

static int name_check(const char *name, struct den_err *err)
{
	const char *p = name;

	for (int part = 0; part < NAME_PARTS; part++) {
		size_t n = strcspn(p, "/");

		if (n == 0 || n > 200 || (n == 1 && p[0] == '.') ||
			(n == 2 && p[0] == '.' && p[1] == '.'))
			break;
		if (!p[n])
			return 0;
		p += n + 1;
	}
	return den_fail(err, DEN_INVALID, 0, "'%.80s' is no name in the pool", name);
}

int pool_spot_find(
	struct pool *p, const char *name, bool create, struct pool_spot *ret, struct den_err *err)
{
	auto_fd dir = fcntl(p->fd, F_DUPFD_CLOEXEC, 3);
	const char *at = name, *slash;
	bool made = false;

	if (name_check(name, err) < 0)
		return -1;
	if (dir < 0)
		return den_fail_sys(err, errno, "pool");
	for (; (slash = strchr(at, '/')); at = slash + 1) {
		char part[256];
		int next;

		snprintf(part, sizeof(part), "%.*s", (int)(slash - at), at);
		if (create && mkdirat(dir, part, 0700) == 0) {
			made = true;
			if (p->kind == POOL_PLAIN &&
				fsync(dir) < 0) /* btrfs: with the layer's transaction */
				return den_fail_sys(err, errno, "make '%s'", part);
		} else if (create && errno != EEXIST) {
			return den_fail_sys(err, errno, "make '%s'", part);
		}
		next = openat(dir, part, POOL_OPEN_DIR);
		if (next < 0)
			return den_fail_sys(err, errno, "open '%s' in the pool", part);
		fd_close(&dir);
		dir = next;
	}
	*ret = (struct pool_spot){ .dirfd = fd_take(&dir), .made = made };
	snprintf(ret->name, sizeof(ret->name), "%s", at);
	return 0;
}

/* What was made on the way to something that then failed. */
static void spot_undo(struct pool *p, const char *name, const struct pool_spot *s)
{
	auto_free char *dir = mem_strdup(name);
	char *slash = strrchr(dir, '/');

	if (!s->made || !slash)
		return;
	*slash = '\0';
	unlinkat(p->fd, dir, AT_REMOVEDIR); /* only if nobody else put something in */
}

static bool name_is(struct pool *p, const char *name, int fd)
{
	struct stat a, b;

	return fstat(fd, &a) == 0 && fstatat(p->fd, name, &b, AT_SYMLINK_NOFOLLOW) == 0 &&
	       a.st_ino == b.st_ino && a.st_dev == b.st_dev;
}

/* A tree that is read while it is being removed looks like one that lacks what is gone already. */
int pool_hold(struct pool *p, const char *name, int *ret_hold, struct den_err *err)
{
	auto_free char *above = mem_strdup(name);
	char *slash = strrchr(above, '/');
	auto_fd dir = -1, fd = -1;

	if (name_check(name, err) < 0)
		return -1;
	if (slash) {
		*slash = '\0';
		dir = openat(p->fd, above, POOL_OPEN_DIR);
	}
	fd = openat(p->fd, name, POOL_OPEN_DIR);
	if (fd < 0)
		return den_fail_sys(err, errno, "open '%s' in the pool", name);
	if ((dir >= 0 && flock(dir, LOCK_SH | LOCK_NB) < 0) || flock(fd, LOCK_SH | LOCK_NB) < 0 ||
		!name_is(p, name, fd))
		return den_fail(err, DEN_NOT_FOUND, ENOENT, "'%s' is just being removed", name);
	*ret_hold = fd_take(&dir);
	return fd_take(&fd);
}

static int layer_open(struct pool *p, const char *name, struct den_err *err)
{
	int fd;

	if (name_check(name, err) < 0)
		return -1;
	fd = openat(p->fd, name, POOL_OPEN_DIR);
	return fd < 0 ? den_fail_sys(err, errno, "open '%s' in the pool", name) : fd;
}

/* An image is sparse: where the host has no blocks left, btrfs meets an error from its disk in the
 * middle of a transaction and stops writing altogether. So nothing is begun that close to the
 * end. */
static bool host_has_room(struct pool *p)
{
	struct statvfs fs;

	return fstatvfs(p->statefd, &fs) < 0 || (uint64_t)fs.f_bavail * fs.f_frsize >= HOST_RESERVE;
}

int pool_has_room(struct pool *p, struct den_err *err)
{
	if (!p->image || host_has_room(p))
		return 0;
	pool_reclaim(p); /* something may have been removed this very moment */
	if (host_has_room(p))
		return 0;
	return den_fail(err, DEN_LIMIT, ENOSPC,
		"the disk below the pool is full; remove boxes ('den rm'), checkpoints ('den "
		"prune') or "
		"other files on it, then run 'den gc'");
}

int pool_explain(struct pool *p, struct den_err *err)
{
	struct statvfs fs;

	if (p->kind == POOL_BTRFS && fstatvfs(p->fd, &fs) == 0 && fs.f_flag & ST_RDONLY)
		return den_fail(err, DEN_INTERNAL, EROFS,
			"the pool has stopped writing: its disk was full or failed; see to that, "
			"then stop all "
			"boxes that are in it");
	return -1;
}

/* ---- layers ---- */

int pool_make(struct pool *p, const char *name, struct den_err *err)
{
	auto_spot at = { .dirfd = -1 };

	if (pool_has_room(p, err) < 0 || pool_spot_find(p, name, true, &at, err) < 0)
		return den_wrap(err, "make layer '%s'", name);
	if (p->ops->make(p, &at, err) < 0) {
		spot_undo(p, name, &at);
		pool_explain(p, err);
		return den_wrap(err, "make layer '%s'", name);
	}
	return 0;
}

int pool_snapshot(struct pool *p, const char *from, const char *like, const char *to, bool readonly,
	struct den_err *err)
{
	struct pool_source src = { .fd = -1, .name = from }, old = { .fd = -1, .name = like };
	auto_spot at = { .dirfd = -1 };
	auto_fd hold = -1;
	int r = -1;

	src.fd = pool_hold(p, from, &hold, err);
	if (src.fd >= 0 && like && name_check(like, err) == 0)
		old.fd = openat(p->fd, like, POOL_OPEN_DIR);
	if (src.fd >= 0 && pool_has_room(p, err) == 0 &&
		pool_spot_find(p, to, true, &at, err) == 0) {
		r = p->ops->snapshot(p, &src, &old, &at, readonly, err);
		if (r < 0) {
			spot_undo(p, to, &at);
			pool_explain(p, err);
		}
	}
	fd_close(&src.fd);
	fd_close(&old.fd);
	return r < 0 ? den_wrap(err, "copy '%s' to '%s'", from, to) : 0;
}

int pool_rename(struct pool *p, const char *from, const char *to, struct den_err *err)
{
	auto_spot a = { .dirfd = -1 }, b = { .dirfd = -1 };
	int r = -1;

	if (pool_spot_find(p, from, false, &a, err) == 0 &&
		pool_spot_find(p, to, true, &b, err) == 0) {
		r = p->ops->rename(p, &a, &b, err);
		if (r < 0) {
			spot_undo(p, to, &b);
			pool_explain(p, err);
		}
	}
	return r < 0 ? den_wrap(err, "rename '%s' to '%s'", from, to) : 0;
}

int pool_seal(struct pool *p, const char *name, struct den_err *err)
{
	auto_fd fd = layer_open(p, name, err);

	if (fd < 0 || p->ops->seal(p, fd, err) < 0)
		return den_wrap(err, "seal '%s'", name);
	return 0;
}

int pool_differs(struct pool *p, const char *a, const char *b, struct den_err *err)
{
	auto_fd fa = layer_open(p, a, err), fb = -1;

	if (fa < 0)
		return -1;
	fb = layer_open(p, b, err);
	return fb < 0 ? -1 : p->ops->differs(p, fa, fb, err);
}

/* ---- space ---- */

int pool_info(struct pool *p, int statefd, struct pool_info *ret, struct den_err *err)
{
	struct pool_info info = { .kind = p->kind, .image = p->image, .reflink = p->reflink };
	struct statvfs fs, host;
	struct stat st;

	if (fstatvfs(p->fd, &fs) < 0 || fstatvfs(statefd, &host) < 0)
		return den_fail_sys(err, errno, "ask for the pool's space");
	info.size = (uint64_t)fs.f_blocks * fs.f_frsize;
	info.used = (uint64_t)(fs.f_blocks - fs.f_bfree) * fs.f_frsize;
	info.avail = (uint64_t)fs.f_bavail * fs.f_frsize;
	info.host_avail = (uint64_t)host.f_bavail * host.f_frsize;
	if (p->image) {
		if (fstatat(statefd, POOL_IMAGE, &st, AT_SYMLINK_NOFOLLOW) < 0)
			return den_fail_sys(err, errno, "'" POOL_IMAGE "'");
		info.image_blocks = (uint64_t)st.st_blocks * 512;
	}
	*ret = info;
	return 0;
}

int pool_grow(struct pool *p, int statefd, uint64_t size, struct den_err *err)
{
	struct conf c = { .kind = p->kind };
	auto_fd lock = -1;
	struct stat st;

	if (!p->image)
		return den_fail(err, DEN_UNSUPPORTED, 0,
			"this pool has no image: it is as large as the file system it is on");
	lock = lock_take(statefd, err);
	if (lock < 0)
		return -1;
	if (fstatat(statefd, POOL_IMAGE, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return den_fail_sys(err, errno, "'" POOL_IMAGE "'");
	size &= ~((1ULL << 20) - 1);
	if (size < (uint64_t)st.st_size || size > IMAGE_MAX)
		return den_fail(err, DEN_INVALID, 0,
			"the pool's image has %llu bytes; it may grow up to 8 TiB",
			(unsigned long long)st.st_size);
	if (pool_image_resize(p, lock, size, err) < 0)
		return den_wrap(err, "grow the pool");
	c.size = size;
	return conf_write(statefd, &c, err);
}

int pool_trim(struct pool *p, struct den_err *err)
{
	int r = p->image ? pool_btrfs_trim(p->fd, err) : 0;

	(void)pool_room_keep(p); /* what the trees do not use just now went, too */
	pool_reclaim(p);
	return r;
}
