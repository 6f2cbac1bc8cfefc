#include "kit_tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>

#include "change.h"
#include "fd.h"
#include "mem.h"
#include "tar.h"
#include "test.h"

/* ---- made by hand ---------------------------------------------------------------------------- */

int kit_dir(const char *fmt, ...)
{
	char name[256], path[PATH_MAX];
	va_list ap;
	int fd;

	va_start(ap, fmt);
	vsnprintf(name, sizeof(name), fmt, ap);
	va_end(ap);
	snprintf(path, sizeof(path), "%s/%s", test_dir(), name);
	CHECK(mkdir(path, 0755) == 0 || errno == EEXIST);
	CHECK(chmod(path, 0755) == 0);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	CHECK(fd >= 0);
	return fd;
}

static void parents(int root, const char *path)
{
	char dir[PATH_MAX];

	for (const char *p = path; (p = strchr(p, '/')); p++) {
		snprintf(dir, sizeof(dir), "%.*s", (int)(p - path), path);
		if (mkdirat(root, dir, 0755) == 0)
			CHECK(fchmodat(root, dir, 0755, 0) == 0);
		else
			CHECK(errno == EEXIST);
	}
}

static void write_at(int root, const char *path, mode_t mode, const char *p, size_t n)
{
	int fd = openat(root, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	CHECK(fd >= 0 && write(fd, p, n) == (ssize_t)n && fchmod(fd, mode) == 0);
	close(fd);
}

void kit_put(int root, const char *path, mode_t mode, const char *text)
{
	parents(root, path);
	write_at(root, path, mode, text, strlen(text));
}

void kit_mkdir(int root, const char *path, mode_t mode)
{
	parents(root, path);
	CHECK((mkdirat(root, path, 0700) == 0 || errno == EEXIST) && fchmodat(root, path, mode, 0) == 0);
}

void kit_link(int root, const char *path, const char *target)
{
	parents(root, path);
	CHECK(symlinkat(target, root, path) == 0);
}

void kit_whiteout(int root, const char *path)
{
	parents(root, path);
	CHECK(mknodat(root, path, S_IFCHR, makedev(0, 0)) == 0);
}

void kit_opaque(int root, const char *path, const char *value)
{
	int fd = openat(root, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	CHECK(fd >= 0 && fsetxattr(fd, "user.overlay.opaque", value, strlen(value), 0) == 0);
	close(fd);
}

/* ---- read back ------------------------------------------------------------------------------- */

static int by_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static char *xattrs_text(int fd)
{
	char names[4096], *list[64];
	ssize_t n = flistxattr(fd, names, sizeof(names));
	struct buf b = { 0 };
	size_t k = 0;

	for (char *p = names; n > 0 && p < names + n; p += strlen(p) + 1)
		if (!strncmp(p, "user.", 5) && strncmp(p, "user.overlay.", 13) && k < 64)
			list[k++] = p;
	if (k)
		qsort(list, k, sizeof(list[0]), by_text);
	for (size_t i = 0; i < k; i++) {
		char value[256];
		ssize_t len = fgetxattr(fd, list[i], value, sizeof(value));

		CHECK(len >= 0);
		buf_addf(&b, "%s=%.*s ", list[i], (int)len, value);
	}
	return (char *)buf_str(&b);
}

static void node_read(int dirfd, const char *name, struct kit_node *k)
{
	struct stat st;
	int fd;

	CHECK(fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0);
	k->type = S_ISREG(st.st_mode) ? 'f' : S_ISDIR(st.st_mode) ? 'd' : S_ISLNK(st.st_mode) ? 'l' :
		S_ISFIFO(st.st_mode)  ? 'p' : S_ISSOCK(st.st_mode) ? 's' : S_ISCHR(st.st_mode) ? 'c' : 'b';
	k->mode = st.st_mode & 07777;
	k->uid = st.st_uid;
	k->gid = st.st_gid;
	if (k->type == 'l') {
		k->data = mem_zalloc(4097);
		CHECK(readlinkat(dirfd, name, k->data, 4096) >= 0);
		k->len = strlen(k->data);
	}
	if (k->type == 'f' || k->type == 'd') {
		fd = openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
		CHECK(fd >= 0);
		k->xattrs = xattrs_text(fd);
		if (k->type == 'f')
			CHECK(fd_read_all(fd, 64 << 20, &k->data, &k->len, NULL) == 0);
		close(fd);
	}
}

static void dir_read(int dirfd, const char *prefix, struct kit_tree *t)
{
	DIR *d = fdopendir(dirfd);
	char **names = NULL;
	size_t n = 0;
	struct dirent *de;

	CHECK(d);
	while ((de = readdir(d))) {
		if (!strcmp(de->d_name, ".") || !strcmp(de->d_name, ".."))
			continue;
		names = mem_realloc(names, (n + 1) * sizeof(*names));
		names[n++] = mem_strdup(de->d_name);
	}
	if (n)
		qsort(names, n, sizeof(*names), by_text);
	for (size_t i = 0; i < n; i++) {
		struct kit_node k = { 0 };
		struct buf path = { 0 };

		buf_addf(&path, "%s%s%s", prefix, *prefix ? "/" : "", names[i]);
		k.path = (char *)buf_str(&path);
		node_read(dirfd, names[i], &k);
		if (t->n == t->cap) {
			t->cap = t->cap ? t->cap * 2 : 64;
			t->list = mem_realloc(t->list, t->cap * sizeof(*t->list));
		}
		t->list[t->n++] = k;
		if (k.type == 'd')
			dir_read(openat(dirfd, names[i], O_RDONLY | O_DIRECTORY | O_CLOEXEC), k.path, t);
		free(names[i]);
	}
	free(names);
	closedir(d);
}

void kit_read(int root, struct kit_tree *ret)
{
	*ret = (struct kit_tree){ 0 };
	dir_read(openat(root, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), "", ret);
}

void kit_free(struct kit_tree *t)
{
	for (size_t i = 0; i < t->n; i++) {
		free(t->list[i].path);
		free(t->list[i].data);
		free(t->list[i].xattrs);
	}
	free(t->list);
}

/* ---- comparing ------------------------------------------------------------------------------- */

/* In the order of a walk: '/' is less than any other byte. */
static int path_cmp(const char *a, const char *b)
{
	for (;; a++, b++) {
		int x = *a == '/' ? 1 : *a ? (unsigned char)*a + 2 : 0;
		int y = *b == '/' ? 1 : *b ? (unsigned char)*b + 2 : 0;

		if (x != y || !x)
			return x - y;
	}
}

static unsigned node_differs(const struct kit_node *a, const struct kit_node *b)
{
	unsigned what = a->uid != b->uid || a->gid != b->gid ? CHANGED_OWNER : 0;

	if (a->type != b->type)
		return what | CHANGED_TYPE;
	if (a->mode != b->mode)
		what |= CHANGED_MODE;
	if (a->xattrs && strcmp(a->xattrs, b->xattrs) != 0)
		what |= CHANGED_XATTR;
	if (a->len != b->len || (a->len && memcmp(a->data, b->data, a->len) != 0))
		what |= a->type == 'l' ? CHANGED_TARGET : CHANGED_CONTENT;
	return what;
}

static void line_put(struct buf *out, enum change_kind kind, unsigned what, const char *path)
{
	static const char *const text[] = { "added", "removed", "modified", "meta" };

	buf_addf(out, "%s %u %s\n", text[kind], what, path);
}

void kit_compare(const struct kit_tree *a, const struct kit_tree *b, bool sockets, struct buf *out)
{
	size_t i = 0, j = 0;

	while (i < a->n || j < b->n) {
		const struct kit_node *x = i < a->n ? &a->list[i] : NULL, *y = j < b->n ? &b->list[j] : NULL;
		int r = !x ? 1 : !y ? -1 : path_cmp(x->path, y->path);
		unsigned what;

		if (!sockets && r <= 0 && x->type == 's') {
			i++;
			continue;
		}
		if (!sockets && r >= 0 && y->type == 's') {
			j++;
			continue;
		}
		if (r < 0) {
			line_put(out, CHANGE_REMOVED, 0, x->path);
			i++;
			continue;
		}
		if (r > 0) {
			line_put(out, CHANGE_ADDED, 0, y->path);
			j++;
			continue;
		}
		what = node_differs(x, y);
		if (what)
			line_put(out, what & (CHANGED_CONTENT | CHANGED_TYPE | CHANGED_TARGET) ?
					CHANGE_MODIFIED : CHANGE_META, what, x->path);
		i++;
		j++;
	}
}

static int change_line(const struct change *c, void *user, struct den_err *err)
{
	line_put(user, c->kind, c->what, c->path);
	return 0;
}

void kit_changes(const struct view *a, const struct view *b, struct buf *out)
{
	struct den_err err = { 0 };

	if (changes_each(a, b, change_line, out, &err) < 0) {
		fprintf(stderr, "  %s\n", err.msg);
		CHECK(!"changes_each");
	}
}

/* ---- layers ---------------------------------------------------------------------------------- */

int kit_sink(const void *p, size_t n, void *buf, struct den_err *err)
{
	buf_add(buf, p, n);
	return 0;
}

struct apply {
	int root, pass, fd;
	struct buf *list;
};

static void apply_mark(struct apply *a, const char *path)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	char dir[TAR_NAME_MAX + 1];
	int fd;

	snprintf(dir, sizeof(dir), "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
	fd = openat(a->root, dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return; /* it is new with this layer */
	if (strcmp(name, ".wh..wh..opq") != 0) {
		CHECK(faccessat(fd, name + 4, F_OK, AT_SYMLINK_NOFOLLOW) == 0);
		CHECK(tree_remove_at(fd, name + 4, NULL) == 0);
	} else {
		DIR *d = fdopendir(openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
		struct dirent *de;

		while ((de = readdir(d)))
			if (strcmp(de->d_name, ".") != 0 && strcmp(de->d_name, "..") != 0)
				CHECK(tree_remove_at(fd, de->d_name, NULL) == 0);
		closedir(d);
	}
	close(fd);
}

static void apply_xattrs(const struct apply *a, const struct tar_entry *e)
{
	int fd = openat(a->root, e->name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	char names[4096];
	ssize_t n = flistxattr(fd, names, sizeof(names));

	for (char *p = names; n > 0 && p < names + n; p += strlen(p) + 1)
		if (!strncmp(p, "user.", 5))
			CHECK(fremovexattr(fd, p) == 0);
	for (size_t i = 0; i < e->n_xattrs; i++)
		CHECK(fsetxattr(fd, e->xattrs[i].name, e->xattrs[i].value, e->xattrs[i].len, 0) == 0);
	close(fd);
}

static void apply_entry(struct apply *a, const struct tar_entry *e)
{
	struct stat st;
	bool there = fstatat(a->root, e->name, &st, AT_SYMLINK_NOFOLLOW) == 0;

	if (there && !(e->type == TAR_DIR && S_ISDIR(st.st_mode)))
		CHECK(tree_remove_at(a->root, e->name, NULL) == 0);
	if (e->type == TAR_HARDLINK) {
		CHECK(linkat(a->root, e->target, a->root, e->name, 0) == 0);
		return;
	}
	if (e->type == TAR_DIR) {
		CHECK(mkdirat(a->root, e->name, 0700) == 0 || errno == EEXIST);
	} else if (e->type == TAR_SYMLINK) {
		CHECK(symlinkat(e->target, a->root, e->name) == 0);
	} else if (e->type == TAR_FIFO) {
		CHECK(mkfifoat(a->root, e->name, 0600) == 0);
	} else {
		a->fd = openat(a->root, e->name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		CHECK(a->fd >= 0);
	}
	CHECK(fchownat(a->root, e->name, e->uid, e->gid, AT_SYMLINK_NOFOLLOW) == 0 || geteuid());
	if (e->type != TAR_SYMLINK)
		CHECK(fchmodat(a->root, e->name, e->mode, 0) == 0);
	if (e->type == TAR_FILE || e->type == TAR_DIR)
		apply_xattrs(a, e);
}

static int on_entry(const struct tar_entry *e, void *user, struct den_err *err)
{
	const char *slash = strrchr(e->name, '/'), *name = slash ? slash + 1 : e->name;
	static const char type[] = "fdlhpcb";
	struct apply *a = user;
	bool mark = !strncmp(name, ".wh.", 4);

	CHECK(strlen(name) <= 255); /* else nobody can unpack it */
	if (a->list)
		buf_addf(a->list, "%c %s\n", type[e->type], e->name);
	else if (mark && a->pass == 0)
		apply_mark(a, e->name);
	else if (!mark && a->pass == 1)
		apply_entry(a, e);
	return 0;
}

static int on_data(const void *p, size_t n, void *user, struct den_err *err)
{
	struct apply *a = user;

	if (a->fd >= 0)
		CHECK(write(a->fd, p, n) == (ssize_t)n);
	return 0;
}

static int on_end(void *user, struct den_err *err)
{
	fd_close(&((struct apply *)user)->fd);
	return 0;
}

static void tar_each(const struct buf *tar, struct apply *a)
{
	static const struct tar_ops ops = { on_entry, on_data, on_end };
	struct tar_reader *r = tar_reader_new(&ops, a);
	struct den_err err = { 0 };

	if (tar_reader_feed(r, tar->p, tar->len, &err) < 0 || tar_reader_finish(r, &err) < 0) {
		fprintf(stderr, "  %s\n", err.msg);
		CHECK(!"the tar can be read");
	}
	CHECK(tar_reader_ended(r));
	tar_reader_free(r);
}

void kit_apply(int root, const struct buf *tar)
{
	for (int pass = 0; pass < 2; pass++)
		tar_each(tar, &(struct apply){ .root = root, .pass = pass, .fd = -1 });
}

void kit_list(const struct buf *tar, struct buf *out)
{
	tar_each(tar, &(struct apply){ .root = -1, .fd = -1, .list = out });
}

/* ---- at random ------------------------------------------------------------------------------- */

unsigned kit_rand(unsigned *seed, unsigned n)
{
	*seed = *seed * 1664525U + 1013904223U;
	return (*seed >> 8) % n;
}

static void pick(unsigned *seed, char out[1024])
{
	static const char long_name[] =
		"LLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLL"
		"LLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLL"
		"LLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLL";
	static const char *const names[] = { "a", "b", "c", "d", "a.b", "e f", "n\nl", "\303\244", long_name };
	unsigned depth = 1 + kit_rand(seed, 3);

	static_assert(sizeof(long_name) == 253, "too long to be removed by name");
	*out = '\0';
	while (depth--) {
		unsigned k = kit_rand(seed, 21);

		strcat(out, names[k < 18 ? k % 6 : k - 12]);
		if (depth)
			strcat(out, "/");
	}
}

static void put_socket(int root, const char *path)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (snprintf(sa.sun_path, sizeof(sa.sun_path), "/proc/self/fd/%d/%s", root, path) <
		(int)sizeof(sa.sun_path))
		(void)!bind(fd, (struct sockaddr *)&sa, sizeof(sa));
	close(fd);
}

/* Whatever fails, fails: the path may be missing, or something else. */
void kit_scramble(int root, unsigned *seed)
{
	char path[1024], other[1024], text[64];
	unsigned what = kit_rand(seed, 24);
	int fd = -1;

	pick(seed, path);
	pick(seed, other);
	snprintf(text, sizeof(text), "%u\nsame\n%u\n", kit_rand(seed, 5), kit_rand(seed, 3));
	switch (what) {
	case 0 ... 5:
		fd = openat(root, path, O_WRONLY | O_CREAT | O_TRUNC | O_NONBLOCK | O_CLOEXEC, 0640);
		if (fd >= 0)
			(void)!write(fd, text, strlen(text));
		break;
	case 6 ... 9:
		(void)!mkdirat(root, path, 0755);
		break;
	case 10:
		(void)!unlinkat(root, path, 0);
		break;
	case 11:
		(void)!unlinkat(root, path, AT_REMOVEDIR);
		break;
	case 12 ... 13:
		tree_remove_at(root, path, NULL);
		break;
	case 14: /* a directory replaced */
		if (tree_remove_at(root, path, NULL) == 0 && mkdirat(root, path, 0755) == 0 &&
			strlen(path) + 3 < sizeof(path)) {
			strcat(path, "/a");
			fd = openat(root, path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
		}
		break;
	case 15:
		(void)!renameat(root, path, root, other);
		break;
	case 16:
		(void)!symlinkat(text, root, path);
		break;
	case 17:
		(void)!linkat(root, path, root, other, 0);
		break;
	case 18:
		(void)!fchmodat(root, path, kit_rand(seed, 2) ? 0755 : 0700, 0);
		break;
	case 19:
		(void)!fchownat(root, path, kit_rand(seed, 2) ? 7 : 0, 0, AT_SYMLINK_NOFOLLOW);
		break;
	case 20 ... 21:
		fd = openat(root, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
		if (fd >= 0)
			(void)!fsetxattr(fd, "user.x", text, 1, 0);
		break;
	case 22:
		(void)!mkfifoat(root, path, 0600);
		break;
	default:
		put_socket(root, path);
	}
	fd_close(&fd);
}

void kit_copy(const char *from, const char *to)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		execlp("cp", "cp", "-a", "--", from, to, NULL);
		_exit(127);
	}
	CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
}
