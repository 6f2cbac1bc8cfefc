/*
 * Which boxes there are, whose, and what they were given: in memory, from den_list() at start, every two seconds,
 * by what keepers tell, and by what this server does itself. It is never the truth, only quick: whoever opens a
 * box asks its keeper, and a box that is gone is forgotten then.
 */
#pragma once

#include "auth.h"
#include "den.h"

struct index_use { /* what counts against a quota */
	uint64_t boxes, cpu_milli, memory, disk;
};

/* By id (either spelling) or name, if it is who's. */
bool index_find(const struct who *w, const char *ref, char ret_id[static 21]);
/* Reads all boxes again, at most each 200 ms: who asks sooner waits. False: they could not be read. */
bool index_renew(struct den *d);
/* What den_list() gave; began: index_clock() before it was called. */
void index_take(const struct den_box_info *infos, size_t n, int64_t began);
int64_t index_clock(void);
/* It is gone, or is about to be: from now on nobody finds it. */
void index_forget(const char *id);
void index_unforget(const char *id); /* it stays after all */
bool index_gone(const char *id);     /* forgotten lately */
void index_wake(void); /* something changed: read again soon */

/* Holds a part of who's quota until index_reserved(): the box is there (id), or it came to nothing (NULL). saved: disk
 * that is taken by other things than boxes. */
int index_reserve(const struct who *w, const struct index_use *use, uint64_t saved, struct den_err *err);
void index_reserved(const struct who *w, const struct index_use *use, const char *id, const char *name,
	const char *const *labels);
