/*
 * The parts of making the template "host"; only src/store/template_*.c and their test see this.
 *
 *   template_host.c       versions, the atomic build, sweeping
 *   template_table.c      what is copied and what is made: tables with a reason a line
 *   template_copy.c       the copier that keeps the rules
 *   template_accounts.c   passwd, group, shadow, sudoers
 *   template_skel.c       the layer above each host directory
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "buf.h"
#include "err.h"
#include "template.h"

#define BOX_UID 1000 /* the account "user" of each box */
#define NOBODY_ID 65534

struct account {
	char name[33];
	unsigned id; /* uid or gid */
};

/* One run of the builder. */
struct make {
	int src; /* root directory of the host, or of a test's stand-in for it */
	uid_t src_owner; /* whose files are believed: root, or what root looks like from here */
	int dst; /* the template's root/ */
	bool idmap, id_range;

	struct account *users, *groups; /* those of the box */
	size_t n_users, n_groups;

	struct buf owners; /* the file of that name */
	struct buf notes; /* lines for the file detail */

	unsigned copied, hidden, left_out, dirs, setuid;
	unsigned credentials; /* of left_out: files that hold a password or a key */
	struct buf secret_names; /* of the first of them */

	template_progress progress;
	void *user;
	int64_t started, told; /* clock_mono_ns() */
};

void make_init(struct make *m, int src, int dst, bool idmap, bool id_range);
void make_free(struct make *m);
/* Tells how far the build is, when it takes long enough that somebody would wonder. */
void make_tell(struct make *m, const char *doing);

/* Gives the entry its owner, group and mode: on disk where that means something, else in the list
 * of owners. `path` is its path in the box without leading slash. */
int make_own(struct make *m, int dirfd, const char *name, const char *path, unsigned uid,
	unsigned gid, mode_t mode, struct den_err *err);
/* Makes path and what is missing above it (0755) below m->dst, and opens it. */
int make_dir(struct make *m, const char *path, int *ret_fd, struct den_err *err);
/* Writes a generated file below m->dst. */
int make_file(struct make *m, const char *path, const char *text, size_t n, unsigned uid,
	unsigned gid, mode_t mode, struct den_err *err);

/* ---- template_copy.c */
enum copy_flags {
	COPY_PUBLIC_KEYS = 1, /* names like *.key are public keys here */
	COPY_OPAQUE = 2, /* made by packages, not by people: not searched for secrets */
	COPY_TO_USER = 4, /* owned by the account "user" */
};
struct copy_rule {
	const char *from; /* below m->src; the last part may be a pattern */
	const char *to; /* the directory below m->dst; NULL: the same as in from */
	const char *as; /* another name there; NULL: the same */
	const char *not_; /* a name within, left out; NULL: none */
	unsigned flags;
	size_t max; /* largest file; 0: COPY_MAX */
	const char *why;
};
#define COPY_MAX (1 << 20)
int copy_by_rule(struct make *m, const struct copy_rule *r, struct den_err *err);
/* A URL with a password or a private key in it? */
bool copy_holds_secret(const char *text, size_t n);

/* ---- template_table.c */
int table_make(struct make *m, struct den_err *err);

/* ---- template_accounts.c */
/* Reads the host's accounts, decides on the box's (m->users, m->groups) and writes the files. */
int accounts_make(struct make *m, struct den_err *err);
/* fallback when the box has no such account. */
unsigned account_id(const struct account *list, size_t n, const char *name, unsigned fallback);

/* ---- template_skel.c */
/*
 * Builds the layer above the host directory `path` (below m->src, without leading slash) in
 * dirfd/name. *ret_local is set when path is "usr" and usr/local is a file system of its own, which
 * an overlay of /usr does not show.
 */
int skel_make(struct make *m, const char *path, int dirfd, const char *name, bool *ret_local,
	struct den_err *err);
