/*
 * Sealing what was saved of programs: hashes, and large files as pages that checkpoints of one box share.
 *
 * One at a time in a box, by a lock on its directory. Without the lock of the checkpoint itself: who wants to remove it
 * need not wait for this, and takes what is made of it along. Only while the one takes the other's place nobody may
 * read; it is waited for a while until nobody does, then it stays as it is, with hashes.
 *
 * Packs and recipe are on disk, read back and compared; then the manifest that names them is, and then files that it
 * does not name are dropped. So kill -9 or a power cut at any point leaves the one or the other, and what is beside it
 * goes with the next seal of the box, or with the checkpoint.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "fd.h"
#include "mem.h"
#include "parse.h"
#include "saved_manifest.h"
#include "saved_pages.h"

#define LARGE 65536U /* files from here on are packed */
#define LOOK_AT 64 /* checkpoints, for packs */
#define FORGOTTEN_S 60
#define ALONE_TRIES 100 /* whoever forks or rolls back to it just now is done in seconds */
#define ALONE_NAP_NS 200000000L

/* ---- what belongs to it ---- */

static bool is_named(const struct saved *v, const struct saved_recipe *r, const char *name)
{
	char text[300];

	if (!strcmp(name, SAVED_MANIFEST) || (v->recipe[0] && !strcmp(name, SAVED_RECIPE)))
		return true;
	for (uint32_t i = 0; i < r->n_packs; i++) {
		saved_pack_name(r->packs[i], text);
		if (!strcmp(name, text))
			return true;
	}
	for (size_t i = 0; i < v->n_files; i++) {
		snprintf(text, sizeof(text), "%s%s", v->files[i].name,
			v->files[i].how == SAVED_WHOLE ? ".zst" : "");
		if (v->files[i].how != SAVED_PAGES && !strcmp(name, text))
			return true;
	}
	return false;
}

/* All that the manifest does not name. */
static void drop_unnamed(const struct saved *v)
{
	auto_recipe r = { 0 };
	struct den_err ignored;
	struct dirent *de;
	int fd;
	DIR *d;

	if (v->recipe[0] && saved_recipe_read(v->lock, v->recipe, &r, &ignored) < 0)
		return;
	fd = openat(v->lock, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	d = fd >= 0 ? fdopendir(fd) : NULL;
	if (!d)
		fd_close(&fd);
	while (d && (de = readdir(d)))
		if (strcmp(de->d_name, ".") && strcmp(de->d_name, "..") &&
			!is_named(v, &r, de->d_name))
			unlinkat(v->lock, de->d_name, 0);
	if (d)
		closedir(d);
}

/* ---- packs of others ---- */

static int newest_first(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x > y ? -1 : x < y;
}

/* Numbers of what the box has; free() them. */
static uint64_t *numbers_of(struct store *s, const struct box_id *id, size_t *ret_n)
{
	uint64_t *all = NULL, n;
	struct dirent *de;
	char dir[64];
	int fd;
	DIR *d;

	*ret_n = 0;
	snprintf(dir, sizeof(dir), SAVED_DIR "/%s", id->s);
	fd = saved_open_dir(s->fd, dir);
	d = fd >= 0 ? fdopendir(fd) : NULL;
	if (!d)
		fd_close(&fd);
	while (d && (de = readdir(d)))
		if (parse_u64(de->d_name, 0, INT64_MAX, &n, NULL) == 0) {
			all = mem_realloc(all, (*ret_n + 1) * sizeof(*all));
			all[(*ret_n)++] = n;
		}
	if (d)
		closedir(d);
	if (all)
		qsort(all, *ret_n, sizeof(*all), newest_first);
	return all;
}

static void offer_others(const struct saved *v, uint64_t n, struct saved_maker *m)
{
	size_t count;
	auto_free uint64_t *all = numbers_of(v->s, &v->id, &count);

	for (size_t i = 0; i < MIN(count, (size_t)LOOK_AT); i++) {
		auto_saved other = SAVED_NONE;
		auto_recipe r = { 0 };
		struct den_err ignored;

		if (all[i] != n &&
			saved_open_locked(v->s, &v->id, all[i], 0, &other, &ignored) == 0 &&
			other.recipe[0] &&
			saved_recipe_read(other.lock, other.recipe, &r, &ignored) == 0)
			saved_maker_offer(m, other.lock, &r);
	}
}

/* ---- sealing ---- */

static bool is_large(const struct saved_file *f)
{
	return f->how == SAVED_PLAIN && f->size > LARGE &&
	       f->size <= (uint64_t)UINT32_MAX * SAVED_PAGE;
}

/* Recipe and packs beside the large files, on disk. 1: there is nothing large. */
static int make_pages(const struct saved *v, uint64_t n, char ret[static 65], struct den_err *err)
{
	auto_free const char **names = mem_zalloc((v->n_files + 1) * sizeof(*names));
	auto_free uint64_t *sizes = mem_zalloc((v->n_files + 1) * sizeof(*sizes));
	struct saved_maker *m;
	uint32_t large = 0;
	int r;

	for (size_t i = 0; i < v->n_files; i++) {
		if (!is_large(&v->files[i]))
			continue;
		/* what is damaged must not get hashes that say that it is not */
		if (saved_verify_plain(v, &v->files[i], false, err) < 0)
			return -1;
		sizes[large] = v->files[i].size;
		names[large++] = v->files[i].name;
	}
	if (!large)
		return 1;
	m = saved_maker_new(v->lock, names, sizes, large);
	offer_others(v, n, m);
	r = saved_maker_run(m, true, ret, err);
	if (r < 0 &&
		err->code == DEN_UNSUPPORTED) /* one of theirs is damaged: this one shall not be */
		r = saved_maker_run(m, false, ret, err);
	saved_maker_free(m);
	return r;
}

static int hash_plain(struct saved *v, bool large, bool *changed, struct den_err *err)
{
	for (size_t i = 0; i < v->n_files; i++) {
		struct saved_file *f = &v->files[i];

		if (f->how != SAVED_PLAIN || f->hash[0] || (!large && is_large(f)))
			continue;
		if (saved_hash(v->lock, f->name, f->hash, err) < 0)
			return -1;
		*changed = true;
	}
	return 0;
}

static int seal(struct saved *v, uint64_t n, bool pack, struct den_err *err)
{
	bool changed = false, alone = false;
	char recipe[65];

	pack = pack && !v->recipe[0] && make_pages(v, n, recipe, err) == 0;
	if (hash_plain(v, !pack, &changed, err) < 0)
		return -1;
	for (int i = 0; pack && !alone && i < ALONE_TRIES; i++) {
		if (i)
			nanosleep(&(struct timespec){ .tv_nsec = ALONE_NAP_NS }, NULL);
		alone = flock(v->lock, LOCK_EX | LOCK_NB) == 0;
	}
	if (!alone && flock(v->lock, LOCK_SH | LOCK_NB) < 0)
		return den_fail(err, DEN_CONFLICT, 0, "it is being removed");
	v->held = true;
	if (alone) {
		for (size_t i = 0; i < v->n_files; i++)
			if (is_large(&v->files[i])) {
				v->files[i].how = SAVED_PAGES;
				v->files[i].hash[0] = '\0';
			}
		memcpy(v->recipe, recipe, sizeof(recipe));
		changed = true;
	} else if (hash_plain(v, true, &changed, err) < 0) {
		return -1;
	}
	if (changed && saved_manifest_write(v->lock, v, err) < 0)
		return -1;
	drop_unnamed(v);
	return 0;
}

/* Whoever was to seal it is not there any more, or never was. */
static bool is_forgotten(const struct saved *v)
{
	struct stat st;

	if (v->about.passing || fstatat(v->lock, SAVED_MANIFEST, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
		time(NULL) - st.st_mtime < FORGOTTEN_S)
		return false;
	for (size_t i = 0; i < v->n_files; i++)
		if (v->files[i].how == SAVED_PLAIN && !v->files[i].hash[0])
			return true;
	return false;
}

static void seal_forgotten(struct store *s, const struct box_id *id, uint64_t but)
{
	size_t count;
	auto_free uint64_t *all = numbers_of(s, id, &count);

	for (size_t i = 0; i < count; i++) {
		auto_saved v = SAVED_NONE;
		struct den_err ignored;

		if (all[i] != but && saved_open_locked(s, id, all[i], 0, &v, &ignored) == 0 &&
			is_forgotten(&v))
			(void)seal(&v, all[i], true, &ignored);
	}
}

int saved_seal(struct store *s, const struct box_id *id, uint64_t n, bool pack, struct den_err *err)
{
	auto_saved v = SAVED_NONE;
	auto_fd line = -1;
	char dir[64];
	int r;

	snprintf(dir, sizeof(dir), SAVED_DIR "/%s", id->s);
	line = saved_open_dir(s->fd, dir);
	if (line >= 0 && flock(line, LOCK_EX) < 0)
		return den_fail_sys(err, errno, "wait for '%s'", dir);
	if (saved_open_locked(s, id, n, 0, &v, err) < 0)
		return -1;
	r = seal(&v, n, pack, err);
	saved_close(&v);
	seal_forgotten(s, id, n);
	return r;
}
