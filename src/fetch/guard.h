/*
 * What this process gives up before it reads a byte from the network.
 *
 * It must be able to: connect to any host, resolve names, read the trusted certificates, and read
 * and write below one directory. After guard_enter() it can do nothing else to files.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "err.h"

struct guard {
	int dir; /* the only place to write to */
	bool drop; /* become uid:gid; only for a process started as root */
	uid_t uid;
	gid_t gid;
};

int guard_parse_drop(const char *text, struct guard *g, struct den_err *err); /* "UID:GID" */
int guard_enter(const struct guard *g, struct den_err *err);
