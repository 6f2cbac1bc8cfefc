/* What the files of images share; only src/store/image*.c see this. */
#pragma once

#include "buf.h"
#include "image.h"

#define IMAGE_PREFIX "i-"
#define IMAGE_TMP ".tmp-" /* template_sweep() takes away what has it, under the exclusive lock */

#define HOST_PREFIX "host-"

/* ---- image_parts.c */
bool hex_is_digest(const char *s); /* 64 lower-case hexadecimal digits, and no more */
bool image_parent_is_sane(const char *s); /* HOST_PREFIX and a version */
int image_check(const struct image *img, struct den_err *err);
void image_defaults_put(struct buf *b, const struct image_defaults *d);
/* Adds to *ret, also on failure. */
int image_defaults_get(const void *p, size_t n, struct image_defaults *ret, struct den_err *err);
/* Could what image_defaults_put() wrote be read back? */
int image_defaults_check(const struct buf *b, struct den_err *err);
void image_layers_put(struct buf *b, const struct image *img);
/* Adds to img, also on failure; text is taken to pieces. */
int image_layers_get(char *text, struct image *img, struct den_err *err);

/* What the id is made of: the bytes as they are on disk. */
struct image_parts {
	const char *parent, *config; /* NULL: none */
	const char *layers, *defaults;
	size_t layers_len, defaults_len;
};
void image_parts_id(const struct image_parts *p, char ret[static 65]);

/* ---- image.c */
/* templates/, made when missing. */
int image_dir(struct store *s, int *ret, struct den_err *err);
/* Is templates/i-ID there? */
bool image_there(struct store *s, const char *id);
/* Ids of all images on disk, damaged ones too. */
int image_list(struct store *s, char ***ret, struct den_err *err);
/* Since when nobody needs it (invariant 2): now, or ever. */
void image_stamp(struct store *s, const char *id, bool now);

/* ---- image_db.c */
/* Gives it the name; the lock is held. */
int image_name_put(struct store *s, const char *name, const char *id, bool beside, struct den_err *err);
/* Ids that a name or a box needs. */
int image_needed(struct store *s, char ***ret, struct den_err *err);
