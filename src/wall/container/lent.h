/*
 * Memory that is lent (struct wall_saving): it is not in the images. Whoever loads them reads it from the processes that
 * have it, which are held until then. So it is copied once instead of twice, and the page cache is left out of it.
 *
 * In the images: `den-lent` says who has it, "INNER PID START" a line each: its number in the box, on the host, and when
 * it was started. Such images are worth nothing once the loan is over.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "err.h"

struct lender {
	uint32_t inner; /* as the box has it */
	pid_t pid;
	uint64_t started;
	int mem; /* its memory, whoever has its number by then; only of one that was opened */
};

struct lent {
	struct lender *v;
	size_t n; /* 0: nothing is lent */
	int fifo;
};

int lent_write(int dirfd, const struct lender *v, size_t n, struct den_err *err);
/* For one who loads. ret->n is 0 if the images have all of it themselves. */
int lent_open(int dirfd, struct lent *ret, struct den_err *err);
int lent_by(const struct lent *l, uint32_t inner); /* its memory, to be read; -1: nobody's */
/* All has been read: was it held, all the time? Gives it back. */
int lent_end(struct lent *l, struct den_err *err);
void lent_close(struct lent *l);
