#include "context.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "buf.h"
#include "fd.h"
#include "mem.h"
#include "sha256.h"
#include "tar.h"
#include "walk.h"
#include "work.h"

#define CHUNK (128U << 10)
#define IGNORE_MAX (1U << 20)

/* ---- opening --------------------------------------------------------------------------------- */

static int ignore_read(struct context *c, int fd, const char *name, struct den_err *err)
{
	auto_free char *text = NULL;

	if (fd_read_all(fd, IGNORE_MAX, &text, NULL, err) < 0 ||
		ignore_parse(text, &c->ignore, err) < 0)
		return den_wrap(err, "%.100s", name);
	return 0;
}

int context_open(const char *dir, const char *dockerfile, struct context *ret, struct den_err *err)
{
	struct context c = { .fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC) };
	auto_free char *beside = NULL;
	auto_fd fd = -1;

	if (c.fd < 0)
		return den_fail_sys(err, errno, "directory '%.100s'", dir);
	if (dockerfile && asprintf(&beside, "%s.dockerignore", dockerfile) >= 0)
		fd = open(beside, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		fd = openat(c.fd, ".dockerignore", O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
	if (fd >= 0 && ignore_read(&c, fd, ".dockerignore", err) < 0) {
		context_close(&c);
		return -1;
	}
	*ret = c;
	return 0;
}

void context_close(struct context *c)
{
	fd_close(&c->fd);
	ignore_free(&c->ignore);
}

/* Follows links of the path as long as they stay inside. */
static int open_inside(const struct context *c, const char *path, int flags)
{
	struct open_how how = { .flags = (uint64_t)(flags | O_CLOEXEC | O_NONBLOCK),
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS };

	if (flags & O_PATH)
		how.flags &= ~(uint64_t)O_NONBLOCK;
	return (int)syscall(SYS_openat2, c->fd, *path ? path : ".", &how, sizeof(how));
}

int context_file(const struct context *c, const char *path, struct den_err *err)
{
	int fd = open_inside(c, path, O_RDONLY);

	return fd < 0 ? den_fail_sys(err, errno, "'%.100s'", path) : fd;
}

/* ---- sources --------------------------------------------------------------------------------- */

static struct context_item *item_add(struct context_items *i, const char *path, bool dir)
{
	i->list = mem_realloc(i->list, (i->n + 1) * sizeof(*i->list));
	i->list[i->n] = (struct context_item){ .path = mem_strdup(path), .dir = dir };
	return &i->list[i->n++];
}

void context_add_text(struct context_items *add, const char *name, const char *text)
{
	item_add(add, name, false)->text = mem_strdup(text);
}

void context_items_free(struct context_items *i)
{
	for (size_t k = 0; k < i->n; k++) {
		free(i->list[k].path);
		free(i->list[k].text);
	}
	free(i->list);
	*i = (struct context_items){ 0 };
}

static unsigned parts_of(const char *path)
{
	unsigned n = 1;

	for (; *path; path++)
		n += *path == '/';
	return n;
}

/* What a link that is named itself stands for. */
static int link_stat(
	const struct context *c, const char *path, struct stat *ret, struct den_err *err)
{
	auto_fd fd = open_inside(c, path, O_PATH);

	if (fd < 0 && errno == EXDEV)
		return den_fail(err, DEN_DENIED, 0,
			"'%.100s' leads, by a link, out of the directory that is copied from",
			path);
	if (fd < 0 || fstat(fd, ret) < 0)
		return den_fail_sys(
			err, errno, "'%.100s' in the directory that is copied from", path);
	return 0;
}

static int find_pattern(const struct context *c, const char *pattern, struct context_items *add,
	struct den_err *err)
{
	struct walk *w = NULL;
	struct walk_entry e;
	size_t before = add->n;
	int r;

	if (walk_new(openat(c->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), parts_of(pattern), 0,
		    &w, err) < 0)
		return -1;
	while ((r = walk_next(w, &e, err)) > 0) {
		if (ignore_has(&c->ignore, e.path)) {
			if (S_ISDIR(e.st.st_mode) && !c->ignore.exceptions)
				walk_skip(w);
			continue;
		}
		if (!path_match(pattern, e.path))
			continue;
		if (S_ISLNK(e.st.st_mode) && link_stat(c, e.path, &e.st, err) < 0) {
			r = -1;
			break;
		}
		if (S_ISDIR(e.st.st_mode) || S_ISREG(e.st.st_mode))
			item_add(add, e.path, S_ISDIR(e.st.st_mode));
	}
	walk_free(w);
	if (r == 0 && add->n == before)
		return den_fail(err, DEN_NOT_FOUND, 0, "nothing in the directory matches '%.100s'",
			pattern);
	return r;
}

int context_find(
	const struct context *c, const char *source, struct context_items *add, struct den_err *err)
{
	auto_free char *path = path_clean(source);
	struct stat st;

	if (!path)
		return den_fail(err, DEN_DENIED, 0,
			"'%.100s' leads out of the directory that is copied from", source);
	if (path_is_pattern(path))
		return find_pattern(c, path, add, err);
	if (link_stat(c, path, &st, err) < 0)
		return -1;
	/* a directory that is left out may hold exceptions */
	if (*path && ignore_has(&c->ignore, path) && !(S_ISDIR(st.st_mode) && c->ignore.exceptions))
		return den_fail(
			err, DEN_NOT_FOUND, 0, "'%.100s' is left out by .dockerignore", source);
	if (!S_ISDIR(st.st_mode) && !S_ISREG(st.st_mode))
		return den_fail(
			err, DEN_INVALID, 0, "'%.100s' is neither a file nor a directory", source);
	item_add(add, path, S_ISDIR(st.st_mode));
	return 0;
}

/* ---- packing --------------------------------------------------------------------------------- */

struct context_packer {
	const struct context *c;
	const struct context_items *items;
	struct context_pack_opt opt;
	size_t at; /* the item that is next */
	const struct context_item *dir; /* the directory being walked */
	struct walk *walk;
	int fd; /* the file being read */
	char *fd_name;
	uint64_t left, size;
	struct buf out;
	size_t out_at;
	struct sha256 sum;
	bool ended;
};

struct context_packer *context_packer_new(const struct context *c,
	const struct context_items *items, const struct context_pack_opt *opt)
{
	struct context_packer *p = mem_new(struct context_packer);

	p->c = c;
	p->items = items;
	p->opt = *opt;
	p->fd = -1;
	sha256_init(&p->sum);
	return p;
}

void context_packer_free(struct context_packer *p)
{
	if (!p)
		return;
	walk_free(p->walk);
	fd_close(&p->fd);
	free(p->fd_name);
	buf_free(&p->out);
	free(p);
}

void context_packer_sum(struct context_packer *p, char ret[static 65])
{
	sha256_hex(&p->sum, ret);
}

/* The header, and its part of the sum: times are left out, for a fresh checkout has new ones. */
static int entry_put(struct context_packer *p, const char *name, const struct stat *st,
	const char *target, struct den_err *err)
{
	struct tar_entry e = { .name = name,
		.target = target,
		.uid = p->opt.uid,
		.gid = p->opt.gid,
		.mode = p->opt.mode >= 0 ? (uint32_t)p->opt.mode : st->st_mode & 07777,
		.mtime_sec = st->st_mtim.tv_sec,
		.mtime_nsec = (uint32_t)st->st_mtim.tv_nsec };
	char fields[96];

	e.type = target ? TAR_SYMLINK : S_ISDIR(st->st_mode) ? TAR_DIR : TAR_FILE;
	e.size = e.type == TAR_FILE ? (uint64_t)st->st_size : 0;
	if (e.type == TAR_SYMLINK)
		e.mode = 0777;
	snprintf(fields, sizeof(fields), "%d %o %u %u %llu", (int)e.type, e.mode, e.uid, e.gid,
		(unsigned long long)e.size);
	sha256_add(&p->sum, name, strlen(name) + 1);
	sha256_add(&p->sum, fields, strlen(fields) + 1);
	if (target)
		sha256_add(&p->sum, target, strlen(target) + 1);
	return tar_put_entry(&p->out, &e, err);
}

static int link_put(struct context_packer *p, const struct walk_entry *e, struct den_err *err)
{
	char target[4096];
	ssize_t n = readlinkat(e->dirfd, e->name, target, sizeof(target) - 1);

	if (n < 0)
		return den_fail_sys(err, errno, "'%s'", tar_show(e->path).s);
	target[n] = '\0';
	return entry_put(p, e->path, &e->st, target, err);
}

/* Begins a file: the descriptor is p's from now on. What is told is what was opened. */
static int file_put(struct context_packer *p, const char *name, int fd, struct den_err *err)
{
	struct stat st;

	p->fd = fd;
	if (fd < 0 || fstat(fd, &st) < 0)
		return den_fail_sys(err, errno, "'%s'", tar_show(name).s);
	if (!S_ISREG(st.st_mode))
		return den_fail(
			err, DEN_CONFLICT, 0, "'%s' changed while it was copied", tar_show(name).s);
	free(p->fd_name);
	p->fd_name = mem_strdup(name);
	p->left = p->size = (uint64_t)st.st_size;
	return entry_put(p, name, &st, NULL, err);
}

static int data_put(struct context_packer *p, struct den_err *err)
{
	ssize_t n;

	if (!p->left) {
		tar_put_pad(&p->out, p->size);
		fd_close(&p->fd);
		return 0;
	}
	buf_reserve(&p->out, CHUNK);
	n = read(p->fd, p->out.p + p->out.len, MIN(p->left, CHUNK));
	if (n < 0)
		return errno == EINTR ? 0
				      : den_fail_sys(err, errno, "'%s'", tar_show(p->fd_name).s);
	if (n == 0)
		return den_fail(err, DEN_CONFLICT, 0, "'%s' became shorter while it was copied",
			tar_show(p->fd_name).s);
	sha256_add(&p->sum, p->out.p + p->out.len, (size_t)n);
	p->out.len += (size_t)n;
	p->left -= (uint64_t)n;
	return 0;
}

static int walk_put(struct context_packer *p, struct den_err *err)
{
	struct walk_entry e;
	auto_buf full = { 0 };
	int r = walk_next(p->walk, &e, err);

	if (r <= 0) {
		walk_free(p->walk);
		p->walk = NULL;
		return r;
	}
	buf_addf(&full, "%s%s%s", p->dir->path, *p->dir->path ? "/" : "", e.path);
	if (ignore_has(&p->c->ignore, buf_str(&full))) {
		if (S_ISDIR(e.st.st_mode) && !p->c->ignore.exceptions)
			walk_skip(p->walk);
		return 0;
	}
	if (S_ISDIR(e.st.st_mode))
		return entry_put(p, e.path, &e.st, NULL, err);
	if (S_ISLNK(e.st.st_mode))
		return link_put(p, &e, err);
	if (!S_ISREG(e.st.st_mode))
		return 0; /* sockets, pipes and devices are not for copying */
	return file_put(p, e.path,
		openat(e.dirfd, e.name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC), err);
}

static int text_put(
	struct context_packer *p, const char *name, const char *text, struct den_err *err)
{
	struct stat st = { .st_mode = S_IFREG | 0644, .st_size = (off_t)strlen(text) };

	if (entry_put(p, name, &st, NULL, err) < 0)
		return -1;
	sha256_add(&p->sum, text, strlen(text));
	buf_addstr(&p->out, text);
	tar_put_pad(&p->out, strlen(text));
	return 0;
}

static int item_put(struct context_packer *p, struct den_err *err)
{
	const struct context_item *i;
	const char *name;

	if (p->at == p->items->n) {
		tar_put_end(&p->out);
		p->ended = true;
		return 0;
	}
	i = &p->items->list[p->at++];
	if (i->dir) {
		int fd = open_inside(p->c, i->path, O_RDONLY | O_DIRECTORY);

		if (fd < 0)
			return den_fail_sys(err, errno, "'%s'", tar_show(i->path).s);
		p->dir = i;
		return walk_new(fd, 0, 0, &p->walk, err);
	}
	name = strrchr(i->path, '/');
	name = p->opt.rename ? p->opt.rename : name ? name + 1 : i->path;
	if (i->text)
		return text_put(p, name, i->text, err);
	return file_put(p, name, open_inside(p->c, i->path, O_RDONLY), err);
}

ssize_t context_packer_read(void *buf, size_t cap, void *user, struct den_err *err)
{
	struct context_packer *p = user;
	size_t n;

	while (p->out_at == p->out.len && !p->ended) {
		int r;

		p->out.len = p->out_at = 0;
		if (interrupt_check(err) < 0)
			return -1;
		if (p->fd >= 0)
			r = data_put(p, err);
		else
			r = p->walk ? walk_put(p, err) : item_put(p, err);
		if (r < 0)
			return -1;
	}
	n = MIN(cap, p->out.len - p->out_at);
	if (n)
		memcpy(buf, p->out.p + p->out_at, n);
	p->out_at += n;
	return (ssize_t)n;
}
