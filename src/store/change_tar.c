/*
 * Layers as tar streams: changes_tar(), view_tar(), and the entries that merge.c writes.
 *
 * A name that begins with ".wh." means a removal in a layer, so a file of such a name cannot be in
 * one; nor can a name be removed that is too long for ".wh." before it. The directory is then told
 * as replaced, with everything that is in it now.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "change_parts.h"
#include "fd.h"
#include "mem.h"
#include "tar.h"

#define WHITEOUT ".wh."
#define OPAQUE ".wh..wh..opq"
#define CHUNK (64U << 10)
#define NAME_BYTES 255U

enum { A, B };

/* ---- the stream ------------------------------------------------------------------------------ */

void layer_out_init(struct layer_out *o, change_sink sink, void *user)
{
	*o = (struct layer_out){ .sink = sink, .user = user, .links = tree_links_new() };
}

void layer_out_free(struct layer_out *o)
{
	buf_free(&o->out);
	tree_links_free(o->links);
}

static int out_flush(struct layer_out *o, size_t above, struct den_err *err)
{
	if (o->out.len <= above)
		return 0;
	if (o->sink(o->out.p, o->out.len, o->user, err) < 0)
		return -1;
	o->out.len = 0;
	return 0;
}

int layer_out_end(struct layer_out *o, struct den_err *err)
{
	tar_put_end(&o->out);
	return out_flush(o, 0, err);
}

bool layer_can_name(const char *name)
{
	return strncmp(name, WHITEOUT, strlen(WHITEOUT)) != 0;
}

bool layer_can_remove(const char *name)
{
	return layer_can_name(name) && strlen(name) + strlen(WHITEOUT) <= NAME_BYTES;
}

static int name_refuse(const char *path, struct den_err *err)
{
	return den_fail(err, DEN_UNSUPPORTED, 0,
		"'%s': its name means a removal in a layer; rename it first", tar_show(path).s);
}

void layer_forget_special(struct view_node *n)
{
	char type = node_type(n);

	if (type == 's' || type == 'c' || type == 'b')
		*n = (struct view_node){ 0 };
}

/* ---- entries --------------------------------------------------------------------------------- */

/* A file that shrank is filled up with zeros, one that grew is cut: its header is already out. */
static int data_put(struct layer_out *o, int fd, uint64_t size, struct den_err *err)
{
	for (uint64_t left = size; left;) {
		size_t want = (size_t)MIN(left, (uint64_t)CHUNK);
		ssize_t n;

		buf_reserve(&o->out, want);
		do
			n = read(fd, o->out.p + o->out.len, want);
		while (n < 0 && errno == EINTR);
		if (n < 0)
			return den_fail_sys(err, errno, "read");
		if (n == 0) {
			memset(o->out.p + o->out.len, 0, want);
			n = (ssize_t)want;
		}
		o->out.len += (size_t)n;
		left -= (uint64_t)n;
		if (out_flush(o, CHUNK, err) < 0)
			return -1;
	}
	return 0;
}

static int text_put(struct layer_out *o, const struct layer_entry *e, struct den_err *err)
{
	buf_add(&o->out, e->text, e->text_len);
	return out_flush(o, CHUNK, err);
}

/* With the attributes of a file or directory that is open, or of none. */
static int header_put(struct layer_out *o, struct tar_entry *t, int xattr_fd, struct den_err *err)
{
	struct tree_attrs *x = xattr_fd >= 0 ? mem_new(struct tree_attrs) : NULL;
	int r;

	if (x) {
		tree_attrs_read(xattr_fd, xattr_is_kept, x, &o->lost);
		t->xattrs = x->list;
		t->n_xattrs = x->n;
	}
	r = tar_put_entry(&o->out, t, err);
	tree_attrs_free(x);
	return r;
}

static void meta_set(const struct layer_entry *e, struct tar_entry *t)
{
	const struct stat *owner = &(e->owner ?: e->node)->st;

	t->name = e->path;
	t->mode = (e->mode ?: e->node)->st.st_mode & 07777;
	t->uid = owner->st_uid;
	t->gid = owner->st_gid;
	t->mtime_sec = e->node->st.st_mtim.tv_sec;
	t->mtime_nsec = (uint32_t)e->node->st.st_mtim.tv_nsec;
}

static int xattr_open(const struct layer_entry *e, int *ret, struct den_err *err)
{
	if (!e->xattr)
		return 0;
	return view_dir_open_node(e->xattr_dir, e->name, e->xattr, ret, err);
}

/* As it is, so that its other names can be links to it. */
static bool is_plain(const struct layer_entry *e)
{
	return !e->text && !e->mode && !e->owner && !e->xattr;
}

static int file_put(struct layer_out *o, const struct layer_entry *e, struct den_err *err)
{
	struct tar_entry t = { .type = TAR_FILE };
	auto_fd fd = -1, xattr_fd = -1;
	struct stat st;

	meta_set(e, &t);
	if (view_dir_open_node(e->dir, e->name, e->node, &fd, err) < 0 ||
		xattr_open(e, &xattr_fd, err) < 0)
		return -1;
	if (fstat(fd, &st) < 0)
		return den_fail_sys(err, errno, "read");
	t.target = is_plain(e) ? tree_links_name(o->links, &st) : NULL;
	if (t.target && strcmp(t.target, e->path) != 0) {
		t.type = TAR_HARDLINK;
		if (header_put(o, &t, -1, err) < 0)
			return -1;
		tree_links_used(o->links, &st);
		return out_flush(o, CHUNK, err);
	}
	t.target = NULL;
	t.size = e->text ? e->text_len : (uint64_t)st.st_size;
	if (header_put(o, &t, xattr_fd >= 0 ? xattr_fd : fd, err) < 0)
		return -1;
	if ((e->text ? text_put(o, e, err) : data_put(o, fd, t.size, err)) < 0)
		return -1;
	tar_put_pad(&o->out, t.size);
	if (is_plain(e))
		tree_links_add(o->links, &st, e->path);
	return out_flush(o, CHUNK, err);
}

static int dir_put(struct layer_out *o, const struct layer_entry *e, struct den_err *err)
{
	struct tar_entry t = { .type = TAR_DIR };
	auto_fd fd = -1;

	meta_set(e, &t);
	if (e->xattr ? xattr_open(e, &fd, err) < 0 :
		       view_dir_open_node(e->dir, e->name, e->node, &fd, err) < 0)
		return -1;
	return header_put(o, &t, fd, err) < 0 ? -1 : out_flush(o, CHUNK, err);
}

static int link_put(struct layer_out *o, const struct layer_entry *e, struct den_err *err)
{
	struct tar_entry t = { .type = TAR_SYMLINK };
	auto_free char *target = NULL;

	meta_set(e, &t);
	if (view_dir_readlink(e->dir, e->name, &target, err) < 0)
		return -1;
	t.target = target;
	return header_put(o, &t, -1, err) < 0 ? -1 : out_flush(o, CHUNK, err);
}

int layer_put(struct layer_out *o, const struct layer_entry *e, struct den_err *err)
{
	struct tar_entry fifo = { .type = TAR_FIFO };
	int r = 0;

	if (!layer_can_name(e->name))
		return name_refuse(e->path, err);
	switch (node_type(e->node)) {
	case 'f':
		r = file_put(o, e, err);
		break;
	case 'd':
		r = dir_put(o, e, err);
		break;
	case 'l':
		r = link_put(o, e, err);
		break;
	case 'p':
		meta_set(e, &fifo);
		r = header_put(o, &fifo, -1, err) < 0 ? -1 : out_flush(o, CHUNK, err);
		break;
	default:
		break;
	}
	return r < 0 ? den_wrap(err, "'%s'", tar_show(e->path).s) : 0;
}

/* dir + mark + name: an empty file */
static int mark_put(struct layer_out *o, const char *dir, size_t dir_len, const char *mark,
	const char *name, struct den_err *err)
{
	auto_buf path = { 0 };
	struct tar_entry t = { .type = TAR_FILE };

	buf_add(&path, dir, dir_len);
	if (dir_len)
		buf_addstr(&path, "/");
	buf_addf(&path, "%s%s", mark, name);
	t.name = buf_str(&path);
	return header_put(o, &t, -1, err) < 0 ? -1 : out_flush(o, CHUNK, err);
}

int layer_put_removal(struct layer_out *o, const char *path, struct den_err *err)
{
	const char *slash = strrchr(path, '/');

	return mark_put(o, path, slash ? (size_t)(slash - path) : 0, WHITEOUT,
		slash ? slash + 1 : path, err);
}

/* ---- changes --------------------------------------------------------------------------------- */

/* The directory of a level which may be parked, below that of the level above if it was opened
 * here. */
static int parent_open(struct view_walk *w, size_t i, const char *path, struct view_dir **opened,
	const struct view_dir **ret, struct den_err *err)
{
	const char *slash = strrchr(path, '/');
	struct view_dir *d;

	*ret = w->levels[i].dir[B];
	if (*ret)
		return 0;
	if (*opened ? view_dir_child(*opened, slash ? slash + 1 : path, &d, err) < 0 :
		      view_dir_open(w->view[B], path, &d, err) < 0)
		return -1;
	view_dir_close(*opened);
	*ret = *opened = d;
	return 0;
}

static int parent_put(struct layer_out *o, struct view_walk *w, size_t i, struct view_dir **opened,
	struct den_err *err)
{
	struct view_level *l = &w->levels[i];
	auto_free char *path = mem_strndup(buf_str(&w->path), l->path_len);
	struct tar_entry t = { .type = TAR_DIR };
	const struct view_dir *d;

	if (!layer_can_name(strrchr(path, '/') ? strrchr(path, '/') + 1 : path))
		return name_refuse(path, err);
	if (parent_open(w, i, path, opened, &d, err) < 0)
		return -1;
	meta_set(&(struct layer_entry){ .path = path, .node = &l->node[B] }, &t);
	if (header_put(o, &t, view_dir_fd(d), err) < 0)
		return -1;
	l->mark = true;
	return out_flush(o, CHUNK, err);
}

/* The directories above: a layer is also mounted, and then what it has of them counts. Once one is
 * told, those above it are, too. */
static int parents_put(struct layer_out *o, struct view_walk *w, struct den_err *err)
{
	struct view_dir *opened = NULL;
	size_t i = w->n_levels;
	int r = 0;

	while (i > 1 && !w->levels[i - 1].mark)
		i--;
	for (; i < w->n_levels && r == 0; i++)
		r = parent_put(o, w, i, &opened, err);
	view_dir_close(opened);
	return r;
}

/* The directory of the last entry is told anew: without what it was, and with all that is in it. */
static int replaced_put(struct layer_out *o, struct view_walk *w, struct den_err *err)
{
	const struct view_level *l = &w->levels[w->n_levels - 1];

	if (parents_put(o, w, err) < 0 || mark_put(o, w->path.p, l->path_len, OPAQUE, "", err) < 0)
		return -1;
	return view_walk_again(w, 1U << B, err);
}

static int change_put(
	struct layer_out *o, struct view_walk *w, struct view_entry *e, struct den_err *err)
{
	struct change c;
	int r;

	layer_forget_special(&e->node[A]);
	layer_forget_special(&e->node[B]);
	if (!e->node[A].there && !e->node[B].there)
		return 0;
	if (e->dir[A] && e->cut & 1U << B)
		return replaced_put(o, w, err);
	r = change_of(e, &c, err);
	if (r > 0 && c.kind == CHANGE_REMOVED) {
		if (!layer_can_remove(e->name))
			return replaced_put(o, w, err);
		return parents_put(o, w, err) < 0 ? -1 : layer_put_removal(o, e->path, err);
	}
	if (r < 0)
		return -1;
	if (r > 0 && (parents_put(o, w, err) < 0 ||
			     layer_put(o, &(struct layer_entry){ .path = e->path, .name = e->name,
				     .dir = e->dir[B], .node = &e->node[B] }, err) < 0))
		return -1;
	/* What was in a directory that is one no more went with it. */
	view_walk_enter(w, S_ISDIR(e->node[B].st.st_mode) ? 3 : 0, r > 0);
	return 0;
}

static int layer_write(struct view_walk *w, struct layer_out *o,
	int (*put)(struct layer_out *o, struct view_walk *w, struct view_entry *e,
		struct den_err *err),
	struct den_err *err)
{
	struct view_entry e;
	int r;

	while ((r = view_walk_next(w, &e, err)) > 0)
		if (put(o, w, &e, err) < 0)
			return -1;
	return r < 0 ? -1 : layer_out_end(o, err);
}

static int dens_skip_put(
	struct layer_out *o, struct view_walk *w, struct view_entry *e, struct den_err *err)
{
	return view_path_is_dens(e->path) ? 0 : change_put(o, w, e, err);
}

int changes_tar(const struct view *a, const struct view *b, change_sink sink, void *user,
	struct den_err *err)
{
	struct view_walk *w;
	struct layer_out o;
	int r;

	if (view_walk_new((const struct view *[]){ a, b }, 2, "", &w, err) < 0)
		return den_wrap(err, "pack changes");
	layer_out_init(&o, sink, user);
	r = layer_write(w, &o, dens_skip_put, err);
	layer_out_free(&o);
	view_walk_free(w);
	return r < 0 ? den_wrap(err, "pack changes") : 0;
}

/* den's own directories are there, and empty. */
static int node_put(
	struct layer_out *o, struct view_walk *w, struct view_entry *e, struct den_err *err)
{
	layer_forget_special(&e->node[A]);
	if (!e->node[A].there)
		return 0;
	if (e->mount) {
		struct tar_entry t = { .type = TAR_DIR };

		meta_set(&(struct layer_entry){ .path = e->path, .node = &e->node[A] }, &t);
		if (header_put(o, &t, -1, err) < 0)
			return -1;
	} else if (layer_put(o,
			   &(struct layer_entry){ .path = e->path,
				   .name = e->name,
				   .dir = e->dir[A],
				   .node = &e->node[A] },
			   err) < 0) {
		return -1;
	}
	view_walk_enter(w, view_path_is_dens(e->path) ? 0 : 1, true);
	return 0;
}

int view_tar(const struct view *v, change_sink sink, void *user, struct den_err *err)
{
	struct view_walk *w;
	struct layer_out o;
	int r;

	if (view_walk_new(&v, 1, "", &w, err) < 0)
		return den_wrap(err, "pack");
	layer_out_init(&o, sink, user);
	r = layer_write(w, &o, node_put, err);
	layer_out_free(&o);
	view_walk_free(w);
	return r < 0 ? den_wrap(err, "pack") : 0;
}
