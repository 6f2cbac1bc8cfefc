/*
 * What boxes use: each running box is looked at every few seconds from the host's side; what it used between two
 * looks is added up by box, key and organisation in serve.db. What was added is on disk at most a minute later
 * (a crash of the server loses no more than that; a box's CPU time is counted by the kernel, so it is not lost).
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "err.h"

struct meter_sample {
	int64_t time_ms; /* Unix time */
	uint64_t cpu_usec; /* used in all since the box was started */
	uint32_t cpu_permille; /* of one processor, since the sample before; 0 in the first */
	uint32_t cpu_milli; /* limit in thousandths of a processor; 0: none */
	uint64_t memory, memory_limit; /* bytes; limit 0: none */
	uint64_t disk, disk_limit; /* bytes of changes; limit 0: none */
	uint64_t net_in, net_out; /* bytes through the gate since the server was started */
};

#define METER_KEEP 120 /* samples of a box in memory: ten minutes */

/* The last samples of a box, oldest first; at most max. *n 0: none yet. Always 0. */
int meter_last(const char *box_id, struct meter_sample *out, size_t max, size_t *n);

/* Writes what was not written yet, so that who reads the table finds all that was seen; of one box (its id, or NULL)
 * it is looked at first. */
struct den;
void meter_fresh(struct den *d, const char *box_id);

/* Starts the thread; main.c calls it after the database is open, and stops it last: what was not written yet
 * is written then. */
int meter_start(struct den_err *err);
void meter_stop(void);
