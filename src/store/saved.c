#include "saved.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fd.h"
#include "mem.h"
#include "saved_manifest.h"
#include "saved_pages.h"

void saved_path(const struct box_id *id, const char *before, uint64_t n, char out[static 96])
{
	snprintf(out, 96, SAVED_DIR "/%s/%s%llu", id->s, before, (unsigned long long)n);
}

int saved_open_dir(int at, const char *path)
{
	return openat(at, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

void saved_close(struct saved *v)
{
	struct den_err ignored;
	struct saved was = *v;

	if (v->unpacked)
		(void)tree_remove_at(v->s->fd, v->unpacked, &ignored);
	free(v->unpacked);
	for (size_t i = 0; i < v->n_files; i++)
		free(v->files[i].name);
	free(v->files);
	saved_about_free(&v->about);
	fd_close(&v->dirfd);
	fd_close(&v->lock); /* after what it guards */
	*v = (struct saved)SAVED_NONE;
	if (was.held) /* somebody may have removed it meanwhile */
		saved_sweep_box(was.s, &was.id);
}

/* ---- making ---- */

int saved_begin(
	struct store *s, const struct box_id *id, uint64_t n, int *ret_dirfd, struct den_err *err)
{
	char dir[64], path[96];

	snprintf(dir, sizeof(dir), SAVED_DIR "/%s", id->s);
	saved_path(id, ".", n, path);
	if ((mkdirat(s->fd, SAVED_DIR, 0700) < 0 && errno != EEXIST) ||
		(mkdirat(s->fd, dir, 0700) < 0 && errno != EEXIST))
		return den_fail_sys(err, errno, "make '%s'", dir);
	saved_abandon(s, id, n);
	if (mkdirat(s->fd, path, 0700) < 0)
		return den_fail_sys(err, errno, "make '%s'", path);
	*ret_dirfd = saved_open_dir(s->fd, path);
	return *ret_dirfd < 0 ? den_fail_sys(err, errno, "open '%s'", path) : 0;
}

void saved_abandon(struct store *s, const struct box_id *id, uint64_t n)
{
	struct den_err ignored;
	char path[96];

	saved_path(id, ".", n, path);
	(void)tree_remove_at(s->fd, path, &ignored);
	saved_path(id, "", n, path); /* it has no row, or would not be made again */
	(void)tree_remove_at(s->fd, path, &ignored);
}

static uint64_t ctime_ns(const struct stat *st)
{
	return (uint64_t)st->st_ctim.tv_sec * 1000000000ULL + (uint64_t)st->st_ctim.tv_nsec;
}

static int add_file(struct saved *v, int dirfd, const char *name, struct den_err *err)
{
	auto_fd fd = openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	struct saved_file *f;
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return den_fail_sys(err, errno, "open '%.60s'", name);
	if (!S_ISREG(st.st_mode) || name[0] == '.' || strchr(name, '\n') ||
		v->n_files == SAVED_FILES_MAX)
		return den_fail(
			err, DEN_INTERNAL, 0, "the wall left something strange: '%.60s'", name);
	if (!v->about.passing && fsync(fd) < 0)
		return den_fail_sys(err, errno, "write '%.60s'", name);
	v->files = mem_realloc(v->files, (v->n_files + 1) * sizeof(*v->files));
	f = &v->files[v->n_files++];
	*f = (struct saved_file){ .name = mem_strdup(name),
		.size = (uint64_t)st.st_size,
		.ino = st.st_ino,
		.ctime_ns = ctime_ns(&st) };
	v->bytes += f->size;
	return 0;
}

static int add_files(struct saved *v, int dirfd, struct den_err *err)
{
	int fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;
	DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
	struct dirent *de;

	if (!d)
		return den_fail_sys(err, errno, "read what was saved");
	while (r == 0 && (de = readdir(d)))
		if (strcmp(de->d_name, ".") && strcmp(de->d_name, "..") &&
			strcmp(de->d_name, SAVED_MANIFEST))
			r = add_file(v, dirfd, de->d_name, err);
	closedir(d);
	if (r == 0 && !v->n_files)
		r = den_fail(err, DEN_INTERNAL, 0, "the wall saved nothing");
	return r;
}

static int sync_at(int dirfd, const char *name, struct den_err *err)
{
	auto_fd fd = openat(dirfd, name, O_RDONLY | O_CLOEXEC);

	return fd < 0 || fsync(fd) < 0 ? den_fail_sys(err, errno, "write '%s'", name) : 0;
}

static int sync_parents(struct store *s, const struct box_id *id, struct den_err *err)
{
	char dir[64];

	snprintf(dir, sizeof(dir), SAVED_DIR "/%s", id->s);
	return sync_at(s->fd, dir, err) < 0 || sync_at(s->fd, SAVED_DIR, err) < 0
		       ? -1
		       : sync_at(s->fd, ".", err);
}

static char *copy(const char *text)
{
	return text ? mem_strdup(text) : NULL;
}

int saved_commit(struct store *s, const struct box_id *id, uint64_t n, int dirfd,
	const struct saved_about *about, uint64_t *ret_bytes, struct den_err *err)
{
	auto_saved v = SAVED_NONE;
	char making[96], made[96];

	v.about = (struct saved_about){ .wall = copy(about->wall),
		.runtime = copy(about->runtime ?: "unknown"),
		.template = copy(about->template),
		.kernel = copy(about->kernel),
		.machine = copy(about->machine),
		.cpu = copy(about->cpu),
		.ids = about->ids,
		.generation = about->generation,
		.passing = about->passing };
	saved_about_host(&v.about);
	saved_boot(v.boot);
	saved_path(id, ".", n, making);
	saved_path(id, "", n, made);
	if (add_files(&v, dirfd, err) < 0 || saved_manifest_write(dirfd, &v, err) < 0)
		return -1;
	if (renameat(s->fd, making, s->fd, made) < 0)
		return den_fail_sys(err, errno, "name '%s'", made);
	if (!about->passing && sync_parents(s, id, err) < 0)
		return -1;
	*ret_bytes = v.bytes;
	return 0;
}

/* ---- reading ---- */

int saved_open_locked(struct store *s, const struct box_id *id, uint64_t n, int how, struct saved *v,
	struct den_err *err)
{
	struct stat here, there;
	char path[96];

	saved_path(id, "", n, path);
	v->s = s;
	v->id = *id;
	v->lock = saved_open_dir(s->fd, path);
	if (v->lock < 0)
		return den_fail(err, DEN_NOT_FOUND, 0,
			"no programs were saved with checkpoint %llu of %s", (unsigned long long)n,
			id->s);
	if (how && flock(v->lock, how) < 0)
		return den_fail(
			err, DEN_CONFLICT, errno, "what was saved of the programs is in use");
	v->held = how != 0;
	if (fstat(v->lock, &here) < 0 || fstatat(s->fd, path, &there, AT_SYMLINK_NOFOLLOW) < 0 ||
		here.st_ino != there.st_ino)
		return den_fail(err, DEN_NOT_FOUND, 0, "checkpoint %llu of %s was just removed",
			(unsigned long long)n, id->s);
	return saved_manifest_read(v->lock, v, err);
}

int saved_look(struct store *s, const struct box_id *id, uint64_t n, struct saved *ret,
	struct den_err *err)
{
	struct saved v = SAVED_NONE;

	if (saved_open_locked(s, id, n, 0, &v, err) < 0) {
		saved_close(&v);
		return -1;
	}
	*ret = v;
	return 0;
}

void saved_usage(
	struct store *s, const struct box_id *id, uint64_t n, uint64_t *ret_own, uint64_t *ret_shared)
{
	struct dirent *de;
	char path[96];
	int fd;
	DIR *d;

	*ret_own = *ret_shared = 0;
	saved_path(id, "", n, path);
	fd = saved_open_dir(s->fd, path);
	d = fd >= 0 ? fdopendir(fd) : NULL;
	if (!d)
		fd_close(&fd);
	while (d && (de = readdir(d))) {
		struct stat st;

		if (fstatat(dirfd(d), de->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode))
			*(st.st_nlink > 1 ? ret_shared : ret_own) += (uint64_t)st.st_blocks * 512;
	}
	if (d)
		closedir(d);
}

static int damaged(const struct saved_file *f, struct den_err *err)
{
	return den_fail(err, DEN_UNSUPPORTED, 0,
		"what was saved of the programs is damaged: '%.60s' is not what it was", f->name);
}

/* Untouched since it was written, under this very kernel? */
static bool is_same(const struct saved_file *f, const struct stat *st, bool same_boot)
{
	return same_boot && st->st_ino == f->ino && ctime_ns(st) == f->ctime_ns &&
	       (uint64_t)st->st_size == f->size;
}

int saved_verify_plain(
	const struct saved *v, const struct saved_file *f, bool same_boot, struct den_err *err)
{
	struct stat st;
	char hash[65];

	if (fstatat(v->lock, f->name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode) ||
		(uint64_t)st.st_size != f->size)
		return damaged(f, err);
	if (!f->hash[0] || is_same(f, &st, same_boot))
		return 0;
	if (saved_hash(v->lock, f->name, hash, err) < 0)
		return -1;
	return strcmp(hash, f->hash) ? damaged(f, err) : 0;
}

static int unpack_file(const struct saved *v, const struct saved_file *f, struct den_err *err)
{
	char name[300], hash[65];
	struct stat st;

	snprintf(name, sizeof(name), "%s.zst", f->name);
	if (saved_unpack(v->lock, name, v->dirfd, f->name, f->size, hash, err) < 0)
		return -1;
	if (fstatat(v->dirfd, f->name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
		(uint64_t)st.st_size != f->size || strcmp(hash, f->hash))
		return damaged(f, err);
	return 0;
}

/* All files that are in the recipe. */
static int unpack_pages(const struct saved *v, struct den_err *err)
{
	auto_free const char **names = mem_zalloc((v->n_files + 1) * sizeof(*names));
	auto_recipe r = { 0 };
	uint32_t n = 0;

	if (saved_recipe_read(v->lock, v->recipe, &r, err) < 0)
		return -1;
	for (size_t i = 0; i < v->n_files; i++)
		if (v->files[i].how == SAVED_PAGES) {
			if (n == r.n_files || r.files[n].size != v->files[i].size)
				return damaged(&v->files[i], err);
			names[n++] = v->files[i].name;
		}
	if (n != r.n_files)
		return den_fail(err, DEN_UNSUPPORTED, 0,
			"what was saved of the programs is damaged: its list of pages");
	return saved_pages_read(v->lock, &r, names, v->dirfd, err);
}

/* Where there are no hard links, or no more of them, it is copied, and on disk. */
static int copy_one(int from, int to, const char *name, struct den_err *err)
{
	auto_fd in = openat(from, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC), out = -1;
	ssize_t n;

	if (in >= 0)
		out = openat(to, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (out < 0)
		return den_fail_sys(err, errno, "copy '%.60s'", name);
	do
		n = copy_file_range(in, NULL, out, NULL, 1U << 30, 0);
	while (n > 0 || (n < 0 && errno == EINTR));
	return n < 0 || fsync(out) < 0 ? den_fail_sys(err, errno, "copy '%.60s'", name) : 0;
}

static int link_one(int from, int to, const char *name, struct den_err *err)
{
	if (linkat(from, name, to, name, 0) == 0)
		return 0;
	if (errno == EPERM || errno == EMLINK || errno == EOPNOTSUPP)
		return copy_one(from, to, name, err);
	return den_fail_sys(err, errno, "link '%.60s'", name);
}

/* Beside those that are not packed, which are linked there. */
static int unpack(struct saved *v, uint64_t n, struct den_err *err)
{
	struct stat here, there;
	char path[96];

	snprintf(path, sizeof(path), SAVED_DIR "/%s/.%llu.%d", v->id.s, (unsigned long long)n,
		(int)getpid());
	(void)tree_remove_at(v->s->fd, path, err);
	if (mkdirat(v->s->fd, path, 0700) < 0)
		return den_fail_sys(err, errno, "make '%s'", path);
	v->unpacked = mem_strdup(path);
	v->dirfd = saved_open_dir(v->s->fd, path);
	/* who removes all of the box's must not take it away under whoever loads it */
	if (v->dirfd < 0 || flock(v->dirfd, LOCK_SH | LOCK_NB) < 0 || fstat(v->dirfd, &here) < 0 ||
		fstatat(v->s->fd, path, &there, AT_SYMLINK_NOFOLLOW) < 0 || here.st_ino != there.st_ino)
		return den_fail(err, DEN_NOT_FOUND, errno, "checkpoint %llu of %s was just removed", (unsigned long long)n,
			v->id.s);
	for (size_t i = 0; i < v->n_files; i++) {
		struct saved_file *f = &v->files[i];

		if (f->how == SAVED_WHOLE && unpack_file(v, f, err) < 0)
			return -1;
		if (f->how == SAVED_PLAIN && link_one(v->lock, v->dirfd, f->name, err) < 0)
			return -1;
	}
	return v->recipe[0] ? unpack_pages(v, err) : 0;
}

int saved_open(struct store *s, const struct box_id *id, uint64_t n, struct saved *ret,
	struct den_err *err)
{
	struct saved v = SAVED_NONE;
	bool packed = false, same_boot;
	char boot[37];
	int r;

	r = saved_open_locked(s, id, n, LOCK_SH, &v, err);
	saved_boot(boot);
	same_boot = boot[0] && !strcmp(boot, v.boot);
	if (r == 0 && v.about.passing && !same_boot)
		r = den_fail(err, DEN_UNSUPPORTED, 0, "the programs were saved for a moment only, and the host was started anew since");
	for (size_t i = 0; r == 0 && i < v.n_files; i++) {
		packed |= v.files[i].how != SAVED_PLAIN;
		if (v.files[i].how == SAVED_PLAIN)
			r = saved_verify_plain(&v, &v.files[i], same_boot, err);
	}
	if (r == 0 && packed)
		r = unpack(&v, n, err);
	else if (r == 0)
		v.dirfd = fcntl(v.lock, F_DUPFD_CLOEXEC, 3);
	if (r < 0) {
		saved_close(&v);
		return -1;
	}
	*ret = v;
	return 0;
}

/* ---- the same for another box ---- */

static int link_pages(const struct saved *v, int to, struct den_err *err)
{
	auto_recipe r = { 0 };

	if (saved_recipe_read(v->lock, v->recipe, &r, err) < 0 ||
		link_one(v->lock, to, SAVED_RECIPE, err) < 0)
		return -1;
	for (uint32_t i = 0; i < r.n_packs; i++) {
		char name[SAVED_PACK_NAME];

		saved_pack_name(r.packs[i], name);
		if (link_one(v->lock, to, name, err) < 0)
			return -1;
	}
	return 0;
}

int saved_share(struct store *s, const struct box_id *from, uint64_t n, const struct box_id *to,
	uint64_t to_n, struct den_err *err)
{
	auto_saved v = SAVED_NONE;
	auto_fd dir = -1;
	char making[96], made[96];
	int r = 0;

	if (saved_open_locked(s, from, n, LOCK_SH, &v, err) < 0 ||
		saved_begin(s, to, to_n, &dir, err) < 0)
		return -1;
	for (size_t i = 0; r == 0 && i < v.n_files; i++) {
		struct saved_file *f = &v.files[i];
		char name[300];

		snprintf(name, sizeof(name), "%s%s", f->name, f->how == SAVED_WHOLE ? ".zst" : "");
		if (f->how != SAVED_PAGES)
			r = link_one(v.lock, dir, name, err);
		if (r == 0 && f->how == SAVED_PLAIN && !f->hash[0]) /* a link changes its time */
			r = saved_hash(dir, f->name, f->hash, err);
		if (r == 0 && v.about.passing)
			r = sync_at(dir, name, err);
	}
	v.about.passing = false;
	if (r == 0 && v.recipe[0])
		r = link_pages(&v, dir, err);
	saved_path(to, ".", to_n, making);
	saved_path(to, "", to_n, made);
	if (r < 0 || saved_manifest_write(dir, &v, err) < 0)
		return -1;
	if (renameat(s->fd, making, s->fd, made) < 0)
		return den_fail_sys(err, errno, "name '%s'", made);
	return sync_parents(s, to, err);
}
