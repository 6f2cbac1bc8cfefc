/*
 * Settings of sandbox-runtime ("srt"), for people who come from it.
 *
 * Where srt ignores a key, a pattern or a path without a word, or cannot keep on this system what it says,
 * it is an error here that names the key and what to write instead. What differs by nature:
 *   - srt lets a program read all of the host but what denyRead names; a box sees the host's programs and
 *     what is shared with it. allowRead and allowWrite say what that is; so denyRead holds for the rest.
 *   - a path of allowWrite is shared, with the files that srt protects in it (.git/hooks, .bashrc and the
 *     like) read-only; /tmp, /var/tmp and /dev are the box's own, where it may write anyway.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "err.h"

struct srt {
	bool open; /* all that is public */
	char **allow, **deny; /* rules */
	char **mounts; /* "HOST:BOX" or "HOST:BOX:ro", parents first */
	char **notes; /* what has no meaning here, one sentence each */
	char *workdir; /* the present directory, if it is shared; NULL */
};
void srt_free(struct srt *s);
#define auto_srt __attribute__((cleanup(srt_free))) struct srt

/* files: look at the file system for `mounts`, too. */
int srt_read(const char *path, bool files, struct srt *ret, struct den_err *err);
int srt_parse(const char *json, size_t n, bool files, struct srt *ret, struct den_err *err);
/* A domain of srt's becomes a rule (free() it). */
int srt_domain(const char *text, bool deny, char **ret, struct den_err *err);

/* srt_files.c: what filesystem names. */
struct srt_files {
	char **allow_write, **deny_write, **allow_read, **deny_read;
	bool git_config;
	int depth;
};
int srt_mounts(const struct srt_files *f, struct srt *ret, struct den_err *err);
