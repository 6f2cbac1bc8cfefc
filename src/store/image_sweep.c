/*
 * Whole-store questions about images: which layer came from which tar, and what nobody needs.
 *
 * Sweeping is done under the exclusive lock, so nobody is between finding something and writing
 * down that he needs it (image.h, invariant 3). What goes is only renamed there; freeing it, which
 * takes as long as it is large, comes after the lock was given back.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "buf.h"
#include "fd.h"
#include "image_parts.h"
#include "mem.h"
#include "strv.h"

struct sweep {
	struct store *s;
	struct pool *pool;
	void (*removed)(const char *what, void *user);
	void *user;
	char **needed;	/* images, by names and boxes */
	char **layers;	/* that images have which stay; sorted when all are there */
	char **orphans; /* that images had which went */
	char **trash;	/* layers/.old-HEX: to be freed */
	bool damage;	/* an image that stays does not tell its layers */
	struct den_err why;
};

static int by_text(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static bool has(char **sorted, const char *s)
{
	return sorted && bsearch(&s, sorted, strv_len(sorted), sizeof(*sorted), by_text);
}

static void sort(char **v)
{
	if (v)
		qsort(v, strv_len(v), sizeof(*v), by_text);
}

/* A clock that was set back makes it look young: it goes later. */
static bool is_old(const struct timespec *since)
{
	return time(NULL) - since->tv_sec > IMAGE_YOUNG_S;
}

static void tell(struct sweep *w, const char *kind, const char *hex)
{
	char text[96];

	snprintf(text, sizeof(text), "%s %s", kind, hex);
	if (w->removed)
		w->removed(text, w->user);
}

/* The layers of one image go to the list. -1: it cannot be read. */
static int layers_note(struct sweep *w, const char *id, char ***list, struct den_err *err)
{
	struct image img = { 0 };

	if (image_get(w->s, id, &img, err) < 0)
		return -1;
	for (size_t i = 0; i < img.n_layers; i++)
		strv_add(list, img.layers[i].hex);
	image_free(&img);
	return 0;
}

/* Out of sight in one step: a half-removed image must never look whole. */
static int image_remove(struct sweep *w, int dirfd, const char *id, struct den_err *err)
{
	char name[96], tmp[96];

	/* Of a damaged one the layers are not known; they go when they are old. */
	(void)layers_note(w, id, &w->orphans, NULL);
	snprintf(name, sizeof(name), IMAGE_PREFIX "%s", id);
	snprintf(tmp, sizeof(tmp), IMAGE_TMP "old-%s", id);
	if (tree_remove_at(dirfd, tmp, err) < 0)
		return -1;
	if (renameat(dirfd, name, dirfd, tmp) < 0)
		return den_fail_sys(err, errno, "rename '%s'", name);
	tell(w, "template", id);
	return tree_remove_at(dirfd, tmp, err);
}

static int images_sweep(struct sweep *w, struct den_err *err)
{
	auto_strv ids = NULL;
	auto_fd dirfd = -1;

	if (image_dir(w->s, &dirfd, err) < 0 || image_list(w->s, &ids, err) < 0)
		return -1;
	for (char **id = ids; id && *id; id++) {
		struct stat st = { 0 };
		char name[96];

		snprintf(name, sizeof(name), IMAGE_PREFIX "%s", *id);
		if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			return den_fail_sys(err, errno, "'%s'", name);
		if (!has(w->needed, *id) && is_old(&st.st_mtim)) {
			if (image_remove(w, dirfd, *id, err) < 0)
				return -1;
		} else if (layers_note(w, *id, &w->layers, &w->why) < 0) {
			w->damage = true;
		}
	}
	/* A name or a box whose image is gone altogether says nothing about its layers either. */
	for (char **id = w->needed; id && *id; id++)
		if (hex_is_digest(*id) && !image_there(w->s, *id)) {
			w->damage = true;
			den_fail(&w->why, DEN_INTERNAL, 0, "template %.12s is missing", *id);
		}
	return 0;
}

static int layer_drop(struct sweep *w, const char *hex, struct den_err *err)
{
	char from[96], to[96];

	snprintf(from, sizeof(from), "layers/%s", hex);
	snprintf(to, sizeof(to), "layers/.old-%s", hex);
	if (pool_remove(w->pool, to, err) < 0 || pool_rename(w->pool, from, to, err) < 0)
		return -1;
	strv_add(&w->trash, to);
	tell(w, "layer", hex);
	return 0;
}

static int layers_sweep(struct sweep *w, struct den_err *err)
{
	int fd = openat(w->pool->fd, "layers", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC),
	    r = 0;
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	auto_strv drop = NULL;
	struct dirent *de;

	if (fd < 0 && errno == ENOENT)
		return 0;
	if (!d) {
		r = den_fail_sys(err, errno, "list layers");
		fd_close(&fd);
		return r;
	}
	while ((de = readdir(d))) {
		struct stat st;

		/* The change time: when it got this name. Its modification time is the box's to
		 * choose. */
		if (hex_is_digest(de->d_name) && !has(w->layers, de->d_name) &&
			fstatat(fd, de->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
			(has(w->orphans, de->d_name) || is_old(&st.st_ctim)))
			strv_add(&drop, de->d_name);
	}
	closedir(d);
	for (char **hex = drop; r == 0 && hex && *hex; hex++)
		r = layer_drop(w, *hex, err);
	return r;
}

static int sweep_locked(struct sweep *w, struct den_err *err)
{
	auto_fd lock = -1;

	if (image_lock(w->s, true, &lock, err) < 0 || image_needed(w->s, &w->needed, err) < 0)
		return -1;
	sort(w->needed);
	if (images_sweep(w, err) < 0)
		return -1;
	if (!w->pool || w->damage)
		return 0;
	sort(w->layers);
	sort(w->orphans);
	return layers_sweep(w, err);
}

int image_sweep(struct store *s, struct pool *p, void (*removed)(const char *what, void *user),
	void *user, struct den_err *err)
{
	struct sweep w = { .s = s, .pool = p, .removed = removed, .user = user };
	int r = sweep_locked(&w, err);

	for (char **name = w.trash; name && *name; name++)
		if (pool_remove(p, *name, r == 0 ? err : NULL) < 0)
			r = -1;
	strv_free(w.needed);
	strv_free(w.layers);
	strv_free(w.orphans);
	strv_free(w.trash);
	if (r == 0 && w.damage) {
		if (err)
			*err = w.why;
		r = den_wrap(err, "layers are kept");
	}
	return r < 0 ? den_wrap(err, "sweep templates") : 0;
}

/* ---- questions ---- */

static bool layer_take(struct image *img, const char *diff_id, struct image_layer *ret)
{
	for (size_t i = 0; i < img->n_layers; i++) {
		struct image_layer *l = &img->layers[i];

		if (l->diff_id && !strcmp(l->diff_id, diff_id) && !strcmp(l->at, "/")) {
			*ret = *l;
			*l = (struct image_layer){ 0 };
			return true;
		}
	}
	return false;
}

int image_layer_by_diff(struct store *s, const char *diff_id, struct image_layer *ret)
{
	auto_strv ids = NULL;
	int found = 0;

	if (image_list(s, &ids, NULL) < 0)
		return 0;
	for (char **id = ids; id && *id && !found; id++) {
		struct image img = { 0 };

		if (image_get(s, *id, &img, NULL) == 0)
			found = layer_take(&img, diff_id, ret);
		image_free(&img);
	}
	return found;
}

bool image_needs_host(struct store *s, const char *version)
{
	auto_strv ids = NULL;
	bool found = false;

	if (image_list(s, &ids, NULL) < 0)
		return true;
	for (char **id = ids; id && *id && !found; id++) {
		struct image img = { 0 };

		found = image_get(s, *id, &img, NULL) < 0 ||
			(img.parent && !strcmp(img.parent + strlen(HOST_PREFIX), version));
		image_free(&img);
	}
	return found;
}
