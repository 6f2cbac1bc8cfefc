/* Generators of random numbers that are restarted after a restore or a fork, where the box asks for it (--reseed). */
#pragma once

#include "keeper.h"

/* Puts into GATE_RUN what programs load; before the box is started or its programs are brought back. */
int reseed_prepare(struct keeper *k, struct den_err *err);
/* Adds to an exec's environment what makes its programs load it. */
void reseed_env(char ***env);
