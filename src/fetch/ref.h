/* What an image is called: HOST[:PORT]/NAME[:TAG][@sha256:...]. */
#pragma once

#include <stdbool.h>

#include "digest.h"

#define REF_NAME_MAX 255

struct image_ref {
	char host[REF_NAME_MAX + 1]; /* "localhost:5000", "[::1]:5000", "registry.example" */
	char repo[REF_NAME_MAX + 1]; /* "team/tool" */
	char tag[129]; /* "latest" where neither tag nor digest was given; "" with a digest alone */
	bool has_digest;
	struct digest digest; /* it decides where both are there */
	bool loopback; /* the host is this machine: "localhost", 127.0.0.0/8, [::1] */
};

int ref_parse(const char *text, struct image_ref *ret, struct den_err *err);
/* What goes behind ".../manifests/". */
void ref_version(const struct image_ref *r, char ret[static 136]);
