/* Token buckets: how often something may be done. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct bucket { /* zeroed: full */
	double used;
	int64_t at; /* CLOCK_MONOTONIC ns */
};
/* Takes one of at most `room`, of which `rate` come back each second. 0: taken; else the seconds to wait, at least 1. */
unsigned bucket_take(struct bucket *b, double rate, double room, int64_t now_ns);

/* Wrong keys, by address (hashed). True: there were too many lately. */
bool limit_attempt(uint64_t peer); /* counts one */
bool limit_blocked(uint64_t peer); /* just asks */
