/* What the files of a build share: build.c (stages and steps), build_run.c, build_copy.c,
 * build_config.c. */
#pragma once

#include "build.h"
#include "context.h"
#include "dockerfile.h"
#include "sha256.h"

/* What the steps of a stage made so far. */
struct state {
	char *ref; /* the template: an id, "host" or "empty" */
	char *user, *workdir, *stop_signal; /* NULL: none */
	char **env, **entrypoint, **cmd, **shell;
	char **labels; /* "NAME=value" */
	char **ports; /* "80/tcp" */
	char **args; /* "NAME=value" of ARG */
	char **dirs; /* of WORKDIR, which the next step that makes files makes first */
	bool cmd_here; /* CMD was said in this stage */
};

struct stage {
	char *name; /* NULL: only a number */
	size_t from, end; /* its FROM, and the step after its last */
	bool done;
	struct state state;
};

struct build {
	const struct work *w;
	const struct build_opt *opt;
	struct dockerfile file;
	struct context context;
	struct stage *stages;
	size_t n_stages;
	char **args; /* of ARG before the first FROM: "NAME=value" */
	char **used; /* names that some ARG asked for */
	unsigned step, steps; /* for people */
};

void state_free(struct state *s);

/* build.c */
/* Expands with the stage's variables. */
int build_expand(const struct build *b, const struct state *s, const char *text, char **ret,
	struct den_err *err);
/* "web" or "0" is an earlier stage, which is built if it is not yet; else a template. The result is
 * what den_box_create() takes; the caller frees it. */
int build_source(struct build *b, size_t before, const char *name, char **ret, struct den_err *err);
/* Absolute, from the working directory. */
char *build_path(const struct state *s, const char *path);

/* The digest of a step's inputs. */
void key_begin(struct sha256 *k, const struct state *s, const char *what);
void key_text(struct sha256 *k, const char *text); /* NULL is allowed */
void key_texts(struct sha256 *k, char *const *v);

/* A step that changes files, in a box of its own. make: does it; *user is its. The result replaces
 * s->ref. */
typedef int (*step_fn)(
	struct build *b, struct state *s, struct den_box *box, void *user, struct den_err *err);
int build_files(struct build *b, struct state *s, struct sha256 *key, step_fn make, void *user,
	struct den_err *err);

/* build_run.c, build_copy.c */
int build_run(struct build *b, struct state *s, const struct df_step *step, struct den_err *err);
int build_copy(struct build *b, size_t stage, struct state *s, const struct df_step *step,
	struct den_err *err);

/* build_config.c */
int config_load(const struct den_template *t, struct state *s, struct den_err *err);
/* The OCI configuration of what was made; the caller frees it. */
int config_text(const struct state *s, char **ret, struct den_err *err);
