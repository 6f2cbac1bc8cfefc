/* Work in a process of its own whose answer goes to a client's socket. job.c explains. */
#pragma once

#include "keeper.h"

struct job_out {
	int fd;
};

struct job_spec {
	/* Opens what it needs, with all rights. May be NULL. */
	int (*prepare)(void *arg, struct den_err *err);
	/* Runs with the right to read everything, unless `writes`. Ends with WM_OK or WM_FAIL by itself. */
	int (*run)(void *arg, const struct job_out *out, struct den_err *err);
	void *arg;
	bool writes; /* keeps its rights: it changes files of the store */
	bool quiet;  /* the keeper answers on success, when it has done its part */
};

/* In the job: bytes (a den_sink; user is a struct job_out), and a record of fields. */
int job_data(const void *p, size_t n, void *user, struct den_err *err);
int job_record(const struct job_out *out, const struct buf *fields, struct den_err *err);

/* Called in the keeper when it has ended. May be NULL. */
typedef void (*job_done)(struct keeper *k, void *user, bool ok);
/* Forks. spec->arg is the child's copy; out is the caller's to close. */
int job_start(struct keeper *k, const struct job_spec *spec, int out, job_done done, void *user,
	struct den_err *err);
/* The socket that came with a request. */
int job_stream(struct client *c, int *ret, struct den_err *err);
