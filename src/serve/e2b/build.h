/*
 * A build of a template: a box of what it is from, the steps in it, and a commit. It runs in a thread of its own
 * with a handle of its own; rows in serve.db tell how it goes. A build whose server ends is over: its box goes
 * with the connection, and the next server says so in the row.
 *
 *   requested -> queued    e2b_build_start()   steps are there
 *   queued    -> building  build_main()        one of BUILDS_MAX at a time
 *   building  -> ready     build_main()        the template has its name and tags
 *   building  -> error     build_main(), or start() of the next server
 */
#pragma once

#include "e2b_parts.h"

#define BUILDS_MAX 4

struct line {
	int64_t time_ms;
	const char *level; /* literal */
	char *step, *text;
};

struct build {
	char id[37];
	struct who who;
	char *name; /* as clients know it */
	char **tags;
	uint64_t cpus, memory_mb; /* 0: not said */
	json_t *body; /* what was asked */

	struct den *den;
	struct den_box *box;
	char *user, *workdir; /* as the steps so far say */
	char **env;
	json_t *config; /* of the template it is from; object */
	char step
		[16]; /* which one, for people and for who marks the line: "base", "1".., "finalize" */

	struct line *lines; /* not written yet */
	size_t n_lines, lines_all;
	int64_t flushed_ms;
	struct buf tail[2]; /* of stdout, stderr: the line that has not ended */
};

void build_free(struct build *b);
/* No box of a build has more than the key's quota, and none is without a limit where there is one. */
void build_limit(const struct build *b, struct den_box_spec *s);
/* Takes it over. */
int build_begin(struct build *b, struct den_err *err);

/* build_log.c */
void build_say(struct build *b, const char *level, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
void build_output(
	int stream, const void *data, size_t n, void *user); /* run_output; user: struct build */
void build_output_end(struct build *b);
void build_flush(struct build *b);

/* build_steps.c */
int build_steps(struct build *b, struct den_err *err);
/* A shell command in the box; what it prints goes to the log. */
int build_shell(struct build *b, const char *command, const char *user, const char *cwd,
	struct den_err *err);
/* build_start.c: what sandboxes of the template begin as: a box of it in which the start command runs. Where that cannot be
 * kept the build's log says why, and the command is started in each of them. */
void build_bake(struct build *b, const char *start, const char *ready);
/* Programs of an earlier build go; its files stay until the new ones have the name. */
int build_unbake(struct build *b, struct den_err *err);
/* build_copy.c */
int build_copy(struct build *b, const json_t *step, struct den_err *err);
