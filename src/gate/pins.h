/* Which address stands for which name. */
#pragma once

#include "addr.h"
#include "name.h"

struct pins;

struct pins *pins_new(void);
/* The name's number (span.h) in a block; the least used gives way when a block is full. */
unsigned pins_get(struct pins *p, const struct net_name *n, unsigned block);
/* NULL: nobody has it. */
const struct net_name *pins_name(struct pins *p, unsigned index);
/* A connection holds the address: it is not given to another name. */
void pins_hold(struct pins *p, unsigned index, int by);
