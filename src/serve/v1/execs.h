/* One exec and who listens to it: shared by waiting, server-sent events and WebSocket. */
#pragma once

#include "handlers.h"

struct follow {
	struct req *r;
	struct den_box *box;
	struct den_exec *exec;
	pid_t pid;
	bool started, ended, failed; /* failed: could not start, or was lost; err says why */
	bool gone; /* the client did not take what we sent; err says so */
	struct den_exec_result result;
	struct den_err err;
	/* Takes output, where there is a listener; -1: it is gone. */
	int (*output)(struct follow *f, int stream, const void *p, size_t n, struct den_err *err);
	void *user;
	/* What is still to be fed to stdin. */
	const char *in;
	size_t n_in;
	bool in_eof; /* close it after */
};
extern const struct den_exec_ops v1_follow_ops;

/* What a body or a query asks for. */
struct exec_args {
	char **argv, **env;
	const char *command, *cwd, *user, *tag, *input_b64;
	json_t *input; /* "stdin": a text, or true: stays open */
	bool tty, detach;
	uint64_t rows, cols, timeout_ms, cpu_ms, grace_ms, max_output, keep;
	char *bytes; /* all of stdin */
	size_t n_bytes;
	bool has_input, open_input;
};
void v1_exec_args_free(struct exec_args *a);
#define auto_exec_args __attribute__((cleanup(v1_exec_args_free))) struct exec_args
int v1_exec_args_get(const json_t *body, struct exec_args *a, struct den_err *err);
/* Starts it and waits until it has started or failed, or the client is gone. */
int v1_follow_start(struct follow *f, struct exec_args *a, bool kill_on_close, struct den_err *err);
int v1_follow_attach(struct follow *f, const char *ref, bool live, struct den_err *err);
/* One step: waits for news at most timeout_ms. Gives the REQ_ bits without REQ_READY, or -1. */
int v1_follow_step(struct follow *f, int timeout_ms, struct den_err *err);
int v1_follow_feed(struct follow *f, struct den_err *err); /* what there is room for */
/* Lets go: the exec goes on, or with kill it is killed with all that it started. */
void v1_follow_leave(struct follow *f, bool kill);

/* exec_stream.c: starts (a) or follows (ref) an exec, as server-sent events */
int v1_exec_sse(struct follow *f, struct exec_args *a, const char *ref, bool live,
	bool kill_on_close, struct den_err *err);
json_t *v1_exec_json(const struct den_exec_info *e);
