/* A few processes that do one large piece of work together, so that it takes a part of the time. The keeper has no
 * threads: whoever makes namespaces must have none. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "err.h"

#define CREW_MAX 4

/* Does part number `part`; who: which of them does it, from 0. Returns 0, or the number of an error. What it leaves
 * must be in memory that is shared. */
typedef int (*crew_work)(void *user, size_t part, int who);

struct crew {
	void *count; /* of the parts that are taken */
	int n;
	pid_t kids[CREW_MAX];
};

/* At most so many; they end with us. urgent: others wait for them. */
int crew_start(struct crew *c, size_t parts, int max, bool urgent, crew_work work, void *user, struct den_err *err);
/* Until all have ended, or stop() says so (asked now and then): false. */
bool crew_await(const struct crew *c, bool (*stop)(void *user), void *user);
/* They end at once, wherever they are. */
void crew_end(struct crew *c);
/* Waits until all of it is done. Nothing is left after that, whatever it returns. what: for the message. */
int crew_wait(struct crew *c, const char *what, struct den_err *err);
