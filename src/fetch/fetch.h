/*
 * den-fetch: images from and to a registry (OCI distribution, API v2), as a process of its own that
 * holds no privilege and can write to one directory only.
 *
 * Reading order: main.c (options), guard.c (what it gives up), pull.c, push.c (the two verbs),
 * registry.c (what is asked), http.c (how), doc.c (what comes back), layout.c (where it goes).
 */
#pragma once

#include "auth.h"
#include "http.h"
#include "layout.h"
#include "progress.h"
#include "ref.h"

struct fetch {
	struct image_ref ref;
	struct platform platform;
	struct layout layout;
	struct auth auth;
	struct http *http;
	struct progress progress;
	char *base; /* "https://host:port/v2/NAME" */

	/* options */
	bool plain, quiet;
	unsigned jobs, stall_sec;
	char *ca;
	size_t ca_len;
};

/* ---- registry.c */

/* Chooses http or https and is ready to ask. */
int registry_open(struct fetch *f, bool push, struct den_err *err);
void registry_close(struct fetch *f);
/* "BASE/what/name" as a new text. */
char *registry_url(const struct fetch *f, const char *what, const char *name);
/* A manifest or index. wanted: its descriptor, NULL for the one that the reference names. What it
 * is called by its digest in *ret_d; its text in *ret. */
int registry_manifest(struct fetch *f, const struct descriptor *wanted, struct buf *ret,
	struct descriptor *ret_d, struct den_err *err);
/* An error for an answer that is none of those expected. what: "the image", "blob 0123" */
int registry_refusal(
	const struct fetch *f, const struct http_req *r, const char *what, struct den_err *err);

/* ---- pull.c, push.c; *ret: the image's digest */

int fetch_pull(struct fetch *f, struct digest *ret, struct den_err *err);
int fetch_push(struct fetch *f, struct digest *ret, struct den_err *err);

/* ---- blob.c */

/* Those that are not there yet, several at a time. A digest may be listed more than once. */
int blobs_pull(struct fetch *f, const struct descriptor *list, size_t n, struct den_err *err);
