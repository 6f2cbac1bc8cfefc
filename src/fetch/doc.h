/*
 * The JSON that a registry, a layout directory or an auth file holds. All of it may be hostile: its
 * size, depth and number of values are bounded before anything is built from it, and what comes out
 * is made of checked types.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "digest.h"
#include "err.h"

#define DOC_MAX (4U << 20) /* bytes of a document */
#define DOC_DEPTH 32 /* brackets within brackets */
#define DOC_VALUES 100000 /* about so many values */
#define DOC_LAYERS 1024 /* of an image; as many images of an index */
#define DOC_BLOB_MAX (1ULL << 42) /* bytes of a layer */

#define MEDIA_OCI_MANIFEST "application/vnd.oci.image.manifest.v1+json"
#define MEDIA_OCI_INDEX "application/vnd.oci.image.index.v1+json"
#define MEDIA_DOCKER_MANIFEST "application/vnd.docker.distribution.manifest.v2+json"
#define MEDIA_DOCKER_LIST "application/vnd.docker.distribution.manifest.list.v2+json"

struct descriptor {
	struct digest digest;
	uint64_t size;
	char media[128];
};

struct platform {
	char os[32], arch[32], variant[32]; /* "" where not said */
};

struct index_entry {
	struct descriptor d;
	struct platform platform;
};

struct doc {
	bool is_index;
	const char *media; /* one of MEDIA_* */
	struct index_entry *entries; /* of an index */
	size_t n_entries;
	struct descriptor config; /* of an image */
	struct descriptor *layers; /* lowest first, types known */
	size_t n_layers;
};

/* An image manifest or an index. said: the type that its descriptor or the server announced; NULL
 * or a general one such as "application/json" leaves the decision to the text. */
int doc_parse(const char *text, size_t n, const char *said, struct doc *ret, struct den_err *err);
void doc_free(struct doc *d);
#define auto_doc __attribute__((cleanup(doc_free))) struct doc

/* "linux/amd64", "linux/arm/v7" */
int platform_parse(const char *text, struct platform *ret, struct den_err *err);
void platform_host(struct platform *ret);
void platform_text(const struct platform *p, char ret[static 100]);
bool platform_fits(const struct platform *wanted, const struct platform *offered);
/* The image of an index for a platform; the message lists what there is. */
int index_choose(const struct doc *index, const struct platform *wanted,
	const struct index_entry **ret, struct den_err *err);
/* What an image's configuration says it is for. */
int config_platform(const char *text, size_t n, struct platform *ret, struct den_err *err);

/* What a token server answered. *ret: printable, without blanks; free() it. */
int token_parse(const char *text, size_t n, char **ret, struct den_err *err);
/* A registry's own words for a refusal; "" where it has none. */
void refusal_parse(const char *text, size_t n, char ret[static 120]);

/* As in ~/.docker/config.json. Each NULL or owned. */
struct login {
	char *user, *password;
	char *bearer; /* sent as it is */
	char *refresh; /* exchanged for a token */
};
/* The entry for a repository of a host; none found leaves *ret empty. helper: the file leaves it to
 * another program. */
int auth_file_parse(const char *text, size_t n, const char *host, const char *repo,
	struct login *ret, bool *helper, struct den_err *err);
void login_free(struct login *l);
