/* An image's folder: writing it, reading it back without believing it, and opening it for a box. */
#include "image.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <time.h>

#include "buf.h"
#include "clock.h"
#include "fd.h"
#include "image_parts.h"
#include "mem.h"
#include "parse.h"
#include "place.h"
#include "strv.h"
#include "tar.h"
#include "wire.h"

#define DIR_FLAGS (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
#define LOCK_EVERY_MS 20
#define LOCK_TRIES 100
#define LAYERS_TEXT_MAX (IMAGE_LAYERS_MAX * 1024U)

/* ---- the folder ---- */

int image_dir(struct store *s, int *ret, struct den_err *err)
{
	int fd;

	if (mkdirat(s->fd, PLACE_TEMPLATES, 0700) < 0 && errno != EEXIST)
		return den_fail_sys(err, errno, "make '" PLACE_TEMPLATES "'");
	fd = openat(s->fd, PLACE_TEMPLATES, DIR_FLAGS);
	if (fd < 0)
		return den_fail_sys(err, errno, "open '" PLACE_TEMPLATES "'");
	*ret = fd;
	return 0;
}

/* Who makes a template holds it shared as long as that takes, minutes maybe: nobody waits that long
 * without a word. */
static int lock_alone(int fd, struct den_err *err)
{
	for (int tries = 0; flock(fd, LOCK_EX | LOCK_NB) < 0; tries++) {
		if (errno != EINTR && errno != EWOULDBLOCK)
			return den_fail_sys(err, errno, "lock the templates");
		if (tries >= LOCK_TRIES)
			return den_fail(err, DEN_CONFLICT, 0,
				"a template is just being made (a commit, a build or an import); "
				"try again when that is done");
		nanosleep(&(struct timespec){ .tv_nsec = LOCK_EVERY_MS * 1000000L }, NULL);
	}
	return 0;
}

int image_lock(struct store *s, bool exclusive, int *ret_fd, struct den_err *err)
{
	auto_fd dirfd = -1, fd = -1;

	if (image_dir(s, &dirfd, err) < 0)
		return -1;
	fd = openat(dirfd, ".lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return den_fail_sys(err, errno, "open the lock of the templates");
	if (exclusive && lock_alone(fd, err) < 0)
		return -1;
	while (!exclusive && flock(fd, LOCK_SH) < 0)
		if (errno != EINTR)
			return den_fail_sys(err, errno, "lock the templates");
	*ret_fd = fd_take(&fd);
	return 0;
}

struct image_path {
	char s[sizeof(PLACE_TEMPLATES "/" IMAGE_PREFIX) + 64];
};

/* id is a digest. */
static struct image_path image_path(const char *id)
{
	struct image_path p;

	snprintf(p.s, sizeof(p.s), PLACE_TEMPLATES "/" IMAGE_PREFIX "%s", id);
	return p;
}

bool image_there(struct store *s, const char *id)
{
	return faccessat(s->fd, image_path(id).s, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

void image_stamp(struct store *s, const char *id, bool now)
{
	struct timespec ts[2] = { { .tv_nsec = UTIME_OMIT }, { .tv_nsec = now ? UTIME_NOW : 0 } };

	/* If it fails, the image is swept later, or a little too early while it has no name. */
	(void)utimensat(s->fd, image_path(id).s, ts, AT_SYMLINK_NOFOLLOW);
}

int image_list(struct store *s, char ***ret, struct den_err *err)
{
	auto_strv ids = NULL;
	struct dirent *de;
	int fd;
	DIR *d;

	if (image_dir(s, &fd, err) < 0)
		return -1;
	d = fdopendir(fd);
	if (!d) {
		fd_close(&fd);
		return den_fail_sys(err, errno, "list '" PLACE_TEMPLATES "'");
	}
	while ((de = readdir(d)))
		if (!strncmp(de->d_name, IMAGE_PREFIX, strlen(IMAGE_PREFIX)) &&
			hex_is_digest(de->d_name + strlen(IMAGE_PREFIX)))
			strv_add(&ids, de->d_name + strlen(IMAGE_PREFIX));
	closedir(d);
	*ret = mem_take(&ids);
	return 0;
}

/* ---- reading ---- */

/* A text has no NUL inside; ret_len: NULL for a text. */
static int part_read(
	int dirfd, const char *name, size_t max, char **ret, size_t *ret_len, struct den_err *err)
{
	auto_fd fd = openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	auto_free char *text = NULL;
	struct stat st;
	size_t len;

	if (fd < 0 || fstat(fd, &st) < 0)
		return den_fail_sys(err, errno, "'%s'", name);
	if (!S_ISREG(st.st_mode))
		return den_fail(err, DEN_INVALID, 0, "'%s' is not a file", name);
	if (fd_read_all(fd, max, &text, &len, err) < 0)
		return den_wrap(err, "'%s'", name);
	if (!ret_len && strlen(text) != len)
		return den_fail(err, DEN_INVALID, 0, "'%s' has a NUL inside", name);
	*ret = mem_take(&text);
	if (ret_len)
		*ret_len = len;
	return 0;
}

static int meta_line(const char *key, const char *value, struct image *img, struct den_err *err)
{
	uint64_t n;

	if (!strcmp(key, "parent") && !img->parent && image_parent_is_sane(value)) {
		img->parent = mem_strdup(value);
		return 0;
	}
	if (strcmp(key, "created") && strcmp(key, "size"))
		return den_fail(
			err, DEN_INVALID, 0, "'meta': '%s' is not understood", tar_show(key).s);
	if (parse_u64(value, 0, INT64_MAX, &n, err) < 0)
		return den_wrap(err, "'meta': %s", key);
	if (key[0] == 'c')
		img->created_ms = (int64_t)n;
	else
		img->size = n;
	return 0;
}

static int meta_get(char *text, struct image *img, struct den_err *err)
{
	char *value;

	while ((value = strsep(&text, "\n"))) {
		const char *key = strsep(&value, " ");

		if (!value && !*key && !text)
			break; /* after the last line */
		if (!value)
			return den_fail(
				err, DEN_INVALID, 0, "'meta': '%s' has no value", tar_show(key).s);
		if (meta_line(key, value, img, err) < 0)
			return -1;
	}
	return 0;
}

static int parts_read(int fd, const char *id, struct image *img, struct den_err *err)
{
	auto_free char *layers = NULL, *defaults = NULL, *meta = NULL;
	struct image_parts p = { 0 };
	struct den_err none;
	char now[65];

	if (part_read(fd, "layers", LAYERS_TEXT_MAX, &layers, NULL, err) < 0 ||
		part_read(fd, "defaults", WIRE_MAX_PAYLOAD, &defaults, &p.defaults_len, err) < 0 ||
		part_read(fd, "meta", 4096, &meta, NULL, err) < 0 || meta_get(meta, img, err) < 0 ||
		part_read(fd, "detail", IMAGE_DETAIL_MAX, &img->detail, NULL, err) < 0)
		return -1;
	if (part_read(fd, "config", IMAGE_CONFIG_MAX, &img->config, NULL, &none) < 0 &&
		none.sys != ENOENT)
		return den_fail(err, none.code, 0, "%.200s", none.msg);
	p.parent = img->parent;
	p.config = img->config;
	p.layers = layers;
	p.layers_len = strlen(layers);
	p.defaults = defaults;
	image_parts_id(&p, now);
	if (strcmp(now, id))
		return den_fail(err, DEN_INTERNAL, 0, "its parts do not have its digest");
	if (image_layers_get(layers, img, err) < 0)
		return den_wrap(err, "'layers'");
	if (image_defaults_get(defaults, p.defaults_len, &img->defaults, err) < 0)
		return den_wrap(err, "'defaults'");
	return image_check(img, err);
}

static int damaged(struct den_err *err, const char *id)
{
	if (err && (err->code == DEN_DENIED || (err->code == DEN_LIMIT && err->sys)))
		return den_wrap(err, "template %.12s",
			id); /* ours is the trouble: no descriptors, no memory */
	if (err)
		err->code = DEN_INTERNAL; /* it is nothing that the caller asked for */
	return den_wrap(err, "template %.12s is damaged; remove it and make it again", id);
}

int image_get(struct store *s, const char *id, struct image *ret, struct den_err *err)
{
	struct image img = { 0 };
	auto_fd fd = -1;

	if (!hex_is_digest(id))
		return den_fail(err, DEN_INVALID, 0, "'%s' is no id of a template", tar_show(id).s);
	fd = openat(s->fd, image_path(id).s, DIR_FLAGS);
	if (fd < 0 && errno == ENOENT)
		return den_fail(err, DEN_NOT_FOUND, 0,
			"no template %.12s; 'den template ls' lists them", id);
	if (fd < 0) {
		den_fail_sys(err, errno, "open");
		return damaged(err, id);
	}
	if (parts_read(fd, id, &img, err) < 0) {
		image_free(&img);
		return damaged(err, id);
	}
	memcpy(img.id, id, sizeof(img.id));
	*ret = img;
	return 0;
}

/* ---- writing ---- */

static int part_write(int dirfd, const char *name, const void *p, size_t n, struct den_err *err)
{
	auto_fd fd = openat(dirfd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	if (fd < 0)
		return den_fail_sys(err, errno, "create '%s'", name);
	if (fd_write_all(fd, p, n, err) < 0)
		return den_wrap(err, "'%s'", name);
	return fsync(fd) < 0 ? den_fail_sys(err, errno, "write '%s' to disk", name) : 0;
}

static int parts_write(
	int fd, const struct image *img, const struct image_parts *p, struct den_err *err)
{
	auto_buf meta = { 0 };
	const char *detail = img->detail ? img->detail : "";

	if (img->parent)
		buf_addf(&meta, "parent %s\n", img->parent);
	buf_addf(&meta, "created %" PRId64 "\nsize %" PRIu64 "\n", img->created_ms, img->size);
	if (part_write(fd, "layers", p->layers, p->layers_len, err) < 0 ||
		part_write(fd, "defaults", p->defaults, p->defaults_len, err) < 0 ||
		(p->config && part_write(fd, "config", p->config, strlen(p->config), err) < 0) ||
		part_write(fd, "meta", meta.p, meta.len, err) < 0 ||
		part_write(fd, "detail", detail, strlen(detail), err) < 0)
		return -1;
	return fsync(fd) < 0 ? den_fail_sys(err, errno, "write to disk") : 0;
}

static bool image_is_whole(struct store *s, const char *id)
{
	struct image img = { 0 };

	if (image_get(s, id, &img, NULL) < 0)
		return false;
	image_free(&img);
	return true;
}

/* The folder gets its name. Somebody else may have made the same at the same time: then theirs
 * stays, unless it is damaged, when ours takes its place. */
static int folder_name(
	struct store *s, int dirfd, const char *tmp, const char *id, struct den_err *err)
{
	char name[80];

	snprintf(name, sizeof(name), IMAGE_PREFIX "%s", id);
	if (renameat2(dirfd, tmp, dirfd, name, RENAME_NOREPLACE) == 0)
		return 0;
	if (errno != EEXIST)
		return den_fail_sys(err, errno, "name the template");
	if (image_is_whole(s, id)) {
		image_stamp(s, id, true);
		return 0;
	}
	if (renameat2(dirfd, tmp, dirfd, name, RENAME_EXCHANGE) < 0)
		return den_fail_sys(err, errno, "replace a damaged template");
	return 0;
}

static int folder_write(struct store *s, const struct image *img, const struct image_parts *p,
	const char *id, struct den_err *err)
{
	auto_fd dirfd = -1, fd = -1;
	uint64_t random;
	char tmp[64];
	int r;

	if (image_dir(s, &dirfd, err) < 0)
		return -1;
	if (getrandom(&random, sizeof(random), 0) != sizeof(random))
		return den_fail_sys(err, errno, "getrandom");
	snprintf(tmp, sizeof(tmp), IMAGE_TMP "image-%016" PRIx64, random);
	if (mkdirat(dirfd, tmp, 0700) < 0)
		return den_fail_sys(err, errno, "make '%s'", tmp);
	fd = openat(dirfd, tmp, DIR_FLAGS);
	r = fd < 0 ? den_fail_sys(err, errno, "open '%s'", tmp) : parts_write(fd, img, p, err);
	if (r == 0)
		r = folder_name(s, dirfd, tmp, id, err);
	tree_remove_at(dirfd, tmp, NULL); /* if it still has that name, or got it in exchange */
	if (r == 0 && fsync(dirfd) < 0)
		r = den_fail_sys(err, errno, "write to disk");
	return r;
}

int image_put(struct store *s, struct image *img, const char *name, struct den_err *err)
{
	auto_buf layers = { 0 }, defaults = { 0 };
	struct image_parts p = { .parent = img->parent, .config = img->config };
	auto_fd lock = -1;
	char id[65];

	if ((name && image_name_check(name, err) < 0) || image_check(img, err) < 0)
		return -1;
	image_defaults_put(&defaults, &img->defaults);
	if (image_defaults_check(&defaults, err) < 0)
		return -1;
	image_layers_put(&layers, img);
	p.layers = buf_str(&layers);
	p.layers_len = layers.len;
	p.defaults = buf_str(&defaults);
	p.defaults_len = defaults.len;
	image_parts_id(&p, id);
	if (!img->created_ms)
		img->created_ms = clock_wall_ms();
	if (image_lock(s, false, &lock, err) < 0)
		return -1;
	if (image_is_whole(s, id))
		image_stamp(s, id, true);
	else if (folder_write(s, img, &p, id, err) < 0)
		return den_wrap(err, "write template");
	memcpy(img->id, id, sizeof(id));
	return name ? image_name_put(s, name, id, img->beside, err) : 0;
}

/* ---- opening ---- */

/* One name at a time: what is below the layer's own folder was made by a box. */
static int layer_open(const struct pool *p, const struct image_layer *l, struct den_err *err)
{
	auto_free char *path = NULL;
	char head[80], *rest, *part;
	auto_fd fd = -1;

	snprintf(head, sizeof(head), "layers/%s", l->hex);
	fd = openat(p->fd, head, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	rest = path = mem_strdup(l->sub);
	while (fd >= 0 && (part = strsep(&rest, "/"))) {
		int next = openat(fd, part, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

		fd_close(&fd);
		fd = next;
	}
	if (fd < 0)
		return den_fail_sys(err, errno, "layer %.12s, '%s'", l->hex, l->sub);
	return fd_take(&fd);
}

static bool layer_is_opaque(int fd)
{
	char self[32], value[2];

	snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
	return getxattr(self, "user.overlay.opaque", value, sizeof(value)) == 1 && value[0] == 'y';
}

static void lowers_prepend(struct template_tree *t, char *path)
{
	size_t n = strv_len(t->lowers);

	t->lowers = mem_realloc(t->lowers, (n + 2) * sizeof(*t->lowers));
	memmove(t->lowers + 1, t->lowers, n * sizeof(*t->lowers));
	t->lowers[0] = path;
	t->lowers[n + 1] = NULL;
}

static int layer_stack(const struct pool *p, const struct image_layer *l, struct template *t,
	struct den_err *err)
{
	auto_buf path = { 0 };
	auto_fd fd = layer_open(p, l, err);
	struct template_tree *tree = NULL;

	if (fd < 0)
		return -1;
	for (size_t i = 0; i < t->n_trees && !tree; i++)
		if (!strcmp(t->trees[i].at, l->at))
			tree = &t->trees[i];
	if (!tree)
		return den_fail(err, DEN_INTERNAL, 0,
			"layer %.12s belongs to '%s', which is not there", l->hex, l->at);
	if (layer_is_opaque(fd)) {
		strv_free(tree->lowers);
		tree->lowers = NULL;
	}
	buf_addf(&path, "%s/layers/%s/%s", p->path, l->hex, l->sub);
	lowers_prepend(tree, mem_strdup(buf_str(&path)));
	return 0;
}

static int ground_open(
	struct store *s, const struct image *img, struct template *t, struct den_err *err)
{
	if (img->parent) {
		const char *version = img->parent + strlen(HOST_PREFIX);

		if (template_open_version(s->fd, s->path, "host", version, t, err) < 0)
			return den_wrap(err, "what it stands on");
		/* Owners were given at the first start of the box that the layers come from: they
		 * hold them. */
		if (img->n_layers) {
			free(t->owners_path);
			t->owners_path = NULL;
		}
		free(t->name);
		free(t->version);
		free(t->detail);
	} else {
		t->trees = mem_new(struct template_tree);
		t->n_trees = 1;
		t->trees[0].at = mem_strdup("/");
	}
	t->name = mem_strdup(img->id);
	t->version = mem_strdup(img->id);
	t->detail = mem_strdup(img->detail);
	return 0;
}

int image_open(struct store *s, const struct pool *p, const char *id, struct template *ret,
	struct image_defaults *ret_defaults, struct den_err *err)
{
	struct template t = { 0 };
	struct image img = { 0 };
	int r;

	if (image_get(s, id, &img, err) < 0)
		return -1;
	r = ground_open(s, &img, &t, err);
	for (size_t i = 0; r == 0 && i < img.n_layers; i++)
		r = layer_stack(p, &img.layers[i], &t, err);
	if (r < 0) {
		template_free(&t);
		damaged(err, id);
	} else {
		*ret = t;
		if (ret_defaults) {
			*ret_defaults = img.defaults;
			img.defaults = (struct image_defaults){ 0 };
		}
	}
	image_free(&img);
	return r;
}
