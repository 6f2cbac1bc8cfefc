/* The packing half of tree.h. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/xattr.h>

#include "fd.h"
#include "mem.h"
#include "tar.h"
#include "tree.h"
#include "walk.h"

#define CHUNK (64U << 10)
#define LINKS_MAX 65536U	  /* files with several names that are remembered; */
#define LINK_NAMES_MAX (32U << 20) /* later ones are packed as files of their own */
#define LINK_BUCKETS 4096U

/* A file with several names, from the first until the last of them was met. */
struct link {
	struct link *next;
	dev_t dev;
	ino_t ino;
	nlink_t left;
	char name[];
};

struct tree_links {
	struct link *buckets[LINK_BUCKETS];
	size_t n, bytes;
};

struct tree_packer {
	struct tree_pack_opt opt;
	char *top;
	struct walk *walk; /* NULL: a single file, or the end is near */
	bool ended;
	int fd;		   /* of the file whose data is being packed, or -1 */
	struct tar_shown fd_name;
	uint64_t left, size;
	struct buf out;
	size_t sent; /* of out */
	struct tree_links *links;
	struct tree_stats stats;
};

/* ---- hard links ------------------------------------------------------------------------------ */

struct tree_links *tree_links_new(void)
{
	return mem_new(struct tree_links);
}

static struct link **link_find(struct tree_links *t, const struct stat *st)
{
	uint64_t h = ((uint64_t)st->st_ino ^ (uint64_t)st->st_dev << 32) * 0x9e3779b97f4a7c15ULL;
	struct link **at = &t->buckets[h >> 52];

	static_assert(LINK_BUCKETS == 1U << (64 - 52), "the hash has as many values as buckets");
	while (*at && ((*at)->ino != st->st_ino || (*at)->dev != st->st_dev))
		at = &(*at)->next;
	return at;
}

static void link_forget(struct tree_links *t, struct link **at)
{
	struct link *l = *at;

	*at = l->next;
	t->n--;
	t->bytes -= strlen(l->name);
	free(l);
}

const char *tree_links_name(struct tree_links *t, const struct stat *st)
{
	struct link *l = st->st_nlink > 1 ? *link_find(t, st) : NULL;

	return l ? l->name : NULL;
}

void tree_links_used(struct tree_links *t, const struct stat *st)
{
	struct link **at = link_find(t, st);

	if (*at && --(*at)->left == 0)
		link_forget(t, at);
}

void tree_links_add(struct tree_links *t, const struct stat *st, const char *name)
{
	struct link **at = link_find(t, st), *l;
	size_t n = strlen(name);

	if (st->st_nlink < 2 || *at || t->n >= LINKS_MAX || t->bytes + n > LINK_NAMES_MAX)
		return;
	l = mem_alloc(sizeof(*l) + n + 1);
	*l = (struct link){ .dev = st->st_dev, .ino = st->st_ino, .left = st->st_nlink - 1 };
	memcpy(l->name, name, n + 1);
	*at = l;
	t->n++;
	t->bytes += n;
}

void tree_links_free(struct tree_links *t)
{
	if (!t)
		return;
	for (size_t i = 0; i < LINK_BUCKETS; i++)
		while (t->buckets[i])
			link_forget(t, &t->buckets[i]);
	free(t);
}

/* ---- attributes ------------------------------------------------------------------------------ */

static bool xattr_any(const char *name)
{
	return true;
}

static bool xattr_user(const char *name)
{
	return !strncmp(name, "user.", 5);
}

bool tree_xattr_is_kept(const char *name)
{
	if (xattr_user(name))
		return strncmp(name, "user.overlay.", 13) != 0;
	return !strcmp(name, "security.capability") || !strcmp(name, "system.posix_acl_access") ||
	       !strcmp(name, "system.posix_acl_default");
}

void tree_attrs_read(
	int fd, bool (*wanted)(const char *name), struct tree_attrs *ret, uint64_t *lost)
{
	ssize_t n = flistxattr(fd, ret->names, sizeof(ret->names));
	size_t offset[TAR_XATTR_MAX];
	char value[65536];

	ret->n = 0;
	ret->values.len = 0;
	for (const char *name = ret->names; n > 0 && name < ret->names + n;
		name += strlen(name) + 1) {
		ssize_t len;

		if (!wanted(name))
			continue;
		len = fgetxattr(fd, name, value, sizeof(value));
		if (len < 0 || ret->n == TAR_XATTR_MAX ||
			ret->values.len + (size_t)len > TAR_META_MAX / 2) {
			++*lost;
			continue;
		}
		offset[ret->n] = ret->values.len;
		ret->list[ret->n].name = name;
		ret->list[ret->n++].len = (size_t)len;
		buf_add(&ret->values, value, (size_t)len);
	}
	if (n < 0 && errno == ERANGE)
		++*lost;
	for (size_t i = 0; i < ret->n; i++)
		ret->list[i].value = buf_str(&ret->values) + offset[i];
}

void tree_attrs_free(struct tree_attrs *a)
{
	if (!a)
		return;
	buf_free(&a->values);
	free(a);
}

/* ---- entries --------------------------------------------------------------------------------- */

static int entry_put(struct tree_packer *p, struct tar_entry *e, const struct stat *st, int fd,
	struct den_err *err)
{
	struct tree_attrs *x = fd >= 0 && p->opt.xattrs ? mem_new(struct tree_attrs) : NULL;
	int r;

	e->mode = st->st_mode & 07777;
	e->uid = p->opt.owner ? p->opt.uid : st->st_uid;
	e->gid = p->opt.owner ? p->opt.gid : st->st_gid;
	e->mtime_sec = st->st_mtim.tv_sec;
	e->mtime_nsec = (uint32_t)st->st_mtim.tv_nsec;
	if (x) {
		static bool (*const wanted[])(const char *name) = { [TREE_XATTR_USER] = xattr_user,
			[TREE_XATTR_KEPT] = tree_xattr_is_kept,
			[TREE_XATTR_ALL] = xattr_any };

		tree_attrs_read(fd, wanted[p->opt.xattrs], x, &p->stats.lost_xattrs);
		e->xattrs = x->list;
		e->n_xattrs = x->n;
	}
	r = tar_put_entry(&p->out, e, err);
	tree_attrs_free(x);
	if (r == 0)
		p->stats.entries++;
	return r;
}

static int put_file(struct tree_packer *p, int dirfd, const char *name, const char *path,
	int follow, struct den_err *err)
{
	struct tar_entry e = { .type = TAR_FILE, .name = path };
	auto_fd fd = -1;
	struct stat st;

	/* It was a file a moment ago; by now it may be a link, or a fifo that would block. */
	fd = openat(dirfd, name, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC | follow);
	if (fd < 0 || fstat(fd, &st) < 0) {
		if (errno == ENOENT || errno == ELOOP)
			return 0; /* it is gone */
		return den_fail_sys(err, errno, "read '%s'", tar_show(path).s);
	}
	if (!S_ISREG(st.st_mode))
		return 0;
	e.target = tree_links_name(p->links, &st);
	if (e.target) {
		e.type = TAR_HARDLINK;
		if (entry_put(p, &e, &st, -1, err) < 0)
			return -1;
		tree_links_used(p->links, &st);
		return 0;
	}
	tree_links_add(p->links, &st, path);
	e.size = p->size = p->left = (uint64_t)st.st_size;
	if (entry_put(p, &e, &st, fd, err) < 0)
		return -1;
	p->fd = fd_take(&fd);
	p->fd_name = tar_show(path);
	return 0;
}

static int put_link(struct tree_packer *p, int dirfd, const char *name, const char *path,
	const struct stat *st, struct den_err *err)
{
	struct tar_entry e = { .type = TAR_SYMLINK, .name = path };
	char target[4097];
	ssize_t n = readlinkat(dirfd, name, target, sizeof(target) - 1);

	if (n < 0) {
		if (errno == ENOENT || errno == EINVAL)
			return 0;
		return den_fail_sys(err, errno, "read link '%s'", tar_show(path).s);
	}
	target[n] = '\0';
	e.target = target;
	return entry_put(p, &e, st, -1, err);
}

static int put_dir(struct tree_packer *p, int dirfd, const char *name, const char *path,
	const struct stat *st, struct den_err *err)
{
	struct tar_entry e = { .type = TAR_DIR, .name = path };
	auto_fd fd = -1;

	if (p->opt.xattrs) /* else there is no need to open it */
		fd = openat(
			dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	return entry_put(p, &e, st, fd, err);
}

static int put_any(struct tree_packer *p, int dirfd, const char *name, const char *path,
	const struct stat *st, struct den_err *err)
{
	struct tar_entry e = { .type = TAR_FIFO, .name = path };

	switch (st->st_mode & S_IFMT) {
	case S_IFREG:
		return put_file(p, dirfd, name, path, O_NOFOLLOW, err);
	case S_IFDIR:
		return put_dir(p, dirfd, name, path, st, err);
	case S_IFLNK:
		return put_link(p, dirfd, name, path, st, err);
	case S_IFIFO:
		return entry_put(p, &e, st, -1, err);
	default:
		p->stats.skipped++;
		return 0;
	}
}

/* ---- the stream ------------------------------------------------------------------------------ */

/* A file that shrank is filled up with zeros, one that grew is cut: its header is already out. */
static int data_step(struct tree_packer *p, struct den_err *err)
{
	size_t want = (size_t)MIN(p->left, (uint64_t)CHUNK);
	ssize_t n = 0;

	if (want) {
		buf_reserve(&p->out, want);
		do
			n = read(p->fd, p->out.p + p->out.len, want);
		while (n < 0 && errno == EINTR);
		if (n < 0)
			return den_fail_sys(err, errno, "read '%s'", p->fd_name.s);
		if (n == 0) {
			memset(p->out.p + p->out.len, 0, want);
			n = (ssize_t)want;
		}
		p->out.len += (size_t)n;
		p->left -= (uint64_t)n;
		p->stats.bytes += (uint64_t)n;
	}
	if (!p->left) {
		tar_put_pad(&p->out, p->size);
		fd_close(&p->fd);
	}
	return 0;
}

static int walk_step(struct tree_packer *p, struct den_err *err)
{
	struct walk_entry e;
	auto_buf path = { 0 };
	int r = p->walk ? walk_next(p->walk, &e, err) : WALK_END;

	if (r < 0)
		return -1;
	if (r == WALK_END) {
		tar_put_end(&p->out);
		p->ended = true;
		return 0;
	}
	if (p->top)
		buf_addf(&path, "%s/", p->top);
	buf_addstr(&path, e.path);
	return put_any(p, e.dirfd, e.name, buf_str(&path), &e.st, err);
}

ssize_t tree_packer_read(struct tree_packer *p, void *buf, size_t cap, struct den_err *err)
{
	size_t n;

	while (p->sent == p->out.len) {
		p->sent = p->out.len = 0;
		if (p->fd < 0 && p->ended)
			return 0;
		if ((p->fd >= 0 ? data_step(p, err) : walk_step(p, err)) < 0)
			return den_wrap(err, "pack");
	}
	n = MIN(cap, p->out.len - p->sent);
	memcpy(buf, p->out.p + p->sent, n);
	p->sent += n;
	return (ssize_t)n;
}

static int packer_begin(struct tree_packer *p, int dirfd, const char *name, struct den_err *err)
{
	int nofollow = p->opt.follow ? 0 : O_NOFOLLOW;
	const char *slash = strrchr(name, '/');
	struct stat st;
	int fd;

	if (fstatat(dirfd, name, &st, p->opt.follow ? 0 : AT_SYMLINK_NOFOLLOW) < 0)
		return den_fail_sys(err, errno, "'%s'", tar_show(name).s);
	if (!S_ISDIR(st.st_mode)) {
		const char *path = p->top ?: slash ? slash + 1 : name;

		if (S_ISREG(st.st_mode))
			return put_file(p, dirfd, name, path, nofollow, err);
		return put_any(p, dirfd, name, path, &st, err);
	}
	fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC | nofollow);
	if (fd < 0)
		return den_fail_sys(err, errno, "'%s'", tar_show(name).s);
	if (p->top && put_dir(p, fd, ".", p->top, &st, err) < 0) {
		fd_close(&fd);
		return -1;
	}
	return walk_new(fd, 0, WALK_SKIP_KERNEL, &p->walk, err);
}

int tree_packer_new(int dirfd, const char *name, const struct tree_pack_opt *opt,
	struct tree_packer **ret, struct den_err *err)
{
	struct tree_packer *p = mem_new(struct tree_packer);

	p->opt = *opt;
	p->top = opt->top && *opt->top ? mem_strdup(opt->top) : NULL;
	p->fd = -1;
	p->links = tree_links_new();
	if (packer_begin(p, dirfd, name, err) < 0) {
		tree_packer_free(p);
		return den_wrap(err, "pack");
	}
	*ret = p;
	return 0;
}

const struct tree_stats *tree_packer_stats(const struct tree_packer *p)
{
	return &p->stats;
}

void tree_packer_free(struct tree_packer *p)
{
	if (!p)
		return;
	tree_links_free(p->links);
	free(p->top);
	walk_free(p->walk);
	fd_close(&p->fd);
	buf_free(&p->out);
	free(p);
}

int tree_pack(int dirfd, const char *name, const struct tree_pack_opt *opt, tree_sink sink,
	void *user, struct tree_stats *stats, struct den_err *err)
{
	auto_free char *chunk = mem_alloc(CHUNK);
	struct tree_packer *p;
	ssize_t n;

	if (tree_packer_new(dirfd, name, opt, &p, err) < 0)
		return -1;
	while ((n = tree_packer_read(p, chunk, CHUNK, err)) > 0)
		if (sink(chunk, (size_t)n, user, err) < 0) {
			n = -1;
			break;
		}
	if (n == 0 && stats)
		*stats = p->stats;
	tree_packer_free(p);
	return n < 0 ? -1 : 0;
}
