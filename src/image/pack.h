/* A layer on its way out: plain tar bytes in, compressed ones in a spool, and the digests of
 * both. */
#pragma once

#include "den.h"
#include "export.h"
#include "oci_json.h"

struct packed {
	int fd; /* -1: none */
	uint64_t size;
	struct oci_digest digest, diff_id;
};
struct packer;
int packer_new(enum export_pack pack, struct packer **ret, struct den_err *err);
int packer_add(const void *data, size_t n, void *user, struct den_err *err); /* a den_sink */
int packer_end(struct packer *p, struct packed *ret, struct den_err *err);
void packer_free(struct packer *p); /* NULL is allowed */
void packed_free(struct packed *p);
