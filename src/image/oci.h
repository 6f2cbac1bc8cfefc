/*
 * Where an image comes from: an OCI layout directory, an archive of one, a `docker save` archive,
 * or the plain tar of a root file system. An archive may be compressed, and may come from a pipe.
 *
 * Nothing is believed: a blob's digest and size and a layer's diff-id are checked while it is read
 * (oci_layer_end()), before anything is made of it.
 */
#pragma once

#include <stdbool.h>

#include "den.h"
#include "oci_json.h"

struct oci;
/* path "-": standard input. max: bytes that an archive may unpack to; 0: any number. The caller
 * ends it with oci_close(). */
int oci_open(const char *path, uint64_t max, struct oci **ret, struct den_err *err);
/* Takes fd, an archive, also on failure. */
int oci_open_fd(int fd, uint64_t max, struct oci **ret, struct den_err *err);
void oci_close(struct oci *o); /* NULL is allowed */
const char *oci_kind(const struct oci *o); /* "OCI layout" and so on, for people */

struct oci_choice {
	const char *ref; /* the name of the image where there are several; NULL: there is one */
	const char *arch; /* NULL: this machine's; another one is refused */
};

struct oci_layer {
	char *file; /* in the archive or layout; NULL: the archive itself */
	struct oci_digest digest; /* of the file; empty: not said */
	uint64_t size; /* with digest */
	struct oci_digest diff_id; /* of the plain tar; empty: not said */
};

struct oci_image {
	struct oci_config config; /* text NULL: none */
	struct oci_layer *layers; /* lowest first */
	size_t n_layers;
	char *ref; /* the name it had; NULL: none */
};
int oci_image_load(
	struct oci *o, const struct oci_choice *choice, struct oci_image *ret, struct den_err *err);
void oci_image_free(struct oci_image *i);

/* The plain tar of a layer. */
struct oci_reader;
/* max: bytes that may come out; 0: any number */
int oci_layer_open(struct oci *o, const struct oci_layer *l, uint64_t max, struct oci_reader **ret,
	struct den_err *err);
/* A den_source; user is the struct oci_reader. */
ssize_t oci_layer_read(void *buf, size_t cap, void *user, struct den_err *err);
/* Reads what is left and compares digests. *ret: the diff-id. DEN_CONFLICT: they differ. */
int oci_layer_end(struct oci_reader *r, struct oci_digest *ret, struct den_err *err);
void oci_layer_close(struct oci_reader *r); /* NULL is allowed */
