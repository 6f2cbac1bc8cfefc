/*
 * A layer as a tree of files: its digest, and how an unpacked image layer becomes one.
 *
 * Theory of operation. Whatever is in the tree was made by a box or by a stranger's archive. Both
 * halves go through walk.h, so they stay beneath the directory they were given, follow no link, and
 * hold a bounded number of descriptors at any depth. Only what an O_PATH descriptor has shown to be
 * a regular file is opened for reading: opening a fifo may hang, opening a device may do anything.
 * Attributes are read through /proc/self/fd/N/NAME, which needs no opening at all.
 *
 * What goes into the digest, in this order, all numbers as 64 bits little-endian and all strings
 * with their length before them, so that no two trees give the same bytes:
 *   an entry     type, name, mode, owner, group; then by type: size and the content's own digest;
 *                target; device number; then the attributes, sorted
 *   a whiteout   'w' and its name: who made it, and with which mode, means nothing
 *   a directory  an entry, what is in it in byte order, 'u'
 * A content's digest leaves out chunks that are all zero (each other one comes with its place), so
 * that a hole of many terabytes costs nothing, and is the same as zeros on disk.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

#include "fd.h"
#include "image.h"
#include "mem.h"
#include "sha256.h"
#include "tar.h"
#include "walk.h"

#define CHUNK (64U << 10)
#define ATTR_MAX 65536U /* the kernel's own bounds of a list and of a value */
#define LINK_SLOTS 4096U
#define OPAQUE "user.overlay.opaque"

/* The content of a file with several names, so that it is read once. A slot is taken over by the
 * next file that falls on it: what is lost is time. */
struct link_slot {
	dev_t dev;
	ino_t ino;
	uint8_t sum[32];
};

struct digest {
	struct sha256 sha;
	uint64_t bytes;
	struct link_slot *links; /* LINK_SLOTS; NULL until there is such a file */
	char names[ATTR_MAX];
	uint8_t data[MAX(CHUNK, ATTR_MAX)];
};

struct proc_name {
	char s[32 + NAME_MAX + 1];
};

/* The entry itself: for calls of the l...() kind, which do not follow a last link. */
static struct proc_name proc_name(int dirfd, const char *name)
{
	struct proc_name p;

	snprintf(p.s, sizeof(p.s), "/proc/self/fd/%d/%s", dirfd, name);
	return p;
}

static bool is_whiteout(const struct stat *st)
{
	return S_ISCHR(st->st_mode) && st->st_rdev == makedev(0, 0);
}

/* ---- digest ---- */

static void put_u64(struct sha256 *s, uint64_t v)
{
	uint8_t b[8];

	for (int i = 0; i < 8; i++)
		b[i] = (uint8_t)(v >> 8 * i);
	sha256_add(s, b, sizeof(b));
}

static void put_bytes(struct sha256 *s, const void *p, size_t n)
{
	put_u64(s, n);
	sha256_add(s, p, n);
}

/* Those that are a part of the file wherever it is. What belongs to one machine or one file system
 * (security labels, btrfs properties) would make the same tree another one elsewhere, and trusted.*
 * is seen by some readers only. */
static bool attr_counts(const char *name)
{
	static const char overlay[] = "user.overlay.", nested[] = "user.overlay.overlay.";

	if (!strncmp(name, overlay, strlen(overlay)))
		return !strncmp(name, nested, strlen(nested)) || !strcmp(name, OPAQUE) ||
			!strcmp(name, "user.overlay.whiteout");
	return !strncmp(name, "user.", 5) || !strcmp(name, "security.capability") ||
	       !strcmp(name, "system.posix_acl_access") ||
	       !strcmp(name, "system.posix_acl_default");
}

/* Capabilities of a file may name the root user of the namespace they count in, and whether they do
 * depends on who looks. That number goes. Returns the length that counts. */
static size_t capability_normalize(uint8_t *p, size_t n)
{
	if (n != 24 || p[3] != 3) /* not VFS_CAP_REVISION_3 */
		return n;
	p[3] = 2;
	return 20;
}

static int attr_add(struct digest *d, const char *path, const char *name, struct den_err *err)
{
	ssize_t n = lgetxattr(path, name, d->data, ATTR_MAX);

	if (n < 0 && errno != EOVERFLOW) /* capabilities of a namespace that is not ours to see */
		return den_fail_sys(err, errno, "read attribute '%s'", tar_show(name).s);
	n = MAX(n, 0);
	if (!strcmp(name, "security.capability"))
		n = (ssize_t)capability_normalize(d->data, (size_t)n);
	put_bytes(&d->sha, name, strlen(name));
	put_bytes(&d->sha, d->data, (size_t)n);
	return 0;
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int attrs_add(struct digest *d, int dirfd, const char *name, struct den_err *err)
{
	struct proc_name path = proc_name(dirfd, name);
	ssize_t n = llistxattr(path.s, d->names, sizeof(d->names));
	auto_free const char **list = NULL;
	size_t count = 0;

	if (n < 0 && errno != ENOTSUP)
		return den_fail_sys(err, errno, "list attributes");
	if (n > 0)
		list = mem_alloc((size_t)n * sizeof(*list));
	for (const char *p = d->names; n > 0 && p < d->names + n; p += strlen(p) + 1)
		if (attr_counts(p))
			list[count++] = p;
	if (count)
		qsort(list, count, sizeof(*list), by_text);
	put_u64(&d->sha, count);
	for (size_t i = 0; i < count; i++)
		if (attr_add(d, path.s, list[i], err) < 0)
			return -1;
	return 0;
}

/* Opens what is a regular file, and nothing else even for a moment. */
static int file_open(int dirfd, const char *name, struct stat *ret_st, struct den_err *err)
{
	auto_fd path = openat(dirfd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	char self[32];
	int fd;

	if (path < 0 || fstat(path, ret_st) < 0)
		return den_fail_sys(err, errno, "open");
	if (!S_ISREG(ret_st->st_mode))
		return den_fail(err, DEN_CONFLICT, 0, "it was replaced while it was being read");
	snprintf(self, sizeof(self), "/proc/self/fd/%d", path);
	fd = open(self, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	return fd < 0 ? den_fail_sys(err, errno, "open") : fd;
}

static bool is_zero(const uint8_t *p, size_t n)
{
	return p[0] == 0 && !memcmp(p, p + 1, n - 1);
}

static int chunk_read(int fd, uint8_t *p, size_t n, uint64_t at, struct den_err *err)
{
	while (n) {
		ssize_t r = pread(fd, p, n, (off_t)at);

		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0)
			return den_fail_sys(err, errno, "read");
		if (r == 0)
			return den_fail(
				err, DEN_CONFLICT, 0, "it became shorter while it was being read");
		p += r;
		n -= (size_t)r;
		at += (uint64_t)r;
	}
	return 0;
}

static int content_digest(
	struct digest *d, int fd, uint64_t size, uint8_t sum[static 32], struct den_err *err)
{
	struct sha256 sha;

	sha256_init(&sha);
	for (uint64_t at = 0; at < size;) {
		size_t n = (size_t)MIN(size - at, (uint64_t)CHUNK);

		if (chunk_read(fd, d->data, n, at, err) < 0)
			return -1;
		if (is_zero(d->data, n)) {
			off_t next = lseek(fd, (off_t)(at + n), SEEK_DATA);

			if (next < 0 && errno == ENXIO)
				break; /* nothing but holes, or the end */
			at += n;
			if (next > 0)
				at = MAX(at, (uint64_t)next / CHUNK * CHUNK);
			continue;
		}
		put_u64(&sha, at);
		sha256_add(&sha, d->data, n);
		d->bytes += n;
		at += n;
	}
	sha256_end(&sha, sum);
	return 0;
}

static struct link_slot *link_slot(struct digest *d, const struct stat *st)
{
	uint64_t h = ((uint64_t)st->st_ino ^ (uint64_t)st->st_dev << 40) * 0x9e3779b97f4a7c15ULL;

	if (!d->links)
		d->links = mem_zalloc(LINK_SLOTS * sizeof(*d->links));
	return &d->links[h % LINK_SLOTS];
}

static int file_add(struct digest *d, int fd, const struct stat *st, struct den_err *err)
{
	struct link_slot *slot = st->st_nlink > 1 ? link_slot(d, st) : NULL;
	uint8_t sum[32];

	if (slot && slot->ino == st->st_ino && slot->dev == st->st_dev)
		memcpy(sum, slot->sum, sizeof(sum));
	else if (content_digest(d, fd, (uint64_t)st->st_size, sum, err) < 0)
		return -1;
	if (slot) {
		*slot = (struct link_slot){ .dev = st->st_dev, .ino = st->st_ino };
		memcpy(slot->sum, sum, sizeof(sum));
	}
	put_u64(&d->sha, (uint64_t)st->st_size);
	sha256_add(&d->sha, sum, sizeof(sum));
	return 0;
}

static int target_add(struct digest *d, int dirfd, const char *name, struct den_err *err)
{
	char target[PATH_MAX + 1];
	ssize_t n = readlinkat(dirfd, name, target, sizeof(target));

	if (n < 0)
		return den_fail_sys(err, errno, "read link");
	put_bytes(&d->sha, target, (size_t)n);
	return 0;
}

static void head_add(struct digest *d, char type, const char *name, const struct stat *st)
{
	sha256_add(&d->sha, &type, 1);
	put_bytes(&d->sha, name, strlen(name));
	put_u64(&d->sha, st->st_mode & 07777);
	put_u64(&d->sha, st->st_uid);
	put_u64(&d->sha, st->st_gid);
}

static int regular_add(struct digest *d, int dirfd, const char *name, struct den_err *err)
{
	struct stat st;
	auto_fd fd = file_open(dirfd, name, &st, err);

	if (fd < 0)
		return -1;
	head_add(d, 'f', name, &st);
	return file_add(d, fd, &st, err);
}

static int entry_add(
	struct digest *d, int dirfd, const char *name, const struct stat *st, struct den_err *err)
{
	int r = 0;

	if (is_whiteout(st)) {
		sha256_add(&d->sha, "w", 1);
		put_bytes(&d->sha, name, strlen(name));
		return 0;
	}
	switch (st->st_mode & S_IFMT) {
	case S_IFREG:
		r = regular_add(d, dirfd, name, err);
		break;
	case S_IFDIR:
		head_add(d, 'd', name, st);
		break;
	case S_IFLNK:
		head_add(d, 'l', name, st);
		r = target_add(d, dirfd, name, err);
		break;
	case S_IFCHR:
	case S_IFBLK:
		head_add(d, S_ISCHR(st->st_mode) ? 'c' : 'b', name, st);
		put_u64(&d->sha, major(st->st_rdev));
		put_u64(&d->sha, minor(st->st_rdev));
		break;
	default:
		head_add(d, S_ISFIFO(st->st_mode) ? 'p' : 's', name, st);
	}
	return r < 0 ? -1 : attrs_add(d, dirfd, name, err);
}

static int tree_add(struct digest *d, struct walk *w, struct den_err *err)
{
	struct walk_entry e;
	int r;

	while ((r = walk_next(w, &e, err)) > 0) {
		if (r == WALK_LEAVE)
			sha256_add(&d->sha, "u", 1);
		else if (entry_add(d, e.dirfd, e.name, &e.st, err) < 0)
			return den_wrap(err, "'%s'", tar_show(e.path).s);
	}
	return r;
}

/* The directory again, with a place of its own to read from. */
static int walk_of(int dirfd, struct stat *ret_st, struct walk **ret, struct den_err *err)
{
	int fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0 || fstat(fd, ret_st) < 0) {
		den_fail_sys(err, errno, "open layer");
		fd_close(&fd);
		return -1;
	}
	return walk_new(fd, 0, WALK_LEAVES, ret, err);
}

int layer_digest(int dirfd, char ret_hex[static 65], uint64_t *ret_bytes, struct den_err *err)
{
	auto_free struct digest *d = mem_new(struct digest);
	struct walk *w = NULL;
	struct stat st;
	int r;

	sha256_init(&d->sha);
	sha256_add(&d->sha, "den layer 1\n", 12);
	r = walk_of(dirfd, &st, &w, err);
	if (r == 0)
		r = entry_add(d, dirfd, ".", &st, err);
	if (r == 0)
		r = tree_add(d, w, err);
	walk_free(w);
	free(d->links);
	if (r < 0)
		return den_wrap(err, "digest of a layer");
	sha256_hex(&d->sha, ret_hex);
	if (ret_bytes)
		*ret_bytes = d->bytes;
	return 0;
}

/* ---- from an unpacked archive to a layer ---- */

/* What the unpacking box's overlayfs wrote down for itself. What is nested
 * ("user.overlay.overlay.*") is what the archive itself said, escaped: content like any other. */
static bool attr_is_private(const char *name)
{
	return (!strncmp(name, "user.overlay.", 13) &&
		       strncmp(name, "user.overlay.overlay.", 21)) ||
	       !strncmp(name, "trusted.overlay.", 16);
}

static int attrs_strip(int dirfd, const char *name, char *names, struct den_err *err)
{
	struct proc_name path = proc_name(dirfd, name);
	ssize_t n = llistxattr(path.s, names, ATTR_MAX);

	if (n < 0 && errno != ENOTSUP)
		return den_fail_sys(err, errno, "list attributes");
	for (const char *p = names; n > 0 && p < names + n; p += strlen(p) + 1)
		if (attr_is_private(p) && lremovexattr(path.s, p) < 0 && errno != ENODATA)
			return den_fail_sys(err, errno, "remove attribute '%s'", tar_show(p).s);
	return 0;
}

/* The first pass: nothing that overlayfs made stays. */
static int entry_strip(struct walk *w, const struct walk_entry *e, void *names, struct den_err *err)
{
	(void)w;
	if (!is_whiteout(&e->st))
		return attrs_strip(e->dirfd, e->name, names, err);
	if (unlinkat(e->dirfd, e->name, 0) < 0 && errno != ENOENT)
		return den_fail_sys(err, errno, "remove");
	return 0;
}

/* What the marker hides is gone from the layers below. Something of that name in this layer stays;
 * a directory then begins empty. */
static int hide(int dirfd, const char *name, struct den_err *err)
{
	struct proc_name path = proc_name(dirfd, name);
	struct stat st;

	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
		if (S_ISDIR(st.st_mode) && lsetxattr(path.s, OPAQUE, "y", 1, 0) < 0)
			return den_fail_sys(err, errno, "mark directory");
		return 0;
	}
	if (errno != ENOENT || mknodat(dirfd, name, S_IFCHR, makedev(0, 0)) < 0)
		return den_fail_sys(err, errno, "make whiteout");
	return 0;
}

/* The second pass: markers become what they mean. Whiteouts made here have names that the walk did
 * not read, so it does not meet them. */
static int entry_mark(struct walk *w, const struct walk_entry *e, void *user, struct den_err *err)
{
	const char *hidden = e->name + 4;
	bool opaque = !strcmp(e->name, ".wh..wh..opq");

	(void)user;
	if (strncmp(e->name, ".wh.", 4) != 0)
		return 0;
	/* aufs's own, in old archives: means nothing */
	if (!opaque && !strncmp(hidden, ".wh.", 4)) {
		if (S_ISDIR(e->st.st_mode))
			walk_skip(w);
		return tree_remove_at(e->dirfd, e->name, err);
	}
	if (!*hidden || !strcmp(hidden, ".") || !strcmp(hidden, ".."))
		return den_fail(err, DEN_INVALID, 0, "a whiteout of nothing");
	if (!S_ISREG(e->st.st_mode))
		return den_fail(err, DEN_INVALID, 0, "a whiteout that is not a file");
	if (unlinkat(e->dirfd, e->name, 0) < 0)
		return den_fail_sys(err, errno, "remove marker");
	if (!opaque)
		return hide(e->dirfd, hidden, err);
	if (fsetxattr(e->dirfd, OPAQUE, "y", 1, 0) < 0)
		return den_fail_sys(err, errno, "mark directory");
	return 0;
}

/* Directories keep the time that the archive gave them, although names in them changed. */
static int times_keep(int dirfd, const char *name, const struct stat *was, struct den_err *err)
{
	struct timespec ts[2] = { was->st_atim, was->st_mtim };
	struct stat st;

	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
		st.st_mtim.tv_sec == was->st_mtim.tv_sec &&
		st.st_mtim.tv_nsec == was->st_mtim.tv_nsec)
		return 0;
	if (utimensat(dirfd, name, ts, AT_SYMLINK_NOFOLLOW) < 0 && errno != ENOENT)
		return den_fail_sys(err, errno, "set time");
	return 0;
}

typedef int (*entry_fn)(
	struct walk *w, const struct walk_entry *e, void *user, struct den_err *err);

static int pass(int dirfd, entry_fn fn, void *user, struct den_err *err)
{
	struct walk *w = NULL;
	struct walk_entry e;
	struct stat top;
	int r = walk_of(dirfd, &top, &w, err);

	while (r == 0 && (r = walk_next(w, &e, err)) > 0) {
		r = r == WALK_LEAVE ? times_keep(e.dirfd, e.name, &e.st, err)
				    : fn(w, &e, user, err);
		if (r < 0)
			den_wrap(err, "'%s'", tar_show(e.path).s);
	}
	walk_free(w);
	return r < 0 ? -1 : times_keep(dirfd, ".", &top, err);
}

int layer_convert(int dirfd, struct den_err *err)
{
	auto_free char *names = mem_alloc(ATTR_MAX);

	if (attrs_strip(dirfd, ".", names, err) < 0 || pass(dirfd, entry_strip, names, err) < 0 ||
		pass(dirfd, entry_mark, NULL, err) < 0)
		return den_wrap(err, "convert layer");
	return 0;
}
