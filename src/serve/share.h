/*
 * Shares: how much of something that there is little of each organisation has at the moment. Threads are the first
 * of these: without a bound one key with as many open streams as there are threads locks everybody else out.
 */
#pragma once

#include <stdbool.h>

struct share;

/* One more for that name ("threads ORG"), unless it has max already: NULL. share_give() it back. */
struct share *share_take(const char *name, unsigned max);
void share_give(struct share *s); /* NULL: nothing */
