#include "archive.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "decompress.h"
#include "fd.h"
#include "json_in.h"
#include "mem.h"
#include "spool.h"
#include "tar.h"
#include "work.h"

#define CHUNK (256U << 10)
#define FILES_MAX 16384U /* kept in the index; an image has a few hundred at most */
#define NAME_MAX_BYTES 255U
#define LINKS_MAX 4

struct file {
	char *name, *target; /* target: a link, as in the archive */
	bool hard;
	uint64_t at, size;
};

struct archive {
	int fd;
	bool dir, root;
	uint64_t size; /* of the tar */
	struct file *files;
	size_t n, cap;
	/* while indexing */
	const char *chunk;
	uint64_t chunk_at;
	struct file *open; /* the entry whose first byte is awaited */
};

bool archive_is_dir(const struct archive *a)
{
	return a->dir;
}

bool archive_is_root(const struct archive *a)
{
	return a->root;
}

void archive_close(struct archive *a)
{
	if (!a)
		return;
	for (size_t i = 0; i < a->n; i++) {
		free(a->files[i].name);
		free(a->files[i].target);
	}
	free(a->files);
	fd_close(&a->fd);
	free(a);
}

static struct archive *archive_new(int fd, bool dir)
{
	struct archive *a = mem_new(struct archive);

	a->fd = fd;
	a->dir = dir;
	return a;
}

int archive_open_dir(int fd, struct archive **ret, struct den_err *err)
{
	(void)err;
	*ret = archive_new(fd, true);
	return 0;
}

/* ---- the index ------------------------------------------------------------------------------- */

/* "./a//b" is "a/b"; NULL: it could leave the archive, so nothing is called that. */
static char *name_clean(const char *name)
{
	auto_buf b = { 0 };

	while (*name) {
		size_t n = strcspn(name, "/");

		if (n == 2 && !strncmp(name, "..", 2))
			return NULL;
		if (n && !(n == 1 && *name == '.')) {
			if (b.len)
				buf_add(&b, "/", 1);
			buf_add(&b, name, n);
		}
		name += n;
		name += *name == '/';
	}
	return b.len ? mem_strdup(buf_str(&b)) : NULL;
}

static bool starts_root(const char *name)
{
	static const char *const tops[] = { "etc", "usr", "bin", "sbin", "lib", "var", "dev",
		"proc" };
	size_t n = strcspn(name, "/");

	for (size_t i = 0; i < ARRAY_SIZE(tops); i++)
		if (strlen(tops[i]) == n && !strncmp(tops[i], name, n))
			return true;
	return false;
}

static bool ends_with(const char *s, const char *end)
{
	size_t n = strlen(s), m = strlen(end);

	return n >= m && !strcmp(s + n - m, end);
}

/* Only what an image can be made of: a root file system has a million names, and needs none. */
static bool is_wanted(const char *name)
{
	const char *slash = strchr(name, '/');

	if (strlen(name) > NAME_MAX_BYTES)
		return false;
	if (!strncmp(name, "blobs/", 6))
		return true;
	if (!slash)
		return ends_with(name, ".json") || ends_with(name, ".tar") ||
		       !strcmp(name, "oci-layout");
	return !strchr(slash + 1, '/') && ends_with(name, ".tar");
}

static int on_entry(const struct tar_entry *e, void *user, struct den_err *err)
{
	struct archive *a = user;
	auto_free char *name = name_clean(e->name);

	if (interrupt_check(err) < 0)
		return -1;
	a->open = NULL;
	if (!name)
		return 0;
	if (starts_root(name))
		a->root = true;
	if (a->n == FILES_MAX || !is_wanted(name) ||
		(e->type != TAR_FILE && e->type != TAR_SYMLINK && e->type != TAR_HARDLINK))
		return 0;
	if (a->n == a->cap) {
		a->cap = a->cap ? a->cap * 2 : 64;
		a->files = mem_realloc(a->files, a->cap * sizeof(*a->files));
	}
	a->open = &a->files[a->n++];
	*a->open = (struct file){ .name = mem_take(&name),
		.size = e->size,
		.target = e->type == TAR_FILE ? NULL : mem_strdup(e->target),
		.hard = e->type == TAR_HARDLINK };
	return 0;
}

/* The reader gives pointers into what it was fed: that tells where the bytes are. */
static int on_data(const void *p, size_t n, void *user, struct den_err *err)
{
	struct archive *a = user;

	(void)n, (void)err;
	if (a->open)
		a->open->at = a->chunk_at + (uint64_t)((const char *)p - a->chunk);
	a->open = NULL;
	return 0;
}

static int on_end(void *user, struct den_err *err)
{
	(void)user, (void)err;
	return 0;
}

static int index_make(struct archive *a, struct den_err *err)
{
	static const struct tar_ops ops = { on_entry, on_data, on_end };
	auto_free char *chunk = mem_alloc(CHUNK);
	struct stretch s = { a->fd, 0, a->size };
	struct tar_reader *r = tar_reader_new(&ops, a);
	ssize_t n;
	int status = 0;

	a->chunk = chunk;
	while (status == 0 && (n = stretch_read(chunk, CHUNK, &s, err)) != 0) {
		if (n < 0) {
			status = -1;
			break;
		}
		status = tar_reader_feed(r, chunk, (size_t)n, err);
		a->chunk_at += (uint64_t)n;
	}
	if (status == 0)
		status = tar_reader_finish(r, err);
	tar_reader_free(r);
	return status;
}

static ssize_t fd_source(void *buf, size_t cap, void *user, struct den_err *err)
{
	return interrupt_read(*(int *)user, buf, cap, err);
}

/* Plain bytes in a file that can be read from anywhere: the archive's own, or a copy. */
static int plain_file(struct archive *a, uint64_t max, struct den_err *err)
{
	struct decompress *d = NULL;
	struct stat st;
	int spool, r;

	if (fstat(a->fd, &st) < 0)
		return den_fail_sys(err, errno, "stat");
	if (decompress_new(fd_source, &a->fd, max, &d, err) < 0)
		return -1;
	if (S_ISREG(st.st_mode) && decompress_kind(d) == DECOMPRESS_NONE) {
		a->size = (uint64_t)st.st_size;
		decompress_free(d);
		return 0;
	}
	spool = spool_new(err);
	r = spool < 0 ? -1 : spool_fill(spool, decompress_read, d, &a->size, err);
	decompress_free(d);
	fd_close(&a->fd);
	a->fd = spool;
	return r;
}

int archive_open_tar(int fd, uint64_t max, struct archive **ret, struct den_err *err)
{
	struct archive *a = archive_new(fd, false);

	if (plain_file(a, max, err) < 0 || index_make(a, err) < 0) {
		archive_close(a);
		return -1;
	}
	*ret = a;
	return 0;
}

/* ---- looking up ------------------------------------------------------------------------------ */

/* The last one counts, as it would when unpacked. */
static const struct file *file_find(const struct archive *a, const char *name)
{
	for (size_t i = a->n; i-- > 0;)
		if (!strcmp(a->files[i].name, name))
			return &a->files[i];
	return NULL;
}

/* Where a link leads, from the top of the archive. */
static char *link_path(const struct file *f)
{
	const char *slash = strrchr(f->name, '/'), *t = f->target;
	auto_buf b = { 0 };

	if (f->hard || !slash)
		return name_clean(t);
	/* "X/layer.tar" -> "../Y/layer.tar" is the one shape that tools write */
	if (!strncmp(t, "../", 3) && strchr(f->name, '/') == slash)
		return name_clean(t + 3);
	buf_add(&b, f->name, (size_t)(slash - f->name) + 1);
	buf_addstr(&b, t);
	return name_clean(buf_str(&b));
}

static const struct file *file_resolve(const struct archive *a, const char *name)
{
	const struct file *f = file_find(a, name);

	for (int i = 0; f && f->target && i < LINKS_MAX; i++) {
		auto_free char *path = link_path(f);

		f = path ? file_find(a, path) : NULL;
	}
	return f && !f->target ? f : NULL;
}

static int missing(const char *name, struct den_err *err)
{
	return den_fail(err, DEN_INVALID, 0, "'%.100s' is missing in it", name);
}

static int dir_file(
	struct archive *a, const char *name, struct archive_file *ret, struct den_err *err)
{
	auto_fd fd = openat(a->fd, name, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	struct stat st;

	if (fd < 0 && errno == ENOENT)
		return missing(name, err);
	if (fd < 0 || fstat(fd, &st) < 0)
		return den_fail_sys(err, errno, "'%.100s'", name);
	if (!S_ISREG(st.st_mode))
		return den_fail(err, DEN_INVALID, 0, "'%.100s' in it is no file", name);
	*ret = (struct archive_file){
		.fd = fd_take(&fd), .own = true, .size = (uint64_t)st.st_size
	};
	return 0;
}

int archive_file(struct archive *a, const char *name, struct archive_file *ret, struct den_err *err)
{
	auto_free char *clean = name_clean(name);
	const struct file *f;

	if (!clean)
		return den_fail(err, DEN_INVALID, 0, "'%.100s' is no name of a file in it", name);
	if (a->dir)
		return dir_file(a, clean, ret, err);
	f = file_resolve(a, clean);
	if (!f)
		return missing(name, err);
	*ret = (struct archive_file){ .fd = a->fd, .at = f->at, .size = f->size };
	return 0;
}

bool archive_has(struct archive *a, const char *name)
{
	return a->dir ? faccessat(a->fd, name, F_OK, 0) == 0 : file_resolve(a, name) != NULL;
}

int archive_whole(struct archive *a, struct archive_file *ret, struct den_err *err)
{
	if (a->dir)
		return den_fail(err, DEN_INTERNAL, 0, "a directory is no archive");
	*ret = (struct archive_file){ .fd = a->fd, .size = a->size };
	return 0;
}

int archive_text(
	struct archive *a, const char *name, char **ret, size_t *ret_len, struct den_err *err)
{
	auto_free char *text = NULL;
	struct archive_file f;
	int r;

	if (archive_file(a, name, &f, err) < 0)
		return -1;
	if (f.size > JSON_IN_MAX) {
		r = den_fail(err, DEN_LIMIT, 0, "'%.100s' has %llu bytes; the limit is %u", name,
			(unsigned long long)f.size, JSON_IN_MAX);
	} else {
		text = mem_alloc((size_t)f.size + 1);
		r = spool_read(f.fd, f.at, text, (size_t)f.size, err);
	}
	if (f.own)
		close(f.fd);
	if (r < 0)
		return den_wrap(err, "'%.100s'", name);
	text[f.size] = '\0';
	*ret = mem_take(&text);
	*ret_len = (size_t)f.size;
	return 0;
}
