/* Options that describe a box or an exec become what den.h wants. */
#pragma once

#include "den.h"
#include "net_args.h"
#include "options.h"

/**
 * mount_parse() - "HOST:BOX", "HOST:BOX:ro", "HOST:BOX:rw"
 * @host: absolute, links resolved; the caller frees it
 * @box:  absolute, without "." and ".."; the caller frees it
 *
 * HOST may hold colons, for it ends at the last one. It must exist.
 */
int mount_parse(const char *text, char **host, char **box, bool *ro, struct den_err *err);
/**
 * env_parse() - "K=V", or "K" to take the value from den's own environment
 * @env: "K=V" is added, or replaces what K was before
 */
int env_parse(const char *text, char ***env, struct den_err *err);
/* A file of "K=V" lines; empty ones and those that start with # are skipped. */
int env_file_parse(const char *path, char ***env, struct den_err *err);

/* A spec and what it points to. */
struct box_args {
	struct den_box_spec spec;
	struct den_mount *mounts;
	size_t n_mounts;
	char **env;
	char *workdir;
	struct net_args net;
};
int box_args_make(const struct args *a, struct box_args *ret, struct den_err *err);
void box_args_free(struct box_args *b);
#define auto_box_args __attribute__((cleanup(box_args_free))) struct box_args
/* --ttl, --on-expire, --idle, --on-idle; what is not said stays as it is. */
int lease_args_make(const struct args *a, struct den_lease *ret, struct den_err *err);
/* The same for a box that is made, with its labels. */
int box_args_lease(const struct args *a, struct den_box_spec *ret, struct den_err *err);
/* Only what --env-file and --env say, files first. */
int env_make(const struct args *a, char ***ret, struct den_err *err);

/* Whether the program gets a terminal, and whether den's stdin is worth passing on. */
bool args_tty(const struct args *a);
bool args_stdin(const struct args *a);
/**
 * exec_args_make() - the limits, flags and terminal of an exec
 * @argv: not copied; NULL or empty: a login shell
 * @env:  with a terminal, TERM is added unless it is there
 */
void exec_args_make(const struct args *a, char **argv, char ***env, struct den_exec_opt *ret);
