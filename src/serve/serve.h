/* The server as a whole: what its parts may know of each other's settings. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "err.h"
#include "price.h"

struct serve_settings {
	const char *state;	/* state directory, for people: the server cannot see it */
	const char *own;	/* STATE/serve: database, secret, uploads; the only place that the server sees. "." */
	const char *listen;	/* "127.0.0.1:2600" */
	const char *domain;	/* wildcard domain of boxes: PORT-ID.DOMAIN; "localhost:PORT" by default */
	const char *url;	/* how clients reach it, for links: http://127.0.0.1:2600 */
	bool tls;
	const char *e2b_template; /* what "base" and nothing mean */
	struct prices prices;
};
extern struct serve_settings serve; /* filled in by main.c before the first request, constant after */

/* A part of the server that has something to prepare before the first request, or to end after the last. start
 * runs when database, log and secret are there, in a single thread. main.c lists the parts by hand. Either may
 * be NULL. */
struct serve_part {
	const char *name;
	int (*start)(struct den_err *err);
	void (*stop)(void);
};
extern const struct serve_part v1_part;

/* Things that only the launcher may do; launcher.h has the list and why each is safe. */
int launch_pull(const char *image, const char *name, struct den_err *err);	/* den template pull; waits */
int launch_builtin(const char *name, struct den_err *err);			/* den template builtin; waits */

struct den;
/* A libden handle whose connections come from the launcher, for one thread. den_close() */
int serve_den(struct den **ret, struct den_err *err);
