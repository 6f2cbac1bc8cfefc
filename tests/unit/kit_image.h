/* For tests of images: a state directory with a plain pool, and images in it. */
#pragma once

#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>

#include "buf.h"
#include "image.h"
#include "kit_layer.h"
#include "mem.h"
#include "sha256.h"
#include "strv.h"
#include "test.h"

static struct store *store;
static struct pool *pool;
static int templates;

static inline void state_open(void)
{
	struct pool_options plain = { .kind = "plain" };
	char path[PATH_MAX], id[65];
	struct den_err err;

	snprintf(path, sizeof(path), "%s/state", test_dir());
	well(store_open(path, true, &store, &err), &err);
	well(pool_open(store->fd, store->path, &plain, &pool, &err), &err);
	templates = openat(store->fd, "templates", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	CHECK(templates >= 0);
	/* The database is made here, alone: what happens when several make it is the database's test. */
	CHECK(image_find(store, "none", id, &err) < 0 && err.code == DEN_NOT_FOUND);
}

static inline void state_close(void)
{
	close(templates);
	pool_close(pool);
	store_close(store);
}

/* A layer with one file, in the pool; its digest. */
static inline void layer_make(const char *content, char hex[static 65])
{
	struct den_err err;
	char name[96];
	int fd;

	well(pool_make(pool, "layers/.new-test", &err), &err);
	fd = openat(pool->fd, "layers/.new-test", O_RDONLY | O_DIRECTORY);
	CHECK(fd >= 0);
	sub(fd, "u0");
	put(fd, "u0/file", content);
	digest(fd, hex);
	close(fd);
	snprintf(name, sizeof(name), "layers/%s", hex);
	well(pool_rename(pool, "layers/.new-test", name, &err), &err);
}

static inline bool layer_there(const char *hex)
{
	char name[96];

	snprintf(name, sizeof(name), "layers/%s", hex);
	return there(pool->fd, name);
}

static inline void layer_add(struct image *img, const char *hex, const char *at_, const char *diff)
{
	img->layers = mem_realloc(img->layers, (img->n_layers + 1) * sizeof(*img->layers));
	img->layers[img->n_layers] = (struct image_layer){ .sub = mem_strdup("u0"), .at = mem_strdup(at_) };
	memcpy(img->layers[img->n_layers].hex, hex, 65);
	img->layers[img->n_layers++].diff_id = diff ? mem_strdup(diff) : NULL;
}

#define DIFF "sha256:00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

static inline void image_fill(struct image *img, const char *hex)
{
	*img = (struct image){ .config = mem_strdup("{\"a\":1}"), .detail = mem_strdup("for people\n"),
		.size = 12345, .created_ms = 1700000000123 };
	layer_add(img, hex, "/", DIFF);
	img->defaults.user = mem_strdup("1000:1000");
	img->defaults.workdir = mem_strdup("/srv");
	strv_add(&img->defaults.env, "PATH=/bin");
	strv_add(&img->defaults.env, "EMPTY=");
	strv_add(&img->defaults.entrypoint, "/bin/sh");
	strv_add(&img->defaults.cmd, "-c");
	strv_add(&img->defaults.cmd, "");
}

static inline void image_make(const char *content, const char *name, char id[static 65], char hex[static 65])
{
	struct image img;
	struct den_err err;

	layer_make(content, hex);
	image_fill(&img, hex);
	well(image_put(store, &img, name, &err), &err);
	memcpy(id, img.id, 65);
	image_free(&img);
}

static inline void box_put(const char *id, const char *version)
{
	struct box_row row = { .version = (char *)version, .info.created_ms = 1 };
	struct den_err err;

	row.info.spec.id = (char *)id;
	CHECK(store_put(store, &row, &err) == 0);
}

#define HEX64 "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static inline void part(const char *id, const char *name, const char *data, size_t n)
{
	char path[160];
	int fd;

	snprintf(path, sizeof(path), "i-%s/%s", id, name);
	fd = openat(templates, path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	CHECK(fd >= 0 && write(fd, data, n) == (ssize_t)n);
	close(fd);
}

static inline int collect(const char *name, const struct image *img, void *user, struct den_err *err)
{
	(void)err;
	buf_addf(user, "%s=%.6s%s;", name, img->id, img->damage ? "!" : "");
	return 0;
}

static inline void count(const char *what, void *user)
{
	(void)what;
	++*(int *)user;
}
