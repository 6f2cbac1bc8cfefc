#include "change.h"

#include <errno.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "change_parts.h"
#include "fd.h"
#include "mem.h"
#include "tar.h"

#define CHUNK (128U << 10)
#define EXTENTS 256U
#define EXTENTS_FROM 8192 /* bytes: smaller files are as quickly read */

char node_type(const struct view_node *n)
{
	if (!n->there)
		return 0;
	switch (n->st.st_mode & S_IFMT) {
	case S_IFREG:
		return 'f';
	case S_IFDIR:
		return 'd';
	case S_IFLNK:
		return 'l';
	case S_IFIFO:
		return 'p';
	case S_IFSOCK:
		return 's';
	case S_IFCHR:
		return 'c';
	default:
		return 'b';
	}
}

/* ---- attributes ------------------------------------------------------------------------------ */

bool xattr_is_kept(const char *name)
{
	return tree_xattr_is_kept(name);
}

static int by_xattr_name(const void *a, const void *b)
{
	return strcmp(((const struct tar_xattr *)a)->name, ((const struct tar_xattr *)b)->name);
}

/* What could not be read is not equal: nobody knows. */
static bool xattrs_equal(int fd_a, int fd_b)
{
	struct tree_attrs *a = mem_new(struct tree_attrs), *b = mem_new(struct tree_attrs);
	uint64_t lost = 0;
	bool equal;

	tree_attrs_read(fd_a, xattr_is_kept, a, &lost);
	tree_attrs_read(fd_b, xattr_is_kept, b, &lost);
	equal = !lost && a->n == b->n;
	if (equal) {
		qsort(a->list, a->n, sizeof(a->list[0]), by_xattr_name);
		qsort(b->list, b->n, sizeof(b->list[0]), by_xattr_name);
	}
	for (size_t i = 0; equal && i < a->n; i++)
		equal = !strcmp(a->list[i].name, b->list[i].name) &&
			a->list[i].len == b->list[i].len &&
			!memcmp(a->list[i].value, b->list[i].value, a->list[i].len);
	tree_attrs_free(a);
	tree_attrs_free(b);
	return equal;
}

/* ---- content --------------------------------------------------------------------------------- */

#define EXTENTS_ROOM (sizeof(struct fiemap) + EXTENTS * sizeof(struct fiemap_extent))

/* What is written is written down first, else an extent says nothing about what reading gives. */
static bool extents_get(int fd, uint64_t from, struct fiemap *ret)
{
	*ret = (struct fiemap){ .fm_start = from, .fm_length = FIEMAP_MAX_OFFSET - from,
		.fm_flags = FIEMAP_FLAG_SYNC, .fm_extent_count = EXTENTS };
	return ioctl(fd, FS_IOC_FIEMAP, ret) == 0;
}

/*
 * Two snapshots' files that lie in the same blocks hold the same, and need not be read. The same
 * inode number and change time alone do not say so: forks count their inodes on from the same
 * number, and the clock of change times ticks every few milliseconds.
 */
static bool same_blocks(int a, int b)
{
	const unsigned unsure = FIEMAP_EXTENT_UNKNOWN | FIEMAP_EXTENT_DELALLOC |
				FIEMAP_EXTENT_ENCODED | FIEMAP_EXTENT_DATA_INLINE |
				FIEMAP_EXTENT_NOT_ALIGNED;
	auto_free struct fiemap *x = mem_zalloc(EXTENTS_ROOM), *y = mem_zalloc(EXTENTS_ROOM);
	bool same = true, last = false;
	uint64_t from = 0;

	while (same && !last) {
		unsigned n;

		same = extents_get(a, from, x) && extents_get(b, from, y) &&
			x->fm_mapped_extents == y->fm_mapped_extents;
		n = same ? x->fm_mapped_extents : 0;
		last = !n;
		for (unsigned i = 0; i < n && same; i++) {
			const struct fiemap_extent *e = &x->fm_extents[i], *f = &y->fm_extents[i];
			unsigned flags = FIEMAP_EXTENT_SHARED;

			same = e->fe_logical == f->fe_logical && e->fe_physical == f->fe_physical &&
			       e->fe_length == f->fe_length &&
			       (e->fe_flags & ~flags) == (f->fe_flags & ~flags) &&
			       !(e->fe_flags & unsure);
			last = last || e->fe_flags & FIEMAP_EXTENT_LAST;
			from = e->fe_logical + e->fe_length;
		}
	}
	return same;
}

static ssize_t read_full(int fd, char *p, size_t n, off_t at)
{
	size_t have = 0;

	while (have < n) {
		ssize_t r = pread(fd, p + have, n - have, at + (off_t)have);

		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0)
			return -1;
		if (r == 0)
			break;
		have += (size_t)r;
	}
	return (ssize_t)have;
}

/* The next byte that is not in a hole; a file of nothing but holes may claim to be endless. */
static off_t next_data(int fd, off_t at, off_t size)
{
	off_t r = lseek(fd, at, SEEK_DATA);

	return r >= 0 ? r : errno == ENXIO ? size : at;
}

/* 1, 0, -1 */
static int bytes_equal(int a, int b, off_t size, struct den_err *err)
{
	auto_free char *p = mem_alloc(CHUNK), *q = mem_alloc(CHUNK);

	for (off_t at = 0; at < size;) {
		ssize_t n, m;

		if (size > CHUNK) {
			off_t x = next_data(a, at, size), y = next_data(b, at, size);

			at = MIN(x, y);
			if (at >= size)
				break;
		}
		n = read_full(a, p, CHUNK, at);
		m = n < 0 ? n : read_full(b, q, CHUNK, at);
		if (n < 0 || m < 0)
			return den_fail_sys(err, errno, "compare files");
		if (n != m || memcmp(p, q, (size_t)n) != 0)
			return 0;
		if (!n)
			break;
		at += n;
	}
	return 1;
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static bool same_time(const struct timespec *a, const struct timespec *b)
{
	return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

static bool same_inode(const struct stat *a, const struct stat *b)
{
	return a->st_ino == b->st_ino && same_time(&a->st_ctim, &b->st_ctim);
}

static int opened_compare(const struct view_dir *da, const struct view_node *a,
	const struct view_dir *db, const struct view_node *b, const char *name, uint32_t *what,
	struct den_err *err)
{
	auto_fd fa = -1, fb = -1;
	int r;

	if (view_dir_open_node(da, name, a, &fa, err) < 0 ||
		view_dir_open_node(db, name, b, &fb, err) < 0)
		return -1;
	if (!xattrs_equal(fa, fb))
		*what |= CHANGED_XATTR;
	if (!S_ISREG(a->st.st_mode))
		return 0;
	if (a->st.st_size != b->st.st_size) {
		*what |= CHANGED_CONTENT;
		return 0;
	}
	if (same_inode(&a->st, &b->st) && a->st.st_size >= EXTENTS_FROM && same_blocks(fa, fb))
		return 0;
	r = bytes_equal(fa, fb, a->st.st_size, err);
	if (r == 0)
		*what |= CHANGED_CONTENT;
	return r < 0 ? -1 : 0;
}

static int links_compare(const struct view_dir *da, const struct view_dir *db, const char *name,
	uint32_t *what, struct den_err *err)
{
	auto_free char *ta = NULL, *tb = NULL;

	if (view_dir_readlink(da, name, &ta, err) < 0 || view_dir_readlink(db, name, &tb, err) < 0)
		return -1;
	if (strcmp(ta, tb) != 0)
		*what |= CHANGED_TARGET;
	return 0;
}

int node_compare(const struct view_dir *da, const struct view_node *a, const struct view_dir *db,
	const struct view_node *b, const char *name, uint32_t *ret, struct den_err *err)
{
	const struct stat *x = &a->st, *y = &b->st;
	uint32_t what = 0;
	int r = 0;

	*ret = 0;
	if (x->st_uid != y->st_uid || x->st_gid != y->st_gid)
		what |= CHANGED_OWNER;
	if (x->st_dev == y->st_dev && same_inode(x, y)) {
		*ret = what;
		return 0;
	}
	if ((x->st_mode & S_IFMT) != (y->st_mode & S_IFMT)) {
		*ret = what | CHANGED_TYPE;
		return 0;
	}
	if ((x->st_mode ^ y->st_mode) & 07777)
		what |= CHANGED_MODE;
	if (S_ISREG(x->st_mode) || S_ISDIR(x->st_mode))
		r = opened_compare(da, a, db, b, name, &what, err);
	else if (S_ISLNK(x->st_mode))
		r = links_compare(da, db, name, &what, err);
	else if ((S_ISCHR(x->st_mode) || S_ISBLK(x->st_mode)) && x->st_rdev != y->st_rdev)
		what |= CHANGED_CONTENT;
	if (r < 0)
		return -1;
	*ret = what;
	return 0;
}

int nodes_equal(const struct view_dir *a, const struct view_dir *b, const char *name,
	uint32_t *what, struct den_err *err)
{
	struct view_node na, nb;
	uint32_t differs;

	if (view_dir_look(a, name, &na, err) < 0 || view_dir_look(b, name, &nb, err) < 0)
		return -1;
	if (na.there != nb.there)
		differs = CHANGED_TYPE;
	else if (!na.there)
		differs = 0;
	else if (node_compare(a, &na, b, &nb, name, &differs, err) < 0)
		return -1;
	if (what)
		*what = differs;
	return !differs;
}

/* ---- changes --------------------------------------------------------------------------------- */

int change_of(const struct view_entry *e, struct change *ret, struct den_err *err)
{
	const struct view_node *a = &e->node[0], *b = &e->node[1];
	struct change c = { .path = e->path, .a = *a, .b = *b };

	if (e->mount)
		return 0;
	c.type_a = node_type(a);
	c.type_b = node_type(b);
	if (!a->there) {
		c.kind = CHANGE_ADDED;
	} else if (!b->there) {
		c.kind = CHANGE_REMOVED;
	} else {
		if (node_compare(e->dir[0], a, e->dir[1], b, e->name, &c.what, err) < 0)
			return den_wrap(err, "'%s'", tar_show(e->path).s);
		if (!c.what)
			return 0;
		c.kind = c.what & (CHANGED_CONTENT | CHANGED_TYPE | CHANGED_TARGET)
				 ? CHANGE_MODIFIED
				 : CHANGE_META;
	}
	*ret = c;
	return 1;
}

int changes_walk(const struct view *a, const struct view *b, change_entry_fn fn, void *user,
	struct den_err *err)
{
	struct view_walk *w;
	struct view_entry e;
	int r;

	if (view_walk_new((const struct view *[]){ a, b }, 2, "", &w, err) < 0)
		return den_wrap(err, "compare");
	while ((r = view_walk_next(w, &e, err)) > 0) {
		struct change c;

		if (view_path_is_dens(e.path))
			continue;
		r = change_of(&e, &c, err);
		if (r < 0)
			break;
		view_walk_enter(w, 3, false);
		if (r > 0 && fn(&e, &c, user, err) < 0) {
			view_walk_free(w);
			return -1;
		}
	}
	view_walk_free(w);
	return r < 0 ? den_wrap(err, "compare") : 0;
}

struct each {
	int (*fn)(const struct change *c, void *user, struct den_err *err);
	void *user;
};

static int each_one(
	const struct view_entry *e, const struct change *c, void *user, struct den_err *err)
{
	struct each *each = user;

	(void)e;
	return each->fn(c, each->user, err);
}

int changes_each(const struct view *a, const struct view *b,
	int (*fn)(const struct change *c, void *user, struct den_err *err), void *user,
	struct den_err *err)
{
	struct each each = { fn, user };

	return changes_walk(a, b, each_one, &each, err);
}
