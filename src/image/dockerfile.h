/*
 * Dockerfiles: text becomes steps. Pure: nothing is opened or run, so it can be fuzzed.
 *
 * Variables are expanded by whoever runs the steps, for their values depend on the steps before.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "err.h"

#define DOCKERFILE_MAX (4U << 20) /* bytes of a file, and of one expanded value */

enum df_kind {
	DF_FROM,
	DF_RUN,
	DF_COPY,
	DF_ADD,
	DF_ENV,
	DF_WORKDIR,
	DF_USER,
	DF_ENTRYPOINT,
	DF_CMD,
	DF_ARG,
	DF_LABEL,
	DF_EXPOSE,
	DF_SHELL,
	DF_STOPSIGNAL,
	DF_VOLUME,
	DF_HEALTHCHECK,
	DF_ONBUILD,
	DF_MAINTAINER,
	DF_KINDS,
};

/* A text that stands in the file itself, after <<NAME. */
struct df_heredoc {
	char *word; /* as it stands in the line: <<-"EOF" */
	char *name, *text;
	bool expand; /* NAME was not quoted */
};

struct df_step {
	enum df_kind kind;
	unsigned line; /* where it begins, from 1 */
	char **flags; /* "from=base", as written but for the dashes */
	char *text; /* what follows them; continued lines are joined */
	char **list; /* the JSON form, ["a", "b"]; NULL: plain text */
	struct df_heredoc *docs;
	size_t n_docs;
};

struct dockerfile {
	struct df_step *steps;
	size_t n;
	char escape;
};
int dockerfile_parse(const char *text, size_t n, struct dockerfile *ret, struct den_err *err);
void dockerfile_free(struct dockerfile *d);

const char *df_kind_str(enum df_kind kind); /* "FROM" */
/* The value of a flag, "" when it has none; NULL: not given. */
const char *df_flag(const struct df_step *s, const char *name);

/* ---- df_words.c ---- */

/* Splits at blanks that stand in no quotes; quotes and escapes stay. An open quote is
 * DEN_INVALID. */
int df_words(const char *text, char escape, char ***ret, struct den_err *err);
/* NAME=value pairs of ENV, LABEL and ARG, or `NAME the rest`: two vectors of the same length, not
 * yet expanded. lone: a NAME alone is allowed, and its value is DF_NO_VALUE. */
int df_pairs(const char *text, char escape, bool lone, char ***ret_names, char ***ret_values,
	struct den_err *err);
#define DF_NO_VALUE "\1"

/* The value of a variable, NULL: not set. */
typedef const char *(*df_lookup)(const char *name, void *user);
/* $X ${X} ${X:-y} ${X:+y} ${X-y} ${X+y} ${X:?why}, and takes quotes and escapes away. */
int df_expand(const char *text, char escape, df_lookup lookup, void *user, char **ret,
	struct den_err *err);
