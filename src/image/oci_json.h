/* The JSON documents of an OCI image and of a docker archive become structs here. Pure: text in, no
 * file is opened, so it can be fuzzed. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"

#define OCI_LAYERS_MAX 120 /* more do not fit in one overlay */
#define OCI_INDEX_MAX 1024

#define OCI_MEDIA_INDEX "application/vnd.oci.image.index.v1+json"
#define OCI_MEDIA_MANIFEST "application/vnd.oci.image.manifest.v1+json"
#define OCI_MEDIA_CONFIG "application/vnd.oci.image.config.v1+json"
#define OCI_MEDIA_LAYER "application/vnd.oci.image.layer.v1.tar"
#define OCI_REF_NAME "org.opencontainers.image.ref.name"

/* A checked digest: "sha256:" and 64 lower-case hexadecimal digits. Only oci_digest_parse() makes
 * one, so whoever holds one may put it into a path. */
struct oci_digest {
	char s[72];
};
int oci_digest_parse(const char *text, struct oci_digest *ret, struct den_err *err);
static inline const char *oci_digest_hex(const struct oci_digest *d)
{
	return d->s + 7;
}

enum oci_media { OCI_UNKNOWN, OCI_INDEX, OCI_MANIFEST, OCI_CONFIG, OCI_LAYER, OCI_FOREIGN };
enum oci_media oci_media_of(const char *text);

struct oci_desc {
	enum oci_media media;
	char *media_text; /* NULL: not said */
	struct oci_digest digest;
	uint64_t size;
	char *ref; /* its name in the index; NULL: none */
	char *os, *arch; /* NULL: not said */
};

/* index.json, or an index that one points to. */
struct oci_index {
	struct oci_desc *list;
	size_t n;
};
int oci_index_parse(const char *text, size_t n, struct oci_index *ret, struct den_err *err);
void oci_index_free(struct oci_index *i);

struct oci_manifest {
	struct oci_desc config;
	struct oci_desc *layers;
	size_t n_layers;
};
int oci_manifest_parse(const char *text, size_t n, struct oci_manifest *ret, struct den_err *err);
void oci_manifest_free(struct oci_manifest *m);

/* What a box gets from an image, and what its layers are. */
struct oci_config {
	char *os, *arch; /* NULL: not said */
	char *user, *workdir; /* NULL: none */
	char **env, **entrypoint, **cmd;
	char **diff_ids; /* checked digests, lowest first */
	char *text; /* all of it */
};
/* need_layers: a configuration without rootfs.diff_ids is refused */
int oci_config_parse(
	const char *text, size_t n, bool need_layers, struct oci_config *ret, struct den_err *err);
void oci_config_free(struct oci_config *c);

/* An image in the manifest.json of `docker save`: names of files in the archive. */
struct docker_image {
	char *config;
	char **tags, **layers;
};
int docker_manifest_parse(
	const char *text, size_t n, struct docker_image **ret, size_t *ret_n, struct den_err *err);
void docker_images_free(struct docker_image *d, size_t n);

/* "amd64" for "x86_64": what images call the architecture of this machine. */
const char *oci_arch(void);
/* "linux/arm64", "arm64/v8" or "arm64": the architecture, into ret; another system is
 * DEN_UNSUPPORTED. */
int oci_platform_parse(const char *text, char ret[static 32], struct den_err *err);
