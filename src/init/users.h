/*
 * Users and groups of the box, from its /etc/passwd and /etc/group: a static program has no NSS.
 *
 * Those files belong to the box: they may be missing, fifos, huge or nonsense. What cannot be read
 * counts as empty, a line that is not understood as missing.
 */
#pragma once

#include <sys/types.h>

#include "err.h"

#define USER_GROUPS 64

struct user {
	uid_t uid;
	gid_t gid;
	gid_t groups[USER_GROUPS]; /* supplementary, gid not among them */
	int n_groups;
	char name[64];	 /* empty: the number has none */
	char home[4096]; /* always absolute */
	char shell[256]; /* always absolute */
};

/* spec: "name", "uid", "name:group", "uid:gid". A number needs no entry: its group is then the same
 * number, its home "/". Supplementary groups come from /etc/group unless a group was asked for. */
int user_lookup(const char *spec, struct user *ret, struct den_err *err);
int group_lookup(const char *spec, gid_t *ret, struct den_err *err); /* "name" or "gid" */
/* The same, with the directory given that holds passwd and group. */
int user_lookup_at(int etc, const char *spec, struct user *ret, struct den_err *err);
int group_lookup_at(int etc, const char *spec, gid_t *ret, struct den_err *err);

/* Names for many numbers: the files are read once. NULL: it has none. The result is valid until the
 * next call. */
struct user_names;
struct user_names *user_names_new(int etc);
const char *user_names_user(struct user_names *n, uid_t uid);
const char *user_names_group(struct user_names *n, gid_t gid);
void user_names_free(struct user_names *n); /* NULL is allowed */
