/*
 * Templates other than "host": images.
 *
 *   templates/i-HEX/         HEX: the image's digest, so it never changes
 *            layers          one line a layer, lowest first: HEX TAB subdirectory TAB tree TAB diff-id or "-"
 *            defaults        struct image_defaults, in the wire's encoding
 *            config          the image's configuration (OCI image config JSON), opaque here; may be missing
 *            meta            "parent host-VERSION" (may be missing), "created MS", "size BYTES"
 *            detail          for people
 *   pool/layers/HEX          HEX: tree digest (layer_digest())
 *   names are rows of the table `templates`: name, image, created_ms
 *
 * The id is the SHA-256 of parent, layers, config and defaults, and is compared whenever an image is
 * read: a damaged one is refused before a box is made of it.
 *
 * Invariants
 *  1. An image that has a name, or that a box stands on, is whole: its folder got its name last.
 *  2. An image without a name and without a box on it is nobody's, and so is a layer without an image;
 *     but for IMAGE_YOUNG_S somebody may be about to use it. The folder's modification time is when that
 *     began: image_put() sets it to now, losing the last name to the epoch.
 *  3. Whoever makes something that needs an image or a layer holds image_lock(), shared, from finding it
 *     until the row or the folder that needs it is written:
 *         box       image_lock, image_open, store_put, close
 *         template  image_lock, (image_layer_by_diff | pool_rename to layers/HEX), image_put, close
 *     Names are taken away and things are swept under the exclusive lock only.
 */
#pragma once

#include "pool.h"
#include "store.h"
#include "template.h"

#define IMAGE_NAME_MAX 200
#define IMAGE_LAYERS_MAX 256
#define IMAGE_CONFIG_MAX (4U << 20)
#define IMAGE_DETAIL_MAX (64U << 10)
#define IMAGE_YOUNG_S 600

/* What a box made from it gets where it does not say otherwise. */
struct image_defaults {
	char *user, *workdir;
	char **env, **entrypoint, **cmd;
};
void image_defaults_free(struct image_defaults *d);

struct image_layer {
	char hex[65];
	char *sub;     /* "u0" or "u0/layer" */
	char *at;      /* the tree it belongs to: "/"; without a parent there is no other */
	char *diff_id; /* "sha256:..." of the tar it came from; NULL: none */
};
void image_layer_free(struct image_layer *l);

struct image {
	char id[65];
	char *parent; /* "host" and its version: "host-0123456789abcdef"; NULL: stands alone */
	struct image_layer *layers; /* lowest first */
	size_t n_layers;
	struct image_defaults defaults;
	char *config, *detail;
	int64_t created_ms;
	uint64_t size; /* bytes of its layers */
	/* image_each(): why it cannot be read, and only id is set; NULL: it is whole */
	char *damage;
	/* image_put(): a template with programs may have the name, too, and goes on to be what it means */
	bool beside;
};
void image_free(struct image *i);

/* "debian:12", "registry.example:5000/a/b:Tag", at most IMAGE_NAME_MAX bytes; "host" and "empty"
 * are reserved, and so is what could be an id. */
int image_name_check(const char *name, struct den_err *err);

/* flock() of templates/.lock; ends with close(*ret_fd). It is template_open()'s too, so who holds
 * it may not call template_open("host") (template_open_version() is fine), image_untag() or
 * image_sweep(). Who holds it shared may call everything else here. Exclusive: DEN_CONFLICT
 * when others have not let go of it in two seconds. */
int image_lock(struct store *s, bool exclusive, int *ret_fd, struct den_err *err);

/* Writes templates/i-HEX (img->id is set by it) and gives it a name (may be NULL; an existing name
 * moves to it). The layers are in the pool already. On disk when it returns. created_ms 0: now. An
 * image that is there already stays as it is, unless it is damaged. */
int image_put(struct store *s, struct image *img, const char *name, struct den_err *err);
/* By name, by id, or by a prefix of an id (12 or more). */
int image_find(struct store *s, const char *ref, char ret_id[static 65], struct den_err *err);
int image_get(struct store *s, const char *id, struct image *ret, struct den_err *err);
/* As template_open(): trees with absolute paths; t.name and t.version are the id. A layer whose
 * root is opaque ends its tree: overlayfs itself does not look at that mark. ret_defaults may be
 * NULL. */
int image_open(struct store *s, const struct pool *p, const char *id, struct template *ret,
	struct image_defaults *ret_defaults, struct den_err *err);
int image_tag(struct store *s, const char *id, const char *name, bool beside, struct den_err *err); /* as of struct image */
/* Takes a name away; the image goes when nothing needs it (image_sweep()). DEN_CONFLICT if it is
 * the last name and a box stands on it, unless force. */
int image_untag(struct store *s, const char *name, bool force, struct den_err *err);
/* Each name, sorted; no lock is held meanwhile. fn returns -1 to stop. */
int image_each(struct store *s, int (*fn)(const char *name, const struct image *img, void *user,
	struct den_err *err), void *user, struct den_err *err);
/* A layer that an earlier import made of the same tar. 1: *ret filled in, image_layer_free(); 0:
 * none. */
int image_layer_by_diff(struct store *s, const char *diff_id, struct image_layer *ret);
/* Does an image, named or not, stand on this version of "host"? For template_sweep(): true also
 * when it cannot be told. */
bool image_needs_host(struct store *s, const char *version);
/* Removes images that nothing needs, then layers that no image has. p may be NULL: no pool, no
 * layers. If an image that is needed is damaged no layer is removed, and after everything else that
 * is an error. removed may be NULL. */
int image_sweep(struct store *s, struct pool *p, void (*removed)(const char *what, void *user),
	void *user, struct den_err *err);

/* ---- layer.c */

/* The digest of a tree: SHA-256 over its entries in byte order (path, type, mode, owner, size,
 * target, device, xattrs without overlay's private ones but "opaque", content). Times are not part
 * of it, nor is which files are one by hard links. *ret_bytes (may be NULL): content that is not
 * zeros, each file once. */
int layer_digest(int dirfd, char ret_hex[static 65], uint64_t *ret_bytes, struct den_err *err);
/* After unpacking an image's layer as it is: ".wh.X" becomes a whiteout, ".wh..wh..opq" the opaque
 * mark; overlayfs's private xattrs and whiteouts of the unpacking box go, so it is done once. A
 * ".wh.X" beside X hides the X of layers below: a directory X becomes opaque. Hostile input:
 * beneath dirfd, no link followed. */
int layer_convert(int dirfd, struct den_err *err);
