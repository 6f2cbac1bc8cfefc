/* The parts of the server that have something to prepare; parts.c lists them by hand, in order. */
#pragma once

#include "err.h"

int parts_start(struct den_err *err);
void parts_stop(void); /* the other way round */
/* Makes the templates that clients expect, where they are missing, in a thread of its own. */
void parts_templates(void);
