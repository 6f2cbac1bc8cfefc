#include "view.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

#include "fd.h"
#include "mem.h"
#include "tar.h"
#include "view_walk.h"
#include "walk.h"

#define OPEN_DIR (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)
#define OPEN_FILE (O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)

struct part {
	unsigned layer; /* index in the tree */
	int fd;
};

struct view_dir {
	const struct view *view;
	const struct view_tree *tree; /* NULL: the view has no trees */
	char *path;		      /* "usr/share" */
	bool opaque;		      /* its topmost layer says so */
	bool mounts;		      /* a tree's root is directly in it */
	size_t n;
	struct part parts[];
};

/* ---- trees ----------------------------------------------------------------------------------- */

/* "/usr/local" is "local" in "usr". NULL: not in this directory. */
static const char *tree_name_in(const struct view_tree *t, const char *dir)
{
	const char *at = t->at + strspn(t->at, "/"), *slash = strrchr(at, '/');
	size_t n = slash ? (size_t)(slash - at) : 0;

	if (!*at || strlen(dir) != n || strncmp(at, dir, n) != 0)
		return NULL;
	return slash ? slash + 1 : at;
}

static const struct view_tree *tree_in(const struct view *v, const char *dir, const char *name)
{
	for (size_t i = 0; i < v->n_trees; i++) {
		const char *at = tree_name_in(&v->trees[i], dir);

		if (at && (!name || !strcmp(at, name)))
			return &v->trees[i];
	}
	return NULL;
}

bool view_dir_is_mount(const struct view_dir *d, const char *name)
{
	return d->mounts && tree_in(d->view, d->path, name);
}

bool view_path_is_dens(const char *path)
{
	return !strcmp(path, "dev") || !strcmp(path, "proc") || !strcmp(path, "sys") ||
		!strcmp(path, "run");
}

/* ---- opening --------------------------------------------------------------------------------- */

static struct view_dir *dir_new(const struct view *v, const struct view_tree *t, const char *parent,
	const char *name, size_t room)
{
	struct view_dir *d = mem_zalloc(sizeof(*d) + room * sizeof(d->parts[0]));
	size_t n = strlen(parent), m = strlen(name);

	d->view = v;
	d->tree = t;
	d->path = mem_alloc(n + m + 2);
	memcpy(d->path, parent, n);
	if (n && m)
		d->path[n++] = '/';
	memcpy(d->path + n, name, m + 1);
	d->mounts = tree_in(v, d->path, NULL);
	return d;
}

void view_dir_close(struct view_dir *d)
{
	if (!d)
		return;
	for (size_t i = 0; i < d->n; i++)
		fd_close(&d->parts[i].fd);
	free(d->path);
	free(d);
}

/* The root of a tree has all layers: overlayfs merges what it is given, whatever mark is on it. */
static int root_open(const struct view *v, const struct view_tree *t, const char *parent,
	const char *name, struct view_dir **ret, struct den_err *err)
{
	struct view_dir *d = dir_new(v, t, parent, name, t ? t->n_layers : 0);

	for (size_t i = 0; t && i < t->n_layers; i++) {
		/* of our own: reading a directory moves its position */
		int fd = openat(t->layers[i], ".", OPEN_DIR);

		if (fd < 0) {
			int sys = errno;

			view_dir_close(d);
			return den_fail_sys(err, sys, "open layer %zu of '%s'", i, t->at);
		}
		d->parts[d->n++] = (struct part){ .layer = (unsigned)i, .fd = fd };
	}
	*ret = d;
	return 0;
}

static bool is_whiteout(const struct stat *st)
{
	return S_ISCHR(st->st_mode) && st->st_rdev == makedev(0, 0);
}

/* "x" says that there may be whiteouts of another kind inside, and hides nothing. */
static bool is_opaque(int fd)
{
	char value[2];

	return fgetxattr(fd, "user.overlay.opaque", value, sizeof(value)) == 1 && value[0] == 'y';
}

/* One layer's directory: 1 opened, 0 this layer has nothing of the name, 2 it ends the search. */
static int part_open(int dirfd, const char *name, int *ret, struct den_err *err)
{
	struct stat st;
	int fd;

	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
		if (errno == ENOENT)
			return 0;
		return den_fail_sys(err, errno, "'%s'", tar_show(name).s);
	}
	if (!S_ISDIR(st.st_mode))
		return 2;
	fd = openat(dirfd, name, OPEN_DIR);
	if (fd < 0) {
		if (errno == ENOENT)
			return 0;
		if (errno == ENOTDIR || errno == ELOOP)
			return 2;
		return den_fail_sys(err, errno, "open '%s'", tar_show(name).s);
	}
	*ret = fd;
	return 1;
}

int view_dir_child(
	const struct view_dir *d, const char *name, struct view_dir **ret, struct den_err *err)
{
	const struct view_tree *t = d->mounts ? tree_in(d->view, d->path, name) : NULL;
	struct view_dir *c;

	if (t)
		return root_open(d->view, t, d->path, name, ret, err);
	if (strlen(d->path) + strlen(name) + 1 > VIEW_PATH_MAX)
		return den_fail(err, DEN_LIMIT, 0,
			"'%s': directories nested deeper than %u bytes of path",
			tar_show(d->path).s, VIEW_PATH_MAX);
	c = dir_new(d->view, d->tree, d->path, name, d->n);
	for (size_t i = 0; i < d->n; i++) {
		int fd = -1, r = part_open(d->parts[i].fd, name, &fd, err);

		if (r < 0) {
			view_dir_close(c);
			return -1;
		}
		if (r == 2)
			break;
		if (r == 0)
			continue;
		c->parts[c->n++] = (struct part){ .layer = d->parts[i].layer, .fd = fd };
		if (is_opaque(fd)) {
			c->opaque = c->n == 1;
			break;
		}
	}
	if (!c->n) {
		view_dir_close(c);
		return den_fail(err, DEN_NOT_FOUND, ENOTDIR, "'%s'", tar_show(name).s);
	}
	*ret = c;
	return 0;
}

int view_dir_open(
	const struct view *v, const char *path, struct view_dir **ret, struct den_err *err)
{
	const struct view_tree *root = NULL;
	struct view_dir *d;

	for (size_t i = 0; i < v->n_trees && !root; i++)
		if (!strcmp(v->trees[i].at, "/"))
			root = &v->trees[i];
	if (root_open(v, root, "", "", &d, err) < 0)
		return -1;
	for (const char *p = path; *p;) {
		size_t n = strcspn(p, "/");
		struct view_dir *c;
		char name[256];
		int r;

		if (!n) {
			p++;
			continue;
		}
		if (n >= sizeof(name) || (p[0] == '.' && (n == 1 || (n == 2 && p[1] == '.')))) {
			view_dir_close(d);
			return den_fail(err, DEN_INVALID, 0, "'%s': not a path", tar_show(path).s);
		}
		memcpy(name, p, n);
		name[n] = '\0';
		r = view_dir_child(d, name, &c, err);
		view_dir_close(d);
		if (r < 0)
			return -1;
		d = c;
		p += n;
	}
	*ret = d;
	return 0;
}

/* ---- looking --------------------------------------------------------------------------------- */

size_t view_dir_parts(const struct view_dir *d)
{
	return d->n;
}

unsigned view_dir_part_layer(const struct view_dir *d, size_t i)
{
	return d->parts[i].layer;
}

const struct view_tree *view_dir_tree(const struct view_dir *d)
{
	return d->tree;
}

int view_dir_fd(const struct view_dir *d)
{
	return d->n ? d->parts[0].fd : -1;
}

bool view_dir_is_opaque(const struct view_dir *d)
{
	return d->opaque || d->n == 1;
}

static void node_set(
	const struct view *v, const struct stat *st, unsigned layer, struct view_node *ret)
{
	*ret = (struct view_node){ .there = true, .st = *st, .layer = (int)layer };
	if (v->own)
		ret->st.st_uid = ret->st.st_gid = 0;
}

static int mount_look(const struct view_dir *d, const char *name, struct view_node *ret,
	struct den_err *err)
{
	const struct view_tree *t = tree_in(d->view, d->path, name);
	struct stat st = { .st_mode = S_IFDIR | 0755 };

	if (t->n_layers && fstat(t->layers[0], &st) < 0)
		return den_fail_sys(err, errno, "'%s'", t->at);
	node_set(d->view, &st, 0, ret);
	return 0;
}

int view_dir_look(
	const struct view_dir *d, const char *name, struct view_node *ret, struct den_err *err)
{
	*ret = (struct view_node){ 0 };
	if (view_dir_is_mount(d, name))
		return mount_look(d, name, ret, err);
	for (size_t i = 0; i < d->n; i++) {
		struct stat st;

		if (fstatat(d->parts[i].fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
			if (errno == ENOENT)
				continue;
			return den_fail_sys(err, errno, "'%s'", tar_show(name).s);
		}
		if (!is_whiteout(&st))
			node_set(d->view, &st, d->parts[i].layer, ret);
		return 0;
	}
	return 0;
}

static int part_of(const struct view_dir *d, const struct view_node *n)
{
	for (size_t i = 0; i < d->n; i++)
		if ((int)d->parts[i].layer == n->layer)
			return d->parts[i].fd;
	return -1;
}

int view_dir_open_node(const struct view_dir *d, const char *name, const struct view_node *n,
	int *ret, struct den_err *err)
{
	bool dir = S_ISDIR(n->st.st_mode);
	int dirfd = part_of(d, n), fd;
	struct stat st;

	fd = openat(dirfd, name, dir ? OPEN_DIR : OPEN_FILE);
	if (fd < 0 && errno != ENOENT && errno != ELOOP && errno != ENOTDIR && errno != ENXIO)
		return den_fail_sys(err, errno, "open '%s'", tar_show(name).s);
	if (fd >= 0 && fstat(fd, &st) == 0 && (st.st_mode & S_IFMT) == (n->st.st_mode & S_IFMT)) {
		*ret = fd;
		return 0;
	}
	fd_close(&fd);
	return den_fail(err, DEN_CONFLICT, 0, "'%s' was changed while it was being read; try again",
		tar_show(name).s);
}

int view_dir_open_file(const struct view_dir *d, const char *name, int *ret, struct den_err *err)
{
	struct view_node n;

	if (view_dir_look(d, name, &n, err) < 0)
		return -1;
	if (!n.there || !S_ISREG(n.st.st_mode))
		return den_fail(err, n.there ? DEN_INVALID : DEN_NOT_FOUND, n.there ? 0 : ENOENT,
			n.there ? "'%s' is no regular file" : "'%s'", tar_show(name).s);
	return view_dir_open_node(d, name, &n, ret, err);
}

int view_dir_readlink(const struct view_dir *d, const char *name, char **ret, struct den_err *err)
{
	char target[4097];
	struct view_node n;
	ssize_t len;

	if (view_dir_look(d, name, &n, err) < 0)
		return -1;
	if (!n.there || !S_ISLNK(n.st.st_mode))
		return den_fail(err, n.there ? DEN_INVALID : DEN_NOT_FOUND, n.there ? 0 : ENOENT,
			n.there ? "'%s' is no link" : "'%s'", tar_show(name).s);
	len = readlinkat(part_of(d, &n), name, target, sizeof(target));
	if (len < 0 || (size_t)len == sizeof(target))
		return den_fail_sys(err, len < 0 ? errno : ENAMETOOLONG, "read link '%s'",
			tar_show(name).s);
	*ret = mem_strndup(target, (size_t)len);
	return 0;
}

/* ---- names ----------------------------------------------------------------------------------- */

static int name_add(struct view_names *l, const char *name, size_t max, struct den_err *err)
{
	size_t n = strlen(name) + 1;

	if (l->bytes.len + n > max)
		return den_fail(err, DEN_LIMIT, 0, "more than %u MiB of names in directories",
			WALK_NAMES_MAX >> 20);
	if (l->n == l->cap) {
		size_t cap = l->cap ? l->cap * 2 : 64;
		uint32_t *at = realloc(l->at, cap * sizeof(*at));

		if (!at)
			return den_fail_sys(err, ENOMEM, "names of a directory");
		l->at = at;
		l->cap = cap;
	}
	l->at[l->n++] = (uint32_t)l->bytes.len;
	buf_add(&l->bytes, name, n);
	return 0;
}

static int part_names(struct view_names *l, int fd, size_t max, struct den_err *err)
{
	int copy = openat(fd, ".", OPEN_DIR), r = 0;
	DIR *dir = copy < 0 ? NULL : fdopendir(copy);
	struct dirent *de;

	if (!dir) {
		int sys = errno;

		fd_close(&copy);
		return den_fail_sys(err, sys, "read directory");
	}
	for (errno = 0; r == 0 && (de = readdir(dir)); errno = 0)
		if (strcmp(de->d_name, ".") != 0 && strcmp(de->d_name, "..") != 0)
			r = name_add(l, de->d_name, max, err);
	if (r == 0 && errno)
		r = den_fail_sys(err, errno, "read directory");
	closedir(dir);
	return r;
}

int view_names_add(struct view_names *l, const struct view_dir *d, size_t layers, size_t max,
	struct den_err *err)
{
	for (size_t i = 0; i < d->n && d->parts[i].layer < layers; i++)
		if (part_names(l, d->parts[i].fd, max, err) < 0)
			return den_wrap(err, "'%s'", tar_show(d->path).s);
	for (size_t i = 0; d->mounts && i < d->view->n_trees; i++) {
		const char *name = tree_name_in(&d->view->trees[i], d->path);

		if (name && name_add(l, name, max, err) < 0)
			return -1;
	}
	return 0;
}

static int by_name(const void *a, const void *b, void *names)
{
	return strcmp((char *)names + *(const uint32_t *)a, (char *)names + *(const uint32_t *)b);
}

void view_names_sort(struct view_names *l)
{
	size_t n = 0;

	if (l->n)
		qsort_r(l->at, l->n, sizeof(*l->at), by_name, l->bytes.p);
	for (size_t i = 0; i < l->n; i++)
		if (!n || strcmp(view_name(l, n - 1), view_name(l, i)) != 0)
			l->at[n++] = l->at[i];
	l->n = n;
}

void view_names_free(struct view_names *l)
{
	buf_free(&l->bytes);
	free(l->at);
	*l = (struct view_names){ 0 };
}

/* With `merged`, what is hidden is left out. */
static int names_get(
	const struct view_dir *d, size_t layers, bool merged, char ***ret, struct den_err *err)
{
	struct view_names l = { 0 };
	char **v = NULL;
	size_t n = 0;
	int r = view_names_add(&l, d, layers, WALK_NAMES_MAX, err);

	if (r == 0) {
		view_names_sort(&l);
		v = mem_zalloc((l.n + 1) * sizeof(*v));
	}
	for (size_t i = 0; r == 0 && i < l.n; i++) {
		struct view_node node = { .there = true };

		if (merged)
			r = view_dir_look(d, view_name(&l, i), &node, err);
		if (r == 0 && node.there)
			v[n++] = mem_strdup(view_name(&l, i));
	}
	view_names_free(&l);
	if (r == 0) {
		*ret = v;
		return 0;
	}
	while (n)
		free(v[--n]);
	free(v);
	return -1;
}

int view_dir_names(const struct view_dir *d, char ***ret, struct den_err *err)
{
	return names_get(d, SIZE_MAX, true, ret, err);
}

int view_dir_own_names(const struct view_dir *d, size_t layers, char ***ret, struct den_err *err)
{
	return names_get(d, layers, false, ret, err);
}
